// SPDX-License-Identifier: Apache-2.0
// The update of a training_info: a second sweep, over the nodes that lead from gradients to new
// values, into graph `update`. Adam, Momentum and Adagrad become own ops that keep the current
// values where the step is skipped (feed "found_inf"); so does every other new value.
//
// ONNX's optimizers differ from PyTorch's in where epsilon and the decay stand. The own ops take
// the scalars of a step from outside, so the difference lies in those: a bias correction in the
// step size leaves epsilon alone, a decay of the new weight scales weight and step alike.
#include <algorithm>

#include <onnx/defs/schema.h>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/training.h"

namespace ampc {

using ir::kNone;
using ir::ValueId;

namespace {

constexpr std::string_view kFoundInf = "found_inf";

// An optimizer node: R, T, then lists of n: weights, gradients, moments. The outputs are weights
// and moments.
struct UpdateCall {
  ir::Builder& b;
  const Attrs& attrs;
  DType acc;  // of weights, gradients and moments
  ValueId found_inf, rate, count;
  std::vector<ValueId> weights, gradients, moments;

  double Number(std::string_view name) const { return attrs.Float(name, 0); }
};
using UpdateFn = Result<std::vector<ValueId>> (*)(UpdateCall&);

// A scalar of the step, in double, rounded once. x0 = R, x1 = T.
std::vector<ValueId> StepScalars(UpdateCall& c, std::string_view expr, size_t n, Attrs params) {
  params.Set("expr", std::string(expr));
  params.Set("to", std::vector<int64_t>(n, static_cast<int64_t>(c.acc)));
  const ValueId inputs[] = {c.rate, c.count};
  return c.b.Multi(kOwnDomain, "Map", inputs, std::move(params), n);
}

std::vector<ValueId> Lists(std::vector<ValueId> scalars, const UpdateCall& c) {
  for (const auto* list : {&c.weights, &c.gradients, &c.moments})
    scalars.insert(scalars.end(), list->begin(), list->end());
  return scalars;
}

// The gradient of 0.5 * norm_coefficient * |w|^2 joins each gradient.
void Regularize(UpdateCall& c) {
  const double norm = c.Number("norm_coefficient");
  for (size_t i = 0; i < c.weights.size() && norm != 0; ++i) {
    c.gradients[i] = c.b.Map("$n * x1 + x0", {c.gradients[i], c.weights[i]}, c.acc, {{"n", norm}});
  }
}

// w' = (1 - post) * (w - r * m / (sqrt(v) + eps)), r = R * sqrt(1 - beta^T) / (1 - alpha^T) once
// T > 0. The own op has w * (1 - lr * decay) - step * m / (sqrt(v) / correction + eps).
Result<std::vector<ValueId>> BuildAdam(UpdateCall& c) {
  Regularize(c);
  std::vector<ValueId> scalars = StepScalars(
      c,
      "r = where(x1 > 0, x0 * sqrt(1 - pow($b, x1)) / (1 - pow($a, x1)), x0); y0 = 1; y1 = r * "
      "(1 - $p); y2 = $a; y3 = 1 - $a; y4 = $b; y5 = 1 - $b; y6 = 1; y7 = $e; y8 = $p",
      9,
      {{"a", c.Number("alpha")},
       {"b", c.Number("beta")},
       {"e", c.Number("epsilon")},
       {"p", c.Number("norm_coefficient_post")}});
  scalars.insert(scalars.begin(), c.found_inf);
  const auto n = static_cast<int64_t>(c.weights.size());
  return c.b.Multi(kOwnDomain, "Adam", Lists(std::move(scalars), c),
                   {{"n", n}, {"decoupled", int64_t{1}}}, c.weights.size() * 3);
}

// v' = alpha * v + beta * g, beta = 1 while T = 0; w' = w - R * v', or with Nesterov's look ahead.
Result<std::vector<ValueId>> BuildMomentum(UpdateCall& c) {
  const std::string_view mode = c.attrs.String("mode");
  if (mode != "standard" && mode != "nesterov")
    return BadInput("E0107", "mode '{}': standard or nesterov is expected", mode);
  const std::vector<ValueId> s = StepScalars(
      c, "y0 = x0; y1 = $a; y2 = where(x1 > 0, 1 - $b, 0); y3 = $n", 4,
      {{"a", c.Number("alpha")}, {"b", c.Number("beta")}, {"n", c.Number("norm_coefficient")}});
  const ValueId first = c.b.Map("x0 < 0 && x0 > 0", {c.count}, DType::kBool);
  const auto n = static_cast<int64_t>(c.weights.size());
  return c.b.Multi(kOwnDomain, "Sgd", Lists({c.found_inf, s[0], s[1], s[2], s[3], first}, c),
                   {{"n", n}, {"nesterov", int64_t{mode == "nesterov"}}}, c.weights.size() * 2);
}

// h' = h + g^2; w' = w - r * g / (sqrt(h') + eps), r = R / (1 + T * decay_factor).
Result<std::vector<ValueId>> BuildAdagrad(UpdateCall& c) {
  Regularize(c);
  const ValueId rate =
      StepScalars(c, "x0 / (1 + x1 * $d)", 1, {{"d", c.Number("decay_factor")}})[0];
  const size_t n = c.weights.size();
  std::vector<ValueId> results(2 * n, kNone);
  for (size_t i = 0; i < n && !c.b.failed(); ++i) {
    const ValueId inputs[] = {c.found_inf, rate, c.weights[i], c.gradients[i], c.moments[i]};
    const auto to = static_cast<int64_t>(c.acc);
    const std::vector<ValueId> outs = c.b.Multi(
        kOwnDomain, "Map", inputs,
        {{"expr", std::string("h = x4 + x3 * x3; y0 = where(x0, x2, x2 - x1 * x3 / (sqrt(h) + "
                              "$e)); y1 = where(x0, x4, h)")},
         {"to", std::vector<int64_t>{to, to}},
         {"e", c.Number("epsilon")}},
        2);
    results[i] = outs[0];
    results[n + i] = outs[1];
  }
  return results;
}

struct UpdateRule {
  std::string_view op;
  size_t moments;  // per weight
  UpdateFn build;
};
constexpr UpdateRule kRules[] = {
    {"Adam", 2, BuildAdam}, {"Momentum", 1, BuildMomentum}, {"Adagrad", 1, BuildAdagrad}};

const UpdateRule* FindUpdateRule(std::string_view op) {
  for (const UpdateRule& rule : kRules) {
    if (rule.op == op) return &rule;
  }
  return nullptr;
}

// A scalar operand, of rank 0 or one element, as a scalar.
Result<ValueId> ScalarOperand(ir::Builder& b, ValueId v, std::string_view what) {
  if (b.type(v).elements() != 1)
    return BadInput("E0107", "{} is {}, a scalar is expected", what, ToString(b.type(v)));
  return b.Reshape(v, Dims{});
}

}  // namespace

bool IsUpdateNode(const onnx::NodeProto& node) {
  return node.domain() == kPreviewDomain && FindUpdateRule(node.op_type()) != nullptr;
}

// The node with its attributes, defaults included.
Result<SourceNode> Importer::ReadUpdateNode(Scope& scope, const onnx::NodeProto& node) {
  const onnx::OpSchema* schema =
      SchemaOf(node.op_type(), scope.opsets->For(kPreviewDomain), kPreviewDomain);
  if (schema == nullptr)
    return Unsupported("E0102", "op {} is not supported", OpWithVersion(node, *scope.opsets));
  AMPC_ASSIGN(SourceNode source, ReadNode(scope, node, schema->SinceVersion()));
  AMPC_TRY(ReadInputs(scope, node, source));
  try {
    schema->Verify(node);
  } catch (const std::exception& e) {
    return BadInput("E0107", "{}", e.what());
  }
  for (const auto& [name, attribute] : schema->attributes()) {
    if (source.attrs.Has(name) || attribute.default_value.name().empty()) continue;
    AMPC_ASSIGN(Attr value, AttrFromProto(attribute.default_value));
    source.attrs.Set(name, std::move(value));
  }
  return source;
}

// R, T and `lists` lists of n values of one type each; returns n.
Result<size_t> Importer::ListLength(const SourceNode& source, const onnx::NodeProto& node,
                                    size_t lists) const {
  const size_t operands = source.inputs.size(), n = operands < 2 ? 0 : (operands - 2) / lists;
  if (n == 0 || operands != 2 + n * lists ||
      node.output_size() != static_cast<int>(n * (lists - 1)) ||
      std::count(source.inputs.begin(), source.inputs.end(), kNone) > 0) {
    return BadInput("E0107",
                    "{} inputs and {} outputs: R, T and {} lists of one length are expected, and "
                    "{} lists out",
                    operands, node.output_size(), lists, lists - 1);
  }
  for (size_t i = n; i < n * lists; ++i) {
    const ir::TensorType &type = graph_->type(source.inputs[2 + i]),
                         &weight = graph_->type(source.inputs[2 + i % n]);
    if (type == weight) continue;
    return BadInput("E0107", "'{}' is {}, its weight '{}' is {}",
                    node.input(static_cast<int>(2 + i)), ToString(type),
                    node.input(static_cast<int>(2 + i % n)), ToString(weight));
  }
  return n;
}

Status Importer::ImportUpdateNode(Scope& scope, const onnx::NodeProto& node) {
  AMPC_ASSIGN(const SourceNode source, ReadUpdateNode(scope, node));
  const UpdateRule& rule = *FindUpdateRule(node.op_type());
  AMPC_ASSIGN(const size_t n, ListLength(source, node, 2 + rule.moments));
  const auto list = [&](size_t first, size_t count) {
    const auto begin = source.inputs.begin() + static_cast<std::ptrdiff_t>(2 + first * n);
    return std::vector<ValueId>(begin, begin + static_cast<std::ptrdiff_t>(count * n));
  };
  ir::Builder b(*graph_, module_->locs.Intern(scope.prefix + LabelOf(node)));
  AMPC_ASSIGN(const ValueId rate, ScalarOperand(b, source.inputs[0], "R"));
  AMPC_ASSIGN(const ValueId count, ScalarOperand(b, source.inputs[1], "T"));
  SetLearningRate(node.input(0), rate);
  UpdateCall call{.b = b,
                  .attrs = source.attrs,
                  .acc = graph_->type(source.inputs[2]).dtype,
                  .found_inf = graph_->FindValue(kFoundInf),
                  .rate = b.Cast(rate, DType::kFloat64),
                  .count = count,
                  .weights = list(0, 1),
                  .gradients = list(1, 1),
                  .moments = list(2, rule.moments)};
  std::vector<ValueId> current = call.weights;
  current.insert(current.end(), call.moments.begin(), call.moments.end());
  AMPC_ASSIGN(const std::vector<ValueId> results, rule.build(call));
  AMPC_TRY(b.TakeStatus());
  for (size_t i = 0; i < results.size(); ++i) predicated_[results[i]] = current[i];
  return Bind(scope, node, results);
}

// The rate of the log, and the setting that --lr overrides: the first optimizer's, unless the
// update computes it.
void Importer::SetLearningRate(const std::string& name, ValueId value) {
  if (graph_->FindOutput("lr") != kNone) return;
  graph_->SetOutput("lr", value);
  const ir::StateId id = StateOf(name);
  if (id == kNone) return;
  ir::StateVar& state = module_->state(id);
  if (source_.training()->updated.contains(name) || state.role != ir::Role::kHyper) return;
  state.setting = "lr";
  if (options_.own_lr) state.initial.fill = options_.optimizer.lr;
}

Status Importer::AddUpdateFeeds(const TrainingPart& training) {
  const ir::TypeId flag = module_->types.Intern(DType::kBool, {});
  graph_->AddFeed(kFoundInf, flag, plan::Feed::Kind::kInput);
  std::unordered_set<std::string_view> read;
  for (const auto& node : training.update.node())
    read.insert(node.input().begin(), node.input().end());
  for (const auto& [key, value] : training.bindings) read.insert(value);
  for (const auto& [initializer, gradient] : training.gradients) {
    if (!read.contains(gradient)) continue;
    const ir::StateVar& state = module_->state(StateOf(initializer));
    main_.values[gradient] =
        graph_->AddFeed("grad:" + state.name, state.type, plan::Feed::Kind::kInput);
  }
  for (const SourceTensor& tensor : source_.tensors()) {
    if (!tensor.in_update || !read.contains(tensor.name)) continue;
    // Masters, also where the model is written in 16 bits.
    if (const ir::StateId id = StateOf(tensor.name); id != kNone)
      main_.values[tensor.name] = graph_->State(id);
  }
  return {};
}

Status Importer::ImportUpdate(const TrainingPart& training) {
  if (training.bindings.empty()) return {};
  AMPC_TRY(SetFirstValues(training));
  module_->update = std::make_unique<ir::Graph>(*module_, "update");
  graph_ = module_->update.get();
  main_.values.clear();
  main_.sequences.clear();
  state_behind_.clear();
  AMPC_TRY(AddUpdateFeeds(training));
  std::vector<std::string> values;
  for (const auto& [key, value] : training.bindings) values.push_back(value);
  main_.read.insert(values.begin(), values.end());
  AMPC_ASSIGN(const std::vector<int> order,
              OrderNodes(training.update.node(), values, source_.opsets(), nullptr));
  AMPC_TRY(ImportNodes(main_, training.update.node(), order));
  for (const auto& [key, value] : training.bindings) AMPC_TRY(BindUpdate(key, value));
  main_.read.clear();  // views of `values`
  if (options_.own_lr && module_->FindSetting("lr") == kNone) {
    return UsageError("E0117", "--lr: the model's training_info computes its learning rate itself");
  }
  return {};
}

Status Importer::BindUpdate(const std::string& initializer, const std::string& value) {
  auto found = Lookup(main_, value);
  if (!found.ok()) {
    return BadInput("E0116", "update_binding of '{}': no node of training_info makes '{}'",
                    initializer, value);
  }
  const ir::StateId id = StateOf(initializer);
  const ir::TensorType wanted = module_->types.Get(module_->state(id).type);
  ValueId next = *found;
  if (graph_->type(next) != wanted) {
    return BadInput("E0116", "update_binding of '{}': it is {}, its new value '{}' is {}",
                    initializer, ToString(wanted), value, ToString(graph_->type(next)));
  }
  const ValueId current = graph_->State(id);
  const auto kept = predicated_.find(next);
  if (kept == predicated_.end() || kept->second != current) {
    ir::Builder b(*graph_, module_->locs.Intern("update of " + initializer));
    next = b.Map("where(x0, x1, x2)", {graph_->FindValue(kFoundInf), current, next}, wanted.dtype);
    AMPC_TRY(b.TakeStatus());
  }
  graph_->SetNext(id, next);
  graph_->Rename(next, initializer + ".next");
  return {};
}

// What the initialization computes must not depend on anything: it is computed here, once.
Status Importer::SetFirstValues(const TrainingPart& training) {
  if (training.first_values.empty()) return {};
  ir::Graph scratch(*module_, "initialization");
  graph_ = &scratch;
  main_.values.clear();
  std::vector<std::string> values;
  for (const auto& [key, value] : training.first_values) values.push_back(value);
  main_.read.insert(values.begin(), values.end());
  AMPC_ASSIGN(const std::vector<int> order,
              OrderNodes(training.initialization.node(), values, source_.opsets(), nullptr));
  for (const auto& tensor : training.initialization.initializer()) {
    AMPC_ASSIGN(const TensorData data, source_.files().Find(tensor));
    AMPC_ASSIGN(HostTensor constant, ReadTensor(data));
    ir::Builder b(scratch, module_->locs.Intern(tensor.name()));
    main_.values[tensor.name()] = b.Constant(ConvertFloats(constant, Widened(constant.dtype)));
    AMPC_TRY(b.TakeStatus());
  }
  AMPC_TRY(ImportNodes(main_, training.initialization.node(), order));
  for (const auto& [key, value] : training.first_values) {
    const auto found = main_.values.find(value);
    const HostTensor* constant =
        found == main_.values.end() ? nullptr : scratch.ConstantOf(found->second);
    if (constant == nullptr) {
      return Unsupported("E0116",
                         "initialization_binding of '{}': '{}' is not computed from "
                         "constants, which is not supported",
                         key, value);
    }
    const ir::StateId id = StateOf(key);
    if (id == kNone) continue;  // nothing reads it
    ir::StateVar& state = module_->state(id);
    const ir::TensorType& type = module_->types.Get(state.type);
    if (constant->dims != type.dims || constant->dtype != type.dtype) {
      return BadInput("E0116",
                      "initialization_binding of '{}': it is {}, its first value '{}' is "
                      "{}{}",
                      key, ToString(type), value, Name(constant->dtype), ToString(constant->dims));
    }
    state.initial = {.kind = plan::Initial::Kind::kBytes, .stored = type.dtype};
    state.initial.bytes.length = static_cast<int64_t>(constant->data.size());
    state.initial.bytes.source = ir::MemorySource(constant->data);
  }
  main_.read.clear();  // views of `values`
  return {};
}

}  // namespace ampc
