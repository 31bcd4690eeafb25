// SPDX-License-Identifier: Apache-2.0
// Ops that move elements: Transpose, Slice, Split, Concat, Expand, Gather, Pad, and the adjoints
// that their gradients use.
//
// All but Concat and Gather lower to `copy` (a strided read) or `scatter_copy` (a strided write
// into a filled tensor).
#include <algorithm>
#include <numeric>

#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

// y[i] = x[offset + i * strides]
void EmitCopy(LowerContext& c, Operand x, Operand y, int64_t offset, std::vector<int64_t> strides) {
  c.Call("copy", {{"offset", offset}, {"strides", std::move(strides)}}, {x}, {y});
}

// ---- Transpose

std::vector<int64_t> Permutation(const Attrs& attrs, size_t rank) {
  std::vector<int64_t> perm = attrs.Ints("perm");
  if (perm.empty()) {
    perm.resize(rank);
    for (size_t i = 0; i < rank; ++i) perm[i] = static_cast<int64_t>(rank - 1 - i);
  }
  return perm;
}

Status GradTranspose(GradContext& g) {
  const std::vector<int64_t> perm = Permutation(g.attrs(), g.type(g.x(0)).dims.size());
  std::vector<int64_t> inverse(perm.size());
  for (size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  if (g.Needs(0)) g.Set(0, g.b.Transpose(g.dy(), std::move(inverse)));
  return {};
}

Status LowerTranspose(LowerContext& c) {
  const TensorDesc& x = c.desc(c.in(0));
  const std::vector<int64_t> perm = Permutation(c.attrs(), x.dims.size()),
                             from = StridesOf(x.dims, x.layout);
  std::vector<int64_t> strides;
  int64_t previous = -1;
  bool moves = false;  // moving axes of size 1 moves no bytes
  for (int64_t p : perm) {
    strides.push_back(from[static_cast<size_t>(p)]);
    if (x.dims[static_cast<size_t>(p)] == 1) continue;
    moves = moves || p < previous;
    previous = p;
  }
  if (!moves) {
    c.Alias(0, c.in(0));
  } else {
    EmitCopy(c, c.in(0), c.out(0), 0, std::move(strides));
  }
  return {};
}

// ---- Slice

// What a Slice reads, per axis: first index and step. Lengths are the output's dims.
struct Window {
  std::vector<int64_t> start, step;
};

Result<Window> SliceWindow(const Dims& dims, const HostTensor* starts, const HostTensor* axes,
                           const HostTensor* steps) {
  Window w{std::vector<int64_t>(dims.size(), 0), std::vector<int64_t>(dims.size(), 1)};
  if (starts == nullptr) return BadInput("E0108", "'starts' is not known at compile time");
  for (int64_t i = 0; i < starts->elements(); ++i) {
    const auto axis = static_cast<size_t>(axes ? NormalAxis(axes->GetInt(i), dims.size()) : i);
    const int64_t step = steps ? steps->GetInt(i) : 1, n = dims[axis];
    int64_t start = starts->GetInt(i);
    if (start < 0) start += n;
    w.start[axis] = step > 0 ? std::clamp<int64_t>(start, 0, n)
                             : std::clamp<int64_t>(start, 0, std::max<int64_t>(n - 1, 0));
    w.step[axis] = step;
  }
  return w;
}

// The adjoint of reading a window: SliceGrad(dy) writes dy into zeros of `dims`.
ir::ValueId SliceGrad(ir::Builder& b, ir::ValueId dy, const Dims& dims, const Window& w) {
  return b.Own("SliceGrad", {dy}, {{"dims", dims}, {"start", w.start}, {"step", w.step}});
}

Status LowerSliceGrad(LowerContext& c) {
  const std::vector<int64_t> start = c.attrs().Ints("start"), step = c.attrs().Ints("step");
  std::vector<int64_t> strides = StridesOf(c.desc(c.out(0)).dims, c.desc(c.out(0)).layout);
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    offset += start[i] * strides[i];
    strides[i] *= step[i];
  }
  c.Call("scatter_copy", {{"offset", offset}, {"strides", std::move(strides)}, {"value", 0.0}},
         {c.in(0)}, {c.out(0)});
  return {};
}

