// SPDX-License-Identifier: Apache-2.0
// A recurrent layer that an exporter unrolled step by step: RNN with Tanh.
//
//   xw = MatMul(x, W^T) + bw                                all steps at once
//   h1 = Tanh((MatMul(h0, R^T) + br) + xw[0])
//   h2 = Tanh((MatMul(h1, R^T) + br) + xw[1])               …
//   y = Concat(h1, h2, …)                                   -> RNN(x, W, R, [bw, br], h0)
//
// Every step reads the same R and br, and the steps of xw in order. States have the dims [1, batch,
// hidden].
#include <algorithm>

#include "passes/recover_match.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

struct Linear {
  ValueId x = kNone, weights = kNone, bias = kNone;  ///< weights as they multiply: [in, out]
  NodeId product = kNone, sum = kNone;
};

class RnnPattern {
 public:
  explicit RnnPattern(Match& m) : m_(m) {}

  Status Run() {
    const ir::Node& concat = m_.node(m_.anchor());
    steps_ = static_cast<int64_t>(concat.inputs.size());
    if (steps_ < 2 || concat.attrs.Int("axis") != 0) return {};
    m_.Take(m_.anchor());
    // The last step first, so that readers go before what they read.
    for (int64_t t = steps_ - 1; t >= 0; --t) {
      if (!ReadStep(t)) return {};
    }
    const auto input = LinearAt(projected_);
    if (!input || !CheckDims(*input)) return {};
    m_.Take(input->sum);
    m_.Take(input->product);
    return m_.Closed(m_.anchor()) ? Build(*input) : Status();
  }

 private:
  // x * weights + bias, the bias a vector.
  std::optional<Linear> LinearAt(ValueId v) const {
    const NodeId sum = m_.Def(v, "Add");
    if (sum == kNone) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const NodeId product = m_.Def(m_.node(sum).inputs[i], "MatMul");
      const ValueId bias = m_.node(sum).inputs[1 - i];
      if (product == kNone || m_.dims(bias).size() != 1 || m_.dims(m_.out(product)) != m_.dims(v))
        continue;
      const auto& in = m_.node(product).inputs;
      return Linear{in[0], in[1], bias, product, sum};
    }
    return std::nullopt;
  }

  bool ReadStep(int64_t t) {
    const ValueId h = m_.node(m_.anchor()).inputs[static_cast<size_t>(t)];
    const NodeId tanh = m_.Def(h, "Tanh");
    const NodeId sum = tanh == kNone ? kNone : m_.Def(m_.node(tanh).inputs[0], "Add");
    if (sum == kNone) return false;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const auto linear = LinearAt(m_.node(sum).inputs[i]);
      if (!linear || !IsBefore(t, linear->x)) continue;
      const size_t taken = m_.taken();
      for (const NodeId n : {tanh, sum, linear->sum, linear->product}) m_.Take(n);
      if (ReadInput(m_.node(sum).inputs[1 - i], t) && SameWeights(t, *linear)) {
        if (t == 0) initial_ = linear->x;
        return true;
      }
      m_.Rewind(taken);
    }
    return false;
  }
  // The state before step t is the one that step t - 1 gave; before the first it is any.
  bool IsBefore(int64_t t, ValueId h) const {
    return t == 0 || h == m_.node(m_.anchor()).inputs[static_cast<size_t>(t - 1)];
  }
  bool SameWeights(int64_t t, const Linear& linear) {
    if (t == steps_ - 1) {
      recurrent_ = linear;
      return true;
    }
    return linear.weights == recurrent_.weights && linear.bias == recurrent_.bias;
  }

  // v is step t of one value for all steps.
  bool ReadInput(ValueId v, int64_t t) {
    if (const NodeId squeeze = m_.Def(v, "Squeeze"); squeeze != kNone) {
      m_.Take(squeeze);
      v = m_.node(squeeze).inputs[0];
    }
    const NodeId slice = m_.Def(v, "Slice");
    if (slice == kNone) return false;
    const auto& in = m_.node(slice).inputs;
    const bool step_of_axis0 = (in.size() == 4 || (in.size() == 5 && m_.IsNumber(in[4], 1))) &&
                               m_.IsNumber(in[1], static_cast<double>(t)) &&
                               m_.IsNumber(in[2], static_cast<double>(t + 1)) &&
                               m_.IsNumber(in[3], 0);
    if (!step_of_axis0 || (projected_ != kNone && projected_ != in[0])) return false;
    projected_ = in[0];
    m_.Take(slice);
    return true;
  }

  bool CheckDims(const Linear& input) const {
    const Dims &x = m_.dims(input.x), &w = m_.dims(input.weights), &r = m_.dims(recurrent_.weights);
    if (x.size() != 3 || w.size() != 2 || r.size() != 2 || r[0] != r[1] || w[1] != r[0])
      return false;
    const Dims state = {1, x[1], r[0]}, vector = {r[0]};
    return x[0] == steps_ && m_.dims(initial_) == state && m_.dims(input.bias) == vector &&
           m_.dims(recurrent_.bias) == vector &&
           m_.dims(m_.out(m_.anchor())) == Dims{steps_, x[1], r[0]};
  }

  // [in, out] as [1, out, in]; where it is a transposed parameter, that one.
  ValueId Layer(ir::Builder& b, ValueId weights) const {
    const NodeId transpose = m_.Def(weights, "Transpose");
    const bool turned =
        transpose != kNone && (!m_.node(transpose).attrs.Has("perm") ||
                               m_.node(transpose).attrs.Ints("perm") == std::vector<int64_t>{1, 0});
    const ValueId v = turned ? m_.node(transpose).inputs[0] : b.Transpose(weights, {1, 0});
    if (b.failed()) return kNone;
    return b.Reshape(v, Dims{1, m_.dims(v)[0], m_.dims(v)[1]});
  }

  Status Build(const Linear& input) {
    ir::Builder b = m_.Replacement(m_.anchor());
    const Dims result = m_.dims(m_.out(m_.anchor()));
    const ValueId w = Layer(b, input.weights), r = Layer(b, recurrent_.weights);
    const ValueId both = b.Op("Concat", {input.bias, recurrent_.bias}, {{"axis", int64_t{0}}});
    const ValueId bias = b.Reshape(both, Dims{1, 2 * result[2]});
    const ValueId inputs[] = {input.x, w, r, bias, kNone, initial_};
    const std::vector<ValueId> y = b.Multi("", "RNN", inputs, {{"hidden_size", result[2]}}, 1);
    if (b.failed()) return b.TakeStatus();
    return m_.Replace(m_.anchor(), b.Reshape(y[0], result), b);
  }

  Match& m_;
  int64_t steps_ = 0;
  Linear recurrent_;
  ValueId projected_ = kNone, initial_ = kNone;
};

}  // namespace

Status RecoverRnn(Match& m) { return RnnPattern(m).Run(); }

}  // namespace ampc
