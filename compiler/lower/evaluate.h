// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs one node on the host, through the row's lowering and the reference kernels: what constant
// folding and the op tests use, so that an op has one meaning.

#include <vector>

#include "compiler/ir/graph.h"
#include "runtime/base/status.h"

namespace ampc {

/// Values of a node's outputs, given the values of its inputs (null: left out). `inputs` have the
/// types of the node's inputs.
Result<std::vector<HostTensor>> EvaluateNode(const ir::Graph& graph, ir::NodeId node,
                                             std::span<const HostTensor* const> inputs);

/// The same for a node whose inputs are all constants of the graph.
Result<std::vector<HostTensor>> EvaluateNode(const ir::Graph& graph, ir::NodeId node);

}  // namespace ampc
