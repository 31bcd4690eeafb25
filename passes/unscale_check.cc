// SPDX-License-Identifier: Apache-2.0
// Unscales all gradients and looks for inf and NaN, in one node.
//
//   before   apply: "grad:<state>" = outputs, scaled
//   after    apply: "grad:<state>" = outputs, unscaled; "found_inf", "grad_norm" = outputs
//
// The check sees exactly what the optimizer will use. It stays without loss scaling too (no scale
// operand then). Test: test/passes/unscale-check.onnxtext
#include "passes/passes.h"

namespace ampc {

Status UnscaleAndCheck(ir::Module& module, PassContext&) {
  AMPC_TRY(Needs(module.apply, "apply"));
  ir::Graph& g = *module.apply;
  const ir::StateId scale = module.FindRole(ir::Role::kScaler);
  std::vector<ir::ValueId> inputs = {scale == ir::kNone ? ir::kNone : g.State(scale)};
  std::vector<std::string> names;
  for (const ir::OutputInfo& out : g.outputs()) {
    if (!out.name.starts_with("grad:")) continue;
    inputs.push_back(out.value);
    names.push_back(out.name);
  }
  if (names.empty()) return Needs(module.apply, "apply", {"grad:…"});
  ir::Builder b(g, module.locs.Intern("unscale and check"));
  const std::vector<ir::ValueId> outs =
      b.Multi(kOwnDomain, "UnscaleCheck", inputs, {}, names.size() + 2);
  if (b.failed()) return b.TakeStatus();
  for (size_t i = 0; i < names.size(); ++i) {
    g.SetOutput(names[i], outs[i]);
    g.Rename(outs[i], names[i]);
  }
  g.Rename(outs[names.size()], "found_inf");
  g.Rename(outs[names.size() + 1], "grad_norm");
  g.SetOutput("found_inf", outs[names.size()]);
  g.SetOutput("grad_norm", outs[names.size() + 1]);
  if (scale != ir::kNone) g.SetOutput("scale", g.State(scale));
  return {};
}

}  // namespace ampc
