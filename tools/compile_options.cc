// SPDX-License-Identifier: Apache-2.0
#include "tools/compile_options.h"

#include <limits>

#include "compiler/policy.h"
#include "runtime/data/array.h"

namespace ampc {
namespace {

// Class weights and the like: numbers, or a .npy file of them.
Result<std::vector<double>> NumbersOrFile(const Option& option, std::string_view key) {
  if (!option.Has(key)) return std::vector<double>();
  const std::string text = option.Text(key);
  if (!text.ends_with(".npy")) return option.Numbers(key);
  AMPC_ASSIGN(const Array array, ArrayLoader().Load(text));
  std::vector<double> values;
  const HostTensor tensor{array.dtype, array.dims, PackedBytes(array)};
  for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.GetDouble(i));
  return values;
}

// What a word of a flag's choices stands for. The parser has refused other words: one that is
// missing here was added to the table of flags alone.
template <typename T>
Result<T> Meaning(std::string_view word,
                  std::initializer_list<std::pair<std::string_view, T>> words) {
  for (const auto& [name, meaning] : words) {
    if (name == word) return meaning;
  }
  return InternalError("E9999", "nothing stands for the choice '{}'", word);
}

Result<LossSpec> LossFrom(const Option& o) {
  using Kind = LossSpec::Kind;
  LossSpec loss;
  AMPC_ASSIGN(loss.kind, Meaning<Kind>(o.head, {{"cross-entropy", Kind::kCrossEntropy},
                                                {"nll", Kind::kNll},
                                                {"mse", Kind::kMse},
                                                {"l1", Kind::kL1},
                                                {"smooth-l1", Kind::kSmoothL1},
                                                {"huber", Kind::kHuber},
                                                {"bce-logits", Kind::kBceLogits},
                                                {"kl-div", Kind::kKlDiv},
                                                {"output", Kind::kOutput}}));
  if (o.Has("input")) loss.input = o.Text("input");
  if (o.Has("target")) loss.target = o.Text("target");
  if (o.Has("axis")) loss.axis = o.Int("axis");
  if (o.Has("reduction")) loss.mean = o.Text("reduction") == "mean";
  loss.has_ignore_index = o.Has("ignore_index");
  if (loss.has_ignore_index) loss.ignore_index = o.Int("ignore_index");
  if (o.Has("label_smoothing")) loss.label_smoothing = o.Number("label_smoothing");
  if (o.Has("beta")) loss.beta = o.Number("beta");
  if (o.Has("delta")) loss.delta = o.Number("delta");
  loss.factor = o.Number("factor");
  AMPC_ASSIGN(loss.weight, NumbersOrFile(o, "weight"));
  AMPC_ASSIGN(loss.pos_weight, NumbersOrFile(o, "pos_weight"));
  return loss;
}

Result<OptimizerSpec> OptimizerFrom(const Settings& s) {
  const Option& o = *s.Find("optimizer");
  OptimizerSpec spec;
  using Kind = OptimizerSpec::Kind;
  AMPC_ASSIGN(
      spec.kind,
      Meaning<Kind>(o.head, {{"sgd", Kind::kSgd}, {"adam", Kind::kAdam}, {"adamw", Kind::kAdamW}}));
  spec.lr = *s.Number("lr");
  if (o.Has("momentum")) spec.momentum = o.Number("momentum");
  if (o.Has("dampening")) spec.dampening = o.Number("dampening");
  if (o.Has("nesterov")) spec.nesterov = o.Bool("nesterov");
  if (o.Has("betas")) {
    const std::vector<double> betas = o.Numbers("betas");
    if (betas.size() != 2)
      return UsageError("E0603", "--optimizer: key 'betas': expected two numbers, found {}",
                        betas.size());
    spec.beta1 = betas.front();
    spec.beta2 = betas.back();
  }
  if (o.Has("eps")) spec.eps = o.Number("eps");
  spec.weight_decay = o.Number("weight_decay");
  spec.no_decay = s.Texts("no-decay");
  for (const Option& g : s.All("param-group")) {
    ParamGroup group{
        .glob = g.head, .has_lr = g.Given("lr"), .has_weight_decay = g.Given("weight_decay")};
    if (group.has_lr) group.lr = g.Number("lr");
    if (group.has_weight_decay) group.weight_decay = g.Number("weight_decay");
    spec.groups.push_back(std::move(group));
  }
  return spec;
}

Result<ScheduleSpec> ScheduleFrom(const Settings& s) {
  using Kind = ScheduleSpec::Kind;
  const Option& o = *s.Find("lr-schedule");
  ScheduleSpec spec;
  AMPC_ASSIGN(spec.kind, Meaning<Kind>(o.head, {{"constant", Kind::kConstant},
                                                {"linear", Kind::kLinear},
                                                {"cosine", Kind::kCosine},
                                                {"step", Kind::kStep}}));
  spec.warmup = o.Int("warmup");
  if (o.Has("total")) spec.total = o.Int("total");
  if (o.Has("end_factor")) spec.end_factor = o.Number("end_factor");
  if (o.Has("step_size")) spec.step_size = o.Int("step_size");
  if (o.Has("gamma")) spec.gamma = o.Number("gamma");
  return spec;
}

ScalerSpec ScalerFrom(const Settings& s, Precision precision) {
  const Option& o = *s.Find("loss-scale");
  ScalerSpec spec;
  spec.max_skips = o.Int("max_skips");
  if (const auto fixed = o.HeadNumber()) {
    spec.mode = ScalerSpec::Mode::kStatic;
    spec.init_scale = *fixed;
    return spec;
  }
  const bool dynamic = o.head == "dynamic" || (o.head == "auto" && precision == Precision::kFp16);
  spec.mode = dynamic ? ScalerSpec::Mode::kDynamic : ScalerSpec::Mode::kOff;
  if (o.head == "off") return spec;
  spec.init_scale = o.Number("init_scale");
  spec.growth_factor = o.Number("growth_factor");
  spec.backoff_factor = o.Number("backoff_factor");
  spec.growth_interval = o.Int("growth_interval");
  spec.min_scale = o.Number("min_scale");
  spec.max_scale =
      std::min(o.Number("max_scale"), static_cast<double>(std::numeric_limits<float>::max()));
  spec.hysteresis = o.Int("hysteresis");
  return spec;
}

}  // namespace

