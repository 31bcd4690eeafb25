// SPDX-License-Identifier: Apache-2.0
// batch_norm_train, batch_norm_bwd, batch_norm_infer. Per channel, statistics in two passes and all
// arithmetic in double; each result is rounded once. A channel's sums are complete before any of
// its elements is written, so y may overwrite x and dx may overwrite dy.

#include <cmath>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

struct NormPlan {
  ChannelView x, y;  // y: the other tensor of x's dims
  std::vector<DType> in, out;
  double epsilon, momentum;
  bool unbiased, relu;

  ConstTensor In(const Buffers& run, size_t i) const { return {in[i], run.in(i)}; }
  MutableTensor Out(const Buffers& run, size_t i) const { return {out[i], run.out(i)}; }
};

/// f(n, s) for every element of a channel.
template <typename F>
void ForEachElement(const ChannelView& v, F f) {
  for (int64_t n = 0; n < v.n; ++n) {
    for (int64_t s = 0; s < v.s; ++s) f(n, s);
  }
}

void RunTrain(const NormPlan& p, const Buffers& run) {
  const ConstTensor x = p.In(run, 0), scale = p.In(run, 1), bias = p.In(run, 2);
  const ConstTensor old_mean = p.In(run, 3), old_var = p.In(run, 4);
  const MutableTensor y = p.Out(run, 0), new_mean = p.Out(run, 1), new_var = p.Out(run, 2);
  const MutableTensor save_mean = p.Out(run, 3), save_inv_std = p.Out(run, 4);
  const double count = static_cast<double>(p.x.n * p.x.s);
  for (int64_t c = 0; c < p.x.c; ++c) {
    const auto value = [&](int64_t n, int64_t s) { return x.at(p.x.at(n, c, s)); };
    double sum = 0, squares = 0;
    ForEachElement(p.x, [&](int64_t n, int64_t s) { sum += value(n, s); });
    const double mean = sum / count;
    ForEachElement(
        p.x, [&](int64_t n, int64_t s) { squares += (value(n, s) - mean) * (value(n, s) - mean); });
    const double var = squares / count, inv_std = 1 / std::sqrt(var + p.epsilon);
    // A single value has no unbiased variance: NaN, so the running one stays.
    const double batch_var = p.unbiased ? var * (count / (count - 1)) : var;

    const bool keep = !std::isfinite(mean) || !std::isfinite(batch_var);
    const auto update = [&](ConstTensor old, MutableTensor updated, double batch) {
      const double before = old.at(c);
      if (updated) updated.set(c, keep ? before : before * p.momentum + batch * (1 - p.momentum));
    };
    update(old_mean, new_mean, mean);
    update(old_var, new_var, batch_var);
    if (save_mean) save_mean.set(c, mean);
    if (save_inv_std) save_inv_std.set(c, inv_std);

    const double a = scale.at(c), b = bias.at(c);
    ForEachElement(p.x, [&](int64_t n, int64_t s) {
      const double v = (value(n, s) - mean) * inv_std * a + b;
      y.set(p.y.at(n, c, s), p.relu ? Relu(v) : v);
    });
  }
}

void RunBackward(const NormPlan& p, const Buffers& run) {
  const ConstTensor x = p.In(run, 0), dy = p.In(run, 1), scale = p.In(run, 2);
  const ConstTensor save_mean = p.In(run, 3), save_inv_std = p.In(run, 4);
  const MutableTensor dx = p.Out(run, 0), dscale = p.Out(run, 1), dbias = p.Out(run, 2);
  const double count = static_cast<double>(p.x.n * p.x.s);
  for (int64_t c = 0; c < p.x.c; ++c) {
    const double mean = save_mean.at(c), inv_std = save_inv_std.at(c);
    const auto normalized = [&](int64_t n, int64_t s) {
      return (x.at(p.x.at(n, c, s)) - mean) * inv_std;
    };
    double sum = 0, dot = 0;  // of dy, and of dy with the normalized x
    ForEachElement(p.x, [&](int64_t n, int64_t s) {
      const double d = dy.at(p.y.at(n, c, s));
      sum += d;
      dot += d * normalized(n, s);
    });
    if (dscale) dscale.set(c, dot);
    if (dbias) dbias.set(c, sum);
    if (!dx) continue;
    const double factor = scale.at(c) * inv_std;
    ForEachElement(p.x, [&](int64_t n, int64_t s) {
      const int64_t at = p.y.at(n, c, s);
      dx.set(at, factor * (dy.at(at) - (sum + normalized(n, s) * dot) / count));
    });
  }
}

