// SPDX-License-Identifier: Apache-2.0
// Reductions: the user's (ONNX) and ReduceSum of our own domain, which autodiff makes: it keeps its
// input's dtype (or gives `to`), accumulates in fp32, and no policy touches it.
#include <algorithm>

#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

std::vector<int64_t> Normal(std::vector<int64_t> axes, size_t rank) {
  for (int64_t& a : axes) a = NormalAxis(a, rank);
  std::sort(axes.begin(), axes.end());
  return axes;
}

// Axes of an ONNX reduction: input 1, or all unless noop_with_empty_axes.
Result<std::vector<int64_t>> AxesOf(const Attrs& attrs, bool has_axes, const HostTensor* axes,
                                    size_t rank) {
  if (has_axes && axes == nullptr) return BadInput("E0108", "'axes' is not known at compile time");
  if (axes != nullptr && axes->elements() > 0) return Normal(axes->Ints(), rank);
  std::vector<int64_t> all;
  if (attrs.Int("noop_with_empty_axes") == 0) {
    for (size_t i = 0; i < rank; ++i) all.push_back(static_cast<int64_t>(i));
  }
  return all;
}

Result<std::vector<int64_t>> AxesOf(const GradContext& g) {
  return AxesOf(g.attrs(), g.x(1) != ir::kNone, g.graph().ConstantOf(g.x(1)),
                g.type(g.x(0)).dims.size());
}

Status LowerReduceAs(LowerContext& c, std::string_view op) {
  const bool has_axes = c.num_inputs() > 1 && c.in(1) != ir::kNone;
  AMPC_ASSIGN(std::vector<int64_t> axes,
              AxesOf(c.attrs(), has_axes, c.Constant(1), c.desc(c.in(0)).dims.size()));
  c.Call("reduce", {{"op", std::string(op)}, {"axes", std::move(axes)}}, {c.in(0)}, {c.out(0)});
  return {};
}

Status LowerSum(LowerContext& c) { return LowerReduceAs(c, "sum"); }
Status LowerMean(LowerContext& c) { return LowerReduceAs(c, "mean"); }
Status LowerMax(LowerContext& c) { return LowerReduceAs(c, "max"); }
Status LowerMin(LowerContext& c) { return LowerReduceAs(c, "min"); }
Status LowerProd(LowerContext& c) { return LowerReduceAs(c, "prod"); }
Status LowerL1(LowerContext& c) { return LowerReduceAs(c, "l1"); }
Status LowerL2(LowerContext& c) { return LowerReduceAs(c, "l2"); }
Status LowerSumSquare(LowerContext& c) { return LowerReduceAs(c, "sum_square"); }
Status LowerLogSum(LowerContext& c) { return LowerReduceAs(c, "log_sum"); }
Status LowerLogSumExp(LowerContext& c) { return LowerReduceAs(c, "log_sum_exp"); }

// The reduced value or its gradient with the reduced axes kept as 1, so that it broadcasts against
// x.
Result<ir::ValueId> Kept(GradContext& g, ir::ValueId v) {
  AMPC_ASSIGN(const std::vector<int64_t> axes, AxesOf(g));
  Dims dims = g.type(g.x(0)).dims;
  for (int64_t a : axes) dims[static_cast<size_t>(a)] = 1;
  return g.b.Reshape(v, dims);
}

// dx = expr over x0 = dy, x1 = x, x2 = y (the last two broadcast); computed in fp32, rounded once.
Status GradReduceAs(GradContext& g, std::string_view expr, Attrs params = {}) {
  if (!g.Needs(0)) return {};
  AMPC_ASSIGN(const ir::ValueId dy, Kept(g, g.dy()));
  AMPC_ASSIGN(const ir::ValueId y, Kept(g, g.y()));
  g.Set(0, g.b.Map(expr, {dy, g.x(0), y}, g.type(g.x(0)).dtype, std::move(params)));
  return {};
}

