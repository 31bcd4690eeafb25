// SPDX-License-Identifier: Apache-2.0
// BatchNormalization. In training it becomes BatchNormTrain, which also gives the new running
// statistics (states of their own: `next` of the state that slot 3 or 4 reads) and what the
// gradient wants (batch mean, inverse deviation).
//
// ONNX's rule: running = running * momentum + batch * (1 - momentum), population variance;
// `unbiased` is PyTorch's n/(n-1). A channel whose batch statistics are not finite keeps its old
// ones.
#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

using Mode = ModeOptions::Mode;

// The state behind an input, or kNone.
ir::StateId StateOf(const ir::Graph& graph, ir::ValueId v) {
  const ir::Value& value = graph.value(v);
  return value.kind == ir::ValueKind::kState ? value.index : ir::kNone;
}

bool Trainable(const ir::Graph& graph, ir::ValueId v) {
  const ir::StateId s = StateOf(graph, v);
  return s == ir::kNone || graph.module().state(s).trainable;
}

// "'m', which node 'Add:m' makes", or "" where each of mean and variance is a state: then both are
// updated, else neither is.
std::string ComputedStatistic(const ir::Graph& graph, const ir::Node& node) {
  for (size_t i = 3; i < 5; ++i) {
    const ir::Value& value = graph.value(node.inputs[i]);
    if (value.kind == ir::ValueKind::kState) continue;
    const std::string what = value.kind == ir::ValueKind::kFeed ? "a graph input"
                             : graph.ConstantOf(node.inputs[i]) != nullptr
                                 ? "a constant"
                                 : "made by node '" + std::string(graph.Label(value.def)) + "'";
    return fmt::format("{} '{}' is {}", i == 3 ? "mean" : "variance", value.name, what);
  }
  return "";
}

bool UsesBatchStatistics(const ir::Graph& graph, const ir::Node& node, Mode mode) {
  switch (mode) {
    case Mode::kTrain:
      return true;
    case Mode::kPreserve:
      return node.attrs.Int("training_mode") != 0;
    case Mode::kFrozenEval:
      return Trainable(graph, node.inputs[1]) || Trainable(graph, node.inputs[2]);
    case Mode::kInference:
      return false;
  }
  return false;
}

Status SetBatchNormMode(ir::Graph& graph, ir::NodeId id, ir::Builder& b,
                        const ModeOptions& options) {
  const ir::Node node = graph.node(id);
  if (!UsesBatchStatistics(graph, node, options.mode)) {
    for (size_t i = 1; i < node.outputs.size(); ++i) {
      if (node.outputs[i] != ir::kNone && !graph.value(node.outputs[i]).uses.empty()) {
        return Unsupported(
            "E0404",
            "output {} of BatchNormalization is read, which has no meaning in inference mode", i);
      }
    }
    Attrs attrs = node.attrs;
    attrs.Set("training_mode", int64_t{0});
    const std::string name = graph.value(node.outputs[0]).name;
    const ir::ValueId y = b.Op("", "BatchNormalization", node.inputs, std::move(attrs));
    if (b.failed()) return b.TakeStatus();
    graph.ReplaceUses(node.outputs[0], y);
    graph.Erase(id);
    graph.Rename(y, name);
    return {};
  }
  Attrs attrs{{"epsilon", node.attrs.Float("epsilon", 1e-5)},
              {"momentum", node.attrs.Float("momentum", 0.9)},
              {"unbiased", int64_t{options.bn_unbiased}}};
  const Dims& dims = graph.type(node.inputs[0]).dims;
  if (options.bn_unbiased && dims.size() >= 2 && NumElements(dims) == dims[1]) {
    return BadInput("E0102",
                    "one value per channel in {} has no unbiased variance; more than one is needed "
                    "(a larger batch, or --bn-var population)",
                    ToString(graph.type(node.inputs[0])));
  }
  const std::string computed = ComputedStatistic(graph, node);
  if (!computed.empty() && options.notes != nullptr) {
    options.notes->push_back(
        fmt::format("{}: {}, no initializer: its running statistics are not updated",
                    graph.Describe(id), computed));
  }
  // Statistics that two nodes share: the second one updates what the first one made of them.
  std::vector<ir::ValueId> inputs = node.inputs;
  for (size_t i = 3; i < 5 && computed.empty(); ++i) {
    const ir::StateId s = StateOf(graph, inputs[i]);
    if (const ir::ValueId next = graph.FindNext(s); next != ir::kNone) inputs[i] = next;
  }
  const std::vector<ir::ValueId> outs =
      b.Multi(kOwnDomain, "BatchNormTrain", inputs, std::move(attrs), 5);
  if (b.failed()) return b.TakeStatus();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] != ir::kNone) graph.ReplaceUses(node.outputs[i], outs[i]);
  }
  for (size_t i = 1; i < 3 && computed.empty(); ++i)
    graph.SetNext(StateOf(graph, node.inputs[i + 2]), outs[i]);
  const std::string name = graph.value(node.outputs[0]).name;
  graph.Erase(id);
  graph.Rename(outs[0], name);
  return {};
}

