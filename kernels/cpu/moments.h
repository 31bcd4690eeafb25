// SPDX-License-Identifier: Apache-2.0
#pragma once
// Mean and variance from blocks: each block in the cache gives two sums around a value near its
// mean, and blocks are joined in double, in their order (Chan, Golub, LeVeque).

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {

/// Count, mean and sum of squares around the mean.
struct Moments {
  double count = 0, mean = 0, m2 = 0;

  /// Joins n values whose deviations from `around` have these sums.
  void Join(double n, double around, double sum, double square) {
    const double other_mean = around + sum / n, other_m2 = std::max(square - sum * sum / n, 0.0);
    const double total = count + n, delta = other_mean - mean;
    mean += delta * (n / total);
    m2 += other_m2 + delta * delta * (count * n / total);
    count = total;
  }
  /// Joins a block of n floats.
  void JoinBlock(const VecOps& vec, const float* block, int64_t n) {
    const float around =
        vec.row_reduce[static_cast<int>(RowOp::kSum)](block, n) / static_cast<float>(n);
    float sum, square;
    vec.moments_around(block, around, n, &sum, &square);
    Join(static_cast<double>(n), static_cast<double>(around), static_cast<double>(sum),
         static_cast<double>(square));
  }
};

}  // namespace ampc::cpu
