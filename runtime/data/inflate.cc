// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/inflate.h"

#include <zlib.h>

#include <algorithm>

namespace ampc {

struct InflateStream::State {
  z_stream z{};
  std::span<const std::byte> rest;  // not yet handed to zlib
  Format format = Format::kRawDeflate;
  bool ready = false, ended = false;
};

namespace {

constexpr size_t kMaxChunk = size_t{1} << 30;  // zlib counts in 32 bits

Status DamagedStream(const char* detail) {
  return BadInput("E0721", "damaged compressed data: {}",
                  detail != nullptr ? detail : "invalid stream");
}

}  // namespace

InflateStream::InflateStream(std::span<const std::byte> input, Format format)
    : state_(std::make_unique<State>()) {
  state_->rest = input;
  state_->format = format;
  const int window = format == Format::kGzip ? 15 + 16 : -15;
  state_->ready = inflateInit2(&state_->z, window) == Z_OK;
}

InflateStream::~InflateStream() {
  if (state_->ready) inflateEnd(&state_->z);
}

// Bytes made; fewer than asked for only at the end of the stream.
Result<size_t> InflateStream::ReadSome(std::span<std::byte> out) {
  if (!state_->ready) return IoError("E0790", "out of memory");
  z_stream& z = state_->z;
  size_t made = 0;
  while (made < out.size()) {
    if (z.avail_in == 0 && !state_->rest.empty()) {
      const size_t chunk = std::min(state_->rest.size(), kMaxChunk);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(state_->rest.data()));
      z.avail_in = static_cast<uInt>(chunk);
      state_->rest = state_->rest.subspan(chunk);
    }
    if (state_->ended) {
      if (state_->format != Format::kGzip || z.avail_in == 0) break;
      if (inflateReset(&z) != Z_OK) return DamagedStream(z.msg);
      state_->ended = false;
    }
    const size_t room = std::min(out.size() - made, kMaxChunk);
    z.next_out = reinterpret_cast<Bytef*>(out.data() + made);
    z.avail_out = static_cast<uInt>(room);
    const int code = inflate(&z, Z_NO_FLUSH);
    made += room - z.avail_out;
    if (code == Z_STREAM_END) {
      state_->ended = true;
    } else if (code == Z_BUF_ERROR && z.avail_in == 0 && state_->rest.empty()) {
      return DamagedStream("truncated");
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return DamagedStream(z.msg);
    }
  }
  return made;
}

Status InflateStream::Read(std::span<std::byte> out) {
  AMPC_ASSIGN(const size_t made, ReadSome(out));
  if (made == out.size()) return {};
  return BadInput("E0722", "compressed data ends after {} of the {} bytes that its header promises",
                  made, out.size());
}

Status InflateStream::ExpectEnd() {
  std::byte extra;
  AMPC_ASSIGN(const size_t made, ReadSome({&extra, 1}));
  if (made != 0) return BadInput("E0722", "compressed data holds more than its header promises");
  if (state_->z.avail_in != 0 || !state_->rest.empty()) {
    return BadInput("E0722", "{} bytes follow the compressed data",
                    state_->z.avail_in + state_->rest.size());
  }
  return {};
}

uint32_t ZipCrc32(std::span<const std::byte> bytes, uint32_t crc) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

uint32_t CombineZipCrc32(uint32_t crc_a, uint32_t crc_b, int64_t size_b) {
  return static_cast<uint32_t>(crc32_combine(crc_a, crc_b, static_cast<z_off_t>(size_b)));
}

}  // namespace ampc
