// SPDX-License-Identifier: Apache-2.0
// The samples table. A row is {op, operands, attributes, …}; the functions below write operands:
//
//   F(dims)            float of the type under test, differentiated; |v| in [0.2, 1.7]
//   P(dims), U(dims, low, high)   the same, positive, or in a range
//   V(dims, values)    the same with explicit values
//   A(dims)            float32 (float64 when that is under test): statistics, scales
//   I(values), IS(value)   int64 constant: shapes, axes    Ix(dims, values, dtype)  indices,
//   labels: a feed Same(slot)         the value of an earlier slot        None()  left out
//
// Behind the attributes: outputs, outputs that enter the loss (~0u: all), terms.
// clang-format off
#include "test/conformance/samples.h"

#include <limits>

namespace ampc::conformance {
namespace {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;
using Table = std::vector<Sample>;

Arg F(Dims dims) { return {.dims = std::move(dims), .differentiate = true}; }
Arg P(Dims dims) { return {.dims = std::move(dims), .both_signs = false, .differentiate = true}; }
Arg U(Dims dims, double low, double high) {
  return {.dims = std::move(dims), .low = low, .high = high, .both_signs = false, .differentiate = true};
}
Arg V(Dims dims, Doubles values) { return {.dims = std::move(dims), .values = std::move(values), .differentiate = true}; }
Arg A(Dims dims) { return {.kind = Arg::Kind::kAcc, .dims = std::move(dims), .differentiate = true}; }
Arg AP(Dims dims) { return {.kind = Arg::Kind::kAcc, .dims = std::move(dims), .both_signs = false, .differentiate = true}; }
Arg AV(Dims dims, Doubles values) { return {.kind = Arg::Kind::kAcc, .dims = std::move(dims), .values = std::move(values)}; }
Arg AS(double value) { return AV({}, {value}); }  // scalar of an optimizer
Arg Ix(Dims dims, Doubles values, DType dtype = DType::kInt64) {
  return {.kind = Arg::Kind::kFixed, .dtype = dtype, .dims = std::move(dims), .values = std::move(values)};
}
Arg B(Dims dims, Doubles values) { return Ix(std::move(dims), std::move(values), DType::kBool); }
Arg I(Doubles values) {
  const auto n = static_cast<int64_t>(values.size());
  return Ix({n}, std::move(values)).Constant();
}
Arg IS(double value) { return Ix({}, {value}).Constant(); }
Arg Same(size_t slot) { return {.kind = Arg::Kind::kSame, .same = slot}; }
Arg None() { return {.kind = Arg::Kind::kLeftOut}; }
constexpr int64_t kBf16 = static_cast<int64_t>(DType::kBFloat16), kF16 = static_cast<int64_t>(DType::kFloat16), kF32 = 1, kF64 = 11,
                  kI64 = 7, kI32 = 6, kBoolType = 9;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

void Join(Table& table, Table more) { table.insert(table.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end())); }

// ---- elementwise -----------------------------------------------------------------------------------------------------

Table Binary(const std::string& op) {
  return {{op, {F({2, 3}), F({2, 3})}},
          {op, {F({2, 1, 3, 1}), F({4, 1, 2})}},
          {op, {F({2, 3}), F({})}},
          {op, {F({1}), F({2, 2})}},
          {op, {F({3, 1, 1}), F({2, 3, 2, 2})}},
          {op, {F({2, 3}), Same(0)}},
          {op, {F({2, 0, 3}), F({3})}}};
}

Table Variadic(const std::string& op) {
  return {{op, {F({2, 3})}},
          {op, {F({2, 3}), F({2, 3})}},
          {op, {F({2, 1, 3}), F({4, 1}), F({})}},
          {op, {F({2, 2}), F({2}), Same(0), F({1, 2})}}};
}

// Over one range, in rank 1, 4 and 0.
Table Unary(const std::string& op, double low, double high, bool both_signs = true, Attrs attrs = {}, Doubles avoid = {}, double terms = 1) {
  Table table;
  for (const Dims& dims : {Dims{7}, Dims{2, 3, 2, 2}, Dims{}}) {
    table.push_back({op, {{.dims = dims, .low = low, .high = high, .both_signs = both_signs, .avoid = avoid, .differentiate = true}}, attrs, 1, ~0u, terms});
  }
  return table;
}

Table Comparison(const std::string& op) {
  return {{op, {V({2, 3}, {1, 2, 3, -1, 0, 2}).NoGrad(), V({3}, {1, 0, 3}).NoGrad()}},
          {op, {F({2, 1, 3}), F({2, 1})}},
          {op, {Ix({2, 2}, {1, -2, 3, 4}), Ix({2}, {1, 4})}},
          {op, {Ix({3}, {7, 0, 3}, DType::kInt32), Ix({3}, {1, 0, 4}, DType::kInt32)}}};
}

Table Arithmetic() {
  Table t;
  for (const char* op : {"Add", "Sub", "Mul", "Div"}) Join(t, Binary(op));
  for (const char* op : {"Add", "Sub", "Mul", "Div"}) t.push_back({op, {Ix({2, 2}, {7, -7, 9, 5}), Ix({2}, {2, -3})}});
  for (const char* op : {"Sum", "Mean", "Min", "Max"}) Join(t, Variadic(op));
  Join(t, {
      {"Pow", {P({2, 3}), F({2, 3})}},
      {"Pow", {P({2, 1, 3}), F({4, 1})}},
      {"Pow", {F({2, 3}), V({}, {2}).Constant()}},
      {"Pow", {F({2, 3}), V({1}, {3}).Constant()}},
      {"Pow", {P({4}), V({}, {0.5}).Constant()}},
      {"Pow", {F({4}), V({}, {0}).Constant()}},
      {"Pow", {F({2, 2}), Ix({2}, {2, 3})}},
      {"Mod", {U({2, 3}, 1, 8).Avoiding({1.5, 3, 4.5, 6, 7.5}), V({}, {1.5}).Constant()}, {{"fmod", int64_t{1}}}},
      {"Mod", {V({6}, {5.3, -5.3, 5.3, -5.3, 0.5, -0.5}), V({6}, {3, 3, -3, -3, 2, 2})}, {{"fmod", int64_t{1}}}},
      {"Mod", {Ix({6}, {5, -5, 5, -5, 4, 0}), Ix({6}, {3, 3, -3, -3, 2, 7})}},
      {"Mod", {Ix({6}, {5, -5, 5, -5, 4, 0}), Ix({6}, {3, 3, -3, -3, 2, 7})}, {{"fmod", int64_t{1}}}},
  });
  return t;
}

Table UnaryOps() {
  Table t;
  for (const char* op : {"Neg", "Abs", "Sign", "Reciprocal", "Exp", "Erf", "Sin", "Cos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Relu",
                         "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "Softplus", "Softsign", "Mish", "Gelu"}) {
    Join(t, Unary(op, 0.2, 1.7));
  }
  for (const char* op : {"Floor", "Ceil", "Round"}) Join(t, Unary(op, 0.1, 3.2, true, {}, {0.5, 1, 1.5, 2, 2.5, 3}));
  for (const char* op : {"Sigmoid", "Tanh", "Softplus", "Gelu", "Erf", "Elu"}) Join(t, Unary(op, 3, 9));
  Join(t, Unary("Mish", 3, 9, true, {}, {}, 16));  // its gradient takes 1 - tanh^2 close to 1
  for (const char* op : {"Sqrt", "Log"}) Join(t, Unary(op, 0.1, 9, false));
  for (const char* op : {"Asin", "Acos", "Atanh"}) Join(t, Unary(op, 0.05, 0.9));
  Join(t, Unary("Tan", 0.1, 1.3));
  Join(t, Unary("Acosh", 1.2, 4, false));
  Join(t, Unary("LeakyRelu", 0.2, 2, true, {{"alpha", 0.3}}));
  Join(t, Unary("ThresholdedRelu", 0.1, 2, true, {}, {1}));
  Join(t, Unary("ThresholdedRelu", 0.1, 2, true, {{"alpha", 0.7}}, {0.7}));
  Join(t, Unary("Elu", 0.2, 2, true, {{"alpha", 1.4}}));
  Join(t, Unary("Selu", 0.2, 2, true, {{"alpha", 1.2}, {"gamma", 1.1}}));
  Join(t, Unary("Celu", 0.2, 2, true, {{"alpha", 0.6}}));
  Join(t, Unary("HardSigmoid", 0.1, 4, true, {}, {-2.5, 2.5}));
  Join(t, Unary("HardSigmoid", 0.1, 2, true, {{"alpha", 0.5}, {"beta", 0.4}}, {-0.8, 1.2}));
  Join(t, Unary("HardSwish", 0.1, 5, true, {}, {-3, 3}));
  Join(t, Unary("Gelu", 0.2, 3, true, {{"approximate", std::string("tanh")}}));
  Join(t, {
      {"Neg", {Ix({3}, {1, -2, 0})}}, {"Abs", {Ix({3}, {1, -2, 0}, DType::kInt32)}}, {"Sign", {Ix({3}, {5, -2, 0})}},
      {"Clip", {F({2, 3})}},
      {"Clip", {F({2, 9}).Avoiding({-0.5, 0.7}), V({}, {-0.5}).Constant(), V({}, {0.7}).Constant()}},
      {"Clip", {F({2, 9}).Avoiding({0.7}), None(), V({}, {0.7}).Constant()}},
      {"Clip", {F({2, 9}).Avoiding({-0.5}), V({}, {-0.5}).NoGrad()}},
      {"Clip", {Ix({4}, {1, 9, -3, 4}), IS(0), IS(5)}},
      {"PRelu", {F({2, 3, 2, 2}), F({3, 1, 1})}}, {"PRelu", {F({2, 3}), F({3})}}, {"PRelu", {F({4}), F({})}}, {"PRelu", {F({2, 3}), F({2, 3})}},
  });
  return t;
}

Table LogicOps() {
  Table t;
  for (const char* op : {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"}) Join(t, Comparison(op));
  t.push_back({"Equal", {B({4}, {0, 0, 1, 1}), B({4}, {0, 1, 0, 1})}});
  for (const char* op : {"And", "Or", "Xor"}) {
    t.push_back({op, {B({4}, {0, 0, 1, 1}), B({4}, {0, 1, 0, 1})}});
    t.push_back({op, {B({2, 1, 2}, {0, 1, 1, 0}), B({3, 1}, {1, 0, 1})}});
  }
  for (const DType type : {DType::kInt8, DType::kUInt16, DType::kInt32, DType::kInt64, DType::kUInt64}) {
    const bool is_signed = type == DType::kInt8 || type == DType::kInt32 || type == DType::kInt64;
    const Arg a = Ix({2, 3}, {1, is_signed ? -2.0 : 2.0, 100, 77, 0, 5}, type), b = Ix({3}, {3, 6, is_signed ? -128.0 : 128.0}, type);
    for (const char* op : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"}) t.push_back({op, {a, b}});
    t.push_back({"BitwiseNot", {a}});
  }
  for (const DType type : {DType::kUInt8, DType::kUInt32, DType::kUInt64}) {
    for (const char* direction : {"LEFT", "RIGHT"}) t.push_back({"BitShift", {Ix({2, 3}, {1, 200, 77, 255, 0, 5}, type), Ix({3}, {1, 3, 7}, type)}, {{"direction", std::string(direction)}}});
  }
  Join(t, {
      {"Not", {B({4}, {0, 1, 1, 0})}},
      {"IsNaN", {V({4}, {1, kNan, kInf, -kInf}).NoGrad()}},
      {"IsInf", {V({4}, {1, kNan, kInf, -kInf}).NoGrad()}},
      {"IsInf", {V({4}, {1, kNan, kInf, -kInf}).NoGrad()}, {{"detect_negative", int64_t{0}}}},
      {"IsInf", {V({4}, {1, kNan, kInf, -kInf}).NoGrad()}, {{"detect_positive", int64_t{0}}}},
      {"IsInf", {V({4}, {1, kNan, kInf, -kInf}).NoGrad()}, {{"detect_positive", int64_t{0}}, {"detect_negative", int64_t{0}}}},
      {"Where", {B({2, 3}, {1, 0, 1, 0, 0, 1}), F({2, 3}), F({2, 3})}},
      {"Where", {B({2, 1, 3}, {1, 0, 1, 0, 0, 1}), F({4, 1}), F({})}},
      {"Where", {B({2}, {1, 0}), F({2, 2}), Same(1)}},
      {"Where", {B({3}, {1, 0, 1}), Ix({3}, {1, 2, 3}), Ix({}, {9})}},
  });
  return t;
}

Table CastOps() {
  Table t = {{"Cast", {F({2, 3})}, {{"to", kF64}}}, {"Cast", {F({2, 3})}, {{"to", kToTested}}}};
  for (const int64_t to : {kF32, kF16, kBf16}) t.push_back({"Cast", {V({6}, {0.1, -1.3, 65519, 65521, 1e-7, -0.0}).NoGrad()}, {{"to", to}}});
  for (const int64_t to : {kI64, kI32, kBoolType}) t.push_back({"Cast", {V({5}, {1.75, -1.75, 0, 0.5, 100}).NoGrad()}, {{"to", to}}});
  for (const int64_t to : {kToTested, kF32, kI32, kBoolType}) t.push_back({"Cast", {Ix({4}, {0, 1, -5, 250})}, {{"to", to}}});
  t.push_back({"Cast", {B({3}, {0, 1, 1})}, {{"to", kToTested}}});
  return t;
}

Table OwnElementwise() {
  return {
      {"ai.ampc.Map", {F({2, 3}).NoGrad(), F({3}).NoGrad()}, {{"expr", std::string("x0 * x1 + $c")}, {"c", 0.5}, {"to", Ints{kToTested}}}},
      {"ai.ampc.Map", {F({2, 3}).NoGrad(), F({2, 1}).NoGrad()}, {{"expr", std::string("a = x0 / x1; y0 = where(a > 0, a, -1); y1 = isnan(a) || a < 0.5")}, {"to", Ints{kToAcc, kBoolType}}}, 2},
      {"ai.ampc.Map", {F({7}).NoGrad()}, {{"expr", std::string("log1p(abs(x0)) + expm1(x0) + pow(abs(x0), 1.5) + min(x0, 0.5) + max(x0, -0.5)")}, {"to", Ints{kToTested}}}},
      {"ai.ampc.Map", {F({7}).NoGrad()}, {{"expr", std::string("mod(x0, 0.4) + fmod(x0, 0.3) + floor(x0) + ceil(x0) + round(x0) + sign(x0)")}, {"to", Ints{kToTested}}}},
      {"ai.ampc.Map", {F({7}).NoGrad()}, {{"expr", std::string("where(x0 > 0 && !(x0 == 1), fp16(x0), bf16(x0)) + (x0 != x0) + fp32(x0)")}, {"to", Ints{kToAcc}}}},
      {"ai.ampc.Map", {Ix({4}, {1, 5, -7, 9}), Ix({}, {4})}, {{"expr", std::string("y0 = mod(x0, x1); y1 = where(x0 > x1 || x0 == 1, x0 + x1, 0 - x0)")}, {"to", Ints{kI64, kI32}}}, 2},
      {"ai.ampc.Map", {V({4}, {1, -1, 0, 2}).NoGrad()}, {{"expr", std::string("where(x0 == 0, nan, where(x0 < 0, -inf, where(x0 > 1, inf, x0)))")}, {"to", Ints{kToTested}}}},
      {"ai.ampc.SquaredError", {F({2, 3}), F({2, 3})}}, {"ai.ampc.SquaredError", {F({2, 3, 2}), F({3, 1})}}, {"ai.ampc.SquaredError", {F({4}), Same(0)}},
      {"ai.ampc.AbsoluteError", {F({2, 3}), F({2, 3})}}, {"ai.ampc.AbsoluteError", {V({3}, {1, 2, 3}).NoGrad(), V({3}, {1, 3, 2}).NoGrad()}},
      {"ai.ampc.SmoothL1", {F({3, 5}), F({3, 5})}, {{"beta", 1.0}}}, {"ai.ampc.SmoothL1", {F({2, 3}), F({2, 3})}, {{"beta", 0.0}}}, {"ai.ampc.SmoothL1", {F({2, 7}), F({2, 7})}, {{"beta", 0.7}}},
      {"ai.ampc.Huber", {F({3, 5}), F({3, 5})}, {{"delta", 1.0}}}, {"ai.ampc.Huber", {F({2, 7}), F({2, 7})}, {{"delta", 0.6}}},
      {"ai.ampc.KlDivergence", {U({2, 4}, -3, -0.2), U({2, 4}, 0.1, 0.9)}}, {"ai.ampc.KlDivergence", {U({3}, -3, -0.2), V({3}, {0, 1, 0.5}).NoGrad()}},
      {"ai.ampc.BceWithLogits", {F({2, 3}), U({2, 3}, 0, 1), V({}, {1}).Constant()}},
      {"ai.ampc.BceWithLogits", {U({2, 3}, -9, 9), V({2, 3}, {0, 1, 1, 0, 1, 0}).NoGrad(), U({3}, 0.5, 3).NoGrad()}, {}, 1, ~0u, 4},
  };
}

// ---- matrix products, convolutions, pools ------------------------------------------------------------------------------

Table Matmuls() {
  Table t = {
      {"MatMul", {F({2, 3}), F({3, 4})}}, {"MatMul", {F({5}), F({5})}}, {"MatMul", {F({3}), F({3, 2})}}, {"MatMul", {F({2, 3}), F({3})}},
      {"MatMul", {F({2, 3, 4}), F({4, 2})}}, {"MatMul", {F({3, 4}), F({2, 4, 2})}}, {"MatMul", {F({2, 1, 3, 4}), F({3, 4, 2})}},
      {"MatMul", {F({2, 2, 3}), F({2, 3, 2})}}, {"MatMul", {F({4}), F({2, 4, 3})}}, {"MatMul", {F({2, 3, 4}), F({4})}},
      {"MatMul", {F({3, 3}), Same(0)}}, {"MatMul", {F({2, 3, 3}), Same(0)}}, {"MatMul", {F({1, 2, 3}), F({4, 3, 2})}}, {"MatMul", {F({2, 0}), F({0, 3})}},
      {"ai.ampc.MatMulEx", {F({3, 2}).NoGrad(), F({4, 3}).NoGrad()}, {{"trans_a", int64_t{1}}, {"trans_b", int64_t{1}}, {"alpha", 0.5}, {"to", kToTested}}},
      {"ai.ampc.MatMulEx", {F({2, 3}).NoGrad(), F({4, 3}).NoGrad(), F({4}).NoGrad()}, {{"trans_b", int64_t{1}}, {"to", kToAcc}, {"post", std::string("relu")}}},
      {"ai.ampc.MatMulEx", {F({2, 3, 2}).NoGrad(), F({1, 3, 4}).NoGrad()}, {{"trans_a", int64_t{1}}}},
  };
  for (const int64_t ta : {0, 1}) {
    for (const int64_t tb : {0, 1}) {
      t.push_back({"Gemm", {F(ta ? Dims{3, 2} : Dims{2, 3}), F(tb ? Dims{4, 3} : Dims{3, 4}), F({4})}, {{"transA", ta}, {"transB", tb}, {"alpha", 0.7}, {"beta", 1.3}}});
    }
  }
  Join(t, {
      {"Gemm", {F({2, 3}), F({3, 4})}}, {"Gemm", {F({2, 3}), F({3, 4}), F({})}}, {"Gemm", {F({2, 3}), F({3, 4}), F({1, 4})}},
      {"Gemm", {F({2, 3}), F({3, 4}), F({2, 1})}}, {"Gemm", {F({2, 3}), F({3, 4}), F({2, 4})}}, {"Gemm", {F({3, 3}), Same(0), Same(0)}},
  });
  return t;
}

Attrs Window(Ints strides, Ints dilations, Ints pads, int64_t group = 1) {
  return {{"strides", std::move(strides)}, {"dilations", std::move(dilations)}, {"pads", std::move(pads)}, {"group", group}};
}
Attrs With(Attrs attrs, std::string_view name, Attr value) {
  attrs.Set(name, std::move(value));
  return attrs;
}
Attr Str(const char* text) { return std::string(text); }

Table Convolutions() {
  return {
      {"Conv", {F({2, 3, 7}), F({4, 3, 3})}, Window({1}, {1}, {0, 0}), 1, ~0u, 9},
      {"Conv", {F({1, 2, 9}), F({3, 2, 3}), F({3})}, Window({2}, {2}, {3, 1}), 1, ~0u, 6},
      {"Conv", {F({2, 4, 6}), F({6, 2, 2}), F({6})}, Window({1}, {1}, {1, 0}, 2), 1, ~0u, 4},
      {"Conv", {F({2, 3, 5, 4}), F({2, 3, 3, 2}), F({2})}, {}, 1, ~0u, 18},
      {"Conv", {F({1, 2, 6, 5}), F({2, 2, 3, 2})}, Window({2, 1}, {1, 2}, {1, 0, 2, 1}), 1, ~0u, 12},
      {"Conv", {F({2, 4, 5, 5}), F({4, 1, 3, 3})}, Window({1, 1}, {1, 1}, {1, 1, 1, 1}, 4), 1, ~0u, 9},
      {"Conv", {F({1, 4, 4, 4}), F({6, 2, 1, 1})}, Window({1, 1}, {1, 1}, {0, 0, 0, 0}, 2), 1, ~0u, 2},
      {"Conv", {F({1, 1, 8, 7}), F({2, 1, 2, 2})}, Window({3, 3}, {1, 1}, {0, 0, 0, 0}), 1, ~0u, 4},  // a stride wider than the window, an unread rim
      {"Conv", {F({1, 2, 5, 6}), F({2, 2, 3, 2})}, {{"auto_pad", Str("SAME_UPPER")}, {"strides", Ints{2, 2}}}, 1, ~0u, 12},
      {"Conv", {F({1, 2, 5, 6}), F({2, 2, 3, 2})}, {{"auto_pad", Str("SAME_LOWER")}, {"strides", Ints{2, 1}}}, 1, ~0u, 12},
      {"Conv", {F({1, 2, 5, 6}), F({2, 2, 3, 2}), None()}, {{"auto_pad", Str("VALID")}, {"kernel_shape", Ints{3, 2}}}, 1, ~0u, 12},
      {"Conv", {F({1, 2, 3, 4, 3}), F({2, 2, 2, 3, 2}), F({2})}, Window({1, 2, 1}, {1, 1, 2}, {0, 1, 1, 1, 0, 1}), 1, ~0u, 24},
      {"ConvTranspose", {F({2, 3, 5}), F({3, 2, 3})}, {}, 1, ~0u, 9},
      {"ConvTranspose", {F({1, 2, 4}), F({2, 2, 3}), F({4})}, Window({2}, {2}, {1, 2}, 2), 1, ~0u, 3},
      {"ConvTranspose", {F({1, 2, 3, 4}), F({2, 3, 3, 2}), F({3})}, With(Window({2, 3}, {1, 1}, {1, 0, 0, 1}), "output_padding", Ints{1, 2}), 1, ~0u, 12},
      {"ConvTranspose", {F({1, 2, 4}), F({2, 1, 3})}, With(Window({2}, {3}, {1, 2}), "output_padding", Ints{2}), 1, ~0u, 6},
      {"ConvTranspose", {F({1, 2, 3, 3}), F({2, 1, 3, 3})}, {{"strides", Ints{2, 2}}, {"output_shape", Ints{6, 5}}}, 1, ~0u, 18},
      {"ConvTranspose", {F({1, 2, 3, 3}), F({2, 1, 3, 3})}, {{"strides", Ints{2, 2}}, {"auto_pad", Str("SAME_UPPER")}}, 1, ~0u, 18},
      {"ConvTranspose", {F({1, 2, 3, 3}), F({2, 1, 3, 2})}, {{"strides", Ints{2, 2}}, {"auto_pad", Str("SAME_LOWER")}}, 1, ~0u, 18},
      {"ConvTranspose", {F({1, 2, 2, 3, 2}), F({2, 2, 2, 2, 3})}, Window({1, 2, 1}, {1, 1, 1}, {0, 1, 1, 0, 0, 1}), 1, ~0u, 24},
      {"ai.ampc.ConvEx", {F({1, 2, 5, 6}).NoGrad(), F({3, 2, 3, 2}).NoGrad()}, With(Window({2, 1}, {1, 1}, {1, 0, 0, 1}), "dims", Ints{1, 3, 2, 6}), 1, ~0u, 12},
      {"ai.ampc.ConvGradData", {F({1, 4, 3, 5}).NoGrad(), F({4, 1, 3, 2}).NoGrad()}, With(Window({2, 1}, {1, 1}, {1, 0, 1, 1}, 2), "dims", Ints{1, 2, 6, 5}), 1, ~0u, 12},
      {"ai.ampc.ConvGradWeights", {F({2, 4, 6, 5}).NoGrad(), F({2, 4, 3, 5}).NoGrad()}, With(With(Window({2, 1}, {1, 1}, {1, 0, 1, 1}, 2), "dims", Ints{4, 2, 3, 2}), "to", kToAcc), 1, ~0u, 30},
  };
}

Attrs Pool(Ints kernel, Ints strides = {}, Ints pads = {}, Ints dilations = {}, bool ceil = false, int include = -1) {
  Attrs a{{"kernel_shape", std::move(kernel)}};
  if (!strides.empty()) a.Set("strides", std::move(strides));
  if (!pads.empty()) a.Set("pads", std::move(pads));
  if (!dilations.empty()) a.Set("dilations", std::move(dilations));
  if (ceil) a.Set("ceil_mode", int64_t{1});
  if (include >= 0) a.Set("count_include_pad", int64_t{include});
  return a;
}
// All window parameters given, as in the own ops.
Attrs FullPool(Ints kernel, Ints strides, Ints pads, Ints dims) {
  return {{"dilations", Ints(kernel.size(), 1)}, {"kernel_shape", std::move(kernel)}, {"strides", std::move(strides)}, {"pads", std::move(pads)}, {"dims", std::move(dims)}};
}

Table Pools() {
  Table t;
  for (const char* op : {"MaxPool", "AveragePool"}) {
    const bool average = std::string_view(op) == "AveragePool";
    Join(t, {
        {op, {F({2, 2, 8})}, Pool({3})}, {op, {F({1, 2, 9})}, Pool({3}, {2}, {1, 0}, {2})},
        {op, {F({2, 2, 6, 6})}, Pool({2, 2}, {2, 2})}, {op, {F({1, 2, 7, 5})}, Pool({3, 2}, {2, 1}, {1, 0, 0, 1})},
        {op, {F({1, 2, 7, 6})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1})},
        {op, {F({1, 1, 7, 8})}, Pool({2, 3}, {2, 3}, {}, {}, true)}, {op, {F({1, 1, 6, 7})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1}, {}, true)},
        {op, {F({1, 1, 7, 7})}, Pool({2, 2}, {1, 2}, {}, {3, 2})},
        {op, {F({1, 2, 5, 6})}, With(Pool({3, 2}, {2, 2}), "auto_pad", Str("SAME_UPPER"))},
        {op, {F({1, 2, 5, 6})}, With(Pool({2, 3}, {2, 2}), "auto_pad", Str("SAME_LOWER"))},
        {op, {F({1, 2, 5, 6})}, With(Pool({2, 2}), "auto_pad", Str("VALID"))},
        {op, {F({1, 2, 3, 4, 4})}, Pool({2, 2, 3}, {1, 2, 1}, {1, 0, 0, 0, 1, 1})},
    });
    if (!average) {
      const auto indexed = [&](Dims dims, Attrs attrs, int64_t order) { return Sample{op, {F(std::move(dims))}, With(std::move(attrs), "storage_order", order), 2, 0b1}; };
      for (const int64_t order : {0, 1}) {
        Join(t, {indexed({2, 2, 6}, Pool({2}, {2}), order), indexed({2, 3, 6, 4}, Pool({3, 2}, {2, 1}, {1, 0, 0, 1}), order), indexed({1, 2, 3, 4, 5}, Pool({2, 2, 3}, {1, 2, 1}), order)});
      }
    }
    if (average) {
      // a window that hangs over does not count what is behind the padding
      for (const Dims& pads : {Dims{0, 0, 0, 0}, Dims{1, 0, 1, 1}})
        t.push_back({op, {F({1, 2, 7, 6})}, Pool({3, 3}, {3, 2}, pads, {}, true, 1), 1, ~0u, 9});
      Join(t, {
          {op, {F({1, 2, 7, 5})}, Pool({3, 2}, {2, 1}, {1, 0, 0, 1}, {}, false, 1)}, {op, {F({1, 1, 6})}, Pool({3}, {2}, {1, 1}, {}, false, 1)},
          {op, {F({1, 2, 7, 7})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1}, {}, true, 1)}, {op, {F({1, 2, 8})}, Pool({3}, {2}, {2, 1}, {2}, false, 1)},
          {op, {F({1, 2, 8})}, Pool({3}, {2}, {2, 1}, {2}, false, 0)},
      });
    }
  }
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    for (const Dims& dims : {Dims{2, 3, 5}, Dims{2, 2, 3, 4}, Dims{1, 2, 2, 3, 2}, Dims{2, 3, 1, 1}}) t.push_back({op, {F(dims)}});
  }
  Join(t, {
      {"ai.ampc.MaxPoolIndexed", {F({1, 2, 7, 5})}, FullPool({3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2, 3, 5}), 2, 0b1},
      {"ai.ampc.MaxPoolIndexed", {F({2, 1, 9})}, FullPool({3}, {2}, {1, 1}, {2, 1, 5}), 2, 0b1},
      {"ai.ampc.MaxPoolGrad", {F({1, 2, 2, 2}).NoGrad(), Ix({1, 2, 2, 2}, {4, 4, 4, 8, 0, 2, 6, 4}, DType::kInt32)}, FullPool({2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 2, 3, 3})},
      {"ai.ampc.AveragePoolGrad", {F({1, 2, 3, 5}).NoGrad()}, With(FullPool({3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2, 6, 5}), "count_include_pad", int64_t{0})},
      {"ai.ampc.AveragePoolGrad", {F({1, 2, 3, 5}).NoGrad()}, With(FullPool({3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2, 6, 5}), "count_include_pad", int64_t{1})},
      {"ai.ampc.AveragePoolGrad", {F({1, 2, 3, 3}).NoGrad()}, With(With(FullPool({3, 3}, {3, 2}, {1, 0, 1, 2}, {1, 2, 7, 5}), "count_include_pad", int64_t{1}), "overhang", Ints{0, 2})},
  });
  return t;
}

// ---- resizing ------------------------------------------------------------------------------------------------------------

// X, region, scales, sizes; the latter three constant or left out.
Sample Resized(Dims x, Doubles scales, Doubles sizes, Attrs attrs, Doubles region = {}, double terms = 1) {
  const auto list = [](Doubles v, DType t) {
    const auto n = static_cast<int64_t>(v.size());
    return n == 0 ? None() : Ix({n}, std::move(v), t).Constant();
  };
  Sample s{"Resize", {F(std::move(x)), list(std::move(region), DType::kFloat32), list(std::move(scales), DType::kFloat32), list(std::move(sizes), DType::kInt64)}, std::move(attrs), 1, ~0u, terms};
  while (s.args.back().kind == Arg::Kind::kLeftOut) s.args.pop_back();
  return s;
}

Table Resizing() {
  Table t;
  const auto mode = [](const char* m, const char* coordinates) { return Attrs{{"mode", Str(m)}, {"coordinate_transformation_mode", Str(coordinates)}}; };
  for (const char* m : {"nearest", "linear", "cubic"}) {
    const double terms = m[0] == 'c' ? 40 : 4;
    for (const char* coordinates : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}) {
      Join(t, {Resized({1, 2, 4, 5}, {}, {1, 2, 7, 3}, mode(m, coordinates), {}, terms), Resized({2, 1, 3, 4}, {1, 1, 2, 1.5}, {}, mode(m, coordinates), {}, terms)});
    }
    Join(t, {Resized({1, 1, 5, 4}, {1, 1, 0.6, 0.8}, {}, mode(m, "half_pixel"), {}, terms), Resized({1, 1, 5, 4}, {}, {1, 1, 1, 1}, mode(m, "pytorch_half_pixel"), {}, terms),
             Resized({1, 2, 3, 3}, {}, {1, 2, 3, 3}, mode(m, "half_pixel")),
             Resized({1, 1, 4, 5}, {}, {1, 1, 5, 6}, With(mode(m, "tf_crop_and_resize"), "extrapolation_value", 7.5), {0, 0, 0.4, -0.3, 1, 1, 1.2, 0.8}, terms)});
  }
  for (const char* rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
    for (const char* coordinates : {"asymmetric", "half_pixel"})
      t.push_back(Resized({1, 1, 4, 6}, {}, {1, 1, 8, 4}, With(mode("nearest", coordinates), "nearest_mode", Str(rounding)), {}, 2));
  }
  const Attrs linear = mode("linear", "half_pixel"), cubic = mode("cubic", "half_pixel");
  Join(t, {Resized({1, 2, 3, 4, 5}, {}, {1, 2, 5, 2, 7}, linear, {}, 8), Resized({2, 3, 6}, {1, 1, 2}, {}, linear, {}, 4),
           Resized({1, 1, 4, 4}, {}, {1, 1, 9, 3}, With(cubic, "cubic_coeff_a", -0.5), {}, 40),
           Resized({1, 1, 4, 4}, {}, {1, 1, 9, 3}, With(cubic, "exclude_outside", int64_t{1}), {}, 40),
           Resized({1, 1, 9, 8}, {}, {1, 1, 4, 3}, With(linear, "antialias", int64_t{1}), {}, 8), Resized({1, 1, 9, 8}, {}, {1, 1, 4, 12}, With(cubic, "antialias", int64_t{1}), {}, 40),
           Resized({1, 1, 9, 8}, {}, {1, 1, 4, 12}, With(With(cubic, "antialias", int64_t{1}), "exclude_outside", int64_t{1}), {}, 40),
           Resized({2, 1, 3, 4}, {}, {5, 7}, With(linear, "axes", Ints{2, 3}), {}, 4), Resized({2, 1, 3, 4}, {}, {9, 5}, With(linear, "axes", Ints{3, 2}), {}, 4), Resized({2, 1, 3, 4}, {2, 1.5}, {}, With(cubic, "axes", Ints{-2, -1}), {}, 40),
           Resized({1, 1, 3, 4}, {}, {7, 7}, With(With(linear, "axes", Ints{2, 3}), "keep_aspect_ratio_policy", Str("not_larger")), {}, 4),
           Resized({1, 1, 3, 4}, {}, {7, 7}, With(With(linear, "axes", Ints{2, 3}), "keep_aspect_ratio_policy", Str("not_smaller")), {}, 4)});
  t.push_back({"Resize", {Ix({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}, DType::kInt32), None(), None(), Ix({4}, {1, 1, 4, 4}).Constant()}});
  const Attrs map{{"dims", Ints{2, 3, 2}}, {"axes", Ints{1, 2}}, {"begins", Ints{0, 2, 2, 5, 0, 1, 2}}, {"indices", Ints{0, 3, 1, 0, 2, 2, 0}}, {"weights", Doubles{0.5, -1.25, 2, 0.75, 1, 1, -0.5}}};
  t.push_back({"ai.ampc.Interpolate", {F({2, 4, 3})}, map, 1, ~0u, 8});
  return t;
}

