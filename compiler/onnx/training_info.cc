// SPDX-License-Identifier: Apache-2.0
// A model's training_info: its algorithm joins the model's graph, as ONNX says; Gradient is taken
// out, and what is left falls into a forward graph that ends in the loss and the nodes of the
// update.
//
//   forward   X, W -> Y, loss          autodiff finds d loss / d W
//   update    W, dW, moments, T -> W', moments', T'       becomes the graph `update`
#include "compiler/onnx/training.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/source.h"

namespace ampc {
namespace {

bool SameNode(const onnx::NodeProto& a, const onnx::NodeProto& b) {
  const auto plain = [](onnx::NodeProto node) {
    node.clear_name();
    node.clear_doc_string();
    node.clear_metadata_props();
    return node.SerializeAsString();
  };
  return plain(a) == plain(b);
}

std::vector<std::string> StringsOf(const onnx::NodeProto& node, std::string_view name) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() != name) continue;
    if (attribute.has_s()) return {attribute.s()};
    return {attribute.strings().begin(), attribute.strings().end()};
  }
  return {};
}

class InfoSplitter {
 public:
  InfoSplitter(SourceModel& source, Diagnostics& diagnostics)
      : source_(source),
        graph_(*source.proto().mutable_graph()),
        info_(*source.proto().mutable_training_info(0)),
        diagnostics_(diagnostics),
        part_(std::make_unique<TrainingPart>()) {}

  Status Run() {
    part_->inference = graph_;
    AMPC_TRY(JoinNodes());
    AMPC_TRY(JoinTensors());
    AMPC_TRY(TakeGradient());
    AMPC_TRY(ReadBindings(info_.update_binding(), "update_binding", part_->bindings));
    AMPC_TRY(ReadBindings(info_.initialization_binding(), "initialization_binding",
                          part_->first_values));
    if (part_->bindings.empty())
      return BadInput("E0116", "training_info updates nothing: it has no update_binding");
    part_->initialization = info_.initialization();
    AMPC_TRY(Split());
    source_.SetTraining(std::move(part_));
    return {};
  }

 private:
  // A node of the algorithm that the model's graph has, too, is the same one.
  Status JoinNodes() {
    std::map<std::string, int> made;
    for (int n = 0; n < graph_.node_size(); ++n) {
      for (const std::string& out : graph_.node(n).output()) {
        if (!out.empty()) made.emplace(out, n);
      }
    }
    for (const auto& node : info_.algorithm().node()) {
      const auto known = std::find_if(node.output().begin(), node.output().end(),
                                      [&](const std::string& out) { return made.contains(out); });
      if (known == node.output().end()) {
        *graph_.add_node() = node;
      } else if (const auto& other = graph_.node(made.at(*known)); !SameNode(node, other)) {
        return BadInput("E0116", "training_info makes '{}' by {}, the model's graph by {}", *known,
                        DescribeNode(node, source_.opsets()),
                        DescribeNode(other, source_.opsets()));
      }
    }
    return {};
  }

  Status JoinTensors() {
    for (const SourceTensor& t : source_.tensors()) initializers_.insert(t.name);
    for (const auto& input : graph_.input()) inputs_.insert(input.name());
    for (const auto& input : info_.algorithm().input()) {
      if (input.name().empty()) return BadInput("E0116", "an input of training_info has no name");
      if (inputs_.insert(input.name()).second) *graph_.add_input() = input;
    }
    for (const auto& tensor : info_.algorithm().initializer()) {
      if (tensor.name().empty())
        return BadInput("E0116", "an initializer of training_info has no name");
      if (!initializers_.insert(tensor.name()).second)
        return BadInput("E0103", "initializer '{}' stands in the model twice", tensor.name());
      AMPC_TRY(AddInitializer(source_, tensor));
      *graph_.add_initializer() = tensor;
    }
    for (const auto& sparse : info_.algorithm().sparse_initializer())
      AddSparseInitializer(source_, sparse);
    return {};
  }

  Status TakeGradient() {
    int found = -1;
    for (int n = 0; n < graph_.node_size(); ++n) {
      const auto& node = graph_.node(n);
      if (node.domain() != kPreviewDomain || node.op_type() != "Gradient") continue;
      if (found >= 0) {
        return Unsupported("E0116",
                           "training_info has several Gradient nodes ('{}' and '{}'): one "
                           "is supported",
                           LabelOf(graph_.node(found)), LabelOf(node));
      }
      found = n;
    }
    if (found < 0)
      return Unsupported("E0116", "training_info has no Gradient node: nothing can be trained");
    const onnx::NodeProto node = graph_.node(found);
    graph_.mutable_node()->DeleteSubrange(found, 1);
    Status status = ReadGradient(node);
    return status.ok() ? std::move(status)
                       : std::move(status).At(DescribeNode(node, source_.opsets()));
  }

