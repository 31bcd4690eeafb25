// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every .cu file starts with: CUDA's headers, or in the emulation kernels/cuda_emu/cuda_emu.h
// (which the build puts before the file), and the few words that differ between the two: how a
// kernel is launched, where its dynamic shared memory is, which loops are unrolled.
//
// A .cu file holds an idea comment, device functions, kernels and launchers. It includes no header
// that knows Status: fmt does not compile under nvcc. Checks and preparation stand in the .cc file
// of the same name, the parameters of a launch in the .h file between them. Kernels are
// one-dimensional and take their parameters in one struct by value, which the hardware keeps in
// constant memory.

#include <cmath>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define AMPC_UNROLL _Pragma("unroll")
#define AMPC_NO_UNROLL _Pragma("unroll 1")
#elif defined(AMPC_CUDA_EMULATION)
#define AMPC_UNROLL
#define AMPC_NO_UNROLL
#else
#error "compile .cu files with nvcc, or as C++ after kernels/cuda_emu/cuda_emu.h"
#endif

namespace ampc::cuda {

/// Threads of a block where nothing asks for fewer.
inline constexpr int kThreads = 128;

/// What the driver takes as parameters of one launch on every device that we build for.
inline constexpr size_t kMaxParamBytes = 32764;

#ifdef __CUDACC__

/// The block's dynamic shared memory.
__device__ inline unsigned char* DynamicShared() {
  extern __shared__ __align__(16) unsigned char ampc_dynamic_shared[];
  return ampc_dynamic_shared;
}

/// Runs `kernel` with at least `work` threads (not at all for 0) on the stream. An error of the
/// launch itself is kept by the CUDA runtime and reported at the end of the run
/// (runtime/device_cuda.cc).
template <typename Params>
void Launch(void (*kernel)(Params), const Params& params, int64_t work, int threads,
            size_t shared_bytes, void* stream) {
  static_assert(sizeof(Params) <= kMaxParamBytes);
  if (work == 0) return;
  const unsigned blocks = static_cast<unsigned>((work + threads - 1) / threads);
  kernel<<<blocks, static_cast<unsigned>(threads), shared_bytes,
           static_cast<cudaStream_t>(stream)>>>(params);
}

#else

template <typename Params>
void Launch(void (*kernel)(Params), const Params& params, int64_t work, int threads,
            size_t shared_bytes, void*) {
  static_assert(sizeof(Params) <= kMaxParamBytes);
  if (work == 0) return;
  RunGrid((work + threads - 1) / threads, threads, shared_bytes, [&] { kernel(params); });
}

#endif

/// Number of this thread in the grid.
__device__ inline int64_t ThreadNumber() {
  return static_cast<int64_t>(blockIdx.x) * static_cast<int64_t>(blockDim.x) +
         static_cast<int64_t>(threadIdx.x);
}

}  // namespace ampc::cuda
