// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/status.h"

namespace ampc {

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text;
  if (!rep_->file.empty()) text += rep_->file + ": ";
  text += fmt::format("error[{}]: ", rep_->id);
  if (!rep_->node.empty()) text += rep_->node + ": ";
  text += rep_->message;
  if (!rep_->pass.empty()) text += fmt::format(" (in pass {})", rep_->pass);
  return text;
}

}  // namespace ampc
