// SPDX-License-Identifier: Apache-2.0
// Conv and ConvTranspose in 1-D to 3-D, and the two own ops that their gradients use. A transposed
// convolution is the backward-to-data of a convolution, so three kernels serve all four cases:
//
//   op              kernel            gradient of the data   gradient of the weights
//   Conv            conv              ConvGradData           ConvGradWeights(x, dy)
//   ConvTranspose   conv_bwd_data     Conv                   ConvGradWeights(dy, x)
#include <algorithm>
#include <limits>

#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"
#include "compiler/ops/window.h"

namespace ampc {
namespace {

std::span<const int64_t> Spatial(const Dims& dims) { return std::span(dims).subspan(2); }

// x [N, C, …] and w [M, C / group, …], or [C, M / group, …] of a transposed convolution.
Status CheckConvolution(const Attrs& attrs, std::span<const ir::TensorType* const> inputs,
                        bool transposed) {
  if (inputs.size() < 2 || inputs[0] == nullptr || inputs[1] == nullptr) return {};
  const Dims &x = inputs[0]->dims, &w = inputs[1]->dims;
  if (x.size() < 3 || w.size() != x.size()) {
    return BadInput("E0107", "the data {} and the weight {} must have the same rank, 3 or more",
                    ToString(x), ToString(w));
  }
  const int64_t group = attrs.Int("group", 1);
  if (group < 1) return BadInput("E0107", "group is {}, expected 1 or more", group);
  const bool fits = transposed ? w[0] == x[1] : x[1] % group == 0 && w[1] == x[1] / group;
  if (!fits || w[0] % group != 0) {
    return BadInput("E0107", "the weight {} does not fit {} channels in {} groups", ToString(w),
                    x[1], group);
  }
  const Dims window(w.begin() + 2, w.end());
  if (attrs.Has("kernel_shape") && attrs.Ints("kernel_shape", {}) != window) {
    return BadInput("E0107", "kernel_shape is {}, but the weight is {}",
                    ToString(attrs.Ints("kernel_shape", {})), ToString(w));
  }
  const int64_t channels = transposed ? w[1] * group : w[0];
  if (inputs.size() > 2 && inputs[2] != nullptr && inputs[2]->dims != Dims{channels}) {
    return BadInput("E0107", "the bias is {}, expected [{}]", ToString(inputs[2]->dims), channels);
  }
  return {};
}

Status CheckConv(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  AMPC_TRY(CheckConvolution(attrs, inputs, false));
  if (inputs.size() < 2 || inputs[0] == nullptr || inputs[1] == nullptr) return {};
  AMPC_ASSIGN(const std::vector<WindowAxis> axes,
              ReadWindow(attrs, inputs[0]->dims, Spatial(inputs[1]->dims)));
  return PadsToSame(attrs) ? Status() : CheckRoom(axes, false);
}
Status CheckConvTranspose(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  return CheckConvolution(attrs, inputs, true);
}

// Explicit window parameters: attributes with auto_pad resolved and defaults filled.
struct Geometry {
  std::vector<int64_t> strides, dilations, pads;  // pads: begins, then ends
  int64_t group = 1;

