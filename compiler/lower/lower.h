// SPDX-License-Identifier: Apache-2.0
#pragma once
// Module -> plan: each graph becomes a program of kernel calls over buffers.

#include "compiler/diagnostics.h"
#include "compiler/ir/graph.h"
#include "runtime/plan/plan.h"

namespace ampc {

/// One graph as a program. State s of the module is state s of the plan; feeds are numbered by
/// `feed_index` (feed name -> plan feed); constants are appended to `constants`. Memory is planned.
///
/// Updated states are written in place: the value that becomes a state's next lives in the state's
/// own memory when no call reads the old value later; else a copy is appended. Block buffers are
/// reused in place where the kernel allows it.
Result<plan::Program> LowerGraph(const ir::Graph& graph, const std::vector<int32_t>& feed_index,
                                 std::vector<HostTensor>& constants);

/// The whole module: states, feeds, programs ("step", or "train" and "apply", and "eval"),
/// constants, weight bytes. Source model, exports and texts are filled in by the caller. The plan's
/// invariants are checked when it is written.
Result<plan::Plan> LowerModule(const ir::Module& module);

}  // namespace ampc
