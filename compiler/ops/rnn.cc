// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: RNN, GRU, LSTM. In training they become RnnTrain, GruTrain, LstmTrain, which
// also give what the gradient wants (the gates before their activations, the hidden state before
// every step, the LSTM's cells). RnnGrad, GruGrad, LstmGrad go back through time and give the
// gradient of the gates; the gradients of x, W, R and B are one product or sum each over all steps
// of it.
//
// The own ops know the layout [steps, batch, ..] alone: with layout = 1, transposes stand around
// them.
#include "compiler/ops/rnn.h"

#include <algorithm>

#include "compiler/ir/builder.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::ValueId;

std::string_view CellName(RnnKind kind) {
  return kind == RnnKind::kRnn ? "rnn" : kind == RnnKind::kGru ? "gru" : "lstm";
}
std::string_view TrainName(RnnKind kind) {
  return kind == RnnKind::kRnn ? "RnnTrain" : kind == RnnKind::kGru ? "GruTrain" : "LstmTrain";
}
std::string_view GradName(RnnKind kind) {
  return kind == RnnKind::kRnn ? "RnnGrad" : kind == RnnKind::kGru ? "GruGrad" : "LstmGrad";
}

// ---- checks

Status CheckDims(std::string_view what, const ir::TensorType* found, const Dims& wanted) {
  if (found == nullptr || found->dims == wanted) return {};
  return BadInput("E0107", "{} has dims {}, expected {}", what, ToString(found->dims),
                  ToString(wanted));
}

Status CheckLayer(RnnKind kind, const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  const auto in = [&](size_t i) { return i < inputs.size() ? inputs[i] : nullptr; };
  const bool peepholes = in(rnn_in::kP) != nullptr;
  auto layer = ReadRnnLayer(kind, attrs, peepholes, DType::kNone);
  if (!layer.ok()) return std::move(layer).TakeStatus();
  if (in(0) == nullptr || in(1) == nullptr || in(2) == nullptr) return {};  // inference says so
  const Dims x = in(0)->dims, r = in(2)->dims;
  if (x.size() != 3 || r.size() != 3)
    return BadInput("E0107", "X {} and R {} must have three axes", ToString(*in(0)),
                    ToString(*in(2)));
  const bool batch_first = attrs.Int("layout") != 0;
  const int64_t d = layer->directions(), b = x[batch_first ? 0 : 1], h = r[2];
  if (h > int64_t{1} << 40) return BadInput("E0107", "R {} is too large", ToString(*in(2)));
  const int64_t gh = layer->cells[0].gates() * h;
  if (attrs.Has("hidden_size") && attrs.Int("hidden_size") != h)
    return BadInput("E0107", "hidden_size is {}, R has {}", attrs.Int("hidden_size"), h);
  AMPC_TRY(CheckDims("W", in(rnn_in::kW), {d, gh, x[2]}));
  AMPC_TRY(CheckDims("R", in(rnn_in::kR), {d, gh, h}));
  AMPC_TRY(CheckDims("B", in(rnn_in::kB), {d, 2 * gh}));
  AMPC_TRY(CheckDims("sequence_lens", in(rnn_in::kLengths), {b}));
  const Dims state = batch_first ? Dims{b, d, h} : Dims{d, b, h};
  AMPC_TRY(CheckDims("initial_h", in(rnn_in::kH0), state));
  AMPC_TRY(CheckDims("initial_c", in(rnn_in::kC0), state));
  return CheckDims("P", in(rnn_in::kP), {d, 3 * h});
}

Status CheckRnn(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  return CheckLayer(RnnKind::kRnn, attrs, inputs);
}
Status CheckGru(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  return CheckLayer(RnnKind::kGru, attrs, inputs);
}
Status CheckLstm(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  return CheckLayer(RnnKind::kLstm, attrs, inputs);
}

// ---- lowering

// Attributes of the cell; layout and hidden_size are seen in the operands.
Attrs LayerAttrs(const Attrs& from) {
  Attrs to;
  for (const auto& [name, value] : from.entries()) {
    if (name != "layout" && name != "hidden_size") to.Set(name, value);
  }
  return to;
}

Attrs KernelParams(RnnKind kind, const Attrs& attrs, DType operand) {
  Attrs params = LayerAttrs(attrs);
  params.Set("cell", std::string(CellName(kind)));
  params.Set("operand", static_cast<int64_t>(IsLow(operand) ? operand : DType::kNone));
  return params;
}

