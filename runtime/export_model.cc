// SPDX-License-Identifier: Apache-2.0
//
// ONNX's ModelProto by hand. Protobuf parsers merge concatenated messages: fields of sub-messages
// merge, repeated fields append. So `source_model` followed by `{graph: {initializer: T1}} {graph:
// {initializer: T2}} …` is the source model with those initializers. Field numbers are those of
// onnx.proto, which never change:
//
//   ModelProto.graph = 7, GraphProto.initializer = 5, TensorProto: dims = 1, data_type = 2, name =
//   8, raw_data = 9, external_data = 13 (StringStringEntryProto: key = 1, value = 2), data_location
//   = 14 (EXTERNAL = 1).

#include "runtime/export_model.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "runtime/base/file.h"
#include "runtime/base/float16.h"
#include "runtime/data/safetensors.h"

namespace ampc {
namespace {

using plan::Export;

// ---- the values ---------------------------------------------------------------------------------

template <typename To, typename From, typename F>
std::vector<std::byte> Convert(std::span<const std::byte> in, F&& convert) {
  const size_t n = in.size() / sizeof(From);
  std::vector<std::byte> out(n * sizeof(To));
  for (size_t i = 0; i < n; ++i) {
    From from;
    std::memcpy(&from, in.data() + i * sizeof(From), sizeof from);
    const To to = convert(from);
    std::memcpy(out.data() + i * sizeof(To), &to, sizeof to);
  }
  return out;
}

/// One rounding from the state's type to the source's.
Result<std::vector<std::byte>> Round(std::span<const std::byte> in, DType from, DType to) {
  const bool wide = from == DType::kFloat64;
  if (wide || from == DType::kFloat32) {
    switch (to) {
      case DType::kFloat32:
        return Convert<float, double>(in, [](double v) { return static_cast<float>(v); });
      case DType::kFloat64:
        return Convert<double, float>(in, [](float v) { return static_cast<double>(v); });
      case DType::kFloat16:
        return wide ? Convert<uint16_t, double>(in, HalfFromDouble)
                    : Convert<uint16_t, float>(in, HalfFromFloat);
      case DType::kBFloat16:
        return wide ? Convert<uint16_t, double>(in, BFloat16FromDouble)
                    : Convert<uint16_t, float>(in, BFloat16FromFloat);
      default:
        break;
    }
  }
  return InternalError("E0661", "no rounding from {} to {}", Name(from), Name(to));
}

int64_t BytesOf(const Export& e) { return TensorDesc{e.dtype, e.dims}.bytes(); }

/// The initializer's bytes, as they are written.
Result<std::vector<std::byte>> ValueOf(const plan::Plan& plan, Executor& executor,
                                       const Export& e) {
  if (e.state < 0) {
    std::vector<std::byte> bytes(static_cast<size_t>(e.length));
    AMPC_TRY(plan::ReadWeight(plan, e.offset, e.crc, e.initializer, bytes));
    return bytes;
  }
  const TensorDesc& desc = plan.states[static_cast<size_t>(e.state)].desc;
  std::vector<std::byte> bytes(static_cast<size_t>(desc.bytes()));
  AMPC_TRY(executor.ReadState(e.state, bytes));
  if (desc.dtype == e.dtype) return bytes;
  return Round(bytes, desc.dtype, e.dtype);
}

// ---- the wire -----------------------------------------------------------------------------------

/// Protobuf fields appended to a string.
class Message {
 public:
  void Varint(uint32_t field, uint64_t value) {
    Number(field << 3);
    Number(value);
  }
  void Bytes(uint32_t field, std::string_view value) {
    Open(field, value.size());
    text_ += value;
  }
  /// Tag and length of a field whose content follows.
  void Open(uint32_t field, uint64_t length) {
    Number((field << 3) | 2);
    Number(length);
  }
  const std::string& text() const { return text_; }

