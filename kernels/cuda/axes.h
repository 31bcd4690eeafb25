// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes the walks of operand.h from dims and strides. Runs on the host while a call is prepared.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/operand.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc::cuda {

/// Axes from the outermost to the innermost, without those of length 1, merged where one continues
/// the other.
struct Axes {
  std::vector<int64_t> dims, strides;

  static Axes Merge(std::span<const int64_t> dims, std::span<const int64_t> strides);

  bool IsScalar() const { return dims.empty() || (dims.size() == 1 && strides[0] == 0); }
  bool IsDense() const { return dims.empty() || (dims.size() == 1 && strides[0] == 1); }
  /// True when runs of `factor` elements lie together and start at multiples of `factor`.
  bool CanWiden(int64_t factor) const;
  /// The same bytes in elements `factor` times as large.
  void Widen(int64_t factor);
  /// Error (E0801) when the axes are more, or the elements more, than a walk can hold.
  Result<Walk> ToWalk() const;
};

/// The operand of dtype `dtype` that has `strides` over `dims`, which are not empty of elements.
Result<Operand> MakeOperand(DType dtype, std::span<const int64_t> dims,
                            std::span<const int64_t> strides);

/// True when vector access to the operand at `data` is possible, or there is none.
bool AllowsVectors(const Operand& operand, const void* data);

}  // namespace ampc::cuda
