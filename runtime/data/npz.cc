// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/npz.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/float16.h"
#include "runtime/data/inflate.h"
#include "runtime/data/npy.h"
#include "runtime/data/spill.h"
#include "runtime/data/zip.h"

namespace ampc {
namespace {

constexpr size_t kPendingBytes = size_t{1} << 16;

/// A run of an array's bytes in the spill file.
struct Extent {
  int64_t offset = 0, size = 0;
};

struct Growing {
  std::string name;
  DType dtype = DType::kNone;
  Dims dims;  // with the leading axis
  bool counts_rows = true;
  int64_t row_bytes = 0;  // as appended
  int64_t size = 0;       // bytes of data as written
  uint32_t crc = 0;       // of them
  std::vector<std::byte> pending;
  std::vector<Extent> extents;
};

}  // namespace

struct NpzWriter::State {
  ZipWriter zip;
  SpillFile spill;
  std::vector<Growing> arrays;

  Status Flush(Growing& array) {
    if (array.pending.empty()) return {};
    AMPC_ASSIGN(const int64_t offset, spill.Append(array.pending));
    const int64_t size = static_cast<int64_t>(array.pending.size());
    // Runs that touch are one run: a single array, or one of large rows, keeps one extent.
    if (!array.extents.empty() &&
        array.extents.back().offset + array.extents.back().size == offset) {
      array.extents.back().size += size;
    } else {
      array.extents.push_back({offset, size});
    }
    array.pending.clear();
    return {};
  }

  Status Append(Growing& array, std::span<const std::byte> bytes) {
    array.crc = ZipCrc32(bytes, array.crc);
    array.size += static_cast<int64_t>(bytes.size());
    array.pending.insert(array.pending.end(), bytes.begin(), bytes.end());
    return array.pending.size() < kPendingBytes ? Status() : Flush(array);
  }

  // bfloat16 rows go through float32.
  Status Widen(Growing& array, std::span<const std::byte> rows) {
    uint16_t low[4096];
    float wide[4096];
    while (!rows.empty()) {
      const size_t bytes = std::min(rows.size(), sizeof(low));
      std::memcpy(low, rows.data(), bytes);
      BFloat16ToFloat(low, wide, static_cast<int64_t>(bytes / 2));
      AMPC_TRY(Append(array, std::as_bytes(std::span(wide).first(bytes / 2))));
      rows = rows.subspan(bytes);
    }
    return {};
  }

  Status Write(Growing& array) {
    const std::string header = MakeNpyHeader(array.dtype, array.dims);
    const int64_t header_size = static_cast<int64_t>(header.size());
    const uint32_t header_crc = ZipCrc32(std::as_bytes(std::span(header)));
    AMPC_TRY(zip.Begin(array.name + ".npy", header_size + array.size,
                       CombineZipCrc32(header_crc, array.crc, array.size)));
    AMPC_TRY(zip.Append(std::as_bytes(std::span(header))));
    std::vector<std::byte> buffer;
    for (Extent extent : array.extents) {
      while (extent.size > 0) {
        buffer.resize(static_cast<size_t>(std::min<int64_t>(extent.size, 1 << 20)));
        AMPC_TRY(spill.ReadAt(extent.offset, buffer));
        AMPC_TRY(zip.Append(buffer));
        extent.offset += static_cast<int64_t>(buffer.size());
        extent.size -= static_cast<int64_t>(buffer.size());
      }
    }
    return zip.Append(array.pending);
  }
};

NpzWriter::NpzWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
NpzWriter::~NpzWriter() = default;
NpzWriter::NpzWriter(NpzWriter&&) noexcept = default;
NpzWriter& NpzWriter::operator=(NpzWriter&&) noexcept = default;

Result<NpzWriter> NpzWriter::Create(const std::string& path) {
  AMPC_ASSIGN(ZipWriter zip, ZipWriter::Create(path));
  return NpzWriter(std::unique_ptr<State>(new State{std::move(zip), SpillFile(path), {}}));
}

Result<int> NpzWriter::AddArray(std::string_view name, DType dtype,
                                std::span<const int64_t> row_dims) {
  for (const Growing& other : state_->arrays) {
    if (other.name == name) return InternalError("E0771", "the array '{}' is written twice", name);
  }
  Growing array;
  array.name = name;
  array.dtype = dtype;
  array.row_bytes = NumElements(row_dims) * SizeOf(dtype);
  array.dims = {0};
  array.dims.insert(array.dims.end(), row_dims.begin(), row_dims.end());
  state_->arrays.push_back(std::move(array));
  return static_cast<int>(state_->arrays.size()) - 1;
}

Status NpzWriter::AppendRows(int index, int64_t count, std::span<const std::byte> rows) {
  Growing& array = state_->arrays[static_cast<size_t>(index)];
  const int64_t size = static_cast<int64_t>(rows.size());
  if (size != count * array.row_bytes) {
    return InternalError("E0772", "{} bytes are not {} rows of '{}' ({} bytes)", size, count,
                         array.name, array.row_bytes);
  }
  if (array.counts_rows) array.dims[0] += count;
  return array.dtype == DType::kBFloat16 ? state_->Widen(array, rows) : state_->Append(array, rows);
}

Status NpzWriter::AddWhole(std::string_view name, DType dtype, std::span<const int64_t> dims,
                           std::span<const std::byte> data) {
  AMPC_ASSIGN(const int index, AddArray(name, dtype, dims));
  Growing& array = state_->arrays[static_cast<size_t>(index)];
  array.dims.assign(dims.begin(), dims.end());
  array.counts_rows = false;
  if (static_cast<int64_t>(data.size()) != array.row_bytes) {
    return InternalError("E0772", "{} bytes for '{}', which has {}", data.size(), name,
                         array.row_bytes);
  }
  return AppendRows(index, 1, data);
}

Status NpzWriter::Commit() {
  for (Growing& array : state_->arrays) AMPC_TRY(state_->Write(array));
  return state_->zip.Commit();
}

}  // namespace ampc
