// SPDX-License-Identifier: Apache-2.0
// Ops that are other ops in a fixed arrangement: DepthToSpace, SpaceToDepth, Hardmax, Compress, and
// Pad in the modes that repeat elements.
#include <algorithm>
#include <numeric>

#include "compiler/ops/op_def.h"
#include "compiler/onnx/canonical.h"
#include "compiler/onnx/source.h"

namespace ampc {
namespace {

using ir::ValueId;

Result<int64_t> BlockSize(CanonicalContext& c, SourceNode& n, bool divides_space) {
  const Dims& x = c.type(n, 0).dims;
  const int64_t size = n.attrs.Int("blocksize");
  constexpr int64_t kLargest = 1 << 20;  // its square is still a number
  if (x.size() != 4 || size <= 0 || size > kLargest)
    return BadInput("E0107",
                    "an input of rank 4 and a positive blocksize are expected, found {} and {}",
                    ToString(x), size);
  if (divides_space ? x[2] % size != 0 || x[3] % size != 0 : x[1] % (size * size) != 0)
    return BadInput("E0107", "blocksize {} does not divide the {} of {}", size,
                    divides_space ? "height and width" : "channels", ToString(x));
  return size;
}

Result<bool> ColumnsFirst(const SourceNode& n) {
  const std::string_view mode = n.attrs.String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return BadInput("E0107", "mode '{}': DCR or CRD is expected", mode);
  return mode == "CRD";
}

Status DepthToSpace(CanonicalContext& c, SourceNode& n) {
  AMPC_ASSIGN(const int64_t size, BlockSize(c, n, false));
  const Dims x = c.type(n, 0).dims;
  const int64_t channels = x[1] / (size * size);
  AMPC_ASSIGN(const bool columns_first, ColumnsFirst(n));
  const Dims split = columns_first ? Dims{x[0], channels, size, size, x[2], x[3]}
                                   : Dims{x[0], size, size, channels, x[2], x[3]};
  const std::vector<int64_t> perm = columns_first ? std::vector<int64_t>{0, 1, 4, 2, 5, 3}
                                                  : std::vector<int64_t>{0, 3, 4, 1, 5, 2};
  const ValueId moved = c.b.Transpose(c.b.Reshape(n.inputs[0], split), perm);
  n.Replace(c.b.Reshape(moved, Dims{x[0], channels, x[2] * size, x[3] * size}));
  return c.b.TakeStatus();
}

Status SpaceToDepth(CanonicalContext& c, SourceNode& n) {
  AMPC_ASSIGN(const int64_t size, BlockSize(c, n, true));
  const Dims x = c.type(n, 0).dims;
  const Dims split = {x[0], x[1], x[2] / size, size, x[3] / size, size};
  AMPC_ASSIGN(const bool columns_first, ColumnsFirst(n));
  const std::vector<int64_t> perm = columns_first ? std::vector<int64_t>{0, 1, 3, 5, 2, 4}
                                                  : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
  const ValueId moved = c.b.Transpose(c.b.Reshape(n.inputs[0], split), perm);
  n.Replace(c.b.Reshape(moved, Dims{x[0], x[1] * size * size, x[2] / size, x[3] / size}));
  return c.b.TakeStatus();
}

// One-hot of the first maximum. Before opset 13: everything from `axis` on is one axis.
Status Hardmax(CanonicalContext& c, SourceNode& n) {
  const ir::TensorType type = c.type(n, 0);
  const auto rank = static_cast<int64_t>(type.dims.size());
  const bool flattens = n.version < 13;
  int64_t axis = n.attrs.Int("axis", flattens ? 1 : -1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank || (axis == rank && !flattens))
    return BadInput("E0107", "axis {} of an input of rank {}", n.attrs.Int("axis"), rank);
  ValueId x = n.inputs[0];
  // OneHot wants indices of some rank, so a line becomes a row, too.
  if (flattens || rank == 1) {
    const auto split = type.dims.begin() + axis;
    x = c.b.Reshape(x,
                    Dims{std::accumulate(type.dims.begin(), split, int64_t{1}, std::multiplies<>()),
                         std::accumulate(split, type.dims.end(), int64_t{1}, std::multiplies<>())});
    axis = 1;
  }
  const int64_t depth = c.graph.type(x).dims[static_cast<size_t>(axis)];
  const ValueId best = c.b.Op("ArgMax", {x}, {{"axis", axis}, {"keepdims", int64_t{0}}});
  const float off_on[] = {0.0f, 1.0f};
  const ValueId values =
      c.b.Constant(ConvertFloats(HostTensor::Of<float>(DType::kFloat32, {2}, off_on), type.dtype));
  n.Replace(c.b.Reshape(c.b.Op("OneHot", {best, c.b.Ints({depth}), values}, {{"axis", axis}}),
                        type.dims));
  return c.b.TakeStatus();
}

// What a constant condition keeps.
Status Compress(CanonicalContext& c, SourceNode& n) {
  const HostTensor* condition = c.Constant(n, 1);
  if (condition == nullptr)
    return BadInput("E0108", "the condition ('{}') is not known at compile time",
                    c.graph.value(n.inputs[1]).name);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < condition->elements(); ++i) {
    if (condition->GetInt(i) != 0) kept.push_back(i);
  }
  ValueId x = n.inputs[0];
  const Dims dims = c.type(n, 0).dims;
  int64_t axis = 0;
  if (n.attrs.Has("axis")) {
    AMPC_ASSIGN(axis, CheckedAxis(n.attrs.Int("axis"), dims.size()));
  } else {
    x = c.b.Reshape(x, Dims{NumElements(dims)});
  }
  const int64_t length = c.graph.type(x).dims[static_cast<size_t>(axis)];
  if (condition->elements() > length)
    return BadInput("E0107", "a condition of {} elements for {}", condition->elements(), length);
  n.Replace(c.b.Op("Gather", {x, c.b.Ints(kept)}, {{"axis", axis}}));
  return c.b.TakeStatus();
}

// Where element i of a padded axis comes from; -1: nowhere (an empty axis).
int64_t SourceIndex(std::string_view mode, int64_t i, int64_t length) {
  if (length == 0) return -1;
  if (mode == "edge") return std::clamp<int64_t>(i, 0, length - 1);
  if (mode == "wrap") return (i % length + length) % length;
  if (length == 1) return 0;
  const int64_t period = 2 * (length - 1);  // reflect: the edge itself is not repeated
  const int64_t at = (i % period + period) % period;
  return at < length ? at : period - at;
}

// One Gather per padded axis. Negative pads cut, first.
Status PadByIndex(CanonicalContext& c, SourceNode& n, std::string_view mode) {
  const HostTensor* pads = c.Constant(n, 1);
  if (pads == nullptr) return BadInput("E0108", "'pads' is not known at compile time");
  const HostTensor* axes = c.Constant(n, 3);
  if (n.Has(3) && axes == nullptr) return BadInput("E0108", "'axes' is not known at compile time");
  const Dims dims = c.type(n, 0).dims;
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t count = pads->elements() / 2;
  if (pads->elements() != 2 * (axes == nullptr ? rank : axes->elements()))
    return BadInput("E0107", "{} pads for {} axes", pads->elements(),
                    axes == nullptr ? rank : axes->elements());
  ValueId x = n.inputs[0];
  for (int64_t k = 0; k < count; ++k) {
    AMPC_ASSIGN(const int64_t axis,
                CheckedAxis(axes == nullptr ? k : axes->GetInt(k), dims.size()));
    const int64_t before = pads->GetInt(k), after = pads->GetInt(k + count);
    if (before == 0 && after == 0) continue;
    const int64_t cut = std::max<int64_t>(-before, 0);
    const int64_t length = dims[static_cast<size_t>(axis)] - cut - std::max<int64_t>(-after, 0);
    const int64_t whole = length + std::max<int64_t>(before, 0) + std::max<int64_t>(after, 0);
    if (length < 0 || (length == 0 && whole > 0) || whole > (int64_t{1} << 24))
      return BadInput("E0107", "pads {} and {} of axis {} with {} elements", before, after, axis,
                      dims[static_cast<size_t>(axis)]);
    std::vector<int64_t> from;
    for (int64_t i = 0; i < whole; ++i)
      from.push_back(cut + SourceIndex(mode, i - std::max<int64_t>(before, 0), length));
    x = c.b.Op("Gather", {x, c.b.Ints(from)}, {{"axis", axis}});
  }
  n.Replace(x);
  return c.b.TakeStatus();
}

// ONNX has the op from opset 26 on; the own one stands for it in the canonical opset.
Status CumProd(CanonicalContext& c, SourceNode& n) {
  const HostTensor* given = c.Constant(n, 1);
  if (given == nullptr)
    return BadInput("E0108", "the axis ('{}') is not known at compile time",
                    c.graph.value(n.inputs[1]).name);
  if (given->elements() != 1)
    return BadInput("E0107", "the axis has {} elements, one is expected", given->elements());
  AMPC_ASSIGN(const int64_t axis, CheckedAxis(given->GetInt(0), c.type(n, 0).dims.size()));
  n.Replace(c.b.Own("CumProd", {n.inputs[0]},
                    {{"axis", axis},
                     {"exclusive", n.attrs.Int("exclusive")},
                     {"reverse", n.attrs.Int("reverse")}}));
  return c.b.TakeStatus();
}

// ONNX's inference gives a result of rank 0 no shape: one tuple is looked up as a list of one.
Status GatherND(CanonicalContext& c, SourceNode& n) {
  const Dims x = c.type(n, 0).dims, indices = c.type(n, 1).dims;
  const bool scalar = indices.size() == 1 && indices[0] == static_cast<int64_t>(x.size());
  if (!scalar || n.attrs.Int("batch_dims") != 0) return {};
  const ValueId tuples = c.b.Reshape(n.inputs[1], Dims{1, indices[0]});
  n.Replace(c.b.Reshape(c.b.Op("GatherND", {n.inputs[0], tuples}), Dims{}));
  return c.b.TakeStatus();
}

}  // namespace

Status CanonicalPadMode(CanonicalContext& c, SourceNode& n) {
  const std::string mode(n.attrs.String("mode", "constant"));
  if (mode == "constant") return {};
  if (mode != "reflect" && mode != "edge" && mode != "wrap")
    return BadInput("E0107", "mode '{}': constant, reflect, edge or wrap is expected", mode);
  return PadByIndex(c, n, mode);
}

namespace {

// The name that ScatterElements had before opset 11.
Status Scatter(CanonicalContext&, SourceNode& n) {
  n.op = "ScatterElements";
  return {};
}

constexpr CanonicalRow kRules[] = {
    {"DepthToSpace", DepthToSpace, true}, {"SpaceToDepth", SpaceToDepth, true},
    {"Hardmax", Hardmax, true},           {"Compress", Compress, true},
    {"CumProd", CumProd, true},           {"GatherND", GatherND},
    {"Scatter", Scatter, true},
};

}  // namespace

std::span<const CanonicalRow> RewriteRules() { return kRules; }

}  // namespace ampc
