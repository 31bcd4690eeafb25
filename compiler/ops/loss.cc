// SPDX-License-Identifier: Apache-2.0
// Losses on class labels: SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss, their training forms
// (which also give what the gradient wants: log-probabilities and the sum of the counted weights),
// their gradients, and the accuracy metric.
#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

// ---- shared

// Parameters of the loss kernels from ONNX's attributes; ONNX marks "no ignore_index" by absence.
Attrs LossParams(const Attrs& attrs) {
  Attrs p{{"reduction", std::string(attrs.String("reduction", "mean"))},
          {"has_ignore_index", int64_t{attrs.Has("ignore_index")}},
          {"ignore_index", attrs.Int("ignore_index")}};
  if (attrs.Has("label_smoothing")) p.Set("label_smoothing", attrs.Float("label_smoothing"));
  return p;
}

Dims LabelDims(const ir::TensorType& scores) {
  Dims dims = scores.dims;
  if (dims.size() >= 2) dims.erase(dims.begin() + 1);
  return dims;
}

Status CheckLoss(const InferContext& c, size_t scores, size_t labels, size_t weights) {
  const ir::TensorType& s = c.in(scores);
  if (s.dims.size() < 2)
    return BadInput("E0107", "scores {} have no class axis (axis 1)", ToString(s));
  if (c.in(labels).dims != LabelDims(s)) {
    return BadInput("E0107", "labels {} do not fit scores {}: expected dims {}",
                    ToString(c.in(labels)), ToString(s), ToString(LabelDims(s)));
  }
  if (c.has(weights) && c.in(weights).dims != Dims{s.dims[1]}) {
    return BadInput("E0107", "class weights {} do not fit {} classes", ToString(c.in(weights)),
                    s.dims[1]);
  }
  return {};
}

int AccNumber(const BodyContext& c) { return static_cast<int>(AccOf(c.inputs[0]->dtype)); }
int Number(const ir::TensorType& t) { return static_cast<int>(t.dtype); }

Operand In(LowerContext& c, size_t i) { return i < c.num_inputs() ? c.in(i) : ir::kNone; }

Status CheckReduction(const Attrs& attrs, std::span<const ir::TensorType* const>) {
  const std::string_view reduction = attrs.String("reduction", "mean");
  if (reduction == "mean" || reduction == "sum" || reduction == "none") return {};
  return BadInput("E0107", "reduction is '{}', expected mean, sum or none", reduction);
}

// ---- CrossEntropy: scores, labels, [weights] -> loss, log_prob, total

Status InferCrossEntropy(InferContext& c) {
  AMPC_TRY(CheckLoss(c, 0, 1, 2));
  const ir::TensorType& s = c.in(0);
  const Dims loss = c.attrs.String("reduction", "mean") == "none" ? LabelDims(s) : Dims{};
  c.outputs = {{s.dtype, loss}, s, {AccOf(s.dtype), {}}};
  return {};
}

Status LowerCrossEntropy(LowerContext& c) {
  const bool own = c.num_outputs() == 3;
  c.Call("softmax_cross_entropy", LossParams(c.attrs()), {c.in(0), c.in(1), In(c, 2)},
         {c.out(0), c.num_outputs() > 1 ? c.out(1) : ir::kNone, own ? c.out(2) : ir::kNone});
  return {};
}

Status GradCrossEntropy(GradContext& g) {
  if (g.dy(1) != ir::kNone) {
    return Unsupported("E0403",
                       "a gradient into the log-probabilities of the loss is not supported");
  }
  if (g.Needs(0) && g.dy(0) != ir::kNone) {
    g.Set(0, g.b.Own("CrossEntropyGrad", {g.dy(0), g.y(1), g.x(1), g.x(2), g.y(2)}, g.attrs()));
  }
  return {};
}

// SoftmaxCrossEntropyLoss -> CrossEntropy: the same loss, plus log_prob and total.
Status TrainCrossEntropy(ir::Graph& graph, ir::NodeId id, ir::Builder& b) {
  const ir::Node node = graph.node(id);
  Attrs attrs = node.attrs;
  std::vector<ir::ValueId> inputs = node.inputs;
  inputs.resize(3, ir::kNone);
  const std::vector<ir::ValueId> outs =
      b.Multi(kOwnDomain, "CrossEntropy", inputs, std::move(attrs), 3);
  if (b.failed()) return b.TakeStatus();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == ir::kNone) continue;
    const std::string name = graph.value(node.outputs[i]).name;
    graph.ReplaceUses(node.outputs[i], outs[i]);
    graph.Rename(node.outputs[i], name + ".standard");
    graph.Rename(outs[i], name);
  }
  graph.Erase(id);
  return {};
}

