// SPDX-License-Identifier: Apache-2.0
// CPU implementations in fp32, fp16 and bf16 against the reference in double: convolution, pooling,
// normalization, softmax and losses.

#include <algorithm>

#include "test/unit/cpu_kernels_harness.h"

namespace ampc::kernel_test {
namespace {

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

Case BackwardData(const ConvShape& s, DType t, Layout layout) {
  Case c{
      "conv_bwd_data", ConvParams(s), {Desc(t, s.y, layout), Desc(t, s.w)}, {Desc(t, s.x, layout)}};
  c.terms = static_cast<double>(NumElements(s.w) / s.w[1]);
  return c;
}

TEST_F(CpuKernels, ConvBackwardDataMatchesTheReference) {
  for (const ConvShape& s : kConvs) {
    for (DType t : kTypes) {
      for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        Case c = BackwardData(s, t, layout);
        Check(c);
        c.inputs.push_back(Desc(t, {s.x[1]}));
        Check(c);
      }
    }
  }
}

/// Phases, bands of rows and three axes of the kernel for one to four channels.
TEST_F(CpuKernels, GradientsToFewChannelsMatchTheReference) {
  const ConvShape shapes[] = {
      {{2, 1, 60, 90}, {5, 1, 4, 4}, {2, 5, 30, 45}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
      {{1, 3, 50, 50}, {4, 3, 3, 3}, {1, 4, 50, 50}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {{2, 4, 17, 13}, {3, 4, 3, 2}, {2, 3, 5, 4}, {3, 4}, {2, 1}, {0, 1, 0, 0}},
      {{2, 2, 31}, {6, 2, 5}, {2, 6, 15}, {2}, {1}, {1, 1}},
      {{1, 2, 5, 8, 7}, {3, 2, 2, 3, 3}, {1, 3, 3, 4, 7}, {2, 2, 1}, {1, 1, 1}, {1, 1, 1, 0, 1, 1}},
  };
  for (const ConvShape& s : shapes) {
    for (DType t : kTypes) {
      for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        Case c = BackwardData(s, t, layout);
        const auto chosen = cpu_.Select({c.kernel, c.params, c.inputs, c.outputs}, {.threads = 2});
        ASSERT_TRUE(chosen.ok());
        EXPECT_EQ((*chosen)->name, "phases");
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
          Case c{"conv_bwd_weights",
                 ConvParams(s),
                 {Desc(t, s.x, layout), Desc(t, s.y, layout)},
                 {Desc(to, s.w)}};
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
      const auto one =
          kernel_test::Run(*Cpu(c.kernel), c, {.threads = 1, .deterministic = true}, std::byte{1});
      const auto two =
          kernel_test::Run(*Cpu(c.kernel), c, {.threads = 2, .deterministic = true}, std::byte{2});
      EXPECT_TRUE(one.outputs[0] == two.outputs[0]) << c.kernel;
    }
  }
}

// ---- attention ----

TEST_F(CpuKernels, AttentionBitsDoNotDependOnThreads) {
  const Attrs params = {{"scale", 0.2}, {"causal", int64_t{1}}};
  const Dims many = {2, 4, 100, 32}, few = {2, 2, 100, 32};
  for (DType t : kTypes) {
    const TensorDesc q = Desc(t, many), k = Desc(t, few), lse = Desc(kF32, {2, 4, 100});
    Case cases[] = {{"attention", params, {q, k, k}, {q, lse}},
                    {"attention_bwd", params, {q, k, k, q, lse, q}, {q, k, k}}};
    for (Case& c : cases) {
      FillValues(c);
      const auto one = kernel_test::Run(*Cpu(c.kernel), c, {.threads = 1}, std::byte{1});
      for (int threads : {2, 3}) {
        const auto more = kernel_test::Run(*Cpu(c.kernel), c, {.threads = threads}, std::byte{2});
        EXPECT_TRUE(one.outputs == more.outputs) << c.kernel << " in " << Name(t);
      }
    }
  }
}

// ---- softmax and losses ----

TEST_F(CpuKernels, SoftmaxMatchesTheReference) {
  struct Shape {
    Dims x;
    int64_t axis;
  };
  const Shape shapes[] = {{{7, 10}, 1},         {{33, 257}, 1}, {{3, 5000}, 1}, {{4, 9, 50}, 1},
                          {{3, 21, 17, 19}, 1}, {{40, 6}, 0},   {{1}, 0}};
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
            for (size_t i = 0; i < label.size(); ++i)
              label[i] = ignore && i % 5 == 1
                             ? -100.0
                             : static_cast<double>(static_cast<int64_t>(i * 7 + i / 3) % classes);
            for (size_t i = 0; i < weight.size(); ++i)
              weight[i] = 0.25 + static_cast<double>(i % 5);
            f(scores, labels, params, label, weighted ? weight : Values{});
          }
        }
      }
    }
  }
}

