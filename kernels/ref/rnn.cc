// SPDX-License-Identifier: Apache-2.0
// rnn and rnn_bwd: every row of the batch by itself, step after step, in double.

#include "kernels/ref/rnn.h"

#include <algorithm>

#include "kernels/expr_eval.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

/// Operands of the widest program (LSTM backward with peepholes).
constexpr size_t kMaxOperands = 11;

/// The call with its programs; T is double throughout.
struct RnnPlan {
  RnnCall call;
  std::vector<RnnPrograms> programs;  // of every direction
  std::vector<TensorDesc> in, out;
  int64_t scratch = 0;  // of the evaluator

  const ExprProgram& First(int64_t d) const { return programs[static_cast<size_t>(d)].first; }
  const ExprProgram& Second(int64_t d) const { return programs[static_cast<size_t>(d)].second; }
  MutableTensor Out(const Buffers& run, size_t i) const {
    return {i < out.size() ? out[i].dtype : DType::kNone, run.out(i)};
  }
  /// Operand i in double, or null.
  const double* In(const Buffers& run, size_t i, Scratch& s) const {
    if (i >= in.size() || !in[i].present()) return nullptr;
    return s.TakeWidened<double>(in[i], run.in(i));
  }
};

/// Runs a program over n elements.
void Eval(const ExprProgram& program, std::initializer_list<const double*> inputs,
          std::initializer_list<double*> outputs, int64_t n, double* scratch) {
  const double* in[kMaxOperands];
  double* out[kMaxOperands];
  for (int64_t begin = 0; begin < n; begin += kExprBlock) {
    const auto shift = [begin](auto* p) { return p == nullptr ? p : p + begin; };
    std::ranges::transform(inputs, in, shift);
    std::ranges::transform(outputs, out, shift);
    EvalBlock<double>(program, in, out, std::min(kExprBlock, n - begin), scratch);
  }
}

void Load(const double* from, int64_t n, double* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = from == nullptr ? 0 : from[i];
}
void Save(const MutableTensor& to, int64_t at, const double* from, int64_t n) {
  for (int64_t i = 0; to && i < n; ++i) to.set(at + i, from == nullptr ? 0 : from[i]);
}

/// y[j] += sum of m[j][k] x[k], rows [first, last) of m.
void AddProduct(const double* m, const double* x, int64_t first, int64_t last, int64_t columns,
                double* y) {
  for (int64_t j = first; j < last; ++j) {
    double sum = 0;
    for (int64_t k = 0; k < columns; ++k) sum += m[j * columns + k] * x[k];
    y[j] += sum;
  }
}

/// y[k] += sum of m[j][k] x[j], rows [first, last) of m.
void AddTransposed(const double* m, const double* x, int64_t first, int64_t last, int64_t columns,
                   double* y) {
  for (int64_t j = first; j < last; ++j) {
    for (int64_t k = 0; k < columns; ++k) y[k] += m[j * columns + k] * x[j];
  }
}

// ---- forward

struct Forward {
  Forward(const RnnPlan& p, const Buffers& run) : Forward(p, run, Scratch(run.workspace)) {}
  static int64_t Bytes(const RnnPlan& p) {
    const RunContext context;
    Forward size(p, Buffers{{}, {}, nullptr, context}, Scratch(nullptr));
    return size.bytes;
  }
  void Run() {
    for (int64_t d = 0; d < c.directions(); ++d) {
      for (int64_t b = 0; b < c.batch; ++b) RunRow(d, b);
    }
  }

  Forward(const RnnPlan& p, const Buffers& run, Scratch s)
      : plan(p),
        c(p.call),
        x(p.In(run, 0, s)),
        w(p.In(run, 1, s)),
        r(p.In(run, 2, s)),
        bias(p.In(run, 3, s)),
        h0(p.In(run, 5, s)),
        c0(p.In(run, 6, s)),
        peep(p.In(run, 7, s)),
        lengths(static_cast<const int32_t*>(run.in(4))),
        y(p.Out(run, 0)),
        y_h(p.Out(run, 1)),
        y_c(p.Out(run, 2)),
        gates(p.Out(run, 3)),
        state(p.Out(run, 4)),
        h_prev(p.Out(run, 5)),
        pre(s.Take<double>(c.gates)),
        h(s.Take<double>(c.hidden)),
        cs(s.Take<double>(c.hidden)),
        other(s.Take<double>(c.hidden)),
        scratch(s.Take<double>(p.scratch)),
        bytes(s.bytes()) {}

