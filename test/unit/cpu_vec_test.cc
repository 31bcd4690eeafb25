// SPDX-License-Identifier: Apache-2.0
// The inner loops of every instruction set that this processor has: elementwise ones give the bits
// of the plain build, sums agree with sums in double. Lengths run over all tails.

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

std::vector<const VecOps*> Tables() {
  std::vector<const VecOps*> tables = {&vec_base::kVecOps};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    tables.push_back(&vec_avx2::kVecOps);
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    tables.push_back(&vec_avx512::kVecOps);
  return tables;
}

using Floats = std::vector<float>;

Floats Numbers(int64_t n, int seed) {
  Floats v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::sin(static_cast<float>(i * 7 + static_cast<size_t>(seed) * 131)) * 3;
  return v;
}

const int64_t kLengths[] = {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 257};

/// run(table, n) -> results; every table's are those of the plain build, bit for bit.
template <typename F>
void ExpectSameBits(F run) {
  for (int64_t n : kLengths) {
    const Floats expected = run(vec_base::kVecOps, n);
    for (const VecOps* table : Tables()) {
      const Floats found = run(*table, n);
      ASSERT_EQ(found.size(), expected.size());
      const bool same =
          found.empty() || std::memcmp(found.data(), expected.data(), found.size() * 4) == 0;
      EXPECT_TRUE(same) << table->name << ", length " << n;
    }
  }
}

