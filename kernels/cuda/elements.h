// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of any dtype on the device, read into and written from the type T that a kernel computes
// in (float, double or int64_t), by the rules of kernels/ref/elements.h: reading is exact where T
// can hold the value; writing rounds once, to nearest even, fp16 overflowing to infinity; float ->
// integer truncates and clamps, NaN -> 0; integer -> narrower integer wraps; bool is "not zero".
// fp16 and bf16 are converted by the hardware, so a NaN loses its payload.

#include <limits>
#include <type_traits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/operand.h"

namespace ampc::cuda {

// ---- fp16 and bf16, as bits

__device__ inline float FloatFromHalfBits(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ inline float FloatFromBf16Bits(uint16_t bits) {
  return __bfloat162float(__ushort_as_bfloat16(bits));
}
__device__ inline uint16_t HalfBits(float v) { return __half_as_ushort(__float2half_rn(v)); }
__device__ inline uint16_t HalfBits(double v) { return __half_as_ushort(__double2half(v)); }
__device__ inline uint16_t Bf16Bits(float v) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(v));
}
__device__ inline uint16_t Bf16Bits(double v) { return __bfloat16_as_ushort(__double2bfloat16(v)); }

// ---- conversions

/// A dtype as a type, with the type of its bytes.
template <DType D, typename S>
struct Element {
  using Storage = S;
};

/// f(Element<…>{}) for the dtype `t`. All threads take the same branch.
template <typename F>
__device__ inline void Visit(DType t, const F& f) {
  switch (t) {
    case DType::kNone:
      return;
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
    case DType::kUInt8:
      return f(Element<DType::kUInt8, uint8_t>{});
    case DType::kUInt16:
      return f(Element<DType::kUInt16, uint16_t>{});
    case DType::kUInt32:
      return f(Element<DType::kUInt32, uint32_t>{});
    case DType::kUInt64:
      return f(Element<DType::kUInt64, uint64_t>{});
    case DType::kBool:
      return f(Element<DType::kBool, uint8_t>{});
  }
}

/// float or double -> integer D: NaN -> 0, clamped to the range, truncated.
template <typename D, typename S>
__device__ inline D ClampToInteger(S value) {
  constexpr D kMin = std::numeric_limits<D>::min(), kMax = std::numeric_limits<D>::max();
  constexpr S kLow = static_cast<S>(kMin),
              kHigh = static_cast<S>(kMax);  // kHigh may round up to 2^k
  if (!(value > kLow)) return value <= kLow ? kMin : D{0};
  return value >= kHigh ? kMax : static_cast<D>(value);
}

template <typename T, DType D, typename S>
__device__ inline T Widen(Element<D, S>, S v) {
  if constexpr (D == DType::kFloat16)
    return Widen<T>(Element<DType::kFloat32, float>{}, FloatFromHalfBits(v));
  else if constexpr (D == DType::kBFloat16)
    return Widen<T>(Element<DType::kFloat32, float>{}, FloatFromBf16Bits(v));
  else if constexpr (D == DType::kBool)
    return static_cast<T>(v != 0);
  else if constexpr (std::is_floating_point_v<S> && std::is_integral_v<T>)
    return ClampToInteger<T>(v);
  else
    return static_cast<T>(v);
}

template <typename T, DType D, typename S>
__device__ inline S Narrow(Element<D, S>, T v) {
  using Float = std::conditional_t<std::is_same_v<T, float>, float, double>;
  if constexpr (D == DType::kBool)
    return static_cast<S>(v != T{0});
  else if constexpr (D == DType::kFloat16)
    return HalfBits(static_cast<Float>(v));
  else if constexpr (D == DType::kBFloat16)
    return Bf16Bits(static_cast<Float>(v));
  else if constexpr (std::is_integral_v<S> && std::is_floating_point_v<T>)
    return ClampToInteger<S>(v);
  else
    return static_cast<S>(v);
}

// ---- operands

/// kLanes elements that memory moves as one.
template <typename S>
struct alignas(sizeof(S) * kLanes < 16 ? sizeof(S) * kLanes : 16) Lanes {
  S lane[kLanes];
};

/// The single element of a scalar operand.
template <typename T>
__device__ inline T LoadScalar(DType t, const void* p) {
  T value{};
  Visit(t, [&]<DType D, typename S>(Element<D, S> e) {
    value = Widen<T>(e, *static_cast<const S*>(p));
  });
  return value;
}

/// Elements first .. first + n - 1 (n <= kLanes), then zeros. `vector`: dense operands are aligned
/// (AllowsVectors).
template <typename T>
__device__ inline Lanes<T> LoadLanes(const Operand& x, const void* p, int64_t first, int64_t n,
                                     bool vector) {
  Lanes<T> out;
  Visit(x.dtype, [&]<DType D, typename S>(Element<D, S> e) {
    const S* from = static_cast<const S*>(p);
    if (x.form == Form::kDense && vector && n == kLanes) {
      const Lanes<S> raw = *reinterpret_cast<const Lanes<S>*>(from + first);
      AMPC_UNROLL
      for (int l = 0; l < kLanes; ++l) out.lane[l] = Widen<T>(e, raw.lane[l]);
    } else {
      AMPC_UNROLL
      for (int l = 0; l < kLanes; ++l)
        out.lane[l] = l < n ? Widen<T>(e, from[x.At(first + l)]) : T{0};
    }
  });
  return out;
}

template <typename T>
__device__ inline void StoreLanes(const Operand& y, void* p, int64_t first, int64_t n, bool vector,
                                  const Lanes<T>& in) {
  Visit(y.dtype, [&]<DType D, typename S>(Element<D, S> e) {
    S* to = static_cast<S*>(p);
    Lanes<S> raw;
    AMPC_UNROLL
    for (int l = 0; l < kLanes; ++l) raw.lane[l] = Narrow<T>(e, in.lane[l]);
    if (y.form == Form::kDense && vector && n == kLanes) {
      *reinterpret_cast<Lanes<S>*>(to + first) = raw;
    } else {
      AMPC_UNROLL
      for (int l = 0; l < kLanes; ++l) {
        if (l < n) to[y.At(first + l)] = raw.lane[l];
      }
    }
  });
}

}  // namespace ampc::cuda
