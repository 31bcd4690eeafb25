// SPDX-License-Identifier: Apache-2.0
// The source model as it travels in the plan: inference form, without the initializers that amprun
// writes.
#include <map>
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

// The node and what its bodies hold.
Status SettleNode(SourceModel& source, onnx::NodeProto& node, std::set<std::string>& gone) {
  ToInference(node, gone);
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.has_t()) AMPC_TRY(Embed(source, *attribute.mutable_t()));
    if (!attribute.has_g()) continue;
    for (auto& inner : *attribute.mutable_g()->mutable_node())
      AMPC_TRY(SettleNode(source, inner, gone));
    for (auto& tensor : *attribute.mutable_g()->mutable_initializer())
      AMPC_TRY(Embed(source, tensor));
  }
  return {};
}

// What amprun does not write itself: documentation, metadata.
std::string NotesOf(const onnx::TensorProto& tensor) {
  onnx::TensorProto notes;
  if (tensor.has_doc_string()) notes.set_doc_string(tensor.doc_string());
  *notes.mutable_metadata_props() = tensor.metadata_props();
  return notes.SerializeAsString();
}

// Writes the model and its initializers: those that stay one by one behind it, as parsers merge
// messages, and for each of the others how much comes after it. So all keep their order.
Status WriteInOrder(SourceModel& source, std::map<std::string, SourceExport> exports,
                    SourceInfo& info) {
  onnx::GraphProto initializers;
  initializers.mutable_initializer()->Swap(source.proto().mutable_graph()->mutable_initializer());
  info.model = source.proto().SerializeAsString();
  const auto written = [&] { return static_cast<int64_t>(info.model.size()); };
  for (auto& tensor : *initializers.mutable_initializer()) {
    if (const auto it = exports.find(tensor.name()); it != exports.end()) {
      it->second.entry.rest = written();
      it->second.entry.notes = NotesOf(tensor);
      info.exports.push_back(std::move(it->second));
      continue;
    }
    AMPC_TRY(Embed(source, tensor));
    onnx::ModelProto kept;
    kept.mutable_graph()->add_initializer()->Swap(&tensor);
    info.model += kept.SerializeAsString();
  }
  for (SourceExport& e : info.exports) e.entry.rest = written() - e.entry.rest;
  return {};
}

}  // namespace

Result<SourceInfo> MakeSourceInfo(SourceModel& source, const Importer& importer) {
  SourceInfo info;
  info.name = source.name();
  onnx::ModelProto& model = source.proto();
  std::map<std::string, SourceExport> exports;
  std::set<std::string> gone;
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
    exports.emplace(tensor.name, std::move(e));
  }
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    AMPC_TRY(SettleNode(source, node, gone));
  }
  for (auto& function : *model.mutable_functions()) {
    for (auto& node : *function.mutable_node()) {
      AMPC_TRY(SettleNode(source, node, gone));
    }
  }
  auto* infos = model.mutable_graph()->mutable_value_info();
  for (int i = infos->size(); i-- > 0;) {
    if (gone.contains(infos->Get(i).name())) infos->DeleteSubrange(i, 1);
  }
  model.clear_training_info();
  AMPC_TRY(WriteInOrder(source, std::move(exports), info));
  return info;
}

}  // namespace ampc
