// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy, nll_loss, their backward forms, topk_correct. All arithmetic in double.
//
// total is the sum of the weights of the counted labels; a mean over a total of 0 (every label
// ignored) is 0, and so are its gradients. Ignored samples add exactly 0 whatever their scores
// hold.

#include <cmath>
#include <limits>
#include <optional>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

enum class Reduction { kMean, kSum, kNone };

struct LossPlan {
  ChannelView scores;  // [N,C,d..]
  Reduction reduction;
  std::optional<int64_t> ignore_index;
  double smoothing = 0;
  std::vector<DType> in, out;

  ConstTensor In(const Buffers& run, size_t i) const { return {in[i], run.in(i)}; }
  MutableTensor Out(const Buffers& run, size_t i) const { return {out[i], run.out(i)}; }
};

/// The class of sample `i`, or nullopt when it is ignored. One out of range is reported and taken
/// as 0.
std::optional<int64_t> Label(const LossPlan& p, ConstTensor labels, int64_t i, const Buffers& run) {
  const int64_t label = labels.at<int64_t>(i);
  if (label == p.ignore_index) return std::nullopt;
  if (label >= 0 && label < p.scores.c) return label;
  run.BadIndex(i);
  return 0;
}

double Weight(ConstTensor weights, int64_t c) { return weights ? weights.at(c) : 1.0; }

/// f(sample, n, s) for every label.
template <typename F>
void ForEachSample(const ChannelView& v, F f) {
  for (int64_t n = 0; n < v.n; ++n) {
    for (int64_t s = 0; s < v.s; ++s) f(n * v.s + s, n, s);
  }
}

/// Adds up the samples' losses (or stores them) and the total.
struct LossSum {
  const LossPlan& plan;
  MutableTensor loss, total;
  double sum = 0, weight = 0;

  void Add(int64_t sample, double value, double sample_weight) {
    if (plan.reduction == Reduction::kNone) loss.set(sample, value);
    sum += value;
    weight += sample_weight;
  }
  void Finish() const {
    if (plan.reduction == Reduction::kSum) loss.set(0, sum);
    if (plan.reduction == Reduction::kMean) loss.set(0, weight == 0 ? 0.0 : sum / weight);
    if (total) total.set(0, weight);
  }
};

/// The gradient of the result with respect to one sample's loss.
double SampleGradient(const LossPlan& p, ConstTensor dloss, ConstTensor total, int64_t sample) {
  switch (p.reduction) {
    case Reduction::kNone:
      return dloss.at(sample);
    case Reduction::kSum:
      return dloss.at(0);
    case Reduction::kMean:
      break;
  }
  const double weight = total.at(0);
  return weight == 0 ? 0.0 : dloss.at(0) / weight;
}

void RunCrossEntropy(const LossPlan& p, const Buffers& run) {
  const ConstTensor scores = p.In(run, 0), labels = p.In(run, 1), weights = p.In(run, 2);
  const MutableTensor log_prob = p.Out(run, 1);
  const ChannelView& v = p.scores;
  LossSum result{p, p.Out(run, 0), p.Out(run, 2)};
  ForEachSample(v, [&](int64_t sample, int64_t n, int64_t s) {
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t c = 0; c < v.c; ++c) max = expr_internal::Max(max, scores.at(v.at(n, c, s)));
    for (int64_t c = 0; c < v.c; ++c) sum += std::exp(scores.at(v.at(n, c, s)) - max);
    const double log_sum = std::log(sum);
    const std::optional<int64_t> label = Label(p, labels, sample, run);
    double picked = 0, smooth = 0;  // log-probability of the label; weighted sum over all classes
    for (int64_t c = 0; c < v.c; ++c) {  // log_prob may overwrite the scores, element by element
      const double value = scores.at(v.at(n, c, s)) - max - log_sum;
      if (c == label) picked = value;
      if (p.smoothing != 0) smooth += Weight(weights, c) * value;
      if (log_prob) log_prob.set(v.at(n, c, s), value);
    }
    if (!label) return result.Add(sample, 0, 0);
    const double weight = Weight(weights, *label);
    double loss = -(1 - p.smoothing) * weight * picked;
    if (p.smoothing != 0) loss -= p.smoothing / static_cast<double>(v.c) * smooth;
    result.Add(sample, loss, weight);
  });
  result.Finish();
}

