// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the import tests share: text models with opset and signature filled in, and a short form of
// a graph.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/lower/evaluate.h"
#include "compiler/onnx/import.h"
#include "compiler/ops/op_def.h"

namespace ampc {

inline CompileOptions Fp32() {
  CompileOptions options;
  options.precision = Precision::kFp32;
  return options;
}

inline std::string ModelText(int opset, const std::string& signature, const std::string& body) {
  return fmt::format("<ir_version: 8, opset_import: [\"\" : {}]>\nmain {}\n{{\n{}\n}}\n", opset,
                     signature, body);
}

struct TextImport {
  Diagnostics diagnostics;
  Result<ImportedModel> result = InternalError("E7999", "not run");

  const ir::Module& module() const { return *result->module; }
  const ir::Graph& graph() const { return *module().train; }
  std::string Error() const { return result.ok() ? "" : result.status().ToString(); }
  std::string Notes() const {
    std::string all;
    for (const std::string& note : diagnostics.notes()) all += note + "\n";
    return all;
  }
  std::string Explained(const std::string& node) const {
    for (const Remark& r : diagnostics.remarks()) {
      if (r.node == node && r.topic == "trainable") return r.text;
    }
    return "";
  }
};

inline TextImport Import(const std::string& text, const CompileOptions& options = Fp32(),
                         const std::string& folder = "") {
  TextImport out;
  out.diagnostics.explaining = true;
  out.result = ImportText(text, folder, options, out.diagnostics, EvaluateNode);
  return out;
}

/// One line per node but Constant: "Gemm(x, w, b) -> y float[2,3]"; constants are written as their
/// values.
inline std::string Short(const ir::Graph& g) {
  auto name = [&](ir::ValueId v) -> std::string {
    if (v == ir::kNone) return "-";
    const HostTensor* c = g.ConstantOf(v);
    if (c == nullptr || c->elements() > 8) return g.value(v).name;
    std::string text;
    for (int64_t i = 0; i < c->elements(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : " ", c->GetDouble(i));
    return c->dims.empty() ? text : "[" + text + "]";
  };
  std::string text;
  for (ir::NodeId n : g.Order()) {
    const ir::Node& node = g.node(n);
    if (node.op->traits.constant) continue;
    std::string inputs, outputs;
    for (ir::ValueId v : node.inputs) inputs += (inputs.empty() ? "" : ", ") + name(v);
    for (ir::ValueId v : node.outputs) {
      outputs += (outputs.empty() ? "" : ", ") +
                 (v == ir::kNone ? "-" : g.value(v).name + " " + ToString(g.type(v)));
    }
    text += fmt::format("{}({}) -> {}\n", node.op->name, inputs, outputs);
  }
  return text;
}

/// The constant that output 0 of the graph is.
inline std::vector<double> OutputValues(const ir::Graph& g) {
  const HostTensor* c = g.outputs().empty() ? nullptr : g.ConstantOf(g.outputs()[0].value);
  std::vector<double> values;
  for (int64_t i = 0; c != nullptr && i < c->elements(); ++i) values.push_back(c->GetDouble(i));
  return values;
}

}  // namespace ampc
