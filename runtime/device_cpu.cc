// SPDX-License-Identifier: Apache-2.0
//
// The CPU: oneDNN and own kernels first, reference kernels last. Memory is anonymous pages, huge
// where the kernel has them, which arrive zeroed and count only when touched.

#include <algorithm>
#include <cstring>
#include <fstream>

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/device.h"

namespace ampc {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

/// First number after `key` in a file of "key: number" lines ("" = the first number at all), or -1.
int64_t ReadNumber(const char* file, std::string_view key) {
  std::ifstream in(file);
  std::string word;
  while (in >> word) {
    if (key.empty() || word == key) {
      int64_t value = -1;
      if (key.empty()) {
        return std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; })
                   ? std::strtoll(word.c_str(), nullptr, 10)
                   : -1;
      }
      return in >> value ? value : -1;
    }
  }
  return -1;
}

/// Bytes that can still be allocated: free and reclaimable memory and swap, or what the control
/// group leaves (its use counts the page cache, which gives way). -1 when the system does not say.
int64_t AvailableBytes() {
  constexpr const char* kMemory = "/proc/meminfo";
  constexpr const char* kStat = "/sys/fs/cgroup/memory.stat";
  int64_t available = ReadNumber(kMemory, "MemAvailable:");
  if (available < 0) return -1;
  available = (available + std::max<int64_t>(ReadNumber(kMemory, "SwapFree:"), 0)) * 1024;
  const int64_t limit = ReadNumber("/sys/fs/cgroup/memory.max", "");
  const int64_t used = ReadNumber("/sys/fs/cgroup/memory.current", "");
  if (limit < 0 || used < 0) return available;
  const int64_t cache = std::max<int64_t>(ReadNumber(kStat, "active_file"), 0) +
                        std::max<int64_t>(ReadNumber(kStat, "inactive_file"), 0);
  return std::min(available, std::max<int64_t>(limit - used + cache, 0));
}

std::string CpuName() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

bool HasIsa(dnnl_cpu_isa_t effective, dnnl_cpu_isa_t wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(effective) & bits) == bits;
}

/// The names of the instruction sets that oneDNN dispatches to, best first.
std::string_view IsaName(dnnl_cpu_isa_t isa) {
  struct Row {
    dnnl_cpu_isa_t isa;
    std::string_view name;
  };
  constexpr Row kRows[] = {
      {dnnl_cpu_isa_avx512_core_amx, "amx"},
      {dnnl_cpu_isa_avx512_core_fp16, "avx512_fp16"},
      {dnnl_cpu_isa_avx512_core_bf16, "avx512_bf16"},
      {dnnl_cpu_isa_avx512_core_vnni, "avx512_vnni"},
      {dnnl_cpu_isa_avx512_core, "avx512"},
      {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
      {dnnl_cpu_isa_avx2, "avx2"},
      {dnnl_cpu_isa_avx, "avx"},
      {dnnl_cpu_isa_sse41, "sse4.1"},
  };
  for (const Row& row : kRows) {
    if (HasIsa(isa, row.isa)) return row.name;
  }
  return "x86-64";
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options) : options_(options) {
    registry_.Add(cpu::Implementations());
    registry_.Add(ref::Implementations());
    omp_set_num_threads(options_.threads);
  }

  std::string_view name() const override { return "cpu"; }
  std::string Describe() const override {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("{}, {} thread{}, {}, oneDNN {}.{}", CpuName(), options_.threads,
                       options_.threads == 1 ? "" : "s", IsaName(dnnl_get_effective_cpu_isa()),
                       v->major, v->minor);
  }
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  bool multiplies_bf16() const override {
    return HasIsa(dnnl_get_effective_cpu_isa(), dnnl_cpu_isa_avx512_core_bf16);
  }
  const KernelRegistry& kernels() const override { return registry_; }
  PrepareOptions prepare_options() const override {
    return {options_.threads, options_.deterministic, options_.reference_only};
  }
  bool unified() const override { return true; }

  Result<void*> Allocate(int64_t bytes) override {
    const int64_t available = AvailableBytes();
    if (bytes > kHugePage && available >= 0 && bytes > available)
      return OutOfMemory(bytes, available);
    void* memory =
        mmap(nullptr, Length(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return OutOfMemory(bytes, available);
    if (bytes >= kHugePage) madvise(memory, Length(bytes), MADV_HUGEPAGE);
    return memory;
  }
  void Free(void* memory, int64_t bytes) override {
    if (memory != nullptr) munmap(memory, Length(bytes));
  }
  Result<void*> AllocateHost(int64_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* memory, int64_t bytes) override { Free(memory, bytes); }

  Status CopyToDevice(void* destination, const void* source, int64_t bytes) override {
    if (bytes > 0) std::memcpy(destination, source, static_cast<size_t>(bytes));
    return {};
  }
  Status CopyToHost(void* destination, const void* source, int64_t bytes) override {
    return CopyToDevice(destination, source, bytes);
  }
  Status BeginRun(int) override { return {}; }
  Status EndRun(int) override { return {}; }
  Status Synchronize() override { return {}; }

 private:
  static size_t Length(int64_t bytes) { return static_cast<size_t>(std::max<int64_t>(bytes, 64)); }
  static Status OutOfMemory(int64_t bytes, int64_t available) {
    return DeviceError(
        "E0701",
        "not enough memory: {} bytes needed, {} available; a smaller batch or bf16 needs less",
        bytes, available);
  }

  DeviceOptions options_;
  KernelRegistry registry_;
};

}  // namespace

Result<std::unique_ptr<Device>> OpenCpuDevice(std::string_view name, const DeviceOptions& options) {
  if (name != "cpu") return UsageError("E0703", "unknown device '{}'; the CPU is 'cpu'", name);
  if (options.threads < 1)
    return UsageError("E0704", "{} threads; expected 1 or more", options.threads);
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(options));
}

}  // namespace ampc
