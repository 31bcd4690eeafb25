// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/verify.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "compiler/ir/text_words.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/op_def.h"

namespace ampc::ir {
namespace {

// clang-format off
constexpr Invariant kInvariants[] = {
    {"V1", "nodes form one doubly linked list that holds every live node once"},
    {"V2", "every value is defined once: by the node, feed or state that it names as its definition"},
    {"V3", "sorted: a value is defined before it is read, and by something that is still there"},
    {"V4", "use lists and operands agree in both directions"},
    {"V5", "names of values, feeds, outputs and states are unique, not empty, and found by look-up"},
    {"V6", "a node has as many inputs and outputs as its op's row allows, none of the required ones left out"},
    {"V7", "types exist and have a dtype; a state's value has the state's type"},
    {"V8", "operand types are allowed by the op's schema"},
    {"V9", "the types of a node's outputs are those that inference gives"},
    {"V10", "a next value has the type of its state and no graph has two for one state"},
    {"V11", "hyper, constant and derived states have no next value, except low copies"},
    {"V12", "a graph that gives a weight a next value gives its low copies one, and only then"},
    {"V13", "a derived state copies an earlier state of the same dims that is not derived; a low copy is derived"},
    {"V14", "initial bytes are as many as the stored type has; only float weights train"},
    {"V15", "channels-last only on rank >= 3, between ops that work in any layout, never in a state"},
    {"V16", "random nodes have a stream of their own"},
    {"V17", "gradients are unscaled exactly once, after accumulation and before the update"},
    {"V18", "feed limits are for integers; the mask of real samples is a float vector"},
};
// clang-format on

template <typename... Args>
Status Broken(std::string_view label, fmt::format_string<Args...> f, Args&&... args) {
  return InternalError("E7010", "{}: {}", label, fmt::format(f, std::forward<Args>(args)...));
}

// ---- states -------------------------------------------------------------------------------------

class StateVerifier {
 public:
  explicit StateVerifier(const Module& module) : m_(module) {}

  Status Run() const {
    for (StateId s = 0; s < static_cast<StateId>(m_.states.size()); ++s) {
      const StateVar& state = m_.state(s);
      if (state.name.empty() || m_.FindState(state.name) != s) {
        return Broken("V5", "state {} ('{}') is not found by its name", s, state.name);
      }
      if (state.type < 0 || state.type >= m_.types.size() ||
          m_.types.Get(state.type).dtype == DType::kNone) {
        return Broken("V7", "state '{}' has no type", state.name);
      }
      AMPC_TRY(Derived(s));
      AMPC_TRY(Initial(state));
    }
    return {};
  }

 private:
  Status Derived(StateId s) const {
    const StateVar& state = m_.state(s);
    if (state.initial.kind != plan::Initial::Kind::kDerived) {
      if (state.role != Role::kLowCopy) return {};
      return Broken("V13", "low copy '{}' is not derived from a state", state.name);
    }
    const StateId from = state.initial.derived_from;
    if (from < 0 || from >= s) {
      return Broken("V13", "state '{}' is derived from state {}, which isn't before it", state.name,
                    from);
    }
    const StateVar& source = m_.state(from);
    if (source.initial.kind == plan::Initial::Kind::kDerived) {
      return Broken("V13", "state '{}' is derived from '{}', which is derived itself", state.name,
                    source.name);
    }
    if (m_.types.Get(state.type).dims != m_.types.Get(source.type).dims) {
      return Broken("V13", "state '{}' is {}, its source '{}' is {}", state.name,
                    ToString(m_.types.Get(state.type)), source.name,
                    ToString(m_.types.Get(source.type)));
    }
    return {};
  }

  Status Initial(const StateVar& state) const {
    const TensorType& type = m_.types.Get(state.type);
    if (state.trainable && (state.role != Role::kWeight || !IsFloat(type.dtype))) {
      return Broken("V14", "state '{}' ({}) is trainable but no float weight", state.name,
                    ToString(type));
    }
    if (state.initial.kind != plan::Initial::Kind::kBytes) return {};
    const ByteRef& bytes = state.initial.bytes;
    const int64_t wanted = type.elements() * SizeOf(state.initial.stored);
    if (!bytes.source || bytes.offset < 0 || state.initial.stored == DType::kNone ||
        bytes.length != wanted) {
      return Broken("V14", "state '{}' ({}) has {} initial bytes instead of {}", state.name,
                    ToString(type), bytes.source ? bytes.length : 0, wanted);
    }
    return {};
  }

