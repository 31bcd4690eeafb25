// SPDX-License-Identifier: Apache-2.0
// RnnTrain, GruTrain and LstmTrain in standard ONNX: one Scan per direction. The product x W of all
// steps stands before it; its body has the product with R and the cell, whose elementwise programs
// are those of the kernels (kernels/rnn.h).
#include "compiler/ops/rnn_text.h"

namespace ampc {
namespace {

class TrainBody {
 public:
  TrainBody(const BodyContext& c, RnnLayer layer)
      : c_(c), layer_(std::move(layer)), text_(c, c.inputs[0]->dtype) {
    const Dims &x = c.inputs[rnn_in::kX]->dims, &r = c.inputs[rnn_in::kR]->dims;
    n_ = {x[0], x[1], r[2], r[1]};
  }

  Result<std::string> Write() {
    text_.Line("x = Cast <to = {}> (i0)", static_cast<int>(text_.acc()));
    if (text_.Has(rnn_in::kLengths)) text_.Mask("mask", rnn_in::kLengths, n_.steps, n_.batch);
    for (int64_t d = 0; d < layer_.directions(); ++d) AMPC_TRY(Direction(d));
    const DType type = c_.inputs[0]->dtype;
    text_.Join("o0", "y", layer_.directions(), 1, type);
    text_.Join("o1", "h_last", layer_.directions(), 0, type);
    text_.Join("o2", "gates", layer_.directions(), 0, text_.acc());
    text_.Join("o3", "h_prev", layer_.directions(), 0, type);
    if (c_.outputs.size() > 4) text_.Join("o4", "state", layer_.directions(), 0, text_.acc());
    if (c_.outputs.size() > 5) text_.Join("o5", "c_last", layer_.directions(), 0, type);
    return text_.Take();
  }

 private:
  const RnnCell& cell(int64_t d) const { return layer_.cells[static_cast<size_t>(d)]; }
  bool lstm() const { return layer_.cells[0].kind == RnnKind::kLstm; }

  Status Direction(int64_t d) {
    const int64_t H = n_.hidden, G = n_.gates, B = n_.batch;
    const std::string a = fmt::format("a{}_", d), s = fmt::format("s{}_", d);
    text_.Entry(a + "w", rnn_in::kW, d);
    text_.Line("{0}wt = Transpose <perm = [1, 0]> ({0}w)\n{0}xw = MatMul (x, {0}wt)", a);
    text_.Entry(a + "r", rnn_in::kR, d);
    text_.Line("{0}rt = Transpose <perm = [1, 0]> ({0}r)", a);
    const bool gru = cell(d).kind == RnnKind::kGru;
    if (gru) {
      text_.Slice(a + "rp", a + "rt", 1, 0, 2 * H);
      text_.Slice(a + "rn", a + "rt", 1, 2 * H, 3 * H);
    }
    Bias(d, a);
    text_.EntryOrZeros(a + "h0", rnn_in::kH0, d, {B, H});
    if (lstm()) text_.EntryOrZeros(a + "c0", rnn_in::kC0, d, {B, H});
    if (text_.Has(rnn_in::kP)) {
      text_.Entry(a + "p", rnn_in::kP, d);
      text_.Parts(a + "p", a + "p", 3, 0);
    }
    text_.Zeros(a + "none", {B, H});
    const DType acc = text_.acc();
    std::vector<RnnScanned> states = {{s + "h", {B, H}, acc}}, in = {{s + "x", {B, G}, acc}};
    std::vector<RnnScanned> out = {
        {s + "y", {B, H}, acc}, {s + "gates", {B, G}, acc}, {s + "h_prev", {B, H}, acc}};
    std::vector<std::string> initial = {a + "h0"}, from = {a + "in"}, to = {a + "h_last"};
    if (lstm()) {
      states.push_back({s + "c", {B, H}, acc});
      initial.push_back(a + "c0");
      to.push_back(a + "c_last");
    }
    to.insert(to.end(), {a + "y", a + "gates", a + "h_prev"});
    if (lstm() || cell(d).reset_last()) {
      out.push_back({s + "state", {B, H}, acc});
      to.push_back(a + "state");
    }
    if (text_.Has(rnn_in::kLengths)) {
      in.push_back({s + "m", {B, 1}, DType::kBool});
      from.push_back("mask");
    }
    AMPC_ASSIGN(const std::string inner, Step(d, a, s));
    text_.Scan(fmt::format("steps{}", d), initial, states, from, in, to, out,
               layer_.reverse[static_cast<size_t>(d)], inner);
    return {};
  }

