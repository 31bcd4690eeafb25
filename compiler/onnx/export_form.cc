// SPDX-License-Identifier: Apache-2.0
// The source model as it travels in the plan: inference form, without the initializers that amprun
// appends.
#include <set>

#include "compiler/onnx/importer.h"

namespace ampc {
namespace {

// Constants of up to this many bytes stay in the ModelProto.
constexpr int64_t kEmbedBytes = 64 << 10;

void ToInference(onnx::NodeProto& node, std::set<std::string>& gone) {
  if (!DomainOf(node.domain()).empty()) return;
  if (node.op_type() == "BatchNormalization") {
    auto* attributes = node.mutable_attribute();
    for (int i = attributes->size(); i-- > 0;) {
      if (attributes->Get(i).name() == "training_mode") attributes->DeleteSubrange(i, 1);
    }
    while (node.output_size() > 1) {
      gone.insert(node.output(node.output_size() - 1));
      node.mutable_output()->RemoveLast();
    }
  } else if (node.op_type() == "Dropout") {
    while (node.input_size() > 2) node.mutable_input()->RemoveLast();  // training_mode
  }
}

void StripInitializers(onnx::GraphProto& graph, const std::set<std::string>& names) {
  onnx::GraphProto kept;
  for (auto& tensor : *graph.mutable_initializer()) {
    if (!names.contains(tensor.name())) kept.add_initializer()->Swap(&tensor);
  }
  graph.mutable_initializer()->Swap(kept.mutable_initializer());
}

// Bytes that lie elsewhere (in the file or beside it) come into the message.
Status Embed(SourceModel& source, onnx::TensorProto& tensor) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return {};
  AMPC_ASSIGN(const TensorData data, source.files().Find(tensor));
  AMPC_ASSIGN(const HostTensor value, ReadTensor(data));
  tensor.clear_external_data();
  tensor.clear_data_location();
  TensorToProto(value, &tensor);
  return {};
}

Status EmbedAttributes(SourceModel& source, onnx::NodeProto& node) {
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.has_t()) AMPC_TRY(Embed(source, *attribute.mutable_t()));
  }
  return {};
}

}  // namespace

Result<SourceInfo> MakeSourceInfo(SourceModel& source, const Importer& importer) {
  SourceInfo info;
  info.name = source.name();
  onnx::ModelProto& model = source.proto();
  std::set<std::string> appended, gone;
  for (const SourceTensor& tensor : source.tensors()) {
    const TensorForm& form = tensor.data.form;
    const ir::StateId state = importer.StateOf(tensor.name);
    if (state == ir::kNone && form.bytes() <= kEmbedBytes) continue;
    SourceExport e;
    e.entry.initializer = tensor.name;
    e.entry.dtype = form.dtype;
    e.entry.dims = form.dims;
    e.entry.state = state;
    e.entry.length = state == ir::kNone ? form.bytes() : 0;
    if (state == ir::kNone) e.bytes = tensor.data.bytes;
    if (state != ir::kNone && importer.Rounds(form.dtype))
      e.entry.inverse = plan::Export::Inverse::kRound;
    info.exports.push_back(std::move(e));
    appended.insert(tensor.name);
  }
  StripInitializers(*model.mutable_graph(), appended);
  for (auto& tensor : *model.mutable_graph()->mutable_initializer())
    AMPC_TRY(Embed(source, tensor));
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    ToInference(node, gone);
    AMPC_TRY(EmbedAttributes(source, node));
  }
  for (auto& function : *model.mutable_functions()) {
    for (auto& node : *function.mutable_node()) {
      ToInference(node, gone);
      AMPC_TRY(EmbedAttributes(source, node));
    }
  }
  auto* infos = model.mutable_graph()->mutable_value_info();
  for (int i = infos->size(); i-- > 0;) {
    if (gone.contains(infos->Get(i).name())) infos->DeleteSubrange(i, 1);
  }
  model.clear_training_info();
  info.model = model.SerializeAsString();
  return info;
}

}  // namespace ampc
