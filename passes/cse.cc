// SPDX-License-Identifier: Apache-2.0
// cse: merges equal nodes, constants included. Two nodes are equal when op, attributes (tensors by
// content, floats by bits) and inputs are; everything but a random op is pure. The earlier node
// stays, with its location.
//
//   a = Relu (x)                         a = Relu (x)
//   b = Relu (x)              ->         y = Add (a, a)
//   y = Add (a, b)
//
// One sweep in order is enough: when a node is looked up, its inputs have been merged already.
// Test: test/passes/cse.onnxtext
#include <algorithm>
#include <bit>
#include <unordered_set>

#include "passes/passes.h"

namespace ampc {
namespace {

using ir::Graph;
using ir::kNone;
using ir::Node;
using ir::NodeId;

size_t Mix(size_t h, size_t v) { return (h ^ v) * 0x9E3779B97F4A7C15ull + (h >> 29); }

size_t Hash(const Node& node) {
  size_t h = Mix(std::hash<const OpDef*>{}(node.op), node.attrs.Hash());
  for (ir::ValueId v : node.inputs) h = Mix(h, static_cast<size_t>(v));
  return h;
}

// `kept` gives everything that `other` gives.
bool Covers(const Graph& graph, const Node& kept, const Node& other) {
  if (kept.op != other.op || kept.inputs != other.inputs || !(kept.attrs == other.attrs) ||
      kept.outputs.size() < other.outputs.size()) {
    return false;
  }
  for (size_t i = 0; i < other.outputs.size(); ++i) {
    const ir::ValueId a = kept.outputs[i], b = other.outputs[i];
    if (b == kNone) continue;
    if (a == kNone || graph.type_id(a) != graph.type_id(b) ||
        graph.value(a).layout != graph.value(b).layout) {
      return false;
    }
  }
  return true;
}

// The nodes that stay, by hash: a table twice as large as it can get full, probed in line. A
// node-based map costs more than everything else in this pass.
class SeenNodes {
 public:
  explicit SeenNodes(int32_t num_nodes)
      : slots_(std::bit_ceil(2 * static_cast<size_t>(num_nodes) + 1)), mask_(slots_.size() - 1) {}

  /// A node of this hash for which `equal` holds; when there is none, `n` joins and kNone comes
  /// back.
  template <typename F>
  NodeId FindOrAdd(size_t hash, NodeId n, F equal) {
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.node == kNone) {
        slot = {hash, n};
        return kNone;
      }
      if (slot.hash == hash && equal(slot.node)) return slot.node;
    }
  }

 private:
  struct Slot {
    size_t hash = 0;
    NodeId node = kNone;
  };
  std::vector<Slot> slots_;
  size_t mask_;
};

void MergeEqualNodes(Graph& graph, const std::unordered_set<std::string_view>& keep) {
  SeenNodes seen(graph.num_live_nodes());
  for (NodeId n : graph.Order()) {
    const Node& node = graph.node(n);
    if (node.op->traits.random) continue;
    // A value that the user wants to fetch keeps its name and with it its node.
    if (!keep.empty() && std::any_of(node.outputs.begin(), node.outputs.end(), [&](ir::ValueId v) {
          return v != kNone && keep.contains(graph.value(v).name);
        })) {
      continue;
    }
    const NodeId found = seen.FindOrAdd(
        Hash(node), n, [&](NodeId other) { return Covers(graph, graph.node(other), node); });
    if (found == kNone) continue;
    const Node& kept = graph.node(found);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != kNone) graph.ReplaceUses(node.outputs[i], kept.outputs[i]);
    }
    graph.Erase(n);
  }
}

}  // namespace

Status EliminateCommonSubexpressions(ir::Module& module, PassContext& context) {
  const std::unordered_set<std::string_view> keep(context.options.keep.begin(),
                                                  context.options.keep.end());
  for (Graph* graph : module.graphs()) MergeEqualNodes(*graph, keep);
  return {};
}

}  // namespace ampc