  const Module& m_;
};

// ---- one graph ----------------------------------------------------------------------------------

class GraphVerifier {
 public:
  explicit GraphVerifier(const Graph& graph) : g_(graph), m_(graph.module()) {}

  // Each check may rely on those before it.
  Status Run() {
    AMPC_TRY(Links());
    AMPC_TRY(Definitions());
    AMPC_TRY(Sorted());
    AMPC_TRY(Uses());
    AMPC_TRY(Names());
    AMPC_TRY(Arities());
    AMPC_TRY(Types());
    AMPC_TRY(Inference());
    AMPC_TRY(Nexts());
    AMPC_TRY(LowCopies());
    AMPC_TRY(Layouts());
    AMPC_TRY(Streams());
    AMPC_TRY(Unscaling());
    return Feeds();
  }

 private:
  template <typename... Args>
  Status Fail(std::string_view label, fmt::format_string<Args...> f, Args&&... args) const {
    return Broken(label, "graph '{}': {}", g_.name(), fmt::format(f, std::forward<Args>(args)...));
  }
  template <typename... Args>
  Status FailAt(NodeId n, std::string_view label, fmt::format_string<Args...> f,
                Args&&... args) const {
    return Fail(label, f, std::forward<Args>(args)...).At(g_.Describe(n));
  }
  bool IsValue(ValueId v) const { return v >= 0 && v < g_.num_values(); }
  bool IsNode(NodeId n) const { return n >= 0 && n < g_.num_nodes(); }
  bool IsState(StateId s) const { return s >= 0 && s < static_cast<StateId>(m_.states.size()); }
  bool Erased(const Value& value) const {
    return value.kind == ValueKind::kNode && value.def == kNone;
  }

  Status Links();
  Status Definitions() const;
  Status Defined(ValueId v) const;
  Status Sorted() const;
  Status Uses() const;
  Status Names() const;
  Status Arities() const;
  Status Types() const;
  Status Inference() const;
  Status Nexts() const;
  Status LowCopies() const;
  Status Layouts() const;
  Status Streams() const;
  Status Unscaling() const;
  Status Feeds() const;

  const Graph& g_;
  const Module& m_;
  std::vector<NodeId> order_;
};

Status GraphVerifier::Links() {
  std::vector<bool> seen(static_cast<size_t>(g_.num_nodes()));
  NodeId prev = kNone;
  for (NodeId n = g_.first(); n != kNone; n = g_.node(n).next) {
    if (!IsNode(n) || g_.node(n).op == nullptr)
      return Fail("V1", "the list leads to an erased node");
    if (seen[static_cast<size_t>(n)]) return Fail("V1", "the list returns to node {}", n);
    if (g_.node(n).prev != prev) {
      return Fail("V1", "node {} has node {} before it and says {}", n, prev, g_.node(n).prev);
    }
    seen[static_cast<size_t>(n)] = true;
    order_.push_back(n);
    prev = n;
  }
  if (g_.last() != prev) return Fail("V1", "the list ends at node {}, not {}", prev, g_.last());
  int32_t live = 0;
  for (NodeId n = 0; n < g_.num_nodes(); ++n) live += g_.node(n).op != nullptr;
  if (live != static_cast<int32_t>(order_.size()) || live != g_.num_live_nodes()) {
    return Fail("V1", "{} nodes are in the list, {} live, {} are counted", order_.size(), live,
                g_.num_live_nodes());
  }
  return {};
}

Status GraphVerifier::Definitions() const {
  for (NodeId n : order_) {
    const Node& node = g_.node(n);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      if (v == kNone) continue;
      if (!IsValue(v)) return Fail("V2", "output {} of node {} is no value", i, n);
      const Value& value = g_.value(v);
      if (value.kind != ValueKind::kNode || value.def != n ||
          value.index != static_cast<int32_t>(i)) {
        return Fail("V2", "value '{}' is output {} of node {}, but is defined elsewhere",
                    value.name, i, n);
      }
    }
  }
  for (ValueId v = 0; v < g_.num_values(); ++v) AMPC_TRY(Defined(v));
  return {};
}

// From the value's side: what it names as its definition knows it.
Status GraphVerifier::Defined(ValueId v) const {
  const Value& value = g_.value(v);
  const auto index = static_cast<size_t>(value.index);
  bool known = false;
  switch (value.kind) {
    case ValueKind::kNode:
      known = Erased(value) || (IsNode(value.def) && index < g_.node(value.def).outputs.size() &&
                                g_.node(value.def).outputs[index] == v);
      break;
    case ValueKind::kFeed:
      known = index < g_.feeds().size() && g_.feeds()[index].value == v;
      break;
    case ValueKind::kState:
      known = IsState(value.index) && g_.FindState(value.index) == v;
      break;
  }
  if (!known) return Fail("V2", "nothing defines value '{}'", value.name);
  return {};
}

Status GraphVerifier::Sorted() const {
  std::vector<bool> defined(static_cast<size_t>(g_.num_values()));
  for (ValueId v = 0; v < g_.num_values(); ++v) {
    defined[static_cast<size_t>(v)] = g_.value(v).kind != ValueKind::kNode;
  }
  const auto ready = [&](ValueId v) { return IsValue(v) && defined[static_cast<size_t>(v)]; };
  for (NodeId n : order_) {
    const Node& node = g_.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      if (v == kNone || ready(v)) continue;
      return FailAt(n, "V3", "input {} ('{}') is not defined before it", i,
                    IsValue(v) ? g_.value(v).name : "?");
    }
    for (ValueId v : node.outputs) {
      if (v != kNone) defined[static_cast<size_t>(v)] = true;
    }
  }
  for (const OutputInfo& output : g_.outputs()) {
    if (!ready(output.value)) return Fail("V3", "output '{}' has no value", output.name);
  }
  for (const NextInfo& next : g_.nexts()) {
    if (!ready(next.value)) return Fail("V3", "the next value of state {} is none", next.state);
  }
  return {};
}

