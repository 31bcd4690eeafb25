// SPDX-License-Identifier: Apache-2.0
// reduce over any axes of fp32, fp16 and bf16 data.
//
// The axes are taken in memory order and merged into groups that alternate between kept and
// reduced. Each reduced group is one pass [outer, reduced, inner] -> [outer, inner], the innermost
// group first: with inner == 1 rows become numbers, else rows are added onto columns. Between
// passes data is fp32. A pass is cut into chunks of a fixed size, whatever the number of threads;
// inside a chunk sums run in fp32 over short stretches, and chunks are joined in double. oneDNN's
// reduction over leading axes is a reference loop, 30 times slower.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"
#include "kernels/ref/loops.h"

namespace ampc::cpu {
namespace {

/// Elements of one chunk: a few microseconds of work.
constexpr int64_t kChunk = 64 * 1024;
/// Rows of one chunk of columns. At most 256: with eight rows added up first, a column's sum in
/// fp32 grows by 32 steps.
constexpr int64_t kFewestRows = 32, kMostRows = 256;
/// Columns that one task handles at a time: their sums stay in the L1 cache.
constexpr int64_t kColumns = 1024;

struct Pass {
  int64_t outer, reduced, inner;
  RowOp op;
  DType from, to;
  double divisor = 1;
  bool square_root = false;

  /// Elements of the reduced axis in one chunk, and chunks.
  int64_t length() const {
    return inner == 1
               ? kChunk
               : std::clamp<int64_t>(kChunk / std::min(inner, kColumns), kFewestRows, kMostRows);
  }
  int64_t chunks() const { return CeilDiv(reduced, length()); }
  int64_t columns() const { return std::min(inner, kColumns); }
  int64_t column_tasks() const { return CeilDiv(inner, kColumns); }
  bool is_extreme() const { return op == RowOp::kMax || op == RowOp::kMin; }
  /// One double per chunk and result.
  int64_t partials() const { return outer * inner * chunks(); }
};

/// Adds up (or takes the extreme of) chunk results in double, in their order.
double Join(const Pass& p, double a, double b) {
  if (p.op == RowOp::kMax) return a > b || a != a ? a : b;
  if (p.op == RowOp::kMin) return a < b || a != a ? a : b;
  return a + b;
}

float Finish(const Pass& p, double v) {
  v /= p.divisor;
  return static_cast<float>(p.square_root ? std::sqrt(v) : v);
}

double RowChunk(const Pass& p, const VecOps& vec, const void* x, int64_t row, int64_t begin,
                int64_t end) {
  float buffer[kBlock];
  double total = 0;
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = std::min(kBlock, end - i);
    const float* block = FloatBlock(p.from, x, row * p.reduced + i, n, buffer);
    const double part = static_cast<double>(vec.row_reduce[static_cast<int>(p.op)](block, n));
    total = i == begin ? part : Join(p, total, part);
  }
  return total;
}

void ColumnChunk(const Pass& p, const VecOps& vec, const void* x, int64_t outer, int64_t begin,
                 int64_t end, int64_t column, int64_t cols, double* out) {
  alignas(64) float buffer[kColumns * 8];
  alignas(64) float acc[kColumns];
  const float start = p.op == RowOp::kMax ? -INFINITY : p.op == RowOp::kMin ? INFINITY : 0.0f;
  std::fill_n(acc, cols, start);
  const auto add = vec.column_reduce[static_cast<int>(p.op)];
  if (p.from == DType::kFloat32) {
    add(static_cast<const float*>(x) + (outer * p.reduced + begin) * p.inner + column, end - begin,
        cols, p.inner, acc);
  } else {
    const int64_t step = kColumns * 8 / cols / 8 * 8;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t rows = std::min(step, end - i), at = (outer * p.reduced + i) * p.inner + column;
      if (cols == p.inner) {
        Widen(p.from, Offset(x, at * 2), buffer, rows * cols);
      } else {
        for (int64_t r = 0; r < rows; ++r)
          Widen(p.from, Offset(x, (at + r * p.inner) * 2), buffer + r * cols, cols);
      }
      add(buffer, rows, cols, cols, acc);
    }
  }
  for (int64_t j = 0; j < cols; ++j) out[j] = static_cast<double>(acc[j]);
}

