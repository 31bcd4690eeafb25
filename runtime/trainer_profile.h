// SPDX-License-Identifier: Apache-2.0
#pragma once
// --profile: time per call over the steps after warm-up.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace ampc {

/// Multiply-adds times two of a call; 0 for kernels that are bound by memory.
double FlopsOf(const plan::Program& program, const plan::Call& call);
/// Bytes of all operands, read or written once.
int64_t BytesOf(const plan::Program& program, const plan::Call& call);

class Profile {
 public:
  /// The first `warm_up` runs of each program are not counted.
  Profile(const plan::Plan& plan, const Executor& executor, int64_t warm_up);

  /// Where RunInstrumented writes the times of a run; Add() then takes them. Neither allocates.
  std::span<int64_t> Times(int program) { return programs_[static_cast<size_t>(program)].times; }
  void Add(int program);

  /// The calls that take most time, and a summary per kernel.
  std::string ToText() const;
  /// Every call.
  std::string ToJson() const;

 private:
  struct ProgramTimes {
    std::vector<int64_t> times;    ///< of the last run
    std::vector<int64_t> samples;  ///< [kept run][call]; the oldest are overwritten
    int64_t runs = 0, kept = 0;
  };
  struct Row;
  std::vector<Row> Rows() const;

  const plan::Plan& plan_;
  const Executor& executor_;
  int64_t warm_up_;
  std::vector<ProgramTimes> programs_;
};

}  // namespace ampc
