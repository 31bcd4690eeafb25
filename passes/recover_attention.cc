// SPDX-License-Identifier: Apache-2.0
// Scaled dot-product attention that exporters write as single nodes.
//
//   MatMul(Softmax(MatMul(q, transposed k) [* scale] [+ mask]), v)      -> ai.ampc.Attention
//
// Scales may stand on q, on k and on the scores. A mask is added, or chosen by Where with -inf
// where a key does not count. A constant mask that lets every query see the keys up to its own
// place becomes the attribute `causal`. Dropout with ratio 0 between the probabilities and v is
// nothing; with another ratio the attention stays as it is. Three axes are taken for one head.
//
// A query for which no key counts gets 0, as from PyTorch's kernels; Softmax alone says NaN. Where
// every key of a query has the same large negative number instead (-1e9), Softmax gives equal
// shares: masks of such numbers are only taken for -inf where each query has a key that counts.
#include <algorithm>
#include <cmath>

#include "passes/recover_match.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// At most this leaves no share to a key, whatever the scores.
constexpr double kExcluded = -1e9;

// What happens to the scores between their product and Softmax.
struct Step {
  ValueId mask = kNone;
  bool chosen = false;    ///< Where: the mask is bool
  bool inverted = false;  ///< … and true where a key does not count
  double fill = 0;        ///< … and this stands there
};

struct Sizes {
  int64_t queries, keys;
};

class AttentionPattern {
 public:
  explicit AttentionPattern(Match& m) : m_(m) {}

  Status Run() {
    if (!ReadScores() || !ReadProbabilities() || !CheckShapes() || !ReadMask()) return {};
    for (const NodeId n : {m_.anchor(), product_, root_}) m_.Take(n);
    ReadScale(m_.node(product_).inputs[0], q_);
    ReadScale(m_.node(product_).inputs[1], k_transposed_);
    if (!std::isfinite(scale_)) return {};
    FindKeys();
    return m_.Closed(root_) ? Build() : Status();
  }

 private:
  size_t rank() const { return m_.dims(q_).size(); }

  // ---- the scores, from Softmax up to the product
  bool ReadScores() {
    const ir::Node& softmax = m_.node(m_.anchor());
    ValueId v = softmax.inputs[0];
    const size_t scores_rank = m_.dims(v).size();
    if (NormalAxis(softmax.attrs.Int("axis", -1), scores_rank) !=
        static_cast<int64_t>(scores_rank) - 1)
      return false;
    SkipCasts(v);
    while (const std::optional<Step> step = MaskAt(v)) {
      steps_.push_back(*step);
      if (steps_.size() > 2) return false;
      SkipCasts(v);
    }
    ReadScale(v, v);
    product_ = m_.Def(v, "MatMul");
    if (product_ == kNone) return false;
    scores_ = v;
    q_ = m_.node(product_).inputs[0];
    k_transposed_ = m_.node(product_).inputs[1];
    return true;
  }

  // Exporters write casts to the type that a value has.
  bool IsNoCast(NodeId n) const {
    return m_.Is(n, "Cast") && m_.type(m_.node(n).inputs[0]) == m_.type(m_.out(n));
  }
  void SkipCasts(ValueId& v) {
    for (NodeId n = m_.Def(v, "Cast"); IsNoCast(n); n = m_.Def(v, "Cast")) {
      m_.Take(n);
      v = m_.node(n).inputs[0];
    }
  }

