// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/strided.h"

#include <array>
#include <cstring>

namespace ampc {

StridedBlock::StridedBlock(std::span<const int64_t> dims, std::span<const int64_t> strides,
                           int64_t element_size)
    : elements_(NumElements(dims)), element_size_(element_size) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    if (!dims_.empty() && strides_.back() == dims[i] * strides[i]) {
      dims_.back() *= dims[i];
      strides_.back() = strides[i];
    } else {
      dims_.push_back(dims[i]);
      strides_.push_back(strides[i]);
    }
  }
  contiguous_ = dims_.empty() || (dims_.size() == 1 && strides_[0] == 1);
}

template <typename T>
void StridedBlock::GatherAs(const std::byte* source, std::byte* out) const {
  const size_t outer = dims_.size() - 1;
  const int64_t length = dims_[outer], stride = strides_[outer];
  std::array<int64_t, kMaxArrayRank> index{};
  int64_t offset = 0;
  for (int64_t done = 0; done < elements_; done += length) {
    for (int64_t i = 0; i < length; ++i) {
      std::memcpy(out + (done + i) * static_cast<int64_t>(sizeof(T)),
                  source + (offset + i * stride) * static_cast<int64_t>(sizeof(T)), sizeof(T));
    }
    for (size_t axis = outer; axis-- > 0;) {  // next outer position, like an odometer
      offset += strides_[axis];
      if (++index[axis] < dims_[axis]) break;
      offset -= strides_[axis] * dims_[axis];
      index[axis] = 0;
    }
  }
}

void StridedBlock::Gather(const std::byte* source, std::byte* out) const {
  if (elements_ == 0) return;
  if (contiguous_) {
    std::memcpy(out, source, static_cast<size_t>(elements_ * element_size_));
    return;
  }
  switch (element_size_) {
    case 1:
      return GatherAs<uint8_t>(source, out);
    case 2:
      return GatherAs<uint16_t>(source, out);
    case 4:
      return GatherAs<uint32_t>(source, out);
    default:
      return GatherAs<uint64_t>(source, out);
  }
}

}  // namespace ampc
