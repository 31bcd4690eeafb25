// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions behind cpu.def. They see only calls that keep their contract: implementations.cc
// checks first.

#include "kernels/kernel.h"

namespace ampc::cpu {

using PrepareResult = Result<std::unique_ptr<PreparedKernel>>;

#define CPU_KERNEL(kernel, name, Family)                                             \
  std::string Declines##Family(const CallSpec& call, const PrepareOptions& options); \
  PrepareResult Prepare##Family(const CallSpec& call, const PrepareOptions& options);
#include "kernels/cpu/cpu.def"
#undef CPU_KERNEL

}  // namespace ampc::cpu
