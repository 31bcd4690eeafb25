// SPDX-License-Identifier: Apache-2.0
// map: elementwise programs, interpreted.
//
// A thread computes kLanes neighbouring elements, so that decoding an instruction is paid for once
// in four and dense operands move as vectors. The program lies in constant memory, every thread of
// a block is at the same instruction, and a register is a column of shared memory that one thread
// alone uses: indexed by the instruction, without bank conflicts and without barriers. Intermediate
// values never reach global memory.
//
// All inputs of a thread's elements are read before its outputs are written, so an output may
// overwrite an input of the same form. Cheap operators are unrolled over the lanes, functions loop
// over them to keep the code small.

#include "kernels/cuda/map.h"

#include "kernels/cuda/elements.h"
#include "kernels/cuda/expr_ops.h"
#include "kernels/cuda/launch.h"

namespace ampc::cuda {
namespace {

// ---- registers

/// A thread's registers: slot r is column[r * step].
template <typename T>
struct Registers {
  Lanes<T>* column;
  int step;
  const T* constants;

  __device__ Lanes<T>& Slot(int r) const { return column[r * step]; }
  __device__ T Lane(int r, int lane) const { return r >= 0 ? Slot(r).lane[lane] : constants[~r]; }
  __device__ Lanes<T> Get(int r) const {
    if (r >= 0) return Slot(r);
    Lanes<T> all;
    AMPC_UNROLL
    for (int l = 0; l < kLanes; ++l) all.lane[l] = constants[~r];
    return all;
  }