Table Sampling() {
  Table t;
  // Coordinates keep off whole positions, where the taps change, and off the edges.
  const auto grid = [](Dims dims, double low, double high, int64_t align, Ints sizes) {
    Doubles kinks = {-1, 1};
    for (const int64_t size : sizes) {
      for (int64_t i = -3; i < size + 3; ++i) kinks.push_back(static_cast<double>(2 * i - size + 1) / static_cast<double>(size - align));
    }
    return U(std::move(dims), low, high).Avoiding(std::move(kinks));
  };
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const double terms = mode[0] == 'c' ? 200 : 8;
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const int64_t align : {0, 1}) {
        const Attrs attrs{{"mode", Str(mode)}, {"padding_mode", Str(padding)}, {"align_corners", align}};
        t.push_back({"GridSample", {F({2, 2, 4, 5}), grid({2, 3, 2, 2}, -1.37, 1.41, align, {4, 5})}, attrs, 1, ~0u, terms});
        if (mode[0] != 'c' && align == 0) t.push_back({"GridSample", {F({1, 2, 3, 4, 2}), grid({1, 2, 2, 2, 3}, -1.3, 1.2, align, {3, 4, 2})}, attrs, 1, ~0u, terms});
        if (mode[0] != 'c' && align == 1) t.push_back({"ai.ampc.GridSampleGradGrid", {F({1, 2, 2, 3}).NoGrad(), F({1, 2, 3, 4}).NoGrad(), grid({1, 2, 3, 2}, -1.1, 1.2, align, {3, 4}).NoGrad()}, attrs, 1, ~0u, terms});
        if (mode[0] != 'c' && align == 0) t.push_back({"ai.ampc.GridSampleGradInput", {F({1, 2, 2, 3}).NoGrad(), grid({1, 2, 3, 2}, -1.1, 1.2, align, {3, 4}).NoGrad()}, With(attrs, "dims", Ints{1, 2, 3, 4}), 1, ~0u, terms});
      }
    }
  }
  return t;
}