Result<CompileOptions> CompileOptionsFrom(const Settings& s) {
  CompileOptions o;
  for (const Option& loss : s.All("loss")) {
    AMPC_ASSIGN(LossSpec spec, LossFrom(loss));
    o.losses.push_back(std::move(spec));
  }
  for (const Option& metric : s.All("metric")) {
    using Kind = MetricSpec::Kind;
    AMPC_ASSIGN(const Kind kind, Meaning<Kind>(metric.head, {{"accuracy", Kind::kAccuracy},
                                                             {"perplexity", Kind::kPerplexity},
                                                             {"mae", Kind::kMae}}));
    o.metrics.push_back({kind, kind == Kind::kAccuracy ? metric.Int("k") : 1});
  }
  o.trainable = s.Texts("trainable");
  o.freeze = s.Texts("freeze");
  AMPC_ASSIGN(o.optimizer, OptimizerFrom(s));
  AMPC_ASSIGN(o.schedule, ScheduleFrom(s));
  for (std::string_view flag : {"optimizer", "lr-schedule", "no-decay", "param-group"})
    o.own_update = o.own_update || s.Given(flag);
  o.own_lr = s.Given("lr");
  AMPC_ASSIGN(o.precision, Meaning<Precision>(s.Text("precision"), {{"fp32", Precision::kFp32},
                                                                    {"bf16", Precision::kBf16},
                                                                    {"fp16", Precision::kFp16},
                                                                    {"fp64", Precision::kFp64}}));
  AMPC_ASSIGN(o.policy, LoadPolicy(s.Text("policy")));
  o.scaler = ScalerFrom(s, o.precision);
  o.clip_norm = s.Number("clip-norm").value_or(0);
  o.clip_value = s.Number("clip-value").value_or(0);
  o.accumulate = *s.Int("accumulate");
  for (const Option& dim : s.All("dim")) {
    constexpr std::string_view kEval = "eval:";
    const int64_t size = *dim.HeadInt();
    if (std::string_view(dim.name).starts_with(kEval)) {
      o.eval_dims.emplace_back(dim.name.substr(kEval.size()), size);
    } else {
      o.dims.emplace_back(dim.name, size);
    }
  }
  using Mode = CompileOptions::TrainMode;
  AMPC_ASSIGN(o.train_mode,
              Meaning<Mode>(s.Text("train-mode"), {{"train", Mode::kTrain},
                                                   {"preserve", Mode::kPreserve},
                                                   {"frozen-eval", Mode::kFrozenEval}}));
  o.bn_unbiased = s.Text("bn-var") == "unbiased";
  o.wgrad_fp32 = s.Text("wgrad") == "fp32";
  o.eval_same = s.Text("eval-precision") == "same";
  o.forward_only = s.Switch("forward-only");
  if (s.tool() == Tool::kAmpc) o.artifacts = s.Text("artifacts");
  if (!o.artifacts.empty()) o.init_from = s.Text("init-from");
  o.untie = s.Text("untie");
  o.keep = s.Texts("keep");
  return o;
}

PassRunOptions PassRunOptionsFrom(const Settings& s) {
  PassRunOptions o;
  o.print_after = s.Texts("print-after");
  o.print_changed = s.Switch("print-changed");
  o.stop_after = s.Text("stop-after");
  o.disable = s.Texts("disable-pass");
  o.time_passes = s.Switch("time-passes");
  o.verify_each = s.Switch("verify-each") || kVerifyByDefault;
  return o;
}

}  // namespace ampc
