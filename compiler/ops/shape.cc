// SPDX-License-Identifier: Apache-2.0
// Constants, and ops that change only the form: the bytes of the result are the bytes of slot 0.
#include "compiler/ir/builder.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

Status InferConstant(InferContext& c) {
  const HostTensor* value = c.attrs.Tensor("value");
  if (value == nullptr)
    return BadInput("E0107", "a Constant needs its tensor in the attribute 'value'");
  c.outputs = {{value->dtype, value->dims}};
  return {};
}

Status GradReshape(GradContext& g) {
  if (g.Needs(0)) g.Set(0, g.b.Reshape(g.dy(), g.type(g.x(0)).dims));
  return {};
}

Status LowerView(LowerContext& c) {
  c.Alias(0, c.in(0));
  return {};
}

Status LowerConstant(LowerContext&) { return {}; }  // the lowering itself places constants

constexpr Traits kView{.movement = true, .view = true};

constexpr OpDef kOps[] = {
    {.name = "Constant",
     .since = 23,
     .in = 0,
     .infer = InferConstant,
     .grad = NoGradient,
     .lower = LowerConstant,
     .traits = {.constant = true}},
    {.name = "Identity",
     .since = 21,
     .grad = GradReshape,
     .lower = LowerView,
     .traits = {.movement = true, .view = true, .any_layout = true}},
    {.name = "Reshape",
     .since = 21,
     .in = 2,
     .grad = GradReshape,
     .lower = LowerView,
     .traits = kView},
    {.name = "Flatten", .since = 21, .grad = GradReshape, .lower = LowerView, .traits = kView},
    {.name = "Squeeze",
     .since = 21,
     .in = {1, 2},
     .grad = GradReshape,
     .lower = LowerView,
     .traits = kView},
    {.name = "Unsqueeze",
     .since = 21,
     .in = 2,
     .grad = GradReshape,
     .lower = LowerView,
     .traits = kView},
};

}  // namespace

std::span<const OpDef> ShapeOps() { return kOps; }

}  // namespace ampc
