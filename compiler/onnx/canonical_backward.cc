// SPDX-License-Identifier: Apache-2.0
// Backward ops as ONNX Runtime's training graphs have them, in domain com.microsoft (MaxPoolGrad in
// ONNX's own). Each is the gradient of a standard op whose rule we have: the rule is applied to a
// forward node that is made for it and dies when nothing reads it. Some take the op's result
// instead of its input, since that is what their formula wants.
#include <algorithm>

#include "compiler/onnx/canonical.h"
#include "compiler/onnx/source.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::ValueId;

// What the rule of `op` gives for the inputs that are wanted, when its node has these inputs. With
// `y`, the node's result is that value.
Result<std::vector<ValueId>> GradientsOf(CanonicalContext& c, std::string_view op,
                                         std::vector<ValueId> inputs, Attrs attrs, ValueId dy,
                                         std::vector<bool> wanted, ValueId y = kNone) {
  const ValueId made = c.b.Op("", op, inputs, std::move(attrs));
  AMPC_TRY(c.b.TakeStatus());
  if (c.graph.type(made) != c.graph.type(dy)) {
    return BadInput("E0107", "the gradient is {}, but the result of {} is {}",
                    ToString(c.graph.type(dy)), op, ToString(c.graph.type(made)));
  }
  const ir::NodeId node = c.graph.value(made).def;
  GradContext rule(c.b, c.graph, node, {dy}, std::move(wanted));
  AMPC_TRY(rule.node.op->grad(rule));
  AMPC_TRY(c.b.TakeStatus());
  if (y != kNone) c.graph.ReplaceUses(made, y);
  return rule.result();
}

Status NeedInputs(const SourceNode& n, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!n.Has(i)) return BadInput("E0107", "input {} is required but left out", i);
  }
  return {};
}

// dy, x
Status FromInput(CanonicalContext& c, SourceNode& n, std::string_view op, Attrs attrs = {}) {
  AMPC_TRY(NeedInputs(n, 2));
  AMPC_ASSIGN(const std::vector<ValueId> dx,
              GradientsOf(c, op, {n.inputs[1]}, std::move(attrs), n.inputs[0], {true}));
  n.Replace(dx[0]);
  return {};
}

// dy, y
Status FromResult(CanonicalContext& c, SourceNode& n, std::string_view op, Attrs attrs = {}) {
  AMPC_TRY(NeedInputs(n, 2));
  AMPC_ASSIGN(const std::vector<ValueId> dx, GradientsOf(c, op, {n.inputs[1]}, std::move(attrs),
                                                         n.inputs[0], {true}, n.inputs[1]));
  n.Replace(dx[0]);
  return {};
}

Status ReluGrad(CanonicalContext& c, SourceNode& n) { return FromResult(c, n, "Relu"); }
Status SigmoidGrad(CanonicalContext& c, SourceNode& n) { return FromResult(c, n, "Sigmoid"); }
Status TanhGrad(CanonicalContext& c, SourceNode& n) { return FromResult(c, n, "Tanh"); }
Status GeluGrad(CanonicalContext& c, SourceNode& n) { return FromInput(c, n, "Gelu"); }
Status FastGeluGrad(CanonicalContext& c, SourceNode& n) {
  return FromInput(c, n, "Gelu", {{"approximate", std::string("tanh")}});
}
Status SoftmaxGrad(CanonicalContext& c, SourceNode& n) {
  return FromResult(c, n, "Softmax", {{"axis", n.attrs.Int("axis", -1)}});
}
Status LogSoftmaxGrad(CanonicalContext& c, SourceNode& n) {
  return FromResult(c, n, "LogSoftmax", {{"axis", n.attrs.Int("axis", -1)}});
}

