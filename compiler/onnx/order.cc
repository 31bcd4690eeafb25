// SPDX-License-Identifier: Apache-2.0
// Which nodes are imported and in what order, and whether all of them can be.
#include <algorithm>
#include <map>

#include <onnx/defs/schema.h>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/training.h"

namespace ampc {
namespace {

// Depth-first from the outputs, on an explicit stack: graphs are deep.
class Orderer {
 public:
  Orderer(const Nodes& nodes, const Opsets& opsets)
      : nodes_(nodes), opsets_(opsets), mark_(static_cast<size_t>(nodes.size()), 0) {}

  Status Index() {
    for (int n = 0; n < nodes_.size(); ++n) {
      for (const std::string& out : nodes_[n].output()) {
        if (out.empty()) continue;
        auto [it, fresh] = producer_.emplace(out, n);
        if (!fresh) {
          return BadInput("E0103", "value '{}' is made twice: by {} and by {}", out,
                          DescribeNode(nodes_[it->second], opsets_),
                          DescribeNode(nodes_[n], opsets_));
        }
      }
      if (IsControlFlow(nodes_[n])) captured_.emplace(n, CapturedNames(nodes_[n]));
    }
    return {};
  }

  Status Visit(const std::string& output) {
    Push(output);
    while (!stack_.empty()) {
      Frame& top = stack_.back();
      const std::string* read = Read(top.node, top.next);
      if (read == nullptr) {
        mark_[static_cast<size_t>(top.node)] = kDone;
        order_.push_back(top.node);
        stack_.pop_back();
        continue;
      }
      ++top.next;
      if (OnStack(*read)) return Cycle(*read);
      Push(*read);
    }
    return {};
  }

  std::vector<int> Take() { return std::move(order_); }

 private:
  struct Frame {
    int node, next;
  };
  static constexpr char kActive = 1, kDone = 2;

  // What a node reads, number `i`: its inputs, then what its bodies read; null behind the last.
  const std::string* Read(int node, int i) const {
    const auto& inputs = nodes_[node].input();
    if (i < inputs.size()) return &inputs[i];
    const auto it = captured_.find(node);
    const auto k = static_cast<size_t>(i - inputs.size());
    return it == captured_.end() || k >= it->second.size() ? nullptr : it->second[k];
  }
  int ProducerOf(const std::string& name) const {
    auto it = name.empty() ? producer_.end() : producer_.find(name);
    return it == producer_.end() ? -1 : it->second;
  }
  bool OnStack(const std::string& name) const {
    const int n = ProducerOf(name);
    return n >= 0 && mark_[static_cast<size_t>(n)] == kActive;
  }
  void Push(const std::string& name) {
    const int n = ProducerOf(name);
    if (n < 0 || mark_[static_cast<size_t>(n)] != 0) return;
    mark_[static_cast<size_t>(n)] = kActive;
    stack_.push_back({n, 0});
  }
  Status Cycle(const std::string& name) const {
    return BadInput("E0103",
                    "the graph has a cycle: {} reads '{}', which depends on its own outputs",
                    DescribeNode(nodes_[stack_.back().node], opsets_), name);
  }

  const Nodes& nodes_;
  const Opsets& opsets_;
  std::unordered_map<std::string_view, int> producer_;
  std::unordered_map<int, std::vector<const std::string*>> captured_;  // by nodes with bodies
  std::vector<char> mark_;
  std::vector<Frame> stack_;
  std::vector<int> order_;
};

// Ops whose precision, gradient or random numbers are decided for the op as a whole: their bodies
// in ONNX's schemas are no substitute for a row.
constexpr std::string_view kWholeOps[] = {
    "Bernoulli",
    "CausalConvWithState",
    "DynamicQuantizeLinear",
    "GroupNormalization",
    "LayerNormalization",
    "LinearAttention",
    "LogSoftmax",
    "MeanVarianceNormalization",
    "NegativeLogLikelihoodLoss",
    "RMSNormalization",
    "ReduceLogSumExp",
    "SequenceMap",
    "Softmax",
    "SoftmaxCrossEntropyLoss",
};

// Collects what is not supported, by op.
class SupportCheck {
 public:
  explicit SupportCheck(const SourceModel& source) : source_(source) {}