// Flat positions of the window, scattered into zeros.
Result<std::string> BodySliceGrad(const BodyContext& c) {
  const Dims& dims = c.outputs[0]->dims;
  const std::vector<int64_t> start = c.attrs.Ints("start"), step = c.attrs.Ints("step");
  const int64_t total = NumElements(dims), count = c.inputs[0]->elements();
  std::string text;
  const std::vector<int64_t> strides = StridesOf(dims, Layout::kRowMajor);
  std::string sum;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t n = c.inputs[0]->dims[i];
    std::vector<int64_t> shape(dims.size(), 1);
    shape[i] = n;
    text += fmt::format(
        "a{0} = Constant <value_int = {1}> ()\nb{0} = Constant <value_int = {2}> ()\nd{0} = "
        "Constant <value_int = {3}> ()\n"
        "r{0} = Range (a{0}, b{0}, d{0})\ns{0} = Constant <value_ints = [{4}]> ()\np{0} = Reshape "
        "<allowzero = 1> (r{0}, s{0})\n",
        i, start[i] * strides[i], (start[i] + n * step[i]) * strides[i], step[i] * strides[i],
        ListText(shape));
    text += i == 0 ? "q0 = Identity (p0)\n" : fmt::format("q{0} = Add (q{1}, p{0})\n", i, i - 1);
  }
  return text +
         fmt::format(
             "n = Constant <value_ints = [{}]> ()\nm = Constant <value_ints = [{}]> ()\n"
             "zero = ConstantOfShape <value = float[1] {{0}}> (n)\nz = CastLike (zero, i0)\n"
             "flat = Reshape <allowzero = 1> (i0, m)\npos = Reshape <allowzero = 1> (q{}, m)\nw = "
             "ScatterElements <axis = 0> (z, pos, flat)\n"
             "shape = Constant <value_ints = [{}]> ()\no0 = Reshape <allowzero = 1> (w, shape)\n",
             total, count, dims.empty() ? 0 : dims.size() - 1, ListText(dims));
}

const HostTensor* ConstantInput(const GradContext& g, size_t i) {
  return g.graph().ConstantOf(g.x(i));
}

Status GradSlice(GradContext& g) {
  const Dims dims = g.type(g.x(0)).dims;
  AMPC_ASSIGN(const Window w,
              SliceWindow(dims, ConstantInput(g, 1), ConstantInput(g, 3), ConstantInput(g, 4)));
  if (g.Needs(0)) g.Set(0, SliceGrad(g.b, g.dy(), dims, w));
  return {};
}

Status LowerSlice(LowerContext& c) {
  const TensorDesc& x = c.desc(c.in(0));
  AMPC_ASSIGN(const Window w, SliceWindow(x.dims, c.Constant(1), c.Constant(3), c.Constant(4)));
  std::vector<int64_t> strides = StridesOf(x.dims, x.layout);
  int64_t offset = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    offset += w.start[i] * strides[i];
    strides[i] *= w.step[i];
  }
  EmitCopy(c, c.in(0), c.out(0), offset, std::move(strides));
  return {};
}

// ---- Split, Concat

Status GradSplit(GradContext& g) {
  if (!g.Needs(0)) return {};
  const auto axis =
      static_cast<size_t>(NormalAxis(g.attrs().Int("axis"), g.type(g.x(0)).dims.size()));
  std::vector<ir::ValueId> parts;
  for (size_t i = 0; i < g.node.outputs.size(); ++i) {
    if (g.dy(i) != ir::kNone) {
      parts.push_back(g.dy(i));
      continue;
    }
    const ir::TensorType t = g.type(g.y(i));
    parts.push_back(g.b.Expand(g.b.Scalar(t.dtype, 0), t.dims));
  }
  g.Set(0, g.b.Op("", "Concat", parts, {{"axis", static_cast<int64_t>(axis)}}));
  return {};
}

