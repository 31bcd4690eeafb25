// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies the nodes of one graph into another, of the same module or of one with states of the same
// names.

#include <unordered_map>

#include "compiler/ir/graph.h"

namespace ampc::ir {

/// Appends a copy of every node of `from` to `to`. `map` holds values of `from` that already have a
/// counterpart (feeds, states) and receives the rest; a feed without counterpart becomes a feed of
/// `to` (same name), a state is read there. Outputs and nexts are left to the caller. Names,
/// locations and layouts are kept (names made unique when taken).
void CopyNodes(const Graph& from, Graph& to, std::unordered_map<ValueId, ValueId>& map);

}  // namespace ampc::ir
