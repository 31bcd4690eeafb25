// SPDX-License-Identifier: Apache-2.0
// The small things everything stands on: status, dtypes, dims, host tensors, attributes, checksums.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/attrs.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/dtype.h"
#include "runtime/base/float16.h"
#include "runtime/base/inline_vector.h"
#include "runtime/base/name_index.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return BadInput("E0001", "{} is odd", x);
  return x / 2;
}
Status Quarter(int x, int* out) {
  AMPC_ASSIGN(const int half, Half(x));
  AMPC_ASSIGN(*out, Half(half));
  AMPC_TRY(Half(*out * 2).ok() ? Status() : InternalError("E0002", "cannot happen"));
  return {};
}

TEST(Status, TravelsUpAndKeepsTheInnermostPlace) {
  int out = 0;
  EXPECT_TRUE(Quarter(8, &out).ok());
  EXPECT_EQ(out, 2);
  Status status = Quarter(6, &out).At("node 'inner'").At("node 'outer'").In("lower").Of("m.onnx");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "m.onnx: error[E0001]: node 'inner': 3 is odd (in pass lower)");
  EXPECT_EQ(status.exit_code(), 1);
}

TEST(Status, ClassesAreTheExitCodes) {
  EXPECT_EQ(Status().exit_code(), 0);
  EXPECT_EQ(UsageError("E", "x").exit_code(), 2);
  EXPECT_EQ(Unsupported("E", "x").exit_code(), 3);
  EXPECT_EQ(DeviceError("E", "x").exit_code(), 5);
  EXPECT_EQ(IoError("E", "x").exit_code(), 6);
  EXPECT_EQ(InternalError("E", "x").exit_code(), 70);
}

TEST(DType, NamesRoundTripAndSizesAreRight) {
  int known = 0;
  for (int value = 0; value < 40; ++value) {
    if (!IsKnownDType(value)) continue;
    ++known;
    const DType t = static_cast<DType>(value);
    EXPECT_EQ(ParseDType(Name(t)), t) << value;
    EXPECT_GT(SizeOf(t), 0);
  }
  EXPECT_EQ(known, 13);
  EXPECT_EQ(ParseDType("bf16"), DType::kBFloat16);
  EXPECT_EQ(ParseDType("complex64"), std::nullopt);
  EXPECT_EQ(ParseDType(""), std::nullopt);
  EXPECT_EQ(SizeOf(DType::kFloat64), 8);
}

TEST(Dims, CountsAreCheckedForOverflow) {
  const int64_t big = int64_t{1} << 31;
  EXPECT_EQ(CheckedNumElements(Dims{}, 4), 1);
  EXPECT_EQ(CheckedNumElements(Dims{3, 0, 5}, 4), 0);
  EXPECT_EQ(CheckedNumElements(Dims{big, big}, 1), big * big);
  EXPECT_EQ(CheckedNumElements(Dims{big, big}, 2), std::nullopt);
  EXPECT_EQ(CheckedNumElements(Dims{big, big, big}, 1), std::nullopt);
  EXPECT_EQ(CheckedNumElements(Dims{-1, 2}, 1), std::nullopt);
  EXPECT_EQ(CheckedNumElements(Dims{0, -1}, 1), std::nullopt);
  EXPECT_EQ(ToString(Dims{16, 1, 28}), "[16,1,28]");
}

TEST(Dims, ChannelsLastStridesAreInLogicalOrder) {
  EXPECT_EQ(StridesOf(Dims{2, 3, 4, 5}, Layout::kRowMajor), (std::vector<int64_t>{60, 20, 5, 1}));
  EXPECT_EQ(StridesOf(Dims{2, 3, 4, 5}, Layout::kChannelsLast),
            (std::vector<int64_t>{60, 1, 15, 3}));
}

TEST(HostTensor, ScalarsConvertAndReadBack) {
  for (DType t : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                  DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8, DType::kUInt64,
                  DType::kUInt32, DType::kUInt16, DType::kUInt8}) {
    const HostTensor s = HostTensor::Scalar(t, 3);
    EXPECT_EQ(static_cast<int64_t>(s.data.size()), SizeOf(t)) << Name(t);
    EXPECT_EQ(s.GetDouble(0), 3.0) << Name(t);
    EXPECT_EQ(s.GetInt(0), 3) << Name(t);
  }
  EXPECT_EQ(HostTensor::Scalar(DType::kBool, 7).GetInt(0), 1);
}

TEST(HostTensor, LowPrecisionScalarsAreRoundedOnce) {
  const double above_tie = 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40);
  EXPECT_EQ(HostTensor::Scalar(DType::kFloat16, above_tie).GetDouble(0), 1 + std::ldexp(1.0, -10));
}

