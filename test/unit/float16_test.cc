// SPDX-License-Identifier: Apache-2.0
// fp16 and bf16 conversions against an independent definition (the nearest of all representable
// values), and every instruction set against the scalar code.

#include "runtime/base/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ampc {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kInfDouble = std::numeric_limits<double>::infinity();

// The value of a half from the definition of the format.
double HalfValue(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * kInfDouble;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

double BFloat16Value(uint16_t b) {
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(b) << 16));
}

// Nearest-even by search in the ordered table of non-negative finite values; `infinity` is the
// pattern of infinity and stands, for rounding, at the value that the next exponent would have.
uint16_t NearestBySearch(double value, uint16_t infinity, double (*decode)(uint16_t)) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double x = std::fabs(value);
  auto at = [&](int code) {
    return code == infinity ? 2 * decode(static_cast<uint16_t>(infinity - 1)) -
                                  decode(static_cast<uint16_t>(infinity - 2))
                            : decode(static_cast<uint16_t>(code));
  };
  int low = 0, high = infinity;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (at(middle) <= x ? low : high) = middle;
  }
  if (x >= at(high)) return static_cast<uint16_t>(sign | high);
  // Exact: both differences are of numbers within a factor of two, or x is far below 2^53 units.
  const double below = x - at(low), above = at(high) - x;
  const bool up = below > above || (below == above && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}
uint16_t NearestHalf(double v) { return NearestBySearch(v, 0x7C00, HalfValue); }
uint16_t NearestBFloat16(double v) { return NearestBySearch(v, 0x7F80, BFloat16Value); }

// Random bit patterns, plus everything around each half: the value, its neighbours, the ties and
// their neighbours.
std::vector<float> Probes() {
  std::vector<float> probes = {0.0f,     -0.0f, 65504.0f, 65519.996f, 65520.0f,
                               65536.0f, 1e38f, kInf,     -kInf};
  auto around = [&](double v) {
    const float f = static_cast<float>(v);
    for (float p : {f, std::nextafter(f, kInf), std::nextafter(f, -kInf)}) {
      probes.push_back(p);
      probes.push_back(-p);
    }
  };
  for (int h = 0; h < 0x7C00; ++h) {
    const double v = HalfValue(static_cast<uint16_t>(h));
    around(v);
    around((v + HalfValue(static_cast<uint16_t>(std::min(h + 1, 0x7BFF)))) / 2);
  }
  for (int b = 0; b < 0x7F80; b += 7) {
    around(static_cast<double>(std::bit_cast<float>((static_cast<uint32_t>(b) << 16) | 0x8000u)));
  }
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) {
    const float f = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(f)) probes.push_back(f);
  }
  return probes;
}

TEST(Half, WidensEveryValueExactly) {
  for (int h = 0; h < 65536; ++h) {
    const float f = FloatFromHalf(static_cast<uint16_t>(h));
    const double expected = HalfValue(static_cast<uint16_t>(h));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(f)) << h;
      ASSERT_NE(std::bit_cast<uint32_t>(f) & 0x400000u, 0u) << "quiet " << h;
    } else {
      ASSERT_EQ(static_cast<double>(f), expected) << h;
      ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0);
    }
  }
}

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (int h = 0; h < 65536; ++h) {
    const uint16_t in = static_cast<uint16_t>(h);
    const uint16_t quiet = (h & 0x7FFF) > 0x7C00 ? static_cast<uint16_t>(h | 0x200) : in;
    ASSERT_EQ(HalfFromFloat(FloatFromHalf(in)), quiet) << h;
    ASSERT_EQ(HalfFromDouble(static_cast<double>(FloatFromHalf(in))), quiet) << h;
  }
}

TEST(BFloat16, EveryValueSurvivesTheRoundTrip) {
  for (int b = 0; b < 65536; ++b) {
    const uint16_t in = static_cast<uint16_t>(b);
    const uint16_t quiet = (b & 0x7FFF) > 0x7F80 ? static_cast<uint16_t>(b | 0x40) : in;
    ASSERT_EQ(BFloat16FromFloat(FloatFromBFloat16(in)), quiet) << b;
    ASSERT_EQ(BFloat16FromDouble(static_cast<double>(FloatFromBFloat16(in))), quiet) << b;
  }
}

