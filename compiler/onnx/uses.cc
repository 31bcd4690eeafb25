// SPDX-License-Identifier: Apache-2.0
// Where initializers are read, and what follows from that: Constant nodes that count as weights,
// and parameters that an exporter merged because their bytes were equal.
#include <algorithm>
#include <set>
#include <unordered_set>

#include <onnx/defs/schema.h>

#include "compiler/onnx/canonical.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/proto_util.h"
#include "compiler/onnx/source.h"

namespace ampc {
namespace {

struct Site {
  int node, slot;           // kInBody: a body of the node reads it,
  std::string_view inside;  // under this name
};
constexpr int kInBody = -1;

// What a slot of an op means for what it reads.
struct SlotFacts {
  bool statistic = false, differentiable = false, parameter = false, scalar = false;
  bool looks_through = false;  // moves or converts elements: the readers of its output decide
  std::string where;
};

// True for a Cast to integers or bool.
bool LeavesFloats(const onnx::NodeProto& node) {
  return std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto& a) {
    return a.name() == "to" && !IsFloat(static_cast<DType>(a.i()));
  });
}

// The slot as the op's schema describes it, or null.
const onnx::OpSchema::FormalParameter* FormalOf(const onnx::NodeProto& node, const Opsets& opsets,
                                                int slot) {
  const std::string_view domain = DomainOf(node.domain());
  const onnx::OpSchema* schema = SchemaOf(node.op_type(), opsets.For(domain), domain);
  if (schema == nullptr || schema->inputs().empty()) return nullptr;
  const auto& formals = schema->inputs();
  return &formals[std::min(static_cast<size_t>(slot), formals.size() - 1)];
}

// Whether a gradient of the node's outputs reaches the slot.
bool PassesGradient(const onnx::NodeProto& node, const Opsets& opsets, int slot) {
  if (slot == kInBody) return true;  // what a body does with it shows when it is imported
  const std::string_view domain = DomainOf(node.domain());
  if (const OpDef* row = FindOp(domain, node.op_type()); row != nullptr) {
    if (row->grad == NoGradient || (row->traits.cast && LeavesFloats(node))) return false;
    if (HasSlot(row->statistic_slots | row->no_gradient_slots, static_cast<size_t>(slot)))
      return false;
  }
  if (domain.empty() &&
      HasSlot(CanonicalRowOf(node.op_type()).constant_slots, static_cast<size_t>(slot)))
    return false;
  const auto* formal = FormalOf(node, opsets, slot);
  if (formal == nullptr) return true;
  const auto& types = formal->GetTypes();
  return types.empty() || std::any_of(types.begin(), types.end(), [](const std::string* type) {
           return type->find("tensor(float)") != std::string::npos;  // also sequences of them
         });
}

// Whether an initializer that is read there is a parameter by its nature. States that a layer
// starts from, bounds and tables are not; a gradient passes through them to what computes them.
bool IsParameterSlot(const onnx::NodeProto& node, const Opsets& opsets, int slot) {
  if (slot == kInBody) return true;
  if (DomainOf(node.domain()).empty() &&
      HasSlot(CanonicalRowOf(node.op_type()).table_slots, static_cast<size_t>(slot)))
    return false;
  const auto* formal = FormalOf(node, opsets, slot);
  return formal == nullptr ||
         formal->GetDifferentiationCategory() != onnx::OpSchema::NonDifferentiable;
}

SlotFacts FactsOf(const onnx::NodeProto& node, const Opsets& opsets, int slot) {
  SlotFacts facts;
  facts.differentiable = PassesGradient(node, opsets, slot);
  facts.parameter = facts.differentiable && IsParameterSlot(node, opsets, slot);
  if (slot == kInBody) {
    facts.where = OpWithVersion(node, opsets) + " (in its body)";
    return facts;
  }
  facts.where = fmt::format("{} input {}", OpWithVersion(node, opsets), slot);
  if (const OpDef* row = FindOp(DomainOf(node.domain()), node.op_type()); row != nullptr) {
    facts.statistic = HasSlot(row->statistic_slots, static_cast<size_t>(slot));
    facts.scalar = row->traits.arithmetic;
    facts.looks_through = slot == 0 && (row->traits.movement || row->traits.cast);
  }
  return facts;
}

