// SPDX-License-Identifier: Apache-2.0
#pragma once
// Import: an ONNX model becomes the canonical forward graph.
//
// One sweep over the nodes that the outputs need, in an order that depends on the graph's structure
// alone: parse, check, canonical opset form, functions inlined, symbolic dims bound, types
// inferred, constants folded. Everything that is not supported is listed in one error.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/diagnostics.h"
#include "compiler/ir/graph.h"
#include "passes/options.h"
#include "runtime/plan/plan.h"

namespace ampc {

/// Computes a node whose inputs are constants: compiler/lower/evaluate.h. With null nothing folds.
using EvaluateFn = Result<std::vector<HostTensor>> (*)(const ir::Graph&, ir::NodeId);

/// Which bindings of symbolic dims hold: --dim NAME=N, or those with --dim eval:NAME=N in front of
/// them.
enum class DimSet : uint8_t { kTrain, kEval };

/// One initializer of the source model, to be written when the trained model is exported.
struct SourceExport {
  plan::Export entry;  ///< `state` is a StateId; -1: `bytes`, unchanged
  ir::ByteRef bytes;
};

/// What the plan keeps of the source model.
struct SourceInfo {
  std::string
      model;  ///< serialised ModelProto in inference form, without the initializers of `exports`
  std::string name;  ///< file name
  std::vector<SourceExport> exports;
};

/// How a model that brings its training along wants to be trained.
struct GivenTraining {
  std::string loss;       ///< the output that is minimised
  bool backward = false;  ///< the graph has the backward pass, too
  std::optional<OptimizerSpec> optimizer;
  double clip_norm = 0;  ///< 0: none
};

struct ImportedModel {
  std::unique_ptr<ir::Module> module;  ///< `train` is the forward graph
  SourceInfo source;
  std::optional<GivenTraining> training;
};

/// Reads `path` (`.onnx`, or `.onnxtext` in ONNX's text syntax). Errors carry the file's name.
Result<ImportedModel> ImportModel(const std::string& path, const CompileOptions& options,
                                  Diagnostics& diagnostics, EvaluateFn evaluate,
                                  DimSet dims = DimSet::kTrain);
/// ONNX Runtime's training artifacts in folder `options.artifacts`, with the weights of the model
/// `options.init_from`, which is also what an export writes. In kTrain `train` has the backward
/// pass, too: its outputs "given:seed" (a feed) and "given:grad:<state>"; in kEval it has not.
Result<ImportedModel> ImportArtifacts(const CompileOptions& options, Diagnostics& diagnostics,
                                      EvaluateFn evaluate, DimSet dims = DimSet::kTrain);
/// ImportModel from ONNX text; external data is looked up in `folder`.
Result<ImportedModel> ImportText(const std::string& text, const std::string& folder,
                                 const CompileOptions& options, Diagnostics& diagnostics,
                                 EvaluateFn evaluate, DimSet dims = DimSet::kTrain);

}  // namespace ampc
