// SPDX-License-Identifier: Apache-2.0
// Rare norms, made of kernels that are there: LpNormalization, MeanVarianceNormalization, LRN.
// What they sum is kept in fp32 (double for double) between the calls and in the backward pass, so
// low data neither overflow nor lose digits on the way.
#include <algorithm>

#include "compiler/ir/builder.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

Dims Kept(Dims dims, const std::vector<int64_t>& axes) {
  for (const int64_t a : axes) dims[static_cast<size_t>(a)] = 1;
  return dims;
}

/// A reduction that keeps its axes, into a temporary.
Operand Reduced(LowerContext& c, std::string_view op, const std::vector<int64_t>& axes,
                Operand from) {
  const TensorDesc x = c.desc(from);
  const Operand to = c.Temp({AccOf(x.dtype), Kept(x.dims, axes)});
  c.Call("reduce", {{"op", std::string(op)}, {"axes", axes}}, {from}, {to});
  return to;
}

// ---- LpNormalization: x over its norm along one axis; 0 where that is 0

Status CheckLp(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  if (const int64_t p = attrs.Int("p", 2); p != 1 && p != 2)
    return BadInput("E0107", "p is {}, expected 1 or 2", p);
  return CheckAxis(attrs.Int("axis", -1), inputs[0]->dims.size());
}

Status LowerLp(LowerContext& c) {
  const int64_t axis = NormalAxis(c.attrs().Int("axis", -1), c.desc(c.in(0)).dims.size());
  const Operand norm = Reduced(c, c.attrs().Int("p", 2) == 1 ? "l1" : "l2", {axis}, c.in(0));
  c.Call("map", {{"expr", std::string("where(x1 == 0, 0, x0 / x1)")}}, {c.in(0), norm}, {c.out(0)});
  return {};
}

Status GradLp(GradContext& g) {
  if (!g.Needs(0)) return {};
  const ir::TensorType x = g.type(g.x(0));
  const bool one = g.attrs().Int("p", 2) == 1;
  const std::vector<int64_t> axes = {NormalAxis(g.attrs().Int("axis", -1), x.dims.size())};
  const DType acc = AccOf(x.dtype);
  const ir::ValueId norm =
      g.b.Op(one ? "ReduceL1" : "ReduceL2", {g.b.Cast(g.x(0), acc), g.b.Ints(axes)},
             {{"keepdims", int64_t{1}}});
  const ir::ValueId dot = g.b.ReduceSum(g.b.Map("x0 * x1", {g.dy(), g.x(0)}, acc), axes, true);
  g.Set(0, g.b.Map(one ? "where(x3 == 0, 0, (x0 - sign(x1) * x2 / x3) / x3)"
                       : "where(x3 == 0, 0, (x0 - x1 / x3 * (x2 / x3)) / x3)",
                   {g.dy(), g.x(0), dot, norm}, x.dtype));
  return {};
}

// ---- MeanVarianceNormalization: (x - mean) / (deviation + 1e-9) over `axes`

std::vector<int64_t> MvnAxes(const Attrs& attrs, size_t rank) {
  std::vector<int64_t> axes = attrs.Ints("axes", {0, 2, 3});
  for (int64_t& a : axes) a = NormalAxis(a, rank);
  std::sort(axes.begin(), axes.end());
  return axes;
}

