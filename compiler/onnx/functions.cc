// SPDX-License-Identifier: Apache-2.0
// Calls of model-local functions, and of ops that ONNX defines by a body in other ops: the body is
// imported in place.
#include <algorithm>

#include <onnx/defs/function.h>
#include <onnx/defs/schema.h>

#include "compiler/onnx/importer.h"

namespace ampc {

using ir::kNone;
using ir::ValueId;

namespace {

// A body may call others, so a small file can stand for any number of nodes. This is far beyond
// what exporters write.
constexpr int64_t kMaxCalls = 100'000;

bool BuildBodyAt(const onnx::OpSchema& schema, int opset,
                 const onnx::FunctionBodyBuildContext& context, onnx::FunctionProto& body) {
  const auto* fixed = schema.HasFunction() ? schema.GetFunction(opset) : nullptr;
  if (fixed != nullptr) {
    body = *fixed;
    return true;
  }
  body.Clear();
  try {
    return schema.HasContextDependentFunction() &&
           schema.BuildContextDependentFunction(context, body, opset);
  } catch (const std::exception&) {
    return false;  // none for this opset
  }
}

// The body of an op in the ops of `opset`. ONNX gave bodies to ops that were there before (Shrink-9
// has one for opset 18): a later one serves as long as the op is the same.
bool BuildBody(const onnx::OpSchema& schema, int opset,
               const onnx::FunctionBodyBuildContext& context, onnx::FunctionProto& body) {
  for (; SchemaOf(schema.Name(), opset, schema.domain()) == &schema && opset <= NewestOpset();
       ++opset) {
    if (BuildBodyAt(schema, opset, context, body)) return true;
  }
  return false;
}

}  // namespace

Status Importer::CallFunction(Scope& caller, const onnx::NodeProto& node,
                              const onnx::FunctionProto& function, const Opsets& opsets) {
  if (std::find(calls_.begin(), calls_.end(), &function) != calls_.end()) {
    std::string chain;
    for (const auto* f : calls_) chain += f->name() + " -> ";
    return BadInput("E0115", "function '{}' calls itself: {}{}", function.name(), chain,
                    function.name());
  }
  if (calls_.size() >= kMaxCallDepth) {
    return Unsupported("E0115",
                       "function '{}' is called {} functions deep; at most {} are imported",
                       function.name(), calls_.size(), kMaxCallDepth);
  }
  if (++call_count_ > kMaxCalls) {
    return Unsupported("E0115", "the model calls functions more than {} times (in '{}')", kMaxCalls,
                       function.name());
  }
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
    return BadInput("E0115", "function '{}' has {} inputs and {} outputs, the call has {} and {}",
                    function.name(), function.input_size(), function.output_size(),
                    node.input_size(), node.output_size());
  }
  Scope scope;
  scope.opsets = &opsets;
  scope.prefix = caller.prefix + LabelOf(node) + "/";
  SourceNode arguments;
  AMPC_TRY(ReadInputs(caller, node, arguments));
  for (int i = 0; i < function.input_size(); ++i) {
    const auto slot = static_cast<size_t>(i);
    if (slot < arguments.sequences.size() && !arguments.sequences[slot].empty()) {
      scope.sequences[function.input(i)] = caller.sequences.at(arguments.sequences[slot]);
    } else {
      scope.values[function.input(i)] =
          slot < arguments.inputs.size() ? arguments.inputs[slot] : kNone;
    }
  }
  for (const auto& fallback : function.attribute_proto())
    scope.attributes[fallback.name()] = &fallback;
  for (const auto& attribute : node.attribute()) {
    const onnx::AttributeProto* given = &attribute;
    if (!attribute.ref_attr_name().empty()) {
      auto it = caller.attributes.find(attribute.ref_attr_name());
      if (it == caller.attributes.end()) continue;
      given = it->second;
    }
    scope.attributes[attribute.name()] = given;
  }
  // A body of ONNX's own lists optional attributes here, too.
  const bool local = source_.FindFunction(node) != nullptr;
  for (const std::string& required : function.attribute()) {
    if (local && !scope.attributes.contains(required)) {
      return BadInput("E0115", "function '{}' needs attribute '{}'", function.name(), required);
    }
  }

  std::vector<std::string> outputs;
  for (int i = 0; i < node.output_size(); ++i) {
    if (!node.output(i).empty()) outputs.push_back(function.output(i));
  }
  AMPC_ASSIGN(const std::vector<int> order, OrderNodes(function.node(), outputs, opsets, nullptr));
  scope.read.insert(outputs.begin(), outputs.end());
  calls_.push_back(&function);
  Status status = ImportNodes(scope, function.node(), order);
  calls_.pop_back();
  AMPC_TRY(std::move(status));
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    if (auto it = scope.sequences.find(function.output(i)); it != scope.sequences.end()) {
      caller.sequences[node.output(i)] = it->second;
      continue;
    }
    AMPC_ASSIGN(const ValueId v, Lookup(scope, function.output(i)));
    if (v == kNone) {
      return BadInput("E0107", "output '{}' of function '{}' is an input that the call leaves out",
                      function.output(i), function.name());
    }
    // What the body made carries the caller's name for it.
    if (graph_->value(v).name == scope.prefix + function.output(i))
      graph_->Rename(v, caller.prefix + node.output(i));
    caller.values[node.output(i)] = v;
  }
  return {};
}

Status Importer::CallSchemaFunction(Scope& caller, const onnx::NodeProto& node,
                                    const onnx::OpSchema& schema, const SourceNode& source) {
  // The body is written for its attributes; those of a function around it are resolved first.
  onnx::NodeProto resolved = node;
  resolved.clear_attribute();
  for (const auto& [name, value] : source.attrs.entries())
    AttrToProto(name, value, resolved.add_attribute());
  for (const auto& [name, attribute] : schema.attributes()) {
    if (!source.attrs.Has(name) && !attribute.default_value.name().empty())
      *resolved.add_attribute() = attribute.default_value;
  }
  if (!HasUsableBody(schema))
    return Unsupported("E0102", "op {} is not supported", OpWithVersion(node, *caller.opsets));
  std::vector<onnx::TypeProto> types(source.inputs.size());
  for (size_t i = 0; i < source.inputs.size(); ++i) {
    if (source.inputs[i] == kNone) continue;
    const ir::TensorType& type = graph_->type(source.inputs[i]);
    auto* tensor = types[i].mutable_tensor_type();
    tensor->set_elem_type(static_cast<int>(type.dtype));
    for (int64_t d : type.dims) tensor->mutable_shape()->add_dim()->set_dim_value(d);
  }
  onnx::FunctionProto& body = schema_functions_.emplace_back();
  const bool built = BuildBody(schema, caller.opsets->For(""),
                               onnx::FunctionBodyBuildContextImpl(resolved, types), body);
  if (!built)
    return Unsupported("E0102", "op {} is not supported", OpWithVersion(node, *caller.opsets));
  Opsets opsets = *caller.opsets;
  for (const auto& id : body.opset_import()) opsets.Set(id.domain(), id.version());
  return CallFunction(caller, resolved, body, opsets);
}

}  // namespace ampc
