// SPDX-License-Identifier: Apache-2.0
#include "runtime/device.h"

#include <cstdlib>

#include <unistd.h>

namespace ampc {
namespace {

struct DeviceRow {
  std::string_view name;
  Result<std::unique_ptr<Device>> (*open)(std::string_view name, const DeviceOptions& options);
};

constexpr DeviceRow kDevices[] = {
    {"cpu", OpenCpuDevice},
#ifdef AMPC_WITH_CUDA
    {"cuda", OpenCudaDevice},
#endif
    {"null", OpenNullDevice},
};

}  // namespace

Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options) {
  const std::string_view kind = name.substr(0, name.find(':'));
  for (const DeviceRow& row : kDevices) {
    if (row.name == kind) return row.open(name, options);
  }
  if (kind == "cuda") {
    return DeviceError("E0702", "device '{}' is not available: this build has no CUDA; use cpu",
                       name);
  }
  return UsageError("E0703", "unknown device '{}'; expected cpu, cuda, cuda:N or null", name);
}

void LimitOpenMpSpinning(char** argv) {
  // About 0.1 ms: long enough to bridge the gap between two kernels of a step (no spin at all makes
  // a step of small kernels 2.8 times slower), a thirtieth of what libgomp takes by default.
  constexpr const char* kSpinCount = "10000";
  if (getenv("OMP_WAIT_POLICY") != nullptr || getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", kSpinCount, 0) != 0) return;
  execv("/proc/self/exe", argv);
  // Only reached when there is no /proc: training works all the same, with libgomp's own policy.
}

}  // namespace ampc