TEST_F(CpuKernels, CrossEntropyMatchesTheReference) {
  ForEachLoss([&](const Dims& scores, const Dims& labels, const Attrs& params, const Values& label,
                  const Values& weight) {
    for (DType t : kTypes) {
      const Dims loss = params.String("reduction") == "none" ? labels : Dims{};
      const TensorDesc weights = weight.empty() ? TensorDesc{} : Desc(t, {scores[1]});
      Case c{"softmax_cross_entropy",
             params,
             {Desc(t, scores), Desc(DType::kInt64, labels), weights},
             {Desc(kF32, loss), Desc(t, scores), Desc(kF32, {})}};
      c.values = {{}, label, weight};
      c.terms = 16;
      c.in_place = {{0, 1}};
      Check(c);
      Case b{
          "softmax_cross_entropy_bwd",
          params,
          {Desc(kF32, loss), Desc(t, scores), Desc(DType::kInt32, labels), weights, Desc(kF32, {})},
          {Desc(t, scores)}};
      Values log_prob(static_cast<size_t>(NumElements(scores)));
      for (size_t i = 0; i < log_prob.size(); ++i)
        log_prob[i] = -0.1 - static_cast<double>(i % 17) / 4;
      b.values = {{}, log_prob, label, weight, {7}};
      b.terms = 4;
      b.in_place = {{1, 0}};
      Check(b);
    }
  });
}

TEST_F(CpuKernels, NllLossMatchesTheReference) {
  ForEachLoss([&](const Dims& scores, const Dims& labels, const Attrs& params, const Values& label,
                  const Values& weight) {
    if (params.Has("label_smoothing")) return;
    const Dims loss = params.String("reduction") == "none" ? labels : Dims{};
    const TensorDesc weights = weight.empty() ? TensorDesc{} : Desc(kF32, {scores[1]});
    Case c{"nll_loss",
           params,
           {Desc(kBF16, scores), Desc(DType::kInt64, labels), weights},
           {Desc(kF32, loss), Desc(kF32, {})}};
    c.values = {{}, label, weight};
    Check(c);
    Case b{"nll_loss_bwd",
           params,
           {Desc(kF32, loss), Desc(DType::kInt64, labels), weights, Desc(kF32, {})},
           {Desc(kF16, scores)}};
    b.values = {{}, label, weight, {7}};
    Check(b);
  });
}

TEST_F(CpuKernels, TopKMatchesTheReference) {
  for (DType t : kTypes) {
    for (int64_t k : {1, 3}) {
      Case c{"topk_correct",
             {{"k", k}},
             {Desc(t, {50, 2300}), Desc(DType::kInt64, {50})},
             {Desc(kF32, {50})}};
      c.values = {Values(50 * 2300), Values(50)};
      for (size_t i = 0; i < 50; ++i) {
        c.values[1][i] = static_cast<double>(i * 46);
        for (size_t j = 0; j < 2300; ++j)
          c.values[0][i * 2300 + j] = static_cast<double>(j * 37 % 400);  // ties
        c.values[0][i * 2300 + i * 46] = 398.0 + static_cast<double>(i % 3);
      }
      c.values[0][99] = NAN;
      c.values[1][7] = -100;
      Check(c);
    }
  }
}

