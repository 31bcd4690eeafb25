// SPDX-License-Identifier: Apache-2.0
// Reference kernels: convolutions, pools, batch normalization, softmax.

#include "test/unit/ref_kernels_harness.h"

namespace ampc::testing {
namespace {

using Ints = std::vector<int64_t>;

// ---- convolution

struct Conv2D {
  Dims x, w, y;  // [N,C,H,W], [M,C/group,KH,KW], [N,M,OH,OW]
  Ints strides = {1, 1}, dilations = {1, 1}, pads = {0, 0, 0, 0};
  int64_t group = 1;
  Attrs params() const {
    return {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", group}};
  }
};

const Conv2D kConvs[] = {
    {{1, 1, 3, 3}, {1, 1, 2, 2}, {1, 1, 2, 2}},
    {{2, 3, 7, 6}, {4, 3, 3, 2}, {2, 4, 4, 6}, {2, 1}, {1, 1}, {1, 0, 1, 1}},
    {{2, 4, 9, 8}, {6, 2, 3, 3}, {2, 6, 3, 8}, {2, 1}, {2, 1}, {0, 1, 1, 1}, 2},
    {{1, 4, 6, 6}, {8, 1, 3, 3}, {1, 8, 3, 4}, {2, 2}, {1, 2}, {0, 3, 1, 2}, 4},
    {{1, 2, 5, 5}, {3, 2, 1, 1}, {1, 3, 2, 2}, {3, 3}},  // a stride beyond the kernel
};

/// The definition of ONNX Conv, written apart from the kernel: scattering over x.
Values NaiveConv(const Conv2D& c, const Values& x, const Values& w) {
  Values y(static_cast<size_t>(NumElements(c.y)), 0);
  const int64_t per_group = c.w[1], filters = c.w[0] / c.group;
  for (int64_t n = 0; n < c.x[0]; ++n)
    for (int64_t m = 0; m < c.w[0]; ++m)
      for (int64_t oh = 0; oh < c.y[2]; ++oh)
        for (int64_t ow = 0; ow < c.y[3]; ++ow)
          for (int64_t ch = 0; ch < per_group; ++ch)
            for (int64_t kh = 0; kh < c.w[2]; ++kh)
              for (int64_t kw = 0; kw < c.w[3]; ++kw) {
                const int64_t h = oh * c.strides[0] + kh * c.dilations[0] - c.pads[0];
                const int64_t v = ow * c.strides[1] + kw * c.dilations[1] - c.pads[1];
                if (h < 0 || h >= c.x[2] || v < 0 || v >= c.x[3]) continue;
                const int64_t channel = m / filters * per_group + ch;
                y[((n * c.w[0] + m) * c.y[2] + oh) * c.y[3] + ow] +=
                    x[((n * c.x[1] + channel) * c.x[2] + h) * c.x[3] + v] *
                    w[((m * per_group + ch) * c.w[2] + kh) * c.w[3] + kw];
              }
  return y;
}

TEST(RefConv, FollowsTheDefinition) {
  for (const Conv2D& c : kConvs) {
    const Tensor w = RandomTensor(kF32, c.w, 2);
    for (Layout layout : {kRow, kLast}) {
      const Tensor x = RandomTensor(kF32, c.x, 1, layout);
      EXPECT_EQ(Run1("conv", c.params(), {x, w}, Of(kF32, c.y, {}, layout)),
                NaiveConv(c, x.values, w.values));
    }
  }
}

TEST(RefConv, BackwardIsTheAdjoint) {
  // <conv(x, w), dy> = <x, bwd_data(dy, w)> = <w, bwd_weights(x, dy)>; the values are exact in
  // double.
  for (const Conv2D& c : kConvs) {
    for (Layout layout : {kRow, kLast}) {
      const Tensor x = RandomTensor(kF64, c.x, 1, layout), w = RandomTensor(kF64, c.w, 2),
                   dy = RandomTensor(kF64, c.y, 3, layout);
      const double want =
          DotOf(Run1("conv", c.params(), {x, w}, Of(kF64, c.y, {}, layout)), dy.values);
      EXPECT_EQ(
          DotOf(Run1("conv_bwd_data", c.params(), {dy, w}, Of(kF64, c.x, {}, layout)), x.values),
          want);
      EXPECT_EQ(DotOf(Run1("conv_bwd_weights", c.params(), {x, dy}, Of(kF64, c.w)), w.values),
                want);
    }
  }
}

TEST(RefConv, TakesOneAndThreeSpatialAxes) {
  struct Case {
    Dims x, w, y;
    Attrs params;
  };
  const Case cases[] = {
      {{2, 3, 9}, {4, 3, 3}, {2, 4, 5}, {{"strides", Ints{2}}, {"pads", Ints{1, 1}}}},
      {{1, 2, 4, 5, 3},
       {2, 1, 2, 3, 2},
       {1, 2, 3, 2, 3},
       {{"strides", Ints{1, 2, 1}}, {"pads", Ints{0, 0, 1, 0, 0, 0}}, {"group", int64_t{2}}}},
  };
  for (const Case& c : cases) {
    for (Layout layout : {kRow, kLast}) {
      const Tensor x = RandomTensor(kF64, c.x, 1, layout), w = RandomTensor(kF64, c.w, 2),
                   dy = RandomTensor(kF64, c.y, 3, layout);
      const double want =
          DotOf(Run1("conv", c.params, {x, w}, Of(kF64, c.y, {}, layout)), dy.values);
      EXPECT_EQ(
          DotOf(Run1("conv_bwd_data", c.params, {dy, w}, Of(kF64, c.x, {}, layout)), x.values),
          want);
      EXPECT_EQ(DotOf(Run1("conv_bwd_weights", c.params, {x, dy}, Of(kF64, c.w)), w.values), want);
    }
  }
  // One axis, by hand: [1,2,3] with taps [1,10], padded by one on the left.
  EXPECT_EQ(
      Run1("conv", {{"pads", Ints{1, 0}}},
           {Of(kF32, {1, 1, 3}, {1, 2, 3}), Of(kF32, {1, 1, 2}, {1, 10})}, Of(kF32, {1, 1, 3})),
      (Values{10, 21, 32}));
}

TEST(RefConv, AddsBiasAndReluBeforeTheOnlyRounding) {
  const Tensor x = Of(kF16, {1, 1, 2}, {2048, 1}), w = Of(kF16, {2, 1, 2}, {1, 1, -1, -1}),
               b = Of(kF16, {2}, {1, 5});
  EXPECT_EQ(Run1("conv", {}, {x, w, b}, Of(kF16, {1, 2, 1})), (Values{2050, -2044}));
  EXPECT_EQ(Run1("conv", {{"post", std::string("relu")}}, {x, w, b}, Of(kF16, {1, 2, 1})),
            (Values{2050, 0}));
  // Transposed convolution: [1,2] spread with stride 2 by taps [1,10], plus 5.
  EXPECT_EQ(Run1("conv_bwd_data", {{"strides", Ints{2}}},
                 {Of(kF32, {1, 1, 2}, {1, 2}), Of(kF32, {1, 1, 2}, {1, 10}), Of(kF32, {1}, {5})},
                 Of(kF32, {1, 1, 4})),
            (Values{6, 15, 7, 25}));
}

TEST(RefConv, WritesFp32WeightGradientsOfLowOperands) {
  const Tensor x = Of(kBf16, {1, 1, 4097}, Values(4097, 1)),
               dy = Of(kBf16, {1, 1, 4097}, Values(4097, 1));
  EXPECT_EQ(Run1("conv_bwd_weights", {}, {x, dy}, Of(kF32, {1, 1, 1})), (Values{4097}));
}

TEST(RefConv, RefusesShapesThatDoNotFit) {
  const Tensor x = Of(kF32, {1, 4, 8, 8}), w = Of(kF32, {6, 2, 3, 3}), y = Of(kF32, {1, 6, 6, 6});
  const Attrs two{{"group", int64_t{2}}};
  EXPECT_EQ(Refusal("conv", two, {x, w}, {y}), "accepted");
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(Refusal("conv", {}, {x, w}, {y}), "expected 4 channels per group");
  expect(Refusal("conv", {{"group", int64_t{3}}}, {x, w}, {y}), "does not divide");
  expect(Refusal("conv", {{"group", int64_t{0}}}, {x, w}, {y}), "does not divide");
  expect(Refusal("conv", two, {x, w}, {Of(kF32, {1, 6, 6, 7})}), "expected 6 along spatial axis 1");
  expect(Refusal("conv", {{"group", int64_t{2}}, {"strides", Ints{0, 1}}}, {x, w}, {y}),
         "parameter 'strides'");
  expect(Refusal("conv", {{"group", int64_t{2}}, {"pads", Ints{1, 1}}}, {x, w}, {y}),
         "expected 4 entries, found 2");
  expect(Refusal("conv", two, {x, w, Of(kF32, {5})}, {y}), "input 'b': expected 6 elements");
  expect(Refusal("conv", two, {x, w}, {Of(kF32, {1, 6, 6, 6}, {}, kLast)}), "layout");
  expect(Refusal("conv", two, {Of(kI32, {1, 4, 8, 8}), w}, {y}), "expected a float type");
  expect(
      Refusal("conv_bwd_data", {{"group", int64_t{2}}, {"post", std::string("relu")}}, {y, w}, {x}),
      "'post'");
}

// ---- pools

Attrs Pool(Ints kernel, Ints strides, Ints pads, int64_t include = 0) {
  return {{"kernel_shape", std::move(kernel)},
          {"strides", std::move(strides)},
          {"pads", std::move(pads)},
          {"count_include_pad", include}};
}

TEST(RefPoolMax, TakesTheFirstMaximumAndNan) {
  const Tensor x = Of(kF32, {1, 1, 2, 4}, {1, 5, 2, kNan, 5, 3, 7, 8});
  const RunResult r = RunCall("pool_max", Pool({2, 2}, {2, 2}, {0, 0, 0, 0}), {x},
                              {Of(kF32, {1, 1, 1, 2}), Of(kI32, {1, 1, 1, 2})});
  EXPECT_EQ(r.y[0][0], 5);
  EXPECT_TRUE(std::isnan(r.y[0][1]));
  EXPECT_EQ(r.y[1], (Values{1, 3}));
}

TEST(RefPoolMax, IgnoresPaddingAndMarksEmptyWindows) {
  const Tensor x = Of(kF32, {1, 1, 2}, {-3, -4});
  const RunResult r =
      RunCall("pool_max", Pool({2}, {2}, {3, 1}), {x}, {Of(kF32, {1, 1, 3}), Of(kI32, {1, 1, 3})});
  EXPECT_EQ(r.y[0], (Values{-kInf, -3, -4}));
  EXPECT_EQ(r.y[1], (Values{-1, 0, 1}));
  EXPECT_EQ(
      Run1("pool_max_bwd", Pool({2}, {2}, {3, 1}),
           {Of(kF32, {1, 1, 3}, {9, 1, 2}), Of(kI32, {1, 1, 3}, {-1, 0, 1})}, Of(kF32, {1, 1, 2})),
      (Values{1, 2}));
}

TEST(RefPoolMax, IsTheSameInBothLayoutsAndTakesIntegers) {
  const Attrs params = Pool({3, 2}, {2, 1}, {1, 1, 0, 0});
  const Dims in = {2, 3, 5, 4}, out = {2, 3, 2, 4};
  const RunResult row =
      RunCall("pool_max", params, {RandomTensor(kF32, in, 1)}, {Of(kF32, out), Of(kI32, out)});
  const RunResult last = RunCall("pool_max", params, {RandomTensor(kF32, in, 1, kLast)},
                                 {Of(kF32, out, {}, kLast), Of(kI32, out, {}, kLast)});
  EXPECT_EQ(row.y, last.y);
  const Tensor dy = RandomTensor(kF32, out, 2), dy_last = RandomTensor(kF32, out, 2, kLast);
  EXPECT_EQ(Run1("pool_max_bwd", params, {dy, Of(kI32, out, row.y[1])}, Of(kF32, in)),
            Run1("pool_max_bwd", params, {dy_last, Of(kI32, out, row.y[1], kLast)},
                 Of(kF32, in, {}, kLast)));
  EXPECT_EQ(Run1("pool_max", Pool({2}, {1}, {0, 0}), {Of(DType::kInt8, {1, 1, 3}, {-5, -7, -6})},
                 Of(DType::kInt8, {1, 1, 2})),
            (Values{-5, -6}));
}

TEST(RefPoolMax, BackwardAddsOverlappingWindowsInAcc) {
  // 4096 windows of one element each would stop at 2048 in fp16; here all point at position 0.
  const Dims out = {1, 1, 4096};
  const Values y =
      Run1("pool_max_bwd", Pool({1}, {1}, {0, 0}),
           {Of(kF16, out, Values(4096, 1)), Of(kI32, out, Values(4096, 0))}, Of(kF16, out));
  EXPECT_EQ(y[0], 4096);
  EXPECT_EQ(y[1], 0);
}

TEST(RefPoolAvg, CountsPaddingOnlyWhenAsked) {
  const Tensor x = Of(kF32, {1, 1, 2, 2}, {4, 8, 12, 16});
  const Dims out = {1, 1, 2, 2};
  EXPECT_EQ(Run1("pool_avg", Pool({2, 2}, {2, 2}, {1, 1, 1, 1}), {x}, Of(kF32, out)),
            (Values{4, 8, 12, 16}));
  EXPECT_EQ(Run1("pool_avg", Pool({2, 2}, {2, 2}, {1, 1, 1, 1}, 1), {x}, Of(kF32, out)),
            (Values{1, 2, 3, 4}));
}

TEST(RefPoolAvg, BackwardIsTheAdjoint) {
  const Dims in = {2, 3, 6, 5}, out = {2, 3, 3, 4};
  for (int64_t include : {0, 1}) {
    for (Layout layout : {kRow, kLast}) {
      Attrs params = Pool({3, 2}, {2, 1}, {1, 1, 1, 1}, include);
      params.Set("dilations", Ints{1, 2});
      const Tensor x = RandomTensor(kF64, in, 1, layout),
                   dy = RandomTensor(kF64, {2, 3, 3, 5}, 2, layout);
      const double want =
          DotOf(Run1("pool_avg", params, {x}, Of(kF64, {2, 3, 3, 5}, {}, layout)), dy.values);
      EXPECT_NEAR(DotOf(Run1("pool_avg_bwd", params, {dy}, Of(kF64, in, {}, layout)), x.values),
                  want, 1e-12);
    }
  }
}

// ---- batch normalization

struct Norm {
  Values y, mean, var, save_mean, save_inv_std;
};

Norm TrainNorm(const Tensor& x, Attrs params, double old_mean = 10, double old_var = 20,
               const std::vector<Alias>& aliases = {}) {
  const int64_t c = x.desc.dims[1];
  const DType acc = x.desc.dtype == kF64 ? kF64 : kF32;
  const auto channel = [&](double v) { return Of(acc, {c}, Values(static_cast<size_t>(c), v)); };
  if (!params.Has("epsilon")) params.Set("epsilon", 0.0);
  const Tensor stat = Of(acc, {c});
  const RunResult r = RunCall("batch_norm_train", params,
                              {x, channel(2), channel(1), channel(old_mean), channel(old_var)},
                              {{x.desc, {}}, stat, stat, stat, stat}, aliases);
  return {r.y[0], r.y[1], r.y[2], r.y[3], r.y[4]};
}

TEST(RefBatchNorm, NormalizesAndUpdatesTheRunningStatistics) {
  const Tensor x =
      Of(kF64, {2, 2, 2}, {1, 3, 0, 0, 5, 7, 4, 4});  // channel 0: 1 3 5 7; channel 1: 0 0 4 4
  const Norm n = TrainNorm(x, {{"momentum", 0.75}});
  EXPECT_EQ(n.save_mean, (Values{4, 2}));
  ExpectNear(n.save_inv_std, {1 / std::sqrt(5), 0.5}, 1e-15);
  const double a = 2 / std::sqrt(5);
  ExpectNear(n.y, {1 - 3 * a, 1 - a, -1, -1, 1 + a, 1 + 3 * a, 3, 3}, 1e-14);
  EXPECT_EQ(n.mean, (Values{10 * 0.75 + 1, 10 * 0.75 + 0.5}));
  EXPECT_EQ(n.var, (Values{20 * 0.75 + 1.25, 20 * 0.75 + 1}));
  EXPECT_EQ(TrainNorm(x, {{"momentum", 0.75}, {"unbiased", int64_t{1}}}).var[1],
            20 * 0.75 + 0.25 * (4.0 * (4.0 / 3)));
}

TEST(RefBatchNorm, KeepsRunningStatisticsOfNonFiniteChannels) {
  for (double bad : {kNan, kInf, -kInf}) {
    const Norm n = TrainNorm(Of(kF32, {2, 2}, {1, 1, bad, 3}), {{"momentum", 0.5}}, 0.1, 0.3);
    const double old_mean = static_cast<double>(0.1f), old_var = static_cast<double>(0.3f);
    EXPECT_EQ(n.mean[0], old_mean);
    EXPECT_EQ(n.var[0], old_var);
    EXPECT_EQ(n.mean[1], static_cast<double>(static_cast<float>(old_mean * 0.5 + 1)));
  }
  // One value has no unbiased variance.
  EXPECT_EQ(TrainNorm(Of(kF64, {1, 1}, {5}), {{"unbiased", int64_t{1}}, {"epsilon", 1.0}}).var,
            (Values{20}));
}

TEST(RefBatchNorm, IsTheSameInBothLayoutsAndInPlace) {
  const Tensor row = RandomTensor(kF16, {3, 4, 2, 5}, 1),
               last = RandomTensor(kF16, {3, 4, 2, 5}, 1, kLast);
  const Attrs params{{"epsilon", 1e-5}, {"post", std::string("relu")}};
  const Norm want = TrainNorm(row, params);
  EXPECT_EQ(TrainNorm(last, params).y, want.y);
  const Norm in_place = TrainNorm(row, params, 10, 20, {{0, 0}, {3, 1}, {4, 2}});
  EXPECT_EQ(in_place.y, want.y);
  EXPECT_EQ(in_place.mean, want.mean);
  EXPECT_EQ(in_place.var, want.var);
  EXPECT_GE(*std::min_element(want.y.begin(), want.y.end()), 0);
}

TEST(RefBatchNorm, LargeFp16ValuesDoNotOverflow) {
  const Norm n = TrainNorm(Of(kF16, {4, 1}, {60000, 60032, 60000, 60032}), {});
  EXPECT_EQ(n.y, (Values{-1, 3, -1, 3}));
}

TEST(RefBatchNorm, BackwardAgreesWithFiniteDifferences) {
  const Dims dims = {3, 2, 2, 2};
  const Tensor x = RandomTensor(kF64, dims, 1), dy = RandomTensor(kF64, dims, 2);
  const Attrs params{{"epsilon", 0.01}};
  const auto loss = [&](const Values& v) {
    return DotOf(TrainNorm(Of(kF64, dims, v), params).y, dy.values);
  };
  const Norm n = TrainNorm(x, params);
  const std::vector<Tensor> in = {x, dy, Of(kF64, {2}, {2, 2}), Of(kF64, {2}, n.save_mean),
                                  Of(kF64, {2}, n.save_inv_std)};
  const std::vector<Tensor> out = {Of(kF64, dims), Of(kF64, {2}), Of(kF64, {2})};
  const RunResult r = RunCall("batch_norm_bwd", {}, in, out);
  ExpectNear(r.y[0], NumericGradient(x.values, loss), 1e-8);
  Values dscale(2, 0), dbias(2, 0);
  for (size_t i = 0; i < 24; ++i) {
    dscale[i / 4 % 2] += dy.values[i] * (n.y[i] - 1) / 2;
    dbias[i / 4 % 2] += dy.values[i];
  }
  ExpectNear(r.y[1], dscale, 1e-12);
  ExpectNear(r.y[2], dbias, 1e-12);
  EXPECT_EQ(RunCall("batch_norm_bwd", {}, in, out, {{1, 0}}).y, r.y);
  EXPECT_EQ(RunCall("batch_norm_bwd", {}, in, {Absent(), out[1], out[2]}).y[1], r.y[1]);
}

TEST(RefBatchNorm, InfersWithStoredStatistics) {
  const auto c = [](double a, double b) { return Of(kF32, {2}, {a, b}); };
  const std::vector<Tensor> in = {Of(kF32, {1, 2, 1}, {5, 6}), c(2, 1), c(1, -9), c(3, 2),
                                  c(3, 15)};
  EXPECT_EQ(Run1("batch_norm_infer", {{"epsilon", 1.0}}, in, Of(kF32, {1, 2, 1})), (Values{3, -8}));
  EXPECT_EQ(Run1("batch_norm_infer", {{"epsilon", 1.0}, {"post", std::string("relu")}}, in,
                 Of(kF32, {1, 2, 1}), {{0, 0}}),
            (Values{3, 0}));
}

// ---- softmax

TEST(RefSoftmax, SumsToOneAlongTheAxisAndSurvivesLargeScores) {
  const Tensor x = Of(kF64, {2, 3, 2}, {1, 1000, 2, 1000, 3, -kInf, 0, 5, 0, 5, 0, 6});
  const Values y = Run1("softmax", {{"axis", int64_t{1}}}, {x}, Of(kF64, {2, 3, 2}));
  EXPECT_EQ(y[1], 0.5);
  EXPECT_EQ(y[5], 0);
  for (int o = 0; o < 2; ++o) {
    for (int i = 0; i < 2; ++i)
      EXPECT_NEAR(y[o * 6 + i] + y[o * 6 + 2 + i] + y[o * 6 + 4 + i], 1, 1e-15);
  }
  const Values log_y = Run1("log_softmax", {{"axis", int64_t{1}}}, {x}, Of(kF64, {2, 3, 2}));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(std::exp(log_y[i]), y[i], 1e-15);
  EXPECT_TRUE(std::isnan(
      Run1("softmax", {{"axis", int64_t{0}}}, {Of(kF32, {2}, {-kInf, -kInf})}, Of(kF32, {2}))[0]));
  EXPECT_TRUE(std::isnan(
      Run1("softmax", {{"axis", int64_t{0}}}, {Of(kF32, {2}, {1, kNan})}, Of(kF32, {2}))[0]));
}

TEST(RefSoftmax, BackwardAgreesWithFiniteDifferences) {
  const Dims dims = {2, 4, 3};
  const Tensor x = RandomTensor(kF64, dims, 1), dy = RandomTensor(kF64, dims, 2);
  for (const char* kernel : {"softmax", "log_softmax"}) {
    const Attrs params{{"axis", int64_t{1}}};
    const auto forward = [&](const Values& v) {
      return Run1(kernel, params, {Of(kF64, dims, v)}, Of(kF64, dims));
    };
    const auto loss = [&](const Values& v) { return DotOf(forward(v), dy.values); };
    const std::string backward = std::string(kernel) + "_bwd";
    const std::vector<Tensor> in = {Of(kF64, dims, forward(x.values)), dy};
    const Values dx = Run1(backward, params, in, Of(kF64, dims));
    ExpectNear(dx, NumericGradient(x.values, loss), 1e-8);
    EXPECT_EQ(Run1(backward, params, in, Of(kF64, dims), {{1, 0}}), dx);
    EXPECT_EQ(Run1(kernel, params, {x}, Of(kF64, dims), {{0, 0}}), in[0].values);
  }
}

TEST(RefSoftmax, ComputesLowTypesInWideOnes) {
  // 4096 equal scores: each 2^-12; sums in fp16 would stop at 2048.
  const Values y = Run1("softmax", {{"axis", int64_t{0}}}, {Of(kF16, {4096}, Values(4096, 60000))},
                        Of(kF16, {4096}));
  EXPECT_EQ(y, Values(4096, std::ldexp(1, -12)));
}

}  // namespace
}  // namespace ampc::testing
