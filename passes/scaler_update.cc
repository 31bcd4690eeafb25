// SPDX-License-Identifier: Apache-2.0
// Counts consecutive skips and, with dynamic loss scaling, grows, backs off and clamps the scale.
//
//   before   apply: "found_inf" = output; state "loss_scale" when the loss is scaled
//   after    next of "loss_scale", "growth_tracker", "hysteresis_tracker", "consecutive_skips";
//   "skips" = output
//
// A static scale and an unscaled step only count. Test: test/passes/scaler-update.onnxtext
#include "passes/passes.h"

namespace ampc {
namespace {

ir::StateId Scalar(ir::Module& module, std::string name, DType dtype, ir::Role role, double fill,
                   std::string setting = "") {
  return module.AddState({.name = std::move(name),
                          .type = module.types.Intern(dtype, {}),
                          .role = role,
                          .initial = {.fill = fill},
                          .setting = std::move(setting)});
}

}  // namespace

Status UpdateScaler(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.apply, "apply", {"found_inf"}));
  ir::Graph& g = *module.apply;
  const ScalerSpec& o = context.options.scaler;
  const ir::ValueId found_inf = g.FindOutput("found_inf");
  ir::Builder b(g, module.locs.Intern("scaler update"));
  const ir::StateId skips =
      Scalar(module, "consecutive_skips", DType::kInt64, ir::Role::kCounter, 0);
  if (o.mode != ScalerSpec::Mode::kDynamic) {
    const ir::ValueId next =
        b.Map("where(x1, x0 + 1, 0)", {g.State(skips), found_inf}, DType::kInt64);
    if (b.failed()) return b.TakeStatus();
    g.SetNext(skips, next);
    g.SetOutput("skips", next);
    return {};
  }
  const ir::StateId scale = module.FindRole(ir::Role::kScaler);
  if (scale == ir::kNone)
    return UsageError("E0304", "the scaler state is missing: a pass before this one did not run");
  const ir::StateId growth = Scalar(module, "growth_tracker", DType::kInt32, ir::Role::kScaler, 0);
  const ir::StateId hysteresis = Scalar(module, "hysteresis_tracker", DType::kInt32,
                                        ir::Role::kScaler, static_cast<double>(o.hysteresis));
  std::vector<ir::ValueId> inputs = {g.State(scale), g.State(growth), g.State(hysteresis),
                                     g.State(skips), found_inf};
  const std::pair<const char*, double> hypers[] = {
      {"growth_factor", o.growth_factor},
      {"backoff_factor", o.backoff_factor},
      {"growth_interval", static_cast<double>(o.growth_interval)},
      {"min_scale", o.min_scale},
      {"max_scale", o.max_scale},
      {"hysteresis", static_cast<double>(o.hysteresis)}};
  for (const auto& [name, value] : hypers) {
    const std::string setting = fmt::format("loss_scale.{}", name);
    inputs.push_back(
        g.State(Scalar(module, setting, DType::kFloat64, ir::Role::kHyper, value, setting)));
  }
  const std::vector<ir::ValueId> outs = b.Multi(kOwnDomain, "ScalerUpdate", inputs, {}, 4);
  if (b.failed()) return b.TakeStatus();
  const ir::StateId states[] = {scale, growth, hysteresis, skips};
  for (size_t i = 0; i < 4; ++i) g.SetNext(states[i], outs[i]);
  g.SetOutput("skips", outs[3]);
  return {};
}

}  // namespace ampc
