// SPDX-License-Identifier: Apache-2.0
#pragma once
// The sweep that builds the graph. Internal to compiler/onnx; import.h is the way in.

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "compiler/onnx/canonical.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/source.h"

namespace ampc {

using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;

/// Indices of the nodes that `outputs` need: inputs before their readers, the same for every order
/// of the list. Errors: E0103 (a name made twice, a cycle). `skipped` counts the rest.
Result<std::vector<int>> OrderNodes(const Nodes& nodes, const std::vector<std::string>& outputs,
                                    const Opsets& opsets, int* skipped);

/// If, Loop, Scan.
bool IsControlFlow(const onnx::NodeProto& node);
/// Names outside that the bodies of a node read, in the order in which they do.
std::vector<const std::string*> CapturedNames(const onnx::NodeProto& node);

/// True when the op may be imported through the body that its ONNX schema gives it.
bool HasUsableBody(const onnx::OpSchema& schema);

/// Values of the symbolic dims, from the options.
class DimBinding {
 public:
  DimBinding(const CompileOptions& options, DimSet set);
  /// Dims of an input. Unbound ones are collected for Finish().
  Dims Bind(const std::string& input, const onnx::TensorShapeProto& shape);
  /// E0112: unbound dims with the inputs that have them; names that no input has.
  Status Finish() const;
  /// Name -> size of the dims that are bound.
  const std::map<std::string, int64_t>& values() const { return values_; }

 private:
  std::map<std::string, int64_t> values_;
  std::map<std::string, std::vector<std::string>> unbound_;  // dim -> inputs
  std::unordered_set<std::string> known_;
  std::vector<std::string> given_;
};

struct TrainingPart;

class Importer {
 public:
  Importer(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics,
           EvaluateFn evaluate, DimSet dims);
  Result<std::unique_ptr<ir::Module>> Run();
  /// StateId of an initializer, or kNone; after Run().
  ir::StateId StateOf(const std::string& initializer) const;
  /// True when the state of an initializer of this type is kept in a wider one.
  bool Rounds(DType stored) const { return IsLow(stored) || Widened(stored) != stored; }

 private:
  // Names in one graph or function body.
  struct Scope {
    const Opsets* opsets = nullptr;
    std::string prefix;  // of labels and value names: "" or "call/"
    // kNone: an optional input that the caller left out
    std::unordered_map<std::string, ir::ValueId> values;
    std::map<std::string, std::vector<ir::ValueId>> sequences;
    std::unordered_map<std::string, const onnx::AttributeProto*> attributes;  // of the call
    std::unordered_set<std::string_view> read;  // names that a node of the order or an output reads
    Scope* outer = nullptr;                     // of a body: the names around it
  };
  // A value or a sequence that goes into a body or comes out of it.
  struct Carried {
    ir::ValueId value = ir::kNone;
    std::optional<std::vector<ir::ValueId>> sequence;
  };