  void Check(const Nodes& nodes, const std::vector<int>& order, const Opsets& opsets,
             const std::string& prefix) {
    for (int n : order) CheckNode(nodes[n], opsets, prefix);
  }

  // The nodes that lead from gradients to new values, where optimizers may stand.
  void CheckUpdate(const TrainingPart& training) {
    in_update_ = true;
    for (const auto* graph : {&training.update, &training.initialization}) {
      for (const auto& node : graph->node()) CheckNode(node, source_.opsets(), "");
    }
    in_update_ = false;
  }

  // Inputs and initializers, whether or not a node reads them.
  void CheckTensors() {
    parts_ = source_.unsupported();
    std::unordered_set<std::string_view> initializers;
    for (const auto& t : source_.graph().initializer()) initializers.insert(t.name());
    for (const auto& input : source_.graph().input()) {
      if (initializers.contains(input.name())) continue;
      const auto& tensor = input.type().tensor_type();
      if (!input.type().has_tensor_type()) {
        parts_.push_back({"E0102", fmt::format("input '{}' is no tensor", input.name())});
      } else if (!IsKnownDType(tensor.elem_type())) {
        parts_.push_back({"E0104", fmt::format("input '{}' has element type {}", input.name(),
                                               OnnxTypeName(tensor.elem_type()))});
      } else if (!tensor.has_shape()) {
        parts_.push_back(
            {"E0112", fmt::format("input '{}' has no shape, not even a rank", input.name())});
      }
    }
  }

  Status Take() const {
    if (found_.empty() && parts_.empty()) return {};
    if (found_.empty() && parts_.size() == 1)
      return Unsupported(parts_[0].id, "{}{}", parts_[0].what, kNotSupported);
    constexpr size_t kShown = 4, kShownParts = 20;
    std::string text;
    size_t nodes = 0;
    for (const auto& [op, labels] : found_) {
      nodes += labels.size();
      text += fmt::format("\n  {}: ", op);
      for (size_t i = 0; i < std::min(kShown, labels.size()); ++i)
        text += fmt::format("{}node '{}'", i == 0 ? "" : ", ", labels[i]);
      if (labels.size() > kShown) text += fmt::format(" and {} more", labels.size() - kShown);
    }
    for (size_t i = 0; i < std::min(kShownParts, parts_.size()); ++i)
      text += fmt::format("\n  {}", parts_[i].what);
    if (parts_.size() > kShownParts)
      text += fmt::format("\n  and {} more tensors", parts_.size() - kShownParts);
    std::string counted;
    if (!found_.empty()) counted = Count(found_.size(), "op") + " in " + Count(nodes, "node");
    if (!parts_.empty())
      counted += (counted.empty() ? "" : " and ") + Count(parts_.size(), "tensor");
    const bool one = parts_.empty() && nodes == 1;
    return Unsupported("E0102", "{} {} not supported:{}", counted, one ? "is" : "are", text);
  }

 private:
  static std::string Count(size_t n, std::string_view what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  }

