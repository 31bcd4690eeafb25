// SPDX-License-Identifier: Apache-2.0
// attention, attention_bwd: one query at a time, all arithmetic in double. Keys that do not count
// are left out of every sum.

#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct AttentionPlan {
  int64_t b, h, g, t, s, d, e;
  double scale, softcap;
  bool causal;
  int64_t offset;
  DType mask = DType::kNone;
  std::vector<int64_t> mask_strides;  // over [B,H,T,S]
  std::vector<DType> in, out;

  int64_t repeat() const { return g == 0 ? 1 : h / g; }
  ConstTensor In(const Buffers& run, size_t i) const { return {in[i], run.in(i)}; }
  MutableTensor Out(const Buffers& run, size_t i) const { return {out[i], run.out(i)}; }
};

/// A query: batch, head, position.
struct Query {
  int64_t b, h, i;
};

struct Scores {
  const AttentionPlan& p;
  ConstTensor q, k, mask;

  int64_t Row(const Query& at) const { return (at.b * p.h + at.h) * p.t + at.i; }
  /// First row of the head's keys.
  int64_t KeyRow(const Query& at, int64_t j) const {
    return (at.b * p.g + at.h / p.repeat()) * p.s + j;
  }
  double Mask(const Query& at, int64_t j) const {
    const auto& m = p.mask_strides;
    return mask.at(at.b * m[0] + at.h * m[1] + at.i * m[2] + j * m[3]);
  }
  bool Counts(const Query& at, int64_t j) const {
    if (p.causal && j > at.i + p.offset) return false;
    if (!mask) return true;
    return p.mask == DType::kBool ? Mask(at, j) != 0 : Mask(at, j) != -kInf;
  }
  /// Before softcap and mask.
  double Product(const Query& at, int64_t j) const {
    const int64_t x = Row(at) * p.d, y = KeyRow(at, j) * p.d;
    double sum = 0;
    for (int64_t c = 0; c < p.d; ++c) sum += q.at(x + c) * k.at(y + c);
    return sum * p.scale;
  }
  double Score(const Query& at, int64_t j, double product) const {
    const double s = p.softcap == 0 ? product : p.softcap * std::tanh(product / p.softcap);
    return mask && p.mask != DType::kBool ? s + Mask(at, j) : s;
  }
};

template <typename F>
void ForEachQuery(const AttentionPlan& p, F f) {
  for (int64_t b = 0; b < p.b; ++b) {
    for (int64_t h = 0; h < p.h; ++h) {
      for (int64_t i = 0; i < p.t; ++i) f(Query{b, h, i});
    }
  }
}

void RunForward(const AttentionPlan& p, const Buffers& run) {
  const Scores scores{p, p.In(run, 0), p.In(run, 1), p.In(run, 3)};
  const ConstTensor v = p.In(run, 2);
  const MutableTensor y = p.Out(run, 0), lse = p.Out(run, 1);
  auto* row = static_cast<double*>(run.workspace);
  ForEachQuery(p, [&](const Query& at) {
    double max = -kInf, sum = 0;
    for (int64_t j = 0; j < p.s; ++j) {
      row[j] = -kInf;
      if (!scores.Counts(at, j)) continue;
      row[j] = scores.Score(at, j, scores.Product(at, j));
      max = expr_internal::Max(max, row[j]);
    }
    const bool none = max == -kInf;
    for (int64_t j = 0; j < p.s; ++j) {
      row[j] = none || !scores.Counts(at, j) ? 0 : std::exp(row[j] - max);
      sum += row[j];
    }
    if (lse) lse.set(scores.Row(at), none ? -kInf : max + std::log(sum));
    for (int64_t c = 0; c < p.e && y; ++c) {
      double total = 0;
      for (int64_t j = 0; j < p.s && !none; ++j) {
        if (scores.Counts(at, j)) total += row[j] * v.at(scores.KeyRow(at, j) * p.e + c);
      }
      y.set(scores.Row(at) * p.e + c, none ? 0 : total / sum);
    }
  });
}

/// Gradients of one head of keys, summed over its queries.
struct Backward {
  const AttentionPlan& p;
  Scores scores;
  ConstTensor v, y, lse, dy;
  MutableTensor dq, dk, dv, dscores;
  double *dq_row, *dk_sum, *dv_sum;

