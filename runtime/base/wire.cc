// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/wire.h"

namespace ampc {

std::optional<uint64_t> TakeVarint(std::string_view* rest) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest->front());
    rest->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

std::optional<WireField> TakeField(std::string_view* rest) {
  const std::string_view start = *rest;
  const std::optional<uint64_t> key = TakeVarint(rest);
  if (!key || *key >> 3 == 0) return std::nullopt;
  WireField field{.number = *key >> 3, .wire = static_cast<uint32_t>(*key & 7)};
  std::optional<uint64_t> length;
  switch (field.wire) {
    case 0: {
      const std::optional<uint64_t> value = TakeVarint(rest);
      if (!value) return std::nullopt;
      field.varint = *value;
      length = 0;
      break;
    }
    case 1:
      length = 8;
      break;
    case 2:
      length = TakeVarint(rest);
      break;
    case 5:
      length = 4;
      break;
    default:  // groups are not used in anything we read
      return std::nullopt;
  }
  if (!length || *length > rest->size()) return std::nullopt;
  field.text = rest->substr(0, *length);
  rest->remove_prefix(*length);
  field.whole = start.substr(0, start.size() - rest->size());
  return field;
}

void AppendVarint(uint64_t value, std::string* message) {
  for (; value >= 0x80; value >>= 7) *message += static_cast<char>(value | 0x80);
  *message += static_cast<char>(value);
}

void AppendNumber(uint32_t field, uint64_t value, std::string* message) {
  AppendVarint(uint64_t{field} << 3, message);
  AppendVarint(value, message);
}

void AppendLength(uint32_t field, uint64_t length, std::string* message) {
  AppendVarint(uint64_t{field} << 3 | 2, message);
  AppendVarint(length, message);
}

void AppendText(uint32_t field, std::string_view text, std::string* message) {
  AppendLength(field, text.size(), message);
  *message += text;
}

}  // namespace ampc
