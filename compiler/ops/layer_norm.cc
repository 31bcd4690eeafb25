// SPDX-License-Identifier: Apache-2.0
// Norms with statistics of their own per row: LayerNormalization, RMSNormalization,
// GroupNormalization, InstanceNormalization.
//
// All four are one computation (kernel layer_norm): x is seen as rows of `length` elements;
// `groups` rows in turn have scales of their own, one per `inner` elements. A Rows function per op
// says what these three are. In training each becomes Normalize, which also gives the statistics
// that the gradient wants. Scale and bias stay fp32 beside low data, as PyTorch's norms take them;
// ONNX does not know such nodes, so an exported step holds the op's body instead (OpDef::body).
#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

struct Rows {
  int64_t length, groups, inner;
  bool rms = false;  ///< root mean square: no mean is taken off

  int64_t params() const { return groups * length / inner; }
};
using RowsFn = Rows (*)(const Attrs&, const Dims& x);

// What is normalised begins at "axis".
size_t AxisOf(const Attrs& attrs, const Dims& x) {
  const int64_t axis = attrs.Int("axis", -1);
  return static_cast<size_t>(NormalAxis(axis, x.size()));
}
Rows LayerRows(const Attrs& attrs, const Dims& x) {
  return {NumElements(std::span(x).subspan(AxisOf(attrs, x))), 1, 1};
}
Rows RmsRows(const Attrs& attrs, const Dims& x) {
  Rows rows = LayerRows(attrs, x);
  rows.rms = true;
  return rows;
}
Rows GroupRows(const Attrs& attrs, const Dims& x) {
  const int64_t groups = attrs.Int("num_groups"), inner = NumElements(std::span(x).subspan(2));
  return {x[1] / groups * inner, groups, inner};
}
Rows InstanceRows(const Attrs&, const Dims& x) {
  const int64_t inner = NumElements(std::span(x).subspan(2));
  return {inner, x[1], inner};
}
Rows OwnRows(const Attrs& attrs, const Dims&) {
  return {attrs.Int("length"), attrs.Int("groups"), attrs.Int("inner"), attrs.Int("rms") != 0};
}

Attrs RowAttrs(const Rows& rows) {
  return {{"length", rows.length},
          {"groups", rows.groups},
          {"inner", rows.inner},
          {"rms", int64_t{rows.rms}}};
}
Attrs RowAttrs(const Rows& rows, const Attrs& attrs) {
  Attrs a = RowAttrs(rows);
  a.Set("epsilon", attrs.Float("epsilon", 1e-5));
  return a;
}

// ---- what ONNX's inference takes on trust

Status CheckParameters(std::span<const ir::TensorType* const> inputs, const Dims& expected) {
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr || inputs[i]->dims == expected) continue;
    return BadInput("E0107", "{} has dims {}, expected {} for input {}", i == 1 ? "scale" : "bias",
                    ToString(inputs[i]->dims), ToString(expected), ToString(*inputs[0]));
  }
  return {};
}

Status NothingToNormalize(const ir::TensorType& x) {
  return BadInput("E0107", "a row of input {} has no elements to normalise", ToString(x));
}

Status CheckLayer(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  const Dims& x = inputs[0]->dims;
  AMPC_TRY(CheckAxis(attrs.Int("axis", -1), x.size()));
  if (LayerRows(attrs, x).length == 0) return NothingToNormalize(*inputs[0]);
  const Dims normalized(x.begin() + static_cast<std::ptrdiff_t>(AxisOf(attrs, x)), x.end());
  return CheckParameters(inputs, normalized);
}

Status CheckChannels(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  const Dims& x = inputs[0]->dims;
  if (x.size() < 2)
    return BadInput("E0107", "input {} has no channel axis (axis 1)", ToString(*inputs[0]));
  const int64_t groups = attrs.Int("num_groups", 1);
  if (groups <= 0 || x[1] % groups != 0) {
    return BadInput("E0107", "{} groups do not share the channels of {} equally", groups,
                    ToString(x));
  }
  if (NumElements(std::span(x).subspan(1)) == 0) return NothingToNormalize(*inputs[0]);
  return CheckParameters(inputs, {x[1]});
}

// ONNX's schema of GroupNormalization infers nothing.
Status InferFirst(InferContext& c) {
  c.outputs = {c.in(0)};
  return {};
}

// ---- the standard ops

Operand Optional(Operand (LowerContext::*get)(size_t) const, const LowerContext& c, size_t n,
                 size_t i) {
  return i < n ? (c.*get)(i) : ir::kNone;
}
Operand In(const LowerContext& c, size_t i) {
  return Optional(&LowerContext::in, c, c.num_inputs(), i);
}
Operand Out(const LowerContext& c, size_t i) {
  return Optional(&LowerContext::out, c, c.num_outputs(), i);
}

