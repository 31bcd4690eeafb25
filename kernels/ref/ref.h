// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reference kernels: one preparing function per row of kernels.def, named as the row.
//
// They are the oracle that other backends are held to, the kernels of `--precision fp64` plans and
// the last choice on the CPU, written as plain loops. They decline no valid call; preparing checks
// the operands against the contract (E0802), running checks nothing and allocates nothing. Matrix
// products, convolutions, reductions, norms, softmaxes, losses and pools accumulate float data in
// double, which is nearer the truth than the contract's fp32; elementwise programs, optimizers,
// clip, dropout and scatter-adds compute exactly as the contract says, in fp32 (double for double
// data).

#include <memory>
#include <utility>

#include "kernels/kernel.h"

namespace ampc::ref {

using PrepareResult = Result<std::unique_ptr<PreparedKernel>>;

namespace prepare {
#define KERNEL(name, in_place, summary) \
  PrepareResult name(const CallSpec& call, const PrepareOptions& options);
#include "kernels/kernels.def"
#undef KERNEL
}  // namespace prepare

/// The contract's checks alone, for backends that want them before their own preparation.
Status CheckCall(const CallSpec& call);

/// A prepared kernel of a function object: f(Buffers) does the work, `workspace` is what it needs.
struct Buffers {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* workspace;
  const RunContext& context;

  /// Null when absent; trailing absent operands may be left out of the call.
  const void* in(size_t i) const { return i < inputs.size() ? inputs[i] : nullptr; }
  void* out(size_t i) const { return i < outputs.size() ? outputs[i] : nullptr; }
  /// Reports 1 + `position` as the first bad index.
  void BadIndex(int64_t position) const {
    if (*context.index_error == 0) *context.index_error = position + 1;
  }
};

template <typename F>
class RefKernel final : public PreparedKernel {
 public:
  RefKernel(F f, int64_t workspace_bytes) : f_(std::move(f)), workspace_bytes_(workspace_bytes) {}
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext& context) noexcept override {
    f_(Buffers{inputs, outputs, workspace, context});
  }

 private:
  F f_;
  int64_t workspace_bytes_;
};

template <typename F>
PrepareResult MakeKernel(F f, int64_t workspace_bytes = 0) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<RefKernel<F>>(std::move(f), workspace_bytes));
}

}  // namespace ampc::ref
