// SPDX-License-Identifier: Apache-2.0
// Every CPU implementation, in fp32, fp16 and bf16, against the reference on the same numbers in double.

#include <algorithm>

#include "test/unit/cpu_kernels_harness.h"

namespace ampc::kernel_test {
namespace {

constexpr DType kF32 = DType::kFloat32, kF16 = DType::kFloat16, kBF16 = DType::kBFloat16;
constexpr DType kTypes[] = {kF32, kF16, kBF16};

class CpuKernels : public ::testing::Test {
 protected:
  CpuKernels() {
    cpu_.Add(cpu::Implementations());
    ref_.Add(ref::Implementations());
  }
  const Implementation* Cpu(std::string_view kernel) const {
    const auto found = cpu_.Of(kernel);
    return found.empty() ? nullptr : found.front();
  }
  const Implementation& Ref(std::string_view kernel) const { return *ref_.Of(kernel).front(); }
  /// Against the first implementation of the kernel.
  void Check(const Case& c) const {
    const Implementation* impl = Cpu(c.kernel);
    ASSERT_NE(impl, nullptr) << c.kernel;
    kernel_test::Check(*impl, Ref(c.kernel), c);
  }
  std::string Declined(const Case& c) const {
    return Cpu(c.kernel)->declines({c.kernel, c.params, c.inputs, c.outputs}, {});
  }

  KernelRegistry cpu_, ref_;
};

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
  Case c{"matmul", {{"trans_a", int64_t{s.trans_a}}, {"trans_b", int64_t{s.trans_b}}}, {Desc(t, s.a), Desc(t, s.b)}, {Desc(y, s.y)}};
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
  for (const Dims& mnk : {Dims{64, 64, 20000}, Dims{512, 256, 512}, Dims{1, 1000, 4096}}) {
    Case c{"matmul", {{"trans_a", int64_t{1}}}, {Desc(kF32, {mnk[2], mnk[0]}), Desc(kF32, {mnk[2], mnk[1]})}, {Desc(kF32, {mnk[0], mnk[1]})}};
    FillValues(c);
    const auto one = kernel_test::Run(*Cpu("matmul"), c, {.threads = 1, .deterministic = true}, std::byte{1});
    const auto two = kernel_test::Run(*Cpu("matmul"), c, {.threads = 2, .deterministic = true}, std::byte{2});
    EXPECT_TRUE(one.outputs[0] == two.outputs[0]) << ToString(mnk);
  }
}

// ---- map ----

Case MapCase(const std::string& expr, std::vector<TensorDesc> inputs, std::vector<TensorDesc> outputs) {
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
      Check(MapCase("t = exp(-x0); y0 = t + x1; y1 = tanh(x0) * x1", {Desc(kF32, d), Desc(t, d)}, {Desc(t, d), Desc(kF32, d)}));
      for (DType to : kTypes) Check(MapCase("x0", {Desc(t, d)}, {Desc(to, d)}));
      Check(MapCase("x0 * fp16(x1) - bf16(x0)", {Desc(t, d), Desc(t, d)}, {Desc(t, d)}));
    }
    Check(MapCase("x0 + x1", {Desc(t, {64, 10}), Desc(kF32, {10})}, {Desc(t, {64, 10})}));
    Check(MapCase("x0 + x1", {Desc(t, {64, 300}), Desc(t, {64, 1})}, {Desc(t, {64, 300})}));
    Check(MapCase("x0 * x1 + x2", {Desc(t, {2, 5, 7, 9}), Desc(t, {5, 1, 1}), Desc(t, {})}, {Desc(t, {2, 5, 7, 9})}));
    Check(MapCase("x0 * x1 + x2", {Desc(t, {2, 5, 7, 9}, last), Desc(t, {5, 1, 1}), Desc(t, {2, 5, 7, 9})}, {Desc(t, {2, 5, 7, 9}, last)}));
    Check(MapCase("x0 - x1", {Desc(t, {3, 1, 4, 1}), Desc(t, {1, 50, 1, 6})}, {Desc(t, {3, 50, 4, 6})}));
    Check(MapCase("where(x0, x1, -1)", {Desc(DType::kBool, {500}), Desc(t, {500})}, {Desc(t, {500})}));
    Check(MapCase("x0 > x1", {Desc(t, {500}), Desc(t, {1})}, {Desc(DType::kBool, {500})}));
    Check(MapCase("x0 * 2", {Desc(DType::kInt64, {500})}, {Desc(t, {500})}));
  }
}

