// SPDX-License-Identifier: Apache-2.0
// Types of one node. Standard ops go through the ONNX library: the node is shown to the schema's
// own inference function through an InferenceContext that holds just this node; no ModelProto is
// built. Answers are memoised in the module.
#include "compiler/ops/infer.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <unordered_map>

#include <onnx/defs/schema.h>
#include <onnx/defs/shape_inference.h>
#include <onnx/onnx_pb.h>

#include "compiler/onnx/proto_util.h"
#include "compiler/ops/infer_check.h"

namespace ampc {
namespace {

// A constant input takes part in inference (Reshape's shape, Slice's starts, …) up to this size.
// Only the lengths of a Split get long: as many as a Scan has iterations.
constexpr int64_t kMaxConstant = 16'384;

struct Key {
  const OpDef* op;
  Attrs attrs;
  std::vector<ir::TypeId> inputs;
  std::vector<HostTensor> constants;  // empty tensor for inputs whose value plays no part
  size_t num_outputs;
};

// The same without copies, to look up with.
struct KeyView {
  const OpDef* op;
  const Attrs& attrs;
  std::span<const ir::TypeId> inputs;
  std::span<const HostTensor* const> constants;
  size_t num_outputs;
};

// A constant that takes part in the key, else the empty tensor.
const HostTensor& KeyConstant(const HostTensor* c) {
  static const HostTensor absent;
  return c != nullptr && c->elements() <= kMaxConstant ? *c : absent;
}

size_t Mix(size_t h, size_t v) { return (h ^ v) * 0x9E3779B97F4A7C15ull + (h >> 29); }

size_t HashOf(const HostTensor& c) {
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(c.data.data()), c.data.size()});
}

struct KeyHash {
  using is_transparent = void;
  size_t operator()(const Key& k) const {
    size_t h = Mix(std::hash<const void*>{}(k.op), k.attrs.Hash());
    for (ir::TypeId t : k.inputs) h = Mix(h, static_cast<size_t>(t));
    for (const HostTensor& c : k.constants) h = Mix(h, HashOf(c));
    return Mix(h, k.num_outputs);
  }
  size_t operator()(const KeyView& k) const {
    size_t h = Mix(std::hash<const void*>{}(k.op), k.attrs.Hash());
    for (ir::TypeId t : k.inputs) h = Mix(h, static_cast<size_t>(t));
    for (const HostTensor* c : k.constants) h = Mix(h, HashOf(KeyConstant(c)));
    return Mix(h, k.num_outputs);
  }
};

struct KeyEqual {
  using is_transparent = void;
  bool operator()(const Key& a, const Key& b) const {
    return a.op == b.op && a.num_outputs == b.num_outputs && a.inputs == b.inputs &&
           a.attrs == b.attrs && a.constants == b.constants;
  }
  bool operator()(const KeyView& a, const Key& b) const {
    return a.op == b.op && a.num_outputs == b.num_outputs &&
           std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end()) &&
           a.attrs == b.attrs &&
           std::equal(a.constants.begin(), a.constants.end(), b.constants.begin(),
                      b.constants.end(),
                      [](const HostTensor* x, const HostTensor& y) { return KeyConstant(x) == y; });
  }
  bool operator()(const Key& a, const KeyView& b) const { return (*this)(b, a); }
};

}  // namespace

namespace ir {
// Owned by the module; named in graph.h.
struct InferenceCache {
  std::unordered_map<Key, std::vector<TypeId>, KeyHash, KeyEqual> types;
  std::unordered_map<const OpDef*, std::vector<Attrs::Entry>>
      defaults;  // per op: attributes that have one
};
}  // namespace ir

