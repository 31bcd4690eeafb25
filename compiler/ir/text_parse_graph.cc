// SPDX-License-Identifier: Apache-2.0
// Text to module, second part: graphs and nodes. The form is described in text.h.
#include "compiler/ir/text_data.h"
#include "compiler/ir/text_parser.h"
#include "compiler/ir/verify.h"
#include "compiler/ops/infer.h"
#include "compiler/ops/op_def.h"

namespace ampc::ir {

// ---- graphs -------------------------------------------------------------------------------------

Status Parser::GraphBlock(std::unique_ptr<Graph>* slot, std::string_view place) {
  if (*slot) return Fail(token_.offset, "E0123", "graph '{}' is defined twice", place);
  Advance();
  std::string name(place);
  if (token_.kind == Token::Kind::kString) AMPC_TRY(Name(&name, "a name"));
  *slot = std::make_unique<Graph>(*module_, name);
  graph_ = slot->get();
  outputs_.clear();
  nexts_.clear();
  AMPC_TRY(List("(", ")", [this] { return Feed(); }));
  if (Accept("=>")) AMPC_TRY(List("(", ")", [this] { return Output(); }));
  if (Accept("with")) AMPC_TRY(List("(", ")", [this] { return StateName(); }));
  if (Accept("next")) AMPC_TRY(List("(", ")", [this] { return Next(); }));
  AMPC_TRY(Expect("{"));
  while (!Accept("}")) AMPC_TRY(Node());
  return Finish();
}

Status Parser::Feed() {
  TypeId type = kNone;
  AMPC_TRY(Type(&type));
  const size_t offset = token_.offset;
  FeedInfo info;
  AMPC_TRY(Name(&info.name, "the name of a feed"));
  std::string value = info.name;
  if (Accept("as")) AMPC_TRY(Name(&value, "the name of a value"));
  if (value.empty() || graph_->FindValue(value) != kNone) {
    return Fail(offset, "E0123", "'{}' is empty or defined twice", value);
  }
  Layout layout = Layout::kRowMajor;
  while (true) {
    if (Accept("target")) {
      info.kind = plan::Feed::Kind::kTarget;
    } else if (Accept("valid")) {
      info.kind = plan::Feed::Kind::kValid;
    } else if (Accept("limit")) {
      AMPC_TRY(Integer(&info.limit));
    } else if (Accept("from_end")) {
      info.from_end = true;
    } else if (Accept("ignore")) {
      info.has_ignore = true;
      AMPC_TRY(Integer(&info.ignore));
    } else if (Accept("channels_last")) {
      layout = Layout::kChannelsLast;
    } else {
      break;
    }
  }
  info.value = graph_->AddFeed(value, type, info.kind);
  graph_->SetLayout(info.value, layout);
  graph_->mutable_feeds().back() = std::move(info);
  return {};
}

Status Parser::StateName() {
  const size_t offset = token_.offset;
  std::string state, value;
  AMPC_TRY(Name(&state, "the name of a state"));
  AMPC_TRY(Expect("as"));
  AMPC_TRY(Name(&value, "the name of a value"));
  const StateId id = module_->FindState(state);
  if (id == kNone) return Fail(offset, "E0122", "no state is named '{}'", state);
  if (graph_->FindState(id) != kNone) {
    return Fail(offset, "E0123", "state '{}' is named twice", state);
  }
  if (value.empty() || graph_->FindValue(value) != kNone) {
    return Fail(offset, "E0123", "'{}' is empty or defined twice", value);
  }
  const ValueId v = graph_->State(id);
  graph_->Rename(v, value);
  if (Accept("channels_last")) graph_->SetLayout(v, Layout::kChannelsLast);
  return {};
}

Status Parser::Output() {
  Reference output;
  output.offset = token_.offset;
  // `float y`, `float[2] y` or just `y`: a name may look like a type.
  const Token first = token_;
  AMPC_TRY(Name(&output.name, "the name of an output"));
  if (first.kind == Token::Kind::kIdentifier && (token_.Is("[") || token_.IsName())) {
    const auto dtype = ParseDType(first.text);
    if (!dtype) return Unexpected("',' or ')'");
    std::vector<int64_t> dims;
    if (token_.Is("[")) AMPC_TRY(Dims(&dims, *dtype));
    output.type = module_->types.Intern(*dtype, dims);
    output.offset = token_.offset;
    AMPC_TRY(Name(&output.name, "the name of an output"));
  }
  output.value = output.name;
  if (Accept("=")) AMPC_TRY(Name(&output.value, "the name of a value"));
  outputs_.push_back(std::move(output));
  return {};
}

Status Parser::Next() {
  Reference next;
  next.offset = token_.offset;
  AMPC_TRY(Name(&next.name, "the name of a state"));
  AMPC_TRY(Expect("="));
  AMPC_TRY(Name(&next.value, "the name of a value"));
  nexts_.push_back(std::move(next));
  return {};
}

Status Parser::Resolve(std::string_view name, size_t offset, ValueId* v) {
  *v = graph_->FindValue(name);
  if (*v != kNone) return {};
  const StateId state = module_->FindState(name);
  if (state == kNone) {
    return Fail(offset, "E0122", "no value, feed or state above is named '{}'", name);
  }
  // A state whose value has another name here (`with`) is reachable by that name alone.
  if (graph_->FindState(state) != kNone) {
    return Fail(offset, "E0122", "state '{}' is called '{}' in this graph", name,
                graph_->value(graph_->FindState(state)).name);
  }
  *v = graph_->State(state);
  return {};
}

Status Parser::Finish() {
  for (const Reference& output : outputs_) {
    ValueId v = kNone;
    AMPC_TRY(Resolve(output.value, output.offset, &v));
    if (graph_->FindOutput(output.name) != kNone || output.name.empty()) {
      return Fail(output.offset, "E0123", "output '{}' is empty or defined twice", output.name);
    }
    if (output.type != kNone && output.type != graph_->type_id(v)) {
      return Fail(output.offset, "E0124", "output '{}' is declared {}, it is {}", output.name,
                  ToString(module_->types.Get(output.type)), ToString(graph_->type(v)));
    }
    graph_->SetOutput(output.name, v);
  }
  for (const Reference& next : nexts_) {
    const StateId state = module_->FindState(next.name);
    if (state == kNone) return Fail(next.offset, "E0122", "no state is named '{}'", next.name);
    if (graph_->FindNext(state) != kNone) {
      return Fail(next.offset, "E0123", "state '{}' has two next values", next.name);
    }
    ValueId v = kNone;
    AMPC_TRY(Resolve(next.value, next.offset, &v));
    if (graph_->type_id(v) != module_->state(state).type) {
      return Fail(next.offset, "E0124", "state '{}' is {}, its next value is {}", next.name,
                  ToString(module_->types.Get(module_->state(state).type)),
                  ToString(graph_->type(v)));
    }
    graph_->SetNext(state, v);
  }
  return {};
}

// ---- nodes --------------------------------------------------------------------------------------

Status Parser::Node() {
  const size_t offset = token_.offset;
  LocId loc = 0;
  if (Accept("[")) {
    std::string label;
    AMPC_TRY(Name(&label, "a label"));
    AMPC_TRY(Expect("]"));
    loc = module_->locs.Intern(label);
  }
  std::vector<Operand> outputs;
  do {
    AMPC_TRY(NodeOutput(&outputs.emplace_back()));
  } while (Accept(","));
  AMPC_TRY(Expect("="));
  const size_t op_offset = token_.offset;
  if (token_.kind != Token::Kind::kIdentifier) return Unexpected("an op");
  const std::string_view full = token_.text;  // a view of the text: stays valid
  const size_t dot = full.rfind('.');
  const std::string_view domain = dot == std::string_view::npos ? "" : full.substr(0, dot);
  const OpDef* op = FindOp(domain, dot == std::string_view::npos ? full : full.substr(dot + 1));
  if (op == nullptr) return Fail(op_offset, "E0121", "unknown op '{}'", full);
  Advance();
  Attrs attrs;
  if (token_.Is("<")) AMPC_TRY(Attributes(&attrs));
  std::vector<ValueId> inputs;
  const auto input = [&] {
    const size_t name_offset = token_.offset;
    std::string name;
    AMPC_TRY(Name(&name, "the name of a value"));
    ValueId v = kNone;
    if (!name.empty()) AMPC_TRY(Resolve(name, name_offset, &v));
    inputs.push_back(v);
    return Status();
  };
  AMPC_TRY(List("(", ")", input));
  if (token_.Is("<")) AMPC_TRY(Attributes(&attrs));  // ONNX allows them here, too
  return MakeNode(*op, std::move(attrs), inputs, outputs, loc, offset);
}

Status Parser::NodeOutput(Operand* output) {
  const Token first = token_;
  AMPC_TRY(Name(&output->name, "the name of an output, or '}'"));
  output->offset = first.offset;
  const bool more = token_.Is("[") || (token_.IsName() && !token_.Is("channels_last"));
  if (first.kind == Token::Kind::kIdentifier && more) {
    const auto dtype = ParseDType(first.text);
    if (!dtype) return Unexpected("',' or '='");
    std::vector<int64_t> dims;
    if (token_.Is("[")) AMPC_TRY(Dims(&dims, *dtype));
    output->type = module_->types.Intern(*dtype, dims);
    output->offset = token_.offset;
    AMPC_TRY(Name(&output->name, "the name of an output"));
  }
  if (Accept("channels_last")) output->layout = Layout::kChannelsLast;
  return {};
}

Status Parser::Attributes(Attrs* attrs) {
  return List("<", ">", [&] {
    const size_t offset = token_.offset;
    std::string name, type;
    AMPC_TRY(Name(&name, "the name of an attribute"));
    if (attrs->Has(name)) return Fail(offset, "E0123", "attribute '{}' is given twice", name);
    if (Accept(":")) AMPC_TRY(Name(&type, "the type of an attribute"));
    AMPC_TRY(Expect("="));
    Attr value;
    AMPC_TRY(Attribute(type, &value));
    attrs->Set(name, std::move(value));
    return Status();
  });
}

// Without a type the first token decides, as in ONNX text: 1 is an int, 1.0 a float, "a" a string,
// [ a list, else a tensor.
Status Parser::Attribute(std::string_view type, Attr* value) {
  std::string kind(type);
  const bool list = token_.Is("[");
  const size_t list_offset = token_.offset;
  if (list) Advance();
  if (kind.empty()) {
    if (token_.kind == Token::Kind::kString) {
      kind = "string";
    } else if (token_.kind == Token::Kind::kNumber && ParseInt64(token_.text)) {
      kind = "int";
    } else if (token_.kind == Token::Kind::kNumber || token_.Is("inf") || token_.Is("nan")) {
      kind = "float";
    } else if (!list) {
      kind = "tensor";
    }
    if (list) kind += kind.empty() ? "ints" : "s";
  }
  if (list != kind.ends_with('s')) {
    return Fail(list_offset, "E0124", "an attribute of type {} {} in brackets", kind,
                list ? "doesn't stand" : "stands");
  }
  const auto elements = [&]<typename T>(T, auto read) {
    std::vector<T> items;
    if (!Accept("]")) {
      do {
        AMPC_TRY(read(&items.emplace_back()));
      } while (Accept(","));
      AMPC_TRY(Expect("]"));
    }
    *value = std::move(items);
    return Status();
  };
  const auto integer = [this](int64_t* v) { return Integer(v); };
  const auto real = [this](double* v) { return Real(v); };
  const auto text = [this](std::string* v) {
    if (token_.kind != Token::Kind::kString) return Unexpected("a string");
    return Name(v, "a string");
  };
  if (kind == "int") return integer(&value->emplace<int64_t>());
  if (kind == "float") return real(&value->emplace<double>());
  if (kind == "string") return text(&value->emplace<std::string>());
  if (kind == "ints") return elements(int64_t{}, integer);
  if (kind == "floats") return elements(double{}, real);
  if (kind == "strings") return elements(std::string{}, text);
  if (kind == "tensor") return Tensor(value);
  return Fail(list_offset, "E0124",
              "attribute type '{}'; known are int, float, string, ints, floats, strings, tensor",
              kind);
}

Status Parser::Tensor(Attr* value) {
  TypeId type = kNone;
  AMPC_TRY(Type(&type));
  auto tensor = std::make_shared<HostTensor>();
  tensor->dtype = module_->types.Get(type).dtype;
  tensor->dims = module_->types.Get(type).dims;
  AMPC_TRY(Data(module_->types.Get(type), &tensor->data));
  *value = std::shared_ptr<const HostTensor>(std::move(tensor));
  return {};
}

Status Parser::MakeNode(const OpDef& op, Attrs attrs, const std::vector<ValueId>& inputs,
                        const std::vector<Operand>& outputs, LocId loc, size_t offset) {
  const auto count = [](const Arity& arity) {
    if (arity.min == arity.max) return fmt::format("{}", arity.min);
    if (arity.max >= kVariadic) return fmt::format("{} or more", arity.min);
    return fmt::format("{} to {}", arity.min, arity.max);
  };
  const auto outside = [](const Arity& arity, size_t n) {
    return n < static_cast<size_t>(arity.min) || n > static_cast<size_t>(arity.max);
  };
  if (outside(op.in, inputs.size())) {
    return Fail(offset, "E0126", "{} takes {} inputs, {} are given", op.name, count(op.in),
                inputs.size());
  }
  if (outside(op.out, outputs.size())) {
    return Fail(offset, "E0126", "{} has {} outputs, {} are named", op.name, count(op.out),
                outputs.size());
  }
  if (const auto missing = MissingInput(op, inputs)) {
    return Fail(offset, "E0126", "{} can't do without input {}", op.name, *missing);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].name.empty() || MayLackOutput(op, i)) continue;
    return Fail(offset, "E0126", "{} can't do without output {}", op.name, i);
  }
  std::vector<TypeId> input_types;
  std::vector<const HostTensor*> constants;
  for (ValueId v : inputs) {
    input_types.push_back(v == kNone ? kNone : graph_->type_id(v));
    constants.push_back(graph_->ConstantOf(v));
  }
  auto types = InferTypes(*module_, op, attrs, input_types, constants, outputs.size());
  if (!types.ok()) return Place(offset, WithInputs(std::move(types).TakeStatus(), *graph_, inputs));
  std::vector<std::string_view> names;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Operand& out = outputs[i];
    names.push_back(out.name);
    if (out.name.empty()) {
      (*types)[i] = kNone;
      continue;
    }
    if (out.type != kNone && out.type != (*types)[i]) {
      return Fail(out.offset, "E0124", "'{}' is declared {}, it is {}", out.name,
                  ToString(module_->types.Get(out.type)),
                  ToString(module_->types.Get((*types)[i])));
    }
  }
  const NodeId n = graph_->AddNode(op, std::move(attrs), inputs, *types, loc, kNone, names);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId v = graph_->node(n).outputs[i];
    if (v == kNone) continue;
    if (graph_->value(v).name != outputs[i].name) {  // the graph made it unique
      return Fail(outputs[i].offset, "E0123", "value '{}' is defined twice", outputs[i].name);
    }
    graph_->SetLayout(v, outputs[i].layout);
  }
  return {};
}

}  // namespace ampc::ir
