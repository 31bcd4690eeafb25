// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where numbers stop being finite: for the message of a numeric stop.

#include <string>

#include "runtime/executor.h"

namespace ampc {

/// Runs `program` once more on the feeds' present contents and names the first value that is not
/// finite although all operands of its call are: "'x' of node '/fc1/MatMul' (kernel matmul/onednn)
/// has inf". "" when every value is finite. Changes the states.
Result<std::string> FindFirstNonFinite(const plan::Plan& plan, Executor& executor, int program);

/// "inf", "nan", or "" when every element is finite (or the dtype is no float).
std::string_view NonFiniteKind(DType dtype, std::span<const std::byte> data);

}  // namespace ampc
