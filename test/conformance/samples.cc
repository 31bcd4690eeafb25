// SPDX-License-Identifier: Apache-2.0
// Samples of elementwise ops, movement, reductions, random ops and what training adds. Layers:
// samples_layers.cc.
// clang-format off
#include "test/conformance/samples_args.h"

namespace ampc::conformance {
namespace {

// ---- elementwise -----------------------------------------------------------------------------------------------------

Table Binary(const std::string& op) {
  return {{op, {F({2, 3}), F({2, 3})}},
          {op, {F({2, 1, 3, 1}), F({4, 1, 2})}},
          {op, {F({2, 3}), F({})}},
          {op, {F({1}), F({2, 2})}},
          {op, {F({3, 1, 1}), F({2, 3, 2, 2})}},
          {op, {F({2, 3}), Same(0)}},
          {op, {F({2, 0, 3}), F({3})}},
          {op, {F({}), F({})}},
          {op, {F({1}), F({})}}};
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
  for (double alpha : {1.0, 1.702}) Join(t, Unary("ai.ampc.Swish", 0.2, 5, true, {{"alpha", alpha}}));
  Join(t, Unary("HardSwish", 0.1, 5, true, {}, {-3, 3}));
  Join(t, Unary("Gelu", 0.2, 3, true, {{"approximate", std::string("tanh")}}));
  Join(t, {
      {"Neg", {Ix({3}, {1, -2, 0})}}, {"Abs", {Ix({3}, {1, -2, 0}, DType::kInt32)}}, {"Sign", {Ix({3}, {5, -2, 0})}},
      {"Clip", {F({2, 3})}},
      {"Clip", {F({2, 9}).Avoiding({-0.5, 0.7}), V({}, {-0.5}).Constant(), V({}, {0.7}).Constant()}},
      {"Clip", {F({2, 9}).Avoiding({0.7}), None(), V({}, {0.7}).Constant()}},
      {"Clip", {F({2, 9}).Avoiding({-0.5}), V({}, {-0.5})}}, {"Clip", {F({2, 9}).Avoiding({0.7}), None(), V({}, {0.7})}},
      {"Clip", {F({2, 9}).Avoiding({-0.5, 0.7}), V({}, {-0.5}), V({}, {0.7})}}, {"Clip", {F({2, 9}).Avoiding({-0.5, 0.7}), V({}, {0.7}), V({}, {-0.5})}},
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
      {"ai.ampc.Map", {F({}).NoGrad(), F({}).NoGrad()}, {{"expr", std::string("y0 = x0 * x1; y1 = x0 < x1")}, {"to", Ints{kToTested, kBoolType}}}, 2},
      {"ai.ampc.SquaredError", {F({}), F({})}}, {"ai.ampc.AbsoluteError", {F({}), F({})}}, {"ai.ampc.SmoothL1", {F({}), F({})}, {{"beta", 1.0}}}, {"ai.ampc.Huber", {F({}), F({})}, {{"delta", 1.0}}},
      {"ai.ampc.KlDivergence", {U({}, -3, -0.2), U({}, 0.1, 0.9)}}, {"ai.ampc.BceWithLogits", {F({}), U({}, 0, 1), V({}, {1}).Constant()}},
      {"ai.ampc.BceWithLogits", {U({2, 3}, -9, 9), V({2, 3}, {0, 1, 1, 0, 1, 0}).NoGrad(), U({3}, 0.5, 3).NoGrad()}, {}, 1, ~0u, 4},
  };
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
      {"Gather", {F({5}), IS(2)}}, {"ai.ampc.GatherGrad", {F({}), IS(2)}, {{"dims", Ints{5}}, {"axis", int64_t{0}}}},
      {"Split", {F({5}), I({2, 0, 3})}, {}, 3, 0b100}, {"Pad", {F({3}), I({1, -1})}},
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
               {"ai.ampc.CumProd", {F({4})}, With(attrs, "axis", int64_t{0}), 1, ~0u, 4},
               {"ai.ampc.CumProdGrad", {F({4}).NoGrad(), F({4}).NoGrad()}, With(attrs, "axis", int64_t{0}), 1, ~0u, 8},
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
  t.push_back({"ai.ampc.ReduceSum", {F({4})}, {{"axes", Ints{0}}, {"keepdims", int64_t{0}}}, 1, ~0u, 4});
  t.push_back({"ai.ampc.ReduceSum", {F({2, 3})}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}}, 1, ~0u, 3});
  return t;
}

// ---- random ops, unscaling, optimizers -----------------------------------------------------------------------------------

Sample Drawn(const Dims& dims, int64_t normal, double shift, double scale) {
  return {"ai.ampc.Random", {Ix({2}, {1234567, 4294967299.0})}, {{"stream", int64_t{78}}, {"normal", normal}, {"shift", shift}, {"scale", scale}, {"dims", dims}, {"to", kToAcc}}};
}

Table Random() {
  const Arg rng = Ix({2}, {1234567, 3});
  return {
      {"Dropout", {F({2, 3}).NoGrad()}, {}, 1, ~0u, 1, true}, {"Dropout", {F({2, 3}).NoGrad(), AS(0.3)}, {}, 2, ~0u, 1, true},
      {"ai.ampc.DropoutTrain", {F({2, 7}), AS(0.5), rng}, {{"stream", int64_t{77}}}, 2},
      {"ai.ampc.DropoutTrain", {F({3, 3, 5}), V({}, {0.25}).NoGrad(), Ix({2}, {4294967297.0, 5000000000.0})}, {{"stream", int64_t{2147483647}}}, 2},
      {"ai.ampc.DropoutTrain", {F({5}), AS(0), rng}, {{"stream", int64_t{1}}}, 2}, {"ai.ampc.DropoutTrain", {F({}), AS(0.5), rng}, {{"stream", int64_t{5}}}, 2},
      {"RandomUniform", {}, {{"shape", Ints{2, 3}}}, 1, ~0u, 1, true}, {"RandomNormal", {}, {{"shape", Ints{2, 3}}, {"dtype", kF64}, {"mean", 1.0}}, 1, ~0u, 1, true},
      {"RandomUniformLike", {F({2, 3}).NoGrad()}, {}, 1, ~0u, 1, true}, {"RandomNormalLike", {Ix({2, 3}, {1, 2, 3, 4, 5, 6})}, {{"dtype", kF32}}, 1, ~0u, 1, true},
      {"Bernoulli", {F({2, 3}).NoGrad()}, {}, 1, ~0u, 1, true}, {"Bernoulli", {F({2, 3}).NoGrad()}, {{"dtype", static_cast<int64_t>(DType::kInt64)}}, 1, ~0u, 1, true},
      Drawn({3, 7}, 0, 0.0, 1.0), Drawn({5, 2, 3}, 1, 0.0, 1.0), Drawn({13}, 0, -2.0, 5.0), Drawn({}, 1, 3.0, 0.1), Drawn({0, 4}, 0, 0.0, 1.0),
  };
}

// found_inf, lr, momentum, dampening, weight_decay, first; then w.., g.., v..
// Parameter k has dims [2 + k, 3], or none.
Sample Sgd(bool skip, bool first, bool momentum, int64_t nesterov, int64_t n, bool scalars = false) {
  Sample s{"ai.ampc.Sgd", {B({}, {skip ? 1.0 : 0.0}), AS(0.1), AS(0.9), AS(nesterov ? 0 : 0.2), AS(0.01), B({}, {first ? 1.0 : 0.0})},
           {{"n", n}, {"nesterov", nesterov}}, static_cast<size_t>(momentum ? 2 * n : n), ~0u, 4};
  for (int list = 0; list < (momentum ? 3 : 2); ++list) {
    for (int64_t k = 0; k < n; ++k) s.args.push_back(A(scalars ? Dims{} : Dims{2 + k, 3}).NoGrad());
  }
  return s;
}
// found_inf, lr, step_size, beta1, 1-beta1, beta2, 1-beta2, sqrt(bias correction 2), eps, weight_decay; then w.., g.., m.., v..
Sample Adam(bool skip, int64_t decoupled, int64_t n, bool scalars = false) {
  Sample s{"ai.ampc.Adam", {B({}, {skip ? 1.0 : 0.0}), AS(0.01), AS(0.02), AS(0.9), AS(0.1), AS(0.99), AS(0.01), AS(0.3), AS(1e-6), AS(0.1)},
           {{"n", n}, {"decoupled", decoupled}}, static_cast<size_t>(3 * n), ~0u, 8};
  for (int list = 0; list < 4; ++list) {
    for (int64_t k = 0; k < n; ++k) {
      const Dims dims = scalars ? Dims{} : Dims{2 + k, 3};
      s.args.push_back(list == 3 ? AP(dims).NoGrad() : A(dims).NoGrad());
    }
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
      {"ai.ampc.UnscaleCheck", {scale, F({}).NoGrad()}, {}, 3}, {"ai.ampc.ClipNorm", {AS(3), AS(1), A({}).NoGrad()}, {}, 1}, Sgd(false, false, true, 0, 1, true), Adam(false, 1, 1, true),
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
  Table t = {
      {"Add", {F({37, 129}), F({129})}, {}, 1, ~0u, 37}, {"Mul", {F({3, 64, 5, 7}), F({64, 1, 1})}, {}, 1, ~0u, 105}, {"Relu", {F({5, 7, 33, 3})}}, {"Gelu", {F({1031})}},
      {"Sigmoid", {F({6, 521})}}, {"Max", {F({7, 300}), F({300}), F({7, 1})}, {}, 1, ~0u, 300}, {"Where", {B({1, 2}, {1, 0}), F({700, 2}), F({700, 1})}, {}, 1, ~0u, 700},
      {"Cast", {F({3001})}, {{"to", kF32}}}, {"Cast", {F({3001})}, {{"to", kToTested}}},
      {"ReduceSum", {F({33, 257})}, {}, 1, ~0u, 8481}, {"ReduceMean", {F({33, 257}), I({0})}, {}, 1, ~0u, 33}, {"ReduceL2", {F({12, 33, 21}), I({1})}, {}, 1, ~0u, 33}, {"ReduceMax", {F({12, 33, 21}), I({0, 2})}, {}, 1, ~0u, 252},
      {"ArgMax", {F({40, 301})}, {{"axis", int64_t{1}}}}, {"Transpose", {F({17, 33, 5})}, {{"perm", Ints{2, 1, 0}}}}, {"Transpose", {F({2, 19, 8, 9})}, {{"perm", Ints{0, 2, 3, 1}}}},
      {"Concat", {F({30, 65}), F({30, 33}), F({30, 1})}, {{"axis", int64_t{1}}}}, {"Slice", {F({40, 71}), I({3, 70}), I({39, 2}), I({0, 1}), I({2, -1})}}, {"Pad", {F({13, 65}), I({1, 2, 3, 4})}}, {"Expand", {F({1, 65, 1}), I({9, 65, 11})}, {}, 1, ~0u, 99},
      {"ai.ampc.DropoutTrain", {F({7, 311}), AS(0.3), Ix({2}, {99, 4})}, {{"stream", int64_t{5}}}, 2},
      Drawn({7, 3011}, 0, -1.0, 2.0), Drawn({7, 3011}, 1, 0.0, 1.0),
      {"ai.ampc.UnscaleCheck", {Ix({}, {1024}, DType::kFloat32), F({5003}).NoGrad(), F({31, 7}).NoGrad()}, {}, 4, ~0u, 5220},
      {"ai.ampc.ClipNorm", {AS(3), AS(1), A({3001}).NoGrad()}, {}, 1},
  };
  Join(t, LargeLayerSamples());
  t.push_back({"Gather", {F({100, 33}), Ix({60}, Labels(60, 100))}, {}, 1, ~0u, 4});
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
