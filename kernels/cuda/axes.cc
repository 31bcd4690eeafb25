// SPDX-License-Identifier: Apache-2.0
// Walks over operands; see axes.h and operand.h.

#include "kernels/cuda/axes.h"

#include <limits>

namespace ampc::cuda {

Axes Axes::Merge(std::span<const int64_t> dims, std::span<const int64_t> strides) {
  Axes axes;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    if (!axes.dims.empty() && axes.strides.back() == strides[i] * dims[i]) {
      axes.dims.back() *= dims[i];
      axes.strides.back() = strides[i];
    } else {
      axes.dims.push_back(dims[i]);
      axes.strides.push_back(strides[i]);
    }
  }
  return axes;
}

bool Axes::CanWiden(int64_t factor) const {
  if (dims.empty() || strides.back() != 1 || dims.back() % factor != 0) return false;
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    if (strides[i] % factor != 0) return false;
  }
  return true;
}

void Axes::Widen(int64_t factor) {
  dims.back() /= factor;
  for (size_t i = 0; i + 1 < dims.size(); ++i) strides[i] /= factor;
}

Result<Walk> Axes::ToWalk() const {
  if (dims.size() > kMaxAxes) {
    return Unsupported("E0801", "an operand has {} axes of its own, the CUDA kernels walk {}",
                       dims.size(), kMaxAxes);
  }
  if (NumElements(dims) > std::numeric_limits<uint32_t>::max()) {
    return Unsupported("E0801", "a strided operand has {} elements, the CUDA kernels walk 2^32",
                       NumElements(dims));
  }
  Walk walk;
  walk.axes = static_cast<int32_t>(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    walk.dims[i] = Divisor(static_cast<uint32_t>(dims[i]));
    walk.strides[i] = strides[i];
  }
  return walk;
}

Result<Operand> MakeOperand(DType dtype, std::span<const int64_t> dims,
                            std::span<const int64_t> strides) {
  const Axes axes = Axes::Merge(dims, strides);
  Operand operand;
  operand.dtype = dtype;
  if (axes.IsDense()) return operand;
  if (axes.IsScalar()) {
    operand.form = Form::kScalar;
    return operand;
  }
  operand.form = Form::kStrided;
  AMPC_ASSIGN(operand.walk, axes.ToWalk());
  return operand;
}

bool AllowsVectors(const Operand& operand, const void* data) {
  if (data == nullptr || operand.form != Form::kDense) return true;
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(operand.VectorAlignment()) == 0;
}

}  // namespace ampc::cuda
