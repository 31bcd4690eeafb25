// SPDX-License-Identifier: Apache-2.0
//
// Field numbers are those of onnx.proto, which never change: ModelProto.graph = 7,
// GraphProto.initializer = 5, TensorProto: dims = 1, data_type = 2, float_data = 4, int32_data = 5,
// int64_data = 7, name = 8, raw_data = 9, double_data = 10, uint64_data = 11, external_data = 13
// (StringStringEntryProto: key = 1, value = 2), data_location = 14 (EXTERNAL = 1). A message may
// come in several pieces of the same field; their contents add up.

#include "runtime/onnx_weights.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

namespace ampc {
namespace {

Status Damaged(std::string_view what) { return BadInput("E0664", "damaged ONNX file: {}", what); }

/// One field of a message.
struct Field {
  uint32_t number = 0;
  uint32_t wire = 0;      ///< 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes
  uint64_t value = 0;     ///< wire 0
  std::string_view text;  ///< the others
};

/// Walks over the fields of a message.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  bool done() const { return rest_.empty(); }
  Result<Field> Next() {
    Field field;
    AMPC_ASSIGN(const uint64_t tag, Varint());
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire = static_cast<uint32_t>(tag & 7);
    uint64_t length = field.wire == 1 ? 8 : 4;
    if (field.wire == 0) {
      AMPC_ASSIGN(field.value, Varint());
      return field;
    }
    if (field.wire == 2) {
      AMPC_ASSIGN(length, Varint());
    } else if (field.wire != 1 && field.wire != 5) {
      return Damaged("a field of no known kind");
    }
    if (length > rest_.size()) return Damaged("a field is longer than its message");
    field.text = rest_.substr(0, static_cast<size_t>(length));
    rest_.remove_prefix(static_cast<size_t>(length));
    return field;
  }
  Result<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return Damaged("a number has no end");
  }

 private:
  std::string_view rest_;
};

/// Numbers of a repeated field, packed or one by one, stored as the low bytes of `size`.
Status AppendVarints(const Field& field, size_t size, std::vector<std::byte>* out) {
  const auto append = [&](uint64_t v) {
    const size_t at = out->size();
    out->resize(at + size);
    std::memcpy(out->data() + at, &v, size);
  };
  if (field.wire == 0) {
    append(field.value);
    return {};
  }
  for (Fields numbers(field.text); !numbers.done();) {
    AMPC_ASSIGN(const uint64_t v, numbers.Varint());
    append(v);
  }
  return {};
}

std::optional<int64_t> ToInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Names inside the model's folder only: a model must not make us read other places.
bool StaysInside(std::string_view location) {
  if (location.empty() || location.front() == '/') return false;
  while (!location.empty()) {
    const size_t slash = location.find('/');
    if (location.substr(0, slash) == "..") return false;
    location.remove_prefix(slash == std::string_view::npos ? location.size() : slash + 1);
  }
  return true;
}

}  // namespace

Result<OnnxWeights> OnnxWeights::Open(const std::string& path) {
  OnnxWeights weights;
  AMPC_ASSIGN(weights.file_, MappedFile::Open(path));
  const std::string_view model(reinterpret_cast<const char*>(weights.file_.data()),
                               static_cast<size_t>(weights.file_.size()));
  bool found = false;
  for (Fields fields(model); !fields.done();) {
    AMPC_ASSIGN(const Field field, fields.Next());
    if (field.number != 7 || field.wire != 2) continue;
    found = true;
    AMPC_TRY(weights.ReadGraph(field.text));
  }
  if (!found) return Damaged("it has no graph");
  return weights;
}

Status OnnxWeights::ReadGraph(std::string_view graph) {
  for (Fields fields(graph); !fields.done();) {
    AMPC_ASSIGN(const Field field, fields.Next());
    if (field.number == 5 && field.wire == 2) AMPC_TRY(ReadTensor(field.text));
  }
  return {};
}

