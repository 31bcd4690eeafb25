// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device-neutral kernel vocabulary: how the compiler names work and how a backend offers to do
// it.
//
// A *kernel* is a name with a meaning ("matmul", "conv_bwd_weights"), listed once in kernels.def
// together with its operands and parameters. A *call* is a kernel, parameters and the forms of its
// operands. An *implementation* is one way to do a kernel on a device kind: it says whether it
// supports a call (with the reason when not), prepares it once (primitives, workspace size) and
// then runs it many times without allocating, looking up or locking. Each backend exports one table
// of implementations, best first; Registry joins them and takes the first that supports the call.
// On the CPU the reference kernels come last; on CUDA there is no fallback.
//
// Numbers: a kernel reads low operands, computes and accumulates in fp32 (double for double
// operands), and rounds once to nearest even when it stores. float -> float16 overflows to
// infinity.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/attrs.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc {

/// What to run, without memory. Views: the owner (plan or test) outlives the Prepare call.
struct CallSpec {
  std::string_view kernel;
  Attrs params;
  std::vector<TensorDesc> inputs;   ///< an absent optional operand has dtype kNone
  std::vector<TensorDesc> outputs;  ///< likewise
};

/// What a run hands to every kernel.
struct RunContext {
  void* stream = nullptr;  ///< cudaStream_t on CUDA, null on the CPU
  /// Where a kernel reports an index out of range (gather, labels): 1 + the flat position of the
  /// first bad index that it saw, if the word is still 0. It then uses index 0 and goes on; the
  /// executor turns the word into an error that names the node. Device memory on CUDA. Never null.
  int64_t* index_error = nullptr;
};

/// One prepared call. Pointers arrive in operand order, null for absent operands. Device memory on
/// CUDA.
class PreparedKernel {
 public:
  virtual ~PreparedKernel() = default;
  /// Scratch bytes needed while Run executes, 64-byte aligned; all calls share one block.
  virtual int64_t workspace_bytes() const { return 0; }
  /// Bytes of private memory held since Prepare (blocked weight copies and the like); for the
  /// memory report.
  virtual int64_t private_bytes() const { return 0; }
  virtual void Run(std::span<const void* const> inputs, std::span<void* const> outputs,
                   void* workspace, const RunContext& context) noexcept = 0;
};

enum class DeviceKind : uint8_t { kCpu, kCuda };

/// Options of preparation that choose between implementations.
struct PrepareOptions {
  int threads = 1;             ///< CPU threads of the run
  bool deterministic = false;  ///< only implementations whose results do not depend on `threads`
  bool reference_only =
      false;  ///< skip every implementation but the reference (fp64 plans, oracles)
};

struct Implementation {
  std::string_view kernel;  ///< a name of kernels.def
  std::string_view name;  ///< "onednn", "ref", "avx", "cublaslt", …; shown by --profile and --dump
  /// Empty when the call is supported, else the reason why not ("f16 has no oneDNN primitive").
  /// Depends only on dtypes, shapes, parameters and instruction set, so it can be asked without a
  /// device.
  std::string (*declines)(const CallSpec& call, const PrepareOptions& options);
  Result<std::unique_ptr<PreparedKernel>> (*prepare)(const CallSpec& call,
                                                     const PrepareOptions& options);
};

/// One row of kernels.def.
struct KernelInfo {
  std::string_view name;
  std::string_view summary;
  /// Pairs (input, output) whose buffers may be the same when their bytes are equal: bit o*8+i of
  /// the mask, i,o < 8. ~0 = any input may be overwritten by any output of equal size
  /// (elementwise).
  uint64_t in_place = 0;
};

/// Row of kernels.def, or nullptr.
const KernelInfo* FindKernel(std::string_view name);
std::span<const KernelInfo> AllKernels();

/// The implementations of one device kind, in order of preference.
class KernelRegistry {
 public:
  void Add(std::span<const Implementation> table) { tables_.push_back(table); }
  /// The first implementation that supports the call, or an error that lists every reason.
  Result<const Implementation*> Select(const CallSpec& call, const PrepareOptions& options) const;
  /// All implementations of a kernel, for conformance tests and benchmarks.
  std::vector<const Implementation*> Of(std::string_view kernel) const;

 private:
  std::vector<std::span<const Implementation>> tables_;
};

// Each backend's table; joined by the device that uses them (runtime/device_*.cc).
namespace ref {
std::span<const Implementation> Implementations();
}
namespace cpu {
std::span<const Implementation> Implementations();
}
namespace cuda {
std::span<const Implementation> Implementations();
}

}  // namespace ampc
