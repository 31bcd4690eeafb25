// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/loops.h"

#include <numeric>

namespace ampc::ref {

LoopNest::LoopNest(std::span<const int64_t> dims,
                   const std::vector<std::vector<int64_t>>& strides) {
  const size_t operands = strides.size();
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] == 1) continue;
    // The axis continues the one before when for every operand one step there is a whole run here.
    bool merges = !dims_.empty();
    for (size_t k = 0; merges && k < operands; ++k) {
      merges = strides_[(dims_.size() - 1) * operands + k] == strides[k][axis] * dims[axis];
    }
    if (merges) {
      dims_.back() *= dims[axis];
      for (size_t k = 0; k < operands; ++k)
        strides_[(dims_.size() - 1) * operands + k] = strides[k][axis];
    } else {
      dims_.push_back(dims[axis]);
      for (size_t k = 0; k < operands; ++k) strides_.push_back(strides[k][axis]);
    }
  }
  inner_strides_.assign(operands, 0);
  if (!dims_.empty()) {
    inner_length_ = dims_.back();
    dims_.pop_back();
    inner_strides_.assign(strides_.end() - static_cast<std::ptrdiff_t>(operands), strides_.end());
  }
  for (int64_t d : dims_) outer_runs_ *= d;
}

std::vector<int64_t> BroadcastStrides(const TensorDesc& x, std::span<const int64_t> dims) {
  const std::vector<int64_t> own = StridesOf(x.dims, x.layout);
  std::vector<int64_t> strides(dims.size(), 0);
  for (size_t i = 0; i < own.size(); ++i) {
    const size_t axis = dims.size() - own.size() + i;
    if (x.dims[i] != 1 || dims[axis] == 1) strides[axis] = own[i];
  }
  return strides;
}

std::vector<size_t> StorageOrder(const TensorDesc& x) {
  std::vector<size_t> order(x.dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (x.layout == Layout::kChannelsLast && order.size() >= 3) {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return order;
}

std::vector<int64_t> Permute(std::span<const int64_t> v, std::span<const size_t> order) {
  std::vector<int64_t> permuted;
  for (size_t axis : order) permuted.push_back(v[axis]);
  return permuted;
}

}  // namespace ampc::ref
