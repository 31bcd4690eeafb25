// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the conformance test of the CUDA kernels runs. The same test file is built twice: against
// the emulation, where device memory is the host's, and with AMPC_TEST_ON_DEVICE against the
// kernels that nvcc made, on the first GPU.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "kernels/kernel.h"

#ifdef AMPC_TEST_ON_DEVICE
#include "runtime/device.h"
#endif

namespace ampc::cuda_test {

#ifdef AMPC_TEST_ON_DEVICE

/// Units in the last place that a mathematical function of the device may differ by from the
/// host's.
inline constexpr int64_t kFunctionUlps = 8;

class Machine {
 public:
  static Result<std::unique_ptr<Machine>> Open() {
    auto machine = std::make_unique<Machine>();
    AMPC_ASSIGN(machine->device_, OpenDevice("cuda", {}));
    return machine;
  }
  void* Allocate(size_t bytes) { return device_->Allocate(static_cast<int64_t>(bytes)).value(); }
  void Free(void* memory) { device_->Free(memory, 0); }
  Status Write(void* to, std::span<const std::byte> from) {
    return device_->CopyToDevice(to, from.data(), static_cast<int64_t>(from.size()));
  }
  Status Read(std::span<std::byte> to, const void* from) {
    return device_->CopyToHost(to.data(), from, static_cast<int64_t>(to.size()));
  }
  void* stream() const { return device_->stream(); }
  Status Finish() { return device_->Synchronize(); }

 private:
  std::unique_ptr<Device> device_;
};

#else

inline constexpr int64_t kFunctionUlps = 0;

class Machine {
 public:
  static Result<std::unique_ptr<Machine>> Open() { return std::make_unique<Machine>(); }
  void* Allocate(size_t bytes) { return ::operator new(bytes, kAlignment); }
  void Free(void* memory) { ::operator delete(memory, kAlignment); }
  Status Write(void* to, std::span<const std::byte> from) {
    std::memcpy(to, from.data(), from.size());
    return {};
  }
  Status Read(std::span<std::byte> to, const void* from) {
    std::memcpy(to.data(), from, to.size());
    return {};
  }
  void* stream() const { return nullptr; }
  Status Finish() { return {}; }

 private:
  static constexpr std::align_val_t kAlignment{64};
};

#endif

/// Memory of an operand, `shift` bytes behind a 64-byte boundary, between two fences.
class DeviceBuffer {
 public:
  DeviceBuffer(Machine& machine, std::span<const std::byte> content, size_t shift)
      : machine_(machine),
        start_(kFence + shift),
        size_(content.size()),
        image_(start_ + size_ + kFence, kGarbage) {
    if (size_ != 0) std::memcpy(image_.data() + start_, content.data(), size_);
    memory_ = static_cast<std::byte*>(machine_.Allocate(image_.size()));
    status_ = machine_.Write(memory_, image_);
  }
  ~DeviceBuffer() { machine_.Free(memory_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  const Status& status() const { return status_; }
  void* data() const { return memory_ + start_; }
  /// The content; sets *fences to whether nothing around it has changed.
  Result<std::vector<std::byte>> Read(bool* fences) {
    std::vector<std::byte> now(image_.size());
    AMPC_TRY(machine_.Read(now, memory_));
    const auto begin = now.begin() + static_cast<std::ptrdiff_t>(start_),
               end = begin + static_cast<std::ptrdiff_t>(size_);
    const auto intact = [](std::byte b) { return b == kGarbage; };
    *fences = std::all_of(now.begin(), begin, intact) && std::all_of(end, now.end(), intact);
    return std::vector<std::byte>(begin, end);
  }

 private:
  static constexpr size_t kFence = 64;
  static constexpr std::byte kGarbage{0xA5};

  Machine& machine_;
  size_t start_, size_;
  std::vector<std::byte> image_;
  std::byte* memory_;
  Status status_;
};

}  // namespace ampc::cuda_test