// Values of the graph that a gradient of its outputs reaches. Those of shape arithmetic are not
// among them: it ends in integers.
std::unordered_set<std::string_view> ReachedByGradients(const SourceModel& source) {
  const onnx::GraphProto& graph = source.graph();
  std::unordered_map<std::string_view, int> producer;
  for (int n = 0; n < graph.node_size(); ++n) {
    for (const std::string& output : graph.node(n).output()) producer.emplace(output, n);
  }
  std::unordered_set<std::string_view> reached;
  std::vector<std::string_view> pending;
  const auto reach = [&](std::string_view name) {
    if (!name.empty() && reached.insert(name).second) pending.push_back(name);
  };
  for (const auto& output : graph.output()) reach(output.name());
  while (!pending.empty()) {
    const auto it = producer.find(pending.back());
    pending.pop_back();
    if (it == producer.end()) continue;
    const onnx::NodeProto& node = graph.node(it->second);
    const bool call = source.FindFunction(node) != nullptr;
    for (int i = 0; i < node.input_size(); ++i) {
      if (call || PassesGradient(node, source.opsets(), i)) reach(node.input(i));
    }
    if (!IsControlFlow(node)) continue;
    for (const std::string* name : CapturedNames(node)) reach(*name);
  }
  return reached;
}

bool IsIdentity(const onnx::NodeProto& node) {
  return node.op_type() == "Identity" && DomainOf(node.domain()).empty();
}

// Whether a body of the node reads one of the names as a running statistic, itself or copied. Each
// body is looked at once.
bool StatisticInBodies(const onnx::NodeProto& node, const std::set<std::string_view>& names) {
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    std::set<std::string_view> same = names;
    for (const auto& input : attribute.g().input()) same.erase(input.name());  // another value
    for (const auto& inner : attribute.g().node()) {
      const OpDef* row = FindOp(DomainOf(inner.domain()), inner.op_type());
      for (int i = 0; i < inner.input_size(); ++i) {
        if (!same.contains(inner.input(i))) continue;
        if (row != nullptr && HasSlot(row->statistic_slots, static_cast<size_t>(i))) return true;
        if (IsIdentity(inner)) same.insert(inner.output(0));
      }
      if (StatisticInBodies(inner, same)) return true;
    }
  }
  return false;
}

// An output of the graph, which the loss may read.
void CountOutput(SourceUse& use) {
  if (!use.differentiable) use.where = "an output of the graph";
  use.differentiable = use.parameter = true;
  use.scalar = false;
}

using Readers = std::unordered_map<std::string_view, std::vector<Site>>;

Readers ReadersOf(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  Readers readers;
  for (int n = 0; n < nodes.size(); ++n) {
    for (int i = 0; i < nodes[n].input_size(); ++i) {
      if (!nodes[n].input(i).empty()) readers[nodes[n].input(i)].push_back({n, i});
    }
    if (!IsControlFlow(nodes[n])) continue;
    for (const std::string* name : CapturedNames(nodes[n]))
      readers[*name].push_back({n, kInBody, *name});
  }
  return readers;
}

// Follows a value to the ops that decide what it is: depth first, on an explicit stack, since
// graphs are deep.
class Tracer {
 public:
  Tracer(const SourceModel& source, const std::unordered_set<std::string_view>& reached,
         const std::set<std::string_view>& outputs,
         const std::unordered_set<std::string_view>& products)
      : source_(source), reached_(reached), outputs_(outputs), products_(products) {}

  void Trace(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
             const Readers& readers, const Opsets& opsets, Site site, SourceUse& use) {
    use.where = FactsOf(nodes[site.node], opsets, site.slot).where;  // where nothing reads on
    Visit({&nodes, &readers, &opsets}, site, use);
    while (!pending_.empty()) {
      Pending& top = pending_.back();
      if (top.next == top.sites->size()) {
        pending_.pop_back();
        continue;
      }
      const Body body = top.body;
      Visit(body, (*top.sites)[top.next++], use);
    }
  }

 private:
  // The graph, or a function.
  struct Body {
    const google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes;
    const Readers* readers;
    const Opsets* opsets;
  };
  // Readers of one value that are still to be visited.
  struct Pending {
    Body body;
    const std::vector<Site>* sites;
    size_t next = 0;
  };

