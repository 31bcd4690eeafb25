// SPDX-License-Identifier: Apache-2.0
#pragma once
// Own ops as standard ONNX: a node of domain ai.ampc becomes the call of a model-local function
// whose body the op's row writes (OpDef::body). ONNX functions have fixed arity and no types of
// their own, so there is one function per signature: op, operand types, attributes. The conformance
// tests and the exported step are made with this.

#include <map>
#include <string>

#include "compiler/ir/graph.h"

namespace onnx {
class FunctionProto;
class ModelProto;
class NodeProto;
class ValueInfoProto;
}  // namespace onnx

namespace ampc {

/// IR version that goes with kCanonicalOpset.
inline constexpr int kCanonicalIrVersion = 11;

/// The functions of one model.
class OwnFunctions {
 public:
  /// Name of the function that means this node of an own op, made when its signature is new.
  Result<std::string> NameOf(const ir::Graph& graph, ir::NodeId node);
  /// Appends the functions and the import of their domain. Does nothing when there are none.
  Status AddTo(onnx::ModelProto* model) const;

 private:
  struct Entry {
    std::string name, text;
  };
  std::map<std::string, Entry> by_signature_;
  std::map<std::string, int> counters_;
};

/// Name, domain, op and attributes of one node; the caller adds inputs and outputs. A node of an
/// own op becomes a call of its function, without attributes.
Status OpToProto(const ir::Graph& graph, ir::NodeId node, OwnFunctions& functions,
                 onnx::NodeProto* proto);

/// Name and type of a value.
void DescribeValue(std::string_view name, const ir::TensorType& type, onnx::ValueInfoProto* info);

/// A model of just this node: constant inputs are initializers, the others graph inputs; every
/// output is a graph output with its type.
Status MakeNodeModel(const ir::Graph& graph, ir::NodeId node, onnx::ModelProto* model);

}  // namespace ampc
