// SPDX-License-Identifier: Apache-2.0
// If, Loop and Scan whose course is known when the model is compiled: the body is imported in
// place, once per run.
//
//   If     the condition folds: the branch that it takes
//   Loop   the trip count and every condition fold: one copy of the body per iteration
//   Scan   the length is a dim: likewise
//
// A body sees the names around it. What the graph reads in bodies counts as read by the node.
#include <algorithm>
#include <limits>
#include <unordered_set>

#include "compiler/onnx/importer.h"

namespace ampc {

using ir::kNone;
using ir::ValueId;

namespace {

constexpr int64_t kMaxIterations = 10'000;      // of all loops of a model
constexpr int32_t kMaxUnrolledNodes = 500'000;  // of the graph that they make

const onnx::GraphProto* BodyOf(const onnx::NodeProto& node, std::string_view name) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name && attribute.has_g()) return &attribute.g();
  }
  return nullptr;
}

// Names that a body reads and does not define.
void Captured(const onnx::GraphProto& body, std::vector<const std::string*>& out) {
  std::unordered_set<std::string_view> own;
  for (const auto& input : body.input()) own.insert(input.name());
  for (const auto& tensor : body.initializer()) own.insert(tensor.name());
  for (const auto& node : body.node()) own.insert(node.output().begin(), node.output().end());
  std::vector<const std::string*> read;
  for (const auto& node : body.node()) {
    for (const std::string& name : node.input()) read.push_back(&name);
    for (const std::string* name : CapturedNames(node)) read.push_back(name);
  }
  for (const auto& output : body.output()) read.push_back(&output.name());
  for (const std::string* name : read) {
    if (!name->empty() && own.insert(*name).second) out.push_back(name);
  }
}

std::vector<std::string> Names(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values) {
  std::vector<std::string> names;
  for (const auto& v : values) names.push_back(v.name());
  return names;
}

int64_t IntAttribute(const onnx::NodeProto& node, std::string_view name, int64_t fallback) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) return attribute.i();
  }
  return fallback;
}
int64_t ListAttribute(const onnx::NodeProto& node, std::string_view name, int index) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name && index < attribute.ints_size()) return attribute.ints(index);
  }
  return 0;
}

}  // namespace

bool IsControlFlow(const onnx::NodeProto& node) {
  return DomainOf(node.domain()).empty() &&
         (node.op_type() == "If" || node.op_type() == "Loop" || node.op_type() == "Scan");
}

std::vector<const std::string*> CapturedNames(const onnx::NodeProto& node) {
  std::vector<const std::string*> names;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) Captured(attribute.g(), names);
  }
  return names;
}

Status Importer::ImportControlFlow(Scope& scope, const onnx::NodeProto& node) {
  if (node.op_type() == "If") return ImportIf(scope, node);
  return node.op_type() == "Loop" ? ImportLoop(scope, node) : ImportScan(scope, node);
}

Result<Importer::Carried> Importer::ReadCarried(Scope& scope, const std::string& name) {
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    if (const auto it = s->sequences.find(name); it != s->sequences.end())
      return Carried{kNone, it->second};
    if (s->values.contains(name)) break;
  }
  AMPC_ASSIGN(const ValueId value, Lookup(scope, name));
  if (value == kNone) {
    return BadInput("E0107", "'{}' goes into or out of a body, but the call leaves it out", name);
  }
  return Carried{value, std::nullopt};
}

void Importer::BindCarried(Scope& scope, const std::string& name, const Carried& carried) {
  if (name.empty()) return;
  if (carried.sequence) {
    scope.sequences[name] = *carried.sequence;
  } else {
    scope.values[name] = carried.value;
  }
}

// One run of a body. `scope` has its inputs and what its initializers are.
Result<std::vector<Importer::Carried>> Importer::RunBody(Scope& scope,
                                                         const onnx::GraphProto& body) {
  std::vector<std::string> outputs = Names(body.output());
  AMPC_ASSIGN(const std::vector<int> order,
              OrderNodes(body.node(), outputs, *scope.opsets, nullptr));
  scope.read.insert(outputs.begin(), outputs.end());
  AMPC_TRY(ImportNodes(scope, body.node(), order));
  scope.read.clear();  // views of `outputs`
  std::vector<Carried> results;
  for (const std::string& name : outputs) {
    AMPC_ASSIGN(Carried result, ReadCarried(scope, name));
    results.push_back(std::move(result));
  }
  return results;
}

