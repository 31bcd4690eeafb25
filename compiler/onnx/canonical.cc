// SPDX-License-Identifier: Apache-2.0
// Forms that changed between opsets: attributes that became inputs, inputs and outputs that came or
// went.
#include "compiler/onnx/canonical.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

using ir::ValueId;

void SetInput(SourceNode& n, size_t i, ValueId v) {
  if (n.inputs.size() <= i) n.inputs.resize(i + 1, ir::kNone);
  n.inputs[i] = v;
}

// An ints attribute becomes input `slot`; absent stays absent.
void IntsToInput(CanonicalContext& c, SourceNode& n, std::string_view attr, size_t slot) {
  if (!n.attrs.Has(attr)) return;
  SetInput(n, slot, c.b.Ints(n.attrs.Ints(attr)));
  n.attrs.Erase(attr);
}

// A float attribute becomes scalar input `slot`, of the dtype of input 0.
void FloatToInput(CanonicalContext& c, SourceNode& n, std::string_view attr, size_t slot) {
  if (!n.attrs.Has(attr)) return;
  SetInput(n, slot, c.b.Scalar(c.type(n, 0).dtype, n.attrs.Float(attr)));
  n.attrs.Erase(attr);
}

Status Axes(CanonicalContext& c, SourceNode& n) {
  IntsToInput(c, n, "axes", 1);
  return {};
}

Status Clip(CanonicalContext& c, SourceNode& n) {
  FloatToInput(c, n, "min", 1);
  FloatToInput(c, n, "max", 2);
  return {};
}

Status Pad(CanonicalContext& c, SourceNode& n) {
  IntsToInput(c, n, "pads", 1);
  if (n.version < 11 && n.attrs.Has("value")) FloatToInput(c, n, "value", 2);
  return CanonicalPadMode(c, n);
}

Status Slice(CanonicalContext& c, SourceNode& n) {
  if (n.version >= 10) return {};
  IntsToInput(c, n, "starts", 1);
  IntsToInput(c, n, "ends", 2);
  IntsToInput(c, n, "axes", 3);
  return {};
}

Status TopK(CanonicalContext& c, SourceNode& n) {
  if (n.attrs.Has("k")) SetInput(n, 1, c.b.Ints({n.attrs.Int("k")}));
  n.attrs.Erase("k");
  return {};
}

// Canonical: the sizes are always written out.
Status Split(CanonicalContext& c, SourceNode& n) {
  IntsToInput(c, n, "split", 1);
  const auto parts = n.attrs.Int("num_outputs", static_cast<int64_t>(n.wanted.size()));
  n.attrs.Erase("num_outputs");
  if (n.Has(1) || n.inputs.empty()) return {};
  const Dims& dims = c.type(n, 0).dims;
  AMPC_ASSIGN(const int64_t axis, CheckedAxis(n.attrs.Int("axis"), dims.size()));
  const int64_t whole = dims[static_cast<size_t>(axis)];
  if (parts <= 0 || parts != static_cast<int64_t>(n.wanted.size())) {
    return BadInput("E0107", "num_outputs is {}, but the node has {} outputs", parts,
                    n.wanted.size());
  }
  if (n.version < 18 && whole % parts != 0) {
    return BadInput("E0107", "axis {} has {} elements, which {} outputs do not share equally", axis,
                    whole, parts);
  }
  const int64_t size = (whole + parts - 1) / parts;
  std::vector<int64_t> sizes(static_cast<size_t>(parts), size);
  sizes.back() = whole - size * (parts - 1);
  if (sizes.back() < 0)
    return BadInput("E0107", "axis {} has {} elements, too few for {} outputs", axis, whole, parts);
  SetInput(n, 1, c.b.Ints(sizes));
  return {};
}

Status Dropout(CanonicalContext& c, SourceNode& n) {
  if (n.attrs.Has("ratio")) {  // before opset 12: an attribute, and inference only
    SetInput(n, 1, c.b.Scalar(c.Float(DType::kFloat32), n.attrs.Float("ratio")));
    n.attrs.Erase("ratio");
  }
  return {};
}