 private:
  void Number(uint64_t v) {
    google::protobuf::io::StringOutputStream stream(&text_);
    google::protobuf::io::CodedOutputStream(&stream).WriteVarint64(v);
  }
  std::string text_;
};

struct Place {
  std::string location;  ///< file name beside the model
  int64_t offset = 0;
};

/// `{graph: {initializer: {…` up to the raw data of `data_bytes` bytes, or all of it where the data
/// is external.
std::string InitializerHead(const Export& e, const std::optional<Place>& external) {
  const auto data_bytes = static_cast<uint64_t>(BytesOf(e));
  Message tensor;
  for (const int64_t d : e.dims) tensor.Varint(1, static_cast<uint64_t>(d));
  tensor.Varint(2, static_cast<uint64_t>(e.dtype));
  tensor.Bytes(8, e.initializer);
  uint64_t follows = 0;
  if (external) {
    const std::pair<std::string_view, std::string> entries[] = {
        {"location", external->location},
        {"offset", std::to_string(external->offset)},
        {"length", std::to_string(data_bytes)}};
    for (const auto& [key, value] : entries) {
      Message entry;
      entry.Bytes(1, key);
      entry.Bytes(2, value);
      tensor.Bytes(13, entry.text());
    }
    tensor.Varint(14, 1);
  } else {
    tensor.Open(9, data_bytes);
    follows = data_bytes;
  }
  const uint64_t tensor_bytes = tensor.text().size() + follows;
  Message initializer;
  initializer.Open(5, tensor_bytes);
  Message graph;
  graph.Open(7, initializer.text().size() + tensor_bytes);
  return graph.text() + initializer.text() + tensor.text();
}

/// Small tensors stay in the model: readers want shapes and scalars without opening the data file.
constexpr int64_t kSmall = 1024;
constexpr int64_t kPage = 4096;

Status WriteInline(const plan::Plan& plan, Executor& executor, const std::string& path) {
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  AMPC_TRY(file.Append(plan.source_model));
  for (const Export& e : plan.exports) {
    AMPC_ASSIGN(const std::vector<std::byte> value, ValueOf(plan, executor, e));
    AMPC_TRY(file.Append(InitializerHead(e, std::nullopt)));
    AMPC_TRY(file.Append(value));
  }
  return file.Commit();
}

/// True when the model at `path` keeps weights in `location`: the name stands in it as a protobuf
/// string.
bool NamesDataFile(const std::string& path, const std::string& location) {
  const Result<MappedFile> model = MappedFile::Open(path);
  if (!model.ok()) return false;
  Message entry;
  entry.Bytes(2, location);
  const std::string_view text(reinterpret_cast<const char*>(model->data()),
                              static_cast<size_t>(model->size()));
  return text.find(entry.text()) != std::string_view::npos;
}

/// A model and its data are two files and two renames, with a moment between them. So the data goes
/// to a file that the old model does not name: until its own rename the old model keeps its data.
Status WriteExternal(const plan::Plan& plan, Executor& executor, const std::string& path) {
  const std::string target = FollowLinks(path);
  const std::string name = std::filesystem::path(target).filename().string();
  std::string location = name + ".data", other = name + ".data2";
  const bool replaces = NamesDataFile(target, location);
  if (replaces) std::swap(location, other);
  const bool stale = replaces || NamesDataFile(target, other);
  AMPC_ASSIGN(AtomicFile model, AtomicFile::Create(path));
  AMPC_ASSIGN(AtomicFile data, AtomicFile::Create(JoinPath(DirName(target), location)));
  AMPC_TRY(model.Append(plan.source_model));
  for (const Export& e : plan.exports) {
    AMPC_ASSIGN(const std::vector<std::byte> value, ValueOf(plan, executor, e));
    if (BytesOf(e) <= kSmall) {
      AMPC_TRY(model.Append(InitializerHead(e, std::nullopt)));
      AMPC_TRY(model.Append(value));
      continue;
    }
    AMPC_TRY(data.PadTo(kPage));
    AMPC_TRY(model.Append(InitializerHead(e, Place{location, data.size()})));
    AMPC_TRY(data.Append(value));
  }
  // The data first: a model never names data that is not there.
  AMPC_TRY(data.Commit());
  AMPC_TRY(model.Commit());
  // The old model's data has no reader any more.
  const std::string left = JoinPath(DirName(target), other);
  if (stale && unlink(left.c_str()) != 0 && errno != ENOENT)
    return IoError("E0663", "cannot remove the data of the old model: {}",
                   std::generic_category().message(errno))
        .Of(left);
  return {};
}

}  // namespace

Status ExportModel(const plan::Plan& plan, Executor& executor, const std::string& path,
                   const ExportOptions& options) {
  if (plan.source_model.empty()) {
    return BadInput("E0662",
                    "the plan holds no source model, so there is nothing to export; compile it "
                    "again with ampc");
  }
  int64_t total = static_cast<int64_t>(plan.source_model.size());
  for (const Export& e : plan.exports) {
    total += static_cast<int64_t>(InitializerHead(e, std::nullopt).size()) + BytesOf(e);
  }
  return total > options.max_inline_bytes ? WriteExternal(plan, executor, path)
                                          : WriteInline(plan, executor, path);
}

Status SaveWeights(const plan::Plan& plan, Executor& executor, const std::string& path) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string_view, const Export*> by_name;
  for (const Export& e : plan.exports) {
    by_name[e.initializer] = &e;
    SafetensorsEntry entry;
    entry.name = e.initializer;
    entry.dtype = e.dtype;
    entry.dims = e.dims;
    entries.push_back(std::move(entry));
  }
  AMPC_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::Create(path, std::move(entries)));
  for (const SafetensorsEntry& entry : writer.entries()) {
    AMPC_ASSIGN(const std::vector<std::byte> value,
                ValueOf(plan, executor, *by_name.at(entry.name)));
    AMPC_TRY(writer.Append(value));
  }
  return writer.Commit();
}

}  // namespace ampc
