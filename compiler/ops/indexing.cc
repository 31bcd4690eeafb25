// SPDX-License-Identifier: Apache-2.0
// Ops that pick or place elements by index tensors: GatherElements, GatherND, ScatterElements,
// ScatterND, TopK, OneHot. (Gather, along one axis, stands with the movement ops.)
//
// A gather and a scatter of the same indices are adjoint, so gradients are standard ops again.
#include "compiler/ir/builder.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

using ir::ValueId;

ValueId ZerosLike(GradContext& g, ValueId v) {
  const ir::TensorType type = g.type(v);
  return g.b.Expand(g.b.Scalar(type.dtype, 0), type.dims);
}

// ---- the two families

// How one family picks and places with the indices of slot 1.
struct Family {
  std::string_view gather, scatter;
  Attrs attrs;
  ValueId indices;

  ValueId Gather(ir::Builder& b, ValueId data) const {
    return b.Op(gather, {data, indices}, attrs);
  }
  ValueId Scatter(ir::Builder& b, ValueId data, ValueId updates,
                  std::string_view reduction = "none") const {
    Attrs with = attrs;
    if (reduction != "none") with.Set("reduction", std::string(reduction));
    return b.Op(scatter, {data, indices, updates}, std::move(with));
  }
};

Family Elements(const GradContext& g) {
  return {"GatherElements", "ScatterElements", {{"axis", g.attrs().Int("axis")}}, g.x(1)};
}
Family Tuples(const GradContext& g) { return {"GatherND", "ScatterND", {}, g.x(1)}; }

Status GradGatherElements(GradContext& g) {
  if (g.Needs(0)) g.Set(0, Elements(g).Scatter(g.b, ZerosLike(g, g.x(0)), g.dy(), "add"));
  return {};
}

// ScatterND knows no batch axes: their coordinates become part of the tuples.
ValueId TuplesWithBatch(GradContext& g, int64_t batch_dims) {
  const ir::TensorType type = g.type(g.x(1));
  Dims entries(type.dims.begin(), type.dims.end() - 1);
  entries.push_back(1);
  std::vector<ValueId> parts;
  for (int64_t axis = 0; axis < batch_dims; ++axis) {
    const int64_t n = type.dims[static_cast<size_t>(axis)];
    HostTensor counter = HostTensor::Int64s(std::vector<int64_t>(static_cast<size_t>(n)));
    for (int64_t i = 0; i < n; ++i) reinterpret_cast<int64_t*>(counter.data.data())[i] = i;
    counter.dims.assign(entries.size(), 1);
    counter.dims[static_cast<size_t>(axis)] = n;
    parts.push_back(g.b.Expand(g.b.Cast(g.b.Constant(std::move(counter)), type.dtype), entries));
  }
  parts.push_back(g.x(1));
  return g.b.Op("", "Concat", parts, {{"axis", int64_t{-1}}});
}

Status GradGatherND(GradContext& g) {
  if (!g.Needs(0)) return {};
  Family family = Tuples(g);
  if (const int64_t batch = g.attrs().Int("batch_dims"); batch > 0)
    family.indices = TuplesWithBatch(g, batch);
  g.Set(0, family.Scatter(g.b, ZerosLike(g, g.x(0)), g.dy(), "add"));
  return {};
}

// Where the result is the extreme, its gradient is shared equally by all that are equal to it
// (PyTorch's scatter_reduce).
void GradExtreme(GradContext& g, const Family& f) {
  const ValueId data = g.x(0), updates = g.x(2);
  const DType dtype = g.type(data).dtype;
  const DType acc = AccOf(dtype);
  const ValueId hit = g.b.Map("x0 == x1", {updates, f.Gather(g.b, g.y())}, acc);
  const ValueId own = g.b.Map("x0 == x1", {data, g.y()}, acc);
  const ValueId count = f.Scatter(g.b, own, hit, "add");
  const ValueId share = g.b.Map("x0 / x1", {g.dy(), count}, acc);
  if (g.Needs(0)) g.Set(0, g.b.Map("where(x1 != 0, x0, 0)", {share, own}, dtype));
  if (g.Needs(2)) g.Set(2, g.b.Map("where(x1 != 0, x0, 0)", {f.Gather(g.b, share), hit}, dtype));
}

// y = data * all updates of a place. An update's factor is the product of the others, made without
// dividing by zeros: the product with zeros left out, and how many there are.
void GradProduct(GradContext& g, const Family& f) {
  const ValueId updates = g.x(2);
  const DType dtype = g.type(updates).dtype;
  if (g.Needs(0)) g.Set(0, f.Scatter(g.b, g.dy(), updates, "mul"));
  if (!g.Needs(2)) return;
  const DType acc = AccOf(dtype);
  const ValueId flow = g.b.Map("x0 * x1", {g.dy(), g.x(0)}, acc);
  const ValueId product =
      f.Scatter(g.b, flow, g.b.Map("where(x0 == 0, 1, x0)", {updates}, acc), "mul");
  const Dims dims = g.type(g.x(0)).dims;
  const ValueId zeros = f.Scatter(g.b, g.b.Expand(g.b.Scalar(acc, 0), dims),
                                  g.b.Map("x0 == 0", {updates}, acc), "add");
  g.Set(2, g.b.Map("where(x0 == 0, where(x2 == 1, x1, 0), where(x2 == 0, x1 / x0, 0))",
                   {updates, f.Gather(g.b, product), f.Gather(g.b, zeros)}, dtype));
}

