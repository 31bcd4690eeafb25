// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/export_step.h"

#include <unordered_map>
#include <unordered_set>

#include <onnx/onnx_pb.h>

#include "compiler/onnx/export_step_file.h"
#include "compiler/onnx/own_functions.h"
#include "compiler/ops/op_def.h"
#include "runtime/base/json.h"

namespace ampc {
namespace {

using ir::kNone;

std::string Json(std::string_view text) {
  std::string out;
  AppendJsonString(text, &out);
  return out;
}

std::string JsonOrNull(const std::string& text) { return text.empty() ? "null" : Json(text); }

std::string FormJson(const ir::TensorType& type) {
  return fmt::format("\"dtype\": {}, \"dims\": {}", Json(Name(type.dtype)), ToString(type.dims));
}

class Names {
 public:
  /// The name, or NAME.1, NAME.2, … where it is taken.
  std::string Take(const std::string& name) {
    if (taken_.insert(name).second) return name;
    int& count = counters_[name];
    std::string other;
    do {
      other = fmt::format("{}.{}", name, ++count);
    } while (!taken_.insert(other).second);
    return other;
  }

 private:
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> counters_;
};

// One graph of the module as a ModelProto without initial data.
class StepWriter {
 public:
  StepWriter(const ir::Module& module, const ir::Graph& graph, const StepOptions& options,
             onnx::ModelProto* model)
      : m_(module), g_(graph), options_(options), model_(model), out_(model->mutable_graph()) {
    names_.resize(static_cast<size_t>(g_.num_values()));
    wide_.resize(names_.size());
  }

  Status Write(std::string_view name) {
    out_->set_name(std::string(name));
    AddFeeds();
    AddStates();
    NameResults();
    for (const ir::NodeId n : g_.Order()) AMPC_TRY(AddNode(n));
    for (const auto& [from, to] : copies_) AddCopy(names_[static_cast<size_t>(from)], to);
    for (const auto& [from, to] : wide_outputs_) AddCast(NameOf(from), to, WideType(from));
    AMPC_TRY(functions_.AddTo(model_));
    AddMetadata(name);
    return {};
  }

  /// States that are inputs, with the input's name.
  const std::vector<std::pair<ir::StateId, std::string>>& inputs() const { return inputs_; }

 private:
  // "" for an operand that is left out.
  std::string NameOf(ir::ValueId v) const {
    return v == kNone ? std::string() : names_[static_cast<size_t>(v)];
  }

  std::string Take(const std::string& name) { return value_names_.Take(name); }

  void AddFeeds() {
    for (const ir::FeedInfo& feed : g_.feeds()) {
      const std::string name = names_[static_cast<size_t>(feed.value)] = Take(feed.name);
      DescribeValue(name, g_.type(feed.value), out_->add_input());
      feeds_ += fmt::format("{}{}: {{\"input\": {}, {}}}", feeds_.empty() ? "" : ", ",
                            Json(feed.name), Json(name), FormJson(g_.type(feed.value)));
    }
  }

  bool IsDerived(ir::StateId s) const { return m_.state(s).initial.derived_from != kNone; }

  // Inputs are the states that are read, or from which one that is read derives.
  void AddStates() {
    std::vector<std::string> input(m_.states.size());
    std::vector<bool> read(m_.states.size(), false);
    for (size_t s = 0; s < m_.states.size(); ++s) {
      if (g_.FindState(static_cast<ir::StateId>(s)) == kNone) continue;
      ir::StateId root = static_cast<ir::StateId>(s);
      while (IsDerived(root)) root = m_.state(root).initial.derived_from;
      read[static_cast<size_t>(root)] = true;
    }
    for (size_t s = 0; s < m_.states.size(); ++s) {
      const auto id = static_cast<ir::StateId>(s);
      if (!read[s]) continue;
      input[s] = Take(m_.states[s].name);
      inputs_.emplace_back(id, input[s]);
      DescribeValue(input[s], m_.types.Get(m_.states[s].type), out_->add_input());
      if (const ir::ValueId v = g_.FindState(id); v != kNone)
        names_[static_cast<size_t>(v)] = input[s];
    }
    for (size_t s = 0; s < m_.states.size(); ++s) {
      const auto id = static_cast<ir::StateId>(s);
      const ir::ValueId v = g_.FindState(id);
      if (v == kNone || !IsDerived(id)) continue;
      names_[static_cast<size_t>(v)] = Derive(id, input);
    }
  }

  // The value of a derived state: the cast of the state that it derives from.
  std::string Derive(ir::StateId id, const std::vector<std::string>& input) {
    if (!IsDerived(id)) return input[static_cast<size_t>(id)];
    const std::string from = Derive(m_.state(id).initial.derived_from, input);
    const std::string to = Take(m_.state(id).name);
    AddCast(from, to, m_.types.Get(m_.state(id).type));
    return to;
  }

