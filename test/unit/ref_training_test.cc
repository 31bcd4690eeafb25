// SPDX-License-Identifier: Apache-2.0
// Reference kernels: losses, accuracy, unscaling, clipping, optimizers.

#include "test/unit/ref_kernels_harness.h"

namespace ampc::testing {
namespace {

// ---- losses

Attrs Loss(const char* reduction, double smoothing = 0) {
  return {{"reduction", std::string(reduction)}, {"label_smoothing", smoothing}};
}
Attrs Ignoring(Attrs params, int64_t index) {
  params.Set("has_ignore_index", int64_t{1});
  params.Set("ignore_index", index);
  return params;
}

struct LossResult {
  Values loss, log_prob, total, dscores;
  int64_t index_error, index_error_bwd;
};

/// softmax_cross_entropy and its backward with dloss = 1 (3 for "none").
LossResult CrossEntropy(const Attrs& params, const Tensor& scores, const Tensor& labels,
                        const Tensor& weights = Absent()) {
  const DType t = scores.desc.dtype, acc = t == kF64 ? kF64 : kF32;
  const bool none = params.String("reduction") == "none";
  const Tensor loss = Of(acc, none ? labels.desc.dims : Dims{});
  const RunResult f = RunCall("softmax_cross_entropy", params, {scores, labels, weights},
                              {loss, {scores.desc, {}}, Of(acc, {})});
  Tensor dloss = loss;
  dloss.values.assign(static_cast<size_t>(loss.desc.elements()), none ? 3.0 : 1.0);
  const Tensor log_prob = {scores.desc, f.y[1]};
  const RunResult b =
      RunCall("softmax_cross_entropy_bwd", params,
              {dloss, log_prob, labels, weights, Of(acc, {}, f.y[2])}, {{scores.desc, {}}});
  return {f.y[0], f.y[1], f.y[2], b.y[0], f.index_error, b.index_error};
}

const Dims kScores = {3, 4, 2};

TEST(RefCrossEntropy, MatchesTheFormula) {
  const Tensor scores = RandomTensor(kF64, kScores, 1),
               labels = Of(kI64, {3, 2}, {0, 1, 2, 3, 3, 0});
  const Values log_prob = Run1("log_softmax", {{"axis", int64_t{1}}}, {scores}, Of(kF64, kScores));
  const Values weights = {1, 2, 0.5, 3};
  double sum = 0, total = 0, smooth = 0;
  Values each;
  for (int n = 0; n < 3; ++n) {
    for (int s = 0; s < 2; ++s) {
      const int label = static_cast<int>(labels.values[n * 2 + s]);
      each.push_back(-weights[label] * log_prob[n * 8 + label * 2 + s]);
      sum += each.back();
      total += weights[label];
      for (int c = 0; c < 4; ++c) smooth -= weights[c] * log_prob[n * 8 + c * 2 + s] / 4;
    }
  }
  const Tensor w = Of(kF64, {4}, weights);
  ExpectNear(CrossEntropy(Loss("none"), scores, labels, w).loss, each, 1e-13);
  ExpectNear(CrossEntropy(Loss("sum"), scores, labels, w).loss, {sum}, 1e-13);
  ExpectNear(CrossEntropy(Loss("mean"), scores, labels, w).loss, {sum / total}, 1e-13);
  ExpectNear(CrossEntropy(Loss("mean", 0.1), scores, labels, w).loss,
             {(0.9 * sum + 0.1 * smooth) / total}, 1e-13);
  EXPECT_EQ(CrossEntropy(Loss("mean"), scores, labels, w).total, (Values{total}));
  ExpectNear(CrossEntropy(Loss("mean"), scores, labels, w).log_prob, log_prob, 1e-14);
  EXPECT_EQ(CrossEntropy(Loss("mean"), scores, labels).total, (Values{6}));
}

TEST(RefCrossEntropy, BackwardAgreesWithFiniteDifferences) {
  const Tensor scores = RandomTensor(kF64, kScores, 2),
               labels = Of(kI32, {3, 2}, {0, 1, -7, 3, 3, 2});
  const Tensor w = Of(kF64, {4}, {1, 2, 0.5, 3});
  for (const char* reduction : {"mean", "sum", "none"}) {
    for (double smoothing : {0.0, 0.2}) {
      const Attrs params = Ignoring(Loss(reduction, smoothing), -7);
      const double factor = reduction == std::string("none") ? 3 : 1;
      const auto loss = [&](const Values& v) {
        double sum = 0;
        for (double l : CrossEntropy(params, Of(kF64, kScores, v), labels, w).loss)
          sum += factor * l;
        return sum;
      };
      ExpectNear(CrossEntropy(params, scores, labels, w).dscores,
                 NumericGradient(scores.values, loss), 1e-8);
    }
  }
}

TEST(RefCrossEntropy, IgnoredSamplesAddExactlyNothing) {
  // The ignored sample's scores are NaN and infinite.
  const Tensor scores = Of(kF32, {2, 2}, {kNan, kInf, 0, 0}), labels = Of(kI64, {2}, {-100, 1});
  for (double smoothing : {0.0, 0.1}) {
    const LossResult r = CrossEntropy(Ignoring(Loss("mean", smoothing), -100), scores, labels);
    ExpectNear(r.loss, {std::log(2)}, 1e-7);
    EXPECT_EQ(r.total, (Values{1}));
    EXPECT_EQ(r.dscores[0], 0);
    EXPECT_EQ(r.dscores[1], 0);
    EXPECT_EQ(r.index_error, 0);
  }
}

TEST(RefCrossEntropy, AllIgnoredGivesZeroLossAndGradient) {
  const Tensor scores = RandomTensor(kF32, {2, 3}, 1), labels = Of(kI64, {2}, {5, 5});
  for (const char* reduction : {"mean", "sum"}) {
    const LossResult r = CrossEntropy(Ignoring(Loss(reduction), 5), scores, labels);
    EXPECT_EQ(r.loss, (Values{0}));
    EXPECT_EQ(r.total, (Values{0}));
    EXPECT_EQ(r.dscores, Values(6, 0));
  }
}

TEST(RefCrossEntropy, ReportsLabelsOutOfRange) {
  const Tensor scores = RandomTensor(kF32, {3, 4}, 1);
  for (double bad : {4.0, -1.0}) {
    const LossResult r = CrossEntropy(Loss("sum"), scores, Of(kI64, {3}, {0, bad, 9}));
    EXPECT_EQ(r.index_error, 2);  // 1 + the first bad position
    EXPECT_EQ(r.index_error_bwd, 2);
    EXPECT_EQ(r.loss, CrossEntropy(Loss("sum"), scores, Of(kI64, {3}, {0, 0, 0})).loss);
  }
}

TEST(RefCrossEntropy, RunsInPlace) {
  const Tensor scores = RandomTensor(kF16, {2, 5}, 1), labels = Of(kI64, {2}, {1, 4});
  const std::vector<Tensor> out = {Of(kF32, {}), Of(kF16, {2, 5}), Of(kF32, {})};
  const RunResult want = RunCall("softmax_cross_entropy", Loss("mean"), {scores, labels}, out);
  EXPECT_EQ(RunCall("softmax_cross_entropy", Loss("mean"), {scores, labels}, out, {{0, 1}}).y,
            want.y);
  const std::vector<Tensor> in = {Scalar(kF32, 1), Of(kF16, {2, 5}, want.y[1]), labels, Absent(),
                                  Scalar(kF32, 2)};
  EXPECT_EQ(Run1("softmax_cross_entropy_bwd", Loss("mean"), in, Of(kF16, {2, 5}), {{1, 0}}),
            Run1("softmax_cross_entropy_bwd", Loss("mean"), in, Of(kF16, {2, 5})));
}

TEST(RefCrossEntropy, AveragesMoreThanTheLargestHalf) {
  const int64_t n = 70000;  // beyond 65504
  const Tensor scores = Of(kF16, {n, 1}, Values(n, 3)), labels = Of(kI64, {n}, Values(n, 0));
  EXPECT_EQ(CrossEntropy(Loss("mean"), scores, labels).total, (Values{70000}));
}

TEST(RefNllLoss, AgreesWithCrossEntropy) {
  const Tensor scores = RandomTensor(kF64, kScores, 3),
               labels = Of(kI64, {3, 2}, {0, 1, 9, 3, 3, 2});
  const Tensor w = Of(kF64, {4}, {1, 2, 0.5, 3});
  for (const char* reduction : {"mean", "sum", "none"}) {
    const Attrs params = Ignoring(Loss(reduction), 9);
    const bool none = reduction == std::string("none");
    const LossResult want = CrossEntropy(params, scores, labels, w);
    const Tensor loss = Of(kF64, none ? Dims{3, 2} : Dims{});
    const RunResult r = RunCall("nll_loss", params, {Of(kF64, kScores, want.log_prob), labels, w},
                                {loss, Of(kF64, {})});
    ExpectNear(r.y[0], want.loss, 1e-13);
    EXPECT_EQ(r.y[1], want.total);
    Tensor dloss = loss;
    dloss.values.assign(static_cast<size_t>(loss.desc.elements()), none ? 3.0 : 1.0);
    const Values d =
        Run1("nll_loss_bwd", params, {dloss, labels, w, Of(kF64, {}, r.y[1])}, Of(kF64, kScores));
    ExpectNear(Run1("log_softmax_bwd", {{"axis", int64_t{1}}},
                    {Of(kF64, kScores, want.log_prob), Of(kF64, kScores, d)}, Of(kF64, kScores)),
               want.dscores, 1e-13);
  }
  EXPECT_EQ(Run1("nll_loss", Ignoring(Loss("mean"), 1),
                 {Of(kF32, {1, 2}, {-1, -2}), Of(kI64, {1}, {1})}, Of(kF32, {})),
            (Values{0}));
}

TEST(RefTopkCorrect, RanksTiesByIndexAndNanFirst) {
  const Tensor scores = Of(kF32, {4, 3}, {1, 3, 2, 5, 5, 5, kNan, 9, 1, 1, 2, 3});
  const auto run = [&](int64_t k, Values labels) {
    return Run1("topk_correct", {{"k", k}}, {scores, Of(kI64, {4}, std::move(labels))},
                Of(kF32, {4}));
  };
  EXPECT_EQ(run(1, {1, 0, 1, 2}), (Values{1, 1, 0, 1}));
  EXPECT_EQ(run(1, {2, 1, 0, 1}), (Values{0, 0, 0, 0}));
  EXPECT_EQ(run(2, {2, 1, 1, 0}), (Values{1, 1, 1, 0}));
  EXPECT_EQ(run(3, {0, 2, 2, 0}), (Values{1, 1, 1, 1}));
  EXPECT_EQ(run(3, {-100, 3, 2, 0}), (Values{0, 0, 1, 1}));
}

// ---- the end of a step

TEST(RefUnscale, DividesByTheScaleAndMeasuresTheNorm) {
  const std::vector<Tensor> in = {Scalar(kF32, 4), Of(kF16, {2}, {12, 16}),
                                  Of(kF32, {2, 1}, {0, 48})};
  const std::vector<Tensor> out = {Of(kF32, {2}), Of(kF32, {2, 1}), Of(kBool, {}), Of(kF32, {})};
  const RunResult r = RunCall("unscale_check", {}, in, out);
  EXPECT_EQ(r.y, (std::vector<Values>{{3, 4}, {0, 12}, {0}, {13}}));
  EXPECT_EQ(RunCall("unscale_check", {}, in, out, {{2, 1}}).y, r.y);
  EXPECT_EQ(RunCall("unscale_check", {}, {Absent(), in[1]}, {out[0], out[2], out[3]}).y,
            (std::vector<Values>{{12, 16}, {0}, {20}}));
}

TEST(RefUnscale, FindsInfAndNanAfterUnscaling) {
  const std::vector<Tensor> out = {Of(kF32, {2}), Of(kBool, {}), Of(kF32, {})};
  const auto found = [&](double scale, Values g) {
    return RunCall("unscale_check", {}, {Scalar(kF32, scale), Of(kF32, {2}, std::move(g))}, out)
        .y[1][0];
  };
  EXPECT_EQ(found(2, {1, 2}), 0);
  EXPECT_EQ(found(2, {1, kNan}), 1);
  EXPECT_EQ(found(2, {-kInf, 2}), 1);
  EXPECT_EQ(found(0.5, {3e38, 0}), 1);   // finite only while scaled
  EXPECT_EQ(found(1, {3e38, 3e38}), 1);  // the norm does not fit
  EXPECT_EQ(found(1, {1e30, 1e30}), 0);  // squares beyond fp32, in double
  EXPECT_EQ(found(0, {0, 0}), 1);        // 0 * inf
}

TEST(RefClipNorm, ScalesDownOnly) {
  const Tensor g = Of(kF32, {2}, {3, 4});
  const auto clip = [&](double norm, double max_norm) {
    return Run1("clip_norm", {}, {Scalar(kF32, norm), Scalar(kF32, max_norm), g}, Of(kF32, {2}));
  };
  EXPECT_EQ(clip(5, 10), g.values);
  const float factor = 1.0f / (5.0f + 1e-6f);
  EXPECT_EQ(clip(5, 1), (Values{static_cast<double>(3 * factor), static_cast<double>(4 * factor)}));
  EXPECT_TRUE(std::isnan(clip(kNan, 1)[0]));
  EXPECT_EQ(clip(kInf, 1), (Values{0, 0}));
}

struct Sgd {
  double lr = 0.1, momentum = 0.9, dampening = 0.25, weight_decay = 0.01;
  bool first = false, found_inf = false;
  std::vector<Tensor> Inputs(DType acc, std::vector<Tensor> lists) const {
    std::vector<Tensor> in = {Scalar(kBool, found_inf),  Scalar(acc, lr),
                              Scalar(acc, momentum),     Scalar(acc, dampening),
                              Scalar(acc, weight_decay), Scalar(kBool, first)};
    in.insert(in.end(), lists.begin(), lists.end());
    return in;
  }
};

Attrs Count(int64_t n) { return {{"count", n}}; }

TEST(RefSgd, ComputesPyTorchsFormula) {
  const Sgd s;
  const Values w = {1, -2}, g = {0.5, 0.25}, v = {3, -1};
  for (bool first : {false, true}) {
    for (int64_t nesterov : {0, 1}) {
      for (int64_t maximize : {0, 1}) {
        Sgd options;
        options.first = first;
        Attrs params = Count(1);
        params.Set("nesterov", nesterov);
        params.Set("maximize", maximize);
        const RunResult r =
            RunCall("sgd", params,
                    options.Inputs(kF64, {Of(kF64, {2}, w), Of(kF64, {2}, g), Of(kF64, {2}, v)}),
                    {Of(kF64, {2}), Of(kF64, {2})});
        for (int i = 0; i < 2; ++i) {
          const double d = (maximize != 0 ? -g[i] : g[i]) + s.weight_decay * w[i];
          const double buffer = first ? d : s.momentum * v[i] + (1 - s.dampening) * d;
          EXPECT_EQ(r.y[1][i], buffer);
          EXPECT_EQ(r.y[0][i], w[i] - s.lr * (nesterov != 0 ? d + s.momentum * buffer : buffer));
        }
      }
    }
  }
}

TEST(RefSgd, UpdatesManyTensorsInPlaceAndWithoutMomentum) {
  const Sgd s;
  const std::vector<Tensor> lists = {Of(kF32, {1}, {1}), Of(kF32, {2, 1}, {2, 3}),
                                     Of(kF32, {1}, {10}), Of(kF16, {2, 1}, {20, 30})};
  const std::vector<Tensor> out = {Of(kF32, {1}), Of(kF32, {2, 1})};
  const RunResult r = RunCall("sgd", Count(2), s.Inputs(kF32, lists), out);
  const float w = 1, g = 10, d = g + 0.01f * w;
  EXPECT_EQ(r.y[0][0], static_cast<double>(w - 0.1f * d));
  EXPECT_EQ(RunCall("sgd", Count(2), s.Inputs(kF32, lists), out, {{6, 0}, {7, 1}}).y, r.y);
  EXPECT_EQ(RunCall("sgd", Count(2), s.Inputs(kF32, lists), out, {{1, 0}}).y,
            r.y);  // over the learning rate
}

TEST(RefSgd, ASkippedUpdateChangesNoBit) {
  Sgd s;
  s.found_inf = true;
  const Values w = {0.1, -0.0, 3e-45, kNan};
  const std::vector<Tensor> in =
      s.Inputs(kF32, {Of(kF32, {4}, w), Of(kF32, {4}, {kInf, kNan, 1, 2}), Of(kF32, {4}, w)});
  for (const std::vector<Alias>& aliases :
       {std::vector<Alias>{}, std::vector<Alias>{{6, 0}, {8, 1}}}) {
    const RunResult r = RunCall("sgd", Count(1), in, {Of(kF32, {4}), Of(kF32, {4})}, aliases);
    for (const Values& y : r.y) {
      EXPECT_EQ(y[0], static_cast<double>(0.1f));
      EXPECT_TRUE(y[1] == 0 && std::signbit(y[1]));
      EXPECT_EQ(y[2], static_cast<double>(3e-45f));
      EXPECT_TRUE(std::isnan(y[3]));
    }
  }
}

std::vector<Tensor> AdamInputs(DType acc, bool found_inf, const std::vector<Tensor>& lists) {
  std::vector<Tensor> in = {Scalar(kBool, found_inf), Scalar(acc, 0.01), Scalar(acc, 0.02),
                            Scalar(acc, 0.9),         Scalar(acc, 0.1),  Scalar(acc, 0.999),
                            Scalar(acc, 0.001),       Scalar(acc, 0.5),  Scalar(acc, 1e-8),
                            Scalar(acc, 0.1)};
  in.insert(in.end(), lists.begin(), lists.end());
  return in;
}

/// The formula, operation by operation in T.
template <typename T>
void ExpectAdam(DType acc, int64_t decoupled) {
  const Values w = {1.5, -2}, g = {0.5, 0}, m = {0.25, 0}, v = {0.125, 0};
  const std::vector<Tensor> lists = {Of(acc, {2}, w), Of(acc, {2}, g), Of(acc, {2}, m),
                                     Of(acc, {2}, v)};
  const std::vector<Tensor> out = {Of(acc, {2}), Of(acc, {2}), Of(acc, {2})};
  Attrs params = Count(1);
  params.Set("decoupled", decoupled);
  const RunResult r = RunCall("adam", params, AdamInputs(acc, false, lists), out);
  for (size_t i = 0; i < 2; ++i) {
    T wi = static_cast<T>(w[i]), gi = static_cast<T>(g[i]), mi = static_cast<T>(m[i]),
      vi = static_cast<T>(v[i]);
    if (decoupled != 0)
      wi *= 1 - static_cast<T>(0.01) * static_cast<T>(0.1);
    else
      gi += static_cast<T>(0.1) * wi;
    mi += static_cast<T>(0.1) * (gi - mi);
    vi = static_cast<T>(0.999) * vi + static_cast<T>(0.001) * gi * gi;
    wi -= static_cast<T>(0.02) * mi / (std::sqrt(vi) / static_cast<T>(0.5) + static_cast<T>(1e-8));
    EXPECT_EQ(r.y[0][i], static_cast<double>(wi));
    EXPECT_EQ(r.y[1][i], static_cast<double>(mi));
    EXPECT_EQ(r.y[2][i], static_cast<double>(vi));
  }
  EXPECT_EQ(
      RunCall("adam", params, AdamInputs(acc, false, lists), out, {{10, 0}, {12, 1}, {13, 2}}).y,
      r.y);
}

TEST(RefAdam, ComputesPyTorchsFormulaBitForBit) {
  for (int64_t decoupled : {0, 1}) {
    ExpectAdam<float>(kF32, decoupled);
    ExpectAdam<double>(kF64, decoupled);
  }
}

TEST(RefAdam, ZeroGradientsGiveNoNan) {
  const Tensor zero = Of(kF32, {1}, {0});
  const RunResult r = RunCall("adam", {{"count", int64_t{1}}, {"decoupled", int64_t{1}}},
                              AdamInputs(kF32, false, {Of(kF32, {1}, {1}), zero, zero, zero}),
                              {Of(kF32, {1}), Of(kF32, {1}), Of(kF32, {1})});
  EXPECT_EQ(r.y[0][0], static_cast<double>(1 - 0.01f * 0.1f));
}

TEST(RefAdam, ASkippedUpdateChangesNoBit) {
  const std::vector<Tensor> lists = {Of(kF32, {1}, {0.1}), Of(kF32, {1}, {kNan}),
                                     Of(kF32, {1}, {0.2}), Of(kF32, {1}, {0.3})};
  const RunResult r = RunCall("adam", Count(1), AdamInputs(kF32, true, lists),
                              {Of(kF32, {1}), Of(kF32, {1}), Of(kF32, {1})});
  EXPECT_EQ(r.y, (std::vector<Values>{{static_cast<double>(0.1f)},
                                      {static_cast<double>(0.2f)},
                                      {static_cast<double>(0.3f)}}));
}

TEST(RefOptimizers, RefuseListsThatDoNotMatch) {
  const Sgd s;
  const Tensor a = Of(kF32, {2}), b = Of(kF32, {3});
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(Refusal("sgd", Count(1), s.Inputs(kF32, {a, a}), {a}), "accepted");
  expect(Refusal("sgd", Count(2), s.Inputs(kF32, {a, a}), {a}),
         "expected 10 inputs and 2 outputs, found 8 and 1");
  expect(Refusal("sgd", Count(-1), s.Inputs(kF32, {a, a}), {a}), "parameter 'count'");
  expect(Refusal("sgd", Count(1), s.Inputs(kF32, {a, b}), {a}),
         "input 7: expected dims [2], found [3]");
  expect(Refusal("sgd", Count(1), s.Inputs(kF32, {a, a}), {Of(kF16, {2})}),
         "output 0: expected float");
  expect(Refusal("sgd", Count(1), s.Inputs(kF16, {a, a}), {a}),
         "input 1: expected float or double, found float16");
  expect(Refusal("unscale_check", {}, {Scalar(kF32, 1), a}, {a, Of(kF32, {}), Of(kF32, {})}),
         "expected bool");
}

}  // namespace
}  // namespace ampc::testing