TEST_F(CpuKernels, MapWorksInPlace) {
  for (DType t : kTypes) {
    Case c = MapCase("y0 = x0 + x1; y1 = x0 - x1", {Desc(t, {50001}), Desc(t, {50001})}, {Desc(t, {50001}), Desc(t, {50001})});
    c.in_place = {{0, 0}, {1, 1}};
    Check(c);
    c.in_place = {{0, 1}, {1, 0}};
    Check(c);
  }
}

TEST_F(CpuKernels, MapPassesNaNAndInf) {
  const Values special = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e30, -1e30, 1e-40, 65504, 65520, 88.8, -104, 1};
  const Dims d = {static_cast<int64_t>(special.size())};
  for (DType t : kTypes) {
    for (const char* expr : {"x0", "max(x0, 0)", "exp(x0)", "tanh(x0)", "sigmoid(x0)", "erf(x0)", "log(x0)", "x0 - x0", "where(x0 > 0, x0, 0)", "sqrt(x0)"}) {
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
      for (const char* op : {"sum", "mean", "max", "min", "l1", "l2", "sum_square"}) {
        Case c{"reduce", {{"op", std::string(op)}, {"axes", s.axes}}, {Desc(t, s.x, s.layout)}, {Desc(t, s.y)}};
        c.terms = static_cast<double>(NumElements(s.x)) / static_cast<double>(NumElements(s.y));
        Check(c);
      }
    }
  }
}

TEST_F(CpuKernels, ReduceOfManyTermsKeepsFloatAccuracy) {
  for (const Dims& x : {Dims{1 << 20, 1}, Dims{1 << 18, 4}, Dims{1, 1 << 20}}) {
    Case c{"reduce", {{"op", std::string("sum")}, {"axes", std::vector<int64_t>{x[0] == 1 ? 1 : 0}}}, {Desc(kF32, x)}, {Desc(kF32, {x[0] == 1 ? 1 : x[1]})}};
    c.values = {Values(static_cast<size_t>(NumElements(x)), 0.1)};
    c.terms = 1;  // plain summation would be off by 1e-3
    Check(c);
  }
}

TEST_F(CpuKernels, ReducePassesNaN) {
  for (const char* op : {"sum", "max", "min", "l2"}) {
    for (int64_t axis : {0, 1}) {
      Case c{"reduce", {{"op", std::string(op)}, {"axes", std::vector<int64_t>{axis}}}, {Desc(kF32, {70, 50})}, {Desc(kF32, {axis == 0 ? 50 : 70})}};
      FillValues(c);
      for (size_t i : {0, 60, 777, 3499}) c.values[0][i] = NAN;
      c.values[0][100] = INFINITY;
      Check(c);
    }
  }
}

// ---- conv ----