  // A step whose result is v; v becomes what it was before.
  std::optional<Step> MaskAt(ValueId& v) {
    if (const NodeId n = m_.Def(v, "Add"); n != kNone) {
      // The scores are the operand that a product gives, behind further steps.
      for (const size_t i : {size_t{0}, size_t{1}}) {
        const ValueId scores = m_.node(n).inputs[i], mask = m_.node(n).inputs[1 - i];
        if (scores == mask || !LeadsToProduct(scores) || m_.dims(scores) != m_.dims(v)) continue;
        m_.Take(n);
        v = scores;
        return Step{.mask = mask};
      }
    }
    if (const NodeId n = m_.Def(v, "Where"); n != kNone) {
      for (const size_t i : {size_t{1}, size_t{2}}) {
        const ValueId scores = m_.node(n).inputs[i];
        const auto fill = m_.Number(m_.node(n).inputs[3 - i]);
        if (!fill || m_.dims(scores) != m_.dims(v)) continue;
        m_.Take(n);
        v = scores;
        return Step{m_.node(n).inputs[0], true, i == 2, *fill};
      }
    }
    return std::nullopt;
  }
  bool LeadsToProduct(ValueId v) const {
    for (int depth = 0; depth < 4; ++depth) {
      if (m_.Def(v, "MatMul") != kNone) return true;
      NodeId n = kNone;
      size_t slot = 0;
      for (const char* op : {"Mul", "Div", "Add", "Where"}) {
        if (n == kNone) n = m_.Def(v, op);
      }
      if (n == kNone) return false;
      if (m_.Is(n, "Where") || m_.Number(m_.node(n).inputs[0]).has_value()) slot = 1;
      v = m_.node(n).inputs[slot];
    }
    return false;
  }

  // Numbers that v is multiplied with; `rest` becomes what is multiplied.
  void ReadScale(ValueId v, ValueId& rest) {
    for (int count = 0; count < 2 && m_.OnlyReader(v) != kNone; ++count) {
      const NodeId mul = m_.Def(v, "Mul"), div = m_.Def(v, "Div");
      if (mul == kNone && div == kNone) break;
      const auto scaled = m_.WithNumber(mul != kNone ? mul : div, mul != kNone);
      if (!scaled) break;
      m_.Take(mul != kNone ? mul : div);
      scale_ = mul != kNone ? scale_ * scaled->number : scale_ / scaled->number;
      v = scaled->rest;
    }
    rest = v;
  }

  // ---- the probabilities, from Softmax down to the product with v
  bool ReadProbabilities() {
    ValueId p = m_.out(m_.anchor());
    for (NodeId n = Filter(p); n != kNone; n = Filter(p)) p = m_.out(n);
    root_ = m_.OnlyReader(p);
    if (!m_.Is(root_, "MatMul") || m_.node(root_).inputs[0] != p) return false;
    v_ = m_.node(root_).inputs[1];
    return true;
  }

  // A node behind p that changes nothing there: a cast to its own type, Dropout with ratio 0, or 0
  // where p is NaN, which is what Attention gives for a query without keys.
  NodeId Filter(ValueId p) {
    if (const NodeId cast = m_.OnlyReader(p); IsNoCast(cast)) return m_.Take(cast), cast;
    const NodeId dropout = m_.OnlyReader(p);
    if (m_.Is(dropout, "Dropout")) {
      const ir::Node& n = m_.node(dropout);
      if (n.inputs.size() < 2 || !m_.IsNumber(n.inputs[1], 0) || n.inputs[0] != p) return kNone;
      m_.Take(dropout);
      return dropout;
    }
    const NodeId test = m_.ReaderOfTwo(p, "IsNaN"), where = m_.ReaderOfTwo(p, "Where");
    if (test == kNone || where == kNone || m_.node(where).inputs[0] != m_.out(test) ||
        !m_.IsNumber(m_.node(where).inputs[1], 0) || m_.node(where).inputs[2] != p)
      return kNone;
    m_.Take(test);
    m_.Take(where);
    return where;
  }

  // ---- shapes
  bool CheckShapes() const {
    const Dims &q = m_.dims(q_), &k = m_.dims(k_transposed_), &v = m_.dims(v_);
    const size_t r = q.size();
    if (r < 3 || r > 4 || k.size() != r || v.size() != r) return false;
    const DType t = m_.type(q_).dtype;
    if (!IsFloat(t) || m_.type(k_transposed_).dtype != t || m_.type(v_).dtype != t) return false;
    const auto batch = [r](const Dims& d) { return std::span(d).first(r - 2); };
    return std::ranges::equal(batch(q), batch(k)) && std::ranges::equal(batch(q), batch(v)) &&
           q[r - 1] == k[r - 2] && k[r - 1] == v[r - 2];
  }
  Sizes sizes() const {
    const Dims& s = m_.dims(scores_);
    return {s[s.size() - 2], s[s.size() - 1]};
  }