Status BatchNormalization(CanonicalContext&, SourceNode& n) {
  if (n.version < 9 && n.attrs.Int("spatial", 1) != 1) {
    return Unsupported("E0102", "attribute spatial=0 (statistics per element) is not supported");
  }
  n.attrs.Erase("spatial");
  // Before opset 14 the outputs said that it trains: Y, mean, var, saved_mean, saved_var.
  if (n.version < 14 && n.wanted.size() > 1) n.attrs.Set("training_mode", int64_t{1});
  for (size_t i = 3; i < n.wanted.size(); ++i) {
    if (n.wanted[i])
      return Unsupported("E0102", "output {} (saved statistics) is read, which is not supported",
                         i);
  }
  if (n.attrs.Int("training_mode") != 0) {
    n.wanted.resize(3, false);  // opset 15 has all three in training
  } else if (std::any_of(n.wanted.begin() + 1, n.wanted.end(), [](bool w) { return w; })) {
    return BadInput("E0107", "outputs 1 and 2 exist in training mode only");
  } else {
    n.wanted.resize(1);
  }
  return {};
}

// Before opset 13: everything from `axis` on is one axis, and the default axis is 1.
Status Softmax(CanonicalContext& c, SourceNode& n) {
  if (n.version >= 13) return {};
  const Dims dims = c.type(n, 0).dims;
  const auto rank = static_cast<int64_t>(dims.size());
  int64_t axis = n.attrs.Int("axis", 1);
  if (axis < 0) axis += rank;
  n.attrs.Set("axis", int64_t{-1});
  if (axis == rank - 1) return {};
  if (axis < 0 || axis > rank)
    return BadInput("E0107", "axis {} of an input of rank {}", axis, rank);
  const auto split = dims.begin() + axis;
  const Dims flat = {std::accumulate(dims.begin(), split, int64_t{1}, std::multiplies<>()),
                     std::accumulate(split, dims.end(), int64_t{1}, std::multiplies<>())};
  const ValueId y = c.b.Op(n.op, {c.b.Reshape(n.inputs[0], flat)}, n.attrs);
  n.Replace(c.b.Reshape(y, dims));
  return c.b.TakeStatus();
}

// A scale or bias that broadcasts to what is normalised gets its dims.
Status ExpandParameter(CanonicalContext& c, SourceNode& n, size_t slot, const Dims& x,
                       const Dims& normalized) {
  Dims dims = c.type(n, slot).dims;
  if (dims == normalized) return {};
  const size_t rows = x.size() - normalized.size();
  while (dims.size() > normalized.size() && dims.front() == 1) dims.erase(dims.begin());
  const std::string_view what = slot == 1 ? "scale" : "bias";
  bool fits = dims.size() <= x.size(), per_row = dims.size() > normalized.size();
  for (size_t i = 0; i < dims.size() && fits; ++i) {
    const size_t axis = x.size() - dims.size() + i;
    fits = dims[i] == 1 || dims[i] == x[axis];
    per_row = per_row || (axis < rows && dims[i] != 1);
  }
  if (!fits) {
    return BadInput("E0107", "{} has dims {}, expected {} for an input of dims {}", what,
                    ToString(c.type(n, slot).dims), ToString(normalized), ToString(x));
  }
  if (per_row) {
    return Unsupported("E0102", "{} of dims {} differs from row to row, which is not supported",
                       what, ToString(c.type(n, slot).dims));
  }
  n.inputs[slot] = c.b.Expand(c.b.Reshape(n.inputs[slot], dims), normalized);
  return c.b.TakeStatus();
}

