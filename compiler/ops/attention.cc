// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention: Attention, the own op to which the importer brings every form of
// ONNX's op, and AttentionGrad.
//
//   q [B,H,T,D], k [B,G,S,D], v [B,G,S,E], [mask] -> y [B,H,T,E], lse [B,H,T]
//
// Head h reads the keys and values of head h / (H / G). Nothing of size T * S is kept: in training
// the op gives the log-sum-exp of each query's scores as well, from which the gradient computes the
// scores once more. The mask stays fp32 beside low data: its numbers (-1e9, the least float) are
// not float16's, and a sum of two of them would become an infinity.
#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/op_def.h"
#include "kernels/attention.h"

namespace ampc {
namespace {

using ir::ValueId;

struct Sizes {
  int64_t b, h, g, t, s, d, e;  // batch, heads, heads of keys, queries, keys, their length, values'

  Sizes(const ir::TensorType& q, const ir::TensorType& k, const ir::TensorType& v)
      : b(q.dims[0]),
        h(q.dims[1]),
        g(k.dims[1]),
        t(q.dims[2]),
        s(k.dims[2]),
        d(q.dims[3]),
        e(v.dims[3]) {}
  int64_t repeat() const { return g == 0 ? 1 : h / g; }
};

bool BroadcastsTo(const Dims& x, const Dims& y) {
  if (x.size() > y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t to = y[y.size() - x.size() + i];
    if (x[i] != 1 && x[i] != to) return false;
  }
  return true;
}

Status CheckOperands(const InferContext& c, size_t mask) {
  const ir::TensorType &q = c.in(0), &k = c.in(1), &v = c.in(2);
  for (const ir::TensorType* x : {&q, &k, &v}) {
    if (x->dims.size() != 4 || !IsFloat(x->dtype) || x->dtype != q.dtype)
      return BadInput("E0107",
                      "queries {}, keys {}, values {}: three floats of one type and rank 4 "
                      "are expected",
                      ToString(q), ToString(k), ToString(v));
  }
  const Sizes n(q, k, v);
  if (k.dims[0] != n.b || v.dims[0] != n.b || v.dims[1] != n.g || v.dims[2] != n.s ||
      k.dims[3] != n.d)
    return BadInput("E0107", "queries {}, keys {} and values {} do not belong together",
                    ToString(q), ToString(k), ToString(v));
  if (n.g == 0 ? n.h != 0 : n.h % n.g != 0)
    return BadInput("E0107", "{} heads of queries do not share {} heads of keys equally", n.h, n.g);
  if (!c.has(mask)) return {};
  const ir::TensorType& m = c.in(mask);
  const Dims scores = {n.b, n.h, n.t, n.s};
  if (!BroadcastsTo(m.dims, scores))
    return BadInput("E0107", "the mask {} does not broadcast to {}", ToString(m), ToString(scores));
  if (m.dtype != DType::kBool && !IsFloat(m.dtype))
    return BadInput("E0107", "the mask is {}, expected bool or a float", Name(m.dtype));
  return {};
}

// ---- Attention

Status InferAttention(InferContext& c) {
  AMPC_TRY(CheckOperands(c, 3));
  const Sizes n(c.in(0), c.in(1), c.in(2));
  c.outputs = {{c.in(0).dtype, {n.b, n.h, n.t, n.e}}, {AccOf(c.in(0).dtype), {n.b, n.h, n.t}}};
  return {};
}

Attrs Settings(const Attrs& attrs) {
  return {{"scale", attrs.Float("scale", 1)},
          {"softcap", attrs.Float("softcap", 0)},
          {"causal", attrs.Int("causal")},
          {"offset", attrs.Int("offset")}};
}

Operand In(const LowerContext& c, size_t i) { return i < c.num_inputs() ? c.in(i) : ir::kNone; }
Operand Out(const LowerContext& c, size_t i) { return i < c.num_outputs() ? c.out(i) : ir::kNone; }

Status LowerAttention(LowerContext& c) {
  c.Call("attention", Settings(c.attrs()), {c.in(0), c.in(1), c.in(2), In(c, 3)},
         {Out(c, 0), Out(c, 1)});
  return {};
}

Status TrainAttention(ir::Graph& graph, ir::NodeId id, ir::Builder& b) {
  const ir::Node node = graph.node(id);
  if (node.outputs.size() > 1 && node.outputs[1] != ir::kNone) return {};
  const std::vector<ValueId> outs = b.Multi(kOwnDomain, "Attention", node.inputs, node.attrs, 2);
  if (b.failed()) return b.TakeStatus();
  TakePlace(graph, id, outs[0]);
  return {};
}

Status GradAttention(GradContext& g) {
  if (g.dy(0) == ir::kNone) return {};
  const bool mask = g.x(3) != ir::kNone, mask_grad = mask && g.Needs(3);
  std::vector<ValueId> inputs = {g.x(0), g.x(1), g.x(2), g.y(0), g.y(1), g.dy(0)};
  if (mask) inputs.push_back(g.x(3));
  Attrs attrs = Settings(g.attrs());
  attrs.Set("mask_grad", int64_t{mask_grad});
  const std::vector<ValueId> grads =
      g.b.Multi(kOwnDomain, "AttentionGrad", inputs, std::move(attrs), mask_grad ? 4 : 3);
  if (g.b.failed()) return {};
  for (size_t i = 0; i < grads.size(); ++i) {
    if (g.Needs(i)) g.Set(i, grads[i]);
  }
  return {};
}

// ---- AttentionGrad: q, k, v, y, lse, dy, [mask] -> dq, dk, dv, [gradient of the masked scores]

Status InferAttentionGrad(InferContext& c) {
  AMPC_TRY(CheckOperands(c, 6));
  const Sizes n(c.in(0), c.in(1), c.in(2));
  const Dims y = {n.b, n.h, n.t, n.e}, lse = {n.b, n.h, n.t};
  if (c.in(3).dims != y || c.in(5).dims != y || c.in(4).dims != lse)
    return BadInput("E0107",
                    "result {}, log-sum-exp {} and gradient {}: dims {}, {}, {} are expected",
                    ToString(c.in(3)), ToString(c.in(4)), ToString(c.in(5)), ToString(y),
                    ToString(lse), ToString(y));
  c.outputs = {c.in(0), c.in(1), c.in(2)};
  if (c.attrs.Int("mask_grad") != 0)
    c.outputs.push_back({AccOf(c.in(0).dtype), {n.b, n.h, n.t, n.s}});
  return {};
}

Status LowerAttentionGrad(LowerContext& c) {
  c.Call("attention_bwd", Settings(c.attrs()),
         {c.in(0), c.in(1), c.in(2), c.in(3), c.in(4), c.in(5), In(c, 6)},
         {Out(c, 0), Out(c, 1), Out(c, 2), Out(c, 3)});
  return {};
}

// ---- bodies

class Body {
 public:
  explicit Body(const BodyContext& c, size_t mask)
      : n_(*c.inputs[0], *c.inputs[1], *c.inputs[2]),
        acc_(static_cast<int>(AccOf(c.inputs[0]->dtype))),
        settings_(Settings(c.attrs)),
        mask_(c.inputs.size() > mask ? c.inputs[mask] : nullptr),
        mask_slot_(mask) {}