  // ---- masks
  // What one query sees of a constant mask, as a function of (query, key).
  struct Seen {
    const HostTensor* mask;
    Step step;
    Sizes n;

    bool operator()(int64_t t, int64_t s) const {
      const double at = mask->GetDouble(t * n.keys + s);
      return step.chosen ? (at != 0) != step.inverted : at == 0;
    }
    bool Excluded(int64_t t, int64_t s) const {
      return (step.chosen ? step.fill : mask->GetDouble(t * n.keys + s)) <= kExcluded;
    }
  };

  // A constant mask [queries, keys], which all heads share.
  std::optional<Seen> SharedMask(const Step& step) const {
    const HostTensor* mask = m_.Constant(step.mask);
    const Sizes n = sizes();
    if (mask == nullptr || mask->elements() != n.queries * n.keys || mask->dims.size() < 2 ||
        mask->dims[mask->dims.size() - 1] != n.keys ||
        mask->dims[mask->dims.size() - 2] != n.queries)
      return std::nullopt;
    return Seen{mask, step, n};
  }

  // Query t sees the keys up to t + offset, exactly; nothing for another mask.
  std::optional<int64_t> CausalOffset(const Step& step) const {
    const std::optional<Seen> seen = SharedMask(step);
    if (!seen || seen->n.queries == 0 || seen->n.keys == 0) return std::nullopt;
    int64_t first = 0;
    while (first < seen->n.keys && (*seen)(0, first)) ++first;
    if (first == 0) return std::nullopt;
    for (int64_t t = 0; t < seen->n.queries; ++t) {
      for (int64_t s = 0; s < seen->n.keys; ++s) {
        if (s < first + t ? !(*seen)(t, s) : (*seen)(t, s) || !seen->Excluded(t, s))
          return std::nullopt;
      }
    }
    return first - 1;
  }

  // A constant mask that leaves each query a key.
  bool EachSeesAKey(const Step& step) const {
    const std::optional<Seen> seen = SharedMask(step);
    if (!seen) return false;
    for (int64_t t = 0; t < seen->n.queries; ++t) {
      int64_t s = 0;
      while (s < seen->n.keys && !(*seen)(t, s)) ++s;
      if (s == seen->n.keys) return false;
    }
    return true;
  }

  bool ReadMask() {
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const std::optional<int64_t> offset = CausalOffset(step);
      if (!offset || (!IsInfinite(step) && steps_.size() > 1)) continue;
      causal_ = true;
      offset_ = *offset;
      steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    for (const Step& step : steps_) {
      const Dims& mask = m_.dims(step.mask);
      if (mask.size() > m_.dims(scores_).size()) return false;
      if (!step.chosen) continue;
      // Anything but -inf matters where a query sees no key.
      if (steps_.size() > 1 ||
          (step.fill != -INFINITY && (causal_ || step.fill > kExcluded || !EachSeesAKey(step))))
        return false;
    }
    return true;
  }
  // Keys that a causal mask excludes have -inf.
  bool IsInfinite(const Step& step) const {
    if (step.chosen) return step.fill == -INFINITY;
    const HostTensor* mask = m_.Constant(step.mask);
    for (int64_t i = 0; i < mask->elements(); ++i) {
      const double at = mask->GetDouble(i);
      if (at != 0 && at != -INFINITY) return false;
    }
    return true;
  }

