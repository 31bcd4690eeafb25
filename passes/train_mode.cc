// SPDX-License-Identifier: Apache-2.0
// Puts the ops that behave differently in training (their rows have a mode function) into training
// mode, in `train` only.
//
//   before   train: BatchNormalization, Dropout as exported
//   after    train: their training variants; running statistics get next values; state "rng" counts
//   micro-batches
//
// --train-mode preserve keeps what each node's own attributes or inputs say; frozen-eval keeps
// stored statistics where scale and bias are frozen. Test: test/passes/train-mode.onnxtext
#include "passes/passes.h"

namespace ampc {
Status SetTrainMode(ir::Module& module, PassContext& context) {
  if (module.train == nullptr) return {};
  ir::Graph& g = *module.train;
  ModeOptions options;
  switch (context.options.train_mode) {
    case CompileOptions::TrainMode::kTrain:
      options.mode = ModeOptions::Mode::kTrain;
      break;
    case CompileOptions::TrainMode::kPreserve:
      options.mode = ModeOptions::Mode::kPreserve;
      break;
    case CompileOptions::TrainMode::kFrozenEval:
      options.mode = ModeOptions::Mode::kFrozenEval;
      break;
  }
  options.bn_unbiased = context.options.bn_unbiased;
  std::vector<std::string> notes;
  options.notes = &notes;
  for (ir::NodeId n : g.Order()) {
    const ModeFn mode = g.node(n).op->mode;
    if (mode == nullptr) continue;
    const std::string label = g.Describe(n);
    ir::Builder b(g, g.node(n).loc, n);
    Status status = mode(g, n, b, options);
    if (!status.ok()) return std::move(status).At(label);
  }
  for (std::string& note : notes) context.diagnostics.Note(std::move(note));
  SeparateStreams(g);
  return CountDraws(g);
}

}  // namespace ampc
