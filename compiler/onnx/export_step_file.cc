// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/export_step_file.h"

#include <onnx/onnx_pb.h>

#include "compiler/onnx/weights.h"

namespace ampc {
namespace {

constexpr int64_t kChunkElements = 1 << 18;

/// The state's initial data in its own type, a piece at a time.
Status AppendData(const ir::StateVar& state, const ir::TensorType& type, ModelWriter& file) {
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
    AMPC_TRY(file.AppendData(ConvertFloats(piece, type.dtype).data));
  }
  return {};
}

}  // namespace

Result<ModelWriter> WriteStepFile(const onnx::ModelProto& model, const ir::Module& module,
                                  std::span<const StepInitial> initials, int64_t max_inline_bytes,
                                  const std::string& path) {
  const auto type_of = [&](const StepInitial& i) -> const ir::TensorType& {
    return module.types.Get(module.state(i.state).type);
  };
  const auto form_of = [&](const StepInitial& i) {
    return ModelInitializer{i.input, type_of(i).dtype, type_of(i).dims};
  };
  int64_t total = static_cast<int64_t>(model.ByteSizeLong());
  for (const StepInitial& i : initials) total += form_of(i).inline_bytes();
  AMPC_ASSIGN(ModelWriter file, ModelWriter::Create(path, total > max_inline_bytes));
  AMPC_TRY(file.Append(model.SerializeAsString()));
  for (const StepInitial& i : initials) {
    AMPC_TRY(file.Begin(form_of(i)));
    AMPC_TRY(AppendData(module.state(i.state), type_of(i), file));
  }
  return file;
}

}  // namespace ampc
