// SPDX-License-Identifier: Apache-2.0
#pragma once
// An unnamed temporary file: bytes that do not fit memory for a while. It is gone when the process
// ends, however it ends.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace ampc {

class SpillFile {
 public:
  /// Nothing is created before the first Append. The file lies in the folder of `beside`, which
  /// also names it in errors.
  explicit SpillFile(std::string beside) : beside_(std::move(beside)) {}
  ~SpillFile();
  SpillFile(SpillFile&& other) noexcept;
  SpillFile& operator=(SpillFile&&) = delete;

  /// Returns the offset of the bytes.
  Result<int64_t> Append(std::span<const std::byte> bytes);
  Status ReadAt(int64_t offset, std::span<std::byte> out) const;

 private:
  Status Open();

  std::string beside_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace ampc
