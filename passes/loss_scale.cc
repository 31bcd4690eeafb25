// SPDX-License-Identifier: Apache-2.0
// Seeds the backward pass: output "seed" = scale / K for a mean loss, scale for a sum (K =
// micro-batches of a window).
//
//   before   "loss" = output
//   after    "seed" = output; state "loss_scale" when the loss is scaled
//
// Without loss scaling (fp32, bf16, --loss-scale off) the seed is 1 / K and no scale state exists.
// Test: test/passes/loss-scale.onnxtext
#include "passes/passes.h"

namespace ampc {

Status ScaleLoss(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.train, "train", {"loss"}));
  const CompileOptions& o = context.options;
  ir::Graph& g = *module.train;
  const ir::ValueId loss = g.FindOutput("loss");
  const bool mean = o.losses.empty() || o.losses.front().mean;
  const double share = mean ? 1.0 / static_cast<double>(o.accumulate) : 1.0;
  const DType dtype = g.type(loss).dtype;
  ir::Builder b(g, module.locs.Intern("loss scale"));
  ir::ValueId seed;
  if (o.scaler.mode == ScalerSpec::Mode::kOff) {
    seed = b.Scalar(dtype, share);
  } else {
    const ir::StateId scale = module.AddState({.name = "loss_scale",
                                               .type = module.types.Intern(DType::kFloat32, {}),
                                               .role = ir::Role::kScaler,
                                               .initial = {.fill = o.scaler.init_scale},
                                               .setting = "loss_scale.init_scale"});
    seed = b.Map("x0 * $share", {g.State(scale)}, dtype, {{"share", share}});
  }
  if (b.failed()) return b.TakeStatus();
  g.SetOutput("seed", seed);
  return {};
}

}  // namespace ampc
