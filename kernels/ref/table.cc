// SPDX-License-Identifier: Apache-2.0
// The reference backend's table: one implementation of every row of kernels.def.

#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

std::string DeclinesNothing(const CallSpec&, const PrepareOptions&) { return {}; }

constexpr Implementation kImplementations[] = {
#define KERNEL(name, in_place, summary) {#name, "ref", DeclinesNothing, prepare::name},
#include "kernels/kernels.def"
#undef KERNEL
};

}  // namespace

std::span<const Implementation> Implementations() { return kImplementations; }

Status CheckCall(const CallSpec& call) {
  for (const Implementation& impl : kImplementations) {
    if (impl.kernel == call.kernel) return impl.prepare(call, {}).TakeStatus();
  }
  return BadInput("E0802", "unknown kernel '{}'", call.kernel);
}

}  // namespace ampc::ref
