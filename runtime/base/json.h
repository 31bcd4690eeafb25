// SPDX-License-Identifier: Apache-2.0
#pragma once
// JSON is read with a library; what we write of it is lines and metadata.

#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace ampc {

/// Appends `text` as a JSON string (RFC 8259, section 7).
inline void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (c == '\n') {
      *out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(*out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      *out += c;
    }
  }
  *out += '"';
}

}  // namespace ampc
