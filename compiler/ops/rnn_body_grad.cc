// SPDX-License-Identifier: Apache-2.0
// RnnGrad, GruGrad and LstmGrad in standard ONNX: one Scan per direction, against the order of its
// steps. Gradients of the peepholes are sums behind it.
#include "compiler/ops/rnn_text.h"

namespace ampc {
namespace {

class GradBody {
 public:
  GradBody(const BodyContext& c, RnnLayer layer)
      : c_(c), layer_(std::move(layer)), text_(c, c.inputs[rnn_grad_in::kHPrev]->dtype) {
    const Dims &h = c.inputs[rnn_grad_in::kHPrev]->dims, &g = c.inputs[rnn_grad_in::kGates]->dims;
    n_ = {h[1], h[2], h[3], g[3]};
  }

  Result<std::string> Write() {
    const int64_t directions = layer_.directions();
    if (text_.Has(rnn_grad_in::kLengths))
      text_.Mask("mask", rnn_grad_in::kLengths, n_.steps, n_.batch);
    for (int64_t d = 0; d < directions; ++d) AMPC_TRY(Direction(d));
    const DType type = c_.inputs[rnn_grad_in::kHPrev]->dtype;
    text_.Join("o0", "dgates", directions, 0, type);
    text_.Join("o1", "dh0", directions, 0, type);
    if (gru()) text_.Join("o2", "extra", directions, 0, type);
    if (lstm()) text_.Join("o2", "dc0", directions, 0, type);
    if (lstm() && c_.outputs.size() > 3) text_.Join("o3", "dp", directions, 0, type);
    return text_.Take();
  }

 private:
  const RnnCell& cell(int64_t d) const { return layer_.cells[static_cast<size_t>(d)]; }
  bool lstm() const { return layer_.cells[0].kind == RnnKind::kLstm; }
  bool gru() const { return layer_.cells[0].kind == RnnKind::kGru; }

  Status Direction(int64_t d) {
    const int64_t H = n_.hidden, G = n_.gates, B = n_.batch;
    const std::string a = fmt::format("a{}_", d), s = fmt::format("s{}_", d);
    const DType acc = text_.acc();
    std::vector<RnnScanned> states = {{s + "dh", {B, H}, acc}};
    std::vector<std::string> initial = {a + "dh"}, to = {a + "dh0"}, from;
    std::vector<RnnScanned> in, out = {{s + "dgates", {B, G}, acc}};
    const auto scan = [&](const std::string& name, int64_t width) {
      in.push_back({s + name, {B, width}, acc});
      from.push_back(a + name);
    };
    text_.Entry(a + "r", rnn_grad_in::kR, d);
    if (cell(d).reset_first()) {
      text_.Slice(a + "rp", a + "r", 0, 0, 2 * H);
      text_.Slice(a + "rn", a + "r", 0, 2 * H, 3 * H);
    }
    text_.Entry(a + "gates", rnn_grad_in::kGates, d);
    scan("gates", G);
    text_.EntryOrZeros(a + "dh", rnn_grad_in::kDyh, d, {B, H});
    if (text_.Has(rnn_grad_in::kDy)) {
      text_.Entry(a + "dy", rnn_grad_in::kDy, d, 1);
      scan("dy", H);
    }
    if (gru()) {
      text_.Entry(a + "h", rnn_grad_in::kHPrev, d);
      scan("h", H);
    }
    if (text_.Has(rnn_grad_in::kState)) {
      text_.Entry(a + "state", rnn_grad_in::kState, d);
      scan("state", H);
    }
    if (lstm()) {
      CellsBefore(d, a);
      scan("before", H);
      text_.EntryOrZeros(a + "dc", rnn_grad_in::kDyc, d, {B, H});
      states.push_back({s + "dc", {B, H}, acc});
      initial.push_back(a + "dc");
      to.push_back(a + "dc0");
    }
    if (text_.Has(rnn_grad_in::kP)) {
      text_.Entry(a + "p", rnn_grad_in::kP, d);
      text_.Parts(a + "p", a + "p", 3, 0);
    }
    to.push_back(a + "dgates");
    if (gru()) {
      out.push_back({s + "extra", {B, cell(d).reset_last() ? G : H}, acc});
      to.push_back(a + "extra");
    }
    text_.Zeros(a + "none", {B, 1});
    if (text_.Has(rnn_grad_in::kLengths)) {
      in.push_back({s + "m", {B, 1}, DType::kBool});
      from.push_back("mask");
    }
    AMPC_ASSIGN(const std::string inner, Step(d, a, s));
    text_.Scan(fmt::format("steps{}", d), initial, states, from, in, to, out,
               !layer_.reverse[static_cast<size_t>(d)], inner);
    if (lstm() && c_.outputs.size() > 3) Peepholes(a);
    return {};
  }

  /// c of the step before every step.
  void CellsBefore(int64_t d, const std::string& a) {
    const int64_t steps = n_.steps;
    const bool reverse = layer_.reverse[static_cast<size_t>(d)];
    text_.EntryOrZeros(a + "c0", rnn_grad_in::kC0, d, {n_.batch, n_.hidden});
    text_.Line("{0}ca = Constant <value_ints = [0]> ()\n{0}cf = Unsqueeze ({0}c0, {0}ca)", a);
    text_.Slice(a + "cr", a + "state", 0, reverse ? 1 : 0, reverse ? steps : steps - 1);
    if (reverse) {
      text_.Line("{0}before = Concat <axis = 0> ({0}cr, {0}cf)", a);
    } else {
      text_.Line("{0}before = Concat <axis = 0> ({0}cf, {0}cr)", a);
    }
  }

