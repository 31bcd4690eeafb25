// SPDX-License-Identifier: Apache-2.0
// GridSample and its gradients.
#include "compiler/ir/builder.h"
#include "compiler/ops/grid_sample.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

Attrs Sampling(const Attrs& attrs) {
  return {{"mode", std::string(attrs.String("mode", "linear"))},
          {"padding_mode", std::string(attrs.String("padding_mode", "zeros"))},
          {"align_corners", attrs.Int("align_corners")}};
}

Status LowerGridSample(LowerContext& c) {
  if (c.desc(c.in(0)).dims.size() > 5) {
    return Unsupported("E0102", "an input of rank {} is not supported, 4 and 5 are",
                       c.desc(c.in(0)).dims.size());
  }
  c.Call("grid_sample", Sampling(c.attrs()), {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}

Status GradGridSample(GradContext& g) {
  if (g.Needs(0)) {
    Attrs attrs = Sampling(g.attrs());
    attrs.Set("dims", g.type(g.x(0)).dims);
    g.Set(0, g.b.Own("GridSampleGradInput", {g.dy(), g.x(1)}, std::move(attrs)));
  }
  if (g.Needs(1))
    g.Set(1, g.b.Own("GridSampleGradGrid", {g.dy(), g.x(0), g.x(1)}, Sampling(g.attrs())));
  return {};
}

Status InferGradInput(InferContext& c) {
  const Dims dims = c.attrs.Ints("dims");
  if (dims.size() != c.in(0).dims.size() || dims.size() != c.in(1).dims.size())
    return BadInput("E0107", "dims {} do not fit a gradient of dims {} and a grid of dims {}",
                    ToString(dims), ToString(c.in(0).dims), ToString(c.in(1).dims));
  c.outputs = {{c.in(0).dtype, dims}};
  return {};
}

Status InferGradGrid(InferContext& c) {
  c.outputs = {c.in(2)};
  return {};
}

Status LowerGradInput(LowerContext& c) {
  c.Call("grid_sample_bwd", Sampling(c.attrs()), {c.in(0), ir::kNone, c.in(1)}, {c.out(0)});
  return {};
}

Status LowerGradGrid(LowerContext& c) {
  c.Call("grid_sample_bwd", Sampling(c.attrs()), {c.in(0), c.in(1), c.in(2)},
         {ir::kNone, c.out(0)});
  return {};
}

// clang-format off
constexpr OpDef kOps[] = {
    {.name = "GridSample", .since = 22, .in = 2, .cast = {CastClass::kWidest, CastClass::kFp32}, .grad = GradGridSample, .lower = LowerGridSample},
    {.domain = kOwnDomain, .name = "GridSampleGradInput", .in = 2, .infer = InferGradInput, .lower = LowerGradInput, .body = BodyGridSampleGradInput},
    {.domain = kOwnDomain, .name = "GridSampleGradGrid", .in = 3, .infer = InferGradGrid, .lower = LowerGradGrid, .body = BodyGridSampleGradGrid},
};
// clang-format on

}  // namespace

std::span<const OpDef> GridSampleOps() { return kOps; }

}  // namespace ampc