  Attrs ToAttrs() const {
    return {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", group}};
  }
};

Attrs WithPost(Attrs params, const Attrs& attrs) {
  if (attrs.Has("post")) params.Set("post", std::string(attrs.String("post")));
  return params;
}

// db: dy summed over all axes but the channels.
ir::ValueId BiasGrad(GradContext& g) {
  std::vector<int64_t> axes = {0};
  for (int64_t i = 2; i < g.type(g.dy()).rank(); ++i) axes.push_back(i);
  return g.b.ReduceSum(g.dy(), std::move(axes), false);
}

// ---- Conv

Geometry ConvGeometry(const Attrs& attrs, const Dims& x, const Dims& w, const Dims& y) {
  const size_t n = w.size() - 2;
  Geometry g;
  g.strides = attrs.Ints("strides", std::vector<int64_t>(n, 1));
  g.dilations = attrs.Ints("dilations", std::vector<int64_t>(n, 1));
  g.pads = attrs.Ints("pads", std::vector<int64_t>(2 * n, 0));
  g.group = attrs.Int("group", 1);
  for (size_t i = 0; i < n && PadsToSame(attrs); ++i) {
    const int64_t window = (w[i + 2] - 1) * g.dilations[i] + 1;
    const int64_t total = std::max<int64_t>((y[i + 2] - 1) * g.strides[i] + window - x[i + 2], 0);
    const int64_t small = total / 2;
    g.pads[i] = attrs.String("auto_pad") == "SAME_UPPER" ? small : total - small;
    g.pads[i + n] = total - g.pads[i];
  }
  return g;
}

Status GradConv(GradContext& g) {
  const Dims x = g.type(g.x(0)).dims, w = g.type(g.x(1)).dims;
  Attrs attrs = ConvGeometry(g.attrs(), x, w, g.type(g.y()).dims).ToAttrs();
  if (g.Needs(0)) {
    Attrs data = attrs;
    data.Set("dims", x);
    g.Set(0, g.b.Own("ConvGradData", {g.dy(), g.x(1)}, std::move(data)));
  }
  if (g.Needs(1)) {
    attrs.Set("dims", w);
    g.Set(1, g.b.Own("ConvGradWeights", {g.x(0), g.dy()}, std::move(attrs)));
  }
  if (g.Needs(2)) g.Set(2, BiasGrad(g));
  return {};
}

Status LowerConv(LowerContext& c) {
  const Geometry geometry =
      ConvGeometry(c.attrs(), c.desc(c.in(0)).dims, c.desc(c.in(1)).dims, c.desc(c.out(0)).dims);
  const Operand bias = c.num_inputs() > 2 ? c.in(2) : ir::kNone;
  c.Call("conv", WithPost(geometry.ToAttrs(), c.attrs()), {c.in(0), c.in(1), bias}, {c.out(0)});
  return {};
}

// ---- ConvTranspose

// One spatial axis of a transposed convolution. The convolution that it inverts reads `out`
// elements with this padding and gives the input's length again.
struct TransposedAxis {
  int64_t begin = 0, end = 0, out = 0;
};

// `extra` is output_padding, which lengthens the output at its end. `given` is output_shape or -1:
// the padding is what it leaves; so it is with SAME, which wants the input's length times the
// stride.
Result<TransposedAxis> TransposeAxis(const Attrs& attrs, size_t i, const WindowAxis& a,
                                     int64_t extra, int64_t given) {
  const int64_t full = a.stride * (a.in - 1) + extra + a.reach();
  TransposedAxis t{a.begin, a.end, 0};
  if (given >= 0 || PadsToSame(attrs)) {
    const int64_t total = std::max<int64_t>(full - (given >= 0 ? given : a.in * a.stride), 0);
    t.begin = attrs.String("auto_pad") == "SAME_UPPER" ? total / 2 : total - total / 2;
    t.end = total - t.begin;
  }
  t.out = given >= 0 ? given : full - t.begin - t.end;
  if (t.out < (a.in > 0 ? 1 : 0)) {
    return BadInput("E0107",
                    "axis {} of the output would be {} long: {} over {} elements with stride {}, "
                    "output_padding {}, padding {} and {}",
                    i + 2, t.out, DescribeWindow(a), a.in, a.stride, extra, t.begin, t.end);
  }
  if (std::max(t.begin, t.end) > std::numeric_limits<int32_t>::max()) {
    return Unsupported("E0102", "axis {}: padding of {} and {} elements, which is not supported",
                       i + 2, t.begin, t.end);
  }
  // Up to a stride, the convolution leaves the rim at the end unread by itself; whole strides make
  // it read less padding.
  t.end -= (extra + std::max<int64_t>(t.out - full, 0)) / a.stride * a.stride;
  if (t.end >= 0) return t;
  if (t.out > full && extra < a.stride) {
    return BadInput("E0107",
                    "output_shape is {} on axis {}: {} over {} elements with stride {} makes 1 to "
                    "{}",
                    given, i + 2, DescribeWindow(a), a.in, a.stride, full - extra + a.stride - 1);
  }
  return Unsupported("E0102",
                     "output_padding {} with stride {} is more than the padding that it can "
                     "replace",
                     extra, a.stride);
}

Result<std::vector<TransposedAxis>> TransposeAxes(const Attrs& attrs, const Dims& x,
                                                  const Dims& w) {
  const size_t n = w.size() - 2;
  AMPC_ASSIGN(const std::vector<WindowAxis> axes, ReadWindow(attrs, x, Spatial(w)));
  AMPC_TRY(CheckList(attrs, "output_padding", n, 0));
  AMPC_TRY(CheckList(attrs, "output_shape", n, 1));
  const std::vector<int64_t> extra = attrs.Ints("output_padding", std::vector<int64_t>(n, 0)),
                             given = attrs.Ints("output_shape", std::vector<int64_t>(n, -1));
  std::vector<TransposedAxis> all;
  for (size_t i = 0; i < n; ++i) {
    AMPC_ASSIGN(const TransposedAxis axis, TransposeAxis(attrs, i, axes[i], extra[i], given[i]));
    all.push_back(axis);
  }
  return all;
}

// ONNX's own inference gives up where output_shape is shorter than the input.
Status InferConvTranspose(InferContext& c) {
  const Dims &x = c.in(0).dims, &w = c.in(1).dims;
  AMPC_ASSIGN(const std::vector<TransposedAxis> axes, TransposeAxes(c.attrs, x, w));
  Dims dims = {x[0], w[1] * c.attrs.Int("group", 1)};
  for (const TransposedAxis& axis : axes) dims.push_back(axis.out);
  c.outputs = {{c.in(0).dtype, dims}};
  return {};
}

Result<Geometry> TransposeGeometry(const Attrs& attrs, const Dims& x, const Dims& w) {
  const size_t n = w.size() - 2;
  AMPC_ASSIGN(const std::vector<TransposedAxis> axes, TransposeAxes(attrs, x, w));
  Geometry g;
  g.strides = attrs.Ints("strides", std::vector<int64_t>(n, 1));
  g.dilations = attrs.Ints("dilations", std::vector<int64_t>(n, 1));
  g.pads.resize(2 * n);
  for (size_t i = 0; i < n; ++i) {
    g.pads[i] = axes[i].begin;
    g.pads[i + n] = axes[i].end;
  }
  g.group = attrs.Int("group", 1);
  return g;
}

Status GradConvTranspose(GradContext& g) {
  const Dims x = g.type(g.x(0)).dims, w = g.type(g.x(1)).dims;
  AMPC_ASSIGN(const Geometry geometry, TransposeGeometry(g.attrs(), x, w));
  if (g.Needs(0)) {
    Attrs data = geometry.ToAttrs();
    data.Set("dims", x);
    g.Set(0, g.b.Own("ConvEx", {g.dy(), g.x(1)}, std::move(data)));
  }
  if (g.Needs(1)) {
    Attrs attrs = geometry.ToAttrs();
    attrs.Set("dims", w);
    g.Set(1, g.b.Own("ConvGradWeights", {g.dy(), g.x(0)}, std::move(attrs)));
  }
  if (g.Needs(2)) g.Set(2, BiasGrad(g));
  return {};
}

Status LowerConvTranspose(LowerContext& c) {
  AMPC_ASSIGN(const Geometry geometry,
              TransposeGeometry(c.attrs(), c.desc(c.in(0)).dims, c.desc(c.in(1)).dims));
  const Operand bias = c.num_inputs() > 2 ? c.in(2) : ir::kNone;
  c.Call("conv_bwd_data", geometry.ToAttrs(), {c.in(0), c.in(1), bias}, {c.out(0)});
  return {};
}

// ---- own ops: geometry in attributes, the result's dims in `dims`

Attrs GeometryParams(const Attrs& attrs) {
  Attrs p;
  for (std::string_view name : {"strides", "dilations", "pads"}) p.Set(name, attrs.Ints(name));
  p.Set("group", attrs.Int("group", 1));
  return p;
}

Status LowerConvEx(LowerContext& c) {
  c.Call("conv", GeometryParams(c.attrs()), {c.in(0), c.in(1), ir::kNone}, {c.out(0)});
  return {};
}
Status LowerConvGradData(LowerContext& c) {
  c.Call("conv_bwd_data", GeometryParams(c.attrs()), {c.in(0), c.in(1), ir::kNone}, {c.out(0)});
  return {};
}
Status LowerConvGradWeights(LowerContext& c) {
  c.Call("conv_bwd_weights", GeometryParams(c.attrs()), {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}

std::string GeometryText(const Attrs& attrs, const std::vector<int64_t>& pads) {
  return fmt::format("strides = [{}], dilations = [{}], pads = [{}], group = {}",
                     ListText(attrs.Ints("strides")), ListText(attrs.Ints("dilations")),
                     ListText(pads), attrs.Int("group", 1));
}

int Compute(const BodyContext& c) {
  return static_cast<int>(c.inputs[0]->dtype == DType::kFloat64 ? DType::kFloat64
                                                                : DType::kFloat32);
}
std::string Widen(const BodyContext& c) {
  return fmt::format("a = Cast <to = {0}> (i0)\nb = Cast <to = {0}> (i1)\n", Compute(c));
}
std::string Narrow(const BodyContext& c, std::string_view v) {
  return fmt::format("o0 = Cast <to = {}> ({})\n", static_cast<int>(c.outputs[0]->dtype), v);
}

Result<std::string> BodyConvEx(const BodyContext& c) {
  return Widen(c) +
         fmt::format("y = Conv <{}> (a, b)\n", GeometryText(c.attrs, c.attrs.Ints("pads"))) +
         Narrow(c, "y");
}

// ConvTranspose without pads gives the part of the padded input that the windows touch; Pad brings
// it to the input's place.
Result<std::string> BodyConvGradData(const BodyContext& c) {
  const std::vector<int64_t> pads = c.attrs.Ints("pads"), strides = c.attrs.Ints("strides"),
                             dilations = c.attrs.Ints("dilations");
  const Dims &dy = c.inputs[0]->dims, &w = c.inputs[1]->dims, &dx = c.outputs[0]->dims;
  const size_t n = strides.size(), rank = n + 2;
  std::vector<int64_t> fit(2 * rank, 0);
  for (size_t i = 0; i < n; ++i) {
    const int64_t full = (dy[i + 2] - 1) * strides[i] + (w[i + 2] - 1) * dilations[i] + 1;
    fit[2 + i] = -pads[i];
    fit[rank + 2 + i] = dx[i + 2] + pads[i] - full;
  }
  return Widen(c) +
         fmt::format("f = ConvTranspose <{}> (a, b)\n",
                     GeometryText(c.attrs, std::vector<int64_t>(2 * n, 0))) +
         fmt::format("fit = Constant <value_ints = [{}]> ()\ny = Pad (f, fit)\n", ListText(fit)) +
         Narrow(c, "y");
}

// dw = convolution of x with dy, batch and channels exchanged, strides and dilations exchanged; one
// per group, joined.
Result<std::string> BodyConvGradWeights(const BodyContext& c) {
  const std::vector<int64_t> pads = c.attrs.Ints("pads"), strides = c.attrs.Ints("strides"),
                             dilations = c.attrs.Ints("dilations");
  const int64_t group = c.attrs.Int("group", 1);
  const Dims &x = c.inputs[0]->dims, &dw = c.outputs[0]->dims;
  const size_t n = strides.size(), rank = n + 2;
  std::vector<int64_t> swap(rank);
  for (size_t i = 0; i < rank; ++i) swap[i] = static_cast<int64_t>(i == 0 ? 1 : i == 1 ? 0 : i);
  std::string t = Widen(c);
  const int64_t cg = x[1] / group, mg = dw[0] / group;
  std::string parts;
  for (int64_t k = 0; k < group; ++k) {
    t += fmt::format(
        "xs{0} = Constant <value_ints = [{1}]> ()\nxe{0} = Constant <value_ints = [{2}]> ()\nys{0} "
        "= Constant <value_ints = [{3}]> ()\n"
        "ye{0} = Constant <value_ints = [{4}]> ()\nax{0} = Constant <value_ints = [1]> ()\nxg{0} = "
        "Slice (a, xs{0}, xe{0}, ax{0})\n"
        "yg{0} = Slice (b, ys{0}, ye{0}, ax{0})\nxt{0} = Transpose <perm = [{5}]> (xg{0})\nyt{0} = "
        "Transpose <perm = [{5}]> (yg{0})\n"
        "cv{0} = Conv <strides = [{6}], dilations = [{7}], pads = [{8}]> (xt{0}, yt{0})\nct{0} = "
        "Transpose <perm = [{5}]> (cv{0})\n",
        k, k * cg, (k + 1) * cg, k * mg, (k + 1) * mg, ListText(swap), ListText(dilations),
        ListText(strides), ListText(pads));
    parts += fmt::format("{}ct{}", k == 0 ? "" : ", ", k);
  }
  t += fmt::format("all = Concat <axis = 0> ({})\n", parts);
  // Input that no window reached leaves extra columns at the end.
  std::vector<int64_t> zeros(n, 0), axes(n);
  for (size_t i = 0; i < n; ++i) axes[i] = static_cast<int64_t>(i + 2);
  t += fmt::format(
      "cs = Constant <value_ints = [{}]> ()\nce = Constant <value_ints = [{}]> ()\nca = Constant "
      "<value_ints = [{}]> ()\n"
      "y = Slice (all, cs, ce, ca)\n",
      ListText(zeros), ListText(Spatial(dw)), ListText(axes));
  return t + Narrow(c, "y");
}

// clang-format off
constexpr Traits kChannels{.any_layout = true, .channels = true};
constexpr Traits kChannelsPost{.any_layout = true, .channels = true, .epilogue = true};
constexpr OpDef kOps[] = {
    {.name = "Conv", .since = 22, .in = {2, 3}, .cast = kLowClass, .channel_slots = 1, .channel_outputs = 1, .check = CheckConv, .grad = GradConv, .lower = LowerConv, .traits = kChannelsPost},
    {.name = "ConvTranspose", .since = 22, .in = {2, 3}, .cast = kLowClass, .channel_slots = 1, .channel_outputs = 1, .check = CheckConvTranspose, .infer = InferConvTranspose, .grad = GradConvTranspose, .lower = LowerConvTranspose, .traits = kChannels},
    {.domain = kOwnDomain, .name = "ConvEx", .in = 2, .cast = kLowClass, .channel_slots = 1, .channel_outputs = 1, .infer = InferFromDims, .lower = LowerConvEx, .body = BodyConvEx, .traits = kChannels},
    {.domain = kOwnDomain, .name = "ConvGradData", .in = 2, .cast = kLowClass, .channel_slots = 1, .channel_outputs = 1, .infer = InferFromDims, .lower = LowerConvGradData, .body = BodyConvGradData, .traits = kChannels},
    {.domain = kOwnDomain, .name = "ConvGradWeights", .in = 2, .cast = kLowClass, .channel_slots = 3, .infer = InferFromDims, .lower = LowerConvGradWeights, .body = BodyConvGradWeights,
     .traits = {.any_layout = true, .channels = true, .wide_output = true}},
};
// clang-format on

}  // namespace

std::span<const OpDef> ConvOps() { return kOps; }

}  // namespace ampc
