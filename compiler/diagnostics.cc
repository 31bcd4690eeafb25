// SPDX-License-Identifier: Apache-2.0
#include "compiler/diagnostics.h"

#include <algorithm>

namespace ampc {

std::string Listed(const std::vector<std::string>& items) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, items.size()); ++i)
    text += (i == 0 ? "" : ", ") + items[i];
  if (items.size() > kShown) text += fmt::format(" and {} more", items.size() - kShown);
  return text;
}

Status Diagnostics::Take() {
  if (errors_.empty()) return {};
  if (errors_.size() == 1) {
    Status only = std::move(errors_.front());
    errors_.clear();
    return only;
  }
  // One message for all; the place of each finding is part of its line.
  std::string text = fmt::format("{} errors:", errors_.size());
  for (const Status& e : errors_) text += "\n  " + e.ToString();
  Status all = Status::Error(errors_.front().error_class(), errors_.front().id(), std::move(text));
  errors_.clear();
  return all;
}

}  // namespace ampc
