// SPDX-License-Identifier: Apache-2.0
// layer_norm, layer_norm_bwd. Per row, statistics in two passes and all arithmetic in double; each
// result is rounded once. A row's sums are complete before any of its elements is written, and the
// gradients of the scales come first of all, so y may overwrite x and dx may overwrite dy.

#include <cmath>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

struct RowsPlan {
  int64_t rows, length, groups, inner;
  bool rms;
  double epsilon;
  std::vector<DType> in, out;

  int64_t params() const { return groups * length / inner; }
  /// The scale of element j of row r.
  int64_t Param(int64_t r, int64_t j) const { return (r % groups) * (length / inner) + j / inner; }
  ConstTensor In(const Buffers& run, size_t i) const { return {in[i], run.in(i)}; }
  MutableTensor Out(const Buffers& run, size_t i) const { return {out[i], run.out(i)}; }
};

void RunForward(const RowsPlan& p, const Buffers& run) {
  const ConstTensor x = p.In(run, 0), scale = p.In(run, 1), bias = p.In(run, 2);
  const MutableTensor y = p.Out(run, 0), save_inv = p.Out(run, 1), save_mean = p.Out(run, 2);
  const auto n = static_cast<double>(p.length);
  for (int64_t r = 0; r < p.rows; ++r) {
    const auto value = [&](int64_t j) { return x.at(r * p.length + j); };
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < p.length && !p.rms; ++j) sum += value(j);
    const double mean = sum / n;
    for (int64_t j = 0; j < p.length; ++j) squares += (value(j) - mean) * (value(j) - mean);
    const double inv = 1 / std::sqrt(squares / n + p.epsilon);
    if (save_inv) save_inv.set(r, inv);
    if (save_mean) save_mean.set(r, mean);
    for (int64_t j = 0; j < p.length && y; ++j) {
      const int64_t k = p.Param(r, j);
      y.set(r * p.length + j, (value(j) - mean) * inv * scale.at(k) + (bias ? bias.at(k) : 0));
    }
  }
}

struct Backward {
  const RowsPlan& p;
  ConstTensor x, dy, scale, inv, mean;

  double Normalized(int64_t r, int64_t j) const {
    return (x.at(r * p.length + j) - (p.rms ? 0 : mean.at(r))) * inv.at(r);
  }
  double Dy(int64_t r, int64_t j) const { return dy.at(r * p.length + j); }

  void Parameter(int64_t k, MutableTensor dscale, MutableTensor dbias) const {
    const int64_t per_row = p.length / p.inner, first = k % per_row * p.inner;
    double dot = 0, sum = 0;
    for (int64_t r = k / per_row; r < p.rows; r += p.groups) {
      for (int64_t j = first; j < first + p.inner; ++j) {
        dot += Dy(r, j) * Normalized(r, j);
        sum += Dy(r, j);
      }
    }
    if (dscale) dscale.set(k, dot);
    if (dbias) dbias.set(k, sum);
  }

  void Row(int64_t r, MutableTensor dx) const {
    const auto n = static_cast<double>(p.length);
    const auto g = [&](int64_t j) { return Dy(r, j) * scale.at(p.Param(r, j)); };
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < p.length; ++j) {
      sum += g(j);
      dot += g(j) * Normalized(r, j);
    }
    if (p.rms) sum = 0;
    for (int64_t j = 0; j < p.length; ++j) {
      dx.set(r * p.length + j, inv.at(r) * (g(j) - (sum + Normalized(r, j) * dot) / n));
    }
  }
};

void RunBackward(const RowsPlan& p, const Buffers& run) {
  const Backward b{p, p.In(run, 0), p.In(run, 1), p.In(run, 2), p.In(run, 3), p.In(run, 4)};
  const MutableTensor dx = p.Out(run, 0), dscale = p.Out(run, 1), dbias = p.Out(run, 2);
  for (int64_t k = 0; k < p.params() && (dscale || dbias); ++k) b.Parameter(k, dscale, dbias);
  for (int64_t r = 0; r < p.rows && dx; ++r) b.Row(r, dx);
}

/// The rows of x and all operands' dtypes.
Result<RowsPlan> ReadRows(const CallCheck& check) {
  const Operand x = check.In(0);
  AMPC_TRY(check.Float(x));
  AMPC_TRY(check.RowMajor(x));
  const Attrs& params = check.params();
  const int64_t elements = x->elements(), whole = std::max<int64_t>(elements, INT32_MAX);
  RowsPlan p{0,
             params.Int("length"),
             params.Int("groups", 1),
             params.Int("inner", 1),
             params.Int("rms") != 0,
             params.Float("epsilon"),
             {},
             {}};
  AMPC_TRY(check.InRange("length", p.length, 1, whole));
  AMPC_TRY(check.InRange("inner", p.inner, 1, p.length));
  p.rows = elements / p.length;
  AMPC_TRY(check.InRange("groups", p.groups, 1, std::max<int64_t>(p.rows, whole / p.length)));
  if (p.length % p.inner != 0 || elements % p.length != 0 || p.rows % p.groups != 0) {
    return check.Fail("rows of {} elements, {} groups, one scale for {} elements do not divide {}",
                      p.length, p.groups, p.inner, ToString(x->dims));
  }
  for (size_t i = 0; i < 5; ++i) {
    p.in.push_back(check.In(i)->dtype);
    p.out.push_back(check.Out(i)->dtype);
  }
  return p;
}

/// Another tensor of x's dims.
Status LikeX(const CallCheck& check, const Operand& v) {
  AMPC_TRY(check.Float(v));
  AMPC_TRY(check.RowMajor(v));
  return check.HasDims(v, check.In(0)->dims);
}
Status Parameter(const CallCheck& check, const Operand& v, const RowsPlan& p) {
  AMPC_TRY(check.Float(v));
  AMPC_TRY(check.SameType(check.In(check.call().kernel == "layer_norm" ? 1 : 2), v));
  return check.Elements(v, p.params());
}
Status Statistic(const CallCheck& check, const Operand& v, const RowsPlan& p) {
  AMPC_TRY(check.Acc(v));
  return check.Elements(v, p.rows);
}

}  // namespace

PrepareResult prepare::layer_norm(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x scale bias?", "y? inv_std? mean?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(RowsPlan plan, ReadRows(check));
  AMPC_TRY(LikeX(check, check.Out(0)));
  for (size_t i = 1; i < 3; ++i) {
    AMPC_TRY(Parameter(check, check.In(i), plan));
    AMPC_TRY(Statistic(check, check.Out(i), plan));
  }
  if (!call.params.Has("epsilon")) return check.Fail("parameter 'epsilon' is missing");
  if (plan.rms && check.HasOut(2)) return check.Fail("output 'mean': there is none with rms = 1");
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunForward(plan, run); });
}

PrepareResult prepare::layer_norm_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x dy scale inv_std mean?", "dx? dscale? dbias?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(RowsPlan plan, ReadRows(check));
  AMPC_TRY(LikeX(check, check.In(1)));
  AMPC_TRY(LikeX(check, check.Out(0)));
  AMPC_TRY(Parameter(check, check.In(2), plan));
  for (size_t i = 1; i < 3; ++i) AMPC_TRY(Parameter(check, check.Out(i), plan));
  for (size_t i = 3; i < 5; ++i) AMPC_TRY(Statistic(check, check.In(i), plan));
  if (plan.rms == check.HasIn(4)) {
    return check.Fail("input 'mean' is {}, rms is {}", plan.rms ? "given" : "left out",
                      plan.rms ? 1 : 0);
  }
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunBackward(plan, run); });
}

}  // namespace ampc::ref
