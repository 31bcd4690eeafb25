// SPDX-License-Identifier: Apache-2.0
// Takes the backward pass that the model has in the place of autodiff's.
//
//   before   "seed", "given:seed" (a feed), "given:grad:<state>" = outputs
//   after    "grad:<state>" = outputs, in the dtype of their states; the feed is gone: the backward
//            pass starts from the seed of pass loss-scale
//
// Test: test/passes/adopt-gradients.onnxtext
#include <unordered_map>

#include "passes/passes.h"

namespace ampc {

Status AdoptGradients(ir::Module& module, PassContext&) {
  AMPC_TRY(Needs(module.train, "train", {"seed", "given:seed"}));
  ir::Graph& g = *module.train;
  if (g.value(g.FindOutput("given:seed")).kind != ir::ValueKind::kFeed)
    return UsageError("E0304", "output 'given:seed' of graph 'train' is no feed");
  constexpr std::string_view kGrad = "given:grad:";
  const ir::ValueId given = g.FindOutput("given:seed");
  ir::Builder b(g, module.locs.Intern("seed of the backward pass"), g.first());
  // The seed is made of a constant and a state: it can stand in front of all that reads it.
  const ir::ValueId made = g.FindOutput("seed");
  if (g.value(made).kind == ir::ValueKind::kNode) {
    const ir::NodeId def = g.value(made).def;
    g.MoveBefore(def, g.first());
    b.set_before(g.node(def).next);
  }
  const ir::TensorType type = g.type(given);
  const ir::ValueId seed = b.Cast(b.Reshape(made, type.dims), type.dtype);
  if (b.failed()) return b.TakeStatus();
  g.RemoveOutputs([](const std::string& name) { return name == "seed" || name == "given:seed"; });
  g.ReplaceUses(given, seed);
  g.RemoveFeed(given);

  std::unordered_map<std::string_view, ir::StateId> states;
  for (size_t s = 0; s < module.states.size(); ++s)
    states.emplace(module.states[s].name, static_cast<ir::StateId>(s));
  b.set_before(ir::kNone);
  const std::vector<ir::OutputInfo> outputs = g.outputs();
  for (const ir::OutputInfo& out : outputs) {
    if (!out.name.starts_with(kGrad)) continue;
    const auto state = states.find(std::string_view(out.name).substr(kGrad.size()));
    if (state == states.end()) return BadInput("E0404", "output '{}' names no state", out.name);
    b.set_loc(module.locs.Intern(fmt::format("gradient of {}", state->first)));
    const ir::TensorType& wanted = module.types.Get(module.state(state->second).type);
    if (g.type(out.value).dims != wanted.dims) {
      return BadInput("E0404", "the gradient of '{}' is {}, the parameter is {}", state->first,
                      ToString(g.type(out.value)), ToString(wanted));
    }
    const ir::ValueId grad = b.Cast(out.value, wanted.dtype);
    if (b.failed()) return b.TakeStatus();
    g.SetOutput(fmt::format("grad:{}", state->first), grad);
  }
  g.RemoveOutputs([&](const std::string& name) { return name.starts_with(kGrad); });
  return {};
}

}  // namespace ampc
