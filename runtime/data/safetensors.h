// SPDX-License-Identifier: Apache-2.0
#pragma once
// The safetensors format: an 8-byte header size, a JSON header, one block of data.
//
// The reader keeps the format's rules, so that a file has one meaning: header of at most 100 MB
// that starts with '{', no key twice, dtype and shape agree with the offsets, tensors cover the
// data without holes or overlaps.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kNone;
  Dims dims;
  int64_t offset = 0, bytes = 0;  ///< in the data block; the writer sets them

  bool operator==(const SafetensorsEntry&) const = default;
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> Open(const std::string& path);

  /// In the order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// Null when there is none of that name.
  const SafetensorsEntry* Find(std::string_view name) const;
  /// Row-major, little-endian, at any address.
  std::span<const std::byte> bytes(const SafetensorsEntry& entry) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  Status ParseHeader();

  MappedFile file_;
  int64_t data_offset_ = 0;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Writes the tensors in the order of entries(), which is fixed by Create(): widest elements first
/// (so that all are aligned), then by name.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> Create(const std::string& path,
                                          std::vector<SafetensorsEntry> entries,
                                          const std::map<std::string, std::string>& metadata = {});

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// Data of the next tensor, whole or in pieces.
  Status Append(std::span<const std::byte> bytes);
  Status Commit();

 private:
  SafetensorsWriter(AtomicFile file, std::vector<SafetensorsEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}

  AtomicFile file_;
  std::vector<SafetensorsEntry> entries_;
  int64_t left_ = 0;  // bytes still to come
};

}  // namespace ampc
