// SPDX-License-Identifier: Apache-2.0
// The contract of rnn and rnn_bwd: cells, dims and dtypes of a call.
#include "kernels/ref/rnn.h"

namespace ampc::ref {
namespace {

Result<RnnLayer> ReadLayer(const CallCheck& check, bool peepholes) {
  constexpr std::string_view kCells[] = {"rnn", "gru", "lstm"};
  const std::string_view cell = check.params().String("cell");
  AMPC_TRY(check.OneOf("cell", cell, kCells));
  const auto operand = static_cast<DType>(check.params().Int("operand"));
  if (operand != DType::kNone && !IsLow(operand))
    return check.Fail("parameter 'operand': expected 0, fp16 or bf16");
  const RnnKind kind = cell == "rnn"   ? RnnKind::kRnn
                       : cell == "gru" ? RnnKind::kGru
                                       : RnnKind::kLstm;
  auto layer = ReadRnnLayer(kind, check.params(), peepholes, operand);
  if (!layer.ok()) return check.Fail("{}", layer.status().message());
  return layer;
}

Status AllFloat(const CallCheck& check, size_t lengths) {
  for (size_t i = 0; i < check.call().inputs.size(); ++i) {
    AMPC_TRY(i == lengths ? check.OfType(check.In(i), DType::kInt32) : check.Float(check.In(i)));
    AMPC_TRY(check.RowMajor(check.In(i)));
  }
  for (size_t i = 0; i < check.call().outputs.size(); ++i) {
    AMPC_TRY(check.Float(check.Out(i)));
    AMPC_TRY(check.RowMajor(check.Out(i)));
  }
  return {};
}

/// Keeps the sizes made from it below in range.
Status CheckHidden(const CallCheck& check, int64_t hidden) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  if (hidden <= kLargest) return {};
  return check.Fail("a hidden size of {}, the largest is {}", hidden, kLargest);
}

/// Operands that only some cells have.
Status OnlyFor(const CallCheck& check, const Operand& x, bool has) {
  if (!x->present() || has) return {};
  return check.Fail("{}: this cell has none", x.name);
}

}  // namespace

Result<RnnCall> ReadRnn(const CallSpec& call) {
  const CallCheck check(call, kRnnInputs, kRnnOutputs);
  AMPC_TRY(check.Operands());
  AMPC_TRY(AllFloat(check, 4));
  AMPC_ASSIGN(RnnLayer layer, ReadLayer(check, check.HasIn(7)));
  AMPC_TRY(check.RankBetween(check.In(0), 3, 3));
  AMPC_TRY(check.RankBetween(check.In(2), 3, 3));
  const Dims &x = check.In(0)->dims, &r = check.In(2)->dims;
  const RnnCell& cell = layer.cells[0];
  const bool lstm = cell.kind == RnnKind::kLstm;
  const int64_t d = layer.directions(), t = x[0], b = x[1], i = x[2], h = r[2];
  AMPC_TRY(CheckHidden(check, h));
  const int64_t gh = cell.gates() * h;
  AMPC_TRY(check.HasDims(check.In(1), Dims{d, gh, i}));
  AMPC_TRY(check.HasDims(check.In(2), Dims{d, gh, h}));
  AMPC_TRY(check.HasDims(check.In(3), Dims{d, 2 * gh}));
  AMPC_TRY(check.HasDims(check.In(4), Dims{b}));
  AMPC_TRY(check.HasDims(check.In(7), Dims{d, 3 * h}));
  const Operand hidden[] = {check.In(5), check.In(6), check.Out(1), check.Out(2)};
  for (const Operand& v : hidden) AMPC_TRY(check.HasDims(v, Dims{d, b, h}));
  AMPC_TRY(check.HasDims(check.Out(0), Dims{t, d, b, h}));
  AMPC_TRY(check.HasDims(check.Out(3), Dims{d, t, b, gh}));
  AMPC_TRY(check.HasDims(check.Out(4), Dims{d, t, b, h}));
  AMPC_TRY(check.HasDims(check.Out(5), Dims{d, t, b, h}));
  AMPC_TRY(check.Acc(check.Out(3)));
  AMPC_TRY(check.Acc(check.Out(4)));
  const Operand lstm_only[] = {check.In(6), check.In(7), check.Out(2)};
  for (const Operand& v : lstm_only) AMPC_TRY(OnlyFor(check, v, lstm));
  AMPC_TRY(OnlyFor(check, check.Out(4), lstm || cell.reset_last()));
  return RnnCall{std::move(layer), t, b, i, h, gh};
}

