// SPDX-License-Identifier: Apache-2.0
// softmax, log_softmax and their backward forms over one axis of fp32, fp16 and bf16 data.
//
// The tensor is [outer, length, inner] around the axis. With inner == 1 a row is a unit of work;
// else a tile of columns, whose maxima and sums stay in the L1 cache while the rows pass by. A
// row's sums are complete before anything of it is written, so y may overwrite x and dx may
// overwrite dy. Long rows are summed in blocks that are joined in double.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

/// Columns of one task.
constexpr int64_t kColumns = 256;
/// What exp costs per element, in bytes moved at the same time.
constexpr int64_t kExpCost = 16;

struct Rows {
  int64_t outer, length, inner;
  DType a, b, y;
  int64_t columns() const { return std::min(inner, kColumns); }
  int64_t tasks() const { return inner == 1 ? outer : outer * CeilDiv(inner, kColumns); }
  int64_t elements() const { return outer * length * inner; }
};

Rows RowsOf(const CallSpec& call) {
  const TensorDesc& x = call.inputs[0];
  const size_t axis = static_cast<size_t>(call.params.Int("axis"));
  const std::span<const int64_t> dims(x.dims);
  return {NumElements(dims.first(axis)),
          dims[axis],
          NumElements(dims.subspan(axis + 1)),
          x.dtype,
          call.inputs.size() > 1 ? call.inputs[1].dtype : DType::kNone,
          call.outputs[0].dtype};
}

/// f(begin of the block, its length) over a row, from its first element `first`.
template <typename F>
void ForEachBlock(int64_t first, int64_t length, F f) {
  for (int64_t i = 0; i < length; i += kBlock) f(first + i, std::min(kBlock, length - i));
}

void ForwardRow(const Rows& p, const VecOps& vec, bool log, int64_t row, const void* x, void* y) {
  float in[kBlock], out[kBlock];
  float max = -INFINITY;
  ForEachBlock(row * p.length, p.length, [&](int64_t at, int64_t n) {
    const float m = vec.row_reduce[static_cast<int>(RowOp::kMax)](FloatBlock(p.a, x, at, n, in), n);
    max = m > max || m != m ? m : max;
  });
  double sum = 0;
  const bool one_block = p.length <= kBlock && !log;
  if (one_block) {  // the exponentials are kept
    const float* block = FloatBlock(p.a, x, row * p.length, p.length, in);
    sum = static_cast<double>(vec.exp_sum(block, max, out, p.length));
  } else {
    ForEachBlock(row * p.length, p.length, [&](int64_t at, int64_t n) {
      sum += static_cast<double>(vec.sum_exp(FloatBlock(p.a, x, at, n, in), max, n));
    });
  }
  const float scale = static_cast<float>(1 / sum), log_sum = static_cast<float>(std::log(sum));
  ForEachBlock(row * p.length, p.length, [&](int64_t at, int64_t n) {
    float* block = OutputBlock(p.y, y, at, out);
    if (log) {
      vec.subtract(FloatBlock(p.a, x, at, n, in), max, log_sum, block, n);
    } else {
      if (!one_block) vec.exp_sum(FloatBlock(p.a, x, at, n, in), max, out, n);
      vec.scale(out, scale, block, n);
    }
    StoreBlock(p.y, block, y, at, n);
  });
}

void ForwardColumns(const Rows& p, const VecOps& vec, bool log, int64_t first, int64_t cols,
                    const void* x, void* y) {
  float in[kColumns], out[kColumns], max[kColumns], sum[kColumns];
  std::fill_n(max, cols, -INFINITY);
  std::fill_n(sum, cols, 0.0f);
  const auto row = [&](int64_t k) { return FloatBlock(p.a, x, first + k * p.inner, cols, in); };
  for (int64_t k = 0; k < p.length; ++k) {
    vec.column_reduce[static_cast<int>(RowOp::kMax)](row(k), 1, cols, cols, max);
  }
  for (int64_t k = 0; k < p.length; ++k) vec.sum_exp_columns(row(k), max, sum, cols);
  for (int64_t j = 0; j < cols; ++j) sum[j] = log ? std::log(sum[j]) : 1 / sum[j];
  for (int64_t k = 0; k < p.length; ++k) {
    const int64_t at = first + k * p.inner;
    float* block = OutputBlock(p.y, y, at, out);
    (log ? vec.log_softmax_columns : vec.softmax_columns)(row(k), max, sum, block, cols);
    StoreBlock(p.y, block, y, at, cols);
  }
}

