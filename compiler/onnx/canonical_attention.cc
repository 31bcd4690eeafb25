// SPDX-License-Identifier: Apache-2.0
// Attention and RotaryEmbedding.
//
// Every form of Attention becomes the own op of that name, with heads as an axis and one mask: a
// cache of past keys is a Concat, lengths of padded keys and sliding windows are boolean masks. The
// scores, where a model reads them, are computed beside it from primitive ops.
// RotaryEmbedding is a rotation written out.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/onnx/canonical.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::ValueId;

// ---- Attention

enum Slot : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kLengths };

class AttentionRule {
 public:
  AttentionRule(CanonicalContext& c, SourceNode& n) : c_(c), b_(c.b), n_(n) {}

  Status Run() {
    AMPC_TRY(ReadHeads());
    AMPC_TRY(AddPast());
    AMPC_TRY(CheckShapes());
    AMPC_TRY(ReadMask());
    Restrict();
    const ValueId y = FromHeads(Attend());
    n_.results.emplace(n_.wanted.size(), kNone);
    const auto set = [&](size_t i, ValueId v) {
      if (i < n_.wanted.size() && n_.wanted[i]) (*n_.results)[i] = v;
    };
    set(0, y);
    set(1, k_);
    set(2, v_);
    if (n_.wanted.size() > 3 && n_.wanted[3]) {
      AMPC_ASSIGN(const ValueId scores, Scores());
      set(3, scores);
    }
    return b_.TakeStatus();
  }

 private:
  const Dims& dims(ValueId v) const { return c_.graph.type(v).dims; }
  DType dtype() const { return c_.graph.type(q_).dtype; }
  int64_t queries() const { return dims(q_)[2]; }
  int64_t keys() const { return dims(k_)[2]; }
  double scale() const {
    const auto size = static_cast<double>(std::max<int64_t>(dims(q_)[3], 1));
    return n_.attrs.Float("scale", 1 / std::sqrt(size));
  }
  double softcap() const { return std::max(n_.attrs.Float("softcap", 0), 0.0); }
  ValueId MinusInfinity(DType t) { return b_.Scalar(t, -std::numeric_limits<double>::infinity()); }

  // [batch, length, heads * size] -> [batch, heads, length, size]
  Result<ValueId> ToHeads(size_t slot, std::string_view attr) {
    const Dims d = dims(n_.inputs[slot]);
    const int64_t heads = n_.attrs.Int(attr);
    if (heads <= 0 || d[2] % heads != 0)
      return BadInput("E0107", "{} is {}, which does not divide the last axis of {}", attr, heads,
                      ToString(d));
    const ValueId split = b_.Reshape(n_.inputs[slot], Dims{d[0], d[1], heads, d[2] / heads});
    return b_.Transpose(split, {0, 2, 1, 3});
  }
  ValueId FromHeads(ValueId y) {
    if (!flat_ || b_.failed()) return y;
    const Dims d = dims(y);
    return b_.Reshape(b_.Transpose(y, {0, 2, 1, 3}), Dims{d[0], d[2], d[1] * d[3]});
  }

  Status ReadHeads() {
    const size_t rank = dims(n_.inputs[kQ]).size();
    for (const size_t slot : {kQ, kK, kV}) {
      if (dims(n_.inputs[slot]).size() != rank || (rank != 3 && rank != 4))
        return BadInput("E0107", "Q, K and V are of rank 3 or 4, alike: found {}, {} and {}",
                        ToString(dims(n_.inputs[kQ])), ToString(dims(n_.inputs[kK])),
                        ToString(dims(n_.inputs[kV])));
    }
    flat_ = rank == 3;
    if (!flat_) {
      q_ = n_.inputs[kQ], k_ = n_.inputs[kK], v_ = n_.inputs[kV];
      return {};
    }
    AMPC_ASSIGN(q_, ToHeads(kQ, "q_num_heads"));
    AMPC_ASSIGN(k_, ToHeads(kK, "kv_num_heads"));
    AMPC_ASSIGN(v_, ToHeads(kV, "kv_num_heads"));
    return b_.failed() ? b_.TakeStatus() : Status();
  }

