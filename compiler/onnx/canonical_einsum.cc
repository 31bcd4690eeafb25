// SPDX-License-Identifier: Apache-2.0
// Einsum as Transpose, Reshape, Slice, ReduceSum, Mul and MatMul, so that gradients and casts are
// those of these ops.
//
// Operands are contracted from left to right. A label that no later operand and no output has is
// summed where its last operand comes in: by ReduceSum when one side alone has it, else by the
// product. A pair that shares no such label is a broadcast Mul, as in PyTorch.
#include <algorithm>
#include <map>
#include <numeric>

#include "compiler/onnx/canonical.h"

namespace ampc {
namespace {

using ir::ValueId;

// 'a' is itself; an axis of the ellipsis is -1 (the last), -2, …
using Label = int;
using Labels = std::vector<Label>;

struct Term {
  ValueId value = ir::kNone;
  Labels labels;

  bool Has(Label l) const { return std::find(labels.begin(), labels.end(), l) != labels.end(); }
  int64_t AxisOf(Label l) const {
    return std::find(labels.begin(), labels.end(), l) - labels.begin();
  }
};

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The labels of one subscript; `ellipsis`: how many axes its "..." stands for.
Result<Labels> ReadSubscript(std::string_view text, size_t ellipsis) {
  Labels labels;
  bool seen = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsLetter(text[i])) {
      labels.push_back(text[i]);
    } else if (text.substr(i, 3) == "..." && !seen) {
      for (size_t k = ellipsis; k > 0; --k) labels.push_back(-static_cast<Label>(k));
      seen = true;
      i += 2;
    } else {
      return BadInput("E0107", "'{}': letters and one '...' are expected in a subscript", text);
    }
  }
  return labels;
}

struct Equation {
  std::vector<std::string> inputs;
  std::string output;
  bool is_explicit = false;
};

Equation SplitEquation(std::string_view given) {
  std::string text;
  for (const char c : given) {
    if (c != ' ') text += c;
  }
  Equation e;
  const size_t arrow = text.find("->");
  e.is_explicit = arrow != std::string::npos;
  if (e.is_explicit) e.output = text.substr(arrow + 2);
  const std::string left = text.substr(0, arrow);
  for (size_t at = 0; at <= left.size();) {
    const size_t comma = std::min(left.find(',', at), left.size());
    e.inputs.push_back(left.substr(at, comma - at));
    at = comma + 1;
  }
  return e;
}

class Contraction {
 public:
  Contraction(CanonicalContext& c, const SourceNode& n) : c_(c), n_(n) {}

  Status Run(ValueId* result) {
    AMPC_TRY(Read());
    Term acc;
    for (size_t i = 0; i < terms_.size(); ++i) {
      Diagonals(terms_[i]);
      if (i == 0) {
        acc = terms_[i];
      } else {
        SumUnshared(acc, terms_[i], i + 1);
        SumUnshared(terms_[i], acc, i + 1);
        acc = Pair(acc, terms_[i], i + 1);
      }
    }
    SumUnshared(acc, Term{}, terms_.size());
    Arrange(acc, output_);
    *result = acc.value;
    return c_.b.TakeStatus();
  }

 private:
  // None behind a failure, which the builder keeps.
  Dims DimsOf(ValueId v) const { return v == ir::kNone ? Dims{} : c_.graph.type(v).dims; }
  int64_t Size(const Term& t, Label l) const {
    const Dims dims = DimsOf(t.value);
    const auto axis = static_cast<size_t>(t.AxisOf(l));
    return axis < dims.size() ? dims[axis] : 1;
  }

  Status Read() {
    const Equation e = SplitEquation(n_.attrs.String("equation"));
    if (e.inputs.size() != n_.inputs.size()) {
      return BadInput("E0107", "the equation '{}' has {} operands, the node {}",
                      n_.attrs.String("equation"), e.inputs.size(), n_.inputs.size());
    }
    for (size_t i = 0; i < e.inputs.size(); ++i) AMPC_TRY(ReadOperand(i, e.inputs[i]));
    if (e.is_explicit) {
      AMPC_ASSIGN(output_, ReadSubscript(e.output, ellipsis_));
    } else {
      for (size_t k = ellipsis_; k > 0; --k) output_.push_back(-static_cast<Label>(k));
      for (const auto& [label, count] : count_) {
        if (label > 0 && count == 1) output_.push_back(label);
      }
    }
    Labels once = output_;
    std::sort(once.begin(), once.end());
    if (std::adjacent_find(once.begin(), once.end()) != once.end())
      return BadInput("E0107", "a label stands twice in the output '{}'", e.output);
    for (const Label l : output_) {
      if (!count_.contains(l))
        return BadInput("E0107", "the output label '{}' is in no operand", static_cast<char>(l));
    }
    return {};
  }

