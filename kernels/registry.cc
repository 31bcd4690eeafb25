// SPDX-License-Identifier: Apache-2.0
// The rows of kernels.def as data, and the choice of an implementation: the first in the order of
// the tables that does not decline.

#include "kernels/kernel.h"

#include <fmt/format.h>

namespace ampc {
namespace {

// The words of the in_place column.
constexpr uint64_t NONE = 0;
constexpr uint64_t ANY = ~uint64_t{0};
constexpr uint64_t PAIR(int input, int output) { return uint64_t{1} << (output * 8 + input); }

constexpr KernelInfo kKernels[] = {
#define KERNEL(name, in_place, summary) {#name, summary, in_place},
#include "kernels/kernels.def"
#undef KERNEL
};

}  // namespace

std::span<const KernelInfo> AllKernels() { return kKernels; }

const KernelInfo* FindKernel(std::string_view name) {
  for (const KernelInfo& k : kKernels) {
    if (k.name == name) return &k;
  }
  return nullptr;
}

Result<const Implementation*> KernelRegistry::Select(const CallSpec& call,
                                                     const PrepareOptions& options) const {
  if (FindKernel(call.kernel) == nullptr) {
    return Unsupported("E0801", "kernel '{}' is unknown to this version, which has {} kernels",
                       call.kernel, AllKernels().size());
  }
  std::string reasons;
  for (std::span<const Implementation> table : tables_) {
    for (const Implementation& impl : table) {
      if (impl.kernel != call.kernel) continue;
      if (options.reference_only && impl.name != "ref") continue;
      std::string reason = impl.declines(call, options);
      if (reason.empty()) return &impl;
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", impl.name, reason);
    }
  }
  return Unsupported("E0801", "no implementation of kernel '{}' for this call ({})", call.kernel,
                     reasons.empty() ? "the device has none" : reasons);
}

std::vector<const Implementation*> KernelRegistry::Of(std::string_view kernel) const {
  std::vector<const Implementation*> found;
  for (std::span<const Implementation> table : tables_) {
    for (const Implementation& impl : table) {
      if (impl.kernel == kernel) found.push_back(&impl);
    }
  }
  return found;
}

}  // namespace ampc
