// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_eval.h"

#include <algorithm>
#include <chrono>

namespace ampc {

Evaluator::Evaluator(const plan::Plan& plan, Executor& executor, int program, FeedSet feeds,
                     Dataset& data, int64_t max_batches, Fetcher* fetcher, Profile* profile)
    : executor_(executor),
      program_(program),
      feeds_(std::move(feeds)),
      data_(data),
      batches_(data.endless() ? std::max<int64_t>(max_batches, 1) : data.num_batches()),
      fetcher_(fetcher),
      profile_(profile) {
  const plan::Program& p = plan.programs[static_cast<size_t>(program)];
  if (max_batches > 0) batches_ = std::min(batches_, max_batches);
  feeds_.Bind(executor);
  if (feeds_.valid >= 0) {
    const TensorDesc& desc = plan.feeds[static_cast<size_t>(feeds_.valid)].desc;
    mask_dtype_ = desc.dtype;
    mask_.resize(static_cast<size_t>(desc.elements()));
  }
  nanoseconds_.resize(p.calls.size());
  sums_ = FindSums(p);
  std::stable_partition(sums_.begin(), sums_.end(),
                        [](const SumAndCount& s) { return s.name == "loss"; });
}

void Evaluator::FillMask(int64_t valid) {
  if (feeds_.valid < 0) return;
  for (size_t i = 0; i < mask_.size(); ++i) mask_[i] = static_cast<int64_t>(i) < valid ? 1 : 0;
  StoreDoubles(mask_dtype_, mask_.data(), executor_.feed(feeds_.valid).data(),
               static_cast<int64_t>(mask_.size()));
}

Status Evaluator::RunProgram(int64_t valid) {
  bool fetch = fetcher_ != nullptr && fetcher_->Wants(program_);
  if (!fetch && profile_ == nullptr) return executor_.Run(program_);
  if (fetch) fetcher_->BeginRun(valid);
  std::span<int64_t> times =
      profile_ != nullptr ? profile_->Times(program_) : std::span(nanoseconds_);
  AMPC_TRY(executor_.RunInstrumented(program_, times, fetch ? &fetcher_->hook() : nullptr));
  if (profile_ != nullptr) profile_->Add(program_);
  return fetch ? fetcher_->EndRun(program_) : Status();
}

Status Evaluator::Run(const volatile std::sig_atomic_t* interrupt) {
  auto start = std::chrono::steady_clock::now();
  ClearSums(sums_);
  samples_ = 0;
  for (int64_t b = 0; b < batches_; ++b) {
    if (interrupt != nullptr && *interrupt != 0) break;
    int64_t valid = 0;
    AMPC_TRY(data_.Fill(b, 0, feeds_.buffers, &valid));
    FillMask(valid);
    AMPC_TRY(RunProgram(valid));
    AMPC_TRY(AddSums(executor_, program_, sums_));
    samples_ += valid;
  }
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {};
}

}  // namespace ampc
