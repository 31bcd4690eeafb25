// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inner loops on bf16 for processors that multiply pairs of them (avx512_bf16): two neighbouring
// terms of a sum share a 32-bit word, a product of words adds both to an fp32 sum.
//
// Words are kept in float arrays, so that tiles of words and of floats have one layout; nothing
// reads them as numbers. bf16 denormals count as 0, as in every product of this kind. Results do
// not depend on alignment.

#include <cstdint>

#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {

inline constexpr int64_t kLongestRow = 128;

struct PairOps {
  /// VecOps::product with a and b words and k their number: alpha times the sum of both terms of
  /// every product of words. n is a multiple of 16; strides count words.
  void (*product)(const ProductArgs& args, float alpha);

  /// Rows 2i and 2i + 1 as row i of words, ceil(rows / 2) of them; a missing row is 0, and so are
  /// the words from n to `padded`.
  void (*pair_rows)(const uint16_t* x, int64_t rows, int64_t n, int64_t padded, float* words);
  /// The same from fp32 tiles: n a multiple of 16, rows `stride` floats apart on both sides. words
  /// may be x.
  void (*round_pairs)(const float* x, int64_t rows, int64_t n, int64_t stride, float* words);
  /// Neighbours in each row become one word, and what rounding took from them another: the rounded
  /// ones are the first n / 2 words of the row, the rests the next. n: a multiple of 16 up to
  /// kLongestRow.
  void (*split_rows)(float* x, int64_t rows, int64_t n, int64_t stride);
  /// Transposed: the pair of elements 2c and 2c + 1 of row i is word i of row c, rows `stride`
  /// words apart. rows <= 16 are followed by zeros up to 16.
  void (*pair_columns)(const uint16_t* x, int64_t rows, int64_t n, int64_t stride, float* words);
  /// y = x * factor rounded; x is padded to whole vectors.
  void (*round_scaled)(const float* x, float factor, int64_t n, uint16_t* y);

  /// NaN when any is. n: a multiple of 16.
  float (*max)(const float* x, int64_t n);
  /// Sum of x * y.
  float (*dot)(const uint16_t* x, const uint16_t* y, int64_t n);
  /// y = exp(x - shift) rounded, y at the front of x; returns the sum before rounding. n: a
  /// multiple of 16. x - shift below -100 gives 0.
  float (*exp_sum)(float* x, float shift, int64_t n);
  /// p = exp(p - shift) * factor, d = (d - a) * p.
  void (*softmax_bwd)(float* p, float shift, float factor, float a, float* d, int64_t n);
};

/// Null where the processor has no such products.
const PairOps* Pairs();

namespace pairs_avx512 {
extern const PairOps kPairOps;
}

}  // namespace ampc::cpu
