// SPDX-License-Identifier: Apache-2.0
#pragma once
// The source model while it is imported: the parsed ModelProto without large weight bytes, and what
// is known of every initializer. Internal to compiler/onnx.
//
//   LoadModel      reads and parses, checks versions
//   SettleConstants  moves large Constant nodes, and those that --trainable names, to the
//   initializers CountUses      where every initializer is read Untie          gives independent
//   parameters that an exporter merged a copy each Classify       what each initializer becomes: a
//   parameter, a statistic, a constant; and why

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <onnx/onnx_pb.h>

#include "compiler/diagnostics.h"
#include "compiler/onnx/weights.h"
#include "compiler/ops/op_def.h"
#include "passes/options.h"
#include "runtime/base/glob.h"

namespace onnx {
class OpSchema;
}

namespace ampc {

/// Initializers up to this many elements that do not train become Constant nodes, whose values
/// passes see.
inline constexpr int64_t kMaxConstantElements = 64 << 10;
/// Oldest and newest opset of domain "" that is read.
inline constexpr int kOldestOpset = 7;
/// Calls of model-local functions within each other.
inline constexpr size_t kMaxCallDepth = 256;

/// "" and "ai.onnx" are one domain.
inline std::string_view DomainOf(std::string_view domain) {
  return domain == "ai.onnx" ? "" : domain;
}

/// Opset versions that a model or a function imports, by domain.
class Opsets {
 public:
  void Set(std::string_view domain, int64_t version) {
    versions_[std::string(DomainOf(domain))] = version;
  }
  /// 0 when the domain is not imported.
  int For(std::string_view domain) const {
    auto it = versions_.find(std::string(DomainOf(domain)));
    return it == versions_.end() ? 0 : static_cast<int>(it->second);
  }

 private:
  std::unordered_map<std::string, int64_t> versions_;
};

/// One read of an initializer by a node of the main graph (through Identity nodes) or by an output
/// of the graph.
struct SourceUse {
  int node = -1;  ///< index in graph().node(); -1: graph output number `slot`
  int slot = 0;
  /// What happens there; functions and ops that only move elements are looked through.
  bool statistic = false;       ///< a running statistic
  bool differentiable = false;  ///< a gradient can flow
  bool parameter = false;       ///< and what is read there is a parameter by its nature
  bool scalar = true;           ///< only arithmetic, where one element is a Python scalar
  std::string where = {};       ///< "BatchNormalization-15 input 3"
};

struct SourceTensor {
  std::string name;      ///< in the model as it is exported
  std::string original;  ///< before Untie
  TensorData data;
  std::vector<SourceUse> uses = {};
  bool from_constant = false;          ///< was the value of a Constant node
  std::optional<ValueScan> scan = {};  ///< ScanOf() keeps it
  bool in_update = false;              ///< the update of training_info reads it

  // Set by Classify.
  bool is_state = false;  ///< becomes a StateVar, else Constant
  plan::Role role = plan::Role::kConstant;
  bool trainable = false;
  std::string reason = {};

  bool is_float() const { return IsFloat(data.form.dtype); }
  bool one_element() const { return data.form.elements == 1; }
};

/// How the message of an unsupported part ends; a list of parts says it once.
inline constexpr std::string_view kNotSupported = ", which is not supported";

/// A tensor or an input that cannot be imported.
struct UnsupportedPart {
  std::string id;    ///< of the error, when it is the only part
  std::string what;  ///< "tensor 'w' has element type FLOAT8E5M2"
};

/// Values of a float tensor, read once.
Result<ValueScan> ScanOf(SourceTensor& tensor);

struct Function {
  const onnx::FunctionProto* proto = nullptr;
  Opsets opsets;
};

struct TrainingPart;  // training.h

class SourceModel {
 public:
  SourceModel(std::unique_ptr<onnx::ModelProto> proto, ModelFiles files, std::string name);
  SourceModel(SourceModel&&) noexcept;
  SourceModel& operator=(SourceModel&&) noexcept;
  ~SourceModel();

  onnx::ModelProto& proto() { return *proto_; }
  const onnx::ModelProto& proto() const { return *proto_; }
  const onnx::GraphProto& graph() const { return proto_->graph(); }
  const std::string& name() const { return name_; }
  ModelFiles& files() { return files_; }
  const Opsets& opsets() const { return opsets_; }
  std::vector<SourceTensor>& tensors() { return tensors_; }
  /// Initializers that cannot be imported; they are not among tensors().
  const std::vector<UnsupportedPart>& unsupported() const { return unsupported_; }
  void AddUnsupported(const Status& status);
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  /// The function that a node calls, or null.
  const Function* FindFunction(const onnx::NodeProto& node) const;
  /// Adds a tensor that is, or becomes, an initializer.
  void AddTensor(SourceTensor tensor) { tensors_.push_back(std::move(tensor)); }
  /// What the model brings along for its training; null in others.
  const TrainingPart* training() const { return training_.get(); }
  TrainingPart* training() { return training_.get(); }
  void SetTraining(std::unique_ptr<TrainingPart> training);

 private:
  std::unique_ptr<onnx::ModelProto> proto_;
  ModelFiles files_;
  std::string name_;
  Opsets opsets_;
  std::unordered_map<std::string, Function> functions_;
  std::vector<SourceTensor> tensors_;
  std::vector<UnsupportedPart> unsupported_;
  std::unique_ptr<TrainingPart> training_;
};

/// Adds what an initializer is to the tensors, or to what is not supported. Errors: E0104, E0105.
Status AddInitializer(SourceModel& source, const onnx::TensorProto& tensor);
/// The same for a sparse one, which is not supported.
void AddSparseInitializer(SourceModel& source, const onnx::SparseTensorProto& sparse);

/// Reads a model file (`.onnxtext`: ONNX's text syntax). Errors: E0101, E0104, E0105, E0114.
Result<SourceModel> LoadModel(const std::string& path);
/// The same from ONNX text; external data is looked up in `folder`.
Result<SourceModel> LoadModelText(const std::string& text, const std::string& folder);
/// E0103: a node of a body or a function makes a name that it can see already.
Status CheckBodyNames(const SourceModel& source);
/// Lists every op, input and tensor that cannot be imported, functions included, in one error. Ok
/// when there is none. Errors: E0102, E0104, and E0103 of a graph without an order.
Status CheckSupport(const SourceModel& source);
/// LoadModel's result made ready for import: all of the steps above.
Status PrepareSource(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics);

// The steps of PrepareSource.
Status SettleConstants(SourceModel& source, const CompileOptions& options);
void CountUses(SourceModel& source);
Status Untie(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics);
Status Classify(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics);

/// The newest opset that is known.
int NewestOpset();
/// Schema of an op at an opset version of its domain, or null.
const onnx::OpSchema* SchemaOf(std::string_view op, int opset, std::string_view domain);
/// "node '/fc1/MatMul' (MatMul-13)"; an unnamed node is known by its op and first output.
std::string DescribeNode(const onnx::NodeProto& node, const Opsets& opsets);
std::string LabelOf(const onnx::NodeProto& node);
/// "MatMul-13", "com.microsoft.FusedMatMul-1"
std::string OpWithVersion(const onnx::NodeProto& node, const Opsets& opsets);

}  // namespace ampc