// dy, x, w -> dx, dw, db
Status ConvolutionGrad(CanonicalContext& c, SourceNode& n, std::string_view op) {
  AMPC_TRY(NeedInputs(n, 3));
  const auto wanted = [&](size_t i) { return i < n.wanted.size() && n.wanted[i]; };
  const ValueId dy = n.inputs[0];
  AMPC_ASSIGN(std::vector<ValueId> grads,
              GradientsOf(c, op, {n.inputs[1], n.inputs[2]}, n.attrs, dy, {wanted(0), wanted(1)}));
  std::vector<int64_t> axes = {0};
  for (int64_t i = 2; i < c.graph.type(dy).rank(); ++i) axes.push_back(i);
  grads.push_back(wanted(2) ? c.b.ReduceSum(dy, std::move(axes), false) : kNone);
  n.results = std::move(grads);
  return c.b.TakeStatus();
}

Status ConvGrad(CanonicalContext& c, SourceNode& n) { return ConvolutionGrad(c, n, "Conv"); }
Status ConvTransposeGrad(CanonicalContext& c, SourceNode& n) {
  return ConvolutionGrad(c, n, "ConvTranspose");
}

// dy, mask, [ratio], [training_mode: it trains when the Dropout does] -> dx
Status DropoutGrad(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 2));
  const HostTensor* ratio = c.Constant(n, 2);
  if (n.Has(2) && (ratio == nullptr || ratio->elements() != 1))
    return Unsupported("E0102", "a ratio that is not constant is not supported");
  const double dropped = ratio == nullptr ? 0.5 : ratio->GetDouble(0);
  n.Replace(c.b.Map("where(x1, x0 / (1 - $r), 0)", {n.inputs[0], n.inputs[1]}, c.type(n, 0).dtype,
                    {{"r", dropped}}));
  return c.b.TakeStatus();
}

// x * scale, or x / scale
Status Scale(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 2));
  const DType dtype = c.type(n, 0).dtype;
  if (c.type(n, 1).elements() != 1) {
    return BadInput("E0107", "the factor is {}, a scalar is expected", ToString(c.type(n, 1)));
  }
  const ValueId factor = c.b.Cast(c.b.Reshape(n.inputs[1], Dims{}), dtype);
  n.Replace(c.b.Op(n.attrs.Int("scale_down") != 0 ? "Div" : "Mul", {n.inputs[0], factor}));
  return c.b.TakeStatus();
}

// dy, Indices of the pool -> dx. The pool itself says what dx looks like. Its training form, made
// once more and dead afterwards, has the rule; ONNX's Indices count through the whole tensor, the
// rule's through a plane.
Status MaxPoolGrad(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 2));
  const ir::Value& mask = c.graph.value(n.inputs[1]);
  if (mask.kind != ir::ValueKind::kNode || mask.index != 1 ||
      c.graph.node(mask.def).op != FindOp("", "MaxPool"))
    return BadInput("E0107", "input 1 is not the Indices of a MaxPool");
  const ir::Node pool = c.graph.node(mask.def);
  if (pool.attrs.Int("storage_order") != 0)
    return Unsupported("E0102", "Indices with storage_order=1 are not supported");
  if (c.type(n, 0).dims != c.type(n, 1).dims) {
    return BadInput("E0107", "the gradient is {}, the Indices are {}", ToString(c.type(n, 0)),
                    ToString(c.type(n, 1)));
  }
  const Dims plane(c.graph.type(pool.inputs[0]).dims.begin() + 2,
                   c.graph.type(pool.inputs[0]).dims.end());
  const ValueId position = c.b.Map("x0 - x0 / $n * $n", {n.inputs[1]}, DType::kInt32,
                                   {{"n", std::max<int64_t>(NumElements(plane), 1)}});
  const ValueId made = c.b.Op("MaxPool", {pool.inputs[0]}, pool.attrs);
  AMPC_TRY(c.b.TakeStatus());
  AMPC_TRY(pool.op->training(c.graph, c.graph.value(made).def, c.b));
  AMPC_TRY(c.b.TakeStatus());
  const ir::NodeId indexed = c.graph.last();
  GradContext rule(c.b, c.graph, indexed, {n.inputs[0], kNone}, {true});
  AMPC_TRY(rule.node.op->grad(rule));
  AMPC_TRY(c.b.TakeStatus());
  c.graph.ReplaceUses(rule.y(1), position);
  n.Replace(rule.result()[0]);
  return {};
}

