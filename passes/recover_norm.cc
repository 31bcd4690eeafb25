// SPDX-License-Identifier: Apache-2.0
// Norms that exporters write as single nodes: LayerNormalization, RMSNormalization,
// GroupNormalization.
//
//   d = x - ReduceMean(x); d / Sqrt(ReduceMean(d^2) + epsilon) [* scale [+ bias]]   -> layer norm
//   x / Sqrt(ReduceMean(x^2) + epsilon) [* scale]                                   -> RMS norm
//   Reshape(InstanceNormalization(Reshape(x))) [* scale [+ bias]]                   -> group norm
//
// Means are over the last axes. A deviation may divide, or multiply as Reciprocal(Sqrt(v)), 1 /
// Sqrt(v) or Pow(v, -0.5). Where there is no scale it is a constant of ones.
#include <algorithm>
#include <cmath>

#include "passes/recover_match.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// ---- layer and RMS norm

// The first axis of a mean over the last ones whose axes stay as 1; nothing for another mean.
std::optional<int64_t> FirstAxis(const Match& m, NodeId mean) {
  const ir::Node& n = m.node(mean);
  if (n.attrs.Int("keepdims", 1) == 0 || n.inputs.size() != 2 || n.inputs[1] == kNone)
    return std::nullopt;
  const HostTensor* axes = m.Constant(n.inputs[1]);
  const auto rank = static_cast<int64_t>(m.dims(n.inputs[0]).size());
  if (axes == nullptr || axes->elements() == 0 || axes->elements() > rank) return std::nullopt;
  std::vector<int64_t> sorted = axes->Ints();
  for (int64_t& axis : sorted) axis = NormalAxis(axis, static_cast<size_t>(rank));
  std::sort(sorted.begin(), sorted.end());
  const int64_t first = rank - axes->elements();
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] != first + static_cast<int64_t>(i)) return std::nullopt;
  }
  return first;
}

// v is what, squared; takes the node.
ValueId SquareOf(Match& m, ValueId v) {
  NodeId n = m.Def(v, "Pow");
  if (n != kNone && !m.IsNumber(m.node(n).inputs[1], 2)) return kNone;
  if (n == kNone) {
    n = m.Def(v, "Mul");
    if (n == kNone || m.node(n).inputs[0] != m.node(n).inputs[1]) return kNone;
  }
  m.Take(n);
  return m.node(n).inputs[0];
}

// x of x - ReduceMean(x) over the same axes; takes the nodes.
ValueId CenteredOf(Match& m, ValueId d, int64_t first) {
  const NodeId sub = m.Def(d, "Sub");
  const NodeId mean = sub == kNone ? kNone : m.Def(m.node(sub).inputs[1], "ReduceMean");
  if (mean == kNone || m.node(mean).inputs[0] != m.node(sub).inputs[0] ||
      FirstAxis(m, mean) != first)
    return kNone;
  m.Take(sub);
  m.Take(mean);
  return m.node(sub).inputs[0];
}

// The node that divides d by the root of v, or multiplies it by the inverse; takes it and the nodes
// before it.
NodeId DividedBy(Match& m, ValueId d, ValueId v) {
  NodeId n = m.OnlyReader(v);
  bool inverse = false;
  if (m.Is(n, "Pow") && m.node(n).inputs[0] == v) {
    inverse = m.IsNumber(m.node(n).inputs[1], -0.5);
    if (!inverse && !m.IsNumber(m.node(n).inputs[1], 0.5)) return kNone;
  } else if (!m.Is(n, "Sqrt")) {
    return kNone;
  }
  m.Take(n);
  NodeId next = m.OnlyReader(m.out(n));
  if (!inverse &&
      (m.Is(next, "Reciprocal") || (m.Is(next, "Div") && m.node(next).inputs[1] == m.out(n) &&
                                    m.IsNumber(m.node(next).inputs[0], 1)))) {
    inverse = true;
    n = next;
    m.Take(n);
    next = m.OnlyReader(m.out(n));
  }
  if (inverse
          ? !m.Is(next, "Mul") || m.Other(next, m.out(n)) != d
          : !m.Is(next, "Div") || m.node(next).inputs[0] != d || m.node(next).inputs[1] != m.out(n))
    return kNone;
  m.Take(next);
  return next;
}

// The node behind `last` that joins it and one value of these dims by `op`, or kNone.
NodeId JoinedWith(const Match& m, NodeId last, std::string_view op, const Dims& dims) {
  const NodeId n = m.OnlyReader(m.out(last));
  if (!m.Is(n, op)) return kNone;
  const ValueId other = m.Other(n, m.out(last));
  return other != kNone && m.dims(other) == dims && m.dims(m.out(n)) == m.dims(m.out(last)) ? n
                                                                                            : kNone;
}

struct Affine {
  NodeId root;
  ValueId scale = kNone, bias = kNone;
};

Affine ReadAffine(Match& m, NodeId core, const Dims& dims, bool with_bias) {
  Affine a{core};
  if (const NodeId mul = JoinedWith(m, a.root, "Mul", dims); mul != kNone) {
    a.scale = m.Other(mul, m.out(a.root));
    m.Take(a.root = mul);
    const NodeId add = with_bias ? JoinedWith(m, a.root, "Add", dims) : kNone;
    if (add != kNone) {
      a.bias = m.Other(add, m.out(a.root));
      m.Take(a.root = add);
    }
  }
  return a;
}