struct ConvShape {
  Dims x, w, y;
  std::vector<int64_t> strides, dilations, pads;
  int64_t group = 1;
};
const ConvShape kConvs[] = {
    {{2, 3, 9, 10}, {16, 3, 3, 3}, {2, 16, 9, 10}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {{3, 20, 7, 7}, {24, 20, 1, 1}, {3, 24, 4, 4}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
    {{2, 16, 12, 11}, {18, 16, 3, 2}, {2, 18, 5, 6}, {2, 2}, {1, 1}, {0, 1, 0, 0}},
    {{2, 8, 12, 12}, {8, 8, 3, 3}, {2, 8, 10, 9}, {1, 1}, {2, 2}, {1, 0, 1, 1}},
    {{2, 16, 8, 8}, {16, 1, 3, 3}, {2, 16, 8, 8}, {1, 1}, {1, 1}, {1, 1, 1, 1}, 16},
    {{2, 12, 8, 8}, {24, 6, 3, 3}, {2, 24, 4, 4}, {2, 2}, {1, 1}, {1, 1, 1, 1}, 2},
    {{2, 1, 14, 14}, {6, 1, 5, 5}, {2, 6, 14, 14}, {1, 1}, {1, 1}, {2, 2, 2, 2}},
    {{2, 5, 21}, {7, 5, 4}, {2, 7, 10}, {2}, {1}, {1, 0}},
    {{1, 4, 5, 6, 7}, {8, 4, 2, 3, 3}, {1, 8, 4, 6, 7}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1, 0, 1, 1}},
};

Attrs ConvParams(const ConvShape& s) {
  return {{"strides", s.strides}, {"dilations", s.dilations}, {"pads", s.pads}, {"group", s.group}};
}

TEST_F(CpuKernels, ConvMatchesTheReference) {
  for (const ConvShape& s : kConvs) {
    for (DType t : kTypes) {
      for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        Case c{"conv", ConvParams(s), {Desc(t, s.x, layout), Desc(t, s.w)}, {Desc(t, s.y, layout)}};
        c.terms = static_cast<double>(NumElements(s.w) / s.w[0]);
        Check(c);
        c.inputs.push_back(Desc(t, {s.w[0]}));
        c.params.Set("post", std::string("relu"));
        Check(c);
      }
    }
  }
}

TEST_F(CpuKernels, ConvBackwardDataMatchesTheReference) {
  for (const ConvShape& s : kConvs) {
    for (DType t : kTypes) {
      for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        Case c{"conv_bwd_data", ConvParams(s), {Desc(t, s.y, layout), Desc(t, s.w)}, {Desc(t, s.x, layout)}};
        c.terms = static_cast<double>(NumElements(s.w) / s.w[1]);
        Check(c);
        c.inputs.push_back(Desc(t, {s.x[1]}));
        Check(c);
      }
    }
  }
}

TEST_F(CpuKernels, ConvBackwardWeightsMatchesTheReference) {
  for (const ConvShape& s : kConvs) {
    for (DType t : kTypes) {
      for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        for (DType to : {t, kF32}) {
          Case c{"conv_bwd_weights", ConvParams(s), {Desc(t, s.x, layout), Desc(t, s.y, layout)}, {Desc(to, s.w)}};
          c.terms = static_cast<double>(NumElements(s.y) / s.y[1]);
          Check(c);
        }
      }
    }
  }
}

TEST_F(CpuKernels, ConvPassesNaN) {
  for (DType t : kTypes) {
    const ConvShape& s = kConvs[0];
    Case c{"conv", ConvParams(s), {Desc(t, s.x), Desc(t, s.w)}, {Desc(t, s.y)}};
    c.params.Set("post", std::string("relu"));
    c.terms = 27;
    FillValues(c);
    c.values[0][50] = NAN;
    Check(c);
  }
}

TEST_F(CpuKernels, ConvBitsDoNotDependOnThreadsWhenDeterministic) {
  const Dims x = {4, 32, 28, 28}, w = {32, 32, 3, 3};
  const Attrs params = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  for (DType t : {kF32, kBF16}) {
    Case cases[] = {{"conv", params, {Desc(t, x), Desc(t, w)}, {Desc(t, x)}},
                    {"conv_bwd_data", params, {Desc(t, x), Desc(t, w)}, {Desc(t, x)}},
                    {"conv_bwd_weights", params, {Desc(t, x), Desc(t, x)}, {Desc(kF32, w)}}};
    for (Case& c : cases) {
      FillValues(c);
      const auto one = kernel_test::Run(*Cpu(c.kernel), c, {.threads = 1, .deterministic = true}, std::byte{1});
      const auto two = kernel_test::Run(*Cpu(c.kernel), c, {.threads = 2, .deterministic = true}, std::byte{2});
      EXPECT_TRUE(one.outputs[0] == two.outputs[0]) << c.kernel;
    }
  }
}

// ---- softmax and losses ----

