// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "runtime/base/file.h"
#include "runtime/trainer_diagnose.h"

namespace ampc {
namespace {

using std::chrono::steady_clock;

double Milliseconds(steady_clock::time_point from, steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// Four digits. The sign of a NaN says nothing.
std::string Short(double v) { return std::isnan(v) ? "nan" : fmt::format("{:.4g}", v); }

}  // namespace

int64_t PeakResidentBytes() {
  // getrusage's maximum outlives exec: started by a larger process, it would be that process's.
  if (const Result<std::string> text = ReadFile("/proc/self/status", 1 << 16); text.ok()) {
    constexpr std::string_view kPeak = "VmHWM:";
    const size_t at = text->find(kPeak);
    if (at != std::string::npos)
      return std::strtoll(text->c_str() + at + kPeak.size(), nullptr, 10) * 1024;
  }
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<int64_t>(usage.ru_maxrss) * 1024 : 0;
}

std::string ClosingLine(const RunResult& r) {
  if (!r.stopped.empty()) return fmt::format("stopped: step {}, {}", r.steps, r.stopped);
  std::string line = r.steps == 0 && r.evaluated >= 0
                         ? "done: evaluated"
                         : fmt::format("done: {} steps, {} applied", r.steps, r.applied);
  if (r.first_loss && r.last_loss)
    line += fmt::format(", loss {} -> {}", Short(*r.first_loss), Short(*r.last_loss));
  // The loss of the evaluation is told where nothing else says how good the model is.
  bool with_loss = r.eval.size() == 1 || !r.last_loss;
  for (const auto& [name, value] : r.eval) {
    if (name != "eval_loss" || with_loss) line += fmt::format(", {} {}", name, Short(value));
  }
  line += fmt::format(", {:.1f} s, peak {:.1f} MiB", r.seconds,
                      static_cast<double>(r.peak_bytes) / 1048576.0);
  return line;
}

Trainer::Trainer(Parts parts, TrainerOptions options)
    : p_(std::move(parts)),
      options_(options),
      progress_(options.terminal ? options.notes : nullptr, options.total_steps),
      start_(steady_clock::now()) {
  size_t calls = 0;
  for (const plan::Program& program : p_.plan->programs)
    calls = std::max(calls, program.calls.size());
  nanoseconds_.resize(calls);
  if (p_.data != nullptr) {
    reader_ = std::make_unique<StepReader>(*p_.plan, p_.programs);
    p_.feeds.Bind(*p_.executor);
  }
  result_.steps = options.first_step;
  result_.applied = applied_ = options.first_step;
  if (p_.evaluator != nullptr) {
    for (const SumAndCount& s : p_.evaluator->values()) {
      eval_keys_.push_back("eval_" + s.name);
      result_.eval.emplace_back(eval_keys_.back(), 0.0);
    }
  }
}

void Trainer::Resume(int64_t applied, int64_t evaluated, std::optional<double> first_loss) {
  result_.evaluated = evaluated;
  result_.applied = applied_ = applied;
  result_.skipped = options_.first_step - applied;
  result_.first_loss = first_loss;
}

bool Trainer::Interrupted() {
  if (options_.interrupt == nullptr || *options_.interrupt == 0) return false;
  result_.signal = *options_.interrupt;
  return true;
}

int64_t Trainer::EpochOf(int64_t step) const {
  return options_.steps_per_epoch > 0 ? (step - 1) / options_.steps_per_epoch : 0;
}

int64_t Trainer::FirstBatchOf(int64_t step) const {
  return (step - 1 - EpochOf(step) * options_.steps_per_epoch) * p_.plan->accumulate;
}

bool Trainer::EvaluationDue(int64_t step) const {
  if (p_.evaluator == nullptr) return false;
  if (step == options_.total_steps) return true;
  if (options_.eval_every > 0) return step % options_.eval_every == 0;
  return options_.steps_per_epoch > 0 && step % options_.steps_per_epoch == 0;
}

Status Trainer::Run() {
  int64_t step = options_.first_step;
  // The run before was interrupted between this step and its evaluation.
  bool missing = step > 0 && result_.evaluated != step && step < options_.total_steps;
  if (missing && EvaluationDue(step) && !Interrupted()) AMPC_TRY(Evaluate(step));
  while (step < options_.total_steps && p_.data != nullptr && !Interrupted()) {
    AMPC_TRY(Update(++step));
    AMPC_TRY(Report(step));
    if (TooManySkips()) break;
    if (EvaluationDue(step) && !Interrupted()) AMPC_TRY(Evaluate(step));
    if (options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0)
      AMPC_TRY(Save(step));
  }
  if (result_.stopped.empty() && !Interrupted() && p_.evaluator != nullptr &&
      !(evaluated_here_ && result_.evaluated == step))
    AMPC_TRY(Evaluate(step));
  if (step > options_.first_step) AMPC_TRY(Save(step));
  progress_.Clear();
  if (!evaluated_here_) result_.eval.clear();
  result_.seconds = Milliseconds(start_, steady_clock::now()) / 1000;
  result_.peak_bytes = PeakResidentBytes();
  return {};
}

Status Trainer::RunProgram(int program) {
  bool fetch = p_.fetcher != nullptr && p_.fetcher->Wants(program);
  if (!fetch && p_.profile == nullptr) return p_.executor->Run(program);
  std::span<int64_t> times = nanoseconds_;
  times = p_.profile != nullptr
              ? p_.profile->Times(program)
              : times.first(p_.plan->programs[static_cast<size_t>(program)].calls.size());
  if (fetch) p_.fetcher->BeginRun(p_.data->batch());
  AMPC_TRY(p_.executor->RunInstrumented(program, times, fetch ? &p_.fetcher->hook() : nullptr));
  if (p_.profile != nullptr) p_.profile->Add(program);
  return fetch ? p_.fetcher->EndRun(program) : Status();
}

Status Trainer::Update(int64_t step) {
  steady_clock::time_point begin = steady_clock::now();
  wait_ms_ = 0;
  reader_->BeginUpdate();
  int64_t micro_batches = p_.plan->accumulate;
  int64_t epoch = EpochOf(step);
  int64_t first = FirstBatchOf(step);
  for (int64_t k = 0; k < micro_batches; ++k) {
    steady_clock::time_point wait = steady_clock::now();
    int64_t valid = 0;
    AMPC_TRY(p_.data->Fill(first + k, epoch, p_.feeds.buffers, &valid));
    wait_ms_ += Milliseconds(wait, steady_clock::now());
    AMPC_TRY(RunProgram(p_.programs.micro()));
    AMPC_TRY(reader_->AfterMicroBatch(*p_.executor));
  }
  if (p_.programs.update() != p_.programs.micro()) AMPC_TRY(RunProgram(p_.programs.update()));
  AMPC_TRY(reader_->Read(*p_.executor, &values_));
  if (p_.fetcher != nullptr) AMPC_TRY(p_.fetcher->AfterUpdate());
  step_ms_ = Milliseconds(begin, steady_clock::now());

  bool skipped = values_.found_inf.value_or(false);
  skips_ = values_.skips.value_or(skipped ? skips_ + 1 : 0);
  applied_ = values_.applied.value_or(applied_ + (skipped ? 0 : 1));
  result_.steps = step;
  result_.run_steps += 1;
  result_.applied = applied_;
  result_.skipped = step - applied_;
  if (!result_.first_loss) result_.first_loss = values_.loss;
  result_.last_loss = values_.loss;
  return {};
}

Status Trainer::Report(int64_t step) {
  double samples_per_s =
      step_ms_ > 0 ? static_cast<double>(p_.data->batch() * p_.plan->accumulate) * 1000 / step_ms_
                   : 0;
  progress_.Step(step, EpochOf(step), values_.loss.value_or(0), step_ms_, samples_per_s);
  if (values_.found_inf.value_or(false) && options_.notes != nullptr && !told_skip_) {
    told_skip_ = true;  // once: the log and the closing line count them
    progress_.Clear();
    std::string why;
    if (values_.scale)
      why =
          fmt::format("; normal while the loss scale ({:.6g} here) finds its size", *values_.scale);
    std::fprintf(options_.notes, "step %lld: gradients are not finite, the update is skipped%s\n",
                 static_cast<long long>(step), why.c_str());
  }
  bool due = step % options_.log_every == 0 || step == options_.total_steps;
  if (p_.log == nullptr || !due) return {};
  line_.Begin();
  line_.Add("step", step);
  line_.Add("epoch", EpochOf(step));
  if (values_.loss) line_.Add("loss", *values_.loss);
  for (const SumAndCount& metric : reader_->metrics()) line_.Add(metric.name, metric.value());
  if (values_.lr) line_.Add("lr", *values_.lr);
  if (values_.scale) line_.Add("scale", *values_.scale);
  if (values_.found_inf) line_.Add("skipped", *values_.found_inf);
  line_.Add("applied", applied_);
  if (values_.grad_norm) line_.Add("grad_norm", *values_.grad_norm);
  line_.AddFixed("ms", step_ms_, 3);
  line_.AddFixed("samples_per_s", samples_per_s, 1);
  line_.AddFixed("wait_ms", wait_ms_, 3);
  line_.AddFixed("time", Milliseconds(start_, steady_clock::now()) / 1000, 3);
  return p_.log->Write(line_.Finish());
}

Status Trainer::Evaluate(int64_t step) {
  // A resumed run with nothing left to do: its log has the line.
  const bool logged = step > 0 && step == options_.first_step && result_.evaluated == step;
  AMPC_TRY(p_.evaluator->Run(options_.interrupt));
  if (Interrupted()) return {};  // the sums are of a part only
  result_.evaluated = step;
  evaluated_here_ = true;
  const std::vector<SumAndCount>& sums = p_.evaluator->values();
  for (size_t i = 0; i < sums.size(); ++i) result_.eval[i].second = sums[i].value();
  progress_.Clear();
  if (options_.notes != nullptr && !sums.empty()) {
    std::fprintf(options_.notes, "step %lld:", static_cast<long long>(step));
    if (result_.last_loss)
      std::fprintf(options_.notes, " loss %s,", Short(*result_.last_loss).c_str());
    for (size_t i = 0; i < sums.size(); ++i)
      std::fprintf(options_.notes, " %s %s,", eval_keys_[i].c_str(),
                   Short(result_.eval[i].second).c_str());
    std::fprintf(options_.notes, " %lld samples in %.1f s\n",
                 static_cast<long long>(p_.evaluator->samples()), p_.evaluator->seconds());
  }
  if (p_.log == nullptr || (logged && p_.data != nullptr)) return {};
  line_.Begin();
  line_.Add("step", step);
  line_.Add("epoch", step > 0 ? EpochOf(step) : 0);
  for (size_t i = 0; i < sums.size(); ++i) line_.Add(eval_keys_[i], result_.eval[i].second);
  line_.Add("eval_samples", p_.evaluator->samples());
  line_.AddFixed("time", Milliseconds(start_, steady_clock::now()) / 1000, 3);
  return p_.log->Write(line_.Finish());
}

Status Trainer::Save(int64_t step) {
  if (!p_.save || saved_ == step) return {};
  saved_ = step;
  // No checkpoint is newer than the log on the disk: a resume finds all lines up to its step.
  if (p_.log != nullptr) AMPC_TRY(p_.log->Sync());
  return p_.save(step);
}

bool Trainer::TooManySkips() {
  if (options_.max_skips <= 0 || skips_ < options_.max_skips) return false;
  result_.stopped =
      fmt::format("{} consecutive updates were skipped because gradients are not finite", skips_);
  if (values_.scale) result_.stopped += fmt::format("; the loss scale is {:.6g}", *values_.scale);
  return true;
}

Status Trainer::ExplainStop() {
  const SkippedWindow window{FirstBatchOf(result_.steps), EpochOf(result_.steps), values_.scale};
  AMPC_ASSIGN(const std::string first,
              FindCauseOfSkip(*p_.plan, *p_.executor, p_.programs, *p_.data, p_.feeds, window));
  if (!first.empty()) result_.stopped += fmt::format("; first, {}", first);
  return {};
}

}  // namespace ampc