Status GradScatter(GradContext& g, const Family& f) {
  const std::string_view reduction = g.attrs().String("reduction", "none");
  if (reduction == "max" || reduction == "min") {
    GradExtreme(g, f);
  } else if (reduction == "mul") {
    GradProduct(g, f);
  } else {
    const bool add = reduction == "add";
    if (g.Needs(0)) g.Set(0, add ? g.dy() : f.Scatter(g.b, g.dy(), ZerosLike(g, g.x(2))));
    if (g.Needs(2)) g.Set(2, f.Gather(g.b, g.dy()));
  }
  return {};
}
Status GradScatterElements(GradContext& g) { return GradScatter(g, Elements(g)); }
Status GradScatterND(GradContext& g) { return GradScatter(g, Tuples(g)); }

Status LowerGatherElements(LowerContext& c) {
  c.Call("gather_elements",
         {{"axis", NormalAxis(c.attrs().Int("axis"), c.desc(c.in(0)).dims.size())}},
         {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}
Status LowerScatterElements(LowerContext& c) {
  c.Call("scatter_elements",
         {{"axis", NormalAxis(c.attrs().Int("axis"), c.desc(c.in(0)).dims.size())},
          {"reduction", std::string(c.attrs().String("reduction", "none"))}},
         {c.in(0), c.in(1), c.in(2)}, {c.out(0)});
  return {};
}
Status LowerGatherND(LowerContext& c) {
  c.Call("gather_nd", {{"batch_dims", c.attrs().Int("batch_dims")}}, {c.in(0), c.in(1)},
         {c.out(0)});
  return {};
}
Status LowerScatterND(LowerContext& c) {
  c.Call("scatter_nd", {{"reduction", std::string(c.attrs().String("reduction", "none"))}},
         {c.in(0), c.in(1), c.in(2)}, {c.out(0)});
  return {};
}

// ---- TopK

// The gradient of the values goes by the indices.
Status GradTopK(GradContext& g) {
  if (!g.Needs(0) || g.dy() == ir::kNone) return {};
  g.Set(0, g.b.Op("ScatterElements", {ZerosLike(g, g.x(0)), g.y(1), g.dy()},
                  {{"axis", g.attrs().Int("axis", -1)}}));
  return {};
}

Status LowerTopK(LowerContext& c) {
  const Dims& x = c.desc(c.in(0)).dims;
  const HostTensor* k = c.Constant(1);
  if (k == nullptr) return BadInput("E0108", "'K' is not known at compile time");
  c.Call("topk",
         {{"axis", NormalAxis(c.attrs().Int("axis", -1), x.size())},
          {"k", k->GetInt(0)},
          {"largest", c.attrs().Int("largest", 1)}},
         {c.in(0)}, {c.out(0), c.out(1)});
  return {};
}

// ---- OneHot

// values = [off, on]
Status GradOneHot(GradContext& g) {
  if (!g.Needs(2)) return {};
  const ir::TensorType type = g.type(g.x(2));
  const ValueId zero = g.b.Scalar(type.dtype, 0), one = g.b.Scalar(type.dtype, 1);
  const ValueId pair[] = {g.b.Reshape(zero, Dims{1}), g.b.Reshape(one, Dims{1})};
  const ValueId hot =
      g.b.Op("OneHot", {g.x(0), g.x(1), g.b.Op("", "Concat", pair, {{"axis", int64_t{0}}})},
             {{"axis", g.attrs().Int("axis", -1)}});
  const Dims dims = g.type(g.y()).dims;
  std::vector<int64_t> axes(dims.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  const auto sum = [&](std::string_view expr) {
    const ValueId part = g.b.Map(expr, {g.dy(), hot}, type.dtype);
    return g.b.Reshape(g.b.ReduceSum(part, axes, false), Dims{1});
  };
  const ValueId sums[] = {sum("where(x1 == 0, x0, 0)"), sum("where(x1 == 0, 0, x0)")};
  g.Set(2, g.b.Op("", "Concat", sums, {{"axis", int64_t{0}}}));
  return {};
}

Status LowerOneHot(LowerContext& c) {
  c.Call("one_hot", {{"axis", NormalAxis(c.attrs().Int("axis", -1), c.desc(c.out(0)).dims.size())}},
         {c.in(0), c.in(2)}, {c.out(0)});
  return {};
}

// clang-format off
constexpr OpDef kOps[] = {
    {.name = "GatherElements", .since = 13, .in = 2, .index_slot = 1, .grad = GradGatherElements, .lower = LowerGatherElements},
    {.name = "GatherND", .since = 13, .in = 2, .grad = GradGatherND, .lower = LowerGatherND},
    {.name = "ScatterElements", .since = 18, .in = 3, .cast = kWidestClass, .index_slot = 1, .grad = GradScatterElements, .lower = LowerScatterElements},
    {.name = "ScatterND", .since = 18, .in = 3, .cast = kWidestClass, .grad = GradScatterND, .lower = LowerScatterND},
    {.name = "TopK", .since = 11, .in = 2, .out = 2, .grad = GradTopK, .lower = LowerTopK},
    {.name = "OneHot", .since = 11, .in = 3, .no_gradient_slots = 0b011, .grad = GradOneHot, .lower = LowerOneHot},
};
// clang-format on

}  // namespace

std::span<const OpDef> IndexingOps() { return kOps; }

}  // namespace ampc
