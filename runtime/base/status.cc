// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/status.h"

#include "runtime/base/printable.h"

namespace ampc {

std::string Printable(std::string_view text) {
  constexpr size_t kMostBytes = size_t{64} << 10;
  if (text.size() > kMostBytes) {
    return Printable(text.substr(0, kMostBytes)) +
           fmt::format("… ({} more bytes)", text.size() - kMostBytes);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool list_item = c == '\n' && text.substr(i + 1).starts_with("  ");
    // U+0080 to U+009F, which some terminals take for the same.
    const bool wide_control = c == 0xC2 && i + 1 < text.size() &&
                              static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                              static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if ((c < 0x20 || c == 0x7F || wide_control) && !list_item) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text;
  if (!rep_->file.empty()) text += rep_->file + ": ";
  text += fmt::format("error[{}]: ", rep_->id);
  if (!rep_->node.empty()) text += rep_->node + ": ";
  text += rep_->message;
  if (!rep_->pass.empty()) text += fmt::format(" (in pass {})", rep_->pass);
  return Printable(text);
}

}  // namespace ampc
