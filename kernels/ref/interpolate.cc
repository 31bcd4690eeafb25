// SPDX-License-Identifier: Apache-2.0
// interpolate: weighted sums of elements along one axis. Accumulates in double.

#include <algorithm>
#include <cstring>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

struct TapPlan {
  int64_t outer, in, out, inner;
  DType x_type, y_type;
  std::vector<int64_t> begins, indices;
  std::vector<double> weights;
  double fill;
};

Status CheckTaps(const CallCheck& check, const TapPlan& p) {
  if (p.begins.size() != static_cast<size_t>(p.out) + 1 || p.begins.front() != 0 ||
      !std::is_sorted(p.begins.begin(), p.begins.end()) ||
      p.begins.back() != static_cast<int64_t>(p.indices.size()) ||
      p.indices.size() != p.weights.size()) {
    return check.Fail(
        "parameters 'begins', 'indices' and 'weights': {}, {} and {} entries do not fit {} results",
        p.begins.size(), p.indices.size(), p.weights.size(), p.out);
  }
  for (const int64_t i : p.indices) AMPC_TRY(check.InRange("indices", i, 0, p.in - 1));
  return {};
}

Result<TapPlan> ReadTaps(const CallCheck& check) {
  const Operand x = check.In(0), y = check.Out(0);
  AMPC_TRY(check.RowMajor(x));
  AMPC_TRY(check.RowMajor(y));
  AMPC_ASSIGN(const int64_t axis, check.Axis(x));
  const auto at = static_cast<size_t>(axis);
  AMPC_TRY(check.RankBetween(y, x->dims.size(), x->dims.size()));
  Dims want = x->dims;
  want[at] = y->dims[at];
  AMPC_TRY(check.HasDims(y, want));
  const std::span<const int64_t> d(x->dims);
  TapPlan p{NumElements(d.first(at)),
            d[at],
            y->dims[at],
            NumElements(d.subspan(at + 1)),
            x->dtype,
            y->dtype,
            check.params().Ints("begins"),
            check.params().Ints("indices"),
            check.params().Floats("weights"),
            check.params().Float("fill")};
  AMPC_TRY(CheckTaps(check, p));
  return p;
}

/// Every result is one element of x as it is.
bool Picks(const TapPlan& p) {
  for (size_t o = 0; o < p.indices.size(); ++o) {
    if (p.begins[o] != static_cast<int64_t>(o) || p.weights[o] != 1) return false;
  }
  return p.x_type == p.y_type && static_cast<int64_t>(p.indices.size()) == p.out;
}

void Pick(const TapPlan& p, const void* x, void* y) {
  const int64_t bytes = p.inner * SizeOf(p.x_type);
  if (bytes == 0) return;
  for (int64_t i = 0; i < p.outer * p.out; ++i) {
    std::memcpy(
        static_cast<std::byte*>(y) + i * bytes,
        static_cast<const std::byte*>(x) + (i / p.out * p.in + p.indices[i % p.out]) * bytes,
        static_cast<size_t>(bytes));
  }
}

void Interpolate(const TapPlan& p, ConstTensor x, MutableTensor y) {
  for (int64_t n = 0; n < p.outer; ++n) {
    for (int64_t o = 0; o < p.out; ++o) {
      const int64_t begin = p.begins[o], end = p.begins[o + 1];
      for (int64_t i = 0; i < p.inner; ++i) {
        double sum = begin == end ? p.fill : 0;
        for (int64_t k = begin; k < end; ++k)
          sum += p.weights[k] * x.at((n * p.in + p.indices[k]) * p.inner + i);
        y.set((n * p.out + o) * p.inner + i, sum);
      }
    }
  }
}

}  // namespace

PrepareResult prepare::interpolate(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(const TapPlan plan, ReadTaps(check));
  if (Picks(plan))
    return MakeKernel([plan](const Buffers& run) { Pick(plan, run.in(0), run.out(0)); });
  return MakeKernel([plan](const Buffers& run) {
    Interpolate(plan, {plan.x_type, run.in(0)}, {plan.y_type, run.out(0)});
  });
}

}  // namespace ampc::ref
