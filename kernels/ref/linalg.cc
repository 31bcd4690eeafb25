// SPDX-License-Identifier: Apache-2.0
// matmul. Both factors are widened into the workspace so that every dot product runs along memory:
// op(a) as [.., M, K], op(b) transposed as [.., N, K]. Float data accumulates in double, in order
// of k.

#include <algorithm>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

using expr_internal::Add;  // wrap around for integers
using expr_internal::Mul;

/// A factor: its matrices of `rows` x `cols`, of which the kernel wants rows or columns contiguous.
struct Factor {
  DType dtype;
  int64_t matrices, rows, cols;
  bool transpose;  // to be turned while widening
};

struct MatmulPlan {
  Factor a, b;
  int64_t m, n, k;
  double alpha, beta;
  bool relu;
  DType bias, y;
  LoopNest batches;  // operands: a and b in matrices, bias in elements
  int64_t bias_row_stride, bias_col_stride;
};

/// The factor as T with the reduced axis innermost.
template <typename T>
const T* Widened(const Factor& f, const void* data, Scratch& scratch) {
  T* out = scratch.Take<T>(f.matrices * f.rows * f.cols);
  if (out == nullptr) return nullptr;
  if (!f.transpose) {
    LoadRun<T>(f.dtype, data, 0, 1, f.matrices * f.rows * f.cols, out);
    return out;
  }
  for (int64_t i = 0; i < f.matrices; ++i) {
    const int64_t first = i * f.rows * f.cols;
    for (int64_t c = 0; c < f.cols; ++c) {
      LoadRun<T>(f.dtype, data, first + c, f.cols, f.rows, out + first + c * f.rows);
    }
  }
  return out;
}

template <typename T>
T Dot(const T* x, const T* y, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum = Add<T>(sum, Mul<T>(x[i], y[i]));
  return sum;
}

template <typename T>
void RunMatmul(const MatmulPlan& p, const Buffers& run) {
  Scratch scratch(run.workspace);
  const T* a = Widened<T>(p.a, run.in(0), scratch);
  const T* b = Widened<T>(p.b, run.in(1), scratch);
  const ConstTensor bias{p.bias, run.in(2)};
  const MutableTensor y{p.y, run.out(0)};
  const T alpha = expr_internal::FromConstant<T>(p.alpha);
  const T beta = expr_internal::FromConstant<T>(p.beta);
  int64_t next = 0;
  int64_t offsets[3];
  p.batches.ForEachRun(offsets, [&](const int64_t* at) {
    for (int64_t i = 0; i < p.batches.inner_length(); ++i) {
      const T* a_rows = a + (at[0] + i * p.batches.inner_stride(0)) * p.m * p.k;
      const T* b_cols = b + (at[1] + i * p.batches.inner_stride(1)) * p.n * p.k;
      const int64_t bias_at = at[2] + i * p.batches.inner_stride(2);
      for (int64_t row = 0; row < p.m; ++row) {
        for (int64_t col = 0; col < p.n; ++col) {
          T v = Mul<T>(alpha, Dot<T>(a_rows + row * p.k, b_cols + col * p.k, p.k));
          if (bias) {
            const int64_t at_bias = bias_at + row * p.bias_row_stride + col * p.bias_col_stride;
            v = Add<T>(v, Mul<T>(beta, bias.at<T>(at_bias)));
          }
          y.set(next++, p.relu ? Relu(v) : v);
        }
      }
    }
  });
}

template <typename T>
PrepareResult MakeMatmul(MatmulPlan plan) {
  Scratch size(nullptr);
  Widened<T>(plan.a, nullptr, size);
  Widened<T>(plan.b, nullptr, size);
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunMatmul<T>(plan, run); },
                    size.bytes());
}

/// The batch dims of both factors, broadcast against each other.
Result<Dims> BroadcastBatches(const CallCheck& check, std::span<const int64_t> a,
                              std::span<const int64_t> b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) {
      return check.Fail("batch dims of 'a' {} and 'b' {} do not broadcast", ToString(a),
                        ToString(b));
    }
    out[out.size() - 1 - i] = da == 1 ? db : da;
  }
  return out;
}

}  // namespace

PrepareResult prepare::matmul(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "a b bias?", "y");
  AMPC_TRY(check.Operands());
  const Operand a = check.In(0), b = check.In(1), bias = check.In(2), y = check.Out(0);
  for (const Operand& x : {a, b, bias, y}) {
    AMPC_TRY(check.FloatOrInteger(x));
    AMPC_TRY(check.RowMajor(x));
    if (x->present() && IsFloat(x->dtype) != IsFloat(a->dtype)) {
      return check.Fail("{}: found {} beside {} of {}", x.name, Name(x->dtype), Name(a->dtype),
                        a.name);
    }
  }
  AMPC_TRY(check.RankBetween(a, 2, LoopNest::kMaxAxes));
  AMPC_TRY(check.RankBetween(b, 2, LoopNest::kMaxAxes));
  AMPC_ASSIGN(const bool relu, ReluPost(check));

  const auto factor = [](const Operand& x, bool transpose) {
    const size_t rank = x->dims.size();
    const int64_t rows = x->dims[rank - 2], cols = x->dims[rank - 1];
    return Factor{x->dtype, NumElements(std::span(x->dims).first(rank - 2)), rows, cols, transpose};
  };
  const bool trans_a = call.params.Int("trans_a") != 0, trans_b = call.params.Int("trans_b") != 0;
  // a wants its columns (K) innermost, b its rows (K).
  const Factor fa = factor(a, trans_a), fb = factor(b, !trans_b);
  const int64_t m = trans_a ? fa.cols : fa.rows, k = trans_a ? fa.rows : fa.cols;
  const int64_t n = trans_b ? fb.rows : fb.cols, k_b = trans_b ? fb.cols : fb.rows;
  if (k != k_b) {
    return check.Fail("inner dimensions differ: 'a' {}{} has {}, 'b' {}{} has {}",
                      ToString(a->dims), trans_a ? " (transposed)" : "", k, ToString(b->dims),
                      trans_b ? " (transposed)" : "", k_b);
  }
  const Dims a_batch(a->dims.begin(), a->dims.end() - 2),
      b_batch(b->dims.begin(), b->dims.end() - 2);
  AMPC_ASSIGN(const Dims batch, BroadcastBatches(check, a_batch, b_batch));
  Dims want = batch;
  want.insert(want.end(), {m, n});
  AMPC_TRY(check.HasDims(y, want));
  AMPC_TRY(check.BroadcastsTo(bias, want));

  std::vector<int64_t> bias_strides = BroadcastStrides(*bias, want);
  const int64_t bias_row = bias_strides[batch.size()], bias_col = bias_strides[batch.size() + 1];
  bias_strides.resize(batch.size());
  LoopNest batches(batch, {BroadcastStrides({a->dtype, a_batch}, batch),
                           BroadcastStrides({b->dtype, b_batch}, batch), bias_strides});
  MatmulPlan plan{fa,
                  fb,
                  m,
                  n,
                  k,
                  call.params.Float("alpha", 1),
                  call.params.Float("beta", 1),
                  relu,
                  bias->dtype,
                  y->dtype,
                  std::move(batches),
                  bias_row,
                  bias_col};
  return IsFloat(a->dtype) ? MakeMatmul<double>(std::move(plan))
                           : MakeMatmul<int64_t>(std::move(plan));
}

}  // namespace ampc::ref
