// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where numbers stop being finite: for the message of a numeric stop.

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/executor.h"
#include "runtime/trainer_data.h"
#include "runtime/trainer_io.h"

namespace ampc {

/// A window of micro-batches that was skipped, so that it can be run again: weights and moments are
/// still those that it began with.
struct SkippedWindow {
  int64_t first_batch = 0, epoch = 0;  ///< of its data
  std::optional<double> scale;         ///< the loss scale that it used
};

/// Runs the window once more, with the scale and the random numbers that it had, and names the
/// first value that is not finite: what FindFirstNonFinite says, with the micro-batch where there
/// are several. Changes the states.
Result<std::string> FindCauseOfSkip(const plan::Plan& plan, Executor& executor,
                                    const Programs& programs, Dataset& data, const FeedSet& feeds,
                                    const SkippedWindow& window);

/// Runs `program` once more on the feeds' present contents and names the first value that is not
/// finite although all operands of its call are: "'x' of node '/fc1/MatMul' (kernel matmul/onednn)
/// has inf". Where there is none (a mask of infinities goes into it), the first NaN that is made of
/// infinities. "" when every value is finite. Changes the states.
Result<std::string> FindFirstNonFinite(const plan::Plan& plan, Executor& executor, int program);

/// "inf", "nan", or "" when every element is finite (or the dtype is no float).
std::string_view NonFiniteKind(DType dtype, std::span<const std::byte> data);

}  // namespace ampc
