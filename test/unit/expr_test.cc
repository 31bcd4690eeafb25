// SPDX-License-Identifier: Apache-2.0
// Elementwise programs: parsing (precedence, sharing, folding, error places) and evaluation in
// float, double and int64 (edges: NaN, division by zero, aliasing of outputs and inputs).

#include "kernels/expr.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/expr_eval.h"

namespace ampc {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

ExprProgram Parse(std::string_view text, const Attrs& params = {}) {
  Result<ExprProgram> program = ParseExpr(text, params);
  EXPECT_TRUE(program.ok()) << text << ": " << (program.ok() ? "" : program.status().ToString());
  return program.ok() ? std::move(program).value() : ExprProgram{};
}

std::string ErrorOf(std::string_view text, const Attrs& params = {}) {
  Result<ExprProgram> program = ParseExpr(text, params);
  if (program.ok()) return "no error";
  EXPECT_EQ(program.status().id(), "E0901");
  return program.status().message();
}

/// All outputs of a program on vectors of equal length <= kExprBlock.
template <typename T>
std::vector<std::vector<T>> EvalAll(const ExprProgram& program,
                                    const std::vector<std::vector<T>>& x) {
  const size_t n = x.empty() ? 1 : x[0].size();
  std::vector<std::vector<T>> y(program.outputs.size(), std::vector<T>(n));
  std::vector<const T*> inputs;
  std::vector<T*> outputs;
  for (const auto& v : x) inputs.push_back(v.data());
  for (auto& v : y) outputs.push_back(v.data());
  std::vector<T> scratch(ExprScratchSize(program));
  EvalBlock<T>(program, inputs.data(), outputs.data(), static_cast<int64_t>(n), scratch.data());
  return y;
}

template <typename T>
std::vector<T> Eval(std::string_view text, const std::vector<std::vector<T>>& x) {
  return EvalAll<T>(Parse(text), x)[0];
}

template <typename T>
T Eval1(std::string_view text, T x0 = 0, T x1 = 0, T x2 = 0) {
  return Eval<T>(text, {{x0}, {x1}, {x2}})[0];
}

TEST(ExprParse, FollowsPrecedenceAndAssociativity) {
  EXPECT_EQ(Eval1<double>("x0 + x1 * x2", 2, 3, 4), 14);
  EXPECT_EQ(Eval1<double>("(x0 + x1) * x2", 2, 3, 4), 20);
  EXPECT_EQ(Eval1<double>("x0 - x1 - x2", 10, 3, 4), 3);
  EXPECT_EQ(Eval1<double>("x0 / x1 / x2", 24, 3, 4), 2);
  EXPECT_EQ(Eval1<double>("-x0 * x1", 2, 3), -6);
  EXPECT_EQ(Eval1<double>("x0 < x1 == x2 > x1", 1, 2, 3), 1);
  EXPECT_EQ(Eval1<double>("x0 || x1 && x2", 1, 1, 0), 1);
  EXPECT_EQ(Eval1<double>("!x0 + 1", 0), 2);
  EXPECT_EQ(Eval1<double>("1.5e1*.5 + x0", 0), 7.5);
}

TEST(ExprParse, SharesEqualSubexpressions) {
  const ExprProgram p = Parse("y0 = exp(x0) * 2; y1 = exp(x0) * 2 + x1");
  EXPECT_EQ(p.code.size(), 6u);  // x0, exp, 2, mul, x1, add
  EXPECT_EQ(p.num_inputs, 2);
}

TEST(ExprParse, FoldsConstantsInDouble) {
  const ExprProgram p = Parse("x0 * (1 / $n + sqrt(2) * 0)", Attrs{{"n", int64_t{3}}});
  ASSERT_EQ(p.code.size(), 3u);
  EXPECT_EQ(p.code[1].constant, 1.0 / 3);
  EXPECT_EQ(Parse("where(1 < 2, x0, x7)").num_inputs, 1);
  EXPECT_EQ(Eval1<double>("fp16(65520) + x0"), kInf);
  EXPECT_TRUE(std::signbit(Eval1<double>("x0 * 0 + -0", -1)));
}

TEST(ExprParse, DropsUnusedTemporaries) {
  const ExprProgram p = Parse("a = tanh(x3); b = x0 + 1; y0 = b");
  EXPECT_EQ(p.code.size(), 3u);
  EXPECT_EQ(p.num_inputs, 1);
}

TEST(ExprParse, TakesParametersByName) {
  EXPECT_EQ(EvalAll<double>(Parse("$a*x0", Attrs{{"a", 2.5}}), {{2.0}})[0][0], 5);
  EXPECT_NE(ErrorOf("$a*x0").find("parameter '$a' is not given"), std::string::npos);
  EXPECT_NE(ErrorOf("$a*x0", Attrs{{"a", std::string("s")}}).find("not a number"),
            std::string::npos);
}

TEST(ExprParse, NamesThePlaceOfAnError) {
  EXPECT_NE(ErrorOf("x0 + ").find("expected a value, found the end at character 6"),
            std::string::npos);
  EXPECT_NE(ErrorOf("max(x0 x1)").find("expected ',', found 'x1' at character 8"),
            std::string::npos);
  EXPECT_NE(ErrorOf("max(x0, x1, 2)").find("takes 2 arguments, found more"), std::string::npos);
  EXPECT_NE(ErrorOf("foo(x0)").find("unknown function 'foo' at character 1"), std::string::npos);
  EXPECT_NE(ErrorOf("x0 + t").find("'t' is not defined at character 6"), std::string::npos);
  EXPECT_NE(ErrorOf("x0 # 2").find("unknown character 0x23 at character 4"), std::string::npos);
  EXPECT_NE(ErrorOf("t = x0; t = x1; y0 = t").find("'t' is assigned twice"), std::string::npos);
  EXPECT_NE(ErrorOf("y1 = x0").find("output y0 is never set"), std::string::npos);
  EXPECT_NE(ErrorOf("t = x0").find("sets no output"), std::string::npos);
  EXPECT_NE(ErrorOf("exp = x0").find("cannot be assigned"), std::string::npos);
  EXPECT_NE(ErrorOf("x0; x1").find("bare expression"), std::string::npos);
  EXPECT_NE(ErrorOf("t = x0; t + 1").find("expected a statement"), std::string::npos);
  EXPECT_NE(ErrorOf("").find("expected an expression"), std::string::npos);
  EXPECT_NE(ErrorOf("1e999 + x0").find("out of range"), std::string::npos);
  EXPECT_NE(ErrorOf("x0)").find("expected ';', found ')'"), std::string::npos);
  EXPECT_NE(ErrorOf("x99999 + 1").find("out of range"), std::string::npos);
  EXPECT_NE(ErrorOf("y99999 = x0").find("out of range"), std::string::npos);
  EXPECT_NE(ErrorOf("x0 = x1").find("cannot be assigned"), std::string::npos);
}

TEST(ExprParse, RefusesExcessiveNestingAndLength) {
  const std::string deep = std::string(100000, '(') + "x0";
  EXPECT_NE(ErrorOf(deep).find("nested deeper"), std::string::npos);
  EXPECT_NE(ErrorOf(std::string(100000, '-') + "x0").find("nested deeper"), std::string::npos);
  std::string longest = "x0";
  for (int i = 0; i < 5000; ++i) longest += "*x0";
  EXPECT_NE(ErrorOf(longest).find("more than 4096 operations"), std::string::npos);
}

TEST(ExprParse, TextParsesBackEqual) {
  for (std::string_view text :
       {"x0", "y0 = x1; y1 = x0", "where(x0 > 0, x0, 0.01 * x0)",
        "y0 = -(x0 - 1e-30); y1 = !x1 && isnan(x0)", "max(min(x0, inf), -inf) + mod(x1, nan)", "3",
        "t = x0*x0; y0 = t; y1 = t + fp16(x1) * -0"}) {
    const ExprProgram p = Parse(text);
    const std::string printed = ExprText(p);
    const ExprProgram q = Parse(printed);
    EXPECT_EQ(ExprText(q), printed) << text;
    EXPECT_EQ(p.code.size(), q.code.size()) << printed;
  }
}

TEST(ExprEval, SelectsWithoutMultiplying) {
  EXPECT_EQ(Eval<float>("where(x0 > 0, log(x0), 0)", {{1.0f, 0.0f, -1.0f}}),
            (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(Eval<float>("where(x0, 1, 2)", {{0.0f, NAN, -0.0f}}), (std::vector<float>{2, 1, 2}));
  EXPECT_EQ(Eval<float>("where(x0, x1, 2)", {{0.0f, 5.0f}, {7.0f, 8.0f}}),
            (std::vector<float>{2, 8}));
  EXPECT_EQ(Eval<float>("where(x0, 2, x1)", {{0.0f, 5.0f}, {7.0f, 8.0f}}),
            (std::vector<float>{7, 2}));
}

TEST(ExprEval, MinAndMaxPassNanOn) {
  for (std::string_view f : {"min", "max"}) {
    const std::string call = std::string(f) + "(x0, x1)";
    EXPECT_TRUE(std::isnan(Eval1<float>(call, NAN, 1))) << f;
    EXPECT_TRUE(std::isnan(Eval1<float>(call, 1, NAN))) << f;
    EXPECT_TRUE(std::isnan(Eval1<float>(std::string(f) + "(x0, 0)", NAN))) << f;
    EXPECT_TRUE(std::isnan(Eval1<float>(std::string(f) + "(0, x0)", NAN))) << f;
  }
  EXPECT_EQ(Eval1<float>("min(x0, x1)", -1, 1), -1);
  EXPECT_EQ(Eval1<float>("max(x0, x1)", -1, 1), 1);
}

TEST(ExprEval, ComparisonsWithNanAreFalse) {
  EXPECT_EQ(Eval1<float>("(x0 < x1) + (x0 <= x1) + (x0 > x1) + (x0 >= x1) + (x0 == x1)", NAN, 1),
            0);
  EXPECT_EQ(Eval1<float>("x0 != x0", NAN), 1);
}

TEST(ExprEval, BitFunctionsWorkOnInt64) {
  EXPECT_EQ(Eval1<int64_t>("bitand(x0, x1)", 12, 10), 8);
  EXPECT_EQ(Eval1<int64_t>("bitor(x0, x1)", 12, 10), 14);
  EXPECT_EQ(Eval1<int64_t>("bitxor(x0, x1)", 12, -1), -13);
  EXPECT_EQ(Eval1<int64_t>("bitnot(x0)", 5), -6);
  EXPECT_EQ(Eval1<int64_t>("shl(x0, x1)", 3, 62), -(int64_t{1} << 62));
  EXPECT_EQ(Eval1<int64_t>("shr(x0, x1)", -7, 1), -4);
  EXPECT_EQ(Eval1<int64_t>("shl(x0, x1)", 1, 64), 0);
  EXPECT_EQ(Eval1<int64_t>("shr(x0, x1)", 7, -1), 0);
  EXPECT_EQ(Eval1<int64_t>("shr(x0, x1)", -7, 64), -1);
  EXPECT_EQ(Eval1<float>("bitand(x0, x1)", 12.9f, 10.0f), 8);
}

TEST(ExprEval, ModTakesTheDivisorsSignAndFmodTheDividends) {
  EXPECT_EQ(Eval1<float>("mod(x0, x1)", -7, 3), 2);
  EXPECT_EQ(Eval1<float>("mod(x0, x1)", 7, -3), -2);
  EXPECT_EQ(Eval1<float>("fmod(x0, x1)", -7, 3), -1);
  EXPECT_EQ(Eval1<int64_t>("mod(x0, x1)", -7, 3), 2);
  EXPECT_EQ(Eval1<int64_t>("mod(x0, x1)", 7, -3), -2);
  EXPECT_EQ(Eval1<int64_t>("fmod(x0, x1)", -7, 3), -1);
}

TEST(ExprEval, SignKeepsNanAndZero) {
  EXPECT_TRUE(std::isnan(Eval1<float>("sign(x0)", NAN)));
  EXPECT_EQ(Eval<float>("sign(x0)", {{-3.0f, 0.0f, 4.0f}}), (std::vector<float>{-1, 0, 1}));
  EXPECT_EQ(Eval<int64_t>("sign(x0)", {{-3, 0, 4}}), (std::vector<int64_t>{-1, 0, 1}));
}

TEST(ExprEval, RoundsHalfToEven) {
  EXPECT_EQ(Eval<float>("round(x0)", {{0.5f, 1.5f, 2.5f, -0.5f}}),
            (std::vector<float>{0, 2, 2, -0.0f}));
}

TEST(ExprEval, NarrowRoundingsRoundTheValueOnce) {
  EXPECT_EQ(Eval1<float>("fp16(x0)", 65520.0f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(Eval1<float>("fp16(x0)", 65519.0f), 65504.0f);
  EXPECT_EQ(Eval1<float>("fp16(x0)", 5.9604645e-8f), 5.9604645e-8f);  // smallest subnormal
  EXPECT_EQ(Eval1<float>("bf16(x0)", 1.00390625f), 1.0f);             // a tie, to even
  EXPECT_EQ(Eval1<float>("bf16(x0)", 1.01171875f), 1.015625f);        // a tie, to even
  // Just above a tie of fp16: rounding through fp32 first would lose the difference.
  const double above = 1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(Eval1<double>("fp16(x0)", above), 1.0 + std::ldexp(1.0, -10));
  EXPECT_EQ(Eval1<double>("fp32(x0)", 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(Eval1<float>("fp32(x0)", 0.1f), 0.1f);
}

TEST(ExprEval, IntegersDivideTowardsZeroWithoutTraps) {
  EXPECT_EQ(Eval1<int64_t>("x0 / x1", -7, 2), -3);
  EXPECT_EQ(Eval1<int64_t>("x0 / x1", 7, 0), 0);
  EXPECT_EQ(Eval1<int64_t>("x0 / x1", kMin, -1), kMin);
  EXPECT_EQ(Eval1<int64_t>("mod(x0, x1)", 7, 0), 0);
  EXPECT_EQ(Eval1<int64_t>("mod(x0, x1)", kMin, -1), 0);
  EXPECT_EQ(Eval1<int64_t>("fmod(x0, x1)", kMin, -1), 0);
  EXPECT_EQ(Eval1<int64_t>("-x0", kMin), kMin);
  EXPECT_EQ(Eval1<int64_t>("abs(x0)", kMin), kMin);
  EXPECT_EQ(Eval1<int64_t>("x0 + 1", std::numeric_limits<int64_t>::max()), kMin);
}

TEST(ExprEval, IntegerPowersAreExact) {
  EXPECT_EQ(Eval1<int64_t>("pow(x0, x1)", 3, 39), 4052555153018976267);
  EXPECT_EQ(Eval1<int64_t>("pow(x0, x1)", 2, -1), 0);
  EXPECT_EQ(Eval1<int64_t>("pow(x0, x1)", -1, -3), -1);
  EXPECT_EQ(Eval1<int64_t>("pow(x0, x1)", 0, 0), 1);
}

TEST(ExprEval, IntegerFunctionsTruncateAndClamp) {
  EXPECT_EQ(Eval1<int64_t>("sqrt(x0)", 17), 4);
  EXPECT_EQ(Eval1<int64_t>("sqrt(x0)", -1), 0);
  EXPECT_EQ(Eval1<int64_t>("exp(x0)", 100), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Eval1<int64_t>("log(x0)", 0), kMin);
  EXPECT_EQ(Eval1<int64_t>("floor(x0) + x1", (int64_t{1} << 60) + 1, 0), (int64_t{1} << 60) + 1);
}

TEST(ExprEval, ConvertsToIntegersWithoutOverflow) {
  EXPECT_EQ(ClampToInteger<int64_t>(kNan), 0);
  EXPECT_EQ(ClampToInteger<int64_t>(kInf), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ClampToInteger<int64_t>(-kInf), kMin);
  EXPECT_EQ(ClampToInteger<int32_t>(3e9f), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(ClampToInteger<uint8_t>(-0.5), 0);
  EXPECT_EQ(ClampToInteger<uint8_t>(255.9f), 255);
  EXPECT_EQ(ClampToInteger<int8_t>(-7.9f), -7);
}

TEST(ExprEval, FunctionsAgreeWithDoubleTo2Ulp) {
  struct Row {
    std::string_view text;
    double low, high;
  };
  constexpr Row kRows[] = {
      {"exp(x0)", -100, 88},    {"log(x0)", 1e-30, 50},    {"log1p(x0)", -0.99, 9},
      {"expm1(x0)", -20, 80},   {"sqrt(x0)", 0, 1e9},      {"sin(x0)", -50, 50},
      {"cos(x0)", -50, 50},     {"tan(x0)", -50, 50},      {"asin(x0)", -1, 1},
      {"acos(x0)", -1, 1},      {"atan(x0)", -9, 9},       {"sinh(x0)", -80, 80},
      {"cosh(x0)", -80, 80},    {"tanh(x0)", -10, 10},     {"asinh(x0)", -99, 99},
      {"acosh(x0)", 1, 99},     {"atanh(x0)", -0.99, 0.9}, {"erf(x0)", -4, 4},
      {"sigmoid(x0)", -90, 90}, {"pow(x0, 1.75)", 0, 99},
  };
  for (const Row& row : kRows) {
    std::vector<float> x;
    for (int i = 0; i < kExprBlock; ++i) {
      x.push_back(static_cast<float>(row.low + (row.high - row.low) * (i + 0.37) / kExprBlock));
    }
    const std::vector<float> y = Eval<float>(row.text, {x});
    const std::vector<double> want =
        Eval<double>(row.text, {std::vector<double>(x.begin(), x.end())});
    for (size_t i = 0; i < x.size(); ++i) {
      const double ulp = std::ldexp(1.0, std::max(-149, std::ilogb(want[i]) - 23));
      EXPECT_LE(std::fabs(static_cast<double>(y[i]) - want[i]), 2 * ulp)
          << row.text << " at " << x[i];
    }
  }
}

TEST(ExprEval, SigmoidHasNoOverflow) {
  EXPECT_EQ(Eval1<float>("sigmoid(x0)", -200), 0);
  EXPECT_EQ(Eval1<float>("sigmoid(x0)", 200), 1);
  EXPECT_GT(Eval1<float>("sigmoid(x0)", -100), 0);
  EXPECT_TRUE(std::isnan(Eval1<float>("sigmoid(x0)", NAN)));
}

TEST(ExprEval, OutputsMayOverwriteAnyInput) {
  // Every assignment of outputs to input buffers, including a swap.
  for (std::string_view text :
       {"y0 = x1; y1 = x0", "y0 = x0 + x1; y1 = x0 - x1", "y0 = x0 * 2; y1 = x1",
        "t = x0 * x1; y0 = t; y1 = t", "y0 = x1 * x1; y1 = y0 + x0", "y0 = 3; y1 = x0 - 3"}) {
    const ExprProgram p = Parse(text);
    const std::vector<std::vector<double>> x = {{1, 2, 3}, {10, 20, 30}};
    const std::vector<std::vector<double>> want = EvalAll<double>(p, x);
    for (int first = 0; first < 2; ++first) {
      std::vector<std::vector<double>> buffers = x;
      const double* in[] = {buffers[0].data(), buffers[1].data()};
      double* out[] = {buffers[first].data(), buffers[1 - first].data()};
      std::vector<double> scratch(ExprScratchSize(p));
      EvalBlock<double>(p, in, out, 3, scratch.data());
      EXPECT_EQ(buffers[first], want[0]) << text << " y0 over x" << first;
      EXPECT_EQ(buffers[1 - first], want[1]) << text << " y0 over x" << first;
    }
  }
}

TEST(ExprEval, ReusesScratchByLiveness) {
  std::string text = "x0";
  for (int i = 0; i < 50; ++i) text = "tanh(" + text + ") + x0";
  EXPECT_LE(Parse(text).num_slots, 2);
  EXPECT_EQ(Parse("x0 + 1").num_slots, 0);  // straight into the output
}

}  // namespace
}  // namespace ampc