// LayerNormalization and RMSNormalization: parameters of the dims that are normalised; statistics
// are computed in fp32 whatever `stash_type` says, so it only gives the type of those that are
// read.
Status LayerNormalization(CanonicalContext& c, SourceNode& n) {
  const Dims x = c.type(n, 0).dims;
  AMPC_ASSIGN(const int64_t axis, CheckedAxis(n.attrs.Int("axis", -1), x.size()));
  const Dims normalized(x.begin() + axis, x.end());
  for (size_t i = 1; i < n.inputs.size(); ++i) {
    if (n.Has(i)) AMPC_TRY(ExpandParameter(c, n, i, x, normalized));
  }
  if (n.attrs.Has("stash_type")) {
    const auto stash = static_cast<DType>(n.attrs.Int("stash_type"));
    const bool read = std::any_of(n.wanted.begin() + 1, n.wanted.end(), [](bool w) { return w; });
    if (read && stash != DType::kFloat32 && stash != DType::kFloat64) {
      return Unsupported("E0102", "stash_type={}: statistics that are read are fp32",
                         static_cast<int64_t>(stash));
    }
    n.attrs.Erase("stash_type");
  }
  n.attrs.Set("stash_type", static_cast<int64_t>(c.Float(DType::kFloat32)));
  return {};
}

// ONNX gives the result the type of the scale: both operands in the wider one, the result cast.
Status RmsNormalization(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(LayerNormalization(c, n));
  const DType x = c.type(n, 0).dtype, scale = c.type(n, 1).dtype;
  if (x == scale) return {};
  const DType wide = SizeOf(x) == SizeOf(scale)  ? DType::kFloat32
                     : SizeOf(x) > SizeOf(scale) ? x
                                                 : scale;
  const ValueId y =
      c.b.Op(n.op, {c.b.Cast(n.inputs[0], wide), c.b.Cast(n.inputs[1], wide)}, n.attrs);
  n.Replace(c.b.Cast(y, scale));
  return c.b.TakeStatus();
}

// Before opset 21: scale and bias per group, now per channel.
Status GroupNormalization(CanonicalContext& c, SourceNode& n) {
  if (n.version >= 21 || n.inputs.size() < 3) return {};
  const Dims& x = c.type(n, 0).dims;
  const int64_t groups = n.attrs.Int("num_groups");
  if (x.size() < 2 || groups <= 0 || x[1] % groups != 0) {
    return BadInput("E0107", "{} groups do not share the channels of {} equally", groups,
                    ToString(x));
  }
  const Dims wide = {groups, x[1] / groups}, narrow = {groups, 1}, flat = {x[1]};
  for (size_t i = 1; i < 3; ++i) {
    n.inputs[i] = c.b.Reshape(c.b.Expand(c.b.Reshape(n.inputs[i], narrow), wide), flat);
  }
  return c.b.TakeStatus();
}

constexpr CanonicalRow kRules[] = {
    {"ReduceL1", Axes},
    {"ReduceL2", Axes},
    {"ReduceLogSum", Axes},
    {"ReduceLogSumExp", Axes},
    {"ReduceMax", Axes},
    {"ReduceMean", Axes},
    {"ReduceMin", Axes},
    {"ReduceProd", Axes},
    {"ReduceSum", Axes},
    {"ReduceSumSquare", Axes},
    {"Squeeze", Axes},
    {"Unsqueeze", Axes},
    {"Clip", Clip},
    {"Pad", Pad},
    {"Slice", Slice},
    {"TopK", TopK},
    {"Split", Split},
    {"Dropout", Dropout},
    {"Softmax", Softmax},
    {"LogSoftmax", Softmax},
    {"BatchNormalization", BatchNormalization},
    {"GroupNormalization", GroupNormalization},
    {"LayerNormalization", LayerNormalization},
    {"RMSNormalization", RmsNormalization},
};

const CanonicalRow* FindRow(std::string_view op) {
  for (const auto rules : {FormRules(), ValueRules(), RewriteRules(), AttentionRules(),
                           EinsumRules(), PoolRules(), SpatialRules()}) {
    for (const CanonicalRow& row : rules) {
      if (row.op == op) return &row;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const CanonicalRow> FormRules() { return kRules; }

CanonicalRule FindCanonicalRule(std::string_view op) {
  const CanonicalRow* row = FindRow(op);
  return row == nullptr ? nullptr : row->rule;
}

bool RuleReplaces(std::string_view op) {
  const CanonicalRow* row = FindRow(op);
  return row != nullptr && row->replaces;
}

const CanonicalRow& CanonicalRowOf(std::string_view op) {
  static constexpr CanonicalRow kNone{};
  const CanonicalRow* row = FindRow(op);
  return row == nullptr ? kNone : *row;
}

}  // namespace ampc