// ---- normalisation, softmax, losses --------------------------------------------------------------------------------------

Table Norms() {
  Table t;
  for (const Dims& x : {Dims{4, 3}, Dims{2, 3, 4}, Dims{2, 3, 2, 3}}) {
    const int64_t channels = x[1];
    t.push_back({"BatchNormalization", {F(x), A({channels}), A({channels}), A({channels}).NoGrad(), AP({channels}).NoGrad()}, {{"epsilon", 1e-3}}});
    for (const int64_t unbiased : {0, 1}) {
      t.push_back({"ai.ampc.BatchNormTrain", {F(x), A({channels}), A({channels}), A({channels}).NoGrad(), AP({channels}).NoGrad()},
                   {{"epsilon", 1e-3}, {"momentum", 0.8}, {"unbiased", unbiased}}, 5, 0b1, 8});
    }
    t.push_back({"ai.ampc.BatchNormGrad", {F(x).NoGrad(), F(x).NoGrad(), A({channels}).NoGrad(), A({channels}).NoGrad(), AP({channels}).NoGrad()}, {}, 3, ~0u, 12});
  }
  t.push_back({"BatchNormalization", {F({2, 3, 4}), A({3}).NoGrad(), A({3}).NoGrad(), A({3}).NoGrad(), AP({3}).NoGrad()}, {{"training_mode", int64_t{1}}}, 3, ~0u, 8, true});
  t.push_back({"ai.ampc.BatchNormTrain", {V({2, 2, 2}, {1, 2, kInf, 0, 3, 4, 1, 1}).NoGrad(), A({2}).NoGrad(), A({2}).NoGrad(), A({2}).NoGrad(), AP({2}).NoGrad()}, {}, 5});
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    Join(t, {{op, {F({2, 5})}, {}, 1, ~0u, 5}, {op, {F({2, 3, 4})}, {{"axis", int64_t{0}}}, 1, ~0u, 4}, {op, {F({2, 3, 4})}, {{"axis", int64_t{1}}}, 1, ~0u, 4},
             {op, {U({3, 4}, -30, 30)}, {{"axis", int64_t{-2}}}, 1, ~0u, 4}, {op, {F({7})}, {{"axis", int64_t{0}}}, 1, ~0u, 7}, {op, {F({2, 2, 2, 3})}, {}, 1, ~0u, 4}});
    const std::string grad = "ai.ampc." + std::string(op) + "Grad";
    Join(t, {{grad, {F({2, 5}).NoGrad(), F({2, 5}).NoGrad()}, {{"axis", int64_t{1}}}, 1, ~0u, 8}, {grad, {F({2, 3, 2}).NoGrad(), F({2, 3, 2}).NoGrad()}, {{"axis", int64_t{0}}}, 1, ~0u, 8}});
  }
  return t;
}