Status CheckMvn(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  for (const int64_t axis : attrs.Ints("axes", {0, 2, 3}))
    AMPC_TRY(CheckAxis(axis, inputs[0]->dims.size()));
  const std::vector<int64_t> axes = MvnAxes(attrs, inputs[0]->dims.size());
  if (axes.empty() || std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    return BadInput("E0107", "axes {} are none, or one of them twice", ToString(axes));
  return {};
}

// ONNX's schema infers nothing.
Status InferMvn(InferContext& c) {
  c.outputs = {c.in(0)};
  return {};
}

Status LowerMvn(LowerContext& c) {
  const TensorDesc x = c.desc(c.in(0));
  const std::vector<int64_t> axes = MvnAxes(c.attrs(), x.dims.size());
  const Operand mean = Reduced(c, "mean", axes, c.in(0));
  const Operand square = c.Temp({AccOf(x.dtype), x.dims});
  c.Call("map", {{"expr", std::string("(x0 - x1) * (x0 - x1)")}}, {c.in(0), mean}, {square});
  const Operand var = Reduced(c, "mean", axes, square);
  c.Call("map", {{"expr", std::string("(x0 - x1) / (sqrt(x2) + 1e-9)")}}, {c.in(0), mean, var},
         {c.out(0)});
  return {};
}

Status GradMvn(GradContext& g) {
  if (!g.Needs(0)) return {};
  const ir::TensorType x = g.type(g.x(0));
  const std::vector<int64_t> axes = MvnAxes(g.attrs(), x.dims.size());
  const DType acc = AccOf(x.dtype);
  const auto mean = [&](ir::ValueId v) {
    return g.b.Op("ReduceMean", {v, g.b.Ints(axes)}, {{"keepdims", int64_t{1}}});
  };
  const ir::ValueId d = g.b.Op("Sub", {g.b.Cast(g.x(0), acc), mean(g.b.Cast(g.x(0), acc))});
  const ir::ValueId deviation = g.b.Op("Sqrt", {mean(g.b.Mul(d, d))});
  const ir::ValueId dy = g.b.Cast(g.dy(), acc);
  const ir::ValueId dot = mean(g.b.Mul(dy, d));
  g.Set(
      0,
      g.b.Map(
          "(x0 - x1) / (x4 + 1e-9) - where(x4 == 0, 0, x2 * (x3 / x4) / (x4 + 1e-9) / (x4 + 1e-9))",
          {dy, mean(dy), d, dot, deviation}, x.dtype));
  return {};
}

// ---- LRN: x / (bias + alpha * a)^beta, a = the mean of x^2 over `size` neighbouring channels,
// those beyond the ends counted as 0: an average pool along the channels of [N, 1, C, positions]

Status CheckLrn(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  if (inputs[0]->rank() < 2)
    return BadInput("E0107", "input {} has no channel axis (axis 1)", ToString(*inputs[0]));
  if (attrs.Int("size") < 1)
    return BadInput("E0107", "size is {}, expected 1 or more", attrs.Int("size"));
  return {};
}

Dims Planes(const Dims& x) { return {x[0], 1, x[1], NumElements(std::span(x).subspan(2))}; }

Attrs ChannelWindow(const Attrs& attrs) {
  const int64_t size = attrs.Int("size"), before = (size - 1) / 2;
  return {{"kernel_shape", std::vector<int64_t>{size, 1}},
          {"strides", std::vector<int64_t>{1, 1}},
          {"dilations", std::vector<int64_t>{1, 1}},
          {"pads", std::vector<int64_t>{before, 0, size - 1 - before, 0}},
          {"count_include_pad", int64_t{1}}};
}
Attrs LrnParams(const Attrs& attrs) {
  return {{"alpha", attrs.Float("alpha", 1e-4)},
          {"beta", attrs.Float("beta", 0.75)},
          {"bias", attrs.Float("bias", 1)}};
}

Status LowerLrn(LowerContext& c) {
  const TensorDesc x = c.desc(c.in(0));
  const TensorDesc whole{AccOf(x.dtype), x.dims}, planes{whole.dtype, Planes(x.dims)};
  const Operand square = c.Temp(whole), mean = c.Temp(planes);
  c.Call("map", {{"expr", std::string("x0 * x0")}}, {c.in(0)}, {square});
  c.Call("pool_avg", ChannelWindow(c.attrs()), {c.View(square, planes)}, {mean});
  Attrs params = LrnParams(c.attrs());
  params.Set("expr", std::string("x0 * pow($bias + $alpha * x1, -$beta)"));
  c.Call("map", std::move(params), {c.in(0), c.View(mean, whole)}, {c.out(0)});
  return {};
}

Status GradLrn(GradContext& g) {
  if (!g.Needs(0)) return {};
  const ir::TensorType x = g.type(g.x(0));
  const DType acc = AccOf(x.dtype);
  const Dims planes = Planes(x.dims);
  const auto plane = [&](ir::ValueId v) { return g.b.Reshape(g.b.Cast(v, acc), planes); };
  const ir::ValueId dy = plane(g.dy()), data = plane(g.x(0));
  const Attrs params = LrnParams(g.attrs());
  Attrs window = ChannelWindow(g.attrs());
  const ir::ValueId mean = g.b.Op("AveragePool", {g.b.Mul(data, data)}, window);
  const ir::ValueId inner =
      g.b.Map("x0 * x1 * pow($bias + $alpha * x2, -$beta - 1)", {dy, data, mean}, acc, params);
  window.Set("dims", planes);
  const ir::ValueId around = g.b.Own("AveragePoolGrad", {inner}, std::move(window));
  const ir::ValueId dx =
      g.b.Map("x0 * pow($bias + $alpha * x2, -$beta) - 2 * $alpha * $beta * x1 * x3",
              {dy, data, mean, around}, x.dtype, params);
  g.Set(0, g.b.Reshape(dx, x.dims));
  return {};
}

// clang-format off
constexpr OpDef kOps[] = {
    {.name = "LpNormalization", .since = 22, .cast = kFp32OnCuda, .check = CheckLp, .grad = GradLp, .lower = LowerLp},
    {.name = "MeanVarianceNormalization", .since = 13, .cast = kFp32OnCuda, .check = CheckMvn, .infer = InferMvn, .grad = GradMvn, .lower = LowerMvn},
    {.name = "LRN", .since = 13, .cast = kFp32OnCuda, .check = CheckLrn, .grad = GradLrn, .lower = LowerLrn},
};
// clang-format on

}  // namespace

std::span<const OpDef> NormMapOps() { return kOps; }

}  // namespace ampc
