// SPDX-License-Identifier: Apache-2.0
#pragma once
// Numbers and tensor data in module text. Every element prints as the shortest text that reads back
// to the same bits; what has no such text (a NaN with a payload) prints as its bits in hexadecimal.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace ampc::ir {

/// Data of up to this many elements is written in place, more as one hex string.
inline constexpr int64_t kInlineElements = 64;

void AppendDouble(double value, std::string* out);
std::optional<double> ParseDouble(std::string_view text);
/// Decimal, with an optional sign.
std::optional<int64_t> ParseInt64(std::string_view text);

/// `{1, 2}` or `hex("…")`. `bytes` are whole elements of `dtype`.
void AppendData(DType dtype, std::span<const std::byte> bytes, std::string* out);
/// Writes the element that `text` stands for to `out` (SizeOf(dtype) bytes). False when it is none
/// of `dtype`.
bool ParseElement(DType dtype, std::string_view text, std::byte* out);
/// Bytes of a hex string; nullopt when it has an odd length or another character.
std::optional<std::vector<std::byte>> ParseHex(std::string_view text);

/// `"text"` with \" \\ \n \r \t \xHH escapes.
void AppendQuoted(std::string_view text, std::string* out);

}  // namespace ampc::ir