// ONNX's outputs are y, mean, inverse deviation.
template <RowsFn kRows>
Status LowerStandard(LowerContext& c) {
  c.Call("layer_norm", RowAttrs(kRows(c.attrs(), c.desc(c.in(0)).dims), c.attrs()),
         {c.in(0), c.in(1), In(c, 2)}, {Out(c, 0), Out(c, 2), Out(c, 1)});
  return {};
}

template <RowsFn kRows>
Status TrainStandard(ir::Graph& graph, ir::NodeId id, ir::Builder& b) {
  const ir::Node node = graph.node(id);
  const Rows rows = kRows(node.attrs, graph.type(node.inputs[0]).dims);
  const std::vector<ir::ValueId> outs =
      b.Multi(kOwnDomain, "Normalize", node.inputs, RowAttrs(rows, node.attrs), rows.rms ? 2 : 3);
  if (b.failed()) return b.TakeStatus();
  // Statistics that somebody reads have ONNX's dims and type.
  for (size_t i = 1; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == ir::kNone || graph.value(node.outputs[i]).uses.empty()) continue;
    const ir::TensorType type = graph.type(node.outputs[i]);
    const ir::ValueId v = b.Cast(b.Reshape(outs[3 - i], type.dims), type.dtype);
    if (b.failed()) return b.TakeStatus();
    graph.ReplaceUses(node.outputs[i], v);
  }
  if (node.outputs[0] == ir::kNone) return graph.Erase(id), Status();
  TakePlace(graph, id, outs[0]);
  return {};
}

// ---- bodies: x as [rows / groups, groups, scales per row, inner]

struct BodyRows {
  Rows rows;
  Dims dims;
  DType acc;
  std::string shapes;  ///< constants: rs = dims, ps = [1, groups, scales per row, 1]

  BodyRows(const Rows& r, const ir::TensorType& x)
      : rows(r),
        dims{x.elements() / (r.groups * r.length), r.groups, r.length / r.inner, r.inner},
        acc(AccOf(x.dtype)),
        shapes(fmt::format("rs = Constant <value_ints = [{}]> ()\nps = Constant <value_ints = [1, "
                           "{}, {}, 1]> ()\n",
                           ListText(dims), dims[1], dims[2])) {}

  /// `name` = input in acc, in the dims of constant `shape`.
  std::string Read(std::string_view name, int input, std::string_view shape) const {
    return fmt::format(
        "{0}_w = Cast <to = {1}> (i{2})\n{0} = Reshape <allowzero = 1> ({0}_w, {3})\n", name,
        static_cast<int>(acc), input, shape);
  }
  /// `name` = sum of `x` over a row.
  std::string RowSum(std::string_view name, std::string_view x) const {
    constexpr int64_t kAxes[] = {2, 3};
    return SumText(name, x, kAxes, dims, acc);
  }
  /// `name` = sum of `x` over what has one scale.
  std::string ScaleSum(std::string_view name, std::string_view x) const {
    constexpr int64_t kAxes[] = {0, 3};
    return SumText(name, x, kAxes, dims, acc);
  }
  /// Output `o` = `x` in the type of that output.
  std::string Write(int o, std::string_view x, const ir::TensorType& type) const {
    return fmt::format(
        "s{0} = Constant <value_ints = [{1}]> ()\nr{0} = Reshape <allowzero = 1> ({2}, s{0})\n"
        "o{0} = Cast <to = {3}> (r{0})\n",
        o, ListText(type.dims), x, static_cast<int>(type.dtype));
  }
  std::string Scalars(std::string_view like) const {
    return ScalarText("n", static_cast<double>(rows.length), like);
  }
};

// y, inverse deviation and mean under the names "y", "inv", "m".
std::string ForwardText(const BodyContext& c, const BodyRows& b) {
  std::string t = b.shapes + b.Read("x", 0, "rs") + b.Read("sc", 1, "ps") + b.Scalars("x") +
                  ScalarText("e", c.attrs.Float("epsilon", 1e-5), "x");
  t +=
      b.rows.rms ? "d = Identity (x)\n" : b.RowSum("xt", "x") + "m = Div (xt, n)\nd = Sub (x, m)\n";
  t += "q = Mul (d, d)\n" + b.RowSum("qt", "q") +
       "v = Div (qt, n)\nve = Add (v, e)\nsd = Sqrt (ve)\ninv = Reciprocal (sd)\n"
       "xn = Mul (d, inv)\nxs = Mul (xn, sc)\n";
  const bool bias = c.inputs.size() > 2 && c.inputs[2] != nullptr;
  return t + (bias ? b.Read("bi", 2, "ps") + "y = Add (xs, bi)\n" : "y = Identity (xs)\n");
}

