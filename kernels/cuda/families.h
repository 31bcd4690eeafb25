// SPDX-License-Identifier: Apache-2.0
#pragma once
// The functions behind cuda.def. They see only calls that keep their contract (implementations.cc
// checks first), need no device, and fail with E0801 on a call that their kernels cannot do; the
// text of that is the reason to decline it.

#include "kernels/kernel.h"

namespace ampc::cuda {

using PrepareResult = Result<std::unique_ptr<PreparedKernel>>;

#define CUDA_KERNEL(kernel, name, Family) \
  PrepareResult Prepare##Family(const CallSpec& call, const PrepareOptions& options);
#include "kernels/cuda/cuda.def"
#undef CUDA_KERNEL

}  // namespace ampc::cuda
