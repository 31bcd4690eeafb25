// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `ampc MODEL --info` shows. Needs neither bound dims nor supported ops.

#include <string>
#include <vector>

#include "compiler/diagnostics.h"
#include "passes/options.h"
#include "runtime/plan/plan.h"

namespace ampc {

struct PortInfo {
  std::string name;
  std::string type;  ///< "float[batch,1,28,28]"
};

struct InitializerInfo {
  std::string name;
  DType dtype = DType::kNone;
  Dims dims;
  plan::Role role = plan::Role::kConstant;
  bool trainable = false;
  std::string reason;  ///< why it trains or not
  size_t uses = 0;
};

struct ModelInfo {
  std::string producer;  ///< "pytorch 2.15.0"
  int64_t ir_version = 0;
  std::vector<std::pair<std::string, int64_t>> opsets;  ///< domain ("" = ONNX), version
  std::vector<PortInfo> inputs, outputs;  ///< inputs without initializers that are listed as such
  std::vector<std::pair<std::string, std::vector<std::string>>>
      dims;  ///< symbolic dim, inputs that have it
  std::vector<InitializerInfo> initializers;
  std::vector<std::string> notes;                    ///< shared, untied and equal parameters
  std::vector<std::pair<std::string, int64_t>> ops;  ///< "Conv-11", number of nodes; by name
};

/// Reads the model and classifies its initializers under --trainable, --freeze and --untie of
/// `options`.
Result<ModelInfo> ReadModelInfo(const std::string& path, const CompileOptions& options,
                                Diagnostics& diagnostics);

/// The tables, ready to print.
std::string FormatModelInfo(const ModelInfo& info);

}  // namespace ampc
