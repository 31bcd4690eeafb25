// SPDX-License-Identifier: Apache-2.0
#pragma once
// map, between preparation (map.cc) and kernels (map.cu): a program whose values have been given
// slots, and its operands.

#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ampc::cuda {

// What one call may have; all of it travels in the parameters of the launch. A fused group has at
// most 8 inputs and a program text of 1500 characters, well below.
inline constexpr int kMaxMapOperands = 24, kMaxMapInstrs = 256, kMaxMapConstants = 64;
/// Shared memory of a block that needs no asking for.
inline constexpr int64_t kMaxMapSharedBytes = 48 * 1024;

/// One instruction. Registers: >= 0 a slot, < 0 the constant ~register. For Op::kInput, a is an
/// operand.
struct MapInstr {
  uint8_t op;  ///< Op of expr_ops.h
  uint8_t to;  ///< slot of its value
  int16_t a, b, c;
};

/// T: what the program computes in.
template <typename T>
struct MapParams {
  int64_t elements = 0;
  int32_t num_instrs = 0, num_inputs = 0, num_outputs = 0, num_slots = 0;
  bool vector = false;               ///< dense operands are aligned for vector access
  void* data[kMaxMapOperands] = {};  ///< inputs, then outputs; set before each launch
  Operand operands[kMaxMapOperands] = {};
  int16_t results[kMaxMapOperands] = {};  ///< register of output k
  T constants[kMaxMapConstants] = {};
  MapInstr code[kMaxMapInstrs] = {};
};

/// Runs the program with `threads` threads per block.
void LaunchMap(const MapParams<float>& params, int threads, void* stream);
void LaunchMap(const MapParams<double>& params, int threads, void* stream);
void LaunchMap(const MapParams<int64_t>& params, int threads, void* stream);

/// Output 0 = input 0 in another dtype; neither broadcast. Program and slots are not looked at.
void LaunchCast(const MapParams<float>& params, void* stream);
void LaunchCast(const MapParams<double>& params, void* stream);
void LaunchCast(const MapParams<int64_t>& params, void* stream);

/// Shared bytes of a block of `threads` for `slots` slots of elements of `element_bytes`.
constexpr int64_t MapSharedBytes(int slots, int threads, int64_t element_bytes) {
  return int64_t{slots} * threads * kLanes * element_bytes;
}

}  // namespace ampc::cuda
