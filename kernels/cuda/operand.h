// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a kernel finds the elements of an operand, as plain data that travels in the parameters of a
// launch.
//
// Threads number the elements in the memory order of the outputs. Each operand has a walk of its
// own through that order, with axes merged where it takes them as one: a bias needs two axes,
// however many the tensor has. The functions are constexpr so that nvcc (with
// --expt-relaxed-constexpr) compiles them for the device as well. axes.h makes the walks.

#include <cstdint>

#include "runtime/base/dtype.h"

namespace ampc::cuda {

/// Axes of a walk after merging. More have not been seen; calls that need them are declined.
inline constexpr int kMaxAxes = 8;

/// Elements that a thread of an elementwise kernel computes: a vector of 4 floats is one memory
/// transaction, and a block of Philox has 4 words.
inline constexpr int kLanes = 4;

/// Division of 32-bit numbers by a divisor known beforehand, as a multiplication and a shift
/// (Granlund and Montgomery: "Division by invariant integers using multiplication", PLDI 1994).
struct Divisor {
  uint32_t value = 1, multiplier = 1, shift = 0;

  constexpr Divisor() = default;
  constexpr explicit Divisor(uint32_t divisor) : value(divisor) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    const uint64_t above = (uint64_t{1} << shift) - divisor;
    multiplier = static_cast<uint32_t>((above << 32) / divisor + 1);
  }
  constexpr uint32_t Divide(uint32_t n) const {
    const uint64_t high = (uint64_t{n} * multiplier) >> 32;
    return static_cast<uint32_t>((high + n) >> shift);
  }
};

/// Where element i of the order lies: mixed-radix digits of i times the strides. Axes from the
/// outermost to the innermost.
struct Walk {
  int32_t axes = 0;
  Divisor dims[kMaxAxes] = {};
  int64_t strides[kMaxAxes] = {};

  constexpr int64_t At(uint32_t i) const {
    int64_t at = 0;
    for (int32_t axis = axes - 1; axis > 0; --axis) {
      const uint32_t rest = dims[axis].Divide(i);
      at += static_cast<int64_t>(i - rest * dims[axis].value) * strides[axis];
      i = rest;
    }
    return at + static_cast<int64_t>(i) * strides[0];
  }
};

enum class Form : uint8_t {
  kDense,    ///< element i lies at i
  kScalar,   ///< every element lies at 0
  kStrided,  ///< the walk says where; fewer than 2^32 elements
};

struct Operand {
  DType dtype = DType::kNone;
  Form form = Form::kDense;
  Walk walk = {};

  constexpr int64_t At(int64_t i) const {
    switch (form) {
      case Form::kDense:
        return i;
      case Form::kScalar:
        return 0;
      case Form::kStrided:
        break;
    }
    return walk.At(static_cast<uint32_t>(i));
  }
  /// Alignment that vector access to a dense operand needs.
  constexpr int64_t VectorAlignment() const {
    return SizeOf(dtype) * kLanes < 16 ? SizeOf(dtype) * kLanes : 16;
  }
};

}  // namespace ampc::cuda
