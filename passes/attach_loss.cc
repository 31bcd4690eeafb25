// SPDX-License-Identifier: Apache-2.0
// Adds loss and metrics to the forward graph.
//
//   before   the model's outputs
//   after    "loss" = output (scalar); target feeds; per sample, for fork-eval to mask and sum:
//            "each:loss", "count:loss" (how much each position counts in a mean), "each:<metric>",
//            "count:<metric>"; "log:<metric>" in the place of "each:" for one that is the
//            exponential of a mean
//
// Class scores of rank > 2 are brought to [positions, classes] first. Several losses add up, each
// times its factor. Test: test/passes/attach-loss.onnxtext
#include <algorithm>

#include "passes/passes.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::ValueId;
using Kind = LossSpec::Kind;

// A loss before it is summed up.
struct Piece {
  ValueId loss = kNone;   ///< scalar, reduced as asked
  ValueId each = kNone;   ///< per position, leading axis = sample
  ValueId count = kNone;  ///< same dims as each
};

class LossAttacher {
 public:
  LossAttacher(ir::Graph& graph, PassContext& context)
      : module_(graph.module()),
        g_(graph),
        o_(context.options),
        b_(g_, module_.locs.Intern("loss")) {}

  Status Run() {
    const std::vector<ir::OutputInfo> model_outputs = g_.outputs();
    AMPC_TRY(CheckNames(model_outputs));
    ValueId total = kNone;
    Piece last;
    for (const LossSpec& spec : o_.losses) {
      AMPC_ASSIGN(const ir::OutputInfo input, Input(spec, model_outputs));
      AMPC_ASSIGN(last, Attach(spec, input));
      ValueId loss = last.loss;
      if (spec.factor != 1 && !b_.failed())
        loss = b_.Mul(loss, b_.Scalar(g_.type(loss).dtype, spec.factor));
      total = total == kNone ? loss : b_.Add(total, loss);
      if (b_.failed()) return b_.TakeStatus();
    }
    if (total == kNone)
      return UsageError("E0201",
                        "no loss: training and --metric need --loss (or use --forward-only)");
    if (o_.accumulate > 1 &&
        std::any_of(o_.losses.begin(), o_.losses.end(),
                    [&](const LossSpec& s) { return s.mean != o_.losses.front().mean; })) {
      return UsageError("E0214",
                        "--accumulate averages mean losses and adds up sums: give all losses the "
                        "same reduction=");
    }
    for (const MetricSpec& metric : o_.metrics)
      AMPC_TRY(AttachMetric(metric, LossOf(metric), model_outputs));
    if (b_.failed()) return b_.TakeStatus();
    g_.SetOutput("loss", total);
    g_.Rename(total, "loss");
    // Several losses have no per-sample form in common: evaluation then sums each batch's value.
    if (o_.losses.size() == 1 && last.each != kNone) {
      g_.SetOutput("each:loss", last.each);
      g_.SetOutput("count:loss", last.count);
    }
    return {};
  }

 private:
  static bool HasClasses(const LossSpec& loss) {
    return loss.kind == Kind::kCrossEntropy || loss.kind == Kind::kNll;
  }
  // The first loss whose input and target the metric can compare, or the first.
  const LossSpec& LossOf(const MetricSpec& metric) const {
    const auto it = std::find_if(o_.losses.begin(), o_.losses.end(), [&](const LossSpec& loss) {
      return metric.kind == MetricSpec::Kind::kMae ? !HasClasses(loss) && loss.kind != Kind::kOutput
                                                   : HasClasses(loss);
    });
    return it == o_.losses.end() ? o_.losses.front() : *it;
  }

