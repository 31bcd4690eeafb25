// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/weights.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

#include <onnx/onnx_pb.h>

#include "runtime/base/file.h"
#include "runtime/base/float16.h"

namespace ampc {
namespace {

using onnx::TensorProto;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { Reset(-1); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      Reset(other.fd_);
      other.fd_ = -1;
    }
    return *this;
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }
  int fd_;
};

// A regular file that stays open, so that it cannot be swapped after the checks.
class FileSource final : public ir::ByteSource {
 public:
  FileSource(Descriptor fd, std::string path, int64_t size)
      : fd_(std::move(fd)), path_(std::move(path)), size_(size) {}
  Status Read(int64_t offset, std::span<std::byte> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = pread(fd_.get(), out.data() + done, out.size() - done,
                              offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return IoError("E0508", "cannot read '{}': {}", path_, std::strerror(errno));
      if (n == 0) {
        return IoError("E0508", "'{}' ends at byte {}, expected {} bytes at {}", path_,
                       offset + static_cast<int64_t>(done), out.size(), offset);
      }
      done += static_cast<size_t>(n);
    }
    return {};
  }
  std::string_view path() const override { return path_; }
  int64_t size() const { return size_; }

 private:
  Descriptor fd_;
  std::string path_;
  int64_t size_;
};

std::optional<int64_t> ParseCount(const std::string& text) {
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

struct Location {
  std::string file;
  int64_t offset = 0;
  std::optional<int64_t> length;
  std::optional<int64_t> region;
};

Result<Location> ParseExternal(const TensorProto& proto) {
  Location where;
  std::vector<std::string> seen;
  for (const auto& entry : proto.external_data()) {
    if (std::find(seen.begin(), seen.end(), entry.key()) != seen.end()) {
      return BadInput("E0105", "has the external_data key '{}' twice", entry.key());
    }
    seen.push_back(entry.key());
    if (entry.key() == "location") {
      where.file = entry.value();
      continue;
    }
    if (entry.key() == "checksum") continue;  // SHA-1 of the whole file: optional, nobody writes it
    const auto count = ParseCount(entry.value());
    const bool known =
        entry.key() == "offset" || entry.key() == "length" || entry.key() == kRegionKey;
    if (!known) {
      return BadInput(
          "E0105", "has the external_data key '{}'; known are location, offset, length, checksum",
          entry.key());
    }
    if (!count) {
      return BadInput("E0105", "has external_data {}='{}', expected a number >= 0", entry.key(),
                      entry.value());
    }
    if (entry.key() == "offset") where.offset = *count;
    if (entry.key() == "length") where.length = *count;
    if (entry.key() == kRegionKey) where.region = *count;
  }
  return where;
}

}  // namespace

Result<ModelFiles> ModelFiles::Open(const std::string& path, std::vector<FileRegion> regions) {
  ModelFiles files(DirName(path));
  Descriptor fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return IoError("E0501", "cannot open '{}': {}", path, std::strerror(errno));
  }
  files.model_ = std::make_shared<FileSource>(std::move(fd), path, info.st_size);
  files.regions_ = std::move(regions);
  return files;
}