  bool masked() const { return mask_ != nullptr || causal(); }

  template <typename... Args>
  void Add(fmt::format_string<Args...> f, Args&&... args) {
    text_ += fmt::format(f, std::forward<Args>(args)...) + "\n";
  }
  void Read(std::string_view name, size_t input) {
    Add("{} = Cast <to = {}> (i{})", name, acc_, input);
  }
  void Write(int output, std::string_view name, const ir::TensorType& type) {
    Add("o{} = Cast <to = {}> ({})", output, static_cast<int>(type.dtype), name);
  }
  void Transpose(std::string_view to, std::string_view from) {
    Add("{} = Transpose <perm = [0, 1, 3, 2]> ({})", to, from);
  }

  // q; k and v with each head repeated for its queries.
  void ReadOperands() {
    text_ += ScalarText("zero", 0, "q") + ScalarText("one", 1, "q") + ScalarText("minus", -1, "q");
    Add("inf = Div (minus, zero)");
    Repeat("k", n_.d);
    Repeat("v", n_.e);
  }
  void ReadAll() {
    Read("q", 0);
    Read("k_g", 1);
    Read("v_g", 2);
    ReadOperands();
  }

  // s: scores behind softcap and mask, -inf where a key does not count; `ok` (when masked): which
  // do.
  void Scores() {
    Transpose("kt", "k");
    text_ += "s_qk = MatMul (q, kt)\n" + ScalarText("scale", settings_.Float("scale"), "q");
    Add("s_scaled = Mul (s_qk, scale)");
    std::string last = "s_scaled";
    if (softcap() != 0) {
      text_ += ScalarText("cap", softcap(), "q");
      Add("s_part = Div (s_scaled, cap)\nth = Tanh (s_part)\ns_cap = Mul (th, cap)");
      last = "s_cap";
    }
    std::string ok;
    if (mask_ != nullptr && mask_->dtype == DType::kBool) {
      Add("ok_m = Identity (i{})", mask_slot_);
      ok = "ok_m";
    } else if (mask_ != nullptr) {
      Read("m", mask_slot_);
      Add("s_m = Add ({}, m)\noff = IsInf <detect_positive = 0> (m)\nok_m = Not (off)", last);
      last = "s_m";
      ok = "ok_m";
    }
    if (causal()) {
      Line("t0", 0, n_.t, "[-1, 1]");
      Line("s0", 0, n_.s, "[1, -1]");
      Add("at = Constant <value_int = {}> ()\nt1 = Add (t0, at)", settings_.Int("offset"));
      Add("ok_c = LessOrEqual (s0, t1)");
      if (!ok.empty()) Add("ok_both = And (ok_m, ok_c)");
      ok = ok.empty() ? "ok_c" : "ok_both";
    }
    if (ok.empty()) return Add("s = Identity ({})", last);
    Add("ok = Identity ({})\ns = Where (ok, {}, inf)", ok, last);
  }

