// SPDX-License-Identifier: Apache-2.0
#include "compiler/compiler.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "compiler/ir/clone.h"
#include "compiler/lower/evaluate.h"
#include "compiler/lower/lower.h"
#include "compiler/onnx/import.h"
#include "runtime/base/glob.h"
#include "runtime/base/suggest.h"

namespace ampc {
namespace {

// The plan keeps the source model, so that amprun can export the trained one without ONNX or the
// compiler. Weight bytes that no state holds (integer tables, folded constants) follow the states'
// bytes in the weight section.
class WithExtraBytes final : public plan::WeightSection {
 public:
  WithExtraBytes(std::shared_ptr<plan::WeightSection> states,
                 std::vector<std::pair<int64_t, ir::ByteRef>> extra, int64_t size)
      : states_(std::move(states)), extra_(std::move(extra)), size_(size) {}
  int64_t size() const override { return size_; }
  Status Read(int64_t offset, std::span<std::byte> out) const override {
    AMPC_TRY(states_->Read(offset, out));
    const int64_t end = offset + static_cast<int64_t>(out.size());
    for (const auto& [at, bytes] : extra_) {
      const int64_t from = std::max(offset, at), to = std::min(end, at + bytes.length);
      if (from >= to) continue;
      AMPC_TRY(bytes.source->Read(
          bytes.offset + from - at,
          out.subspan(static_cast<size_t>(from - offset), static_cast<size_t>(to - from))));
    }
    return {};
  }

