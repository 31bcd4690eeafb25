// SPDX-License-Identifier: Apache-2.0
// One node at a time: read, check against its own schema, bring into canonical form, infer types,
// fold.
#include <cctype>

#include <onnx/defs/schema.h>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/training.h"
#include "compiler/ops/infer.h"

namespace ampc {

using ir::kNone;
using ir::ValueId;

namespace {

// Folded results up to this size; above kMaxConstantElements only when folding does not blow a
// small input up.
constexpr int64_t kMaxFoldedBytes = 64 << 20;

// "Node (x) has input size 1 not in range [min=2, max=2].": the fact, in one line.
std::string SchemaComplaint(std::string_view what) {
  std::string text(what.substr(0, what.find('\n')));
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

Status VerifyAgainstSchema(const onnx::NodeProto& node, const onnx::OpSchema& schema,
                           const SourceNode& source) {
  const auto& formals = schema.inputs();
  for (size_t i = 0; i < formals.size(); ++i) {
    const bool is_sequence = i < source.sequences.size() && !source.sequences[i].empty();
    if (formals[i].GetOption() == onnx::OpSchema::Single && !source.Has(i) && !is_sequence) {
      return BadInput("E0107", "input {} ('{}') is required but left out", i, formals[i].GetName());
    }
  }
  // Verify refuses the op as such (GroupNormalization-18); its canonical form is checked like any.
  if (schema.Deprecated()) return {};
  try {
    schema.Verify(node);
  } catch (const std::exception& e) {
    return BadInput("E0107", "{}", SchemaComplaint(e.what()));
  }
  return {};
}

// A newer opset may give an op attributes and inputs that the canonical one lacks.
Status CheckCanonical(const SourceNode& source) {
  const onnx::OpSchema* canonical = SchemaOf(source.op, kCanonicalOpset, "");
  if (canonical == nullptr) return {};
  for (const auto& [name, value] : source.attrs.entries()) {
    if (!canonical->attributes().contains(name)) {
      return Unsupported("E0102", "attribute '{}' (of {}-{}) is not supported", name, source.op,
                         source.version);
    }
  }
  const auto& formals = canonical->inputs();
  if (source.inputs.size() > formals.size() &&
      (formals.empty() || formals.back().GetOption() != onnx::OpSchema::Variadic)) {
    return Unsupported("E0102", "input {} (of {}-{}) is not supported", formals.size(), source.op,
                       source.version);
  }
  return {};
}

Status RefuseSequences(const SourceNode& source) {
  for (size_t i = 0; i < source.sequences.size(); ++i) {
    if (source.sequences[i].empty()) continue;
    return Unsupported("E0102", "input {} ('{}') is a sequence, which this op is not supported for",
                       i, source.sequences[i]);
  }
  return {};
}

}  // namespace

Status Importer::ImportNodes(Scope& scope, const Nodes& nodes, const std::vector<int>& order) {
  for (int n : order) {
    scope.read.insert(nodes[n].input().begin(), nodes[n].input().end());
    if (!IsControlFlow(nodes[n])) continue;
    for (const std::string* name : CapturedNames(nodes[n])) scope.read.insert(*name);
  }
  for (int n : order) {
    Status status = ImportNode(scope, nodes[n]);
    if (status.ok()) continue;
    const std::string place = fmt::format("node '{}{}' ({})", scope.prefix, LabelOf(nodes[n]),
                                          OpWithVersion(nodes[n], *scope.opsets));
    return std::move(status).At(place);
  }
  return {};
}

Status Importer::ImportNode(Scope& scope, const onnx::NodeProto& node) {
  if (const Function* f = source_.FindFunction(node); f != nullptr)
    return CallFunction(scope, node, *f->proto, f->opsets);
  if (IsControlFlow(node)) return ImportControlFlow(scope, node);
  if (graph_ == module_->update.get() && IsUpdateNode(node)) return ImportUpdateNode(scope, node);
  const std::string_view domain = DomainOf(node.domain());
  const onnx::OpSchema* schema = SchemaOf(node.op_type(), scope.opsets->For(domain), domain);
  const CanonicalRule training = FindTrainingRule(domain, node.op_type());
  if (training != nullptr) return ImportTrainingNode(scope, node, training);
  if (schema == nullptr ||
      !domain.empty()) {  // CheckSupport covers all but bodies that ONNX's schemas define
    return Unsupported("E0102", "op {} is not supported", OpWithVersion(node, *scope.opsets));
  }
  AMPC_ASSIGN(SourceNode source, ReadNode(scope, node, schema->SinceVersion()));
  AMPC_TRY(ReadInputs(scope, node, source));
  AMPC_TRY(VerifyAgainstSchema(node, *schema, source));

  const ir::LocId loc = module_->locs.Intern(scope.prefix + LabelOf(node));
  if (const CanonicalRule rule = FindCanonicalRule(node.op_type()); rule != nullptr)
    AMPC_TRY(ApplyRule(scope, rule, loc, source));
  if (source.sequence) {
    scope.sequences[node.output(0)] = std::move(*source.sequence);
    return {};
  }
  if (!source.results) AMPC_TRY(RefuseSequences(source));
  if (source.results) return Bind(scope, node, *source.results);
  const OpDef* op = FindOp("", source.op);
  if (op == nullptr) return CallSchemaFunction(scope, node, *schema, source);
  return BuildNode(scope, node, source, *op, loc);
}

Status Importer::ApplyRule(Scope& scope, CanonicalRule rule, ir::LocId loc, SourceNode& source) {
  const ir::NodeId last = graph_->last();
  CanonicalContext context{.graph = *graph_,
                           .b = ir::Builder(*graph_, loc),
                           .widen = widen_,
                           .sequences = scope.sequences};
  AMPC_TRY(rule(context, source));
  AMPC_TRY(context.b.TakeStatus());
  return FoldAfter(last, source);
}

// An op of a training graph: there is no schema of it, and its rule leaves a standard op or values.
Status Importer::ImportTrainingNode(Scope& scope, const onnx::NodeProto& node, CanonicalRule rule) {
  AMPC_ASSIGN(SourceNode source, ReadNode(scope, node, scope.opsets->For(DomainOf(node.domain()))));
  AMPC_TRY(ReadInputs(scope, node, source));
  AMPC_TRY(RefuseSequences(source));
  const ir::LocId loc = module_->locs.Intern(scope.prefix + LabelOf(node));
  AMPC_TRY(ApplyRule(scope, rule, loc, source));
  if (source.results) return Bind(scope, node, *source.results);
  return BuildNode(scope, node, source, *FindOp("", source.op), loc);
}

Result<SourceNode> Importer::ReadNode(const Scope& scope, const onnx::NodeProto& node,
                                      int version) {
  SourceNode source;
  source.op = node.op_type();
  source.version = version;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const onnx::AttributeProto* given = &attribute;
    if (!attribute.ref_attr_name().empty()) {
      auto it = scope.attributes.find(attribute.ref_attr_name());
      if (it == scope.attributes.end()) continue;  // the caller left it out: so does this node
      given = it->second;
    }
    AMPC_ASSIGN(Attr value, ReadAttribute(*given));
    source.attrs.Set(attribute.name(), std::move(value));
  }
  int last = node.output_size();
  const OpDef* row = FindOp(DomainOf(node.domain()), node.op_type());
  const bool list = row != nullptr && row->out.max >= kVariadic;  // nameless ones count in it
  while (!list && last > 0 && node.output(last - 1).empty()) --last;
  for (int i = 0; i < last; ++i) {
    source.wanted.push_back(!node.output(i).empty() &&
                            (i == 0 || scope.read.contains(node.output(i))));
  }
  return source;
}

Result<Attr> Importer::ReadAttribute(const onnx::AttributeProto& attribute) {
  if (attribute.type() != onnx::AttributeProto::TENSOR) return AttrFromProto(attribute);
  AMPC_ASSIGN(const TensorData data, source_.files().Find(attribute.t()));
  AMPC_ASSIGN(HostTensor tensor, ReadTensor(data));
  return Attr(std::make_shared<const HostTensor>(std::move(tensor)));
}

Status Importer::ReadInputs(Scope& scope, const onnx::NodeProto& node, SourceNode& out) {
  int last = node.input_size();
  while (last > 0 && node.input(last - 1).empty()) --last;
  for (int i = 0; i < last; ++i) {
    const std::string& name = node.input(i);
    out.sequences.emplace_back();
    if (name.empty()) {
      out.inputs.push_back(kNone);
    } else if (HasSequence(scope, name)) {
      out.sequences.back() = name;
      out.inputs.push_back(kNone);
    } else {
      AMPC_ASSIGN(const ValueId v, Lookup(scope, name));
      out.inputs.push_back(v);
    }
  }
  while (!out.inputs.empty() && out.inputs.back() == kNone && out.sequences.back().empty()) {
    out.inputs.pop_back();  // a function's parameter that the caller left out
    out.sequences.pop_back();
  }
  return {};
}

// Also one around the body, which then is the body's, too.
bool Importer::HasSequence(Scope& scope, const std::string& name) {
  for (const Scope* s = &scope; s != nullptr; s = s->outer) {
    if (const auto it = s->sequences.find(name); it != s->sequences.end()) {
      if (s != &scope) scope.sequences[name] = it->second;
      return true;
    }
    if (s->values.contains(name)) return false;
  }
  return false;
}

Result<ValueId> Importer::Lookup(Scope& scope, const std::string& name) {
  if (auto it = scope.values.find(name); it != scope.values.end()) return it->second;
  if (scope.outer != nullptr) return Lookup(*scope.outer, name);
  auto it = &scope == &main_ ? tensor_index_.find(name) : tensor_index_.end();
  if (it == tensor_index_.end())
    return BadInput("E0103", "reads '{}', which no node, input or initializer is", name);
  AMPC_ASSIGN(const ValueId v, Materialize(source_.tensors()[it->second]));
  scope.values[name] = v;
  return v;
}

Result<ValueId> Importer::Materialize(const SourceTensor& tensor) {
  const DType stored = tensor.data.form.dtype;
  ir::Builder b(*graph_, module_->locs.Intern(tensor.name));
  if (auto it = states_.find(tensor.name); it != states_.end()) {
    const ValueId state = graph_->State(it->second);
    if (!IsLow(stored) || widen_) return state;
    // The master is fp32; the model goes on in the dtype that it was written in.
    const ValueId cast = b.Named(tensor.name + ":" + std::string(Name(stored))).Cast(state, stored);
    if (b.failed()) return b.TakeStatus();
    state_behind_[cast] = state;
    return cast;
  }
  AMPC_ASSIGN(HostTensor value, ReadTensor(tensor.data));
  const ValueId v = b.Named(tensor.name).Constant(ConvertFloats(value, Widened(stored)));
  if (b.failed()) return b.TakeStatus();
  return v;
}

// Statistics and what stands beside them are fp32 whatever the model is written in.
Status Importer::KeepFp32Slots(SourceNode& source, const OpDef& op, ir::Builder& b) {
  if (op.statistic_slots == 0) return {};
  for (size_t i = 0; i < source.inputs.size() && i < 32; ++i) {
    if (!HasSlot(op.fp32_slots, i) || source.inputs[i] == kNone) continue;
    if (auto it = state_behind_.find(source.inputs[i]); it != state_behind_.end()) {
      source.inputs[i] = it->second;
    } else if (IsLow(graph_->type(source.inputs[i]).dtype)) {
      source.inputs[i] = b.Cast(source.inputs[i], DType::kFloat32);
    }
  }
  return b.TakeStatus();
}

// Exporters bake the size of their sample into constants; then another size does not fit.
Status Importer::WithSizes(Status status) const {
  if (status.ok() || status.id() != "E0107" || bound_.empty()) return status;
  std::string text;
  for (const auto& [name, size] : bound_)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, size);
  return Status::Error(status.error_class(), status.id(),
                       fmt::format("{}; with {}: a constant of the model may hold the size that it "
                                   "was exported with",
                                   status.message(), text));
}