// Each operand points at a use that names it; as many uses as operands, so no other uses exist.
Status GraphVerifier::Uses() const {
  const auto matches = [this](ValueId v, int32_t index, NodeId node, size_t slot) {
    const auto& uses = g_.value(v).uses;
    if (index < 0 || static_cast<size_t>(index) >= uses.size()) return false;
    const Use& use = uses[static_cast<size_t>(index)];
    return use.node == node && static_cast<size_t>(use.slot) == slot;
  };
  size_t operands = g_.outputs().size() + g_.nexts().size();
  for (NodeId n : order_) {
    const Node& node = g_.node(n);
    if (node.use_index.size() != node.inputs.size()) {
      return FailAt(n, "V4", "{} inputs, {} use indices", node.inputs.size(),
                    node.use_index.size());
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone) continue;
      ++operands;
      if (!matches(node.inputs[i], node.use_index[i], n, i)) {
        return FailAt(n, "V4", "value '{}' doesn't know its use as input {}",
                      g_.value(node.inputs[i]).name, i);
      }
    }
  }
  for (size_t i = 0; i < g_.outputs().size(); ++i) {
    const OutputInfo& output = g_.outputs()[i];
    if (matches(output.value, output.use_index, Use::kOutput, i)) continue;
    return Fail("V4", "value '{}' doesn't know its use as output '{}'", g_.value(output.value).name,
                output.name);
  }
  for (size_t i = 0; i < g_.nexts().size(); ++i) {
    const NextInfo& next = g_.nexts()[i];
    if (matches(next.value, next.use_index, Use::kNext, i)) continue;
    return Fail("V4", "value '{}' doesn't know its use as a next value", g_.value(next.value).name);
  }
  size_t uses = 0;
  for (ValueId v = 0; v < g_.num_values(); ++v) uses += g_.value(v).uses.size();
  if (uses != operands) return Fail("V4", "{} uses of {} operands", uses, operands);
  return {};
}

Status GraphVerifier::Names() const {
  for (ValueId v = 0; v < g_.num_values(); ++v) {
    const Value& value = g_.value(v);
    if (Erased(value)) continue;
    if (value.name.empty() || g_.FindValue(value.name) != v) {
      return Fail("V5", "value {} is not found by its name '{}'", v, value.name);
    }
  }
  std::unordered_set<std::string_view> names;
  for (const FeedInfo& feed : g_.feeds()) {
    if (feed.name.empty() || !names.insert(feed.name).second) {
      return Fail("V5", "two feeds are named '{}'", feed.name);
    }
  }
  names.clear();
  for (const OutputInfo& output : g_.outputs()) {
    if (output.name.empty() || !names.insert(output.name).second ||
        g_.FindOutput(output.name) != output.value) {
      return Fail("V5", "output '{}' is empty, there twice, or not found by its name", output.name);
    }
  }
  return {};
}