void RunCrossEntropyBackward(const LossPlan& p, const Buffers& run) {
  const ConstTensor dloss = p.In(run, 0), log_prob = p.In(run, 1), labels = p.In(run, 2);
  const ConstTensor weights = p.In(run, 3), total = p.In(run, 4);
  const MutableTensor dscores = p.Out(run, 0);
  const ChannelView& v = p.scores;
  const double spread = p.smoothing / static_cast<double>(v.c);
  double all_weights = 0;
  for (int64_t c = 0; c < v.c; ++c) all_weights += Weight(weights, c);
  ForEachSample(v, [&](int64_t sample, int64_t n, int64_t s) {
    const std::optional<int64_t> label = Label(p, labels, sample, run);
    const double gradient = label ? SampleGradient(p, dloss, total, sample) : 0;
    for (int64_t c = 0; c < v.c; ++c) {
      const int64_t at = v.at(n, c, s);
      if (!label) {
        dscores.set(at, 0.0);
        continue;
      }
      const double prob = std::exp(log_prob.at(at));
      double d = (1 - p.smoothing) * Weight(weights, *label) * (prob - (c == *label ? 1 : 0));
      if (p.smoothing != 0) d += spread * (all_weights * prob - Weight(weights, c));
      dscores.set(at, gradient * d);
    }
  });
}

void RunNll(const LossPlan& p, const Buffers& run) {
  const ConstTensor log_prob = p.In(run, 0), labels = p.In(run, 1), weights = p.In(run, 2);
  LossSum result{p, p.Out(run, 0), p.Out(run, 1)};
  ForEachSample(p.scores, [&](int64_t sample, int64_t n, int64_t s) {
    const std::optional<int64_t> label = Label(p, labels, sample, run);
    if (!label) return result.Add(sample, 0, 0);
    const double weight = Weight(weights, *label);
    result.Add(sample, -weight * log_prob.at(p.scores.at(n, *label, s)), weight);
  });
  result.Finish();
}

void RunNllBackward(const LossPlan& p, const Buffers& run) {
  const ConstTensor dloss = p.In(run, 0), labels = p.In(run, 1), weights = p.In(run, 2),
                    total = p.In(run, 3);
  const MutableTensor dlog_prob = p.Out(run, 0);
  ForEachSample(p.scores, [&](int64_t sample, int64_t n, int64_t s) {
    const std::optional<int64_t> label = Label(p, labels, sample, run);
    for (int64_t c = 0; c < p.scores.c; ++c) {
      const double d =
          c == label ? -Weight(weights, c) * SampleGradient(p, dloss, total, sample) : 0.0;
      dlog_prob.set(p.scores.at(n, c, s), d);
    }
  });
}

/// The operands of a loss kernel by their role.
struct LossOperands {
  Operand scores, labels, weights, total;
  std::vector<Operand> losses;  // loss or dloss
};

Result<LossPlan> ReadLoss(const CallCheck& check, const LossOperands& operands) {
  const TensorDesc& scores = *operands.scores;
  AMPC_TRY(check.Float(operands.scores));
  AMPC_TRY(check.RankBetween(operands.scores, 2, 16));
  AMPC_TRY(check.RowMajor(operands.scores));
  Dims label_dims = scores.dims;
  label_dims.erase(label_dims.begin() + 1);
  AMPC_TRY(check.Index(operands.labels));
  AMPC_TRY(check.HasDims(operands.labels, label_dims));
  AMPC_TRY(check.RowMajor(operands.labels));
  AMPC_TRY(check.Float(operands.weights));
  AMPC_TRY(check.Elements(operands.weights, scores.dims[1]));
  if (scores.dims[1] == 0 && NumElements(label_dims) > 0)
    return check.Fail("{}: no classes", operands.scores.name);

  constexpr std::string_view kReductions[] = {"mean", "sum", "none"};
  const Attrs& params = check.params();
  const std::string_view reduction = params.String("reduction", "mean");
  AMPC_TRY(check.OneOf("reduction", reduction, kReductions));
  LossPlan plan;
  plan.scores = ViewChannels(scores);
  plan.reduction = reduction == "mean"  ? Reduction::kMean
                   : reduction == "sum" ? Reduction::kSum
                                        : Reduction::kNone;
  if (params.Int("has_ignore_index") != 0) plan.ignore_index = params.Int("ignore_index");
  plan.smoothing = params.Float("label_smoothing");
  if (!(plan.smoothing >= 0 && plan.smoothing <= 1)) {
    return check.Fail("parameter 'label_smoothing': expected 0 to 1, found {}", plan.smoothing);
  }
  for (const Operand& loss : operands.losses) {
    AMPC_TRY(check.Float(loss));
    if (plan.reduction == Reduction::kNone) {
      AMPC_TRY(check.HasDims(loss, label_dims));
      AMPC_TRY(check.RowMajor(loss));
    } else {
      AMPC_TRY(check.Scalar(loss));
    }
  }
  AMPC_TRY(check.Acc(operands.total));
  AMPC_TRY(check.Scalar(operands.total));
  for (size_t i = 0; i < 5; ++i) {
    plan.in.push_back(check.In(i)->dtype);
    plan.out.push_back(check.Out(i)->dtype);
  }
  return plan;
}

