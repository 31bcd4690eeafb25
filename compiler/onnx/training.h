// SPDX-License-Identifier: Apache-2.0
#pragma once
// Models that bring their training along: what was taken out of the source graph for it. Internal
// to compiler/onnx.
//
//   training_info  (training_info.cc) loss, Gradient and the update's nodes; the graph that is left
//                  is a forward graph
//   artifacts      (artifacts.cc) forward and backward pass in one graph; the optimizer is settings

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <onnx/onnx_pb.h>

#include "compiler/onnx/import.h"

namespace ampc {

class SourceModel;

/// Domain of Gradient, Adam, Momentum, Adagrad.
inline constexpr std::string_view kPreviewDomain = "ai.onnx.preview.training";

/// A parameter and the name of its gradient.
struct SourceGradient {
  std::string initializer, gradient;
};

struct TrainingPart {
  GivenTraining given;
  std::vector<SourceGradient> gradients;

  // training_info: nodes that lead from gradients to new values, and which initializer gets which.
  onnx::GraphProto update;
  std::vector<std::pair<std::string, std::string>> bindings;
  std::set<std::string> rates;  ///< initializers that are learning rates and nothing else
  onnx::GraphProto initialization;
  std::vector<std::pair<std::string, std::string>> first_values;
  onnx::GraphProto inference;  ///< the model's own graph, which is what the export writes

  // Artifacts: the input that seeds the backward pass.
  std::string seed;

  std::set<std::string> trained;  ///< has a gradient
  std::set<std::string> updated;  ///< something replaces it after a step or before the first one
};

/// True when the model's training_info is what trains it: no loss is asked for instead.
bool UsesTrainingInfo(const SourceModel& source, const CompileOptions& options);
/// Settles how the model is trained: SplitTrainingInfo where it is used, a note where not.
Status TakeTraining(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics);
/// Joins training_info with the model's graph as ONNX says, and splits the result into the forward
/// graph and the update. Errors: E0116.
Status SplitTrainingInfo(SourceModel& source, const CompileOptions& options,
                         Diagnostics& diagnostics);

/// Imports what has been joined; the export is made of `weights`.
Result<ImportedModel> ImportJoined(SourceModel& source, SourceModel& weights,
                                   const CompileOptions& options, Diagnostics& diagnostics,
                                   EvaluateFn evaluate, DimSet dims);

/// Adam, Momentum, Adagrad.
bool IsUpdateNode(const onnx::NodeProto& node);

}  // namespace ampc