  // Outputs of the model that would be taken for ours. One named "loss" may only be the loss.
  Status CheckNames(const std::vector<ir::OutputInfo>& outputs) const {
    const bool is_loss = std::any_of(o_.losses.begin(), o_.losses.end(), [&](const LossSpec& spec) {
      return spec.kind == Kind::kOutput &&
             (spec.input == "loss" || (spec.input.empty() && outputs.size() == 1));
    });
    for (const ir::OutputInfo& out : outputs) {
      if (out.name == "loss" && !is_loss && !o_.losses.empty()) {
        return BadInput("E0202",
                        "the model has an output named 'loss' already: use --loss "
                        "output:input=loss, or rename it");
      }
      if (out.name.starts_with("each:") || out.name.starts_with("count:") ||
          out.name.starts_with("log:"))
        return BadInput("E0202", "the model has an output named '{}': rename it", out.name);
    }
    return {};
  }

  Result<ir::OutputInfo> Input(const LossSpec& spec, const std::vector<ir::OutputInfo>& outputs) {
    std::string names;
    for (const ir::OutputInfo& out : outputs) {
      if (out.name == spec.input) return out;
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", out.name);
    }
    if (!spec.input.empty())
      return UsageError("E0203", "--loss input={}: the model has no such output; it has {}",
                        spec.input, names);
    if (outputs.size() != 1) {
      return UsageError("E0203",
                        "the model has {} outputs ({}): say which one with --loss …:input=NAME",
                        outputs.size(), names);
    }
    return outputs.front();
  }

  Result<Piece> Attach(const LossSpec& spec, const ir::OutputInfo& input) {
    const ir::TensorType t = g_.type(input.value);
    if (!IsFloat(t.dtype))
      return BadInput("E0204", "loss input '{}' is {}, floats are expected", input.name,
                      ToString(t));
    if (t.elements() == 0)
      return BadInput("E0204", "loss input '{}' is {}: there is nothing to average", input.name,
                      ToString(t));
    switch (spec.kind) {
      case Kind::kCrossEntropy:
      case Kind::kNll:
        return ClassLoss(spec, input);
      case Kind::kMse:
      case Kind::kL1:
      case Kind::kSmoothL1:
      case Kind::kHuber:
      case Kind::kBceLogits:
      case Kind::kKlDiv:
        return ElementLoss(spec, input);
      case Kind::kOutput:
        if (t.elements() != 1) {
          return BadInput("E0205", "--loss output: '{}' is {}, a scalar is expected", input.name,
                          ToString(t));
        }
        return Piece{b_.Reshape(input.value, Dims{}), kNone, kNone};
    }
    return Piece{};
  }

  Result<ValueId> Target(const LossSpec& spec, DType dtype, const Dims& dims) {
    if (const ValueId known = g_.FindValue(spec.target); known != kNone) {
      const ir::TensorType wanted{dtype, dims};
      if (g_.value(known).kind == ir::ValueKind::kFeed) {
        const ir::TensorType& type = g_.type(known);
        if (type == wanted) return known;
        return UsageError(
            "E0206", "target '{}' is {} already, {} is needed here; choose another with target=",
            spec.target, ToString(type), ToString(wanted));
      }
      return UsageError(
          "E0206", "target '{}' is the name of another value of the model; choose one with target=",
          spec.target);
    }
    return g_.AddFeed(spec.target, module_.types.Intern(dtype, dims), plan::Feed::Kind::kTarget);
  }

  Result<int64_t> ClassAxis(const LossSpec& spec, const ir::OutputInfo& input) {
    const ir::TensorType t = g_.type(input.value);
    if (t.rank() < 2)
      return BadInput("E0207", "loss input '{}' is {}: class scores need a class axis", input.name,
                      ToString(t));
    if (spec.axis == kNoAxis) {
      if (t.rank() == 2) return 1;
      return UsageError("E0208",
                        "loss input '{}' is {}: say which axis holds the classes, --loss …:axis=1 "
                        "({} classes) or axis={} ({} classes)",
                        input.name, ToString(t), t.dims[1], t.rank() - 1, t.dims.back());
    }
    const int64_t axis = spec.axis < 0 ? spec.axis + t.rank() : spec.axis;
    if (axis < 1 || axis >= t.rank()) {
      return UsageError("E0208", "--loss axis={}: '{}' is {}, an axis from 1 to {} is expected",
                        spec.axis, input.name, ToString(t), t.rank() - 1);
    }
    return axis;
  }

