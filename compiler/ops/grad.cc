// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/builder.h"
#include "compiler/ops/op_def.h"

namespace ampc {

GradContext::GradContext(ir::Builder& builder, ir::Graph& graph, ir::NodeId id,
                         std::vector<ir::ValueId> output_grads, std::vector<bool> needs)
    : b(builder),
      node(node_),
      node_(graph.node(id)),
      graph_(graph),
      output_grads_(std::move(output_grads)),
      needs_(std::move(needs)),
      grads_(node_.inputs.size(), ir::kNone) {}

void GradContext::Set(size_t i, ir::ValueId dx) {
  if (dx == ir::kNone || b.failed()) return;
  const ir::TensorType to = type(x(i));
  grads_[i] = b.Cast(b.ReduceToDims(dx, to.dims), to.dtype);
}

Status NoGradient(GradContext&) { return {}; }

void TakePlace(ir::Graph& graph, ir::NodeId id, ir::ValueId by) {
  const ir::ValueId old = graph.node(id).outputs[0];
  const std::string name = graph.value(old).name;
  graph.ReplaceUses(old, by);
  graph.Erase(id);
  graph.Rename(by, name);
}

}  // namespace ampc