void BackwardRow(const Rows& p, const VecOps& vec, bool log, int64_t row, const void* y,
                 const void* dy, void* dx) {
  float a[kBlock], b[kBlock], out[kBlock];
  double sum = 0;
  ForEachBlock(row * p.length, p.length, [&](int64_t at, int64_t n) {
    const float* d = FloatBlock(p.b, dy, at, n, b);
    sum += static_cast<double>(log ? vec.row_reduce[static_cast<int>(RowOp::kSum)](d, n)
                                   : vec.dot(FloatBlock(p.a, y, at, n, a), d, n));
  });
  const auto finish = log ? vec.log_softmax_bwd : vec.softmax_bwd;
  ForEachBlock(row * p.length, p.length, [&](int64_t at, int64_t n) {
    float* block = OutputBlock(p.y, dx, at, out);
    finish(FloatBlock(p.a, y, at, n, a), FloatBlock(p.b, dy, at, n, b), static_cast<float>(sum),
           block, n);
    StoreBlock(p.y, block, dx, at, n);
  });
}

void BackwardColumns(const Rows& p, const VecOps& vec, bool log, int64_t first, int64_t cols,
                     const void* y, const void* dy, void* dx) {
  float a[kColumns], b[kColumns], out[kColumns], sum[kColumns];
  std::fill_n(sum, cols, 0.0f);
  const auto y_row = [&](int64_t k) { return FloatBlock(p.a, y, first + k * p.inner, cols, a); };
  const auto dy_row = [&](int64_t k) { return FloatBlock(p.b, dy, first + k * p.inner, cols, b); };
  for (int64_t k = 0; k < p.length; ++k) {
    if (log) {
      vec.column_reduce[static_cast<int>(RowOp::kSum)](dy_row(k), 1, cols, cols, sum);
    } else {
      vec.multiply_add_columns(y_row(k), dy_row(k), sum, cols);
    }
  }
  for (int64_t k = 0; k < p.length; ++k) {
    const int64_t at = first + k * p.inner;
    float* block = OutputBlock(p.y, dx, at, out);
    (log ? vec.log_softmax_bwd_columns : vec.softmax_bwd_columns)(y_row(k), dy_row(k), sum, block,
                                                                  cols);
    StoreBlock(p.y, block, dx, at, cols);
  }
}

class Softmax final : public PreparedKernel {
 public:
  Softmax(const Rows& rows, bool log, bool backward, int threads)
      : rows_(rows),
        vec_(Vec()),
        log_(log),
        backward_(backward),
        threads_(ThreadsFor(threads, rows.elements() * kExpCost)) {}

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    const Rows& p = rows_;
    const int64_t tiles = CeilDiv(p.inner, kColumns);
    ParallelRanges(threads_, p.tasks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        if (p.inner == 1) {
          if (backward_) {
            BackwardRow(p, vec_, log_, task, inputs[0], inputs[1], outputs[0]);
          } else {
            ForwardRow(p, vec_, log_, task, inputs[0], outputs[0]);
          }
          continue;
        }
        const int64_t column = task % tiles * kColumns, cols = std::min(kColumns, p.inner - column);
        const int64_t first = task / tiles * p.length * p.inner + column;
        if (backward_) {
          BackwardColumns(p, vec_, log_, first, cols, inputs[0], inputs[1], outputs[0]);
        } else {
          ForwardColumns(p, vec_, log_, first, cols, inputs[0], outputs[0]);
        }
      }
    });
  }

 private:
  Rows rows_;
  const VecOps& vec_;
  bool log_, backward_;
  int threads_;
};

std::string DeclinesRows(const CallSpec& call) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}
PrepareResult PrepareRows(const CallSpec& call, const PrepareOptions& options, bool log,
                          bool backward) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<Softmax>(RowsOf(call), log, backward, options.threads));
}

}  // namespace

std::string DeclinesSoftmax(const CallSpec& call, const PrepareOptions&) {
  return DeclinesRows(call);
}
std::string DeclinesLogSoftmax(const CallSpec& call, const PrepareOptions&) {
  return DeclinesRows(call);
}
std::string DeclinesSoftmaxBackward(const CallSpec& call, const PrepareOptions&) {
  return DeclinesRows(call);
}
std::string DeclinesLogSoftmaxBackward(const CallSpec& call, const PrepareOptions&) {
  return DeclinesRows(call);
}

PrepareResult PrepareSoftmax(const CallSpec& call, const PrepareOptions& options) {
  return PrepareRows(call, options, false, false);
}
PrepareResult PrepareLogSoftmax(const CallSpec& call, const PrepareOptions& options) {
  return PrepareRows(call, options, true, false);
}
PrepareResult PrepareSoftmaxBackward(const CallSpec& call, const PrepareOptions& options) {
  return PrepareRows(call, options, false, true);
}
PrepareResult PrepareLogSoftmaxBackward(const CallSpec& call, const PrepareOptions& options) {
  return PrepareRows(call, options, true, true);
}

}  // namespace ampc::cpu