// Per-sample pieces in ONNX: lp (acc log-probabilities), wl (weight of each label, 0 where
// ignored), hot (one-hot labels).
std::string LossPieces(const BodyContext& c, std::string_view log_prob, std::string_view labels,
                       std::string_view weights, const ir::TensorType& scores) {
  const int acc = AccNumber(c);
  const int64_t classes = scores.dims[1];
  const bool ignore = c.attrs.Has("ignore_index");
  std::string t = fmt::format(
      "lp = Cast <to = {}> ({})\nlab = Cast <to = 7> ({})\none32 = Constant <value_float = 1.0> "
      "()\n"
      "one = Cast <to = {}> (one32)\nzero = Sub (one, one)\n",
      acc, log_prob, labels, acc);
  if (ignore) {
    t += fmt::format(
        "ign = Constant <value_int = {}> ()\nskip = Equal (lab, ign)\nz64 = Constant <value_int = "
        "0> ()\n"
        "safe = Where (skip, z64, lab)\nkeep = Where (skip, zero, one)\n",
        c.attrs.Int("ignore_index"));
  } else {
    t += "safe = Identity (lab)\nlabf = Cast <to = 1> (lab)\nlabz = Sub (labf, labf)\nkz = "
         "CastLike (labz, one)\nkeep = Add (kz, one)\n";
  }
  if (weights.empty()) {
    t += "wl = Identity (keep)\n";
  } else {
    t += fmt::format(
        "wc = Cast <to = {}> ({})\nwg = Gather <axis = 0> (wc, safe)\nwl = Mul (wg, keep)\n", acc,
        weights);
  }
  t += fmt::format(
      "depth = Constant <value_int = {}> ()\nv01 = Constant <value_floats = [0.0, 1.0]> ()\nv = "
      "Cast <to = {}> (v01)\n"
      "hot = OneHot <axis = 1> (safe, depth, v)\nax1 = Constant <value_ints = [1]> ()\n"
      "wl1 = Unsqueeze (wl, ax1)\nkeep1 = Unsqueeze (keep, ax1)\n",
      classes, acc);
  // Weight of each class in the smoothing term: the class weights, or ones.
  if (weights.empty()) {
    t += "cw = Identity (one)\n";
  } else {
    std::string shape = fmt::format("1, {}", classes);
    for (size_t i = 2; i < scores.dims.size(); ++i) shape += ", 1";
    t += fmt::format("cws = Constant <value_ints = [{}]> ()\ncw = Reshape (wc, cws)\n", shape);
  }
  return t;
}

// mass = (1 - e) * wl * hot + e / C * keep * cw: minus its product with lp is the loss of each
// sample.
std::string MassText(const BodyContext& c, const ir::TensorType& scores) {
  const double e = c.attrs.Float("label_smoothing", 0);
  return ScalarText("e", e, "one") + ScalarText("n", static_cast<double>(scores.dims[1]), "one") +
         "ne = Sub (one, e)\nec = Div (e, n)\nh1 = Mul (hot, wl1)\nh2 = Mul (h1, ne)\n"
         "s1 = Mul (keep1, cw)\ns2 = Mul (s1, ec)\nmass = Add (h2, s2)\n";
}

// The loss `l` out of one per place, `per`, and the sum of the counted weights, `tot`.
std::string_view ReductionText(const BodyContext& c) {
  const std::string_view reduction = c.attrs.String("reduction", "mean");
  if (reduction == "none") return "l = Identity (per)\n";
  if (reduction == "sum") return "l = ReduceSum <keepdims = 0> (per)\n";
  return "ls = ReduceSum <keepdims = 0> (per)\nempty = Equal (tot, zero)\n"
         "den = Where (empty, one, tot)\nl = Div (ls, den)\n";
}

