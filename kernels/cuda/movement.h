// SPDX-License-Identifier: Apache-2.0
#pragma once
// copy, scatter_copy, concat and fill, between preparation (movement.cc) and kernels (movement.cu).

#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ampc::cuda {

/// 16 bytes as one element.
struct alignas(16) Bytes16 {
  uint64_t half[2];
};

/// to[target.At(i)] = from[source.At(i)] for i < elements.
struct CopyParams {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t elements = 0;
  Walk source, target;
};
/// `element_bytes` is 1, 2, 4, 8 or 16; both pointers are aligned to it.
void LaunchCopy(const CopyParams& params, int64_t element_bytes, void* stream);

/// to[i] = the first bytes of `value`, i < elements.
struct FillParams {
  void* to = nullptr;
  int64_t elements = 0;
  Bytes16 value = {};
};
void LaunchFill(const FillParams& params, int64_t element_bytes, void* stream);

}  // namespace ampc::cuda