TEST_F(CpuKernels, SoftmaxMatchesTheReference) {
  struct Shape {
    Dims x;
    int64_t axis;
  };
  const Shape shapes[] = {{{7, 10}, 1}, {{33, 257}, 1}, {{3, 5000}, 1}, {{4, 9, 50}, 1}, {{3, 21, 17, 19}, 1}, {{40, 6}, 0}, {{1}, 0}};
  for (const Shape& s : shapes) {
    for (DType t : kTypes) {
      for (const char* kernel : {"softmax", "log_softmax"}) {
        Case c{kernel, {{"axis", s.axis}}, {Desc(t, s.x)}, {Desc(t, s.x)}};
        c.in_place = {{0, 0}};
        Check(c);
        c.kernel += "_bwd";
        c.inputs.push_back(Desc(t, s.x));
        c.in_place = {{1, 0}};
        c.terms = static_cast<double>(s.x[s.axis]);
        Check(c);
      }
    }
  }
}

TEST_F(CpuKernels, SoftmaxTakesInfinitiesAsPyTorchDoes) {
  for (int64_t axis : {0, 1}) {
    Case c{"softmax", {{"axis", axis}}, {Desc(kF32, {20, 20})}, {Desc(kF32, {20, 20})}};
    FillValues(c);
    c.values[0][3] = -INFINITY;
    c.values[0][45] = NAN;
    c.values[0][90] = INFINITY;
    for (size_t i = 0; i < 20; ++i) c.values[0][axis == 0 ? i * 20 + 7 : 140 + i] = -INFINITY;
    Check(c);
  }
}

/// Every combination of parameters, over rows and over columns.
template <typename F>
void ForEachLoss(F f) {
  for (const Dims& scores : {Dims{37, 10}, Dims{5, 3000}, Dims{3, 7, 300}, Dims{2, 4, 5, 6}}) {
    Dims labels = scores;
    labels.erase(labels.begin() + 1);
    const int64_t samples = NumElements(labels), classes = scores[1];
    for (const char* reduction : {"mean", "sum", "none"}) {
      for (bool weighted : {false, true}) {
        for (double smoothing : {0.0, 0.1}) {
          for (bool ignore : {false, true}) {
            Attrs params = {{"reduction", std::string(reduction)}};
            if (ignore) params.Set("has_ignore_index", int64_t{1});
            if (ignore) params.Set("ignore_index", int64_t{-100});
            if (smoothing != 0) params.Set("label_smoothing", smoothing);
            Values label(static_cast<size_t>(samples)), weight(static_cast<size_t>(classes));
            for (size_t i = 0; i < label.size(); ++i) label[i] = ignore && i % 5 == 1 ? -100.0 : static_cast<double>(static_cast<int64_t>(i * 7 + i / 3) % classes);
            for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.25 + static_cast<double>(i % 5);
            f(scores, labels, params, label, weighted ? weight : Values{});
          }
        }
      }
    }
  }
}

TEST_F(CpuKernels, CrossEntropyMatchesTheReference) {
  ForEachLoss([&](const Dims& scores, const Dims& labels, const Attrs& params, const Values& label, const Values& weight) {
    for (DType t : kTypes) {
      const Dims loss = params.String("reduction") == "none" ? labels : Dims{};
      const TensorDesc weights = weight.empty() ? TensorDesc{} : Desc(t, {scores[1]});
      Case c{"softmax_cross_entropy", params, {Desc(t, scores), Desc(DType::kInt64, labels), weights}, {Desc(kF32, loss), Desc(t, scores), Desc(kF32, {})}};
      c.values = {{}, label, weight};
      c.terms = 16;
      c.in_place = {{0, 1}};
      Check(c);
      Case b{"softmax_cross_entropy_bwd", params, {Desc(kF32, loss), Desc(t, scores), Desc(DType::kInt32, labels), weights, Desc(kF32, {})}, {Desc(t, scores)}};
      Values log_prob(static_cast<size_t>(NumElements(scores)));
      for (size_t i = 0; i < log_prob.size(); ++i) log_prob[i] = -0.1 - static_cast<double>(i % 17) / 4;
      b.values = {{}, log_prob, label, weight, {7}};
      b.terms = 4;
      b.in_place = {{1, 0}};
      Check(b);
    }
  });
}

