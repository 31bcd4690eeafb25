// SPDX-License-Identifier: Apache-2.0
// softmax, log_softmax and their backward forms, in double. A row's maximum and sums are complete
// before any of its elements is written, so y may overwrite x and dx may overwrite dy.

#include <cmath>
#include <limits>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

/// The tensor as [outer, length, inner] around the axis; element (o, k, i) at (o * length + k) *
/// inner + i.
struct RowPlan {
  int64_t outer, length, inner;
  DType a, b, y;
};

/// f(at(k) -> flat position) for every row along the axis.
template <typename F>
void ForEachRow(const RowPlan& p, F f) {
  for (int64_t o = 0; o < p.outer; ++o) {
    for (int64_t i = 0; i < p.inner; ++i) {
      f([&p, o, i](int64_t k) { return (o * p.length + k) * p.inner + i; });
    }
  }
}

template <bool kLog>
void RunForward(const RowPlan& p, ConstTensor x, MutableTensor y) {
  ForEachRow(p, [&](auto at) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t k = 0; k < p.length; ++k) max = expr_internal::Max(max, x.at(at(k)));
    for (int64_t k = 0; k < p.length; ++k) sum += std::exp(x.at(at(k)) - max);
    for (int64_t k = 0; k < p.length; ++k) {
      const double shifted = x.at(at(k)) - max;
      y.set(at(k), kLog ? shifted - std::log(sum) : std::exp(shifted) / sum);
    }
  });
}

template <bool kLog>
void RunBackward(const RowPlan& p, ConstTensor y, ConstTensor dy, MutableTensor dx) {
  ForEachRow(p, [&](auto at) {
    double sum = 0;  // of dy, weighted with y for softmax
    for (int64_t k = 0; k < p.length; ++k) sum += kLog ? dy.at(at(k)) : y.at(at(k)) * dy.at(at(k));
    for (int64_t k = 0; k < p.length; ++k) {
      const double v = y.at(at(k)), d = dy.at(at(k));
      dx.set(at(k), kLog ? d - std::exp(v) * sum : v * (d - sum));
    }
  });
}

Result<RowPlan> ReadRows(const CallCheck& check) {
  const Operand x = check.In(0);
  for (const Operand& t : {x, check.In(1), check.Out(0)}) {
    AMPC_TRY(check.Float(t));
    AMPC_TRY(check.RowMajor(t));
    AMPC_TRY(check.HasDims(t, x->dims));
  }
  AMPC_ASSIGN(const int64_t axis, check.Axis(x));
  const std::span<const int64_t> dims(x->dims);
  return RowPlan{NumElements(dims.first(axis)),
                 dims[axis],
                 NumElements(dims.subspan(axis + 1)),
                 x->dtype,
                 check.In(1)->dtype,
                 check.Out(0)->dtype};
}

template <bool kLog>
PrepareResult MakeForward(const CallSpec& call) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(const RowPlan p, ReadRows(check));
  return MakeKernel([p](const Buffers& run) {
    RunForward<kLog>(p, {p.a, run.in(0)}, {p.y, run.out(0)});
  });
}

template <bool kLog>
PrepareResult MakeBackward(const CallSpec& call) {
  const CallCheck check(call, "y dy", "dx");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(const RowPlan p, ReadRows(check));
  return MakeKernel([p](const Buffers& run) {
    RunBackward<kLog>(p, {p.a, run.in(0)}, {p.b, run.in(1)}, {p.y, run.out(0)});
  });
}

}  // namespace

PrepareResult prepare::softmax(const CallSpec& call, const PrepareOptions&) {
  return MakeForward<false>(call);
}
PrepareResult prepare::log_softmax(const CallSpec& call, const PrepareOptions&) {
  return MakeForward<true>(call);
}
PrepareResult prepare::softmax_bwd(const CallSpec& call, const PrepareOptions&) {
  return MakeBackward<false>(call);
}
PrepareResult prepare::log_softmax_bwd(const CallSpec& call, const PrepareOptions&) {
  return MakeBackward<true>(call);
}

}  // namespace ampc::ref