  // Names of outputs and next values, before any inner value takes one.
  void NameResults() {
    for (const ir::OutputInfo& out : g_.outputs()) {
      const std::string name =
          IsLowValue(out.value) ? WideResult(out.value, out.name) : Result(out.value, out.name);
      outputs_ += fmt::format("{}{}: {}", outputs_.empty() ? "" : ", ", Json(out.name), Json(name));
    }
    for (const ir::NextInfo& next : g_.nexts()) {
      if (!IsDerived(next.state))
        next_[next.state] = Result(next.value, m_.state(next.state).name + ".next");
    }
  }

  // The value itself takes the name, or a copy where it has one already.
  std::string Result(ir::ValueId v, const std::string& wanted) {
    const std::string name = Take(wanted);
    DescribeValue(name, g_.type(v), out_->add_output());
    if (std::string& own = names_[static_cast<size_t>(v)]; own.empty()) {
      own = name;
      described_.insert(v);
    } else {
      copies_.emplace_back(v, name);
    }
    return name;
  }

  // Numbers for the driver (loss, metrics) are fp32 whatever they were computed in: drivers in
  // Python cannot read bf16.
  std::string WideResult(ir::ValueId v, const std::string& wanted) {
    const std::string name = Take(wanted);
    DescribeValue(name, WideType(v), out_->add_output());
    wide_outputs_.emplace_back(v, name);
    return name;
  }

  void AddCopy(const std::string& from, const std::string& to) {
    onnx::NodeProto* node = out_->add_node();
    node->set_op_type("Identity");
    node->add_input(from);
    node->add_output(to);
  }

  void AddCast(const std::string& from, const std::string& to, const ir::TensorType& type) {
    onnx::NodeProto* node = out_->add_node();
    node->set_op_type("Cast");
    node->add_input(from);
    node->add_output(to);
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name("to");
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(static_cast<int>(type.dtype));
  }

  ir::TensorType WideType(ir::ValueId v) const { return {DType::kFloat32, g_.type(v).dims}; }
  bool IsLowValue(ir::ValueId v) const { return v != kNone && IsLow(g_.type(v).dtype); }

  // The value as fp32, cast once.
  const std::string& Wide(ir::ValueId v) {
    std::string& wide = wide_[static_cast<size_t>(v)];
    if (wide.empty()) {
      wide = Take(NameOf(v) + ".wide");
      AddCast(NameOf(v), wide, WideType(v));
      DescribeValue(wide, WideType(v), out_->add_value_info());
    }
    return wide;
  }

  // True when the node makes nothing but next values of low copies, which are casts of their
  // masters here.
  bool OnlyDerives(const ir::Node& node) const {
    for (const ir::ValueId v : node.outputs) {
      if (v == kNone) continue;
      for (const ir::Use& use : g_.value(v).uses) {
        const bool next = use.node == ir::Use::kNext;
        if (!next || !IsDerived(g_.nexts()[static_cast<size_t>(use.slot)].state)) return false;
      }
    }
    return true;
  }

  Status AddNode(ir::NodeId n) {
    const ir::Node& node = g_.node(n);
    if (OnlyDerives(node)) return {};
    // A result that is low although no operand is (a constant) is what its attributes say.
    bool widen = false;
    for (const ir::ValueId v : node.inputs) widen = widen || IsLowValue(v);
    onnx::NodeProto proto;
    AMPC_TRY(OpToProto(g_, n, functions_, &proto));
    widen = widen && proto.domain().empty() && !node.op->traits.cast && !options_.native;
    // Several nodes come from one source node; onnxruntime wants names that differ.
    proto.set_name(node_names_.Take(proto.name()));
    for (const ir::ValueId v : node.inputs)
      proto.add_input(widen && IsLowValue(v) ? Wide(v) : NameOf(v));
    std::vector<std::pair<ir::ValueId, std::string>> narrow;
    for (const ir::ValueId v : node.outputs) {
      if (v == kNone) {
        proto.add_output("");
        continue;
      }
      std::string& name = names_[static_cast<size_t>(v)];
      if (name.empty()) name = Take(g_.value(v).name);
      if (!described_.contains(v)) DescribeValue(name, g_.type(v), out_->add_value_info());
      if (!widen || !IsLowValue(v)) {
        proto.add_output(name);
        continue;
      }
      narrow.emplace_back(v, Take(name + ".unrounded"));
      DescribeValue(narrow.back().second, WideType(v), out_->add_value_info());
      proto.add_output(narrow.back().second);
    }
    *out_->add_node() = std::move(proto);
    for (const auto& [v, from] : narrow) AddCast(from, NameOf(v), g_.type(v));
    return {};
  }

