// SPDX-License-Identifier: Apache-2.0
// The way in: feeds with bound dims, states, the sweep, outputs.
#include "compiler/onnx/import.h"

#include <algorithm>
#include <limits>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/training.h"
#include "runtime/config/value.h"

namespace ampc {

using ir::kNone;
using ir::ValueId;

// ---- dims

DimBinding::DimBinding(const CompileOptions& options, DimSet set) {
  for (const auto& [name, value] : options.dims) {
    values_[name] = value;
    given_.push_back(name);
  }
  for (const auto& [name, value] : options.eval_dims) {
    if (set == DimSet::kEval) values_[name] = value;
    given_.push_back(name);
  }
}

Dims DimBinding::Bind(const std::string& input, const onnx::TensorShapeProto& shape) {
  Dims dims;
  for (int i = 0; i < shape.dim_size(); ++i) {
    const auto& dim = shape.dim(i);
    if (dim.has_dim_value() && dim.dim_value() >= 0) {
      dims.push_back(dim.dim_value());
      continue;
    }
    // A dim without a name is known by its place.
    const std::string name = dim.has_dim_param() && !dim.dim_param().empty()
                                 ? dim.dim_param()
                                 : fmt::format("{}[{}]", input, i);
    known_.insert(name);
    if (auto it = values_.find(name); it != values_.end()) {
      dims.push_back(it->second);
    } else {
      dims.push_back(1);
      std::vector<std::string>& inputs = unbound_[name];
      if (std::find(inputs.begin(), inputs.end(), input) == inputs.end()) inputs.push_back(input);
    }
  }
  return dims;
}

Status DimBinding::Finish() const {
  for (const std::string& name : given_) {
    if (known_.contains(name)) continue;
    std::vector<std::string_view> names(known_.begin(), known_.end());
    std::sort(names.begin(), names.end());
    if (names.empty())
      return UsageError("E0112", "--dim {}: the model's inputs have no symbolic dims", name);
    std::string all;
    for (std::string_view n : names) all += fmt::format("{}'{}'", all.empty() ? "" : ", ", n);
    const std::string near = Suggest(name, names);
    return UsageError("E0112", "--dim {}: no input has a symbolic dim of that name{}", name,
                      near.empty() ? "; there are " + all : near);
  }
  if (unbound_.empty()) return {};
  std::string text, flags;
  for (const auto& [name, inputs] : unbound_) {
    text += fmt::format("{}'{}' (of ", text.empty() ? "" : ", ", name);
    for (size_t i = 0; i < inputs.size(); ++i)
      text += fmt::format("{}'{}'", i == 0 ? "" : ", ", inputs[i]);
    text += ")";
    flags += fmt::format(" --dim {}=SIZE", name);
  }
  return UsageError("E0112", "symbolic dims without a size: {}; give{}", text, flags);
}

// ---- Importer

Importer::Importer(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics,
                   EvaluateFn evaluate, DimSet dims)
    : source_(source),
      options_(options),
      diagnostics_(diagnostics),
      evaluate_(evaluate),
      dim_set_(dims),
      widen_(options.precision == Precision::kFp64) {
  for (size_t i = 0; i < source.tensors().size(); ++i) tensor_index_[source.tensors()[i].name] = i;
}

ir::StateId Importer::StateOf(const std::string& initializer) const {
  auto it = states_.find(initializer);
  return it == states_.end() ? kNone : it->second;
}

Status Importer::AddFeeds(DimBinding& dims) {
  std::unordered_set<std::string> names;
  std::vector<std::string> defaults;
  for (const auto& input : source_.graph().input()) {
    if (tensor_index_.contains(input.name())) {
      if (source_.proto().ir_version() >= 4) defaults.push_back(fmt::format("'{}'", input.name()));
      continue;
    }
    if (!names.insert(input.name()).second)
      return BadInput("E0103", "two inputs have the name '{}'", input.name());
    const auto& tensor = input.type().tensor_type();  // CheckSupport: a known type and a shape
    const Dims bound = dims.Bind(input.name(), tensor.shape());
    const DType dtype = Widened(static_cast<DType>(tensor.elem_type()));
    if (!CheckedNumElements(bound, SizeOf(dtype))) {
      return BadInput("E0112", "input '{}' of dims {} is larger than 2^63 bytes", input.name(),
                      ToString(bound));
    }
    const ir::TypeId type = module_->types.Intern(dtype, bound);
    main_.values[input.name()] = graph_->AddFeed(input.name(), type, plan::Feed::Kind::kInput);
  }
  if (!defaults.empty()) {
    diagnostics_.Note(
        fmt::format("inputs with a default value, taken as initializers: {}", Listed(defaults)));
  }
  bound_ = dims.values();
  return dims.Finish();
}

// A shape that the model declares is not used, but a contradiction is worth a word.
void Importer::CompareDeclared(const onnx::ValueInfoProto& declared, ValueId value) {
  const auto& tensor = declared.type().tensor_type();
  if (!declared.type().has_tensor_type() || !IsKnownDType(tensor.elem_type())) return;
  const ir::TensorType& type = graph_->type(value);
  const auto dtype = static_cast<DType>(tensor.elem_type());
  const auto& shape = tensor.shape();
  bool same =
      Widened(dtype) == type.dtype && (!tensor.has_shape() || shape.dim_size() == type.rank());
  std::string dims;
  for (int i = 0; i < shape.dim_size(); ++i) {
    const auto& dim = shape.dim(i);
    const auto bound = bound_.find(dim.has_dim_param() ? dim.dim_param() : "");
    const bool symbol = !dim.has_dim_value() && bound != bound_.end();
    if (dim.has_dim_value() || symbol) {
      const int64_t size = symbol ? bound->second : dim.dim_value();
      same = same && size == type.dims[static_cast<size_t>(i)];
    }
    dims += i == 0 ? "" : ",";
    dims += dim.has_dim_value()   ? std::to_string(dim.dim_value())
            : symbol              ? fmt::format("{}={}", bound->first, bound->second)
            : dim.has_dim_param() ? dim.dim_param()
                                  : "?";
  }
  if (same) return;
  diagnostics_.Note(fmt::format("output '{}' is declared as {}[{}], but is {}", declared.name(),
                                Name(dtype), dims, ToString(type)));
}

Status Importer::SetOutputs() {
  std::unordered_set<std::string> names;
  for (const auto& output : source_.graph().output()) {
    if (!names.insert(output.name()).second)
      return BadInput("E0103", "two outputs have the name '{}'", output.name());
    if (main_.sequences.contains(output.name())) {
      return Unsupported("E0102", "output '{}' is a sequence, which is not supported",
                         output.name());
    }
    auto value = Lookup(main_, output.name());
    if (!value.ok())
      return BadInput("E0103", "output '{}' is no value of the graph", output.name());
    CompareDeclared(output, *value);
    graph_->SetOutput(output.name(), *value);
  }
  return {};
}

// Gradients that the model has become outputs that pass adopt-gradients knows.
void Importer::NameGradients(const TrainingPart& training) {
  std::unordered_set<std::string> names;
  for (const auto& [initializer, gradient] : training.gradients) {
    graph_->SetOutput("given:grad:" + module_->state(StateOf(initializer)).name,
                      graph_->FindOutput(gradient));
    names.insert(gradient);
  }
  graph_->SetOutput("given:seed", main_.values.at(training.seed));
  graph_->RemoveOutputs([&](const std::string& name) { return names.contains(name); });
}

Result<std::unique_ptr<ir::Module>> Importer::Run() {
  module_ = std::make_unique<ir::Module>();
  module_->train = std::make_unique<ir::Graph>(*module_, "train");
  graph_ = module_->train.get();
  main_.opsets = &source_.opsets();

  std::vector<std::string> outputs;
  for (const auto& output : source_.graph().output()) outputs.push_back(output.name());
  int skipped = 0;
  AMPC_ASSIGN(const std::vector<int> order,
              OrderNodes(source_.graph().node(), outputs, source_.opsets(), &skipped));
  if (skipped > 0)
    diagnostics_.Note(fmt::format("{} node{} that no output needs {} left out", skipped,
                                  skipped == 1 ? "" : "s", skipped == 1 ? "is" : "are"));

  DimBinding dims(options_, dim_set_);
  AMPC_TRY(AddFeeds(dims));
  for (const SourceTensor& tensor : source_.tensors()) {
    if (main_.values.contains(tensor.name))
      return BadInput("E0103", "'{}' is both an input and an initializer", tensor.name);
    if (!tensor.is_state || (tensor.uses.empty() && !tensor.in_update)) continue;
    const DType stored = tensor.data.form.dtype;
    ir::StateVar state;
    state.name = tensor.name;
    state.type = module_->types.Intern(Widened(IsLow(stored) ? DType::kFloat32 : stored),
                                       tensor.data.form.dims);
    state.role = tensor.role;
    state.initial.kind = plan::Initial::Kind::kBytes;
    state.initial.bytes = tensor.data.bytes;
    state.initial.stored = stored;
    // What only the update has is no part of the model that is exported.
    if (!tensor.uses.empty()) state.source = tensor.name;
    state.trainable = tensor.trainable;
    if (state.role == ir::Role::kHyper) {
      AMPC_ASSIGN(const HostTensor value, ReadTensor(tensor.data));
      state.initial = {.fill = value.GetDouble(0)};
    }
    states_[tensor.name] = module_->AddState(std::move(state));
  }
  for (const auto& node : source_.graph().node()) {
    for (const std::string& out : node.output()) {
      if (!out.empty() && (main_.values.contains(out) || tensor_index_.contains(out))) {
        return BadInput("E0103", "{} makes '{}', which is an {} of the graph",
                        DescribeNode(node, source_.opsets()), out,
                        tensor_index_.contains(out) ? "initializer" : "input");
      }
    }
  }
  main_.read.insert(outputs.begin(), outputs.end());
  AMPC_TRY(ImportNodes(main_, source_.graph().node(), order));
  AMPC_TRY(SetOutputs());
  main_.read.clear();  // views of `outputs`
  if (const TrainingPart* training = source_.training();
      training != nullptr && dim_set_ == DimSet::kTrain) {
    if (training->given.backward) NameGradients(*training);
    AMPC_TRY(ImportUpdate(*training));
  }
  return std::move(module_);
}

// ---- entry points

namespace {

Result<ImportedModel> Import(SourceModel& source, const CompileOptions& options,
                             Diagnostics& diagnostics, EvaluateFn evaluate, DimSet dims) {
  AMPC_TRY(TakeTraining(source, options, diagnostics));
  AMPC_TRY(CheckSupport(source));
  AMPC_TRY(PrepareSource(source, options, diagnostics));
  Importer importer(source, options, diagnostics, evaluate, dims);
  AMPC_ASSIGN(std::unique_ptr<ir::Module> module, importer.Run());
  ImportedModel imported{.module = std::move(module), .source = {}, .training = {}};
  if (const TrainingPart* training = source.training(); training != nullptr) {
    imported.training = training->given;
    source.proto().mutable_graph()->CopyFrom(training->inference);
  }
  AMPC_ASSIGN(imported.source, MakeSourceInfo(source, importer));
  return imported;
}

}  // namespace

Result<ImportedModel> ImportJoined(SourceModel& source, SourceModel& weights,
                                   const CompileOptions& options, Diagnostics& diagnostics,
                                   EvaluateFn evaluate, DimSet dims) {
  AMPC_TRY(CheckSupport(source));
  AMPC_TRY(PrepareSource(source, options, diagnostics));
  Importer importer(source, options, diagnostics, evaluate, dims);
  AMPC_ASSIGN(std::unique_ptr<ir::Module> module, importer.Run());
  ImportedModel imported{
      .module = std::move(module), .source = {}, .training = source.training()->given};
  AMPC_ASSIGN(imported.source, MakeSourceInfo(weights, importer));
  return imported;
}

Result<ImportedModel> ImportModel(const std::string& path, const CompileOptions& options,
                                  Diagnostics& diagnostics, EvaluateFn evaluate, DimSet dims) {
  AMPC_ASSIGN(SourceModel source, LoadModel(path));
  auto imported = Import(source, options, diagnostics, evaluate, dims);
  if (!imported.ok()) return std::move(imported).TakeStatus().Of(path);
  return imported;
}

Result<ImportedModel> ImportText(const std::string& text, const std::string& folder,
                                 const CompileOptions& options, Diagnostics& diagnostics,
                                 EvaluateFn evaluate, DimSet dims) {
  AMPC_ASSIGN(SourceModel source, LoadModelText(text, folder));
  return Import(source, options, diagnostics, evaluate, dims);
}

}  // namespace ampc