  void CheckNode(const onnx::NodeProto& node, const Opsets& opsets, const std::string& prefix) {
    if (in_update_ && IsUpdateNode(node)) return;
    if (const Function* f = source_.FindFunction(node); f != nullptr) {
      if (depth_ >= kMaxCallDepth) return;  // the import refuses it
      if (!functions_.insert(f->proto).second) return;
      const std::vector<std::string> outputs(f->proto->output().begin(), f->proto->output().end());
      auto order = OrderNodes(f->proto->node(), outputs, f->opsets, nullptr);
      ++depth_;
      if (order.ok()) Check(f->proto->node(), *order, f->opsets, prefix + LabelOf(node) + "/");
      --depth_;
      return;
    }
    if (IsControlFlow(node)) return CheckBodies(node, opsets, prefix);
    const std::string_view domain = DomainOf(node.domain());
    const int opset = opsets.For(domain);
    const onnx::OpSchema* schema = SchemaOf(node.op_type(), opset, domain);
    std::string why;
    if (opset == 0) {
      why = fmt::format(" (no opset of domain '{}' is imported)", domain);
    } else if (FindTrainingRule(domain, node.op_type()) != nullptr) {
      return;
    } else if (!domain.empty()) {
      why = fmt::format(" (domain '{}', opset {})", domain, opset);
    } else if (schema == nullptr) {
      why = fmt::format(" (opset {} has no such op)", opset);
    } else if (schema->Deprecated() && (FindOp("", node.op_type()) == nullptr ||
                                        FindCanonicalRule(node.op_type()) == nullptr)) {
      why = fmt::format(" (deprecated in opset {})", opset);
    } else if (FindOp("", node.op_type()) == nullptr && !RuleReplaces(node.op_type()) &&
               !HasUsableBody(*schema)) {
      why = fmt::format(" (opset {})", opset);
    } else if (const std::string value = UnknownValueIn(node); !value.empty()) {
      why = fmt::format(" ({})", value);
    } else {
      return;
    }
    found_[OpWithVersion(node, opsets) + why].push_back(prefix + LabelOf(node));
  }

  // Loops run their bodies; which branch an If takes is not known yet.
  void CheckBodies(const onnx::NodeProto& node, const Opsets& opsets, const std::string& prefix) {
    if (node.op_type() == "If") return;
    if (node.op_type() == "Scan" && opsets.For("") < 9) {
      found_[OpWithVersion(node, opsets) + " (before opset 9)"].push_back(prefix + LabelOf(node));
      return;
    }
    for (const auto& attribute : node.attribute()) {
      for (const auto& inner : attribute.g().node())
        CheckNode(inner, opsets, prefix + LabelOf(node) + "/");
    }
  }

  // What an attribute holds that cannot be read, or "".
  static std::string UnknownValueIn(const onnx::NodeProto& node) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t() && !IsKnownDType(attribute.t().data_type()))
        return "a tensor of element type " + OnnxTypeName(attribute.t().data_type());
      if (attribute.has_sparse_tensor()) return "a sparse tensor";
    }
    return "";
  }

  const SourceModel& source_;
  std::map<std::string, std::vector<std::string>> found_;  // op and why -> labels
  std::vector<UnsupportedPart> parts_;
  std::unordered_set<const onnx::FunctionProto*> functions_;
  size_t depth_ = 0;
  bool in_update_ = false;
};

}  // namespace

bool HasUsableBody(const onnx::OpSchema& schema) {
  if (std::find(std::begin(kWholeOps), std::end(kWholeOps), schema.Name()) != std::end(kWholeOps))
    return false;
  return schema.HasFunction() || schema.HasContextDependentFunction();
}

Result<std::vector<int>> OrderNodes(const Nodes& nodes, const std::vector<std::string>& outputs,
                                    const Opsets& opsets, int* skipped) {
  Orderer orderer(nodes, opsets);
  AMPC_TRY(orderer.Index());
  for (const std::string& out : outputs) AMPC_TRY(orderer.Visit(out));
  std::vector<int> order = orderer.Take();
  if (skipped != nullptr) *skipped = nodes.size() - static_cast<int>(order.size());
  return order;
}

Status CheckSupport(const SourceModel& source) {
  std::vector<std::string> outputs;
  for (const auto& output : source.graph().output()) outputs.push_back(output.name());
  AMPC_ASSIGN(const std::vector<int> order,
              OrderNodes(source.graph().node(), outputs, source.opsets(), nullptr));
  SupportCheck check(source);
  check.Check(source.graph().node(), order, source.opsets(), "");
  if (source.training() != nullptr) check.CheckUpdate(*source.training());
  check.CheckTensors();
  return check.Take();
}

}  // namespace ampc
