// SPDX-License-Identifier: Apache-2.0
#pragma once
// Places the block buffers of a program in memory. A library of its own, since both tools use it:
// ampc to print and store the plan, amprun to plan again when it widens low tensors.

#include "runtime/plan/plan.h"

namespace ampc::plan {

/// Recomputes first/last of every block buffer from the calls and outputs, chooses offsets
/// (multiples of 64; greedy by size, first fit; ties by first use, then index), and sets
/// block_bytes and bound_bytes. Near-linear in practice: O(n log n + overlaps).
void PlanMemory(Program& program);

}  // namespace ampc::plan
