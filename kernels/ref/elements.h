// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of any dtype, read into and written from the scalar T that a reference kernel computes
// in (float, double or int64_t). Reading is exact where T can hold the value; writing rounds once,
// to nearest even, fp16 overflowing to infinity; float -> integer truncates and clamps, NaN -> 0;
// integer -> narrower integer wraps; bool is "not zero". uint64 travels through int64 by its bits.

#include <cstdint>
#include <type_traits>

#include "kernels/expr_eval.h"
#include "runtime/base/dtype.h"
#include "runtime/base/float16.h"
#include "runtime/base/tensor.h"

namespace ampc::ref {

/// f(tag of an unsigned type of `bytes` bytes), for kernels that only move elements.
template <typename F>
void VisitSize(int64_t bytes, F f) {
  switch (bytes) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    default:
      return f(uint64_t{});
  }
}

/// A dtype as a type, with the type of its bytes.
template <DType D, typename S>
struct Element {
  static constexpr DType kType = D;
  using Storage = S;
};

/// f(Element<…>{}) for the dtype `t`, which must be present.
template <typename F>
decltype(auto) Visit(DType t, F f) {
  switch (t) {
    case DType::kFloat32:
      return f(Element<DType::kFloat32, float>{});
    case DType::kFloat64:
      return f(Element<DType::kFloat64, double>{});
    case DType::kFloat16:
      return f(Element<DType::kFloat16, uint16_t>{});
    case DType::kBFloat16:
      return f(Element<DType::kBFloat16, uint16_t>{});
    case DType::kInt8:
      return f(Element<DType::kInt8, int8_t>{});
    case DType::kInt16:
      return f(Element<DType::kInt16, int16_t>{});
    case DType::kInt32:
      return f(Element<DType::kInt32, int32_t>{});
    case DType::kInt64:
      return f(Element<DType::kInt64, int64_t>{});
    case DType::kUInt16:
      return f(Element<DType::kUInt16, uint16_t>{});
    case DType::kUInt32:
      return f(Element<DType::kUInt32, uint32_t>{});
    case DType::kUInt64:
      return f(Element<DType::kUInt64, uint64_t>{});
    case DType::kBool:
      return f(Element<DType::kBool, uint8_t>{});
    case DType::kUInt8:
    case DType::kNone:
      break;
  }
  return f(Element<DType::kUInt8, uint8_t>{});
}

template <typename T, DType D, typename S>
T Widen(Element<D, S>, S v) {
  if constexpr (D == DType::kFloat16)
    return Widen<T>(Element<DType::kFloat32, float>{}, FloatFromHalf(v));
  else if constexpr (D == DType::kBFloat16)
    return Widen<T>(Element<DType::kFloat32, float>{}, FloatFromBFloat16(v));
  else if constexpr (D == DType::kBool)
    return static_cast<T>(v != 0);
  else if constexpr (std::is_floating_point_v<S> && std::is_integral_v<T>)
    return ClampToInteger<T>(v);
  else
    return static_cast<T>(v);
}

template <typename T, DType D, typename S>
S Narrow(Element<D, S>, T v) {
  if constexpr (D == DType::kBool)
    return static_cast<S>(v != T{0});
  else if constexpr (D == DType::kFloat16 && std::is_same_v<T, float>)
    return HalfFromFloat(v);
  else if constexpr (D == DType::kFloat16)
    return HalfFromDouble(static_cast<double>(v));
  else if constexpr (D == DType::kBFloat16 && std::is_same_v<T, float>)
    return BFloat16FromFloat(v);
  else if constexpr (D == DType::kBFloat16)
    return BFloat16FromDouble(static_cast<double>(v));
  else if constexpr (std::is_integral_v<S> && std::is_floating_point_v<T>)
    return ClampToInteger<S>(v);
  else
    return static_cast<S>(v);
}

/// Element i of p.
template <typename T>
T Load(DType t, const void* p, int64_t i) {
  return Visit(t, [=]<DType D, typename S>(Element<D, S> e) {
    return Widen<T>(e, static_cast<const S*>(p)[i]);
  });
}

template <typename T>
void Store(DType t, void* p, int64_t i, T v) {
  Visit(t, [=]<DType D, typename S>(Element<D, S> e) { static_cast<S*>(p)[i] = Narrow<T>(e, v); });
}

/// out[j] = element first + j * stride of p, j < n.
template <typename T>
void LoadRun(DType t, const void* p, int64_t first, int64_t stride, int64_t n, T* out) {
  Visit(t, [=]<DType D, typename S>(Element<D, S> e) {
    const S* from = static_cast<const S*>(p) + first;
    for (int64_t j = 0; j < n; ++j) out[j] = Widen<T>(e, from[j * stride]);
  });
}

/// Element first + j * stride of p = in[j], j < n.
template <typename T>
void StoreRun(DType t, void* p, int64_t first, int64_t stride, int64_t n, const T* in) {
  Visit(t, [=]<DType D, typename S>(Element<D, S> e) {
    S* to = static_cast<S*>(p) + first;
    for (int64_t j = 0; j < n; ++j) to[j * stride] = Narrow<T>(e, in[j]);
  });
}

template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, float>)
    return DType::kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kFloat64;
  else
    return DType::kInt64;
}

/// A typed view of one operand.
struct ConstTensor {
  DType dtype;
  const void* data;
  template <typename T = double>
  T at(int64_t i) const {
    return Load<T>(dtype, data, i);
  }
  explicit operator bool() const { return data != nullptr; }
};

struct MutableTensor {
  DType dtype;
  void* data;
  template <typename T>
  void set(int64_t i, T v) const {
    Store<T>(dtype, data, i, v);
  }
  explicit operator bool() const { return data != nullptr; }
};

/// Hands out pieces of a kernel's workspace; the same calls on a null base give the size in
/// `bytes`.
class Scratch {
 public:
  explicit Scratch(void* base) : base_(static_cast<std::byte*>(base)) {}
  template <typename T>
  T* Take(int64_t n) {
    T* piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ += (n * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    return piece;
  }
  /// The whole operand as T: itself when it is stored so, else widened into the workspace.
  template <typename T>
  const T* TakeWidened(const TensorDesc& desc, const void* data) {
    if (desc.dtype == DTypeOf<T>()) return static_cast<const T*>(data);
    T* copy = Take<T>(desc.elements());
    if (copy != nullptr) LoadRun<T>(desc.dtype, data, 0, 1, desc.elements(), copy);
    return copy;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

}  // namespace ampc::ref
