// SPDX-License-Identifier: Apache-2.0
// Tiles of scores, and heads as operands of products.

#include <cmath>

#include "kernels/cpu/attention.h"

namespace ampc::cpu {
namespace {

/// Pairs of bf16, where all operands of products are bf16: q, k, v, and backward's y and dy.
const PairOps* PairsFor(const CallSpec& call, size_t mask_slot) {
  constexpr size_t kLse = 4;
  for (size_t i = 0; i < mask_slot; ++i) {
    if (i != kLse && call.inputs[i].dtype != DType::kBFloat16) return nullptr;
  }
  return Pairs();
}

}  // namespace

AttentionTiles::AttentionTiles(const CallSpec& call, size_t mask_slot)
    : b(call.inputs[0].dims[0]),
      h(call.inputs[0].dims[1]),
      g(call.inputs[1].dims[1]),
      t(call.inputs[0].dims[2]),
      s(call.inputs[1].dims[2]),
      d(call.inputs[0].dims[3]),
      e(call.inputs[2].dims[3]),
      dp(Padded(d)),
      ep(Padded(e)),
      q_type(call.inputs[0].dtype),
      k_type(call.inputs[1].dtype),
      v_type(call.inputs[2].dtype),
      vec_(Vec()),
      pairs_(PairsFor(call, mask_slot)),
      scale_(static_cast<float>(call.params.Float("scale", 1))),
      softcap_(static_cast<float>(call.params.Float("softcap", 0))),
      causal_(call.params.Int("causal") != 0),
      offset_(call.params.Int("offset")),
      mask_type_(call.inputs.size() > mask_slot ? call.inputs[mask_slot].dtype : DType::kNone) {
  if (mask_type_ == DType::kNone) return;
  const Dims& m = call.inputs[mask_slot].dims;
  int64_t stride = 1;
  for (size_t i = 0; i < m.size(); ++i) {  // from the last axis on
    const int64_t length = m[m.size() - 1 - i];
    mask_strides_[3 - i] = length == 1 ? 0 : stride;
    stride *= length;
  }
}

const float* AttentionTiles::MaskValues(const Tile& at, int64_t i, const void* mask,
                                        float* block) const {
  const int64_t* m = mask_strides_;
  const int64_t first = at.batch * m[0] + at.head * m[1] + (at.query + i) * m[2] + at.key * m[3];
  if (mask_type_ == DType::kBool) {
    const auto* bits = static_cast<const uint8_t*>(mask) + first;
    for (int64_t j = 0; j < at.keys; ++j) block[j] = bits[j * m[3]] != 0 ? 0 : -INFINITY;
    return block;
  }
  if (m[3] != 0) return FloatBlock(mask_type_, mask, first, at.keys, block);
  std::fill_n(block, at.keys, LoadFloat(mask_type_, mask, first));
  return block;
}

void AttentionTiles::MaskRow(const Tile& at, int64_t i, const float* values, float* row) const {
  // Keys up to the frontier count.
  const int64_t reach = causal_ ? at.query + i + offset_ + 1 - at.key : at.keys;
  const int64_t counting = std::clamp<int64_t>(reach, 0, at.keys);
  std::fill(row + counting, row + Padded(at.keys), -INFINITY);
  if (values != nullptr) vec_.add_mask(row, values, row, counting);
}

void AttentionTiles::ScoreTile(const Tile& at, const float* q, const float* kt, const void* mask,
                               float* scores, float* capped) const {
  const int64_t padded = Padded(at.keys);
  MultiplyStored(q, kt, scores, at.queries, padded, d, late_scale());
  float block[kKeys];
  const float* values = nullptr;
  for (int64_t i = 0; i < at.queries; ++i) {
    float* row = scores + i * kTileRow;
    if (softcap_ != 0) vec_.soft_cap(row, softcap_, row, padded);
    if (capped != nullptr) std::copy_n(row, padded, capped + i * kTileRow);
    const bool fresh = i == 0 || mask_strides_[2] != 0;  // a mask of keys is the same for all rows
    if (mask_type_ != DType::kNone && fresh) values = MaskValues(at, i, mask, block);
    MaskRow(at, i, values, row);
  }
}

void AttentionTiles::ReadRows(DType type, const void* x, int64_t first, int64_t rows,
                              int64_t length, float factor, float* out) const {
  const int64_t padded = Padded(length);
  if (length == padded) {
    Widen(type, Offset(x, first * length * SizeOf(type)), out, rows * length);
    if (factor != 1) vec_.scale(out, factor, out, rows * length);
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    float* row = out + i * padded;
    Widen(type, Offset(x, (first + i) * length * SizeOf(type)), row, length);
    std::fill(row + length, row + padded, 0.0f);
    if (factor != 1) vec_.scale(row, factor, row, padded);
  }
}

const float* AttentionTiles::ReadLeft(DType type, const void* x, int64_t first, int64_t rows,
                                      int64_t length, float factor, float* out) const {
  if (pairs_ == nullptr) {
    ReadRows(type, x, first, rows, length, factor, out);
    return out;
  }
  const auto* from = static_cast<const uint16_t*>(x) + first * length;
  if (length % 2 == 0) return static_cast<const float*>(static_cast<const void*>(from));
  for (int64_t i = 0; i < rows; ++i) {
    float* row = out + i * Words(length);
    row[Words(length) - 1] = 0;  // the missing half
    std::memcpy(row, from + i * length, static_cast<size_t>(length) * 2);
  }
  return out;
}

void AttentionTiles::ReadRight(DType type, const void* x, int64_t first, int64_t rows,
                               int64_t length, float* out) const {
  ReadRows(type, x, first, rows, length, 1, out);
}

void AttentionTiles::ReadColumns(DType type, const void* x, int64_t first, int64_t rows,
                                 int64_t length, float* out) const {
  if (pairs_ != nullptr) {
    constexpr int64_t kBand = 16;
    const auto* from = static_cast<const uint16_t*>(x) + first * length;
    for (int64_t i = 0; i < rows; i += kBand)
      pairs_->pair_columns(from + i * length, std::min(kBand, rows - i), length, kTileRow,
                           out + ColumnsAt(i, length) + i % kKeys);
    return;
  }
  float block[kKeys];
  for (int64_t i = 0; i < rows; ++i) {
    float* column = out + ColumnsAt(i, length) + i % kKeys;
    for (int64_t c = 0; c < length; c += kKeys) {
      const int64_t n = std::min(kKeys, length - c);
      const float* row = FloatBlock(type, x, (first + i) * length + c, n, block);
      for (int64_t j = 0; j < n; ++j) column[(c + j) * kTileRow] = row[j];
    }
  }
  const int64_t last = rows % kKeys, padding = Padded(last) - last;
  for (int64_t c = 0; c < length && padding > 0; ++c)
    std::fill_n(out + ColumnsAt(rows, length) + c * kTileRow + last, padding, 0.0f);
}

void AttentionTiles::Multiply(const float* a, int64_t a_row, int64_t a_column, const float* x,
                              int64_t x_row, float* y, int64_t y_row, int64_t m, int64_t n,
                              int64_t k, bool add) const {
  vec_.product({a, x, y, a_row, a_column, x_row, y_row, m, n, k, add});
}

void AttentionTiles::MultiplyStored(const float* rows, const float* columns, float* y, int64_t m,
                                    int64_t n, int64_t k, float alpha) const {
  const ProductArgs args = {rows,     columns, y, LeftRow(k), 1,    kTileRow,
                            kTileRow, m,       n, Words(k),   false};
  if (pairs_ != nullptr) return pairs_->product(args, alpha);
  vec_.product(args);
}

void AttentionTiles::WriteRow(DType type, const float* x, int64_t length, float factor, void* out,
                              int64_t row) const {
  if (pairs_ != nullptr && type == DType::kBFloat16)
    return pairs_->round_scaled(x, factor, length, static_cast<uint16_t*>(out) + row * length);
  float buffer[kKeys];
  for (int64_t c = 0; c < length; c += kKeys) {
    const int64_t n = std::min(kKeys, length - c);
    vec_.scale(x + c, factor, buffer, Padded(n));  // x is padded, too
    Narrow(type, buffer, Offset(out, (row * length + c) * SizeOf(type)), n);
  }
}

void AttentionTiles::WriteRows(DType type, const float* x, int64_t rows, int64_t length,
                               float factor, void* out, int64_t first) const {
  const int64_t padded = Padded(length);
  if (length == padded)  // one long row
    return WriteRow(type, x, rows * length, factor, Offset(out, first * length * SizeOf(type)), 0);
  for (int64_t i = 0; i < rows; ++i) WriteRow(type, x + i * padded, length, factor, out, first + i);
}

}  // namespace ampc::cpu