namespace {

ir::InferenceCache& CacheOf(ir::Module& module) {
  if (module.inference == nullptr) {
    auto owner = std::make_shared<ir::InferenceCache>();
    module.inference = owner.get();
    module.inference_owner = owner;
  }
  return *module.inference;
}

void ToProto(const ir::TensorType& type, onnx::TypeProto* proto) {
  auto* tensor = proto->mutable_tensor_type();
  tensor->set_elem_type(static_cast<int>(type.dtype));
  auto* shape = tensor->mutable_shape();
  for (int64_t d : type.dims) shape->add_dim()->set_dim_value(d);
}

// One node as the ONNX library wants to see it.
class NodeContext final : public onnx::InferenceContext {
 public:
  NodeContext(const Attrs& attrs, std::span<const ir::TensorType* const> inputs,
              std::span<const HostTensor* const> constants, size_t num_outputs)
      : input_types_(inputs.size()),
        present_(inputs.size()),
        data_(inputs.size()),
        outputs_(num_outputs) {
    for (const auto& [name, value] : attrs.entries()) AttrToProto(name, value, &attributes_[name]);
    for (size_t i = 0; i < inputs.size(); ++i) {
      present_[i] = inputs[i] != nullptr;
      if (inputs[i] != nullptr) ToProto(*inputs[i], &input_types_[i]);
      if (constants[i] != nullptr) {
        data_[i] = std::make_unique<onnx::TensorProto>();
        TensorToProto(*constants[i], data_[i].get());
      }
    }
  }
  const onnx::AttributeProto* getAttribute(const std::string& name) const override {
    auto it = attributes_.find(name);
    return it == attributes_.end() ? nullptr : &it->second;
  }
  size_t getNumInputs() const override { return input_types_.size(); }
  const onnx::TypeProto* getInputType(size_t i) const override {
    return i < present_.size() && present_[i] ? &input_types_[i] : nullptr;
  }
  const onnx::TensorProto* getInputData(size_t i) const override {
    return i < data_.size() ? data_[i].get() : nullptr;
  }
  const onnx::SparseTensorProto* getInputSparseData(size_t) const override { return nullptr; }
  const onnx::TensorShapeProto* getSymbolicInput(size_t) const override { return nullptr; }
  size_t getNumOutputs() const override { return outputs_.size(); }
  onnx::TypeProto* getOutputType(size_t i) override { return &outputs_[i]; }
  onnx::GraphInferencer* getGraphAttributeInferencer(const std::string&) override {
    return nullptr;
  }
  const onnx::TypeProto& output(size_t i) const { return outputs_[i]; }

