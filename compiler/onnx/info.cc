// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/info.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include <fmt/ranges.h>

#include "compiler/onnx/source.h"
#include "compiler/onnx/training.h"

namespace ampc {
namespace {

// Name of a dim as --dim takes it, or "" for a number.
std::string DimName(const std::string& input, const onnx::TensorShapeProto& shape, int i) {
  const auto& dim = shape.dim(i);
  if (dim.has_dim_value() && dim.dim_value() >= 0) return "";
  return dim.has_dim_param() && !dim.dim_param().empty() ? dim.dim_param()
                                                         : fmt::format("{}[{}]", input, i);
}

PortInfo Port(const onnx::ValueInfoProto& value) {
  if (!value.type().has_tensor_type()) return {value.name(), "(no tensor)"};
  const auto& tensor = value.type().tensor_type();
  std::string type = IsKnownDType(tensor.elem_type())
                         ? std::string(Name(static_cast<DType>(tensor.elem_type())))
                         : OnnxTypeName(tensor.elem_type());
  if (!tensor.has_shape()) return {value.name(), type + "[?]"};
  std::vector<std::string> dims;
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    const std::string name = DimName(value.name(), tensor.shape(), i);
    dims.push_back(name.empty() ? std::to_string(tensor.shape().dim(i).dim_value()) : name);
  }
  return {value.name(), fmt::format("{}[{}]", type, fmt::join(dims, ","))};
}

void CollectDims(const onnx::ValueInfoProto& input,
                 std::map<std::string, std::vector<std::string>>& dims) {
  const auto& shape = input.type().tensor_type().shape();
  for (int i = 0; i < shape.dim_size(); ++i) {
    const std::string name = DimName(input.name(), shape, i);
    if (name.empty()) continue;
    auto& inputs = dims[name];
    if (inputs.empty() || inputs.back() != input.name()) inputs.push_back(input.name());
  }
}

}  // namespace

Result<ModelInfo> ReadModelInfo(const std::string& path, const CompileOptions& options,
                                Diagnostics& diagnostics) {
  AMPC_ASSIGN(SourceModel source, LoadModel(path));
  if (Status status = TakeTraining(source, options, diagnostics); !status.ok())
    return std::move(status).Of(path);
  // Ops that are not supported are part of the answer; without a tensor it is another model.
  if (!source.unsupported().empty()) {
    if (Status status = CheckSupport(source); !status.ok()) return std::move(status).Of(path);
  }
  if (Status status = PrepareSource(source, options, diagnostics); !status.ok())
    return std::move(status).Of(path);
  ModelInfo info;
  const onnx::ModelProto& model = source.proto();
  info.producer = model.producer_name() +
                  (model.producer_version().empty() ? "" : " " + model.producer_version());
  info.ir_version = model.ir_version();
  for (const auto& id : model.opset_import())
    info.opsets.emplace_back(std::string(DomainOf(id.domain())), id.version());
  std::unordered_set<std::string_view> initializers;
  for (const SourceTensor& t : source.tensors()) {
    initializers.insert(t.name);
    info.initializers.push_back({t.name, t.data.form.dtype, t.data.form.dims, t.role, t.trainable,
                                 t.reason, t.uses.size()});
  }
  std::map<std::string, std::vector<std::string>> dims;
  for (const auto& input : source.graph().input()) {
    if (initializers.contains(input.name())) continue;
    info.inputs.push_back(Port(input));
    if (input.type().has_tensor_type()) CollectDims(input, dims);
  }
  for (const auto& output : source.graph().output()) info.outputs.push_back(Port(output));
  info.dims.assign(dims.begin(), dims.end());
  std::map<std::string, int64_t> ops;
  for (const auto& node : source.graph().node()) ++ops[OpWithVersion(node, source.opsets())];
  info.ops.assign(ops.begin(), ops.end());
  info.notes = diagnostics.notes();
  return info;
}

std::string FormatModelInfo(const ModelInfo& info) {
  std::string text;
  std::vector<std::string> opsets, ops;
  for (const auto& [domain, version] : info.opsets) {
    opsets.push_back(fmt::format("{}{}{}", domain, domain.empty() ? "" : " ", version));
  }
  for (const auto& [op, count] : info.ops) ops.push_back(fmt::format("{} x {}", count, op));
  text += fmt::format("producer  {}\nir        {}\nopset     {}\nops       {}\n",
                      info.producer.empty() ? "-" : info.producer, info.ir_version,
                      fmt::join(opsets, ", "), fmt::join(ops, ", "));
  for (const PortInfo& port : info.inputs)
    text += fmt::format("input     {}  {}\n", port.name, port.type);
  for (const PortInfo& port : info.outputs)
    text += fmt::format("output    {}  {}\n", port.name, port.type);
  for (const auto& [name, inputs] : info.dims)
    text += fmt::format("dim       {}  of {}\n", name, fmt::join(inputs, ", "));
  if (info.initializers.empty()) return text;

  size_t name_width = 11, type_width = 4;
  std::vector<std::string> types;
  int64_t trained = 0, elements = 0;
  for (const InitializerInfo& t : info.initializers) {
    types.push_back(fmt::format("{}{}", Name(t.dtype), ToString(t.dims)));
    name_width = std::max(name_width, t.name.size());
    type_width = std::max(type_width, types.back().size());
    if (t.trainable) {
      ++trained;
      elements += NumElements(t.dims);
    }
  }
  text += fmt::format("\n{:<{}}  {:<{}}  {:<9}  {}\n", "initializer", name_width, "type",
                      type_width, "role", "why");
  for (size_t i = 0; i < info.initializers.size(); ++i) {
    const InitializerInfo& t = info.initializers[i];
    text += fmt::format("{:<{}}  {:<{}}  {:<9}  {}\n", t.name, name_width, types[i], type_width,
                        plan::Name(t.role), t.reason);
  }
  text += fmt::format("{} initializers, {} train with {} elements\n", info.initializers.size(),
                      trained, elements);
  for (const std::string& note : info.notes) text += fmt::format("note      {}\n", note);
  return text;
}

}  // namespace ampc
