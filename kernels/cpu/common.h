// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the CPU kernels share: loops over threads, blocks of low-precision data seen as floats,
// workspace layout, and the usual reasons to decline.
//
// Determinism: work is cut into tasks whose number depends on shapes (or on
// PrepareOptions::threads, where a comment says so), never on how many threads the OpenMP runtime
// happens to give. Every task writes its own places; partial results are joined in task order.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include <omp.h>

#include "kernels/kernel.h"
#include "runtime/base/float16.h"

namespace ampc::cpu {

/// Elements of a block that is widened on the stack: 8 KiB of floats, well inside the L1 cache.
inline constexpr int64_t kBlock = 2048;

/// Waking a second thread costs 2 to 30 us, the time that one core needs for this many bytes from
/// memory.
inline constexpr int64_t kBytesPerThread = 256 * 1024;

/// How many of `threads` are worth waking for work that moves (or costs as much as moving) `bytes`.
inline int ThreadsFor(int threads, int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>(bytes / kBytesPerThread, 1, std::max(threads, 1)));
}

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// f(i) for i in [0, n) on up to `threads` threads. f must not throw.
template <typename F>
void ParallelFor(int threads, int64_t n, const F& f) noexcept {
  if (threads <= 1 || n <= 1) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  const int used = static_cast<int>(std::min<int64_t>(threads, n));
#pragma omp parallel for num_threads(used) schedule(static)
  for (int64_t i = 0; i < n; ++i) f(i);
}

/// f(begin, end) over [0, n) in one piece per thread, cut at multiples of `grain`.
template <typename F>
void ParallelRanges(int threads, int64_t n, int64_t grain, const F& f) noexcept {
  const int64_t grains = CeilDiv(n, grain);
  const int64_t tasks = std::clamp<int64_t>(threads, 1, std::max<int64_t>(grains, 1));
  ParallelFor(threads, tasks, [&](int64_t t) {
    const int64_t begin = std::min(n, grains * t / tasks * grain);
    const int64_t end = std::min(n, grains * (t + 1) / tasks * grain);
    if (begin < end) f(begin, end);
  });
}

/// Books pieces of the workspace; every piece starts at a multiple of 64 bytes.
class WorkspacePlan {
 public:
  /// Offset of the new piece.
  int64_t Take(int64_t bytes) {
    const int64_t offset = total_;
    total_ += CeilDiv(std::max<int64_t>(bytes, 0), 64) * 64;
    return offset;
  }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

template <typename T>
T* At(void* base, int64_t byte_offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + byte_offset);
}
inline const std::byte* Offset(const void* p, int64_t bytes) {
  return static_cast<const std::byte*>(p) + bytes;
}
inline std::byte* Offset(void* p, int64_t bytes) { return static_cast<std::byte*>(p) + bytes; }

// ---- fp32, fp16 and bf16 data as floats ----

/// True for the dtypes that the vectorised kernels take: fp32, fp16, bf16.
inline bool IsFloatUpTo32(DType t) { return t == DType::kFloat32 || IsLow(t); }

inline void Widen(DType t, const void* src, float* dst, int64_t n) {
  if (t == DType::kFloat16) {
    HalfToFloat(static_cast<const uint16_t*>(src), dst, n);
  } else if (t == DType::kBFloat16) {
    BFloat16ToFloat(static_cast<const uint16_t*>(src), dst, n);
  } else {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
  }
}

inline void Narrow(DType t, const float* src, void* dst, int64_t n) {
  if (t == DType::kFloat16) {
    FloatToHalf(src, static_cast<uint16_t*>(dst), n);
  } else if (t == DType::kBFloat16) {
    FloatToBFloat16(src, static_cast<uint16_t*>(dst), n);
  } else {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
  }
}

/// Elements [begin, begin + n) of `src` as floats: in place for fp32, else widened into `buffer`.
inline const float* FloatBlock(DType t, const void* src, int64_t begin, int64_t n, float* buffer) {
  if (t == DType::kFloat32) return static_cast<const float*>(src) + begin;
  Widen(t, Offset(src, begin * 2), buffer, n);
  return buffer;
}

/// Where to compute elements [begin, begin + n) of `dst`; finish with StoreBlock.
inline float* OutputBlock(DType t, void* dst, int64_t begin, float* buffer) {
  return t == DType::kFloat32 ? static_cast<float*>(dst) + begin : buffer;
}
inline void StoreBlock(DType t, const float* block, void* dst, int64_t begin, int64_t n) {
  if (t != DType::kFloat32) Narrow(t, block, Offset(dst, begin * 2), n);
}

/// One element as a float.
inline float LoadFloat(DType t, const void* src, int64_t i) {
  if (t == DType::kFloat16) return FloatFromHalf(static_cast<const uint16_t*>(src)[i]);
  if (t == DType::kBFloat16) return FloatFromBFloat16(static_cast<const uint16_t*>(src)[i]);
  return static_cast<const float*>(src)[i];
}
inline void StoreFloat(DType t, void* dst, int64_t i, float v) {
  if (t == DType::kFloat16) {
    static_cast<uint16_t*>(dst)[i] = HalfFromFloat(v);
  } else if (t == DType::kBFloat16) {
    static_cast<uint16_t*>(dst)[i] = BFloat16FromFloat(v);
  } else {
    static_cast<float*>(dst)[i] = v;
  }
}

/// Whole tensors, on several threads.
inline void WidenAll(int threads, DType t, const void* src, float* dst, int64_t n) {
  ParallelRanges(ThreadsFor(threads, n * 6), n, kBlock, [&](int64_t begin, int64_t end) {
    Widen(t, Offset(src, begin * SizeOf(t)), dst + begin, end - begin);
  });
}
inline void NarrowAll(int threads, DType t, const float* src, void* dst, int64_t n) {
  ParallelRanges(ThreadsFor(threads, n * 6), n, kBlock, [&](int64_t begin, int64_t end) {
    Narrow(t, src + begin, Offset(dst, begin * SizeOf(t)), end - begin);
  });
}

// ---- reasons to decline ----

/// Empty when every present operand of the call is fp32, fp16 or bf16 (those at `skip` apart).
std::string DeclinesUnlessFloat(const CallSpec& call, int skip_input = -1, int skip_output = -1);
/// Empty when no operand is empty.
std::string DeclinesEmpty(const CallSpec& call);

/// Reports the index at flat position `i`, if it is the first.
inline void ReportIndexError(const RunContext& context, int64_t i) {
  int64_t expected = 0;
  __atomic_compare_exchange_n(context.index_error, &expected, i + 1, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
}

}  // namespace ampc::cpu