TEST_F(CpuKernels, LossReportsALabelOutOfRange) {
  Case c{"softmax_cross_entropy",
         {},
         {Desc(kF32, {4, 3}), Desc(DType::kInt64, {4})},
         {Desc(kF32, {}), Desc(kF32, {4, 3}), Desc(kF32, {})}};
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
  const Shape shapes[] = {{{4, 3, 7, 9}, row},   {{4, 3, 7, 9}, last},    {{8, 33, 6, 6}, last},
                          {{2, 5, 3000}, row},   {{600, 20}, row},        {{3, 1100, 4, 2}, last},
                          {{5, 7, 1, 1}, row},   {{2, 3, 2, 3, 4}, last}, {{4, 8, 40, 30}, last},
                          {{3, 6, 20, 41}, last}};
  for (const Shape& s : shapes) {
    for (DType t : kTypes) {
      const TensorDesc x = Desc(t, s.x, s.layout), v = Desc(kF32, {s.x[1]});
      const double count = static_cast<double>(NumElements(s.x) / s.x[1]);
      Values variance(static_cast<size_t>(s.x[1]));
      for (size_t i = 0; i < variance.size(); ++i)
        variance[i] = 0.5 + static_cast<double>(i % 7) / 4;
      Values shifted(
          static_cast<size_t>(NumElements(s.x)));  // mean 10, deviation 1: cancellation shows
      for (size_t i = 0; i < shifted.size(); ++i)
        shifted[i] = 10 + std::sin(static_cast<double>(i * i % 1000));
      Case train{"batch_norm_train",
                 {{"epsilon", 1e-5}, {"momentum", 0.9}, {"unbiased", int64_t{1}}},
                 {x, v, v, v, v},
                 {x, v, v, v, v}};
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
      Case infer{"batch_norm_infer",
                 {{"epsilon", 1e-3}, {"post", std::string("relu")}},
                 {x, v, v, v, v},
                 {x}};
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
      {{1, 40, 9, 9}, {1, 40, 5, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
      {{1, 6, 70, 60}, {1, 6, 35, 30}, {3, 3}, {2, 2}, {1, 1}, {1, 1, 0, 0}},
  };
  for (const Shape& s : shapes) {
    for (DType t : kTypes) {
      for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        const Attrs params = {{"kernel_shape", s.kernel},
                              {"strides", s.strides},
                              {"dilations", s.dilations},
                              {"pads", s.pads}};
        const TensorDesc x = Desc(t, s.x, layout), y = Desc(t, s.y, layout),
                         index = Desc(DType::kInt32, s.y, layout);
        Case max{"pool_max", params, {x}, {y, index}};
        max.values = {Values(static_cast<size_t>(x.elements()))};  // many ties
        for (size_t i = 0; i < max.values[0].size(); ++i)
          max.values[0][i] = static_cast<double>(i * i % 7) - 3;
        Check(max);
        max.values[0][5] = NAN;
        max.values[0][6] = -INFINITY;
        Check(max);
        FillValues(max);
        const RunResult forward = kernel_test::Run(*Cpu("pool_max"), max, {}, std::byte{0});
        Case back{"pool_max_bwd", params, {y, index}, {x}};
        back.values = {{}, Values(static_cast<size_t>(y.elements()))};
        for (size_t i = 0; i < back.values[1].size(); ++i) {
          back.values[1][i] =
              LoadDouble(DType::kInt32, forward.outputs[1].get(), static_cast<int64_t>(i));
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

}  // namespace
}  // namespace ampc::kernel_test
