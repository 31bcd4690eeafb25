// SPDX-License-Identifier: Apache-2.0
#pragma once
// The IR: a Module is StateVars plus up to three graphs over them (train, apply, eval); until the
// optimizer pass also the update that some models bring along.
//
// A Graph is SSA, functional and flat. Nodes form a doubly linked list in topological order; nodes
// and values are named by ids that index into arrays and never move. Every value knows its uses, so
// edits are local: nothing here is linear in the size of the graph, also with one value of 20,000
// uses. Erased nodes leave holes.
//
// A StateVar is a tensor that outlives a graph run. A graph reads its `current` value (State()) and
// may give it a `next` value (SetNext()), which replaces it when the graph ends. A feed is a graph
// input. Outputs are named values that the host reads, or that a later pass takes by name: "loss",
// "grad:<state>", "found_inf", …

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler/ir/type.h"
#include "runtime/base/attrs.h"
#include "runtime/base/inline_vector.h"
#include "runtime/base/name_index.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace ampc {
struct OpDef;  // compiler/ops/op_def.h
}

namespace ampc::ir {

using plan::Role;

/// Where bytes come from: a file range or memory (a parsed protobuf). Read on demand, copied once
/// into the plan.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual Status Read(int64_t offset, std::span<std::byte> out) const = 0;
  /// The file, or "" for memory.
  virtual std::string_view path() const = 0;
  /// Offset of the source's byte 0 in that file.
  virtual int64_t base() const { return 0; }
};

struct ByteRef {
  std::shared_ptr<const ByteSource> source;
  int64_t offset = 0, length = 0;
};

/// A ByteSource over owned memory.
std::shared_ptr<const ByteSource> MemorySource(std::vector<std::byte> bytes);

/// Initial value of a state.
struct Initial {
  plan::Initial::Kind kind = plan::Initial::Kind::kFill;
  double fill = 0;
  ByteRef
      bytes;  ///< kBytes; the element type is `stored`, which the writer widens to the state's type
  DType stored = DType::kNone;
  StateId derived_from = kNone;
};

struct StateVar {
  std::string name;
  TypeId type = kNone;
  Role role = Role::kWeight;
  Initial initial;
  std::string source;      ///< source initializer, "" for states that passes make
  bool trainable = false;  ///< gradients are wanted
  std::string setting;  ///< "" or the setting of cli.md that overrides it ("lr", "clip_norm", …)
};

/// One use of a value: input `slot` of a node, or output / next number `slot` of the graph.
struct Use {
  static constexpr NodeId kOutput = -2, kNext = -3;
  NodeId node = kNone;
  int32_t slot = 0;
};

enum class ValueKind : uint8_t { kNode, kFeed, kState };

struct Value {
  TypeId type = kNone;
  ValueKind kind = ValueKind::kNode;
  Layout layout = Layout::kRowMajor;
  NodeId def = kNone;     ///< kNode: the defining node
  int32_t index = 0;      ///< output number of the node; StateId for kState; feed number for kFeed
  std::string name = {};  ///< unique in its graph, never empty
  InlineVector<Use, 2> uses = {};  ///< in no particular but deterministic order
};

struct Node {
  const OpDef* op = nullptr;  ///< null: erased
  Attrs attrs;
  InlineVector<ValueId, 4> inputs;     ///< kNone = optional input left out
  InlineVector<ValueId, 2> outputs;    ///< kNone = optional output not wanted
  InlineVector<int32_t, 4> use_index;  ///< inputs[i] is value.uses[use_index[i]]; kept by Graph
  LocId loc = 0;
  NodeId prev = kNone, next = kNone;
};

struct FeedInfo {
  std::string name;
  plan::Feed::Kind kind = plan::Feed::Kind::kInput;
  ValueId value = kNone;
  int64_t limit = 0;        ///< > 0: integers lie in [0, limit)
  bool from_end = false;    ///< … or in [-limit, 0): they count from the end
  bool has_ignore = false;  ///< … or equal `ignore`
  int64_t ignore = 0;
};