 private:
  std::unordered_map<std::string, onnx::AttributeProto> attributes_;
  std::vector<onnx::TypeProto> input_types_;
  std::vector<bool> present_;
  std::vector<std::unique_ptr<onnx::TensorProto>> data_;
  std::vector<onnx::TypeProto> outputs_;
};

// What ONNX calls inferred and declared are two inputs here: the model declares nothing.
std::optional<std::string> TwoSizes(const std::string& text) {
  const size_t at = text.find("Inferred=");
  long long one = 0, other = 0, axis = 0;
  if (at == std::string::npos ||
      std::sscanf(text.c_str() + at, "Inferred=%lld Declared=%lld Dimension=%lld", &other, &one,
                  &axis) != 3)
    return std::nullopt;
  return fmt::format("axis {} is {} and {} long", axis, one, other);
}

// "(op_type:MatMul, node name: …): [ShapeInferenceError] Incompatible dimensions …": the fact is
// what follows the bracket.
std::string Reason(std::string_view what) {
  if (const size_t bracket = what.find("Error] "); bracket != std::string_view::npos)
    what.remove_prefix(bracket + 7);
  std::string text(what.substr(0, what.find('\n')));
  if (std::optional<std::string> sizes = TwoSizes(text)) return *sizes;
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text;
}

// "'f' float[1,32] of node '/flatten'"
std::string DescribeInput(const ir::Graph& graph, ir::ValueId v) {
  if (v == ir::kNone) return "none";
  const ir::Value& value = graph.value(v);
  std::string text = fmt::format("'{}' {}", value.name, ToString(graph.type(v)));
  if (value.kind == ir::ValueKind::kFeed) return text + ", a graph input";
  if (value.kind == ir::ValueKind::kState) return text + ", an initializer";
  const HostTensor* constant = graph.ConstantOf(v);
  if (constant == nullptr) return text + fmt::format(" of node '{}'", graph.Label(value.def));
  if (constant->elements() > 8) return text + ", a constant";
  std::string elements;
  for (int64_t i = 0; i < constant->elements(); ++i)
    elements += fmt::format("{}{}", i == 0 ? "" : ",", constant->GetDouble(i));
  return text + fmt::format(" {{{}}}", elements);
}

bool Takes(const onnx::OpSchema::FormalParameter& formal, const std::string& type) {
  for (const auto* t : formal.GetTypes()) {
    if (*t == type) return true;
  }
  return false;
}

// Some ops were given all float types only after the canonical opset (Celu: 28), without a change
// of meaning.
bool NewestTakes(const onnx::OpSchema& schema, size_t input, const std::string& type) {
  const auto* newest = onnx::OpSchemaRegistry::Instance()->GetSchema(schema.Name(), 1000, "");
  return newest != nullptr && newest->inputs().size() == schema.inputs().size() &&
         Takes(newest->inputs()[std::min(input, schema.inputs().size() - 1)], type);
}

Status CheckElementTypes(const onnx::OpSchema& schema,
                         std::span<const ir::TensorType* const> inputs) {
  const auto& formals = schema.inputs();
  std::unordered_map<std::string, DType> bound;  // type variable -> dtype, for homogeneous formals
  for (size_t i = 0; i < inputs.size() && !formals.empty(); ++i) {
    if (inputs[i] == nullptr) continue;
    const auto& formal = formals[std::min(i, formals.size() - 1)];
    const std::string type = fmt::format("tensor({})", Name(inputs[i]->dtype));
    if (!Takes(formal, type) && !NewestTakes(schema, i, type)) {
      return BadInput("E0109", "input {} ('{}') has element type {}, which {}-{} does not take", i,
                      formal.GetName(), Name(inputs[i]->dtype), schema.Name(),
                      schema.SinceVersion());
    }
    const bool variadic_mixed =
        formal.GetOption() == onnx::OpSchema::Variadic && !formal.GetIsHomogeneous();
    if (variadic_mixed) continue;
    auto [it, fresh] = bound.emplace(formal.GetTypeStr(), inputs[i]->dtype);
    if (!fresh && it->second != inputs[i]->dtype) {
      return BadInput(
          "E0109", "input {} ('{}') has element type {}, another input of type '{}' has {}", i,
          formal.GetName(), Name(inputs[i]->dtype), formal.GetTypeStr(), Name(it->second));
    }
  }
  return {};
}

Result<std::vector<ir::TensorType>> InferByRow(const OpDef& op, const Attrs& attrs,
                                               std::span<const ir::TensorType* const> inputs,
                                               std::span<const HostTensor* const> constants,
                                               size_t num_outputs) {
  InferContext context{.attrs = attrs,
                       .inputs = {inputs.begin(), inputs.end()},
                       .constants = {constants.begin(), constants.end()},
                       .outputs = std::vector<ir::TensorType>(num_outputs)};
  AMPC_TRY(op.infer(context));
  if (context.outputs.size() < num_outputs) {
    return InternalError("E7004", "op '{}' has {} outputs, {} were asked for", op.name,
                         context.outputs.size(), num_outputs);
  }
  context.outputs.resize(num_outputs);
  return std::move(context.outputs);
}

// Operand i stays fp32 beside a low slot 0.
bool StaysFp32(const OpDef& op, std::span<const ir::TensorType* const> inputs, size_t i) {
  return HasSlot(op.fp32_slots, i) && inputs[i] != nullptr && inputs[0] != nullptr &&
         IsLow(inputs[0]->dtype) && inputs[i]->dtype == DType::kFloat32;
}

Result<std::vector<ir::TensorType>> InferStandard(const OpDef& op, const Attrs& attrs,
                                                  std::span<const ir::TensorType* const> inputs,
                                                  std::span<const HostTensor* const> constants,
                                                  size_t num_outputs) {
  const auto* schema =
      onnx::OpSchemaRegistry::Instance()->GetSchema(std::string(op.name), kCanonicalOpset, "");
  if (schema == nullptr)
    return InternalError("E7003", "ONNX opset {} has no op '{}'", kCanonicalOpset, op.name);
  std::deque<ir::TensorType> lowered;  // what ONNX sees in place of operands that stay fp32
  std::vector<const ir::TensorType*> seen(inputs.begin(), inputs.end());
  for (size_t i = 0; i < seen.size() && KeepsFp32(op, inputs); ++i) {
    if (StaysFp32(op, inputs, i))
      seen[i] = &lowered.emplace_back(ir::TensorType{inputs[0]->dtype, inputs[i]->dims});
  }
  AMPC_TRY(CheckElementTypes(*schema, seen));
  AMPC_TRY(CheckBeforeInference(op, attrs, inputs));
  if (op.infer != nullptr) return InferByRow(op, attrs, inputs, constants, num_outputs);
  NodeContext context(attrs, seen, constants, num_outputs);
  try {
    schema->GetTypeAndShapeInferenceFunction()(context);
  } catch (const std::exception& e) {
    return BadInput("E0107", "{}", Reason(e.what()));
  }
  std::vector<ir::TensorType> types;
  for (size_t i = 0; i < num_outputs; ++i) {
    const auto& proto = context.output(i).tensor_type();
    const auto dtype = proto.elem_type();
    if (!IsKnownDType(dtype)) {
      return Unsupported("E0110", "output {} has element type {}, which is not supported", i,
                         OnnxTypeName(dtype));
    }
    if (!proto.has_shape()) {
      return BadInput("E0108", "the shape of output {} is not known at compile time", i);
    }
    ir::TensorType type{static_cast<DType>(dtype), {}};
    for (const auto& d : proto.shape().dim()) {
      if (!d.has_dim_value()) {
        return BadInput("E0108", "axis {} of output {} is not known at compile time",
                        type.dims.size(), i);
      }
      type.dims.push_back(d.dim_value());
    }
    types.push_back(std::move(type));
  }
  return types;
}

}  // namespace