Status LowerSplit(LowerContext& c) {
  const TensorDesc& x = c.desc(c.in(0));
  const auto axis = static_cast<size_t>(NormalAxis(c.attrs().Int("axis"), x.dims.size()));
  const std::vector<int64_t> strides = StridesOf(x.dims, x.layout);
  int64_t at = 0;
  for (size_t i = 0; i < c.num_outputs(); ++i) {
    EmitCopy(c, c.in(0), c.out(i), at * strides[axis], strides);
    at += c.desc(c.out(i)).dims[axis];
  }
  return {};
}

Status GradConcat(GradContext& g) {
  const Dims whole = g.type(g.y(0)).dims;
  const auto axis = static_cast<size_t>(NormalAxis(g.attrs().Int("axis"), whole.size()));
  int64_t at = 0;
  for (size_t i = 0; i < g.node.inputs.size(); ++i) {
    const int64_t n = g.type(g.x(i)).dims[axis];
    if (g.Needs(i)) {
      g.Set(i, g.b.Op("Slice", {g.dy(), g.b.Ints({at}), g.b.Ints({at + n}),
                                g.b.Ints({static_cast<int64_t>(axis)})}));
    }
    at += n;
  }
  return {};
}

Status LowerConcat(LowerContext& c) {
  std::vector<Operand> inputs;
  for (size_t i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.in(i));
  const int64_t axis = NormalAxis(c.attrs().Int("axis"), c.desc(c.out(0)).dims.size());
  c.Call("concat", {{"axis", axis}}, std::move(inputs), {c.out(0)});
  return {};
}

// ---- Expand, Pad

Status GradExpand(GradContext& g) {
  if (g.Needs(0)) g.Set(0, g.dy());  // Set sums the broadcast axes
  return {};
}

Status LowerExpand(LowerContext& c) {
  // An aliased output must not be asked for: out() makes its tensor.
  if (c.desc(c.in(0)).dims == c.graph().type(c.node().outputs[0]).dims) {
    c.Alias(0, c.in(0));
    return {};
  }
  const TensorDesc &x = c.desc(c.in(0)), &y = c.desc(c.out(0));
  const std::vector<int64_t> from = StridesOf(x.dims, x.layout);
  std::vector<int64_t> strides(y.dims.size(), 0);
  const size_t extra = y.dims.size() - x.dims.size();
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (x.dims[i] != 1) strides[i + extra] = from[i];
  }
  EmitCopy(c, c.in(0), c.out(0), 0, std::move(strides));
  return {};
}

// Pads before and after each axis; negative pads cut.
struct Pads {
  std::vector<int64_t> before, after;
};

Result<Pads> PadsOf(size_t rank, const HostTensor* pads, const HostTensor* axes) {
  if (pads == nullptr) return BadInput("E0108", "'pads' is not known at compile time");
  Pads p{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, 0)};
  const int64_t n = pads->elements() / 2;
  for (int64_t i = 0; i < n; ++i) {
    const auto axis = static_cast<size_t>(axes ? NormalAxis(axes->GetInt(i), rank) : i);
    p.before[axis] = pads->GetInt(i);
    p.after[axis] = pads->GetInt(i + n);
  }
  return p;
}

Status CheckPadMode(const Attrs& attrs) {
  const std::string_view mode = attrs.String("mode", "constant");
  if (mode != "constant")
    return Unsupported("E0102", "Pad mode '{}' is not supported, 'constant' is", mode);
  return {};
}

// The sum of dy over what is padded.
ir::ValueId PaddedSum(GradContext& g) {
  const ir::TensorType x = g.type(g.x(0)), y = g.type(g.y());
  std::vector<ir::ValueId> inputs = {g.b.Expand(g.b.Scalar(DType::kFloat32, 1), x.dims), g.x(1),
                                     g.b.Scalar(DType::kFloat32, 0)};
  if (g.x(3) != ir::kNone) inputs.push_back(g.x(3));
  const ir::ValueId kept = g.b.Op("", "Pad", inputs, g.attrs());
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < y.rank(); ++i) axes.push_back(i);
  const ir::ValueId padded = g.b.Map("where(x1 != 0, 0, x0)", {g.dy(), kept}, y.dtype);
  return g.b.Reshape(g.b.ReduceSum(padded, axes, false), g.type(g.x(2)).dims);
}

