// SPDX-License-Identifier: Apache-2.0
#pragma once
// Type inference of one node: ONNX's own schemas for standard ops, the row's function for own ops.
// Results are memoised per module by (op, attributes, input types, values of small constant
// inputs), so repeated layers cost a hash look-up.

#include <span>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ops/op_def.h"

namespace ampc {

/// Types of the outputs of `op`, `num_outputs` of them. `constants[i]` is the value of input i when
/// it is a constant, else null. Errors: E0107 (the schema's own complaint, in our words where we
/// can), E0108 (a dim stays unknown: names the input that should be constant).
Result<std::vector<ir::TypeId>> InferTypes(ir::Module& module, const OpDef& op, const Attrs& attrs,
                                           std::span<const ir::TypeId> inputs,
                                           std::span<const HostTensor* const> constants,
                                           size_t num_outputs);

/// An error of InferTypes with what the node reads: name, type, and where each comes from.
Status WithInputs(Status status, const ir::Graph& graph, std::span<const ir::ValueId> inputs);

/// The same for a node that stands in a graph, from its current inputs; errors name it and them.
Result<std::vector<ir::TypeId>> InferNode(const ir::Graph& graph, ir::NodeId node);

/// Infers again and writes the types into the node's outputs. True when one changed.
Result<bool> Reinfer(ir::Graph& graph, ir::NodeId node);

/// True for a node of a standard op that keeps operands in fp32 beside a low slot 0, which ONNX has
/// no form for (OpDef::body).
bool KeepsFp32(const OpDef& op, std::span<const ir::TensorType* const> inputs);

/// Sets the attributes that ONNX's schema gives a default and that are missing. The importer, the
/// text parser and the builder do it, so rules and kernels never repeat a default.
void FillDefaults(ir::Module& module, const OpDef& op, Attrs& attrs);

}  // namespace ampc
