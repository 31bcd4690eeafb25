// SPDX-License-Identifier: Apache-2.0
// A weight that the step reads in a low dtype gets a persistent low copy, so that it is cast once
// per update.
//
//   before   train: Cast(weight) in every step
//   after    train: reads state "<weight>.<dtype>" (role low copy, derived from the weight);
//            apply: next of the copy = Cast(next of the weight)
//
// A float that nothing updates (frozen, constant) keeps its copy for ever. Test:
// test/passes/master-weights.onnxtext
#include <map>

#include "passes/passes.h"

namespace ampc {

Status KeepLowCopies(ir::Module& module, PassContext&) {
  AMPC_TRY(Needs(module.train, "train"));
  AMPC_TRY(Needs(module.apply, "apply"));
  ir::Graph &train = *module.train, &apply = *module.apply;
  std::map<std::pair<ir::StateId, DType>, ir::StateId> copies;
  for (ir::NodeId n : train.Order()) {
    if (!train.node(n).op->traits.cast) continue;
    const ir::Node node = train.node(n);
    const ir::Value& source = train.value(node.inputs[0]);
    const ir::TensorType to = train.type(node.outputs[0]);
    if (source.kind != ir::ValueKind::kState || !IsLow(to.dtype)) continue;
    const ir::StateId weight = source.index;
    const ir::Role role = module.state(weight).role;
    if (role != ir::Role::kWeight && role != ir::Role::kConstant) continue;
    const auto [known, fresh] = copies.try_emplace({weight, to.dtype}, ir::kNone);
    ir::StateId& copy = known->second;
    if (fresh) {
      copy = module.AddState(
          {.name = fmt::format("{}.{}", module.state(weight).name,
                               to.dtype == DType::kFloat16 ? "fp16" : "bf16"),
           .type = train.type_id(node.outputs[0]),
           .role = ir::Role::kLowCopy,
           .initial = {.kind = plan::Initial::Kind::kDerived, .derived_from = weight}});
      if (const ir::ValueId next = apply.FindNext(weight); next != ir::kNone) {
        ir::Builder b(apply, node.loc);
        const ir::ValueId low = b.Cast(next, to.dtype);
        if (b.failed()) return b.TakeStatus();
        apply.SetNext(copy, low);
      }
    }
    train.ReplaceUses(node.outputs[0], train.State(copy));
    train.Erase(n);
  }
  return {};
}

}  // namespace ampc