Status GradSum(GradContext& g) {
  if (!g.Needs(0)) return {};
  AMPC_ASSIGN(const ir::ValueId dy, Kept(g, g.dy()));
  g.Set(0, g.b.Expand(dy, g.type(g.x(0)).dims));
  return {};
}

Status GradMean(GradContext& g) {
  if (!g.Needs(0)) return {};
  const auto n = static_cast<double>(g.type(g.x(0)).elements()) /
                 static_cast<double>(std::max<int64_t>(g.type(g.y()).elements(), 1));
  AMPC_ASSIGN(const ir::ValueId dy, Kept(g, g.dy()));
  const ir::ValueId share = g.b.Map("x0 / $n", {dy}, g.type(g.x(0)).dtype, {{"n", n}});
  g.Set(0, g.b.Expand(share, g.type(g.x(0)).dims));
  return {};
}

// Equal elements share equally.
Status GradExtreme(GradContext& g) {
  if (!g.Needs(0)) return {};
  AMPC_ASSIGN(const std::vector<int64_t> axes, AxesOf(g));
  AMPC_ASSIGN(const ir::ValueId dy, Kept(g, g.dy()));
  AMPC_ASSIGN(const ir::ValueId y, Kept(g, g.y()));
  const DType acc = AccOf(g.type(g.x(0)).dtype);
  const ir::ValueId hit = g.b.Map("x0 == x1", {g.x(0), y}, acc);
  const ir::ValueId count = g.b.ReduceSum(hit, axes, true);
  g.Set(0, g.b.Map("where(x1 > 0, x0 / x2, 0)", {dy, hit, count}, g.type(g.x(0)).dtype));
  return {};
}

Status GradL1(GradContext& g) { return GradReduceAs(g, "x0 * sign(x1)"); }
Status GradL2(GradContext& g) { return GradReduceAs(g, "where(x2 == 0, 0, x0 * (x1 / x2))"); }
Status GradSumSquare(GradContext& g) { return GradReduceAs(g, "x0 * (2 * x1)"); }
Status GradLogSum(GradContext& g) { return GradReduceAs(g, "x0 / exp(x2) + 0 * x1"); }
Status GradLogSumExp(GradContext& g) { return GradReduceAs(g, "x0 * exp(x1 - x2)"); }

// d prod / dx_i = product of the others, also when some are zero.
Status GradProd(GradContext& g) {
  if (!g.Needs(0)) return {};
  AMPC_ASSIGN(const std::vector<int64_t> axes, AxesOf(g));
  AMPC_ASSIGN(const ir::ValueId dy, Kept(g, g.dy()));
  const DType acc = AccOf(g.type(g.x(0)).dtype);
  const ir::ValueId nonzero = g.b.Map("where(x0 == 0, 1, x0)", {g.x(0)}, acc);
  const ir::ValueId product =
      g.b.Op("ReduceProd", {nonzero, g.b.Ints(axes)},
             {{"keepdims", int64_t{1}}, {"noop_with_empty_axes", int64_t{1}}});
  const ir::ValueId zeros = g.b.ReduceSum(g.b.Map("x0 == 0", {g.x(0)}, acc), axes, true);
  g.Set(0, g.b.Map("x0 * where(x3 == 0, x2 / x1, where(x3 == 1 && x1 == 0, x2, 0))",
                   {dy, g.x(0), product, zeros}, g.type(g.x(0)).dtype));
  return {};
}

// ---- ArgMax, ArgMin

Status LowerArg(LowerContext& c, std::string_view op) {
  c.Call("arg_reduce",
         {{"op", std::string(op)},
          {"axis", NormalAxis(c.attrs().Int("axis"), c.desc(c.in(0)).dims.size())},
          {"select_last_index", c.attrs().Int("select_last_index")}},
         {c.in(0)}, {c.out(0)});
  return {};
}
Status LowerArgMax(LowerContext& c) { return LowerArg(c, "max"); }
Status LowerArgMin(LowerContext& c) { return LowerArg(c, "min"); }

// ---- own ReduceSum

