// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/wire.h"

#include <optional>

namespace ampc {
namespace {

// The messages of onnx.proto that can hold tensors.
enum class Message : uint8_t { kOther, kModel, kGraph, kNode, kAttribute, kFunction, kTensor };

Message Child(Message parent, uint64_t field) {
  switch (parent) {
    case Message::kModel:
      return field == 7 ? Message::kGraph : field == 25 ? Message::kFunction : Message::kOther;
    case Message::kGraph:
      return field == 1 ? Message::kNode : field == 5 ? Message::kTensor : Message::kOther;
    case Message::kNode:
      return field == 5 ? Message::kAttribute : Message::kOther;
    case Message::kAttribute:
      if (field == 5 || field == 10) return Message::kTensor;
      return field == 6 || field == 11 ? Message::kGraph : Message::kOther;
    case Message::kFunction:
      return field == 7 ? Message::kNode : field == 11 ? Message::kAttribute : Message::kOther;
    default:
      return Message::kOther;
  }
}

// Fields of TensorProto.
constexpr uint64_t kDataType = 2, kFloatData = 4, kRawData = 9, kDoubleData = 10,
                   kExternalData = 13, kDataLocation = 14;

struct Field {
  uint64_t number = 0;
  uint64_t varint = 0;        // wire type 0
  bool has_bytes = false;     // wire type 2
  size_t begin = 0, end = 0;  // the whole field
  size_t payload = 0;         // of wire type 2: first byte of the content; it ends at `end`
};

class Scanner {
 public:
  Scanner(std::string_view file, int64_t threshold, StrippedModel& result)
      : file_(file), threshold_(static_cast<size_t>(threshold)), result_(result) {}

  // Appends the message in [begin, end) to `out`.
  Status Copy(Message message, size_t begin, size_t end, int depth, std::string& out) {
    if (depth > kMaxDepth)
      return BadInput("E0101", "graphs are nested more than {} deep", kMaxDepth);
    if (message == Message::kTensor) return CopyTensor(begin, end, out);
    for (size_t at = begin; at < end;) {
      AMPC_ASSIGN(const Field field, Next(at, end));
      at = field.end;
      const Message child = field.has_bytes ? Child(message, field.number) : Message::kOther;
      if (child == Message::kOther || field.end - field.payload <= threshold_) {
        out.append(file_.substr(field.begin, field.end - field.begin));
        continue;
      }
      std::string content;
      AMPC_TRY(Copy(child, field.payload, field.end, depth + 1, content));
      PutTag(field.number, out);
      PutVarint(content.size(), out);
      out += content;
    }
    return {};
  }

 private:
  static constexpr int kMaxDepth = 64;

  static void PutVarint(uint64_t v, std::string& out) {
    for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
    out += static_cast<char>(v);
  }
  static void PutTag(uint64_t number, std::string& out) { PutVarint(number << 3 | 2, out); }
  static void PutBytes(uint64_t number, std::string_view bytes, std::string& out) {
    PutTag(number, out);
    PutVarint(bytes.size(), out);
    out += bytes;
  }

  std::optional<uint64_t> Varint(size_t& at, size_t end) const {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      const auto byte = static_cast<uint8_t>(file_[at++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  Result<Field> Next(size_t at, size_t end) const {
    Field f;
    f.begin = at;
    const auto key = Varint(at, end);
    bool good = key.has_value() && *key >> 3 != 0;
    f.number = key.value_or(0) >> 3;
    switch (key.value_or(0) & 7) {
      case 0: {
        const auto v = Varint(at, end);
        good = good && v.has_value();
        f.varint = v.value_or(0);
        break;
      }
      case 1:
        at += 8;
        break;
      case 5:
        at += 4;
        break;
      case 2: {
        const auto length = Varint(at, end);
        good = good && length.has_value() && *length <= end - at;
        f.has_bytes = true;
        f.payload = at;
        if (good) at += *length;
        break;
      }
      default:
        good = false;
    }
    if (!good || at > end) {
      return BadInput("E0101", "not an ONNX model: the protobuf is damaged at byte {}", f.begin);
    }
    f.end = at;
    return f;
  }

  // Packed float_data and double_data have the bytes of raw_data. The data is left out when it is
  // one chunk; other tensors are copied as they are.
  Status CopyTensor(size_t begin, size_t end, std::string& out) {
    uint64_t data_type = 0;
    int chunks = 0;
    bool external = false;
    Field data;
    for (size_t at = begin; at < end;) {
      AMPC_ASSIGN(const Field field, Next(at, end));
      at = field.end;
      if (field.number == kDataType) data_type = field.varint;
      if (field.number == kExternalData || field.number == kDataLocation) external = true;
      const bool is_data = field.number == kRawData || field.number == kFloatData ||
                           (field.number >= 5 && field.number <= 7) ||
                           field.number == kDoubleData || field.number == 11;
      if (!is_data) continue;
      ++chunks;
      data = field;
    }
    const bool plain = data.number == kRawData || (data.number == kFloatData && data_type == 1) ||
                       (data.number == kDoubleData && data_type == 11);
    if (chunks != 1 || external || !plain || !data.has_bytes ||
        data.end - data.payload <= threshold_) {
      out.append(file_.substr(begin, end - begin));
      return {};
    }
    out.append(file_.substr(begin, data.begin - begin));
    out.append(file_.substr(data.end, end - data.end));
    std::string entry;
    PutBytes(1, kRegionKey, entry);
    PutBytes(2, std::to_string(result_.regions.size()), entry);
    PutBytes(kExternalData, entry, out);
    PutVarint(kDataLocation << 3, out);
    PutVarint(1, out);  // EXTERNAL
    result_.regions.push_back(
        {static_cast<int64_t>(data.payload), static_cast<int64_t>(data.end - data.payload)});
    return {};
  }

  std::string_view file_;
  size_t threshold_;
  StrippedModel& result_;
};

}  // namespace

Result<StrippedModel> StripWeights(std::span<const std::byte> file, int64_t threshold) {
  StrippedModel result;
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  Scanner scanner(bytes, threshold, result);
  AMPC_TRY(scanner.Copy(Message::kModel, 0, bytes.size(), 0, result.model));
  return result;
}

}  // namespace ampc