// Rows with statistics of their own.
Table RowNorms() {
  const Attrs epsilon{{"epsilon", 1e-3}};
  const auto rows = [](int64_t length, int64_t groups, int64_t inner, int64_t rms) {
    return Attrs{{"length", length}, {"groups", groups}, {"inner", inner}, {"rms", rms}, {"epsilon", 1e-3}};
  };
  // Our statistics are double for double data; ONNX's definition, which onnxruntime runs, has them in `stash_type`.
  const auto groups = [](int64_t n) { return Attrs{{"num_groups", n}, {"epsilon", 1e-3}, {"stash_type", kF64}}; };
  Table t = {
      {"LayerNormalization", {F({3, 5}), F({5}), F({5})}, {}, 1, ~0u, 12},
      {"LayerNormalization", {F({2, 3, 4}), F({3, 4})}, With(epsilon, "axis", int64_t{1}), 1, ~0u, 24},
      {"LayerNormalization", {F({2, 2, 3}), F({3}), F({3})}, With(epsilon, "axis", int64_t{-1}), 3, 0b1, 12},
      {"LayerNormalization", {U({2, 6}, 1000, 1003), F({6}), F({6})}, epsilon, 1, ~0u, 4000},
      {"LayerNormalization", {F({4}), F({4}), F({4})}, {{"axis", int64_t{0}}}, 1, ~0u, 8},
      {"RMSNormalization", {F({3, 5}), F({5})}, epsilon, 1, ~0u, 12},
      {"RMSNormalization", {F({2, 3, 4}), F({2, 3, 4})}, {{"axis", int64_t{0}}}, 1, ~0u, 48},
      {"GroupNormalization", {F({2, 4, 3}), F({4}), F({4})}, groups(2), 1, ~0u, 24}, {"GroupNormalization", {F({2, 6, 2, 2}), F({6}), F({6})}, groups(3), 1, ~0u, 24},
      {"GroupNormalization", {F({3, 4}), F({4}), F({4})}, groups(2), 1, ~0u, 8},
      {"InstanceNormalization", {F({2, 3, 4}), F({3}), F({3})}, {}, 1, ~0u, 16},
      {"InstanceNormalization", {F({2, 2, 2, 3}), F({2}), F({2})}, epsilon, 1, ~0u, 24},
      {"ai.ampc.Normalize", {F({3, 4}), A({4}), A({4})}, rows(4, 1, 1, 0), 3, ~0u, 16},
      {"ai.ampc.Normalize", {F({3, 4}), A({4})}, rows(4, 1, 1, 1), 2, ~0u, 16},
      {"ai.ampc.Normalize", {F({2, 4, 3}), A({4}), A({4})}, rows(6, 2, 3, 0), 3, ~0u, 24},
      {"ai.ampc.Normalize", {F({2, 4}), F({4}), F({4})}, rows(2, 2, 1, 1), 2, ~0u, 16},
      {"ai.ampc.NormalizeGrad", {F({3, 4}).NoGrad(), F({3, 4}).NoGrad(), A({4}).NoGrad(), AP({3}).NoGrad(), A({3}).NoGrad()}, rows(4, 1, 1, 0), 3, ~0u, 24},
      {"ai.ampc.NormalizeGrad", {F({2, 4, 3}).NoGrad(), F({2, 4, 3}).NoGrad(), F({4}).NoGrad(), AP({4}).NoGrad()}, rows(6, 2, 3, 1), 3, ~0u, 24},
      {"LpNormalization", {F({2, 5})}, {}, 1, ~0u, 8}, {"LpNormalization", {F({2, 3, 4})}, {{"axis", int64_t{1}}, {"p", int64_t{1}}}, 1, ~0u, 8},
      {"LpNormalization", {V({2, 3}, {0, 0, 0, 1, -2, 2}).NoGrad()}, {{"axis", int64_t{1}}}, 1, ~0u, 3}, {"LpNormalization", {U({2, 3}, 280, 300)}, {}, 1, ~0u, 8},
      {"MeanVarianceNormalization", {F({2, 3, 2, 2})}, {}, 1, ~0u, 24}, {"MeanVarianceNormalization", {F({3, 4})}, {{"axes", Ints{-1}}}, 1, ~0u, 12},
      {"MeanVarianceNormalization", {F({2, 3, 4})}, {{"axes", Ints{2, 0}}}, 1, ~0u, 24},
      {"LRN", {F({2, 5, 3, 2})}, {{"size", int64_t{3}}, {"alpha", 0.4}}, 1, ~0u, 8}, {"LRN", {F({2, 4, 3})}, {{"size", int64_t{4}}, {"alpha", 0.3}, {"beta", 0.5}, {"bias", 1.5}}, 1, ~0u, 8},
      {"LRN", {F({3, 2})}, {{"size", int64_t{5}}, {"alpha", 0.2}}, 1, ~0u, 8}, {"LRN", {F({1, 3, 2, 2})}, {{"size", int64_t{1}}, {"alpha", 0.5}}, 1, ~0u, 4},
  };
  return t;
}

// ---- recurrent layers ------------------------------------------------------------------------------------------------------

// What a layer has beside X, W and R.
enum : unsigned { kBias = 1, kLengths = 2, kH0 = 4, kC0 = 8, kPeepholes = 16, kBatchFirst = 32, kEverything = 31 };
struct LayerSize {
  int64_t steps = 3, batch = 2, input = 2, hidden = 3;
};