Status InferOwnSum(InferContext& c) {
  const ir::TensorType& x = c.in(0);
  const std::vector<int64_t> axes = c.attrs.Ints("axes");
  Dims dims;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!reduced) {
      dims.push_back(x.dims[i]);
    } else if (c.attrs.Int("keepdims") != 0) {
      dims.push_back(1);
    }
  }
  c.outputs = {
      {static_cast<DType>(c.attrs.Int("to", static_cast<int64_t>(x.dtype))), std::move(dims)}};
  return {};
}

Status LowerOwnSum(LowerContext& c) {
  c.Call("reduce", {{"op", std::string("sum")}, {"axes", c.attrs().Ints("axes")}}, {c.in(0)},
         {c.out(0)});
  return {};
}

Status GradOwnSum(GradContext& g) {
  if (!g.Needs(0)) return {};
  Dims kept = g.type(g.x(0)).dims;
  for (int64_t a : g.attrs().Ints("axes")) kept[static_cast<size_t>(a)] = 1;
  g.Set(0, g.b.Expand(g.b.Reshape(g.dy(), kept), g.type(g.x(0)).dims));
  return {};
}

Result<std::string> BodyOwnSum(const BodyContext& c) {
  const DType compute = IsFloat(c.inputs[0]->dtype) && c.inputs[0]->dtype != DType::kFloat64
                            ? DType::kFloat32
                            : c.inputs[0]->dtype;
  std::vector<int64_t> axes = c.attrs.Ints("axes");
  std::sort(axes.begin(), axes.end());
  std::string t = fmt::format("w = Cast <to = {}> (i0)\n", static_cast<int>(compute)) +
                  SumText("s", "w", axes, c.inputs[0]->dims, compute);
  const bool squeeze = c.attrs.Int("keepdims") == 0 && !axes.empty();
  if (squeeze)
    t += fmt::format("a = Constant <value_ints = [{}]> ()\nr = Squeeze (s, a)\n", ListText(axes));
  return t + fmt::format("o0 = Cast <to = {}> ({})\n", static_cast<int>(c.outputs[0]->dtype),
                         squeeze ? "r" : "s");
}

constexpr OpDef Reduce(std::string_view name, CastClasses cast, GradFn grad, LowerFn lower) {
  const bool recent = name == "ReduceMax" || name == "ReduceMin";
  return {.name = name,
          .since = name == "ReduceSum" ? 13
                   : recent            ? 20
                                       : 18,
          .in = {1, 2},
          .cast = cast,
          .grad = grad,
          .lower = lower,
          .traits = {.reads_any_layout = true}};
}

constexpr OpDef kOps[] = {
    Reduce("ReduceSum", kFp32OnCuda, GradSum, LowerSum),
    Reduce("ReduceMean", kFollowClass, GradMean, LowerMean),
    Reduce("ReduceMax", kFollowClass, GradExtreme, LowerMax),
    Reduce("ReduceMin", kFollowClass, GradExtreme, LowerMin),
    Reduce("ReduceProd", kFp32Class, GradProd, LowerProd),
    Reduce("ReduceL1", kFp32OnCuda, GradL1, LowerL1),
    Reduce("ReduceL2", kFp32OnCuda, GradL2, LowerL2),
    Reduce("ReduceSumSquare", kFp32OnCuda, GradSumSquare, LowerSumSquare),
    Reduce("ReduceLogSum", kFp32OnCuda, GradLogSum, LowerLogSum),
    Reduce("ReduceLogSumExp", kFp32OnCuda, GradLogSumExp, LowerLogSumExp),
    {.name = "ArgMax", .since = 13, .grad = NoGradient, .lower = LowerArgMax},
    {.name = "ArgMin", .since = 13, .grad = NoGradient, .lower = LowerArgMin},
    {.domain = kOwnDomain,
     .name = "ReduceSum",
     .infer = InferOwnSum,
     .grad = GradOwnSum,
     .lower = LowerOwnSum,
     .body = BodyOwnSum,
     .traits = {.reads_any_layout = true, .wide_output = true}},
};

}  // namespace

std::span<const OpDef> ReduceOps() { return kOps; }

}  // namespace ampc