  void OneQuery(const Query& at) const {
    const int64_t row = scores.Row(at);
    double dot = 0;
    for (int64_t c = 0; c < p.e; ++c) dot += dy.at(row * p.e + c) * y.at(row * p.e + c);
    std::fill_n(dq_row, p.d, 0.0);
    const double total = WeightsOf(at);
    for (int64_t j = 0; j < p.s; ++j) OneKey(at, j, dot, total);
    for (int64_t c = 0; c < p.d && dq; ++c) dq.set(row * p.d + c, dq_row[c]);
  }

  double Weight(const Query& at, int64_t j, double product) const {
    const double sum = lse.at(scores.Row(at));
    return sum == -kInf ? 0 : std::exp(scores.Score(at, j, product) - sum);
  }

  // The sum of the weights where lse is too large to tell it, else 1.
  double WeightsOf(const Query& at) const {
    if (!IsFarLse(lse.at(scores.Row(at)))) return 1;
    double total = 0;
    for (int64_t j = 0; j < p.s; ++j) {
      if (scores.Counts(at, j)) total += Weight(at, j, scores.Product(at, j));
    }
    return total;
  }

  void OneKey(const Query& at, int64_t j, double dot, double total) const {
    const int64_t row = scores.Row(at), key = scores.KeyRow(at, j);
    if (!scores.Counts(at, j)) {
      if (dscores) dscores.set(row * p.s + j, 0.0);
      return;
    }
    const double product = scores.Product(at, j);
    const double weight = Weight(at, j, product) / total;
    double dweight = 0;
    for (int64_t c = 0; c < p.e; ++c) dweight += dy.at(row * p.e + c) * v.at(key * p.e + c);
    double ds = weight * (dweight - dot);
    if (dscores) dscores.set(row * p.s + j, ds);
    if (p.softcap != 0) {
      const double t = std::tanh(product / p.softcap);
      ds *= 1 - t * t;
    }
    ds *= p.scale;
    for (int64_t c = 0; c < p.d; ++c) {
      dq_row[c] += ds * scores.k.at(key * p.d + c);
      dk_sum[j * p.d + c] += ds * scores.q.at(row * p.d + c);
    }
    for (int64_t c = 0; c < p.e; ++c) dv_sum[j * p.e + c] += weight * dy.at(row * p.e + c);
  }

  void Group(int64_t b, int64_t g) const {
    std::fill_n(dk_sum, p.s * p.d, 0.0);
    std::fill_n(dv_sum, p.s * p.e, 0.0);
    for (int64_t h = g * p.repeat(); h < (g + 1) * p.repeat(); ++h) {
      for (int64_t i = 0; i < p.t; ++i) OneQuery({b, h, i});
    }
    const int64_t first = (b * p.g + g) * p.s;
    for (int64_t c = 0; c < p.s * p.d && dk; ++c) dk.set(first * p.d + c, dk_sum[c]);
    for (int64_t c = 0; c < p.s * p.e && dv; ++c) dv.set(first * p.e + c, dv_sum[c]);
  }
};

void RunBackward(const AttentionPlan& p, const Buffers& run) {
  auto* work = static_cast<double*>(run.workspace);
  const Backward backward{p,
                          {p, p.In(run, 0), p.In(run, 1), p.In(run, 6)},
                          p.In(run, 2),
                          p.In(run, 3),
                          p.In(run, 4),
                          p.In(run, 5),
                          p.Out(run, 0),
                          p.Out(run, 1),
                          p.Out(run, 2),
                          p.Out(run, 3),
                          work,
                          work + p.d,
                          work + p.d + p.s * p.d};
  for (int64_t b = 0; b < p.b; ++b) {
    for (int64_t g = 0; g < p.g; ++g) backward.Group(b, g);
  }
}

Status CheckHeads(const CallCheck& check, const AttentionPlan& p) {
  const int64_t keys[] = {p.b, p.g, p.s, p.d}, values[] = {p.b, p.g, p.s, p.e};
  AMPC_TRY(check.HasDims(check.In(1), keys));
  AMPC_TRY(check.HasDims(check.In(2), values));
  if (p.g == 0 ? p.h != 0 : p.h % p.g != 0)
    return check.Fail("{} heads of queries, {} of keys", p.h, p.g);
  return {};
}

