// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/wire.h"

#include <optional>

#include "runtime/base/wire.h"

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

class Scanner {
 public:
  Scanner(std::string_view file, int64_t threshold, StrippedModel& result)
      : file_(file), threshold_(static_cast<size_t>(threshold)), result_(result) {}

  // Appends the message to `out`.
  Status Copy(Message message, std::string_view text, int depth, std::string& out) {
    if (depth > kMaxDepth)
      return BadInput("E0101", "graphs are nested more than {} deep", kMaxDepth);
    if (message == Message::kTensor) return CopyTensor(text, out);
    while (!text.empty()) {
      AMPC_ASSIGN(const WireField field, Next(&text));
      const Message child = field.delimited() ? Child(message, field.number) : Message::kOther;
      if (child == Message::kOther || field.text.size() <= threshold_) {
        out.append(field.whole);
        continue;
      }
      std::string content;
      AMPC_TRY(Copy(child, field.text, depth + 1, content));
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

  Result<WireField> Next(std::string_view* rest) const {
    const size_t at = Offset(*rest);
    if (std::optional<WireField> field = TakeField(rest)) return *field;
    return BadInput("E0101", "not an ONNX model: the protobuf is damaged at byte {}", at);
  }
  size_t Offset(std::string_view part) const {
    return static_cast<size_t>(part.data() - file_.data());
  }

  // Packed float_data and double_data have the bytes of raw_data. The data is left out when it is
  // one chunk; other tensors are copied as they are.
  Status CopyTensor(std::string_view tensor, std::string& out) {
    uint64_t data_type = 0;
    int chunks = 0;
    bool external = false;
    WireField data;
    for (std::string_view rest = tensor; !rest.empty();) {
      AMPC_ASSIGN(const WireField field, Next(&rest));
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
    if (chunks != 1 || external || !plain || !data.delimited() || data.text.size() <= threshold_) {
      out.append(tensor);
      return {};
    }
    const size_t before = Offset(data.whole) - Offset(tensor);
    out.append(tensor.substr(0, before));
    out.append(tensor.substr(before + data.whole.size()));
    std::string entry;
    PutBytes(1, kRegionKey, entry);
    PutBytes(2, std::to_string(result_.regions.size()), entry);
    PutBytes(kExternalData, entry, out);
    PutVarint(kDataLocation << 3, out);
    PutVarint(1, out);  // EXTERNAL
    result_.regions.push_back(
        {static_cast<int64_t>(Offset(data.text)), static_cast<int64_t>(data.text.size())});
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
  AMPC_TRY(scanner.Copy(Message::kModel, bytes, 0, result.model));
  return result;
}

}  // namespace ampc
