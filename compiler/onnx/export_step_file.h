// SPDX-License-Identifier: Apache-2.0
#pragma once
// An exported step on disk: the message, then the initial data of its states, streamed.

#include <span>
#include <string>

#include "compiler/ir/graph.h"
#include "runtime/base/model_writer.h"

namespace onnx {
class ModelProto;
}

namespace ampc {

/// A state and the graph input whose default value it is.
struct StepInitial {
  ir::StateId state = ir::kNone;
  std::string input;
};

/// Writes all of a file; the caller commits it. Where message and initial data are larger than
/// `max_inline_bytes`, the data lies beside it.
Result<ModelWriter> WriteStepFile(const onnx::ModelProto& model, const ir::Module& module,
                                  std::span<const StepInitial> initials, int64_t max_inline_bytes,
                                  const std::string& path);

}  // namespace ampc