TEST_F(CpuKernels, NllLossMatchesTheReference) {
  ForEachLoss([&](const Dims& scores, const Dims& labels, const Attrs& params, const Values& label, const Values& weight) {
    if (params.Has("label_smoothing")) return;
    const Dims loss = params.String("reduction") == "none" ? labels : Dims{};
    const TensorDesc weights = weight.empty() ? TensorDesc{} : Desc(kF32, {scores[1]});
    Case c{"nll_loss", params, {Desc(kBF16, scores), Desc(DType::kInt64, labels), weights}, {Desc(kF32, loss), Desc(kF32, {})}};
    c.values = {{}, label, weight};
    Check(c);
    Case b{"nll_loss_bwd", params, {Desc(kF32, loss), Desc(DType::kInt64, labels), weights, Desc(kF32, {})}, {Desc(kF16, scores)}};
    b.values = {{}, label, weight, {7}};
    Check(b);
  });
}

TEST_F(CpuKernels, LossReportsALabelOutOfRange) {
  Case c{"softmax_cross_entropy", {}, {Desc(kF32, {4, 3}), Desc(DType::kInt64, {4})}, {Desc(kF32, {}), Desc(kF32, {4, 3}), Desc(kF32, {})}};
  c.values = {{}, {0, 1, 3, 2}};
  FillValues(c);
  EXPECT_EQ(kernel_test::Run(*Cpu(c.kernel), c, {}, std::byte{1}).index_error, 3);
  Check(c);
}

// ---- batch normalization ----

TEST_F(CpuKernels, BatchNormMatchesTheReference) {
  const Layout row = Layout::kRowMajor, last = Layout::kChannelsLast;
  struct Shape {
    Dims x;
    Layout layout;
  };
  const Shape shapes[] = {{{4, 3, 7, 9}, row}, {{4, 3, 7, 9}, last}, {{8, 33, 6, 6}, last}, {{2, 5, 3000}, row}, {{600, 20}, row}, {{3, 1100, 4, 2}, last}, {{5, 7, 1, 1}, row}, {{2, 3, 2, 3, 4}, last}};
  for (const Shape& s : shapes) {
    for (DType t : kTypes) {
      const TensorDesc x = Desc(t, s.x, s.layout), v = Desc(kF32, {s.x[1]});
      const double count = static_cast<double>(NumElements(s.x) / s.x[1]);
      Values variance(static_cast<size_t>(s.x[1]));
      for (size_t i = 0; i < variance.size(); ++i) variance[i] = 0.5 + static_cast<double>(i % 7) / 4;
      Values shifted(static_cast<size_t>(NumElements(s.x)));  // mean 10, deviation 1: cancellation shows
      for (size_t i = 0; i < shifted.size(); ++i) shifted[i] = 10 + std::sin(static_cast<double>(i * i % 1000));
      Case train{"batch_norm_train", {{"epsilon", 1e-5}, {"momentum", 0.9}, {"unbiased", int64_t{1}}}, {x, v, v, v, v}, {x, v, v, v, v}};
      train.terms = count;
      train.values = {{}, {}, {}, {}, variance};
      train.in_place = {{0, 0}, {3, 1}, {4, 2}};
      Check(train);
      train.values[0] = shifted;
      train.params.Set("post", std::string("relu"));
      Check(train);
      Case backward{"batch_norm_bwd", {}, {x, x, v, v, v}, {x, v, v}};
      backward.terms = count;
      backward.values = {{}, {}, {}, {}, variance};
      backward.in_place = {{1, 0}};
      Check(backward);
      Case infer{"batch_norm_infer", {{"epsilon", 1e-3}, {"post", std::string("relu")}}, {x, v, v, v, v}, {x}};
      infer.values = {{}, {}, {}, {}, variance};
      infer.terms = 4;
      infer.in_place = {{0, 0}};
      Check(infer);
    }
  }
}

