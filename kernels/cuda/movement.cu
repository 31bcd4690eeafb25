// SPDX-License-Identifier: Apache-2.0
// copy, scatter_copy, concat, fill: elements move, bits stay. One thread moves one element, which
// preparation has made as wide as rows and alignment allow, up to 16 bytes; neighbouring threads
// take neighbours of the dense side.

#include "kernels/cuda/movement.h"

#include <cstring>

#include "kernels/cuda/launch.h"

namespace ampc::cuda {
namespace {

template <typename E>
__global__ void __launch_bounds__(kThreads) Copy(const __grid_constant__ CopyParams p) {
  const int64_t i = ThreadNumber();
  if (i >= p.elements) return;
  const uint32_t element = static_cast<uint32_t>(i);
  static_cast<E*>(p.to)[p.target.At(element)] = static_cast<const E*>(p.from)[p.source.At(element)];
}

template <typename E>
__global__ void __launch_bounds__(kThreads) Fill(const __grid_constant__ FillParams p) {
  const int64_t i = ThreadNumber();
  if (i >= p.elements) return;
  E value;
  memcpy(&value, &p.value, sizeof value);
  static_cast<E*>(p.to)[i] = value;
}

/// f(an element type of `bytes` bytes).
template <typename F>
void VisitSize(int64_t bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return f(Bytes16{});
  }
}

}  // namespace

void LaunchCopy(const CopyParams& params, int64_t element_bytes, void* stream) {
  VisitSize(element_bytes,
            [&]<typename E>(E) { Launch(Copy<E>, params, params.elements, kThreads, 0, stream); });
}

void LaunchFill(const FillParams& params, int64_t element_bytes, void* stream) {
  VisitSize(element_bytes,
            [&]<typename E>(E) { Launch(Fill<E>, params, params.elements, kThreads, 0, stream); });
}

}  // namespace ampc::cuda
