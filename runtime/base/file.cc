// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

namespace ampc {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr size_t kMaxTransfer = size_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB per call

// std::strerror has no thread-safe guarantee; the generic category copies.
std::string ErrnoText(int error) { return std::generic_category().message(error); }

Status Failed(std::string_view verb, const std::string& path, int error) {
  return IoError("E0501", "cannot {} '{}': {}", verb, path, ErrnoText(error));
}

int OpenRetrying(const char* path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

ssize_t ReadRetrying(int fd, void* data, size_t size) {
  ssize_t n;
  do {
    n = read(fd, data, std::min(size, kMaxTransfer));
  } while (n < 0 && errno == EINTR);
  return n;
}

ssize_t PreadRetrying(int fd, void* data, size_t size, int64_t offset) {
  ssize_t n;
  do {
    n = pread(fd, data, size, offset);
  } while (n < 0 && errno == EINTR);
  return n;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  Descriptor fd(OpenRetrying(path.c_str(), O_RDONLY));
  if (fd.get() < 0) return Failed("open", path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Failed("read", path, errno);
  if (S_ISDIR(info.st_mode)) return Failed("read", path, EISDIR);
  auto too_large = [&] {
    return IoError("E0502", "'{}' is larger than the {} bytes allowed here", path, max_bytes);
  };
  if (info.st_size > max_bytes) return too_large();
  // A pipe has size 0 and /proc files lie, so the size is a hint and the end decides.
  std::string text(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t used = 0;
  while (true) {
    const ssize_t n = ReadRetrying(fd.get(), text.data() + used, text.size() - used);
    if (n < 0) return Failed("read", path, errno);
    if (n == 0) break;
    used += static_cast<size_t>(n);
    if (static_cast<int64_t>(used) > max_bytes) return too_large();
    if (used == text.size()) text.resize(text.size() * 2 + 4096);
  }
  text.resize(used);
  return text;
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  // Opening a pipe without O_NONBLOCK waits for its writer.
  Descriptor fd(OpenRetrying(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) return Failed("open", path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Failed("read", path, errno);
  if (S_ISDIR(info.st_mode)) return Failed("read", path, EISDIR);
  if (!S_ISREG(info.st_mode)) return IoError("E0503", "cannot map '{}': not a regular file", path);
  MappedFile file;
  file.path_ = path;
  if (info.st_size == 0) return file;  // mmap refuses length 0
  void* data =
      mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return Failed("map", path, errno);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = info.st_size;
  return file;
}

MappedFile::~MappedFile() { Unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void MappedFile::Unmap() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  data_ = nullptr;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Result<InputFile> InputFile::Open(const std::string& path) {
  // Opening a pipe without O_NONBLOCK waits for its writer.
  Descriptor fd(OpenRetrying(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return Failed("open", path, errno);
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return Failed("read", path, errno);
  if (S_ISDIR(info.st_mode)) return Failed("read", path, EISDIR);
  return InputFile(std::move(fd), path, info.st_size);
}

Status InputFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = PreadRetrying(fd_.get(), out.data(), out.size(), offset);
    if (n < 0) return Failed("read", path_, errno);
    if (n == 0)
      return IoError("E0506", "'{}' ends at byte {}, {} bytes before the end of the data wanted",
                     path_, offset, out.size());
    out = out.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return {};
}

std::string FollowLinks(const std::string& path) {
  std::unique_ptr<char, decltype(&free)> resolved(realpath(path.c_str(), nullptr), &free);
  if (resolved) return resolved.get();
  // A link to a file that is not there yet. The bound is the system's own for links in a row.
  std::string at = path;
  for (int i = 0; i < 40; ++i) {
    std::error_code error;
    const std::filesystem::path next = std::filesystem::read_symlink(at, error);
    if (error) return at;
    at = JoinPath(DirName(at), next.string());
  }
  return path;
}

namespace {

std::string Place(const std::string& file) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::absolute(file, ignored);
  return std::filesystem::weakly_canonical(whole, ignored).string();
}

}  // namespace

void FilePlaces::Add(const std::string& file, std::string what) {
  files_.emplace_back(Place(file), std::move(what));
}

std::string_view FilePlaces::Find(const std::string& file) const {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored))
    return {};
  const std::string place = Place(file);
  for (const auto& [other, what] : files_) {
    if (other == place) return what;
  }
  return {};
}

Status SyncFolder(const std::string& folder) {
  Descriptor dir(OpenRetrying(folder.c_str(), O_RDONLY | O_DIRECTORY));
  if (dir.get() < 0) return Failed("sync the folder", folder, errno);
  while (fsync(dir.get()) != 0) {
    // Some file systems cannot sync a folder (EINVAL); the files in it are on disk by now.
    if (errno == EINVAL) break;
    if (errno != EINTR) return Failed("sync the folder", folder, errno);
  }
  return {};
}

Result<AtomicFile> AtomicFile::Create(const std::string& path) {
  AtomicFile file;
  file.path_ = path;
  // Renaming onto a link would replace the link, not the file that it names.
  file.target_ = FollowLinks(path);
  struct stat info {};
  if (lstat(file.target_.c_str(), &info) == 0 && S_ISLNK(info.st_mode))
    return Failed("write", path, ELOOP);
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) return Failed("write", path, EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {
    file.fd_ = OpenRetrying(path.c_str(), O_WRONLY);
    if (file.fd_ < 0) return Failed("write", path, errno);
    return file;
  }
  // A folder that cannot be listed keeps its old temporaries; that is no reason not to write.
  static_cast<void>(SweepTemporaries(file.target_).ok());
  const std::string temporary = fmt::format("{}.tmp.{}", file.target_, getpid());
  unlink(temporary.c_str());
  file.fd_ = OpenRetrying(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL, 0666);
  if (file.fd_ < 0) return Failed("write", path, errno);
  file.temporary_ = temporary;
  // Tells a sweeper that cannot see our process that this file is in use. Not every file system has
  // locks; the process id is there as well.
  static_cast<void>(flock(file.fd_, LOCK_EX | LOCK_NB));
  if (exists && fchmod(file.fd_, info.st_mode & 07777) != 0) return Failed("write", path, errno);
  return file;
}

AtomicFile::~AtomicFile() { Abandon(); }

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      buffer_(std::move(other.buffer_)),
      size_(other.size_),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this == &other) return *this;
  Abandon();
  path_ = std::move(other.path_);
  target_ = std::move(other.target_);
  temporary_ = std::exchange(other.temporary_, {});
  buffer_ = std::move(other.buffer_);
  size_ = other.size_;
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

void AtomicFile::Abandon() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

Status AtomicFile::WriteAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Status error = Failed("write", path_, n < 0 ? errno : EIO);
      Abandon();
      return error;
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::Flush() {
  if (fd_ < 0)
    return IoError("E0504", "cannot write '{}': it was committed, or an earlier write failed",
                   path_);
  AMPC_TRY(WriteAll(buffer_));
  buffer_.clear();
  return {};
}

Status AtomicFile::Append(std::span<const std::byte> bytes) {
  if (fd_ < 0 || buffer_.size() + bytes.size() > kBufferBytes) AMPC_TRY(Flush());
  if (bytes.size() >= kBufferBytes) {
    AMPC_TRY(WriteAll(bytes));
  } else {
    if (buffer_.capacity() == 0) buffer_.reserve(kBufferBytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  size_ += static_cast<int64_t>(bytes.size());
  return {};
}

Status AtomicFile::PadTo(int64_t alignment) {
  const int64_t rest = size_ % alignment;
  if (rest == 0) return {};
  const std::vector<std::byte> zeros(static_cast<size_t>(alignment - rest));
  return Append(zeros);
}

Status AtomicFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) {
  AMPC_TRY(Flush());
  if (offset < 0 || offset > size_ - static_cast<int64_t>(bytes.size())) {
    return InternalError("E0505", "write of {} bytes at {} beyond the {} bytes of '{}'",
                         bytes.size(), offset, size_, path_);
  }
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), std::min(bytes.size(), kMaxTransfer), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Status error = Failed("write", path_, n < 0 ? errno : EIO);
      Abandon();
      return error;
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return {};
}

Status AtomicFile::Commit() {
  AMPC_TRY(Flush());
  if (temporary_.empty()) {  // a device or pipe, written in place
    if (close(std::exchange(fd_, -1)) != 0) return Failed("write", path_, errno);
    return {};
  }
  while (fsync(fd_) != 0) {
    if (errno == EINTR) continue;
    Status error = Failed("write", path_, errno);
    Abandon();
    return error;
  }
  // close can report a delayed write error (NFS, quota). EINTR is none: the data is on disk.
  const bool closed = close(std::exchange(fd_, -1)) == 0 || errno == EINTR;
  if (!closed || rename(temporary_.c_str(), target_.c_str()) != 0) {
    Status error = Failed("write", path_, errno);
    Abandon();
    return error;
  }
  temporary_.clear();
  return SyncFolder(DirName(target_));
}

namespace {

/// True when some process holds `path` open as an AtomicFile does.
bool IsLocked(const std::string& path) {
  Descriptor fd(OpenRetrying(path.c_str(), O_RDONLY));
  return fd.get() >= 0 && flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

Status SweepTemporaries(const std::string& path) {
  const std::string folder = DirName(path);
  const size_t slash = path.rfind('/');
  const std::string prefix = (slash == std::string::npos ? path : path.substr(slash + 1)) + ".tmp.";
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), &closedir);
  if (!dir) return Failed("list", folder, errno);
  while (const dirent* entry = readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix)) continue;
    const std::string_view digits = name.substr(prefix.size());
    int pid = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
    if (error != std::errc() || end != digits.data() + digits.size() || pid <= 0) continue;
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    const std::string stale = JoinPath(folder, name);
    if (IsLocked(stale)) continue;
    if (unlink(stale.c_str()) != 0 && errno != ENOENT) return Failed("remove", stale, errno);
  }
  return {};
}

Result<int64_t> CopyRange(const std::string& source, int64_t offset, int64_t length,
                          AtomicFile& out) {
  AMPC_TRY(out.Flush());
  Descriptor in(OpenRetrying(source.c_str(), O_RDONLY));
  if (in.get() < 0) return Failed("open", source, errno);
  int64_t left = length;
  while (left > 0) {
    const size_t chunk =
        static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(kMaxTransfer)));
    off64_t from = offset;
    const ssize_t n = copy_file_range(in.get(), &from, out.fd_, nullptr, chunk, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      Status error = Failed("write", out.path_, errno);
      out.Abandon();
      return error;
    }
    if (n <= 0)
      break;  // not between these file systems, or at the end: the loop below finds out which
    offset += n;
    left -= n;
    out.size_ += n;
  }
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<int64_t>(left, int64_t{1} << 20)));
  while (left > 0) {
    const size_t chunk = std::min(buffer.size(), static_cast<size_t>(left));
    const ssize_t n = PreadRetrying(in.get(), buffer.data(), chunk, offset);
    if (n < 0) return Failed("read", source, errno);
    if (n == 0) {
      return IoError("E0506",
                     "'{}' ends at byte {}, {} bytes before the end of the data wanted from it",
                     source, offset, left);
    }
    AMPC_TRY(out.WriteAll({buffer.data(), static_cast<size_t>(n)}));
    offset += n;
    left -= n;
    out.size_ += n;
  }
  return length;
}

std::string DirName(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string JoinPath(std::string_view dir, std::string_view path) {
  if (dir.empty() || path.starts_with('/')) return std::string(path);
  std::string joined(dir);
  if (!joined.ends_with('/')) joined += '/';
  return joined += path;
}

std::string RelativePath(const std::string& from_dir, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  // ".." walks the real folders, so links in the folders are resolved first; the file itself may
  // well be a link that the user wants to keep.
  auto real = [&](const fs::path& dir) {
    const fs::path start = dir.empty() ? fs::path(".") : dir;
    fs::path p = fs::weakly_canonical(fs::absolute(start, ignored), ignored);
    return p.empty() ? start.lexically_normal() : p;
  };
  const fs::path target(to);
  const fs::path result =
      (real(target.parent_path()) / target.filename()).lexically_relative(real(from_dir));
  return result.empty() ? to : result.string();
}

}  // namespace ampc