Operand Bias(LowerContext& c, size_t i) { return i < c.num_inputs() ? c.in(i) : ir::kNone; }

Attrs NormParams(const Attrs& attrs) {
  Attrs p{{"epsilon", attrs.Float("epsilon", 1e-5)}};
  if (attrs.Has("post")) p.Set("post", std::string(attrs.String("post")));
  return p;
}

Status LowerBatchNorm(LowerContext& c) {
  if (c.attrs().Int("training_mode") != 0) {
    return InternalError("E7005", "BatchNormalization in training mode was not rewritten");
  }
  c.Call("batch_norm_infer", NormParams(c.attrs()),
         {c.in(0), c.in(1), c.in(2), c.in(3), Bias(c, 4)}, {c.out(0)});
  return {};
}

ir::ValueId PerChannel(GradContext& g, ir::ValueId v) {
  Dims dims(g.type(g.x(0)).dims.size(), 1);
  dims[1] = g.type(v).dims[0];
  return g.b.Reshape(v, dims);
}

std::vector<int64_t> AllButChannels(const ir::TensorType& x) {
  std::vector<int64_t> axes = {0};
  for (int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

// With stored statistics the op is an affine map of each channel.
Status GradBatchNorm(GradContext& g) {
  const ir::TensorType x = g.type(g.x(0));
  const DType acc = AccOf(x.dtype);
  const Attrs epsilon{{"epsilon", g.attrs().Float("epsilon", 1e-5)}};
  const ir::ValueId scale = PerChannel(g, g.x(1)), mean = PerChannel(g, g.x(3)),
                    var = PerChannel(g, g.x(4));
  if (g.Needs(0))
    g.Set(0, g.b.Map("x0 * (x1 / sqrt(x2 + $epsilon))", {g.dy(), scale, var}, x.dtype, epsilon));
  if (g.Needs(1)) {
    const ir::ValueId part = g.b.Map("x0 * ((x1 - x2) / sqrt(x3 + $epsilon))",
                                     {g.dy(), g.x(0), mean, var}, acc, epsilon);
    g.Set(1, g.b.ReduceSum(part, AllButChannels(x), false));
  }
  if (g.Needs(2)) g.Set(2, g.b.ReduceSum(g.b.Cast(g.dy(), acc), AllButChannels(x), false));
  return {};
}

// ---- BatchNormTrain: x, scale, bias, mean, var -> y, mean', var', batch mean, inverse deviation

Status InferBatchNormTrain(InferContext& c) {
  const ir::TensorType& x = c.in(0);
  if (x.dims.size() < 2)
    return BadInput("E0107", "input {} has no channel axis (axis 1)", ToString(x));
  for (size_t i = 1; i < 5; ++i) {
    if (c.in(i).dims != Dims{x.dims[1]}) {
      return BadInput("E0107", "parameter {} has dims {}, input {} has {} channels", i,
                      ToString(c.in(i).dims), ToString(x), x.dims[1]);
    }
  }
  c.outputs = {x, c.in(3), c.in(4), c.in(1), c.in(1)};
  return {};
}

Status LowerBatchNormTrain(LowerContext& c) {
  Attrs params = NormParams(c.attrs());
  params.Set("momentum", c.attrs().Float("momentum", 0.9));
  params.Set("unbiased", c.attrs().Int("unbiased"));
  c.Call("batch_norm_train", std::move(params), {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)},
         {c.out(0), c.out(1), c.out(2), c.out(3), c.out(4)});
  return {};
}

Status GradBatchNormTrain(GradContext& g) {
  if (g.dy(0) == ir::kNone) return {};
  const ir::ValueId inputs[] = {g.x(0), g.dy(0), g.x(1), g.y(3), g.y(4)};
  const std::vector<ir::ValueId> grads = g.b.Multi(kOwnDomain, "BatchNormGrad", inputs, {}, 3);
  for (size_t i = 0; i < 3; ++i) {
    if (g.Needs(i)) g.Set(i, grads[i]);
  }
  return {};
}

DType AccType(const BodyContext& c) { return AccOf(c.inputs[0]->dtype); }
int Acc(const BodyContext& c) { return static_cast<int>(AccType(c)); }

std::string ChannelSum(const BodyContext& c, std::string_view name, std::string_view x) {
  const ir::TensorType& type = *c.inputs[0];
  return SumText(name, x, AllButChannels(type), type.dims, AccType(c));
}

// What both bodies use: x, cs = [1, C, 1, …], n = elements per channel.
std::string ChannelText(const BodyContext& c) {
  const Dims& x = c.inputs[0]->dims;
  std::string shape = fmt::format("1, {}", x[1]);
  for (size_t i = 2; i < x.size(); ++i) shape += ", 1";
  const double n = static_cast<double>(c.inputs[0]->elements()) / static_cast<double>(x[1]);
  return fmt::format("cs = Constant <value_ints = [{}]> ()\nx = Cast <to = {}> (i0)\n", shape,
                     Acc(c)) +
         ScalarText("n", n, "x");
}

Result<std::string> BodyBatchNormTrain(const BodyContext& c) {
  const double n =
      static_cast<double>(c.inputs[0]->elements()) / static_cast<double>(c.inputs[0]->dims[1]);
  const double correction = c.attrs.Int("unbiased") != 0 && n > 1 ? n / (n - 1) : 1;
  return ChannelText(c) + ScalarText("e", c.attrs.Float("epsilon", 1e-5), "x") +
         ScalarText("mo", c.attrs.Float("momentum", 0.9), "x") +
         ScalarText("nm", 1 - c.attrs.Float("momentum", 0.9), "x") +
         ScalarText("co", correction, "x") + ChannelSum(c, "xt", "x") +
         "m1 = Div (xt, n)\nd = Sub (x, m1)\nq = Mul (d, d)\n" + ChannelSum(c, "qt", "q") +
         fmt::format(
             "v1 = Div (qt, n)\nve = Add (v1, e)\nsd = Sqrt (ve)\ninv1 = Reciprocal (sd)\n"
             "sc = Reshape (i1, cs)\nbi = Reshape (i2, cs)\nxn = Mul (d, inv1)\nxs = Mul (xn, "
             "sc)\nyw = Add (xs, bi)\n"
             "flat = Constant <value_ints = [-1]> ()\nm = Reshape (m1, flat)\nv = Reshape (v1, "
             "flat)\ninv = Reshape (inv1, flat)\n"
             "vc = Mul (v, co)\nma = Mul (i3, mo)\nmb = Mul (m, nm)\nmn = Add (ma, mb)\nva = Mul "
             "(i4, mo)\nvb = Mul (vc, nm)\n"
             "vn = Add (va, vb)\nmz = Sub (m, m)\nvz = Sub (v, v)\nbz = Add (mz, vz)\nbad = IsNaN "
             "(bz)\n"
             "o0 = Cast <to = {}> (yw)\no1 = Where (bad, i3, mn)\no2 = Where (bad, i4, vn)\no3 = "
             "Identity (m)\no4 = Identity (inv)\n",
             static_cast<int>(c.outputs[0]->dtype));
}

// ---- BatchNormGrad: x, dy, scale, batch mean, inverse deviation -> dx, dscale, dbias

Status InferBatchNormGrad(InferContext& c) {
  c.outputs = {c.in(1), c.in(2), c.in(2)};
  return {};
}

Status LowerBatchNormGrad(LowerContext& c) {
  c.Call("batch_norm_bwd", {}, {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)},
         {c.out(0), c.out(1), c.out(2)});
  return {};
}

