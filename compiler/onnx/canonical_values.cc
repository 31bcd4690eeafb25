// SPDX-License-Identifier: Apache-2.0
// Nodes that vanish: constants in all their forms, what types alone decide (Shape, Size, CastLike),
// constants made from constant shapes, Identity, and sequences whose elements are known.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/ops/op_def.h"
#include "compiler/onnx/canonical.h"
#include "compiler/onnx/source.h"

namespace ampc {
namespace {

using ir::ValueId;

constexpr int64_t kMaxFoldedElements = 1 << 24;

Status Identity(CanonicalContext& c, SourceNode& n) {
  if (!n.sequences.empty() && !n.sequences[0].empty()) {
    n.sequence = c.sequences.at(n.sequences[0]);
    return {};
  }
  n.Replace(n.inputs[0]);
  return {};
}

HostTensor Floats(DType dtype, const std::vector<double>& values) {
  std::vector<float> narrow(values.begin(), values.end());  // ONNX attributes are floats
  HostTensor t =
      HostTensor::Of<float>(DType::kFloat32, {static_cast<int64_t>(narrow.size())}, narrow);
  return ConvertFloats(t, dtype);
}

Status Constant(CanonicalContext& c, SourceNode& n) {
  const DType f = c.Float(DType::kFloat32);
  HostTensor value;
  if (const HostTensor* t = n.attrs.Tensor("value")) {
    value = ConvertFloats(*t, c.Float(t->dtype));
  } else if (n.attrs.Has("value_float")) {
    value = HostTensor::Scalar(f, n.attrs.Float("value_float"));
  } else if (n.attrs.Has("value_int")) {
    const int64_t v = n.attrs.Int("value_int");
    value = HostTensor::Of<int64_t>(DType::kInt64, {}, std::span(&v, 1));
  } else if (n.attrs.Has("value_floats")) {
    value = Floats(f, n.attrs.Floats("value_floats"));
  } else if (n.attrs.Has("value_ints")) {
    value = HostTensor::Int64s(n.attrs.Ints("value_ints"));
  } else {
    return Unsupported("E0102", "a Constant of strings or of a sparse tensor is not supported");
  }
  n.attrs = {{"value", std::make_shared<const HostTensor>(std::move(value))}};
  return {};
}

Status Cast(CanonicalContext& c, SourceNode& n) {
  const int64_t to = n.attrs.Int("to");
  if (!IsKnownDType(static_cast<int>(to))) {
    return Unsupported("E0102", "a cast to {} is not supported",
                       OnnxTypeName(static_cast<int>(to)));
  }
  const DType dtype = c.Float(static_cast<DType>(to));
  n.attrs.Erase("round_mode");  // of float8 types only
  n.attrs.Set("to", static_cast<int64_t>(dtype));
  if (c.type(n, 0).dtype == dtype) n.Replace(n.inputs[0]);
  return {};
}

Status CastLike(CanonicalContext& c, SourceNode& n) {
  const DType dtype = c.type(n, 1).dtype;
  n.op = "Cast";
  n.inputs.resize(1);
  n.attrs.Erase("round_mode");
  n.attrs.Set("to", static_cast<int64_t>(dtype));
  if (c.type(n, 0).dtype == dtype) n.Replace(n.inputs[0]);
  return {};
}

Status Shape(CanonicalContext& c, SourceNode& n) {
  const Dims& dims = c.type(n, 0).dims;
  const auto rank = static_cast<int64_t>(dims.size());
  auto clamp = [rank](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t start = clamp(n.attrs.Int("start", 0)), end = clamp(n.attrs.Int("end", rank));
  n.Replace(
      c.b.Ints(std::vector<int64_t>(dims.begin() + start, dims.begin() + std::max(start, end))));
  return {};
}

Status Size(CanonicalContext& c, SourceNode& n) {
  const int64_t size = c.type(n, 0).elements();
  n.Replace(c.b.Constant(HostTensor::Of<int64_t>(DType::kInt64, {}, std::span(&size, 1))));
  return {};
}

Status NotConstant(CanonicalContext& c, const SourceNode& n, size_t slot, std::string_view what) {
  return BadInput("E0108", "{} ('{}') is not known at compile time", what,
                  c.graph.value(n.inputs[slot]).name);
}

Status ExpectScalar(CanonicalContext& c, const SourceNode& n, size_t slot) {
  const int64_t elements = c.type(n, slot).elements();
  if (elements == 1) return {};
  return BadInput("E0107", "input {} has {} elements, expected 1", slot, elements);
}

// An expanded scalar: small ones fold to a Constant afterwards.
Status ConstantOfShape(CanonicalContext& c, SourceNode& n) {
  const HostTensor* shape = c.Constant(n, 0);
  if (shape == nullptr) return NotConstant(c, n, 0, "the shape");
  const HostTensor* given = n.attrs.Tensor("value");
  if (given != nullptr && given->elements() != 1) {
    return BadInput("E0107", "the value has {} elements, expected 1", given->elements());
  }
  HostTensor value = given == nullptr ? HostTensor::Scalar(DType::kFloat32, 0) : *given;
  value.dims.clear();
  n.op = "Expand";
  n.attrs = {};
  n.inputs = {c.b.Constant(ConvertFloats(value, c.Float(value.dtype))), n.inputs[0]};
  return {};
}

Status Range(CanonicalContext& c, SourceNode& n) {
  for (size_t i = 0; i < 3; ++i) {
    if (c.Constant(n, i) == nullptr)
      return NotConstant(c, n, i, i == 0 ? "the start" : i == 1 ? "the limit" : "the step");
    AMPC_TRY(ExpectScalar(c, n, i));
  }
  const DType dtype = c.type(n, 0).dtype;
  const double start = c.Constant(n, 0)->GetDouble(0), step = c.Constant(n, 2)->GetDouble(0);
  const double count = std::max(0.0, std::ceil((c.Constant(n, 1)->GetDouble(0) - start) / step));
  if (step == 0 || !(count <= static_cast<double>(kMaxFoldedElements))) {
    return BadInput("E0107", "a range from {} with step {} to {} has no sensible length", start,
                    step, c.Constant(n, 1)->GetDouble(0));
  }
  const auto length = static_cast<int64_t>(count);
  HostTensor t{dtype, {length}, {}};
  for (int64_t i = 0; i < length; ++i) {
    const HostTensor one = HostTensor::Scalar(dtype, start + static_cast<double>(i) * step);
    t.data.insert(t.data.end(), one.data.begin(), one.data.end());
  }
  n.Replace(c.b.Constant(std::move(t)));
  return {};
}

Status NonZero(CanonicalContext& c, SourceNode& n) {
  const HostTensor* x = c.Constant(n, 0);
  if (x == nullptr) return NotConstant(c, n, 0, "the number of non-zero elements of the input");
  const std::vector<int64_t> strides = StridesOf(x->dims, Layout::kRowMajor);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < x->elements(); ++i) {
    if (x->GetDouble(i) != 0) found.push_back(i);
  }
  std::vector<int64_t> indices;
  for (size_t axis = 0; axis < x->dims.size(); ++axis) {
    for (int64_t i : found) indices.push_back(i / strides[axis] % x->dims[axis]);
  }
  const Dims dims = {static_cast<int64_t>(x->dims.size()), static_cast<int64_t>(found.size())};
  n.Replace(c.b.Constant(
      HostTensor::Of<int64_t>(DType::kInt64, dims, std::span<const int64_t>(indices))));
  return {};
}

Status EyeLike(CanonicalContext& c, SourceNode& n) {
  const ir::TensorType& x = c.type(n, 0);
  if (x.dims.size() != 2)
    return BadInput("E0107", "the input has rank {}, expected 2", x.dims.size());
  const DType dtype =
      c.Float(static_cast<DType>(n.attrs.Int("dtype", static_cast<int64_t>(x.dtype))));
  const int64_t k = n.attrs.Int("k");
  if (!IsKnownDType(static_cast<int>(dtype)) || x.elements() > kMaxFoldedElements) {
    return Unsupported("E0102", "an identity matrix of {} elements is not supported", x.elements());
  }
  HostTensor t{dtype, x.dims, {}};
  const HostTensor one = HostTensor::Scalar(dtype, 1), zero = HostTensor::Scalar(dtype, 0);
  for (int64_t i = 0; i < x.dims[0]; ++i) {
    for (int64_t j = 0; j < x.dims[1]; ++j) {
      const auto& v = j - i == k ? one.data : zero.data;
      t.data.insert(t.data.end(), v.begin(), v.end());
    }
  }
  n.Replace(c.b.Constant(std::move(t)));
  return {};
}

// ---- sequences

const std::vector<ValueId>* SequenceOf(const CanonicalContext& c, const SourceNode& n,
                                       size_t slot) {
  if (slot >= n.sequences.size() || n.sequences[slot].empty()) return nullptr;
  return &c.sequences.at(n.sequences[slot]);
}

Status NoSequence(size_t slot) { return BadInput("E0107", "input {} is no sequence", slot); }

Status SplitToSequence(CanonicalContext& c, SourceNode& n) {
  const Dims dims = c.type(n, 0).dims;
  AMPC_ASSIGN(const int64_t axis, CheckedAxis(n.attrs.Int("axis"), dims.size()));
  const int64_t whole = dims[static_cast<size_t>(axis)];
  std::vector<int64_t> sizes(static_cast<size_t>(whole), 1);
  bool drop_axis = n.attrs.Int("keepdims", 1) == 0;
  if (n.Has(1)) {
    const HostTensor* split = c.Constant(n, 1);
    if (split == nullptr) return NotConstant(c, n, 1, "the split");
    drop_axis = false;
    if (split->dims.empty()) {
      const int64_t size = split->GetInt(0);
      if (size <= 0) return BadInput("E0107", "the split is {}, expected a positive size", size);
      sizes.assign(static_cast<size_t>((whole + size - 1) / size), size);
      if (!sizes.empty()) sizes.back() = whole - size * (static_cast<int64_t>(sizes.size()) - 1);
    } else {
      sizes = split->Ints();
    }
  }
  if (sizes.size() == 1) {
    n.sequence = {n.inputs[0]};
  } else {
    const ValueId inputs[] = {n.inputs[0], c.b.Ints(sizes)};
    n.sequence = c.b.Multi("", "Split", inputs, {{"axis", axis}}, sizes.size());
  }
  if (drop_axis) {
    for (ValueId& v : *n.sequence) v = c.b.Op("Squeeze", {v, c.b.Ints({axis})});
  }
  return c.b.TakeStatus();
}

Status SequenceConstruct(CanonicalContext&, SourceNode& n) {
  n.sequence = n.inputs;
  return {};
}

Status SequenceEmpty(CanonicalContext&, SourceNode& n) {
  n.sequence.emplace();
  return {};
}

// The position that input `slot` says, of `places`; negative ones count from `length`.
Result<size_t> PositionAt(CanonicalContext& c, const SourceNode& n, size_t slot, size_t length,
                          size_t places) {
  const HostTensor* position = c.Constant(n, slot);
  if (position == nullptr) return NotConstant(c, n, slot, "the position");
  AMPC_TRY(ExpectScalar(c, n, slot));
  int64_t at = position->GetInt(0);
  if (at < 0) at += static_cast<int64_t>(length);
  if (at < 0 || at >= static_cast<int64_t>(places))
    return BadInput("E0107", "position {} of a sequence of {}", position->GetInt(0), length);
  return static_cast<size_t>(at);
}

Status SequenceAt(CanonicalContext& c, SourceNode& n) {
  const auto* sequence = SequenceOf(c, n, 0);
  if (sequence == nullptr) return NoSequence(0);
  AMPC_ASSIGN(const size_t at, PositionAt(c, n, 1, sequence->size(), sequence->size()));
  n.Replace((*sequence)[at]);
  return {};
}

// At the end, unless a position is given.
Status SequenceInsert(CanonicalContext& c, SourceNode& n) {
  const auto* sequence = SequenceOf(c, n, 0);
  if (sequence == nullptr) return NoSequence(0);
  if (!n.Has(1)) return BadInput("E0107", "input 1, the tensor to insert, is missing");
  size_t at = sequence->size();
  if (n.Has(2)) {
    AMPC_ASSIGN(at, PositionAt(c, n, 2, sequence->size(), sequence->size() + 1));
  }
  n.sequence = *sequence;
  n.sequence->insert(n.sequence->begin() + static_cast<std::ptrdiff_t>(at), n.inputs[1]);
  return {};
}

// The last one, unless a position is given.
Status SequenceErase(CanonicalContext& c, SourceNode& n) {
  const auto* sequence = SequenceOf(c, n, 0);
  if (sequence == nullptr) return NoSequence(0);
  if (sequence->empty()) return BadInput("E0107", "the sequence is empty");
  size_t at = sequence->size() - 1;
  if (n.Has(1)) {
    AMPC_ASSIGN(at, PositionAt(c, n, 1, sequence->size(), sequence->size()));
  }
  n.sequence = *sequence;
  n.sequence->erase(n.sequence->begin() + static_cast<std::ptrdiff_t>(at));
  return {};
}

Status SequenceLength(CanonicalContext& c, SourceNode& n) {
  const auto* sequence = SequenceOf(c, n, 0);
  if (sequence == nullptr) return NoSequence(0);
  const auto length = static_cast<int64_t>(sequence->size());
  n.Replace(c.b.Constant(HostTensor::Of<int64_t>(DType::kInt64, {}, std::span(&length, 1))));
  return {};
}

Status ConcatFromSequence(CanonicalContext& c, SourceNode& n) {
  const auto* sequence = SequenceOf(c, n, 0);
  if (sequence == nullptr) return NoSequence(0);
  if (sequence->empty()) return BadInput("E0107", "the sequence is empty");
  std::vector<ValueId> parts = *sequence;
  const int64_t axis = n.attrs.Int("axis");
  if (n.attrs.Int("new_axis") != 0) {
    for (ValueId& v : parts) v = c.b.Op("Unsqueeze", {v, c.b.Ints({axis})});
  }
  n.Replace(c.b.Op("", "Concat", parts, {{"axis", axis}}));
  return c.b.TakeStatus();
}

constexpr CanonicalRow kRules[] = {
    {"Identity", Identity, true},
    {"Constant", Constant},
    {"Cast", Cast},
    {"CastLike", CastLike, true, 0b10},
    {"Shape", Shape, true},
    {"Size", Size, true},
    {"ConstantOfShape", ConstantOfShape, true},
    {"Range", Range, true},
    {"NonZero", NonZero, true},
    {"EyeLike", EyeLike, true},
    {"SplitToSequence", SplitToSequence, true},
    {"SequenceConstruct", SequenceConstruct, true},
    {"SequenceEmpty", SequenceEmpty, true},
    {"SequenceAt", SequenceAt, true},
    {"SequenceInsert", SequenceInsert, true},
    {"SequenceErase", SequenceErase, true},
    {"SequenceLength", SequenceLength, true},
    {"ConcatFromSequence", ConcatFromSequence, true},
};

}  // namespace

std::span<const CanonicalRow> ValueRules() { return kRules; }

}  // namespace ampc
