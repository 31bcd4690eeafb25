// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training step as a standard ONNX model: --emit step.
//
// A state that the graph reads is an input whose default value is its initial data, its next value
// an output; so the first run needs only the feeds, and each later one the outputs of the one
// before. Low copies of weights are casts of their masters, as in checkpoints. An op on fp16 or
// bf16 operands is written as casts around the fp32 op, own ops are functions that say so
// themselves: every runtime then rounds where our kernels do.
//
// The metadata entry kStepMetadata is JSON:
//   {"format": 1, "graph": "step" | "train" | "apply", "accumulate": K, "precision", "policy",
//    "feeds": {NAME: {"input", "dtype", "dims"}},
//    "outputs": {NAME: graph output},                             loss, lr, scale, found_inf, …;
//                                                                 none is fp16 or bf16
//    "states": {NAME: {"input", "output", "role", "dtype", "dims", "source", "setting", "auto"}}}
// `input` is null for a state that this graph only writes, `output` for one that it only reads;
// `auto` is true for a setting without a default, which the driver must feed.

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"

namespace ampc {

inline constexpr std::string_view kStepMetadata = "ampc.step";

struct StepOptions {
  bool native = false;  ///< standard ops keep low operands
  int64_t accumulate = 1;
  std::string producer, precision, policy;  ///< for the metadata
  /// Initial data beyond this lies beside the model: a protobuf message ends at 2 GiB.
  int64_t max_inline_bytes = int64_t{2000} << 20;
};

/// What was written, for the summary.
struct StepFile {
  std::string path;
  int64_t nodes = 0, functions = 0, states = 0;
};

/// Writes the training step of a module in which no layout is assigned and nothing is fused. With
/// train and apply apart, STEM.onnx becomes STEM.train.onnx and STEM.apply.onnx.
Result<std::vector<StepFile>> ExportStep(const ir::Module& module, const StepOptions& options,
                                         const std::string& path);

}  // namespace ampc