  void Visit(const Body& body, Site site, SourceUse& use) {
    const onnx::NodeProto& node = (*body.nodes)[site.node];
    if (!visited_.insert({&node, site.slot}).second) return;
    if (const Function* f = source_.FindFunction(node); f != nullptr && site.slot != kInBody) {
      if (site.slot < f->proto->input_size())
        Push({&f->proto->node(), &InnerReaders(*f), &f->opsets}, f->proto->input(site.slot));
      return;
    }
    SlotFacts facts = FactsOf(node, *body.opsets, site.slot);
    if (site.slot == kInBody) facts.statistic = StatisticInBodies(node, {site.inside});
    if (facts.looks_through) {  // the first output comes first
      for (int i = node.output_size(); i-- > 0;) {
        if (IsOutput(body, node.output(i))) CountOutput(use);
        Push(body, node.output(i));
      }
      return;
    }
    const bool flows = facts.differentiable && IsReached(body, node);
    const bool tells = facts.statistic || (flows && !use.differentiable);
    if (tells || (first_ && !use.differentiable && !use.statistic)) use.where = facts.where;
    first_ = false;
    use.statistic = use.statistic || facts.statistic;
    use.differentiable = use.differentiable || flows;
    use.parameter = use.parameter || (flows && facts.parameter);
    const bool scalar = facts.scalar && !IsBias(node, site.slot);
    use.scalar = use.scalar && (scalar || !facts.differentiable);
  }

  // Added to a product: the bias of a linear layer, of one output perhaps.
  bool IsBias(const onnx::NodeProto& node, int slot) const {
    const OpDef* row = FindOp(DomainOf(node.domain()), node.op_type());
    return row != nullptr && row->traits.adds && node.input_size() == 2 &&
           products_.contains(node.input(1 - slot));
  }

  bool IsOutput(const Body& body, const std::string& name) const {
    return body.nodes == &source_.graph().node() && outputs_.contains(name);
  }

  // Of what a function holds it is not known.
  bool IsReached(const Body& body, const onnx::NodeProto& node) const {
    if (body.nodes != &source_.graph().node()) return true;
    return std::any_of(node.output().begin(), node.output().end(),
                       [&](const std::string& output) { return reached_.contains(output); });
  }
  const Readers& InnerReaders(const Function& f) {
    auto [it, fresh] = inner_.try_emplace(f.proto);
    if (fresh) it->second = ReadersOf(f.proto->node());
    return it->second;
  }
  void Push(const Body& body, std::string_view name) {
    auto it = body.readers->find(name);
    if (!name.empty() && it != body.readers->end()) pending_.push_back({body, &it->second});
  }

  const SourceModel& source_;
  const std::unordered_set<std::string_view>& reached_;
  const std::set<std::string_view>& outputs_;
  const std::unordered_set<std::string_view>& products_;
  bool first_ = true;
  std::vector<Pending> pending_;
  std::set<std::pair<const onnx::NodeProto*, int>> visited_;
  std::unordered_map<const onnx::FunctionProto*, Readers> inner_;
};

// Reads of a value, with Identity nodes looked through: the sites that can be given a name of their
// own. An Identity that makes an output of the graph stays a reader.
void DirectReads(const onnx::GraphProto& graph, const Readers& readers,
                 const std::set<std::string_view>& outputs, std::string_view name,
                 std::vector<Site>& sites) {
  struct Pending {
    const std::vector<Site>* sites;
    size_t next = 0;
  };
  std::vector<Pending> pending;  // depth first, on an explicit stack: graphs are deep
  const auto push = [&](std::string_view value) {
    // Deeper than there are nodes: a cycle, which is reported later.
    if (pending.size() > static_cast<size_t>(graph.node_size())) return;
    if (auto it = readers.find(value); it != readers.end()) pending.push_back({&it->second});
  };
  push(name);
  while (!pending.empty()) {
    Pending& top = pending.back();
    if (top.next == top.sites->size()) {
      pending.pop_back();
      continue;
    }
    const Site site = (*top.sites)[top.next++];
    const onnx::NodeProto& node = graph.node(site.node);
    if (IsIdentity(node) && node.output_size() > 0 && !outputs.contains(node.output(0))) {
      push(node.output(0));
    } else {
      sites.push_back(site);
    }
  }
}

bool Trains(const SourceTensor& tensor, const SourceUse& use) {
  return use.statistic || (use.parameter && !(tensor.one_element() && use.scalar));
}

// A use that can read another name. Bodies and the outputs of the graph keep theirs.
bool CanMove(const SourceUse& use) { return use.node >= 0 && use.slot != kInBody; }

// How many uses train it.
size_t CountTraining(const SourceTensor& tensor) {
  if (!tensor.is_float() || tensor.data.form.dims.empty() || tensor.from_constant) return 0;
  return static_cast<size_t>(
      std::count_if(tensor.uses.begin(), tensor.uses.end(),
                    [&](const SourceUse& use) { return Trains(tensor, use); }));
}

bool MayUntie(const SourceTensor& tensor) {
  return CountTraining(tensor) > 1 &&
         std::any_of(tensor.uses.begin(), tensor.uses.end(),
                     [&](const SourceUse& use) { return Trains(tensor, use) && CanMove(use); });
}