template <RowsFn kRows>
Result<std::string> BodyStandard(const BodyContext& c) {
  const BodyRows b(kRows(c.attrs, c.inputs[0]->dims), *c.inputs[0]);
  std::string t = ForwardText(c, b) + b.Write(0, "y", *c.outputs[0]);
  if (c.outputs.size() > 1) t += b.Write(1, "m", *c.outputs[1]);
  if (c.outputs.size() > 2) t += b.Write(2, "inv", *c.outputs[2]);
  return t;
}

// ---- Normalize: x, scale, [bias] -> y, inverse deviation, [mean]

Status CheckRows(const Attrs& attrs, const ir::TensorType& x, const ir::TensorType& scale) {
  const Rows rows = OwnRows(attrs, x.dims);
  const bool whole = rows.length > 0 && rows.groups > 0 && rows.inner > 0 &&
                     rows.length % rows.inner == 0 && x.elements() % rows.length == 0 &&
                     x.elements() / rows.length % rows.groups == 0;
  if (!whole || scale.elements() != rows.params()) {
    return BadInput("E0107",
                    "rows of {} elements, {} groups, one scale for {} elements: {} with scales {} "
                    "does not divide so",
                    rows.length, rows.groups, rows.inner, ToString(x), ToString(scale));
  }
  return {};
}

Status InferNormalize(InferContext& c) {
  AMPC_TRY(CheckRows(c.attrs, c.in(0), c.in(1)));
  if (c.has(2) && c.in(2).elements() != c.in(1).elements()) {
    return BadInput("E0107", "bias has dims {}, scale {}", ToString(c.in(2).dims),
                    ToString(c.in(1).dims));
  }
  const ir::TensorType stats{AccOf(c.in(0).dtype), {c.in(0).elements() / c.attrs.Int("length")}};
  c.outputs = {c.in(0), stats};
  if (c.attrs.Int("rms") == 0) c.outputs.push_back(stats);
  return {};
}

Status LowerNormalize(LowerContext& c) {
  c.Call("layer_norm", RowAttrs(OwnRows(c.attrs(), {}), c.attrs()), {c.in(0), c.in(1), In(c, 2)},
         {Out(c, 0), Out(c, 1), Out(c, 2)});
  return {};
}

// What flows through the statistics: d mean / dx = 1 / n, d inv / dx = -inv^3 (x - mean) / n.
ir::ValueId ThroughStatistics(GradContext& g, const Rows& rows) {
  const ir::TensorType x = g.type(g.x(0));
  const Dims each = {x.elements() / rows.length, 1}, flat = {each[0], rows.length};
  const Attrs n{{"n", static_cast<double>(rows.length)}};
  const auto column = [&](ir::ValueId v) { return g.b.Reshape(v, each); };
  ir::ValueId dx = ir::kNone;
  if (g.dy(1) != ir::kNone) {
    const ir::ValueId data = g.b.Reshape(g.x(0), flat), d = column(g.dy(1)), inv = column(g.y(1));
    dx = rows.rms ? g.b.Map("-x0 * x1 * x1 * x1 * x2 / $n", {d, inv, data}, x.dtype, n)
                  : g.b.Map("-x0 * x1 * x1 * x1 * (x2 - x3) / $n", {d, inv, data, column(g.y(2))},
                            x.dtype, n);
  }
  if (g.dy(2) != ir::kNone) {
    const ir::ValueId d = g.b.Expand(g.b.Map("x0 / $n", {column(g.dy(2))}, x.dtype, n), flat);
    dx = dx == ir::kNone ? d : g.b.Add(dx, d);
  }
  return dx == ir::kNone ? dx : g.b.Reshape(dx, x.dims);
}

Status GradNormalize(GradContext& g) {
  const Rows rows = OwnRows(g.attrs(), {});
  ir::ValueId dx = g.Needs(0) ? ThroughStatistics(g, rows) : ir::kNone;
  if (g.dy(0) != ir::kNone) {
    std::vector<ir::ValueId> inputs = {g.x(0), g.dy(0), g.x(1), g.y(1)};
    if (!rows.rms) inputs.push_back(g.y(2));
    const std::vector<ir::ValueId> grads =
        g.b.Multi(kOwnDomain, "NormalizeGrad", inputs, RowAttrs(rows), 3);
    if (g.b.failed()) return {};
    dx = dx == ir::kNone ? grads[0] : g.b.Add(grads[0], dx);
    for (size_t i = 1; i < 3; ++i) {
      if (g.Needs(i)) g.Set(i, g.b.Reshape(grads[i], g.type(g.x(i)).dims));
    }
  }
  if (g.Needs(0)) g.Set(0, dx);
  return {};
}