  ValueId ClassWeights(const LossSpec& spec, DType dtype) {
    if (spec.weight.empty()) return kNone;
    std::vector<double> w = spec.weight;
    return b_.Cast(
        b_.Constant(HostTensor::Of<double>(DType::kFloat64, {static_cast<int64_t>(w.size())},
                                           std::span<const double>(w))),
        dtype);
  }

  // Scores as [positions, classes], labels as [positions].
  struct Flat {
    ValueId scores, labels;
    Dims label_dims;
    int64_t classes;
  };
  Result<Flat> Flatten(const LossSpec& spec, const ir::OutputInfo& input) {
    AMPC_ASSIGN(const int64_t axis, ClassAxis(spec, input));
    const ir::TensorType t = g_.type(input.value);
    Flat f{input.value, kNone, t.dims, t.dims[static_cast<size_t>(axis)]};
    f.label_dims.erase(f.label_dims.begin() + axis);
    AMPC_ASSIGN(f.labels, Target(spec, DType::kInt64, f.label_dims));
    ir::FeedInfo& feed = g_.mutable_feeds()[static_cast<size_t>(g_.value(f.labels).index)];
    feed.limit = f.classes;
    feed.has_ignore = spec.has_ignore_index;
    feed.ignore = spec.ignore_index;
    if (!spec.weight.empty() && static_cast<int64_t>(spec.weight.size()) != f.classes) {
      return UsageError("E0209", "--loss weight= has {} numbers, '{}' has {} classes",
                        spec.weight.size(), input.name, f.classes);
    }
    if (t.rank() > 2) {
      if (axis != t.rank() - 1) {
        std::vector<int64_t> perm;
        for (int64_t i = 0; i < t.rank(); ++i) {
          if (i != axis) perm.push_back(i);
        }
        perm.push_back(axis);
        f.scores = b_.Transpose(f.scores, std::move(perm));
      }
      f.scores = b_.Reshape(f.scores, Dims{NumElements(f.label_dims), f.classes});
      f.labels = b_.Reshape(f.labels, Dims{NumElements(f.label_dims)});
    }
    return f;
  }

  Result<Piece> ClassLoss(const LossSpec& spec, const ir::OutputInfo& input) {
    AMPC_ASSIGN(const Flat f, Flatten(spec, input));
    if (b_.failed()) return b_.TakeStatus();
    const DType dtype = g_.type(input.value).dtype;
    const ValueId weights = ClassWeights(spec, dtype);
    Attrs attrs;
    if (spec.has_ignore_index) attrs.Set("ignore_index", spec.ignore_index);
    const auto loss = [&](std::string_view reduction) {
      attrs.Set("reduction", std::string(reduction));
      const ValueId inputs[] = {f.scores, f.labels, weights};
      const std::span<const ValueId> in(inputs, weights == kNone ? 2 : 3);
      if (spec.kind == Kind::kNll) return b_.Op("", "NegativeLogLikelihoodLoss", in, attrs);
      if (spec.label_smoothing == 0) return b_.Op("", "SoftmaxCrossEntropyLoss", in, attrs);
      Attrs smooth = attrs;
      smooth.Set("label_smoothing", spec.label_smoothing);
      return b_.Multi(kOwnDomain, "CrossEntropy", in, std::move(smooth), 3)[0];
    };
    Piece p;
    p.loss = loss(spec.mean ? "mean" : "sum");
    p.each = b_.Reshape(loss("none"), f.label_dims);
    p.count = b_.Reshape(LabelCount(spec, f, weights, dtype), f.label_dims);
    if (b_.failed()) return b_.TakeStatus();
    return p;
  }