Status GraphVerifier::Arities() const {
  const auto within = [](const Arity& arity, size_t n) {
    return n >= static_cast<size_t>(arity.min) && n <= static_cast<size_t>(arity.max);
  };
  for (NodeId n : order_) {
    const Node& node = g_.node(n);
    if (!within(node.op->in, node.inputs.size()) || !within(node.op->out, node.outputs.size())) {
      return FailAt(n, "V6", "{} inputs and {} outputs", node.inputs.size(), node.outputs.size());
    }
    if (const auto missing = MissingInput(*node.op, node.inputs)) {
      return FailAt(n, "V6", "input {} is left out", *missing);
    }
    if (const auto missing = MissingOutput(*node.op, node.outputs)) {
      return FailAt(n, "V6", "output {} is left out", *missing);
    }
  }
  return {};
}

Status GraphVerifier::Types() const {
  for (ValueId v = 0; v < g_.num_values(); ++v) {
    const Value& value = g_.value(v);
    if (Erased(value)) continue;
    if (value.type < 0 || value.type >= m_.types.size() ||
        m_.types.Get(value.type).dtype == DType::kNone) {
      return Fail("V7", "value '{}' has no type", value.name);
    }
    const auto& dims = m_.types.Get(value.type).dims;
    if (std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 0; })) {
      return Fail("V7", "value '{}' has a negative dim: {}", value.name, ToString(g_.type(v)));
    }
    if (value.kind == ValueKind::kState && value.type != m_.state(value.index).type) {
      return Fail("V7", "value '{}' is {}, its state is {}", value.name, ToString(g_.type(v)),
                  ToString(m_.types.Get(m_.state(value.index).type)));
    }
  }
  return {};
}

Status GraphVerifier::Inference() const {
  for (NodeId n : order_) {
    const auto types = InferNode(g_, n);
    if (!types.ok()) return FailAt(n, "V8", "{}", types.status().message());
    const Node& node = g_.node(n);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      if (v == kNone || g_.type_id(v) == (*types)[i]) continue;
      return FailAt(n, "V9", "output {} ('{}') is {}, inference gives {}", i, g_.value(v).name,
                    ToString(g_.type(v)), ToString(m_.types.Get((*types)[i])));
    }
  }
  return {};
}

Status GraphVerifier::Nexts() const {
  std::unordered_set<StateId> seen;
  for (const NextInfo& next : g_.nexts()) {
    if (!IsState(next.state) || !seen.insert(next.state).second ||
        g_.FindNext(next.state) != next.value) {
      return Fail("V10", "state {} is unknown, has two next values, or is not found", next.state);
    }
    const StateVar& state = m_.state(next.state);
    if (g_.type_id(next.value) != state.type) {
      return Fail("V10", "state '{}' is {}, its next value is {}", state.name,
                  ToString(m_.types.Get(state.type)), ToString(g_.type(next.value)));
    }
    const bool derived =
        state.initial.kind == plan::Initial::Kind::kDerived && state.role != Role::kLowCopy;
    if (state.role == Role::kHyper || state.role == Role::kConstant || derived) {
      return Fail("V11", "{} state '{}' has a next value", RoleWord(state.role), state.name);
    }
  }
  return {};
}

Status GraphVerifier::LowCopies() const {
  for (StateId s = 0; s < static_cast<StateId>(m_.states.size()); ++s) {
    const StateVar& state = m_.state(s);
    if (state.role != Role::kLowCopy || !IsState(state.initial.derived_from)) continue;
    const bool refreshed = g_.FindNext(s) != kNone;
    const bool updated = g_.FindNext(state.initial.derived_from) != kNone;
    if (refreshed == updated) continue;
    return Fail("V12", "'{}' has {} next value, its source '{}' has {}", state.name,
                refreshed ? "a" : "no", m_.state(state.initial.derived_from).name,
                updated ? "one" : "none");
  }
  return {};
}

Status GraphVerifier::Layouts() const {
  const auto any_layout = [this](NodeId n) {
    const Traits& traits = g_.node(n).op->traits;
    return traits.any_layout || traits.elementwise;
  };
  for (ValueId v = 0; v < g_.num_values(); ++v) {
    const Value& value = g_.value(v);
    if (Erased(value) || value.layout == Layout::kRowMajor) continue;
    if (g_.type(v).rank() < 3) {
      return Fail("V15", "'{}' ({}) is channels-last", value.name, ToString(g_.type(v)));
    }
    if (value.kind == ValueKind::kState ||
        (value.kind == ValueKind::kNode && !any_layout(value.def))) {
      return Fail("V15", "'{}' is channels-last, its definition is row-major", value.name);
    }
    for (const Use& use : value.uses) {
      if (use.node == Use::kNext) return Fail("V15", "state gets '{}' channels-last", value.name);
      if (use.node >= 0 && !any_layout(use.node) &&
          !g_.node(use.node).op->traits.reads_any_layout) {
        return FailAt(use.node, "V15", "reads '{}', which is channels-last", value.name);
      }
    }
  }
  return {};
}

