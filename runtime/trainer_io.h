// SPDX-License-Identifier: Apache-2.0
#pragma once
// The programs of a plan by name, and the scalars that they give after each step. Outputs that a
// plan does not have are simply not reported.

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace ampc {

/// Indices in plan.programs; -1 = the plan has none. With one micro-batch per update train and
/// apply are one: step.
struct Programs {
  int step = -1, train = -1, apply = -1, eval = -1;

  static Result<Programs> Of(const plan::Plan& plan);
  bool trains() const { return step >= 0 || train >= 0; }
  /// The program that runs for every micro-batch.
  int micro() const { return step >= 0 ? step : train; }
  /// The program that ends an update.
  int update() const { return step >= 0 ? step : apply; }
};

/// Index of an output of a program, or -1.
int FindOutput(const plan::Program& program, std::string_view name);

/// A metric is a pair of outputs NAME_sum and NAME_count, or NAME_logsum and NAME_count when it is
/// the exponential of the mean.
struct SumAndCount {
  std::string name;
  int sum = -1, count = -1;
  double total = 0, weight = 0;

  bool exponential = false;

  /// 0 when nothing was counted.
  double value() const {
    if (!(weight > 0)) return 0;
    return exponential ? std::exp(total / weight) : total / weight;
  }
};
/// All pairs of a program, `loss` included, in the order of the outputs.
std::vector<SumAndCount> FindSums(const plan::Program& program);
/// Adds what the last run gave.
Status AddSums(Executor& executor, int program, std::vector<SumAndCount>& sums);
void ClearSums(std::vector<SumAndCount>& sums);

/// What one update told. Reading it does not allocate.
struct StepValues {
  std::optional<double> loss, lr, scale, grad_norm;
  std::optional<bool> found_inf;
  std::optional<int64_t> applied, skips;
};

class StepReader {
 public:
  StepReader(const plan::Plan& plan, const Programs& programs);

  void BeginUpdate();
  /// After each run of the micro-batch program.
  Status AfterMicroBatch(Executor& executor);
  /// After the update.
  Status Read(Executor& executor, StepValues* values);
  /// Metrics of the update's micro-batches.
  const std::vector<SumAndCount>& metrics() const { return metrics_; }

 private:
  Programs programs_;
  int loss_, lr_, scale_, found_inf_, grad_norm_, applied_, skips_;
  int micro_loss_ = -1;  ///< used when the update has no loss of its own
  double loss_sum_ = 0;
  int64_t micro_batches_ = 0;
  std::vector<SumAndCount> metrics_;
};

}  // namespace ampc