std::set<std::string> AllNames(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& t : graph.initializer()) names.insert(t.name());
  for (const auto& v : graph.input()) names.insert(v.name());
  for (const auto& node : graph.node()) names.insert(node.output().begin(), node.output().end());
  return names;
}

// Gives uses of an initializer their own copies, NAME.1, NAME.2, …
class Splitter {
 public:
  explicit Splitter(SourceModel& source)
      : source_(source), graph_(*source.proto().mutable_graph()), names_(AllNames(graph_)) {}

  // Returns the new names. Reads that train nothing stay with the original.
  std::vector<std::string> Split(size_t index) {
    SourceTensor tensor = source_.tensors()[index];
    const onnx::TensorProto* original = nullptr;
    for (const auto& t : graph_.initializer()) {
      if (t.name() == tensor.name) original = &t;
    }
    const onnx::TensorProto copy = *original;
    const bool listed = std::any_of(graph_.input().begin(), graph_.input().end(),
                                    [&](const auto& v) { return v.name() == tensor.name; });
    std::vector<std::string> made;
    std::vector<SourceUse> rest;
    int number = 0;
    for (SourceUse& use : tensor.uses) {
      if (!CanMove(use) || !Trains(tensor, use)) {
        rest.push_back(std::move(use));
        continue;
      }
      std::string name;
      do {
        name = fmt::format("{}.{}", tensor.name, ++number);
      } while (!names_.insert(name).second);
      graph_.mutable_node(use.node)->set_input(use.slot,
                                               name);  // also where an Identity stood between
      AddInitializer(copy, name, listed);
      source_.AddTensor(
          {.name = name, .original = tensor.name, .data = tensor.data, .scan = tensor.scan});
      made.push_back(std::move(name));
    }
    if (rest.empty()) dead_.insert(tensor.name);
    return made;
  }

  // Removes initializers that nothing reads any more, with the Identity nodes that stood behind
  // them.
  void DropUnread() {
    std::erase_if(source_.tensors(), [&](const SourceTensor& t) { return dead_.contains(t.name); });
    EraseIf(*graph_.mutable_initializer(), [&](const auto& t) { return dead_.contains(t.name()); });
    EraseIf(*graph_.mutable_input(), [&](const auto& v) { return dead_.contains(v.name()); });
    bool grown = true;
    while (grown) {  // a chain of Identity nodes goes link by link, in whatever order it stands
      grown = false;
      for (const auto& node : graph_.node()) {
        if (Dead(node) && dead_.insert(node.output(0)).second) grown = true;
      }
    }
    EraseIf(*graph_.mutable_node(), [&](const auto& node) { return Dead(node); });
  }

 private:
  bool Dead(const onnx::NodeProto& node) const {
    return IsIdentity(node) && node.input_size() == 1 && node.output_size() == 1 &&
           dead_.contains(node.input(0));
  }
  void AddInitializer(const onnx::TensorProto& original, const std::string& name,
                      bool listed_as_input) {
    *graph_.add_initializer() = original;
    graph_.mutable_initializer(graph_.initializer_size() - 1)->set_name(name);
    if (!listed_as_input) return;
    auto* input = graph_.add_input();
    input->set_name(name);
    auto* type = input->mutable_type()->mutable_tensor_type();
    type->set_elem_type(original.data_type());
    for (int64_t d : original.dims()) type->mutable_shape()->add_dim()->set_dim_value(d);
  }

  SourceModel& source_;
  onnx::GraphProto& graph_;
  std::set<std::string> names_, dead_;
};

// The value of a Constant node that may be a weight: a tensor or floats. False: anything else.
bool WeightIn(const onnx::NodeProto& node, onnx::TensorProto& value) {
  if (node.op_type() != "Constant" || !DomainOf(node.domain()).empty() || node.output_size() != 1 ||
      node.attribute_size() != 1) {
    return false;
  }
  const onnx::AttributeProto& attribute = node.attribute(0);
  if (attribute.name() == "value" && attribute.has_t()) {
    value = attribute.t();
  } else if (attribute.name() == "value_floats") {
    value.set_data_type(onnx::TensorProto::FLOAT);
    value.add_dims(attribute.floats_size());
    *value.mutable_float_data() = attribute.floats();
  } else if (attribute.name() == "value_float") {
    value.set_data_type(onnx::TensorProto::FLOAT);
    value.add_float_data(attribute.f());
  } else {
    return false;
  }
  value.set_name(node.output(0));
  return true;
}

}  // namespace