// With the mean taken off d's x, or over d as it is.
Status RecoverNormOf(Match& m, ValueId d, int64_t axis, bool rms) {
  const ValueId x = rms ? d : CenteredOf(m, d, axis);
  if (x == kNone) return {};
  const NodeId plus = m.OnlyReader(m.out(m.anchor()));
  if (!m.Is(plus, "Add")) return {};
  const auto sum = m.WithNumber(plus, true);
  if (!sum || !(sum->number >= 0) || !std::isfinite(sum->number)) return {};
  m.Take(plus);
  const NodeId core = DividedBy(m, d, m.out(plus));
  if (core == kNone || m.type(m.out(core)) != m.type(x)) return {};
  const Dims normalized(m.dims(x).begin() + axis, m.dims(x).end());
  if (NumElements(normalized) == 0) return {};
  const Affine a = ReadAffine(m, core, normalized, !rms);
  if (!m.Closed(a.root)) return {};
  ir::Builder b = m.Replacement(a.root);
  const ValueId scale =
      a.scale != kNone ? a.scale : b.Constant(Filled(m.type(x).dtype, normalized, 1));
  std::vector<ValueId> inputs = {x, scale};
  if (a.bias != kNone) inputs.push_back(a.bias);
  const ValueId y =
      b.Op("", rms ? "RMSNormalization" : "LayerNormalization", inputs,
           {{"axis", axis - static_cast<int64_t>(m.dims(x).size())}, {"epsilon", sum->number}});
  return m.Replace(a.root, y, b);
}

// ---- group norm

bool IsFilled(const Match& m, ValueId v, double value) {
  const HostTensor* t = m.Constant(v);
  if (t == nullptr) return false;
  for (int64_t i = 0; i < t->elements(); ++i) {
    if (t->GetDouble(i) != value) return false;
  }
  return true;
}

// The vector [channels] that stands as [channels, 1, …]: what was reshaped, or reshaped back.
ValueId ChannelVector(const Match& m, ir::Builder& b, ValueId v, int64_t channels) {
  const Dims vector = {channels};
  for (const char* op : {"Unsqueeze", "Reshape"}) {
    const NodeId n = m.Def(v, op);
    if (n != kNone && m.dims(m.node(n).inputs[0]) == vector) return m.node(n).inputs[0];
  }
  return m.dims(v) == vector ? v : b.Reshape(v, vector);
}

}  // namespace

Status RecoverNorm(Match& m) {
  const std::optional<int64_t> axis = FirstAxis(m, m.anchor());
  if (!axis) return {};
  m.Take(m.anchor());
  const ValueId d = SquareOf(m, m.node(m.anchor()).inputs[0]);
  if (d == kNone) return {};
  const size_t inner = m.taken();
  for (const bool rms : {false, true}) {
    m.Rewind(inner);
    AMPC_TRY(RecoverNormOf(m, d, *axis, rms));
    if (m.replaced()) break;
  }
  return {};
}

Status RecoverGroupNorm(Match& m) {
  const ir::Node& norm = m.node(m.anchor());
  const NodeId split = m.Def(norm.inputs[0], "Reshape");
  const NodeId join = m.OnlyReader(m.out(m.anchor()));
  if (split == kNone || !m.Is(join, "Reshape") || m.node(join).inputs[0] != m.out(m.anchor()))
    return {};
  const ValueId x = m.node(split).inputs[0];
  const Dims whole = m.dims(x), grouped = m.dims(norm.inputs[0]);
  if (whole.size() < 2 || NumElements(whole) == 0 || m.type(m.out(join)) != m.type(x) ||
      grouped[0] != whole[0] || grouped[1] == 0 || whole[1] % grouped[1] != 0)
    return {};
  if (!IsFilled(m, norm.inputs[1], 1) || !IsFilled(m, norm.inputs[2], 0)) return {};
  for (const NodeId n : {split, m.anchor(), join}) m.Take(n);
  Dims spread(whole.size() - 1, 1);  // one number per channel, as it broadcasts
  spread[0] = whole[1];
  Affine a = ReadAffine(m, join, spread, true);
  if (a.scale == kNone) {
    spread.insert(spread.begin(), 1);
    a = ReadAffine(m, join, spread, true);
  }
  if (!m.Closed(a.root)) return {};
  const DType t = m.type(x).dtype;
  const int64_t groups = grouped[1];
  const double epsilon = norm.attrs.Float("epsilon", 1e-5);
  ir::Builder b = m.Replacement(a.root);
  const Dims vector = {whole[1]};
  const auto parameter = [&](ValueId v, double otherwise) {
    return v == kNone ? b.Constant(Filled(t, vector, otherwise)) : ChannelVector(m, b, v, whole[1]);
  };
  const ValueId scale = parameter(a.scale, 1), bias = parameter(a.bias, 0);
  const ValueId y =
      b.Op("GroupNormalization", {x, scale, bias}, {{"num_groups", groups}, {"epsilon", epsilon}});
  return m.Replace(a.root, y, b);
}

}  // namespace ampc
