// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the attention kernels share: sizes, tiles of scores, and heads in fp32 with padded rows.
//
// Scores are made in tiles of kQueries x kKeys that stay in the L2 cache; nothing of size T * S
// leaves it. Operands are widened into the workspace once per head, rows padded to whole vectors,
// so that all products are products of fp32 matrices in memory (VecOps::product).

#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {

inline constexpr int64_t kQueries = 64, kKeys = 128;
/// From row to row of a tile: no power of two, so that rows do not share sets of the L1 cache.
inline constexpr int64_t kTileRow = kKeys + 16;

/// Rounded up to whole vectors of every instruction set.
inline int64_t Padded(int64_t n) { return CeilDiv(n, 16) * 16; }

class AttentionTiles {
 public:
  AttentionTiles(const CallSpec& call, size_t mask_slot);

  int64_t b, h, g, t, s, d, e;
  int64_t dp, ep;  ///< d, e padded
  DType q_type, k_type, v_type;

  int64_t repeat() const { return h / g; }
  double flops() const {
    return 2.0 * static_cast<double>(b * h) * static_cast<double>(t * s) *
           static_cast<double>(d + e);
  }
  float scale() const { return scale_; }
  float softcap() const { return softcap_; }
  /// How many keys can count for queries before `end`: those behind are left out of all sums.
  int64_t KeysFor(int64_t end) const {
    return causal_ ? std::clamp<int64_t>(end + offset_, 0, s) : s;
  }

  struct Tile {
    int64_t batch, head, query, queries, key, keys;  ///< first query and key, how many
  };
  /// scores = q kt for one tile, behind softcap and mask; -inf where a key does not count, and in
  /// the padding. q: rows of dp, scaled; kt: the tile's columns. capped: scores before the mask, or
  /// null.
  void ScoreTile(const Tile& at, const float* q, const float* kt, const void* mask, float* scores,
                 float* capped) const;

  /// Rows [first, first + rows) of a tensor of rows of `length`, as floats times factor, in rows of
  /// Padded(length); the padding is 0.
  void ReadRows(DType type, const void* x, int64_t first, int64_t rows, int64_t length,
                float factor, float* out) const;
  /// The same, transposed, kKeys rows at a time: [tile, length, kTileRow]. No factor.
  void ReadColumns(DType type, const void* x, int64_t first, int64_t rows, int64_t length,
                   float* out) const;
  /// Floats of such columns, and where those of the tile at `key` begin.
  static int64_t Columns(int64_t rows, int64_t length) {
    return CeilDiv(rows, kKeys) * length * kTileRow;
  }
  static int64_t ColumnsAt(int64_t key, int64_t length) { return key / kKeys * length * kTileRow; }
  /// Row `row` of `out` = x * factor.
  void WriteRow(DType type, const float* x, int64_t length, float factor, void* out,
                int64_t row) const;
  void WriteRows(DType type, const float* x, int64_t rows, int64_t length, float factor, void* out,
                 int64_t first) const {
    for (int64_t i = 0; i < rows; ++i)
      WriteRow(type, x + i * Padded(length), length, factor, out, first + i);
  }
  void Multiply(const float* a, int64_t a_row, int64_t a_column, const float* x, int64_t x_row,
                float* y, int64_t y_row, int64_t m, int64_t n, int64_t k, bool add) const {
    vec_.product({a, x, y, a_row, a_column, x_row, y_row, m, n, k, add});
  }
  const VecOps& vec() const { return vec_; }

 private:
  void MaskRow(const Tile& at, int64_t i, const void* mask, float* row) const;

  const VecOps& vec_;
  float scale_, softcap_;
  bool causal_;
  int64_t offset_;
  DType mask_type_;
  int64_t mask_strides_[4] = {};
};

}  // namespace ampc::cpu