Sample Recurrent(const std::string& op, unsigned has, Attrs attrs, size_t outputs, uint32_t loss_outputs = ~0u, LayerSize n = {}) {
  const std::string direction(attrs.String("direction", "forward"));
  const int64_t d = direction == "bidirectional" ? 2 : 1, gates = op == "RNN" ? 1 : op == "GRU" ? 3 : 4, g = gates * n.hidden;
  const bool turned = (has & kBatchFirst) != 0, lstm = op == "LSTM";
  const Dims state = turned ? Dims{n.batch, d, n.hidden} : Dims{d, n.batch, n.hidden};
  Doubles lengths;
  for (int64_t b = 0; b < n.batch; ++b) lengths.push_back(static_cast<double>(n.steps - b % n.steps));
  if (turned) attrs.Set("layout", int64_t{1});
  attrs.Set("hidden_size", n.hidden);
  std::vector<Arg> args = {F(turned ? Dims{n.batch, n.steps, n.input} : Dims{n.steps, n.batch, n.input}), F({d, g, n.input}), F({d, g, n.hidden})};
  // Weights of order 1 would make differences of the last digit grow from step to step.
  if (n.hidden > 8) args[1].low = args[2].low = 0.01, args[1].high = args[2].high = 0.12;
  const auto add = [&](unsigned bit, Arg arg) { args.push_back((has & bit) != 0 ? std::move(arg) : None()); };
  add(kBias, F({d, 2 * g}));
  add(kLengths, Ix({n.batch}, lengths, DType::kInt32));
  add(kH0, F(state));
  if (lstm) add(kC0, F(state));
  if (lstm) add(kPeepholes, F({d, 3 * n.hidden}));
  while (args.back().kind == Arg::Kind::kLeftOut) args.pop_back();
  return {op, std::move(args), std::move(attrs), outputs, loss_outputs, static_cast<double>(n.steps * (n.input + n.hidden) * (d + gates))};
}

Attr Names(std::vector<std::string> names) { return names; }

