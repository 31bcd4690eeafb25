// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/vec/vec.h"

#include "kernels/cpu/vec/pairs.h"

namespace ampc::cpu {
namespace {

#if defined(__x86_64__)
bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}
#endif

}  // namespace

const VecOps& Vec() {
#if defined(__x86_64__)
  if (HasAvx512()) return vec_avx512::kVecOps;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c")) {
    return vec_avx2::kVecOps;
  }
#endif
  return vec_base::kVecOps;
}

const PairOps* Pairs() {
#if defined(__x86_64__)
  if (HasAvx512() && __builtin_cpu_supports("avx512bf16")) return &pairs_avx512::kPairOps;
#endif
  return nullptr;
}

}  // namespace ampc::cpu
