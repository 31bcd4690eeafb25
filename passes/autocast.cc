// SPDX-License-Identifier: Apache-2.0
// Casts the forward graph by policy. The backward pass is differentiated from the result and so
// follows its dtypes.
//
//   before   fp32 nodes
//   after    every node runs in the dtype of its class; one cast stands before it per (value,
//   dtype)
//
// One sweep in order, so that a node sees the dtypes its operands already have:
//   low      float operands -> the low dtype
//   fp32     float operands -> fp32
//   widest   float operands -> the widest among them; one of rank 0, or a one-element constant,
//   does
//            not promote another of more elements (PyTorch's 0-dim rule)
//   follow   float operands -> the dtype of slot 0
// Slots that the op's row keeps in fp32 are never lowered. Doubles are left alone. A constant with
// finite values outside the range of the low type keeps its node in fp32; so does a logarithm that
// is taken of a probability, which would be 0 or 1 in 16 bits. A weight's cast sits at the
// parameter: it is hoisted through pure data movement. Rules of a policy file come first, the row's
// column of the base policy after. Test: test/passes/autocast.onnxtext
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "compiler/ops/infer.h"
#include "runtime/base/glob.h"
#include "passes/passes.h"
#include "runtime/base/suggest.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

std::string_view ClassName(CastClass c) {
  switch (c) {
    case CastClass::kLow:
      return "low";
    case CastClass::kFp32:
      return "fp32";
    case CastClass::kWidest:
      return "widest";
    case CastClass::kFollow:
      return "follow";
    case CastClass::kNever:
      return "never";
  }
  return "";
}

// The largest finite magnitude of a state's first values.
Result<double> LargestOf(const ir::StateVar& state) {
  const ir::Initial& initial = state.initial;
  if (initial.kind == plan::Initial::Kind::kFill) return std::abs(initial.fill);
  const bool wide = initial.stored == DType::kFloat32;
  if (initial.kind != plan::Initial::Kind::kBytes || !(wide || initial.stored == DType::kBFloat16))
    return 0.0;  // what float16 has, or what is not lowered
  constexpr int64_t kChunk = 1 << 20;
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(kChunk, initial.bytes.length)));
  uint32_t largest = 0;
  for (int64_t at = 0; at < initial.bytes.length; at += kChunk) {
    const int64_t n = std::min(kChunk, initial.bytes.length - at);
    const auto part = std::span(chunk).first(static_cast<size_t>(n));
    AMPC_TRY(initial.bytes.source->Read(initial.bytes.offset + at, part));
    for (size_t i = 0; i < part.size(); i += wide ? 4 : 2) {
      uint32_t bits = 0;  // magnitudes of floats order as their bits do; bf16 is the upper half
      std::memcpy(&bits, part.data() + i, wide ? 4 : 2);
      bits = (wide ? bits : bits << 16) & 0x7fffffffu;
      if (bits < 0x7f800000u) largest = std::max(largest, bits);
    }
  }
  return std::bit_cast<float>(largest);
}

// What decided the class of a node, for --explain.
struct Decision {
  CastClass cls;
  std::string why;
  bool asked_for = false;  ///< by a rule of the policy
};

class Autocaster {
 public:
  // In eval, without the nodes of the loss, a rule may match nothing.
  Autocaster(ir::Graph& graph, PassContext& context, bool check_rules)
      : g_(graph),
        module_(graph.module()),
        policy_(context.options.policy),
        context_(context),
        low_(LowType(context.options.precision)),
        check_rules_(check_rules) {}

  Status Run() {
    AMPC_TRY(FindPaths());
    FindLogarithms();
    is_moved_parameter_.assign(static_cast<size_t>(g_.num_values()), false);
    linear_.assign(static_cast<size_t>(g_.num_values()), false);
    for (NodeId n : g_.Order()) {
      Status status = Visit(n);
      if (!status.ok()) return std::move(status).At(g_.Describe(n));
      NoteMovement(n);
    }
    return check_rules_ ? CheckRulesUsed() : Status();
  }

 private:
  // ---- which class

  std::vector<std::string> ValueNames(const std::vector<NodeId>& order) const {
    std::vector<std::string> names;
    for (const ir::FeedInfo& feed : g_.feeds()) names.push_back(feed.name);
    for (NodeId n : order) {
      for (ValueId v : g_.node(n).outputs) {
        if (v != kNone) names.push_back(g_.value(v).name);
      }
    }
    return names;
  }

