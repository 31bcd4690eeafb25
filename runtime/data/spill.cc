// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/spill.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/base/file.h"

namespace ampc {
namespace {

constexpr size_t kMaxTransfer = size_t{1} << 30;

Status Failed(const std::string& beside, int error) {
  return IoError("E0773", "cannot use a temporary file for '{}': {}", beside,
                 std::generic_category().message(error));
}

}  // namespace

SpillFile::~SpillFile() {
  if (fd_ >= 0) close(fd_);
}

SpillFile::SpillFile(SpillFile&& other) noexcept
    : beside_(std::move(other.beside_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

Status SpillFile::Open() {
  // Beside a device (/dev/null) there is no room for files.
  struct stat info {};
  const bool device = stat(beside_.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  const std::string folder = device ? "/tmp" : DirName(beside_);
  fd_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd_ >= 0) return {};
  // Not every file system has unnamed files.
  std::string name = JoinPath(folder, ".ampc_spill_XXXXXX");
  fd_ = mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0) return Failed(beside_, errno);
  unlink(name.c_str());
  return {};
}

Result<int64_t> SpillFile::Append(std::span<const std::byte> bytes) {
  if (fd_ < 0) AMPC_TRY(Open());
  const int64_t start = size_;
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), std::min(bytes.size(), kMaxTransfer), size_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed(beside_, n < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(n));
    size_ += n;
  }
  return start;
}

Status SpillFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), std::min(out.size(), kMaxTransfer), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Failed(beside_, n < 0 ? errno : EIO);
    out = out.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return {};
}

}  // namespace ampc
