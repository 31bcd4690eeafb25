// SPDX-License-Identifier: Apache-2.0
// Resize, and Interpolate, the own op that its gradient is: linear maps along axes.
#include <algorithm>

#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"
#include "compiler/ops/taps.h"

namespace ampc {
namespace {

// One call per axis; what lies between is not rounded to a low type.
void EmitAxes(LowerContext& c, const std::vector<AxisTaps>& taps, DType between, double fill) {
  if (taps.empty()) {
    c.Alias(0, c.in(0));
    return;
  }
  Operand x = c.in(0);
  for (size_t i = 0; i < taps.size(); ++i) {
    const AxisTaps& t = taps[i];
    Operand y = c.out(0);
    if (i + 1 < taps.size()) {
      TensorDesc step{between, c.desc(x).dims};
      step.dims[static_cast<size_t>(t.axis)] = t.out;
      y = c.Temp(std::move(step));
    }
    c.Call("interpolate",
           {{"axis", t.axis},
            {"begins", t.begins},
            {"indices", t.indices},
            {"weights", t.weights},
            {"fill", fill}},
           {x}, {y});
    x = y;
  }
}

// ---- Resize

Status LowerResize(LowerContext& c) {
  const auto known = [&](size_t i) -> Result<const HostTensor*> {
    if (i >= c.num_inputs() || c.in(i) == ir::kNone) return static_cast<const HostTensor*>(nullptr);
    if (c.Constant(i) == nullptr)
      return BadInput("E0108", "input {} is not known at compile time", i);
    return c.Constant(i);
  };
  AMPC_ASSIGN(const HostTensor* roi, known(1));
  AMPC_ASSIGN(const HostTensor* scales, known(2));
  AMPC_ASSIGN(const HostTensor* sizes, known(3));
  const ir::TensorType& y = c.graph().type(c.node().outputs[0]);
  const TensorDesc& x = c.desc(c.in(0));
  AMPC_ASSIGN(const std::vector<AxisTaps> taps,
              ResizeTaps(c.attrs(), x.dims, y.dims, roi, scales, sizes));
  const bool nearest = c.attrs().String("mode", "nearest") == "nearest";
  const DType between = nearest                      ? x.dtype
                        : x.dtype == DType::kFloat64 ? DType::kFloat64
                        : IsFloat(x.dtype)           ? DType::kFloat32
                                                     : DType::kFloat64;
  EmitAxes(c, taps, between, c.attrs().Float("extrapolation_value"));
  return {};
}

Status GradResize(GradContext& g) {
  if (!g.Needs(0)) return {};
  const Dims x = g.type(g.x(0)).dims;
  const auto constant = [&](size_t i) {
    return g.x(i) == ir::kNone ? nullptr : g.graph().ConstantOf(g.x(i));
  };
  AMPC_ASSIGN(std::vector<AxisTaps> taps,
              ResizeTaps(g.attrs(), x, g.type(g.y()).dims, constant(1), constant(2), constant(3)));
  std::reverse(taps.begin(), taps.end());
  for (AxisTaps& t : taps) t = t.Transposed();
  g.Set(0, taps.empty() ? g.dy() : g.b.Own("Interpolate", {g.dy()}, InterpolateAttrs(taps, x)));
  return {};
}

// ---- Interpolate

Status InferInterpolate(InferContext& c) {
  auto taps = ReadTaps(c.attrs, c.in(0).dims);
  if (!taps.ok()) return std::move(taps).TakeStatus();
  c.outputs = {{c.in(0).dtype, c.attrs.Ints("dims")}};
  return {};
}

Status LowerInterpolate(LowerContext& c) {
  const TensorDesc& x = c.desc(c.in(0));
  AMPC_ASSIGN(const std::vector<AxisTaps> taps, ReadTaps(c.attrs(), x.dims));
  EmitAxes(c, taps, AccOf(x.dtype), 0);
  return {};
}

Status GradInterpolate(GradContext& g) {
  const Dims x = g.type(g.x(0)).dims;
  AMPC_ASSIGN(std::vector<AxisTaps> taps, ReadTaps(g.attrs(), x));
  std::reverse(taps.begin(), taps.end());
  for (AxisTaps& t : taps) t = t.Transposed();
  if (g.Needs(0)) g.Set(0, g.b.Own("Interpolate", {g.dy()}, InterpolateAttrs(taps, x)));
  return {};
}

// Per axis: a zero behind the end, so many gathered elements for each result as the longest list
// has taps (shorter ones read the zero), weighted and summed.
std::string AxisText(const AxisTaps& t, std::string_view from, std::string_view to, Dims dims,
                     DType acc) {
  const auto axis = static_cast<size_t>(t.axis);
  int64_t most = 1;
  for (size_t o = 0; o < static_cast<size_t>(t.out); ++o)
    most = std::max(most, t.begins[o + 1] - t.begins[o]);
  std::string indices, weights;
  for (size_t o = 0; o < static_cast<size_t>(t.out); ++o) {
    for (int64_t k = t.begins[o]; k < t.begins[o] + most; ++k) {
      const bool tap = k < t.begins[o + 1];
      const auto i = static_cast<size_t>(k);
      const std::string_view comma = indices.empty() ? "" : ", ";
      indices += fmt::format("{}{}", comma, tap ? t.indices[i] : t.in);
      weights += fmt::format("{}{}", comma, NumberText(tap ? t.weights[i] : 0));
    }
  }
  dims[axis] = 1;
  const Dims one = dims;
  dims[axis] = t.out;
  dims.insert(dims.begin() + t.axis + 1, most);
  Dims factor(dims.size(), 1);
  factor[axis] = t.out;
  factor[axis + 1] = most;
  return fmt::format(
      "{0}_n = Constant <value_ints = [{1}]> ()\n{0}_f = ConstantOfShape <value = float[1] {{0}}> "
      "({0}_n)\n{0}_z = Cast <to = {2}> ({0}_f)\n{0}_c = Concat <axis = {3}> ({4}, {0}_z)\n"
      "{0}_i = Constant <value = int64[{5}] {{{6}}}> ()\n{0}_g = Gather <axis = {3}> ({0}_c, "
      "{0}_i)\n{0}_s = Constant <value_ints = [{7}]> ()\n{0}_r = Reshape <allowzero = 1> ({0}_g, "
      "{0}_s)\n{0}_w = Constant <value = {8}[{9}] {{{10}}}> ()\n{0}_m = Mul ({0}_r, {0}_w)\n"
      "{0}_a = Constant <value_ints = [{11}]> ()\n{0} = ReduceSum <keepdims = 0> ({0}_m, {0}_a)\n",
      to, ListText(one), static_cast<int>(acc), t.axis, from, t.out * most, indices, ListText(dims),
      Name(acc), ListText(factor), weights, t.axis + 1);
}

Result<std::string> BodyInterpolate(const BodyContext& c) {
  Dims dims = c.inputs[0]->dims;
  const auto to = static_cast<int>(c.outputs[0]->dtype);
  AMPC_ASSIGN(const std::vector<AxisTaps> taps, ReadTaps(c.attrs, dims));
  if (c.outputs[0]->elements() == 0 || c.inputs[0]->elements() == 0) {
    return fmt::format(
        "n = Constant <value_ints = [{}]> ()\nz = ConstantOfShape <value = float[1] {{0}}> (n)\n"
        "o0 = Cast <to = {}> (z)\n",
        ListText(c.outputs[0]->dims), to);
  }
  const DType acc = AccOf(c.inputs[0]->dtype);
  std::string text = fmt::format("t0 = Cast <to = {}> (i0)\n", static_cast<int>(acc));
  size_t step = 0;
  for (const AxisTaps& t : taps) {
    text += AxisText(t, fmt::format("t{}", step), fmt::format("t{}", step + 1), dims, acc);
    dims[static_cast<size_t>(t.axis)] = t.out;
    ++step;
  }
  return text + fmt::format("o0 = Cast <to = {}> (t{})\n", to, step);
}

// clang-format off
constexpr OpDef kOps[] = {
    {.name = "Resize", .since = 19, .in = {1, 4}, .cast = kFp32OnCuda, .fp32_slots = 0b110, .no_gradient_slots = 0b1110, .grad = GradResize, .lower = LowerResize},
    {.domain = kOwnDomain, .name = "Interpolate", .infer = InferInterpolate, .grad = GradInterpolate, .lower = LowerInterpolate, .body = BodyInterpolate},
};
// clang-format on

}  // namespace

std::span<const OpDef> ResizeOps() { return kOps; }

}  // namespace ampc