bool KeepsFp32(const OpDef& op, std::span<const ir::TensorType* const> inputs) {
  if (!op.domain.empty() || op.body == nullptr) return false;
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (StaysFp32(op, inputs, i)) return true;
  }
  return false;
}

Result<std::vector<ir::TypeId>> InferTypes(ir::Module& module, const OpDef& op, const Attrs& attrs,
                                           std::span<const ir::TypeId> inputs,
                                           std::span<const HostTensor* const> constants,
                                           size_t num_outputs) {
  const auto given = static_cast<int>(inputs.size());
  if (given < op.in.min || given > op.in.max) {
    return BadInput("E0106", "{} inputs given, {} to {} expected", given, op.in.min, op.in.max);
  }
  auto& cache = CacheOf(module).types;
  if (auto it = cache.find(KeyView{&op, attrs, inputs, constants, num_outputs}); it != cache.end())
    return it->second;
  Key key{&op, attrs, {inputs.begin(), inputs.end()}, {}, num_outputs};
  for (const HostTensor* c : constants) key.constants.push_back(KeyConstant(c));

  std::vector<const ir::TensorType*> types;
  for (ir::TypeId t : inputs) types.push_back(t == ir::kNone ? nullptr : &module.types.Get(t));
  std::vector<const HostTensor*> values;
  for (const HostTensor& c : key.constants)
    values.push_back(c.dtype == DType::kNone ? nullptr : &c);
  for (int i = 0; i < op.in.min; ++i) {
    if (types[static_cast<size_t>(i)] == nullptr && op.in.max != kVariadic && op.domain.empty()) {
      return BadInput("E0106", "input {} is required but left out", i);
    }
  }
  auto inferred = op.domain.empty() ? InferStandard(op, attrs, types, values, num_outputs)
                                    : InferByRow(op, attrs, types, values, num_outputs);
  if (!inferred.ok()) return std::move(inferred).TakeStatus();
  AMPC_TRY(CheckAfterInference(op, types, *inferred));
  std::vector<ir::TypeId> ids;
  for (const ir::TensorType& t : *inferred) ids.push_back(module.types.Intern(t));
  cache.emplace(std::move(key), ids);
  return ids;
}