Result<Importer::Scope> Importer::BodyScope(Scope& outer, const onnx::NodeProto& node,
                                            const onnx::GraphProto& body) {
  Scope scope;
  scope.opsets = outer.opsets;
  scope.prefix = outer.prefix + LabelOf(node) + "/";
  scope.attributes = outer.attributes;
  scope.outer = &outer;
  for (const auto& tensor : body.initializer()) {
    AMPC_ASSIGN(const TensorData data, source_.files().Find(tensor));
    AMPC_ASSIGN(const HostTensor value, ReadTensor(data));
    ir::Builder b(*graph_, module_->locs.Intern(scope.prefix + tensor.name()));
    scope.values[tensor.name()] =
        b.Named(scope.prefix + tensor.name()).Constant(ConvertFloats(value, Widened(value.dtype)));
    AMPC_TRY(b.TakeStatus());
  }
  if (body.sparse_initializer_size() > 0)
    return Unsupported("E0104", "the body has sparse initializers, which is not supported");
  return scope;
}

Importer::Scope Importer::IterationScope(Scope& shared, int64_t i) {
  Scope scope;
  scope.opsets = shared.opsets;
  scope.prefix = fmt::format("{}{}/", shared.prefix, i);
  scope.attributes = shared.attributes;
  scope.outer = &shared;
  return scope;
}

// The one element of a constant.
Result<double> Importer::KnownScalar(Scope& scope, const std::string& name, std::string_view what) {
  AMPC_ASSIGN(const ValueId value, Lookup(scope, name));
  const HostTensor* constant = graph_->ConstantOf(value);
  if (constant == nullptr) {
    return BadInput("E0108",
                    "{} '{}' is not known when the model is compiled; make it a constant: control "
                    "flow that depends on data is not supported",
                    what, name);
  }
  if (constant->elements() != 1) {
    return BadInput("E0107", "{} '{}' is {}{}, one element is expected", what, name,
                    Name(constant->dtype), ToString(constant->dims));
  }
  return constant->GetDouble(0);
}

Status Importer::ImportIf(Scope& scope, const onnx::NodeProto& node) {
  const onnx::GraphProto* branches[] = {BodyOf(node, "else_branch"), BodyOf(node, "then_branch")};
  if (node.input_size() != 1 || branches[0] == nullptr || branches[1] == nullptr)
    return BadInput("E0107", "one input, then_branch and else_branch are expected");
  AMPC_ASSIGN(const double condition, KnownScalar(scope, node.input(0), "the condition"));
  const onnx::GraphProto& body = *branches[condition != 0 ? 1 : 0];
  if (body.output_size() != node.output_size())
    return BadInput("E0107", "the branch has {} outputs, the node {}", body.output_size(),
                    node.output_size());
  AMPC_ASSIGN(Scope inner, BodyScope(scope, node, body));
  AMPC_ASSIGN(const std::vector<Carried> results, RunBody(inner, body));
  for (int i = 0; i < node.output_size(); ++i)
    BindCarried(scope, node.output(i), results[static_cast<size_t>(i)]);
  return {};
}

Status Importer::CountIteration() {
  if (++iterations_ > kMaxIterations)
    return Unsupported("E0102", "the model's loops run more than {} times", kMaxIterations);
  if (graph_->num_nodes() > kMaxUnrolledNodes)
    return Unsupported("E0102", "unrolled loops make more than {} nodes", kMaxUnrolledNodes);
  return {};
}