  /// in = x W + Wb + Rb; bn: what the reset GRU's last gate adds inside the reset.
  void Bias(int64_t d, const std::string& a) {
    const int64_t H = n_.hidden, G = n_.gates;
    if (!text_.Has(rnn_in::kB)) {
      text_.Line("{0}in = Identity ({0}xw)", a);
      if (cell(d).reset_last()) text_.Zeros(a + "bn", {H});
      return;
    }
    text_.Entry(a + "b", rnn_in::kB, d);
    text_.Slice(a + "wb", a + "b", 0, 0, G);
    text_.Slice(a + "rb", a + "b", 0, G, 2 * G);
    if (!cell(d).reset_last()) {
      text_.Line("{0}bias = Add ({0}wb, {0}rb)\n{0}in = Add ({0}xw, {0}bias)", a);
      return;
    }
    text_.Slice(a + "rbp", a + "rb", 0, 0, 2 * H);
    text_.Slice(a + "bn", a + "rb", 0, 2 * H, 3 * H);
    text_.Zeros(a + "nob", {H});
    text_.Line(
        "{0}rbx = Concat <axis = 0> ({0}rbp, {0}nob)\n{0}bias = Add ({0}wb, {0}rbx)\n"
        "{0}in = Add ({0}xw, {0}bias)",
        a);
  }

  Result<std::string> Step(int64_t d, const std::string& a, const std::string& s) {
    const RnnCell& k = cell(d);
    const RnnTexts programs = RnnForward(k);
    RnnText t(c_, c_.inputs[0]->dtype);
    t.Line("{0}h_prev = Identity ({0}h)", s);
    const std::string h = s + "h", new_h = s + "nh", new_c = s + "nc";
    if (k.kind != RnnKind::kGru) {
      t.Line("{0}hr = MatMul ({0}h, {1}rt)\n{0}gates = Add ({0}x, {0}hr)", s, a);
      t.Parts(s + "g", s + "gates", k.gates(), 1);
    } else {
      t.Parts(s + "u", s + "x", 3, 1);
      t.Line("{0}hr = MatMul ({0}h, {1}rp)", s, a);
      t.Parts(s + "v", s + "hr", 2, 1);
      t.Line("{0}g0 = Add ({0}u0, {0}v0)\n{0}g1 = Add ({0}u1, {0}v1)", s);
    }
    if (k.reset_last()) {
      t.Line(
          "{0}hn = MatMul ({0}h, {1}rn)\n{0}state = Add ({0}hn, {1}bn)\n{0}g2 = Identity ({0}u2)",
          s, a);
      AMPC_TRY(
          t.Program(programs.first, s, {s + "g0", s + "g1", s + "g2", s + "state", h}, {new_h}));
    } else if (k.reset_first()) {
      AMPC_TRY(t.Program(programs.first, s + "q", {s + "g1", h}, {s + "rh"}));
      t.Line("{0}rhr = MatMul ({0}rh, {1}rn)\n{0}g2 = Add ({0}u2, {0}rhr)", s, a);
      AMPC_TRY(t.Program(programs.second, s, {s + "g0", s + "g2", h}, {new_h}));
    } else if (k.kind == RnnKind::kRnn) {
      AMPC_TRY(t.Program(programs.first, s, {s + "g0"}, {new_h}));
    } else {
      std::vector<std::string> inputs = {s + "g0", s + "g1", s + "g2", s + "g3", s + "c"};
      for (int i = 0; k.peepholes && i < 3; ++i) inputs.push_back(fmt::format("{}p{}", a, i));
      AMPC_TRY(t.Program(programs.first, s, inputs, {new_c, new_h}));
    }
    if (k.kind == RnnKind::kGru) t.Line("{0}gates = Concat <axis = 1> ({0}g0, {0}g1, {0}g2)", s);
    const bool mask = t.Has(rnn_in::kLengths);
    const auto keep = [&](const std::string& to, const std::string& now, const std::string& old) {
      if (mask) t.Line("{} = Where ({}m, {}, {})", to, s, now, old);
      if (!mask) t.Line("{} = Identity ({})", to, now);
    };
    keep(s + "h_next", new_h, h);
    keep(s + "y", new_h, a + "none");
    if (k.kind == RnnKind::kLstm) {
      keep(s + "c_next", new_c, s + "c");
      t.Line("{0}state = Identity ({0}c_next)", s);
    }
    return t.Take();
  }

  const BodyContext& c_;
  RnnLayer layer_;
  RnnText text_;
  RnnSizes n_;
};

}  // namespace

Result<std::string> BodyRnnTrain(const BodyContext& c) {
  const bool peepholes = c.inputs.size() > rnn_in::kP && c.inputs[rnn_in::kP] != nullptr;
  AMPC_ASSIGN(RnnLayer layer,
              ReadRnnLayer(RnnKindOf(c.op), c.attrs, peepholes, c.inputs[0]->dtype));
  return TrainBody(c, std::move(layer)).Write();
}

}  // namespace ampc
