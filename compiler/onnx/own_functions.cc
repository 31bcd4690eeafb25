// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/own_functions.h"

#include <set>

#include <onnx/defs/parser.h>
#include <onnx/onnx_pb.h>

#include "compiler/onnx/proto_util.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

// "i0, i1, …" for the operands that are there; a call passes all slots, so left-out ones keep their
// place.
std::string Names(char letter, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += fmt::format("{}{}{}", i == 0 ? "" : ", ", letter, i);
  return text;
}

}  // namespace

void DescribeValue(std::string_view name, const ir::TensorType& type, onnx::ValueInfoProto* info) {
  info->set_name(std::string(name));
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int>(type.dtype));
  auto* shape = tensor->mutable_shape();
  for (const int64_t d : type.dims) shape->add_dim()->set_dim_value(d);
}

Result<std::string> OwnFunctions::NameOf(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  AMPC_ASSIGN(const std::vector<ir::TypeId> outputs,
              InferNode(graph, id));  // also of outputs that nobody wants
  BodyContext context{*node.op, node.attrs, {}, {}};
  std::string signature(node.op->name);
  const auto add = [&](std::vector<const ir::TensorType*>& list, const ir::TensorType* type) {
    list.push_back(type);
    signature += (type == nullptr ? std::string("-") : ir::ToString(*type)) + ' ';
  };
  for (const ir::ValueId v : node.inputs)
    add(context.inputs, v == ir::kNone ? nullptr : &graph.type(v));
  for (const ir::TypeId t : outputs) add(context.outputs, &graph.module().types.Get(t));
  if (node.op->body == nullptr)
    return InternalError("E7006", "op '{}' has no body", node.op->name).At(graph.Describe(id));
  auto body = node.op->body(context);
  if (!body.ok()) return std::move(body).TakeStatus().At(graph.Describe(id));
  signature += *body;
  auto it = by_signature_.find(signature);
  if (it != by_signature_.end()) return it->second.name;
  Entry entry;
  entry.name = fmt::format("{}_{}", node.op->name, counters_[std::string(node.op->name)]++);
  entry.text = fmt::format("<domain: \"{}\", opset_import: [\"\" : {}]> {} ({}) => ({}) {{\n{}}}",
                           kOwnDomain, kCanonicalOpset, entry.name, Names('i', node.inputs.size()),
                           Names('o', node.outputs.size()), *body);
  return by_signature_.emplace(std::move(signature), std::move(entry)).first->second.name;
}

Status OwnFunctions::AddTo(onnx::ModelProto* model) const {
  if (by_signature_.empty()) return {};
  for (const auto& [signature, entry] : by_signature_) {
    const auto status = onnx::OnnxParser::Parse(*model->add_functions(), entry.text);
    if (!status.IsOK())
      return InternalError("E7007", "the body of '{}' does not parse: {}", entry.name,
                           status.ErrorMessage());
  }
  auto* import = model->add_opset_import();
  import->set_domain(std::string(kOwnDomain));
  import->set_version(1);
  return {};
}

Status OpToProto(const ir::Graph& graph, ir::NodeId id, OwnFunctions& functions,
                 onnx::NodeProto* proto) {
  const ir::Node& node = graph.node(id);
  proto->set_name(graph.Label(id));
  std::vector<const ir::TensorType*> inputs;
  for (const ir::ValueId v : node.inputs)
    inputs.push_back(v == ir::kNone ? nullptr : &graph.type(v));
  const bool function = node.op->domain == kOwnDomain || KeepsFp32(*node.op, inputs);
  proto->set_domain(std::string(function ? kOwnDomain : node.op->domain));
  if (function) {
    AMPC_ASSIGN(std::string name, functions.NameOf(graph, id));
    proto->set_op_type(std::move(name));
    return {};
  }
  proto->set_op_type(std::string(node.op->name));
  for (const auto& [name, value] : node.attrs.entries())
    AttrToProto(name, value, proto->add_attribute());
  return {};
}

Status MakeNodeModel(const ir::Graph& graph, ir::NodeId id, onnx::ModelProto* model) {
  model->set_ir_version(kCanonicalIrVersion);
  model->add_opset_import()->set_version(kCanonicalOpset);
  OwnFunctions functions;
  onnx::GraphProto* g = model->mutable_graph();
  g->set_name("node");
  onnx::NodeProto* node = g->add_node();
  AMPC_TRY(OpToProto(graph, id, functions, node));
  const auto name_of = [&](ir::ValueId v) {
    return v == ir::kNone ? std::string() : graph.value(v).name;
  };
  for (const ir::ValueId v : graph.node(id).inputs) node->add_input(name_of(v));
  for (const ir::ValueId v : graph.node(id).outputs) node->add_output(name_of(v));
  AMPC_TRY(functions.AddTo(model));
  std::set<ir::ValueId> seen;
  for (const ir::ValueId v : graph.node(id).inputs) {
    if (v == ir::kNone || !seen.insert(v).second) continue;
    if (const HostTensor* value = graph.ConstantOf(v); value != nullptr) {
      onnx::TensorProto* tensor = g->add_initializer();
      TensorToProto(*value, tensor);
      tensor->set_name(graph.value(v).name);
      continue;
    }
    DescribeValue(graph.value(v).name, graph.type(v), g->add_input());
  }
  for (const ir::ValueId v : graph.node(id).outputs) {
    if (v == ir::kNone) continue;
    DescribeValue(graph.value(v).name, graph.type(v), g->add_output());
  }
  return {};
}

}  // namespace ampc
