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
#include <set>

#include "passes/passes.h"

namespace ampc {
namespace {

// Streams are hashes of names: two that collide are told apart, in graph order.
void SeparateStreams(ir::Graph& g) {
  std::set<int64_t> taken;
  for (ir::NodeId n : g.Order()) {
    const ir::Node& node = g.node(n);
    if (!node.op->traits.random || !node.attrs.Has("stream")) continue;
    int64_t stream = node.attrs.Int("stream");
    while (!taken.insert(stream).second) stream = (stream + 1) & 0x7FFFFFFF;
    if (stream == node.attrs.Int("stream")) continue;
    Attrs attrs = node.attrs;
    attrs.Set("stream", stream);
    g.SetAttrs(n, std::move(attrs));
  }
}

}  // namespace

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
  options.rng = module.FindRole(ir::Role::kRng);
  if (options.rng == ir::kNone) {
    // {seed, index of the micro-batch}; amprun writes the seed, which it knows by the role.
    options.rng = module.AddState({.name = "rng",
                                   .type = module.types.Intern(DType::kInt64, Dims{2}),
                                   .role = ir::Role::kRng});
  }
  for (ir::NodeId n : g.Order()) {
    const ModeFn mode = g.node(n).op->mode;
    if (mode == nullptr) continue;
    const std::string label = g.Describe(n);
    ir::Builder b(g, g.node(n).loc, n);
    Status status = mode(g, n, b, options);
    if (!status.ok()) return std::move(status).At(label);
  }
  if (g.FindState(options.rng) == ir::kNone) return {};
  SeparateStreams(g);
  ir::Builder b(g, module.locs.Intern("random numbers"));
  const ir::ValueId step = b.Ints({0, 1});
  const ir::ValueId next = b.Map("x0 + x1", {g.State(options.rng), step}, DType::kInt64);
  if (b.failed()) return b.TakeStatus();
  g.SetNext(options.rng, next);
  return {};
}

}  // namespace ampc