Result<AttentionPlan> ReadPlan(const CallCheck& check, size_t mask_slot) {
  for (size_t i = 0; i < 3; ++i) {
    AMPC_TRY(check.Float(check.In(i)));
    AMPC_TRY(check.RankBetween(check.In(i), 4, 4));
    AMPC_TRY(check.RowMajor(check.In(i)));
  }
  const Dims &q = check.In(0)->dims, &k = check.In(1)->dims, &v = check.In(2)->dims;
  const Attrs& a = check.params();
  AttentionPlan p{.b = q[0],
                  .h = q[1],
                  .g = k[1],
                  .t = q[2],
                  .s = k[2],
                  .d = q[3],
                  .e = v[3],
                  .scale = a.Float("scale", 1),
                  .softcap = a.Float("softcap", 0),
                  .causal = a.Int("causal") != 0,
                  .offset = a.Int("offset"),
                  .mask = check.In(mask_slot)->dtype,
                  .mask_strides = {},
                  .in = {},
                  .out = {}};
  AMPC_TRY(CheckHeads(check, p));
  AMPC_TRY(check.InRange("offset", p.offset, -(int64_t{1} << 31), int64_t{1} << 31));
  if (const Operand mask = check.In(mask_slot); mask->present()) {
    const int64_t scores[] = {p.b, p.h, p.t, p.s};
    if (mask->dtype != DType::kBool) AMPC_TRY(check.Float(mask));
    AMPC_TRY(check.RowMajor(mask));
    AMPC_TRY(check.BroadcastsTo(mask, scores));
    p.mask_strides = BroadcastStrides(*mask, scores);
  }
  for (size_t i = 0; i < 7; ++i) p.in.push_back(i <= mask_slot ? check.In(i)->dtype : DType::kNone);
  return p;
}

Status LikeResult(const CallCheck& check, const Operand& x, const AttentionPlan& p) {
  const int64_t dims[] = {p.b, p.h, p.t, p.e};
  AMPC_TRY(check.Float(x));
  AMPC_TRY(check.RowMajor(x));
  return check.HasDims(x, dims);
}
Status LogSumExp(const CallCheck& check, const Operand& x, const AttentionPlan& p) {
  AMPC_TRY(check.Acc(x));
  return check.Elements(x, p.b * p.h * p.t);
}

}  // namespace

PrepareResult prepare::attention(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "q k v mask?", "y? lse?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(AttentionPlan plan, ReadPlan(check, 3));
  AMPC_TRY(LikeResult(check, check.Out(0), plan));
  AMPC_TRY(LogSumExp(check, check.Out(1), plan));
  for (size_t i = 0; i < 2; ++i) plan.out.push_back(check.Out(i)->dtype);
  const int64_t bytes = plan.s * static_cast<int64_t>(sizeof(double));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunForward(plan, run); }, bytes);
}

PrepareResult prepare::attention_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "q k v y lse dy mask?", "dq? dk? dv? dscores?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(AttentionPlan plan, ReadPlan(check, 6));
  AMPC_TRY(LikeResult(check, check.In(3), plan));
  AMPC_TRY(LogSumExp(check, check.In(4), plan));
  AMPC_TRY(LikeResult(check, check.In(5), plan));
  for (size_t i = 0; i < 3; ++i) {
    AMPC_TRY(check.Float(check.Out(i)));
    AMPC_TRY(check.RowMajor(check.Out(i)));
    AMPC_TRY(check.HasDims(check.Out(i), check.In(i)->dims));
  }
  const int64_t scores[] = {plan.b, plan.h, plan.t, plan.s};
  AMPC_TRY(check.Acc(check.Out(3)));
  AMPC_TRY(check.HasDims(check.Out(3), scores));
  for (size_t i = 0; i < 4; ++i) plan.out.push_back(check.Out(i)->dtype);
  const int64_t bytes =
      (plan.d + plan.s * (plan.d + plan.e)) * static_cast<int64_t>(sizeof(double));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunBackward(plan, run); },
                    bytes);
}

}  // namespace ampc::ref
