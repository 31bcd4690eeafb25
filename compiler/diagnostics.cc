// SPDX-License-Identifier: Apache-2.0
#include "compiler/diagnostics.h"

#include <algorithm>

namespace ampc {

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
