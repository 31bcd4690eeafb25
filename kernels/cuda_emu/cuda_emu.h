// SPDX-License-Identifier: Apache-2.0
#pragma once
// Plays the part of CUDA's headers when a .cu file is compiled as C++ for the host: the build puts
// this file before it.
//
// A launch is a loop over blocks and threads, each thread run to its end: what remains of a kernel
// is its body, which compilers, sanitizers and debuggers of the host then see. Blocks and threads
// run last to first and shared memory starts as garbage, so a kernel that relies on either gives
// other results than the reference, which goes forward. A launch that a device would refuse stops
// the program.
//
// Not here, because no kernel needs it: barriers and shuffles (threads would have to take turns),
// atomics, grids of more than one dimension, static shared memory. A kernel that uses them does not
// compile. Not to be seen here at all: timing and races between threads. fp16 and bf16 are
// converted by runtime/base/float16.h, which differs from the hardware in the payload of NaNs
// alone.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/base/float16.h"

#define AMPC_CUDA_EMULATION
#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(threads)

namespace ampc::cuda {

// ---- where a thread is

struct EmulatedIndex {
  unsigned x = 0;
};
inline thread_local EmulatedIndex threadIdx, blockIdx, blockDim;
inline thread_local unsigned char* emulated_shared = nullptr;

inline unsigned char* DynamicShared() { return emulated_shared; }

/// Calls `body` for every thread of the grid.
template <typename F>
void RunGrid(int64_t blocks, int threads, size_t shared_bytes, const F& body) {
  struct alignas(16) Unit {
    unsigned char bytes[16];
  };
  if (blocks > INT32_MAX || threads < 1 || threads > 1024 || shared_bytes > 48 * 1024) {
    std::fprintf(stderr,
                 "no device takes %lld blocks of %d threads with %zu bytes of shared memory\n",
                 static_cast<long long>(blocks), threads, shared_bytes);
    std::abort();
  }
  std::vector<Unit> shared((shared_bytes + sizeof(Unit) - 1) / sizeof(Unit));
  emulated_shared = reinterpret_cast<unsigned char*>(shared.data());
  blockDim.x = static_cast<unsigned>(threads);
  for (int64_t block = blocks; block-- > 0;) {
    blockIdx.x = static_cast<unsigned>(block);
    if (shared_bytes != 0) std::memset(emulated_shared, 0xA5, shared_bytes);
    for (unsigned thread = blockDim.x; thread-- > 0;) {
      threadIdx.x = thread;
      body();
    }
  }
  emulated_shared = nullptr;
}

// ---- cuda_fp16.h, cuda_bf16.h: the conversions

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline uint16_t __half_as_ushort(__half h) { return h.bits; }
inline float __half2float(__half h) { return FloatFromHalf(h.bits); }
inline __half __float2half_rn(float v) { return {HalfFromFloat(v)}; }
inline __half __double2half(double v) { return {HalfFromDouble(v)}; }

inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) { return {bits}; }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 b) { return b.bits; }
inline float __bfloat162float(__nv_bfloat16 b) { return FloatFromBFloat16(b.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return {BFloat16FromFloat(v)}; }
inline __nv_bfloat16 __double2bfloat16(double v) { return {BFloat16FromDouble(v)}; }

}  // namespace ampc::cuda