void RunInfer(const NormPlan& p, const Buffers& run) {
  const ConstTensor x = p.In(run, 0), scale = p.In(run, 1), bias = p.In(run, 2);
  const ConstTensor mean = p.In(run, 3), var = p.In(run, 4);
  const MutableTensor y = p.Out(run, 0);
  for (int64_t c = 0; c < p.x.c; ++c) {
    const double a = scale.at(c) / std::sqrt(var.at(c) + p.epsilon), b = bias.at(c), m = mean.at(c);
    ForEachElement(p.x, [&](int64_t n, int64_t s) {
      const double v = (x.at(p.x.at(n, c, s)) - m) * a + b;
      y.set(p.y.at(n, c, s), p.relu ? Relu(v) : v);
    });
  }
}

/// Checks what the three share. `y`: the second tensor of x's dims (the output, or dy).
Result<NormPlan> ReadNorm(const CallCheck& check, const Operand& y) {
  const Operand x = check.In(0);
  AMPC_TRY(check.Float(x));
  AMPC_TRY(check.Float(y));
  AMPC_TRY(check.RankBetween(x, 2, 5));
  AMPC_TRY(check.HasDims(y, x->dims));
  if (!check.params().Has("epsilon") && check.call().kernel != "batch_norm_bwd") {
    return check.Fail("parameter 'epsilon' is missing");
  }
  AMPC_ASSIGN(const bool relu, ReluPost(check));
  NormPlan plan{ViewChannels(*x),
                ViewChannels(*y),
                {},
                {},
                check.params().Float("epsilon"),
                check.params().Float("momentum", 0.9),
                check.params().Int("unbiased") != 0,
                relu};
  for (size_t i = 0; i < 5; ++i) {
    plan.in.push_back(check.In(i)->dtype);
    plan.out.push_back(check.Out(i)->dtype);
  }
  return plan;
}

/// A per-channel operand: fp32 or fp64 [C].
Status PerChannel(const CallCheck& check, const Operand& v, const NormPlan& plan) {
  AMPC_TRY(check.Acc(v));
  return check.Elements(v, plan.x.c);
}

}  // namespace

PrepareResult prepare::batch_norm_train(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x scale bias running_mean running_var",
                        "y new_mean? new_var? save_mean? save_inv_std?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(NormPlan plan, ReadNorm(check, check.Out(0)));
  for (size_t i = 1; i < 5; ++i) {
    AMPC_TRY(PerChannel(check, check.In(i), plan));
    AMPC_TRY(PerChannel(check, check.Out(i), plan));
  }
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunTrain(plan, run); });
}

PrepareResult prepare::batch_norm_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x dy scale save_mean save_inv_std", "dx? dscale? dbias?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(NormPlan plan, ReadNorm(check, check.In(1)));
  if (plan.relu) return check.Fail("parameter 'post': the backward kernel has none");
  for (size_t i = 2; i < 5; ++i) AMPC_TRY(PerChannel(check, check.In(i), plan));
  for (size_t i = 1; i < 3; ++i) AMPC_TRY(PerChannel(check, check.Out(i), plan));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_TRY(check.HasDims(check.Out(0), check.In(0)->dims));
  AMPC_TRY(check.SameLayout(check.In(1), check.Out(0)));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunBackward(plan, run); });
}

PrepareResult prepare::batch_norm_infer(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x scale bias mean var", "y");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(NormPlan plan, ReadNorm(check, check.Out(0)));
  for (size_t i = 1; i < 5; ++i) AMPC_TRY(PerChannel(check, check.In(i), plan));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunInfer(plan, run); });
}

}  // namespace ampc::ref