TEST_F(CpuKernels, BatchNormKeepsRunningStatisticsOfAChannelThatIsNotFinite) {
  for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
    const TensorDesc x = Desc(kF32, {3, 4, 5, 5}, layout), v = Desc(kF32, {4});
    Case c{"batch_norm_train", {{"epsilon", 1e-5}}, {x, v, v, v, v}, {x, v, v, v, v}};
    c.values = {{}, {}, {}, {}, {1, 2, 3, 4}};
    c.terms = 75;
    FillValues(c);
    c.values[0][26] = NAN;
    Check(c);
  }
}

// ---- optimizers: the reference's bits ----

/// Bits equal to the reference's in the call's own dtypes.
void ExpectSameBits(const Implementation& impl, const Implementation& ref, Case c) {
  SCOPED_TRACE(Describe(c));
  FillValues(c);
  const RunResult y = kernel_test::Run(impl, c, {.threads = 2}, std::byte{0xFF});
  const RunResult e = kernel_test::Run(ref, c, {}, std::byte{0x33});
  for (size_t j = 0; j < c.outputs.size(); ++j) EXPECT_TRUE(y.outputs[j] == e.outputs[j]) << "output " << j;
  EXPECT_EQ(y.index_error, e.index_error);
}

/// `lists` of three tensors each behind the scalars.
void AddLists(std::vector<TensorDesc>& to, int lists, DType type) {
  for (int i = 0; i < lists; ++i) {
    for (const Dims& d : {Dims{3, 70}, Dims{40001}, Dims{1}}) to.push_back(Desc(type, d));
  }
}

/// Non-negative values for tensors from `first` on: second moments.
void FillPositive(Case& c, size_t first) {
  c.values.resize(c.inputs.size());
  for (size_t i = first; i < c.inputs.size(); ++i) {
    c.values[i].resize(static_cast<size_t>(c.inputs[i].elements()));
    for (size_t k = 0; k < c.values[i].size(); ++k) c.values[i][k] = static_cast<double>(k % 13) / 8;
  }
}

TEST_F(CpuKernels, AdamHasTheBitsOfTheReference) {
  const TensorDesc scalar = Desc(kF32, {}), flag = Desc(DType::kBool, {});
  for (int64_t decoupled : {0, 1}) {
    for (double skip : {0.0, 1.0}) {
      Case c{"adam", {{"count", int64_t{3}}, {"decoupled", decoupled}}, {flag, scalar, scalar, scalar, scalar, scalar, scalar, scalar, scalar, scalar}, {}};
      AddLists(c.inputs, 4, kF32);
      AddLists(c.outputs, 3, kF32);
      FillPositive(c, 10 + 9);
      const double values[] = {skip, 1e-3, 0.0123, 0.9, 0.1, 0.999, 0.001, 0.0447, 1e-8, 0.01};
      for (size_t i = 0; i < 10; ++i) c.values[i] = {values[i]};
      ExpectSameBits(*Cpu("adam"), Ref("adam"), c);
      for (int k = 0; k < 3; ++k) {
        c.in_place.push_back({10 + k, k});
        c.in_place.push_back({16 + k, 3 + k});
        c.in_place.push_back({19 + k, 6 + k});
      }
      Check(c);
    }
  }
}

TEST_F(CpuKernels, SgdHasTheBitsOfTheReference) {
  const TensorDesc scalar = Desc(kF32, {}), flag = Desc(DType::kBool, {});
  for (int variant = 0; variant < 24; ++variant) {
    const bool momentum = variant % 2 == 1, nesterov = momentum && variant / 2 % 2 == 1;
    Case c{"sgd", {{"count", int64_t{3}}, {"nesterov", int64_t{nesterov}}, {"maximize", int64_t{variant % 3 == 2}}}, {flag, scalar, scalar, scalar, scalar, flag}, {}};
    AddLists(c.inputs, momentum ? 3 : 2, kF32);
    AddLists(c.outputs, momentum ? 2 : 1, kF32);
    c.values = {{variant == 9 ? 1.0 : 0.0}, {0.05}, {0.9}, {0.1}, {1e-4}, {variant / 4 % 2 == 1 ? 1.0 : 0.0}};
    ExpectSameBits(*Cpu("sgd"), Ref("sgd"), c);
  }
}

