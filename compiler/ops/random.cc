// SPDX-License-Identifier: Apache-2.0
// Dropout. In training it becomes DropoutTrain, whose mask is a function of (seed, micro-batch,
// stream, element): the stream is fixed by the output's name, so that masks depend neither on
// passes nor on layout or device; backward uses the mask.
#include "compiler/ir/builder.h"
#include "compiler/ops/op_def.h"

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
  const ir::ValueId inputs[] = {node.inputs[0], ratio, graph.State(options.rng)};
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

// Philox4x32-10 in uint64 arithmetic (Salmon et al., SC 2011): one row of four words per counter.
Result<std::string> BodyDropoutTrain(const BodyContext& c) {
  const int64_t n = c.inputs[0]->elements(), quads = (n + 3) / 4;
  std::string shape;
  for (int64_t d : c.inputs[0]->dims) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", d);
  constexpr int kU64 = 13;
  std::string t = fmt::format(
      "k32 = Constant <value = uint64 {{32}}> ()\nlow = Constant <value = uint64 {{4294967295}}> "
      "()\n"
      "mA = Constant <value = uint64 {{3528531795}}> ()\nmB = Constant <value = uint64 "
      "{{3449720151}}> ()\n"
      "wA = Constant <value = uint64 {{2654435769}}> ()\nwB = Constant <value = uint64 "
      "{{3144134277}}> ()\n"
      "i0_ = Constant <value_int = 0> ()\ni1_ = Constant <value_int = 1> ()\nr64 = Cast <to = {0}> "
      "(i2)\n"
      "seed = Gather (r64, i0_)\nindex = Gather (r64, i1_)\nka0 = BitwiseAnd (seed, low)\nkb0 = "
      "BitShift <direction = \"RIGHT\"> (seed, k32)\n"
      "q = Constant <value_int = {1}> ()\nrg = Range (i0_, q, i1_)\na0 = Cast <to = {0}> (rg)\nz = "
      "Sub (a0, a0)\n"
      "st0 = Constant <value_int = {2}> ()\nst = Cast <to = {0}> (st0)\nb0 = Add (z, st)\n"
      "ilo = BitwiseAnd (index, low)\nihi = BitShift <direction = \"RIGHT\"> (index, k32)\nc0 = "
      "Add (z, ilo)\nd0 = Add (z, ihi)\n",
      kU64, quads, c.attrs.Int("stream"));
  for (int r = 0; r < 10; ++r) {
    t += fmt::format(
        "pA{0} = Mul (a{0}, mA)\npB{0} = Mul (c{0}, mB)\nhA{0} = BitShift <direction = \"RIGHT\"> "
        "(pA{0}, k32)\n"
        "hB{0} = BitShift <direction = \"RIGHT\"> (pB{0}, k32)\nxa{0} = BitwiseXor (hB{0}, "
        "b{0})\na{1} = BitwiseXor (xa{0}, ka{0})\n"
        "b{1} = BitwiseAnd (pB{0}, low)\nxc{0} = BitwiseXor (hA{0}, d{0})\nc{1} = BitwiseXor "
        "(xc{0}, kb{0})\n"
        "d{1} = BitwiseAnd (pA{0}, low)\nsa{0} = Add (ka{0}, wA)\nka{1} = BitwiseAnd (sa{0}, "
        "low)\nsb{0} = Add (kb{0}, wB)\n"
        "kb{1} = BitwiseAnd (sb{0}, low)\n",
        r, r + 1);
  }
  const int acc = static_cast<int>(AccOf(c.inputs[0]->dtype));
  return t + fmt::format(
                 "qs = Constant <value_ints = [{0}, 1]> ()\nra = Reshape <allowzero = 1> (a10, "
                 "qs)\nrb = Reshape <allowzero = 1> (b10, qs)\nrc = Reshape <allowzero = 1> (c10, "
                 "qs)\nrd = Reshape <allowzero = 1> (d10, qs)\n"
                 "all = Concat <axis = 1> (ra, rb, rc, rd)\nfs = Constant <value_ints = [-1]> "
                 "()\nflat = Reshape <allowzero = 1> (all, fs)\n"
                 "s0 = Constant <value_ints = [0]> ()\ns1 = Constant <value_ints = [{1}]> ()\ncut "
                 "= Slice (flat, s0, s1)\nu0 = Cast <to = 11> (cut)\n"
                 "p32 = Constant <value = double {{2.3283064365386963e-10}}> ()\nu = Mul (u0, "
                 "p32)\nrat = Cast <to = 11> (i1)\n"
                 "less = Less (u, rat)\nkeep = Not (less)\nxs = Constant <value_ints = [{2}]> "
                 "()\no1 = Reshape <allowzero = 1> (keep, xs)\n"
                 "w = Cast <to = {3}> (i0)\nra1 = Cast <to = {3}> (i1)\none32 = Constant "
                 "<value_float = 1.0> ()\none = CastLike (one32, ra1)\n"
                 "k1 = Sub (one, ra1)\nsc = Div (w, k1)\nzz = Sub (one, one)\ny = Where (o1, sc, "
                 "zz)\no0 = Cast <to = {4}> (y)\n",
                 quads, n, shape, acc, static_cast<int>(c.outputs[0]->dtype));
}

constexpr OpDef kOps[] = {
    {.name = "Dropout",
     .since = 22,
     .in = {1, 3},
     .out = {1, 2},
     .fp32_slots = 0b10,
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

std::span<const OpDef> RandomOps() { return kOps; }

}  // namespace ampc
