// SPDX-License-Identifier: Apache-2.0
// --wgrad fp32: parameter gradients come in fp32 straight from the accumulators.
//
//   before   w = ConvGradWeights (low, low); g = Cast <fp32> (w); "grad:<state>" = g
//   after    g = ConvGradWeights <to = fp32> (low, low); "grad:<state>" = g
//
// The op that makes the gradient must be able to give fp32 (its row says so); data movement between
// it and the cast follows. A gradient that is a sum of several contributions stays low, as --wgrad
// low. Test: test/passes/wide-gradients.onnxtext
#include "compiler/ops/infer.h"
#include "passes/passes.h"

namespace ampc {
namespace {

using ir::NodeId;
using ir::ValueId;

// Nodes from the one that makes the gradient to the one before the cast; empty when there is no
// such chain.
std::vector<NodeId> ChainBefore(const ir::Graph& g, ValueId v) {
  std::vector<NodeId> chain;
  while (true) {
    const ir::Value& value = g.value(v);
    if (value.kind != ir::ValueKind::kNode || value.uses.size() != 1 || value.index != 0) return {};
    chain.insert(chain.begin(), value.def);
    const ir::Node& node = g.node(value.def);
    if (node.op->traits.wide_output) return chain;
    if (!node.op->traits.movement) return {};
    v = node.inputs[0];
  }
}

}  // namespace

Status WidenGradients(ir::Module& module, PassContext& context) {
  if (!context.options.wgrad_fp32) return {};
  AMPC_TRY(Needs(module.train, "train"));
  ir::Graph& g = *module.train;
  const std::vector<ir::OutputInfo> outputs = g.outputs();
  for (const ir::OutputInfo& out : outputs) {
    if (!out.name.starts_with("grad:") || g.value(out.value).kind != ir::ValueKind::kNode) continue;
    const NodeId cast = g.value(out.value).def;
    const ir::Node node = g.node(cast);
    if (!node.op->traits.cast || !IsLow(g.type(node.inputs[0]).dtype) ||
        g.type(out.value).dtype != DType::kFloat32)
      continue;
    const std::vector<NodeId> chain = ChainBefore(g, node.inputs[0]);
    if (chain.empty()) continue;
    Attrs attrs = g.node(chain.front()).attrs;
    attrs.Set("to", static_cast<int64_t>(DType::kFloat32));
    g.SetAttrs(chain.front(), std::move(attrs));
    for (NodeId n : chain) {
      auto changed = Reinfer(g, n);
      if (!changed.ok()) return std::move(changed).TakeStatus();
    }
    g.ReplaceUses(out.value, node.inputs[0]);
    g.Erase(cast);
  }
  return {};
}

}  // namespace ampc
