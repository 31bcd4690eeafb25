// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the attention kernels share: sizes, tiles of scores, and heads in fp32 with padded rows.
//
// Scores are made in tiles of kQueries x kKeys that stay in the L2 cache; nothing of size T * S
// leaves it. Operands are laid out in the workspace once per head, rows padded to whole vectors.
//
// Products of two stored operands (q k, dy v) add up floats (VecOps::product) or, where every
// operand is bf16 and the processor multiplies them, pairs of bf16 in a word of the same size
// (PairOps::product), half as many. Products with weights or gradients of scores add up floats:
// rounded to bf16 these would differ from what the op means by more than the order of sums does.

#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/pairs.h"

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
  /// the padding. q: left rows; kt: the tile's columns. capped: scores before the mask, or null.
  void ScoreTile(const Tile& at, const float* q, const float* kt, const void* mask, float* scores,
                 float* capped) const;

  // ---- operands of products ----

  /// Null: terms are floats.
  const PairOps* pairs() const { return pairs_; }
  /// How many words `terms` terms take.
  int64_t Words(int64_t terms) const { return pairs_ != nullptr ? CeilDiv(terms, 2) : terms; }
  /// From row to row of left rows.
  int64_t LeftRow(int64_t length) const {
    return pairs_ != nullptr ? Words(length) : Padded(length);
  }
  /// What scores of left rows of queries lack.
  float late_scale() const { return pairs_ != nullptr ? scale_ : 1; }

  /// Rows [first, first + rows) of a tensor of rows of `length` as a left operand, terms along the
  /// row; in `out`, or where they are when they serve as such. Floats come multiplied with
  /// `factor`.
  const float* ReadLeft(DType type, const void* x, int64_t first, int64_t rows, int64_t length,
                        float factor, float* out) const;
  /// The same rows as floats, a right operand of weights: [rows, Padded(length)], the padding is 0.
  void ReadRight(DType type, const void* x, int64_t first, int64_t rows, int64_t length,
                 float* out) const;
  /// The same, transposed, kKeys rows at a time: [tile, Words(length), kTileRow].
  void ReadColumns(DType type, const void* x, int64_t first, int64_t rows, int64_t length,
                   float* out) const;
  /// Words of such columns, and where those of the tile at `key` begin.
  int64_t Columns(int64_t rows, int64_t length) const {
    return CeilDiv(rows, kKeys) * Words(length) * kTileRow;
  }
  int64_t ColumnsAt(int64_t key, int64_t length) const {
    return key / kKeys * Words(length) * kTileRow;
  }
  /// y (+)= a x over k terms, all floats.
  void Multiply(const float* a, int64_t a_row, int64_t a_column, const float* x, int64_t x_row,
                float* y, int64_t y_row, int64_t m, int64_t n, int64_t k, bool add) const;
  /// A tile y = alpha times m left rows (ReadLeft) times n columns (ReadColumns) of k terms. alpha
  /// is 1 where terms are floats.
  void MultiplyStored(const float* rows, const float* columns, float* y, int64_t m, int64_t n,
                      int64_t k, float alpha = 1) const;

  /// Row `row` of `out` = x * factor.
  void WriteRow(DType type, const float* x, int64_t length, float factor, void* out,
                int64_t row) const;
  void WriteRows(DType type, const float* x, int64_t rows, int64_t length, float factor, void* out,
                 int64_t first) const;
  const VecOps& vec() const { return vec_; }

 private:
  /// What the mask adds to the scores of row i of the tile: in `block`, or where it stands.
  const float* MaskValues(const Tile& at, int64_t i, const void* mask, float* block) const;
  void MaskRow(const Tile& at, int64_t i, const float* values, float* row) const;
  void ReadRows(DType type, const void* x, int64_t first, int64_t rows, int64_t length,
                float factor, float* out) const;

  const VecOps& vec_;
  const PairOps* pairs_;
  float scale_, softcap_;
  bool causal_;
  int64_t offset_;
  DType mask_type_;
  int64_t mask_strides_[4] = {};
};

}  // namespace ampc::cpu
