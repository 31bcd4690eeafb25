// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/data/array.h"

namespace ampc {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxHeader = 100'000'000;
// Parsed, a value takes 8 times the memory of "1,". A tensor has about ten.
constexpr int64_t kMaxValues = 10'000'000;

struct TypeCode {
  std::string_view code;
  DType dtype;
};
constexpr TypeCode kTypeCodes[] = {
    {"F32", DType::kFloat32}, {"F16", DType::kFloat16}, {"BF16", DType::kBFloat16},
    {"F64", DType::kFloat64}, {"I64", DType::kInt64},   {"I32", DType::kInt32},
    {"I16", DType::kInt16},   {"I8", DType::kInt8},     {"U64", DType::kUInt64},
    {"U32", DType::kUInt32},  {"U16", DType::kUInt16},  {"U8", DType::kUInt8},
    {"BOOL", DType::kBool},
};

Status Damaged(std::string_view what) {
  return BadInput("E0781", "damaged safetensors file: {}", what);
}

/// Remembers the keys of each open object, to find one that comes twice, and drops what is nested
/// deeper than a header can be (kept, 100 MB of brackets would take gigabytes).
class HeaderGuard {
 public:
  HeaderGuard(std::string* duplicate, bool* too_many)
      : duplicate_(duplicate), too_many_(too_many) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (++events_ > kMaxValues) {
      *too_many_ = true;
      return false;
    }
    if (event == Event::object_start) open_.emplace_back();
    if (event == Event::object_end) open_.pop_back();
    if (event == Event::key && !open_.back().insert(parsed.get_ref<const std::string&>()).second) {
      *duplicate_ = parsed.get_ref<const std::string&>();
    }
    return depth <= 3 || (event != Event::object_start && event != Event::array_start);
  }

 private:
  int64_t events_ = 0;
  std::string* duplicate_;
  bool* too_many_;
  std::vector<std::set<std::string>> open_;
};

bool ReadSizes(const Json& list, std::vector<int64_t>* out) {
  if (!list.is_array()) return false;
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() >> 62 != 0) return false;
    out->push_back(static_cast<int64_t>(item.get<uint64_t>()));
  }
  return true;
}

Result<SafetensorsEntry> ParseEntry(const std::string& name, const Json& json) {
  auto damaged = [&](std::string_view what) {
    return Damaged(fmt::format("tensor '{}': {}", name, what));
  };
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || !json["dtype"].is_string()) {
    return damaged("expected dtype, shape and data_offsets");
  }
  SafetensorsEntry entry;
  entry.name = name;
  const std::string& code = json["dtype"].get_ref<const std::string&>();
  for (const TypeCode& row : kTypeCodes) {
    if (row.code == code) entry.dtype = row.dtype;
  }
  if (entry.dtype == DType::kNone)
    return Unsupported("E0782", "tensor '{}' has dtype {}, which is not read", name, code);
  std::vector<int64_t> offsets;
  if (!ReadSizes(json["shape"], &entry.dims) || !ReadSizes(json["data_offsets"], &offsets) ||
      offsets.size() != 2 || offsets[0] > offsets[1]) {
    return damaged("shape and data_offsets must be lists of sizes");
  }
  if (entry.dims.size() > kMaxArrayRank)
    return damaged(fmt::format("{} axes, at most {} are read", entry.dims.size(), kMaxArrayRank));
  entry.offset = offsets[0];
  entry.bytes = offsets[1] - offsets[0];
  const std::optional<int64_t> elements = CheckedNumElements(entry.dims, SizeOf(entry.dtype));
  if (!elements || *elements * SizeOf(entry.dtype) != entry.bytes) {
    return damaged(
        fmt::format("{} {} does not have {} bytes", code, ToString(entry.dims), entry.bytes));
  }
  return entry;
}

std::string_view CodeOf(DType dtype) {
  for (const TypeCode& row : kTypeCodes) {
    if (row.dtype == dtype) return row.code;
  }
  return "";
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile file;
  AMPC_ASSIGN(file.file_, MappedFile::Open(path));
  if (Status status = file.ParseHeader(); !status.ok()) return std::move(status).Of(path);
  return file;
}

Status SafetensorsFile::ParseHeader() {
  uint64_t length = 0;
  if (file_.size() < 8) return Damaged("shorter than its header");
  std::memcpy(&length, file_.data(), sizeof(length));
  if (length > static_cast<uint64_t>(kMaxHeader))
    return Damaged(fmt::format("a header of {} bytes", length));
  data_offset_ = 8 + static_cast<int64_t>(length);
  if (data_offset_ > file_.size()) return Damaged("truncated in the header");
  const char* begin = reinterpret_cast<const char*>(file_.data()) + 8;
  if (length == 0 || *begin != '{') return Damaged("the header is no JSON object");
  std::string duplicate;
  bool too_many = false;
  const Json header = Json::parse(begin, begin + length, HeaderGuard(&duplicate, &too_many),
                                  /*allow_exceptions=*/false);
  if (too_many) return Damaged(fmt::format("more than {} values in the header", kMaxValues));
  if (!header.is_object()) return Damaged("the header is no JSON object");
  if (!duplicate.empty()) return Damaged(fmt::format("the key '{}' appears twice", duplicate));
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return Damaged("__metadata__ must map text to text");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) return Damaged("__metadata__ must map text to text");
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    AMPC_ASSIGN(SafetensorsEntry entry, ParseEntry(name, value));
    entries_.push_back(std::move(entry));
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries_) {
    if (entry.offset != end)
      return Damaged(fmt::format("a hole or an overlap before tensor '{}'", entry.name));
    end += entry.bytes;
  }
  if (end != file_.size() - data_offset_) {
    return Damaged(fmt::format("its tensors have {} bytes, the file holds {}", end,
                               file_.size() - data_offset_));
  }
  return {};
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  for (const SafetensorsEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(static_cast<size_t>(data_offset_ + entry.offset),
                               static_cast<size_t>(entry.bytes));
}

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::vector<SafetensorsEntry> entries,
    const std::map<std::string, std::string>& metadata) {
  std::sort(entries.begin(), entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(-SizeOf(a.dtype), std::string_view(a.name)) <
                     std::pair(-SizeOf(b.dtype), std::string_view(b.name));
            });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t end = 0;
  for (SafetensorsEntry& entry : entries) {
    if (entry.name == "__metadata__")
      return BadInput("E0784", "a tensor cannot be named '__metadata__'");
    if (header.contains(entry.name))
      return InternalError("E0783", "the tensor '{}' is written twice", entry.name);
    entry.offset = end;
    entry.bytes = NumElements(entry.dims) * SizeOf(entry.dtype);
    end += entry.bytes;
    header[entry.name] = {{"dtype", CodeOf(entry.dtype)},
                          {"shape", entry.dims},
                          {"data_offsets", {entry.offset, end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const std::exception&) {  // the only cause: text that is not UTF-8
    return BadInput("E0784", "a tensor name is not valid UTF-8, which safetensors requires");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  const uint64_t length = text.size();
  AMPC_TRY(file.Append(std::as_bytes(std::span(&length, 1))));
  AMPC_TRY(file.Append(text));
  SafetensorsWriter writer(std::move(file), std::move(entries));
  writer.left_ = end;
  return writer;
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  left_ -= static_cast<int64_t>(bytes.size());
  return file_.Append(bytes);
}

Status SafetensorsWriter::Commit() {
  if (left_ != 0)
    return InternalError("E0785", "'{}' lacks {} bytes of its tensors", file_.path(), left_);
  return file_.Commit();
}

}  // namespace ampc
