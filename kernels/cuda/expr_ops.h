// SPDX-License-Identifier: Apache-2.0
#pragma once
// The operators of elementwise programs on the device, with the meaning that kernels/expr_eval.h
// gives them. (That header speaks of Status and cannot be read by nvcc; the emulation test holds
// the two together, bit for bit, over every operator.) T is float, double or int64_t.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/elements.h"

namespace ampc::cuda {

/// ExprOp of kernels/expr.h, from the same list.
enum class Op : uint8_t {
#define EXPR_OP(name, arity, text) k##name,
#include "kernels/expr.def"
#undef EXPR_OP
};

namespace ops {

template <typename T>
constexpr bool kIsInt = std::is_integral_v<T>;

// Integers wrap around: through unsigned, where that is defined.
__device__ inline uint64_t U(int64_t v) { return static_cast<uint64_t>(v); }
__device__ inline int64_t S(uint64_t v) { return static_cast<int64_t>(v); }

template <typename T>
__device__ inline T Add(T a, T b) {
  if constexpr (kIsInt<T>)
    return S(U(a) + U(b));
  else
    return a + b;
}
template <typename T>
__device__ inline T Sub(T a, T b) {
  if constexpr (kIsInt<T>)
    return S(U(a) - U(b));
  else
    return a - b;
}
template <typename T>
__device__ inline T Mul(T a, T b) {
  if constexpr (kIsInt<T>)
    return S(U(a) * U(b));
  else
    return a * b;
}
template <typename T>
__device__ inline T Neg(T a) {
  if constexpr (kIsInt<T>)
    return S(-U(a));
  else
    return -a;
}
template <typename T>
__device__ inline T Div(T a, T b) {
  if constexpr (kIsInt<T>)
    return b == 0 ? 0 : b == -1 ? Neg(a) : a / b;
  else
    return a / b;
}
template <typename T>
__device__ inline T Fmod(T a, T b) {
  if constexpr (kIsInt<T>)
    return b == 0 || b == -1 ? 0 : a % b;
  else
    return std::fmod(a, b);
}
template <typename T>
__device__ inline T Mod(T a, T b) {
  const T r = Fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? Add(r, b) : r;
}
template <typename T>
__device__ inline T Min(T a, T b) {
  return a < b || a != a ? a : b;
}
template <typename T>
__device__ inline T Max(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T>
__device__ inline T Abs(T a) {
  if constexpr (kIsInt<T>)
    return a < 0 ? Neg(a) : a;
  else
    return std::fabs(a);
}
template <typename T>
__device__ inline T Sign(T a) {
  if constexpr (kIsInt<T>)
    return (a > 0) - (a < 0);
  else
    return a > 0 ? T{1} : a < 0 ? T{-1} : a != a ? a : T{0};
}
template <typename T>
__device__ inline T Pow(T a, T b) {
  if constexpr (kIsInt<T>) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) != 0 ? -1 : 1) : 0;
    uint64_t base = U(a), result = 1;
    for (uint64_t e = U(b); e != 0; e >>= 1) {
      if ((e & 1) != 0) result *= base;
      base *= base;
    }
    return S(result);
  } else {
    return std::pow(a, b);
  }
}
template <typename T>
__device__ inline T Sigmoid(T a) {  // exp of a non-positive number cannot overflow
  const T e = std::exp(-std::fabs(a));
  return (a < 0 ? e : T{1}) / (T{1} + e);
}
template <typename T>
__device__ inline T Floor(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else
    return std::floor(a);
}
template <typename T>
__device__ inline T Ceil(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else
    return std::ceil(a);
}
template <typename T>
__device__ inline T Round(T a) {  // half to even: the default rounding mode
  if constexpr (kIsInt<T>)
    return a;
  else
    return std::nearbyint(a);
}
template <typename T>
__device__ inline bool IsInf(T a) {
  if constexpr (kIsInt<T>)
    return false;
  else
    return std::fabs(a) == std::numeric_limits<T>::infinity();
}
template <typename T>
__device__ inline T RoundHalf(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else
    return static_cast<T>(FloatFromHalfBits(HalfBits(a)));
}
template <typename T>
__device__ inline T RoundBf16(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else
    return static_cast<T>(FloatFromBf16Bits(Bf16Bits(a)));
}
/// f on the bits of an int64.
template <typename T, typename F>
__device__ inline T Bits(const F& f, T a, T b) {
  if constexpr (kIsInt<T>)
    return S(f(U(a), U(b)));
  else
    return static_cast<T>(S(f(U(ClampToInteger<int64_t>(a)), U(ClampToInteger<int64_t>(b)))));
}
__device__ inline uint64_t ShiftLeft(uint64_t a, uint64_t b) { return b < 64 ? a << b : 0; }
__device__ inline uint64_t ShiftRight(uint64_t a, uint64_t b) {
  return U(S(a) >> (b < 64 ? b : 63));
}
template <typename T>
__device__ inline T RoundFloat(T a) {
  if constexpr (std::is_same_v<T, double>)
    return static_cast<double>(static_cast<float>(a));
  else
    return a;
}

}  // namespace ops
}  // namespace ampc::cuda