  Status ReadGradient(const onnx::NodeProto& node) {
    const std::vector<std::string> xs = StringsOf(node, "xs"), y = StringsOf(node, "y");
    std::vector<std::string> read = xs;
    for (std::string& z : StringsOf(node, "zs")) read.push_back(std::move(z));
    if (xs.empty() || y.size() != 1 || y.front().empty())
      return BadInput("E0116", "attributes xs and y are required");
    if (!std::equal(read.begin(), read.end(), node.input().begin(), node.input().end())) {
      return Unsupported("E0116",
                         "the inputs are other values than those that xs and zs name: "
                         "the gradient at another point is not supported");
    }
    if (node.output_size() > static_cast<int>(xs.size()))
      return BadInput("E0116", "{} outputs for {} names in xs", node.output_size(), xs.size());
    part_->given.loss = y.front();
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i).empty()) continue;
      const std::string& x = xs[static_cast<size_t>(i)];
      if (!initializers_.contains(x)) {
        return Unsupported("E0116",
                           "xs names '{}', which is no initializer: only parameters can "
                           "have gradients",
                           x);
      }
      if (!part_->trained.insert(x).second) return BadInput("E0116", "xs names '{}' twice", x);
      part_->gradients.push_back({x, node.output(i)});
    }
    return {};
  }

  template <typename Bindings>
  Status ReadBindings(const Bindings& bindings, std::string_view what,
                      std::vector<std::pair<std::string, std::string>>& out) {
    std::set<std::string> keys;
    for (const auto& binding : bindings) {
      if (!initializers_.contains(binding.key()))
        return BadInput("E0116", "{} of training_info names '{}', which is no initializer", what,
                        binding.key());
      if (!keys.insert(binding.key()).second)
        return BadInput("E0116", "{} of training_info names '{}' twice", what, binding.key());
      out.emplace_back(binding.key(), binding.value());
      part_->updated.insert(binding.key());
    }
    return {};
  }

  Result<std::vector<int>> Needed(const std::vector<std::string>& values) const {
    return OrderNodes(graph_.node(), values, source_.opsets(), nullptr);
  }

  Status Split() {
    std::vector<std::string> ends, values;
    for (const auto& output : graph_.output()) ends.push_back(output.name());
    if (std::find(ends.begin(), ends.end(), part_->given.loss) == ends.end()) {
      ends.push_back(part_->given.loss);
      graph_.add_output()->set_name(part_->given.loss);
    }
    for (const auto& [key, value] : part_->bindings) values.push_back(value);
    AMPC_ASSIGN(std::vector<int> forward, Needed(ends));
    AMPC_ASSIGN(const std::vector<int> update, Needed(values));
    for (int n : update) {
      AMPC_TRY(CheckUpdate(graph_.node(n)));
      *part_->update.add_node() = graph_.node(n);
    }
    MarkUpdateTensors();
    const int left_out = Unread(forward, update);
    if (left_out > 0) {
      diagnostics_.Note(fmt::format("{} node{} of training_info that no update needs left out",
                                    left_out, left_out == 1 ? " is" : "s are"));
    }
    std::sort(forward.begin(), forward.end());
    google::protobuf::RepeatedPtrField<onnx::NodeProto> kept;
    for (int n : forward) *kept.Add() = graph_.node(n);
    graph_.mutable_node()->Swap(&kept);
    return {};
  }

  // The update has gradients and states, not the data of a step.
  Status CheckUpdate(const onnx::NodeProto& node) const {
    for (const std::string& input : node.input()) {
      if (!inputs_.contains(input) || initializers_.contains(input)) continue;
      return Unsupported("E0116",
                         "the update reads input '{}': it can read gradients and "
                         "initializers only; learning rate and step count must be initializers",
                         input)
          .At(DescribeNode(node, source_.opsets()));
    }
    return {};
  }

  void MarkUpdateTensors() {
    std::set<std::string> read, read_otherwise;
    for (const auto& node : part_->update.node()) {
      for (int i = 0; i < node.input_size(); ++i) {
        read.insert(node.input(i));
        if (i > 0 || !IsUpdateNode(node)) read_otherwise.insert(node.input(i));
        if (i == 0 && IsUpdateNode(node) && !part_->updated.contains(node.input(i)))
          part_->rates.insert(node.input(i));
      }
    }
    std::erase_if(part_->rates, [&](const auto& name) { return read_otherwise.contains(name); });
    for (SourceTensor& tensor : source_.tensors())
      tensor.in_update = read.contains(tensor.name) || part_->updated.contains(tensor.name);
  }

  int Unread(const std::vector<int>& forward, const std::vector<int>& update) const {
    std::set<int> needed(forward.begin(), forward.end());
    needed.insert(update.begin(), update.end());
    return graph_.node_size() - static_cast<int>(needed.size());
  }

  SourceModel& source_;
  onnx::GraphProto& graph_;
  const onnx::TrainingInfoProto& info_;
  Diagnostics& diagnostics_;
  std::unique_ptr<TrainingPart> part_;
  std::set<std::string> initializers_, inputs_;
};

}  // namespace

bool UsesTrainingInfo(const SourceModel& source, const CompileOptions& options) {
  return source.proto().training_info_size() > 0 && options.losses.empty() && !options.forward_only;
}

Status SplitTrainingInfo(SourceModel& source, const CompileOptions& options,
                         Diagnostics& diagnostics) {
  const int count = source.proto().training_info_size();
  if (count > 1) {
    return Unsupported("E0116",
                       "the model has {} training_info: one is supported; --loss trains "
                       "the model without them",
                       count);
  }
  if (!options.trainable.empty() || !options.freeze.empty()) {
    return UsageError("E0117",
                      "the model's training_info says what trains: --trainable and "
                      "--freeze go with --loss");
  }
  if (options.own_update) {
    return UsageError("E0117",
                      "the model's training_info has an optimizer of its own: "
                      "--optimizer, --lr-schedule, --no-decay and --param-group go with --loss");
  }
  return InfoSplitter(source, diagnostics).Run();
}

Status TakeTraining(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics) {
  if (UsesTrainingInfo(source, options)) return SplitTrainingInfo(source, options, diagnostics);
  if (source.proto().training_info_size() > 0)
    diagnostics.Note("the model's training_info is not used");
  return {};
}

}  // namespace ampc
