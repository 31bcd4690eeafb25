// SPDX-License-Identifier: Apache-2.0
// dce: removes nodes that no output, next value or --keep needs, and states that passes made and
// that no graph touches.
//
//   a = Relu (x)                         y = Relu (x)
//   b = Exp (a)               ->
//   y = Relu (x)
//
// Feeds stay, also those that nothing reads: they are the contract with whoever brings the data; a
// model input that nothing reads is reported. States of the source model stay, too: the trained
// model is written with them. Test: test/passes/dce.onnxtext
#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "passes/passes.h"

namespace ampc {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Node;
using ir::NodeId;
using ir::StateId;

// From the end: by the time a node is looked at, its dead readers are gone.
void RemoveDeadNodes(Graph& graph, const std::unordered_set<std::string_view>& keep) {
  const std::vector<NodeId> order = graph.Order();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& node = graph.node(*it);
    const bool live = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ir::ValueId v) {
      return v != kNone && (!graph.value(v).uses.empty() || keep.contains(graph.value(v).name));
    });
    if (!live) graph.Erase(*it);
  }
}

bool IsTouched(const ir::Module& module, StateId s) {
  for (const Graph* graph : module.graphs()) {
    if (graph->FindNext(s) != kNone) return true;
    const ir::ValueId v = graph->FindState(s);
    if (v != kNone && !graph->value(v).uses.empty()) return true;
  }
  return false;
}

// From the end, where the states are that passes made: a derived state comes after its source, so
// that it is known by then whether the source is needed. States of the source model keep their ids,
// which the export of the trained model holds: what stands before the last of them stays.
void RemoveDeadStates(ir::Module& module) {
  const size_t count = module.states.size();
  std::vector<bool> drop(count), needed(count);
  for (size_t i = count; i-- > 0 && module.states[i].source.empty();) {
    const ir::StateVar& state = module.states[i];
    drop[i] = !needed[i] && !IsTouched(module, static_cast<StateId>(i));
    if (!drop[i] && state.initial.derived_from != kNone) {
      needed[static_cast<size_t>(state.initial.derived_from)] = true;
    }
  }
  if (std::find(drop.begin(), drop.end(), true) != drop.end()) module.RemoveStates(drop);
}

// An input that only one of the graphs reads is no surprise; one that none reads is.
void ReportUnreadInputs(const ir::Module& module, Diagnostics& diagnostics) {
  std::unordered_set<std::string_view> read, reported;
  for (const Graph* graph : module.graphs()) {
    for (const ir::FeedInfo& feed : graph->feeds()) {
      if (!graph->value(feed.value).uses.empty()) read.insert(feed.name);
    }
  }
  for (const Graph* graph : module.graphs()) {
    for (const ir::FeedInfo& feed : graph->feeds()) {
      if (feed.kind != plan::Feed::Kind::kInput || read.contains(feed.name)) continue;
      if (!reported.insert(feed.name).second) continue;
      std::string note = fmt::format("input '{}' has no effect on any output", feed.name);
      const auto& notes = diagnostics.notes();  // the pass runs more than once
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
        diagnostics.Note(std::move(note));
      }
    }
  }
}

}  // namespace

Status EliminateDeadCode(ir::Module& module, PassContext& context) {
  const std::unordered_set<std::string_view> keep(context.options.keep.begin(),
                                                  context.options.keep.end());
  for (Graph* graph : module.graphs()) RemoveDeadNodes(*graph, keep);
  RemoveDeadStates(module);
  ReportUnreadInputs(module, context.diagnostics);
  return {};
}

}  // namespace ampc
