// SPDX-License-Identifier: Apache-2.0
// Module to text; the form is described in text.h.
#include <filesystem>
#include <iterator>

#include <fmt/format.h>

#include "compiler/ir/text.h"
#include "compiler/ir/text_data.h"
#include "compiler/ir/text_words.h"
#include "compiler/ops/op_def.h"

namespace ampc::ir {
namespace {

class Printer {
 public:
  Status ModuleText(const Module& module);
  void NodeLine(const Graph& graph, NodeId id);
  std::string Take() { return std::move(out_); }

 private:
  Status State(const Module& module, const StateVar& state);
  Status Bytes(const StateVar& state, const TensorType& type);
  void GraphBlock(const Graph& graph, std::string_view place);
  void Feeds(const Graph& graph);
  void StateNames(const Graph& graph);
  void Layout(const Value& value);
  void Attribute(const Attr& attr);
  template <typename Items, typename F>
  void List(const Items& items, F print);
  /// `clause (items)` on one line, or an item per line when there are many.
  template <typename T, typename F>
  void Clause(std::string_view clause, const std::vector<T>& items, F print);

  void Quoted(std::string_view name) { AppendQuoted(name, &out_); }
  template <typename... Args>
  void Put(fmt::format_string<Args...> f, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), f, std::forward<Args>(args)...);
  }

  std::string out_;
};

Status Printer::ModuleText(const Module& module) {
  if (!module.states.empty()) {
    out_ += "state {\n";
    for (const StateVar& state : module.states) AMPC_TRY(State(module, state));
    out_ += "}\n";
  }
  if (module.train) GraphBlock(*module.train, "train");
  if (module.apply) GraphBlock(*module.apply, "apply");
  if (module.update) GraphBlock(*module.update, "update");
  if (module.eval) GraphBlock(*module.eval, "eval");
  return {};
}

// ---- states -------------------------------------------------------------------------------------

Status Printer::State(const Module& module, const StateVar& state) {
  const TensorType& type = module.types.Get(state.type);
  Put("  {} ", RoleWord(state.role));
  if (state.trainable) out_ += "trainable ";
  if (!state.setting.empty()) {
    out_ += "setting ";
    Quoted(state.setting);
    out_ += ' ';
  }
  Quoted(state.name);
  Put(" : {} = ", ToString(type));
  switch (state.initial.kind) {
    case plan::Initial::Kind::kFill:
      out_ += "fill(";
      AppendDouble(state.initial.fill, &out_);
      out_ += ')';
      break;
    case plan::Initial::Kind::kAuto:
      out_ += "auto";
      break;
    case plan::Initial::Kind::kDerived:
      out_ += "derived(";
      Quoted(module.state(state.initial.derived_from).name);
      out_ += ')';
      break;
    case plan::Initial::Kind::kBytes:
      AMPC_TRY(Bytes(state, type));
      break;
  }
  if (state.source != DefaultSource(state.role, state.name)) {
    out_ += " source ";
    Quoted(state.source);
  }
  out_ += '\n';
  return {};
}

Status Printer::Bytes(const StateVar& state, const TensorType& type) {
  const Initial& initial = state.initial;
  if (initial.stored != type.dtype) Put("{} ", Name(initial.stored));
  const ByteRef& ref = initial.bytes;
  if (const std::string_view path = ref.source->path(); !path.empty()) {
    // The text may move, and be read from another folder; its bytes stay where they are.
    Quoted(std::filesystem::absolute(path).lexically_normal().string());
    Put(":{}:{}", ref.source->base() + ref.offset, ref.length);
    return {};
  }
  std::vector<std::byte> bytes(static_cast<size_t>(ref.length));
  AMPC_TRY(ref.source->Read(ref.offset, bytes));
  AppendData(initial.stored, bytes, &out_);
  return {};
}

// ---- graphs -------------------------------------------------------------------------------------

template <typename Items, typename F>
void Printer::List(const Items& items, F print) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out_ += ", ";
    first = false;
    print(item);
  }
}

template <typename T, typename F>
void Printer::Clause(std::string_view clause, const std::vector<T>& items, F print) {
  constexpr size_t kOnOneLine = 4;
  Put("\n  {} (", clause);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_ += items.size() > kOnOneLine ? "," : ", ";
    if (items.size() > kOnOneLine) out_ += "\n    ";
    print(items[i]);
  }
  out_ += ')';
}

void Printer::GraphBlock(const Graph& graph, std::string_view place) {
  out_ += place;
  out_ += ' ';
  if (graph.name() != place) {
    Quoted(graph.name());
    out_ += ' ';
  }
  Feeds(graph);
  if (!graph.outputs().empty()) {
    Clause("=>", graph.outputs(), [&](const OutputInfo& output) {
      Quoted(output.name);
      if (graph.value(output.value).name == output.name) return;
      out_ += " = ";
      Quoted(graph.value(output.value).name);
    });
  }
  StateNames(graph);
  if (!graph.nexts().empty()) {
    Clause("next", graph.nexts(), [&](const NextInfo& next) {
      Quoted(graph.module().state(next.state).name);
      out_ += " = ";
      Quoted(graph.value(next.value).name);
    });
  }
  out_ += "\n{\n";
  for (NodeId n = graph.first(); n != kNone; n = graph.node(n).next) {
    out_ += "  ";
    NodeLine(graph, n);
    out_ += '\n';
  }
  out_ += "}\n";
}

