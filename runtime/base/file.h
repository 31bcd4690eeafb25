// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files: whole reads, read-only maps, and outputs that appear complete or not at all.
//
// Every failure is an IoError (exit 6) that names the path and the system's reason; short writes,
// ENOSPC and EIO are never lost, whether they show up at write, fsync or close. Nothing here is
// thread-safe per object.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace ampc {

/// The whole file (or pipe) at `path`; an error when it has more than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, int64_t max_bytes);

/// A regular file mapped read-only. Movable; unmaps on destruction. The pages are those of the page
/// cache: they are read when touched and count as memory only while resident.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  void Unmap();

  std::string path_;
  const std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

/// A file descriptor that is closed on destruction; for descriptors that are only read.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// A regular file (or a device) read piece by piece. Unlike a map it reports a read error, and its
/// bytes take no memory of this process.
class InputFile {
 public:
  static Result<InputFile> Open(const std::string& path);
  /// Of a file that is open already; `path` is for messages.
  InputFile(Descriptor fd, std::string path, int64_t size)
      : path_(std::move(path)), size_(size), fd_(std::move(fd)) {}

  /// Fills `out` from `offset`; an end before that is an error.
  Status ReadAt(int64_t offset, std::span<std::byte> out) const;
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int64_t size_ = 0;
  Descriptor fd_;
};

/// An output file written to `<path>.tmp.<pid>` in the same folder and renamed by Commit(). Without
/// a Commit the destructor removes the temporary and the old file stays as it was. A symbolic link
/// is followed to the file it names, also when that does not exist yet; something that is no
/// regular file (/dev/null, a pipe) is written in place. Stale temporaries of the same path whose
/// process is gone are removed by Create().
class AtomicFile {
 public:
  static Result<AtomicFile> Create(const std::string& path);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;

  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  /// Zero bytes up to the next multiple of `alignment`.
  Status PadTo(int64_t alignment);
  /// Overwrites bytes that were appended before (a header whose sizes are known at the end).
  Status WriteAt(int64_t offset, std::span<const std::byte> bytes);
  /// Bytes appended so far.
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Flushes, syncs, renames over `path`, syncs the folder. After it, or after any error, the
  /// object takes no more bytes. Only when the folder could not be synced, the last step, has the
  /// new file, complete, taken the place of the old one in spite of the error.
  Status Commit();

 private:
  friend Result<int64_t> CopyRange(const std::string&, int64_t, int64_t, AtomicFile&);

  AtomicFile() = default;
  Status Flush();
  Status WriteAll(std::span<const std::byte> bytes);
  void Abandon();

  std::string path_;  ///< as given, for messages
  std::string target_, temporary_;
  std::vector<std::byte> buffer_;
  int64_t size_ = 0;
  int fd_ = -1;
};

/// Removes `<path>.tmp.<pid>` files whose process does not exist any more and which nobody (a
/// process in another container, say) holds open for writing.
Status SweepTemporaries(const std::string& path);

/// Makes the names in a folder durable: those that were made, renamed or removed.
Status SyncFolder(const std::string& folder);

/// `path` with symbolic links followed to the file that they name, which need not exist.
std::string FollowLinks(const std::string& path);

/// The files that a run reads and writes, by their places: other spellings and links are the same.
class FilePlaces {
 public:
  /// `what`: "the plan", …
  void Add(const std::string& file, std::string what);
  /// What `file` is already; "" when it is none, or a device or a pipe.
  std::string_view Find(const std::string& file) const;

 private:
  std::vector<std::pair<std::string, std::string>> files_;
};

/// Appends bytes [offset, offset + length) of the file `source` to `out`, inside the kernel where
/// the file systems can do that, without bringing them into this process's memory. Returns
/// `length`; a source that ends earlier is an error.
Result<int64_t> CopyRange(const std::string& source, int64_t offset, int64_t length,
                          AtomicFile& out);

/// "a/b/c" -> "a/b", "c" -> ".", "/c" -> "/".
std::string DirName(std::string_view path);
/// `path` when it is absolute or `dir` is empty, else "dir/path".
std::string JoinPath(std::string_view dir, std::string_view path);
/// The path that leads from the folder `from_dir` to `to` (both relative to the working directory,
/// or absolute).
std::string RelativePath(const std::string& from_dir, const std::string& to);

}  // namespace ampc
