// SPDX-License-Identifier: Apache-2.0
// From a sample to a graph of one node with values, its loss, and the evaluation of such graphs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "compiler/ir/builder.h"
#include "compiler/lower/evaluate.h"
#include "passes/passes.h"
#include "test/conformance/samples.h"

namespace ampc::conformance {
namespace {

DType TypeOf(const Arg& arg, DType tested) {
  switch (arg.kind) {
    case Arg::Kind::kTested:
      return tested;
    case Arg::Kind::kAcc:
      return AccOf(tested);
    default:
      return arg.dtype;
  }
}

HostTensor Tensor(DType dtype, const Dims& dims, const std::vector<double>& values) {
  HostTensor t{dtype, dims, {}};
  for (const double v : values) {
    const HostTensor one = HostTensor::Scalar(dtype, v);
    t.data.insert(t.data.end(), one.data.begin(), one.data.end());
  }
  return t;
}

// Numbers of [0, 1), one per rung of a ladder with as many rungs as the sample has random elements.
class Ladder {
 public:
  Ladder(size_t rungs, uint32_t seed) : random_(seed), order_(rungs) {
    for (size_t i = 0; i < rungs; ++i) order_[i] = i;
    for (size_t i = rungs; i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
  }
  double Next() {
    const double jitter = static_cast<double>(random_() % 1024) / 4096;
    return (static_cast<double>(order_[next_++]) + jitter) / static_cast<double>(order_.size());
  }

 private:
  std::mt19937 random_;
  std::vector<size_t> order_;
  size_t next_ = 0;
};

double Place(const Arg& arg, double u) {
  const double span = arg.high - arg.low;
  double v = !arg.both_signs ? arg.low + u * span
             : u < 0.5       ? -(arg.low + (1 - 2 * u) * span)
                             : arg.low + (2 * u - 1) * span;
  for (const double kink : arg.avoid) {
    if (std::abs(v - kink) < 0.02) v = kink + (v < kink ? -0.02 : 0.02);
  }
  return v;
}

HostTensor ValueOf(const Arg& arg, DType tested, Ladder& ladder) {
  std::vector<double> values = arg.values;
  if (values.empty()) {
    values.resize(static_cast<size_t>(NumElements(arg.dims)));
    for (double& v : values) v = Place(arg, ladder.Next());
  }
  return Tensor(TypeOf(arg, tested), arg.dims, values);
}

size_t RandomElements(const Sample& sample) {
  size_t n = 0;
  for (const Arg& arg : sample.args) {
    if (arg.kind != Arg::Kind::kSame && arg.kind != Arg::Kind::kLeftOut && arg.values.empty()) {
      n += static_cast<size_t>(NumElements(arg.dims));
    }
  }
  return n;
}

int64_t ToNumber(int64_t to, DType tested) {
  if (to == kToTested) return static_cast<int64_t>(tested);
  return to == kToAcc ? static_cast<int64_t>(AccOf(tested)) : to;
}

// "to" in the type under test; numbers as a model carries them, in float32.
Attrs AttrsOf(const Sample& sample, DType tested) {
  Attrs attrs = sample.attrs;
  for (const auto& [name, value] : sample.attrs.entries()) {
    if (const auto* d = std::get_if<double>(&value))
      attrs.Set(name, static_cast<double>(static_cast<float>(*d)));
  }
  const Attr* to = attrs.Find("to");
  if (to == nullptr) return attrs;
  if (const auto* one = std::get_if<int64_t>(to)) {
    attrs.Set("to", ToNumber(*one, tested));
  } else {
    std::vector<int64_t> list = attrs.Ints("to");
    for (int64_t& t : list) t = ToNumber(t, tested);
    attrs.Set("to", std::move(list));
  }
  return attrs;
}

// A feed, a trainable state or a constant with a value.
ir::ValueId AddOperand(Instance& instance, ir::Builder& b, const Arg& arg, size_t slot,
                       HostTensor value) {
  ir::Module& module = *instance.module;
  if (arg.constant) return b.Constant(std::move(value));
  const std::string name = fmt::format("x{}", slot);
  const ir::TypeId type = module.types.Intern(value.dtype, value.dims);
  ir::ValueId v;
  if (arg.differentiate) {
    v = b.graph().State(module.AddState(
        {.name = name, .type = type, .source = name, .trainable = true, .setting = ""}));
    instance.parameters.push_back(v);
  } else {
    v = b.graph().AddFeed(name, type, plan::Feed::Kind::kInput);
  }
  instance.values.emplace(v, std::move(value));
  return v;
}

std::string TypeName(const Arg& arg) {
  switch (arg.kind) {
    case Arg::Kind::kTested:
      return "T";
    case Arg::Kind::kAcc:
      return "acc";
    case Arg::Kind::kSame:
      return fmt::format("=x{}", arg.same);
    case Arg::Kind::kLeftOut:
      return "-";
    case Arg::Kind::kFixed:
      return std::string(Name(arg.dtype));
  }
  return "";
}

std::string Text(const Attr& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("{}", *d);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) return ToString(*v);
  return "…";
}

}  // namespace

std::string Describe(const Sample& sample) {
  std::string text = sample.op;
  for (const Arg& arg : sample.args) {
    text += " " + TypeName(arg);
    if (arg.kind != Arg::Kind::kSame && arg.kind != Arg::Kind::kLeftOut) text += ToString(arg.dims);
  }
  for (const auto& [name, value] : sample.attrs.entries())
    text += fmt::format(" {}={}", name, Text(value));
  return text;
}

std::vector<Sample> AllSamples() {
  std::vector<Sample> all;
  for (auto* family :
       {ElementwiseSamples, LayerSamples, MovementSamples, TrainingSamples, LargeSamples}) {
    std::vector<Sample> samples = family();
    std::move(samples.begin(), samples.end(), std::back_inserter(all));
  }
  return all;
}

Result<Instance> Build(const Sample& sample, DType tested, uint32_t seed) {
  Instance instance;
  instance.module = std::make_unique<ir::Module>();
  instance.module->train = std::make_unique<ir::Graph>(*instance.module, "train");
  ir::Builder b(*instance.module->train, instance.module->locs.Intern("sample"));
  Ladder ladder(RandomElements(sample), seed);
  std::vector<ir::ValueId> inputs;
  for (size_t i = 0; i < sample.args.size(); ++i) {
    const Arg& arg = sample.args[i];
    if (arg.kind == Arg::Kind::kLeftOut) {
      inputs.push_back(ir::kNone);
    } else if (arg.kind == Arg::Kind::kSame) {
      inputs.push_back(inputs[arg.same]);
    } else {
      inputs.push_back(AddOperand(instance, b, arg, i, ValueOf(arg, tested, ladder)));
    }
  }
  const std::vector<ir::ValueId> outs =
      b.Multi(sample.domain(), sample.name(), inputs, AttrsOf(sample, tested), sample.outputs);
  if (b.failed()) return b.TakeStatus();
  instance.node = instance.graph().value(outs[0]).def;
  for (size_t i = 0; i < outs.size(); ++i)
    instance.graph().SetOutput(fmt::format("y{}", i), outs[i]);
  return instance;
}

Result<bool> AddLoss(Instance& instance, const Sample& sample, Weights weights) {
  ir::Graph& g = instance.graph();
  ir::Builder b(g, instance.module->locs.Intern("loss"));
  std::mt19937 random(7);
  ir::ValueId loss = ir::kNone;
  const std::vector<ir::ValueId> outs = g.node(instance.node).outputs;
  for (size_t i = 0; i < outs.size(); ++i) {
    const ir::TensorType type = g.type(outs[i]);
    if (!IsFloat(type.dtype) || (sample.loss_outputs >> i & 1) == 0) continue;
    std::vector<double> w(static_cast<size_t>(type.elements()), 1.0);
    for (double& v : w) {
      if (weights == Weights::kRandom)
        v = (random() % 2 == 0 ? 1 : -1) * (0.3 + static_cast<double>(random() % 1000) / 1000);
    }
    std::vector<int64_t> axes;
    for (int64_t a = 0; a < type.rank(); ++a) axes.push_back(a);
    const ir::ValueId term = b.ReduceSum(
        b.Mul(outs[i], b.Constant(Tensor(type.dtype, type.dims, w))), std::move(axes), false);
    loss = loss == ir::kNone ? b.Cast(term, AccOf(type.dtype))
                             : b.Add(loss, b.Cast(term, AccOf(type.dtype)));
  }
  if (b.failed()) return b.TakeStatus();
  if (loss == ir::kNone) return false;
  g.SetOutput("loss", loss);
  return true;
}

Status AddGradientNodes(Instance& instance, const Sample& sample) {
  const OpDef& op = *instance.graph().node(instance.node).op;
  const bool has_rule = (op.grad != nullptr && op.grad != NoGradient) || op.training != nullptr;
  if (!has_rule || instance.parameters.empty() || sample.types_only) return {};
  AMPC_ASSIGN(const bool has_loss, AddLoss(instance, sample));
  if (!has_loss) return {};
  const CompileOptions options;
  Diagnostics diagnostics;
  PassContext context{options, diagnostics};
  return Differentiate(*instance.module, context);
}

Status EvaluateGraph(const ir::Graph& graph, Values& values) {
  for (const ir::NodeId n : graph.Order()) {
    const ir::Node& node = graph.node(n);
    if (node.op->traits.constant) {
      values[node.outputs[0]] = *graph.ConstantOf(node.outputs[0]);
      continue;
    }
    std::vector<const HostTensor*> inputs;
    for (const ir::ValueId v : node.inputs)
      inputs.push_back(v == ir::kNone ? nullptr : &values.at(v));
    auto outputs = EvaluateNode(graph, n, inputs);
    if (!outputs.ok()) return std::move(outputs).TakeStatus().At(graph.Describe(n));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != ir::kNone) values[node.outputs[i]] = std::move((*outputs)[i]);
    }
  }
  return {};
}

}  // namespace ampc::conformance
