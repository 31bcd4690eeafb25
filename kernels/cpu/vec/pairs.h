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

struct PairOps {
  /// VecOps::product with a and b words and k their number: alpha times the sum of both terms of
  /// every product of words. n is a multiple of 16; strides count words.
  void (*product)(const ProductArgs& args, float alpha);

  /// Transposed: the pair of elements 2c and 2c + 1 of row i is word i of row c, rows `stride`
  /// words apart; what is missing of a pair is 0. rows <= 16 are followed by zeros up to 16.
  void (*pair_columns)(const uint16_t* x, int64_t rows, int64_t n, int64_t stride, float* words);
  /// y = x * factor rounded; x is padded to whole vectors.
  void (*round_scaled)(const float* x, float factor, int64_t n, uint16_t* y);

  /// Sum of x * y.
  float (*dot)(const uint16_t* x, const uint16_t* y, int64_t n);
};

/// Null where the processor has no such products.
const PairOps* Pairs();

namespace pairs_avx512 {
extern const PairOps kPairOps;
}

}  // namespace ampc::cpu
