// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/clone.h"

namespace ampc::ir {
namespace {

// Ids of types, locations and states belong to a module.
TypeId TypeIn(const Graph& from, Graph& to, TypeId type) {
  if (&from.module() == &to.module()) return type;
  return to.module().types.Intern(from.module().types.Get(type));
}
LocId LocIn(const Graph& from, Graph& to, LocId loc) {
  return &from.module() == &to.module() ? loc
                                        : to.module().locs.Intern(from.module().locs.Get(loc));
}
StateId StateIn(const Graph& from, Graph& to, StateId state) {
  if (&from.module() == &to.module()) return state;
  const StateVar& source = from.module().state(state);
  if (const StateId known = to.module().FindState(source.name); known != kNone) return known;
  StateVar copy = source;
  copy.type = TypeIn(from, to, source.type);
  return to.module().AddState(std::move(copy));
}

ValueId Counterpart(const Graph& from, Graph& to, ValueId v,
                    std::unordered_map<ValueId, ValueId>& map) {
  if (v == kNone) return kNone;
  if (auto it = map.find(v); it != map.end()) return it->second;
  const Value& value = from.value(v);
  ValueId copy = kNone;
  if (value.kind == ValueKind::kState) {
    copy = to.State(StateIn(from, to, value.index));
  } else {
    const FeedInfo& feed = from.feeds()[static_cast<size_t>(value.index)];
    copy = to.FindValue(feed.name);
    if (copy == kNone) {
      copy = to.AddFeed(feed.name, TypeIn(from, to, value.type), feed.kind);
      FeedInfo& added = to.mutable_feeds().back();
      added.limit = feed.limit;
      added.from_end = feed.from_end;
      added.has_ignore = feed.has_ignore;
      added.ignore = feed.ignore;
    }
  }
  map.emplace(v, copy);
  return copy;
}

}  // namespace

void CopyNodes(const Graph& from, Graph& to, std::unordered_map<ValueId, ValueId>& map) {
  std::vector<ValueId> inputs;
  std::vector<TypeId> types;
  std::vector<std::string_view> names;
  for (NodeId n = from.first(); n != kNone; n = from.node(n).next) {
    const Node& node = from.node(n);
    inputs.clear();
    types.clear();
    names.clear();
    for (ValueId v : node.inputs) inputs.push_back(Counterpart(from, to, v, map));
    for (ValueId v : node.outputs) {
      types.push_back(v == kNone ? kNone : TypeIn(from, to, from.type_id(v)));
      names.push_back(v == kNone ? std::string_view() : std::string_view(from.value(v).name));
    }
    const NodeId copy =
        to.AddNode(*node.op, node.attrs, inputs, types, LocIn(from, to, node.loc), kNone, names);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNone) continue;
      const ValueId out = to.node(copy).outputs[i];
      to.SetLayout(out, from.value(node.outputs[i]).layout);
      map.emplace(node.outputs[i], out);
    }
  }
}

}  // namespace ampc::ir