Result<RnnCall> ReadRnnBackward(const CallSpec& call) {
  const CallCheck check(call, kRnnBackwardInputs, kRnnBackwardOutputs);
  AMPC_TRY(check.Operands());
  AMPC_TRY(AllFloat(check, 1));
  AMPC_ASSIGN(RnnLayer layer, ReadLayer(check, check.HasIn(9)));
  AMPC_TRY(check.RankBetween(check.In(3), 4, 4));
  const Dims& h_prev = check.In(3)->dims;
  const RnnCell& cell = layer.cells[0];
  const bool lstm = cell.kind == RnnKind::kLstm;
  const int64_t d = layer.directions(), t = h_prev[1], b = h_prev[2], h = h_prev[3];
  AMPC_TRY(CheckHidden(check, h));
  const int64_t gh = cell.gates() * h;
  AMPC_TRY(check.HasDims(check.In(0), Dims{d, gh, h}));
  AMPC_TRY(check.HasDims(check.In(1), Dims{b}));
  AMPC_TRY(check.HasDims(check.In(2), Dims{d, t, b, gh}));
  AMPC_TRY(check.HasDims(check.In(3), Dims{d, t, b, h}));
  AMPC_TRY(check.HasDims(check.In(4), Dims{t, d, b, h}));
  AMPC_TRY(check.HasDims(check.In(6), Dims{d, t, b, h}));
  AMPC_TRY(check.HasDims(check.In(9), Dims{d, 3 * h}));
  const Operand hidden[] = {check.In(5), check.In(7), check.In(8), check.Out(1), check.Out(2)};
  for (const Operand& v : hidden) AMPC_TRY(check.HasDims(v, Dims{d, b, h}));
  AMPC_TRY(check.HasDims(check.Out(0), Dims{d, t, b, gh}));
  AMPC_TRY(check.HasDims(check.Out(3), Dims{d, 3 * h}));
  AMPC_TRY(check.HasDims(check.Out(4), Dims{d, t, b, cell.linear_before_reset ? gh : h}));
  AMPC_TRY(check.Acc(check.In(2)));
  AMPC_TRY(check.Acc(check.In(6)));
  const bool state = lstm || cell.reset_last();
  if (state != check.HasIn(6))
    return check.Fail("input 'state': wanted for LSTM and reset GRU alone");
  const Operand lstm_only[] = {check.In(7), check.In(8), check.In(9), check.Out(2), check.Out(3)};
  for (const Operand& v : lstm_only) AMPC_TRY(OnlyFor(check, v, lstm));
  if (check.HasOut(3) && !check.HasIn(9)) return check.Fail("output 'dp' without input 'p'");
  if ((cell.kind == RnnKind::kGru) != check.HasOut(4))
    return check.Fail("output 'extra': wanted for GRU alone");
  return RnnCall{std::move(layer), t, b, 0, h, gh};
}

static Result<std::vector<RnnPrograms>> ParseEach(const RnnLayer& layer,
                                                  RnnTexts (*texts)(const RnnCell&)) {
  std::vector<RnnPrograms> programs;
  for (const RnnCell& cell : layer.cells) {
    AMPC_ASSIGN(RnnPrograms p, ParseRnn(texts(cell)));
    programs.push_back(std::move(p));
  }
  return programs;
}

Result<std::vector<RnnPrograms>> ParseForward(const RnnLayer& layer) {
  return ParseEach(layer, RnnForward);
}
Result<std::vector<RnnPrograms>> ParseBackward(const RnnLayer& layer) {
  return ParseEach(layer, RnnBackward);
}

}  // namespace ampc::ref
