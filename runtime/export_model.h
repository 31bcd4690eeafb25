// SPDX-License-Identifier: Apache-2.0
#pragma once
// The trained model, as the source model was: its ONNX file with the initializers of now, or the
// weights alone. Needs neither ONNX nor the compiler: the plan carries the source model without
// weights, and initializers are put between its fields on the wire.

#include <string>

#include "runtime/base/status.h"
#include "runtime/executor.h"
#include "runtime/plan/plan.h"

namespace ampc {

struct ExportOptions {
  /// A model larger than this (protobuf's limit) puts its weights in a file beside it
  /// (ModelWriter).
  int64_t max_inline_bytes = (int64_t{1} << 31) - 1;
};

/// Writes an ONNX file with the names, opset, inputs and outputs of the source. Complete or not at
/// all.
Status ExportModel(const plan::Plan& plan, Executor& executor, const std::string& path,
                   const ExportOptions& options = {});

/// Writes the exported initializers to a safetensors file, by their source names.
Status SaveWeights(const plan::Plan& plan, Executor& executor, const std::string& path);

}  // namespace ampc
