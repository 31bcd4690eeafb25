// SPDX-License-Identifier: Apache-2.0
#pragma once
// The vectorised inner loops of the CPU kernels, built once per instruction set and chosen at run
// time.
//
// vec/isa_{base,avx2,avx512}.cc compile the same *.inc files with different flags; each exports one
// table. Loops work on floats in memory that is usually in the L1 cache; callers widen and narrow
// fp16 and bf16 in blocks, cut work into tasks and join partial sums. Nothing here allocates, locks
// or starts threads. Sums use a fixed number of lanes, so results depend on the instruction set but
// never on alignment. No operation is contracted to FMA: elementwise loops give the same bits on
// every set.

#include <cstdint>

#include "kernels/expr.h"

namespace ampc::cpu {

/// What a reduction combines. Transformed values first (kSumAbs: |x|, kSumSquare: x * x), then
/// sums.
enum class RowOp : int { kSum, kSumAbs, kSumSquare, kMax, kMin };
inline constexpr int kRowOps = 5;

struct AdamScalars {
  float lr_decay;  ///< decoupled: 1 - lr * weight_decay; else weight_decay
  float step_size, beta2, one_minus_beta1, one_minus_beta2, bias_correction2_sqrt, eps;
};
struct SgdScalars {
  float lr, momentum, one_minus_dampening, weight_decay;
};

/// c[i * c_row + j] = the sum over l < k of a[i * a_row + l * a_column] * b[l * b_row + j] (added
/// to c when `add`), i < m, j < n. n is a multiple of 16.
struct ProductArgs {
  const float *a, *b;
  float* c;
  int64_t a_row, a_column, b_row, c_row;
  int64_t m, n, k;
  bool add;
};

struct VecOps {
  const char* name;

  // --- elementwise: x and y may be the same block
  /// max(x, 0), NaN passes.
  void (*relu)(const float* x, float* y, int64_t n);
  void (*relu_bf16)(uint16_t* y, int64_t n);
  /// y = x * alpha.
  void (*scale)(const float* x, float alpha, float* y, int64_t n);

  // --- elementwise programs (kernels/expr_eval.h)
  void (*eval)(const ExprProgram& program, const float* const* inputs, float* const* outputs,
               int64_t n, float* scratch);

  // --- reductions
  /// Over n contiguous floats. Use blocks of at most kBlock and join in double.
  float (*row_reduce[kRowOps])(const float* x, int64_t n);
  /// acc[j] = acc[j] (op) x[i * stride + j] over i < rows, j < cols. Eight rows are added first.
  void (*column_reduce[kRowOps])(const float* x, int64_t rows, int64_t cols, int64_t stride,
                                 float* acc);

  // --- softmax
  /// y = exp(x - shift); returns their sum.
  float (*exp_sum)(const float* x, float shift, float* y, int64_t n);
  /// y = (x - a) - b.
  void (*subtract)(const float* x, float a, float b, float* y, int64_t n);
  /// Sum of exp(x - shift) without storing.
  float (*sum_exp)(const float* x, float shift, int64_t n);
  /// Sum of x * y.
  float (*dot)(const float* x, const float* y, int64_t n);
  /// dx = (dy - a) * y.
  void (*softmax_bwd)(const float* y, const float* dy, float a, float* dx, int64_t n);
  /// dx = dy - exp(y) * a.
  void (*log_softmax_bwd)(const float* y, const float* dy, float a, float* dx, int64_t n);

  // The same with one row of columns at a time, every operand n floats: sum += exp(x - shift), and
  // so on.
  void (*sum_exp_columns)(const float* x, const float* shift, float* sum, int64_t n);
  void (*softmax_columns)(const float* x, const float* shift, const float* scale, float* y,
                          int64_t n);
  void (*log_softmax_columns)(const float* x, const float* shift, const float* log_sum, float* y,
                              int64_t n);
  void (*multiply_add_columns)(const float* x, const float* y, float* acc, int64_t n);
  void (*softmax_bwd_columns)(const float* y, const float* dy, const float* sum, float* dx,
                              int64_t n);
  void (*log_softmax_bwd_columns)(const float* y, const float* dy, const float* sum, float* dx,
                                  int64_t n);
  /// y = exp(x) * scale - w * b; w == nullptr: ones.
  void (*exp_scale)(const float* x, float scale, const float* w, float b, float* y, int64_t n);

  /// How many x[i] come before `own`, the score of class `label`: larger, NaN, or equal with i <
  /// label.
  int64_t (*count_better)(const float* x, float own, int64_t label, int64_t n);

  // --- attention
  /// The one loop with fused multiply-adds, where the set has them.
  void (*product)(const ProductArgs& args);
  /// y = x + mask, -inf where mask is, whatever x.
  void (*add_mask)(const float* x, const float* mask, float* y, int64_t n);
  /// y = cap * tanh(x / cap).
  void (*soft_cap)(const float* x, float cap, float* y, int64_t n);
  /// dx = dx * (1 - (y / cap)^2); y as soft_cap gave it.
  void (*soft_cap_bwd)(const float* y, float cap, float* dx, int64_t n);

