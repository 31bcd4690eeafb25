// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the libFuzzer targets share. A target is one file with LLVMFuzzerTestOneInput; it gives the
// input to a reader as a user would, and ends the process when the reader breaks a promise: an
// internal error, or a result that does not read back. Memory errors and undefined behaviour are
// the sanitizers' to find, hangs and hunger libFuzzer's.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "runtime/base/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ampc::fuzz {

/// Stops the run with a sentence; libFuzzer keeps the input.
inline void Fail(std::string_view what) {
  fmt::print(stderr, "fuzz: {}\n", what);
  __builtin_trap();
}

/// Bad input is what readers are for; only our own bugs are failures.
inline void NoBug(const Status& status) {
  if (!status.ok() && status.error_class() == ErrorClass::kInternal) Fail(status.ToString());
}

inline std::string_view TextOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A folder of this process in memory (or in /tmp), which is also its working directory, so that a
/// name in an input opens nothing else. Removed when the process ends.
class WorkFolder {
 public:
  WorkFolder() {
    const bool memory = access("/dev/shm", W_OK) == 0;
    path_ = fmt::format("{}/ampc-fuzz.{}", memory ? "/dev/shm" : "/tmp", getpid());
    std::filesystem::create_directories(path_);
    if (chdir(path_.c_str()) != 0) Fail("cannot enter " + path_);
  }
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  /// Writes the file `name` in the folder; the name it can be opened by.
  std::string Write(std::string_view name, std::string_view bytes) const {
    const std::string path = fmt::format("{}/{}", path_, name);
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace ampc::fuzz
