// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/external_data.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>

namespace ampc {
namespace {

std::optional<int64_t> ParseCount(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Components of a location, or an error that says why it may not be opened.
Result<std::vector<std::string>> Components(const std::string& location) {
  if (location.empty()) return BadInput("E0105", "has external data without a location");
  if (location.find('\0') != std::string::npos) {
    return BadInput("E0105", "has an external location with a NUL character");
  }
  if (location.front() == '/') {
    return BadInput("E0105", "has external data at '{}': an absolute path is not allowed",
                    location);
  }
  std::vector<std::string> parts;
  for (size_t at = 0; at <= location.size();) {
    const size_t slash = std::min(location.find('/', at), location.size());
    std::string part = location.substr(at, slash - at);
    at = slash + 1;
    if (part == "..") {
      return BadInput("E0105", "has external data at '{}': '..' is not allowed", location);
    }
    if (!part.empty() && part != ".") parts.push_back(std::move(part));
  }
  if (parts.empty() || location.back() == '/') {
    return BadInput("E0105", "has external data at '{}', which names no file", location);
  }
  return parts;
}

// Why this is not a file that may be read, or "".
std::string WhyNotFile(const struct stat& info) {
  if (S_ISLNK(info.st_mode)) return "is a symbolic link; put the file itself beside the model";
  if (S_ISDIR(info.st_mode)) return "is a folder";
  if (!S_ISREG(info.st_mode)) return "is no regular file";
  if (info.st_nlink != 1) return fmt::format("has {} hard links; copy it", info.st_nlink);
  return "";
}

}  // namespace

Status ExternalData::Set(std::string_view key, std::string_view value) {
  if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
    return BadInput("E0105", "has the external_data key '{}' twice", key);
  seen_.emplace_back(key);
  if (key == "checksum") return {};  // SHA-1 of the whole file: optional, nobody writes it
  if (key == "location") {
    location = value;
    return {};
  }
  if (key != "offset" && key != "length") {
    return BadInput("E0105",
                    "has the external_data key '{}'; known are location, offset, length, checksum",
                    key);
  }
  const std::optional<int64_t> count = ParseCount(value);
  if (!count)
    return BadInput("E0105", "has external_data {}='{}', expected a number >= 0", key, value);
  if (key == "offset") offset = *count;
  if (key == "length") length = *count;
  return {};
}

Status ExternalData::Check(int64_t bytes, const InputFile& file) const {
  if (length && *length != bytes)
    return BadInput("E0105", "needs {} bytes, but its external length is {}", bytes, *length);
  if (offset <= file.size() && bytes <= file.size() - offset) return {};
  return BadInput("E0105", "needs bytes {} to {} of '{}', which has {}", offset,
                  offset + std::min(bytes, INT64_MAX - offset), file.path(), file.size());
}

Status OfTensor(std::string_view name, const Status& error) {
  return Status::Error(error.error_class(), error.id(),
                       fmt::format("tensor '{}' {}", name, error.message()));
}

Result<InputFile> OpenExternalData(const std::string& folder, const std::string& location) {
  AMPC_ASSIGN(const std::vector<std::string> parts, Components(location));
  const std::string path = JoinPath(folder, location);
  const auto cannot = [&path](int error) {
    return BadInput("E0105", "has external data in '{}': {}", path,
                    std::generic_category().message(error));
  };
  Descriptor at(open(folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (size_t i = 0; at.valid() && i + 1 < parts.size(); ++i) {
    at = Descriptor(
        openat(at.get(), parts[i].c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  // Looked at before it is opened (opening a pipe has effects), and again through the descriptor.
  const char* name = parts.back().c_str();
  struct stat info {};
  if (!at.valid() || fstatat(at.get(), name, &info, AT_SYMLINK_NOFOLLOW) != 0) return cannot(errno);
  std::string why = WhyNotFile(info);
  if (why.empty()) {
    Descriptor file(
        openat(at.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!file.valid() || fstat(file.get(), &info) != 0) return cannot(errno);
    why = WhyNotFile(info);
    if (why.empty()) return InputFile(std::move(file), path, info.st_size);
  }
  return BadInput("E0105", "has external data in '{}', which {}", path, why);
}

}  // namespace ampc
