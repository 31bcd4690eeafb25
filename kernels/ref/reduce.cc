// SPDX-License-Identifier: Apache-2.0
// reduce, arg_reduce. Float data accumulates in double, integers in int64.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/expr_eval.h"
#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

using expr_internal::Abs;
using expr_internal::Add;
using expr_internal::Max;
using expr_internal::Min;
using expr_internal::Mul;

constexpr std::string_view kReduceOps[] = {"sum", "mean", "max",        "min",     "prod",
                                           "l1",  "l2",   "sum_square", "log_sum", "log_sum_exp"};
enum class ReduceOp { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kLogSum, kLogSumExp };

/// The elements of x that one output element reduces: nested loops as offsets from its first.
struct ReducePlan {
  ReduceOp op;
  DType x, y;
  int64_t reduced;  // elements per output
  LoopNest outer, inner;
};

/// Folds f over the reduced elements that start at `first`.
template <typename T, typename F>
T Accumulate(const ReducePlan& plan, ConstTensor x, int64_t first, T start, F f) {
  T acc = start;
  int64_t offset = 0;
  plan.inner.ForEachRun(&offset, [&](const int64_t* at) {
    for (int64_t i = 0; i < plan.inner.inner_length(); ++i) {
      acc = f(acc, x.at<T>(first + *at + i * plan.inner.inner_stride(0)));
    }
  });
  return acc;
}

/// The extreme of no elements: an infinity, or the end of an integer type's range.
template <typename T>
T Bound(DType t, bool highest) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr T kInf = std::numeric_limits<T>::infinity();
    return highest ? kInf : -kInf;
  } else {
    return Visit(t, [=]<DType D, typename S>(Element<D, S>) {
      using Limits = std::numeric_limits<std::conditional_t<sizeof(S) == 8, int64_t, S>>;
      if constexpr (D == DType::kBool) return T{highest};
      return static_cast<T>(highest ? Limits::max() : Limits::lowest());
    });
  }
}

template <typename T>
T ReduceOne(const ReducePlan& plan, ConstTensor x, int64_t first) {
  const auto fold = [&](T start, auto f) { return Accumulate<T>(plan, x, first, start, f); };
  const auto sum = [&] { return fold(T{0}, Add<T>); };
  const auto in_double = [](auto f, T v) {
    const double r = f(static_cast<double>(v));
    if constexpr (std::is_integral_v<T>)
      return ClampToInteger<T>(r);
    else
      return r;
  };
  const auto square = [&] {
    return fold(T{0}, [](T acc, T v) { return Add<T>(acc, Mul<T>(v, v)); });
  };
  switch (plan.op) {
    case ReduceOp::kSum:
      return sum();
    case ReduceOp::kMean:
      if constexpr (std::is_integral_v<T>)
        return plan.reduced == 0 ? 0 : sum() / plan.reduced;
      else
        return sum() / static_cast<T>(plan.reduced);
    case ReduceOp::kMax:
      return fold(Bound<T>(plan.x, false), Max<T>);
    case ReduceOp::kMin:
      return fold(Bound<T>(plan.x, true), Min<T>);
    case ReduceOp::kProd:
      return fold(T{1}, Mul<T>);
    case ReduceOp::kL1:
      return fold(T{0}, [](T acc, T v) { return Add<T>(acc, Abs<T>(v)); });
    case ReduceOp::kL2:
      return in_double([](double v) { return std::sqrt(v); }, square());
    case ReduceOp::kSumSquare:
      return square();
    case ReduceOp::kLogSum:
      return in_double([](double v) { return std::log(v); }, sum());
    case ReduceOp::kLogSumExp:
      break;
  }
  // log(sum(exp(x))) = m + log(sum(exp(x - m))); an infinite or NaN m is the result itself.
  const double m = static_cast<double>(fold(Bound<T>(plan.x, false), Max<T>));
  if (!std::isfinite(m)) return static_cast<T>(m);  // float data only
  const double total = Accumulate<double>(
      plan, x, first, 0.0, [&](double acc, double v) { return acc + std::exp(v - m); });
  const double result = m + std::log(total);
  if constexpr (std::is_integral_v<T>)
    return ClampToInteger<T>(result);
  else
    return result;
}

template <typename T>
PrepareResult MakeReduce(ReducePlan plan) {
  return MakeKernel([plan = std::move(plan)](const Buffers& run) {
    const ConstTensor x{plan.x, run.in(0)};
    const MutableTensor y{plan.y, run.out(0)};
    int64_t next = 0, offset = 0;
    plan.outer.ForEachRun(&offset, [&](const int64_t* at) {
      for (int64_t i = 0; i < plan.outer.inner_length(); ++i) {
        y.set(next++, ReduceOne<T>(plan, x, *at + i * plan.outer.inner_stride(0)));
      }
    });
  });
}

}  // namespace

