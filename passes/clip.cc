// SPDX-License-Identifier: Apache-2.0
// Clips the unscaled gradients: by global norm (PyTorch's clip_grad_norm_), then by value.
//
//   before   apply: "grad:<state>", "grad_norm" = outputs
//   after    apply: "grad:<state>" = outputs, clipped; hypers "clip_norm", "clip_value"
//
// A non-finite norm has set found_inf already, so the step is skipped. Test:
// test/passes/clip.onnxtext
#include "passes/passes.h"

namespace ampc {
namespace {

std::vector<ir::OutputInfo> Gradients(const ir::Graph& g) {
  std::vector<ir::OutputInfo> grads;
  for (const ir::OutputInfo& out : g.outputs()) {
    if (out.name.starts_with("grad:")) grads.push_back(out);
  }
  return grads;
}

ir::ValueId Limit(ir::Module& module, ir::Builder& b, std::string name, double value, DType dtype) {
  const ir::StateId hyper = module.AddState({.name = name,
                                             .type = module.types.Intern(DType::kFloat64, {}),
                                             .role = ir::Role::kHyper,
                                             .initial = {.fill = value},
                                             .setting = name});
  return b.Cast(b.graph().State(hyper), dtype);
}

}  // namespace

Status ClipGradients(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.apply, "apply"));
  ir::Graph& g = *module.apply;
  if (g.FindOutput("applied") != ir::kNone) {
    return UsageError("E0304",
                      "graph 'apply' has its updates already: what is clipped now would move "
                      "nothing");
  }
  ir::Builder b(g, module.locs.Intern("clip"));
  if (context.options.clip_norm > 0) {
    AMPC_TRY(Needs(module.apply, "apply", {"grad_norm"}));
    const std::vector<ir::OutputInfo> grads = Gradients(g);
    const ir::ValueId norm = g.FindOutput("grad_norm");
    std::vector<ir::ValueId> inputs = {
        norm, Limit(module, b, "clip_norm", context.options.clip_norm, g.type(norm).dtype)};
    for (const ir::OutputInfo& grad : grads) inputs.push_back(grad.value);
    const std::vector<ir::ValueId> outs = b.Multi(kOwnDomain, "ClipNorm", inputs, {}, grads.size());
    if (b.failed()) return b.TakeStatus();
    for (size_t i = 0; i < grads.size(); ++i) g.SetOutput(grads[i].name, outs[i]);
  }
  if (context.options.clip_value > 0) {
    for (const ir::OutputInfo& grad : Gradients(g)) {
      const DType dtype = g.type(grad.value).dtype;
      const ir::StateId known = module.FindSetting("clip_value");
      const ir::ValueId limit =
          known == ir::kNone ? Limit(module, b, "clip_value", context.options.clip_value, dtype)
                             : b.Cast(g.State(known), dtype);
      const ir::ValueId clipped = b.Map("max(-x1, min(x1, x0))", {grad.value, limit}, dtype);
      if (b.failed()) return b.TakeStatus();
      g.SetOutput(grad.name, clipped);
    }
  }
  return {};
}

}  // namespace ampc
