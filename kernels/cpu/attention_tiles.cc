// SPDX-License-Identifier: Apache-2.0
// Tiles of scores, and heads widened into rows or columns of fp32.

#include <cmath>

#include "kernels/cpu/attention.h"

namespace ampc::cpu {

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

void AttentionTiles::MaskRow(const Tile& at, int64_t i, const void* mask, float* row) const {
  const int64_t padded = Padded(at.keys);
  // Keys up to the frontier count.
  const int64_t reach = causal_ ? at.query + i + offset_ + 1 - at.key : at.keys;
  const int64_t counting = std::clamp<int64_t>(reach, 0, at.keys);
  std::fill(row + counting, row + padded, -INFINITY);
  if (mask_type_ == DType::kNone) return;
  const int64_t* m = mask_strides_;
  const int64_t first = at.batch * m[0] + at.head * m[1] + (at.query + i) * m[2] + at.key * m[3];
  if (mask_type_ == DType::kBool) {
    const auto* bits = static_cast<const uint8_t*>(mask) + first;
    for (int64_t j = 0; j < counting; ++j) row[j] = bits[j * m[3]] != 0 ? row[j] : -INFINITY;
    return;
  }
  float block[kKeys];
  const float* add = block;
  if (m[3] == 0) {
    std::fill_n(block, counting, LoadFloat(mask_type_, mask, first));
  } else {
    add = FloatBlock(mask_type_, mask, first, counting, block);
  }
  for (int64_t j = 0; j < counting; ++j) row[j] = add[j] == -INFINITY ? -INFINITY : row[j] + add[j];
}

void AttentionTiles::ScoreTile(const Tile& at, const float* q, const float* kt, const void* mask,
                               float* scores, float* capped) const {
  const int64_t padded = Padded(at.keys);
  Multiply(q, dp, 1, kt, kTileRow, scores, kTileRow, at.queries, padded, d, false);
  for (int64_t i = 0; i < at.queries; ++i) {
    float* row = scores + i * kTileRow;
    if (softcap_ != 0) vec_.soft_cap(row, softcap_, row, padded);
    if (capped != nullptr) std::copy_n(row, padded, capped + i * kTileRow);
    MaskRow(at, i, mask, row);
  }
}

void AttentionTiles::ReadRows(DType type, const void* x, int64_t first, int64_t rows,
                              int64_t length, float factor, float* out) const {
  const int64_t padded = Padded(length);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = out + i * padded;
    Widen(type, Offset(x, (first + i) * length * SizeOf(type)), row, length);
    std::fill(row + length, row + padded, 0.0f);
    if (factor != 1) vec_.scale(row, factor, row, padded);
  }
}

void AttentionTiles::ReadColumns(DType type, const void* x, int64_t first, int64_t rows,
                                 int64_t length, float* out) const {
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

void AttentionTiles::WriteRow(DType type, const float* x, int64_t length, float factor, void* out,
                              int64_t row) const {
  float buffer[kKeys];
  for (int64_t c = 0; c < length; c += kKeys) {
    const int64_t n = std::min(kKeys, length - c);
    vec_.scale(x + c, factor, buffer, Padded(n));  // x is padded, too
    Narrow(type, buffer, Offset(out, (row * length + c) * SizeOf(type)), n);
  }
}

}  // namespace ampc::cpu
