// SPDX-License-Identifier: Apache-2.0
// Names in bodies (of If, Loop, Scan, …) and in functions.
//
// ONNX lets a node of a body make no name that the body can see around it (single static
// assignment): which of the two a reader means would depend on the order. Visible is what the
// nodes before the call make, with inputs and initializers; siblings and what comes later are not.
// Inputs of a body may have such names, they hide them; so may initializers of Loop and Scan
// bodies. In an If onnxruntime reads the outer value then and others the inner one.
#include <unordered_map>

#include "compiler/onnx/importer.h"

namespace ampc {
namespace {

// What a name stands for.
struct Origin {
  const char* kind;  // "input" or "initializer"; null: a node makes it
  const onnx::NodeProto* node = nullptr;
};

struct Names {
  const Names* outer = nullptr;
  std::string place;  // "the graph", "the then_branch of node 'x' (If-16)"
  std::unordered_map<std::string_view, Origin> own;
};

class NameCheck {
 public:
  explicit NameCheck(const Opsets& opsets) : opsets_(opsets) {}

  Status Nodes(const ::ampc::Nodes& nodes, Names& names) {
    for (const onnx::NodeProto& node : nodes) {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) AMPC_TRY(Body(node, attribute, names));
      }
      for (const std::string& out : node.output()) {
        if (!out.empty()) AMPC_TRY(Define(node, out, names));
      }
    }
    return {};
  }

 private:
  Status Body(const onnx::NodeProto& node, const onnx::AttributeProto& attribute,
              const Names& outer) {
    const onnx::GraphProto& body = attribute.g();
    Names names{.outer = &outer,
                .place = fmt::format("the {} of {}", attribute.name(), DescribeNode(node, opsets_)),
                .own = {}};
    for (const auto& input : body.input()) {
      if (!names.own.emplace(input.name(), Origin{"input"}).second)
        return BadInput("E0103", "{} has two inputs of the name '{}'", names.place, input.name());
    }
    std::unordered_map<std::string_view, int> seen;
    for (const auto& tensor : body.initializer()) {
      if (++seen[tensor.name()] > 1)
        return BadInput("E0103", "{} has two initializers of the name '{}'", names.place,
                        tensor.name());
      const Names* place = &outer;
      const Origin* hidden = node.op_type() == "If" ? Find(tensor.name(), place) : nullptr;
      if (hidden != nullptr) {
        return BadInput("E0103",
                        "initializer '{}' of {} has the name of {}, and implementations differ in "
                        "which of them is read; give it another",
                        tensor.name(), names.place, Describe(*hidden, *place));
      }
      names.own.emplace(tensor.name(), Origin{"initializer"});
    }
    return Nodes(body.node(), names);
  }

  // Two nodes of one list that make the same name are found where nodes are ordered.
  Status Define(const onnx::NodeProto& node, const std::string& name, Names& names) {
    const Names* place = &names;
    const Origin* other = Find(name, place);
    names.own.emplace(name, Origin{nullptr, &node});
    if (other == nullptr || (place == &names && other->node != nullptr)) return {};
    return BadInput("E0103",
                    "{} makes '{}' in {}, which is the name of {}: a name has one meaning where it "
                    "can be seen",
                    DescribeNode(node, opsets_), name, names.place, Describe(*other, *place));
  }

  // Looks from `place` outwards; `place` becomes where it was found.
  static const Origin* Find(std::string_view name, const Names*& place) {
    for (; place != nullptr; place = place->outer) {
      if (const auto it = place->own.find(name); it != place->own.end()) return &it->second;
    }
    return nullptr;
  }
  std::string Describe(const Origin& origin, const Names& place) const {
    if (origin.node != nullptr)
      return fmt::format("an output of {} in {}", DescribeNode(*origin.node, opsets_), place.place);
    return fmt::format("an {} of {}", origin.kind, place.place);
  }

  const Opsets& opsets_;
};

bool HasBodies(const Nodes& nodes) {
  for (const auto& node : nodes) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) return true;
    }
  }
  return false;
}

}  // namespace

Status CheckBodyNames(const SourceModel& source) {
  for (const auto& f : source.proto().functions()) {
    Opsets opsets;
    for (const auto& id : f.opset_import()) opsets.Set(id.domain(), id.version());
    Names names{.place = fmt::format("function '{}'", f.name()), .own = {}};
    for (const std::string& input : f.input()) names.own.emplace(input, Origin{"input"});
    AMPC_TRY(NameCheck(opsets).Nodes(f.node(), names));
  }
  const onnx::GraphProto& graph = source.graph();
  if (!HasBodies(graph.node())) return {};
  Names names{.place = "the graph", .own = {}};
  for (const auto& tensor : graph.initializer())
    names.own.emplace(tensor.name(), Origin{"initializer"});
  for (const auto& input : graph.input()) names.own.emplace(input.name(), Origin{"input"});
  return NameCheck(source.opsets()).Nodes(graph.node(), names);
}

}  // namespace ampc
