// SPDX-License-Identifier: Apache-2.0
// CPU implementations in fp32, fp16 and bf16 against the reference in double: matmul, map, reduce
// and what moves data.

#include <algorithm>

#include "test/unit/cpu_kernels_harness.h"

namespace ampc::kernel_test {
namespace {

// ---- matmul ----

struct MatmulShape {
  Dims a, b, bias, y;
  int trans_a = 0, trans_b = 0;
  double alpha = 1, beta = 1;
};
const MatmulShape kMatmuls[] = {
    {{3, 5}, {5, 7}, {}, {3, 7}},
    {{64, 33}, {33, 48}, {48}, {64, 48}},
    {{33, 64}, {33, 48}, {48}, {64, 48}, 1},
    {{64, 33}, {48, 33}, {1, 48}, {64, 48}, 0, 1},
    {{33, 64}, {48, 33}, {64, 1}, {64, 48}, 1, 1},
    {{40, 70}, {70, 30}, {40, 30}, {40, 30}, 0, 0, 0.5, -2},
    {{40, 70}, {70, 30}, {30}, {40, 30}, 0, 0, 0.5, 1},
    {{40, 70}, {70, 30}, {1}, {40, 30}, 0, 0, 1, 3},
    {{1, 300}, {300, 200}, {200}, {1, 200}},
    {{200, 300}, {300, 1}, {1}, {200, 1}},
    {{300, 200}, {300, 1}, {200, 1}, {200, 1}, 1},
    {{2, 3, 8, 16}, {2, 3, 16, 12}, {}, {2, 3, 8, 12}},
    {{2, 3, 8, 16}, {2, 3, 12, 16}, {2, 1, 1, 12}, {2, 3, 8, 12}, 0, 1},
    {{4, 6, 16}, {16, 20}, {20}, {4, 6, 20}},
    {{4, 6, 16}, {16, 20}, {6, 20}, {4, 6, 20}},
    {{4, 16, 6}, {16, 20}, {4, 6, 20}, {4, 6, 20}, 1},
    {{5, 16}, {3, 16, 20}, {}, {3, 5, 20}},
    {{2, 1, 5, 16}, {3, 16, 9}, {3, 1, 1}, {2, 3, 5, 9}},
    {{128, 256}, {256, 96}, {96}, {128, 96}},
    {{1, 1}, {1, 1}, {}, {1, 1}},
};

Case MatmulCase(const MatmulShape& s, DType t, DType y, bool relu) {
  Case c{"matmul",
         {{"trans_a", int64_t{s.trans_a}}, {"trans_b", int64_t{s.trans_b}}},
         {Desc(t, s.a), Desc(t, s.b)},
         {Desc(y, s.y)}};
  c.inputs.push_back(s.bias.empty() ? TensorDesc{} : Desc(t, s.bias));
  if (s.alpha != 1) c.params.Set("alpha", s.alpha);
  if (s.beta != 1) c.params.Set("beta", s.beta);
  if (relu) c.params.Set("post", std::string("relu"));
  c.terms = static_cast<double>(s.a[s.a.size() - (s.trans_a ? 2 : 1)]);
  return c;
}

TEST_F(CpuKernels, MatmulMatchesTheReference) {
  for (const MatmulShape& s : kMatmuls) {
    for (DType t : kTypes) {
      Check(MatmulCase(s, t, t, false));
      Check(MatmulCase(s, t, kF32, true));
    }
    Check(MatmulCase(s, kBF16, kBF16, true));
    Check(MatmulCase(s, kF16, kF16, true));
  }
}

TEST_F(CpuKernels, MatmulTakesMixedOperands) {
  Case c = MatmulCase(kMatmuls[1], kF32, kBF16, true);
  c.inputs[0].dtype = kF16;
  c.inputs[2].dtype = kBF16;
  Check(c);
}

TEST_F(CpuKernels, MatmulAndItsReluPassNaNAndInf) {
  for (DType t : kTypes) {
    Case c = MatmulCase(kMatmuls[1], t, t, true);
    FillValues(c);
    c.values[0][0] = NAN;
    c.values[0][40] = INFINITY;
    c.values[0][99] = -INFINITY;
    Check(c);
  }
}

TEST_F(CpuKernels, MatmulBitsDoNotDependOnThreadsWhenDeterministic) {
  for (const Dims& mnk : {Dims{64, 64, 5000}, Dims{300, 200, 300}, Dims{1, 1000, 2000}}) {
    Case c{"matmul",
           {{"trans_a", int64_t{1}}},
           {Desc(kF32, {mnk[2], mnk[0]}), Desc(kF32, {mnk[2], mnk[1]})},
           {Desc(kF32, {mnk[0], mnk[1]})}};
    FillValues(c);
    const auto one =
        kernel_test::Run(*Cpu("matmul"), c, {.threads = 1, .deterministic = true}, std::byte{1});
    const auto two =
        kernel_test::Run(*Cpu("matmul"), c, {.threads = 2, .deterministic = true}, std::byte{2});
    EXPECT_TRUE(one.outputs[0] == two.outputs[0]) << ToString(mnk);
  }
}

// ---- map ----

Case MapCase(const std::string& expr, std::vector<TensorDesc> inputs,
             std::vector<TensorDesc> outputs) {
  Case c{"map", {{"expr", expr}}, std::move(inputs), std::move(outputs)};
  c.terms = 4;  // a few roundings in fp32
  return c;
}

TEST_F(CpuKernels, MapMatchesTheReference) {
  const Layout last = Layout::kChannelsLast;
  for (DType t : kTypes) {
    for (const Dims& d : {Dims{1}, Dims{255}, Dims{3, 257}, Dims{40000}, Dims{}}) {
      Check(MapCase("x0 + x1", {Desc(t, d), Desc(t, d)}, {Desc(t, d)}));
      Check(MapCase("max(x0, 0)", {Desc(t, d)}, {Desc(kF32, d)}));
      Check(MapCase("x0 * 0.5 * (1 + erf(x0 * 0.70710678))", {Desc(t, d)}, {Desc(t, d)}));
      Check(MapCase("t = exp(-x0); y0 = t + x1; y1 = tanh(x0) * x1", {Desc(kF32, d), Desc(t, d)},
                    {Desc(t, d), Desc(kF32, d)}));
      for (DType to : kTypes) Check(MapCase("x0", {Desc(t, d)}, {Desc(to, d)}));
      Check(MapCase("x0 * fp16(x1) - bf16(x0)", {Desc(t, d), Desc(t, d)}, {Desc(t, d)}));
    }
    Check(MapCase("x0 + x1", {Desc(t, {64, 10}), Desc(kF32, {10})}, {Desc(t, {64, 10})}));
    Check(MapCase("x0 + x1", {Desc(t, {64, 300}), Desc(t, {64, 1})}, {Desc(t, {64, 300})}));
    Check(MapCase("x0 * x1 + x2", {Desc(t, {2, 5, 7, 9}), Desc(t, {5, 1, 1}), Desc(t, {})},
                  {Desc(t, {2, 5, 7, 9})}));
    Check(MapCase("x0 * x1 + x2",
                  {Desc(t, {2, 5, 7, 9}, last), Desc(t, {5, 1, 1}), Desc(t, {2, 5, 7, 9})},
                  {Desc(t, {2, 5, 7, 9}, last)}));
    Check(MapCase("x0 - x1", {Desc(t, {3, 1, 4, 1}), Desc(t, {1, 50, 1, 6})},
                  {Desc(t, {3, 50, 4, 6})}));
    Check(MapCase("where(x0, x1, -1)", {Desc(DType::kBool, {500}), Desc(t, {500})},
                  {Desc(t, {500})}));
    Check(MapCase("x0 > x1", {Desc(t, {500}), Desc(t, {1})}, {Desc(DType::kBool, {500})}));
    Check(MapCase("x0 * 2", {Desc(DType::kInt64, {500})}, {Desc(t, {500})}));
  }
}

TEST_F(CpuKernels, MapWorksInPlace) {
  for (DType t : kTypes) {
    Case c = MapCase("y0 = x0 + x1; y1 = x0 - x1", {Desc(t, {50001}), Desc(t, {50001})},
                     {Desc(t, {50001}), Desc(t, {50001})});
    c.in_place = {{0, 0}, {1, 1}};
    Check(c);
    c.in_place = {{0, 1}, {1, 0}};
    Check(c);
  }
}

TEST_F(CpuKernels, MapPassesNaNAndInf) {
  const Values special = {NAN,   INFINITY, -INFINITY, 0,    -0.0, 1e30, -1e30,
                          1e-40, 65504,    65520,     88.8, -104, 1};
  const Dims d = {static_cast<int64_t>(special.size())};
  for (DType t : kTypes) {
    for (const char* expr :
         {"x0", "max(x0, 0)", "exp(x0)", "tanh(x0)", "sigmoid(x0)", "erf(x0)", "log(x0)", "x0 - x0",
          "where(x0 > 0, x0, 0)", "pow(x0, 3)", "sqrt(x0)"}) {
      Case c = MapCase(expr, {Desc(t, d)}, {Desc(t, d)});
      c.values = {special};
      Check(c);
    }
  }
}

TEST_F(CpuKernels, FunctionsAreWithinAFewUlp) {
  struct Function {
    const char* expr;
    double (*exact)(double);
    double low, high;
  };
  const Function functions[] = {
      {"exp(x0)", [](double v) { return std::exp(v); }, -103, 88.7},
      {"log(x0)", [](double v) { return std::log(v); }, 1e-42, 1e30},
      {"log(x0)", [](double v) { return std::log(v); }, 0.5, 2},
      {"tanh(x0)", [](double v) { return std::tanh(v); }, -10, 10},
      {"sigmoid(x0)", [](double v) { return 1 / (1 + std::exp(-v)); }, -100, 40},
      {"erf(x0)", [](double v) { return std::erf(v); }, -5, 5},
      {"erf(x0)", [](double v) { return std::erf(v); }, -1e-3, 1e-3},
      {"pow(x0, 2)", [](double v) { return v * v; }, -9, 9},
      {"pow(x0, 3)", [](double v) { return v * v * v; }, -9, 9},
  };
  const int n = 20000;
  for (const Function& f : functions) {
    Case c = MapCase(f.expr, {Desc(kF32, {n})}, {Desc(kF32, {n})});
    Values x(n);
    const bool geometric = f.low > 0 && f.high / f.low > 1e6;
    for (int i = 0; i < n; ++i) {
      const double u = (i + 0.5) / n;
      x[i] = geometric ? f.low * std::pow(f.high / f.low, u) : f.low + (f.high - f.low) * u;
    }
    c.values = {x};
    FillValues(c);
    const RunResult run = kernel_test::Run(*Cpu("map"), c, {.threads = 2}, std::byte{0});
    double worst = 0;
    for (int i = 0; i < n; ++i) {
      const double e = f.exact(c.values[0][i]), y = LoadDouble(kF32, run.outputs[0].get(), i);
      const double ulp = std::max(std::ldexp(1.0, std::ilogb(e) - 23), 0x1p-149);
      worst = std::max(worst, std::abs(y - e) / ulp);
    }
    EXPECT_LE(worst, 3) << f.expr << " on [" << f.low << ", " << f.high << "]";
  }
}

// ---- reduce ----

TEST_F(CpuKernels, ReduceMatchesTheReference) {
  struct Shape {
    Dims x;
    std::vector<int64_t> axes;
    Dims y;
    Layout layout = Layout::kRowMajor;
  };
  const Shape shapes[] = {
      {{7}, {0}, {}},
      {{3000, 10}, {0}, {10}},
      {{9000, 5}, {0}, {5}},
      {{100, 1500}, {0}, {1500}},
      {{64, 1000}, {1}, {64, 1}},
      {{70001}, {0}, {}},
      {{8, 6, 20, 21}, {0, 2, 3}, {6}},
      {{8, 6, 20, 21}, {2, 3}, {8, 6}},
      {{8, 6, 20, 21}, {0, 2, 3}, {6}, Layout::kChannelsLast},
      {{8, 6, 20, 21}, {2, 3}, {8, 6}, Layout::kChannelsLast},
      {{8, 6, 20, 21}, {1}, {8, 20, 21}, Layout::kChannelsLast},
      {{4, 30, 50}, {1}, {4, 50}},
      {{40, 30, 5}, {0, 1, 2}, {}},
      {{40, 3, 5, 7}, {0, 2}, {3, 7}},
  };
  for (const Shape& s : shapes) {
    for (DType t : kTypes) {
      for (const char* op : {"sum", "max", "l2", "mean", "min", "l1", "sum_square"}) {
        if (t != kF32 && std::string_view(op) == "mean")
          break;  // three ops show what widening does
        Case c{"reduce",
               {{"op", std::string(op)}, {"axes", s.axes}},
               {Desc(t, s.x, s.layout)},
               {Desc(t, s.y)}};
        c.terms = static_cast<double>(NumElements(s.x)) / static_cast<double>(NumElements(s.y));
        Check(c);
      }
    }
  }
}

TEST_F(CpuKernels, ReduceOfManyTermsKeepsFloatAccuracy) {
  for (const Dims& x : {Dims{1 << 18, 1}, Dims{1 << 16, 4}, Dims{1, 1 << 18}}) {
    Case c{"reduce",
           {{"op", std::string("sum")}, {"axes", std::vector<int64_t>{x[0] == 1}}},
           {Desc(kF32, x)},
           {Desc(kF32, {x[0] == 1 ? 1 : x[1]})}};
    c.values = {Values(static_cast<size_t>(NumElements(x)), 0.1)};
    c.terms = 1;  // plain summation would be off by 1e-3
    Check(c);
  }
}

TEST_F(CpuKernels, ReducePassesNaN) {
  for (const char* op : {"sum", "max", "min", "l2"}) {
    for (int64_t axis : {0, 1}) {
      Case c{"reduce",
             {{"op", std::string(op)}, {"axes", std::vector<int64_t>{axis}}},
             {Desc(kF32, {70, 50})},
             {Desc(kF32, {axis == 0 ? 50 : 70})}};
      FillValues(c);
      for (size_t i : {0, 60, 777, 3499}) c.values[0][i] = NAN;
      c.values[0][100] = INFINITY;
      Check(c);
    }
  }
}

// ---- movement, gather, dropout: bits ----

TEST_F(CpuKernels, CopiesMoveBits) {
  struct Shape {
    Dims x, y;
    int64_t offset;
    std::vector<int64_t> strides;
    Layout layout = Layout::kRowMajor;
  };
  const Shape shapes[] = {
      {{6, 7}, {7, 6}, 0, {1, 7}},  // transpose
      {{70, 90}, {90, 70}, 0, {1, 90}},
      {{2, 33, 40, 3}, {2, 40, 33, 3}, 0, {3960, 3, 120, 1}},
      {{3, 50, 4, 40}, {3, 4, 50, 40}, 0, {8000, 40, 160, 1}},
      {{2, 40, 9, 9}, {2, 9, 9, 40}, 0, {3240, 9, 1, 81}},
      {{10, 10}, {3, 4}, 23, {20, 2}},  // slice with steps
      {{10}, {10}, 9, {-1}},            // reversed
      {{5}, {4, 5}, 0, {0, 1}},         // expand
      {{4}, {4, 6}, 0, {1, 0}},
      {{1}, {}, 0, {}},
      {{2, 40, 7, 9}, {2, 40, 7, 9}, 0, {2520, 63, 9, 1}, Layout::kChannelsLast},
      {{200000}, {200000}, 0, {1}},
  };
  for (const Shape& s : shapes) {
    for (DType t : {kF32, kBF16, DType::kBool, DType::kInt64}) {
      const Attrs params = {{"offset", s.offset}, {"strides", s.strides}};
      Case c{"copy", params, {Desc(t, s.x)}, {Desc(t, s.y, s.layout)}};
      c.values = {Values(static_cast<size_t>(NumElements(s.x)))};
      for (size_t i = 0; i < c.values[0].size(); ++i) c.values[0][i] = static_cast<double>(i % 128);
      ExpectSameBits(*Cpu("copy"), Ref("copy"), c);
      if (std::ranges::count(s.strides, 0) > 0) continue;
      Case back{"scatter_copy", params, {Desc(t, s.y, s.layout)}, {Desc(t, s.x)}};
      back.params.Set("value", t == DType::kInt64 ? Attr(int64_t{1} << 60) : Attr(1.5));
      back.values = {Values(static_cast<size_t>(NumElements(s.y)), 3)};
      for (size_t i = 0; i < back.values[0].size(); ++i)
        back.values[0][i] = static_cast<double>(i % 128);
      ExpectSameBits(*Cpu("scatter_copy"), Ref("scatter_copy"), back);
    }
  }
}

TEST_F(CpuKernels, ConcatAndFillMoveBits) {
  for (DType t : {kF32, kF16, DType::kBool}) {
    Case c{"concat",
           {{"axis", int64_t{1}}},
           {Desc(t, {3, 4, 5}), Desc(t, {3, 0, 5}), Desc(t, {3, 2, 5})},
           {Desc(t, {3, 6, 5})}};
    ExpectSameBits(*Cpu("concat"), Ref("concat"), c);
    c = {"fill", {{"value", 0.1}}, {}, {Desc(t, {1000})}};
    ExpectSameBits(*Cpu("fill"), Ref("fill"), c);
  }
}

TEST_F(CpuKernels, GatherAndItsGradientHaveTheBitsOfTheReference) {
  struct Shape {
    Dims data, y;
    int64_t axis;
  };
  for (const Shape& s : {Shape{{30, 64}, {4, 5, 64}, 0}, Shape{{3, 30, 7}, {3, 4, 5, 7}, 1},
                         Shape{{30}, {4, 5}, 0}, Shape{{30, 5000}, {4, 5, 5000}, 0}}) {
    for (DType t : kTypes) {
      for (DType index : {DType::kInt32, DType::kInt64}) {
        Values indices(20);
        for (size_t i = 0; i < 20; ++i)
          indices[i] = static_cast<double>(i * i % 30) - (i % 3 == 0 ? 30 : 0);
        Case c{
            "gather", {{"axis", s.axis}}, {Desc(t, s.data), Desc(index, {4, 5})}, {Desc(t, s.y)}};
        c.values = {{}, indices};
        ExpectSameBits(*Cpu("gather"), Ref("gather"), c);
        Case back{"gather_bwd",
                  {{"axis", s.axis}},
                  {Desc(t, s.y), Desc(index, {4, 5})},
                  {Desc(t, s.data)}};
        back.values = {{}, indices};
        ExpectSameBits(*Cpu("gather_bwd"), Ref("gather_bwd"), back);
      }
    }
  }
}

TEST_F(CpuKernels, GatherReportsAnIndexOutOfRange) {
  Case c{"gather",
         {{"axis", int64_t{0}}},
         {Desc(kF32, {5, 2}), Desc(DType::kInt64, {3})},
         {Desc(kF32, {3, 2})}};
  c.values = {{}, {1, 5, 0}};
  FillValues(c);
  EXPECT_EQ(kernel_test::Run(*Cpu("gather"), c, {}, std::byte{1}).index_error, 2);
}

TEST_F(CpuKernels, DropoutHasTheBitsOfTheReference) {
  for (DType t : kTypes) {
    for (const Dims& d : {Dims{1}, Dims{7, 9}, Dims{100, 1003}}) {
      for (double ratio : {0.0, 0.1, 0.5, 1.0}) {
        Case c{"dropout",
               {{"stream", int64_t{7}}},
               {Desc(t, d), Desc(kF32, {}), Desc(DType::kInt64, {2})},
               {Desc(t, d), Desc(DType::kBool, d)}};
        c.values = {{}, {ratio}, {123456789012.0, 5}};
        ExpectSameBits(*Cpu("dropout"), Ref("dropout"), c);
      }
    }
  }
}

// ---- what is declined ----

// The reference is what the CPU runs for these: indices decide where they read and write.
constexpr std::string_view kReferenceOnly[] = {
    "arg_reduce", "gather_elements", "scatter_elements", "gather_nd", "scatter_nd",
    "one_hot",    "cumulate",        "cumprod_bwd",      "topk",      "reverse_sequence",
    "trilu",      "grid_sample",     "grid_sample_bwd",
};

TEST_F(CpuKernels, KernelsHaveACpuImplementationOrAreListed) {
  for (const KernelInfo& kernel : AllKernels()) {
    EXPECT_EQ(Cpu(kernel.name) == nullptr,
              std::ranges::find(kReferenceOnly, kernel.name) != std::end(kReferenceOnly))
        << kernel.name;
  }
}

TEST_F(CpuKernels, DeclinesWithAReason) {
  const auto reason = [&](const Case& c) {
    return Cpu(c.kernel)->declines({c.kernel, c.params, c.inputs, c.outputs}, {});
  };
  const DType f64 = DType::kFloat64;
  const Case declined[] = {
      {"matmul", {}, {Desc(f64, {2, 2}), Desc(f64, {2, 2})}, {Desc(f64, {2, 2})}},
      {"matmul", {}, {Desc(kF32, {0, 2}), Desc(kF32, {2, 2})}, {Desc(kF32, {0, 2})}},
      {"matmul",
       {},
       {Desc(kF32, {2, 3}), Desc(kF32, {2, 2})},
       {Desc(kF32, {2, 2})}},  // not a product
      {"matmul", {}, {}, {}},
      {"map", {{"expr", std::string("x0")}}, {Desc(f64, {2})}, {Desc(kF32, {2})}},
      {"map", {{"expr", std::string("x0 +")}}, {Desc(kF32, {2})}, {Desc(kF32, {2})}},
      {"reduce",
       {{"op", std::string("prod")}, {"axes", std::vector<int64_t>{0}}},
       {Desc(kF32, {2})},
       {Desc(kF32, {})}},
      {"conv", {}, {Desc(kF32, {1, 1, 4, 4})}, {Desc(kF32, {1, 1, 4, 4})}},
  };
  for (const Case& c : declined) EXPECT_NE(reason(c), "") << Describe(c);
}

}  // namespace
}  // namespace ampc::kernel_test
