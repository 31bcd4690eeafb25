// SPDX-License-Identifier: Apache-2.0
// Reference kernels: map, reductions, matmul, movement, gather, dropout, and refusals.

#include <algorithm>
#include <bit>

#include "kernels/philox.h"
#include "test/unit/ref_kernels_harness.h"

namespace ampc::testing {
namespace {

Attrs Expr(const char* text) { return {{"expr", std::string(text)}}; }

// ---- map

TEST(RefMap, BroadcastsLikeNumpy) {
  EXPECT_EQ(Run1("map", Expr("x0 + x1 * x2"),
                 {Of(kF32, {2, 1}, {10, 20}), Of(kF32, {3}, {1, 2, 3}), Scalar(kF32, 2)},
                 Of(kF32, {2, 3})),
            (Values{12, 14, 16, 22, 24, 26}));
}

TEST(RefMap, TakesMixedLayouts) {
  const Tensor a = RandomTensor(kF32, {2, 3, 4, 5}, 1),
               b = RandomTensor(kF32, {2, 3, 4, 5}, 2, kLast);
  Values want = a.values;
  for (size_t i = 0; i < want.size(); ++i) want[i] -= b.values[i];
  for (Layout layout : {kRow, kLast}) {
    EXPECT_EQ(Run1("map", Expr("x0 - x1"), {a, b}, Of(kF32, {2, 3, 4, 5}, {}, layout)), want);
  }
  const Tensor channel = Of(kF32, {3, 1, 1}, {1, 2, 3});
  const Values y =
      Run1("map", Expr("x0 * 0 + x1"), {b, channel}, Of(kF32, {2, 3, 4, 5}, {}, kLast));
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[20], 2);
  EXPECT_EQ(y[119], 3);
}

TEST(RefMap, RoundsOnceAtTheStore) {
  // fp16: 1 + 2^-11 + 2^-12 is above the tie; rounding the sum of two terms first would lose it.
  EXPECT_EQ(
      Run1("map", Expr("x0 + x1 + x2"),
           {Scalar(kF16, 1), Scalar(kF16, std::ldexp(1, -11)), Scalar(kF16, std::ldexp(1, -12))},
           Of(kF16, {})),
      (Values{1 + std::ldexp(1, -10)}));
  EXPECT_EQ(Run1("map", Expr("x0 * x1"), {Scalar(kF16, 300), Scalar(kF16, 300)}, Of(kF16, {})),
            (Values{kInf}));
}

TEST(RefMap, ChoosesTheTypeOfComputation) {
  // Integers: exact beyond 2^53. One float operand: float. One double: double.
  EXPECT_EQ(Run1("map", Expr("(x0 + 1) / 2"), {Scalar(kI64, 6)}, Of(kI64, {})), (Values{3}));
  EXPECT_EQ(Run1("map", Expr("(x0 + 1) / 2"), {Scalar(kI64, 6)}, Of(kF32, {})), (Values{3.5}));
  EXPECT_EQ(Run1("map", Expr("x0 + x1"), {Scalar(kF32, 16777216), Scalar(kI64, 1)}, Of(kF32, {})),
            (Values{16777216}));
  EXPECT_EQ(Run1("map", Expr("x0 + x1"), {Scalar(kF64, 16777216), Scalar(kF32, 1)}, Of(kF64, {})),
            (Values{16777217}));
}

TEST(RefMap, CastsWithoutOverflow) {
  const Tensor x = Of(kF32, {6}, {3.9, -3.9, kNan, kInf, -kInf, 300});
  EXPECT_EQ(Run1("map", Expr("x0"), {x}, Of(DType::kInt8, {6})),
            (Values{3, -3, 0, 127, -128, 127}));
  EXPECT_EQ(Run1("map", Expr("x0"), {x}, Of(DType::kUInt8, {6})), (Values{3, 0, 0, 255, 0, 255}));
  EXPECT_EQ(Run1("map", Expr("x0"), {x}, Of(kBool, {6})), (Values{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(Run1("map", Expr("x0"), {Of(kI64, {2}, {257, -1})}, Of(DType::kUInt8, {2})),
            (Values{1, 255}));
  const double above_tie = 1 + std::ldexp(1, -11) + std::ldexp(1, -40);
  EXPECT_EQ(Run1("map", Expr("x0"), {Scalar(kF64, above_tie)}, Of(kF16, {})),
            (Values{1 + std::ldexp(1, -10)}));
  EXPECT_EQ(Run1("map", Expr("x0"), {Of(kF32, {3}, {65519, 65520, 1e-8})}, Of(kF16, {3})),
            (Values{65504, kInf, 0}));
}

TEST(RefMap, RunsInPlaceOverManyBlocks) {
  const Tensor a = RandomTensor(kF32, {1000}, 1), b = RandomTensor(kF32, {1000}, 2);
  const Attrs params = Expr("t = x0 * x1; y0 = t - x0; y1 = t + x1");
  const std::vector<Tensor> out = {Of(kF32, {1000}), Of(kF32, {1000})};
  const RunResult want = RunCall("map", params, {a, b}, out);
  EXPECT_EQ(RunCall("map", params, {a, b}, out, {{0, 0}, {1, 1}}).y, want.y);
  EXPECT_EQ(RunCall("map", params, {a, b}, out, {{0, 1}, {1, 0}}).y, want.y);
}

TEST(RefMap, ReadsParametersAndEmptyTensors) {
  Attrs params = Expr("$slope * x0");
  params.Set("slope", 0.5);
  EXPECT_EQ(Run1("map", params, {Scalar(kF32, 3)}, Of(kF32, {})), (Values{1.5}));
  EXPECT_EQ(Run1("map", params, {Of(kF32, {0, 3})}, Of(kF32, {0, 3})), Values{});
}

// ---- reductions

Attrs Reduce(const char* op, std::vector<int64_t> axes) {
  return {{"op", std::string(op)}, {"axes", std::move(axes)}};
}

TEST(RefReduce, ComputesEachOperation) {
  const Tensor x = Of(kF32, {2, 3}, {1, -2, 3, 4, 5, -6});
  const auto run = [&](const char* op) {
    return Run1("reduce", Reduce(op, {1}), {x}, Of(kF32, {2}));
  };
  EXPECT_EQ(run("sum"), (Values{2, 3}));
  EXPECT_EQ(run("mean"), (Values{static_cast<double>(2.0f / 3), 1}));
  EXPECT_EQ(run("max"), (Values{3, 5}));
  EXPECT_EQ(run("min"), (Values{-2, -6}));
  EXPECT_EQ(run("prod"), (Values{-6, -120}));
  EXPECT_EQ(run("l1"), (Values{6, 15}));
  EXPECT_EQ(run("sum_square"), (Values{14, 77}));
  ExpectNear(run("l2"), {std::sqrt(14), std::sqrt(77)}, 1e-6);
  ExpectNear(run("log_sum"), {std::log(2), std::log(3)}, 1e-6);
  ExpectNear(run("log_sum_exp"),
             {std::log(std::exp(1) + std::exp(-2) + std::exp(3)),
              std::log(std::exp(4) + std::exp(5) + std::exp(-6))},
             1e-6);
}

TEST(RefReduce, ReducesAnyAxesOfAnyLayout) {
  const Tensor x = RandomTensor(kF32, {2, 3, 4, 5}, 3);
  Values want(8, 0);
  for (int i = 0; i < 120; ++i) want[i / 60 * 4 + i / 5 % 4] += x.values[i];
  EXPECT_EQ(Run1("reduce", Reduce("sum", {1, 3}), {x}, Of(kF32, {2, 1, 4, 1})), want);
  Tensor last = x;
  last.desc.layout = kLast;
  EXPECT_EQ(Run1("reduce", Reduce("sum", {3, 1}), {last}, Of(kF32, {2, 4})), want);
  EXPECT_EQ(Run1("reduce", Reduce("sum", {}), {last}, Of(kF32, {2, 3, 4, 5})), x.values);
}

TEST(RefReduce, AccumulatesLowTypesInWideOnes) {
  EXPECT_EQ(Run1("reduce", Reduce("sum", {0}), {Of(kF16, {4096}, Values(4096, 1))}, Of(kF16, {})),
            (Values{4096}));
  EXPECT_EQ(
      Run1("reduce", Reduce("mean", {0}), {Of(kF16, {4096}, Values(4096, 60000))}, Of(kF16, {})),
      (Values{60000}));
  EXPECT_EQ(Run1("reduce", Reduce("l2", {0}), {Of(kF16, {2}, {30000, 40000})}, Of(kF16, {})),
            (Values{49984}));
}

TEST(RefReduce, PassesNanAndHandlesInfinities) {
  for (const char* op : {"max", "min", "sum", "log_sum_exp"}) {
    EXPECT_TRUE(
        std::isnan(Run1("reduce", Reduce(op, {0}), {Of(kF32, {3}, {1, kNan, 2})}, Of(kF32, {}))[0]))
        << op;
  }
  EXPECT_EQ(
      Run1("reduce", Reduce("log_sum_exp", {0}), {Of(kF32, {2}, {-kInf, -kInf})}, Of(kF32, {})),
      (Values{-kInf}));
  EXPECT_EQ(Run1("reduce", Reduce("log_sum_exp", {0}), {Of(kF32, {2}, {kInf, 1})}, Of(kF32, {})),
            (Values{kInf}));
  EXPECT_EQ(Run1("reduce", Reduce("log_sum_exp", {0}), {Of(kF32, {2}, {1000, 1000})}, Of(kF32, {})),
            (Values{static_cast<double>(static_cast<float>(1000 + std::log(2)))}));
}

TEST(RefReduce, TreatsEmptyAndIntegerInputs) {
  EXPECT_EQ(Run1("reduce", Reduce("sum", {0}), {Of(kF32, {0, 2})}, Of(kF32, {2})), (Values{0, 0}));
  EXPECT_EQ(Run1("reduce", Reduce("max", {0}), {Of(kF32, {0})}, Of(kF32, {})), (Values{-kInf}));
  EXPECT_TRUE(std::isnan(Run1("reduce", Reduce("mean", {0}), {Of(kF32, {0})}, Of(kF32, {}))[0]));
  EXPECT_EQ(Run1("reduce", Reduce("mean", {0}), {Of(kI32, {2}, {-3, -4})}, Of(kI32, {})),
            (Values{-3}));
  EXPECT_EQ(Run1("reduce", Reduce("max", {0}), {Of(DType::kUInt8, {3}, {7, 200, 9})},
                 Of(DType::kUInt8, {})),
            (Values{200}));
  EXPECT_EQ(Run1("reduce", Reduce("sum", {0}), {Of(kBool, {3}, {1, 1, 0})}, Of(kI64, {})),
            (Values{2}));
}

TEST(RefArgReduce, BreaksTiesAndRanksNan) {
  const auto run = [](const char* op, int64_t last, Values v) {
    const int64_t n = static_cast<int64_t>(v.size());
    const Attrs params{{"op", std::string(op)}, {"axis", int64_t{0}}, {"select_last_index", last}};
    return Run1("arg_reduce", params, {Of(kF32, {n}, std::move(v))}, Of(kI64, {}))[0];
  };
  EXPECT_EQ(run("max", 0, {1, 5, 5, 2}), 1);
  EXPECT_EQ(run("max", 1, {1, 5, 5, 2}), 2);
  EXPECT_EQ(run("min", 0, {4, 1, 1}), 1);
  EXPECT_EQ(run("max", 0, {1, kNan, kInf, kNan}), 1);
  EXPECT_EQ(run("min", 0, {1, kNan, -kInf, kNan}), 1);
  EXPECT_EQ(run("max", 1, {1, kNan, kInf, kNan}), 3);
}

TEST(RefArgReduce, WalksAnyAxisAndLayout) {
  const Tensor x = Of(kF32, {1, 3, 2, 1}, {1, 9, 5, 2, 3, 4}, kLast);
  const Attrs params{{"op", std::string("max")}, {"axis", int64_t{1}}};
  EXPECT_EQ(Run1("arg_reduce", params, {x}, Of(kI64, {1, 1, 2, 1})), (Values{1, 0}));
}

// ---- matmul

TEST(RefMatmul, MultipliesWithBiasAndScales) {
  const Tensor a = Of(kF32, {2, 3}, {1, 2, 3, 4, 5, 6}), b = Of(kF32, {3, 2}, {1, 0, 0, 1, 1, 1});
  EXPECT_EQ(Run1("matmul", {}, {a, b}, Of(kF32, {2, 2})), (Values{4, 5, 10, 11}));
  const Attrs params{{"alpha", 2.0}, {"beta", -1.0}, {"post", std::string("relu")}};
  EXPECT_EQ(Run1("matmul", params, {a, b, Of(kF32, {2}, {10, 1})}, Of(kF32, {2, 2})),
            (Values{0, 9, 10, 21}));
  EXPECT_EQ(Run1("matmul", {}, {a, b, Of(kF32, {2, 1}, {100, 200})}, Of(kF32, {2, 2})),
            (Values{104, 105, 210, 211}));
}

TEST(RefMatmul, TransposesEitherFactor) {
  const Tensor a = Of(kF32, {2, 3}, {1, 2, 3, 4, 5, 6}), a_t = Of(kF32, {3, 2}, {1, 4, 2, 5, 3, 6});
  const Tensor b = Of(kF32, {3, 2}, {1, 7, 2, 8, 3, 9}), b_t = Of(kF32, {2, 3}, {1, 2, 3, 7, 8, 9});
  const Values want = Run1("matmul", {}, {a, b}, Of(kF32, {2, 2}));
  EXPECT_EQ(want, (Values{14, 50, 32, 122}));
  const Attrs ta{{"trans_a", int64_t{1}}}, tb{{"trans_b", int64_t{1}}},
      both{{"trans_a", int64_t{1}}, {"trans_b", int64_t{1}}};
  EXPECT_EQ(Run1("matmul", ta, {a_t, b}, Of(kF32, {2, 2})), want);
  EXPECT_EQ(Run1("matmul", tb, {a, b_t}, Of(kF32, {2, 2})), want);
  EXPECT_EQ(Run1("matmul", both, {a_t, b_t}, Of(kF32, {2, 2})), want);
}

TEST(RefMatmul, BroadcastsBatches) {
  const Tensor a = RandomTensor(kF32, {2, 1, 3, 4}, 1), b = RandomTensor(kF32, {5, 4, 2}, 2);
  const Values y = Run1("matmul", {}, {a, b}, Of(kF32, {2, 5, 3, 2}));
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 5; ++j) {
      const Tensor ai =
          Of(kF32, {3, 4}, Values(a.values.begin() + i * 12, a.values.begin() + i * 12 + 12));
      const Tensor bj =
          Of(kF32, {4, 2}, Values(b.values.begin() + j * 8, b.values.begin() + j * 8 + 8));
      const int at = (i * 5 + j) * 6;
      EXPECT_EQ(Run1("matmul", {}, {ai, bj}, Of(kF32, {3, 2})),
                Values(y.begin() + at, y.begin() + at + 6));
    }
  }
}

TEST(RefMatmul, AccumulatesLowFactorsWithoutRounding) {
  // 4096 + 1 needs more bits than bf16 and fp16 have; the result is stored in fp32.
  for (DType low : {kF16, kBf16}) {
    const Tensor a = Of(low, {1, 2}, {64, 1}), b = Of(low, {2, 1}, {64, 1});
    EXPECT_EQ(Run1("matmul", {}, {a, b}, Of(kF32, {1, 1})), (Values{4097}));
    EXPECT_EQ(Run1("matmul", {}, {a, b}, Of(low, {1, 1})), (Values{4096}));
  }
  EXPECT_EQ(
      Run1("matmul", {}, {Of(kF16, {1, 1}, {300}), Of(kF16, {1, 1}, {300})}, Of(kF16, {1, 1})),
      (Values{kInf}));
}

TEST(RefMatmul, TakesIntegersAndEmptySums) {
  EXPECT_EQ(
      Run1("matmul", {}, {Of(kI32, {1, 2}, {3, 4}), Of(kI32, {2, 1}, {5, 6})}, Of(kI64, {1, 1})),
      (Values{39}));
  EXPECT_EQ(
      Run1("matmul", {}, {Of(kF32, {2, 0}), Of(kF32, {0, 1}), Scalar(kF32, 7)}, Of(kF32, {2, 1})),
      (Values{7, 7}));
}

// ---- movement

TEST(RefCopy, TransposesSlicesAndExpands) {
  const Tensor x = Of(kF32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const auto run = [&](int64_t offset, std::vector<int64_t> strides, Dims dims,
                       Layout layout = kRow) {
    return Run1("copy", {{"offset", offset}, {"strides", std::move(strides)}}, {x},
                Of(kF32, std::move(dims), {}, layout));
  };
  EXPECT_EQ(run(0, {1, 3}, {3, 2}), (Values{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(run(5, {-3, -1}, {2, 3}), (Values{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(run(1, {3, 1}, {2, 2}), (Values{2, 3, 5, 6}));
  EXPECT_EQ(run(3, {0, 1}, {2, 3}), (Values{4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(run(0, {6, 3, 1}, {1, 2, 3}, kLast), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(run(4, {}, {}), (Values{5}));
  EXPECT_EQ(run(0, {1, 1}, {0, 9}), Values{});
}

TEST(RefCopy, MovesEverySizeOfElement) {
  for (DType t : {kBool, DType::kInt8, kF16, kBf16, kI32, kF32, kI64, kF64}) {
    EXPECT_EQ(Run1("copy", {{"strides", std::vector<int64_t>{-1}}, {"offset", int64_t{1}}},
                   {Of(t, {2}, {0, 1})}, Of(t, {2})),
              (Values{1, 0}))
        << Name(t);
  }
}

TEST(RefScatterCopy, PadsAndIsTheAdjointOfSlicing) {
  const Attrs params{
      {"offset", int64_t{5}}, {"strides", std::vector<int64_t>{4, 1}}, {"value", 9.0}};
  EXPECT_EQ(Run1("scatter_copy", params, {Of(kF32, {2, 2}, {1, 2, 3, 4})}, Of(kF32, {4, 4})),
            (Values{9, 9, 9, 9, 9, 1, 2, 9, 9, 3, 4, 9, 9, 9, 9, 9}));
  const Attrs ints{
      {"offset", int64_t{0}}, {"strides", std::vector<int64_t>{2}}, {"value", int64_t{-1}}};
  EXPECT_EQ(Run1("scatter_copy", ints, {Of(kI64, {2}, {7, 8})}, Of(kI64, {4})),
            (Values{7, -1, 8, -1}));
  EXPECT_EQ(Run1("scatter_copy", ints, {Of(kI64, {0})}, Of(kI64, {2})), (Values{-1, -1}));
}

TEST(RefConcat, JoinsAlongAnyAxis) {
  const Tensor a = Of(kF32, {2, 1}, {1, 2}), b = Of(kF32, {2, 2}, {3, 4, 5, 6}),
               none = Of(kF32, {2, 0});
  EXPECT_EQ(Run1("concat", {{"axis", int64_t{1}}}, {a, none, b}, Of(kF32, {2, 3})),
            (Values{1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(Run1("concat", {{"axis", int64_t{0}}}, {b, b}, Of(kF32, {4, 2})),
            (Values{3, 4, 5, 6, 3, 4, 5, 6}));
}

TEST(RefFill, FillsInEveryType) {
  for (DType t : {kBool, DType::kUInt8, kF16, kBf16, kI32, kF32, kI64, kF64}) {
    EXPECT_EQ(Run1("fill", {{"value", 1.0}}, {}, Of(t, {3})), (Values{1, 1, 1})) << Name(t);
  }
  EXPECT_EQ(Run1("fill", {{"value", -kInf}}, {}, Of(kF16, {1})), (Values{-kInf}));
  EXPECT_EQ(Run1("fill", {{"value", 1e30}}, {}, Of(kI32, {1})), (Values{2147483647}));
}

// ---- gather

TEST(RefGather, TakesRowsAndCountsNegativeIndicesFromTheEnd) {
  const Tensor data = Of(kF16, {3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(
      Run1("gather", {{"axis", int64_t{0}}}, {data, Of(kI64, {3}, {2, 0, -1})}, Of(kF16, {3, 2})),
      (Values{5, 6, 1, 2, 5, 6}));
  EXPECT_EQ(
      Run1("gather", {{"axis", int64_t{1}}}, {data, Of(kI32, {1, 2}, {1, 1})}, Of(kF16, {3, 1, 2})),
      (Values{2, 2, 4, 4, 6, 6}));
  EXPECT_EQ(Run1("gather", {{"axis", int64_t{1}}}, {data, Scalar(kI64, 0)}, Of(kF16, {3})),
            (Values{1, 3, 5}));
}

TEST(RefGather, ReportsTheFirstBadIndexAndUsesZero) {
  const RunResult r =
      RunCall("gather", {{"axis", int64_t{0}}},
              {Of(kF32, {2}, {7, 8}), Of(kI64, {4}, {1, 2, -3, 0})}, {Of(kF32, {4})});
  EXPECT_EQ(r.y[0], (Values{8, 7, 7, 7}));
  EXPECT_EQ(r.index_error, 2);
}

TEST(RefGatherBackward, AddsEqualIndicesInAcc) {
  for (DType t : {kF16, kBf16, kF32, kF64}) {
    const Tensor dy = Of(t, {4096}, Values(4096, 1));
    Values index(4096, 1);
    for (size_t i = 0; i < index.size(); i += 2) index[i] = -1;
    EXPECT_EQ(Run1("gather_bwd", {{"axis", int64_t{0}}}, {dy, Of(kI64, {4096}, index)}, Of(t, {2})),
              (Values{0, 4096}));
  }
  const RunResult r =
      RunCall("gather_bwd", {{"axis", int64_t{1}}},
              {Of(kF32, {2, 2}, {1, 2, 3, 4}), Of(kI64, {2}, {1, 5})}, {Of(kF32, {2, 3})});
  EXPECT_EQ(r.y[0], (Values{2, 1, 0, 4, 3, 0}));
  EXPECT_EQ(r.index_error, 2);
}

// ---- dropout

RunResult Dropout(const Tensor& x, double ratio, double seed, double index, int64_t stream,
                  Layout layout) {
  const std::vector<Tensor> out = {Of(x.desc.dtype, x.desc.dims, {}, layout),
                                   Of(kBool, x.desc.dims, {}, layout)};
  return RunCall("dropout", {{"stream", stream}},
                 {x, Scalar(kF32, ratio), Of(kI64, {2}, {seed, index})}, out);
}

TEST(RefDropout, KeepsTheRightShareAndScalesIt) {
  const Tensor x = Of(kF32, {100, 1000}, Values(100000, 3));
  const RunResult r = Dropout(x, 0.25, 42, 7, 1, kRow);
  double kept = 0;
  for (size_t i = 0; i < 100000; ++i) {
    EXPECT_EQ(r.y[0][i], r.y[1][i] != 0 ? 4 : 0);
    kept += r.y[1][i];
  }
  EXPECT_NEAR(kept / 100000, 0.75,
              4 * std::sqrt(0.25 * 0.75 / 100000));  // four standard deviations
}

TEST(RefDropout, DependsOnSeedIndexStreamAndLogicalPlaceOnly) {
  const Tensor x = Of(kF32, {2, 5, 7, 3}, Values(210, 1));
  Tensor last = x;
  last.desc.layout = kLast;
  const RunResult base = Dropout(x, 0.5, 1, 2, 3, kRow);
  EXPECT_EQ(Dropout(x, 0.5, 1, 2, 3, kRow).y, base.y);
  EXPECT_EQ(Dropout(last, 0.5, 1, 2, 3, kLast).y, base.y);
  EXPECT_EQ(Dropout(last, 0.5, 1, 2, 3, kRow).y, base.y);
  EXPECT_NE(Dropout(x, 0.5, 2, 2, 3, kRow).y[1], base.y[1]);
  EXPECT_NE(Dropout(x, 0.5, 1, 3, 3, kRow).y[1], base.y[1]);
  EXPECT_NE(Dropout(x, 0.5, 1, 2, 4, kRow).y[1], base.y[1]);
  for (int i = 0; i < 210; ++i) {
    const double u = std::ldexp(
        static_cast<double>(StreamBits(1, 2, 3, static_cast<uint32_t>(i / 4)).word[i % 4]), -32);
    EXPECT_EQ(base.y[1][i], u >= 0.5 ? 1 : 0) << i;
  }
}

TEST(RefDropout, RatioZeroIsTheIdentityAndRatioOneZero) {
  const Tensor x = RandomTensor(kF16, {50}, 5);
  EXPECT_EQ(Dropout(x, 0, 1, 1, 0, kRow).y[0], x.values);
  EXPECT_EQ(Dropout(x, 1, 1, 1, 0, kRow).y[0], Values(50, 0));
  EXPECT_EQ(
      Run1("dropout", {}, {x, Scalar(kF32, 0.5), Of(kI64, {2}, {1, 1})}, Of(kF16, {50}), {{0, 0}}),
      Run1("dropout", {}, {x, Scalar(kF32, 0.5), Of(kI64, {2}, {1, 1})}, Of(kF16, {50})));
}

// ---- the contract

TEST(RefTable, HasEveryKernelOnceAndDeclinesNothing) {
  ASSERT_EQ(ref::Implementations().size(), AllKernels().size());
  for (size_t i = 0; i < AllKernels().size(); ++i) {
    const Implementation& impl = ref::Implementations()[i];
    EXPECT_EQ(impl.kernel, AllKernels()[i].name);
    EXPECT_EQ(impl.name, "ref");
    EXPECT_EQ(impl.declines(CallSpec{impl.kernel, {}, {}, {}}, {}), "");
    EXPECT_FALSE(ref::CheckCall(CallSpec{impl.kernel, {}, {}, {}}).ok())
        << impl.kernel << " accepts a call without operands";
  }
}

TEST(RefTable, RefusalsNameKernelExpectedAndFound) {
  const Tensor x = Of(kF32, {2, 3});
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(Refusal("matmul", {}, {x, x}, {x}),
      "kernel 'matmul': inner dimensions differ: 'a' [2,3] has 3, 'b' [2,3] has 2");
  has(Refusal("matmul", {}, {x, Absent()}, {x}), "input 'b' is missing");
  has(Refusal("matmul", {}, {x, Of(kF32, {3, 2})}, {Of(kF32, {2, 3})}),
      "output 'y': expected dims [2,2], found [2,3]");
  has(Refusal("matmul", {{"post", std::string("gelu")}}, {x, Of(kF32, {3, 2})}, {Of(kF32, {2, 2})}),
      "one of '', 'relu', found 'gelu'");
  has(Refusal("reduce", Reduce("median", {}), {x}, {x}), "parameter 'op'");
  has(Refusal("reduce", Reduce("sum", {2}), {x}, {x}),
      "parameter 'axes': expected 0 to 1, found 2");
  has(Refusal("map", Expr("x2"), {x, x}, {x}), "reads x2, the call has 2 inputs");
  has(Refusal("map", Expr("x0 +"), {x}, {x}), "expected a value");
  has(Refusal("map", Expr("x0"), {Of(kF32, {4})}, {x}), "dims [4] do not broadcast to [2,3]");
  has(Refusal("copy", {{"strides", std::vector<int64_t>{3, 1}}, {"offset", int64_t{1}}}, {x}, {x}),
      "leave input 'x' of 6 elements");
  has(Refusal("copy", {{"strides", std::vector<int64_t>{std::numeric_limits<int64_t>::max(), 1}}},
              {x}, {x}),
      "leave input 'x'");
  has(Refusal("gather", {{"axis", int64_t{0}}}, {x, Of(kF32, {1})}, {x}),
      "expected int32 or int64, found float");
  has(Refusal("softmax", {}, {x}, {x}), "parameter 'axis' is missing");
  has(Refusal("fill", {}, {}, {Of(kF32, {-1})}), "dims [-1] are negative or too large");
  has(Refusal("fill", {}, {}, {Of(kF32, {int64_t{1} << 40, int64_t{1} << 40, 0})}),
      "negative or too large");
}

}  // namespace
}  // namespace ampc::testing