TEST_F(CpuKernels, UnscaleCheckMatchesTheReference) {
  const TensorDesc scalar = Desc(kF32, {}), flag = Desc(DType::kBool, {});
  for (DType t : kTypes) {
    for (int variant = 0; variant < 4; ++variant) {
      Case c{"unscale_check", {}, {variant == 3 ? TensorDesc{} : scalar}, {}};
      AddLists(c.inputs, 1, t);
      AddLists(c.outputs, 1, kF32);
      c.outputs.push_back(flag);
      c.outputs.push_back(scalar);
      FillValues(c);
      c.values[0] = {65536.0 * 3};
      if (variant == 1) c.values[2][39999] = INFINITY;
      if (variant == 2) c.values[3][0] = NAN;
      Check(c);
    }
  }
  Case huge{"unscale_check", {}, {scalar, Desc(kF32, {20})}, {Desc(kF32, {20}), flag, scalar}};
  huge.values = {{1.0}, Values(20, 3e38)};  // every value finite, the norm is not
  FillValues(huge);
  const RunResult run = kernel_test::Run(*Cpu("unscale_check"), huge, {}, std::byte{0});
  EXPECT_EQ(LoadDouble(DType::kBool, run.outputs[1].get(), 0), 1);
}

TEST_F(CpuKernels, ClipNormMatchesTheReference) {
  const TensorDesc scalar = Desc(kF32, {});
  for (double norm : {0.5, 20.0, static_cast<double>(NAN)}) {
    Case c{"clip_norm", {}, {scalar, scalar}, {}};
    AddLists(c.inputs, 1, kF32);
    AddLists(c.outputs, 1, kF32);
    c.values = {{norm}, {1.0}};
    ExpectSameBits(*Cpu("clip_norm"), Ref("clip_norm"), c);
  }
}

// ---- pooling ----

