// SPDX-License-Identifier: Apache-2.0
// Splits the step: `train` computes gradients of one micro-batch, `apply` uses the window's.
//
//   before   train: "loss", "grad:<state>" = outputs
//   after    apply: "loss", "grad:<state>" = outputs (the window's); K = 1: read from feeds
//   "scaled_grad:<state>",
//            which merge-apply binds to train's outputs; K > 1: read from fp32 accumulators, which
//            train adds to and apply clears.
//
// The boundary is the reduction point: gradients of other devices would be added here. Test:
// test/passes/accumulate.onnxtext
#include "passes/passes.h"

namespace ampc {
namespace {

// train: state += value; apply: reads the state and clears it. Returns the value in `apply`.
Result<ir::ValueId> Accumulate(ir::Module& module, std::string_view name, ir::ValueId value) {
  ir::Graph &train = *module.train, &apply = *module.apply;
  const ir::TensorType t = train.type(value);
  const DType acc = AccOf(t.dtype);
  const ir::StateId state = module.AddState({.name = fmt::format("sum:{}", name),
                                             .type = module.types.Intern(acc, t.dims),
                                             .role = ir::Role::kAccumulator});
  const ir::LocId loc = module.locs.Intern(fmt::format("accumulate {}", name));
  ir::Builder bt(train, loc);
  const ir::ValueId sum = bt.Map("x0 + x1", {train.State(state), value}, acc);
  if (bt.failed()) return bt.TakeStatus();
  train.SetNext(state, sum);
  ir::Builder ba(apply, loc);
  const ir::ValueId zero = ba.Expand(ba.Scalar(acc, 0), t.dims);
  if (ba.failed()) return ba.TakeStatus();
  const ir::ValueId current = apply.State(state);
  apply.SetNext(state, zero);
  return current;
}

}  // namespace

Status AccumulateGradients(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.train, "train"));
  ir::Graph& train = *module.train;
  module.apply = std::make_unique<ir::Graph>(module, "apply");
  ir::Graph& apply = *module.apply;
  const bool window = context.options.accumulate > 1;
  const std::vector<ir::OutputInfo> outputs = train.outputs();
  for (const ir::OutputInfo& out : outputs) {
    const bool grad = out.name.starts_with("grad:");
    if (!grad && out.name != "loss") continue;
    if (!window) {
      if (grad) {
        const ir::ValueId feed =
            apply.AddFeed("scaled_" + out.name, train.type_id(out.value), plan::Feed::Kind::kInput);
        apply.SetOutput(out.name, feed);
      }
      continue;
    }
    AMPC_ASSIGN(ir::ValueId sum, Accumulate(module, out.name, out.value));
    if (!grad) {
      // The log shows the window's loss: the mean of its micro-batches, or their sum.
      const bool mean = context.options.losses.empty() || context.options.losses.front().mean;
      const double share = mean ? 1.0 / static_cast<double>(context.options.accumulate) : 1.0;
      ir::Builder b(apply, module.locs.Intern("loss of the window"));
      sum = b.Map("x0 * $share", {sum}, apply.type(sum).dtype, {{"share", share}});
      if (b.failed()) return b.TakeStatus();
    }
    apply.SetOutput(out.name, sum);
  }
  train.RemoveOutputs([&](const std::string& name) {
    return window && (name.starts_with("grad:") || name == "loss");
  });
  return {};
}

}  // namespace ampc