  Status AddPast() {
    if (n_.Has(kPastKey) != n_.Has(kPastValue))
      return BadInput("E0107", "of past_key and past_value one is given, the other left out");
    if (n_.Has(kLengths) && n_.Has(kPastKey))
      return BadInput("E0107", "nonpad_kv_seqlen and past_key are given; one of them is expected");
    if (!n_.Has(kPastKey)) return {};
    const Dims& past = dims(n_.inputs[kPastKey]);
    if (past.size() != 4)
      return BadInput("E0107", "past_key has dims {}, rank 4 is expected", ToString(past));
    past_ = past[2];
    k_ = b_.Op("Concat", {n_.inputs[kPastKey], k_}, {{"axis", int64_t{2}}});
    v_ = b_.Op("Concat", {n_.inputs[kPastValue], v_}, {{"axis", int64_t{2}}});
    return b_.failed() ? b_.TakeStatus() : Status();
  }

  // What the rewriting below relies on; the own op checks the rest.
  Status CheckShapes() {
    const int64_t batch = dims(q_)[0];
    if (!n_.Has(kLengths) || dims(n_.inputs[kLengths]) == Dims{batch}) return {};
    return BadInput("E0107", "nonpad_kv_seqlen has dims {}, [{}] is expected",
                    ToString(dims(n_.inputs[kLengths])), batch);
  }

  // The mask as bool or in Q's type, as long as the keys.
  Status ReadMask() {
    if (!n_.Has(kMask)) return {};
    mask_ = n_.inputs[kMask];
    Dims d = dims(mask_);
    const bool boolean = c_.graph.type(mask_).dtype == DType::kBool;
    if (!boolean && !IsFloat(c_.graph.type(mask_).dtype)) mask_ = b_.Cast(mask_, dtype());
    if (d.empty() || d.back() >= keys() || n_.version < 24) return {};
    if (d.back() == 1) {
      return Unsupported("E0102",
                         "attn_mask {} has one element for {} keys, which ONNX pads and other "
                         "libraries repeat; expand it in the model",
                         ToString(d), keys());
    }
    d.back() = keys() - d.back();
    const ValueId off = boolean ? b_.Constant(HostTensor::Scalar(DType::kBool, 0))
                                : MinusInfinity(c_.graph.type(mask_).dtype);
    const auto last = static_cast<int64_t>(d.size()) - 1;
    mask_ = b_.Op("Concat", {mask_, b_.Expand(off, d)}, {{"axis", last}});
    return b_.failed() ? b_.TakeStatus() : Status();
  }

