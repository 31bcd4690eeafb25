// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the two halves of the verifier share: verify.cc (P0, the plan around the programs) and
// verify_program.cc (P1..P6).

#include <string_view>

#include "runtime/plan/plan.h"

namespace ampc::plan {

/// An error that starts with the label of the invariant.
template <typename... Args>
Status Violation(std::string_view label, fmt::format_string<Args...> f, Args&&... args) {
  return BadInput("E0645", "{}: {}", label, fmt::format(f, std::forward<Args>(args)...));
}

inline bool InRange(int64_t index, size_t size) {
  return index >= 0 && index < static_cast<int64_t>(size);
}

/// A data type, sizes that fit, a layout that the rank allows.
Status CheckDesc(std::string_view label, std::string_view name, const TensorDesc& desc);

}  // namespace ampc::plan