Result<std::shared_ptr<const ir::ByteSource>> ModelFiles::OpenExternal(
    const std::string& location) {
  if (auto it = external_.find(location); it != external_.end()) return it->second;
  AMPC_ASSIGN(const std::vector<std::string> parts, Components(location));
  const std::string path = JoinPath(folder_, location);
  Descriptor folder(
      open(folder_.empty() ? "." : folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (size_t i = 0; folder.valid() && i + 1 < parts.size(); ++i) {
    folder = Descriptor(
        openat(folder.get(), parts[i].c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  struct stat before {
  }, info{};
  const char* name = parts.back().c_str();
  if (!folder.valid() || fstatat(folder.get(), name, &before, AT_SYMLINK_NOFOLLOW) != 0) {
    return BadInput("E0105", "has external data in '{}': {}", path, std::strerror(errno));
  }
  // Looked at before it is opened (opening a pipe has effects), and again through the descriptor.
  std::string why = WhyNotFile(before);
  if (why.empty()) {
    Descriptor fd(
        openat(folder.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!fd.valid() || fstat(fd.get(), &info) != 0) {
      return BadInput("E0105", "has external data in '{}': {}", path, std::strerror(errno));
    }
    why = WhyNotFile(info);
    if (why.empty()) {
      auto source = std::make_shared<const FileSource>(std::move(fd), path, info.st_size);
      external_.emplace(location, source);
      return std::shared_ptr<const ir::ByteSource>(source);
    }
  }
  return BadInput("E0105", "has external data in '{}', which {}", path, why);
}

Result<ir::ByteRef> ModelFiles::FindExternal(const TensorProto& proto, const TensorForm& form) {
  AMPC_ASSIGN(const Location where, ParseExternal(proto));
  if (proto.has_raw_data() || proto.float_data_size() > 0 || proto.int32_data_size() > 0 ||
      proto.int64_data_size() > 0 || proto.double_data_size() > 0 || proto.uint64_data_size() > 0) {
    return BadInput("E0105", "has external data and data of its own");
  }
  if (where.region) {
    if (static_cast<size_t>(*where.region) >= regions_.size() || !where.file.empty()) {
      return BadInput(
          "E0105", "has the external_data key '{}'; known are location, offset, length, checksum",
          kRegionKey);
    }
    const FileRegion region = regions_[static_cast<size_t>(*where.region)];
    if (region.length != form.bytes()) {
      return BadInput("E0104", "({}{}) needs {} bytes of data, but has {}", Name(form.dtype),
                      ToString(form.dims), form.bytes(), region.length);
    }
    return ir::ByteRef{model_, region.offset, region.length};
  }
  AMPC_ASSIGN(auto source, OpenExternal(where.file));
  const int64_t size = static_cast<const FileSource&>(*source).size();
  if (where.length && *where.length != form.bytes()) {
    return BadInput("E0105", "({}{}) needs {} bytes, but its external length is {}",
                    Name(form.dtype), ToString(form.dims), form.bytes(), *where.length);
  }
  if (where.offset > size || form.bytes() > size - where.offset) {
    return BadInput("E0105", "needs bytes {} to {} of '{}', which has {}", where.offset,
                    where.offset + std::min(form.bytes(), INT64_MAX - where.offset), source->path(),
                    size);
  }
  return ir::ByteRef{std::move(source), where.offset, form.bytes()};
}

Result<TensorData> ModelFiles::Find(const TensorProto& proto) {
  AMPC_ASSIGN(TensorForm form, CheckTensor(proto));
  if (form.storage == TensorForm::Storage::kExternal) {
    auto ref = FindExternal(proto, form);
    if (!ref.ok()) {
      const Status& s = ref.status();
      return Status::Error(s.error_class(), s.id(),
                           fmt::format("tensor '{}' {}", proto.name(), s.message()));
    }
    return TensorData{std::move(form), std::move(*ref)};
  }
  std::vector<std::byte> bytes(static_cast<size_t>(form.bytes()));
  DecodeTensor(proto, form, bytes);
  const int64_t length = form.bytes();
  return TensorData{std::move(form), {ir::MemorySource(std::move(bytes)), 0, length}};
}

Result<HostTensor> ReadTensor(const TensorData& tensor) {
  HostTensor t{tensor.form.dtype, tensor.form.dims,
               std::vector<std::byte>(static_cast<size_t>(tensor.form.bytes()))};
  AMPC_TRY(tensor.bytes.source->Read(tensor.bytes.offset, t.data));
  if (t.dtype == DType::kBool) {
    for (std::byte& b : t.data) b = std::byte{b != std::byte{0}};
  }
  return t;
}

namespace {

// Works on bit patterns, so that the loop is a few integer instructions per element: magnitudes of
// IEEE formats order as their bits do. `infinity` is the pattern of +inf, `value` turns a pattern
// into a number.
template <typename Bits, typename Value>
Result<ValueScan> Scan(const TensorData& tensor, Bits infinity, Value value) {
  constexpr int64_t kChunk = (1 << 20) / sizeof(Bits);
  constexpr auto kMagnitude = static_cast<Bits>(std::numeric_limits<Bits>::max() >> 1);
  const int64_t elements = tensor.form.elements;
  std::vector<Bits> buffer(static_cast<size_t>(std::min(kChunk, elements)));
  Bits first = 0, different = 0, largest = 0, sum = 0;
  bool has_inf = false;
  for (int64_t at = 0; at < elements; at += kChunk) {
    const auto chunk =
        std::span(buffer).first(static_cast<size_t>(std::min(kChunk, elements - at)));
    const int64_t offset = tensor.bytes.offset + at * static_cast<int64_t>(sizeof(Bits));
    AMPC_TRY(tensor.bytes.source->Read(offset, std::as_writable_bytes(chunk)));
    if (at == 0) first = chunk[0];
    Bits inf = 0;
    for (const Bits bits : chunk) {
      const auto magnitude = static_cast<Bits>(bits & kMagnitude);
      const Bits finite = magnitude < infinity ? magnitude : Bits{0};
      different = static_cast<Bits>(different | (bits ^ first));
      sum = static_cast<Bits>(sum + bits);
      inf = static_cast<Bits>(inf | Bits{magnitude == infinity});
      largest = std::max(largest, finite);
    }
    has_inf = has_inf || inf != 0;
  }
  return ValueScan{.all_equal = different == 0,
                   .has_inf = has_inf,
                   .max_finite = static_cast<double>(value(largest)),
                   .sum = sum};
}

}  // namespace

Result<ValueScan> ScanValues(const TensorData& tensor) {
  switch (tensor.form.dtype) {
    case DType::kFloat32:
      return Scan<uint32_t>(tensor, 0x7F800000u,
                            [](uint32_t b) { return std::bit_cast<float>(b); });
    case DType::kFloat64:
      return Scan<uint64_t>(tensor, 0x7FF0000000000000u,
                            [](uint64_t b) { return std::bit_cast<double>(b); });
    case DType::kFloat16:
      return Scan<uint16_t>(tensor, 0x7C00u, FloatFromHalf);
    case DType::kBFloat16:
      return Scan<uint16_t>(tensor, 0x7F80u, FloatFromBFloat16);
    default:
      return InternalError("E7010", "scan of {} values", Name(tensor.form.dtype));
  }
}

Result<bool> EqualBytes(const TensorData& a, const TensorData& b) {
  constexpr int64_t kChunk = 1 << 20;
  if (a.bytes.length != b.bytes.length) return false;
  const auto size = static_cast<size_t>(std::min(kChunk, a.bytes.length));
  std::vector<std::byte> in_a(size), in_b(size);
  for (int64_t at = 0; at < a.bytes.length; at += kChunk) {
    const auto n = static_cast<size_t>(std::min(kChunk, a.bytes.length - at));
    AMPC_TRY(a.bytes.source->Read(a.bytes.offset + at, std::span(in_a).first(n)));
    AMPC_TRY(b.bytes.source->Read(b.bytes.offset + at, std::span(in_b).first(n)));
    if (std::memcmp(in_a.data(), in_b.data(), n) != 0) return false;
  }
  return true;
}

HostTensor ConvertFloats(const HostTensor& tensor, DType to) {
  if (!IsFloat(tensor.dtype) || tensor.dtype == to) return tensor;
  const auto item = static_cast<size_t>(SizeOf(to));
  HostTensor out{to, tensor.dims,
                 std::vector<std::byte>(static_cast<size_t>(tensor.elements()) * item)};
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const HostTensor one = HostTensor::Scalar(to, tensor.GetDouble(i));
    std::memcpy(out.data.data() + static_cast<size_t>(i) * item, one.data.data(), item);
  }
  return out;
}

}  // namespace ampc