Table RecurrentLayers() {
  Table t;
  const auto add = [&](const char* op, unsigned has, Attrs attrs = {}, uint32_t loss_outputs = ~0u) {
    t.push_back(Recurrent(op, has, std::move(attrs), std::string_view(op) == "LSTM" ? 3 : 2, loss_outputs));
  };
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    add(op, 0);
    add(op, kBias | kH0 | kC0, {}, 0b001);
    add(op, kBias, {}, 0b010);
    add(op, kEverything & ~kPeepholes, {{"direction", Str("forward")}});
    add(op, kEverything & ~kPeepholes, {{"direction", Str("reverse")}});
    add(op, kEverything & ~kPeepholes, {{"direction", Str("bidirectional")}});
    add(op, kBias | kH0 | kC0, {{"clip", 0.87}});
    add(op, kBatchFirst | kBias | kH0 | kC0, {{"direction", Str("bidirectional")}});
    add(op, kBatchFirst | kLengths);
  }
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    add("GRU", kBias | kLengths | kH0, {{"direction", Str(direction)}, {"linear_before_reset", int64_t{1}}});
    add("LSTM", kEverything, {{"direction", Str(direction)}});
  }
  add("GRU", 0, {{"linear_before_reset", int64_t{1}}}, 0b10);
  add("GRU", kBias, {{"linear_before_reset", int64_t{1}}, {"clip", 0.8}});
  add("LSTM", kBias | kC0, {}, 0b100);
  add("LSTM", kPeepholes, {}, 0b011);
  add("LSTM", kEverything, {{"input_forget", int64_t{1}}});
  add("LSTM", kBias, {{"input_forget", int64_t{1}}, {"clip", 0.9}});
  add("LSTM", kEverything, {{"clip", 1.1}, {"direction", Str("bidirectional")}});
  for (const char* name : {"Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "Elu", "HardSigmoid"}) add("RNN", kBias | kH0, {{"activations", Names({name})}});
  add("RNN", kBias, {{"activations", Names({"ThresholdedRelu"})}, {"activation_alpha", Doubles{0.6}}});
  add("RNN", kBias, {{"activations", Names({"Affine"})}, {"activation_alpha", Doubles{0.4}}, {"activation_beta", Doubles{-0.3}}});
  add("RNN", kBias, {{"activations", Names({"ScaledTanh", "LeakyRelu"})}, {"direction", Str("bidirectional")}, {"activation_alpha", Doubles{0.7, 0.2}}, {"activation_beta", Doubles{1.3}}});
  add("GRU", kBias | kH0, {{"activations", Names({"HardSigmoid", "Softsign"})}, {"activation_alpha", Doubles{0.13}}, {"activation_beta", Doubles{0.41}}});
  add("GRU", kBias | kH0, {{"activations", Names({"Sigmoid", "Elu"})}, {"linear_before_reset", int64_t{1}}, {"activation_alpha", Doubles{0.6}}});
  add("LSTM", kEverything, {{"activations", Names({"HardSigmoid", "Softsign", "ScaledTanh"})}, {"activation_alpha", Doubles{0.15, 0.8}}, {"activation_beta", Doubles{0.5, 1.2}}});
  add("LSTM", kBias, {{"direction", Str("bidirectional")}, {"activations", Names({"Sigmoid", "Tanh", "Tanh", "Sigmoid", "Relu", "Softplus"})}});
  return t;
}

// The own ops that layers become, with and without everything that may be left out.
Table OwnRecurrentLayers() {
  Table t;
  const auto train = [&](const std::string& op, const std::string& standard, unsigned has, Attrs attrs, size_t outputs, uint32_t loss_outputs) {
    Sample s = Recurrent(standard, has, std::move(attrs), outputs, loss_outputs);
    s.op = "ai.ampc." + op;
    s.attrs.Erase("hidden_size");
    t.push_back(std::move(s));
  };
  const auto grad = [&](const std::string& op, int64_t gates, int64_t d, bool has_state, bool full, Attrs attrs, size_t outputs) {
    const LayerSize n;
    const Dims hidden{d, n.batch, n.hidden}, steps{d, n.steps, n.batch, n.hidden};
    const Arg h = F(hidden).NoGrad();
    std::vector<Arg> args = {F({d, gates * n.hidden, n.hidden}).NoGrad(), full ? Ix({n.batch}, {2, 3}, DType::kInt32) : None(),
                             A({d, n.steps, n.batch, gates * n.hidden}).NoGrad(), F(steps).NoGrad(), F({n.steps, d, n.batch, n.hidden}).NoGrad()};
    if (full || has_state) args.push_back(full ? h : None());
    if (has_state) args.push_back(A(steps).NoGrad());
    if (gates == 4 && full) args.insert(args.end(), {h, h, F({d, 3 * n.hidden}).NoGrad()});
    t.push_back({"ai.ampc." + op, std::move(args), std::move(attrs), outputs, ~0u, static_cast<double>(n.steps * n.hidden * gates * 4)});
  };
  const Attrs both{{"direction", Str("bidirectional")}}, reset{{"direction", Str("reverse")}, {"linear_before_reset", int64_t{1}}}, clip{{"clip", 0.9}};
  train("RnnTrain", "RNN", 0, {}, 4, 0b11);
  train("RnnTrain", "RNN", kEverything, both, 4, 0b11);
  train("GruTrain", "GRU", kEverything & ~kLengths, both, 4, 0b11);
  train("GruTrain", "GRU", kEverything, reset, 5, 0b11);
  train("LstmTrain", "LSTM", kBias, {}, 6, 0b100011);
  train("LstmTrain", "LSTM", kEverything, both, 6, 0b100011);
  grad("RnnGrad", 1, 1, false, false, {}, 2);
  grad("RnnGrad", 1, 2, false, true, both, 2);
  grad("GruGrad", 3, 1, false, false, {}, 3);
  grad("GruGrad", 3, 2, false, true, both, 3);
  grad("GruGrad", 3, 1, true, true, reset, 3);
  grad("GruGrad", 3, 1, true, false, reset, 3);
  grad("LstmGrad", 4, 1, true, false, {}, 3);
  grad("LstmGrad", 4, 2, true, true, both, 4);
  grad("LstmGrad", 4, 1, true, true, clip, 4);
  return t;
}

// Hidden states that fill blocks, and enough work for threads.
Table LargeRecurrentLayers() {
  const LayerSize wide{.steps = 3, .batch = 17, .input = 21, .hidden = 270}, tall{.steps = 9, .batch = 5, .input = 40, .hidden = 40};
  const Attrs both{{"direction", Str("bidirectional")}}, reset{{"linear_before_reset", int64_t{1}}};
  return {Recurrent("LSTM", kEverything, {}, 3, ~0u, wide), Recurrent("LSTM", kBias, both, 3, ~0u, tall), Recurrent("GRU", kEverything, {}, 2, ~0u, wide),
          Recurrent("GRU", kBias, reset, 2, ~0u, wide), Recurrent("GRU", kBias | kLengths, reset, 2, ~0u, tall), Recurrent("RNN", kEverything, both, 2, ~0u, wide)};
}

// ---- attention -------------------------------------------------------------------------------------------------------------

struct Heads {
  int64_t b = 2, h = 2, g = 2, t = 3, s = 4, d = 3, e = 2;
  Arg q() const { return F({b, h, t, d}); }
  Arg k() const { return F({b, g, s, d}); }
  Arg v() const { return F({b, g, s, e}); }
};

Sample Attend(const Heads& n, Attrs attrs = {}, std::vector<Arg> mask = {}, size_t outputs = 1) {
  std::vector<Arg> args = {n.q(), n.k(), n.v()};
  if (!attrs.Has("scale")) attrs.Set("scale", 0.57);
  for (Arg& m : mask) args.push_back(std::move(m));
  return {"ai.ampc.Attention", std::move(args), std::move(attrs), outputs, 0b1, static_cast<double>(4 * (n.s + n.t + n.d + n.e))};
}

Sample AttendGrad(const Heads& n, Attrs attrs, std::vector<Arg> mask, size_t outputs) {
  Sample s = Attend(n, std::move(attrs), {}, outputs);
  s.op = "ai.ampc.AttentionGrad";
  for (Arg arg : {F({n.b, n.h, n.t, n.e}), AP({n.b, n.h, n.t}), F({n.b, n.h, n.t, n.e})}) s.args.push_back(std::move(arg));
  for (Arg& m : mask) s.args.push_back(std::move(m));
  for (Arg& arg : s.args) arg.differentiate = false;
  s.loss_outputs = ~0u;
  return s;
}

Table AttentionSamples() {
  const Attrs causal{{"causal", int64_t{1}}}, shifted = With(causal, "offset", int64_t{1}), before = With(causal, "offset", int64_t{-1}), cap{{"softcap", 1.5}};
  const Heads plain, grouped{.h = 4, .g = 2}, shared{.b = 1, .h = 3, .g = 1, .t = 2, .s = 2}, square{.t = 4}, longer{.t = 5, .s = 2};
  const Arg keys = B({2, 1, 1, 4}, {1, 1, 0, 1, 1, 0, 0, 0}), none = B({3, 4}, {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1});
  const Arg infinite = V({3, 4}, {0, -kInf, 0.5, 0, -kInf, -kInf, -kInf, -kInf, 1, 0, -kInf, -1}).NoGrad();
  return {Attend(plain), Attend(plain, {}, {}, 2), Attend(square, causal), Attend(plain, shifted), Attend(plain, before), Attend(longer, causal),
          Attend(grouped), Attend(grouped, causal), Attend(shared, causal), Attend(plain, cap), Attend(grouped, With(cap, "causal", int64_t{1})),
          Attend(plain, {}, {keys}), Attend(plain, {}, {none}), Attend(plain, causal, {keys}), Attend(plain, {}, {infinite}), Attend(plain, shifted, {infinite}),
          Attend(plain, {}, {F({3, 4})}), Attend(plain, cap, {F({2, 1, 3, 4})}), Attend(grouped, causal, {F({4, 1, 4})}), Attend(plain, {}, {F({2, 2, 3, 4})}), Attend(plain, {}, {A({1, 2, 3, 1})}),
          Attend({.t = 1, .s = 1}), Attend({.b = 0}), Attend({.s = 0}), Attend(plain, {{"scale", 40.0}}),
          AttendGrad(plain, {}, {}, 3), AttendGrad(grouped, causal, {}, 3), AttendGrad(plain, cap, {none}, 3), AttendGrad(plain, {{"mask_grad", int64_t{1}}}, {infinite}, 4)};
}

Table LargeAttentions() {
  const Attrs causal{{"causal", int64_t{1}}, {"scale", 0.2}};
  Doubles keys(150), rows(70 * 150);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i < 131 ? 1 : 0;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i / 150 == 9 || i % 7 == 0 ? 0 : 1;  // query 9 has no key
  const Heads some{.b = 1, .h = 4, .g = 2, .t = 70, .s = 150, .d = 20, .e = 33}, square{.b = 2, .h = 2, .g = 2, .t = 133, .s = 133, .d = 16, .e = 16}, wide{.b = 1, .h = 1, .g = 1, .t = 67, .s = 130, .d = 72, .e = 64};
  return {Attend(some, {{"scale", 0.2}}), Attend(square, causal), Attend(some, With(causal, "offset", int64_t{80})), Attend(wide, With(causal, "softcap", 3.0)),
          Attend(some, causal, {B({150}, keys)}), Attend(some, {{"scale", 0.2}}, {B({70, 150}, rows)}), Attend(some, causal, {F({4, 70, 150})}), Attend(square, {{"scale", 0.2}}, {F({2, 1, 1, 133})})};
}

struct LossCase {
  Dims scores;
  Doubles labels;
  Attrs attrs;
  bool weights = false;
  DType labels_type = DType::kInt64;
};

std::vector<LossCase> LossCases() {
  const Attr mean = Str("mean"), sum = Str("sum"), none = Str("none");
  return {
      {{3, 4}, {0, 3, 1}, {{"reduction", mean}}},
      {{3, 4}, {0, 3, 1}, {{"reduction", sum}}, true},
      {{3, 4}, {0, 3, 1}, {{"reduction", none}}, false, DType::kInt32},
      {{3, 4}, {0, -1, 1}, {{"reduction", mean}, {"ignore_index", int64_t{-1}}}},
      {{4, 3}, {2, 1, 0, 1}, {{"reduction", mean}, {"ignore_index", int64_t{1}}}, true},
      {{2, 3, 2}, {2, 1, 0, 9}, {{"reduction", none}, {"ignore_index", int64_t{9}}}, true},
      {{2, 3, 2, 2}, {2, 1, 0, 2, 1, 1, 0, 2}, {{"reduction", mean}}, true},
      {{2, 3, 2, 2}, {2, 1, 0, 2, 1, 1, 0, 2}, {{"reduction", sum}, {"ignore_index", int64_t{0}}}},
  };
}

Dims LabelDims(Dims scores) {
  scores.erase(scores.begin() + 1);
  return scores;
}

Sample Loss(const std::string& op, const LossCase& c, Arg scores, size_t outputs, Attrs attrs) {
  Sample s{op, {std::move(scores), Ix(LabelDims(c.scores), c.labels, c.labels_type)}, std::move(attrs), outputs, 0b1, 12};
  if (c.weights) s.args.push_back(P({c.scores[1]}).NoGrad());
  return s;
}
// dloss, log_prob, labels, [weights], total
Sample LossGrad(const std::string& op, const LossCase& c, Attrs attrs) {
  const bool none = attrs.String("reduction") == "none";
  return {op, {F(none ? LabelDims(c.scores) : Dims{}).NoGrad(), U(c.scores, -3, -0.2).NoGrad(), Ix(LabelDims(c.scores), c.labels, c.labels_type),
               c.weights ? P({c.scores[1]}).NoGrad() : None(), AS(2.5)}, std::move(attrs), 1, ~0u, 12};
}

Table Losses() {
  Table t;
  for (const LossCase& c : LossCases()) {
    t.push_back(Loss("SoftmaxCrossEntropyLoss", c, F(c.scores), 1, c.attrs));
    t.push_back(Loss("SoftmaxCrossEntropyLoss", c, F(c.scores), 2, c.attrs));
    t.push_back(Loss("NegativeLogLikelihoodLoss", c, U(c.scores, -3, -0.2), 1, c.attrs));
    t.push_back(Loss("ai.ampc.CrossEntropy", c, F(c.scores), 3, c.attrs));
    t.push_back(Loss("ai.ampc.CrossEntropy", c, F(c.scores), 3, With(c.attrs, "label_smoothing", 0.1)));
    t.push_back(LossGrad("ai.ampc.CrossEntropyGrad", c, c.attrs));
    t.push_back(LossGrad("ai.ampc.CrossEntropyGrad", c, With(c.attrs, "label_smoothing", 0.2)));
    t.push_back(Loss("ai.ampc.Nll", c, U(c.scores, -3, -0.2), 2, c.attrs));
    t.push_back(LossGrad("ai.ampc.NllGrad", c, c.attrs));
  }
  const Attrs all_ignored{{"reduction", Str("mean")}, {"ignore_index", int64_t{1}}};
  t.push_back({"ai.ampc.CrossEntropy", {F({2, 3}), Ix({2}, {1, 1})}, all_ignored, 3, 0b1});
  t.push_back({"ai.ampc.Nll", {F({2, 3}), Ix({2}, {1, 1})}, all_ignored, 2, 0b1});
  Join(t, {
      {"ai.ampc.TopKCorrect", {F({4, 5}), Ix({4}, {0, 1, 4, 2})}, {{"k", int64_t{1}}}},
      {"ai.ampc.TopKCorrect", {F({2, 5, 3}), Ix({2, 3}, {0, 1, 4, 2, 3, 3})}, {{"k", int64_t{3}}}},
      {"ai.ampc.TopKCorrect", {V({3, 3}, {1, 1, 0, 1, 1, 0, 0, 0, 0}).NoGrad(), Ix({3}, {0, 1, 2})}, {{"k", int64_t{1}}}},
      {"ai.ampc.TopKCorrect", {F({2, 3}), Ix({2}, {0, 1})}, {{"k", int64_t{5}}}},
  });
  return t;
}

// ---- shapes, movement, reductions --------------------------------------------------------------------------------------

Table Shapes() {
  const auto value = std::make_shared<const HostTensor>(HostTensor::Int64s(Ints{1, 2, 3}));
  return {
      {"Constant", {}, {{"value", value}}},
      {"Identity", {F({2, 3})}}, {"Identity", {Ix({2}, {1, 2})}},
      {"Reshape", {F({2, 3, 4}), I({4, -1})}}, {"Reshape", {F({2, 3}), I({0, 3, 1})}}, {"Reshape", {F({1}), I({})}},
      {"Reshape", {F({0, 3}), I({3, 0})}, {{"allowzero", int64_t{1}}}},
      {"Flatten", {F({2, 3, 4})}}, {"Flatten", {F({2, 3, 4})}, {{"axis", int64_t{0}}}}, {"Flatten", {F({2, 3, 4})}, {{"axis", int64_t{-1}}}},
      {"Squeeze", {F({1, 3, 1, 2})}}, {"Squeeze", {F({1, 3, 1, 2}), I({0, -2})}}, {"Squeeze", {F({1, 3, 1}), I({2})}},
      {"Unsqueeze", {F({3, 2}), I({0})}}, {"Unsqueeze", {F({3, 2}), I({-1, 1})}}, {"Unsqueeze", {F({}), I({0})}},
  };
}

Table Movement() {
  constexpr double kEnd = 9223372036854774784.0;  // "to the end", the largest double below 2^63
  return {
      {"Transpose", {F({2, 3, 4})}}, {"Transpose", {F({2, 3, 4, 2})}, {{"perm", Ints{0, 2, 3, 1}}}}, {"Transpose", {F({1, 3, 1, 2})}, {{"perm", Ints{2, 1, 0, 3}}}},
      {"Transpose", {F({3, 2})}, {{"perm", Ints{1, 0}}}}, {"Transpose", {F({})}}, {"Transpose", {Ix({2, 2}, {1, 2, 3, 4})}},
      {"Slice", {F({5, 4}), I({1}), I({4})}}, {"Slice", {F({5, 4}), I({0, -3}), I({5, -1}), I({0, 1})}}, {"Slice", {F({5, 4}), I({1}), I({kEnd}), I({-1}), I({2})}},
      {"Slice", {F({5, 4}), I({-1, 3}), I({-kEnd, 0}), I({0, 1}), I({-2, -1})}}, {"Slice", {F({2, 6, 3}), I({1}), I({6}), I({1}), I({2})}},
      {"Slice", {F({4}), I({3}), I({2})}}, {"Slice", {F({6}), I({-100}), I({100}), None(), I({4})}},
      {"Split", {F({6, 2})}, {{"num_outputs", int64_t{3}}}, 3}, {"Split", {F({2, 7}), I({2, 5})}, {{"axis", int64_t{-1}}}, 2},
      {"Split", {F({2, 7})}, {{"axis", int64_t{1}}, {"num_outputs", int64_t{3}}}, 3}, {"Split", {F({2, 5, 3}), I({1, 0, 4})}, {{"axis", int64_t{1}}}, 3, 0b101},
      {"Concat", {F({2, 3}), F({1, 3}), F({3, 3})}, {{"axis", int64_t{0}}}}, {"Concat", {F({2, 3, 2}), F({2, 1, 2})}, {{"axis", int64_t{-2}}}},
      {"Concat", {F({2, 3}), Same(0), F({2, 1})}, {{"axis", int64_t{1}}}}, {"Concat", {F({3})}, {{"axis", int64_t{0}}}}, {"Concat", {F({2, 0}), F({2, 2})}, {{"axis", int64_t{1}}}},
      {"Concat", {Ix({2}, {1, 2}), Ix({1}, {3})}, {{"axis", int64_t{0}}}},
      {"Expand", {F({3, 1}), I({2, 3, 4})}}, {"Expand", {F({2, 3}), I({1, 1})}}, {"Expand", {F({}), I({2, 2})}}, {"Expand", {F({2, 1, 3}), I({2, 4, 1})}},
      {"Pad", {F({2, 3}), I({1, 0, 0, 2})}}, {"Pad", {F({3, 4}), I({-1, 2, 1, -2}), V({}, {0.5}).Constant()}}, {"Pad", {F({2, 3, 4}), I({1, 2}), None(), I({-1})}},
      {"Pad", {F({2, 3}), I({0, 0, 0, 0})}}, {"Pad", {F({3, 4}), I({-1, -2, -1, 0})}},
      {"Pad", {F({2, 3}), I({1, 0, 0, 2}), F({})}, {}, 1, ~0u, 9}, {"Pad", {F({3, 4}), I({-1, 1}), F({}), I({1})}, {}, 1, ~0u, 3}, {"Pad", {Ix({2}, {5, 6}), I({1, 2}), Ix({}, {7})}},
      {"Gather", {F({5, 3}), Ix({2}, {4, 0})}}, {"Gather", {F({3, 5, 2}), Ix({2, 2}, {0, -1, 3, 3})}, {{"axis", int64_t{1}}}}, {"Gather", {F({2, 4}), Ix({}, {-2})}, {{"axis", int64_t{-1}}}},
      {"Gather", {F({4, 2}), Ix({3}, {1, 1, 1}, DType::kInt32)}}, {"Gather", {F({4, 2}), Ix({0}, {})}}, {"Gather", {Ix({4}, {5, 6, 7, 8}), Ix({2}, {3, 0})}},
      {"ai.ampc.SliceGrad", {F({2, 2}).NoGrad()}, {{"dims", Ints{5, 4}}, {"start", Ints{4, 0}}, {"step", Ints{-3, 2}}}},
      {"ai.ampc.SliceGrad", {F({3}).NoGrad()}, {{"dims", Ints{7}}, {"start", Ints{1}}, {"step", Ints{2}}}},
      {"ai.ampc.GatherGrad", {F({3, 2}), Ix({3}, {1, -1, 1})}, {{"dims", Ints{4, 2}}, {"axis", int64_t{0}}}, 1, ~0u, 3},
      {"ai.ampc.GatherGrad", {F({2, 2, 2, 3}), Ix({2, 2}, {1, 0, 1, 3}, DType::kInt32)}, {{"dims", Ints{2, 4, 3}}, {"axis", int64_t{1}}}, 1, ~0u, 3},
      {"ai.ampc.ToLayout", {F({2, 3, 4}).NoGrad()}},
  };
}

// ---- indexing and lines along an axis ------------------------------------------------------------------------------------

Table Indexing() {
  Table t = {
      {"GatherElements", {F({3, 4}), Ix({2, 4}, {0, 2, -1, 1, 2, 2, 0, 0})}}, {"GatherElements", {F({2, 3, 2}), Ix({2, 2, 1}, {0, -1, 1, 1}, DType::kInt32)}, {{"axis", int64_t{1}}}},
      {"GatherElements", {F({2, 3}), Ix({2, 5}, {0, 0, 1, 2, -3, 1, 1, 1, 1, 1})}, {{"axis", int64_t{-1}}}, 1, ~0u, 5},
      {"GatherElements", {Ix({3}, {5, 6, 7}), Ix({2}, {2, 0})}}, {"GatherElements", {F({3, 2}), Ix({0, 2}, {})}},
      {"GatherND", {F({3, 4, 2}), Ix({2, 2}, {0, 1, -1, 3})}}, {"GatherND", {F({3, 2}), Ix({4, 1}, {2, 2, 0, -1})}, {}, 1, ~0u, 3},
      {"GatherND", {F({2, 3, 2}), Ix({2, 2, 1}, {0, 2, 1, 1})}, {{"batch_dims", int64_t{1}}}, 1, ~0u, 2},
      {"GatherND", {F({2, 2, 3}), Ix({2, 2, 2, 1}, {0, 2, 1, 1, -1, 0, 2, 2})}, {{"batch_dims", int64_t{2}}}, 1, ~0u, 2},
      {"GatherND", {F({3, 2}), Ix({2, 0}, {})}, {}, 1, ~0u, 2},
      {"TopK", {F({3, 5}), I({2})}, {}, 2, 0b1}, {"TopK", {F({2, 4, 3}), I({3})}, {{"axis", int64_t{1}}, {"largest", int64_t{0}}}, 2, 0b1}, {"TopK", {F({5}), I({5})}, {{"axis", int64_t{0}}}, 2, 0b1},
      {"TopK", {V({2, 4}, {1, 3, 3, 1, 2, 2, 2, 2}).NoGrad(), I({2})}, {}, 2}, {"TopK", {Ix({4}, {5, -6, 7, 8}), I({3})}, {}, 2}, {"TopK", {F({2, 3}), I({0})}, {}, 2},
      {"OneHot", {Ix({3}, {0, 2, -1}), I({4}), F({2})}, {}, 1, ~0u, 12}, {"OneHot", {Ix({2, 2}, {1, 0, 5, 2}), IS(3), F({2})}, {{"axis", int64_t{0}}}, 1, ~0u, 12},
      {"OneHot", {Ix({2, 2}, {1, 0, -4, 2}), IS(3), F({2})}, {{"axis", int64_t{-2}}}, 1, ~0u, 12}, {"OneHot", {Ix({2}, {1, 0}), IS(2), Ix({2}, {7, 9})}},
      {"CumSum", {F({3, 4}), IS(0)}, {}, 1, ~0u, 4}, {"CumSum", {F({2, 3, 2}), IS(-2)}, {{"reverse", int64_t{1}}}, 1, ~0u, 3}, {"CumSum", {F({2, 4}), IS(1)}, {{"exclusive", int64_t{1}}}, 1, ~0u, 4},
      {"CumSum", {F({4}), I({0})}, {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}, 1, ~0u, 4}, {"CumSum", {Ix({4}, {1, 2, 3, 4}), IS(0)}},
      {"ReverseSequence", {F({4, 3, 2}), Ix({3}, {1, 4, 2})}}, {"ReverseSequence", {F({2, 3}), Ix({2}, {3, 2})}, {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}}},
      {"Tile", {F({2, 3}), I({2, 1})}, {}, 1, ~0u, 2}, {"Tile", {F({2, 1, 3}), I({1, 3, 2})}, {}, 1, ~0u, 6}, {"Tile", {F({2}), I({0})}}, {"Tile", {Ix({2}, {1, 2}), I({3})}}, {"Tile", {F({}), I({})}},
      {"Trilu", {F({3, 4})}}, {"Trilu", {F({2, 4, 3}), IS(1)}}, {"Trilu", {F({3, 3}), IS(-1)}, {{"upper", int64_t{0}}}}, {"Trilu", {F({2, 3}), IS(7)}}, {"Trilu", {F({2, 3}), IS(7)}, {{"upper", int64_t{0}}}},
      {"Trilu", {Ix({2, 2}, {1, 2, 3, 4})}}, {"Trilu", {B({2, 2}, {1, 1, 1, 1})}, {{"upper", int64_t{0}}}},
  };
  for (const int64_t exclusive : {0, 1}) {
    for (const int64_t reverse : {0, 1}) {
      const Attrs attrs{{"exclusive", exclusive}, {"reverse", reverse}};
      Join(t, {{"ai.ampc.CumProd", {F({2, 4})}, With(attrs, "axis", int64_t{1}), 1, ~0u, 4},
               {"ai.ampc.CumProd", {V({4, 2}, {1.5, 0, 2, 0, 0, 3, 0.5, -2})}, With(attrs, "axis", int64_t{0}), 1, ~0u, 4},
               {"ai.ampc.CumProdGrad", {F({2, 4}).NoGrad(), F({2, 4}).NoGrad()}, With(attrs, "axis", int64_t{1}), 1, ~0u, 8},
               {"ai.ampc.CumProdGrad", {V({3, 2}, {1.5, 0, 0, 0, 2, 3}).NoGrad(), F({3, 2}).NoGrad()}, With(attrs, "axis", int64_t{0}), 1, ~0u, 8}});
    }
  }
  // Scatters: distinct places for none (the order would count), repeated ones for the reductions.
  const Arg distinct = Ix({2, 3}, {0, 3, 1, 2, -2, 3}), repeated = Ix({2, 3}, {0, 3, 1, 0, -2, 1});
  for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
    const Attrs attrs{{"reduction", Str(reduction)}};
    const bool none = std::string_view(reduction) == "none";
    Join(t, {{"ScatterElements", {F({4, 3}), none ? distinct : repeated, F({2, 3})}, attrs, 1, ~0u, 3},
             {"ScatterElements", {F({2, 5}), Ix({2, 2}, {1, 4, 0, 2}, DType::kInt32), F({2, 2})}, With(attrs, "axis", int64_t{1}), 1, ~0u, 3},
             {"ScatterND", {F({4, 3}), Ix({3, 1}, {2, 0, none ? -1.0 : 2.0}), F({3, 3})}, attrs, 1, ~0u, 3},
             {"ScatterND", {F({2, 3, 2}), Ix({2, 2}, {0, 1, none ? 1.0 : 0.0, none ? 2.0 : 1.0}), F({2, 2})}, attrs, 1, ~0u, 3}});
  }
  const Attrs mul{{"reduction", Str("mul")}};
  Join(t, {{"ScatterElements", {F({3}), Ix({4}, {0, 0, 1, 1}), V({4}, {0, 2, 0, 0})}, mul, 1, ~0u, 3},
           {"ScatterElements", {V({3}, {1, 5, 2}).NoGrad(), Ix({3}, {0, 0, 1}), V({3}, {1, 0.5, 5}).NoGrad()}, {{"reduction", Str("max")}}},
           {"ScatterElements", {Ix({3}, {1, 5, 2}), Ix({3}, {0, 0, 1}), Ix({3}, {3, 4, 5})}, {{"reduction", Str("add")}}}});
  return t;
}

