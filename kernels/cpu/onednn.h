// SPDX-License-Identifier: Apache-2.0
#pragma once
// A thin layer over oneDNN: one primitive with its arguments, made once and executed many times.
//
// dnnl.hpp is heavy and throws; only the files that include this header see it, and every exception
// ends in CatchOneDnn. Arguments are memory objects without memory; Run sets their handles and
// executes through the C interface. oneDNN builds a map of the arguments all the same: its nodes
// come from recycled slots (runtime/base/recycle.h). Scratch memory is the caller's (scratchpad
// mode user).
//
// A primitive is tied to the thread count under which it was made, so creation and execution both
// happen under ScopedThreads with the same number; that is also what makes its results
// reproducible.

#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/cpu/common.h"

namespace ampc::cpu {

/// The OpenMP thread count of this thread's parallel regions, for a scope.
class ScopedThreads {
 public:
  explicit ScopedThreads(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
    changed_ = threads != before_;
  }
  ~ScopedThreads() {
    if (changed_) omp_set_num_threads(before_);
  }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  int before_;
  bool changed_ = false;
};

class OneDnnPrimitive {
 public:
  OneDnnPrimitive() = default;
  OneDnnPrimitive(OneDnnPrimitive&&) = default;
  OneDnnPrimitive& operator=(OneDnnPrimitive&&) = default;

  /// `threads`: that of the ScopedThreads around the creation of `primitive`.
  OneDnnPrimitive(const dnnl::engine& engine, dnnl::primitive primitive, int threads)
      : engine_(engine), stream_(engine), primitive_(std::move(primitive)), threads_(threads) {}

  explicit operator bool() const { return static_cast<bool>(primitive_); }

  /// Adds an argument; returns its number for SetData.
  int Bind(int arg, const dnnl::memory::desc& desc) {
    memories_.emplace_back(desc, engine_, nullptr);  // null: no memory of its own
    args_.push_back({arg, memories_.back().get()});
    return static_cast<int>(args_.size()) - 1;
  }
  /// Books scratch memory; Execute hands it over.
  void BindScratch(const dnnl::memory::desc& desc, WorkspacePlan& plan) {
    if (desc.get_size() == 0) return;
    scratch_ = Bind(DNNL_ARG_SCRATCHPAD, desc);
    scratch_at_ = plan.Take(static_cast<int64_t>(desc.get_size()));
  }
  void SetData(int number, const void* data) noexcept {
    dnnl_memory_set_data_handle(args_[number].memory, const_cast<void*>(data));
  }
  /// A failure here is a bug (everything was checked when the primitive was made): the process
  /// ends.
  void Execute(void* workspace) noexcept;

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> args_;
  int threads_ = 1;
  int scratch_ = -1;
  int64_t scratch_at_ = 0;
  bool executed_ = false;
};

dnnl::memory::data_type OneDnnType(DType t);

/// The name of the chosen implementation starts with "ref": hundreds of times slower than it should
/// be.
bool IsOneDnnReference(const char* impl_info);

/// True when the processor has bf16 dot products; without them oneDNN emulates bf16 slowly or
/// refuses.
bool HasNativeBf16();

/// Turns oneDNN's exception into a Status.
Status OneDnnFailed(std::string_view what, const dnnl::error& error);

/// fn() -> Result<R>, with oneDNN's exceptions caught.
template <typename F>
auto CatchOneDnn(std::string_view what, F&& fn) -> decltype(fn()) {
  try {
    return fn();
  } catch (const dnnl::error& error) {
    return OneDnnFailed(what, error);
  }
}

}  // namespace ampc::cpu