  // import.cc
  Status AddFeeds(DimBinding& dims);
  Status SetOutputs();
  void NameGradients(const TrainingPart& training);
  void CompareDeclared(const onnx::ValueInfoProto& declared, ir::ValueId value);
  // sweep.cc
  Status ImportNodes(Scope& scope, const Nodes& nodes, const std::vector<int>& order);
  Status ImportNode(Scope& scope, const onnx::NodeProto& node);
  Status ImportTrainingNode(Scope& scope, const onnx::NodeProto& node, CanonicalRule rule);
  // Brings the node into its canonical form and folds what the rule adds.
  Status ApplyRule(Scope& scope, CanonicalRule rule, ir::LocId loc, SourceNode& source);
  Result<SourceNode> ReadNode(const Scope& scope, const onnx::NodeProto& node, int version);
  static bool HasSequence(Scope& scope, const std::string& name);
  Status ReadInputs(Scope& scope, const onnx::NodeProto& node, SourceNode& out);
  Result<Attr> ReadAttribute(const onnx::AttributeProto& attribute);
  Status BuildNode(Scope& scope, const onnx::NodeProto& node, SourceNode& source, const OpDef& op,
                   ir::LocId loc);
  Status WithSizes(Status status) const;
  Status KeepFp32Slots(SourceNode& source, const OpDef& op, ir::Builder& b);
  using Replacements = std::unordered_map<ir::ValueId, ir::ValueId>;
  // Replaces a node whose inputs are constants by Constant nodes of the same names; old output ->
  // new one.
  Status Fold(ir::NodeId n, Replacements& replaced);
  // Folds what a rule has added behind `last`.
  Status FoldAfter(ir::NodeId last, SourceNode& source);
  Status Bind(Scope& scope, const onnx::NodeProto& node, std::span<const ir::ValueId> results);
  // control_flow.cc
  Status ImportControlFlow(Scope& scope, const onnx::NodeProto& node);
  Status ImportIf(Scope& scope, const onnx::NodeProto& node);
  Status ImportLoop(Scope& scope, const onnx::NodeProto& node);
  Status ImportScan(Scope& scope, const onnx::NodeProto& node);
  Result<Scope> BodyScope(Scope& outer, const onnx::NodeProto& node, const onnx::GraphProto& body);
  static Scope IterationScope(Scope& shared, int64_t i);
  Result<std::vector<ir::ValueId>> ScanParts(Scope& scope, const onnx::NodeProto& node, int states,
                                             int k);
  Result<std::vector<Carried>> RunBody(Scope& scope, const onnx::GraphProto& body);
  Result<Carried> ReadCarried(Scope& scope, const std::string& name);
  static void BindCarried(Scope& scope, const std::string& name, const Carried& carried);
  Result<double> KnownScalar(Scope& scope, const std::string& name, std::string_view what);
  Status CountIteration();
  Status StackIterations(Scope& scope, const onnx::NodeProto& node, int output,
                         std::vector<ir::ValueId> parts, int64_t axis, bool backward);
  // functions.cc
  Status CallFunction(Scope& caller, const onnx::NodeProto& node,
                      const onnx::FunctionProto& function, const Opsets& opsets);
  Status CallSchemaFunction(Scope& caller, const onnx::NodeProto& node,
                            const onnx::OpSchema& schema, const SourceNode& source);
  // update.cc: the update of training_info
  Status ImportUpdate(const TrainingPart& training);
  Status SetFirstValues(const TrainingPart& training);
  Status AddUpdateFeeds(const TrainingPart& training);
  Status BindUpdate(const std::string& initializer, const std::string& value);
  Status ImportUpdateNode(Scope& scope, const onnx::NodeProto& node);
  Result<SourceNode> ReadUpdateNode(Scope& scope, const onnx::NodeProto& node);
  Result<size_t> ListLength(const SourceNode& source, const onnx::NodeProto& node,
                            size_t lists) const;
  void SetLearningRate(const std::string& name, ir::ValueId value);
  // The value behind a name: what a node made, or an initializer on its first use.
  Result<ir::ValueId> Lookup(Scope& scope, const std::string& name);
  Result<ir::ValueId> Materialize(const SourceTensor& tensor);
  DType Widened(DType t) const { return widen_ && IsFloat(t) ? DType::kFloat64 : t; }

  SourceModel& source_;
  const CompileOptions& options_;
  Diagnostics& diagnostics_;
  EvaluateFn evaluate_;
  DimSet dim_set_;
  bool widen_;
  std::unique_ptr<ir::Module> module_;
  ir::Graph* graph_ = nullptr;
  Scope main_;
  std::map<std::string, int64_t> bound_;                  // symbolic dims
  std::unordered_map<std::string, size_t> tensor_index_;  // initializers
  std::unordered_map<std::string, ir::StateId> states_;   // by initializer
  std::unordered_map<ir::ValueId, ir::ValueId>
      state_behind_;  // a low-precision parameter's cast -> its fp32 state
  std::vector<const onnx::FunctionProto*> calls_;  // active, for cycles
  int64_t call_count_ = 0;                         // so far
  int64_t iterations_ = 0;                         // of loops, so far
  // In the update: new values that are the current ones where the step is skipped, by the current
  // one.
  std::unordered_map<ir::ValueId, ir::ValueId> predicated_;
  std::deque<onnx::FunctionProto> schema_functions_;  // bodies that ONNX's schemas define
};

/// Inference form of the source and what is exported with it.
Result<SourceInfo> MakeSourceInfo(SourceModel& source, const Importer& importer);

}  // namespace ampc