Status OnnxWeights::ReadTensor(std::string_view tensor) {
  using Place = OnnxInitializer::Place;
  OnnxInitializer out;
  uint64_t dtype = 0;
  bool beside = false;
  std::vector<std::byte> dims;
  for (Fields fields(tensor); !fields.done();) {
    AMPC_ASSIGN(const Field field, fields.Next());
    const auto data = [&](Place place) {
      out.place = place;
      out.data.push_back(field.text);
    };
    switch (field.number) {
      case 1:
        AMPC_TRY(AppendVarints(field, sizeof(int64_t), &dims));
        break;
      case 2:
        dtype = field.value;
        break;
      case 3:
        return Damaged("an initializer comes in segments, which is not supported");
      case 4:
        data(Place::kFloats);
        break;
      case 5:
        data(Place::kInt32s);
        break;
      case 7:
        data(Place::kInt64s);
        break;
      case 8:
        out.name = field.text;
        break;
      case 9:
        data(Place::kRaw);
        break;
      case 10:
        data(Place::kDoubles);
        break;
      case 11:
        data(Place::kUint64s);
        break;
      case 13:
        AMPC_TRY(ReadExternal(field.text, &out));
        break;
      case 14:
        beside = field.value == 1;
        break;
      default:
        break;
    }
    if (field.wire == 0 && field.number >= 4 && field.number <= 11)
      return Damaged(fmt::format("the numbers of '{}' are not packed", out.name));
  }
  out.dims.resize(dims.size() / sizeof(int64_t));
  if (!dims.empty()) std::memcpy(out.dims.data(), dims.data(), dims.size());
  if (dtype > 64 || !IsKnownDType(static_cast<int>(dtype))) return {};  // strings: no weights
  out.dtype = static_cast<DType>(dtype);
  if (!CheckedNumElements(out.dims, SizeOf(out.dtype)))
    return Damaged(fmt::format("'{}' has dims {}", out.name, ToString(out.dims)));
  if (beside) out.place = Place::kBeside;
  entries_.push_back(std::move(out));
  return {};
}

Status OnnxWeights::ReadExternal(std::string_view entry, OnnxInitializer* out) {
  std::string_view key, value;
  for (Fields fields(entry); !fields.done();) {
    AMPC_ASSIGN(const Field field, fields.Next());
    if (field.number == 1) key = field.text;
    if (field.number == 2) value = field.text;
  }
  if (key == "location") out->location = value;
  if (key != "offset") return {};
  const std::optional<int64_t> offset = ToInt(value);
  if (!offset || *offset < 0) return Damaged(fmt::format("offset '{}' of external data", value));
  out->offset = *offset;
  return {};
}

Result<std::vector<std::byte>> OnnxWeights::Read(const OnnxInitializer& entry) const {
  using Place = OnnxInitializer::Place;
  const auto size = static_cast<size_t>(entry.bytes());
  std::vector<std::byte> bytes;
  if (entry.place == Place::kBeside) {
    if (!StaysInside(entry.location))
      return BadInput("E0664", "'{}': external data '{}' is outside of the model's folder",
                      entry.name, entry.location);
    AMPC_ASSIGN(const InputFile file,
                InputFile::Open(JoinPath(DirName(file_.path()), entry.location)));
    if (entry.offset > file.size() || entry.bytes() > file.size() - entry.offset)
      return Damaged(fmt::format("'{}' does not fit its file '{}'", entry.name, entry.location));
    bytes.resize(size);
    AMPC_TRY(file.ReadAt(entry.offset, bytes));
    return bytes;
  }
  const bool varints = entry.place == Place::kInt32s || entry.place == Place::kInt64s ||
                       entry.place == Place::kUint64s;
  for (const std::string_view text : entry.data) {
    if (varints) {
      AMPC_TRY(AppendVarints({.wire = 2, .value = 0, .text = text},
                             static_cast<size_t>(SizeOf(entry.dtype)), &bytes));
    } else {
      const auto piece = std::as_bytes(std::span(text));
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    }
  }
  if (bytes.size() != size)
    return Damaged(
        fmt::format("'{}' has {} bytes of data, expected {}", entry.name, bytes.size(), size));
  return bytes;
}

}  // namespace ampc
