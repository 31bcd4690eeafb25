// SPDX-License-Identifier: Apache-2.0
#pragma once
// Decompression of deflate and gzip data whose size is known beforehand.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/status.h"

namespace ampc {

/// Deflate makes at most 1032 bytes of one: a header that promises more lies, and nothing is
/// allocated for it.
inline bool PlausibleInflatedSize(int64_t compressed, int64_t inflated) {
  return inflated / 1032 <= compressed;
}

class InflateStream {
 public:
  enum class Format : uint8_t { kRawDeflate, kGzip };

  /// `input` outlives the stream. Gzip checks its own CRC and continues through concatenated
  /// members.
  InflateStream(std::span<const std::byte> input, Format format);
  ~InflateStream();
  InflateStream(const InflateStream&) = delete;
  InflateStream& operator=(const InflateStream&) = delete;

  /// Fills all of `out`; an earlier end of the stream is an error.
  Status Read(std::span<std::byte> out);
  /// An error unless stream and input end here.
  Status ExpectEnd();

 private:
  struct State;
  Result<size_t> ReadSome(std::span<std::byte> out);

  std::unique_ptr<State> state_;
};

/// CRC-32 as zip and gzip use it.
uint32_t ZipCrc32(std::span<const std::byte> bytes, uint32_t crc = 0);
/// The CRC of a followed by b, from those of a and b.
uint32_t CombineZipCrc32(uint32_t crc_a, uint32_t crc_b, int64_t size_b);

}  // namespace ampc
