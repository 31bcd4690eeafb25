// SPDX-License-Identifier: Apache-2.0
// Copies the forward graph into `eval`, in inference mode, with sums and counts over the valid
// samples.
//
//   before   train: model outputs, "loss", "each:x" or "log:x", "count:x"
//   after    eval: model outputs, "x_sum", "x_count" (masked by feed "valid": 1 for a sample, 0 for
//   padding)
//            train: "loss", and "x_sum", "x_count" of the metrics, over the whole batch;
//            "x_logsum" of "log:x": its value is the exponential of the mean
//
// Test: test/passes/fork-eval.onnxtext
#include "compiler/ir/clone.h"
#include "passes/passes.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::ValueId;

// What a value per sample is called, and its sum.
struct PerSample {
  std::string_view prefix, suffix;
};
constexpr PerSample kPerSample[] = {{"each:", "_sum"}, {"log:", "_logsum"}, {"count:", "_count"}};

const PerSample* FindPerSample(const std::string& name) {
  for (const PerSample& row : kPerSample) {
    if (name.starts_with(row.prefix)) return &row;
  }
  return nullptr;
}

bool IsPerSample(const std::string& name) { return FindPerSample(name) != nullptr; }

// Sum over everything of `each` where the sample is valid (valid kNone: everywhere); in fp32, or
// double.
ValueId MaskedSum(ir::Builder& b, ValueId each, ValueId valid) {
  if (b.failed()) return kNone;
  const ir::TensorType t = b.type(each);
  const DType acc = AccOf(t.dtype);
  if (valid != kNone) {
    Dims dims(t.dims.size(), 1);
    dims[0] = t.dims[0];
    each = b.Map("where(x1 != 0, x0, 0)", {each, b.Reshape(valid, dims)}, acc);
  }
  std::vector<int64_t> all;
  for (int64_t i = 0; i < t.rank(); ++i) all.push_back(i);
  return b.ReduceSum(b.Cast(each, acc), std::move(all), false);
}

// An output of ours beside the model's own.
Status AddOutput(ir::Graph& g, const std::string& name, ValueId value) {
  if (g.FindOutput(name) != kNone) {
    return BadInput("E0202", "the model has an output named '{}', as evaluation has: rename it",
                    name);
  }
  g.SetOutput(name, value);
  return {};
}

// The feed that says which samples are real; runtimes know it by its kind, not by its name.
ValueId AddValid(ir::Graph& g, int64_t batch) {
  return g.AddFeed(g.UniqueName("valid"), g.module().types.Intern(DType::kFloat32, Dims{batch}),
                   plan::Feed::Kind::kValid);
}

// Replaces the per-sample outputs of `g` by sums and counts.
Status SumUp(ir::Graph& g, ValueId valid, bool with_loss) {
  ir::Builder b(g, g.module().locs.Intern(valid == kNone ? "metric" : "masked sums"));
  const std::vector<ir::OutputInfo> outputs = g.outputs();
  for (const ir::OutputInfo& out : outputs) {
    const PerSample* row = FindPerSample(out.name);
    if (row == nullptr) continue;
    std::string name = out.name.substr(row->prefix.size());
    if (name == "loss" && !with_loss) continue;
    const ValueId sum = MaskedSum(b, out.value, valid);
    if (b.failed()) return b.TakeStatus();
    AMPC_TRY(AddOutput(g, name.append(row->suffix), sum));
  }
  g.RemoveOutputs(IsPerSample);
  return {};
}

// The batch of the model: axis 0 of its first feed.
Result<int64_t> BatchOf(const ir::Graph& g) {
  for (const ir::FeedInfo& feed : g.feeds()) {
    if (!g.type(feed.value).dims.empty()) return g.type(feed.value).dims[0];
  }
  return BadInput("E0212", "the model has no input with a batch axis");
}

bool RowsAreSamples(const ir::Graph& g, int64_t batch) {
  const auto& outputs = g.outputs();
  return std::all_of(outputs.begin(), outputs.end(), [&](const ir::OutputInfo& out) {
    if (!IsPerSample(out.name)) return true;
    const Dims& dims = g.type(out.value).dims;  // none: one number for the batch
    return !dims.empty() && dims[0] == batch;
  });
}

// What evaluation adds up over the batches: sums and counts instead of the loss.
Status SumUpLoss(ir::Graph& eval) {
  int64_t batch = 0;
  if (eval.FindOutput("each:loss") != kNone) {
    AMPC_ASSIGN(batch, BatchOf(eval));
  }
  if (batch > 0 && RowsAreSamples(eval, batch)) {
    AMPC_TRY(SumUp(eval, AddValid(eval, batch), true));
  } else {
    // A loss that the model computes itself, or whose rows are not the samples (a model that
    // flattens [batch, time]), can't be masked: its batches count once each.
    AMPC_TRY(SumUp(eval, kNone, false));
    ir::Builder b(eval, eval.module().locs.Intern("masked sums"));
    const ValueId one = b.Scalar(eval.type(eval.FindOutput("loss")).dtype, 1);
    if (b.failed()) return b.TakeStatus();
    AMPC_TRY(AddOutput(eval, "loss_sum", eval.FindOutput("loss")));
    AMPC_TRY(AddOutput(eval, "loss_count", one));
  }
  eval.RemoveOutputs([](const std::string& name) { return name == "loss"; });
  return {};
}

}  // namespace

Status ForkEval(ir::Module& module, PassContext& context) {
  AMPC_TRY(Needs(module.train, "train"));
  if (!context.options.forward_only) AMPC_TRY(Needs(module.train, "train", {"loss"}));
  ir::Graph& train = *module.train;
  if (module.eval == nullptr) {
    module.eval = std::make_unique<ir::Graph>(module, "eval");
    std::unordered_map<ValueId, ValueId> map;
    ir::CopyNodes(train, *module.eval, map);
    for (const ir::OutputInfo& out : train.outputs()) {
      auto it = map.find(out.value);
      const ir::Value& v = train.value(out.value);
      // An output that no node computes: a state or a feed handed through.
      module.eval->SetOutput(out.name,
                             it != map.end() ? it->second
                             : v.kind == ir::ValueKind::kState
                                 ? module.eval->State(v.index)
                                 : module.eval->AddFeed(v.name, v.type, plan::Feed::Kind::kInput));
    }
  }
  ir::Graph& eval = *module.eval;
  const ModeOptions inference{.mode = ModeOptions::Mode::kInference};
  for (ir::NodeId n : eval.Order()) {
    if (eval.node(n).op->mode == nullptr) continue;
    ir::Builder b(eval, eval.node(n).loc, n);
    AMPC_TRY(eval.node(n).op->mode(eval, n, b, inference));
  }
  SeparateStreams(eval);
  // Without --loss, an output named "loss" is the model's own business.
  const bool forward_only = context.options.forward_only;
  if (!forward_only || !context.options.losses.empty()) AMPC_TRY(SumUpLoss(eval));
  if (forward_only) {
    module.train.reset();
    return CountDraws(eval);
  }
  // An evaluation draws the same numbers in all its batches, and none that training would have
  // drawn. What the train graph returns is the loss and the metrics; a fetch reads any other value
  // by its name.
  train.RemoveOutputs([](const std::string& name) {
    return name != "loss" && !IsPerSample(name) && !name.starts_with("given:");
  });
  return SumUp(train, kNone, false);
}

}  // namespace ampc
