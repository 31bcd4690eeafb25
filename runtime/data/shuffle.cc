// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/shuffle.h"

#include <algorithm>
#include <utility>

#include "runtime/data/convert.h"

namespace ampc {
namespace {

__extension__ using Wide = unsigned __int128;

// Lemire's multiply-shift; its bias is below bound / 2^64.
uint64_t Below(uint64_t random, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<Wide>(random) * bound) >> 64);
}

// Four 16-bit uniforms sum to mean 2 * 65535 and variance (2^32 - 1) / 3.
double NearlyNormal(uint64_t random) {
  const uint64_t sum =
      (random & 0xFFFFu) + ((random >> 16) & 0xFFFFu) + ((random >> 32) & 0xFFFFu) + (random >> 48);
  constexpr double kInverseDeviation = 2.6428997921303018e-05;  // sqrt(3 / (2^32 - 1))
  return (static_cast<double>(sum) - 131070.0) * kInverseDeviation;
}

}  // namespace

void ShuffledOrder(uint64_t seed, uint64_t epoch, std::span<uint32_t> order) {
  const uint64_t key = Mix64(Mix64(seed + 0x5851F42D4C957F2Dull) + epoch);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[Below(CounterRandom(key, i), i)]);
  }
}

uint64_t StreamKey(uint64_t seed, std::string_view name, uint64_t epoch, uint64_t batch) {
  uint64_t key = Mix64(seed);
  for (char c : name) key = Mix64(key + static_cast<unsigned char>(c));
  return Mix64(Mix64(key + epoch) + batch);
}

void FillRandom(uint64_t key, DType type, int64_t high, std::byte* out, int64_t n) {
  constexpr int64_t kChunk = 512;
  for (int64_t done = 0; done < n; done += kChunk) {
    const int64_t count = std::min(kChunk, n - done);
    std::byte* at = out + done * SizeOf(type);
    if (IsFloat(type)) {
      double values[kChunk];
      for (int64_t i = 0; i < count; ++i)
        values[i] = NearlyNormal(CounterRandom(key, static_cast<uint64_t>(done + i)));
      StoreDoubles(type, values, at, count);
    } else {
      int64_t values[kChunk];
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t random = CounterRandom(key, static_cast<uint64_t>(done + i));
        values[i] = static_cast<int64_t>(Below(random, static_cast<uint64_t>(high)));
      }
      StoreIntegers(type, values, at, count);
    }
  }
}

}  // namespace ampc