void RunPass(const Pass& p, const VecOps& vec, int threads, const void* x, void* y,
             double* partials) {
  const int64_t chunks = p.chunks(), columns = p.column_tasks();
  const int used = ThreadsFor(threads, p.outer * p.reduced * p.inner * SizeOf(p.from));
  // partials[outer][chunk][inner]
  ParallelRanges(used, p.outer * chunks * columns, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t column = task % columns * kColumns, chunk = task / columns % chunks,
                    outer = task / columns / chunks;
      const int64_t begin = chunk * p.length(), end = std::min(p.reduced, begin + p.length());
      double* out = partials + (outer * chunks + chunk) * p.inner + column;
      if (p.inner == 1) {
        *out = RowChunk(p, vec, x, outer, begin, end);
      } else {
        ColumnChunk(p, vec, x, outer, begin, end, column, std::min(kColumns, p.inner - column),
                    out);
      }
    }
  });
  ParallelRanges(ThreadsFor(threads, p.partials() * 8), p.outer * p.inner, 64,
                 [&](int64_t first, int64_t last) {
                   for (int64_t i = first; i < last; ++i) {
                     const double* from = partials + i / p.inner * chunks * p.inner + i % p.inner;
                     double total = from[0];
                     for (int64_t c = 1; c < chunks; ++c) total = Join(p, total, from[c * p.inner]);
                     StoreFloat(p.to, y, i, Finish(p, total));
                   }
                 });
}

/// The passes of a call, or the reason why there are none.
struct ReducePlan {
  std::vector<Pass> passes;
  std::string declines;
};

ReducePlan PlanReduce(const CallSpec& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  const std::string_view op = call.params.String("op");
  ReducePlan plan;
  if (op == "prod" || op == "log_sum" || op == "log_sum_exp") {
    plan.declines = "op is not sum, mean, max, min, l1, l2 or sum_square";
    return plan;
  }
  const RowOp first = op == "max"                        ? RowOp::kMax
                      : op == "min"                      ? RowOp::kMin
                      : op == "l1"                       ? RowOp::kSumAbs
                      : op == "l2" || op == "sum_square" ? RowOp::kSumSquare
                                                         : RowOp::kSum;
  const RowOp next = first == RowOp::kMax || first == RowOp::kMin ? first : RowOp::kSum;

  std::vector<bool> is_reduced(x.dims.size(), false);
  for (int64_t axis : call.params.Ints("axes")) is_reduced[axis] = true;
  struct Group {
    int64_t length;
    bool reduced;
  };
  std::vector<Group> groups;
  size_t last_kept = 0;
  for (size_t axis : ref::StorageOrder(x)) {
    if (x.dims[axis] == 1) continue;
    if (!is_reduced[axis]) {
      if (axis < last_kept) plan.declines = "kept axes change their order between the layouts";
      last_kept = axis;
    }
    if (!groups.empty() && groups.back().reduced == is_reduced[axis]) {
      groups.back().length *= x.dims[axis];
    } else {
      groups.push_back({x.dims[axis], is_reduced[axis]});
    }
  }
  if (std::ranges::none_of(groups, &Group::reduced)) plan.declines = "nothing to reduce";
  if (!plan.declines.empty()) return plan;

  int64_t inner = 1, outer = 1, total = 1;
  for (const Group& g : groups) (g.reduced ? total : outer) *= g.length;
  outer = x.elements();
  for (size_t i = groups.size(); i-- > 0;) {
    outer /= groups[i].length;
    if (groups[i].reduced) {
      plan.passes.push_back({outer, groups[i].length, inner, plan.passes.empty() ? first : next,
                             plan.passes.empty() ? x.dtype : DType::kFloat32, DType::kFloat32});
    } else {
      inner *= groups[i].length;
    }
  }
  Pass& last = plan.passes.back();
  last.to = y.dtype;
  if (op == "mean") last.divisor = static_cast<double>(total);
  last.square_root = op == "l2";
  return plan;
}

class ReduceKernel final : public PreparedKernel {
 public:
  ReduceKernel(std::vector<Pass> passes, int threads)
      : passes_(std::move(passes)), vec_(Vec()), threads_(threads) {
    int64_t partials = 0, between = 0;
    for (const Pass& p : passes_) {
      partials = std::max(partials, p.partials());
      if (&p != &passes_.back()) between = std::max(between, p.outer * p.inner);
    }
    partials_ = plan_.Take(partials * 8);
    between_[0] = plan_.Take(between * 4);
    between_[1] = plan_.Take(between * 4);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const void* x = inputs[0];
    for (size_t i = 0; i < passes_.size(); ++i) {
      void* y = i + 1 == passes_.size() ? outputs[0] : At<void*>(workspace, between_[i % 2]);
      RunPass(passes_[i], vec_, threads_, x, y, At<double>(workspace, partials_));
      x = y;
    }
  }

 private:
  std::vector<Pass> passes_;
  const VecOps& vec_;
  int threads_;
  WorkspacePlan plan_;
  int64_t partials_ = 0, between_[2] = {};
};

}  // namespace

std::string DeclinesReduce(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  if (std::string reason = DeclinesEmpty(call); !reason.empty()) return reason;
  return PlanReduce(call).declines;
}

PrepareResult PrepareReduce(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<ReduceKernel>(PlanReduce(call).passes, options.threads));
}

}  // namespace ampc::cpu