/// A mean's gradient divides by the total.
Status NeedsTotal(const CallCheck& check, const LossPlan& plan, const Operand& total) {
  if (plan.reduction != Reduction::kMean || total->present()) return {};
  return check.Fail("{} is missing, reduction 'mean' needs it", total.name);
}

}  // namespace

PrepareResult prepare::softmax_cross_entropy(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "scores labels weights?", "loss log_prob? total?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(
      LossPlan plan,
      ReadLoss(check, {check.In(0), check.In(1), check.In(2), check.Out(2), {check.Out(0)}}));
  AMPC_TRY(check.Float(check.Out(1)));
  AMPC_TRY(check.HasDims(check.Out(1), check.In(0)->dims));
  AMPC_TRY(check.RowMajor(check.Out(1)));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunCrossEntropy(plan, run); });
}

PrepareResult prepare::softmax_cross_entropy_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "dloss log_prob labels weights? total?", "dscores");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(LossPlan plan,
              ReadLoss(check, {check.In(1), check.In(2), check.In(3), check.In(4), {check.In(0)}}));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_TRY(check.HasDims(check.Out(0), check.In(1)->dims));
  AMPC_TRY(check.RowMajor(check.Out(0)));
  AMPC_TRY(NeedsTotal(check, plan, check.In(4)));
  return MakeKernel(
      [plan = std::move(plan)](const Buffers& run) { RunCrossEntropyBackward(plan, run); });
}

PrepareResult prepare::nll_loss(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "log_prob labels weights?", "loss total?");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(
      LossPlan plan,
      ReadLoss(check, {check.In(0), check.In(1), check.In(2), check.Out(1), {check.Out(0)}}));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunNll(plan, run); });
}

PrepareResult prepare::nll_loss_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "dloss labels weights? total?", "dlog_prob");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(
      LossPlan plan,
      ReadLoss(check, {check.Out(0), check.In(1), check.In(2), check.In(3), {check.In(0)}}));
  AMPC_TRY(NeedsTotal(check, plan, check.In(3)));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunNllBackward(plan, run); });
}

PrepareResult prepare::topk_correct(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "scores labels", "correct");
  AMPC_TRY(check.Operands());
  const Operand none = check.In(2);
  AMPC_ASSIGN(const LossPlan plan, ReadLoss(check, {check.In(0), check.In(1), none, none, {}}));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_TRY(check.HasDims(check.Out(0), check.In(1)->dims));
  AMPC_TRY(check.RowMajor(check.Out(0)));
  const int64_t k = call.params.Int("k", 1);
  AMPC_TRY(check.InRange("k", k, 1, std::numeric_limits<int64_t>::max()));
  return MakeKernel([plan, k](const Buffers& run) {
    const ConstTensor scores = plan.In(run, 0), labels = plan.In(run, 1);
    const MutableTensor correct = plan.Out(run, 0);
    const ChannelView& v = plan.scores;
    ForEachSample(v, [&](int64_t sample, int64_t n, int64_t s) {
      const int64_t label = labels.at<int64_t>(sample);
      // A label outside the classes is an ignored one here: the loss reports it.
      bool hit = label >= 0 && label < v.c;
      if (hit) {
        const double own = scores.at(v.at(n, label, s));
        int64_t better = 0;  // classes that come before the label; NaN is the largest score
        for (int64_t c = 0; c < v.c; ++c) {
          const double other = scores.at(v.at(n, c, s));
          better += other > own || other != other || (other == own && c < label) ? 1 : 0;
        }
        hit = own == own && better < k;
      }
      correct.set(sample, hit ? 1.0 : 0.0);
    });
  });
}

}  // namespace ampc::ref
