// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training loop: data in, programs run, scalars out, logs, evaluations, checkpoints, and the
// reasons to stop.
//
// After the first step it does not allocate. Steps count updates attempted, applied or skipped,
// from the very start of the training, also after a resume. Everything that a step does depends on
// the states and (seed, step) only, so a resumed run repeats the bits of an unbroken one.

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/fetch.h"
#include "runtime/metrics.h"
#include "runtime/trainer_data.h"
#include "runtime/trainer_eval.h"
#include "runtime/trainer_io.h"
#include "runtime/trainer_profile.h"

namespace ampc {

/// What the loop is told. Zero = off where the comment does not say otherwise.
struct TrainerOptions {
  int64_t first_step = 0;       ///< updates already done (resume)
  int64_t total_steps = 0;      ///< stop after this one
  int64_t steps_per_epoch = 0;  ///< 0: the data has no epochs
  int64_t eval_every = 0;       ///< 0: after each epoch
  int64_t checkpoint_every = 0;
  int64_t log_every = 1;
  int64_t max_skips = 0;       ///< consecutive skips that stop the run
  std::FILE* notes = nullptr;  ///< evaluation results; null = none
  bool terminal = false;       ///< `notes` is a terminal: draw a progress line
  const volatile std::sig_atomic_t* interrupt = nullptr;  ///< a signal number, or 0
};

/// What a run came to.
struct RunResult {
  int64_t steps = 0, applied = 0, skipped = 0;
  int64_t run_steps = 0;  ///< of this run
  std::optional<double> first_loss, last_loss;
  int64_t evaluated = -1;       ///< step of the last evaluation; -1 = none
  std::optional<double> scale;  ///< after the last step
  std::vector<std::pair<std::string, double>>
      eval;  ///< "eval_loss", "eval_accuracy", … of the last evaluation
  double seconds = 0;
  int64_t peak_bytes = 0;
  std::string stopped;  ///< reason of a numeric stop
  int signal = 0;       ///< that interrupted it
};

/// "done: 100 steps, 98 applied, loss 2.31 -> 0.07, eval_accuracy 0.981, 3.2 s, peak 55 MiB", or
/// "stopped: step N, REASON".
std::string ClosingLine(const RunResult& result);

/// Largest resident size of this process so far.
int64_t PeakResidentBytes();

class Trainer {
 public:
  /// Parts may be null: no training data or programs = evaluate only; no evaluator, log, fetcher,
  /// profile = none.
  struct Parts {
    const plan::Plan* plan = nullptr;
    Executor* executor = nullptr;
    Programs programs;
    Dataset* data = nullptr;
    FeedSet feeds;
    Evaluator* evaluator = nullptr;
    JsonlLog* log = nullptr;
    Fetcher* fetcher = nullptr;
    Profile* profile = nullptr;
    /// Writes a checkpoint of this step.
    std::function<Status(int64_t step)> save;
  };

  Trainer(Parts parts, TrainerOptions options);

  /// What the run before told, for counts and the closing line. Before Run().
  void Resume(int64_t applied, int64_t evaluated, std::optional<double> first_loss);
  /// Runs to the last step, an interrupt or a numeric stop; the last two are told by result(), not
  /// by the Status.
  Status Run();
  const RunResult& result() const { return result_; }
  /// After a numeric stop: names where it began (trainer_diagnose.h), and adds that to the reason.
  /// The states are of no use afterwards.
  Status ExplainStop();

 private:
  Status Update(int64_t step);
  Status RunProgram(int program);
  Status Report(int64_t step);
  Status Evaluate(int64_t step);
  Status Save(int64_t step);
  bool TooManySkips();
  bool EvaluationDue(int64_t step) const;
  bool Interrupted();
  int64_t EpochOf(int64_t step) const;
  int64_t FirstBatchOf(int64_t step) const;

  Parts p_;
  TrainerOptions options_;
  std::unique_ptr<StepReader> reader_;
  StepValues values_;
  JsonLine line_;
  Progress progress_;
  RunResult result_;
  std::vector<std::string> eval_keys_;
  std::vector<int64_t> nanoseconds_;  ///< for instrumented runs without a profile
  std::chrono::steady_clock::time_point start_;
  double step_ms_ = 0, wait_ms_ = 0;
  int64_t applied_ = 0, skips_ = 0;  ///< counted here when the plan does not tell
  int64_t saved_ = -1;
  bool evaluated_here_ = false, told_skip_ = false;
};

}  // namespace ampc
