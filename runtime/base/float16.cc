// SPDX-License-Identifier: Apache-2.0
// Array conversions. The binary runs on any x86-64: wider code sits in functions with a target
// attribute and is entered only when the processor has the set. vcvtneps2bf16 is not used: it
// flushes subnormals.

#include "runtime/base/float16.h"

#if defined(__x86_64__)
// GCC 12 warns about its own "undefined" vectors when intrinsics are inlined (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#define AMPC_X86 1
#else
#define AMPC_X86 0
#endif

namespace ampc {
namespace {

void HalfToFloatScalar(const uint16_t* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = FloatFromHalf(in[i]);
}
void FloatToHalfScalar(const float* in, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = HalfFromFloat(in[i]);
}
void BFloat16ToFloatScalar(const uint16_t* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = FloatFromBFloat16(in[i]);
}
void FloatToBFloat16Scalar(const float* in, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = BFloat16FromFloat(in[i]);
}

#if AMPC_X86

#define AMPC_AVX2 __attribute__((target("avx2,f16c")))
#define AMPC_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

// --- AVX2 + F16C: eight at a time, the tail by the scalar code ---

AMPC_AVX2 void HalfToFloatAvx2(const uint16_t* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
  }
  HalfToFloatScalar(in + i, out + i, n - i);
}

AMPC_AVX2 void FloatToHalfAvx2(const float* in, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
  }
  FloatToHalfScalar(in + i, out + i, n - i);
}

AMPC_AVX2 void BFloat16ToFloatAvx2(const uint16_t* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), wide);
  }
  BFloat16ToFloatScalar(in + i, out + i, n - i);
}

AMPC_AVX2 inline __m256i RoundToBFloat16Avx2(__m256i x) {
  const __m256i high = _mm256_srli_epi32(x, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(x, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i magnitude = _mm256_and_si256(x, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
}

AMPC_AVX2 void FloatToBFloat16Avx2(const float* in, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const auto* source = reinterpret_cast<const __m256i*>(in + i);
    const __m256i a = RoundToBFloat16Avx2(_mm256_loadu_si256(source));
    const __m256i b = RoundToBFloat16Avx2(_mm256_loadu_si256(source + 1));
    // packus works within 128-bit lanes; the permutation puts the quarters back in order.
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), packed);
  }
  FloatToBFloat16Scalar(in + i, out + i, n - i);
}

// --- AVX-512: sixteen at a time, the tail under a mask ---

inline uint16_t TailMask(int64_t left) { return static_cast<uint16_t>((1u << left) - 1u); }

AMPC_AVX512 void HalfToFloatAvx512(const uint16_t* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    _mm512_storeu_ps(out + i, _mm512_cvtph_ps(half));
  }
  if (i == n) return;
  const __mmask16 mask = TailMask(n - i);
  _mm512_mask_storeu_ps(out + i, mask, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, in + i)));
}

AMPC_AVX512 void FloatToHalfAvx512(const float* in, uint16_t* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i half = _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), half);
  }
  if (i == n) return;
  const __mmask16 mask = TailMask(n - i);
  const __m256i half =
      _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, in + i), _MM_FROUND_TO_NEAREST_INT);
  _mm256_mask_storeu_epi16(out + i, mask, half);
}

AMPC_AVX512 void BFloat16ToFloatAvx512(const uint16_t* in, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    _mm512_storeu_si512(out + i, _mm512_slli_epi32(_mm512_cvtepu16_epi32(low), 16));
  }
  if (i == n) return;
  const __mmask16 mask = TailMask(n - i);
  const __m256i low = _mm256_maskz_loadu_epi16(mask, in + i);
  _mm512_mask_storeu_epi32(out + i, mask, _mm512_slli_epi32(_mm512_cvtepu16_epi32(low), 16));
}

/// The results are the upper halves of the words.
AMPC_AVX512 inline __m512i RoundToBFloat16Avx512(__m512i x) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7FFF)), odd);
  const __m512 value = _mm512_castsi512_ps(x);
  const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(sum, nan, x, _mm512_set1_epi32(0x400000));  // quiet
}
AMPC_AVX512 inline __m256i UpperHalves(__m512i x) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16));
}

AMPC_AVX512 void FloatToBFloat16Avx512(const float* in, uint16_t* out, int64_t n) {
  alignas(64) static constexpr uint16_t kUpper[] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                    23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                    45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i upper = _mm512_load_si512(kUpper);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {  // two vectors at once: one permutation takes both upper halves
    const __m512i a = RoundToBFloat16Avx512(_mm512_loadu_si512(in + i));
    const __m512i b = RoundToBFloat16Avx512(_mm512_loadu_si512(in + i + 16));
    _mm512_storeu_si512(out + i, _mm512_permutex2var_epi16(a, upper, b));
  }
  for (; i + 16 <= n; i += 16) {
    const __m512i x = RoundToBFloat16Avx512(_mm512_loadu_si512(in + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), UpperHalves(x));
  }
  if (i == n) return;
  const __mmask16 mask = TailMask(n - i);
  const __m512i x = RoundToBFloat16Avx512(_mm512_maskz_loadu_epi32(mask, in + i));
  _mm256_mask_storeu_epi16(out + i, mask, UpperHalves(x));
}

#define AMPC_DISPATCH(name)            \
  switch (isa) {                       \
    case Float16Isa::kAvx512:          \
      return name##Avx512(in, out, n); \
    case Float16Isa::kAvx2:            \
      return name##Avx2(in, out, n);   \
    case Float16Isa::kScalar:          \
      return name##Scalar(in, out, n); \
  }

#else

#define AMPC_DISPATCH(name) \
  static_cast<void>(isa);   \
  name##Scalar(in, out, n);

#endif

// __builtin_cpu_supports reads a word filled once at program start: cheap enough to ask on every
// call.
Float16Isa BestIsa() {
  if (Float16IsaSupported(Float16Isa::kAvx512)) return Float16Isa::kAvx512;
  if (Float16IsaSupported(Float16Isa::kAvx2)) return Float16Isa::kAvx2;
  return Float16Isa::kScalar;
}

}  // namespace

bool Float16IsaSupported(Float16Isa isa) {
#if AMPC_X86
  switch (isa) {
    case Float16Isa::kScalar:
      return true;
    case Float16Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case Float16Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Float16Isa::kScalar;
}

void HalfToFloat(const uint16_t* in, float* out, int64_t n, Float16Isa isa) {
  AMPC_DISPATCH(HalfToFloat)
}
void FloatToHalf(const float* in, uint16_t* out, int64_t n, Float16Isa isa) {
  AMPC_DISPATCH(FloatToHalf)
}
void BFloat16ToFloat(const uint16_t* in, float* out, int64_t n, Float16Isa isa) {
  AMPC_DISPATCH(BFloat16ToFloat)
}
void FloatToBFloat16(const float* in, uint16_t* out, int64_t n, Float16Isa isa) {
  AMPC_DISPATCH(FloatToBFloat16)
}

void HalfToFloat(const uint16_t* in, float* out, int64_t n) { HalfToFloat(in, out, n, BestIsa()); }
void FloatToHalf(const float* in, uint16_t* out, int64_t n) { FloatToHalf(in, out, n, BestIsa()); }
void BFloat16ToFloat(const uint16_t* in, float* out, int64_t n) {
  BFloat16ToFloat(in, out, n, BestIsa());
}
void FloatToBFloat16(const float* in, uint16_t* out, int64_t n) {
  FloatToBFloat16(in, out, n, BestIsa());
}

}  // namespace ampc
