// SPDX-License-Identifier: Apache-2.0
#pragma once
// Canonical forms: what a node of any accepted opset means in the canonical one. Internal to
// compiler/onnx.
//
// A rule edits the node in place (attributes become inputs, defaults that changed are written out),
// or gives the values that replace its outputs: shape arithmetic that types alone decide,
// sequences, Identity.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/ir/graph.h"

namespace ampc {

/// A node on its way into the IR.
struct SourceNode {
  std::string op;
  int version = 0;  ///< of the schema that the source uses
  Attrs attrs;
  std::vector<ir::ValueId> inputs;     ///< kNone = left out; no trailing ones
  std::vector<bool> wanted;            ///< per output: something reads it
  std::vector<std::string> sequences;  ///< per input: name of the sequence that it is, or ""

  /// Set when values replace the node; one per output, kNone where not wanted.
  std::optional<std::vector<ir::ValueId>> results;
  /// Set when output 0 is a sequence of these values.
  std::optional<std::vector<ir::ValueId>> sequence;

  void Replace(ir::ValueId v) { results = {v}; }
  bool Has(size_t i) const { return i < inputs.size() && inputs[i] != ir::kNone; }
};

struct CanonicalContext {
  ir::Graph& graph;
  ir::Builder b;       ///< constants and helper nodes, at the end of the graph
  bool widen = false;  ///< every float becomes fp64
  const std::map<std::string, std::vector<ir::ValueId>>& sequences;

  const ir::TensorType& type(const SourceNode& n, size_t i) const {
    return graph.type(n.inputs[i]);
  }
  /// The constant behind input i, or null.
  const HostTensor* Constant(const SourceNode& n, size_t i) const {
    return n.Has(i) ? graph.ConstantOf(n.inputs[i]) : nullptr;
  }
  DType Float(DType t) const { return widen && IsFloat(t) ? DType::kFloat64 : t; }
};

using CanonicalRule = Status (*)(CanonicalContext&, SourceNode&);

/// The rule for an op of domain "", or null when its form is the same in all accepted opsets.
CanonicalRule FindCanonicalRule(std::string_view op);
/// True when the rule can leave a node that needs no row of its own (Shape, Identity, CastLike,
/// sequences, …).
bool RuleReplaces(std::string_view op);
// Rules by file.
struct CanonicalRow {
  std::string_view op;
  CanonicalRule rule = nullptr;
  bool replaces = false;        ///< no node of this op is left
  uint32_t constant_slots = 0;  ///< bit i: input i is known at compile time, no gradient reaches it
  uint32_t table_slots = 0;     ///< bit i: an initializer at input i is a table, not a parameter
};
/// The row of an op of domain ""; one without a rule when there is none.
const CanonicalRow& CanonicalRowOf(std::string_view op);
std::span<const CanonicalRow>
FormRules();  // canonical.cc: attributes that became inputs, changed defaults
std::span<const CanonicalRow> ValueRules();      // canonical_values.cc: constants, types, sequences
std::span<const CanonicalRow> AttentionRules();  // canonical_attention.cc
std::span<const CanonicalRow>
RewriteRules();  // canonical_rewrites.cc: ops that are others in a fixed arrangement
std::span<const CanonicalRow> EinsumRules();   // canonical_einsum.cc
std::span<const CanonicalRow> PoolRules();     // canonical_pool.cc
std::span<const CanonicalRow> SpatialRules();  // canonical_spatial.cc
/// An op of a training graph that ONNX does not have.
struct TrainingRow {
  std::string_view domain, op;
  CanonicalRule rule;
};
/// The rule for it, or null (canonical_backward.cc).
CanonicalRule FindTrainingRule(std::string_view domain, std::string_view op);
/// Pads that repeat elements become Gathers (canonical_rewrites.cc); a constant pad stays.
Status CanonicalPadMode(CanonicalContext& c, SourceNode& n);

}  // namespace ampc
