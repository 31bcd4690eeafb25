// SPDX-License-Identifier: Apache-2.0
// Ops along one axis: CumSum, CumProd (an own op: ONNX has it from opset 26 on, the canonical form
// is older), ReverseSequence, Tile; and Trilu over the last two.
#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

using ir::ValueId;

// ---- CumSum, CumProd

Result<int64_t> AxisOf(const HostTensor* axis, size_t rank) {
  if (axis == nullptr) return BadInput("E0108", "'axis' is not known at compile time");
  if (axis->elements() != 1)
    return BadInput("E0107", "'axis' has {} elements, one is expected", axis->elements());
  return CheckedAxis(axis->GetInt(0), rank);
}

Attrs Cumulation(const Attrs& attrs, int64_t axis) {
  return {{"axis", axis}, {"exclusive", attrs.Int("exclusive")}, {"reverse", attrs.Int("reverse")}};
}

// Each element counts in the sums from it on: the adjoint runs the other way.
Status GradCumSum(GradContext& g) {
  if (!g.Needs(0)) return {};
  Attrs attrs = g.attrs();
  attrs.Set("reverse", int64_t{attrs.Int("reverse") == 0});
  g.Set(0, g.b.Op("CumSum", {g.dy(), g.x(1)}, std::move(attrs)));
  return {};
}

Status GradCumProd(GradContext& g) {
  if (g.Needs(0)) g.Set(0, g.b.Own("CumProdGrad", {g.x(0), g.dy()}, g.attrs()));
  return {};
}

void CallCumulate(LowerContext& c, std::string_view op, int64_t axis) {
  Attrs attrs = Cumulation(c.attrs(), axis);
  attrs.Set("op", std::string(op));
  c.Call("cumulate", std::move(attrs), {c.in(0)}, {c.out(0)});
}
Status LowerCumSum(LowerContext& c) {
  AMPC_ASSIGN(const int64_t axis, AxisOf(c.Constant(1), c.desc(c.in(0)).dims.size()));
  CallCumulate(c, "sum", axis);
  return {};
}
Status LowerCumProd(LowerContext& c) {
  CallCumulate(c, "prod", c.attrs().Int("axis"));
  return {};
}

Status LowerCumProdGrad(LowerContext& c) {
  c.Call("cumprod_bwd", Cumulation(c.attrs(), c.attrs().Int("axis")), {c.in(0), c.in(1)},
         {c.out(0)});
  return {};
}

// A recurrence along an axis in ONNX text: the carry starts as `initial` everywhere and each step
// makes its output o from it, and what it hands on (next), over the inputs listed. In the step's
// text @ ends each name of the step: ONNX's inference wants them all different.
struct Recurrence {
  const BodyContext& c;
  DType acc;

  std::string Text(std::string_view name, double initial, bool backwards,
                   const std::vector<std::string_view>& inputs, std::string_view step) const {
    const int64_t axis = c.attrs.Int("axis");
    Dims line = c.inputs[0]->dims;
    line.erase(line.begin() + axis);
    const std::string_view type = acc == DType::kFloat64 ? "double" : "float";
    const std::string state = fmt::format("{}[{}]", type, ListText(line));
    const std::string own = fmt::format("_{}", name);
    std::string declared = fmt::format("{} carry{}", state, own), names, axes, directions, text;
    for (char at : step) at == '@' ? text += own : text += at;
    for (std::string_view input : inputs) {
      declared += fmt::format(", {} {}{}", state, input, own);
      names += fmt::format(", {}", input);
      axes += fmt::format("{}{}", axes.empty() ? "" : ", ", axis);
      directions += fmt::format("{}{}", directions.empty() ? "" : ", ", backwards ? 1 : 0);
    }
    return fmt::format(
        "{0}_shape = Constant <value_ints: ints = [{1}]> ()\n"  // typed: a line may have no dims
        "{0}_start = ConstantOfShape <value = {2}[1] {{{3}}}> ({0}_shape)\n"
        "{0}_last, {0} = Scan <num_scan_inputs = {4}, scan_input_axes = [{5}], "
        "scan_input_directions = [{6}], "
        "scan_output_axes = [{7}], scan_output_directions = [{8}], body = {0}_step ({9}) => ({10} "
        "next{11}, {10} o{11}) "
        "{{ {12} }}> ({0}_start{13})\n",
        name, ListText(line), type, initial, inputs.size(), axes, directions, axis,
        backwards ? 1 : 0, declared, state, own, text, names);
  }
};

Result<std::string> BodyCumProd(const BodyContext& c) {
  const DType dtype = c.inputs[0]->dtype, acc = AccOf(dtype);
  const bool exclusive = c.attrs.Int("exclusive") != 0, reverse = c.attrs.Int("reverse") != 0;
  return fmt::format("x = Cast <to = {}> (i0)\n", static_cast<int>(acc)) +
         Recurrence{c, acc}.Text("p", 1, reverse, {"x"},
                                 exclusive ? "o@ = Identity (carry@) next@ = Mul (carry@, x@)"
                                           : "o@ = Mul (carry@, x@) next@ = Identity (o@)") +
         fmt::format("o0 = Cast <to = {}> (p)\n", static_cast<int>(dtype));
}