Operand In(LowerContext& c, size_t i) { return i < c.num_inputs() ? c.in(i) : kNone; }
Operand Out(LowerContext& c, size_t i) { return i < c.num_outputs() ? c.out(i) : kNone; }

// y = x with its axes in another order.
void EmitTranspose(LowerContext& c, Operand x, Operand y, std::initializer_list<size_t> perm) {
  const std::vector<int64_t> from = StridesOf(c.desc(x).dims, Layout::kRowMajor);
  std::vector<int64_t> strides;
  for (const size_t p : perm) strides.push_back(from[p]);
  c.Call("copy", {{"offset", int64_t{0}}, {"strides", std::move(strides)}}, {x}, {y});
}

// [a, b, ..] as [b, a, ..].
Operand SwapFirst(LowerContext& c, Operand x) {
  if (x == kNone) return kNone;
  TensorDesc turned = c.desc(x);
  std::swap(turned.dims[0], turned.dims[1]);
  const Operand y = c.Temp(std::move(turned));
  EmitTranspose(c, x, y, {1, 0, 2});
  return y;
}

// The output that the kernel writes: the node's own, or with layout = 1 one in the kernel's order.
Operand KernelOut(LowerContext& c, size_t i, bool batch_first) {
  const Operand out = Out(c, i);
  if (out == kNone || !batch_first) return out;
  TensorDesc desc = c.desc(out);
  const Dims d = desc.dims;  // [batch, steps, directions, hidden] or [batch, directions, hidden]
  desc.dims = d.size() == 4 ? Dims{d[1], d[2], d[0], d[3]} : Dims{d[1], d[0], d[2]};
  return c.Temp(std::move(desc));
}

Status LowerLayer(LowerContext& c) {
  const RnnKind kind = RnnKindOf(*c.node().op);
  const bool batch_first = c.attrs().Int("layout") != 0;
  std::vector<Operand> in;
  for (size_t i = 0; i <= rnn_in::kP; ++i) {
    const bool turned = batch_first && (i == rnn_in::kX || i == rnn_in::kH0 || i == rnn_in::kC0);
    in.push_back(turned ? SwapFirst(c, In(c, i)) : In(c, i));
  }
  std::vector<Operand> out;
  for (size_t i = 0; i < 3; ++i) out.push_back(KernelOut(c, i, batch_first));
  c.Call("rnn", KernelParams(kind, c.attrs(), c.desc(c.in(0)).dtype), std::move(in), out);
  if (!batch_first) return {};
  for (size_t i = 0; i < 3; ++i) {
    if (out[i] == kNone) continue;
    if (i == 0) {
      EmitTranspose(c, out[i], Out(c, i), {2, 0, 1, 3});
    } else {
      EmitTranspose(c, out[i], Out(c, i), {1, 0, 2});
    }
  }
  return {};
}

// ---- the training form

// [a, b, ..] as [b, a, ..].
ValueId SwapFirst(ir::Builder& b, ValueId v) {
  if (v == kNone || b.failed()) return v;
  return b.Transpose(v, {1, 0, 2});
}

Status TrainLayer(ir::Graph& graph, ir::NodeId id, ir::Builder& b) {
  const ir::Node node = graph.node(id);
  const RnnKind kind = RnnKindOf(*node.op);
  const bool batch_first = node.attrs.Int("layout") != 0;
  std::vector<ValueId> inputs = node.inputs;
  for (const size_t i : {rnn_in::kX, rnn_in::kH0, rnn_in::kC0}) {
    if (batch_first && i < inputs.size()) inputs[i] = SwapFirst(b, inputs[i]);
  }
  const bool state = kind == RnnKind::kGru && node.attrs.Int("linear_before_reset") != 0;
  const size_t outputs = kind == RnnKind::kLstm ? 6 : state ? 5 : 4;
  const std::vector<ValueId> outs =
      b.Multi(kOwnDomain, TrainName(kind), inputs, LayerAttrs(node.attrs), outputs);
  std::vector<std::pair<ValueId, std::string>> names;
  for (size_t i = 0; i < node.outputs.size() && !b.failed(); ++i) {
    const ValueId old = node.outputs[i];
    if (old == kNone) continue;
    ValueId now = outs[i < 2 ? i : rnn_out::kYc];
    if (batch_first) now = i == 0 ? b.Transpose(now, {2, 0, 1, 3}) : SwapFirst(b, now);
    if (b.failed()) break;
    names.emplace_back(now, graph.value(old).name);
    graph.ReplaceUses(old, now);
  }
  if (b.failed()) return b.TakeStatus();
  graph.Erase(id);
  for (const auto& [value, name] : names) graph.Rename(value, name);
  return {};
}