  void RunRow(int64_t d, int64_t b) {
    const int64_t H = c.hidden, length = RnnLength(lengths, b, c.steps);
    const int64_t row = (d * c.batch + b) * H;
    Load(h0 == nullptr ? nullptr : h0 + row, H, h);
    Load(c0 == nullptr ? nullptr : c0 + row, H, cs);
    for (int64_t i = 0; i < c.steps; ++i) {
      const int64_t t = c.Step(d, i), at = (d * c.steps + t) * c.batch + b;
      const int64_t y_at = ((t * c.directions() + d) * c.batch + b) * H;
      Save(h_prev, at * H, h, H);
      Products(d, t, b);
      Save(gates, at * c.gates, pre, c.gates);
      if (c.cell(d).reset_last()) Save(state, at * H, other, H);
      if (t < length) Cell(d);
      if (c.cell(d).kind == RnnKind::kLstm) Save(state, at * H, cs, H);
      Save(y, y_at, t < length ? h : nullptr, H);
    }
    Save(y_h, row, h, H);
    Save(y_c, row, cs, H);
  }

  /// pre, and in `other` the reset GRU's h' R_h + Rb_h or r h'.
  void Products(int64_t d, int64_t t, int64_t b) {
    const int64_t H = c.hidden, n = c.gates;
    const RnnCell& cell = c.cell(d);
    const double* wb = bias == nullptr ? nullptr : bias + d * 2 * n;
    const double* rb = wb == nullptr ? nullptr : wb + n;
    const double *wd = w + d * n * c.input, *rd = r + d * n * H;
    const int64_t plain = cell.kind == RnnKind::kGru ? 2 * H : n;  // gates that read h' at once
    for (int64_t j = 0; j < n; ++j) {
      const bool both = j < plain || cell.reset_first();
      pre[j] = wb == nullptr ? 0 : both ? wb[j] + rb[j] : wb[j];
    }
    AddProduct(wd, x + (t * c.batch + b) * c.input, 0, n, c.input, pre);
    AddProduct(rd, h, 0, plain, H, pre);
    if (cell.reset_first()) {
      Eval(plan.First(d), {pre + H, h}, {other}, H, scratch);
      AddProduct(rd, other, plain, n, H, pre);
    } else if (cell.reset_last()) {
      Load(wb == nullptr ? nullptr : rb + plain, H, other);
      AddProduct(rd + plain * H, h, 0, H, H, other);
    }
  }

  void Cell(int64_t d) {
    const int64_t H = c.hidden;
    const RnnCell& cell = c.cell(d);
    const double* p = peep == nullptr ? nullptr : peep + d * 3 * H;
    if (cell.kind == RnnKind::kRnn) {
      Eval(plan.First(d), {pre}, {h}, H, scratch);
    } else if (cell.reset_first()) {
      Eval(plan.Second(d), {pre, pre + 2 * H, h}, {h}, H, scratch);
    } else if (cell.reset_last()) {
      Eval(plan.First(d), {pre, pre + H, pre + 2 * H, other, h}, {h}, H, scratch);
    } else if (p == nullptr) {
      Eval(plan.First(d), {pre, pre + H, pre + 2 * H, pre + 3 * H, cs}, {cs, h}, H, scratch);
    } else {
      Eval(plan.First(d), {pre, pre + H, pre + 2 * H, pre + 3 * H, cs, p, p + H, p + 2 * H},
           {cs, h}, H, scratch);
    }
  }

  const RnnPlan& plan;
  const RnnCall& c;
  const double *x, *w, *r, *bias, *h0, *c0, *peep;
  const int32_t* lengths;
  MutableTensor y, y_h, y_c, gates, state, h_prev;
  double *pre, *h, *cs, *other, *scratch;
  int64_t bytes;
};

// ---- backward

