// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's training artifacts: training_model.onnx has forward and backward pass, with the
// parameters as inputs and one accumulator per gradient; optimizer_model.onnx has one optimizer
// over sequences. Names join them with the weights, which come from another model.
//
//   inputs    data, P, P_grad.accumulation.buffer, lazy_reset_grad
//   nodes     …, InPlaceAccumulatorV2 (P_grad.accumulation.buffer, gradient of P, lazy_reset_grad)
//   outputs   the loss first, then one flag per accumulator
//
// The accumulators go (micro-batches are ours), parameters become initializers, and the constant
// that seeds the backward pass, "<loss>_grad", becomes an input that pass adopt-gradients scales.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/source.h"
#include "compiler/onnx/training.h"
#include "compiler/onnx/proto_util.h"
#include "runtime/base/file.h"

namespace ampc {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";
constexpr std::string_view kBuffer = "_grad.accumulation.buffer";

bool Is(const onnx::NodeProto& node, std::initializer_list<std::string_view> ops) {
  return node.domain() == kMicrosoft &&
         std::find(ops.begin(), ops.end(), node.op_type()) != ops.end();
}

Result<SourceModel> LoadPart(const std::string& dir, std::string_view name) {
  const std::string path = JoinPath(dir, name);
  auto source = LoadModel(path);
  if (source.ok() || source.status().error_class() != ErrorClass::kIo) return source;
  return BadInput("E0118",
                  "'{}' has no readable {}: ONNX Runtime's training artifacts are "
                  "training_model.onnx and optimizer_model.onnx",
                  dir, name);
}

double AttributeOf(const onnx::NodeProto& node, std::string_view name, double fallback) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() != name) continue;
    return attribute.type() == onnx::AttributeProto::INT ? static_cast<double>(attribute.i())
                                                         : attribute.f();
  }
  return fallback;
}

// ---- the optimizer

// Defaults of the ops in ONNX Runtime.
Status ReadAdamW(const onnx::NodeProto& node, OptimizerSpec& spec) {
  spec.kind = OptimizerSpec::Kind::kAdamW;
  spec.beta1 = AttributeOf(node, "alpha", 0.9);
  spec.beta2 = AttributeOf(node, "beta", 0.999);
  spec.eps = AttributeOf(node, "epsilon", 1e-8);
  spec.weight_decay = AttributeOf(node, "weight_decay", 1e-2);
  spec.decay_last = AttributeOf(node, "adam_mode", 0) != 0;
  spec.correct_bias = AttributeOf(node, "correct_bias", 1) != 0;
  if (!spec.decay_last && !spec.correct_bias)
    return BadInput("E0118", "AdamWOptimizer: adam_mode 0 wants correct_bias 1, found 0");
  return {};
}

Status ReadOptimizer(const SourceModel& model, const CompileOptions& options,
                     GivenTraining& given) {
  const onnx::NodeProto* found = nullptr;
  std::vector<std::string> others;
  for (const auto& node : model.graph().node()) {
    if (Is(node, {"InplaceClipGradNorm", "ClipGradNorm"})) {
      given.clip_norm = AttributeOf(node, "max_norm", 1);
    } else if (found == nullptr && Is(node, {"AdamWOptimizer", "SGDOptimizerV2"})) {
      found = &node;
    } else {
      others.push_back(OpWithVersion(node, model.opsets()));
    }
  }
  if (!others.empty()) {
    return Unsupported("E0102", "{}: ops that are not supported in an optimizer: {}", model.name(),
                       Listed(others));
  }
  if (found == nullptr) {
    return BadInput("E0118", "{}: no optimizer: AdamWOptimizer or SGDOptimizerV2 is expected",
                    model.name());
  }
  OptimizerSpec spec = options.optimizer;  // learning rate and parameter groups
  spec.kind = OptimizerSpec::Kind::kSgd;
  spec.momentum = spec.dampening = spec.weight_decay = 0;
  spec.nesterov = false;
  if (found->op_type() == "AdamWOptimizer") AMPC_TRY(ReadAdamW(*found, spec));
  given.optimizer = std::move(spec);
  return {};
}

