// SPDX-License-Identifier: Apache-2.0
// samples_dump FILE: writes the samples table for onnxruntime to run: per sample and element type,
// and per node of its backward pass, a model of one node and what our reference kernels make of it.
// Equal nodes are written once.
//
//   FILE = records; record = u64 length, ModelProto, u64 length, GraphProto whose initializers are
//   the inputs ("x3") and the results of our kernels. The model's doc_string describes the sample;
//   its metadata say "type" (the element type under test), "terms" (Sample::terms) and "own" (1: an
//   own op).
#include <cstdio>
#include <fstream>
#include <set>
#include <span>

#include <onnx/onnx_pb.h>

#include "compiler/onnx/own_functions.h"
#include "compiler/onnx/proto_util.h"
#include "test/conformance/samples.h"

namespace ampc::conformance {
namespace {

class Dump {
 public:
  explicit Dump(const std::string& path) : out_(path, std::ios::binary) {}

  Status Add(const Sample& sample, DType type) {
    AMPC_ASSIGN(Instance instance, Build(sample, type));
    AMPC_TRY(AddNodes(instance, sample, type, false));
    AMPC_TRY(AddGradientNodes(instance, sample));
    return AddNodes(instance, sample, type, true);
  }
  bool good() { return out_.flush().good(); }

 private:
  Status AddNodes(const Instance& instance, const Sample& sample, DType type, bool derived) {
    Values values = instance.values;
    if (!sample.types_only) AMPC_TRY(EvaluateGraph(instance.graph(), values));
    for (const ir::NodeId n : instance.graph().Order()) {
      const ir::Node& node = instance.graph().node(n);
      if (node.op->traits.constant && sample.name() != "Constant") continue;
      if (derived && node.op->domain != kOwnDomain)
        continue;  // standard ops have samples of their own
      if (instance.module->locs.Get(node.loc) == "loss") continue;  // sums in which all may cancel
      onnx::ModelProto model;
      AMPC_TRY(MakeNodeModel(instance.graph(), n, &model));
      model.set_doc_string(
          derived ? fmt::format("{} in the backward pass of {}", node.op->name, Describe(sample))
                  : Describe(sample));
      SetMetadata(model, "type", std::string(Name(type)));
      SetMetadata(model, "terms", fmt::format("{}", sample.terms));
      SetMetadata(model, "own", node.op->domain == kOwnDomain ? "1" : "0");
      Write(model, DataOf(instance.graph(), node, values));
    }
    return {};
  }

  static void SetMetadata(onnx::ModelProto& model, const char* key, std::string value) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(std::move(value));
  }

  static onnx::GraphProto DataOf(const ir::Graph& graph, const ir::Node& node,
                                 const Values& values) {
    onnx::GraphProto data;
    std::set<ir::ValueId> seen;
    for (const std::span<const ir::ValueId> list :
         {std::span(node.inputs), std::span(node.outputs)}) {
      for (const ir::ValueId v : list) {
        const auto it = v == ir::kNone ? values.end() : values.find(v);
        if (it == values.end() || !seen.insert(v).second) continue;
        onnx::TensorProto* tensor = data.add_initializer();
        TensorToProto(it->second, tensor);
        tensor->set_name(graph.value(v).name);
      }
    }
    return data;
  }

  // Equal but for the names and the description: skipped.
  void Write(const onnx::ModelProto& model, const onnx::GraphProto& data) {
    onnx::ModelProto bare = model;
    bare.clear_doc_string();
    bare.mutable_graph()->mutable_node(0)->clear_name();
    if (!seen_.insert(bare.SerializeAsString() + data.SerializeAsString()).second) return;
    for (const std::string& bytes : {model.SerializeAsString(), data.SerializeAsString()}) {
      const uint64_t length = bytes.size();
      out_.write(reinterpret_cast<const char*>(&length), sizeof length);
      out_.write(bytes.data(), static_cast<std::streamsize>(length));
    }
  }

  std::ofstream out_;
  std::set<std::string> seen_;
};

int Main(const char* path) {
  Dump dump(path);
  for (const Sample& sample : AllSamples()) {
    for (const DType type : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      const Status status = dump.Add(sample, type);
      if (status.ok()) continue;
      std::fprintf(stderr, "samples_dump: %s in %s: %s\n", Describe(sample).c_str(),
                   std::string(Name(type)).c_str(), status.ToString().c_str());
      return 1;
    }
  }
  return dump.good() ? 0 : 6;
}

}  // namespace
}  // namespace ampc::conformance

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: samples_dump FILE\n"), 2;
  return ampc::conformance::Main(argv[1]);
}
