// SPDX-License-Identifier: Apache-2.0
// The inner loops for one instruction set; compiled with its flags (kernels/cpu/CMakeLists.txt).
#include "kernels/cpu/vec/vec.h"

#include <utility>

#include "kernels/expr_eval.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define AMPC_VEC_NAME "base"

namespace ampc::cpu::vec_base {
#include "kernels/cpu/vec/table.inc"  // NOLINT
}  // namespace ampc::cpu::vec_base
