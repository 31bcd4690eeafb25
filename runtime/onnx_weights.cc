// SPDX-License-Identifier: Apache-2.0
//
// Field numbers are those of onnx.proto, which never change: ModelProto.graph = 7,
// GraphProto.initializer = 5, TensorProto: dims = 1, data_type = 2, float_data = 4, int32_data = 5,
// int64_data = 7, name = 8, raw_data = 9, double_data = 10, uint64_data = 11, external_data = 13
// (StringStringEntryProto: key = 1, value = 2), data_location = 14 (EXTERNAL = 1). A message may
// come in several pieces of the same field; their contents add up.

#include "runtime/onnx_weights.h"

#include <cstring>
#include <optional>
#include <utility>

#include "runtime/base/wire.h"

namespace ampc {
namespace {

Status Damaged(std::string_view what) { return BadInput("E0664", "damaged ONNX file: {}", what); }

Result<WireField> Next(std::string_view* rest) {
  if (std::optional<WireField> field = TakeField(rest)) return *field;
  return Damaged("a field has no known kind, or is longer than its message");
}

/// Numbers of a repeated field, packed or one by one, stored as the low bytes of `size`.
Status AppendVarints(const WireField& field, size_t size, std::vector<std::byte>* out) {
  const auto append = [&](uint64_t v) {
    const size_t at = out->size();
    out->resize(at + size);
    std::memcpy(out->data() + at, &v, size);
  };
  if (field.wire == 0) {
    append(field.varint);
    return {};
  }
  for (std::string_view rest = field.text; !rest.empty();) {
    const std::optional<uint64_t> v = TakeVarint(&rest);
    if (!v) return Damaged("a number has no end");
    append(*v);
  }
  return {};
}

}  // namespace

Result<OnnxWeights> OnnxWeights::Open(const std::string& path) {
  OnnxWeights weights;
  AMPC_ASSIGN(weights.file_, MappedFile::Open(path));
  AMPC_TRY(weights.ReadModel({reinterpret_cast<const char*>(weights.file_.data()),
                              static_cast<size_t>(weights.file_.size())}));
  return weights;
}

Result<OnnxWeights> OnnxWeights::Of(std::string_view model) {
  OnnxWeights weights;
  AMPC_TRY(weights.ReadModel(model));
  return weights;
}

Status OnnxWeights::ReadModel(std::string_view model) {
  bool found = false;
  for (std::string_view rest = model; !rest.empty();) {
    AMPC_ASSIGN(const WireField field, Next(&rest));
    if (field.number != 7 || field.wire != 2) continue;
    found = true;
    AMPC_TRY(ReadGraph(field.text));
  }
  return found ? Status() : Damaged("it has no graph");
}

Status OnnxWeights::ReadGraph(std::string_view graph) {
  for (std::string_view rest = graph; !rest.empty();) {
    AMPC_ASSIGN(const WireField field, Next(&rest));
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
  std::vector<std::string_view> external;
  for (std::string_view rest = tensor; !rest.empty();) {
    AMPC_ASSIGN(const WireField field, Next(&rest));
    const auto data = [&](Place place) {
      out.place = place;
      out.data.push_back(field.text);
    };
    switch (field.number) {
      case 1:
        AMPC_TRY(AppendVarints(field, sizeof(int64_t), &dims));
        break;
      case 2:
        dtype = field.varint;
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
        external.push_back(field.text);
        break;
      case 14:
        beside = field.varint == 1;
        break;
      default:
        break;
    }
    if (field.wire == 0 && field.number >= 4 && field.number <= 11)
      return Damaged(fmt::format("the numbers of '{}' are not packed", out.name));
  }
  for (const std::string_view entry : external) {
    if (Status s = ReadExternal(entry, &out); !s.ok()) return OfTensor(out.name, s);
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
  for (std::string_view rest = entry; !rest.empty();) {
    AMPC_ASSIGN(const WireField field, Next(&rest));
    if (field.number == 1) key = field.text;
    if (field.number == 2) value = field.text;
  }
  return out->beside.Set(key, value);
}

Result<std::vector<std::byte>> OnnxWeights::Read(const OnnxInitializer& entry) const {
  using Place = OnnxInitializer::Place;
  const auto size = static_cast<size_t>(entry.bytes());
  std::vector<std::byte> bytes;
  if (entry.place == Place::kBeside) {
    if (file_.path().empty())
      return Damaged(fmt::format("the data of '{}' lies beside no file", entry.name));
    const auto file = OpenExternalData(DirName(file_.path()), entry.beside.location);
    if (!file.ok()) return OfTensor(entry.name, file.status());
    if (Status s = entry.beside.Check(entry.bytes(), *file); !s.ok())
      return OfTensor(entry.name, s);
    bytes.resize(size);
    AMPC_TRY(file->ReadAt(entry.beside.offset, bytes));
    return bytes;
  }
  const bool varints = entry.place == Place::kInt32s || entry.place == Place::kInt64s ||
                       entry.place == Place::kUint64s;
  for (const std::string_view text : entry.data) {
    if (varints) {
      AMPC_TRY(AppendVarints({.wire = 2, .text = text}, static_cast<size_t>(SizeOf(entry.dtype)),
                             &bytes));
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