Status Importer::BuildNode(Scope& scope, const onnx::NodeProto& node, SourceNode& source,
                           const OpDef& op, ir::LocId loc) {
  ir::Builder b(*graph_, loc);
  AMPC_TRY(KeepFp32Slots(source, op, b));
  if (widen_ && source.attrs.Has("dtype")) {
    source.attrs.Set("dtype",
                     static_cast<int64_t>(Widened(static_cast<DType>(source.attrs.Int("dtype")))));
  }
  AMPC_TRY(CheckCanonical(source));
  FillDefaults(*module_, op, source.attrs);
  InlineVector<ir::TypeId, 8> types;
  InlineVector<const HostTensor*, 8> constants;
  for (ValueId v : source.inputs) {
    types.push_back(v == kNone ? kNone : graph_->type_id(v));
    constants.push_back(graph_->ConstantOf(v));
  }
  auto inferred = InferTypes(*module_, op, source.attrs, types, constants, source.wanted.size());
  if (!inferred.ok())
    return WithSizes(WithInputs(std::move(inferred).TakeStatus(), *graph_, source.inputs));
  std::vector<ir::TypeId>& results = *inferred;
  std::vector<std::string> names;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!source.wanted[i] && MayLackOutput(op, i)) results[i] = kNone;
    names.push_back(i < static_cast<size_t>(node.output_size())
                        ? scope.prefix + node.output(static_cast<int>(i))
                        : "");
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const ir::NodeId n =
      graph_->AddNode(op, std::move(source.attrs), source.inputs, results, loc, kNone, views);
  std::vector<ValueId> outputs = graph_->node(n).outputs;
  Replacements replaced;
  AMPC_TRY(Fold(n, replaced));
  for (ValueId& v : outputs) {
    if (auto it = replaced.find(v); it != replaced.end()) v = it->second;
  }
  return Bind(scope, node, outputs);
}

