// SPDX-License-Identifier: Apache-2.0
// Evaluates nodes whose inputs are all constants.
//
//   before   c = Op(constants)
//   after    c = Constant
//
// Random ops never fold, nor does a result of more than kMaxElements elements (a filled tensor is
// cheaper to make than to store). Values come from the reference kernels through the op's own
// lowering. Test: test/passes/fold.onnxtext
#include <algorithm>

#include "passes/passes.h"

namespace ampc {
namespace {

constexpr int64_t kMaxElements = 4096;

bool Foldable(const ir::Graph& g, const ir::Node& node) {
  const OpDef& op = *node.op;
  if (op.traits.constant || op.traits.random || op.lower == nullptr) return false;
  for (ir::ValueId v : node.inputs) {
    if (v != ir::kNone && g.ConstantOf(v) == nullptr) return false;
  }
  return std::all_of(node.outputs.begin(), node.outputs.end(), [&](ir::ValueId v) {
    return v == ir::kNone || g.type(v).elements() <= kMaxElements;
  });
}

Status FoldGraph(ir::Graph& g, PassContext& context) {
  for (ir::NodeId n : g.Order()) {
    if (!Foldable(g, g.node(n))) continue;
    const ir::Node node = g.node(n);
    auto values = context.evaluate(g, n);
    if (!values.ok()) return std::move(values).TakeStatus().At(g.Describe(n));
    ir::Builder b(g, node.loc, n);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == ir::kNone) continue;
      const ir::ValueId constant = b.Constant(std::move((*values)[i]));
      if (b.failed()) return b.TakeStatus();
      g.ReplaceUses(node.outputs[i], constant);
    }
    g.Erase(n);
  }
  return {};
}

}  // namespace

Status FoldConstants(ir::Module& module, PassContext& context) {
  if (context.evaluate == nullptr) return {};
  for (ir::Graph* g : module.graphs()) AMPC_TRY(FoldGraph(*g, context));
  return {};
}

}  // namespace ampc