struct OutputInfo {
  std::string name;
  ValueId value = kNone;
  int32_t use_index = 0;
};

struct NextInfo {
  StateId state = kNone;
  ValueId value = kNone;
  int32_t use_index = 0;
};

class Module;
struct GraphCorruptor;

class Graph {
 public:
  Graph(Module& module, std::string name) : module_(&module), name_(std::move(name)) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Module& module() const { return *module_; }
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  // ---- values
  const Value& value(ValueId v) const { return values_[static_cast<size_t>(v)]; }
  const TensorType& type(ValueId v) const;
  TypeId type_id(ValueId v) const { return value(v).type; }
  int32_t num_values() const { return static_cast<int32_t>(values_.size()); }
  /// kNone when there is none of that name.
  ValueId FindValue(std::string_view name) const;
  /// Adds a feed. The name must be free.
  ValueId AddFeed(std::string_view name, TypeId type, plan::Feed::Kind kind);
  /// Removes a feed that nothing uses.
  void RemoveFeed(ValueId feed);
  /// The current value of a state, created on the first call.
  ValueId State(StateId state);
  /// kNone when this graph does not read it.
  ValueId FindState(StateId state) const;
  void SetType(ValueId v, TypeId type) { values_[static_cast<size_t>(v)].type = type; }
  void SetLayout(ValueId v, Layout layout) { values_[static_cast<size_t>(v)].layout = layout; }
  /// Gives the value this name, made unique by a suffix when taken.
  void Rename(ValueId v, std::string_view name);

  // ---- nodes
  const Node& node(NodeId n) const { return nodes_[static_cast<size_t>(n)]; }
  int32_t num_nodes() const {
    return static_cast<int32_t>(nodes_.size());
  }  ///< including erased ones
  int32_t num_live_nodes() const { return live_; }
  NodeId first() const { return first_; }
  NodeId last() const { return last_; }
  /// Nodes in order, from a snapshot: safe while the pass edits.
  std::vector<NodeId> Order() const;

  /// Appends a node, or inserts it before `before`. One output value per entry of `types` (kNone:
  /// output not wanted), named after `names` when given, else after the location.
  NodeId AddNode(const OpDef& op, Attrs attrs, std::span<const ValueId> inputs,
                 std::span<const TypeId> types, LocId loc, NodeId before = kNone,
                 std::span<const std::string_view> names = {});
  /// Rewires one input. kNone removes an optional one.
  void SetInput(NodeId n, int32_t slot, ValueId v);
  void SetAttrs(NodeId n, Attrs attrs) { nodes_[static_cast<size_t>(n)].attrs = std::move(attrs); }
  void SetOp(NodeId n, const OpDef& op) { nodes_[static_cast<size_t>(n)].op = &op; }
  void SetLoc(NodeId n, LocId loc) { nodes_[static_cast<size_t>(n)].loc = loc; }
  /// Adds one more output to a node.
  ValueId AddOutputValue(NodeId n, TypeId type, std::string_view name);
  /// Every use of `from` (also by outputs and nexts) becomes a use of `to`.
  void ReplaceUses(ValueId from, ValueId to);
  /// The same, except the uses by node `except`.
  void ReplaceUsesExcept(ValueId from, ValueId to, NodeId except);
  /// Removes a node whose outputs are unused.
  void Erase(NodeId n);
  /// Moves a node in the list: before `before`, or to the end.
  void MoveBefore(NodeId n, NodeId before);

  // ---- feeds, outputs, nexts
  const std::vector<FeedInfo>& feeds() const { return feeds_; }
  std::vector<FeedInfo>& mutable_feeds() { return feeds_; }
  const std::vector<OutputInfo>& outputs() const { return outputs_; }
  const std::vector<NextInfo>& nexts() const { return nexts_; }
  /// Adds or replaces the output of that name.
  void SetOutput(std::string_view name, ValueId v);
  /// kNone when there is none of that name.
  ValueId FindOutput(std::string_view name) const;
  /// Removes the outputs for which `drop(name)` is true, keeping the order of the rest. Linear in
  /// the outputs.
  void RemoveOutputs(const std::function<bool(const std::string&)>& drop);
  /// Adds or replaces the next value of a state.
  void SetNext(StateId state, ValueId v);
  ValueId FindNext(StateId state) const;
  void RemoveNexts(const std::function<bool(StateId)>& drop);

