// SPDX-License-Identifier: Apache-2.0
// Activations that exporters write as single nodes: Gelu, Swish (SiLU), LogSoftmax.
//
//   0.5 * x * (1 + Erf(x / sqrt(2)))                                    -> Gelu
//   0.5 * x * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))           -> Gelu, approximate "tanh"
//   x * Sigmoid(alpha * x)                                              -> Swish
//   Log(Softmax(x))                                                     -> LogSoftmax
//
// The factors may stand in any order, and the argument of Tanh in any form that is this polynomial.
#include <array>
#include <cmath>
#include <numbers>

#include "passes/recover_match.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// ---- polynomials

using Polynomial = std::array<double, 4>;  // coefficients of 1, x, x^2, x^3

std::optional<Polynomial> Times(const Polynomial& a, const Polynomial& b) {
  Polynomial c{};
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j) {
      if (a[i] * b[j] == 0) continue;
      if (i + j >= c.size()) return std::nullopt;
      c[i + j] += a[i] * b[j];
    }
  }
  return c;
}

class PolynomialReader {
 public:
  PolynomialReader(Match& m, ValueId x) : m_(m), x_(x) {}

  /// v as a polynomial of x; takes the nodes between.
  std::optional<Polynomial> Read(ValueId v, int depth = 6) {
    if (v == x_) return Polynomial{0, 1};
    if (const auto number = m_.Number(v)) return Polynomial{*number};
    if (depth == 0) return std::nullopt;
    if (const NodeId n = m_.Def(v, "Mul"); n != kNone) {
      const auto a = Read(m_.node(n).inputs[0], depth - 1),
                 b = Read(m_.node(n).inputs[1], depth - 1);
      return a && b ? Taken(n, Times(*a, *b)) : std::nullopt;
    }
    if (const NodeId n = m_.Def(v, "Add"); n != kNone) {
      const auto a = Read(m_.node(n).inputs[0], depth - 1),
                 b = Read(m_.node(n).inputs[1], depth - 1);
      if (!a || !b) return std::nullopt;
      Polynomial sum{};
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = (*a)[i] + (*b)[i];
      return Taken(n, sum);
    }
    if (const NodeId n = m_.Def(v, "Div"); n != kNone) {
      const auto a = Read(m_.node(n).inputs[0], depth - 1);
      const auto number = m_.Number(m_.node(n).inputs[1]);
      if (!a || !number || *number == 0) return std::nullopt;
      return Taken(n, Times(*a, Polynomial{1 / *number}));
    }
    if (const NodeId n = m_.Def(v, "Pow"); n != kNone) {
      const auto a = Read(m_.node(n).inputs[0], depth - 1);
      if (!a) return std::nullopt;
      if (m_.IsNumber(m_.node(n).inputs[1], 2)) return Taken(n, Times(*a, *a));
      if (!m_.IsNumber(m_.node(n).inputs[1], 3)) return std::nullopt;
      const auto square = Times(*a, *a);
      return square ? Taken(n, Times(*square, *a)) : std::nullopt;
    }
    return std::nullopt;
  }

 private:
  std::optional<Polynomial> Taken(NodeId n, std::optional<Polynomial> p) {
    m_.Take(n);
    return p;
  }

  Match& m_;
  ValueId x_;
};

bool IsPolynomial(Match& m, ValueId v, ValueId x, const Polynomial& expected) {
  const auto p = PolynomialReader(m, x).Read(v);
  if (!p) return false;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!IsNumber((*p)[i], expected[i])) return false;
  }
  return true;
}

// ---- products

struct Product {
  double number = 1;
  std::vector<ValueId> factors;
};