  void AddMetadata(std::string_view graph) {
    std::unordered_map<ir::StateId, std::string> input(inputs_.begin(), inputs_.end());
    std::string states;
    for (size_t s = 0; s < m_.states.size(); ++s) {
      const auto id = static_cast<ir::StateId>(s);
      if (!input.contains(id) && !next_.contains(id)) continue;
      const ir::StateVar& state = m_.states[s];
      states += fmt::format(
          "{}{}: {{\"input\": {}, \"output\": {}, \"role\": {}, {}, \"source\": {}, \"setting\": "
          "{}, \"auto\": {}}}",
          states.empty() ? "" : ", ", Json(state.name), JsonOrNull(input[id]),
          JsonOrNull(next_[id]), Json(plan::Name(state.role)), FormJson(m_.types.Get(state.type)),
          JsonOrNull(state.source), JsonOrNull(state.setting),
          state.initial.kind == plan::Initial::Kind::kAuto);
    }
    onnx::StringStringEntryProto* entry = model_->add_metadata_props();
    entry->set_key(std::string(kStepMetadata));
    entry->set_value(fmt::format(
        "{{\"format\": 1, \"graph\": {}, \"accumulate\": {}, \"precision\": {}, \"policy\": {}, "
        "\"feeds\": {{{}}}, \"outputs\": {{{}}}, \"states\": {{{}}}}}",
        Json(graph), options_.accumulate, Json(options_.precision), Json(options_.policy), feeds_,
        outputs_, states));
  }

  const ir::Module& m_;
  const ir::Graph& g_;
  const StepOptions& options_;
  onnx::ModelProto* model_;
  onnx::GraphProto* out_;
  OwnFunctions functions_;
  std::vector<std::string> names_, wide_;  // by ValueId; "" = none yet
  Names value_names_, node_names_;
  std::unordered_set<ir::ValueId> described_;  // values that are graph outputs
  std::vector<std::pair<ir::ValueId, std::string>> copies_, wide_outputs_;
  std::vector<std::pair<ir::StateId, std::string>> inputs_;
  std::unordered_map<ir::StateId, std::string> next_;
  std::string feeds_, outputs_;  // JSON members
};

struct WrittenStep {
  StepFile told;
  ModelWriter file;
};

Result<WrittenStep> WriteGraph(const ir::Module& module, const ir::Graph& graph,
                               std::string_view name, const StepOptions& options,
                               const std::string& path) {
  onnx::ModelProto model;
  model.set_ir_version(kCanonicalIrVersion);
  model.set_producer_name(options.producer);
  model.add_opset_import()->set_version(kCanonicalOpset);
  StepWriter writer(module, graph, options, &model);
  AMPC_TRY(writer.Write(name));
  std::vector<StepInitial> initials;
  for (const auto& [state, input] : writer.inputs()) {
    if (module.state(state).initial.kind != plan::Initial::Kind::kAuto)
      initials.push_back({state, input});
  }
  AMPC_ASSIGN(ModelWriter file,
              WriteStepFile(model, module, initials, options.max_inline_bytes, path));
  return WrittenStep{{path, model.graph().node_size(), model.functions_size(),
                      static_cast<int64_t>(writer.inputs().size())},
                     std::move(file)};
}

}  // namespace

Result<std::vector<StepFile>> ExportStep(const ir::Module& module, const StepOptions& options,
                                         const std::string& path) {
  if (module.train == nullptr || module.train->nexts().empty()) {
    return UsageError("E0215",
                      "--emit step: the module has no training step; leave out "
                      "--forward-only");
  }
  constexpr std::string_view kEnding = ".onnx";
  const std::string stem =
      path.ends_with(kEnding) ? path.substr(0, path.size() - kEnding.size()) : path;
  std::vector<WrittenStep> written;
  for (const ir::Graph* graph : {module.train.get(), module.apply.get()}) {
    if (graph == nullptr) continue;
    const bool apart = module.apply != nullptr;
    const std::string part = apart ? fmt::format("{}.{}{}", stem, graph->name(), kEnding) : path;
    AMPC_ASSIGN(WrittenStep step,
                WriteGraph(module, *graph, apart ? graph->name() : "step", options, part));
    written.push_back(std::move(step));
  }
  // Both or, where one cannot be written, none.
  std::vector<StepFile> files;
  for (WrittenStep& step : written) {
    AMPC_TRY(step.file.Commit());
    files.push_back(std::move(step.told));
  }
  return files;
}

}  // namespace ampc