Status SettleConstants(SourceModel& source, const CompileOptions& options) {
  auto* graph = source.proto().mutable_graph();
  std::vector<int> settled;
  for (int n = 0; n < graph->node_size(); ++n) {
    const onnx::NodeProto& node = graph->node(n);
    onnx::TensorProto value;
    if (!WeightIn(node, value)) continue;
    auto found = source.files().Find(value);
    if (!found.ok()) return std::move(found).TakeStatus().At(DescribeNode(node, source.opsets()));
    const bool named = std::find(options.trainable.begin(), options.trainable.end(),
                                 node.output(0)) != options.trainable.end();
    if (!named && found->form.elements <= kMaxConstantElements) continue;
    source.AddTensor({.name = node.output(0),
                      .original = node.output(0),
                      .data = std::move(*found),
                      .from_constant = true});
    *graph->add_initializer() = std::move(value);
    settled.push_back(n);
  }
  for (size_t i = settled.size(); i-- > 0;) graph->mutable_node()->DeleteSubrange(settled[i], 1);
  return {};
}

void CountUses(SourceModel& source) {
  const onnx::GraphProto& graph = source.graph();
  const Readers readers = ReadersOf(graph.node());
  const std::unordered_set<std::string_view> reached = ReachedByGradients(source);
  std::set<std::string_view> outputs;
  for (const auto& out : graph.output()) outputs.insert(out.name());
  std::unordered_set<std::string_view> products;
  for (const auto& node : graph.node()) {
    const OpDef* row = FindOp(DomainOf(node.domain()), node.op_type());
    if (row != nullptr && row->traits.product)
      products.insert(node.output().begin(), node.output().end());
  }
  for (SourceTensor& tensor : source.tensors()) {
    tensor.uses.clear();
    std::vector<Site> sites;
    DirectReads(graph, readers, outputs, tensor.name, sites);
    for (const Site& site : sites) {
      SourceUse use{.node = site.node, .slot = site.slot};
      Tracer(source, reached, outputs, products)
          .Trace(graph.node(), readers, source.opsets(), site, use);
      tensor.uses.push_back(std::move(use));
    }
    if (outputs.contains(tensor.name)) {
      tensor.uses.push_back({.node = -1});
      CountOutput(tensor.uses.back());
    }
  }
}

Status Untie(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics) {
  if (options.untie == "none") return {};
  const bool automatic = options.untie == "auto";
  std::vector<size_t> split;
  std::vector<std::string> tied;
  bool matched = automatic;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    SourceTensor& tensor = source.tensors()[i];
    const bool named = !automatic && GlobMatches(options.untie, tensor.name);
    matched = matched || named;
    if (!MayUntie(tensor)) {
      if (named && CountTraining(tensor) > 1) {
        diagnostics.Note(fmt::format(
            "--untie '{}': '{}' stays one parameter, since it is read in bodies of control flow "
            "or is an output",
            options.untie, tensor.name));
      }
      continue;
    }
    AMPC_ASSIGN(const ValueScan scan, ScanOf(tensor));
    if (scan.is_mask() && !named) continue;  // a constant
    const bool own = automatic ? scan.all_equal : named;
    if (own) {
      split.push_back(i);
    } else {
      tied.push_back(fmt::format("'{}' ({} uses)", tensor.name, tensor.uses.size()));
    }
  }
  if (!matched) return UsageError("E0113", "--untie '{}' matches no initializer", options.untie);
  if (!tied.empty())
    diagnostics.Note(fmt::format("tied, one parameter with several uses: {}", Listed(tied)));
  if (split.empty()) return {};
  Splitter splitter(source);
  constexpr size_t kTold = 4;  // one by one
  std::vector<std::string> others;
  for (size_t n = 0; n < split.size(); ++n) {
    const std::string name = source.tensors()[split[n]].name;
    const size_t uses = CountTraining(source.tensors()[split[n]]);
    const std::vector<std::string> made = splitter.Split(split[n]);
    if (n >= kTold) {
      others.push_back(fmt::format("'{}'", name));
      continue;
    }
    diagnostics.Note(
        fmt::format("'{}' is shared by {} uses{}: each has a parameter of its own now ({}{}); "
                    "--untie none keeps one",
                    name, uses, automatic ? " and its elements are all equal" : "", made.front(),
                    made.size() > 1 ? " to " + made.back() : ""));
  }
  if (!others.empty())
    diagnostics.Note(fmt::format("shared, and untied like those: {}", Listed(others)));
  splitter.DropUnread();
  CountUses(source);  // nodes moved
  return {};
}

}  // namespace ampc
