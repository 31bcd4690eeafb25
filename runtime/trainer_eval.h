// SPDX-License-Identifier: Apache-2.0
#pragma once
// Evaluation: the eval program over a dataset. Every sample counts once: the last batch is padded
// and masked; loss and metrics are sums in double over counts.

#include <csignal>
#include <string>
#include <vector>

#include "runtime/fetch.h"
#include "runtime/trainer_data.h"
#include "runtime/trainer_io.h"
#include "runtime/trainer_profile.h"

namespace ampc {

class Evaluator {
 public:
  /// `max_batches` 0 = all. `fetcher` and `profile` may be null.
  Evaluator(const plan::Plan& plan, Executor& executor, int program, FeedSet feeds, Dataset& data,
            int64_t max_batches, Fetcher* fetcher, Profile* profile);

  /// Stops early, with what was summed so far, when `*interrupt` is set. Does not allocate.
  Status Run(const volatile std::sig_atomic_t* interrupt);

  /// Of the last Run: loss first, then metrics.
  const std::vector<SumAndCount>& values() const { return sums_; }
  int64_t samples() const { return samples_; }
  double seconds() const { return seconds_; }

 private:
  Status RunProgram(int64_t valid);
  void FillMask(int64_t valid);

  Executor& executor_;
  int program_;
  FeedSet feeds_;
  Dataset& data_;
  int64_t batches_;
  Fetcher* fetcher_;
  Profile* profile_;
  DType mask_dtype_ = DType::kNone;
  std::vector<double> mask_;
  std::vector<int64_t> nanoseconds_;
  std::vector<SumAndCount> sums_;
  int64_t samples_ = 0;
  double seconds_ = 0;
};

}  // namespace ampc