 private:
  std::shared_ptr<plan::WeightSection> states_;
  std::vector<std::pair<int64_t, ir::ByteRef>> extra_;
  int64_t size_;
};

void AddSource(SourceInfo source, plan::Plan& plan) {
  plan.source_model = std::move(source.model);
  plan.source_name = std::move(source.name);
  int64_t at = plan.weights->size();
  std::vector<std::pair<int64_t, ir::ByteRef>> extra;
  for (SourceExport& e : source.exports) {
    if (e.entry.state < 0) {
      at = (at + 63) / 64 * 64;
      e.entry.offset = at;
      e.entry.length = e.bytes.length;
      extra.emplace_back(at, e.bytes);
      at += e.bytes.length;
    }
    plan.exports.push_back(std::move(e.entry));
  }
  if (!extra.empty())
    plan.weights = std::make_shared<WithExtraBytes>(plan.weights, std::move(extra), at);
}

Result<ImportedModel> Import(const std::string& model, const CompileOptions& options,
                             Diagnostics& diagnostics, DimSet dims) {
  return options.artifacts.empty() ? ImportModel(model, options, diagnostics, EvaluateNode, dims)
                                   : ImportArtifacts(options, diagnostics, EvaluateNode, dims);
}

// Another batch in evaluation: the model is imported again with those dims, and its forward graph
// becomes the start of `eval` in the same module (states are found by name).
// So is a model that has its backward pass: evaluation wants none.
Status ImportEval(const std::string& model, const CompileOptions& options, ir::Module& module) {
  Diagnostics silent;  // everything that there is to say was said for the train graph
  AMPC_ASSIGN(ImportedModel imported, Import(model, options, silent, DimSet::kEval));
  module.eval = std::make_unique<ir::Graph>(module, "eval");
  std::unordered_map<ir::ValueId, ir::ValueId> map;
  const ir::Graph& source = *imported.module->train;
  ir::CopyNodes(source, *module.eval, map);
  for (const ir::OutputInfo& out : source.outputs()) {
    if (!map.contains(out.value))
      return Unsupported("E0213", "output '{}' is an input or a weight handed through", out.name);
    module.eval->SetOutput(out.name, map.at(out.value));
  }
  return {};
}

// What a model that brings its training along settles itself.
void Settle(const GivenTraining& given, CompileOptions& options) {
  options.losses = {{.kind = LossSpec::Kind::kOutput, .input = given.loss}};
  if (given.optimizer) options.optimizer = *given.optimizer;
  if (given.clip_norm > 0) options.clip_norm = given.clip_norm;
}

// A name of --keep that no value has would be ignored in silence.
Status CheckKept(const ir::Module& m, const std::vector<std::string>& keep) {
  if (keep.empty()) return {};
  std::vector<std::string_view> names;
  for (const ir::Graph* g : m.graphs()) {
    for (const ir::FeedInfo& feed : g->feeds()) names.push_back(feed.name);
    for (const ir::OutputInfo& out : g->outputs()) names.push_back(out.name);
    for (ir::NodeId n : g->Order()) {
      for (ir::ValueId v : g->node(n).outputs) {
        if (v != ir::kNone) names.push_back(g->value(v).name);
      }
    }
  }
  for (const ir::StateVar& s : m.states) names.push_back(s.name);
  for (const std::string& glob : keep) {
    if (std::none_of(names.begin(), names.end(),
                     [&](std::string_view name) { return GlobMatches(glob, name); }))
      return UsageError("E0305", "--keep '{}' matches no value{}", glob, Suggest(glob, names));
  }
  return {};
}

// Everything between the forward graph and the cleaned-up step.
Status BuildTrainingStep(PassManager& passes, ir::Module& m, PassContext& context,
                         bool has_backward) {
  // BatchNormalization and Dropout into training mode, in train only.
  AMPC_TRY(passes.Run("train-mode", m, context));
  // What the model has and the loss does not need goes before casts and gradients see it.
  AMPC_TRY(passes.Run("dce", m, context));
  // Casts by policy, on the forward graph: backward then follows forward dtypes.
  AMPC_TRY(passes.Run("autocast", m, context));
  // The seed of the backward pass, scaled.
  AMPC_TRY(passes.Run("loss-scale", m, context));
  // Gradients by the ops' own rules, or those that the model has.
  AMPC_TRY(passes.Run(has_backward ? "adopt-gradients" : "autodiff", m, context));
  // --wgrad fp32: parameter gradients keep the accumulators' fp32.
  AMPC_TRY(passes.Run("wide-gradients", m, context));
  // train | apply, with fp32 buffers between them when a window has several micro-batches.
  AMPC_TRY(passes.Run("accumulate", m, context));
  // One kernel over all gradients; the check sees what the optimizer will use.
  AMPC_TRY(passes.Run("unscale-check", m, context));
  // On unscaled gradients, so that clipping does not depend on the scale.
  AMPC_TRY(passes.Run("clip", m, context));
  // fp32 masters, moments, schedule; all predicated on found_inf.
  AMPC_TRY(passes.Run("optimizer", m, context));
  // At most one cast per weight and update: a low copy that the update refreshes.
  AMPC_TRY(passes.Run("master-weights", m, context));
  // Growth, backoff, floor, ceiling, hysteresis; counts skips.
  AMPC_TRY(passes.Run("scaler-update", m, context));
  // One micro-batch per window: one program, no buffers between gradient and update.
  AMPC_TRY(passes.Run("merge-apply", m, context));
  return {};
}

}  // namespace

Result<Compiled> Compile(const std::string& model, const CompileOptions& options,
                         PassManager& passes, Diagnostics& diagnostics, Goal goal) {
  AMPC_TRY(passes.CheckNames());
  CompileOptions settled = options;
  PassContext context{settled, diagnostics, EvaluateNode};
  Compiled out;

  // One sweep over the file: canonical opset form, functions inlined, dims bound, shape arithmetic
  // folded.
  const auto start = std::chrono::steady_clock::now();
  AMPC_ASSIGN(ImportedModel imported, Import(model, options, diagnostics, DimSet::kTrain));
  out.module = std::move(imported.module);
  if (imported.training) Settle(*imported.training, settled);
  ir::Module& m = *out.module;
  AMPC_TRY(passes.Check("import", m));
  AMPC_TRY(passes.After(
      "import", m,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  if (passes.stopped()) return out;

  const bool has_backward = imported.training && imported.training->backward;
  if (!options.eval_dims.empty() || has_backward) AMPC_TRY(ImportEval(model, options, m));
  // Equal reads of a weight become one, so that a tied weight is cast once.
  AMPC_TRY(passes.Run("cse", m, context));
  // Loss and metrics, as the settings ask.
  AMPC_TRY(passes.Run("attach-loss", m, context));
  // What exporters took apart becomes one op: policy and kernels want the whole. A backward pass
  // that the model has reads the parts.
  if (!has_backward) AMPC_TRY(passes.Run("recover", m, context));
  // The eval graph forks here: before training mode, casts and gradients.
  AMPC_TRY(passes.Run("fork-eval", m, context));
  if (options.forward_only) {
    // Only what --eval-precision same asks for.
    AMPC_TRY(passes.Run("autocast", m, context));
  } else {
    AMPC_TRY(BuildTrainingStep(passes, m, context, has_backward));
  }
  // Clean up what the passes above left: value-preserving cast pairs, equal nodes, constants, dead
  // nodes.
  AMPC_TRY(passes.Run("clean-casts", m, context));
  AMPC_TRY(passes.Run("fold", m, context));
  AMPC_TRY(passes.Run("cse", m, context));
  AMPC_TRY(passes.Run("dce", m, context));
  // Standard ONNX has neither layouts nor fused ops.
  if (goal == Goal::kStep) {
    if (!passes.stopped()) AMPC_TRY(passes.Check("step", m));
    return out;
  }
  // What data may hold where the model indexes with it: read from nodes that are sure to run.
  AMPC_TRY(passes.Run("bound-feeds", m, context));
  // Layouts before fusion, so that groups are made of values that lie alike.
  AMPC_TRY(passes.Run("layout", m, context));
  AMPC_TRY(passes.Run("fuse", m, context));
  AMPC_TRY(passes.Run("dce", m, context));
  if (passes.stopped()) return out;
  AMPC_TRY(CheckKept(m, options.keep));

  AMPC_TRY(passes.Check("lower", m));
  const auto lower_start = std::chrono::steady_clock::now();
  AMPC_ASSIGN(out.plan, LowerModule(m));
  AMPC_TRY(passes.After(
      "lower", m,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - lower_start).count()));
  AddSource(std::move(imported.source), out.plan);
  out.plan.accumulate = options.accumulate;
  out.plan.max_skips = options.scaler.max_skips;
  out.lowered = true;
  return out;
}

}  // namespace ampc
