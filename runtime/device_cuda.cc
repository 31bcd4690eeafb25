// SPDX-License-Identifier: Apache-2.0
//
// An NVIDIA GPU through the CUDA runtime: one stream, on which everything happens in order, and one
// graph per program.
//
// The first run of a program issues its calls one by one, which loads their kernels; the second is
// captured into a graph; later ones launch that graph and issue nothing. The host waits for the
// device only where it reads from it: feeds go through two pinned stages in turn, so that the host
// may fill the next batch while the device still works on the last. Every CUDA result becomes a
// Status here. A device belongs to the thread that opened it.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include <cuda_runtime_api.h>

#include "runtime/device.h"
#include "runtime/plan/plan.h"

namespace ampc {
namespace {

/// What kernels/cuda is compiled for at least: A100.
constexpr int kMinimumMajor = 8;
constexpr int64_t kAlignment = 64;

size_t Bytes(int64_t n) { return static_cast<size_t>(n); }
int64_t AlignUp(int64_t n) {
  return (std::max<int64_t>(n, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

/// Ok, or an error with the text of the call. An error of an earlier kernel shows at whatever call
/// comes next.
Status Check(cudaError_t result, std::string_view call) {
  if (result == cudaSuccess) return {};
  cudaGetLastError();  // the next call starts anew, unless the error has broken the context
  return DeviceError("E0706", "{}: {} ({})", call, cudaGetErrorString(result),
                     cudaGetErrorName(result));
}
#define AMPC_CUDA(call) AMPC_TRY(Check(call, #call))

class CudaDevice : public Device {
 public:
  CudaDevice(int index, const DeviceOptions& options)
      : name_(fmt::format("cuda:{}", index)), index_(index), options_(options) {
    registry_.Add(cuda::Implementations());
  }
  ~CudaDevice() override;
  Status Open();

  std::string_view name() const override { return name_; }
  std::string Describe() const override { return description_; }
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  const KernelRegistry& kernels() const override { return registry_; }
  PrepareOptions prepare_options() const override {
    return {options_.threads, options_.deterministic, options_.reference_only};
  }
  bool unified() const override { return false; }
  void Attach(const plan::Plan& plan) override;

  Result<void*> Allocate(int64_t bytes) override;
  void Free(void* memory, int64_t bytes) override;
  Result<void*> AllocateHost(int64_t bytes) override;
  void FreeHost(void* memory, int64_t bytes) override;
  Status CopyToDevice(void* destination, const void* source, int64_t bytes) override;
  Status CopyToHost(void* destination, const void* source, int64_t bytes) override;

  Status BeginRun(int program) override;
  Status EndRun(int program) override;
  bool Replays(int program) const override {
    return graphs_[static_cast<size_t>(program)].state == State::kCaptured;
  }
  void* stream() const override { return stream_; }
  Status Synchronize() override;

 private:
  /// How the next run of a program goes.
  enum class State : uint8_t { kFirst, kCapture, kCaptured };
  struct Graph {
    State state = State::kFirst;
    cudaGraphExec_t exec = nullptr;
  };
  /// Memory from AllocateHost, followed by its two stages.
  struct HostBlock {
    std::byte* data;
    int64_t bytes;
  };

  Status Describe(const cudaDeviceProp& properties);
  Status Instantiate(Graph& graph);
  void DropGraphs();
  const HostBlock* FindHostBlock(const void* memory) const;

  std::string name_, description_;
  const int index_;
  const DeviceOptions options_;
  KernelRegistry registry_;
  cudaStream_t stream_ = nullptr;
  std::vector<Graph> graphs_;  // one per program of the attached plan

  std::vector<HostBlock> host_blocks_;
  cudaEvent_t copied_[2] = {};  // stage i has been read by the device
  int stage_ = 0;               // the one that the next run's feeds go through
  bool stage_open_ = false;     // some of them have
};

// ---- life

Status CudaDevice::Open() {
  AMPC_CUDA(cudaSetDevice(index_));
  cudaDeviceProp properties;
  AMPC_CUDA(cudaGetDeviceProperties(&properties, index_));
  if (properties.major < kMinimumMajor) {
    return DeviceError(
        "E0702", "device '{}' is not available: {} has compute capability {}.{}, {}.0 is needed",
        name_, properties.name, properties.major, properties.minor, kMinimumMajor);
  }
  AMPC_TRY(Describe(properties));
  AMPC_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  for (cudaEvent_t& event : copied_)
    AMPC_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return {};
}

Status CudaDevice::Describe(const cudaDeviceProp& properties) {
  int runtime = 0, driver = 0;
  AMPC_CUDA(cudaRuntimeGetVersion(&runtime));
  AMPC_CUDA(cudaDriverGetVersion(&driver));
  const auto version = [](int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); };
  description_ = fmt::format("{}, compute capability {}.{}, {:.1f} GiB, CUDA {}, driver for {}",
                             properties.name, properties.major, properties.minor,
                             static_cast<double>(properties.totalGlobalMem) / (1 << 30),
                             version(runtime), version(driver));
  return {};
}

CudaDevice::~CudaDevice() {
  DropGraphs();
  for (cudaEvent_t event : copied_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void CudaDevice::Attach(const plan::Plan& plan) {
  DropGraphs();  // they hold addresses of another executor
  graphs_.resize(plan.programs.size());
}

void CudaDevice::DropGraphs() {
  for (Graph& graph : graphs_) {
    if (graph.exec != nullptr) cudaGraphExecDestroy(graph.exec);
  }
  graphs_.clear();
}

// ---- memory

Result<void*> CudaDevice::Allocate(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, Bytes(AlignUp(bytes)));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t available = 0, total = 0;
    AMPC_CUDA(cudaMemGetInfo(&available, &total));
    return DeviceError(
        "E0701",
        "not enough memory: {} bytes needed, {} available; a smaller batch or bf16 needs less",
        bytes, available);
  }
  AMPC_TRY(Check(result, fmt::format("cudaMalloc of {} bytes", bytes)));
  if (Status s =
          Check(cudaMemsetAsync(memory, 0, Bytes(AlignUp(bytes)), stream_), "cudaMemsetAsync");
      !s.ok()) {
    cudaFree(memory);
    return s;
  }
  return memory;
}

// Freeing waits for the device. An error in it has been, or will be, reported by Synchronize.
void CudaDevice::Free(void* memory, int64_t) { cudaFree(memory); }

Result<void*> CudaDevice::AllocateHost(int64_t bytes) {
  const int64_t size = AlignUp(bytes);
  void* memory = nullptr;
  AMPC_TRY(Check(cudaMallocHost(&memory, Bytes(3 * size)),
                 fmt::format("cudaMallocHost of {} bytes", 3 * size)));
  std::memset(memory, 0, Bytes(3 * size));
  host_blocks_.push_back({static_cast<std::byte*>(memory), size});
  return memory;
}

void CudaDevice::FreeHost(void* memory, int64_t) {
  std::erase_if(host_blocks_, [&](const HostBlock& block) { return block.data == memory; });
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);  // it may still read from a stage
  cudaFreeHost(memory);
}

const CudaDevice::HostBlock* CudaDevice::FindHostBlock(const void* memory) const {
  for (const HostBlock& block : host_blocks_) {
    if (memory >= block.data && memory < block.data + block.bytes) return &block;
  }
  return nullptr;
}

/// The source may be changed as soon as this returns. Copies from pageable memory are staged by
/// CUDA itself.
Status CudaDevice::CopyToDevice(void* destination, const void* source, int64_t bytes) {
  if (bytes == 0) return {};
  if (const HostBlock* block = FindHostBlock(source); block != nullptr) {
    if (!stage_open_) {
      AMPC_CUDA(cudaEventSynchronize(
          copied_[stage_]));  // two runs ago: long done, or the host is far enough ahead
      stage_open_ = true;
    }
    const int64_t offset = static_cast<const std::byte*>(source) - block->data;
    std::byte* stage = block->data + (1 + stage_) * block->bytes + offset;
    std::memcpy(stage, source, Bytes(bytes));
    source = stage;
  }
  AMPC_CUDA(cudaMemcpyAsync(destination, source, Bytes(bytes), cudaMemcpyHostToDevice, stream_));
  return {};
}

Status CudaDevice::CopyToHost(void* destination, const void* source, int64_t bytes) {
  if (bytes == 0) return {};
  AMPC_CUDA(cudaMemcpyAsync(destination, source, Bytes(bytes), cudaMemcpyDeviceToHost, stream_));
  return Synchronize();
}

// ---- runs

Status CudaDevice::BeginRun(int program) {
  if (stage_open_) {
    AMPC_CUDA(cudaEventRecord(copied_[stage_], stream_));
    stage_ ^= 1;
    stage_open_ = false;
  }
  if (graphs_[static_cast<size_t>(program)].state == State::kCapture) {
    // Other threads (the one that loads data) may go on using CUDA.
    AMPC_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  return {};
}

Status CudaDevice::EndRun(int program) {
  Graph& graph = graphs_[static_cast<size_t>(program)];
  switch (graph.state) {
    case State::kFirst:
      AMPC_TRY(Check(cudaGetLastError(), "a kernel could not be launched"));
      graph.state = State::kCapture;
      return {};
    case State::kCapture:
      AMPC_TRY(Instantiate(graph));
      graph.state = State::kCaptured;
      break;
    case State::kCaptured:
      break;
  }
  AMPC_CUDA(cudaGraphLaunch(graph.exec, stream_));
  return {};
}

/// Ends the capture and makes its calls a graph that can be launched.
Status CudaDevice::Instantiate(Graph& graph) {
  cudaGraph_t captured = nullptr;
  AMPC_CUDA(cudaStreamEndCapture(stream_, &captured));
  Status status = Check(cudaGetLastError(), "a kernel could not be captured");
  if (status.ok())
    status = Check(cudaGraphInstantiate(&graph.exec, captured, 0), "cudaGraphInstantiate");
  cudaGraphDestroy(captured);
  return status;
}

Status CudaDevice::Synchronize() {
  AMPC_TRY(Check(cudaGetLastError(), "a kernel could not be launched"));
  AMPC_CUDA(cudaStreamSynchronize(stream_));
  return {};
}

/// "cuda" is device 0, "cuda:N" device N.
Result<int> ParseIndex(std::string_view name) {
  if (name == "cuda") return 0;
  int index = -1;
  const std::string_view digits = name.starts_with("cuda:") ? name.substr(5) : std::string_view();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || digits.empty() || index < 0) {
    return UsageError("E0703", "unknown device '{}'; expected cuda or cuda:N", name);
  }
  return index;
}

}  // namespace

Result<std::unique_ptr<Device>> OpenCudaDevice(std::string_view name,
                                               const DeviceOptions& options) {
  AMPC_ASSIGN(const int index, ParseIndex(name));
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    return DeviceError(
        "E0702", "no CUDA device: {}; use --device cpu",
        result != cudaSuccess ? cudaGetErrorString(result) : "the driver lists none");
  }
  if (index >= count) {
    return DeviceError("E0702", "no CUDA device {}: this machine has {}, counted from 0", index,
                       count);
  }
  if (options.reference_only) {
    return UsageError("E0707",
                      "the reference kernels (--precision fp64, --reference) run on the CPU alone; "
                      "use --device cpu");
  }
  auto device = std::make_unique<CudaDevice>(index, options);
  AMPC_TRY(device->Open());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace ampc
