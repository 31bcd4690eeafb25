// SPDX-License-Identifier: Apache-2.0
#pragma once
// An exported step on disk: the message, then the initial data of its states, streamed.

#include <span>
#include <string>

#include "compiler/ir/graph.h"

namespace onnx {
class ModelProto;
}

namespace ampc {

/// A state and the graph input whose default value it is.
struct StepInitial {
  ir::StateId state = ir::kNone;
  std::string input;
};

/// Writes `path` atomically; where message and initial data are larger than `max_inline_bytes`, the
/// data goes to `path`.data.
Status WriteStepFile(const onnx::ModelProto& model, const ir::Module& module,
                     std::span<const StepInitial> initials, int64_t max_inline_bytes,
                     const std::string& path);

}  // namespace ampc