  Status ReadOperand(size_t i, const std::string& subscript) {
    const Dims dims = c_.type(n_, i).dims;
    const auto letters =
        static_cast<size_t>(std::count_if(subscript.begin(), subscript.end(), IsLetter));
    const bool dots = subscript.find("...") != std::string::npos;
    const size_t ellipsis = dots && dims.size() > letters ? dims.size() - letters : 0;
    AMPC_ASSIGN(const Labels labels, ReadSubscript(subscript, ellipsis));
    if (labels.size() != dims.size()) {
      return BadInput("E0107", "subscript '{}' of operand {} does not fit its dims {}", subscript,
                      i, ToString(dims));
    }
    ellipsis_ = std::max(ellipsis_, ellipsis);
    std::map<Label, int64_t> own;
    for (size_t k = 0; k < labels.size(); ++k) {
      ++count_[labels[k]];
      int64_t& size = sizes_.emplace(labels[k], dims[k]).first->second;
      if (size == 1) size = dims[k];
      const bool repeated = !own.emplace(labels[k], dims[k]).second;
      if ((dims[k] != 1 && dims[k] != size) || (repeated && own[labels[k]] != dims[k])) {
        return BadInput("E0107", "label '{}' has size {}, but {} in operand {}",
                        labels[k] > 0 ? std::string(1, static_cast<char>(labels[k])) : "...", size,
                        dims[k], i);
      }
    }
    terms_.push_back({n_.inputs[i], labels});
    return {};
  }

  void Transpose(Term& t, const Labels& order) {
    if (order == t.labels) return;
    std::vector<int64_t> perm;
    for (const Label l : order) perm.push_back(t.AxisOf(l));
    t.value = c_.b.Transpose(t.value, std::move(perm));
    t.labels = order;
  }

  // Axes with one label become one: [n, n] flattened, every n+1st element.
  void Diagonals(Term& t) {
    const Dims dims = DimsOf(t.value);
    if (dims.size() != t.labels.size()) return;
    for (size_t i = 0; i < t.labels.size(); ++i) {
      for (size_t j = i + 1; j < t.labels.size(); ++j) {
        if (t.labels[j] != t.labels[i]) continue;
        std::vector<int64_t> perm;
        Labels rest;
        for (size_t k = 0; k < t.labels.size(); ++k) {
          if (k == i || k == j) continue;
          perm.push_back(static_cast<int64_t>(k));
          rest.push_back(t.labels[k]);
        }
        const Label label = t.labels[i];
        perm.insert(perm.end(), {static_cast<int64_t>(i), static_cast<int64_t>(j)});
        Dims flat;
        for (size_t k = 0; k + 2 < perm.size(); ++k)
          flat.push_back(dims[static_cast<size_t>(perm[k])]);
        const int64_t n = dims[i];
        flat.push_back(n * n);
        const ValueId square = c_.b.Reshape(c_.b.Transpose(t.value, perm), flat);
        t.value = c_.b.Op("Slice", {square, c_.b.Ints({0}), c_.b.Ints({n * n}), c_.b.Ints({-1}),
                                    c_.b.Ints({n + 1})});
        rest.push_back(label);
        t.labels = rest;
        if (c_.b.failed()) return;
        return Diagonals(t);
      }
    }
  }

  // Something behind operand `next - 1` has the label.
  bool Needed(Label l, size_t next) const {
    if (std::find(output_.begin(), output_.end(), l) != output_.end()) return true;
    return std::any_of(terms_.begin() + static_cast<std::ptrdiff_t>(next), terms_.end(),
                       [l](const Term& t) { return t.Has(l); });
  }

  void Sum(Term& t, const Labels& labels, bool keep) {
    if (labels.empty()) return;
    std::vector<int64_t> axes;
    for (const Label l : labels) axes.push_back(t.AxisOf(l));
    t.value =
        c_.b.Op("ReduceSum", {t.value, c_.b.Ints(axes)}, {{"keepdims", int64_t{keep ? 1 : 0}}});
    if (!keep) std::erase_if(t.labels, [&](Label l) { return Contains(labels, l); });
  }
  static bool Contains(const Labels& labels, Label l) {
    return std::find(labels.begin(), labels.end(), l) != labels.end();
  }

