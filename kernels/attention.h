// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the forward and backward kernels of attention agree on (kernels.def).

#include <cmath>

namespace ampc {

/// From here on a log-sum-exp in fp32 has lost so many digits of the sum that backward adds the
/// weights up again.
inline constexpr double kFarLse = 128;

inline bool IsFarLse(double lse) { return std::isfinite(lse) && std::abs(lse) >= kFarLse; }

}  // namespace ampc
