// SPDX-License-Identifier: Apache-2.0
// The CPU's table of implementations.

#include "kernels/cpu/families.h"
#include "kernels/ref/ref.h"

namespace ampc::cpu {
namespace {

using DeclinesFunction = std::string (*)(const CallSpec&, const PrepareOptions&);

/// A call that breaks its contract is declined here and refused, with the reason, by the reference.
template <DeclinesFunction kDeclines>
std::string DeclinesChecked(const CallSpec& call, const PrepareOptions& options) {
  if (const Status status = ref::CheckCall(call); !status.ok()) return status.message();
  return kDeclines(call, options);
}

constexpr Implementation kImplementations[] = {
#define CPU_KERNEL(kernel, name, Family) \
  {#kernel, name, DeclinesChecked<Declines##Family>, Prepare##Family},
#include "kernels/cpu/cpu.def"
#undef CPU_KERNEL
};

}  // namespace

std::span<const Implementation> Implementations() { return kImplementations; }

}  // namespace ampc::cpu