  // ---- keys: what was transposed, if that is seen, else the transpose of the transposed
  void FindKeys() {
    ValueId v = k_transposed_;
    bool ours = true;
    const Dims& dims = m_.dims(v);
    const auto ends_alike = [&](ValueId w) {
      const Dims& d = m_.dims(w);
      return d.size() >= 2 && std::equal(d.end() - 2, d.end(), dims.end() - 2);
    };
    for (const char* op : {"Reshape", "Unsqueeze", "Squeeze"}) {
      const NodeId n = m_.Def(v, op);
      if (n == kNone || !ends_alike(m_.node(n).inputs[0])) continue;
      ours = TakeIf(ours, n);
      v = m_.node(n).inputs[0];
      break;
    }
    if (const NodeId n = m_.Def(v, "Transpose"); n != kNone) {
      perm_ = m_.node(n).attrs.Ints("perm");
      ours = TakeIf(ours, n);
      v = m_.node(n).inputs[0];
    }
    if (perm_.empty()) {
      for (size_t i = 0; i < m_.dims(v).size(); ++i) perm_.push_back(static_cast<int64_t>(i));
    }
    std::swap(perm_[perm_.size() - 2], perm_[perm_.size() - 1]);
    if (std::ranges::is_sorted(perm_)) {
      perm_.clear();
      // Two reshapes that undo each other.
      const NodeId n = m_.Def(v, "Reshape");
      if (n != kNone && m_.dims(m_.node(n).inputs[0]) == KeyDims()) {
        TakeIf(ours, n);
        v = m_.node(n).inputs[0];
      }
    }
    k_ = v;
  }
  Dims KeyDims() const {
    Dims d = m_.dims(k_transposed_);
    std::swap(d[d.size() - 2], d[d.size() - 1]);
    return d;
  }
  // What others read stays, with all that is before it: we need not have it.
  bool TakeIf(bool ours, NodeId n) {
    ours = ours && m_.OnlyReader(m_.out(n)) != kNone;
    if (ours) m_.Take(n);
    return ours;
  }

  // ---- the new node
  ValueId WithHeads(ir::Builder& b, ValueId v) const {
    if (b.failed() || v == kNone || m_.dims(v).size() != 3 || rank() != 3) return v;
    Dims d = m_.dims(v);
    d.insert(d.begin() + 1, 1);
    return b.Reshape(v, d);
  }

  ValueId Mask(ir::Builder& b) const {
    if (steps_.empty()) return kNone;
    ValueId mask = steps_[0].mask;
    if (steps_[0].inverted) mask = b.Op("Not", {mask});
    // Two masks that are added.
    if (steps_.size() > 1) mask = b.Add(mask, steps_[1].mask);
    return mask;
  }

  Status Build() {
    ir::Builder b = m_.Replacement(root_);
    const Dims result = m_.dims(m_.out(root_)), keys = KeyDims();
    ValueId k = perm_.empty() ? k_ : b.Transpose(k_, perm_);
    if (b.failed()) return b.TakeStatus();
    if (m_.dims(k) != keys) k = b.Reshape(k, keys);
    const ValueId q = WithHeads(b, q_), v = WithHeads(b, v_), mask = WithHeads(b, Mask(b));
    k = WithHeads(b, k);
    const Attrs attrs{
        {"scale", scale_}, {"softcap", 0.0}, {"causal", int64_t{causal_}}, {"offset", offset_}};
    ValueId y = mask == kNone ? b.Own("Attention", {q, k, v}, attrs)
                              : b.Own("Attention", {q, k, v, mask}, attrs);
    if (b.failed()) return b.TakeStatus();
    if (m_.dims(y) != result) y = b.Reshape(y, result);
    return m_.Replace(root_, y, b);
  }

  Match& m_;
  NodeId product_ = kNone, root_ = kNone;
  ValueId scores_ = kNone, q_ = kNone, k_transposed_ = kNone, k_ = kNone, v_ = kNone;
  std::vector<Step> steps_;    // from Softmax upwards
  std::vector<int64_t> perm_;  // k_ to the keys
  double scale_ = 1;
  bool causal_ = false;
  int64_t offset_ = 0;
};

}  // namespace

Status RecoverAttention(Match& m) { return AttentionPattern(m).Run(); }

}  // namespace ampc