TEST(Narrowing, RoundsToNearestEven) {
  for (float f : Probes()) {
    ASSERT_EQ(HalfFromFloat(f), NearestHalf(static_cast<double>(f))) << f;
    ASSERT_EQ(BFloat16FromFloat(f), NearestBFloat16(static_cast<double>(f))) << f;
  }
}

TEST(Narrowing, OverflowsToInfinityAndKeepsSubnormals) {
  EXPECT_EQ(HalfFromFloat(65519.996f), 0x7BFF);
  EXPECT_EQ(HalfFromFloat(65520.0f), 0x7C00);
  EXPECT_EQ(HalfFromFloat(-1e30f), 0xFC00);
  EXPECT_EQ(HalfFromFloat(std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(HalfFromFloat(std::ldexp(1.0f, -25)), 0x0000) << "a tie goes to even";
  EXPECT_EQ(HalfFromFloat(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 0x0001);
  EXPECT_EQ(BFloat16FromFloat(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(BFloat16FromFloat(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(BFloat16FromFloat(std::bit_cast<float>(0x00010000u)), 0x0001);
}

TEST(Narrowing, NanStaysNan) {
  // A payload in the low bits only must not become infinity.
  for (uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFF800001u, 0x7F801000u, 0xFFFFFFFFu}) {
    const float f = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(FloatFromHalf(HalfFromFloat(f)))) << bits;
    EXPECT_TRUE(std::isnan(FloatFromBFloat16(BFloat16FromFloat(f)))) << bits;
  }
  const double low_payload = std::bit_cast<double>(0x7FF0000000000001ull);
  EXPECT_TRUE(std::isnan(FloatFromHalf(HalfFromDouble(low_payload))));
  EXPECT_TRUE(std::isnan(FloatFromBFloat16(BFloat16FromDouble(low_payload))));
}

TEST(FromDouble, RoundsOnce) {
  // 1 + 2^-11 is a tie between two halves; a bit far below it must decide, and float cannot hold
  // that bit.
  const double above = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(HalfFromFloat(static_cast<float>(above)), 0x3C00) << "two roundings lose the bit";
  EXPECT_EQ(HalfFromDouble(above), 0x3C01);
  EXPECT_EQ(BFloat16FromDouble(1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40)), 0x3F81);
  EXPECT_EQ(HalfFromDouble(std::ldexp(1.0, -25) + std::ldexp(1.0, -70)), 0x0001);
  EXPECT_EQ(BFloat16FromDouble(std::ldexp(1.0, -134) + std::ldexp(1.0, -180)), 0x0001);
  EXPECT_EQ(BFloat16FromDouble(std::ldexp(1.0, -134)), 0x0000);
  EXPECT_EQ(HalfFromDouble(1e300), 0x7C00);
  EXPECT_EQ(HalfFromDouble(-1e-300), 0x8000);
  EXPECT_EQ(HalfFromDouble(std::numeric_limits<double>::denorm_min()), 0x0000);
}

TEST(FromDouble, MatchesTheNearestValue) {
  std::mt19937_64 random(2);
  std::vector<double> probes;
  for (int i = 0; i < 100000; ++i) {
    // Exponents of the halves and bf16s, all mantissa bits; and near-ties: few low bits set.
    const uint64_t exponent = 1023 - 160 + random() % 320;
    const uint64_t mantissa = random() & 0xFFFFFFFFFFFFFull;
    probes.push_back(std::bit_cast<double>(exponent << 52 | mantissa));
    probes.push_back(std::bit_cast<double>(exponent << 52 | (mantissa & ~0x3FFFFFFFFFull) | 1));
    probes.push_back(
        std::bit_cast<double>((1ull << 63) | exponent << 52 | (mantissa & ~0x3FFFFFFFFFull)));
  }
  for (double d : probes) {
    // The search subtracts in double: exact here because the tables' values have at most 11 bits.
    ASSERT_EQ(HalfFromDouble(d), NearestHalf(d)) << std::hexfloat << d;
    ASSERT_EQ(BFloat16FromDouble(d), NearestBFloat16(d)) << std::hexfloat << d;
  }
}

class Arrays : public testing::TestWithParam<Float16Isa> {
 protected:
  void SetUp() override {
    if (!Float16IsaSupported(GetParam()))
      GTEST_SKIP() << "this processor lacks the instruction set";
  }
};

TEST_P(Arrays, WideningGivesTheBitsOfTheScalarCode) {
  std::vector<uint16_t> in(65536);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  std::vector<float> half(in.size()), bfloat(in.size());
  HalfToFloat(in.data(), half.data(), 65536, GetParam());
  BFloat16ToFloat(in.data(), bfloat.data(), 65536, GetParam());
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(half[i]), std::bit_cast<uint32_t>(FloatFromHalf(in[i]))) << i;
    ASSERT_EQ(std::bit_cast<uint32_t>(bfloat[i]), static_cast<uint32_t>(i) << 16);
  }
}

TEST_P(Arrays, NarrowingGivesTheBitsOfTheScalarCode) {
  std::vector<float> in = Probes();
  std::mt19937 random(3);
  for (uint32_t i = 0; i < 4096; ++i) {
    const uint32_t payload = 1u + static_cast<uint32_t>(random()) % 0x7FFFFFu;
    in.push_back(std::bit_cast<float>(0x7F800000u | payload));
  }
  const int64_t n = static_cast<int64_t>(in.size());
  std::vector<uint16_t> half(in.size()), bfloat(in.size());
  FloatToHalf(in.data(), half.data(), n, GetParam());
  FloatToBFloat16(in.data(), bfloat.data(), n, GetParam());
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(half[i], HalfFromFloat(in[i])) << std::hexfloat << in[i];
    ASSERT_EQ(bfloat[i], BFloat16FromFloat(in[i])) << std::hexfloat << in[i];
  }
}

TEST_P(Arrays, WritesExactlyNElementsAtAnyAlignment) {
  std::vector<float> in(80);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) + 0.5f;
  for (int64_t n = 0; n <= 70; ++n) {
    std::vector<uint16_t> narrow(80, 0xABCD);
    FloatToHalf(in.data() + 1, narrow.data() + 3, n, GetParam());
    std::vector<uint16_t> brain(80, 0xABCD);
    FloatToBFloat16(in.data() + 1, brain.data() + 3, n, GetParam());
    std::vector<float> wide(80, -7.0f), wide_brain(80, -7.0f);
    HalfToFloat(narrow.data() + 3, wide.data() + 5, n, GetParam());
    BFloat16ToFloat(brain.data() + 3, wide_brain.data() + 5, n, GetParam());
    for (int64_t i = 0; i < 70; ++i) {
      const size_t k = static_cast<size_t>(i);
      ASSERT_EQ(narrow[k + 3], i < n ? HalfFromFloat(in[k + 1]) : 0xABCD) << n << " " << i;
      ASSERT_EQ(brain[k + 3], i < n ? BFloat16FromFloat(in[k + 1]) : 0xABCD) << n << " " << i;
      ASSERT_EQ(wide[k + 5], i < n ? in[k + 1] : -7.0f) << n << " " << i;
      ASSERT_EQ(wide_brain[k + 5], i < n ? in[k + 1] : -7.0f) << n << " " << i;
    }
    ASSERT_EQ(narrow[2], 0xABCD);
    ASSERT_EQ(wide[4], -7.0f);
  }
}

std::string IsaName(const testing::TestParamInfo<Float16Isa>& test) {
  static constexpr const char* kNames[] = {"Scalar", "Avx2", "Avx512"};
  return kNames[static_cast<size_t>(test.param)];
}

INSTANTIATE_TEST_SUITE_P(EachInstructionSet, Arrays,
                         testing::Values(Float16Isa::kScalar, Float16Isa::kAvx2,
                                         Float16Isa::kAvx512),
                         IsaName);

}  // namespace
}  // namespace ampc