Result<std::string> BodyBatchNormGrad(const BodyContext& c) {
  return ChannelText(c) + fmt::format("dy = Cast <to = {}> (i1)\n", Acc(c)) +
         "sc = Reshape (i2, cs)\nm = Reshape (i3, cs)\ninv = Reshape (i4, cs)\nd = Sub (x, m)\n"
         "xn = Mul (d, inv)\ndyx = Mul (dy, xn)\n" +
         ChannelSum(c, "ds", "dyx") + ChannelSum(c, "db", "dy") +
         fmt::format(
             "dsn = Div (ds, n)\ndbn = Div (db, n)\nt1 = Mul (xn, dsn)\nt2 = Sub (dy, "
             "dbn)\nt3 = Sub (t2, t1)\nsi = Mul (sc, inv)\ndx = Mul (t3, si)\n"
             "flat = Constant <value_ints = [-1]> ()\no0 = Cast <to = {}> (dx)\no1 = "
             "Reshape (ds, flat)\no2 = Reshape (db, flat)\n",
             static_cast<int>(c.outputs[0]->dtype));
}

// clang-format off
constexpr uint32_t kParameters = 0b11110;  // scale, bias, mean, var stay fp32
constexpr OpDef kOps[] = {
    {.name = "BatchNormalization", .since = 15, .in = 5, .out = {1, 3}, .fp32_slots = kParameters, .statistic_slots = 0b11000, .channel_slots = 1, .channel_outputs = 1,
     .grad = GradBatchNorm, .mode = SetBatchNormMode, .lower = LowerBatchNorm, .traits = {.any_layout = true, .epilogue = true}},
    {.domain = kOwnDomain, .name = "BatchNormTrain", .in = 5, .out = 5, .fp32_slots = kParameters, .fp32_outputs = 0b11110,
     .statistic_slots = 0b11000, .channel_slots = 1, .channel_outputs = 1, .infer = InferBatchNormTrain, .grad = GradBatchNormTrain, .lower = LowerBatchNormTrain,
     .body = BodyBatchNormTrain, .traits = {.any_layout = true, .epilogue = true}},
    {.domain = kOwnDomain, .name = "BatchNormGrad", .in = 5, .out = 3, .fp32_slots = 0b11100, .fp32_outputs = 0b110, .channel_slots = 0b11, .channel_outputs = 1,
     .infer = InferBatchNormGrad, .lower = LowerBatchNormGrad, .body = BodyBatchNormGrad, .traits = {.any_layout = true}},
};
// clang-format on

}  // namespace

std::span<const OpDef> NormOps() { return kOps; }

}  // namespace ampc