TEST_F(CpuKernels, PoolsMatchTheReference) {
  struct Shape {
    Dims x, y;
    std::vector<int64_t> kernel, strides, dilations, pads;
  };
  const Shape shapes[] = {
      {{2, 3, 8, 9}, {2, 3, 4, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0}},
      {{2, 20, 12, 11}, {2, 20, 6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
      {{2, 5, 9, 9}, {2, 5, 7, 5}, {2, 3}, {1, 1}, {2, 2}, {0, 0, 0, 0}},
      {{3, 17, 7, 7}, {3, 17, 1, 1}, {7, 7}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
      {{2, 4, 30}, {2, 4, 10}, {4}, {3}, {1}, {1, 1}},
      {{1, 3, 4, 6, 6}, {1, 3, 2, 5, 3}, {2, 2, 3}, {2, 1, 2}, {1, 1, 1}, {0, 0, 1, 0, 0, 1}},
      {{1, 2, 3, 10}, {1, 2, 2, 3}, {2, 4}, {2, 4}, {1, 1}, {0, 1, 1, 2}},
  };
  for (const Shape& s : shapes) {
    for (DType t : kTypes) {
      for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        const Attrs params = {{"kernel_shape", s.kernel}, {"strides", s.strides}, {"dilations", s.dilations}, {"pads", s.pads}};
        const TensorDesc x = Desc(t, s.x, layout), y = Desc(t, s.y, layout), index = Desc(DType::kInt32, s.y, layout);
        Case max{"pool_max", params, {x}, {y, index}};
        max.values = {Values(static_cast<size_t>(x.elements()))};  // many ties
        for (size_t i = 0; i < max.values[0].size(); ++i) max.values[0][i] = static_cast<double>(i * i % 7) - 3;
        Check(max);
        max.values[0][5] = NAN;
        max.values[0][6] = -INFINITY;
        Check(max);
        FillValues(max);
        const RunResult forward = kernel_test::Run(*Cpu("pool_max"), max, {}, std::byte{0});
        Case back{"pool_max_bwd", params, {y, index}, {x}};
        back.values = {{}, Values(static_cast<size_t>(y.elements()))};
        for (size_t i = 0; i < back.values[1].size(); ++i) {
          back.values[1][i] = LoadDouble(DType::kInt32, forward.outputs[1].get(), static_cast<int64_t>(i));
        }
        Check(back);
        for (int64_t include : {0, 1}) {
          Attrs avg = params;
          avg.Set("count_include_pad", include);
          Case mean{"pool_avg", avg, {x}, {y}};
          mean.terms = 4;
          Check(mean);
          Case spread{"pool_avg_bwd", avg, {y}, {x}};
          spread.terms = 4;
          Check(spread);
        }
      }
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
      {{6, 7}, {7, 6}, 0, {1, 7}},                                           // transpose
      {{70, 90}, {90, 70}, 0, {1, 90}},
      {{2, 33, 40, 3}, {2, 40, 33, 3}, 0, {3960, 3, 120, 1}},
      {{3, 50, 4, 40}, {3, 4, 50, 40}, 0, {8000, 40, 160, 1}},
      {{2, 40, 9, 9}, {2, 9, 9, 40}, 0, {3240, 9, 1, 81}},
      {{10, 10}, {3, 4}, 23, {20, 2}},                                       // slice with steps
      {{10}, {10}, 9, {-1}},                                                 // reversed
      {{5}, {4, 5}, 0, {0, 1}},                                              // expand
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
      for (size_t i = 0; i < back.values[0].size(); ++i) back.values[0][i] = static_cast<double>(i % 128);
      ExpectSameBits(*Cpu("scatter_copy"), Ref("scatter_copy"), back);
    }
  }
}

TEST_F(CpuKernels, ConcatAndFillMoveBits) {
  for (DType t : {kF32, kF16, DType::kBool}) {
    Case c{"concat", {{"axis", int64_t{1}}}, {Desc(t, {3, 4, 5}), Desc(t, {3, 0, 5}), Desc(t, {3, 2, 5})}, {Desc(t, {3, 6, 5})}};
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
  for (const Shape& s : {Shape{{30, 64}, {4, 5, 64}, 0}, Shape{{3, 30, 7}, {3, 4, 5, 7}, 1}, Shape{{30}, {4, 5}, 0}, Shape{{30, 5000}, {4, 5, 5000}, 0}}) {
    for (DType t : kTypes) {
      for (DType index : {DType::kInt32, DType::kInt64}) {
        Values indices(20);
        for (size_t i = 0; i < 20; ++i) indices[i] = static_cast<double>(i * i % 30) - (i % 3 == 0 ? 30 : 0);
        Case c{"gather", {{"axis", s.axis}}, {Desc(t, s.data), Desc(index, {4, 5})}, {Desc(t, s.y)}};
        c.values = {{}, indices};
        ExpectSameBits(*Cpu("gather"), Ref("gather"), c);
        Case back{"gather_bwd", {{"axis", s.axis}}, {Desc(t, s.y), Desc(index, {4, 5})}, {Desc(t, s.data)}};
        back.values = {{}, indices};
        ExpectSameBits(*Cpu("gather_bwd"), Ref("gather_bwd"), back);
      }
    }
  }
}

TEST_F(CpuKernels, GatherReportsAnIndexOutOfRange) {
  Case c{"gather", {{"axis", int64_t{0}}}, {Desc(kF32, {5, 2}), Desc(DType::kInt64, {3})}, {Desc(kF32, {3, 2})}};
  c.values = {{}, {1, 5, 0}};
  FillValues(c);
  EXPECT_EQ(kernel_test::Run(*Cpu("gather"), c, {}, std::byte{1}).index_error, 2);
}

TEST_F(CpuKernels, DropoutHasTheBitsOfTheReference) {
  for (DType t : kTypes) {
    for (const Dims& d : {Dims{1}, Dims{7, 9}, Dims{100, 1003}}) {
      for (double ratio : {0.0, 0.1, 0.5, 1.0}) {
        Case c{"dropout", {{"stream", int64_t{7}}}, {Desc(t, d), Desc(kF32, {}), Desc(DType::kInt64, {2})}, {Desc(t, d), Desc(DType::kBool, d)}};
        c.values = {{}, {ratio}, {123456789012.0, 5}};
        ExpectSameBits(*Cpu("dropout"), Ref("dropout"), c);
      }
    }
  }
}

}  // namespace
}  // namespace ampc::kernel_test
