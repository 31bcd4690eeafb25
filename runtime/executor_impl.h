// SPDX-License-Identifier: Apache-2.0
#pragma once
// The executor behind runtime/executor.h: what it holds between Prepare and Run.
// executor_prepare.cc fills it, executor.cc runs it.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor.h"

namespace ampc {

/// Memory of the device, given back on destruction.
class Region {
 public:
  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() {
    if (data_ == nullptr) return;
    host_ ? device_->FreeHost(data_, bytes_) : device_->Free(data_, bytes_);
  }
  Status Allocate(Device& device, int64_t bytes) { return Allocate(device, bytes, false); }
  Status AllocateHost(Device& device, int64_t bytes) { return Allocate(device, bytes, true); }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  Status Allocate(Device& device, int64_t bytes, bool host) {
    AMPC_ASSIGN(data_, host ? device.AllocateHost(bytes) : device.Allocate(bytes));
    device_ = &device;
    bytes_ = bytes;
    host_ = host;
    return {};
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  bool host_ = false;
};

struct BoundCall {
  std::unique_ptr<PreparedKernel> kernel;
  const Implementation* implementation = nullptr;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  RunContext context;
};

struct BoundProgram {
  std::vector<BoundCall> calls;
  std::vector<const void*> inputs;  ///< what the calls' spans point into
  std::vector<void*> outputs;       ///< likewise
  std::vector<int32_t> feeds;       ///< to be copied to the device before a run
  /// Per output: where ScalarOutput reads it to. Without data when it is no scalar.
  std::vector<HostTensor> scalars;
  /// Host copy of the calls' index errors, where the device is not unified.
  std::vector<int64_t> errors;
  int64_t* device_errors = nullptr;  ///< one word per call
  bool unchecked = false;            ///< a run whose index errors have not been looked at
};

/// The cast that rebuilds a derived state.
struct Derivation {
  int32_t from, to;
  std::unique_ptr<PreparedKernel> kernel;
};

/// "node '/fc1/MatMul' (kernel matmul, call 3 of program 'step')"
std::string PlaceOf(const plan::Program& program, size_t call);

class ExecutorImpl : public Executor {
 public:
  ExecutorImpl(const plan::Plan& plan, Device& device)
      : plan_(plan), device_(device), unified_(device.unified()) {}

  Status Prepare();

  const MemoryReport& memory() const override { return memory_; }
  std::string_view implementation(int program, int call) const override {
    return programs_[static_cast<size_t>(program)]
        .calls[static_cast<size_t>(call)]
        .implementation->name;
  }
  std::span<std::byte> feed(int index) override {
    const auto i = static_cast<size_t>(index);
    return {(unified_ ? feeds_ : host_feeds_).data() + feed_offsets_[i],
            static_cast<size_t>(plan_.feeds[i].desc.bytes())};
  }
  Status Run(int program) override;
  Status RunInstrumented(int program, std::span<int64_t> nanoseconds,
                         const CallHook* hook) override;
  Result<double> ScalarOutput(int program, int output) override;
  Status ReadTensor(int program, int tensor, std::span<std::byte> out) override;
  Status ReadState(int state, std::span<std::byte> out) override;
  Status WriteState(int state, std::span<const std::byte> data) override;
  Status ReadStatePiece(int state, int64_t offset, std::span<std::byte> out) override;
  Status WriteStatePiece(int state, int64_t offset, std::span<const std::byte> data) override;

 private:
  Status AllocateMemory();
  Status OutOfMemory(Status status) const;
  Status LoadStates();
  Status LoadState(const plan::State& state, std::byte* to);
  Status Fill(const HostTensor& element, int64_t elements, std::byte* to);
  Status LoadConstants();
  Status PrepareProgram(size_t index);
  Status PrepareDerivations();
  Status Derive(const Derivation& d);
  void Bind(size_t index);

  std::byte* StateMemory(int32_t i) const {
    return states_.data() + state_offsets_[static_cast<size_t>(i)];
  }
  std::byte* Address(const plan::Program& program, int32_t tensor) const;
  Status CopyFeeds(const BoundProgram& bound);
  Status CheckIndexErrors(int program);
  Status CheckPiece(int state, int64_t offset, size_t bytes) const;
  Status IndexError(int program, size_t call, int64_t word);

  const plan::Plan& plan_;
  Device& device_;
  const bool unified_;
  Region states_, feeds_, host_feeds_, constants_, block_, workspace_, errors_;
  std::vector<int64_t> state_offsets_, feed_offsets_, constant_offsets_;
  // Private memory of kernels may lie on the device, so they are destroyed before the regions.
  std::vector<BoundProgram> programs_;
  std::vector<Derivation> derivations_;
  MemoryReport memory_;
};

}  // namespace ampc