  void Peepholes(const std::string& a) {
    const Dims dims = {n_.steps, n_.batch, n_.hidden};
    const std::vector<int64_t> axes = {0, 1};
    text_.Parts(a + "e", a + "dgates", 4, 2);
    text_.Line(
        "{0}k0 = Mul ({0}e0, {0}before)\n{0}k1 = Mul ({0}e1, {0}state)\n"
        "{0}k2 = Mul ({0}e2, {0}before)",
        a);
    for (int i = 0; i < 3; ++i) {
      text_.Line("{}", SumText(fmt::format("{}l{}", a, i), fmt::format("{}k{}", a, i), axes, dims,
                               text_.acc()));
    }
    text_.Line(
        "{0}dp3 = Concat <axis = 2> ({0}l0, {0}l1, {0}l2)\n"
        "{0}dps = Constant <value_ints = [{1}]> ()\n{0}dp = Reshape ({0}dp3, {0}dps)",
        a, 3 * n_.hidden);
  }

  Result<std::string> Step(int64_t d, const std::string& a, const std::string& s) {
    const RnnCell& k = cell(d);
    const RnnTexts programs = RnnBackward(k);
    RnnText t(c_, c_.inputs[rnn_grad_in::kHPrev]->dtype);
    t.Parts(s + "g", s + "gates", k.gates(), 1);
    if (t.Has(rnn_grad_in::kDy)) {
      t.Line("{0}t = Add ({0}dh, {0}dy)", s);
    } else {
      t.Line("{0}t = Identity ({0}dh)", s);
    }
    const std::string dh = s + "t", h = s + "h";
    std::string extra;
    if (k.reset_first()) {
      AMPC_TRY(t.Program(programs.first, s + "q", {s + "g0", s + "g2", h, dh},
                         {s + "d0", s + "d2", s + "direct1"}));
      t.Line("{0}drh = MatMul ({0}d2, {1}rn)", s, a);
      AMPC_TRY(t.Program(programs.second, s, {s + "g1", h, s + "drh", s + "direct1"},
                         {s + "d1", s + "direct", s + "rh"}));
      t.Line(
          "{0}dzr = Concat <axis = 1> ({0}d0, {0}d1)\n{0}back = MatMul ({0}dzr, {1}rp)\n"
          "{0}sum = Add ({0}direct, {0}back)",
          s, a);
      extra = s + "rh";
    } else if (k.reset_last()) {
      AMPC_TRY(t.Program(programs.first, s, {s + "g0", s + "g1", s + "g2", s + "state", h, dh},
                         {s + "d0", s + "d1", s + "d2", s + "dn", s + "direct"}));
      t.Line(
          "{0}dr = Concat <axis = 1> ({0}d0, {0}d1, {0}dn)\n{0}back = MatMul ({0}dr, {1}r)\n"
          "{0}sum = Add ({0}direct, {0}back)",
          s, a);
      extra = s + "dr";
    } else if (k.kind == RnnKind::kRnn) {
      AMPC_TRY(t.Program(programs.first, s, {s + "g0", dh}, {s + "d0"}));
    } else {
      std::vector<std::string> inputs = {s + "g0",     s + "g1",    s + "g2", s + "g3",
                                         s + "before", s + "state", dh,       s + "dc"};
      for (int i = 0; k.peepholes && i < 3; ++i) inputs.push_back(fmt::format("{}p{}", a, i));
      AMPC_TRY(t.Program(programs.first, s, inputs,
                         {s + "d0", s + "d1", s + "d2", s + "d3", s + "ndc"}));
    }
    std::string all = s + "d0";
    for (int64_t i = 1; i < k.gates(); ++i) all += fmt::format(", {}d{}", s, i);
    t.Line("{}d = Concat <axis = 1> ({})", s, all);
    if (k.kind != RnnKind::kGru) t.Line("{0}sum = MatMul ({0}d, {1}r)", s, a);
    const bool mask = t.Has(rnn_grad_in::kLengths);
    const auto keep = [&](const std::string& to, const std::string& now, const std::string& old) {
      if (mask) t.Line("{} = Where ({}m, {}, {})", to, s, now, old);
      if (!mask) t.Line("{} = Identity ({})", to, now);
    };
    keep(s + "dgates", s + "d", a + "none");
    keep(s + "dh_next", s + "sum", s + "dh");
    if (k.kind == RnnKind::kLstm) keep(s + "dc_next", s + "ndc", s + "dc");
    if (!extra.empty()) keep(s + "extra", extra, a + "none");
    return t.Take();
  }

  const BodyContext& c_;
  RnnLayer layer_;
  RnnText text_;
  RnnSizes n_;
};

}  // namespace

Result<std::string> BodyRnnGrad(const BodyContext& c) {
  using namespace rnn_grad_in;
  const bool peepholes = c.inputs.size() > kP && c.inputs[kP] != nullptr;
  AMPC_ASSIGN(RnnLayer layer,
              ReadRnnLayer(RnnKindOf(c.op), c.attrs, peepholes, c.inputs[kHPrev]->dtype));
  return GradBody(c, std::move(layer)).Write();
}

}  // namespace ampc