// ---- the graph

class Joiner {
 public:
  Joiner(SourceModel& source, const SourceModel& weights)
      : source_(source),
        weights_(weights),
        graph_(*source.proto().mutable_graph()),
        part_(std::make_unique<TrainingPart>()) {}

  Status Run(GivenTraining given, bool with_backward) {
    part_->given = std::move(given);
    part_->given.backward = true;
    TakeAccumulators();
    if (part_->gradients.empty()) {
      return BadInput("E0118",
                      "{}: no gradient is accumulated (InPlaceAccumulatorV2): is it a "
                      "training model?",
                      source_.name());
    }
    if (graph_.output_size() == 0)
      return BadInput("E0118", "{}: no output is left for the loss", source_.name());
    part_->given.loss = graph_.output(0).name();
    AMPC_TRY(TakeParameters());
    if (with_backward) {
      AMPC_TRY(TakeSeed());
      for (const SourceGradient& g : part_->gradients) AddOutput(g.gradient);
    }
    source_.SetTraining(std::move(part_));
    return {};
  }

 private:
  // Accumulators, their buffers and flags.
  void TakeAccumulators() {
    std::set<std::string> gone;
    EraseIf(*graph_.mutable_node(), [&](const onnx::NodeProto& node) {
      if (!Is(node, {"InPlaceAccumulator", "InPlaceAccumulatorV2"}) || node.input_size() < 2)
        return false;
      buffers_.emplace_back(node.input(0), node.input(1));
      gone.insert(node.input(0));
      for (int i = 2; i < node.input_size(); ++i) gone.insert(node.input(i));
      gone.insert(node.output().begin(), node.output().end());
      return true;
    });
    for (const auto& [buffer, gradient] : buffers_) {
      const bool named = buffer.ends_with(kBuffer);
      part_->gradients.push_back(
          {named ? buffer.substr(0, buffer.size() - kBuffer.size()) : buffer, gradient});
    }
    for (const auto& node : graph_.node()) {
      for (const std::string& input : node.input()) gone.erase(input);
    }
    const auto is_gone = [&](const onnx::ValueInfoProto& v) { return gone.contains(v.name()); };
    EraseIf(*graph_.mutable_input(), is_gone);
    EraseIf(*graph_.mutable_output(), is_gone);
  }

  // Inputs of the graph that the other model has as initializers.
  Status TakeParameters() {
    std::map<std::string_view, const SourceTensor*> stored;
    for (const SourceTensor& tensor : weights_.tensors()) stored.emplace(tensor.name, &tensor);
    std::set<std::string> taken;
    std::vector<std::string> wrong;
    for (const auto& input : graph_.input()) {
      const auto it = stored.find(input.name());
      if (it == stored.end()) continue;
      taken.insert(input.name());
      if (std::string why = Misfit(input, *it->second); !why.empty()) wrong.push_back(why);
      source_.AddTensor(
          {.name = it->second->name, .original = it->second->name, .data = it->second->data});
    }
    for (const SourceGradient& g : part_->gradients) {
      if (!part_->trained.insert(g.initializer).second)
        return BadInput("E0119", "{}: two gradients of '{}'", source_.name(), g.initializer);
      if (taken.contains(g.initializer)) continue;
      wrong.push_back(stored.contains(g.initializer)
                          ? fmt::format("'{}' is no input of the training model", g.initializer)
                          : fmt::format("'{}' is no initializer", g.initializer));
    }
    if (!wrong.empty()) {
      return BadInput("E0119", "{} and {} do not join by names: {}", source_.name(),
                      weights_.name(), Listed(wrong));
    }
    EraseIf(*graph_.mutable_input(),
            [&](const onnx::ValueInfoProto& v) { return taken.contains(v.name()); });
    return {};
  }