struct Backward {
  Backward(const RnnPlan& p, const Buffers& run) : Backward(p, run, Scratch(run.workspace)) {}
  static int64_t Bytes(const RnnPlan& p) {
    const RunContext context;
    Backward size(p, Buffers{{}, {}, nullptr, context}, Scratch(nullptr));
    return size.bytes;
  }
  void Run() {
    for (int64_t d = 0; d < c.directions(); ++d) {
      Load(nullptr, 3 * c.hidden, dp);
      for (int64_t b = 0; b < c.batch; ++b) RunRow(d, b);
      Save(dp_out, d * 3 * c.hidden, dp, 3 * c.hidden);
    }
  }

  Backward(const RnnPlan& p, const Buffers& run, Scratch s)
      : plan(p),
        c(p.call),
        r(p.In(run, 0, s)),
        gates(p.In(run, 2, s)),
        h_prev(p.In(run, 3, s)),
        dy(p.In(run, 4, s)),
        dy_h(p.In(run, 5, s)),
        state(p.In(run, 6, s)),
        c0(p.In(run, 7, s)),
        dy_c(p.In(run, 8, s)),
        peep(p.In(run, 9, s)),
        lengths(static_cast<const int32_t*>(run.in(1))),
        dgates(p.Out(run, 0)),
        dh0(p.Out(run, 1)),
        dc0(p.Out(run, 2)),
        dp_out(p.Out(run, 3)),
        extra(p.Out(run, 4)),
        dpre(s.Take<double>(c.gates)),
        dh(s.Take<double>(c.hidden)),
        dc(s.Take<double>(c.hidden)),
        other(s.Take<double>(c.hidden)),
        third(s.Take<double>(c.hidden)),
        zeros(s.Take<double>(c.hidden)),
        dp(s.Take<double>(3 * c.hidden)),
        scratch(s.Take<double>(p.scratch)),
        bytes(s.bytes()) {}

  void RunRow(int64_t d, int64_t b) {
    const int64_t H = c.hidden, row = (d * c.batch + b) * H;
    const int64_t length = RnnLength(lengths, b, c.steps);
    const bool gru = c.cell(d).kind == RnnKind::kGru, last = c.cell(d).reset_last();
    Load(nullptr, H, zeros);
    Load(dy_h == nullptr ? nullptr : dy_h + row, H, dh);
    Load(dy_c == nullptr ? nullptr : dy_c + row, H, dc);
    for (int64_t i = c.steps; i-- > 0;) {
      const int64_t t = c.Step(d, i), at = (d * c.steps + t) * c.batch + b;
      const bool inside = t < length;
      if (inside) {
        const int64_t y_at = ((t * c.directions() + d) * c.batch + b) * H;
        for (int64_t j = 0; dy != nullptr && j < H; ++j) dh[j] += dy[y_at + j];
        Cell(d, at, i == 0 ? (c0 == nullptr ? zeros : c0 + row) : CellBefore(d, t, b));
      }
      Save(dgates, at * c.gates, inside ? dpre : nullptr, c.gates);
      if (last) {
        Save(extra, at * c.gates, inside ? dpre : nullptr, 2 * H);
        Save(extra, at * c.gates + 2 * H, inside ? third : nullptr, H);
      } else if (gru) {
        Save(extra, at * H, inside ? third : nullptr, H);
      }
    }
    Save(dh0, row, dh, H);
    Save(dc0, row, dc, H);
  }

  /// c of the step before t in direction d.
  const double* CellBefore(int64_t d, int64_t t, int64_t b) const {
    if (state == nullptr) return zeros;
    const int64_t before = c.reverse(d) ? t + 1 : t - 1;
    return state + ((d * c.steps + before) * c.batch + b) * c.hidden;
  }

