// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shapes and small host tensors: what compiler, plan and runtime all speak of.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace ampc {

/// Logical dims, row-major order. After import every dim is a non-negative number.
using Dims = std::vector<int64_t>;

/// Product of dims (1 for rank 0). The caller has checked the product for overflow
/// (CheckedNumElements).
inline int64_t NumElements(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

/// Product of dims, or nullopt when a dim is negative or the product times `element_size` exceeds
/// int64.
std::optional<int64_t> CheckedNumElements(std::span<const int64_t> dims, int64_t element_size);

/// "[16,1,28,28]"
std::string ToString(std::span<const int64_t> dims);

/// How logical elements lie in memory.
enum class Layout : uint8_t {
  kRowMajor = 0,
  kChannelsLast = 1,  ///< logical N,C,spatial… stored as N,spatial…,C; rank >= 3
};

/// Element strides of `dims` stored in `layout`, in logical axis order.
std::vector<int64_t> StridesOf(std::span<const int64_t> dims, Layout layout);

/// An operand as a kernel sees it: no memory, only its form. dtype kNone = optional operand left
/// out.
struct TensorDesc {
  DType dtype = DType::kNone;
  Dims dims;
  Layout layout = Layout::kRowMajor;

  bool present() const { return dtype != DType::kNone; }
  int64_t elements() const { return NumElements(dims); }
  int64_t bytes() const { return elements() * SizeOf(dtype); }
  bool operator==(const TensorDesc&) const = default;
};

/// A small tensor with its bytes (constants, attributes). Row-major, little-endian.
struct HostTensor {
  DType dtype = DType::kNone;
  Dims dims;
  std::vector<std::byte> data;

  template <typename T>
  static HostTensor Of(DType dtype, Dims dims, std::span<const T> values) {
    HostTensor t{dtype, std::move(dims), std::vector<std::byte>(values.size_bytes())};
    if (!values.empty()) std::memcpy(t.data.data(), values.data(), values.size_bytes());
    return t;
  }
  static HostTensor Int64s(std::span<const int64_t> v) {
    return Of<int64_t>(DType::kInt64, {static_cast<int64_t>(v.size())}, v);
  }
  /// Rank 0, any dtype; the value is converted (fp16, bf16: rounded to nearest even).
  static HostTensor Scalar(DType dtype, double value);

  int64_t elements() const { return NumElements(dims); }
  template <typename T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
  /// Element i as a double, whatever the dtype (bool: 0 or 1).
  double GetDouble(int64_t i) const;
  /// Element i of an integer or bool tensor.
  int64_t GetInt(int64_t i) const;
  /// All elements of an integer tensor.
  std::vector<int64_t> Ints() const;
  bool operator==(const HostTensor&) const = default;
};

}  // namespace ampc