  // --- norms
  /// y = (x - shift) * a + b, then max(y, 0) when relu.
  void (*affine)(const float* x, float shift, float a, float b, bool relu, float* y, int64_t n);
  /// `rows` rows of n channels.
  void (*affine_columns)(const float* x, int64_t rows, const float* shift, const float* a,
                         const float* b, bool relu, float* y, int64_t n);
  /// Sums of x - shift and of (x - shift)^2.
  void (*moments_around)(const float* x, float shift, int64_t n, float* sum, float* square);
  /// The same per column over i < rows, added to sum[j] and square[j].
  void (*column_moments_around)(const float* x, int64_t rows, int64_t cols, int64_t stride,
                                const float* shift, float* sum, float* square);
  /// Sum of dy * (x - shift).
  float (*dot_around)(const float* dy, const float* x, float shift, int64_t n);
  /// sum[j] += dy, dot[j] += dy * (x - shift[j]) over i < rows.
  void (*column_dot_around)(const float* dy, const float* x, int64_t rows, int64_t cols,
                            int64_t stride, const float* shift, float* sum, float* dot);
  /// dx = dy * a + (x - shift) * b + c.
  void (*norm_bwd)(const float* dy, const float* x, float shift, float a, float b, float c,
                   float* dx, int64_t n);
  void (*norm_bwd_columns)(const float* dy, const float* x, int64_t rows, const float* shift,
                           const float* a, const float* b, const float* c, float* dx, int64_t n);

  // One row with a scale (and bias: null = 0) per element.
  /// y = (x - shift) * factor * scale + bias.
  void (*norm_row)(const float* x, float shift, float factor, const float* scale, const float* bias,
                   float* y, int64_t n);
  /// Sums of dy * scale and of dy * scale * (x - shift).
  void (*scaled_dots)(const float* dy, const float* scale, const float* x, float shift, int64_t n,
                      float* sum, float* dot);
  /// dx = dy * scale * a + (x - shift) * b + c.
  void (*norm_row_bwd)(const float* dy, const float* scale, const float* x, float shift, float a,
                       float b, float c, float* dx, int64_t n);
  /// dscale += dy * ((x - shift) * factor), dbias += dy.
  void (*norm_row_params)(const float* dy, const float* x, float shift, float factor, float* dscale,
                          float* dbias, int64_t n);

  // --- pooling: lanes are neighbouring outputs (row-major, x strided) or channels (channels-last)
  /// Lane i sees x[i * stride] at position index + i * step; best and where are updated when it is
  /// larger. where < 0: nothing seen yet.
  void (*max_update)(const float* x, int64_t stride, int32_t index, int32_t step, float* best,
                     int32_t* where, int64_t n);
  /// acc[i] += x[i * stride].
  void (*add_strided)(const float* x, int64_t stride, float* acc, int64_t n);
  /// As max_update with lanes anywhere: lane i sees x[offset[i]] at index + position[i].
  void (*max_gather)(const float* x, const int32_t* offset, const int32_t* position, int32_t index,
                     float* best, int32_t* where, int64_t n);
  /// acc[i] += x[offset[i]].
  void (*add_gather)(const float* x, const int32_t* offset, float* acc, int64_t n);
  /// acc[offset[i]] += x[i]; offsets differ.
  void (*add_scatter)(const float* x, const int32_t* offset, float* acc, int64_t n);

  // --- convolution
  /// acc[i] += the sum over taps of x[offset[t] + i] * w[t]; n is a multiple of 16.
  void (*add_taps)(const float* x, const int32_t* offset, const float* w, int64_t taps, float* acc,
                   int64_t n);

  // --- dropout (kernels/philox.h)
  /// Element i of 4 * quads, the first of which is 4 * first: kept iff its bits >= threshold; y =
  /// kept ? x / keep : 0.
  void (*dropout)(int64_t seed, int64_t index, uint32_t stream, int64_t first, int64_t quads,
                  uint64_t threshold, float keep, const float* x, float* y, uint8_t* mask);

  // --- optimizers: the formulas of kernels.def, in their order of operations
  /// u = g * inv; returns 1 when any u is not finite; *square += sum of u * u (in double).
  int (*unscale)(const float* g, float inv, float* u, int64_t n, double* square);
  void (*adam)(const AdamScalars& s, bool decoupled, const float* w, const float* g, const float* m,
               const float* v, float* w_out, float* m_out, float* v_out, int64_t n);
  /// v == nullptr: no momentum.
  void (*sgd)(const SgdScalars& s, bool nesterov, bool first, const float* w, const float* g,
              const float* v, float* w_out, float* v_out, int64_t n);
};

/// The widest table that this processor can run.
const VecOps& Vec();

namespace vec_base {
extern const VecOps kVecOps;
}
namespace vec_avx2 {
extern const VecOps kVecOps;
}
namespace vec_avx512 {
extern const VecOps kVecOps;
}

}  // namespace ampc::cpu
