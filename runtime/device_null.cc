// SPDX-License-Identifier: Apache-2.0
//
// The device that does nothing: a run prints its calls, one a line, and every value reads as zero.
// It shows what a plan would do, on a machine too small to do it: memory is address space without
// pages. A new backend starts as a copy of this file.

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <sys/mman.h>

#include "runtime/device.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/text.h"

namespace ampc {
namespace {

class NullKernel : public PreparedKernel {
 public:
  void Run(std::span<const void* const>, std::span<void* const>, void*,
           const RunContext&) noexcept override {}
};

std::string DeclinesNothing(const CallSpec&, const PrepareOptions&) { return ""; }

Result<std::unique_ptr<PreparedKernel>> PrepareNothing(const CallSpec&, const PrepareOptions&) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<NullKernel>());
}

constexpr Implementation kImplementations[] = {
#define KERNEL(name, in_place, summary) {#name, "null", DeclinesNothing, PrepareNothing},
#include "kernels/kernels.def"
#undef KERNEL
};

class NullDevice : public Device {
 public:
  explicit NullDevice(const DeviceOptions& options) : options_(options) {
    registry_.Add(kImplementations);
  }

  std::string_view name() const override { return "null"; }
  std::string Describe() const override { return "null device: prints calls, computes nothing"; }
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const KernelRegistry& kernels() const override { return registry_; }
  PrepareOptions prepare_options() const override {
    return {options_.threads, options_.deterministic, false};
  }
  bool unified() const override { return false; }
  void Attach(const plan::Plan& plan) override { plan_ = &plan; }

  Result<void*> Allocate(int64_t bytes) override { return Map(bytes, PROT_NONE); }
  void Free(void* memory, int64_t bytes) override {
    if (memory != nullptr) munmap(memory, Length(bytes));
  }
  Result<void*> AllocateHost(int64_t bytes) override { return Map(bytes, PROT_READ | PROT_WRITE); }
  void FreeHost(void* memory, int64_t bytes) override { Free(memory, bytes); }

  Status CopyToDevice(void*, const void*, int64_t) override { return {}; }
  Status CopyToHost(void* destination, const void*, int64_t bytes) override {
    if (bytes > 0) std::memset(destination, 0, static_cast<size_t>(bytes));
    return {};
  }

  Status BeginRun(int program) override {
    if (plan_ == nullptr) return {};
    const plan::Program& p = plan_->programs[static_cast<size_t>(program)];
    std::printf("run %s\n", plan::Quote(p.name).c_str());
    for (size_t c = 0; c < p.calls.size(); ++c)
      std::printf("%s\n", plan::CallToString(*plan_, p, c).c_str());
    return {};
  }
  Status EndRun(int) override { return {}; }
  Status Synchronize() override { return {}; }

 private:
  static size_t Length(int64_t bytes) { return static_cast<size_t>(std::max<int64_t>(bytes, 64)); }
  static Result<void*> Map(int64_t bytes, int protection) {
    void* memory = mmap(nullptr, Length(bytes), protection,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      return DeviceError("E0701", "not enough address space: {} bytes needed", bytes);
    return memory;
  }

  DeviceOptions options_;
  KernelRegistry registry_;
  const plan::Plan* plan_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Device>> OpenNullDevice(std::string_view name,
                                               const DeviceOptions& options) {
  if (name != "null")
    return UsageError("E0703", "unknown device '{}'; the null device is 'null'", name);
  return std::unique_ptr<Device>(std::make_unique<NullDevice>(options));
}

}  // namespace ampc