// ignore_index, as an attribute or as the scalar input of the Internal forms.
Status ReadIgnoreIndex(CanonicalContext& c, SourceNode& n, size_t slot) {
  if (!n.Has(slot)) return {};
  const HostTensor* value = c.Constant(n, slot);
  if (value == nullptr || value->elements() != 1)
    return Unsupported("E0102", "an ignore_index that is not constant is not supported");
  n.attrs.Set("ignore_index", static_cast<int64_t>(value->GetDouble(0)));
  n.inputs.resize(slot);
  while (!n.inputs.empty() && n.inputs.back() == kNone) n.inputs.pop_back();
  return {};
}

Status InternalLoss(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(ReadIgnoreIndex(c, n, 3));
  n.op = "SoftmaxCrossEntropyLoss";
  return {};
}

// How much all labels weigh in the mean.
ValueId TotalWeight(CanonicalContext& c, const SourceNode& n) {
  const ir::TensorType labels = c.type(n, 2);
  const DType acc = AccOf(c.type(n, 1).dtype);
  if (!n.Has(3) && !n.attrs.Has("ignore_index"))
    return c.b.Scalar(acc, static_cast<double>(labels.elements()));
  const Attrs ignore{{"i", n.attrs.Int("ignore_index")}};
  const bool ignores = n.attrs.Has("ignore_index");
  ValueId weight = kNone;
  if (n.Has(3)) {
    const ValueId safe =
        ignores ? c.b.Map("where(x0 == $i, 0, x0)", {n.inputs[2]}, DType::kInt64, ignore)
                : n.inputs[2];
    weight = c.b.Cast(c.b.Op("Gather", {n.inputs[3], safe}), acc);
    if (ignores) weight = c.b.Map("where(x1 == $i, 0, x0)", {weight, n.inputs[2]}, acc, ignore);
  } else {
    weight = c.b.Map("x0 != $i", {n.inputs[2]}, acc, ignore);
  }
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < labels.rank(); ++i) axes.push_back(i);
  return c.b.ReduceSum(weight, std::move(axes), false);
}

// dloss, log_prob, labels, [weights], [ignore_index] -> dscores
Status CrossEntropyGrad(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 3));
  AMPC_TRY(ReadIgnoreIndex(c, n, 4));
  const ValueId weights = n.Has(3) ? n.inputs[3] : kNone;
  Attrs attrs{{"reduction", std::string(n.attrs.String("reduction", "mean"))}};
  if (n.attrs.Has("ignore_index")) attrs.Set("ignore_index", n.attrs.Int("ignore_index"));
  n.Replace(c.b.Own("CrossEntropyGrad",
                    {n.inputs[0], n.inputs[1], n.inputs[2], weights, TotalWeight(c, n)},
                    std::move(attrs)));
  return c.b.TakeStatus();
}