  ValueId Counting(int64_t begin, int64_t count, bool column) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(begin + i);
    return b_.Reshape(b_.Ints(values), column ? Dims{1, 1, count, 1} : Dims{1, 1, 1, count});
  }
  ValueId And(ValueId a, ValueId b) { return a == kNone ? b : b_.Op("And", {a, b}); }

  // Windows, lengths and a frontier that lengths move, as one boolean mask.
  void Restrict() {
    const int64_t left = n_.attrs.Int("left_window_size", -1),
                  right = n_.attrs.Int("right_window_size", -1);
    const bool moving = n_.Has(kLengths);
    causal_ = n_.attrs.Int("is_causal") != 0 && !moving;
    if (!moving && left < 0 && right < 0) return;
    const ValueId key = Counting(0, keys(), false);
    ValueId at = Counting(past_, queries(), true), allowed = kNone;  // positions of the queries
    if (moving) {
      const ValueId lengths =
          b_.Reshape(b_.Cast(n_.inputs[kLengths], DType::kInt64), Dims{dims(q_)[0], 1, 1, 1});
      at = b_.Add(lengths, Counting(-queries(), queries(), true));
      allowed = b_.Op("Less", {key, lengths});
      if (n_.attrs.Int("is_causal") != 0) allowed = And(allowed, b_.Op("LessOrEqual", {key, at}));
    }
    if (left >= 0)
      allowed = And(allowed, b_.Op("LessOrEqual", {b_.Op("Sub", {at, b_.Ints({left})}), key}));
    if (right >= 0)
      allowed = And(allowed, b_.Op("LessOrEqual", {key, b_.Add(at, b_.Ints({right}))}));
    if (b_.failed()) return;
    if (mask_ == kNone) {
      mask_ = allowed;
    } else if (c_.graph.type(mask_).dtype == DType::kBool) {
      mask_ = And(mask_, allowed);
    } else {
      mask_ = b_.Op("Where", {allowed, mask_, MinusInfinity(c_.graph.type(mask_).dtype)});
    }
  }

  // The own op computes softmax in fp32 or, where that is asked for, in double.
  ValueId Attend() {
    const bool wide = static_cast<DType>(n_.attrs.Int("softmax_precision", 0)) == DType::kFloat64;
    const DType t = wide ? DType::kFloat64 : dtype();
    const Attrs attrs{{"scale", scale()},
                      {"softcap", softcap()},
                      {"causal", int64_t{causal_}},
                      {"offset", past_}};
    const ValueId q = b_.Cast(q_, t), k = b_.Cast(k_, t), v = b_.Cast(v_, t);
    const ValueId y = mask_ == kNone ? b_.Own("Attention", {q, k, v}, attrs)
                                     : b_.Own("Attention", {q, k, v, mask_}, attrs);
    return b_.Cast(y, dtype());
  }

  // qk_matmul_output.
  Result<ValueId> Scores() {
    const int64_t mode = n_.attrs.Int("qk_matmul_output_mode");
    if (mode < 0 || mode > 3)
      return BadInput("E0107", "qk_matmul_output_mode is {}, 0 to 3 is expected", mode);
    const DType t = dtype();
    const ValueId root = b_.Scalar(t, std::sqrt(scale()));
    const ValueId keys = b_.Transpose(b_.Mul(RepeatHeads(k_), root), {0, 1, 3, 2});
    ValueId s = b_.Op("MatMul", {b_.Mul(q_, root), keys});
    if (mode == 0) return s;
    if (softcap() > 0) {
      const ValueId cap = b_.Scalar(t, softcap());
      s = b_.Mul(b_.Op("Tanh", {b_.Op("Div", {s, cap})}), cap);
    }
    if (mode == 1) return s;
    s = Masked(s);
    if (mode == 2 || b_.failed()) return s;
    const ValueId none =
        b_.Op("Equal", {b_.Op("ReduceMax", {s, b_.Ints({-1})}, {{"keepdims", int64_t{1}}}),
                        MinusInfinity(c_.graph.type(s).dtype)});
    const ValueId zero = b_.Scalar(c_.graph.type(s).dtype, 0);
    const ValueId p = b_.Op("Softmax", {b_.Op("Where", {none, zero, s})}, {{"axis", int64_t{-1}}});
    return b_.Cast(b_.Op("Where", {none, zero, p}), t);
  }

  ValueId RepeatHeads(ValueId x) {
    const Dims d = dims(x);
    const int64_t heads = dims(q_)[1];
    if (d[1] == heads || d[1] == 0) return x;
    const ValueId each = b_.Reshape(x, Dims{d[0], d[1], 1, d[2], d[3]});
    return b_.Reshape(b_.Expand(each, Dims{d[0], d[1], heads / d[1], d[2], d[3]}),
                      Dims{d[0], heads, d[2], d[3]});
  }

  ValueId Masked(ValueId s) {
    ValueId ok = kNone;
    if (causal_)
      ok = b_.Op("LessOrEqual", {Counting(0, keys(), false), Counting(past_, queries(), true)});
    if (mask_ != kNone && c_.graph.type(mask_).dtype == DType::kBool) ok = And(ok, mask_);
    if (mask_ != kNone && IsFloat(c_.graph.type(mask_).dtype))
      s = b_.Add(s, b_.Cast(mask_, dtype()));
    return ok == kNone ? s : b_.Op("Where", {ok, s, MinusInfinity(dtype())});
  }

  CanonicalContext& c_;
  ir::Builder& b_;
  SourceNode& n_;
  bool flat_ = false, causal_ = false;
  int64_t past_ = 0;
  ValueId q_ = kNone, k_ = kNone, v_ = kNone, mask_ = kNone;
};

Status Attention(CanonicalContext& c, SourceNode& n) { return AttentionRule(c, n).Run(); }

// ---- RotaryEmbedding

struct Rotation {
  bool heads_first;  // [batch, heads, length, size], else [batch, length, heads, size]
  Dims dims;
  int64_t rotated;  // elements of a head that turn
};

Result<Rotation> ReadRotation(const CanonicalContext& c, const SourceNode& n) {
  const Dims& x = c.type(n, 0).dims;
  Rotation r{x.size() == 4, x, n.attrs.Int("rotary_embedding_dim")};
  if (x.size() == 3) {
    const int64_t heads = n.attrs.Int("num_heads");
    if (heads <= 0 || x[2] % heads != 0)
      return BadInput("E0107", "num_heads is {}, which does not divide the last axis of {}", heads,
                      ToString(x));
    r.dims = {x[0], x[1], heads, x[2] / heads};
  } else if (x.size() != 4) {
    return BadInput("E0107", "an input of rank 3 or 4 is expected, found {}", ToString(x));
  }
  if (r.rotated == 0) r.rotated = r.dims[3];
  if (r.rotated % 2 != 0 || r.rotated < 0 || r.rotated > r.dims[3])
    return BadInput("E0107", "{} elements of a head of {} turn: an even number is expected",
                    r.rotated, r.dims[3]);
  return r;
}