// What the iterations gave, along a new axis.
Status Importer::StackIterations(Scope& scope, const onnx::NodeProto& node, int output,
                                 std::vector<ValueId> parts, int64_t axis, bool backward) {
  if (output >= node.output_size() || node.output(output).empty()) return {};
  const std::string& name = node.output(output);
  if (parts.empty()) {
    if (!scope.read.contains(name)) return {};
    return Unsupported("E0102", "the body never runs, so the dims of output '{}' are not known",
                       name);
  }
  ir::Builder b(*graph_, module_->locs.Intern(scope.prefix + LabelOf(node)));
  for (ValueId& part : parts) {
    Dims dims = graph_->type(part).dims;
    const int64_t at = NormalAxis(axis, dims.size() + 1);
    if (at < 0 || at > static_cast<int64_t>(dims.size()))
      return BadInput("E0107", "axis {} of output '{}' of {} dims", axis, name, dims.size() + 1);
    dims.insert(dims.begin() + at, 1);
    part = b.Reshape(part, dims);
  }
  if (backward) std::reverse(parts.begin(), parts.end());
  ValueId stacked = parts.front();
  if (parts.size() > 1) {
    stacked =
        b.Named(scope.prefix + name)
            .Op("", "Concat", parts,
                {{"axis",
                  NormalAxis(axis, static_cast<size_t>(graph_->type(parts.front()).rank()))}});
  }
  if (b.failed()) return b.TakeStatus();
  scope.values[name] = stacked;
  return {};
}

Status Importer::ImportLoop(Scope& scope, const onnx::NodeProto& node) {
  const onnx::GraphProto* body = BodyOf(node, "body");
  const int carried = std::max(node.input_size() - 2, 0);
  if (body == nullptr || body->input_size() != carried + 2 || body->output_size() < carried + 1 ||
      node.output_size() > body->output_size() - 1) {
    return BadInput("E0107", "the body does not fit a node of {} inputs and {} outputs",
                    node.input_size(), node.output_size());
  }
  double trips = std::numeric_limits<double>::infinity();
  bool goes_on = true;
  if (node.input_size() > 0 && !node.input(0).empty()) {
    AMPC_ASSIGN(trips, KnownScalar(scope, node.input(0), "the trip count"));
  }
  if (node.input_size() > 1 && !node.input(1).empty()) {
    AMPC_ASSIGN(const double first, KnownScalar(scope, node.input(1), "the condition"));
    goes_on = first != 0;
  }
  std::vector<Carried> state;
  for (int i = 0; i < carried; ++i) {
    AMPC_ASSIGN(Carried initial, ReadCarried(scope, node.input(2 + i)));
    state.push_back(std::move(initial));
  }
  std::vector<std::vector<ValueId>> stacked(static_cast<size_t>(body->output_size() - 1 - carried));
  AMPC_ASSIGN(Scope shared, BodyScope(scope, node, *body));
  for (int64_t i = 0; goes_on && static_cast<double>(i) < trips; ++i) {
    AMPC_TRY(CountIteration());
    Scope inner = IterationScope(shared, i);
    ir::Builder b(*graph_, module_->locs.Intern(inner.prefix + "iteration"));
    inner.values[body->input(0).name()] = b.Scalar(DType::kInt64, static_cast<double>(i));
    inner.values[body->input(1).name()] = b.Scalar(DType::kBool, 1);
    AMPC_TRY(b.TakeStatus());
    for (int k = 0; k < carried; ++k)
      BindCarried(inner, body->input(2 + k).name(), state[static_cast<size_t>(k)]);
    AMPC_ASSIGN(std::vector<Carried> results, RunBody(inner, *body));
    AMPC_ASSIGN(const double again, KnownScalar(inner, body->output(0).name(), "the condition"));
    goes_on = again != 0;
    for (size_t k = 0; k < stacked.size(); ++k) {
      const Carried& result = results[1 + static_cast<size_t>(carried) + k];
      if (result.sequence) return Unsupported("E0102", "a sequence per iteration is not supported");
      stacked[k].push_back(result.value);
    }
    std::move(results.begin() + 1, results.begin() + 1 + carried, state.begin());
  }
  for (int i = 0; i < std::min(carried, node.output_size()); ++i)
    BindCarried(scope, node.output(i), state[static_cast<size_t>(i)]);
  for (size_t k = 0; k < stacked.size(); ++k) {
    AMPC_TRY(StackIterations(scope, node, carried + static_cast<int>(k), std::move(stacked[k]), 0,
                             false));
  }
  return {};
}