  /// `name`, or where a value has it already NAME.1, NAME.2, …
  std::string UniqueName(std::string_view name);

  /// The constant that a value holds (output of a Constant node), or null.
  const HostTensor* ConstantOf(ValueId v) const;
  /// "node '/fc1/MatMul' (MatMul-13)": how messages name a node.
  std::string Describe(NodeId n) const;
  /// Label of a node: its location, or op type and first output.
  std::string Label(NodeId n) const;

 private:
  friend struct GraphCorruptor;  // tests of the verifier damage a graph with it
  int32_t AddUse(ValueId v, Use use);
  void RemoveUse(ValueId v, int32_t index);
  void RemoveUseOf(ValueId v, NodeId kind);
  int32_t& UseIndexOf(const Use& use);
  ValueId NewValue(Value value, std::string_view name);
  /// The name of a value, for by_name_.
  auto NameOf() const {
    return [this](ValueId v) { return std::string_view(value(v).name); };
  }
  friend class Module;
  void RenumberStates(std::span<const StateId> new_ids);
  /// Entry of a table by StateId, which grows as far.
  template <typename T>
  static T& At(std::vector<T>& table, StateId state) {
    if (table.size() <= static_cast<size_t>(state))
      table.resize(static_cast<size_t>(state) + 1, kNone);
    return table[static_cast<size_t>(state)];
  }

  Module* module_;
  std::string name_;
  std::vector<Value> values_;
  std::vector<Node> nodes_;
  NameIndex by_name_;
  std::unordered_map<std::string, int32_t> name_counters_;
  std::vector<ValueId> state_values_;  // by StateId; kNone where the graph does not read it
  std::vector<FeedInfo> feeds_;
  std::vector<OutputInfo> outputs_;
  std::vector<NextInfo> nexts_;
  std::unordered_map<std::string, int32_t> output_index_;
  std::vector<int32_t> next_index_;  // by StateId: number of its next, or kNone
  NodeId first_ = kNone, last_ = kNone;
  int32_t live_ = 0;
};

/// StateVars and graphs. Not copyable: graphs point back to it.
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  TypeTable types;
  LocTable locs;
  std::vector<StateVar> states;
  std::unique_ptr<Graph> train, apply,
      eval;  ///< before fork-eval, `train` is the model's forward graph
  /// The update that a model brings along, until the optimizer pass puts it into `apply`: feeds
  /// "grad:<state>" (unscaled) and "found_inf"; nexts.
  std::unique_ptr<Graph> update;
  struct InferenceCache* inference =
      nullptr;  ///< memoised type inference (compiler/ops/infer.cc); owned below
  std::shared_ptr<void> inference_owner;

  StateVar& state(StateId s) { return states[static_cast<size_t>(s)]; }
  const StateVar& state(StateId s) const { return states[static_cast<size_t>(s)]; }
  /// Adds a state. Where the name is taken, it becomes NAME.1, NAME.2, …: a model's initializers
  /// may have the names of our own states.
  StateId AddState(StateVar state);
  /// kNone when there is none, here and below.
  StateId FindState(std::string_view name) const;
  /// Our own states are found by what they are: the first of a role, the one that a setting sets.
  StateId FindRole(Role role) const;
  StateId FindSetting(std::string_view setting) const;
  /// The graphs that exist, in the order train, apply, update, eval.
  std::vector<Graph*> graphs() const;
  /// Removes the states for which `drop[state]` is true and renumbers the rest, in their order. No
  /// graph reads or writes a dropped one, and no state that stays is derived from one.
  void RemoveStates(const std::vector<bool>& drop);

 private:
  friend struct GraphCorruptor;
  std::unordered_map<std::string, StateId> state_index_;
};

}  // namespace ampc::ir
