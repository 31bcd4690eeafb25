// SPDX-License-Identifier: Apache-2.0
#pragma once
// A block of elements read through strides and packed in row-major order. No allocation after
// construction.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/array.h"

namespace ampc {

class StridedBlock {
 public:
  StridedBlock() = default;
  /// Axes of size one are dropped and adjacent axes that lie in one run are merged.
  StridedBlock(std::span<const int64_t> dims, std::span<const int64_t> strides,
               int64_t element_size);

  /// The elements already lie in row-major order.
  bool contiguous() const { return contiguous_; }
  int64_t elements() const { return elements_; }
  void Gather(const std::byte* source, std::byte* out) const;

 private:
  template <typename T>
  void GatherAs(const std::byte* source, std::byte* out) const;

  std::vector<int64_t> dims_, strides_;
  int64_t elements_ = 1, element_size_ = 1;
  bool contiguous_ = true;
};

}  // namespace ampc
