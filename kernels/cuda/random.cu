// SPDX-License-Identifier: Apache-2.0
// dropout: a thread makes one block of Philox and decides on the four elements that it numbers, so
// nothing is generated twice, and the mask is the same in every layout and on every device.

#include "kernels/cuda/random.h"

#include "kernels/cuda/elements.h"
#include "kernels/cuda/launch.h"
#include "kernels/philox.h"

namespace ampc::cuda {
namespace {

static_assert(kLanes == 4, "one block of Philox numbers 4 elements");

template <typename T>
__global__ void __launch_bounds__(kThreads) Dropout(const __grid_constant__ DropoutParams p) {
  const int64_t first = ThreadNumber() * kLanes;
  if (first >= p.elements) return;
  const int64_t n = p.elements - first < kLanes ? p.elements - first : kLanes;
  const uint64_t threshold = DropoutThreshold(LoadScalar<double>(p.ratio_dtype, p.ratio));
  const T keep = T{1} - LoadScalar<T>(p.ratio_dtype, p.ratio);
  const PhiloxBlock bits =
      StreamBits(p.rng[0], p.rng[1], p.stream, static_cast<uint32_t>(first / kLanes));
  Lanes<T> value = LoadLanes<T>(p.x, p.x_data, first, n, p.vector), kept;
  AMPC_UNROLL
  for (int l = 0; l < kLanes; ++l) {
    const bool keeps = bits.word[l] >= threshold;
    value.lane[l] = keeps ? value.lane[l] / keep : T{0};
    kept.lane[l] = keeps ? T{1} : T{0};
  }
  StoreLanes<T>(p.y, p.y_data, first, n, p.vector, value);
  if (p.mask_data != nullptr) StoreLanes<T>(p.mask, p.mask_data, first, n, p.vector, kept);
}

}  // namespace

void LaunchDropout(const DropoutParams& p, void* stream) {
  const int64_t threads = (p.elements + kLanes - 1) / kLanes;
  Launch(p.in_double ? Dropout<double> : Dropout<float>, p, threads, kThreads, 0, stream);
}

}  // namespace ampc::cuda
