// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the patterns of the pass `recover` are written with: looking at a graph from one node, and
// the nodes that a pattern has found.
//
// A pattern starts at its anchor, walks over definitions and single readers, takes the nodes that
// it recognises and, when all is there and Closed, puts one op in the place of the last of them. It
// looks at a bounded number of nodes, so the pass is linear.

#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "passes/passes.h"

namespace ampc {

/// `value` is what a file holds for `expected`: the number itself where fp32 has it, else what a
/// few roundings to fp32 leave of it.
bool IsNumber(double value, double expected);

class Match {
 public:
  Match(ir::Graph& graph, PassContext& context, ir::NodeId anchor)
      : graph_(graph), context_(context), anchor_(anchor) {}

  // ---- looking
  ir::NodeId anchor() const { return anchor_; }
  const ir::Node& node(ir::NodeId n) const { return graph_.node(n); }
  const ir::TensorType& type(ir::ValueId v) const { return graph_.type(v); }
  const Dims& dims(ir::ValueId v) const { return type(v).dims; }
  ir::ValueId out(ir::NodeId n) const { return node(n).outputs[0]; }
  const HostTensor* Constant(ir::ValueId v) const { return graph_.ConstantOf(v); }
  /// True for a node of this standard op. kNone is none.
  bool Is(ir::NodeId n, std::string_view op) const;
  /// The node that gives v as its first output, if it is of this standard op; else kNone.
  ir::NodeId Def(ir::ValueId v, std::string_view op) const;
  /// The node with the only use of v; kNone when there are more, or v leaves the graph.
  ir::NodeId OnlyReader(ir::ValueId v) const;
  /// Of two uses of v, the one by a node of this standard op; else kNone.
  ir::NodeId ReaderOfTwo(ir::ValueId v, std::string_view op) const;
  /// The element of a constant that has one.
  std::optional<double> Number(ir::ValueId v) const;
  bool IsNumber(ir::ValueId v, double expected) const;
  /// Of a node of two operands: the other one; kNone when v is neither, or both.
  ir::ValueId Other(ir::NodeId n, ir::ValueId v) const;
  /// The operands of a two-operand node as (number, the rest), in either order where `commutes`,
  /// else with the number behind. The rest has the dims of the result.
  struct Scaled {
    double number;
    ir::ValueId rest;
  };
  std::optional<Scaled> WithNumber(ir::NodeId n, bool commutes) const;

  // ---- the nodes found
  void Take(ir::NodeId n);
  size_t taken() const { return nodes_.size(); }
  /// Forgets what was taken behind the first `count` nodes: another form is tried.
  void Rewind(size_t count);
  /// Nothing but the result of `root` is seen from outside: no other reader, no output of the
  /// graph, no name in --keep or in a rule of the policy. A rule for some of the nodes speaks of
  /// nodes, too.
  bool Closed(ir::NodeId root) const;
  /// A builder for what replaces the nodes: before `root`, under its location.
  ir::Builder Replacement(ir::NodeId root) const {
    return ir::Builder(graph_, node(root).loc, root);
  }
  /// Puts `by` in the place of the result of `root` and erases the nodes taken.
  Status Replace(ir::NodeId root, ir::ValueId by, ir::Builder& b);
  bool replaced() const { return replaced_; }

 private:
  bool IsNamed(std::string_view value) const;
  bool SplitByRule(const PolicyRule& rule) const;
  bool IsTaken(ir::NodeId n) const { return set_.contains(n); }

  ir::Graph& graph_;
  PassContext& context_;
  ir::NodeId anchor_;
  std::vector<ir::NodeId> nodes_;
  std::unordered_set<ir::NodeId> set_;  // the same
  bool replaced_ = false;
};

/// `dims` filled with one value.
HostTensor Filled(DType dtype, const Dims& dims, double value);

// The patterns, one function per anchor. Each returns an error only for a fault of ours.
Status RecoverAttention(Match& m);   ///< at Softmax
Status RecoverLogSoftmax(Match& m);  ///< at Log
Status RecoverGelu(Match& m);        ///< at Erf
Status RecoverTanhGelu(Match& m);    ///< at Tanh
Status RecoverSwish(Match& m);       ///< at Sigmoid
Status RecoverNorm(Match& m);        ///< at the ReduceMean of the squares: layer and RMS norm
Status RecoverRnn(Match& m);         ///< at the Concat of the states
Status RecoverGroupNorm(Match& m);   ///< at InstanceNormalization

}  // namespace ampc