void Printer::Feeds(const Graph& graph) {
  out_ += '(';
  List(graph.feeds(), [&](const FeedInfo& feed) {
    const Value& value = graph.value(feed.value);
    Put("{} ", ToString(graph.type(feed.value)));
    Quoted(feed.name);
    if (value.name != feed.name) {
      out_ += " as ";
      Quoted(value.name);
    }
    if (feed.kind != plan::Feed::Kind::kInput) Put(" {}", FeedWord(feed.kind));
    if (feed.limit != 0) Put(" limit {}", feed.limit);
    if (feed.from_end) out_ += " from_end";
    if (feed.has_ignore) Put(" ignore {}", feed.ignore);
    Layout(value);
  });
  out_ += ')';
}

// States are known by their own names; only the others need to be said. In the order of the states.
void Printer::StateNames(const Graph& graph) {
  const Module& module = graph.module();
  std::vector<StateId> renamed;
  for (StateId s = 0; s < static_cast<StateId>(module.states.size()); ++s) {
    const ValueId v = graph.FindState(s);
    if (v == kNone || graph.value(v).uses.empty()) continue;
    const Value& value = graph.value(v);
    if (value.name != module.state(s).name || value.layout != Layout::kRowMajor) {
      renamed.push_back(s);
    }
  }
  if (renamed.empty()) return;
  Clause("with", renamed, [&](StateId s) {
    const Value& value = graph.value(graph.FindState(s));
    Quoted(module.state(s).name);
    out_ += " as ";
    Quoted(value.name);
    Layout(value);
  });
}

void Printer::Layout(const Value& value) {
  if (value.layout == Layout::kChannelsLast) out_ += " channels_last";
}

void Printer::NodeLine(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (const std::string& label = graph.module().locs.Get(node.loc); !label.empty()) {
    out_ += '[';
    Quoted(label);
    out_ += "] ";
  }
  List(node.outputs, [&](ValueId v) {
    Quoted(v == kNone ? std::string_view() : graph.value(v).name);
    if (v != kNone) Layout(graph.value(v));
  });
  Put(" = {}{}{}", node.op->domain, node.op->domain.empty() ? "" : ".", node.op->name);
  if (!node.attrs.empty()) {
    out_ += " <";
    List(node.attrs.entries(), [&](const Attrs::Entry& entry) {
      const bool plain = IsIdentifier(entry.first);
      if (plain) {
        out_ += entry.first;
      } else {
        Quoted(entry.first);
      }
      Put(": {} = ", kAttrWords[entry.second.index()]);
      Attribute(entry.second);
    });
    out_ += '>';
  }
  out_ += " (";
  List(node.inputs,
       [&](ValueId v) { Quoted(v == kNone ? std::string_view() : graph.value(v).name); });
  out_ += ")  # ";
  List(node.outputs, [&](ValueId v) { out_ += v == kNone ? "-" : ToString(graph.type(v)); });
}

void Printer::Attribute(const Attr& attr) {
  const auto integer = [this](int64_t v) { Put("{}", v); };
  const auto real = [this](double v) { AppendDouble(v, &out_); };
  const auto text = [this](const std::string& v) { Quoted(v); };
  if (const auto* i = std::get_if<int64_t>(&attr)) {
    integer(*i);
  } else if (const auto* f = std::get_if<double>(&attr)) {
    real(*f);
  } else if (const auto* s = std::get_if<std::string>(&attr)) {
    text(*s);
  } else if (const auto* t = std::get_if<std::shared_ptr<const HostTensor>>(&attr)) {
    Put("{} ", ToString(TensorType{(*t)->dtype, (*t)->dims}));
    AppendData((*t)->dtype, (*t)->data, &out_);
  } else {
    out_ += '[';
    if (const auto* is = std::get_if<std::vector<int64_t>>(&attr)) List(*is, integer);
    if (const auto* fs = std::get_if<std::vector<double>>(&attr)) List(*fs, real);
    if (const auto* ss = std::get_if<std::vector<std::string>>(&attr)) List(*ss, text);
    out_ += ']';
  }
}

}  // namespace

Result<std::string> PrintModule(const Module& module) {
  Printer printer;
  AMPC_TRY(printer.ModuleText(module));
  return printer.Take();
}

std::string PrintNode(const Graph& graph, NodeId node) {
  Printer printer;
  printer.NodeLine(graph, node);
  return printer.Take();
}

}  // namespace ampc::ir
