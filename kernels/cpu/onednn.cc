// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/onednn.h"

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "runtime/base/recycle.h"

namespace ampc::cpu {

void OneDnnPrimitive::Execute(void* workspace) noexcept {
  if (scratch_ >= 0) SetData(scratch_, At<std::byte>(workspace, scratch_at_));
  const ScopedThreads scope(threads_);
  // oneDNN builds a hash map in every execute; what it makes in the first one may stay.
  std::optional<RecyclingScope> recycling;
  if (executed_) recycling.emplace();
  executed_ = true;
  const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                                      static_cast<int>(args_.size()), args_.data());
  if (status != dnnl_success) {
    std::fprintf(stderr, "internal error: oneDNN execution failed with status %d\n", status);
    std::abort();
  }
}

dnnl::memory::data_type OneDnnType(DType t) {
  using D = dnnl::memory::data_type;
  return t == DType::kFloat32    ? D::f32
         : t == DType::kBFloat16 ? D::bf16
         : t == DType::kFloat16  ? D::f16
                                 : D::undef;
}

bool IsOneDnnReference(const char* impl_info) {
  return std::string_view(impl_info).starts_with("ref");
}

bool HasNativeBf16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

Status OneDnnFailed(std::string_view what, const dnnl::error& error) {
  return DeviceError("E0810", "oneDNN could not prepare {}: {} (status {})", what, error.message,
                     static_cast<int>(error.status));
}

}  // namespace ampc::cpu