Status Importer::Fold(ir::NodeId n, Replacements& replaced) {
  if (evaluate_ == nullptr) return {};
  const ir::Node copy = graph_->node(n);
  if (copy.inputs.empty() || copy.op->traits.random || copy.op->mode != nullptr) return {};
  int64_t in_bytes = 0, out_bytes = 0, out_elements = 0;
  for (ValueId v : copy.inputs) {
    if (v == kNone) continue;
    if (graph_->ConstantOf(v) == nullptr) return {};
    in_bytes += graph_->type(v).bytes();
  }
  for (ValueId v : copy.outputs) {
    if (v == kNone) continue;
    out_bytes += graph_->type(v).bytes();
    out_elements += graph_->type(v).elements();
  }
  if (out_bytes > kMaxFoldedBytes ||
      (out_elements > kMaxConstantElements && out_bytes > 2 * in_bytes))
    return {};
  AMPC_ASSIGN(std::vector<HostTensor> results, evaluate_(*graph_, n));
  ir::Builder b(*graph_, copy.loc, copy.next);
  for (size_t i = 0; i < copy.outputs.size(); ++i) {
    const ValueId old = copy.outputs[i];
    if (old == kNone) continue;
    const ValueId constant = b.Constant(std::move(results[i]));
    AMPC_TRY(b.TakeStatus());
    graph_->ReplaceUses(old, constant);
    replaced[old] = constant;
  }
  std::vector<std::string> names;
  for (ValueId v : copy.outputs) names.push_back(v == kNone ? "" : graph_->value(v).name);
  graph_->Erase(n);  // frees the names
  for (size_t i = 0; i < copy.outputs.size(); ++i) {
    if (copy.outputs[i] != kNone) graph_->Rename(replaced[copy.outputs[i]], names[i]);
  }
  diagnostics_.Explain(module_->locs.Get(copy.loc), "fold", "its inputs are constants");
  return {};
}

Status Importer::FoldAfter(ir::NodeId last, SourceNode& source) {
  Replacements replaced;
  ir::NodeId n = last == kNone ? graph_->first() : graph_->node(last).next;
  while (n != kNone) {
    const ir::NodeId next = graph_->node(n).next;
    AMPC_TRY(Fold(n, replaced));
    n = next;
  }
  auto update = [&](std::vector<ValueId>& values) {
    for (ValueId& v : values) {
      if (auto it = replaced.find(v); it != replaced.end()) v = it->second;
    }
  };
  update(source.inputs);
  if (source.results) update(*source.results);
  if (source.sequence) update(*source.sequence);
  return {};
}

Status Importer::Bind(Scope& scope, const onnx::NodeProto& node, std::span<const ValueId> results) {
  for (int i = 0; i < node.output_size() && static_cast<size_t>(i) < results.size(); ++i) {
    const ValueId v = results[static_cast<size_t>(i)];
    if (node.output(i).empty() || v == kNone) continue;
    scope.values[node.output(i)] = v;
  }
  return {};
}

}  // namespace ampc