// dy, x, scale, mean, inverse deviation -> dx, dscale, dbias
Status LayerNormGrad(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 5));
  const ir::TensorType x = c.type(n, 1), scale = c.type(n, 2);
  const auto axis = static_cast<size_t>(NormalAxis(n.attrs.Int("axis", -1), x.dims.size()));
  if (axis >= x.dims.size() || c.type(n, 0) != x) {
    return BadInput("E0107", "axis {} of {}, whose gradient is {}", n.attrs.Int("axis", -1),
                    ToString(x), ToString(c.type(n, 0)));
  }
  const int64_t length = NumElements(std::span(x.dims).subspan(axis));
  const int64_t rows = length == 0 ? 0 : x.elements() / length;
  if (scale.elements() != length || c.type(n, 3).elements() != rows ||
      c.type(n, 4).elements() != rows) {
    return BadInput("E0107", "scale {}, mean {} and deviation {} do not fit {} from axis {} on",
                    ToString(scale), ToString(c.type(n, 3)), ToString(c.type(n, 4)), ToString(x),
                    axis);
  }
  const Dims flat = {rows};
  const ValueId inputs[] = {n.inputs[1], n.inputs[0], n.inputs[2], c.b.Reshape(n.inputs[4], flat),
                            c.b.Reshape(n.inputs[3], flat)};
  std::vector<ValueId> grads = c.b.Multi(
      kOwnDomain, "NormalizeGrad", inputs,
      {{"length", length}, {"groups", int64_t{1}}, {"inner", int64_t{1}}, {"rms", int64_t{0}}}, 3);
  for (size_t i = 1; i < 3; ++i)
    grads[i] = c.b.Cast(c.b.Reshape(grads[i], scale.dims), scale.dtype);
  n.results = std::move(grads);
  return c.b.TakeStatus();
}

// shape, indices, dy -> d data
Status GatherGrad(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 3));
  const HostTensor* shape = c.Constant(n, 0);
  if (shape == nullptr || shape->dtype != DType::kInt64)
    return Unsupported("E0102", "a shape that is not constant is not supported");
  const Dims dims(shape->As<int64_t>().begin(), shape->As<int64_t>().end());
  const int64_t axis = NormalAxis(n.attrs.Int("axis"), dims.size());
  if (axis < 0 || axis >= static_cast<int64_t>(dims.size()))
    return BadInput("E0107", "axis {} of a shape of {} dims", n.attrs.Int("axis"), dims.size());
  Dims gathered = dims;
  const Dims& indices = c.type(n, 1).dims;
  gathered.erase(gathered.begin() + axis);
  gathered.insert(gathered.begin() + axis, indices.begin(), indices.end());
  if (c.type(n, 2).dims != gathered) {
    return BadInput("E0107", "the gradient is {}, expected dims {}", ToString(c.type(n, 2)),
                    ToString(gathered));
  }
  n.Replace(c.b.Own("GatherGrad", {n.inputs[2], n.inputs[1]}, {{"dims", dims}, {"axis", axis}}));
  return c.b.TakeStatus();
}

// alpha * op(a) op(b)
Status FusedMatMul(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 2));
  if (n.attrs.Int("transBatchA") != 0 || n.attrs.Int("transBatchB") != 0)
    return Unsupported("E0102", "transBatchA and transBatchB are not supported");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t rank = c.type(n, i).rank();
    if (n.attrs.Int(i == 0 ? "transA" : "transB") == 0 || rank < 2) continue;
    std::vector<int64_t> perm;
    for (int64_t k = 0; k < rank; ++k) perm.push_back(k);
    std::swap(perm[static_cast<size_t>(rank - 1)], perm[static_cast<size_t>(rank - 2)]);
    n.inputs[i] = c.b.Transpose(n.inputs[i], std::move(perm));
  }
  const ValueId product = c.b.Op("MatMul", {n.inputs[0], n.inputs[1]});
  AMPC_TRY(c.b.TakeStatus());
  const double alpha = n.attrs.Float("alpha", 1);
  n.Replace(alpha == 1 ? product
                       : c.b.Mul(product, c.b.Scalar(c.graph.type(product).dtype, alpha)));
  return c.b.TakeStatus();
}

Status Gelu(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 1));
  n.Replace(c.b.Op("Gelu", {n.inputs[0]}));
  return c.b.TakeStatus();
}

// Concat that also gives the length of each part.
Status ConcatTraining(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, std::max<size_t>(n.inputs.size(), 1)));
  const ValueId joined = c.b.Op("", "Concat", n.inputs, {{"axis", n.attrs.Int("axis")}});
  AMPC_TRY(c.b.TakeStatus());
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    const Dims& dims = c.type(n, i).dims;
    lengths.push_back(dims[static_cast<size_t>(NormalAxis(n.attrs.Int("axis"), dims.size()))]);
  }
  n.results = {joined, c.b.Ints(lengths)};
  return c.b.TakeStatus();
}

