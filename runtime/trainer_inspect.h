// SPDX-License-Identifier: Apache-2.0
#pragma once
// amprun --info and --dump.
//
// The dump is one record a line, fields separated by tabs, the first field names the record; lines
// that start with "#" name the columns. It holds all that is needed to compute the memory bound
// again: the largest sum, over the calls c of a program, of the bytes of block buffers with first
// <= c <= last.

#include <string>

#include "runtime/config/settings.h"
#include "runtime/executor.h"

namespace ampc {

/// What the plan holds: programs, feeds, states by role, settings, outputs.
std::string PlanInfoText(const plan::Plan& plan, const std::string& path);

/// Every buffer, tensor and call of every program. `executor` may be null: then no implementations
/// are named.
std::string PlanDumpText(const plan::Plan& plan, const Executor* executor);

/// Form of a tensor: "float [16,1,28,28]", with " channels-last" where it is.
std::string FormText(const TensorDesc& desc);

}  // namespace ampc
