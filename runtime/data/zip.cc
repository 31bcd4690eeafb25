// SPDX-License-Identifier: Apache-2.0
// Field names and record layouts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.

#include "runtime/data/zip.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "runtime/data/array.h"
#include "runtime/data/inflate.h"

namespace ampc {
namespace {

constexpr uint32_t kLocalSignature = 0x04034B50, kCentralSignature = 0x02014B50,
                   kEndSignature = 0x06054B50;
constexpr uint32_t kEnd64Signature = 0x06064B50, kLocator64Signature = 0x07064B50;
constexpr int64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                  kLocator64Bytes = 20;
constexpr uint32_t kFull32 = 0xFFFFFFFF;
constexpr uint16_t kFull16 = 0xFFFF, kZip64Extra = 1, kEncrypted = 1, kUtf8 = 1 << 11;

Status Damaged(std::string_view what) { return BadInput("E0731", "damaged zip file: {}", what); }

// Little-endian field at an offset that the caller has checked.
template <typename T>
T Field(std::span<const std::byte> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// 64-bit fields that cannot be sizes or offsets become -1 and fail the range checks.
int64_t Field64(std::span<const std::byte> bytes, int64_t offset) {
  const uint64_t value = Field<uint64_t>(bytes, offset);
  return value >> 62 != 0 ? -1 : static_cast<int64_t>(value);
}

bool Inside(int64_t offset, int64_t size, int64_t limit) {
  return offset >= 0 && size >= 0 && offset <= limit && size <= limit - offset;
}

}  // namespace

struct ZipArchive::Directory {
  int64_t offset = 0, size = 0, count = 0;
};

Result<ZipArchive> ZipArchive::Open(std::shared_ptr<const MappedFile> file) {
  ZipArchive archive;
  archive.file_ = std::move(file);
  AMPC_ASSIGN(const Directory directory, FindDirectory(archive.file_->bytes()));
  AMPC_TRY(archive.ParseDirectory(directory));
  return archive;
}

Result<ZipArchive::Directory> ZipArchive::FindDirectory(std::span<const std::byte> file) {
  const int64_t total = static_cast<int64_t>(file.size());
  int64_t end = total - kEndBytes;
  // The end record is followed by a comment of at most 64 KiB - 1 whose length it states.
  const int64_t first = std::max<int64_t>(0, end - kFull16);
  while (end >= first && (Field<uint32_t>(file, end) != kEndSignature ||
                          Field<uint16_t>(file, end + 20) != total - end - kEndBytes)) {
    --end;
  }
  if (end < first) return Damaged("no end record (truncated?)");
  Directory directory{Field<uint32_t>(file, end + 16), Field<uint32_t>(file, end + 12),
                      Field<uint16_t>(file, end + 10)};
  int64_t limit = end;
  const int64_t locator = end - kLocator64Bytes;
  if (locator >= 0 && Field<uint32_t>(file, locator) == kLocator64Signature) {
    const int64_t end64 = Field64(file, locator + 8);
    if (!Inside(end64, kEnd64Bytes, locator) || Field<uint32_t>(file, end64) != kEnd64Signature) {
      return Damaged("no zip64 end record where it should be");
    }
    directory = {Field64(file, end64 + 48), Field64(file, end64 + 40), Field64(file, end64 + 32)};
    limit = end64;
  }
  if (!Inside(directory.offset, directory.size, limit))
    return Damaged("the directory lies outside the file");
  return directory;
}

Status ZipArchive::ParseDirectory(const Directory& directory) {
  const std::span<const std::byte> bytes = file_->bytes().subspan(
      static_cast<size_t>(directory.offset), static_cast<size_t>(directory.size));
  std::set<std::string_view> names;
  int64_t at = 0;
  while (at < directory.size) {
    if (!Inside(at, kCentralBytes, directory.size) ||
        Field<uint32_t>(bytes, at) != kCentralSignature) {
      return Damaged("broken directory entry");
    }
    const int64_t name_size = Field<uint16_t>(bytes, at + 28),
                  extra_size = Field<uint16_t>(bytes, at + 30);
    const int64_t comment_size = Field<uint16_t>(bytes, at + 32);
    if (!Inside(at + kCentralBytes, name_size + extra_size + comment_size, directory.size)) {
      return Damaged("truncated directory entry");
    }
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(bytes.data()) + at + kCentralBytes,
                      static_cast<size_t>(name_size));
    entry.method = Field<uint16_t>(bytes, at + 10);
    entry.crc = Field<uint32_t>(bytes, at + 16);
    entry.compressed = Field<uint32_t>(bytes, at + 20);
    entry.size = Field<uint32_t>(bytes, at + 24);
    entry.header_offset = Field<uint32_t>(bytes, at + 42);
    // The zip64 extra holds, in this order, those of the three fields that are all ones.
    int64_t extra = at + kCentralBytes + name_size;
    const int64_t extra_end = extra + extra_size;
    while (Inside(extra, 4, extra_end)) {
      int64_t field = extra + 4;
      const int64_t next = field + Field<uint16_t>(bytes, extra + 2);
      if (next > extra_end) return Damaged("truncated extra field");
      if (Field<uint16_t>(bytes, extra) == kZip64Extra) {
        for (int64_t* value : {&entry.size, &entry.compressed, &entry.header_offset}) {
          if (*value != kFull32) continue;
          if (!Inside(field, 8, next)) return Damaged("truncated zip64 field");
          *value = Field64(bytes, field);
          field += 8;
        }
      }
      extra = next;
    }
    if ((Field<uint16_t>(bytes, at + 8) & kEncrypted) != 0) {
      return Unsupported("E0732", "'{}' is encrypted", entry.name);
    }
    if (!Inside(entry.header_offset, kLocalBytes, directory.offset) ||
        !Inside(entry.header_offset, entry.compressed, directory.offset) || entry.size < 0) {
      return Damaged(fmt::format("'{}' lies outside the file", entry.name));
    }
    if (entry.method == 0 ? entry.size != entry.compressed
                          : !PlausibleInflatedSize(entry.compressed, entry.size)) {
      return Damaged(fmt::format("'{}' cannot have {} bytes when {} are stored", entry.name,
                                 entry.size, entry.compressed));
    }
    entries_.push_back(std::move(entry));
    at += kCentralBytes + name_size + extra_size + comment_size;
  }
  if (static_cast<int64_t>(entries_.size()) != directory.count)
    return Damaged("wrong number of directory entries");
  for (const ZipEntry& entry : entries_) {
    if (!names.insert(entry.name).second)
      return Damaged(fmt::format("'{}' appears twice", entry.name));
  }
  return {};
}

const ZipEntry* ZipArchive::Find(std::string_view name) const {
  for (const ZipEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

Result<std::span<const std::byte>> ZipArchive::CompressedBytes(const ZipEntry& entry) const {
  const std::span<const std::byte> file = file_->bytes();
  const int64_t at = entry.header_offset;
  if (Field<uint32_t>(file, at) != kLocalSignature)
    return Damaged(fmt::format("no local header of '{}'", entry.name));
  // The local header repeats the sizes, but may leave them to a record after the data; only its own
  // length counts.
  const int64_t name_size = Field<uint16_t>(file, at + 26);
  const int64_t data = at + kLocalBytes + name_size + Field<uint16_t>(file, at + 28);
  if (!Inside(data, entry.compressed, file_->size()))
    return Damaged(fmt::format("'{}' is truncated", entry.name));
  const std::string_view name(reinterpret_cast<const char*>(file.data()) + at + kLocalBytes,
                              static_cast<size_t>(name_size));
  if (name != entry.name)
    return Damaged(fmt::format("'{}' and its local header differ", entry.name));
  return file.subspan(static_cast<size_t>(data), static_cast<size_t>(entry.compressed));
}

Result<ZipMember> ZipArchive::Read(const ZipEntry& entry) const {
  if (entry.method != 0 && entry.method != 8) {
    return Unsupported("E0732", "'{}' uses compression method {} (stored and deflated are read)",
                       entry.name, entry.method);
  }
  AMPC_ASSIGN(const std::span<const std::byte> stored, CompressedBytes(entry));
  ZipMember member{stored, file_};
  if (entry.method == 8) {
    AMPC_ASSIGN(OwnedBytes plain, AllocateBytes(entry.size));
    InflateStream stream(stored, InflateStream::Format::kRawDeflate);
    AMPC_TRY(stream.Read(plain.span()));
    AMPC_TRY(stream.ExpectEnd());
    member = {plain.span(), plain.memory};
  }
  const uint32_t crc = ZipCrc32(member.bytes);
  if (crc != entry.crc) {
    return Damaged(
        fmt::format("'{}' has checksum {:08x}, expected {:08x}", entry.name, crc, entry.crc));
  }
  return member;
}

namespace {

/// A record under construction.
class Record {
 public:
  template <typename T>
  Record& Put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    data_.insert(data_.end(), bytes, bytes + sizeof(T));
    return *this;
  }
  Record& Text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  std::span<const std::byte> bytes() const { return data_; }

 private:
  std::vector<std::byte> data_;
};

uint32_t Narrow32(int64_t value) {
  return value >= kFull32 ? kFull32 : static_cast<uint32_t>(value);
}

// From "version needed" to the uncompressed size: the part that local and central headers share.
void PutCommon(Record& record, const ZipEntry& entry, bool zip64_sizes) {
  const bool ascii =
      std::all_of(entry.name.begin(), entry.name.end(), [](char c) { return (c & 0x80) == 0; });
  record.Put<uint16_t>(45).Put<uint16_t>(ascii ? 0 : kUtf8).Put<uint16_t>(0);
  record.Put<uint16_t>(0).Put<uint16_t>(
      1 << 5 | 1);  // 1980-01-01 00:00, so that equal contents give equal files
  record.Put(entry.crc);
  const uint32_t size = zip64_sizes ? kFull32 : static_cast<uint32_t>(entry.size);
  record.Put(size).Put(size).Put(static_cast<uint16_t>(entry.name.size()));
}

}  // namespace

Result<ZipWriter> ZipWriter::Create(const std::string& path) {
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  return ZipWriter(std::move(file));
}

Status ZipWriter::Begin(std::string_view name, int64_t size, uint32_t crc) {
  if (name.size() >= kFull16)
    return BadInput("E0733", "a member name of {} bytes is too long for a zip file", name.size());
  const ZipEntry& entry =
      entries_.emplace_back(ZipEntry{std::string(name), 0, crc, size, size, file_.size()});
  const bool zip64 = size >= kFull32;
  Record record;
  record.Put(kLocalSignature);
  PutCommon(record, entry, zip64);
  record.Put<uint16_t>(zip64 ? 20 : 0).Text(name);
  if (zip64) record.Put(kZip64Extra).Put<uint16_t>(16).Put(size).Put(size);
  return file_.Append(record.bytes());
}

Status ZipWriter::Commit() {
  const int64_t start = file_.size();
  for (const ZipEntry& entry : entries_) {
    const bool zip64_size = entry.size >= kFull32, zip64_offset = entry.header_offset >= kFull32;
    const uint16_t fields = static_cast<uint16_t>((zip64_size ? 16 : 0) + (zip64_offset ? 8 : 0));
    Record record;
    record.Put(kCentralSignature).Put<uint16_t>(45);
    PutCommon(record, entry, zip64_size);
    record.Put<uint16_t>(fields != 0 ? static_cast<uint16_t>(fields + 4) : uint16_t{0});
    record.Put<uint16_t>(0).Put<uint16_t>(0).Put<uint16_t>(0).Put<uint32_t>(0);
    record.Put(Narrow32(entry.header_offset)).Text(entry.name);
    if (fields != 0) record.Put(kZip64Extra).Put(fields);
    if (zip64_size) record.Put(entry.size).Put(entry.size);
    if (zip64_offset) record.Put(entry.header_offset);
    AMPC_TRY(file_.Append(record.bytes()));
  }
  const int64_t end = file_.size(), count = static_cast<int64_t>(entries_.size());
  Record record;
  if (end >= kFull32 || count >= kFull16) {
    record.Put(kEnd64Signature).Put<int64_t>(kEnd64Bytes - 12).Put<uint16_t>(45).Put<uint16_t>(45);
    record.Put<uint32_t>(0).Put<uint32_t>(0).Put(count).Put(count).Put(end - start).Put(start);
    record.Put(kLocator64Signature).Put<uint32_t>(0).Put(end).Put<uint32_t>(1);
  }
  const uint16_t narrow_count = static_cast<uint16_t>(std::min<int64_t>(count, kFull16));
  record.Put(kEndSignature).Put<uint16_t>(0).Put<uint16_t>(0).Put(narrow_count).Put(narrow_count);
  record.Put(Narrow32(end - start)).Put(Narrow32(start)).Put<uint16_t>(0);
  AMPC_TRY(file_.Append(record.bytes()));
  return file_.Commit();
}

}  // namespace ampc
