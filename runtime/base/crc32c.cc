// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace ampc {
namespace {

static_assert(std::endian::native == std::endian::little, "the word loads below are little-endian");

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// kTables[k][b]: the effect of byte b followed by k zero bytes.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t previous = tables[k - 1][b];
      tables[k][b] = (previous >> 8) ^ tables[0][previous & 0xFFu];
    }
  }
  return tables;
}
constexpr Tables kTables = MakeTables();

uint64_t LoadWord(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(std::span<const std::byte> bytes,
                                                       uint32_t crc) {
  uint64_t state = ~crc;
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) state = _mm_crc32_u64(state, LoadWord(p));
  uint32_t tail = static_cast<uint32_t>(state);
  for (; left > 0; ++p, --left) tail = _mm_crc32_u8(tail, std::to_integer<uint8_t>(*p));
  return ~tail;
}
#endif

}  // namespace

uint32_t Crc32cPortable(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    const uint64_t word = LoadWord(p) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFFu];
  }
  for (; left > 0; ++p, --left) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<uint32_t>(*p)) & 0xFFu];
  }
  return ~crc;
}

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return Crc32cSse42(bytes, crc);
#endif
  return Crc32cPortable(bytes, crc);
}

}  // namespace ampc