  // dq, dk, dv of one dtype: the repeated heads of keys and values summed.
  void SumHeads(std::string_view to, std::string_view from, int64_t length) {
    if (n_.repeat() == 1) return Add("{} = Identity ({})", to, from);
    Add("{0}_s = Constant <value_ints = [{2}, {3}, {4}, {5}, {6}]> ()\n"
        "{0}_r = Reshape <allowzero = 1> ({1}, {0}_s)\n{0}_a = Constant <value_ints = [2]> ()\n"
        "{0} = ReduceSum <keepdims = 0> ({0}_r, {0}_a)",
        to, from, n_.b, n_.g, n_.repeat(), n_.s, length);
  }

  double softcap() const { return settings_.Float("softcap"); }
  const Sizes& sizes() const { return n_; }
  std::string Take() { return std::move(text_); }

 private:
  bool causal() const { return settings_.Int("causal") != 0; }

  void Repeat(std::string_view name, int64_t length) {
    if (n_.repeat() == 1) return Add("{0} = Identity ({0}_g)", name);
    Add("{0}_a = Constant <value_ints = [{1}, {2}, 1, {4}, {5}]> ()\n"
        "{0}_b = Constant <value_ints = [{1}, {2}, {3}, {4}, {5}]> ()\n"
        "{0}_c = Constant <value_ints = [{1}, {6}, {4}, {5}]> ()\n"
        "{0}_u = Reshape <allowzero = 1> ({0}_g, {0}_a)\n{0}_x = Expand ({0}_u, {0}_b)\n"
        "{0} = Reshape <allowzero = 1> ({0}_x, {0}_c)",
        name, n_.b, n_.g, n_.repeat(), n_.s, length, n_.h);
  }
  // begin, begin + 1, … along one axis of two.
  void Line(std::string_view name, int64_t begin, int64_t count, std::string_view dims) {
    Add("{0}_b = Constant <value_int = {1}> ()\n{0}_e = Constant <value_int = {2}> ()\n"
        "{0}_i = Constant <value_int = 1> ()\n{0}_l = Range ({0}_b, {0}_e, {0}_i)\n"
        "{0}_d = Constant <value_ints = {3}> ()\n{0} = Reshape ({0}_l, {0}_d)",
        name, begin, begin + count, dims);
  }

