// SPDX-License-Identifier: Apache-2.0
#pragma once
// The wire format of Protocol Buffers, read field by field in place and written by appending: for
// messages whose bytes should not be copied, as the weights of a model.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ampc {

struct WireField {
  uint64_t number = 0;
  uint32_t wire = 0;       ///< 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes
  uint64_t varint = 0;     ///< wire 0
  std::string_view text;   ///< the content of the others
  std::string_view whole;  ///< with its key

  bool delimited() const { return wire == 2; }
};

/// Takes a number off the front. Empty: it has no end.
std::optional<uint64_t> TakeVarint(std::string_view* rest);
/// Takes a field off the front. Empty: it is none, or longer than the message.
std::optional<WireField> TakeField(std::string_view* rest);

void AppendVarint(uint64_t value, std::string* message);
void AppendNumber(uint32_t field, uint64_t value, std::string* message);
/// Key and length of a delimited field whose content follows.
void AppendLength(uint32_t field, uint64_t length, std::string* message);
void AppendText(uint32_t field, std::string_view text, std::string* message);

}  // namespace ampc
