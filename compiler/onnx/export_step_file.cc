// SPDX-License-Identifier: Apache-2.0
//
// Protobuf parsers merge concatenated messages: fields of sub-messages merge, repeated fields
// append. So the model followed by `{graph: {initializer: T1}} {graph: {initializer: T2}} …` is the
// model with those initializers, and no message of all weights is ever in memory. Field numbers:
// ModelProto.graph = 7, GraphProto.initializer = 5, TensorProto.raw_data = 9.
#include "compiler/onnx/export_step_file.h"

#include <optional>

#include <onnx/onnx_pb.h>

#include "compiler/onnx/weights.h"
#include "runtime/base/file.h"

namespace ampc {
namespace {

/// Small tensors stay in the model: readers want scalars without opening the data file.
constexpr int64_t kSmall = 1024;
constexpr int64_t kPage = 4096;
constexpr int64_t kChunkElements = 1 << 18;

void AppendVarint(uint64_t v, std::string& text) {
  for (; v >= 0x80; v >>= 7) text += static_cast<char>(v | 0x80);
  text += static_cast<char>(v);
}

/// Tag and length of a field whose content follows.
void AppendOpen(uint32_t field, uint64_t length, std::string& text) {
  AppendVarint((field << 3) | 2, text);
  AppendVarint(length, text);
}

constexpr int64_t kInline = -1;

/// `{graph: {initializer: {…` up to the raw data, or all of it where the data lies at `offset` of
/// the file `location`.
std::string InitializerHead(const StepInitial& initial, const ir::TensorType& type,
                            const std::string& location, int64_t offset) {
  onnx::TensorProto tensor;
  for (const int64_t d : type.dims) tensor.add_dims(d);
  tensor.set_data_type(static_cast<int>(type.dtype));
  tensor.set_name(initial.input);
  if (offset != kInline) {
    const std::pair<const char*, std::string> entries[] = {
        {"location", location},
        {"offset", std::to_string(offset)},
        {"length", std::to_string(type.bytes())}};
    for (const auto& [key, value] : entries) {
      onnx::StringStringEntryProto* entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  }
  std::string body = tensor.SerializeAsString();
  const auto follows = static_cast<uint64_t>(offset == kInline ? type.bytes() : 0);
  if (offset == kInline) AppendOpen(9, follows, body);
  std::string initializer, graph;
  AppendOpen(5, body.size() + follows, initializer);
  AppendOpen(7, initializer.size() + body.size() + follows, graph);
  return graph + initializer + body;
}

/// The state's initial data in its own type, a piece at a time.
Status AppendData(const ir::StateVar& state, const ir::TensorType& type, AtomicFile& file) {
  const int64_t elements = type.elements();
  const bool fill = state.initial.kind == plan::Initial::Kind::kFill;
  const DType stored =
      fill || state.initial.stored == DType::kNone ? type.dtype : state.initial.stored;
  for (int64_t at = 0; at < elements; at += kChunkElements) {
    const int64_t n = std::min(kChunkElements, elements - at);
    HostTensor piece{stored, {n}, std::vector<std::byte>(static_cast<size_t>(n * SizeOf(stored)))};
    if (fill) {
      const HostTensor one = HostTensor::Scalar(type.dtype, state.initial.fill);
      for (size_t i = 0; i < piece.data.size(); ++i) piece.data[i] = one.data[i % one.data.size()];
    } else {
      const ir::ByteRef& bytes = state.initial.bytes;
      AMPC_TRY(bytes.source->Read(bytes.offset + at * SizeOf(stored), piece.data));
    }
    AMPC_TRY(file.Append(ConvertFloats(piece, type.dtype).data));
  }
  return {};
}

}  // namespace

Status WriteStepFile(const onnx::ModelProto& model, const ir::Module& module,
                     std::span<const StepInitial> initials, int64_t max_inline_bytes,
                     const std::string& path) {
  const auto type_of = [&](const StepInitial& i) -> const ir::TensorType& {
    return module.types.Get(module.state(i.state).type);
  };
  int64_t total = static_cast<int64_t>(model.ByteSizeLong());
  for (const StepInitial& i : initials) {
    total += static_cast<int64_t>(InitializerHead(i, type_of(i), "", kInline).size()) +
             type_of(i).bytes();
  }
  const std::string location = path.substr(path.rfind('/') + 1) + ".data";
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  std::optional<AtomicFile> data;
  if (total > max_inline_bytes) {
    AMPC_ASSIGN(data, AtomicFile::Create(JoinPath(DirName(path), location)));
  }
  AMPC_TRY(file.Append(model.SerializeAsString()));
  for (const StepInitial& i : initials) {
    const bool external = data && type_of(i).bytes() > kSmall;
    if (external) AMPC_TRY(data->PadTo(kPage));
    const int64_t offset = external ? data->size() : kInline;
    AMPC_TRY(file.Append(InitializerHead(i, type_of(i), location, offset)));
    AMPC_TRY(AppendData(module.state(i.state), type_of(i), external ? *data : file));
  }
  // The data first: a model never names data that is not there.
  if (data) AMPC_TRY(data->Commit());
  return file.Commit();
}

}  // namespace ampc