Table Reduction(const std::string& op, bool positive) {
  const auto x = [&](Dims dims) { return positive ? P(std::move(dims)) : F(std::move(dims)); };
  return {
      {op, {x({2, 3, 4})}, {}, 1, ~0u, 24}, {op, {x({2, 3, 4}), I({1})}, {}, 1, ~0u, 3}, {op, {x({2, 3, 4}), I({-1, 0})}, {{"keepdims", int64_t{0}}}, 1, ~0u, 8},
      {op, {x({2, 3}), I({})}, {}, 1, ~0u, 6}, {op, {x({2, 3}), I({})}, {{"noop_with_empty_axes", int64_t{1}}}}, {op, {x({2, 3})}, {{"noop_with_empty_axes", int64_t{1}}}},
      {op, {x({5})}, {{"keepdims", int64_t{0}}}, 1, ~0u, 5}, {op, {x({2, 1, 3, 2}), I({1, 3})}, {}, 1, ~0u, 2}, {op, {x({})}},
  };
}

Table Reductions() {
  Table t;
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"}) Join(t, Reduction(op, false));
  Join(t, Reduction("ReduceLogSum", true));
  for (const char* op : {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"}) t.push_back({op, {Ix({2, 3}, {1, 2, -3, 4, 5, 6}), I({1})}});
  t.push_back({"ReduceProd", {V({3, 3}, {1.5, 0, 2, 0, 0, 3, 0.5, -2, 1}), I({1})}});
  for (const char* op : {"ArgMax", "ArgMin"}) {
    Join(t, {{op, {F({2, 5})}}, {op, {F({2, 3, 4})}, {{"axis", int64_t{-2}}, {"keepdims", int64_t{0}}}}, {op, {V({2, 4}, {1, 3, 3, 1, 2, 2, 2, 2}).NoGrad()}, {{"axis", int64_t{1}}}},
             {op, {V({2, 4}, {1, 3, 3, 1, 2, 2, 2, 2}).NoGrad()}, {{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}}}});
  }
  for (const int64_t keep : {0, 1}) t.push_back({"ai.ampc.ReduceSum", {F({2, 3, 4})}, {{"axes", Ints{0, 2}}, {"keepdims", keep}, {"to", kToAcc}}, 1, ~0u, 8});
  t.push_back({"ai.ampc.ReduceSum", {F({2, 3})}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}}, 1, ~0u, 3});
  return t;
}

// ---- random ops, unscaling, optimizers -----------------------------------------------------------------------------------

Table Random() {
  const Arg rng = Ix({2}, {1234567, 3});
  return {
      {"Dropout", {F({2, 3}).NoGrad()}, {}, 1, ~0u, 1, true}, {"Dropout", {F({2, 3}).NoGrad(), AS(0.3)}, {}, 2, ~0u, 1, true},
      {"ai.ampc.DropoutTrain", {F({2, 7}), AS(0.5), rng}, {{"stream", int64_t{77}}}, 2},
      {"ai.ampc.DropoutTrain", {F({3, 3, 5}), V({}, {0.25}).NoGrad(), Ix({2}, {4294967297.0, 5000000000.0})}, {{"stream", int64_t{2147483647}}}, 2},
      {"ai.ampc.DropoutTrain", {F({5}), AS(0), rng}, {{"stream", int64_t{1}}}, 2},
  };
}

