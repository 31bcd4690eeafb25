// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls of rnn and rnn_bwd, read and checked once for every backend.

#include "kernels/ref/check.h"
#include "kernels/rnn.h"

namespace ampc::ref {

struct RnnCall {
  RnnLayer layer;
  int64_t steps, batch, input, hidden;  ///< input: 0 for the backward kernel
  int64_t gates;                        ///< G * hidden
  int64_t directions() const { return layer.directions(); }
  const RnnCell& cell(int64_t d) const { return layer.cells[static_cast<size_t>(d)]; }
  bool reverse(int64_t d) const { return layer.reverse[static_cast<size_t>(d)]; }
  /// The step that comes i-th in direction d.
  int64_t Step(int64_t d, int64_t i) const { return reverse(d) ? steps - 1 - i : i; }
};

inline constexpr std::string_view kRnnInputs = "x w r b? lengths? h0? c0? p?";
inline constexpr std::string_view kRnnOutputs = "y? y_h? y_c? gates? state? h_prev?";
inline constexpr std::string_view kRnnBackwardInputs =
    "r lengths? gates h_prev dy? dy_h? state? c0? dy_c? p?";
inline constexpr std::string_view kRnnBackwardOutputs = "dgates dh0? dc0? dp? extra?";

Result<RnnCall> ReadRnn(const CallSpec& call);
Result<RnnCall> ReadRnnBackward(const CallSpec& call);

/// Programs of every direction.
Result<std::vector<RnnPrograms>> ParseForward(const RnnLayer& layer);
Result<std::vector<RnnPrograms>> ParseBackward(const RnnLayer& layer);

/// Reports the first row that has fewer than 0 or more than all steps.
inline void CheckRnnLengths(const int32_t* lengths, int64_t batch, int64_t steps,
                            const RunContext& context) {
  for (int64_t b = 0; lengths != nullptr && b < batch; ++b) {
    if ((lengths[b] < 0 || lengths[b] > steps) && *context.index_error == 0)
      *context.index_error = b + 1;
  }
}

/// How many steps row b has.
inline int64_t RnnLength(const int32_t* lengths, int64_t b, int64_t steps) {
  if (lengths == nullptr) return steps;
  return lengths[b] < 0 ? 0 : lengths[b] < steps ? lengths[b] : steps;
}

}  // namespace ampc::ref