Status SplitTraining(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 2));
  const HostTensor* sizes = c.Constant(n, 1);
  if (sizes == nullptr || sizes->elements() != static_cast<int64_t>(n.wanted.size()))
    return Unsupported("E0102", "{} outputs need as many constant lengths", n.wanted.size());
  n.results = c.b.Multi("", "Split", std::vector<ValueId>{n.inputs[0], n.inputs[1]},
                        {{"axis", n.attrs.Int("axis")}}, n.wanted.size());
  return c.b.TakeStatus();
}

// Two shapes -> the axes along which each was broadcast to both.
Status BroadcastGradientArgs(CanonicalContext& c, SourceNode& n) {
  AMPC_TRY(NeedInputs(n, 2));
  std::vector<std::vector<int64_t>> shapes;
  for (size_t i = 0; i < 2; ++i) {
    const HostTensor* shape = c.Constant(n, i);
    if (shape == nullptr || shape->dtype != DType::kInt64)
      return Unsupported("E0102", "a shape that is not constant is not supported");
    shapes.emplace_back(shape->As<int64_t>().begin(), shape->As<int64_t>().end());
  }
  const size_t rank = std::max(shapes[0].size(), shapes[1].size());
  std::vector<ValueId> axes;
  for (auto& shape : shapes) shape.insert(shape.begin(), rank - shape.size(), 1);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<int64_t> list;
    for (size_t k = rank; k-- > 0;) {
      if (shapes[i][k] == 1 && shapes[1 - i][k] != 1) list.push_back(static_cast<int64_t>(k));
    }
    axes.push_back(c.b.Ints(list));
  }
  n.results = std::move(axes);
  return c.b.TakeStatus();
}

constexpr std::string_view kMicrosoft = "com.microsoft";
constexpr TrainingRow kRules[] = {
    {"", "MaxPoolGrad", MaxPoolGrad},
    {kMicrosoft, "BroadcastGradientArgs", BroadcastGradientArgs},
    {kMicrosoft, "ConcatTraining", ConcatTraining},
    {kMicrosoft, "ConvGrad", ConvGrad},
    {kMicrosoft, "ConvTransposeGrad", ConvTransposeGrad},
    {kMicrosoft, "DropoutGrad", DropoutGrad},
    {kMicrosoft, "FastGeluGrad", FastGeluGrad},
    {kMicrosoft, "FusedMatMul", FusedMatMul},
    {kMicrosoft, "GatherGrad", GatherGrad},
    {kMicrosoft, "Gelu", Gelu},
    {kMicrosoft, "GeluGrad", GeluGrad},
    {kMicrosoft, "LayerNormalizationGrad", LayerNormGrad},
    {kMicrosoft, "LogSoftmaxGrad_13", LogSoftmaxGrad},
    {kMicrosoft, "ReluGrad", ReluGrad},
    {kMicrosoft, "Scale", Scale},
    {kMicrosoft, "SigmoidGrad", SigmoidGrad},
    {kMicrosoft, "SoftmaxCrossEntropyLossGrad", CrossEntropyGrad},
    {kMicrosoft, "SoftmaxCrossEntropyLossInternal", InternalLoss},
    {kMicrosoft, "SoftmaxCrossEntropyLossInternalGrad", CrossEntropyGrad},
    {kMicrosoft, "SoftmaxGrad_13", SoftmaxGrad},
    {kMicrosoft, "SplitTraining", SplitTraining},
    {kMicrosoft, "TanhGrad", TanhGrad},
};

}  // namespace

CanonicalRule FindTrainingRule(std::string_view domain, std::string_view op) {
  for (const TrainingRow& row : kRules) {
    if (row.domain == domain && row.op == op) return row.rule;
  }
  return nullptr;
}

}  // namespace ampc