Floats Joined(const Floats& a, const Floats& b) {
  Floats all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

TEST(CpuVec, ElementwiseLoopsGiveTheSameBitsOnEverySet) {
  ExpectSameBits([](const VecOps& v, int64_t n) {
    Floats x = Numbers(n, 1), y(x.size());
    v.relu(x.data(), y.data(), n);
    v.scale(y.data(), 1.7f, y.data(), n);
    v.subtract(y.data(), 0.3f, 0.7f, y.data(), n);
    v.affine(y.data(), 0.1f, 2.5f, -0.4f, true, y.data(), n);
    return y;
  });
  ExpectSameBits([](const VecOps& v, int64_t n) {
    const Floats y = Numbers(n, 1), dy = Numbers(n, 2), s = Numbers(n, 3), a = Numbers(n, 4),
                 b = Numbers(n, 5);
    Floats p(y.size()), q(y.size());
    v.softmax_bwd(y.data(), dy.data(), 0.2f, p.data(), n);
    v.log_softmax_bwd(y.data(), dy.data(), 0.2f, q.data(), n);
    v.softmax_columns(p.data(), s.data(), a.data(), p.data(), n);
    v.log_softmax_columns(q.data(), s.data(), a.data(), q.data(), n);
    v.norm_bwd(dy.data(), p.data(), 0.5f, 1.5f, -0.3f, 0.2f, p.data(), n);
    v.norm_bwd_columns(dy.data(), q.data(), 1, s.data(), a.data(), b.data(), s.data(), q.data(), n);
    v.affine_columns(q.data(), 1, s.data(), a.data(), b.data(), false, q.data(), n);
    v.exp_scale(q.data(), 0.5f, b.data(), 0.25f, q.data(), n);
    v.add_mask(q.data(), a.data(), q.data(), n);
    v.softmax_bwd_columns(p.data(), dy.data(), s.data(), p.data(), n);
    v.log_softmax_bwd_columns(p.data(), dy.data(), s.data(), p.data(), n);
    v.multiply_add_columns(dy.data(), s.data(), p.data(), n);
    v.sum_exp_columns(y.data(), s.data(), p.data(), n);
    return Joined(p, q);
  });
}

TEST(CpuVec, OptimizersGiveTheSameBitsOnEverySet) {
  const AdamScalars adam = {0.01f, 1e-3f, 0.999f, 0.1f, 0.001f, 0.0316f, 1e-8f};
  const SgdScalars sgd = {0.1f, 0.9f, 1.0f, 1e-4f};
  ExpectSameBits([&](const VecOps& v, int64_t n) {
    Floats w = Numbers(n, 1), m = Numbers(n, 3), s = Numbers(n, 4);
    const Floats g = Numbers(n, 2);
    for (float& x : s) x = x * x;
    v.adam(adam, false, w.data(), g.data(), m.data(), s.data(), w.data(), m.data(), s.data(), n);
    v.adam(adam, true, w.data(), g.data(), m.data(), s.data(), w.data(), m.data(), s.data(), n);
    v.sgd(sgd, true, false, w.data(), g.data(), m.data(), w.data(), m.data(), n);
    v.sgd(sgd, false, true, w.data(), g.data(), m.data(), w.data(), m.data(), n);
    v.sgd(sgd, false, false, w.data(), g.data(), nullptr, w.data(), nullptr, n);
    return Joined(Joined(w, m), s);
  });
}

TEST(CpuVec, PoolsAndDropoutGiveTheSameBitsOnEverySet) {
  ExpectSameBits([](const VecOps& v, int64_t n) {
    const Floats x = Numbers(3 * n + 3, 1);
    Floats best(static_cast<size_t>(n), -INFINITY), acc(best.size());
    std::vector<int32_t> where(best.size(), -1);
    for (int64_t stride : {1, 2, 3}) {
      v.max_update(x.data(), stride, 5, 2, best.data(), where.data(), n);
      v.add_strided(x.data(), stride, acc.data(), n);
    }
    std::vector<int32_t> offset(best.size()), position(best.size());
    for (size_t i = 0; i < offset.size(); ++i) {
      offset[i] = static_cast<int32_t>(3 * i + i % 3);  // differ, as add_scatter wants
      position[i] = static_cast<int32_t>(i % 5);
    }
    v.max_gather(x.data(), offset.data(), position.data(), 4, best.data(), where.data(), n);
    v.add_gather(x.data(), offset.data(), acc.data(), n);
    Floats spread(x.size());
    v.add_scatter(acc.data(), offset.data(), spread.data(), n);
    acc = Joined(acc, spread);
    for (size_t i = 0; i < where.size(); ++i) best[i] += static_cast<float>(where[i]);
    return Joined(best, acc);
  });
  ExpectSameBits([](const VecOps& v, int64_t n) {
    const Floats x = Numbers(4 * n, 1);
    Floats y(x.size());
    std::vector<uint8_t> mask(x.size());
    v.dropout(12345678901, 3, 9, 17, n, 1u << 31, 0.5f, x.data(), y.data(), mask.data());
    return y;
  });
}

TEST(CpuVec, ConvolutionTapsGiveTheSameBitsOnEverySet) {
  ExpectSameBits([](const VecOps& v, int64_t n) {
    const int64_t lanes = (n + 15) / 16 * 16;
    const std::vector<int32_t> offset = {0, 1, 17, 5};
    const Floats x = Numbers(lanes + 17, 1), w = Numbers(4, 2);
    Floats acc(static_cast<size_t>(lanes), 0.5f);
    v.add_taps(x.data(), offset.data(), w.data(), 4, acc.data(), lanes);
    return acc;
  });
}

TEST(CpuVec, ReluOfBFloat16ClearsNegativesAndKeepsNaN) {
  for (const VecOps* table : Tables()) {
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    table->relu_bf16(all.data(), 65536);
    for (uint32_t i = 0; i < 65536; ++i) {
      const bool nan = (i & 0x7FFFu) > 0x7F80u;
      ASSERT_EQ(all[i], i >= 0x8000u && !nan ? 0u : i) << table->name;
    }
  }
}

TEST(CpuVec, WhatAMaskForbidsIsMinusInfinity) {
  for (const VecOps* table : Tables()) {
    for (int64_t n : {1, 4, 17, 40}) {
      Floats mask(static_cast<size_t>(n), 2), y(mask.size());
      for (float x : {1.0f, INFINITY, NAN}) {
        mask[mask.size() / 2] = -INFINITY;
        table->add_mask(Floats(mask.size(), x).data(), mask.data(), y.data(), n);
        for (size_t i = 0; i < y.size(); ++i) {
          const float expected = mask[i] == 2 ? x + 2 : -INFINITY;
          EXPECT_TRUE(y[i] == expected || (std::isnan(y[i]) && std::isnan(expected)))
              << table->name << " " << x << " at " << i;
        }
      }
    }
  }
}

TEST(CpuVec, RowSumsAgreeWithDouble) {
  for (const VecOps* table : Tables()) {
    for (int64_t n : kLengths) {
      const Floats x = Numbers(n, 1), y = Numbers(n, 2);
      double sum = 0, absolute = 0, square = 0, dot = 0, around = 0, deviation = 0, exp = 0,
             max = -INFINITY, min = INFINITY;
      int64_t better = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double v = static_cast<double>(x[i]), w = static_cast<double>(y[i]);
        sum += v;
        absolute += std::abs(v);
        square += v * v;
        dot += v * w;
        around += w * (v - 0.25);
        deviation += (v - 0.25) * (v - 0.25);
        exp += std::exp(v - 1);
        max = std::max(max, v);
        min = std::min(min, v);
        better += x[i] > 0.5f ? 1 : 0;
      }
      const double bound = 1e-5 * (1 + absolute + square + exp);
      const double expected[] = {sum, absolute, square, max, min};
      for (int op = 0; op < kRowOps; ++op) {
        const double found = static_cast<double>(table->row_reduce[op](x.data(), n));
        if (std::isinf(expected[op])) {
          EXPECT_EQ(found, expected[op]);
        } else {
          EXPECT_NEAR(found, expected[op], bound) << table->name << " op " << op << " length " << n;
        }
      }
      Floats e(x.size());
      float s, q;
      table->moments_around(x.data(), 0.25f, n, &s, &q);
      EXPECT_NEAR(static_cast<double>(s), sum - 0.25 * static_cast<double>(n), bound);
      EXPECT_NEAR(static_cast<double>(q), deviation, bound);
      EXPECT_NEAR(static_cast<double>(table->dot(x.data(), y.data(), n)), dot, bound);
      EXPECT_NEAR(static_cast<double>(table->dot_around(y.data(), x.data(), 0.25f, n)), around,
                  bound);
      EXPECT_NEAR(static_cast<double>(table->sum_exp(x.data(), 1, n)), exp, bound);
      EXPECT_NEAR(static_cast<double>(table->exp_sum(x.data(), 1, e.data(), n)), exp, bound);
      EXPECT_EQ(table->count_better(x.data(), 0.5f, 0, n), better);
      double squares = 1;
      EXPECT_EQ(table->unscale(x.data(), 2, e.data(), n, &squares), 0);
      EXPECT_NEAR(squares, 1 + 4 * square, bound);
    }
  }
}

