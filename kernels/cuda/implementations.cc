// SPDX-License-Identifier: Apache-2.0
// The table of the CUDA implementations.

#include "kernels/cuda/families.h"
#include "kernels/ref/ref.h"

namespace ampc::cuda {
namespace {

using PrepareFunction = PrepareResult (*)(const CallSpec&, const PrepareOptions&);

template <PrepareFunction kPrepare>
PrepareResult PrepareChecked(const CallSpec& call, const PrepareOptions& options) {
  AMPC_TRY(ref::CheckCall(call));
  return kPrepare(call, options);
}

/// Preparing is cheap and needs no device, so what it refuses is what is declined.
template <PrepareFunction kPrepare>
std::string Declines(const CallSpec& call, const PrepareOptions& options) {
  const PrepareResult prepared = PrepareChecked<kPrepare>(call, options);
  return prepared.ok() ? std::string() : prepared.status().message();
}

constexpr Implementation kImplementations[] = {
#define CUDA_KERNEL(kernel, name, Family) \
  {#kernel, name, Declines<Prepare##Family>, PrepareChecked<Prepare##Family>},
#include "kernels/cuda/cuda.def"
#undef CUDA_KERNEL
};

}  // namespace

std::span<const Implementation> Implementations() { return kImplementations; }

}  // namespace ampc::cuda
