// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/idx.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/data/inflate.h"

namespace ampc {
namespace {

struct Header {
  DType dtype = DType::kNone;
  Dims dims;
  int64_t data_bytes = 0;
};

DType TypeOf(uint8_t code) {
  switch (code) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0B:
      return DType::kInt16;
    case 0x0C:
      return DType::kInt32;
    case 0x0D:
      return DType::kFloat32;
    case 0x0E:
      return DType::kFloat64;
    default:
      return DType::kNone;
  }
}

// `prefix` is the first four bytes; sets the dtype and gives the number of axes.
Result<size_t> ParsePrefix(std::span<const std::byte> prefix, Header* header) {
  if (!LooksLikeIdx(prefix)) return BadInput("E0741", "not an idx file");
  header->dtype = TypeOf(std::to_integer<uint8_t>(prefix[2]));
  const size_t rank = std::to_integer<size_t>(prefix[3]);
  if (rank > kMaxArrayRank)
    return BadInput("E0741", "an idx file of {} axes (at most {} are read)", rank, kMaxArrayRank);
  return rank;
}

Status ParseDims(std::span<const std::byte> bytes, Header* header) {
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    int64_t dim = 0;
    for (size_t k = 0; k < 4; ++k) dim = dim << 8 | std::to_integer<int64_t>(bytes[i + k]);
    header->dims.push_back(dim);
  }
  const std::optional<int64_t> elements = CheckedNumElements(header->dims, SizeOf(header->dtype));
  if (!elements)
    return BadInput("E0741", "the dims {} have more elements than can be addressed",
                    ToString(header->dims));
  header->data_bytes = *elements * SizeOf(header->dtype);
  return {};
}

Array FromOwned(const Header& header, OwnedBytes data) {
  SwapByteOrder(data.span(), SizeOf(header.dtype));
  return MakeArray(header.dtype, header.dims, data.memory.get(), data.memory);
}

}  // namespace

bool LooksLikeIdx(std::span<const std::byte> file) {
  return file.size() >= 4 && file[0] == std::byte{0} && file[1] == std::byte{0} &&
         TypeOf(std::to_integer<uint8_t>(file[2])) != DType::kNone && file[3] != std::byte{0};
}

bool LooksLikeGzip(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0x1F} && file[1] == std::byte{0x8B};
}

Result<Array> IdxArray(std::shared_ptr<const MappedFile> file) {
  Header header;
  const std::span<const std::byte> bytes = file->bytes();
  AMPC_ASSIGN(const size_t rank, ParsePrefix(bytes, &header));
  if (bytes.size() < 4 + 4 * rank) return BadInput("E0742", "truncated in the idx header");
  AMPC_TRY(ParseDims(bytes.subspan(4, 4 * rank), &header));
  const std::span<const std::byte> data = bytes.subspan(4 + 4 * rank);
  if (static_cast<int64_t>(data.size()) != header.data_bytes) {
    return BadInput("E0742", "{} {} needs {} bytes of data, the file has {}", Name(header.dtype),
                    ToString(header.dims), header.data_bytes, data.size());
  }
  if (SizeOf(header.dtype) == 1)
    return MakeArray(header.dtype, header.dims, data.data(), std::move(file));
  AMPC_ASSIGN(OwnedBytes copy, AllocateBytes(header.data_bytes));
  std::copy(data.begin(), data.end(), copy.span().begin());
  return FromOwned(header, std::move(copy));
}

Result<Array> GzippedIdxArray(std::span<const std::byte> file) {
  Header header;
  InflateStream stream(file, InflateStream::Format::kGzip);
  std::array<std::byte, 4> prefix;
  AMPC_TRY(stream.Read(prefix));
  AMPC_ASSIGN(const size_t rank, ParsePrefix(prefix, &header));
  std::array<std::byte, 4 * kMaxArrayRank> dims;
  AMPC_TRY(stream.Read(std::span(dims).first(4 * rank)));
  AMPC_TRY(ParseDims(std::span(dims).first(4 * rank), &header));
  if (!PlausibleInflatedSize(static_cast<int64_t>(file.size()), header.data_bytes)) {
    return BadInput("E0742", "{} {} cannot come from {} compressed bytes", Name(header.dtype),
                    ToString(header.dims), file.size());
  }
  AMPC_ASSIGN(OwnedBytes data, AllocateBytes(header.data_bytes));
  AMPC_TRY(stream.Read(data.span()));
  AMPC_TRY(stream.ExpectEnd());
  return FromOwned(header, std::move(data));
}

}  // namespace ampc
