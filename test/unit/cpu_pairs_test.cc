// SPDX-License-Identifier: Apache-2.0
// The loops on pairs of bf16 (kernels/cpu/vec/pairs.h) against double. Skipped where the processor
// has no such products; attention then multiplies floats.

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/vec/pairs.h"
#include "runtime/base/float16.h"

namespace ampc::cpu {
namespace {

using Floats = std::vector<float>;
using Halves = std::vector<uint16_t>;

constexpr int64_t kStride = 144;  // of a tile's rows

class CpuPairs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Pairs() == nullptr) GTEST_SKIP() << "no avx512_bf16";
  }
};

Halves Numbers(int64_t n, int seed) {
  Halves v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = BFloat16FromFloat(std::sin(static_cast<float>(i * 7 + static_cast<size_t>(seed) * 131)));
  return v;
}
double Value(const Halves& x, int64_t i) { return FloatFromBFloat16(x[static_cast<size_t>(i)]); }

/// Half `half` of word `i`.
float Half(const Floats& words, int64_t i, int half) {
  uint16_t halves[2];
  std::memcpy(halves, &words[static_cast<size_t>(i)], sizeof(halves));
  return FloatFromBFloat16(halves[half]);
}

int64_t Padded(int64_t n) { return (n + 15) / 16 * 16; }

TEST_F(CpuPairs, ProductsOfRowsWithColumnsAgreeWithDouble) {
  for (int64_t m : {1, 5, 8, 19}) {
    for (int64_t n : {1, 7, 16, 33}) {
      for (int64_t k : {2, 6, 32, 40, 66}) {  // even: rows are words as they stand
        const Halves a = Numbers(m * k, 1), b = Numbers(n * k, 2);
        Floats columns(static_cast<size_t>(k / 2 * kStride), NAN);
        for (int64_t i = 0; i < n; i += 16)
          Pairs()->pair_columns(b.data() + i * k, std::min<int64_t>(16, n - i), k, kStride,
                                columns.data() + i);
        Floats left(static_cast<size_t>(m * k / 2)), c(static_cast<size_t>(m * kStride), 1);
        std::memcpy(left.data(), a.data(), a.size() * 2);
        Pairs()->product({left.data(), columns.data(), c.data(), k / 2, 1, kStride, kStride, m,
                          Padded(n), k / 2, true},
                         0.5f);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < Padded(n); ++j) {
            double sum = 0;
            for (int64_t l = 0; l < k && j < n; ++l)
              sum += Value(a, i * k + l) * Value(b, j * k + l);
            EXPECT_NEAR(static_cast<double>(c[static_cast<size_t>(i * kStride + j)]), 1 + sum / 2,
                        1e-5);
          }
        }
      }
    }
  }
}

TEST_F(CpuPairs, ColumnsOfAnyLengthArePaired) {
  for (int64_t rows : {1, 2, 3, 16}) {
    for (int64_t n : {1, 2, 15, 16, 31, 32, 33, 47, 64}) {
      const Halves x = Numbers(rows * n, 3);
      const auto element = [&](int64_t i, int64_t c) {
        return i < rows && c < n ? static_cast<float>(Value(x, i * n + c)) : 0.0f;
      };
      Floats columns(static_cast<size_t>((n + 1) / 2 * kStride), NAN);
      Pairs()->pair_columns(x.data(), rows, n, kStride, columns.data());
      for (int half : {0, 1}) {
        for (int64_t c = 0; c < (n + 1) / 2; ++c) {
          for (int64_t i = 0; i < 16; ++i)
            EXPECT_EQ(Half(columns, c * kStride + i, half), element(i, 2 * c + half));
        }
      }
      double dot = 0;
      for (int64_t c = 0; c < n; ++c) dot += Value(x, c) * Value(x, (rows - 1) * n + c);
      const float found = Pairs()->dot(x.data(), x.data() + (rows - 1) * n, n);
      EXPECT_NEAR(static_cast<double>(found), dot, 1e-5);
    }
  }
}

TEST_F(CpuPairs, ResultsAreScaledAndRoundedOnce) {
  for (int64_t n : {1, 15, 16, 17, 40}) {
    Floats x(static_cast<size_t>(Padded(n)));
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    Halves y(static_cast<size_t>(n + 1), 0x1234);
    Pairs()->round_scaled(x.data(), 0.3f, n, y.data());
    for (size_t i = 0; i < y.size() - 1; ++i) EXPECT_EQ(y[i], BFloat16FromFloat(x[i] * 0.3f));
    EXPECT_EQ(y.back(), 0x1234);
  }
}

}  // namespace
}  // namespace ampc::cpu
