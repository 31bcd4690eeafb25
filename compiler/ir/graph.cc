// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/graph.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include <fmt/format.h>

#include "compiler/ops/op_def.h"

namespace ampc::ir {
namespace {

class Memory final : public ByteSource {
 public:
  explicit Memory(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  Status Read(int64_t offset, std::span<std::byte> out) const override {
    const auto size = static_cast<int64_t>(bytes_.size());
    const auto length = static_cast<int64_t>(out.size());
    if (offset < 0 || length > size || offset > size - length) {
      return InternalError("E7001", "range [{}, +{}) of a {}-byte block", offset, length, size);
    }
    if (length > 0) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  std::string_view path() const override { return ""; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::shared_ptr<const ByteSource> MemorySource(std::vector<std::byte> bytes) {
  return std::make_shared<Memory>(std::move(bytes));
}

// ---- Module

StateId Module::AddState(StateVar state) {
  const auto id = static_cast<StateId>(states.size());
  const std::string name = state.name;
  for (int i = 1; !state_index_.emplace(state.name, id).second; ++i)
    state.name = fmt::format("{}.{}", name, i);
  states.push_back(std::move(state));
  return id;
}

StateId Module::FindState(std::string_view name) const {
  auto it = state_index_.find(std::string(name));
  return it == state_index_.end() ? kNone : it->second;
}

StateId Module::FindRole(Role role) const {
  const auto it = std::find_if(states.begin(), states.end(),
                               [role](const StateVar& s) { return s.role == role; });
  return it == states.end() ? kNone : static_cast<StateId>(it - states.begin());
}

StateId Module::FindSetting(std::string_view setting) const {
  const auto it = std::find_if(states.begin(), states.end(),
                               [setting](const StateVar& s) { return s.setting == setting; });
  return it == states.end() ? kNone : static_cast<StateId>(it - states.begin());
}

std::vector<Graph*> Module::graphs() const {
  std::vector<Graph*> all;
  for (const auto* g : {&train, &apply, &update, &eval}) {
    if (*g) all.push_back(g->get());
  }
  return all;
}

void Module::RemoveStates(const std::vector<bool>& drop) {
  std::vector<StateId> new_ids(states.size(), kNone);
  size_t kept = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    if (drop[i]) {
      state_index_.erase(states[i].name);
      continue;
    }
    new_ids[i] = static_cast<StateId>(kept);
    if (kept != i) states[kept] = std::move(states[i]);
    StateVar& s = states[kept];
    state_index_[s.name] = static_cast<StateId>(kept);
    if (s.initial.derived_from != kNone) {
      s.initial.derived_from = new_ids[static_cast<size_t>(s.initial.derived_from)];
      assert(s.initial.derived_from != kNone && "a derived state outlives its source");
    }
    ++kept;
  }
  states.resize(kept);
  for (Graph* g : graphs()) g->RenumberStates(new_ids);
}

// States that are gone may still have a value that nothing uses; it becomes an erased one.
void Graph::RenumberStates(std::span<const StateId> new_ids) {
  std::vector<ValueId> renumbered;
  for (size_t state = 0; state < state_values_.size(); ++state) {
    const ValueId v = state_values_[state];
    if (v == kNone) continue;
    Value& value = values_[static_cast<size_t>(v)];
    value.index = new_ids[state];
    if (value.index == kNone) {
      assert(value.uses.empty() && "a removed state is read");
      by_name_.Remove(value.name, NameOf());
      value.kind = ValueKind::kNode;
      continue;
    }
    At(renumbered, value.index) = v;
  }
  state_values_ = std::move(renumbered);
  next_index_.clear();
  for (size_t i = 0; i < nexts_.size(); ++i) {
    nexts_[i].state = new_ids[static_cast<size_t>(nexts_[i].state)];
    At(next_index_, nexts_[i].state) = static_cast<int32_t>(i);
  }
}

// ---- values

const TensorType& Graph::type(ValueId v) const { return module_->types.Get(value(v).type); }

ValueId Graph::FindValue(std::string_view name) const { return by_name_.Find(name, NameOf()); }

std::string Graph::UniqueName(std::string_view name) {
  std::string base(name.empty() ? "v" : name);
  if (FindValue(base) == kNone) return base;
  int32_t& counter = name_counters_[base];
  const size_t length = base.size();
  do {
    base.resize(length);
    base += '.';
    base += std::to_string(++counter);
  } while (FindValue(base) != kNone);
  return base;
}

ValueId Graph::NewValue(Value value, std::string_view name) {
  const auto id = static_cast<ValueId>(values_.size());
  value.name = UniqueName(name);
  by_name_.Add(value.name, id);
  values_.push_back(std::move(value));
  return id;
}

void Graph::Rename(ValueId v, std::string_view name) {
  Value& val = values_[static_cast<size_t>(v)];
  if (val.name == name) return;
  by_name_.Remove(val.name, NameOf());
  val.name = UniqueName(name);
  by_name_.Add(val.name, v);
}

ValueId Graph::AddFeed(std::string_view name, TypeId type, plan::Feed::Kind kind) {
  assert(FindValue(name) == kNone && "feed names are unique");
  Value value{.type = type, .kind = ValueKind::kFeed, .index = static_cast<int32_t>(feeds_.size())};
  const ValueId v = NewValue(std::move(value), name);
  feeds_.push_back({std::string(name), kind, v});
  return v;
}

void Graph::RemoveFeed(ValueId feed) {
  Value& gone = values_[static_cast<size_t>(feed)];
  assert(gone.kind == ValueKind::kFeed && gone.uses.empty());
  feeds_.erase(feeds_.begin() + gone.index);
  for (size_t i = static_cast<size_t>(gone.index); i < feeds_.size(); ++i)
    values_[static_cast<size_t>(feeds_[i].value)].index = static_cast<int32_t>(i);
  by_name_.Remove(gone.name, NameOf());
  gone.kind = ValueKind::kNode;  // as an output of a node that is erased
  gone.def = kNone;
}

ValueId Graph::State(StateId state) {
  if (const ValueId known = FindState(state); known != kNone) return known;
  const StateVar& var = module_->state(state);
  const ValueId v =
      NewValue({.type = var.type, .kind = ValueKind::kState, .index = state}, var.name);
  At(state_values_, state) = v;
  return v;
}

ValueId Graph::FindState(StateId state) const {
  const auto i = static_cast<size_t>(state);
  return i < state_values_.size() ? state_values_[i] : kNone;
}

// ---- uses

int32_t Graph::AddUse(ValueId v, Use use) {
  auto& uses = values_[static_cast<size_t>(v)].uses;
  uses.push_back(use);
  return static_cast<int32_t>(uses.size() - 1);
}

int32_t& Graph::UseIndexOf(const Use& use) {
  const auto slot = static_cast<size_t>(use.slot);
  if (use.node == Use::kOutput) return outputs_[slot].use_index;
  if (use.node == Use::kNext) return nexts_[slot].use_index;
  return nodes_[static_cast<size_t>(use.node)].use_index[slot];
}

// The last use takes the hole, so removal costs the same for any number of uses.
void Graph::RemoveUse(ValueId v, int32_t index) {
  auto& uses = values_[static_cast<size_t>(v)].uses;
  const auto i = static_cast<size_t>(index);
  if (i + 1 != uses.size()) {
    uses[i] = uses.back();
    UseIndexOf(uses[i]) = index;
  }
  uses.pop_back();
}

// Drops every use of one kind from a value; node uses keep their index entries in step.
void Graph::RemoveUseOf(ValueId v, NodeId kind) {
  auto& uses = values_[static_cast<size_t>(v)].uses;
  size_t kept = 0;
  for (const Use& use : uses) {
    if (use.node == kind) continue;
    uses[kept] = use;
    if (use.node >= 0) UseIndexOf(use) = static_cast<int32_t>(kept);
    if (use.node == Use::kOutput && kind != Use::kOutput)
      outputs_[static_cast<size_t>(use.slot)].use_index = static_cast<int32_t>(kept);
    if (use.node == Use::kNext && kind != Use::kNext)
      nexts_[static_cast<size_t>(use.slot)].use_index = static_cast<int32_t>(kept);
    ++kept;
  }
  uses.resize(kept);
}

// ---- nodes

std::vector<NodeId> Graph::Order() const {
  std::vector<NodeId> order;
  order.reserve(static_cast<size_t>(live_));
  for (NodeId n = first_; n != kNone; n = node(n).next) order.push_back(n);
  return order;
}

NodeId Graph::AddNode(const OpDef& op, Attrs attrs, std::span<const ValueId> inputs,
                      std::span<const TypeId> types, LocId loc, NodeId before,
                      std::span<const std::string_view> names) {
  const auto id = static_cast<NodeId>(nodes_.size());
  nodes_.emplace_back();
  Node& n = nodes_.back();
  n.op = &op;
  n.attrs = std::move(attrs);
  n.loc = loc;
  n.inputs.assign(inputs.begin(), inputs.end());
  n.use_index.assign(inputs.size(), kNone);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != kNone) n.use_index[i] = AddUse(inputs[i], {id, static_cast<int32_t>(i)});
  }
  for (size_t i = 0; i < types.size(); ++i) {
    ValueId v = kNone;
    if (types[i] != kNone) {
      std::string_view name = i < names.size() ? names[i] : std::string_view();
      Value value{
          .type = types[i], .kind = ValueKind::kNode, .def = id, .index = static_cast<int32_t>(i)};
      v = NewValue(std::move(value), name.empty() ? std::string_view(op.name) : name);
    }
    nodes_[static_cast<size_t>(id)].outputs.push_back(v);
  }
  ++live_;
  // Link.
  Node& node = nodes_[static_cast<size_t>(id)];
  node.next = before;
  node.prev = before == kNone ? last_ : nodes_[static_cast<size_t>(before)].prev;
  (node.prev == kNone ? first_ : nodes_[static_cast<size_t>(node.prev)].next) = id;
  (before == kNone ? last_ : nodes_[static_cast<size_t>(before)].prev) = id;
  return id;
}

ValueId Graph::AddOutputValue(NodeId n, TypeId type, std::string_view name) {
  const auto index = static_cast<int32_t>(node(n).outputs.size());
  const ValueId v =
      NewValue({.type = type, .kind = ValueKind::kNode, .def = n, .index = index}, name);
  nodes_[static_cast<size_t>(n)].outputs.push_back(v);
  return v;
}

void Graph::SetInput(NodeId n, int32_t slot, ValueId v) {
  Node& node = nodes_[static_cast<size_t>(n)];
  const auto s = static_cast<size_t>(slot);
  while (node.inputs.size() <= s) {
    node.inputs.push_back(kNone);
    node.use_index.push_back(kNone);
  }
  if (node.inputs[s] == v) return;
  if (node.inputs[s] != kNone) RemoveUse(node.inputs[s], node.use_index[s]);
  node.inputs[s] = v;
  node.use_index[s] = v == kNone ? kNone : AddUse(v, {n, slot});
}

void Graph::ReplaceUses(ValueId from, ValueId to) { ReplaceUsesExcept(from, to, kNone); }

void Graph::ReplaceUsesExcept(ValueId from, ValueId to, NodeId except) {
  if (from == to) return;
  const auto uses = std::move(values_[static_cast<size_t>(from)].uses);
  values_[static_cast<size_t>(from)].uses.clear();
  for (const Use& use : uses) {
    const ValueId target = use.node == except && except != kNone ? from : to;
    UseIndexOf(use) = AddUse(target, use);
    const auto slot = static_cast<size_t>(use.slot);
    if (use.node == Use::kOutput) {
      outputs_[slot].value = target;
    } else if (use.node == Use::kNext) {
      nexts_[slot].value = target;
    } else {
      nodes_[static_cast<size_t>(use.node)].inputs[slot] = target;
    }
  }
}

void Graph::Erase(NodeId n) {
  Node& node = nodes_[static_cast<size_t>(n)];
  assert(node.op != nullptr);
  for (ValueId out : node.outputs) {
    if (out == kNone) continue;
    assert(value(out).uses.empty() && "erasing a node whose output is used");
    by_name_.Remove(value(out).name, NameOf());
    values_[static_cast<size_t>(out)].def = kNone;
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] != kNone) RemoveUse(node.inputs[i], node.use_index[i]);
  }
  (node.prev == kNone ? first_ : nodes_[static_cast<size_t>(node.prev)].next) = node.next;
  (node.next == kNone ? last_ : nodes_[static_cast<size_t>(node.next)].prev) = node.prev;
  node = Node{};
  --live_;
}

void Graph::MoveBefore(NodeId n, NodeId before) {
  Node& node = nodes_[static_cast<size_t>(n)];
  if (before == n || node.next == before) return;
  (node.prev == kNone ? first_ : nodes_[static_cast<size_t>(node.prev)].next) = node.next;
  (node.next == kNone ? last_ : nodes_[static_cast<size_t>(node.next)].prev) = node.prev;
  node.next = before;
  node.prev = before == kNone ? last_ : nodes_[static_cast<size_t>(before)].prev;
  (node.prev == kNone ? first_ : nodes_[static_cast<size_t>(node.prev)].next) = n;
  (before == kNone ? last_ : nodes_[static_cast<size_t>(before)].prev) = n;
}

// ---- outputs, nexts

void Graph::SetOutput(std::string_view name, ValueId v) {
  auto [it, fresh] =
      output_index_.try_emplace(std::string(name), static_cast<int32_t>(outputs_.size()));
  const int32_t i = it->second;
  if (fresh) {
    outputs_.push_back({std::string(name), v, 0});
  } else {
    OutputInfo& out = outputs_[static_cast<size_t>(i)];
    if (out.value == v) return;
    RemoveUse(out.value, out.use_index);
    out.value = v;
  }
  const int32_t use = AddUse(v, {Use::kOutput, i});
  outputs_[static_cast<size_t>(i)].use_index = use;
}

ValueId Graph::FindOutput(std::string_view name) const {
  auto it = output_index_.find(std::string(name));
  return it == output_index_.end() ? kNone : outputs_[static_cast<size_t>(it->second)].value;
}

void Graph::RemoveOutputs(const std::function<bool(const std::string&)>& drop) {
  std::vector<OutputInfo> old = std::move(outputs_);
  for (const OutputInfo& out : old) RemoveUseOf(out.value, Use::kOutput);
  outputs_.clear();
  output_index_.clear();
  for (const OutputInfo& out : old) {
    if (!drop(out.name)) SetOutput(out.name, out.value);
  }
}

void Graph::SetNext(StateId state, ValueId v) {
  int32_t& i = At(next_index_, state);
  if (i == kNone) {
    i = static_cast<int32_t>(nexts_.size());
    nexts_.push_back({state, v, 0});
  } else {
    NextInfo& next = nexts_[static_cast<size_t>(i)];
    if (next.value == v) return;
    RemoveUse(next.value, next.use_index);
    next.value = v;
  }
  const int32_t use = AddUse(v, {Use::kNext, i});
  nexts_[static_cast<size_t>(i)].use_index = use;
}

ValueId Graph::FindNext(StateId state) const {
  const auto s = static_cast<size_t>(state);
  const int32_t i = s < next_index_.size() ? next_index_[s] : kNone;
  return i == kNone ? kNone : nexts_[static_cast<size_t>(i)].value;
}

void Graph::RemoveNexts(const std::function<bool(StateId)>& drop) {
  std::vector<NextInfo> old = std::move(nexts_);
  for (const NextInfo& next : old) RemoveUseOf(next.value, Use::kNext);
  nexts_.clear();
  next_index_.clear();
  for (const NextInfo& next : old) {
    if (!drop(next.state)) SetNext(next.state, next.value);
  }
}

// ---- reading

const HostTensor* Graph::ConstantOf(ValueId v) const {
  if (v == kNone) return nullptr;
  const Value& val = value(v);
  if (val.kind != ValueKind::kNode || val.def == kNone) return nullptr;
  const Node& n = node(val.def);
  return n.op->traits.constant ? n.attrs.Tensor("value") : nullptr;
}

std::string Graph::Label(NodeId n) const {
  const Node& nd = node(n);
  const std::string& label = module_->locs.Get(nd.loc);
  if (!label.empty()) return label;
  for (ValueId out : nd.outputs) {
    if (out != kNone) return fmt::format("{}:{}", nd.op->name, value(out).name);
  }
  return std::string(nd.op->name);
}

std::string Graph::Describe(NodeId n) const {
  const OpDef& op = *node(n).op;
  return fmt::format("node '{}' ({}{}{}-{})", Label(n), op.domain, op.domain.empty() ? "" : ".",
                     op.name, op.since);
}

}  // namespace ampc::ir
