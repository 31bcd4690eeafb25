// SPDX-License-Identifier: Apache-2.0
#pragma once
// Proves that a module is what its header says. Runs after passes: whatever it finds is a bug of
// ours, so every failure is an internal error (E7010) that starts with the label of the invariant
// and names graph and node.
//
// Linear in the size of the module; trusts nothing, so it can be pointed at a damaged graph.

#include <optional>
#include <span>
#include <string_view>

#include "compiler/ir/graph.h"
#include "runtime/base/status.h"

namespace ampc::ir {

struct Invariant {
  std::string_view label, text;
};
/// All of them, in the order in which they are checked. test/unit/verify_test.cc breaks each.
std::span<const Invariant> Invariants();

/// The first input that an op of this row needs and that is left out (kNone). An op with a variable
/// number of inputs needs all; only the loss scale of an unscale op is optional: without scaling,
/// its finite check stays.
std::optional<size_t> MissingInput(const OpDef& op, std::span<const ValueId> inputs);
/// The same for outputs (MayLackOutput).
std::optional<size_t> MissingOutput(const OpDef& op, std::span<const ValueId> outputs);

Status Verify(const Module& module);
/// One graph of a module whose states are in order.
Status Verify(const Graph& graph);

}  // namespace ampc::ir