PrepareResult prepare::reduce(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  const std::string_view op = call.params.String("op");
  AMPC_TRY(check.OneOf("op", op, kReduceOps));
  const TensorDesc& x = *check.In(0);
  const int64_t rank = static_cast<int64_t>(x.dims.size());
  AMPC_TRY(check.InRange("rank", rank, 0, LoopNest::kMaxAxes));
  AMPC_TRY(check.RowMajor(check.Out(0)));

  std::vector<bool> is_reduced(x.dims.size(), false);
  for (int64_t axis : call.params.Ints("axes")) {
    AMPC_TRY(check.InRange("axes", axis, 0, rank - 1));
    is_reduced[axis] = true;
  }
  const std::vector<int64_t> strides = StridesOf(x.dims, x.layout);
  Dims kept, reduced;
  std::vector<int64_t> kept_strides, reduced_strides;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    (is_reduced[i] ? reduced : kept).push_back(x.dims[i]);
    (is_reduced[i] ? reduced_strides : kept_strides).push_back(strides[i]);
  }
  AMPC_TRY(check.Elements(check.Out(0), NumElements(kept)));
  const auto index = std::ranges::find(kReduceOps, op) - std::begin(kReduceOps);
  ReducePlan plan{static_cast<ReduceOp>(index),
                  x.dtype,
                  check.Out(0)->dtype,
                  NumElements(reduced),
                  LoopNest(kept, {kept_strides}),
                  LoopNest(reduced, {reduced_strides})};
  return IsFloat(x.dtype) ? MakeReduce<double>(std::move(plan))
                          : MakeReduce<int64_t>(std::move(plan));
}

namespace {

struct ArgReducePlan {
  DType x;
  bool is_max, last;
  int64_t length, stride;  // of the axis
  LoopNest outer;
};

/// Does `v` replace `best`? A NaN beats every number, in both directions; equals go to the first or
/// last.
template <typename T>
bool Beats(const ArgReducePlan& plan, T v, T best) {
  const bool v_nan = v != v, best_nan = best != best;
  if (v_nan || best_nan) return v_nan && (!best_nan || plan.last);
  if (v == best) return plan.last;
  return plan.is_max ? v > best : v < best;
}

template <typename T>
PrepareResult MakeArgReduce(ArgReducePlan plan) {
  return MakeKernel([plan = std::move(plan)](const Buffers& run) {
    const ConstTensor x{plan.x, run.in(0)};
    int64_t* y = static_cast<int64_t*>(run.out(0));
    int64_t offset = 0;
    plan.outer.ForEachRun(&offset, [&](const int64_t* at) {
      for (int64_t i = 0; i < plan.outer.inner_length(); ++i) {
        const int64_t first = *at + i * plan.outer.inner_stride(0);
        int64_t best = 0;
        for (int64_t k = 1; k < plan.length; ++k) {
          if (Beats(plan, x.at<T>(first + k * plan.stride), x.at<T>(first + best * plan.stride)))
            best = k;
        }
        *y++ = best;
      }
    });
  });
}

}  // namespace

PrepareResult prepare::arg_reduce(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  constexpr std::string_view kOps[] = {"max", "min"};
  const std::string_view op = call.params.String("op");
  AMPC_TRY(check.OneOf("op", op, kOps));
  const TensorDesc& x = *check.In(0);
  AMPC_TRY(check.InRange("rank", static_cast<int64_t>(x.dims.size()), 1, LoopNest::kMaxAxes));
  AMPC_ASSIGN(const int64_t axis, check.Axis(check.In(0)));
  AMPC_TRY(check.OfType(check.Out(0), DType::kInt64));
  AMPC_TRY(check.RowMajor(check.Out(0)));

  Dims outer = x.dims;
  std::vector<int64_t> strides = StridesOf(x.dims, x.layout);
  const int64_t length = x.dims[axis], stride = strides[axis];
  outer.erase(outer.begin() + axis);
  strides.erase(strides.begin() + axis);
  AMPC_TRY(check.Elements(check.Out(0), NumElements(outer)));
  if (length == 0 && NumElements(outer) > 0)
    return check.Fail("{}: axis {} is empty", check.In(0).name, axis);
  ArgReducePlan plan{x.dtype, op == "max", call.params.Int("select_last_index") != 0,
                     length,  stride,      LoopNest(outer, {strides})};
  return IsFloat(x.dtype) ? MakeArgReduce<double>(std::move(plan))
                          : MakeArgReduce<int64_t>(std::move(plan));
}

}  // namespace ampc::ref
