// SPDX-License-Identifier: Apache-2.0
// K = 1: train and apply become one graph, without buffers between them.
//
//   before   apply: feeds "scaled_grad:<state>"; train: outputs "grad:<state>"
//   after    train: everything, in the order train, apply; no apply
//
// A state that apply reads and that train replaces is read as train's next value, since train would
// have ended by then. K > 1: the graphs stay apart. In both cases the gradients are no outputs any
// more (a fetch reads them by value name). Test: test/passes/merge-apply.onnxtext
#include "compiler/ir/clone.h"
#include "passes/passes.h"

namespace ampc {

Status MergeApply(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.apply, "apply"));
  AMPC_TRY(Needs(module.train, "train"));
  const auto is_grad = [](const std::string& name) { return name.starts_with("grad:"); };
  if (context.options.accumulate > 1) {
    module.apply->RemoveOutputs(is_grad);  // their last readers have them
    return {};
  }
  ir::Graph &train = *module.train, &apply = *module.apply;
  std::unordered_map<ir::ValueId, ir::ValueId> map;
  constexpr std::string_view kScaled = "scaled_";
  for (const ir::FeedInfo& feed : apply.feeds()) {
    if (!feed.name.starts_with(kScaled)) continue;
    const std::string_view grad = std::string_view(feed.name).substr(kScaled.size());
    AMPC_TRY(Needs(module.train, "train", {grad}));
    map.emplace(feed.value, train.FindOutput(grad));
  }
  for (const ir::NextInfo& next : train.nexts()) {
    if (const ir::ValueId read = apply.FindState(next.state); read != ir::kNone)
      map.emplace(read, next.value);
  }
  train.RemoveOutputs(is_grad);
  ir::CopyNodes(apply, train, map);
  const auto counterpart = [&](ir::ValueId v) {
    if (auto it = map.find(v); it != map.end()) return it->second;
    return train.State(apply.value(v).index);  // an output that is a state itself ("scale")
  };
  for (const ir::NextInfo& next : apply.nexts()) train.SetNext(next.state, counterpart(next.value));
  for (const ir::OutputInfo& out : apply.outputs()) {
    if (!out.name.starts_with("grad:")) train.SetOutput(out.name, counterpart(out.value));
  }
  module.apply.reset();
  return {};
}

}  // namespace ampc