// Scanned input `k` as its elements, in the order in which they are read. They come from Split,
// whose gradient is one Concat.
Result<std::vector<ValueId>> Importer::ScanParts(Scope& scope, const onnx::NodeProto& node,
                                                 int states, int k) {
  AMPC_ASSIGN(const ValueId x, Lookup(scope, node.input(states + k)));
  Dims dims = graph_->type(x).dims;
  const int64_t axis = NormalAxis(ListAttribute(node, "scan_input_axes", k), dims.size());
  if (axis < 0 || axis >= static_cast<int64_t>(dims.size()))
    return BadInput("E0107", "axis {} of input {} of {} dims", axis, states + k, dims.size());
  const int64_t length = dims[static_cast<size_t>(axis)];
  if (length > kMaxIterations)
    return Unsupported("E0102", "the model's loops run more than {} times", kMaxIterations);
  std::vector<ValueId> parts;
  if (length == 0) return parts;
  ir::Builder b(*graph_, module_->locs.Intern(scope.prefix + LabelOf(node)));
  const std::vector<int64_t> ones(static_cast<size_t>(length), 1);
  parts = length == 1 ? std::vector<ValueId>{x}
                      : b.Multi("", "Split", std::vector<ValueId>{x, b.Ints(ones)},
                                {{"axis", axis}}, static_cast<size_t>(length));
  dims.erase(dims.begin() + axis);
  for (ValueId& part : parts) part = b.Reshape(part, dims);
  if (b.failed()) return b.TakeStatus();
  if (ListAttribute(node, "scan_input_directions", k) != 0)
    std::reverse(parts.begin(), parts.end());
  return parts;
}

Status Importer::ImportScan(Scope& scope, const onnx::NodeProto& node) {
  const onnx::GraphProto* body = BodyOf(node, "body");
  const auto scanned = static_cast<int>(IntAttribute(node, "num_scan_inputs", 0));
  const int states = node.input_size() - scanned;
  if (body == nullptr || scanned < 1 || states < 0 || body->input_size() != node.input_size() ||
      body->output_size() < states || node.output_size() > body->output_size()) {
    return BadInput("E0107",
                    "the body does not fit a node of {} inputs, {} of them scanned, and "
                    "{} outputs",
                    node.input_size(), scanned, node.output_size());
  }
  std::vector<Carried> state;
  for (int i = 0; i < states; ++i) {
    AMPC_ASSIGN(Carried initial, ReadCarried(scope, node.input(i)));
    state.push_back(std::move(initial));
  }
  std::vector<std::vector<ValueId>> parts;
  int64_t length = -1;
  for (int k = 0; k < scanned; ++k) {
    AMPC_ASSIGN(std::vector<ValueId> list, ScanParts(scope, node, states, k));
    if (length >= 0 && static_cast<int64_t>(list.size()) != length)
      return BadInput("E0107", "scanned inputs of {} and {} elements", length, list.size());
    length = static_cast<int64_t>(list.size());
    parts.push_back(std::move(list));
  }
  std::vector<std::vector<ValueId>> stacked(static_cast<size_t>(body->output_size() - states));
  AMPC_ASSIGN(Scope shared, BodyScope(scope, node, *body));
  for (int64_t i = 0; i < length; ++i) {
    AMPC_TRY(CountIteration());
    Scope inner = IterationScope(shared, i);
    for (int k = 0; k < states; ++k)
      BindCarried(inner, body->input(k).name(), state[static_cast<size_t>(k)]);
    for (int k = 0; k < scanned; ++k)
      inner.values[body->input(states + k).name()] =
          parts[static_cast<size_t>(k)][static_cast<size_t>(i)];
    AMPC_ASSIGN(std::vector<Carried> results, RunBody(inner, *body));
    for (size_t k = 0; k < stacked.size(); ++k) {
      const Carried& result = results[static_cast<size_t>(states) + k];
      if (result.sequence) return Unsupported("E0102", "a sequence per iteration is not supported");
      stacked[k].push_back(result.value);
    }
    std::move(results.begin(), results.begin() + states, state.begin());
  }
  for (int i = 0; i < std::min(states, node.output_size()); ++i)
    BindCarried(scope, node.output(i), state[static_cast<size_t>(i)]);
  for (size_t k = 0; k < stacked.size(); ++k) {
    const auto at = static_cast<int>(k);
    AMPC_TRY(StackIterations(scope, node, states + at, std::move(stacked[k]),
                             ListAttribute(node, "scan_output_axes", at),
                             ListAttribute(node, "scan_output_directions", at) != 0));
  }
  return {};
}

}  // namespace ampc