  // Weight of each label in the mean: its class weight, 0 where ignored.
  ValueId LabelCount(const LossSpec& spec, const Flat& f, ValueId weights, DType dtype) {
    if (weights == kNone && !spec.has_ignore_index)
      return b_.Expand(b_.Scalar(dtype, 1), g_.type(f.labels).dims);
    const Attrs ignore{{"ignore", static_cast<double>(spec.ignore_index)}};
    ValueId labels = f.labels;
    if (spec.has_ignore_index)
      labels = b_.Map("where(x0 == $ignore, 0, x0)", {f.labels}, DType::kInt64, ignore);
    const ValueId w = weights == kNone ? b_.Expand(b_.Scalar(dtype, 1), g_.type(f.labels).dims)
                                       : b_.Op("Gather", {weights, labels});
    return spec.has_ignore_index
               ? b_.Map("where(x1 == $ignore, 0, x0)", {w, f.labels}, dtype, ignore)
               : w;
  }

  Result<ValueId> EachElement(const LossSpec& spec, const ir::OutputInfo& input, ValueId target) {
    switch (spec.kind) {
      case Kind::kL1:
        return b_.Own("AbsoluteError", {input.value, target});
      case Kind::kSmoothL1:
        return b_.Own("SmoothL1", {input.value, target}, {{"beta", spec.beta}});
      case Kind::kHuber:
        return b_.Own("Huber", {input.value, target}, {{"delta", spec.delta}});
      case Kind::kKlDiv:
        return b_.Own("KlDivergence", {input.value, target});
      case Kind::kBceLogits: {
        AMPC_ASSIGN(const ValueId pos_weight, PosWeight(spec, input));
        return b_.Own("BceWithLogits", {input.value, target, pos_weight});
      }
      default:
        return b_.Own("SquaredError", {input.value, target});
    }
  }

  Result<ValueId> PosWeight(const LossSpec& spec, const ir::OutputInfo& input) {
    const ir::TensorType t = g_.type(input.value);
    std::vector<double> w = spec.pos_weight;
    if (w.size() > 1 && static_cast<int64_t>(w.size()) != t.dims.back()) {
      return UsageError("E0209", "--loss pos_weight= has {} numbers, the last axis of '{}' has {}",
                        w.size(), input.name, t.dims.back());
    }
    if (w.empty()) w = {1};
    const Dims dims = w.size() == 1 ? Dims{} : Dims{static_cast<int64_t>(w.size())};
    return b_.Cast(
        b_.Constant(HostTensor::Of<double>(DType::kFloat64, dims, std::span<const double>(w))),
        t.dtype);
  }

  Result<Piece> ElementLoss(const LossSpec& spec, const ir::OutputInfo& input) {
    const ir::TensorType t = g_.type(input.value);
    AMPC_ASSIGN(const ValueId target, Target(spec, t.dtype, t.dims));
    Piece p;
    AMPC_ASSIGN(p.each, EachElement(spec, input, target));
    p.count = b_.Expand(b_.Scalar(t.dtype, 1), t.dims);
    std::vector<int64_t> all;
    for (int64_t i = 0; i < t.rank(); ++i) all.push_back(i);
    p.loss = b_.Op(spec.mean ? "ReduceMean" : "ReduceSum", {p.each, b_.Ints(all)},
                   {{"keepdims", int64_t{0}}});
    if (b_.failed()) return b_.TakeStatus();
    return p;
  }