// x, W, R, [B], [lengths], [h0], [c0], [P] -> y, y_h, gates, h_prev, [state], [y_c]
template <RnnKind kKind>
Status InferTrain(InferContext& c) {
  AMPC_TRY(CheckLayer(kKind, c.attrs, c.inputs));
  const ir::TensorType& x = c.in(rnn_in::kX);
  const Dims& r = c.in(rnn_in::kR).dims;
  const int64_t t = x.dims[0], b = x.dims[1], d = r[0], gh = r[1], h = r[2];
  const ir::TensorType hidden{x.dtype, {d, b, h}}, state{AccOf(x.dtype), {d, t, b, h}};
  c.outputs = {
      {x.dtype, {t, d, b, h}}, hidden, {AccOf(x.dtype), {d, t, b, gh}}, {x.dtype, {d, t, b, h}}};
  if constexpr (kKind != RnnKind::kRnn) c.outputs.push_back(state);
  if constexpr (kKind == RnnKind::kLstm) c.outputs.push_back(hidden);
  return {};
}

Status LowerTrain(LowerContext& c) {
  const RnnKind kind = RnnKindOf(*c.node().op);
  std::vector<Operand> in;
  for (size_t i = 0; i <= rnn_in::kP; ++i) in.push_back(In(c, i));
  c.Call("rnn", KernelParams(kind, c.attrs(), c.desc(c.in(0)).dtype), std::move(in),
         {Out(c, rnn_out::kY), Out(c, rnn_out::kYh), Out(c, rnn_out::kYc), Out(c, rnn_out::kGates),
          Out(c, rnn_out::kState), Out(c, rnn_out::kHPrev)});
  return {};
}

// ---- gradients

// [d, t, b, n] as [d, t * b, n].
ValueId Steps(ir::Builder& b, ValueId v) {
  if (b.failed() || v == kNone) return kNone;
  const Dims dims = b.type(v).dims;
  return b.Reshape(v, Dims{dims[0], dims[1] * dims[2], dims[3]});
}

// aᵀ b per direction; b may serve all of them.
ValueId OverSteps(ir::Builder& b, ValueId a, ValueId other) {
  return b.Own("MatMulEx", {a, other}, {{"trans_a", int64_t{1}}});
}

// dx = sum over directions of dgates W.
ValueId GradX(GradContext& g, ValueId dgates) {
  ir::Builder& b = g.b;
  const ir::TensorType x = g.type(g.x(rnn_in::kX));
  const int64_t d = g.type(g.x(rnn_in::kW)).dims[0];
  if (d == 1) return b.Reshape(b.Own("MatMulEx", {dgates, g.x(rnn_in::kW)}), x.dims);
  const ValueId both =
      b.Own("MatMulEx", {dgates, g.x(rnn_in::kW)}, {{"to", static_cast<int64_t>(AccOf(x.dtype))}});
  return b.Cast(b.Reshape(b.ReduceSum(both, {0}, false), x.dims), x.dtype);
}

// A part of the last axis.
ValueId Columns(ir::Builder& b, ValueId v, int64_t begin, int64_t end) {
  return b.Op("Slice", {v, b.Ints({begin}), b.Ints({end}), b.Ints({2})});
}

ValueId GradR(GradContext& g, ValueId dgates, ValueId extra, ValueId h_prev) {
  ir::Builder& b = g.b;
  const int64_t h = g.type(g.x(rnn_in::kR)).dims[2];
  if (extra == kNone) return OverSteps(b, dgates, h_prev);
  if (g.attrs().Int("linear_before_reset") != 0) return OverSteps(b, extra, h_prev);
  const ValueId before = OverSteps(b, Columns(b, dgates, 0, 2 * h), h_prev);
  const ValueId behind = OverSteps(b, Columns(b, dgates, 2 * h, 3 * h), extra);
  return b.Op("Concat", {before, behind}, {{"axis", int64_t{1}}});
}