  // Nodes on a path between two values, per rule that asks for it: downstream of `from` and
  // upstream of `to`.
  Status FindPaths() {
    matched_.assign(policy_.rules.size(), false);
    between_.resize(policy_.rules.size());
    const std::vector<NodeId> order = g_.Order();
    for (size_t r = 0; r < policy_.rules.size(); ++r) {
      const PolicyRule& rule = policy_.rules[r];
      if (rule.from.empty()) continue;
      const ValueId from = g_.FindValue(rule.from), to = g_.FindValue(rule.to);
      if (from == kNone || to == kNone) {
        if (!check_rules_) continue;
        const std::string& name = from == kNone ? rule.from : rule.to;
        return UsageError("E0302", "rule {} of the policy: no value is named '{}'{}", r + 1, name,
                          Nearest(name, ValueNames(order)));
      }
      const auto values = static_cast<size_t>(g_.num_values());
      const auto nodes = static_cast<size_t>(g_.num_nodes());
      std::vector<bool> down(values), up(values), below(nodes);
      const auto any = [](const auto& list, const std::vector<bool>& set) {
        return std::any_of(list.begin(), list.end(),
                           [&](ValueId v) { return v != kNone && set[static_cast<size_t>(v)]; });
      };
      const auto mark = [](const auto& list, std::vector<bool>& set) {
        for (ValueId v : list) {
          if (v != kNone) set[static_cast<size_t>(v)] = true;
        }
      };
      down[static_cast<size_t>(from)] = up[static_cast<size_t>(to)] = true;
      for (NodeId n : order) {
        if (!any(g_.node(n).inputs, down)) continue;
        below[static_cast<size_t>(n)] = true;
        mark(g_.node(n).outputs, down);
      }
      between_[r].assign(nodes, false);
      for (auto it = order.rbegin(); it != order.rend(); ++it) {
        if (!any(g_.node(*it).outputs, up)) continue;
        mark(g_.node(*it).inputs, up);
        between_[r][static_cast<size_t>(*it)] = below[static_cast<size_t>(*it)];
      }
    }
    return {};
  }

  bool Between(size_t rule, NodeId n) const {
    return static_cast<size_t>(n) < between_[rule].size() && between_[rule][static_cast<size_t>(n)];
  }

  // The first rule that matches wins; the others are looked at to know which match nothing.
  Decision Decide(NodeId n) {
    const OpDef& op = *g_.node(n).op;
    const PolicyRule* first = nullptr;
    for (size_t r = 0; r < policy_.rules.size(); ++r) {
      const PolicyRule& rule = policy_.rules[r];
      const bool hit = (rule.from.empty() || Between(r, n)) &&
                       (rule.node.empty() || GlobMatches(rule.node, g_.Label(n))) &&
                       (rule.op.empty() || GlobMatches(rule.op, op.name));
      if (!hit) continue;
      matched_[r] = true;
      if (first == nullptr) first = &rule;
    }
    if (first != nullptr) {
      return {first->cls, fmt::format("rule {} of the policy", first - policy_.rules.data() + 1),
              true};
    }
    const CastClass cls = policy_.base == Policy::Base::kFp32       ? CastClass::kFp32
                          : policy_.base == Policy::Base::kTorchCpu ? op.cast.cpu
                                                                    : op.cast.cuda;
    return {cls, fmt::format("class {} of {}", ClassName(cls), policy_.name)};
  }

