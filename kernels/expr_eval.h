// SPDX-License-Identifier: Apache-2.0
#pragma once
// Evaluator of elementwise programs, for every CPU kernel that runs one.
//
//   EvalBlock<T>(program, inputs, outputs, n, scratch)      T = float, double or int64_t
//
// runs each instruction over a block of n <= kExprBlock elements in a plain loop that the compiler
// vectorises; intermediate blocks live in `scratch` (ExprScratchSize(program) elements of T),
// reused by liveness, so that a program of usual size stays in the L1 cache. inputs[i] is the block
// of x_i (may be null when unused), outputs[j] the one of y_j. An output may be the same block as
// any input; blocks never overlap partly, and outputs are distinct.
//
// float and double: IEEE arithmetic, one rounding per operation, no contraction; functions are the
// C library's (<= 2 ulp). min and max pass NaN on. int64: wraps around, division truncates towards
// zero, x / 0 = 0, mod takes the divisor's sign, functions are computed in double and truncated
// (clamped to the range, NaN -> 0), the roundings do nothing.
//
// The header is compiled once per instruction set (a backend may build a file for AVX2), so its
// code lives in an inline namespace named after the set and calls no library templates: the linker
// never mixes the sets.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/expr.h"
#include "runtime/base/float16.h"

namespace ampc {

/// Elements per block.
inline constexpr int64_t kExprBlock = 256;

/// Elements of T that EvalBlock needs as scratch.
inline int64_t ExprScratchSize(const ExprProgram& program) {
  return program.num_slots * kExprBlock;
}

#if defined(__AVX512F__)
#define AMPC_EXPR_ISA isa_avx512
#elif defined(__AVX2__)
#define AMPC_EXPR_ISA isa_avx2
#else
#define AMPC_EXPR_ISA isa_base
#endif

inline namespace AMPC_EXPR_ISA {

/// double or float -> integer type D without undefined behaviour: NaN -> 0, clamped to the range,
/// truncated.
template <typename D, typename S>
inline D ClampToInteger(S value) {
  constexpr S kLow = static_cast<S>(std::numeric_limits<D>::min());
  constexpr S kHigh = static_cast<S>(std::numeric_limits<D>::max());  // may round up to 2^k
  if (!(value > kLow)) return value <= kLow ? std::numeric_limits<D>::min() : D{0};
  return value >= kHigh ? std::numeric_limits<D>::max() : static_cast<D>(value);
}

namespace expr_internal {

// ---- operators on one element

template <typename T>
constexpr bool kIsInt = std::is_integral_v<T>;

/// Integer operations wrap: through unsigned, where that is defined.
inline uint64_t U(int64_t v) { return static_cast<uint64_t>(v); }
inline int64_t S(uint64_t v) { return static_cast<int64_t>(v); }

template <typename T>
T Add(T a, T b) {
  if constexpr (kIsInt<T>)
    return S(U(a) + U(b));
  else
    return a + b;
}
template <typename T>
T Sub(T a, T b) {
  if constexpr (kIsInt<T>)
    return S(U(a) - U(b));
  else
    return a - b;
}
template <typename T>
T Mul(T a, T b) {
  if constexpr (kIsInt<T>)
    return S(U(a) * U(b));
  else
    return a * b;
}
template <typename T>
T Neg(T a) {
  if constexpr (kIsInt<T>)
    return S(-U(a));
  else
    return -a;
}
template <typename T>
T Div(T a, T b) {
  if constexpr (kIsInt<T>)
    return b == 0 ? 0 : b == -1 ? Neg(a) : a / b;
  else
    return a / b;
}
template <typename T>
T Fmod(T a, T b) {
  if constexpr (kIsInt<T>)
    return b == 0 || b == -1 ? 0 : a % b;
  else
    return std::fmod(a, b);
}
template <typename T>
T Mod(T a, T b) {
  const T r = Fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
template <typename T>
T Min(T a, T b) {
  return a < b || a != a ? a : b;
}
template <typename T>
T Max(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T>
T Abs(T a) {
  if constexpr (kIsInt<T>)
    return a < 0 ? Neg(a) : a;
  else
    return std::fabs(a);
}
template <typename T>
T Sign(T a) {
  if constexpr (kIsInt<T>)
    return (a > 0) - (a < 0);
  else
    return a > 0 ? T{1} : a < 0 ? T{-1} : a != a ? a : T{0};
}
template <typename T>
T Pow(T a, T b) {
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
T Sigmoid(T a) {  // exp of a non-positive number cannot overflow
  const T e = std::exp(-std::fabs(a));
  return (a < 0 ? e : T{1}) / (T{1} + e);
}
template <typename T>
T Floor(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else
    return std::floor(a);
}
template <typename T>
T Ceil(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else
    return std::ceil(a);
}
template <typename T>
T Round(T a) {  // half to even: the default rounding mode
  if constexpr (kIsInt<T>)
    return a;
  else
    return std::nearbyint(a);
}
template <typename T>
bool IsInf(T a) {
  if constexpr (kIsInt<T>)
    return false;
  else
    return std::fabs(a) == std::numeric_limits<T>::infinity();
}
template <typename T>
T RoundHalf(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else if constexpr (std::is_same_v<T, double>)
    return static_cast<double>(FloatFromHalf(HalfFromDouble(a)));
  else
    return FloatFromHalf(HalfFromFloat(a));
}
template <typename T>
T RoundBf16(T a) {
  if constexpr (kIsInt<T>)
    return a;
  else if constexpr (std::is_same_v<T, double>)
    return static_cast<double>(FloatFromBFloat16(BFloat16FromDouble(a)));
  else
    return FloatFromBFloat16(BFloat16FromFloat(a));
}
/// f on the bits of an int64.
template <typename T, typename F>
T Bits(F f, T a, T b) {
  if constexpr (kIsInt<T>)
    return S(f(U(a), U(b)));
  else
    return static_cast<T>(S(f(U(ClampToInteger<int64_t>(a)), U(ClampToInteger<int64_t>(b)))));
}
inline uint64_t ShiftLeft(uint64_t a, uint64_t b) { return b < 64 ? a << b : 0; }
inline uint64_t ShiftRight(uint64_t a, uint64_t b) { return U(S(a) >> (b < 64 ? b : 63)); }
template <typename T>
T RoundFloat(T a) {
  if constexpr (std::is_same_v<T, double>)
    return static_cast<double>(static_cast<float>(a));
  else
    return a;
}

// ---- operands and loops

template <typename T>
struct Block {
  const T* p;
  T operator[](int64_t i) const { return p[i]; }
};
template <typename T>
struct Splat {
  T v;
  T operator[](int64_t) const { return v; }
};

/// A register as an operand: a block, or one constant.
template <typename T>
struct Operand {
  const T* block;
  T constant;
};

// `out` may be one of the operands' blocks: the same element is read before it is written, which is
// what ivdep tells the compiler.
template <typename T, typename F, typename A>
void Loop(F f, A a, T* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i]);
}
template <typename T, typename F, typename A, typename B>
void Loop(F f, A a, B b, T* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
}
template <typename T, typename F, typename A, typename B>
void Loop(F f, const T* c, A a, B b, T* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = f(c[i], a[i], b[i]);
}

template <typename T, typename F>
void Apply(F f, Operand<T> a, Operand<T> b, T* out, int64_t n) {
  if (a.block == nullptr) {
    Loop<T>(f, Splat<T>{a.constant}, Block<T>{b.block}, out, n);
  } else if (b.block == nullptr) {
    Loop<T>(f, Block<T>{a.block}, Splat<T>{b.constant}, out, n);
  } else {
    Loop<T>(f, Block<T>{a.block}, Block<T>{b.block}, out, n);
  }
}

template <typename T>
void ApplyWhere(const T* c, Operand<T> a, Operand<T> b, T* out, int64_t n) {
  const auto f = [](T cond, T x, T y) { return cond != 0 ? x : y; };
  if (a.block == nullptr && b.block == nullptr) {
    Loop<T>(f, c, Splat<T>{a.constant}, Splat<T>{b.constant}, out, n);
  } else if (a.block == nullptr) {
    Loop<T>(f, c, Splat<T>{a.constant}, Block<T>{b.block}, out, n);
  } else if (b.block == nullptr) {
    Loop<T>(f, c, Block<T>{a.block}, Splat<T>{b.constant}, out, n);
  } else {
    Loop<T>(f, c, Block<T>{a.block}, Block<T>{b.block}, out, n);
  }
}

/// A function of the C library: in T, or for integers in double.
template <typename T, typename F>
void Function(F f, const T* a, T* out, int64_t n) {
  if constexpr (kIsInt<T>) {
    Loop<T>([f](T v) { return ClampToInteger<T>(f(static_cast<double>(v))); }, Block<T>{a}, out, n);
  } else {
    Loop<T>(f, Block<T>{a}, out, n);
  }
}

template <typename T>
T FromConstant(double v) {
  if constexpr (kIsInt<T>)
    return ClampToInteger<T>(v);
  else
    return static_cast<T>(v);
}

template <typename T>
struct Evaluator {
  const ExprProgram& program;
  const T* const* inputs;
  T* const* outputs;
  T* scratch;
  int64_t n;

  Operand<T> Get(int32_t reg) const {
    const ExprInstr& instr = program.code[reg];
    if (instr.op == ExprOp::kConst) return {nullptr, FromConstant<T>(instr.constant)};
    if (instr.slot == -1) return {inputs[instr.a], T{}};
    return {Target(instr), T{}};
  }
  T* Target(const ExprInstr& instr) const {
    return instr.slot >= 0 ? scratch + instr.slot * kExprBlock : outputs[-2 - instr.slot];
  }

  void Run(const ExprInstr& instr) const {
    if (instr.op == ExprOp::kConst || instr.slot == -1) return;
    T* out = Target(instr);
    const auto binary = [&](auto f) { Apply<T>(f, Get(instr.a), Get(instr.b), out, n); };
    const auto unary = [&](auto f) { Loop<T>(f, Block<T>{Get(instr.a).block}, out, n); };
    const auto function = [&](auto f) { Function<T>(f, Get(instr.a).block, out, n); };
    constexpr T kOne{1}, kZero{0};
    // clang-format off
    switch (instr.op) {
      case ExprOp::kInput: return Loop<T>([](T v) { return v; }, Block<T>{inputs[instr.a]}, out, n);
      case ExprOp::kConst: return;
      case ExprOp::kAdd: return binary([](T a, T b) { return Add(a, b); });
      case ExprOp::kSub: return binary([](T a, T b) { return Sub(a, b); });
      case ExprOp::kMul: return binary([](T a, T b) { return Mul(a, b); });
      case ExprOp::kDiv: return binary([](T a, T b) { return Div(a, b); });
      case ExprOp::kNeg: return unary([](T a) { return Neg(a); });
      case ExprOp::kLt: return binary([=](T a, T b) { return a < b ? kOne : kZero; });
      case ExprOp::kLe: return binary([=](T a, T b) { return a <= b ? kOne : kZero; });
      case ExprOp::kGt: return binary([=](T a, T b) { return a > b ? kOne : kZero; });
      case ExprOp::kGe: return binary([=](T a, T b) { return a >= b ? kOne : kZero; });
      case ExprOp::kEq: return binary([=](T a, T b) { return a == b ? kOne : kZero; });
      case ExprOp::kNe: return binary([=](T a, T b) { return a != b ? kOne : kZero; });
      case ExprOp::kAnd: return binary([=](T a, T b) { return (a != 0) & (b != 0) ? kOne : kZero; });
      case ExprOp::kOr: return binary([=](T a, T b) { return (a != 0) | (b != 0) ? kOne : kZero; });
      case ExprOp::kNot: return unary([=](T a) { return a == 0 ? kOne : kZero; });
      case ExprOp::kWhere: return ApplyWhere<T>(Get(instr.a).block, Get(instr.b), Get(instr.c), out, n);
      case ExprOp::kMin: return binary([](T a, T b) { return Min(a, b); });
      case ExprOp::kMax: return binary([](T a, T b) { return Max(a, b); });
      case ExprOp::kPow: return binary([](T a, T b) { return Pow(a, b); });
      case ExprOp::kMod: return binary([](T a, T b) { return Mod(a, b); });
      case ExprOp::kFmod: return binary([](T a, T b) { return Fmod(a, b); });
      case ExprOp::kAbs: return unary([](T a) { return Abs(a); });
      case ExprOp::kSign: return unary([](T a) { return Sign(a); });
      case ExprOp::kExp: return function([](auto a) { return std::exp(a); });
      case ExprOp::kLog: return function([](auto a) { return std::log(a); });
      case ExprOp::kLog1p: return function([](auto a) { return std::log1p(a); });
      case ExprOp::kExpm1: return function([](auto a) { return std::expm1(a); });
      case ExprOp::kSqrt: return function([](auto a) { return std::sqrt(a); });
      case ExprOp::kSin: return function([](auto a) { return std::sin(a); });
      case ExprOp::kCos: return function([](auto a) { return std::cos(a); });
      case ExprOp::kTan: return function([](auto a) { return std::tan(a); });
      case ExprOp::kAsin: return function([](auto a) { return std::asin(a); });
      case ExprOp::kAcos: return function([](auto a) { return std::acos(a); });
      case ExprOp::kAtan: return function([](auto a) { return std::atan(a); });
      case ExprOp::kSinh: return function([](auto a) { return std::sinh(a); });
      case ExprOp::kCosh: return function([](auto a) { return std::cosh(a); });
      case ExprOp::kTanh: return function([](auto a) { return std::tanh(a); });
      case ExprOp::kAsinh: return function([](auto a) { return std::asinh(a); });
      case ExprOp::kAcosh: return function([](auto a) { return std::acosh(a); });
      case ExprOp::kAtanh: return function([](auto a) { return std::atanh(a); });
      case ExprOp::kErf: return function([](auto a) { return std::erf(a); });
      case ExprOp::kSigmoid: return function([](auto a) { return Sigmoid(a); });
      case ExprOp::kFloor: return unary([](T a) { return Floor(a); });
      case ExprOp::kCeil: return unary([](T a) { return Ceil(a); });
      case ExprOp::kRound: return unary([](T a) { return Round(a); });
      case ExprOp::kIsNan: return unary([=](T a) { return a != a ? kOne : kZero; });
      case ExprOp::kIsInf: return unary([=](T a) { return IsInf(a) ? kOne : kZero; });
      case ExprOp::kRoundFp32: return unary([](T a) { return RoundFloat(a); });
      case ExprOp::kRoundFp16: return unary([](T a) { return RoundHalf(a); });
      case ExprOp::kRoundBf16: return unary([](T a) { return RoundBf16(a); });
      case ExprOp::kBitwiseAnd: return binary([](T a, T b) { return Bits([](uint64_t x, uint64_t y) { return x & y; }, a, b); });
      case ExprOp::kBitwiseOr: return binary([](T a, T b) { return Bits([](uint64_t x, uint64_t y) { return x | y; }, a, b); });
      case ExprOp::kBitwiseXor: return binary([](T a, T b) { return Bits([](uint64_t x, uint64_t y) { return x ^ y; }, a, b); });
      case ExprOp::kBitwiseNot: return unary([](T a) { return Bits([](uint64_t x, uint64_t) { return ~x; }, a, a); });
      case ExprOp::kShiftLeft: return binary([](T a, T b) { return Bits([](uint64_t x, uint64_t y) { return ShiftLeft(x, y); }, a, b); });
      case ExprOp::kShiftRight: return binary([](T a, T b) { return Bits([](uint64_t x, uint64_t y) { return ShiftRight(x, y); }, a, b); });
    }
    // clang-format on
  }

  /// Values that are not already in their place.
  void CopyOutputs() const {
    for (size_t j = 0; j < program.outputs.size(); ++j) {
      const Operand<T> from = Get(program.outputs[j]);
      if (from.block == nullptr) {
        Loop<T>([](T v) { return v; }, Splat<T>{from.constant}, outputs[j], n);
      } else if (from.block != outputs[j]) {
        Loop<T>([](T v) { return v; }, Block<T>{from.block}, outputs[j], n);
      }
    }
  }
};

}  // namespace expr_internal

template <typename T>
void EvalBlock(const ExprProgram& program, const T* const* inputs, T* const* outputs, int64_t n,
               T* scratch) {
  const expr_internal::Evaluator<T> evaluator{program, inputs, outputs, scratch, n};
  for (const ExprInstr& instr : program.code) evaluator.Run(instr);
  evaluator.CopyOutputs();
}

}  // namespace AMPC_EXPR_ISA
}  // namespace ampc