  Sizes n_;
  int acc_;
  Attrs settings_;
  const ir::TensorType* mask_;
  size_t mask_slot_;
  std::string text_;
};

// A query for which no key counts has the maximum -inf: it takes 0 for it and gives 0.
Result<std::string> BodyAttention(const BodyContext& c) {
  Body b(c, 3);
  b.ReadAll();
  b.Scores();
  b.Add("axis = Constant <value_ints = [-1]> ()\ntop = ReduceMax <keepdims = 1> (s, axis)");
  b.Add("none = IsInf <detect_positive = 0> (top)\ntop0 = Where (none, zero, top)");
  b.Add("sd = Sub (s, top0)\nex = Exp (sd)\nsum = ReduceSum <keepdims = 1> (ex, axis)");
  b.Add("sum1 = Where (none, one, sum)\npv = MatMul (ex, v)\ny = Div (pv, sum1)");
  b.Write(0, "y", *c.outputs[0]);
  if (c.outputs.size() > 1) {
    b.Add("ls = Log (sum1)\nlt = Add (top0, ls)\nlw = Where (none, inf, lt)");
    b.Add("lse = Squeeze (lw, axis)");
    b.Write(1, "lse", *c.outputs[1]);
  }
  return b.Take();
}

Result<std::string> BodyAttentionGrad(const BodyContext& c) {
  Body b(c, 6);
  b.ReadAll();
  b.Read("y", 3);
  b.Read("lse", 4);
  b.Read("dy", 5);
  b.Scores();
  b.Add("axis = Constant <value_ints = [-1]> ()\nle = Unsqueeze (lse, axis)");
  b.Add("none = IsInf <detect_positive = 0> (le)\nl0 = Where (none, zero, le)");
  b.Add("sd = Sub (s, l0)\nex = Exp (sd)\ndyy = Mul (dy, y)");
  // Far from 0 a log-sum-exp no longer tells the sum (kernels.def).
  b.Add("far32 = Constant <value_float = {:.1f}> ()\nfar = CastLike (far32, l0)", kFarLse);
  b.Add("size = Abs (l0)\nis_far = GreaterOrEqual (size, far)");
  b.Add("total = ReduceSum <keepdims = 1> (ex, axis)\nshares = Div (ex, total)");
  b.Add("p = Where (is_far, shares, ex)");
  b.Add("dot = ReduceSum <keepdims = 1> (dyy, axis)");
  b.Transpose("vt", "v");
  b.Add("dp = MatMul (dy, vt)\ndpd = Sub (dp, dot)\nds_all = Mul (p, dpd)");
  if (b.masked()) {
    b.Add("ds = Where (ok, ds_all, zero)");
  } else {
    b.Add("ds = Identity (ds_all)");
  }
  if (b.softcap() != 0) {
    b.Add("th2 = Mul (th, th)\nslope = Sub (one, th2)\ndc = Mul (ds, slope)");
  } else {
    b.Add("dc = Identity (ds)");
  }
  b.Add("dqk = Mul (dc, scale)\ndq = MatMul (dqk, k)");
  b.Transpose("dqkt", "dqk");
  b.Transpose("pt", "p");
  b.Add("dk_h = MatMul (dqkt, q)\ndv_h = MatMul (pt, dy)");
  b.SumHeads("dk", "dk_h", b.sizes().d);
  b.SumHeads("dv", "dv_h", b.sizes().e);
  b.Write(0, "dq", *c.outputs[0]);
  b.Write(1, "dk", *c.outputs[1]);
  b.Write(2, "dv", *c.outputs[2]);
  if (c.outputs.size() > 3) b.Write(3, "ds", *c.outputs[3]);
  return b.Take();
}

// clang-format off
constexpr OpDef kOps[] = {
    {.domain = kOwnDomain, .name = "Attention", .in = {3, 4}, .out = {1, 2}, .cast = kLowClass, .fp32_slots = 0b1000, .fp32_outputs = 0b10,
     .infer = InferAttention, .grad = GradAttention, .training = TrainAttention, .lower = LowerAttention, .body = BodyAttention},
    {.domain = kOwnDomain, .name = "AttentionGrad", .in = {6, 7}, .out = {3, 4}, .cast = kLowClass, .fp32_slots = 0b1010000, .fp32_outputs = 0b1000,
     .infer = InferAttentionGrad, .lower = LowerAttentionGrad, .body = BodyAttentionGrad},
};
// clang-format on

}  // namespace

std::span<const OpDef> AttentionOps() { return kOps; }

}  // namespace ampc
