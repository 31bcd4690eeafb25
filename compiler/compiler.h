// SPDX-License-Identifier: Apache-2.0
#pragma once
// THE pipeline: model file -> module -> passes -> plan.

#include <memory>
#include <string>

#include "compiler/diagnostics.h"
#include "compiler/ir/graph.h"
#include "compiler/pass_manager.h"
#include "passes/options.h"
#include "runtime/plan/plan.h"

namespace ampc {

struct Compiled {
  std::unique_ptr<ir::Module> module;  ///< after the last pass that ran
  plan::Plan plan;  ///< empty programs when --stop-after ended the pipeline before lower
  bool lowered = false;
};

/// Compiles `model` (.onnx or .onnxtext).
Result<Compiled> Compile(const std::string& model, const CompileOptions& options,
                         PassManager& passes, Diagnostics& diagnostics);

}  // namespace ampc