TEST(Attrs, AreSortedTypedAndComparedByContent) {
  auto tensor = [](int64_t v) {
    return std::make_shared<const HostTensor>(HostTensor::Int64s(std::vector<int64_t>{v}));
  };
  Attrs a{{"beta", 0.5}, {"axis", int64_t{1}}, {"value", tensor(3)}};
  Attrs b;
  b.Set("value", tensor(3));
  b.Set("axis", int64_t{2});
  b.Set("beta", 0.5);
  EXPECT_FALSE(a == b);
  b.Set("axis", int64_t{1});
  EXPECT_TRUE(a == b) << "the tensors are different objects with equal bytes";
  EXPECT_EQ(a.Hash(), b.Hash());
  EXPECT_EQ(a.entries().front().first, "axis");
  EXPECT_EQ(a.Int("axis"), 1);
  EXPECT_EQ(a.Int("absent", 7), 7);
  EXPECT_EQ(a.Float("axis", 9.0), 9.0) << "another type gives the default";
  b.Erase("value");
  EXPECT_FALSE(a == b);
}

TEST(Attrs, DoublesCompareByBits) {
  EXPECT_FALSE((Attrs{{"x", 0.0}} == Attrs{{"x", -0.0}}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE((Attrs{{"x", nan}} == Attrs{{"x", nan}}));
}

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, MatchesThePublishedVectors) {
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
  // RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending.
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\xFF'))), 0x62A8AB43u);
  std::string ascending(32, '\0');
  for (size_t i = 0; i < 32; ++i) ascending[i] = static_cast<char>(i);
  EXPECT_EQ(Crc32c(Bytes(ascending)), 0x46DD794Eu);
}

TEST(Crc32c, BothFormsAgreeAtEveryLengthAndExtend) {
  std::mt19937 random(1);
  std::string text(1000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (size_t n = 0; n < 100; ++n) {
    const auto all = Bytes(text).subspan(n % 7, n);
    EXPECT_EQ(Crc32c(all), Crc32cPortable(all)) << n;
    EXPECT_EQ(Crc32c(all.subspan(n / 3), Crc32c(all.first(n / 3))), Crc32c(all)) << n;
  }
  EXPECT_EQ(Crc32c(Bytes(text)), Crc32cPortable(Bytes(text)));
}

// ---- inline vector, name index

TEST(InlineVector, KeepsItsElementsWhenItGrowsIsCopiedAndMoved) {
  InlineVector<int, 2> a;
  std::vector<int> expected;
  for (int i = 0; i < 100; ++i) {
    a.push_back(i);
    expected.push_back(i);
    EXPECT_EQ(a, expected);
  }
  InlineVector<int, 2> copy = a, moved = std::move(a);
  EXPECT_EQ(copy, expected);
  EXPECT_EQ(moved, expected);
  EXPECT_TRUE(a.empty());  // NOLINT: an emptied vector is still a vector
  a = {7};
  copy = a;
  moved = std::move(copy);
  EXPECT_EQ(moved, std::vector<int>{7});
  moved.resize(4, 9);
  EXPECT_EQ(moved, (std::vector<int>{7, 9, 9, 9}));
  moved.pop_back();
  EXPECT_EQ(moved.back(), 9);
  moved.assign(expected.begin(), expected.begin() + 3);
  EXPECT_EQ(moved, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(std::vector<int>(moved), (std::vector<int>{0, 1, 2}));
}

TEST(Attrs, ACopyIsNotChangedThroughTheOther) {
  const Attrs a{{"axis", int64_t{1}}, {"mode", std::string("x")}};
  Attrs b = a;
  EXPECT_EQ(a, b);
  b.Set("axis", int64_t{2});
  b.Erase("mode");
  EXPECT_EQ(a.Int("axis"), 1);
  EXPECT_EQ(a.String("mode"), "x");
  EXPECT_EQ(b.Int("axis"), 2);
  EXPECT_FALSE(b.Has("mode"));
}

// Against a map, through many additions and removals: removal moves what was pushed past its place.
TEST(NameIndex, FindsWhatAMapFinds) {
  std::vector<std::string> names;
  const auto name_of = [&](int32_t id) { return std::string_view(names[static_cast<size_t>(id)]); };
  NameIndex index;
  std::map<std::string, int32_t> expected;
  uint32_t random = 1;
  for (int i = 0; i < 20000; ++i) {
    random = random * 1664525u + 1013904223u;
    const std::string name = "v" + std::to_string((random >> 8) % 700);
    if ((random >> 30) == 0) {
      index.Remove(name, name_of);
      expected.erase(name);
    } else {
      names.push_back(name);
      const auto id = static_cast<int32_t>(names.size() - 1);
      const auto [it, fresh] = expected.emplace(name, id);
      EXPECT_EQ(index.FindOrAdd(name, id, name_of), fresh ? NameIndex::kAbsent : it->second);
    }
    const std::string other = "v" + std::to_string(i % 700);
    const auto it = expected.find(other);
    ASSERT_EQ(index.Find(other, name_of), it == expected.end() ? NameIndex::kAbsent : it->second);
  }
}

}  // namespace
}  // namespace ampc
