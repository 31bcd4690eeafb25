// SPDX-License-Identifier: Apache-2.0
// Pooling. MaxPool's training form also gives the position of each maximum in its plane (int32:
// half of ONNX's Indices, which are made of it).
#include <algorithm>

#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"
#include "compiler/ops/window.h"

namespace ampc {
namespace {

Status CheckPool(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  if (inputs.empty() || inputs[0] == nullptr) return {};
  AMPC_ASSIGN(const std::vector<WindowAxis> axes,
              ReadWindow(attrs, inputs[0]->dims, attrs.Ints("kernel_shape")));
  return PadsToSame(attrs) ? Status() : CheckRoom(axes, true);
}

// Explicit window of a pool.
Attrs Window(const Attrs& attrs, const Dims& x, const Dims& y) {
  const std::vector<int64_t> kernel = attrs.Ints("kernel_shape");
  const size_t n = kernel.size();
  const std::vector<int64_t> strides = attrs.Ints("strides", std::vector<int64_t>(n, 1));
  const std::vector<int64_t> dilations = attrs.Ints("dilations", std::vector<int64_t>(n, 1));
  std::vector<int64_t> pads = attrs.Ints("pads", std::vector<int64_t>(2 * n, 0));
  const std::string_view auto_pad = attrs.String("auto_pad", "NOTSET");
  for (size_t i = 0; i < n && auto_pad.starts_with("SAME"); ++i) {
    const int64_t total = std::max<int64_t>(
        (y[i + 2] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - x[i + 2], 0);
    pads[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    pads[i + n] = total - pads[i];
  }
  // ceil_mode: the last window hangs over the end; that is padding, too, but none that an average
  // counts.
  std::vector<int64_t> overhang(n, 0);
  for (size_t i = 0; i < n; ++i) {
    const int64_t reach = (y[i + 2] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1;
    overhang[i] = std::max<int64_t>(reach - x[i + 2] - pads[i] - pads[i + n], 0);
    pads[i + n] += overhang[i];
  }
  Attrs window{
      {"kernel_shape", kernel}, {"strides", strides}, {"dilations", dilations}, {"pads", pads}};
  if (attrs.Has("count_include_pad"))
    window.Set("count_include_pad", attrs.Int("count_include_pad"));
  const bool hangs = std::any_of(overhang.begin(), overhang.end(), [](int64_t o) { return o > 0; });
  if (attrs.Int("count_include_pad") != 0 && hangs) window.Set("overhang", overhang);
  return window;
}

// ---- MaxPool

Status LowerMaxPool(LowerContext& c) {
  const bool indices = c.num_outputs() > 1 && c.out(1) != ir::kNone;
  Attrs params = Window(c.attrs(), c.desc(c.in(0)).dims, c.desc(c.out(0)).dims);
  if (indices) params.Set("storage_order", c.attrs().Int("storage_order"));
  c.Call("pool_max", std::move(params), {c.in(0)}, {c.out(0), indices ? c.out(1) : ir::kNone});
  return {};
}

// ONNX's Indices from the positions in the planes: counted through the whole tensor; with
// storage_order = 1 each plane is counted along its first axis first.
ir::ValueId Indices(ir::Builder& b, ir::ValueId position, const Dims& x, bool column_major) {
  const int64_t planes = x[0] * x[1], plane = NumElements(std::span(x).subspan(2));
  HostTensor starts = HostTensor::Int64s(std::vector<int64_t>(static_cast<size_t>(planes)));
  for (int64_t i = 0; i < planes; ++i)
    reinterpret_cast<int64_t*>(starts.data.data())[i] = i * plane;
  starts.dims = Dims(x.size(), 1);
  std::copy_n(x.begin(), 2, starts.dims.begin());
  std::string_view expr = "x0 + x1";
  if (column_major && x.size() == 4) expr = "r = x0 / $w; y0 = x1 + r + (x0 - r * $w) * $h";
  if (column_major && x.size() == 5) {
    expr = "q = x0 / $d; r = q / $w; y0 = x1 + r + (q - r * $w) * $h + (x0 - q * $d) * ($h * $w)";
  }
  Attrs params;
  for (size_t i = 2; i < x.size() && column_major; ++i)
    params.Set(std::string(1, "hwd"[i - 2]), x[i]);
  return b.Map(expr, {position, b.Constant(std::move(starts))}, DType::kInt64, std::move(params));
}

// The pool with indices takes the node's place.
Status BecomeIndexed(ir::Graph& graph, ir::NodeId id, ir::Builder& b, Attrs window) {
  const ir::Node node = graph.node(id);
  const Dims x = graph.type(node.inputs[0]).dims;
  window.Set("dims", graph.type(node.outputs[0]).dims);
  const std::vector<ir::ValueId> outs =
      b.Multi(kOwnDomain, "MaxPoolIndexed", node.inputs, std::move(window), 2);
  std::vector<std::pair<ir::ValueId, ir::ValueId>> places = {{node.outputs[0], outs[0]}};
  if (node.outputs.size() > 1 && node.outputs[1] != ir::kNone) {
    const bool column_major = node.attrs.Int("storage_order") != 0;
    places.emplace_back(node.outputs[1], Indices(b, outs[1], x, column_major));
  }
  if (b.failed()) return b.TakeStatus();
  std::vector<std::string> names;
  for (const auto& [old, now] : places) {
    names.push_back(graph.value(old).name);
    graph.ReplaceUses(old, now);
  }
  graph.Erase(id);
  for (size_t i = 0; i < places.size(); ++i) graph.Rename(places[i].second, names[i]);
  return {};
}

Status TrainMaxPool(ir::Graph& graph, ir::NodeId id, ir::Builder& b) {
  const ir::Node& node = graph.node(id);
  return BecomeIndexed(
      graph, id, b,
      Window(node.attrs, graph.type(node.inputs[0]).dims, graph.type(node.outputs[0]).dims));
}

Status InferMaxPoolIndexed(InferContext& c) {
  const Dims dims = c.attrs.Ints("dims");
  c.outputs = {{c.in(0).dtype, dims}, {DType::kInt32, dims}};
  return {};
}

Attrs WindowParams(const Attrs& attrs) {
  Attrs p;
  for (std::string_view name : {"kernel_shape", "strides", "dilations", "pads"})
    p.Set(name, attrs.Ints(name));
  if (attrs.Has("count_include_pad")) p.Set("count_include_pad", attrs.Int("count_include_pad"));
  if (attrs.Has("overhang")) p.Set("overhang", attrs.Ints("overhang"));
  return p;
}

Status LowerMaxPoolIndexed(LowerContext& c) {
  c.Call("pool_max", WindowParams(c.attrs()), {c.in(0)}, {c.out(0), c.out(1)});
  return {};
}

Status GradMaxPoolIndexed(GradContext& g) {
  Attrs attrs = WindowParams(g.attrs());
  attrs.Set("dims", g.type(g.x(0)).dims);
  if (g.Needs(0)) g.Set(0, g.b.Own("MaxPoolGrad", {g.dy(), g.y(1)}, std::move(attrs)));
  return {};
}

Status LowerMaxPoolGrad(LowerContext& c) {
  c.Call("pool_max_bwd", WindowParams(c.attrs()), {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}

// An output longer than floor would give comes from ceil_mode.
bool CeilMode(const Attrs& a, const Dims& x, const Dims& y) {
  const std::vector<int64_t> k = a.Ints("kernel_shape"), s = a.Ints("strides"),
                             d = a.Ints("dilations"), p = a.Ints("pads");
  for (size_t i = 0; i < k.size(); ++i) {
    if (y[i + 2] != (x[i + 2] + p[i] + p[i + k.size()] - (k[i] - 1) * d[i] - 1) / s[i] + 1)
      return true;
  }
  return false;
}

std::string WindowText(const Attrs& a, const Dims& x, const Dims& y) {
  return fmt::format(
      "kernel_shape = [{}], strides = [{}], dilations = [{}], pads = [{}], ceil_mode = {}",
      ListText(a.Ints("kernel_shape")), ListText(a.Ints("strides")), ListText(a.Ints("dilations")),
      ListText(a.Ints("pads")), CeilMode(a, x, y) ? 1 : 0);
}

int64_t Plane(const Dims& dims) { return NumElements(std::span(dims).subspan(2)); }

// The pool over w padded with -inf; r, the position in the padded plane, axis by axis as the one in
// the plane. It lies inside but where all of a window is -inf.
std::string PaddedMaxPoolText(const Attrs& attrs, const Dims& x, const Dims& y) {
  const std::vector<int64_t> pads = attrs.Ints("pads");
  const size_t n = pads.size() / 2;
  std::vector<int64_t> all(2 * x.size(), 0);
  Dims wide = x;
  for (size_t i = 0; i < n; ++i) {
    all[2 + i] = pads[i];
    all[x.size() + 2 + i] = pads[n + i];
    wide[2 + i] += pads[i] + pads[n + i];
  }
  Attrs inner = attrs;
  inner.Set("pads", std::vector<int64_t>(2 * n, 0));
  std::string t =
      ScalarText("minus", -1, "w") + ScalarText("none", 0, "w") +
      fmt::format(
          "low = Div (minus, none)\nwp = Constant <value_ints = [{}]> ()\nwide = Pad (w, wp, low)\n"
          "m, i = MaxPool <{}> (wide)\nn = Constant <value_int = {}> ()\nq{} = Mod (i, n)\n"
          "zero = Constant <value_int = 0> ()\n",
          ListText(all), WindowText(inner, wide, y), Plane(wide), n);
  int64_t stride = 1;
  for (size_t i = n; i-- > 0;) {
    t += fmt::format(
        "d{0} = Constant <value_int = {1}> ()\nc{0} = Mod (q{2}, d{0})\nq{0} = Div (q{2}, d{0})\n"
        "b{0} = Constant <value_int = {3}> ()\nf{0} = Sub (c{0}, b{0})\n"
        "e{0} = Constant <value_int = {4}> ()\ng{0} = Clip (f{0}, zero, e{0})\n"
        "s{0} = Constant <value_int = {5}> ()\nh{0} = Mul (g{0}, s{0})\n",
        i, wide[2 + i], i + 1, pads[i], x[2 + i] - 1, stride);
    t += i + 1 == n ? fmt::format("a{0} = Identity (h{0})\n", i)
                    : fmt::format("a{0} = Add (a{1}, h{0})\n", i, i + 1);
    stride *= x[2 + i];
  }
  return t + "r = Identity (a0)\n";
}

// ONNX's Indices count through the whole tensor: the plane's part is the remainder.
Result<std::string> BodyMaxPoolIndexed(const BodyContext& c) {
  const Dims &x = c.inputs[0]->dims, &y = c.outputs[0]->dims;
  const int compute = static_cast<int>(AccOf(c.inputs[0]->dtype));
  if (PadsReachKernel(c.attrs.Ints("pads"), c.attrs.Ints("kernel_shape"))) {
    return fmt::format("w = Cast <to = {}> (i0)\n", compute) + PaddedMaxPoolText(c.attrs, x, y) +
           fmt::format("o0 = Cast <to = {}> (m)\no1 = Cast <to = 6> (r)\n",
                       static_cast<int>(c.outputs[0]->dtype));
  }
  return fmt::format(
      "w = Cast <to = {}> (i0)\nm, i = MaxPool <{}> (w)\nn = Constant <value_int = {}> ()\nr = Mod "
      "(i, n)\n"
      "o0 = Cast <to = {}> (m)\no1 = Cast <to = 6> (r)\n",
      compute, WindowText(c.attrs, x, y), Plane(x), static_cast<int>(c.outputs[0]->dtype));
}

Result<std::string> BodyMaxPoolGrad(const BodyContext& c) {
  const Dims &x = c.outputs[0]->dims, &y = c.inputs[0]->dims;
  const int compute = static_cast<int>(AccOf(c.inputs[0]->dtype));
  const int64_t planes = x[0] * x[1];
  return fmt::format(
      "w = Cast <to = {0}> (i0)\nix = Cast <to = 7> (i1)\nfs = Constant <value_ints = [{1}, {2}]> "
      "()\nd = Reshape <allowzero = 1> (w, fs)\n"
      "p = Reshape <allowzero = 1> (ix, fs)\nzs = Constant <value_ints = [{1}, {3}]> ()\nz0 = "
      "ConstantOfShape <value = float[1] {{0}}> (zs)\n"
      "z = Cast <to = {0}> (z0)\ns = ScatterElements <axis = 1, reduction = \"add\"> (z, p, d)\nos "
      "= Constant <value_ints = [{4}]> ()\n"
      "r = Reshape <allowzero = 1> (s, os)\no0 = Cast <to = {5}> (r)\n",
      compute, planes, Plane(y), Plane(x), ListText(x), static_cast<int>(c.outputs[0]->dtype));
}

// ---- AveragePool, global pools

Status LowerAveragePool(LowerContext& c) {
  c.Call("pool_avg", Window(c.attrs(), c.desc(c.in(0)).dims, c.desc(c.out(0)).dims), {c.in(0)},
         {c.out(0)});
  return {};
}

Status GradAveragePool(GradContext& g) {
  if (!g.Needs(0)) return {};
  const Dims x = g.type(g.x(0)).dims;
  Attrs attrs = Window(g.attrs(), x, g.type(g.y()).dims);
  attrs.Set("count_include_pad", g.attrs().Int("count_include_pad"));
  attrs.Set("dims", x);
  g.Set(0, g.b.Own("AveragePoolGrad", {g.dy()}, std::move(attrs)));
  return {};
}

Status LowerAveragePoolGrad(LowerContext& c) {
  c.Call("pool_avg_bwd", WindowParams(c.attrs()), {c.in(0)}, {c.out(0)});
  return {};
}

// Each output spreads dy / count over its window: a transposed depthwise convolution with ones of
// dy / count, then the padding is cut. count = AveragePool-like sum of ones over the valid (or
// padded) positions.
Result<std::string> BodyAveragePoolGrad(const BodyContext& c) {
  const Dims &x = c.outputs[0]->dims, &y = c.inputs[0]->dims;
  const int compute = static_cast<int>(AccOf(c.inputs[0]->dtype));
  const std::vector<int64_t> k = c.attrs.Ints("kernel_shape"), s = c.attrs.Ints("strides"),
                             d = c.attrs.Ints("dilations"), p = c.attrs.Ints("pads");
  const size_t n = k.size(), rank = n + 2;
  const std::vector<int64_t> overhang = c.attrs.Ints("overhang", std::vector<int64_t>(n, 0));
  std::vector<int64_t> window = {1, 1}, ones_dims = {1, 1}, fit(2 * rank, 0), pad_ones(2 * rank, 0),
                       flat_y = {y[0] * y[1], 1};
  for (size_t i = 0; i < n; ++i) {
    window.push_back(k[i]);
    flat_y.push_back(y[i + 2]);
    const int64_t full = (y[i + 2] - 1) * s[i] + (k[i] - 1) * d[i] + 1;
    const bool include = c.attrs.Int("count_include_pad") != 0;
    ones_dims.push_back(include ? x[i + 2] + p[i] + p[i + n] - overhang[i] : x[i + 2]);
    pad_ones[2 + i] = include ? 0 : p[i];
    // Windows that ceil_mode hangs over the end count only what exists.
    pad_ones[rank + 2 + i] = full - ones_dims.back() - pad_ones[2 + i];
    fit[2 + i] = -p[i];
    fit[rank + 2 + i] = x[i + 2] + p[i] - full;
  }
  const std::string geometry =
      fmt::format("strides = [{}], dilations = [{}]", ListText(s), ListText(d));
  return fmt::format(
      "w = Cast <to = {0}> (i0)\nfs = Constant <value_ints = [{1}]> ()\ndy = Reshape <allowzero = "
      "1> (w, fs)\nks = Constant <value_ints = [{2}]> ()\n"
      "k32 = ConstantOfShape <value = float[1] {{1}}> (ks)\nk = Cast <to = {0}> (k32)\nxs = "
      "Constant <value_ints = [{3}]> ()\n"
      "x32 = ConstantOfShape <value = float[1] {{1}}> (xs)\nx1 = Cast <to = {0}> (x32)\npp = "
      "Constant <value_ints = [{4}]> ()\n"
      "x2 = Pad (x1, pp)\ncount = Conv <{5}> (x2, k)\nq = Div (dy, count)\nf = ConvTranspose <{5}> "
      "(q, k)\n"
      "fp = Constant <value_ints = [{6}]> ()\nr = Pad (f, fp)\nos = Constant <value_ints = [{7}]> "
      "()\nr2 = Reshape <allowzero = 1> (r, os)\n"
      "o0 = Cast <to = {8}> (r2)\n",
      compute, ListText(flat_y), ListText(window), ListText(ones_dims), ListText(pad_ones),
      geometry, ListText(fit), ListText(x), static_cast<int>(c.outputs[0]->dtype));
}

Status LowerGlobalAverage(LowerContext& c) {
  std::vector<int64_t> axes;
  for (size_t i = 2; i < c.desc(c.in(0)).dims.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  c.Call("reduce", {{"op", std::string("mean")}, {"axes", std::move(axes)}}, {c.in(0)}, {c.out(0)});
  return {};
}

Status GradGlobalAverage(GradContext& g) {
  if (!g.Needs(0)) return {};
  const Dims x = g.type(g.x(0)).dims;
  const ir::ValueId share =
      g.b.Map("x0 / $n", {g.dy()}, g.type(g.x(0)).dtype, {{"n", static_cast<double>(Plane(x))}});
  g.Set(0, g.b.Expand(share, x));
  return {};
}

Status LowerGlobalMax(LowerContext& c) {
  std::vector<int64_t> axes;
  for (size_t i = 2; i < c.desc(c.in(0)).dims.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  c.Call("reduce", {{"op", std::string("max")}, {"axes", std::move(axes)}}, {c.in(0)}, {c.out(0)});
  return {};
}

// The window of a global pool is the plane: its training form is an ordinary indexed pool, so ties
// go to the first.
Status TrainGlobalMax(ir::Graph& graph, ir::NodeId id, ir::Builder& b) {
  const Dims x = graph.type(graph.node(id).inputs[0]).dims;
  const size_t n = x.size() - 2;
  return BecomeIndexed(graph, id, b,
                       {{"kernel_shape", std::vector<int64_t>(x.begin() + 2, x.end())},
                        {"strides", std::vector<int64_t>(n, 1)},
                        {"dilations", std::vector<int64_t>(n, 1)},
                        {"pads", std::vector<int64_t>(2 * n, 0)}});
}

// clang-format off
constexpr OpDef kOps[] = {
    {.name = "MaxPool", .since = 22, .out = {1, 2}, .channel_slots = 1, .channel_outputs = 1, .check = CheckPool, .training = TrainMaxPool, .lower = LowerMaxPool, .traits = {.any_layout = true}},
    {.name = "AveragePool", .since = 22, .channel_slots = 1, .channel_outputs = 1, .check = CheckPool, .grad = GradAveragePool, .lower = LowerAveragePool, .traits = {.any_layout = true}},
    {.name = "GlobalAveragePool", .since = 22, .grad = GradGlobalAverage, .lower = LowerGlobalAverage, .traits = {.reads_any_layout = true}},
    {.name = "GlobalMaxPool", .since = 22, .training = TrainGlobalMax, .lower = LowerGlobalMax, .traits = {.reads_any_layout = true}},
    {.domain = kOwnDomain, .name = "MaxPoolIndexed", .out = 2, .channel_slots = 1, .channel_outputs = 3, .infer = InferMaxPoolIndexed, .grad = GradMaxPoolIndexed, .lower = LowerMaxPoolIndexed, .body = BodyMaxPoolIndexed, .traits = {.any_layout = true}},
    {.domain = kOwnDomain, .name = "MaxPoolGrad", .in = 2, .channel_slots = 3, .channel_outputs = 1, .infer = InferFromDims, .lower = LowerMaxPoolGrad, .body = BodyMaxPoolGrad, .traits = {.any_layout = true}},
    {.domain = kOwnDomain, .name = "AveragePoolGrad", .channel_slots = 1, .channel_outputs = 1, .infer = InferFromDims, .lower = LowerAveragePoolGrad, .body = BodyAveragePoolGrad, .traits = {.any_layout = true}},
};
// clang-format on

}  // namespace

std::span<const OpDef> PoolOps() { return kOps; }

}  // namespace ampc
