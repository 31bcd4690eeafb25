// SPDX-License-Identifier: Apache-2.0
// Loops on pairs of bf16 (pairs.h); compiled with avx512_bf16 (kernels/cpu/CMakeLists.txt).
#include "kernels/cpu/vec/pairs.h"

#if defined(__AVX512BF16__)
#include <cstring>

#include <immintrin.h>

namespace ampc::cpu::pairs_avx512 {
namespace {

constexpr int64_t kW = 16;  // words of a vector

inline __m512bh LoadWords(const float* p) { return (__m512bh)_mm512_loadu_si512(p); }
inline __m512bh SplatWord(const float* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return (__m512bh)_mm512_set1_epi32(word);
}

// ---- products ----

template <int R, int C>
inline void ProductTile(const ProductArgs& p, float alpha, int64_t row, int64_t column) {
  __m512 acc[R][C];
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + column;
  float* c = p.c + row * p.c_row + column;
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < C; ++j) acc[r][j] = _mm512_setzero_ps();
  }
  for (int64_t l = 0; l < p.k; ++l) {
    __m512bh x[C];
    for (int j = 0; j < C; ++j) x[j] = LoadWords(b + l * p.b_row + j * kW);
    for (int r = 0; r < R; ++r) {
      const __m512bh w = SplatWord(a + r * p.a_row + l * p.a_column);
      for (int j = 0; j < C; ++j) acc[r][j] = _mm512_dpbf16_ps(acc[r][j], x[j], w);
    }
  }
  const __m512 factor = _mm512_set1_ps(alpha);
#pragma GCC unroll 8  // or the sums go through memory
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int j = 0; j < C; ++j) {
      float* at = c + r * p.c_row + j * kW;
      const __m512 before = p.add ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
      _mm512_storeu_ps(at, _mm512_fmadd_ps(acc[r][j], factor, before));
    }
  }
}

/// The last rows, fewer than R + 1.
template <int R, int C>
inline void ProductRest(const ProductArgs& p, float alpha, int64_t row, int64_t column) {
  if constexpr (R > 0) {
    if (p.m - row == R) return ProductTile<R, C>(p, alpha, row, column);
    ProductRest<R - 1, C>(p, alpha, row, column);
  }
}

template <int C>
inline void ProductColumns(const ProductArgs& p, float alpha, int64_t column) {
  constexpr int kRows = 8;  // with two columns, half of the registers are accumulators
  int64_t row = 0;
  for (; row + kRows <= p.m; row += kRows) ProductTile<kRows, C>(p, alpha, row, column);
  ProductRest<kRows - 1, C>(p, alpha, row, column);
}

void Product(const ProductArgs& p, float alpha) {
  int64_t column = 0;
  for (; column + 2 * kW <= p.n; column += 2 * kW) ProductColumns<2>(p, alpha, column);
  for (; column < p.n; column += kW) ProductColumns<1>(p, alpha, column);
}

// ---- words ----

/// Sixteen floats rounded to the 32 bytes at y.
inline void StoreRounded(void* y, __m512 v) {
  _mm256_storeu_si256(static_cast<__m256i*>(y), (__m256i)_mm512_cvtneps_pbh(v));
}

/// Sixteen rows of sixteen words become sixteen columns.
inline void Transpose(__m512i (&r)[kW]) {
  __m512i t[kW];
  for (int i = 0; i < kW; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < kW;
       i += 4) {  // then quarter q of r[i + j] is column 4 q + j of rows i to i + 3
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512i even = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88),
                  odd = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xDD),
                  lower_even = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88),
                  lower_odd = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xDD);
    r[j] = _mm512_shuffle_i32x4(even, lower_even, 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(odd, lower_odd, 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(even, lower_even, 0xDD);
    r[12 + j] = _mm512_shuffle_i32x4(odd, lower_odd, 0xDD);
  }
}

/// 32 elements, or the first n.
inline __mmask32 FirstOf32(int64_t n) { return n >= 2 * kW ? ~0u : (1u << n) - 1; }

void PairColumns(const uint16_t* x, int64_t rows, int64_t n, int64_t stride, float* words) {
  for (int64_t c = 0; c < n; c += 2 * kW) {
    __m512i r[kW];
    for (int i = 0; i < kW; ++i) {
      r[i] = i < rows ? _mm512_maskz_loadu_epi16(FirstOf32(n - c), x + i * n + c)
                      : _mm512_setzero_si512();
    }
    Transpose(r);
    for (int i = 0; i < kW && c + 2 * i < n; ++i)
      _mm512_storeu_si512(words + (c / 2 + i) * stride, r[i]);
  }
}

void RoundScaled(const float* x, float factor, int64_t n, uint16_t* y) {
  const __m512 f = _mm512_set1_ps(factor);
  int64_t i = 0;
  for (; i + kW <= n; i += kW) StoreRounded(y + i, _mm512_mul_ps(_mm512_loadu_ps(x + i), f));
  if (i == n) return;
  const auto low = (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(x + i), f));
  _mm256_mask_storeu_epi16(y + i, static_cast<__mmask16>((1 << (n - i)) - 1), low);
}

float Dot(const uint16_t* x, const uint16_t* y, int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 2 * kW) {
    const __mmask32 mask = FirstOf32(n - i);
    sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_maskz_loadu_epi16(mask, x + i),
                           (__m512bh)_mm512_maskz_loadu_epi16(mask, y + i));
  }
  return _mm512_reduce_add_ps(sum);
}

}  // namespace

const PairOps kPairOps = {
    .product = Product,
    .pair_columns = PairColumns,
    .round_scaled = RoundScaled,
    .dot = Dot,
};

}  // namespace ampc::cpu::pairs_avx512
#endif
