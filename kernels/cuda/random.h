// SPDX-License-Identifier: Apache-2.0
#pragma once
// dropout, between preparation (random.cc) and kernel (random.cu).

#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ampc::cuda {

/// Elements in logical row-major order, which numbers the random bits.
struct DropoutParams {
  int64_t elements = 0;
  uint32_t stream = 0;
  DType ratio_dtype = DType::kNone;
  bool in_double = false;
  bool vector = false;  ///< dense operands are aligned for vector access
  Operand x, y, mask;
  const void* x_data = nullptr;
  const void* ratio = nullptr;
  const int64_t* rng = nullptr;  ///< seed and index of the micro-batch
  void* y_data = nullptr;
  void* mask_data = nullptr;  ///< may be null
};
void LaunchDropout(const DropoutParams& params, void* stream);

}  // namespace ampc::cuda
