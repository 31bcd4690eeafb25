// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/tensor.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/float16.h"

namespace ampc {

std::optional<int64_t> CheckedNumElements(std::span<const int64_t> dims, int64_t element_size) {
  int64_t n = 1;
  bool zero = false;
  for (int64_t d : dims) {
    if (d < 0) return std::nullopt;
    if (d == 0) zero = true;
    if (!zero && __builtin_mul_overflow(n, d, &n)) return std::nullopt;
  }
  if (zero) return 0;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(n, element_size, &bytes)) return std::nullopt;
  return n;
}

std::string ToString(std::span<const int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

std::vector<int64_t> StridesOf(std::span<const int64_t> dims, Layout layout) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  const bool last = layout == Layout::kChannelsLast && dims.size() >= 3;
  if (last) {
    strides[1] = 1;
    stride = dims[1];
  }
  for (size_t i = dims.size(); i-- > 0;) {
    if (last && i == 1) continue;
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

namespace {

template <typename T>
void Store(HostTensor& t, T value) {
  t.data.resize(sizeof(T));
  std::memcpy(t.data.data(), &value, sizeof(T));
}

template <typename T>
T Load(const HostTensor& t, int64_t i) {
  T v;
  std::memcpy(&v, t.data.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return v;
}

}  // namespace

HostTensor HostTensor::Scalar(DType dtype, double value) {
  HostTensor t{dtype, {}, {}};
  switch (dtype) {
    case DType::kFloat32:
      Store(t, static_cast<float>(value));
      break;
    case DType::kFloat64:
      Store(t, value);
      break;
    case DType::kFloat16:
      Store(t, HalfFromDouble(value));
      break;
    case DType::kBFloat16:
      Store(t, BFloat16FromDouble(value));
      break;
    case DType::kInt64:
      Store(t, static_cast<int64_t>(value));
      break;
    case DType::kInt32:
      Store(t, static_cast<int32_t>(value));
      break;
    case DType::kInt16:
      Store(t, static_cast<int16_t>(value));
      break;
    case DType::kInt8:
      Store(t, static_cast<int8_t>(value));
      break;
    case DType::kUInt64:
      Store(t, static_cast<uint64_t>(value));
      break;
    case DType::kUInt32:
      Store(t, static_cast<uint32_t>(value));
      break;
    case DType::kUInt16:
      Store(t, static_cast<uint16_t>(value));
      break;
    case DType::kUInt8:
      Store(t, static_cast<uint8_t>(value));
      break;
    case DType::kBool:
      Store(t, static_cast<uint8_t>(value != 0));
      break;
    case DType::kNone:
      break;
  }
  return t;
}

double HostTensor::GetDouble(int64_t i) const {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<double>(Load<float>(*this, i));
    case DType::kFloat64:
      return Load<double>(*this, i);
    case DType::kFloat16:
      return static_cast<double>(FloatFromHalf(Load<uint16_t>(*this, i)));
    case DType::kBFloat16:
      return static_cast<double>(FloatFromBFloat16(Load<uint16_t>(*this, i)));
    default:
      return static_cast<double>(GetInt(i));
  }
}

int64_t HostTensor::GetInt(int64_t i) const {
  switch (dtype) {
    case DType::kInt64:
      return Load<int64_t>(*this, i);
    case DType::kInt32:
      return Load<int32_t>(*this, i);
    case DType::kInt16:
      return Load<int16_t>(*this, i);
    case DType::kInt8:
      return Load<int8_t>(*this, i);
    case DType::kUInt64:
      return static_cast<int64_t>(Load<uint64_t>(*this, i));
    case DType::kUInt32:
      return static_cast<int64_t>(Load<uint32_t>(*this, i));
    case DType::kUInt16:
      return Load<uint16_t>(*this, i);
    case DType::kUInt8:
    case DType::kBool:
      return Load<uint8_t>(*this, i);
    default:
      return static_cast<int64_t>(GetDouble(i));
  }
}

std::vector<int64_t> HostTensor::Ints() const {
  std::vector<int64_t> v(static_cast<size_t>(elements()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = GetInt(static_cast<int64_t>(i));
  return v;
}

}  // namespace ampc
