// SPDX-License-Identifier: Apache-2.0
#pragma once
// Geometry that convolutions and pools share: up to three spatial axes, stored as three (leading
// ones of length 1), with strides, dilations and padding.

#include <array>
#include <cstdint>

#include "kernels/ref/check.h"

namespace ampc::ref {

using Axes3 = std::array<int64_t, 3>;

struct Window {
  Axes3 input, output, kernel;
  Axes3 stride, dilation, pad;  // pad: before the first element

  /// Input position of kernel tap `k` for output position `o` along `axis`; outside [0, input) =
  /// padding.
  int64_t At(int axis, int64_t o, int64_t k) const {
    return o * stride[axis] - pad[axis] + k * dilation[axis];
  }
  bool Inside(int axis, int64_t at) const { return at >= 0 && at < input[axis]; }
  /// Output position that reads input `at` through tap `k`, or -1.
  int64_t OutputOf(int axis, int64_t at, int64_t k) const {
    const int64_t reach = at + pad[axis] - k * dilation[axis];
    if (reach < 0 || reach % stride[axis] != 0) return -1;
    const int64_t o = reach / stride[axis];
    return o < output[axis] ? o : -1;
  }
  static int64_t Volume(const Axes3& a) { return a[0] * a[1] * a[2]; }
};

/// f(i) for every index of the box `size`, row-major, with its flat position: f(i, flat).
template <typename F>
void ForEachIndex(const Axes3& size, F f) {
  Axes3 i;
  int64_t flat = 0;
  for (i[0] = 0; i[0] < size[0]; ++i[0]) {
    for (i[1] = 0; i[1] < size[1]; ++i[1]) {
      for (i[2] = 0; i[2] < size[2]; ++i[2]) f(i, flat++);
    }
  }
}

inline int64_t Flat(const Axes3& size, int64_t i0, int64_t i1, int64_t i2) {
  return (i0 * size[1] + i1) * size[2] + i2;
}

/// Reads strides, dilations and pads of the call and checks the spatial dims of `y` against those
/// of `x` and the kernel (both operands [N,C,s..] of one rank, 1 to 3 spatial axes).
Result<Window> ReadWindow(const CallCheck& check, const Operand& x, const Operand& y,
                          std::span<const int64_t> kernel);

}  // namespace ampc::ref