// found_inf, lr, momentum, dampening, weight_decay, first; then w.., g.., v..
Sample Sgd(bool skip, bool first, bool momentum, int64_t nesterov, int64_t n) {
  Sample s{"ai.ampc.Sgd", {B({}, {skip ? 1.0 : 0.0}), AS(0.1), AS(0.9), AS(nesterov ? 0 : 0.2), AS(0.01), B({}, {first ? 1.0 : 0.0})},
           {{"n", n}, {"nesterov", nesterov}}, static_cast<size_t>(momentum ? 2 * n : n), ~0u, 4};
  for (int list = 0; list < (momentum ? 3 : 2); ++list) {
    for (int64_t k = 0; k < n; ++k) s.args.push_back(A({2 + k, 3}).NoGrad());
  }
  return s;
}
// found_inf, lr, step_size, beta1, 1-beta1, beta2, 1-beta2, sqrt(bias correction 2), eps, weight_decay; then w.., g.., m.., v..
Sample Adam(bool skip, int64_t decoupled, int64_t n) {
  Sample s{"ai.ampc.Adam", {B({}, {skip ? 1.0 : 0.0}), AS(0.01), AS(0.02), AS(0.9), AS(0.1), AS(0.99), AS(0.01), AS(0.3), AS(1e-6), AS(0.1)},
           {{"n", n}, {"decoupled", decoupled}}, static_cast<size_t>(3 * n), ~0u, 8};
  for (int list = 0; list < 4; ++list) {
    for (int64_t k = 0; k < n; ++k) s.args.push_back(list == 3 ? AP({2 + k, 3}).NoGrad() : A({2 + k, 3}).NoGrad());
  }
  return s;
}

// scale, growth tracker, hysteresis tracker, skips, found_inf, growth, backoff, interval, min, max, hysteresis
Sample Scaler(double scale, double tracker, double hysteresis, double skips, bool found, double interval = 2, double min = 1, double max = 1e6) {
  const auto f32 = [](double v) { return Ix({}, {v}, DType::kFloat32); };
  const auto f64 = [](double v) { return Ix({}, {v}, DType::kFloat64); };
  return {"ai.ampc.ScalerUpdate", {f32(scale), Ix({}, {tracker}), Ix({}, {hysteresis}), Ix({}, {skips}), B({}, {found ? 1.0 : 0.0}), f64(2), f64(0.5), f64(interval), f64(min), f64(max), f64(2)}, {}, 4};
}

}  // namespace

Table ElementwiseSamples() {
  Table t;
  for (auto* family : {Arithmetic, UnaryOps, LogicOps, CastOps, OwnElementwise}) Join(t, family());
  return t;
}

Table LayerSamples() {
  Table t;
  for (auto* family : {Matmuls, Convolutions, Pools, Resizing, Sampling, Norms, RowNorms, RecurrentLayers, OwnRecurrentLayers, AttentionSamples, Losses}) Join(t, family());
  return t;
}

Table MovementSamples() {
  Table t;
  for (auto* family : {Shapes, Movement, Indexing, Reductions}) Join(t, family());
  return t;
}

Table TrainingSamples() {
  Table t = Random();
  const Arg scale = Ix({}, {1024}, DType::kFloat32);
  Join(t, {
      {"ai.ampc.UnscaleCheck", {scale, F({2, 3}).NoGrad(), F({5}).NoGrad()}, {}, 4, ~0u, 11},
      {"ai.ampc.UnscaleCheck", {None(), F({4}).NoGrad()}, {}, 3, ~0u, 4},
      {"ai.ampc.UnscaleCheck", {scale, V({3}, {1, kInf, 2}).NoGrad(), F({2}).NoGrad()}, {}, 4},
      {"ai.ampc.UnscaleCheck", {scale, V({3}, {1, kNan, 2}).NoGrad()}, {}, 3},
      {"ai.ampc.ClipNorm", {AS(3), AS(1), A({2, 3}).NoGrad(), A({2}).NoGrad()}, {}, 2},
      {"ai.ampc.ClipNorm", {AS(0.5), AS(1), A({3}).NoGrad()}, {}, 1},
      Sgd(false, false, false, 0, 1), Sgd(false, true, true, 0, 2), Sgd(false, false, true, 0, 2), Sgd(false, false, true, 1, 1), Sgd(false, true, true, 1, 1), Sgd(true, false, true, 0, 2),
      Adam(false, 0, 1), Adam(false, 1, 2), Adam(true, 0, 2),
      Scaler(1024, 0, 2, 0, false), Scaler(1024, 1, 2, 3, false), Scaler(1024, 1, 2, 0, true), Scaler(1024, 1, 1, 1, true), Scaler(1.5, 0, 1, 1, true), Scaler(600000, 1, 2, 0, false),
      Scaler(0.25, 0, 1, 0, true), Scaler(64, 5, 2, 0, false, 3),
  });
  return t;
}

Table LargeSamples() {
  const Attr mean = Str("mean");
  Table t = {
      {"Add", {F({37, 129}), F({129})}, {}, 1, ~0u, 37}, {"Mul", {F({3, 64, 5, 7}), F({64, 1, 1})}, {}, 1, ~0u, 105}, {"Relu", {F({5, 7, 33, 3})}}, {"Gelu", {F({1031})}},
      {"Sigmoid", {F({6, 521})}}, {"Max", {F({7, 300}), F({300}), F({7, 1})}, {}, 1, ~0u, 300}, {"Where", {B({1, 2}, {1, 0}), F({700, 2}), F({700, 1})}, {}, 1, ~0u, 700},
      {"Cast", {F({3001})}, {{"to", kF32}}}, {"Cast", {F({3001})}, {{"to", kToTested}}},
      {"MatMul", {F({33, 70}), F({70, 17})}, {}, 1, ~0u, 70}, {"MatMul", {F({3, 40, 65}), F({65, 48})}, {}, 1, ~0u, 120}, {"Gemm", {F({65, 130}), F({40, 130}), F({40})}, {{"transB", int64_t{1}}}, 1, ~0u, 130},
      {"Conv", {F({2, 16, 9, 9}), F({32, 16, 3, 3}), F({32})}, Window({1, 1}, {1, 1}, {1, 1, 1, 1}), 1, ~0u, 288},
      {"Conv", {F({2, 24, 11, 10}), F({24, 1, 3, 3}), F({24})}, Window({2, 2}, {1, 1}, {1, 1, 1, 1}, 24), 1, ~0u, 60},
      {"ConvTranspose", {F({2, 16, 6, 7}), F({16, 8, 3, 3}), F({8})}, Window({2, 2}, {1, 1}, {1, 1, 1, 1}), 1, ~0u, 200},
      {"MaxPool", {F({2, 17, 15, 15})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1})}, {"AveragePool", {F({2, 17, 15, 15})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1}), 1, ~0u, 9}, {"GlobalAveragePool", {F({3, 33, 9, 9})}, {}, 1, ~0u, 81},
      {"ai.ampc.BatchNormTrain", {F({5, 33, 7, 6}), A({33}), A({33}), A({33}).NoGrad(), AP({33}).NoGrad()}, {{"unbiased", int64_t{0}}}, 5, 0b1, 210},
      {"ai.ampc.BatchNormTrain", {F({70, 19}), A({19}), A({19}), A({19}).NoGrad(), AP({19}).NoGrad()}, {{"unbiased", int64_t{1}}}, 5, 0b1, 70},
      {"LayerNormalization", {F({131, 70}), A({70}), A({70})}, {}, 1, ~0u, 140}, {"LayerNormalization", {F({3, 5001}), A({5001}), A({5001})}, {}, 1, ~0u, 5001},
      {"RMSNormalization", {F({70, 33}), A({33})}, {}, 1, ~0u, 140}, {"GroupNormalization", {F({3, 20, 9, 9}), A({20}), A({20})}, {{"num_groups", int64_t{4}}, {"stash_type", kF64}}, 1, ~0u, 405},
      {"InstanceNormalization", {F({2, 3, 67, 41}), A({3}), A({3})}, {}, 1, ~0u, 5494},
      {"Softmax", {F({9, 1000})}, {}, 1, ~0u, 1000}, {"LogSoftmax", {F({3, 65, 34})}, {{"axis", int64_t{1}}}, 1, ~0u, 65}, {"Softmax", {F({257, 3})}, {{"axis", int64_t{0}}}, 1, ~0u, 257},
      {"ReduceSum", {F({33, 257})}, {}, 1, ~0u, 8481}, {"ReduceMean", {F({33, 257}), I({0})}, {}, 1, ~0u, 33}, {"ReduceL2", {F({12, 33, 21}), I({1})}, {}, 1, ~0u, 33}, {"ReduceMax", {F({12, 33, 21}), I({0, 2})}, {}, 1, ~0u, 252},
      {"ArgMax", {F({40, 301})}, {{"axis", int64_t{1}}}}, {"Transpose", {F({17, 33, 5})}, {{"perm", Ints{2, 1, 0}}}}, {"Transpose", {F({2, 19, 8, 9})}, {{"perm", Ints{0, 2, 3, 1}}}},
      {"Concat", {F({30, 65}), F({30, 33}), F({30, 1})}, {{"axis", int64_t{1}}}}, {"Slice", {F({40, 71}), I({3, 70}), I({39, 2}), I({0, 1}), I({2, -1})}}, {"Pad", {F({13, 65}), I({1, 2, 3, 4})}}, {"Expand", {F({1, 65, 1}), I({9, 65, 11})}, {}, 1, ~0u, 99},
      {"ai.ampc.DropoutTrain", {F({7, 311}), AS(0.3), Ix({2}, {99, 4})}, {{"stream", int64_t{5}}}, 2},
      {"ai.ampc.UnscaleCheck", {Ix({}, {1024}, DType::kFloat32), F({5003}).NoGrad(), F({31, 7}).NoGrad()}, {}, 4, ~0u, 5220},
      {"ai.ampc.ClipNorm", {AS(3), AS(1), A({3001}).NoGrad()}, {}, 1},
  };
  Join(t, LargeRecurrentLayers());
  Join(t, LargeAttentions());
  const auto labels = [](size_t n, int classes) {
    Doubles v(n);
    for (size_t i = 0; i < n; ++i) v[i] = static_cast<double>(i * 7 % static_cast<size_t>(classes));
    return v;
  };
  t.push_back({"SoftmaxCrossEntropyLoss", {F({37, 300}), Ix({37}, labels(37, 300))}, {{"reduction", mean}}, 1, 0b1, 300});
  t.push_back({"SoftmaxCrossEntropyLoss", {F({4, 20, 9, 9}), Ix({4, 9, 9}, labels(324, 20)), P({20}).NoGrad()}, {{"reduction", mean}, {"ignore_index", int64_t{3}}}, 1, 0b1, 324});
  t.push_back({"Gather", {F({100, 33}), Ix({60}, labels(60, 100))}, {}, 1, ~0u, 4});
  t.push_back({"ai.ampc.TopKCorrect", {F({40, 100}).NoGrad(), Ix({40}, labels(40, 100))}, {{"k", int64_t{5}}}});
  const Attrs linear{{"mode", Str("linear")}};
  // powers of two: onnxruntime rounds positions to float
  Join(t, {Resized({2, 3, 40, 36}, {}, {2, 3, 80, 9}, linear, {}, 16), Resized({1, 5, 50, 50}, {}, {9}, With(linear, "axes", Ints{1}), {}, 4), Resized({3, 7, 64, 9}, {1, 1, 2, 3}, {}, {}, {}, 6)});
  t.push_back({"MaxPool", {F({2, 17, 15, 16})}, Pool({2, 2}, {2, 2}), 2, 0b1});
  t.push_back({"GridSample", {F({2, 9, 16, 17}), U({2, 11, 13, 2}, -1.1, 1.1)}, {}, 1, ~0u, 100});
  Sample sgd = Sgd(false, false, true, 0, 1), adam = Adam(false, 1, 1);
  for (Sample* s : {&sgd, &adam}) {
    for (Arg& arg : s->args) {
      if (arg.dims.size() == 2) arg.dims = {41, 57};
    }
    t.push_back(std::move(*s));
  }
  for (Sample& s : t) s.large = true;
  return t;
}

}  // namespace ampc::conformance
