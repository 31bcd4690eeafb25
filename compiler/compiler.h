// SPDX-License-Identifier: Apache-2.0
#pragma once
// THE pipeline: model file -> module -> passes -> plan, or the module from which --emit step writes
// the step as ONNX.

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

/// Where the pipeline ends.
enum class Goal : uint8_t {
  kPlan,
  kStep,  ///< the clean module, before layouts, fusion and lowering
};

/// Compiles `model` (.onnx or .onnxtext).
Result<Compiled> Compile(const std::string& model, const CompileOptions& options,
                         PassManager& passes, Diagnostics& diagnostics, Goal goal = Goal::kPlan);

}  // namespace ampc
