// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp16 and bf16 as bits: conversions that give the same bits on every machine.
//
// Narrowing rounds once, to nearest even, and overflows to infinity (it never saturates);
// subnormals are kept; a NaN stays a NaN (made quiet, upper payload bits kept, as the F16C
// instructions do). Widening is exact; fp16 widening makes NaNs quiet, bf16 widening is a plain
// shift. Scalars use integer arithmetic only, so that rounding mode and flush-to-zero flags of the
// caller do not matter. The array forms choose AVX-512, AVX2 + F16C or the scalar code at run time
// and give exactly the bits of the scalars.

#include <bit>
#include <cstdint>

namespace ampc {

inline uint16_t HalfFromFloat(float value) {
  uint32_t x = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (x >> 16) & 0x8000u;
  x &= 0x7FFFFFFFu;
  uint32_t half;
  if (x > 0x7F800000u) {
    half = 0x7E00u | ((x >> 13) & 0x3FFu);
  } else if (x >= 0x477FF000u) {  // 65520, half-way between the largest half and 2^16, rounds up
    half = 0x7C00u;
  } else if (x >= 0x38800000u) {  // 2^-14, the smallest normal half
    half = (x - 0x38000000u + 0xFFFu + ((x >> 13) & 1u)) >> 13;
  } else if (x <=
             0x33000000u) {  // up to 2^-25, half of the smallest subnormal (a tie: to even, zero)
    half = 0;
  } else {
    const uint32_t shift = 126u - (x >> 23);
    const uint32_t mantissa = (x & 0x7FFFFFu) | 0x800000u;
    const uint32_t kept = mantissa >> shift;
    half =
        kept + (((mantissa & ((1u << shift) - 1u)) + (kept & 1u)) > (1u << (shift - 1u)) ? 1u : 0u);
  }
  return static_cast<uint16_t>(sign | half);
}

inline float FloatFromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  uint32_t x;
  if (exponent == 0x1F) {
    x = 0x7F800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u);
  } else if (exponent != 0) {
    x = ((exponent + 112u) << 23) | (mantissa << 13);
  } else if (mantissa != 0) {  // subnormal: shift the leading one up to the hidden bit
    const uint32_t shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21u;
    x = ((113u - shift) << 23) | (((mantissa << shift) & 0x3FFu) << 13);
  } else {
    x = 0;
  }
  return std::bit_cast<float>(sign | x);
}

inline uint16_t BFloat16FromFloat(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  if ((x & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((x >> 16) | 0x40u);
  return static_cast<uint16_t>((x + 0x7FFFu + ((x >> 16) & 1u)) >> 16);
}

inline float FloatFromBFloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

/// double -> float rounded to odd: truncated, and the last bit set when anything was lost. A second
/// rounding to a format with at least two bits less then gives what one rounding from the double
/// would have given.
inline float FloatRoundedToOdd(double value) {
  const uint64_t x = std::bit_cast<uint64_t>(value);
  const uint32_t sign = static_cast<uint32_t>(x >> 32) & 0x80000000u;
  const int64_t exponent = static_cast<int64_t>((x >> 52) & 0x7FFu) - (1023 - 127);
  const uint64_t mantissa = x & 0xFFFFFFFFFFFFFu;
  uint32_t bits;
  if (exponent == 0x7FF - (1023 - 127)) {  // infinity, or NaN with its upper payload
    bits = 0x7F800000u | static_cast<uint32_t>(mantissa >> 29) | (mantissa != 0 ? 0x400000u : 0u);
  } else if (exponent >= 255) {
    bits = 0x7F7FFFFFu;  // the largest float is odd and beyond every half-way point to infinity
  } else {
    const int64_t shift = exponent > 0 ? 29 : 30 - exponent;
    const uint64_t full =
        exponent > 0 ? (static_cast<uint64_t>(exponent) << 52) | mantissa : mantissa | (1ull << 52);
    if (shift > 63) {
      bits = (x << 1) != 0 ? 1u : 0u;
    } else {
      bits =
          static_cast<uint32_t>(full >> shift) | ((full & ((1ull << shift) - 1u)) != 0 ? 1u : 0u);
    }
  }
  return std::bit_cast<float>(sign | bits);
}

/// One rounding from the double, not two.
inline uint16_t HalfFromDouble(double value) { return HalfFromFloat(FloatRoundedToOdd(value)); }
inline uint16_t BFloat16FromDouble(double value) {
  return BFloat16FromFloat(FloatRoundedToOdd(value));
}

// Arrays. `in` and `out` do not overlap; no alignment needed; one thread.
void HalfToFloat(const uint16_t* in, float* out, int64_t n);
void FloatToHalf(const float* in, uint16_t* out, int64_t n);
void BFloat16ToFloat(const uint16_t* in, float* out, int64_t n);
void FloatToBFloat16(const float* in, uint16_t* out, int64_t n);

/// The same with the choice made by the caller, for tests and benchmarks. Only sets that
/// Float16IsaSupported() accepts.
enum class Float16Isa : uint8_t { kScalar, kAvx2, kAvx512 };
bool Float16IsaSupported(Float16Isa isa);
void HalfToFloat(const uint16_t* in, float* out, int64_t n, Float16Isa isa);
void FloatToHalf(const float* in, uint16_t* out, int64_t n, Float16Isa isa);
void BFloat16ToFloat(const uint16_t* in, float* out, int64_t n, Float16Isa isa);
void FloatToBFloat16(const float* in, uint16_t* out, int64_t n, Float16Isa isa);

}  // namespace ampc
