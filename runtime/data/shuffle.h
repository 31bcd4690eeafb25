// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sample order and made-up data as pure functions of counters: any epoch or batch can be made
// again, in any order, with the same bits on every machine. The generator is SplitMix64 (Steele,
// Lea, Flood 2014) addressed by counter; only integer arithmetic and exact products are used.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/dtype.h"

namespace ampc {

constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// Number i of the stream `key`.
constexpr uint64_t CounterRandom(uint64_t key, uint64_t i) {
  return Mix64(key + (i + 1) * 0x9E3779B97F4A7C15ull);
}

/// The order of an epoch's samples: a permutation of 0 … order.size() - 1 (Fisher-Yates).
void ShuffledOrder(uint64_t seed, uint64_t epoch, std::span<uint32_t> order);

/// A stream of its own for each (seed, name, epoch, batch).
uint64_t StreamKey(uint64_t seed, std::string_view name, uint64_t epoch, uint64_t batch);

/// Floats: nearly standard normal (sum of four uniforms; within ±3.47). Integers: uniform in [0,
/// high).
void FillRandom(uint64_t key, DType type, int64_t high, std::byte* out, int64_t n);

}  // namespace ampc