Result<std::string> BodyCrossEntropy(const BodyContext& c) {
  const ir::TensorType& scores = *c.inputs[0];
  const bool weighted = c.inputs.size() > 2 && c.inputs[2] != nullptr;
  std::string t =
      fmt::format("wide = Cast <to = {}> (i0)\nlsm = LogSoftmax <axis = 1> (wide)\n", AccNumber(c));
  t += LossPieces(c, "lsm", "i1", weighted ? "i2" : "", scores) + MassText(c, scores);
  t += "m = Mul (mass, lp)\nms = ReduceSum <keepdims = 0> (m, ax1)\nper = Neg (ms)\ntot = "
       "ReduceSum <keepdims = 0> (wl)\n";
  t += ReductionText(c);
  return t + fmt::format(
                 "o0 = Cast <to = {}> (l)\no1 = Cast <to = {}> (lp)\no2 = Cast <to = {}> (tot)\n",
                 Number(*c.outputs[0]), Number(*c.outputs[1]), Number(*c.outputs[2]));
}

// ---- CrossEntropyGrad: dloss, log_prob, labels, weights, total -> dscores

Status InferCrossEntropyGrad(InferContext& c) {
  AMPC_TRY(CheckLoss(c, 1, 2, 3));
  c.outputs = {c.in(1)};
  return {};
}

Status LowerCrossEntropyGrad(LowerContext& c) {
  c.Call("softmax_cross_entropy_bwd", LossParams(c.attrs()),
         {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)}, {c.out(0)});
  return {};
}

// Gradient of each sample's loss: dl1, broadcast over the classes.
std::string UpstreamText(const BodyContext& c, std::string_view total) {
  const std::string_view reduction = c.attrs.String("reduction", "mean");
  std::string t = fmt::format("dl = Cast <to = {}> (i0)\n", AccNumber(c));
  if (reduction == "none") return t + "dl1 = Unsqueeze (dl, ax1)\n";
  if (reduction == "sum") return t + "dl1 = Identity (dl)\n";
  return t + fmt::format(
                 "tt = Cast <to = {}> ({})\nempty = Equal (tt, zero)\nden = Where (empty, one, "
                 "tt)\ndl1 = Div (dl, den)\n",
                 AccNumber(c), total);
}

Result<std::string> BodyCrossEntropyGrad(const BodyContext& c) {
  const ir::TensorType& scores = *c.inputs[1];
  std::string t = LossPieces(c, "i1", "i2", c.inputs[3] != nullptr ? "i3" : "", scores) +
                  MassText(c, scores) + UpstreamText(c, "i4");
  return t + fmt::format(
                 "p = Exp (lp)\nsum = ReduceSum (mass, ax1)\nps = Mul (p, sum)\nd = Sub (ps, "
                 "mass)\ndx = Mul (d, dl1)\n"
                 "o0 = Cast <to = {}> (dx)\n",
                 Number(*c.outputs[0]));
}

// ---- Nll: log_prob, labels, [weights] -> loss, total

Status InferNll(InferContext& c) {
  AMPC_TRY(CheckLoss(c, 0, 1, 2));
  const ir::TensorType& s = c.in(0);
  c.outputs = {{s.dtype, c.attrs.String("reduction", "mean") == "none" ? LabelDims(s) : Dims{}},
               {AccOf(s.dtype), {}}};
  return {};
}

Status LowerNll(LowerContext& c) {
  c.Call("nll_loss", LossParams(c.attrs()), {c.in(0), c.in(1), In(c, 2)},
         {c.out(0), c.num_outputs() > 1 ? c.out(1) : ir::kNone});
  return {};
}

Status GradNll(GradContext& g) {
  if (g.Needs(0))
    g.Set(0, g.b.Own("NllGrad", {g.dy(0), g.x(0), g.x(1), g.x(2), g.y(1)}, g.attrs()));
  return {};
}

Status TrainNll(ir::Graph& graph, ir::NodeId id, ir::Builder& b) {
  const ir::Node node = graph.node(id);
  std::vector<ir::ValueId> inputs = node.inputs;
  inputs.resize(3, ir::kNone);
  const std::vector<ir::ValueId> outs = b.Multi(kOwnDomain, "Nll", inputs, node.attrs, 2);
  if (b.failed()) return b.TakeStatus();
  TakePlace(graph, id, outs[0]);
  return {};
}

Result<std::string> BodyNll(const BodyContext& c) {
  const ir::TensorType& scores = *c.inputs[0];
  const bool weighted = c.inputs.size() > 2 && c.inputs[2] != nullptr;
  std::string t = LossPieces(c, "i0", "i1", weighted ? "i2" : "", scores);
  t += "h1 = Mul (hot, wl1)\nm = Mul (h1, lp)\nms = ReduceSum <keepdims = 0> (m, ax1)\nper = Neg "
       "(ms)\ntot = ReduceSum <keepdims = 0> (wl)\n";
  t += ReductionText(c);
  return t + fmt::format("o0 = Cast <to = {}> (l)\no1 = Cast <to = {}> (tot)\n",
                         Number(*c.outputs[0]), Number(*c.outputs[1]));
}

