// SPDX-License-Identifier: Apache-2.0
// From file elements to feed elements, from file axes to feed axes, and the order of samples.

#include "runtime/data/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/data/bind.h"
#include "runtime/data/shuffle.h"
#include "runtime/data/strided.h"

namespace ampc {
namespace {

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                          DType::kUInt8,   DType::kInt8,    DType::kUInt16,   DType::kInt16,
                          DType::kInt32,   DType::kInt64,   DType::kBool,     DType::kUInt32,
                          DType::kUInt64};

// `values` in `type`, starting at an odd address.
class Misaligned {
 public:
  Misaligned(DType type, const std::vector<double>& values)
      : bytes_(1 + values.size() * static_cast<size_t>(SizeOf(type))) {
    std::byte* at = bytes_.data() + 1;
    for (double v : values) {
      const HostTensor scalar = HostTensor::Scalar(type, v);
      std::copy(scalar.data.begin(), scalar.data.end(), at);
      at += scalar.data.size();
    }
  }
  const std::byte* data() const { return bytes_.data() + 1; }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<double> Converted(const Converter& converter, DType to, const std::byte* in,
                              int64_t n) {
  HostTensor out{to, Dims{n}, std::vector<std::byte>(static_cast<size_t>(n * SizeOf(to)))};
  EXPECT_EQ(converter.Convert(in, out.data.data(), n), -1);
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(out.GetDouble(i));
  return values;
}

TEST(Convert, EveryPairOfTypesGivesTheNumberOrIsRefused) {
  std::vector<double> small(1000);
  for (size_t i = 0; i < small.size(); ++i) small[i] = static_cast<double>(i % 2);
  for (DType from : kAll) {
    const Misaligned in(from, small);
    for (DType to : kAll) {
      Result<Converter> converter = Converter::Make(from, to, {}, {}, {});
      if (IsFloat(from) && !IsFloat(to)) {
        EXPECT_NE(converter.status().message().find("floats are not cut"), std::string::npos);
        continue;
      }
      ASSERT_TRUE(converter.ok()) << Name(from) << Name(to);
      EXPECT_EQ(Converted(*converter, to, in.data(), 1000), small)
          << Name(from) << " to " << Name(to);
    }
  }
}

TEST(Convert, NormalisesInDoubleAndRoundsOnce) {
  const Normalization n{1.0 / 255, {0.1307}, {0.3081}};
  for (DType from : {DType::kUInt8, DType::kInt32, DType::kFloat32, DType::kFloat16}) {
    for (DType to : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
      const Converter converter = Converter::Make(from, to, n, {}, {}).value();
      std::vector<double> in(256), expected;
      std::iota(in.begin(), in.end(), 0.0);
      for (double x : in)
        expected.push_back(HostTensor::Scalar(to, (x * n.scale - 0.1307) / 0.3081).GetDouble(0));
      EXPECT_EQ(Converted(converter, to, Misaligned(from, in).data(), 256), expected)
          << Name(from) << Name(to);
    }
  }
}

TEST(Convert, ChannelsHaveTheirOwnMeanAndStd) {
  const Normalization n{1, {1, 2, 3}, {1, 10, 100}};
  const std::vector<double> in = {10, 20, 12, 22, 13, 23,
                                  11, 21, 2,  12, 3,  103};  // [2][3 channels][2]
  const std::vector<double> expected = {9, 19, 1, 2, 0.1, 0.2, 10, 20, 0, 1, 0, 1};
  for (DType from : {DType::kUInt8, DType::kFloat32}) {
    const Converter converter = Converter::Make(from, DType::kFloat64, n, {3, 2}, {}).value();
    const Misaligned source(from, in);
    EXPECT_EQ(Converted(converter, DType::kFloat64, source.data(), 12), expected);
    double one = 0;  // a single element from the middle of a sample
    converter.Convert(source.data() + 3 * SizeOf(from), reinterpret_cast<std::byte*>(&one), 1, 3);
    EXPECT_EQ(one, 2.0);
  }
}

TEST(Convert, NanAndInfinityPass) {
  const std::vector<double> in = {std::numeric_limits<double>::infinity(), std::nan("")};
  const Converter converter =
      Converter::Make(DType::kFloat16, DType::kFloat32, Normalization{2, {1}, {1}}, {}, {}).value();
  const std::vector<double> out =
      Converted(converter, DType::kFloat32, Misaligned(DType::kFloat16, in).data(), 2);
  EXPECT_TRUE(std::isinf(out[0]));
  EXPECT_TRUE(std::isnan(out[1]));
}

TEST(Convert, IntegersOutOfRangeAreFound) {
  struct Case {
    DType from, to;
    double value;
    IntegerRange range;
  };
  const Case cases[] = {{DType::kInt64, DType::kInt32, 2147483648.0, {}},
                        {DType::kInt64, DType::kUInt8, -1, {}},
                        {DType::kInt16, DType::kBool, 2, {}},
                        {DType::kUInt8, DType::kInt64, 10, {10, {}}},
                        {DType::kInt64, DType::kInt64, -1, {10, {}}},
                        {DType::kInt64, DType::kInt64, -2, {10, -1}},
                        {DType::kUInt64, DType::kInt64, 1.5e19, {}},
                        {DType::kUInt64, DType::kInt64, 1.5e19, {10, {}}},
                        {DType::kInt64, DType::kUInt64, -1, {}}};
  for (const Case& c : cases) {
    const Converter converter = Converter::Make(c.from, c.to, {}, {}, c.range).value();
    std::vector<double> values(700, 1.0);
    values[600] = c.value;
    const Misaligned in(c.from, values);
    std::vector<std::byte> out(700 * 8);
    EXPECT_EQ(converter.Convert(in.data(), out.data(), 700), 600)
        << Name(c.from) << Name(c.to) << c.value;
    EXPECT_EQ(converter.Convert(in.data(), out.data(), 600), -1);
    EXPECT_NE(converter.DescribeBad(in.data(), 600).find("takes"), std::string::npos);
  }
  const Converter ignoring =
      Converter::Make(DType::kInt16, DType::kInt64, {}, {}, {10, -100}).value();
  EXPECT_EQ(Converted(ignoring, DType::kInt64, Misaligned(DType::kInt16, {0, -100, 9}).data(), 3),
            (std::vector<double>{0, -100, 9}));
}

TEST(Convert, RefusesNormalisationThatMakesNoSense) {
  EXPECT_EQ(Converter::Make(DType::kUInt8, DType::kInt64, Normalization{2, {0}, {1}}, {}, {})
                .status()
                .exit_code(),
            2);
  EXPECT_FALSE(
      Converter::Make(DType::kUInt8, DType::kFloat32, Normalization{1, {0}, {0}}, {}, {}).ok());
  EXPECT_FALSE(
      Converter::Make(DType::kUInt8, DType::kFloat32, Normalization{1, {0}, {std::nan("")}}, {}, {})
          .ok());
}

TEST(Axes, AdaptThroughOnesMergingAndSplitting) {
  EXPECT_TRUE(Adapts(Dims{28, 28}, Dims{1, 28, 28}));
  EXPECT_TRUE(Adapts(Dims{28, 28}, Dims{784}));
  EXPECT_TRUE(Adapts(Dims{784}, Dims{1, 28, 28}));
  EXPECT_TRUE(Adapts(Dims{}, Dims{1, 1}));
  EXPECT_TRUE(Adapts(Dims{3, 32, 32}, Dims{3, 1024}));
  EXPECT_FALSE(Adapts(Dims{28, 28, 3}, Dims{3, 28, 28}));
  EXPECT_FALSE(Adapts(Dims{4, 6}, Dims{6, 4}));
  EXPECT_FALSE(Adapts(Dims{2, 3, 4}, Dims{4, 6}));
  EXPECT_FALSE(Adapts(Dims{28, 28}, Dims{27, 28}));
  EXPECT_FALSE(Adapts(Dims{2}, Dims{}));
  EXPECT_FALSE(Adapts(Dims{0, 2}, Dims{2}));
}

TEST(Axes, TheProposedPermutationFits) {
  using Order = std::vector<int64_t>;
  EXPECT_EQ(ProposePermute(Dims{100, 28, 28, 3}, 0, Dims{3, 28, 28}), (Order{0, 3, 1, 2}));
  EXPECT_EQ(ProposePermute(Dims{32, 32, 3, 500}, 0, Dims{3, 32, 32}), (Order{3, 2, 0, 1}))
      << "samples come last";
  EXPECT_EQ(ProposePermute(Dims{100, 28, 28, 3}, 0, Dims{4, 28, 28}), std::nullopt);
  EXPECT_EQ(ProposePermute(Dims{}, 0, Dims{}), std::nullopt);
}

TEST(Axes, PermutedAndFortranViewsGather) {
  std::vector<uint16_t> data(2 * 3 * 4);
  std::iota(data.begin(), data.end(), uint16_t{0});
  Array array = MakeArray(DType::kUInt16, Dims{2, 3, 4},
                          reinterpret_cast<const std::byte*>(data.data()), nullptr);
  Array permuted = Permuted(array, std::vector<int64_t>{2, 0, 1}).value();
  EXPECT_EQ(permuted.dims, (Dims{4, 2, 3}));
  const std::vector<std::byte> packed = PackedBytes(permuted);
  for (size_t k = 0; k < 4; ++k) {
    for (size_t i = 0; i < 6; ++i) {
      uint16_t value;
      std::memcpy(&value, packed.data() + 2 * (k * 6 + i), 2);
      EXPECT_EQ(value, data[i * 4 + k]);
    }
  }
  EXPECT_EQ(SampleAxisFirst(array, 1)->dims, (Dims{3, 2, 4}));
  EXPECT_FALSE(Permuted(array, std::vector<int64_t>{0, 1}).ok());
  EXPECT_FALSE(Permuted(array, std::vector<int64_t>{0, 1, 1}).ok());
  EXPECT_FALSE(Permuted(array, std::vector<int64_t>{0, 1, 3}).ok());
  EXPECT_FALSE(SampleAxisFirst(array, 3).ok());
  EXPECT_TRUE(StridedBlock(Dims{1, 3, 4}, std::vector<int64_t>{99, 4, 1}, 2).contiguous())
      << "a one has any stride";
}

TEST(Range, BothNotationsAndTheirErrors) {
  auto range = [](std::string_view text) {
    Result<SampleRange> r = ParseRange(text, 1000);
    return r.ok() ? std::pair(r->begin, r->end)
                  : std::pair(int64_t{-1}, int64_t{r.status().exit_code()});
  };
  using P = std::pair<int64_t, int64_t>;
  EXPECT_EQ(range(""), P(0, 1000));
  EXPECT_EQ(range("10:20"), P(10, 20));
  EXPECT_EQ(range("90%:"), P(900, 1000));
  EXPECT_EQ(range(":90%"), P(0, 900));
  EXPECT_EQ(range("12.55%:50%"), P(125, 500));
  EXPECT_EQ(range("0:1001"), P(-1, 1));
  EXPECT_EQ(range("20:20"), P(-1, 1));
  EXPECT_EQ(range("900:1%"), P(-1, 1));
  for (const char* bad : {"5", "a:b", "-5:", "1.5:", "nan:", "1e99:", "5%%:", ":101%x"})
    EXPECT_EQ(range(bad), P(-1, 2)) << bad;
}

TEST(Shuffle, IsAPermutationThatDependsOnSeedAndEpochOnly) {
  std::vector<uint32_t> a(1000), b(1000), c(1000), d(1000);
  ShuffledOrder(1, 0, a);
  ShuffledOrder(1, 0, b);
  ShuffledOrder(1, 1, c);
  ShuffledOrder(2, 0, d);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(a, d);
  EXPECT_NE(c, d);
  EXPECT_EQ(std::set<uint32_t>(a.begin(), a.end()).size(), 1000u);
  EXPECT_EQ(*std::max_element(a.begin(), a.end()), 999u);
  // Fixed for all time: a checkpoint written by one version is resumed by another.
  ShuffledOrder(0, 0, std::span(a).first(8));
  EXPECT_EQ(std::vector<uint32_t>(a.begin(), a.begin() + 8),
            (std::vector<uint32_t>{0, 2, 3, 7, 4, 6, 1, 5}));
}

TEST(Shuffle, EveryPlaceIsEquallyLikely) {
  std::vector<uint32_t> order(5);
  int count[5][5] = {};
  for (uint64_t epoch = 0; epoch < 5000; ++epoch) {
    ShuffledOrder(7, epoch, order);
    for (size_t i = 0; i < 5; ++i) ++count[i][order[i]];
  }
  for (auto& row : count) {
    for (int c : row) EXPECT_NEAR(c, 1000, 140) << "5 standard deviations";
  }
}

TEST(Random, FloatsAreNearlyNormalAndIntegersUniform) {
  std::vector<float> x(100000);
  FillRandom(StreamKey(1, "x", 0, 0), DType::kFloat32, 0, reinterpret_cast<std::byte*>(x.data()),
             100000);
  double sum = 0, squares = 0;
  for (float v : x) {
    sum += static_cast<double>(v);
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.016) << "5 standard deviations";
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 3.47f);
  std::vector<int64_t> k(10000);
  FillRandom(StreamKey(1, "k", 0, 0), DType::kInt64, 10, reinterpret_cast<std::byte*>(k.data()),
             10000);
  for (int64_t v = 0; v < 10; ++v)
    EXPECT_NEAR(static_cast<double>(std::count(k.begin(), k.end(), v)), 1000, 150);
}

TEST(Random, EveryFeedEpochAndBatchHasItsOwnStream) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0, 1}) {
    for (const char* name : {"a", "b", "ab"}) {
      for (uint64_t epoch : {0, 1}) {
        for (uint64_t batch : {0, 1}) keys.insert(StreamKey(seed, name, epoch, batch));
      }
    }
  }
  EXPECT_EQ(keys.size(), 24u);
}

}  // namespace
}  // namespace ampc
