// SPDX-License-Identifier: Apache-2.0
#pragma once
// Plans as text: the trace of the null device and `amprun --dump`.
//
//   call 3: matmul(x float[4,8] feed 'x'+0, w float[8,2] state 'fc.weight'+0) -> (y float[4,2]
//   block+64)
//     {post="relu"} of '/fc/Gemm'                                                          -- on
//     one line
//
// An operand is its name, form and place; block places are offsets in the block. "-" stands for an
// absent operand; "cl" after the dims marks channels-last.

#include <string>

#include "runtime/plan/plan.h"

namespace ampc::plan {

/// One call, without a line end.
std::string CallToString(const Plan& plan, const Program& program, size_t call);

/// Block, buffers with lifetimes, calls, outputs.
std::string ProgramToString(const Plan& plan, const Program& program);

/// 'text' with quotes, backslashes and control characters escaped.
std::string Quote(std::string_view text);

}  // namespace ampc::plan
