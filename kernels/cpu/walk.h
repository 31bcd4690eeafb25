// SPDX-License-Identifier: Apache-2.0
#pragma once
// How elementwise programs and copies find the elements of a broadcast, transposed or sliced
// operand.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ampc::cpu {

/// Where the elements of an operand lie along the outputs' memory order: axes from the outermost to
/// the innermost, merged where the operand walks them as one.
struct Walk {
  std::vector<int64_t> dims, strides;

  static Walk Of(std::span<const int64_t> dims, std::span<const int64_t> strides) {
    Walk w;
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] == 1) continue;
      if (!w.dims.empty() && w.strides.back() == strides[i] * dims[i]) {
        w.dims.back() *= dims[i];
        w.strides.back() = strides[i];
      } else {
        w.dims.push_back(dims[i]);
        w.strides.push_back(strides[i]);
      }
    }
    return w;
  }
  bool IsScalar() const { return dims.empty() || (dims.size() == 1 && strides[0] == 0); }
  bool IsDense() const { return dims.empty() || (dims.size() == 1 && strides[0] == 1); }

  /// out[i] = element begin + i of the walk.
  template <typename S>
  void Gather(const S* src, int64_t begin, int64_t n, S* out) const {
    const size_t last = dims.size() - 1;
    const int64_t length = dims[last], stride = strides[last];
    int64_t row = begin / length, at = begin % length;
    while (n > 0) {
      const int64_t run = std::min(n, length - at);
      const S* from = src + at * stride;
      int64_t rest = row;
      for (size_t axis = last; axis-- > 0;) {
        from += rest % dims[axis] * strides[axis];
        rest /= dims[axis];
      }
      if (stride == 0) {
        std::fill_n(out, run, *from);
      } else if (stride == 1) {
        std::copy_n(from, run, out);
      } else {
        for (int64_t i = 0; i < run; ++i) out[i] = from[i * stride];
      }
      out += run;
      n -= run;
      at = 0;
      ++row;
    }
  }
};

}  // namespace ampc::cpu
