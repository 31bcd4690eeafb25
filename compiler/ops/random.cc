// SPDX-License-Identifier: Apache-2.0
// Dropout, Random*, Bernoulli. In their modes they become DropoutTrain and Random, whose numbers
// are functions of (seed, micro-batch, stream, element): the stream is fixed by the output's name
// (or by attribute "seed", so that nodes of one seed draw the same), and numbers depend neither on
// passes nor on layout or device; Dropout's backward uses the mask. Bodies: random_body.cc.
#include "compiler/ops/random.h"

#include <bit>
#include <set>

#include "compiler/ir/builder.h"

namespace ampc {
namespace {

using Mode = ModeOptions::Mode;

// FNV-1a, 31 bits.
int64_t StreamOf(std::string_view name) {
  uint32_t h = 2166136261u;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 16777619u;
  return h & 0x7FFFFFFF;
}

bool Drops(const ir::Graph& graph, const ir::Node& node, Mode mode) {
  const HostTensor* ratio = node.inputs.size() > 1 ? graph.ConstantOf(node.inputs[1]) : nullptr;
  if (ratio != nullptr && ratio->GetDouble(0) == 0) return false;
  if (mode == Mode::kInference) return false;
  if (mode == Mode::kTrain || mode == Mode::kFrozenEval) return true;
  const HostTensor* training = node.inputs.size() > 2 ? graph.ConstantOf(node.inputs[2]) : nullptr;
  return training != nullptr && training->GetInt(0) != 0;
}

Status SetDropoutMode(ir::Graph& graph, ir::NodeId id, ir::Builder& b, const ModeOptions& options) {
  const ir::Node node = graph.node(id);
  const bool mask_used = node.outputs.size() > 1 && node.outputs[1] != ir::kNone &&
                         !graph.value(node.outputs[1]).uses.empty();
  if (!Drops(graph, node, options.mode)) {
    if (mask_used) {
      const ir::ValueId ones =
          b.Expand(b.Scalar(DType::kBool, 1), graph.type(node.outputs[1]).dims);
      if (b.failed()) return b.TakeStatus();
      graph.ReplaceUses(node.outputs[1], ones);
    }
    graph.ReplaceUses(node.outputs[0], node.inputs[0]);
    graph.Erase(id);
    return {};
  }
  ir::ValueId ratio = node.inputs.size() > 1 ? node.inputs[1] : ir::kNone;
  if (ratio == ir::kNone) ratio = b.Scalar(DType::kFloat32, 0.5);  // ONNX's default
  if (const HostTensor* known = graph.ConstantOf(ratio);
      known != nullptr && known->elements() == 1) {
    const double p = known->GetDouble(0);
    if (!(p >= 0 && p <= 1))
      return BadInput("E0102", "the ratio is {}; expected 0 (drops nothing) to 1", p);
  }
  const std::string name = graph.value(node.outputs[0]).name;
  const ir::ValueId inputs[] = {node.inputs[0], ratio, graph.State(RngState(graph.module()))};
  const std::vector<ir::ValueId> outs =
      b.Multi(kOwnDomain, "DropoutTrain", inputs, {{"stream", StreamOf(name)}}, 2);
  if (b.failed()) return b.TakeStatus();
  graph.ReplaceUses(node.outputs[0], outs[0]);
  if (mask_used) graph.ReplaceUses(node.outputs[1], outs[1]);
  graph.Erase(id);
  graph.Rename(outs[0], name);
  return {};
}

Status InferDropoutTrain(InferContext& c) {
  if (!IsFloat(c.in(1).dtype) || c.in(1).elements() != 1) {
    return BadInput("E0107", "the ratio has type {}, a float scalar is expected",
                    ToString(c.in(1)));
  }
  c.outputs = {c.in(0), {DType::kBool, c.in(0).dims}};
  return {};
}

Status LowerDropoutTrain(LowerContext& c) {
  c.Call("dropout", {{"stream", c.attrs().Int("stream")}}, {c.in(0), c.in(1), c.in(2)},
         {c.out(0), c.out(1)});
  return {};
}

Status GradDropoutTrain(GradContext& g) {
  if (g.Needs(0))
    g.Set(0,
          g.b.Map("where(x1, x0 / (1 - x2), 0)", {g.dy(0), g.y(1), g.x(1)}, g.type(g.x(0)).dtype));
  return {};
}

// ---- Random*, Bernoulli

// v = shift + scale * (a uniform number of [0, 1), or a standard normal one).
struct Draw {
  bool normal = false;
  double shift = 0, scale = 1;
};

ir::ValueId Random(ir::Builder& b, ir::Graph& graph, const ir::Node& node, const Draw& draw,
                   DType to) {
  const ir::ValueId out = node.outputs[0];
  const int64_t stream =
      node.attrs.Has("seed")
          ? std::bit_cast<int32_t>(static_cast<float>(node.attrs.Float("seed"))) & 0x7FFFFFFF
          : StreamOf(graph.value(out).name);
  return b.Own("Random", {graph.State(RngState(graph.module()))},
               {{"stream", stream},
                {"normal", int64_t{draw.normal}},
                {"shift", draw.shift},
                {"scale", draw.scale},
                {"dims", graph.type(out).dims},
                {"to", static_cast<int64_t>(to)}});
}

Status DrawAs(ir::Graph& graph, ir::NodeId id, ir::Builder& b, const Draw& draw) {
  const ir::Node node = graph.node(id);
  const ir::ValueId drawn = Random(b, graph, node, draw, graph.type(node.outputs[0]).dtype);
  if (b.failed()) return b.TakeStatus();
  TakePlace(graph, id, drawn);
  return {};
}

Status DrawUniform(ir::Graph& graph, ir::NodeId id, ir::Builder& b, const ModeOptions&) {
  const Attrs attrs = graph.node(id).attrs;
  const double low = attrs.Float("low", 0), high = attrs.Float("high", 1);
  return DrawAs(graph, id, b, {.shift = low, .scale = high - low});
}

Status DrawNormal(ir::Graph& graph, ir::NodeId id, ir::Builder& b, const ModeOptions&) {
  const Attrs attrs = graph.node(id).attrs;
  return DrawAs(
      graph, id, b,
      {.normal = true, .shift = attrs.Float("mean", 0), .scale = attrs.Float("scale", 1)});
}

// 1 with probability x, where u < x.
Status DrawBernoulli(ir::Graph& graph, ir::NodeId id, ir::Builder& b, const ModeOptions&) {
  const ir::Node node = graph.node(id);
  const ir::ValueId u = Random(b, graph, node, {}, AccOf(graph.type(node.inputs[0]).dtype));
  const ir::ValueId one =
      b.Map("where(x0 < x1, 1, 0)", {u, node.inputs[0]}, graph.type(node.outputs[0]).dtype);
  if (b.failed()) return b.TakeStatus();
  TakePlace(graph, id, one);
  return {};
}

Status InferRandom(InferContext& c) {
  const auto to = static_cast<DType>(c.attrs.Int("to", 0));
  if (!IsFloat(to) || !c.attrs.Has("dims")) {
    return BadInput("E0107", "expected attributes dims and to (a float type), found to = {}",
                    c.attrs.Int("to", 0));
  }
  return InferFromDims(c);
}

Status LowerRandom(LowerContext& c) {
  const Attrs& a = c.attrs();
  c.Call("random",
         {{"stream", a.Int("stream")},
          {"normal", a.Int("normal")},
          {"shift", a.Float("shift")},
          {"scale", a.Float("scale")}},
         {c.in(0)}, {c.out(0)});
  return {};
}

// clang-format off
constexpr Traits kRandom{.random = true};
constexpr OpDef kOps[] = {
    {.name = "RandomUniform", .since = 22, .in = 0, .mode = DrawUniform, .traits = kRandom},
    {.name = "RandomNormal", .since = 22, .in = 0, .mode = DrawNormal, .traits = kRandom},
    {.name = "RandomUniformLike", .since = 22, .no_gradient_slots = 0b1, .mode = DrawUniform, .traits = kRandom},
    {.name = "RandomNormalLike", .since = 22, .no_gradient_slots = 0b1, .mode = DrawNormal, .traits = kRandom},
    {.name = "Bernoulli", .since = 22, .no_gradient_slots = 0b1, .mode = DrawBernoulli, .traits = kRandom},
    {.domain = kOwnDomain, .name = "Random", .infer = InferRandom, .lower = LowerRandom, .body = BodyRandom, .traits = kRandom},
    // clang-format on
    {.name = "Dropout",
     .since = 22,
     .in = {1, 3},
     .out = {1, 2},
     .fp32_slots = 0b10,
     .no_gradient_slots = 0b110,
     .mode = SetDropoutMode,
     .traits = {.random = true}},  // two of one input have masks of their own
    {.domain = kOwnDomain,
     .name = "DropoutTrain",
     .in = 3,
     .out = 2,
     .fp32_slots = 0b10,
     .infer = InferDropoutTrain,
     .grad = GradDropoutTrain,
     .lower = LowerDropoutTrain,
     .body = BodyDropoutTrain,
     .traits = {.random = true}},
};

}  // namespace

ir::StateId RngState(ir::Module& module) {
  const ir::StateId known = module.FindRole(ir::Role::kRng);
  if (known != ir::kNone) return known;
  // {seed, index of the micro-batch}; amprun writes the seed, which it knows by the role.
  return module.AddState(
      {.name = "rng", .type = module.types.Intern(DType::kInt64, Dims{2}), .role = ir::Role::kRng});
}

void SeparateStreams(ir::Graph& g) {
  std::set<int64_t> taken;
  for (ir::NodeId n : g.Order()) {
    const ir::Node& node = g.node(n);
    if (!node.op->traits.random || !node.attrs.Has("stream")) continue;
    int64_t stream = node.attrs.Int("stream");
    while (!taken.insert(stream).second) stream = (stream + 1) & 0x7FFFFFFF;
    if (stream == node.attrs.Int("stream")) continue;
    Attrs attrs = node.attrs;
    attrs.Set("stream", stream);
    g.SetAttrs(n, std::move(attrs));
  }
}

Status CountDraws(ir::Graph& g) {
  const ir::StateId rng = g.module().FindRole(ir::Role::kRng);
  if (rng == ir::kNone || g.FindState(rng) == ir::kNone) return {};
  ir::Builder b(g, g.module().locs.Intern("random numbers"));
  const ir::ValueId next = b.Map("x0 + x1", {g.State(rng), b.Ints({0, 1})}, DType::kInt64);
  if (b.failed()) return b.TakeStatus();
  g.SetNext(rng, next);
  return {};
}

std::span<const OpDef> RandomOps() { return kOps; }

}  // namespace ampc