// ---- NllGrad: dloss, log_prob (only its form is read), labels, weights, total -> dlog_prob

Status InferNllGrad(InferContext& c) {
  AMPC_TRY(CheckLoss(c, 1, 2, 3));
  c.outputs = {c.in(1)};
  return {};
}

Status LowerNllGrad(LowerContext& c) {
  c.Call("nll_loss_bwd", LossParams(c.attrs()), {c.in(0), c.in(2), c.in(3), c.in(4)}, {c.out(0)});
  return {};
}

Result<std::string> BodyNllGrad(const BodyContext& c) {
  const ir::TensorType& scores = *c.inputs[1];
  std::string t =
      LossPieces(c, "i1", "i2", c.inputs[3] != nullptr ? "i3" : "", scores) + UpstreamText(c, "i4");
  return t +
         fmt::format(
             "h1 = Mul (hot, wl1)\nh2 = Mul (h1, dl1)\ndx = Neg (h2)\no0 = Cast <to = {}> (dx)\n",
             Number(*c.outputs[0]));
}

// ---- TopKCorrect: scores, labels -> 1 where the label is among the k best

Status InferTopK(InferContext& c) {
  AMPC_TRY(CheckLoss(c, 0, 1, 2));
  c.outputs = {{DType::kFloat32, LabelDims(c.in(0))}};
  return {};
}

Status LowerTopK(LowerContext& c) {
  c.Call("topk_correct", {{"k", c.attrs().Int("k", 1)}}, {c.in(0), c.in(1)}, {c.out(0)});
  return {};
}

Result<std::string> BodyTopK(const BodyContext& c) {
  const int64_t k = std::min<int64_t>(c.attrs.Int("k", 1), c.inputs[0]->dims[1]);
  return fmt::format(
      "w = Cast <to = {}> (i0)\nk = Constant <value_ints = [{}]> ()\ntv, ti = TopK <axis = 1> (w, "
      "k)\n"
      "lab = Cast <to = 7> (i1)\na = Constant <value_ints = [1]> ()\nl1 = Unsqueeze (lab, a)\nh = "
      "Equal (ti, l1)\n"
      "hf = Cast <to = 1> (h)\no0 = ReduceMax <keepdims = 0> (hf, a)\n",
      AccNumber(c), k);
}

// clang-format off
constexpr OpDef kOps[] = {
    {.name = "SoftmaxCrossEntropyLoss", .since = 13, .in = {2, 3}, .out = {1, 2}, .cast = kFp32Class, .no_gradient_slots = 0b100, .check = CheckReduction, .training = TrainCrossEntropy, .lower = LowerCrossEntropy},
    {.name = "NegativeLogLikelihoodLoss", .since = 22, .in = {2, 3}, .cast = kFp32Class, .no_gradient_slots = 0b100, .check = CheckReduction, .training = TrainNll, .lower = LowerNll},
    {.domain = kOwnDomain, .name = "CrossEntropy", .in = {2, 3}, .out = 3, .cast = kFp32Class, .infer = InferCrossEntropy, .grad = GradCrossEntropy, .lower = LowerCrossEntropy, .body = BodyCrossEntropy},
    {.domain = kOwnDomain, .name = "CrossEntropyGrad", .in = 5, .optional_slots = 0b1000, .infer = InferCrossEntropyGrad, .lower = LowerCrossEntropyGrad, .body = BodyCrossEntropyGrad},
    {.domain = kOwnDomain, .name = "Nll", .in = {2, 3}, .out = 2, .cast = kFp32Class, .infer = InferNll, .grad = GradNll, .lower = LowerNll, .body = BodyNll},
    {.domain = kOwnDomain, .name = "NllGrad", .in = 5, .optional_slots = 0b1000, .infer = InferNllGrad, .lower = LowerNllGrad, .body = BodyNllGrad},
    {.domain = kOwnDomain, .name = "TopKCorrect", .in = 2, .cast = kFollowClass, .infer = InferTopK, .grad = NoGradient, .lower = LowerTopK, .body = BodyTopK},
};
// clang-format on

}  // namespace

std::span<const OpDef> LossOps() { return kOps; }

}  // namespace ampc