TEST(CpuVec, ColumnSumsAgreeWithDouble) {
  for (const VecOps* table : Tables()) {
    for (int64_t cols : kLengths) {
      for (int64_t rows : {1, 7, 8, 21}) {
        const int64_t stride = cols + 3;
        const Floats x = Numbers(rows * stride, 1), dy = Numbers(rows * stride, 2),
                     shift = Numbers(cols, 3);
        const size_t n = static_cast<size_t>(cols);
        Floats found[kRowOps], s(n), q(n), ds(n), dd(n);
        for (int op = 0; op < kRowOps; ++op) {
          found[op].assign(n, op == static_cast<int>(RowOp::kMin)   ? INFINITY
                              : op == static_cast<int>(RowOp::kMax) ? -INFINITY
                                                                    : 0);
          table->column_reduce[op](x.data(), rows, cols, stride, found[op].data());
        }
        table->column_moments_around(x.data(), rows, cols, stride, shift.data(), s.data(),
                                     q.data());
        table->column_dot_around(dy.data(), x.data(), rows, cols, stride, shift.data(), ds.data(),
                                 dd.data());
        for (size_t j = 0; j < n; ++j) {
          double e[kRowOps] = {0, 0, 0, -INFINITY, INFINITY}, m = 0, m2 = 0, g = 0, dot = 0;
          for (int64_t i = 0; i < rows; ++i) {
            const size_t at = static_cast<size_t>(i * stride) + j;
            const double v = static_cast<double>(x[at]), d = v - static_cast<double>(shift[j]);
            e[0] += v;
            e[1] += std::abs(v);
            e[2] += v * v;
            e[3] = std::max(e[3], v);
            e[4] = std::min(e[4], v);
            m += d;
            m2 += d * d;
            g += static_cast<double>(dy[at]);
            dot += static_cast<double>(dy[at]) * d;
          }
          for (int op = 0; op < kRowOps; ++op)
            EXPECT_NEAR(static_cast<double>(found[op][j]), e[op], 1e-4) << table->name;
          EXPECT_NEAR(static_cast<double>(s[j]), m, 1e-4);
          EXPECT_NEAR(static_cast<double>(q[j]), m2, 1e-3);
          EXPECT_NEAR(static_cast<double>(ds[j]), g, 1e-4);
          EXPECT_NEAR(static_cast<double>(dd[j]), dot, 1e-3);
        }
      }
    }
  }
}

TEST(CpuVec, UnscaleFindsWhatIsNotFinite) {
  for (const VecOps* table : Tables()) {
    for (float bad : {INFINITY, -INFINITY, NAN, 3e38f}) {  // the last overflows when doubled
      for (int64_t at = 0; at < 40; ++at) {
        Floats x = Numbers(40, 1), u(40);
        x[static_cast<size_t>(at)] = bad;
        double squares = 0;
        EXPECT_EQ(table->unscale(x.data(), 2, u.data(), 40, &squares), 1)
            << table->name << " " << bad << " at " << at;
      }
    }
  }
}

}  // namespace
}  // namespace ampc::cpu
