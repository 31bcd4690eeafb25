// SPDX-License-Identifier: Apache-2.0
#pragma once
// A device for fuzzed plans: the reference kernels, on memory from malloc (so that
// AddressSanitizer sees the first byte beyond each region), and little of it (so that no call takes
// long).

#include <cstdlib>
#include <cstring>

#include "runtime/device.h"

namespace ampc::fuzz {

class RefDevice final : public Device {
 public:
  explicit RefDevice(int64_t memory) : memory_(memory) { registry_.Add(ref::Implementations()); }
  std::string_view name() const override { return "ref"; }
  std::string Describe() const override { return "reference kernels"; }
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const KernelRegistry& kernels() const override { return registry_; }
  PrepareOptions prepare_options() const override { return {}; }
  bool unified() const override { return true; }
  Result<void*> Allocate(int64_t bytes) override {
    if (bytes < 0) return InternalError("E7900", "{} bytes asked for", bytes);
    if (bytes > memory_) return DeviceError("E0701", "not enough memory");
    const size_t rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    void* memory = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
    std::memset(memory, 0, rounded == 0 ? 64 : rounded);
    return memory;
  }
  void Free(void* memory, int64_t) override { std::free(memory); }
  Result<void*> AllocateHost(int64_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory, int64_t) override { std::free(memory); }
  Status CopyToDevice(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return {};
  }
  Status CopyToHost(void* to, const void* from, int64_t bytes) override {
    return CopyToDevice(to, from, bytes);
  }
  Status BeginRun(int) override { return {}; }
  Status EndRun(int) override { return {}; }
  Status Synchronize() override { return {}; }

 private:
  int64_t memory_;
  KernelRegistry registry_;
};

}  // namespace ampc::fuzz