  template <typename F>
  __device__ void Unary(const MapInstr& i, const F& f) const {
    const Lanes<T> a = Get(i.a);
    Lanes<T> out;
    AMPC_UNROLL
    for (int l = 0; l < kLanes; ++l) out.lane[l] = f(a.lane[l]);
    Slot(i.to) = out;
  }
  template <typename F>
  __device__ void Binary(const MapInstr& i, const F& f) const {
    const Lanes<T> a = Get(i.a), b = Get(i.b);
    Lanes<T> out;
    AMPC_UNROLL
    for (int l = 0; l < kLanes; ++l) out.lane[l] = f(a.lane[l], b.lane[l]);
    Slot(i.to) = out;
  }
  /// Binary, for what takes many instructions.
  template <typename F>
  __device__ void LongBinary(const MapInstr& i, const F& f) const {
    AMPC_NO_UNROLL
    for (int l = 0; l < kLanes; ++l) Slot(i.to).lane[l] = f(Lane(i.a, l), Lane(i.b, l));
  }
  /// A mathematical function: in T, or for integers in double.
  template <typename F>
  __device__ void Function(const MapInstr& i, const F& f) const {
    AMPC_NO_UNROLL
    for (int l = 0; l < kLanes; ++l) {
      const T a = Lane(i.a, l);
      if constexpr (ops::kIsInt<T>)
        Slot(i.to).lane[l] = ClampToInteger<T>(f(static_cast<double>(a)));
      else
        Slot(i.to).lane[l] = f(a);
    }
  }
  __device__ void Where(const MapInstr& i) const {
    const Lanes<T> condition = Get(i.a), a = Get(i.b), b = Get(i.c);
    Lanes<T> out;
    AMPC_UNROLL
    for (int l = 0; l < kLanes; ++l)
      out.lane[l] = condition.lane[l] != T{0} ? a.lane[l] : b.lane[l];
    Slot(i.to) = out;
  }
};

// ---- one instruction

template <typename T>
__device__ inline void Execute(const MapParams<T>& p, const MapInstr& i, const Registers<T>& r,
                               int64_t first, int64_t n) {
  constexpr T kOne{1}, kZero{0};
  // clang-format off
  switch (static_cast<Op>(i.op)) {
    case Op::kInput: r.Slot(i.to) = LoadLanes<T>(p.operands[i.a], p.data[i.a], first, n, p.vector); return;
    case Op::kConst: return;  // constants have no instruction
    case Op::kAdd: return r.Binary(i, [](T a, T b) { return ops::Add(a, b); });
    case Op::kSub: return r.Binary(i, [](T a, T b) { return ops::Sub(a, b); });
    case Op::kMul: return r.Binary(i, [](T a, T b) { return ops::Mul(a, b); });
    case Op::kDiv: return r.Binary(i, [](T a, T b) { return ops::Div(a, b); });
    case Op::kNeg: return r.Unary(i, [](T a) { return ops::Neg(a); });
    case Op::kLt: return r.Binary(i, [](T a, T b) { return a < b ? kOne : kZero; });
    case Op::kLe: return r.Binary(i, [](T a, T b) { return a <= b ? kOne : kZero; });
    case Op::kGt: return r.Binary(i, [](T a, T b) { return a > b ? kOne : kZero; });
    case Op::kGe: return r.Binary(i, [](T a, T b) { return a >= b ? kOne : kZero; });
    case Op::kEq: return r.Binary(i, [](T a, T b) { return a == b ? kOne : kZero; });
    case Op::kNe: return r.Binary(i, [](T a, T b) { return a != b ? kOne : kZero; });
    case Op::kAnd: return r.Binary(i, [](T a, T b) { return a != kZero && b != kZero ? kOne : kZero; });
    case Op::kOr: return r.Binary(i, [](T a, T b) { return a != kZero || b != kZero ? kOne : kZero; });
    case Op::kNot: return r.Unary(i, [](T a) { return a == kZero ? kOne : kZero; });
    case Op::kWhere: return r.Where(i);
    case Op::kMin: return r.Binary(i, [](T a, T b) { return ops::Min(a, b); });
    case Op::kMax: return r.Binary(i, [](T a, T b) { return ops::Max(a, b); });
    case Op::kPow: return r.LongBinary(i, [](T a, T b) { return ops::Pow(a, b); });
    case Op::kMod: return r.LongBinary(i, [](T a, T b) { return ops::Mod(a, b); });
    case Op::kFmod: return r.LongBinary(i, [](T a, T b) { return ops::Fmod(a, b); });
    case Op::kAbs: return r.Unary(i, [](T a) { return ops::Abs(a); });
    case Op::kSign: return r.Unary(i, [](T a) { return ops::Sign(a); });
    case Op::kExp: return r.Function(i, [](auto a) { return std::exp(a); });
    case Op::kLog: return r.Function(i, [](auto a) { return std::log(a); });
    case Op::kLog1p: return r.Function(i, [](auto a) { return std::log1p(a); });
    case Op::kExpm1: return r.Function(i, [](auto a) { return std::expm1(a); });
    case Op::kSqrt: return r.Function(i, [](auto a) { return std::sqrt(a); });
    case Op::kSin: return r.Function(i, [](auto a) { return std::sin(a); });
    case Op::kCos: return r.Function(i, [](auto a) { return std::cos(a); });
    case Op::kTan: return r.Function(i, [](auto a) { return std::tan(a); });
    case Op::kAsin: return r.Function(i, [](auto a) { return std::asin(a); });
    case Op::kAcos: return r.Function(i, [](auto a) { return std::acos(a); });
    case Op::kAtan: return r.Function(i, [](auto a) { return std::atan(a); });
    case Op::kSinh: return r.Function(i, [](auto a) { return std::sinh(a); });
    case Op::kCosh: return r.Function(i, [](auto a) { return std::cosh(a); });
    case Op::kTanh: return r.Function(i, [](auto a) { return std::tanh(a); });
    case Op::kAsinh: return r.Function(i, [](auto a) { return std::asinh(a); });
    case Op::kAcosh: return r.Function(i, [](auto a) { return std::acosh(a); });
    case Op::kAtanh: return r.Function(i, [](auto a) { return std::atanh(a); });
    case Op::kErf: return r.Function(i, [](auto a) { return std::erf(a); });
    case Op::kSigmoid: return r.Function(i, [](auto a) { return ops::Sigmoid(a); });
    case Op::kFloor: return r.Unary(i, [](T a) { return ops::Floor(a); });
    case Op::kCeil: return r.Unary(i, [](T a) { return ops::Ceil(a); });
    case Op::kRound: return r.Unary(i, [](T a) { return ops::Round(a); });
    case Op::kIsNan: return r.Unary(i, [](T a) { return a != a ? kOne : kZero; });
    case Op::kIsInf: return r.Unary(i, [](T a) { return ops::IsInf(a) ? kOne : kZero; });
    case Op::kRoundFp32: return r.Unary(i, [](T a) { return ops::RoundFloat(a); });
    case Op::kRoundFp16: return r.Unary(i, [](T a) { return ops::RoundHalf(a); });
    case Op::kRoundBf16: return r.Unary(i, [](T a) { return ops::RoundBf16(a); });
    case Op::kBitwiseAnd: return r.Binary(i, [](T a, T b) { return ops::Bits([](uint64_t x, uint64_t y) { return x & y; }, a, b); });
    case Op::kBitwiseOr: return r.Binary(i, [](T a, T b) { return ops::Bits([](uint64_t x, uint64_t y) { return x | y; }, a, b); });
    case Op::kBitwiseXor: return r.Binary(i, [](T a, T b) { return ops::Bits([](uint64_t x, uint64_t y) { return x ^ y; }, a, b); });
    case Op::kBitwiseNot: return r.Unary(i, [](T a) { return ops::Bits([](uint64_t x, uint64_t) { return ~x; }, a, a); });
    case Op::kShiftLeft: return r.Binary(i, [](T a, T b) { return ops::Bits([](uint64_t x, uint64_t y) { return ops::ShiftLeft(x, y); }, a, b); });
    case Op::kShiftRight: return r.Binary(i, [](T a, T b) { return ops::Bits([](uint64_t x, uint64_t y) { return ops::ShiftRight(x, y); }, a, b); });
  }
  // clang-format on
}

// ---- kernels

template <typename T>
__global__ void __launch_bounds__(kThreads) Map(const __grid_constant__ MapParams<T> p) {
  const int64_t first = ThreadNumber() * kLanes;
  if (first >= p.elements) return;
  const int64_t n = p.elements - first < kLanes ? p.elements - first : kLanes;
  const Registers<T> registers{reinterpret_cast<Lanes<T>*>(DynamicShared()) + threadIdx.x,
                               static_cast<int>(blockDim.x), p.constants};
  for (int i = 0; i < p.num_instrs; ++i) Execute(p, p.code[i], registers, first, n);
  for (int k = 0; k < p.num_outputs; ++k) {
    const int operand = p.num_inputs + k;
    StoreLanes<T>(p.operands[operand], p.data[operand], first, n, p.vector,
                  registers.Get(p.results[k]));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) Cast(const __grid_constant__ MapParams<T> p) {
  const int64_t first = ThreadNumber() * kLanes;
  if (first >= p.elements) return;
  const int64_t n = p.elements - first < kLanes ? p.elements - first : kLanes;
  StoreLanes<T>(p.operands[1], p.data[1], first, n, p.vector,
                LoadLanes<T>(p.operands[0], p.data[0], first, n, p.vector));
}

// ---- launchers

constexpr int64_t ThreadsFor(int64_t elements) { return (elements + kLanes - 1) / kLanes; }

template <typename T>
void DoLaunchMap(const MapParams<T>& p, int threads, void* stream) {
  const int64_t shared = MapSharedBytes(p.num_slots, threads, sizeof(T));
  Launch(Map<T>, p, ThreadsFor(p.elements), threads, static_cast<size_t>(shared), stream);
}

template <typename T>
void DoLaunchCast(const MapParams<T>& p, void* stream) {
  Launch(Cast<T>, p, ThreadsFor(p.elements), kThreads, 0, stream);
}

}  // namespace

void LaunchMap(const MapParams<float>& p, int threads, void* stream) {
  DoLaunchMap(p, threads, stream);
}
void LaunchMap(const MapParams<double>& p, int threads, void* stream) {
  DoLaunchMap(p, threads, stream);
}
void LaunchMap(const MapParams<int64_t>& p, int threads, void* stream) {
  DoLaunchMap(p, threads, stream);
}

void LaunchCast(const MapParams<float>& p, void* stream) { DoLaunchCast(p, stream); }
void LaunchCast(const MapParams<double>& p, void* stream) { DoLaunchCast(p, stream); }
void LaunchCast(const MapParams<int64_t>& p, void* stream) { DoLaunchCast(p, stream); }

}  // namespace ampc::cuda