  // Values whose logarithm is taken, also of a part (1 - p) or after arithmetic (t * p + s).
  void FindLogarithms() {
    into_logarithm_.assign(static_cast<size_t>(g_.num_values()), false);
    const std::vector<NodeId> order = g_.Order();
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const ir::Node& node = g_.node(*it);
      const Traits& traits = node.op->traits;
      const bool passes = traits.elementwise || traits.arithmetic || traits.movement;
      const bool reaches = std::any_of(node.outputs.begin(), node.outputs.end(),
                                       [&](ValueId v) { return IntoLogarithm(v); });
      if (!traits.logarithm && !(passes && reaches)) continue;
      for (ValueId v : node.inputs) {
        if (v != kNone) into_logarithm_[static_cast<size_t>(v)] = true;
      }
    }
  }
  bool IntoLogarithm(ValueId v) const {
    return v != kNone && static_cast<size_t>(v) < into_logarithm_.size() &&
           into_logarithm_[static_cast<size_t>(v)];
  }

  Status CheckRulesUsed() const {
    for (size_t r = 0; r < policy_.rules.size(); ++r) {
      if (matched_[r]) continue;
      const PolicyRule& rule = policy_.rules[r];
      std::string what;
      const auto add = [&](std::string_view key, const std::string& value) {
        if (!value.empty()) what += fmt::format("{}{} {}", what.empty() ? "" : ", ", key, value);
      };
      add("node", Quoted(rule.node));
      add("op", Quoted(rule.op));
      if (!rule.from.empty()) add("between", fmt::format("'{}' and '{}'", rule.from, rule.to));
      return UsageError("E0302", "rule {} of the policy ({}) matches no node with float operands{}",
                        r + 1, what, NearestRule(rule));
    }
    return {};
  }
  static std::string Quoted(const std::string& text) {
    return text.empty() ? "" : fmt::format("'{}'", text);
  }

  // "; did you mean 'X'?" for a label or an op type that nothing has; or what the node is instead.
  std::string NearestRule(const PolicyRule& rule) const {
    for (NodeId n : g_.Order()) {
      const std::string_view op = g_.node(n).op->name;
      if (!rule.node.empty() && !rule.op.empty() && GlobMatches(rule.node, g_.Label(n)) &&
          !GlobMatches(rule.op, op))
        return fmt::format("; node '{}' is {}", g_.Label(n), op);
    }
    std::vector<std::string> names;
    for (NodeId n : g_.Order())
      names.push_back(rule.node.empty() ? std::string(g_.node(n).op->name)
                                        : std::string(g_.Label(n)));
    return Nearest(rule.node.empty() ? rule.op : rule.node, names);
  }
  static std::string Nearest(const std::string& name, const std::vector<std::string>& names) {
    return name.empty() ? ""
                        : Suggest(name, std::vector<std::string_view>(names.begin(), names.end()));
  }

  // ---- which dtype

  bool Castable(const ir::Node& node, size_t i) const {
    if (node.inputs[i] == kNone) return false;
    const DType t = g_.type(node.inputs[i]).dtype;
    return t == DType::kFloat32 || IsLow(t);
  }
  static bool KeptFp32(const OpDef& op, size_t i) { return HasSlot(op.fp32_slots, i); }

  // Operands that decide the widest dtype: all, except those that PyTorch's 0-dim rule leaves out.
  DType Widest(const ir::Node& node) const {
    int64_t most = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (Castable(node, i)) most = std::max(most, g_.type(node.inputs[i]).elements());
    }
    std::optional<DType> widest;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!Castable(node, i) || KeptFp32(*node.op, i)) continue;
      const ir::TensorType& t = g_.type(node.inputs[i]);
      const bool scalar =
          t.dims.empty() || (t.elements() == 1 && g_.ConstantOf(node.inputs[i]) != nullptr);
      if (scalar && most > 1) continue;
      widest =
          !widest || *widest == t.dtype ? t.dtype : DType::kFloat32;  // fp16 with bf16 meet in fp32
    }
    return widest.value_or(DType::kFloat32);
  }

  // The linear layer to whose result the node adds the bias, or kNone. For PyTorch both are one op;
  // exporters write two where the input has more than two axes.
  ValueId Biased(const ir::Node& node) const {
    if (!node.op->traits.adds) return kNone;
    for (size_t i = 0; i < 2; ++i) {
      const ValueId product = node.inputs[i], bias = node.inputs[1 - i];
      if (product < static_cast<ValueId>(linear_.size()) && linear_[static_cast<size_t>(product)] &&
          IsParameter(bias) && g_.type(bias).dims == Dims{g_.type(product).dims.back()})
        return product;
    }
    return kNone;
  }

  // A scalar of the program, such as the 0.1 of x * 0.1, that `low` can't hold. PyTorch's
  // arithmetic computes with its fp32 value and rounds the result alone (opmath in BinaryOps).
  bool HasInexactScalar(const ir::Node& node, DType low) const {
    if (!node.op->traits.arithmetic || node.op->expr.empty()) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const HostTensor* c = Castable(node, i) ? g_.ConstantOf(node.inputs[i]) : nullptr;
      if (c == nullptr || c->elements() != 1) continue;
      const double value = c->GetDouble(0);
      if (HostTensor::Scalar(low, value).GetDouble(0) != value && !std::isnan(value)) return true;
    }
    return false;
  }

  // What becomes infinite in the low type: the lowest fp32 number of a mask does so in bfloat16,
  // too.
  double LargestLow() const { return low_ == DType::kFloat16 ? policy_.init_abs_max : 0x1.FEp127; }

  // A constant operand with a finite value that the low type cannot hold. A slot that stays fp32
  // holds it.
  Result<bool> OutOfRange(const ir::Node& node) {
    if (!IsLow(low_) || policy_.init_abs_max == 0) return false;
    const double smallest = low_ == DType::kFloat16 ? 0x1p-24 : 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!Castable(node, i) || KeptFp32(*node.op, i)) continue;
      AMPC_ASSIGN(const bool large, IsLargeState(node.inputs[i]));
      if (large) return true;
      const HostTensor* c = g_.ConstantOf(node.inputs[i]);
      for (int64_t k = 0; c != nullptr && k < c->elements(); ++k) {
        const double v = std::abs(c->GetDouble(k));
        if (std::isfinite(v) && v != 0 && (v > LargestLow() || v < smallest)) return true;
      }
    }
    return false;
  }

  // A state that no step changes, a frozen parameter or a large constant, also when it is moved.
  // (What underflows there is as usual as in a parameter that trains.)
  Result<bool> IsLargeState(ValueId v) {
    while (IsMovedParameter(v)) v = g_.node(g_.value(v).def).inputs[0];
    if (g_.value(v).kind != ir::ValueKind::kState) return false;
    const ir::StateId s = g_.value(v).index;
    const ir::StateVar& state = module_.states[static_cast<size_t>(s)];
    if (state.trainable || (state.role != ir::Role::kWeight && state.role != ir::Role::kConstant))
      return false;
    auto known = largest_.find(s);
    if (known == largest_.end()) {
      AMPC_ASSIGN(const double largest, LargestOf(state));
      known = largest_.emplace(s, largest).first;
    }
    return known->second > LargestLow();
  }

  Status Visit(NodeId n) {
    const ir::Node node = g_.node(n);
    if (node.op->traits.constant || node.op->traits.cast) return Reinferred(n);
    bool any = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) any = any || Castable(node, i);
    if (!any) return Reinferred(n);
    Decision d = Decide(n);
    if (d.cls == CastClass::kNever)
      return Unsupported("E0303", "'{}' is not safe in low precision ({})", node.op->name, d.why);
    if (d.cls != CastClass::kFp32) {
      AMPC_ASSIGN(const bool out_of_range, OutOfRange(node));
      if (out_of_range)
        d = {CastClass::kFp32,
             fmt::format("a constant operand lies outside the range of {}", Name(low_))};
    }
    if (d.cls != CastClass::kFp32 && !d.asked_for && node.op->traits.probability &&
        IntoLogarithm(node.outputs[0]))
      d = {CastClass::kFp32, "its logarithm is taken"};
    if (node.op->traits.product && IsParameter(node.inputs[1]))
      linear_[static_cast<size_t>(node.outputs[0])] = true;
    DType target = DType::kFloat32;
    switch (d.cls) {
      case CastClass::kLow:
        target = low_;
        break;
      case CastClass::kFp32:
      case CastClass::kNever:
        break;
      case CastClass::kWidest:
        if (const ValueId product = Biased(node); product != kNone) {
          target = g_.type(product).dtype;
          d.why = "bias of a linear layer";
          break;
        }
        target = Widest(node);
        break;
      case CastClass::kFollow:
        target = Castable(node, 0) ? g_.type(node.inputs[0]).dtype : DType::kFloat32;
        break;
    }
    const bool wide = IsLow(target) && HasInexactScalar(node, target);
    const DType operands = wide ? DType::kFloat32 : target;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!Castable(node, i)) continue;
      const DType to = KeptFp32(*node.op, i) ? DType::kFloat32 : operands;
      if (g_.type(node.inputs[i]).dtype == to) continue;
      const ir::LocId loc =
          module_.locs.Intern(fmt::format("cast for {} input {}", g_.Label(n), i));
      AMPC_ASSIGN(const ValueId cast, CastTo(node.inputs[i], to, loc));
      g_.SetInput(n, static_cast<int32_t>(i), cast);
    }
    if (context_.diagnostics.explaining) {
      context_.diagnostics.Explain(g_.Label(n), "precision",
                                   fmt::format("{}: {}", Name(target), d.why));
    }
    AMPC_TRY(Reinferred(n));
    // A comparison gives bool.
    return wide && IsFloat(g_.type(node.outputs[0]).dtype) ? Narrow(n, target) : Status();
  }

  // The result of a node that computes in fp32, as every reader sees it: rounded once.
  Status Narrow(NodeId n, DType to) {
    const ValueId wide = g_.node(n).outputs[0];
    const std::string name = g_.value(wide).name;
    ir::Builder b(g_, g_.node(n).loc, g_.node(n).next);
    const ValueId low = b.Cast(wide, to);
    if (b.failed()) return b.TakeStatus();
    g_.ReplaceUsesExcept(wide, low, g_.value(low).def);
    g_.Rename(wide, fmt::format("{}.fp32", name));
    g_.Rename(low, name);
    return {};
  }

  Status Reinferred(NodeId n) {
    AMPC_ASSIGN(const bool changed, Reinfer(g_, n));
    (void)changed;
    return {};
  }

  // ---- casts

  // The value in another dtype: one cast per value and dtype, before its first use. A cast of a
  // parameter that data movement stands between is made at the parameter, and the movement repeated
  // on the result.
  Result<ValueId> CastTo(ValueId v, DType to, ir::LocId loc) {
    // From the value back to the parameter, or to the first that is cast already.
    std::vector<ValueId> movements;
    ValueId result = FindCast(v, to);
    ValueId source = v;
    while (result == kNone && IsMovedParameter(source)) {
      movements.push_back(source);
      source = g_.node(g_.value(source).def).inputs[0];
      result = FindCast(source, to);
    }
    if (result == kNone) {
      // Right behind its definition, so that every later user finds it; parameters and feeds: at
      // the head of the graph.
      const ir::Value& value = g_.value(source);
      const NodeId place =
          value.kind == ir::ValueKind::kNode ? g_.node(value.def).next : g_.first();
      ir::Builder b(g_, loc, place);
      result = b.Cast(source, to);
      if (b.failed()) return b.TakeStatus();
      casts_.emplace(std::pair(source, to), result);
    }
    for (; !movements.empty(); movements.pop_back()) {
      const ValueId at = movements.back();
      const NodeId def = g_.value(at).def;
      const ir::Node moved = g_.node(def);
      std::vector<ValueId> inputs = moved.inputs;
      inputs[0] = result;
      const ir::TypeId types[] = {module_.types.WithDType(g_.type_id(at), to)};
      const std::string name = g_.value(at).name;
      const std::string_view names[] = {name};
      result = g_.node(g_.AddNode(*moved.op, moved.attrs, inputs, types, moved.loc, def, names))
                   .outputs[0];
      casts_.emplace(std::pair(at, to), result);
    }
    return result;
  }

  ValueId FindCast(ValueId v, DType to) const {
    const auto it = casts_.find({v, to});
    return it == casts_.end() ? kNone : it->second;
  }

  // A parameter that only data movement stands before: known once its node has been visited.
  bool IsMovedParameter(ValueId v) const {
    return static_cast<size_t>(v) < is_moved_parameter_.size() &&
           is_moved_parameter_[static_cast<size_t>(v)];
  }
  bool IsParameter(ValueId v) const {
    return g_.value(v).kind == ir::ValueKind::kState || IsMovedParameter(v);
  }
  void NoteMovement(NodeId n) {
    const ir::Node& node = g_.node(n);
    if (!node.op->traits.movement || node.outputs.size() != 1) return;
    const ValueId source = node.inputs[0];
    is_moved_parameter_[static_cast<size_t>(node.outputs[0])] = IsParameter(source);
  }

  ir::Graph& g_;
  ir::Module& module_;
  const Policy& policy_;
  PassContext& context_;
  DType low_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
  std::map<ir::StateId, double> largest_;  // magnitude in a state's first values
  std::vector<bool> is_moved_parameter_;   // by value
  std::vector<bool> linear_;               // by value: product with a parameter
  std::vector<bool> into_logarithm_;       // by value
  bool check_rules_;
  std::vector<bool> matched_;
  std::vector<std::vector<bool>> between_;  // per rule, by node; empty: the rule names no path
};

}  // namespace

Status InsertAutocastCasts(ir::Module& module, PassContext& context) {
  const CompileOptions& o = context.options;
  if (!IsLow(LowType(o.precision))) return {};
  // Every node in fp32, as it is: no casts, not even of what the model has in 16 bits.
  if (o.policy.base == Policy::Base::kFp32 && o.policy.rules.empty()) return {};
  const bool train = module.train != nullptr;
  if (train) AMPC_TRY(Autocaster(*module.train, context, true).Run());
  if (module.eval != nullptr && o.eval_same)
    AMPC_TRY(Autocaster(*module.eval, context, !train).Run());
  return {};
}

}  // namespace ampc