Status GradPad(GradContext& g) {
  AMPC_TRY(CheckPadMode(g.attrs()));
  const Dims dims = g.type(g.x(0)).dims;
  AMPC_ASSIGN(const Pads p, PadsOf(dims.size(), ConstantInput(g, 1), ConstantInput(g, 3)));
  if (g.Needs(2)) g.Set(2, PaddedSum(g));
  if (!g.Needs(0)) return {};
  // The adjoint pads dy by the opposite amounts.
  std::vector<int64_t> opposite;
  for (int64_t v : p.before) opposite.push_back(-v);
  for (int64_t v : p.after) opposite.push_back(-v);
  g.Set(0, g.b.Op("Pad", {g.dy(), g.b.Ints(opposite), g.b.Scalar(g.type(g.dy()).dtype, 0)}));
  return {};
}

Status LowerPad(LowerContext& c) {
  AMPC_TRY(CheckPadMode(c.attrs()));
  const TensorDesc x = c.desc(c.in(0)), y = c.desc(c.out(0));
  AMPC_ASSIGN(const Pads p, PadsOf(x.dims.size(), c.Constant(1), c.Constant(3)));
  const HostTensor* value = c.Constant(2);
  const bool runtime = c.num_inputs() > 2 && c.in(2) != ir::kNone && value == nullptr;
  if (runtime && c.desc(c.in(2)).elements() != 1)
    return BadInput("E0107", "the value has {} elements, expected 1", c.desc(c.in(2)).elements());
  // Cut first (negative pads), then place what is left.
  TensorDesc cut = x;
  const std::vector<int64_t> from = StridesOf(x.dims, x.layout), to = StridesOf(y.dims, y.layout);
  int64_t read = 0, write = 0;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    cut.dims[i] += std::min<int64_t>(p.before[i], 0) + std::min<int64_t>(p.after[i], 0);
    cut.dims[i] = std::max<int64_t>(cut.dims[i], 0);
    read += std::max<int64_t>(-p.before[i], 0) * from[i];
    write += std::max<int64_t>(p.before[i], 0) * to[i];
  }
  Operand source = c.in(0);
  if (cut.dims != x.dims) {
    source = c.Temp(cut);
    EmitCopy(c, c.in(0), source, read, from);
  }
  const double fill = value != nullptr ? value->GetDouble(0) : 0.0;
  const auto place = [&](Operand from_x, Operand to_y) {
    c.Call("scatter_copy", {{"offset", write}, {"strides", to}, {"value", fill}}, {from_x}, {to_y});
  };
  if (!runtime) {
    place(source, c.out(0));
    return {};
  }
  // A value that a run brings: chosen where ones, placed alike, are none.
  const Operand ones = c.Temp({DType::kBool, c.desc(source).dims});
  const Operand kept = c.Temp({DType::kBool, y.dims}), data = c.Temp({y.dtype, y.dims});
  c.Call("fill", {{"value", 1.0}}, {}, {ones});
  place(ones, kept);
  place(source, data);
  c.Call("map", {{"expr", std::string("where(x1, x0, x2)")}}, {data, kept, c.in(2)}, {c.out(0)});
  return {};
}

// ---- Gather

Status GradGather(GradContext& g) {
  if (!g.Needs(0)) return {};
  const Dims dims = g.type(g.x(0)).dims;
  g.Set(0, g.b.Own("GatherGrad", {g.dy(), g.x(1)},
                   {{"dims", dims}, {"axis", NormalAxis(g.attrs().Int("axis"), dims.size())}}));
  return {};
}