ValueId GradB(GradContext& g, ValueId dgates, ValueId seen_by_r) {
  const ValueId wb = g.b.ReduceSum(dgates, {1}, false);
  const ValueId rb = seen_by_r == dgates ? wb : g.b.ReduceSum(seen_by_r, {1}, false);
  return g.b.Op("Concat", {wb, rb}, {{"axis", int64_t{1}}});
}

Status GradTrain(GradContext& g) {
  ir::Builder& b = g.b;
  const RnnKind kind = RnnKindOf(*g.node.op);
  const bool lstm = kind == RnnKind::kLstm, gru = kind == RnnKind::kGru;
  const bool reset_last = gru && g.attrs().Int("linear_before_reset") != 0;
  std::vector<ValueId> inputs = {g.x(rnn_in::kR),      g.x(rnn_in::kLengths), g.y(rnn_out::kGates),
                                 g.y(rnn_out::kHPrev), g.dy(rnn_out::kY),     g.dy(rnn_out::kYh)};
  if (lstm) {
    inputs.insert(inputs.end(),
                  {g.y(rnn_out::kState), g.x(rnn_in::kC0), g.dy(rnn_out::kYc), g.x(rnn_in::kP)});
  } else if (reset_last) {
    inputs.push_back(g.y(rnn_out::kState));
  }
  while (inputs.back() == kNone) inputs.pop_back();
  const bool peepholes = g.x(rnn_in::kP) != kNone;
  const std::vector<ValueId> outs = b.Multi(kOwnDomain, GradName(kind), inputs, g.attrs(),
                                            gru    ? 3
                                            : lstm ? (peepholes ? 4 : 3)
                                                   : 2);
  if (b.failed()) return {};
  const ValueId dgates = Steps(b, outs[rnn_grad_out::kDgates]);
  const ValueId h_prev = Steps(b, g.y(rnn_out::kHPrev));
  const ValueId extra = gru ? Steps(b, outs[rnn_grad_out::kExtra]) : kNone;
  if (g.Needs(rnn_in::kX)) g.Set(rnn_in::kX, GradX(g, dgates));
  if (g.Needs(rnn_in::kW)) {
    const Dims x = g.type(g.x(rnn_in::kX)).dims;
    g.Set(rnn_in::kW, OverSteps(b, dgates, b.Reshape(g.x(rnn_in::kX), Dims{1, x[0] * x[1], x[2]})));
  }
  if (g.Needs(rnn_in::kR)) g.Set(rnn_in::kR, GradR(g, dgates, extra, h_prev));
  if (g.Needs(rnn_in::kB)) g.Set(rnn_in::kB, GradB(g, dgates, reset_last ? extra : dgates));
  if (g.Needs(rnn_in::kH0)) g.Set(rnn_in::kH0, outs[rnn_grad_out::kDh0]);
  if (g.Needs(rnn_in::kC0)) g.Set(rnn_in::kC0, outs[rnn_grad_out::kDc0]);
  if (g.Needs(rnn_in::kP)) g.Set(rnn_in::kP, outs[rnn_grad_out::kDp]);
  return {};
}

// R, [lengths], gates, h_prev, [dy], [dy_h], [state], [c0], [dy_c], [P]
//   -> dgates, dh0, then LSTM: dc0, [dP]; GRU: what R's gradient wants beside dgates
template <RnnKind kKind>
Status InferGrad(InferContext& c) {
  const ir::TensorType& h_prev = c.in(rnn_grad_in::kHPrev);
  const Dims &dims = h_prev.dims, &gates = c.in(rnn_grad_in::kGates).dims;
  if (dims.size() != 4 || gates.size() != 4)
    return BadInput("E0107", "gates {} and h_prev {} must have four axes", ToString(gates),
                    ToString(dims));
  const ir::TensorType hidden{h_prev.dtype, {dims[0], dims[2], dims[3]}};
  c.outputs = {{h_prev.dtype, gates}, hidden};
  if constexpr (kKind == RnnKind::kGru) {
    c.outputs.push_back({h_prev.dtype, c.attrs.Int("linear_before_reset") != 0 ? gates : dims});
  } else if constexpr (kKind == RnnKind::kLstm) {
    c.outputs.push_back(hidden);
    c.outputs.push_back({h_prev.dtype, {dims[0], 3 * dims[3]}});
  }
  return {};
}

