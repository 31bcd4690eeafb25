// SPDX-License-Identifier: Apache-2.0
#pragma once
// Philox4x32-10, the counter-based generator behind every random number (Salmon, Moraes, Dror,
// Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011), and its use by `dropout` and
// `random` (kernels.def).
//
// There is no state: four 32-bit words are a function of a 128-bit counter and a 64-bit key, so an
// element's number depends only on (seed, micro-batch, stream, logical index), never on layout,
// order, thread or device. Compiles for the host and, under nvcc, for the device.

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define AMPC_HD __host__ __device__
#else
#define AMPC_HD
#endif

namespace ampc {

struct PhiloxBlock {
  uint32_t word[4];
};

AMPC_HD inline PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  PhiloxBlock c = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c.word[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += 0x9E3779B9u;  // golden ratio
    key1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return c;
}

/// The bits of elements 4 * quad .. 4 * quad + 3 of one stream. rng = {seed, index}.
AMPC_HD inline PhiloxBlock StreamBits(int64_t seed, int64_t index, uint32_t stream, uint32_t quad) {
  const uint64_t key = static_cast<uint64_t>(seed), at = static_cast<uint64_t>(index);
  return Philox4x32({{quad, stream, static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32)}},
                    static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
}

/// Element kept iff bits >= threshold: the same as bits * 2^-32 >= ratio, without rounding. 2^32
/// (nothing is kept) for ratio >= 1 and NaN.
AMPC_HD inline uint64_t DropoutThreshold(double ratio) {
  if (!(ratio < 1.0)) return uint64_t{1} << 32;
  if (ratio <= 0.0) return 0;
  const double scaled = ratio * 4294967296.0;  // exact: a power of two
  const uint64_t floor = static_cast<uint64_t>(scaled);
  return floor + (static_cast<double>(floor) < scaled ? 1u : 0u);
}

/// Four uniform numbers of [0, 1): 24 bits each, so that they are floats, too.
AMPC_HD inline void UniformNumbers(const PhiloxBlock& bits, double* out) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<double>(bits.word[i] >> 8) * 0x1p-24;
}

/// Four standard normal numbers, two of each two words (Box, Muller: "A note on the generation of
/// random normal deviates", 1958).
AMPC_HD inline void NormalNumbers(const PhiloxBlock& bits, double* out) {
  for (int i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - bits.word[i] * 0x1p-32));
    const double angle = 6.283185307179586 * (bits.word[i + 1] * 0x1p-32);
    out[i] = radius * std::cos(angle);
    out[i + 1] = radius * std::sin(angle);
  }
}

}  // namespace ampc