Status LowerGather(LowerContext& c) {
  const int64_t axis = NormalAxis(c.attrs().Int("axis"), c.desc(c.in(0)).dims.size());
  c.Call("gather", {{"axis", axis}}, {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}

Status GradGatherGrad(GradContext& g) {
  if (g.Needs(0)) g.Set(0, g.b.Op("Gather", {g.dy(), g.x(1)}, {{"axis", g.attrs().Int("axis")}}));
  return {};
}

Status LowerGatherGrad(LowerContext& c) {
  c.Call("gather_bwd", {{"axis", c.attrs().Int("axis")}}, {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}

// One-hot product: rows of dy summed where the index says, in fp32.
Result<std::string> BodyGatherGrad(const BodyContext& c) {
  const Dims& dims = c.outputs[0]->dims;
  const auto axis = static_cast<size_t>(c.attrs.Int("axis"));
  const DType compute = AccOf(c.inputs[0]->dtype);
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) outer *= dims[i];
  for (size_t i = axis + 1; i < dims.size(); ++i) inner *= dims[i];
  const int64_t count = c.inputs[1]->elements();
  return fmt::format(
      "w = Cast <to = {0}> (i0)\nfs = Constant <value_ints = [{1}, {2}, {3}]> ()\nf = Reshape "
      "<allowzero = 1> (w, fs)\n"
      "is = Constant <value_ints = [{2}]> ()\nix64 = Cast <to = 7> (i1)\nix = Reshape <allowzero = "
      "1> (ix64, is)\n"
      "depth = Constant <value_int = {4}> ()\nv32 = Constant <value_floats = [0.0, 1.0]> ()\nv = "
      "Cast <to = {0}> (v32)\n"
      "hot = OneHot <axis = 0> (ix, depth, v)\np = MatMul (hot, f)\n"
      "os = Constant <value_ints = [{5}]> ()\nr = Reshape <allowzero = 1> (p, os)\no0 = Cast <to = "
      "{6}> (r)\n",
      static_cast<int>(compute), outer, count, inner, dims[axis], ListText(dims),
      static_cast<int>(c.outputs[0]->dtype));
}

// ---- change of layout

Status LowerToLayout(LowerContext& c) {
  const TensorDesc& x = c.desc(c.in(0));
  // One channel, or one position per plane: both layouts have the same bytes.
  const bool same = x.dims[1] == 1 || NumElements(std::span(x.dims).subspan(2)) == 1;
  if (same || x.layout == c.graph().value(c.node().outputs[0]).layout) {
    c.Alias(0, c.in(0));
  } else {
    EmitCopy(c, c.in(0), c.out(0), 0, StridesOf(x.dims, x.layout));
  }
  return {};
}

Result<std::string> BodyIdentity(const BodyContext&) { return std::string("o0 = Identity (i0)\n"); }

constexpr OpDef kOps[] = {
    {.name = "Transpose",
     .since = 21,
     .grad = GradTranspose,
     .lower = LowerTranspose,
     .traits = {.movement = true}},
    {.name = "Slice",
     .since = 13,
     .in = {3, 5},
     .grad = GradSlice,
     .lower = LowerSlice,
     .traits = {.movement = true}},
    {.name = "Split",
     .since = 18,
     .in = {1, 2},
     .out = {1, kVariadic},
     .grad = GradSplit,
     .lower = LowerSplit},
    {.name = "Concat",
     .since = 13,
     .in = {1, kVariadic},
     .cast = kWidestClass,
     .grad = GradConcat,
     .lower = LowerConcat},
    {.name = "Expand",
     .since = 13,
     .in = 2,
     .grad = GradExpand,
     .lower = LowerExpand,
     .traits = {.movement = true}},
    {.name = "Pad", .since = 23, .in = {2, 4}, .grad = GradPad, .lower = LowerPad},
    {.name = "Gather",
     .since = 13,
     .in = 2,
     .index_slot = 1,
     .grad = GradGather,
     .lower = LowerGather},
    {.domain = kOwnDomain,
     .name = "SliceGrad",
     .infer = InferFromDims,
     .lower = LowerSliceGrad,
     .body = BodySliceGrad},
    {.domain = kOwnDomain,
     .name = "GatherGrad",
     .in = 2,
     .infer = InferFromDims,
     .grad = GradGatherGrad,
     .lower = LowerGatherGrad,
     .body = BodyGatherGrad},
    {.domain = kOwnDomain,
     .name = "ToLayout",
     .channel_slots = 1,
     .channel_outputs = 1,
     .infer = InferSame,
     .lower = LowerToLayout,
     .body = BodyIdentity,
     .traits = {.any_layout = true}},
};

}  // namespace

std::span<const OpDef> MovementOps() { return kOps; }

}  // namespace ampc
