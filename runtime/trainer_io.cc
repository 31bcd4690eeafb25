// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_io.h"

#include <algorithm>
#include <cmath>

namespace ampc {
namespace {

template <typename T>
Status ReadInto(Executor& executor, int program, int output, std::optional<T>* value) {
  value->reset();
  if (output < 0) return {};
  AMPC_ASSIGN(double number, executor.ScalarOutput(program, output));
  *value = static_cast<T>(number);
  return {};
}

}  // namespace

Result<Programs> Programs::Of(const plan::Plan& plan) {
  Programs p;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const std::string& name = plan.programs[i].name;
    int index = static_cast<int>(i);
    if (name == "step") p.step = index;
    if (name == "train") p.train = index;
    if (name == "apply") p.apply = index;
    if (name == "eval") p.eval = index;
  }
  bool pair = p.train >= 0 && p.apply >= 0;
  if ((p.train >= 0) != (p.apply >= 0) || (p.step >= 0 && pair) || (!p.trains() && p.eval < 0))
    return BadInput("E0964",
                    "the plan has {} programs, expected step, or train and apply, or eval alone",
                    plan.programs.size());
  return p;
}

int FindOutput(const plan::Program& program, std::string_view name) {
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    if (program.outputs[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::vector<SumAndCount> FindSums(const plan::Program& program) {
  constexpr std::string_view kSum = "_sum", kLogSum = "_logsum";
  std::vector<SumAndCount> sums;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const std::string& name = program.outputs[i].name;
    const bool exponential = name.ends_with(kLogSum);
    if (!exponential && !name.ends_with(kSum)) continue;
    std::string base = name.substr(0, name.size() - (exponential ? kLogSum : kSum).size());
    int count = FindOutput(program, base + "_count");
    if (count >= 0) sums.push_back({base, static_cast<int>(i), count, 0, 0, exponential});
  }
  return sums;
}

Status AddSums(Executor& executor, int program, std::vector<SumAndCount>& sums) {
  for (SumAndCount& s : sums) {
    AMPC_ASSIGN(double sum, executor.ScalarOutput(program, s.sum));
    AMPC_ASSIGN(double count, executor.ScalarOutput(program, s.count));
    s.total += sum;
    s.weight += count;
  }
  return {};
}

void ClearSums(std::vector<SumAndCount>& sums) {
  for (SumAndCount& s : sums) s.total = s.weight = 0;
}

StepReader::StepReader(const plan::Plan& plan, const Programs& programs) : programs_(programs) {
  const plan::Program& update = plan.programs[static_cast<size_t>(programs.update())];
  const plan::Program& micro = plan.programs[static_cast<size_t>(programs.micro())];
  loss_ = FindOutput(update, "loss");
  lr_ = FindOutput(update, "lr");
  scale_ = FindOutput(update, "scale");
  found_inf_ = FindOutput(update, "found_inf");
  grad_norm_ = FindOutput(update, "grad_norm");
  applied_ = FindOutput(update, "applied");
  skips_ = FindOutput(update, "skips");
  if (loss_ < 0) micro_loss_ = FindOutput(micro, "loss");
  metrics_ = FindSums(micro);
}

void StepReader::BeginUpdate() {
  ClearSums(metrics_);
  loss_sum_ = 0;
  micro_batches_ = 0;
}

Status StepReader::AfterMicroBatch(Executor& executor) {
  AMPC_TRY(AddSums(executor, programs_.micro(), metrics_));
  ++micro_batches_;
  if (micro_loss_ < 0) return {};
  AMPC_ASSIGN(double loss, executor.ScalarOutput(programs_.micro(), micro_loss_));
  loss_sum_ += loss;
  return {};
}

Status StepReader::Read(Executor& executor, StepValues* values) {
  int p = programs_.update();
  AMPC_TRY(ReadInto(executor, p, loss_, &values->loss));
  AMPC_TRY(ReadInto(executor, p, lr_, &values->lr));
  AMPC_TRY(ReadInto(executor, p, scale_, &values->scale));
  AMPC_TRY(ReadInto(executor, p, grad_norm_, &values->grad_norm));
  AMPC_TRY(ReadInto(executor, p, found_inf_, &values->found_inf));
  AMPC_TRY(ReadInto(executor, p, applied_, &values->applied));
  AMPC_TRY(ReadInto(executor, p, skips_, &values->skips));
  if (micro_loss_ >= 0) values->loss = loss_sum_ / static_cast<double>(micro_batches_);
  return {};
}

}  // namespace ampc