  /// From dh, dc of one step to its dpre and those of the step before; third: what `extra` has.
  void Cell(int64_t d, int64_t at, const double* c_before) {
    const int64_t H = c.hidden;
    const RnnCell& cell = c.cell(d);
    const double *pre = gates + at * c.gates, *h = h_prev + at * H, *rd = r + d * c.gates * H;
    const double* st = state == nullptr ? nullptr : state + at * H;
    if (cell.kind == RnnKind::kRnn) {
      Eval(plan.First(d), {pre, dh}, {dpre}, H, scratch);
      Load(nullptr, H, dh);
      AddTransposed(rd, dpre, 0, H, H, dh);
    } else if (cell.reset_first()) {
      Eval(plan.First(d), {pre, pre + 2 * H, h, dh}, {dpre, dpre + 2 * H, dh}, H, scratch);
      Load(nullptr, H, other);
      AddTransposed(rd + 2 * H * H, dpre + 2 * H, 0, H, H, other);
      Eval(plan.Second(d), {pre + H, h, other, dh}, {dpre + H, dh, third}, H, scratch);
      AddTransposed(rd, dpre, 0, 2 * H, H, dh);
    } else if (cell.reset_last()) {
      Eval(plan.First(d), {pre, pre + H, pre + 2 * H, st, h, dh},
           {dpre, dpre + H, dpre + 2 * H, third, dh}, H, scratch);
      AddTransposed(rd, dpre, 0, 2 * H, H, dh);
      AddTransposed(rd + 2 * H * H, third, 0, H, H, dh);
    } else {
      Lstm(d, pre, c_before, st);
      Load(nullptr, H, dh);
      AddTransposed(rd, dpre, 0, 4 * H, H, dh);
    }
  }

  void Lstm(int64_t d, const double* pre, const double* c_before, const double* st) {
    const int64_t H = c.hidden;
    const double* p = peep == nullptr ? nullptr : peep + d * 3 * H;
    const std::initializer_list<double*> out = {dpre, dpre + H, dpre + 2 * H, dpre + 3 * H, dc};
    if (p == nullptr) {
      Eval(plan.First(d), {pre, pre + H, pre + 2 * H, pre + 3 * H, c_before, st, dh, dc}, out, H,
           scratch);
      return;
    }
    Eval(plan.First(d),
         {pre, pre + H, pre + 2 * H, pre + 3 * H, c_before, st, dh, dc, p, p + H, p + 2 * H}, out,
         H, scratch);
    for (int64_t j = 0; j < H; ++j) {
      dp[j] += dpre[j] * c_before[j];
      dp[H + j] += dpre[H + j] * st[j];
      dp[2 * H + j] += dpre[2 * H + j] * c_before[j];
    }
  }

  const RnnPlan& plan;
  const RnnCall& c;
  const double *r, *gates, *h_prev, *dy, *dy_h, *state, *c0, *dy_c, *peep;
  const int32_t* lengths;
  MutableTensor dgates, dh0, dc0, dp_out, extra;
  double *dpre, *dh, *dc, *other, *third, *zeros, *dp, *scratch;
  int64_t bytes;
};

RnnPlan MakePlan(const CallSpec& call, RnnCall read, std::vector<RnnPrograms> programs) {
  RnnPlan plan{std::move(read), std::move(programs), call.inputs, call.outputs};
  for (const RnnPrograms& p : plan.programs)
    plan.scratch = std::max({plan.scratch, ExprScratchSize(p.first), ExprScratchSize(p.second)});
  return plan;
}

}  // namespace

PrepareResult prepare::rnn(const CallSpec& call, const PrepareOptions&) {
  AMPC_ASSIGN(RnnCall read, ReadRnn(call));
  AMPC_ASSIGN(auto programs, ParseForward(read.layer));
  RnnPlan plan = MakePlan(call, std::move(read), std::move(programs));
  const int64_t bytes = Forward::Bytes(plan);
  return MakeKernel(
      [plan = std::move(plan)](const Buffers& run) {
        CheckRnnLengths(static_cast<const int32_t*>(run.in(4)), plan.call.batch, plan.call.steps,
                        run.context);
        Forward(plan, run).Run();
      },
      bytes);
}

PrepareResult prepare::rnn_bwd(const CallSpec& call, const PrepareOptions&) {
  AMPC_ASSIGN(RnnCall read, ReadRnnBackward(call));
  AMPC_ASSIGN(auto programs, ParseBackward(read.layer));
  RnnPlan plan = MakePlan(call, std::move(read), std::move(programs));
  const int64_t bytes = Backward::Bytes(plan);
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { Backward(plan, run).Run(); },
                    bytes);
}

}  // namespace ampc::ref
