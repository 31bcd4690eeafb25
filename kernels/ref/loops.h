// SPDX-License-Identifier: Apache-2.0
#pragma once
// Loop nests over several operands with strides of their own: how elementwise programs and copies
// walk broadcast operands and mixed layouts.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/tensor.h"

namespace ampc::ref {

/// Axes from the outermost to the innermost, each with one stride per operand (elements). Axes that
/// every operand walks as one are merged, axes of length 1 dropped.
class LoopNest {
 public:
  static constexpr size_t kMaxAxes = 32;

  /// strides[k] = the strides of operand k over `dims`.
  LoopNest(std::span<const int64_t> dims, const std::vector<std::vector<int64_t>>& strides);

  size_t num_axes() const { return dims_.size(); }
  /// Length of the innermost axis (1 for a scalar) and its stride in operand k.
  int64_t inner_length() const { return inner_length_; }
  int64_t inner_stride(size_t k) const { return inner_strides_[k]; }

  /// f(offsets) for each run of the innermost axis, in order; offsets[k] is where it starts in
  /// operand k.
  template <typename F>
  void ForEachRun(int64_t* offsets, F f) const {
    if (outer_runs_ == 0 || inner_length_ == 0) return;
    const size_t operands = inner_strides_.size();
    for (size_t k = 0; k < operands; ++k) offsets[k] = 0;
    std::array<int64_t, kMaxAxes> index = {};
    for (int64_t run = 0; run < outer_runs_; ++run) {
      f(static_cast<const int64_t*>(offsets));
      for (size_t axis = dims_.size(); axis-- > 0;) {
        const int64_t* step = &strides_[axis * operands];
        if (++index[axis] < dims_[axis]) {
          for (size_t k = 0; k < operands; ++k) offsets[k] += step[k];
          break;
        }
        index[axis] = 0;
        for (size_t k = 0; k < operands; ++k) offsets[k] -= step[k] * (dims_[axis] - 1);
      }
    }
  }

 private:
  std::vector<int64_t> dims_;     // outer axes
  std::vector<int64_t> strides_;  // [axis][operand]
  std::vector<int64_t> inner_strides_;
  int64_t inner_length_ = 1, outer_runs_ = 1;
};

/// Strides of `x` over `dims`, to which it broadcasts (numpy): 0 along broadcast axes.
std::vector<int64_t> BroadcastStrides(const TensorDesc& x, std::span<const int64_t> dims);

/// The logical axes of a tensor in the order in which they lie in memory.
std::vector<size_t> StorageOrder(const TensorDesc& x);

/// v[order[0]], v[order[1]], …
std::vector<int64_t> Permute(std::span<const int64_t> v, std::span<const size_t> order);

}  // namespace ampc::ref
