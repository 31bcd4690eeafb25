// SPDX-License-Identifier: Apache-2.0
// Adds the gradient of the loss with respect to every trainable state.
//
//   before   "loss" = output, "seed" = output (optional: the gradient of the loss itself, default
//   1) after    "grad:<state>" = output, for each trainable state from which a path leads to the
//   loss
//
// One reverse sweep. Rules come from the op rows; a node whose row has a training form is replaced
// by it first. A value used k times gets its k contributions added one by one in their own dtype,
// as PyTorch's engine does; because the add follows each contribution, no two of them live longer
// than needed. Test: test/passes/autodiff.onnxtext
#include <vector>

#include "passes/passes.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

class Differentiator {
 public:
  Differentiator(ir::Graph& graph, PassContext& context)
      : g_(graph), module_(graph.module()), context_(context) {}

  Status Run() {
    loss_ = g_.FindOutput("loss");
    FindPath();
    AMPC_TRY(CheckRules());
    AMPC_TRY(TakeTrainingForms());
    FindPath();
    grads_.assign(static_cast<size_t>(g_.num_values()), kNone);
    AMPC_TRY(Seed());
    for (const std::vector<NodeId> order = g_.Order(); NodeId n : Reversed(order)) {
      if (OnPath(n)) AMPC_TRY(Visit(n));
    }
    return Collect();
  }

 private:
  static std::vector<NodeId> Reversed(std::vector<NodeId> order) {
    std::reverse(order.begin(), order.end());
    return order;
  }
  bool OnPath(NodeId n) const {
    return static_cast<size_t>(n) < on_path_.size() && on_path_[static_cast<size_t>(n)];
  }
  bool Wants(ValueId v) const { return v != kNone && wants_[static_cast<size_t>(v)]; }

  // wants_: values that depend on a trainable state through float values; on_path_: nodes between
  // those and the loss.
  void FindPath() {
    wants_.assign(static_cast<size_t>(g_.num_values()), false);
    on_path_.assign(static_cast<size_t>(g_.num_nodes()), false);
    for (size_t s = 0; s < module_.states.size(); ++s) {
      const ValueId v = g_.FindState(static_cast<ir::StateId>(s));
      if (v != kNone && module_.states[s].trainable) wants_[static_cast<size_t>(v)] = true;
    }
    const std::vector<NodeId> order = g_.Order();
    for (NodeId n : order) {
      const ir::Node& node = g_.node(n);
      if (node.op->grad == NoGradient) continue;
      bool any = false;
      for (ValueId in : node.inputs) any = any || Wants(in);
      for (ValueId out : node.outputs) {
        if (any && out != kNone && IsFloat(g_.type(out).dtype))
          wants_[static_cast<size_t>(out)] = true;
      }
    }
    std::vector<bool> reaches(static_cast<size_t>(g_.num_values()), false);
    reaches[static_cast<size_t>(loss_)] = true;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const ir::Node& node = g_.node(*it);
      bool any = false;
      for (ValueId out : node.outputs)
        any = any || (Wants(out) && reaches[static_cast<size_t>(out)]);
      if (!any) continue;
      on_path_[static_cast<size_t>(*it)] = true;
      for (ValueId in : node.inputs) {
        if (Wants(in)) reaches[static_cast<size_t>(in)] = true;
      }
    }
  }

  // All nodes without a rule are named at once.
  Status CheckRules() {
    for (NodeId n : g_.Order()) {
      const OpDef& op = *g_.node(n).op;
      if (!OnPath(n) || op.grad != nullptr || op.training != nullptr) continue;
      context_.diagnostics.Error(
          Unsupported("E0401",
                      "'{}' has no gradient, but a trainable parameter reaches the loss through "
                      "it; --freeze what lies before it",
                      op.name)
              .At(g_.Describe(n)));
    }
    return context_.diagnostics.Take();
  }

  Status TakeTrainingForms() {
    for (NodeId n : g_.Order()) {
      const ir::Node& node = g_.node(n);
      if (!OnPath(n) || node.op->training == nullptr) continue;
      const std::string label = g_.Describe(n);
      ir::Builder b(g_, node.loc, n);
      Status status = node.op->training(g_, n, b);
      if (!status.ok()) return std::move(status).At(label);
    }
    loss_ = g_.FindOutput("loss");
    return {};
  }

  Status Seed() {
    const ValueId seed = g_.FindOutput("seed");
    ir::Builder b(g_, module_.locs.Intern("seed of the backward pass"));
    const ir::TensorType type = g_.type(loss_);
    const ValueId dy =
        seed == kNone ? b.Expand(b.Scalar(type.dtype, 1), type.dims) : b.Cast(seed, type.dtype);
    if (b.failed()) return b.TakeStatus();
    Add(loss_, dy, b);
    g_.RemoveOutputs([](const std::string& name) { return name == "seed"; });
    return b.TakeStatus();
  }

  void Add(ValueId v, ValueId dv, ir::Builder& b) {
    ValueId& sum = grads_[static_cast<size_t>(v)];
    sum = sum == kNone ? dv : b.Add(sum, dv);
  }

  Status Visit(NodeId n) {
    const ir::Node& node = g_.node(n);
    std::vector<ValueId> dys;
    bool any = false;
    for (ValueId out : node.outputs) {
      dys.push_back(out == kNone ? kNone : grads_[static_cast<size_t>(out)]);
      any = any || dys.back() != kNone;
    }
    if (!any) return {};
    std::vector<bool> needs;
    for (ValueId in : node.inputs) needs.push_back(Wants(in));
    ir::Builder b(g_, module_.locs.Intern(fmt::format("grad of {}", g_.Label(n))));
    GradContext rule(b, g_, n, std::move(dys), std::move(needs));
    Status status = rule.node.op->grad(rule);
    if (status.ok() && b.failed()) status = b.TakeStatus();
    if (!status.ok()) return std::move(status).At(g_.Describe(n));
    for (size_t i = 0; i < rule.node.inputs.size(); ++i) {
      if (rule.Needs(i) && rule.result()[i] != kNone) Add(rule.node.inputs[i], rule.result()[i], b);
    }
    return b.TakeStatus();
  }

  Status Collect() {
    int64_t found = 0;
    std::vector<std::string> apart;
    for (size_t s = 0; s < module_.states.size(); ++s) {
      ir::StateVar& state = module_.states[s];
      if (!state.trainable) continue;
      const ValueId v = g_.FindState(static_cast<ir::StateId>(s));
      const ValueId grad = v == kNone ? kNone : grads_[static_cast<size_t>(v)];
      if (grad == kNone) {
        apart.push_back(fmt::format("'{}'", state.name));
        state.trainable = false;
        continue;
      }
      ++found;
      g_.SetOutput("grad:" + state.name, grad);
    }
    if (found == 0 && apart.empty()) {
      return BadInput("E0405",
                      "nothing to train: no initializer is trainable; --info with the same flags "
                      "gives each one's reason");
    }
    if (found == 0) {
      return BadInput("E0405", "nothing to train: no parameter has a path to the loss: {}",
                      Listed(apart));
    }
    if (!apart.empty()) {
      context_.diagnostics.Note(fmt::format(
          "parameters without a path to the loss, which stay as they are: {}", Listed(apart)));
    }
    return {};
  }

  ir::Graph& g_;
  ir::Module& module_;
  PassContext& context_;
  ValueId loss_ = kNone;
  std::vector<bool> wants_, on_path_;
  std::vector<ValueId> grads_;
};

}  // namespace

Status Differentiate(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.train, "train", {"loss"}));
  return Differentiator(*module.train, context).Run();
}

}  // namespace ampc