  static std::string Misfit(const onnx::ValueInfoProto& input, const SourceTensor& tensor) {
    const auto& type = input.type().tensor_type();
    Dims dims;
    bool known = type.has_shape();
    for (const auto& d : type.shape().dim()) {
      known = known && d.has_dim_value();
      dims.push_back(d.dim_value());
    }
    const TensorForm& form = tensor.data.form;
    if (type.elem_type() == static_cast<int>(form.dtype) && (!known || dims == form.dims))
      return "";
    return fmt::format("'{}' is {}{}, the training model has {}{}", tensor.name, Name(form.dtype),
                       ToString(form.dims), OnnxTypeName(type.elem_type()),
                       known ? ToString(dims) : "");
  }

  // What the backward pass starts from: a constant 1 that becomes an input.
  Status TakeSeed() {
    part_->seed = part_->given.loss + "_grad";
    AMPC_ASSIGN(const HostTensor seed, SeedValue());
    if (seed.elements() != 1 || !IsFloat(seed.dtype)) {
      return Unsupported("E0118", "{}: the seed '{}' is {}{}, a scalar is expected", source_.name(),
                         part_->seed, Name(seed.dtype), ToString(seed.dims));
    }
    if (seed.GetDouble(0) != 1) {
      return Unsupported("E0118", "{}: the seed '{}' is {}, 1 is expected", source_.name(),
                         part_->seed, seed.GetDouble(0));
    }
    auto* input = graph_.add_input();
    input->set_name(part_->seed);
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(static_cast<int>(seed.dtype));
    type->mutable_shape();
    for (int64_t d : seed.dims) type->mutable_shape()->add_dim()->set_dim_value(d);
    return {};
  }

  Result<HostTensor> SeedValue() {
    std::vector<SourceTensor>& tensors = source_.tensors();
    const auto it = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const SourceTensor& t) { return t.name == part_->seed; });
    if (it != tensors.end()) {
      const TensorData data = it->data;
      tensors.erase(it);
      EraseIf(*graph_.mutable_initializer(),
              [&](const onnx::TensorProto& t) { return t.name() == part_->seed; });
      return ReadTensor(data);
    }
    for (const auto& node : graph_.node()) {
      if (node.op_type() != "Constant" || node.output_size() != 1 ||
          node.output(0) != part_->seed || node.attribute_size() != 1 || !node.attribute(0).has_t())
        continue;
      AMPC_ASSIGN(const TensorData data, source_.files().Find(node.attribute(0).t()));
      EraseIf(*graph_.mutable_node(), [&](const onnx::NodeProto& n) {
        return n.output_size() == 1 && n.output(0) == part_->seed;
      });
      return ReadTensor(data);
    }
    return BadInput("E0118",
                    "{}: '{}' seeds the backward pass, but no initializer and no Constant "
                    "has that name",
                    source_.name(), part_->seed);
  }

  void AddOutput(const std::string& name) {
    const auto& outputs = graph_.output();
    if (std::none_of(outputs.begin(), outputs.end(),
                     [&](const auto& out) { return out.name() == name; }))
      graph_.add_output()->set_name(name);
  }

  SourceModel& source_;
  const SourceModel& weights_;
  onnx::GraphProto& graph_;
  std::unique_ptr<TrainingPart> part_;
  std::vector<std::pair<std::string, std::string>> buffers_;  // and the gradient that is added
};

}  // namespace

Result<ImportedModel> ImportArtifacts(const CompileOptions& options, Diagnostics& diagnostics,
                                      EvaluateFn evaluate, DimSet dims) {
  AMPC_ASSIGN(SourceModel source, LoadPart(options.artifacts, "training_model.onnx"));
  AMPC_ASSIGN(const SourceModel optimizer, LoadPart(options.artifacts, "optimizer_model.onnx"));
  AMPC_ASSIGN(SourceModel weights, LoadModel(options.init_from));
  GivenTraining given;
  AMPC_TRY(ReadOptimizer(optimizer, options, given));
  AMPC_TRY(Joiner(source, weights).Run(std::move(given), dims == DimSet::kTrain));
  return ImportJoined(source, weights, options, diagnostics, evaluate, dims);
}

}  // namespace ampc