// The factors of a product of products; takes the nodes. A value that others read is a factor.
void ReadFactors(Match& m, ValueId v, bool root, Product& product, int depth = 4) {
  if (const auto number = m.Number(v)) {
    product.number *= *number;
    return;
  }
  const bool open = depth > 0 && (root || m.OnlyReader(v) != kNone);
  const NodeId mul = open ? m.Def(v, "Mul") : kNone, div = open ? m.Def(v, "Div") : kNone;
  const auto number = div == kNone ? std::nullopt : m.Number(m.node(div).inputs[1]);
  if (mul != kNone) {
    m.Take(mul);
    for (const ValueId factor : m.node(mul).inputs)
      ReadFactors(m, factor, false, product, depth - 1);
  } else if (number.has_value()) {
    m.Take(div);
    product.number /= *number;
    ReadFactors(m, m.node(div).inputs[0], false, product, depth - 1);
  } else {
    product.factors.push_back(v);
  }
}

// ---- Gelu

// 0.5 * x * (1 + f(polynomial of x)), f at the anchor.
Status RecoverGeluOf(Match& m, const Polynomial& argument, std::string_view approximate) {
  const NodeId plus = m.OnlyReader(m.out(m.anchor()));
  if (!m.Is(plus, "Add") || !m.IsNumber(m.Other(plus, m.out(m.anchor())), 1)) return {};
  m.Take(m.anchor());
  m.Take(plus);
  const size_t inner = m.taken();
  NodeId root = m.OnlyReader(m.out(plus));
  for (int climbed = 0; climbed < 3 && (m.Is(root, "Mul") || m.Is(root, "Div")); ++climbed) {
    m.Rewind(inner);
    Product product;
    ReadFactors(m, m.out(root), true, product);
    std::erase(product.factors, m.out(plus));
    if (product.factors.size() == 1 && IsNumber(product.number, 0.5) &&
        m.type(product.factors[0]) == m.type(m.out(root))) {
      const ValueId x = product.factors[0];
      if (!IsPolynomial(m, m.node(m.anchor()).inputs[0], x, argument) || !m.Closed(root)) return {};
      ir::Builder b = m.Replacement(root);
      const ValueId y = b.Op("Gelu", {x}, {{"approximate", std::string(approximate)}});
      return m.Replace(root, y, b);
    }
    root = m.OnlyReader(m.out(root));
  }
  return {};
}

}  // namespace

Status RecoverGelu(Match& m) { return RecoverGeluOf(m, {0, 1 / std::numbers::sqrt2}, "none"); }

Status RecoverTanhGelu(Match& m) {
  const double slope = std::sqrt(2 / std::numbers::pi);
  return RecoverGeluOf(m, {0, slope, 0, 0.044715 * slope}, "tanh");
}

Status RecoverSwish(Match& m) {
  const ValueId argument = m.node(m.anchor()).inputs[0], sigmoid = m.out(m.anchor());
  const NodeId root = m.OnlyReader(sigmoid);
  if (!m.Is(root, "Mul")) return {};
  const ValueId x = m.Other(root, sigmoid);
  if (x == kNone || m.type(x) != m.type(m.out(root))) return {};
  double alpha = 1;
  if (argument != x) {
    const NodeId scale = m.Def(argument, "Mul");
    const auto scaled = scale == kNone ? std::nullopt : m.WithNumber(scale, true);
    if (!scaled || scaled->rest != x) return {};
    alpha = scaled->number;
    m.Take(scale);
  }
  m.Take(m.anchor());
  m.Take(root);
  if (!m.Closed(root)) return {};
  ir::Builder b = m.Replacement(root);
  const ValueId y = b.Own("Swish", {x}, {{"alpha", alpha}});
  return m.Replace(root, y, b);
}

Status RecoverLogSoftmax(Match& m) {
  const NodeId root = m.anchor(), softmax = m.Def(m.node(root).inputs[0], "Softmax");
  if (softmax == kNone) return {};
  m.Take(root);
  m.Take(softmax);
  if (!m.Closed(root)) return {};
  ir::Builder b = m.Replacement(root);
  const ValueId y = b.Op("LogSoftmax", {m.node(softmax).inputs[0]}, m.node(softmax).attrs);
  return m.Replace(root, y, b);
}

}  // namespace ampc
