// SPDX-License-Identifier: Apache-2.0
#pragma once
// Linear maps along axes, as lists of taps: what resizing is, once its geometry is known.
//
// y[.., o, ..] = sum of weights[k] * x[.., indices[k], ..] over begins[o] <= k < begins[o + 1]. The
// transposed lists are the adjoint. The own op Interpolate applies one list per axis, the kernel
// `interpolate` one of them.

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/ops/op_def.h"

namespace ampc {

struct AxisTaps {
  int64_t axis = 0, in = 0, out = 0;
  std::vector<int64_t> begins, indices;  ///< out + 1 entries; one per tap
  std::vector<double> weights;

  AxisTaps(int64_t axis_in, int64_t in_size, int64_t out_size)
      : axis(axis_in), in(in_size), out(out_size), begins(1, 0) {}
  /// Adds a tap to the output that is being written; equal positions add up.
  void Add(int64_t index, double weight);
  /// The output is complete.
  void Next() { begins.push_back(static_cast<int64_t>(indices.size())); }
  bool IsIdentity() const;
  AxisTaps Transposed() const;
};

/// The taps of a Resize node, axes that do not change left out. Errors are E0102, E0107, E0108.
Result<std::vector<AxisTaps>> ResizeTaps(const Attrs& attrs, const Dims& x, const Dims& y,
                                         const HostTensor* roi, const HostTensor* scales,
                                         const HostTensor* sizes);

/// Attributes of Interpolate that stand for `taps`, and back; `dims` are those of the result.
Attrs InterpolateAttrs(std::span<const AxisTaps> taps, const Dims& dims);
Result<std::vector<AxisTaps>> ReadTaps(const Attrs& attrs, const Dims& x);

}  // namespace ampc