Status LowerGrad(LowerContext& c) {
  const RnnKind kind = RnnKindOf(*c.node().op);
  std::vector<Operand> in;
  for (size_t i = 0; i <= rnn_grad_in::kP; ++i) in.push_back(In(c, i));
  const bool lstm = kind == RnnKind::kLstm, gru = kind == RnnKind::kGru;
  c.Call("rnn_bwd", KernelParams(kind, c.attrs(), c.desc(c.in(rnn_grad_in::kHPrev)).dtype),
         std::move(in),
         {c.out(rnn_grad_out::kDgates), Out(c, rnn_grad_out::kDh0),
          lstm ? Out(c, rnn_grad_out::kDc0) : kNone, lstm ? Out(c, rnn_grad_out::kDp) : kNone,
          gru ? Out(c, rnn_grad_out::kExtra) : kNone});
  return {};
}

// clang-format off
constexpr uint32_t kTrainOptional = 0b11111000;  // B, lengths, h0, c0, P
constexpr uint32_t kGradOptional = 0b1111110010;  // lengths, dy, dy_h, state, c0, dy_c, P
constexpr OpDef kOps[] = {
    {.name = "RNN", .since = 22, .in = {3, 6}, .out = {0, 2}, .cast = kLowClass, .check = CheckRnn, .training = TrainLayer, .lower = LowerLayer},
    {.name = "GRU", .since = 22, .in = {3, 6}, .out = {0, 2}, .cast = kLowClass, .check = CheckGru, .training = TrainLayer, .lower = LowerLayer},
    {.name = "LSTM", .since = 22, .in = {3, 8}, .out = {0, 3}, .cast = kLowClass, .check = CheckLstm, .training = TrainLayer, .lower = LowerLayer},
    {.domain = kOwnDomain, .name = "RnnTrain", .in = {3, 6}, .out = 4, .optional_slots = kTrainOptional, .cast = kLowClass, .fp32_outputs = 0b100,
     .infer = InferTrain<RnnKind::kRnn>, .grad = GradTrain, .lower = LowerTrain, .body = BodyRnnTrain},
    {.domain = kOwnDomain, .name = "GruTrain", .in = {3, 6}, .out = {4, 5}, .optional_slots = kTrainOptional, .cast = kLowClass, .fp32_outputs = 0b10100,
     .infer = InferTrain<RnnKind::kGru>, .grad = GradTrain, .lower = LowerTrain, .body = BodyRnnTrain},
    {.domain = kOwnDomain, .name = "LstmTrain", .in = {3, 8}, .out = 6, .optional_slots = kTrainOptional, .cast = kLowClass, .fp32_outputs = 0b10100,
     .infer = InferTrain<RnnKind::kLstm>, .grad = GradTrain, .lower = LowerTrain, .body = BodyRnnTrain},
    {.domain = kOwnDomain, .name = "RnnGrad", .in = {4, 6}, .out = 2, .optional_slots = kGradOptional, .cast = kLowClass, .fp32_slots = 0b100,
     .infer = InferGrad<RnnKind::kRnn>, .lower = LowerGrad, .body = BodyRnnGrad},
    {.domain = kOwnDomain, .name = "GruGrad", .in = {4, 7}, .out = 3, .optional_slots = kGradOptional, .cast = kLowClass, .fp32_slots = 0b1000100,
     .infer = InferGrad<RnnKind::kGru>, .lower = LowerGrad, .body = BodyRnnGrad},
    {.domain = kOwnDomain, .name = "LstmGrad", .in = {7, 10}, .out = {3, 4}, .optional_slots = kGradOptional, .cast = kLowClass, .fp32_slots = 0b1000100,
     .infer = InferGrad<RnnKind::kLstm>, .lower = LowerGrad, .body = BodyRnnGrad},
};
// clang-format on

}  // namespace

RnnKind RnnKindOf(const OpDef& op) {
  const char first = op.name[0];
  return first == 'G' ? RnnKind::kGru : first == 'L' ? RnnKind::kLstm : RnnKind::kRnn;
}

std::span<const OpDef> RnnOps() { return kOps; }

}  // namespace ampc
