// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 against the known answers of the Random123 distribution, and the dropout threshold.

#include "kernels/philox.h"

#include <array>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace ampc {
namespace {

void ExpectBlock(const PhiloxBlock& got, std::array<uint32_t, 4> want) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], want[i]) << "word " << i;
}

TEST(Philox, GivesTheKnownAnswers) {
  ExpectBlock(Philox4x32({{0, 0, 0, 0}}, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t f = 0xffffffff;
  ExpectBlock(Philox4x32({{f, f, f, f}}, f, f), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  ExpectBlock(
      Philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
      {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, DropoutCounterHoldsElementStreamAndIndex) {
  const int64_t seed = 0x1122334455667788, index = 0x0123456789abcdef;
  const PhiloxBlock want = Philox4x32({{7, 9, 0x89abcdef, 0x01234567}}, 0x55667788, 0x11223344);
  ExpectBlock(StreamBits(seed, index, 9, 7),
              {want.word[0], want.word[1], want.word[2], want.word[3]});
}

TEST(Philox, ThresholdIsTheSmallestKeptValue) {
  for (const double ratio : {0.1, 0.25, 0.5, static_cast<double>(0.1f), 0.9999999999, 1e-12}) {
    const uint64_t t = DropoutThreshold(ratio);
    EXPECT_GE(std::ldexp(static_cast<double>(t), -32), ratio);
    EXPECT_LT(std::ldexp(static_cast<double>(t) - 1, -32), ratio);
  }
  EXPECT_EQ(DropoutThreshold(0), 0u);
  EXPECT_EQ(DropoutThreshold(-0.5), 0u);
  EXPECT_EQ(DropoutThreshold(1), uint64_t{1} << 32);
  EXPECT_EQ(DropoutThreshold(2), uint64_t{1} << 32);
  EXPECT_EQ(DropoutThreshold(std::numeric_limits<double>::quiet_NaN()), uint64_t{1} << 32);
}

}  // namespace
}  // namespace ampc