Result<std::string> BodyNormalize(const BodyContext& c) {
  const BodyRows b(OwnRows(c.attrs, {}), *c.inputs[0]);
  std::string t =
      ForwardText(c, b) + b.Write(0, "y", *c.outputs[0]) + b.Write(1, "inv", *c.outputs[1]);
  return b.rows.rms ? t : t + b.Write(2, "m", *c.outputs[2]);
}

// ---- NormalizeGrad: x, dy, scale, inverse deviation, [mean] -> dx, dscale, dbias

Status InferNormalizeGrad(InferContext& c) {
  AMPC_TRY(CheckRows(c.attrs, c.in(0), c.in(2)));
  c.outputs = {c.in(1), c.in(2), c.in(2)};
  return {};
}

Status LowerNormalizeGrad(LowerContext& c) {
  c.Call("layer_norm_bwd", RowAttrs(OwnRows(c.attrs(), {})),
         {c.in(0), c.in(1), c.in(2), c.in(3), In(c, 4)}, {Out(c, 0), Out(c, 1), Out(c, 2)});
  return {};
}

Result<std::string> BodyNormalizeGrad(const BodyContext& c) {
  const BodyRows b(OwnRows(c.attrs, {}), *c.inputs[0]);
  std::string t =
      b.shapes +
      fmt::format("ss = Constant <value_ints = [{}, {}, 1, 1]> ()\n", b.dims[0], b.dims[1]) +
      b.Read("x", 0, "rs") + b.Read("dy", 1, "rs") + b.Read("sc", 2, "ps") +
      b.Read("inv", 3, "ss") + b.Scalars("x");
  t += b.rows.rms ? "d = Identity (x)\n" : b.Read("m", 4, "ss") + "d = Sub (x, m)\n";
  t += "xn = Mul (d, inv)\ndyx = Mul (dy, xn)\ng = Mul (dy, sc)\ngx = Mul (g, xn)\n" +
       b.ScaleSum("ds", "dyx") + b.ScaleSum("db", "dy") + b.RowSum("dot", "gx") +
       "dn = Div (dot, n)\nt1 = Mul (xn, dn)\nt2 = Sub (g, t1)\n";
  t += b.rows.rms ? "t3 = Identity (t2)\n"
                  : b.RowSum("gt", "g") + "gn = Div (gt, n)\nt3 = Sub (t2, gn)\n";
  return t + "dx = Mul (t3, inv)\n" + b.Write(0, "dx", *c.outputs[0]) +
         b.Write(1, "ds", *c.outputs[1]) + b.Write(2, "db", *c.outputs[2]);
}

// clang-format off
constexpr uint32_t kParameters = 0b110;  // scale and bias stay fp32
constexpr OpDef kOps[] = {
    {.name = "LayerNormalization", .since = 17, .in = {2, 3}, .out = {1, 3}, .cast = kFp32OnCuda, .fp32_slots = kParameters, .fp32_outputs = 0b110, .check = CheckLayer,
     .training = TrainStandard<LayerRows>, .lower = LowerStandard<LayerRows>, .body = BodyStandard<LayerRows>},
    {.name = "RMSNormalization", .since = 23, .in = 2, .cast = kFp32OnCuda, .fp32_slots = kParameters, .check = CheckLayer,
     .training = TrainStandard<RmsRows>, .lower = LowerStandard<RmsRows>, .body = BodyStandard<RmsRows>},
    {.name = "GroupNormalization", .since = 21, .in = 3, .cast = kFp32OnCuda, .fp32_slots = kParameters, .check = CheckChannels, .infer = InferFirst,
     .training = TrainStandard<GroupRows>, .lower = LowerStandard<GroupRows>, .body = BodyStandard<GroupRows>},
    {.name = "InstanceNormalization", .since = 22, .in = 3, .fp32_slots = kParameters, .check = CheckChannels,
     .training = TrainStandard<InstanceRows>, .lower = LowerStandard<InstanceRows>, .body = BodyStandard<InstanceRows>},
    {.domain = kOwnDomain, .name = "Normalize", .in = {2, 3}, .out = {2, 3}, .fp32_slots = kParameters, .fp32_outputs = 0b110,
     .infer = InferNormalize, .grad = GradNormalize, .lower = LowerNormalize, .body = BodyNormalize},
    {.domain = kOwnDomain, .name = "NormalizeGrad", .in = {4, 5}, .out = 3, .fp32_slots = 0b11100, .infer = InferNormalizeGrad, .lower = LowerNormalizeGrad, .body = BodyNormalizeGrad},
};
// clang-format on

}  // namespace

std::span<const OpDef> LayerNormOps() { return kOps; }

}  // namespace ampc