Result<std::vector<ir::TypeId>> InferNode(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& node = graph.node(id);
  InlineVector<ir::TypeId, 8> inputs;
  InlineVector<const HostTensor*, 8> constants;
  for (ir::ValueId v : node.inputs) {
    inputs.push_back(v == ir::kNone ? ir::kNone : graph.type_id(v));
    constants.push_back(graph.ConstantOf(v));
  }
  auto types =
      InferTypes(graph.module(), *node.op, node.attrs, inputs, constants, node.outputs.size());
  if (!types.ok()) {
    return WithInputs(std::move(types).TakeStatus(), graph, node.inputs).At(graph.Describe(id));
  }
  return types;
}

Status WithInputs(Status status, const ir::Graph& graph, std::span<const ir::ValueId> inputs) {
  constexpr size_t kShown = 8;
  if (status.ok() || status.error_class() == ErrorClass::kInternal || inputs.empty()) return status;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, inputs.size()); ++i)
    text += (i == 0 ? "" : "; ") + DescribeInput(graph, inputs[i]);
  if (inputs.size() > kShown) text += fmt::format("; and {} more", inputs.size() - kShown);
  return Status::Error(status.error_class(), status.id(),
                       fmt::format("{} (inputs: {})", status.message(), text));
}

Result<bool> Reinfer(ir::Graph& graph, ir::NodeId id) {
  AMPC_ASSIGN(const std::vector<ir::TypeId> types, InferNode(graph, id));
  bool changed = false;
  for (size_t i = 0; i < types.size(); ++i) {
    const ir::ValueId out = graph.node(id).outputs[i];
    if (out == ir::kNone || graph.type_id(out) == types[i]) continue;
    graph.SetType(out, types[i]);
    changed = true;
  }
  return changed;
}

namespace {

std::vector<Attrs::Entry> DefaultsOf(const OpDef& op) {
  std::vector<Attrs::Entry> defaults;
  if (!op.domain.empty()) return defaults;
  const auto* schema =
      onnx::OpSchemaRegistry::Instance()->GetSchema(std::string(op.name), kCanonicalOpset, "");
  if (schema == nullptr) return defaults;
  for (const auto& [name, attribute] : schema->attributes()) {
    if (attribute.default_value.name().empty()) continue;
    if (auto value = AttrFromProto(attribute.default_value); value.ok())
      defaults.emplace_back(name, std::move(*value));
  }
  return defaults;
}

}  // namespace

void FillDefaults(ir::Module& module, const OpDef& op, Attrs& attrs) {
  auto& known = CacheOf(module).defaults;
  auto it = known.find(&op);
  if (it == known.end()) it = known.emplace(&op, DefaultsOf(op)).first;
  for (const Attrs::Entry& entry : it->second) {
    if (!attrs.Has(entry.first)) attrs.Set(entry.first, entry.second);
  }
}

Status InferSame(InferContext& c) {
  c.outputs = {c.in(0)};
  return {};
}

Status InferFromDims(InferContext& c) {
  const auto to = static_cast<DType>(c.attrs.Int("to", static_cast<int64_t>(c.in(0).dtype)));
  c.outputs = {{to, c.attrs.Ints("dims")}};
  return {};
}

}  // namespace ampc