// The kernel's two: the sums from the end, s_i = dy_i + x_{i+1} s_{i+1} (exclusive: dy_{i+1}), and
// the products before each element; dx = b * s.
Result<std::string> BodyCumProdGrad(const BodyContext& c) {
  const DType dtype = c.inputs[0]->dtype, acc = AccOf(dtype);
  const bool exclusive = c.attrs.Int("exclusive") != 0, reverse = c.attrs.Int("reverse") != 0;
  const Recurrence r{c, acc};
  return fmt::format("x = Cast <to = {0}> (i0)\ndy = Cast <to = {0}> (i1)\n",
                     static_cast<int>(acc)) +
         r.Text("s", 0, !reverse, {"x", "dy"},
                exclusive ? "o@ = Identity (carry@) t@ = Mul (x@, carry@) next@ = Add (dy@, t@)"
                          : "o@ = Add (dy@, carry@) next@ = Mul (x@, o@)") +
         r.Text("b", 1, reverse, {"x"}, "o@ = Identity (carry@) next@ = Mul (x@, carry@)") +
         fmt::format("d = Mul (b, s)\no0 = Cast <to = {}> (d)\n", static_cast<int>(dtype));
}

// ---- ReverseSequence

Status GradReverseSequence(GradContext& g) {
  if (g.Needs(0)) g.Set(0, g.b.Op("ReverseSequence", {g.dy(), g.x(1)}, g.attrs()));
  return {};
}

Status LowerReverseSequence(LowerContext& c) {
  c.Call("reverse_sequence",
         {{"time_axis", c.attrs().Int("time_axis", 0)},
          {"batch_axis", c.attrs().Int("batch_axis", 1)}},
         {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}

// ---- Tile

// [d0, d1] repeated [r0, r1] is [r0, d0, r1, d1] read with stride 0 along the repeats.
struct Tiling {
  Dims dims;
  std::vector<int64_t> repeat_axes;
};

Result<Tiling> TilingOf(const HostTensor* repeats, const Dims& x) {
  if (repeats == nullptr) return BadInput("E0108", "'repeats' is not known at compile time");
  Tiling t;
  for (size_t i = 0; i < x.size(); ++i) {
    t.repeat_axes.push_back(static_cast<int64_t>(t.dims.size()));
    t.dims.push_back(repeats->GetInt(static_cast<int64_t>(i)));
    t.dims.push_back(x[i]);
  }
  return t;
}

Status GradTile(GradContext& g) {
  if (!g.Needs(0)) return {};
  const Dims x = g.type(g.x(0)).dims;
  AMPC_ASSIGN(const Tiling t, TilingOf(g.graph().ConstantOf(g.x(1)), x));
  g.Set(0, g.b.Reshape(g.b.ReduceSum(g.b.Reshape(g.dy(), t.dims), t.repeat_axes, false), x));
  return {};
}

Status LowerTile(LowerContext& c) {
  const TensorDesc x = c.desc(c.in(0));
  AMPC_ASSIGN(const Tiling t, TilingOf(c.Constant(1), x.dims));
  const std::vector<int64_t> from = StridesOf(x.dims, x.layout);
  std::vector<int64_t> strides;
  for (int64_t s : from) strides.insert(strides.end(), {0, s});
  TensorDesc split = c.desc(c.out(0));
  split.dims = t.dims;
  c.Call("copy", {{"offset", int64_t{0}}, {"strides", strides}}, {c.in(0)},
         {c.View(c.out(0), split)});
  return {};
}

// ---- Trilu

Status GradTrilu(GradContext& g) {
  if (!g.Needs(0)) return {};
  std::vector<ValueId> inputs = {g.dy()};
  if (g.x(1) != ir::kNone) inputs.push_back(g.x(1));
  g.Set(0, g.b.Op("", "Trilu", inputs, g.attrs()));
  return {};
}

Status LowerTrilu(LowerContext& c) {
  const bool given = c.num_inputs() > 1 && c.in(1) != ir::kNone;
  const HostTensor* k = given ? c.Constant(1) : nullptr;
  if (given && k == nullptr) return BadInput("E0108", "'k' is not known at compile time");
  if (given && k->elements() != 1)
    return BadInput("E0107", "'k' has {} elements, expected 1", k->elements());
  c.Call("trilu", {{"upper", c.attrs().Int("upper", 1)}, {"k", given ? k->GetInt(0) : int64_t{0}}},
         {c.in(0)}, {c.out(0)});
  return {};
}

// clang-format off
constexpr OpDef kOps[] = {
    {.name = "CumSum", .since = 14, .in = 2, .cast = kFp32OnCuda, .grad = GradCumSum, .lower = LowerCumSum},
    {.domain = kOwnDomain, .name = "CumProd", .cast = kFp32OnCuda, .infer = InferSame, .grad = GradCumProd, .lower = LowerCumProd, .body = BodyCumProd},
    {.domain = kOwnDomain, .name = "CumProdGrad", .in = 2, .cast = kFp32OnCuda, .infer = InferSame, .lower = LowerCumProdGrad, .body = BodyCumProdGrad},
    {.name = "ReverseSequence", .since = 10, .in = 2, .grad = GradReverseSequence, .lower = LowerReverseSequence},
    {.name = "Tile", .since = 13, .in = 2, .grad = GradTile, .lower = LowerTile, .traits = {.movement = true}},
    {.name = "Trilu", .since = 14, .in = {1, 2}, .grad = GradTrilu, .lower = LowerTrilu},
};
// clang-format on

}  // namespace

std::span<const OpDef> AlongAxisOps() { return kOps; }

}  // namespace ampc