  void SumUnshared(Term& t, const Term& other, size_t next) {
    Labels gone;
    for (const Label l : t.labels) {
      if (!other.Has(l) && !Needed(l, next)) gone.push_back(l);
    }
    Sum(t, gone, false);
  }

  Term Pair(Term a, Term b, size_t next) {
    Labels batch, left, right, summed;
    for (const Label l : a.labels) {
      (!b.Has(l) ? left : Needed(l, next) ? batch : summed).push_back(l);
    }
    for (const Label l : b.labels) {
      if (!a.Has(l)) right.push_back(l);
    }
    const bool product = !summed.empty() && IsFloat(c_.type(n_, 0).dtype);
    return product ? Product(a, b, batch, left, right, summed)
                   : Elementwise(a, b, batch, left, right, summed);
  }

  // Dims of t's axes `labels`; with `one`, multiplied into one axis.
  void Append(const Term& t, const Labels& labels, bool one, Dims& dims) const {
    int64_t size = 1;
    for (const Label l : labels) {
      size *= Size(t, l);
      if (!one) dims.push_back(Size(t, l));
    }
    if (one) dims.push_back(size);
  }

  static Labels Joined(std::initializer_list<const Labels*> parts) {
    Labels all;
    for (const Labels* p : parts) all.insert(all.end(), p->begin(), p->end());
    return all;
  }

  Term Product(Term a, Term b, const Labels& batch, const Labels& left, const Labels& right,
               const Labels& summed) {
    for (const Label l : summed) {  // a size of 1 against n: n equal terms
      if (Size(a, l) != Size(b, l)) Sum(Size(a, l) == 1 ? b : a, {l}, true);
    }
    Transpose(a, Joined({&batch, &left, &summed}));
    Transpose(b, Joined({&batch, &summed, &right}));
    Dims a_dims, b_dims, y_dims;
    Append(a, batch, false, a_dims);
    Append(a, left, true, a_dims);
    Append(a, summed, true, a_dims);
    Append(b, batch, false, b_dims);
    Append(b, summed, true, b_dims);
    Append(b, right, true, b_dims);
    for (const Label l : batch) y_dims.push_back(std::max(Size(a, l), Size(b, l)));
    Append(a, left, false, y_dims);
    Append(b, right, false, y_dims);
    const ValueId y =
        c_.b.Op("MatMul", {c_.b.Reshape(a.value, a_dims), c_.b.Reshape(b.value, b_dims)});
    return {c_.b.Reshape(y, y_dims), Joined({&batch, &left, &right})};
  }

  Term Elementwise(Term a, Term b, const Labels& batch, const Labels& left, const Labels& right,
                   const Labels& summed) {
    Transpose(a, Joined({&batch, &summed, &left}));
    Transpose(b, Joined({&batch, &summed, &right}));
    Dims a_dims = DimsOf(a.value), b_dims;
    a_dims.resize(a_dims.size() + right.size(), 1);
    Append(b, batch, false, b_dims);
    Append(b, summed, false, b_dims);
    b_dims.resize(b_dims.size() + left.size(), 1);
    Append(b, right, false, b_dims);
    Term y{c_.b.Mul(c_.b.Reshape(a.value, a_dims), c_.b.Reshape(b.value, b_dims)),
           Joined({&batch, &summed, &left, &right})};
    Sum(y, summed, false);
    return y;
  }

  void Arrange(Term& t, const Labels& order) { Transpose(t, order); }

  CanonicalContext& c_;
  const SourceNode& n_;
  std::vector<Term> terms_;
  Labels output_;
  size_t ellipsis_ = 0;
  std::map<Label, int> count_;
  std::map<Label, int64_t> sizes_;
};

Status Einsum(CanonicalContext& c, SourceNode& n) {
  ValueId y = ir::kNone;
  AMPC_TRY(Contraction(c, n).Run(&y));
  n.Replace(y);
  return {};
}

constexpr CanonicalRow kRules[] = {{"Einsum", Einsum, true}};

}  // namespace

std::span<const CanonicalRow> EinsumRules() { return kRules; }

}  // namespace ampc