// cos or sin for each element pair, broadcast over the heads.
Result<ValueId> Angles(CanonicalContext& c, const SourceNode& n, size_t slot, const Rotation& r) {
  ValueId v = n.inputs[slot];
  const bool by_position = n.Has(3);
  if (c.type(n, slot).dims.size() != (by_position ? 2u : 3u))
    return BadInput("E0107", "{} has dims {}, rank {} is expected",
                    slot == 1 ? "cos_cache" : "sin_cache", ToString(c.type(n, slot).dims),
                    by_position ? 2 : 3);
  if (by_position) v = c.b.Op("Gather", {v, n.inputs[3]}, {{"axis", int64_t{0}}});
  if (c.b.failed()) return c.b.TakeStatus();
  const Dims found = c.graph.type(v).dims;
  const Dims expected = {r.dims[0], r.dims[r.heads_first ? 2 : 1], r.rotated / 2};
  if (found != expected)
    return BadInput("E0107", "{} gives {}, {} is expected", slot == 1 ? "cos_cache" : "sin_cache",
                    ToString(found), ToString(expected));
  const Dims spread =
      r.heads_first ? Dims{found[0], 1, found[1], found[2]} : Dims{found[0], found[1], 1, found[2]};
  return c.b.Reshape(v, spread);
}

std::vector<ValueId> SplitInTwo(ir::Builder& b, ValueId x, int64_t axis, int64_t first,
                                int64_t second) {
  const ValueId inputs[] = {x, b.Ints({first, second})};
  return b.Multi("", "Split", inputs, {{"axis", axis}}, 2);
}

Status RotaryEmbedding(CanonicalContext& c, SourceNode& n) {
  AMPC_ASSIGN(const Rotation r, ReadRotation(c, n));
  AMPC_ASSIGN(const ValueId cos, Angles(c, n, 1, r));
  AMPC_ASSIGN(const ValueId sin, Angles(c, n, 2, r));
  ir::Builder& b = c.b;
  const Dims source = c.type(n, 0).dims;
  ValueId x = b.Reshape(n.inputs[0], r.dims), rest = kNone;
  if (b.failed()) return b.TakeStatus();
  if (r.rotated < r.dims[3]) {
    const std::vector<ValueId> parts = SplitInTwo(b, x, 3, r.rotated, r.dims[3] - r.rotated);
    if (b.failed()) return b.TakeStatus();
    x = parts[0];
    rest = parts[1];
  }
  Dims half = r.dims, turned = r.dims, pairs = r.dims;
  turned[3] = r.rotated;
  half[3] = pairs[3] = r.rotated / 2;
  const bool interleaved = n.attrs.Int("interleaved") != 0;
  pairs.push_back(interleaved ? 1 : 2);
  std::vector<ValueId> x12;
  if (interleaved) {
    Dims both = pairs;
    both[4] = 2;
    x12 = SplitInTwo(b, b.Reshape(x, both), 4, 1, 1);
  } else {
    x12 = SplitInTwo(b, x, 3, half[3], half[3]);
  }
  if (b.failed()) return b.TakeStatus();
  const ValueId x1 = b.Reshape(x12[0], half), x2 = b.Reshape(x12[1], half);
  ValueId real = b.Op("Sub", {b.Mul(cos, x1), b.Mul(sin, x2)});
  ValueId imaginary = b.Add(b.Mul(sin, x1), b.Mul(cos, x2));
  if (interleaved) {
    real = b.Reshape(real, pairs);
    imaginary = b.Reshape(imaginary, pairs);
  }
  ValueId y = b.Reshape(b.Op("Concat", {real, imaginary}, {{"axis", int64_t{interleaved ? 4 : 3}}}),
                        turned);
  if (rest != kNone) y = b.Op("Concat", {y, rest}, {{"axis", int64_t{3}}});
  n.Replace(b.Reshape(y, source));
  return b.TakeStatus();
}

constexpr CanonicalRow kRules[] = {
    {"Attention", Attention, true},
    {"RotaryEmbedding", RotaryEmbedding, true, 0, 0b110},
};

}  // namespace

std::span<const CanonicalRow> AttentionRules() { return kRules; }

}  // namespace ampc
