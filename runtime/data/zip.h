// SPDX-License-Identifier: Apache-2.0
#pragma once
// Zip archives as NumPy writes them: stored or deflated members, zip64.
//
// The central directory is checked when the archive is opened: every offset and size lies in the
// file, a stored member has equal sizes, a deflated one promises no more than deflate can hold.
// Encryption, other methods and duplicate names are refused. A member's CRC is checked when it is
// read.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace ampc {

struct ZipEntry {
  std::string name;
  uint16_t method = 0;  ///< 0 stored, 8 deflated
  uint32_t crc = 0;
  int64_t compressed = 0;
  int64_t size = 0;
  int64_t header_offset = 0;
};

/// Bytes with whatever keeps them alive.
struct ZipMember {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class ZipArchive {
 public:
  static Result<ZipArchive> Open(std::shared_ptr<const MappedFile> file);

  /// In file order.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// Null when there is none of that name.
  const ZipEntry* Find(std::string_view name) const;
  /// A stored member is a view of the file.
  Result<ZipMember> Read(const ZipEntry& entry) const;

 private:
  struct Directory;
  static Result<Directory> FindDirectory(std::span<const std::byte> file);
  Status ParseDirectory(const Directory& directory);
  Result<std::span<const std::byte>> CompressedBytes(const ZipEntry& entry) const;

  std::shared_ptr<const MappedFile> file_;
  std::vector<ZipEntry> entries_;
};

/// Writes stored members one after the other; the caller knows size and CRC beforehand.
class ZipWriter {
 public:
  static Result<ZipWriter> Create(const std::string& path);

  /// Announces a member of `size` bytes; Append() then takes exactly these.
  Status Begin(std::string_view name, int64_t size, uint32_t crc);
  Status Append(std::span<const std::byte> bytes) { return file_.Append(bytes); }
  /// Writes the directory and makes the file appear.
  Status Commit();

 private:
  explicit ZipWriter(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace ampc