  Status AttachMetric(const MetricSpec& metric, const LossSpec& loss,
                      const std::vector<ir::OutputInfo>& outputs) {
    b_.set_loc(module_.locs.Intern("metric"));
    AMPC_ASSIGN(const ir::OutputInfo input, Input(loss, outputs));
    switch (metric.kind) {
      case MetricSpec::Kind::kAccuracy:
        return AttachAccuracy(metric, loss, input);
      case MetricSpec::Kind::kPerplexity:
        return AttachPerplexity(loss, input);
      case MetricSpec::Kind::kMae:
        break;
    }
    if (HasClasses(loss) || loss.kind == Kind::kOutput)
      return UsageError("E0210",
                        "--metric mae needs a target of the output's form, as mse and l1 have");
    const ir::TensorType t = g_.type(input.value);
    AMPC_ASSIGN(const ValueId target, Target(loss, t.dtype, t.dims));
    return AddMetric("each:", "mae", b_.Map("abs(x0 - x1)", {input.value, target}, DType::kFloat32),
                     b_.Expand(b_.Scalar(DType::kFloat32, 1), t.dims));
  }

  // 1 for every label that is not ignored.
  ValueId CountedLabels(const LossSpec& loss, const Flat& f) {
    if (!loss.has_ignore_index)
      return b_.Expand(b_.Scalar(DType::kFloat32, 1),
                       b_.failed() ? Dims{} : g_.type(f.labels).dims);
    const Attrs ignore{{"ignore", static_cast<double>(loss.ignore_index)}};
    return b_.Map("x0 != $ignore", {f.labels}, DType::kFloat32, ignore);
  }

  Status AttachAccuracy(const MetricSpec& metric, const LossSpec& loss,
                        const ir::OutputInfo& input) {
    if (!HasClasses(loss))
      return UsageError("E0210",
                        "--metric accuracy needs class labels: a cross-entropy or nll loss");
    AMPC_ASSIGN(const Flat f, Flatten(loss, input));
    const ValueId each = b_.Own("TopKCorrect", {f.scores, f.labels}, {{"k", metric.k}});
    const ValueId count = CountedLabels(loss, f);
    return AddMetric("each:", metric.k == 1 ? "accuracy" : fmt::format("accuracy_top{}", metric.k),
                     b_.Reshape(b_.Mul(each, count), f.label_dims),
                     b_.Reshape(count, f.label_dims));
  }

  // exp(mean of -log p(label)): of the probabilities alone, whatever weights and smoothing the loss
  // that is minimised has.
  Status AttachPerplexity(const LossSpec& loss, const ir::OutputInfo& input) {
    if (!HasClasses(loss))
      return UsageError("E0210",
                        "--metric perplexity needs class labels: a cross-entropy or nll loss");
    AMPC_ASSIGN(const Flat f, Flatten(loss, input));
    Attrs attrs;
    if (loss.has_ignore_index) attrs.Set("ignore_index", loss.ignore_index);
    attrs.Set("reduction", std::string("none"));
    const std::string_view op =
        loss.kind == Kind::kNll ? "NegativeLogLikelihoodLoss" : "SoftmaxCrossEntropyLoss";
    const ValueId each = b_.Op(op, {f.scores, f.labels}, std::move(attrs));
    return AddMetric("log:", "perplexity", b_.Reshape(each, f.label_dims),
                     b_.Reshape(CountedLabels(loss, f), f.label_dims));
  }

  Status AddMetric(std::string_view kind, const std::string& name, ValueId each, ValueId count) {
    if (b_.failed()) return b_.TakeStatus();
    g_.SetOutput(std::string(kind) + name, each);
    g_.SetOutput("count:" + name, count);
    return {};
  }

  ir::Module& module_;
  ir::Graph& g_;
  const CompileOptions& o_;
  ir::Builder b_;
};

}  // namespace

Status AttachLoss(ir::Module& module, PassContext& context) {
  const CompileOptions& o = context.options;
  if (o.forward_only && o.losses.empty() && o.metrics.empty()) return {};
  // `eval` exists already when evaluation has other dims than training.
  for (ir::Graph* g : module.graphs()) {
    if (g != module.update.get()) AMPC_TRY(LossAttacher(*g, context).Run());
  }
  return {};
}

}  // namespace ampc
