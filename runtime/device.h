// SPDX-License-Identifier: Apache-2.0
#pragma once
// A device: memory, transfer, a kernel registry. One file per device (device_cpu.cc,
// device_null.cc, device_cuda.cc) and one line in OpenDevice. A new backend starts as a copy of the
// null device.

#include <memory>
#include <string>
#include <string_view>

#include "kernels/kernel.h"
#include "runtime/base/status.h"

namespace ampc {

namespace plan {
struct Plan;
}

struct DeviceOptions {
  int threads = 1;
  bool deterministic = false;
  bool reference_only = false;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;  ///< "cpu", "cuda:0", "null"
  virtual std::string Describe() const = 0;   ///< "AMD EPYC, 2 threads, avx512_bf16, oneDNN 3.2"
  virtual DeviceKind kind() const = 0;
  /// Products of bf16 have instructions of their own: without them fp32 is faster.
  virtual bool multiplies_bf16() const { return true; }
  virtual const KernelRegistry& kernels() const = 0;
  virtual PrepareOptions prepare_options() const = 0;

  /// True when the host reads and writes device memory directly; feeds are then filled in place.
  virtual bool unified() const = 0;
  /// The plan that the executor is about to run; it outlives the device's use of it. The null
  /// device prints its calls.
  virtual void Attach(const plan::Plan&) {}

  /// 64-byte aligned, zero-filled device memory. Errors: kDevice E0701 with needed and available
  /// bytes.
  virtual Result<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* memory, int64_t bytes) = 0;
  /// Host memory for feeds where the device is not unified (pinned on CUDA), 64-byte aligned and
  /// zero-filled.
  virtual Result<void*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* memory, int64_t bytes) = 0;
  virtual Status CopyToDevice(void* destination, const void* source, int64_t bytes) = 0;
  virtual Status CopyToHost(void* destination, const void* source, int64_t bytes) = 0;
  /// Called around each run of a program: CUDA captures an early run into a graph and launches that
  /// in later ones.
  virtual Status BeginRun(int program) = 0;
  virtual Status EndRun(int program) = 0;
  /// Asked after BeginRun: true when EndRun alone repeats the program's calls; then none are
  /// issued.
  virtual bool Replays(int) const { return false; }
  virtual void* stream() const { return nullptr; }
  /// Waits until all work is done; errors of asynchronous work appear here.
  virtual Status Synchronize() = 0;
};

/// "cpu", "cuda", "cuda:1", "null". Unknown or unavailable: kUsage or kDevice with the reason.
Result<std::unique_ptr<Device>> OpenDevice(std::string_view name, const DeviceOptions& options);

/// One per device file; OpenDevice's table names them.
Result<std::unique_ptr<Device>> OpenCpuDevice(std::string_view name, const DeviceOptions& options);
Result<std::unique_ptr<Device>> OpenNullDevice(std::string_view name, const DeviceOptions& options);
Result<std::unique_ptr<Device>> OpenCudaDevice(std::string_view name, const DeviceOptions& options);

/// First line of main() of a tool that runs kernels. libgomp reads how long idle threads spin when
/// it is loaded, before main(): too long by default (a second process on the machine then slows
/// every small kernel to milliseconds). Unless the user chose by OMP_WAIT_POLICY or GOMP_SPINCOUNT,
/// runs the program again with a short spin. Returns in the second one.
void LimitOpenMpSpinning(char** argv);

}  // namespace ampc
