// SPDX-License-Identifier: Apache-2.0
// Reads a model: file -> ModelProto without large weight bytes, versions and names checked.
#include "compiler/onnx/source.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <unordered_set>

#include <onnx/defs/parser.h>
#include <onnx/defs/schema.h>

#include "compiler/onnx/training.h"
#include "runtime/base/file.h"

namespace ampc {
namespace {

// Tensor data of up to this many bytes stays in the ModelProto.
constexpr int64_t kStripAbove = 1024;
constexpr int64_t kMaxTextBytes = 256 << 20;

std::string FunctionKey(std::string_view domain, std::string_view name, std::string_view overload) {
  return fmt::format("{}\n{}\n{}", DomainOf(domain), name, overload);
}

Status CheckOpset(const onnx::OperatorSetIdProto& id, int newest) {
  if (!DomainOf(id.domain()).empty()) return {};  // each node of another domain is judged by itself
  if (id.version() > newest) {
    return Unsupported(
        "E0114",
        "the model uses opset {}, newer than {}, the newest that is known; export it with opset {}",
        id.version(), newest, newest);
  }
  if (id.version() < kOldestOpset) {
    return Unsupported(
        "E0114", "the model uses opset {}, older than {}; convert it with onnx.version_converter",
        id.version(), kOldestOpset);
  }
  return {};
}

Status CheckNamed(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values,
                  std::string_view kind) {
  for (int i = 0; i < values.size(); ++i) {
    if (values[i].name().empty())
      return BadInput("E0103", "{} {} of the graph has no name; ONNX wants one", kind, i);
  }
  return {};
}

Status CheckModel(const onnx::ModelProto& proto) {
  if (!proto.has_graph() || proto.ir_version() <= 0) {
    return BadInput("E0101", "not an ONNX model: it has no {}",
                    proto.has_graph() ? "ir_version" : "graph");
  }
  if (proto.ir_version() > std::numeric_limits<int32_t>::max())
    return BadInput("E0101", "not an ONNX model: its IR version is {}", proto.ir_version());
  const int newest = NewestOpset();
  std::map<std::string_view, int64_t> imports;
  for (const auto& id : proto.opset_import()) {
    AMPC_TRY(CheckOpset(id, newest));
    const auto [it, fresh] = imports.emplace(DomainOf(id.domain()), id.version());
    if (!fresh && it->second != id.version()) {
      return BadInput("E0114", "the model imports opset {} and opset {} of domain '{}'", it->second,
                      id.version(), id.domain());
    }
  }
  std::set<std::string> functions;
  for (const auto& f : proto.functions()) {
    if (!functions.insert(FunctionKey(f.domain(), f.name(), f.overload())).second)
      return BadInput("E0115", "function '{}' of domain '{}' is defined twice", f.name(),
                      f.domain());
  }
  for (const auto& f : proto.functions()) {
    for (const auto& id : f.opset_import()) AMPC_TRY(CheckOpset(id, newest));
  }
  if (proto.opset_import().empty()) {
    return BadInput("E0114", "the model says no opset (opset_import is empty)");
  }
  if (proto.graph().output_size() == 0) return BadInput("E0103", "the graph has no outputs");
  AMPC_TRY(CheckNamed(proto.graph().input(), "input"));
  AMPC_TRY(CheckNamed(proto.graph().output(), "output"));
  return {};
}

Result<SourceModel> Finish(std::unique_ptr<onnx::ModelProto> proto, ModelFiles files,
                           std::string name) {
  AMPC_TRY(CheckModel(*proto));
  SourceModel source(std::move(proto), std::move(files), std::move(name));
  std::unordered_set<std::string_view> seen;
  for (const auto& tensor : source.graph().initializer()) {
    if (tensor.name().empty()) return BadInput("E0103", "an initializer has no name");
    if (!seen.insert(tensor.name()).second) {
      return BadInput("E0103", "initializer '{}' stands in the model twice", tensor.name());
    }
    AMPC_TRY(AddInitializer(source, tensor));
  }
  for (const auto& sparse : source.graph().sparse_initializer())
    AddSparseInitializer(source, sparse);
  AMPC_TRY(CheckBodyNames(source));
  return source;
}

Result<SourceModel> ParseText(const std::string& text, ModelFiles files, std::string name) {
  auto proto = std::make_unique<onnx::ModelProto>();
  try {
    const auto status = onnx::OnnxParser::Parse(*proto, text);
    if (!status.IsOK()) return BadInput("E0101", "not ONNX text: {}", status.ErrorMessage());
  } catch (const std::exception& e) {
    return BadInput("E0101", "not ONNX text: {}", e.what());
  }
  return Finish(std::move(proto), std::move(files), std::move(name));
}

std::string FileName(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

Result<SourceModel> LoadBinary(const std::string& path) {
  StrippedModel stripped;
  {
    AMPC_ASSIGN(const MappedFile file, MappedFile::Open(path));
    if (file.size() == 0) return BadInput("E0101", "not an ONNX model: the file is empty");
    AMPC_ASSIGN(stripped, StripWeights(file.bytes(), kStripAbove));
  }
  auto proto = std::make_unique<onnx::ModelProto>();
  if (stripped.model.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return Unsupported("E0101", "the model has {} bytes besides its weights; protobuf reads 2 GiB",
                       stripped.model.size());
  }
  if (!proto->ParseFromArray(stripped.model.data(), static_cast<int>(stripped.model.size()))) {
    return BadInput("E0101", "not an ONNX model: the protobuf is damaged");
  }
  AMPC_ASSIGN(ModelFiles files, ModelFiles::Open(path, std::move(stripped.regions)));
  return Finish(std::move(proto), std::move(files), FileName(path));
}

}  // namespace

int NewestOpset() {
  const auto& map = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  auto it = map.find("");
  return it == map.end() ? kCanonicalOpset : it->second.second;
}

SourceModel::SourceModel(std::unique_ptr<onnx::ModelProto> proto, ModelFiles files,
                         std::string name)
    : proto_(std::move(proto)), files_(std::move(files)), name_(std::move(name)) {
  for (const auto& id : proto_->opset_import()) opsets_.Set(id.domain(), id.version());
  for (const auto& f : proto_->functions()) {
    Function function{&f, {}};
    for (const auto& id : f.opset_import()) function.opsets.Set(id.domain(), id.version());
    functions_.emplace(FunctionKey(f.domain(), f.name(), f.overload()), std::move(function));
  }
}

SourceModel::SourceModel(SourceModel&&) noexcept = default;
SourceModel& SourceModel::operator=(SourceModel&&) noexcept = default;
SourceModel::~SourceModel() = default;

void SourceModel::SetTraining(std::unique_ptr<TrainingPart> training) {
  training_ = std::move(training);
}

Status AddInitializer(SourceModel& source, const onnx::TensorProto& tensor) {
  auto data = source.files().Find(tensor);
  if (!data.ok() && data.status().error_class() == ErrorClass::kUnsupported) {
    source.AddUnsupported(data.status());
    return {};
  }
  if (!data.ok()) return std::move(data).TakeStatus();
  source.AddTensor({.name = tensor.name(), .original = tensor.name(), .data = std::move(*data)});
  return {};
}

void AddSparseInitializer(SourceModel& source, const onnx::SparseTensorProto& sparse) {
  source.AddUnsupported(Unsupported("E0104", "initializer '{}' is sparse, which is not supported",
                                    sparse.values().name()));
}

void SourceModel::AddUnsupported(const Status& status) {
  std::string what = status.message();
  if (what.ends_with(kNotSupported)) what.resize(what.size() - kNotSupported.size());
  unsupported_.push_back({status.id(), std::move(what)});
}

const Function* SourceModel::FindFunction(const onnx::NodeProto& node) const {
  if (functions_.empty()) return nullptr;
  auto it = functions_.find(FunctionKey(node.domain(), node.op_type(), node.overload()));
  return it == functions_.end() ? nullptr : &it->second;
}

Result<SourceModel> LoadModel(const std::string& path) {
  if (path.ends_with(".onnxtext")) {
    AMPC_ASSIGN(const std::string text, ReadFile(path, kMaxTextBytes));
    auto source = ParseText(text, ModelFiles(DirName(path)), FileName(path));
    if (!source.ok()) return std::move(source).TakeStatus().Of(path);
    return source;
  }
  auto source = LoadBinary(path);
  if (!source.ok()) return std::move(source).TakeStatus().Of(path);
  return source;
}

Result<SourceModel> LoadModelText(const std::string& text, const std::string& folder) {
  return ParseText(text, ModelFiles(folder), "model");
}

Status PrepareSource(SourceModel& source, const CompileOptions& options, Diagnostics& diagnostics) {
  AMPC_TRY(SettleConstants(source, options));
  CountUses(source);
  // Where the gradients are given, so are the parameters.
  if (source.training() == nullptr) AMPC_TRY(Untie(source, options, diagnostics));
  return Classify(source, options, diagnostics);
}

const onnx::OpSchema* SchemaOf(std::string_view op, int opset, std::string_view domain) {
  return onnx::OpSchemaRegistry::Instance()->GetSchema(std::string(op), opset, std::string(domain));
}

std::string LabelOf(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const std::string& out : node.output()) {
    if (!out.empty()) return fmt::format("{}:{}", node.op_type(), out);
  }
  return node.op_type();
}

std::string OpWithVersion(const onnx::NodeProto& node, const Opsets& opsets) {
  const std::string_view domain = DomainOf(node.domain());
  const int opset = opsets.For(domain);
  const onnx::OpSchema* schema = SchemaOf(node.op_type(), opset, domain);
  const int version = schema != nullptr ? schema->SinceVersion() : opset;
  return fmt::format("{}{}{}-{}", domain, domain.empty() ? "" : ".", node.op_type(), version);
}

std::string DescribeNode(const onnx::NodeProto& node, const Opsets& opsets) {
  return fmt::format("node '{}' ({})", LabelOf(node), OpWithVersion(node, opsets));
}

}  // namespace ampc