// Own random ops draw from a stream; the standard ones get theirs when they become own ones.
Status GraphVerifier::Streams() const {
  std::unordered_set<int64_t> streams;
  for (NodeId n : order_) {
    const Node& node = g_.node(n);
    if (!node.op->traits.random) continue;
    if (!node.attrs.Has("stream")) {
      if (node.op->domain != kOwnDomain) continue;
      return FailAt(n, "V16", "no attribute 'stream'");
    }
    if (!streams.insert(node.attrs.Int("stream")).second) {
      return FailAt(n, "V16", "stream {} belongs to another node", node.attrs.Int("stream"));
    }
  }
  return {};
}

Status GraphVerifier::Unscaling() const {
  // "Unscaled" spreads from the outputs of an unscale node to everything that is computed from
  // them.
  std::vector<bool> unscaled(static_cast<size_t>(g_.num_values()));
  const auto is_unscaled = [&](ValueId v) {
    return v != kNone && unscaled[static_cast<size_t>(v)];
  };
  bool any = false;
  for (NodeId n : order_) {
    const Node& node = g_.node(n);
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), is_unscaled);
    if (node.op->traits.unscale) {
      if (reads) return FailAt(n, "V17", "a gradient is unscaled twice");
      any = true;
    }
    if (!reads && !node.op->traits.unscale) continue;
    for (ValueId v : node.outputs) {
      if (v != kNone) unscaled[static_cast<size_t>(v)] = true;
    }
  }
  if (!any) return {};
  for (const OutputInfo& output : g_.outputs()) {
    if (output.name.starts_with("grad:") && !is_unscaled(output.value)) {
      return Fail("V17", "output '{}' is not unscaled", output.name);
    }
  }
  for (const NextInfo& next : g_.nexts()) {
    const StateVar& state = m_.state(next.state);
    const bool update =
        state.role == Role::kMoment || (state.role == Role::kWeight && state.trainable);
    if (update && !is_unscaled(next.value)) {
      return Fail("V17", "'{}' is updated with what was not unscaled", state.name);
    }
    if (state.role == Role::kAccumulator && is_unscaled(next.value)) {
      return Fail("V17", "'{}' accumulates what was unscaled already", state.name);
    }
  }
  return {};
}

Status GraphVerifier::Feeds() const {
  for (const FeedInfo& feed : g_.feeds()) {
    const TensorType& type = g_.type(feed.value);
    if ((feed.limit != 0 || feed.has_ignore) && (!IsInteger(type.dtype) || feed.limit < 0)) {
      return Fail("V18", "feed '{}' ({}) has limit {}", feed.name, ToString(type), feed.limit);
    }
    if (feed.from_end && feed.limit == 0)
      return Fail("V18", "feed '{}' counts from the end of nothing: it has no limit", feed.name);
    if (feed.kind == plan::Feed::Kind::kValid && (!IsFloat(type.dtype) || type.rank() != 1)) {
      return Fail("V18", "feed '{}' ({}) marks real samples", feed.name, ToString(type));
    }
  }
  return {};
}

}  // namespace

std::span<const Invariant> Invariants() { return kInvariants; }

std::optional<size_t> MissingInput(const OpDef& op, std::span<const ValueId> inputs) {
  const size_t needed = op.in.max >= kVariadic ? inputs.size() : static_cast<size_t>(op.in.min);
  for (size_t i = 0; i < std::min(needed, inputs.size()); ++i) {
    const bool optional = HasSlot(op.optional_slots, i);
    if (inputs[i] == kNone && !optional) return i;
  }
  return std::nullopt;
}

std::optional<size_t> MissingOutput(const OpDef& op, std::span<const ValueId> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == kNone && !MayLackOutput(op, i)) return i;
  }
  return std::nullopt;
}

Status Verify(const Graph& graph) { return GraphVerifier(graph).Run(); }

Status Verify(const Module& module) {
  AMPC_TRY(StateVerifier(module).Run());
  for (const Graph* graph : module.graphs()) AMPC_TRY(Verify(*graph));
  return {};
}

}  // namespace ampc::ir
