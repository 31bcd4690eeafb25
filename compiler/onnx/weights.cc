// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/weights.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include <onnx/onnx_pb.h>

#include "runtime/base/external_data.h"
#include "runtime/base/float16.h"

namespace ampc {
namespace {

using onnx::TensorProto;

// A file that stays open, so that it cannot be swapped after the checks.
class FileSource final : public ir::ByteSource {
 public:
  explicit FileSource(InputFile file) : file_(std::move(file)) {}
  Status Read(int64_t offset, std::span<std::byte> out) const override {
    return file_.ReadAt(offset, out);
  }
  std::string_view path() const override { return file_.path(); }
  const InputFile& file() const { return file_; }

 private:
  InputFile file_;
};

}  // namespace

Result<ModelFiles> ModelFiles::Open(const std::string& path, std::vector<FileRegion> regions) {
  ModelFiles files(DirName(path));
  AMPC_ASSIGN(InputFile file, InputFile::Open(path));
  files.model_ = std::make_shared<FileSource>(std::move(file));
  files.regions_ = std::move(regions);
  return files;
}

Result<std::shared_ptr<const ir::ByteSource>> ModelFiles::OpenExternal(
    const std::string& location) {
  if (auto it = external_.find(location); it != external_.end()) return it->second;
  AMPC_ASSIGN(InputFile file, OpenExternalData(folder_, location));
  return external_.emplace(location, std::make_shared<const FileSource>(std::move(file)))
      .first->second;
}

Result<ir::ByteRef> ModelFiles::FindRegion(const std::string& index, const TensorForm& form) {
  size_t i = 0;
  const auto [end, error] = std::from_chars(index.data(), index.data() + index.size(), i);
  if (error != std::errc() || end != index.data() + index.size() || i >= regions_.size())
    return ExternalData().Set(kRegionKey, index);  // not one of ours: an unknown key
  const FileRegion region = regions_[i];
  if (region.length != form.bytes()) {
    return BadInput("E0104", "({}{}) needs {} bytes of data, but has {}", Name(form.dtype),
                    ToString(form.dims), form.bytes(), region.length);
  }
  return ir::ByteRef{model_, region.offset, region.length};
}

Result<ir::ByteRef> ModelFiles::FindExternal(const TensorProto& proto, const TensorForm& form) {
  if (proto.external_data_size() == 1 && proto.external_data(0).key() == kRegionKey)
    return FindRegion(proto.external_data(0).value(), form);
  ExternalData where;
  for (const auto& entry : proto.external_data()) AMPC_TRY(where.Set(entry.key(), entry.value()));
  if (proto.has_raw_data() || proto.float_data_size() > 0 || proto.int32_data_size() > 0 ||
      proto.int64_data_size() > 0 || proto.double_data_size() > 0 || proto.uint64_data_size() > 0) {
    return BadInput("E0105", "has external data and data of its own");
  }
  AMPC_ASSIGN(auto source, OpenExternal(where.location));
  AMPC_TRY(where.Check(form.bytes(), static_cast<const FileSource&>(*source).file()));
  return ir::ByteRef{std::move(source), where.offset, form.bytes()};
}

Result<TensorData> ModelFiles::Find(const TensorProto& proto) {
  AMPC_ASSIGN(TensorForm form, CheckTensor(proto));
  if (form.storage == TensorForm::Storage::kExternal) {
    auto ref = FindExternal(proto, form);
    if (!ref.ok()) return OfTensor(proto.name(), ref.status());
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
