// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs the programs of a plan on a device: Prepare once, Run many. A run neither allocates, nor
// looks anything up, nor takes a lock.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/plan/plan.h"

namespace ampc {

/// What Prepare obtained, in bytes.
struct MemoryReport {
  int64_t states = 0;  ///< weights, low copies, moments, …
  int64_t feeds = 0;
  int64_t constants = 0;
  int64_t block = 0;      ///< largest block of any program (programs share one)
  int64_t private_ = 0;   ///< kernels' private memory
  int64_t workspace = 0;  ///< largest workspace of any call
  int64_t total() const { return states + feeds + constants + block + private_ + workspace; }
};

/// Called after a call has run, when a fetch or a profile asked for it.
struct CallHook {
  std::function<void(int program, int call)> after;
};

class Executor {
 public:
  /// Allocates everything, loads initial states (derived ones are computed), prepares every call of
  /// every program.
  static Result<std::unique_ptr<Executor>> Prepare(const plan::Plan& plan, Device& device);
  virtual ~Executor() = default;

  virtual const MemoryReport& memory() const = 0;
  /// Name of the implementation chosen for a call ("onednn", "ref").
  virtual std::string_view implementation(int program, int call) const = 0;

  /// Host buffer of a feed, to be filled before Run (pinned on CUDA). Index into plan.feeds.
  virtual std::span<std::byte> feed(int index) = 0;
  /// Runs one program. An index error of a kernel comes back as BadInput E0805 naming the node and
  /// the position.
  virtual Status Run(int program) = 0;
  /// The same, timing every call into `nanoseconds` (size = calls) and calling `hook` after each.
  virtual Status RunInstrumented(int program, std::span<int64_t> nanoseconds,
                                 const CallHook* hook) = 0;

  /// Value of a program output as double (scalar outputs), after Run.
  virtual Result<double> ScalarOutput(int program, int output) = 0;
  /// Copies a tensor of a program to the host in row-major order. Block tensors are valid only
  /// right after the call that defines them (from a CallHook) or when they are outputs.
  virtual Status ReadTensor(int program, int tensor, std::span<std::byte> out) = 0;

  /// Copies a state to or from the host (row-major). WriteState rebuilds what is derived from it.
  virtual Status ReadState(int state, std::span<std::byte> out) = 0;
  virtual Status WriteState(int state, std::span<const std::byte> data) = 0;
  /// The same for the bytes from `offset` on, for those that have no room for a whole state. Pieces
  /// are written in rising order; with the last one, what is derived is rebuilt.
  virtual Status ReadStatePiece(int state, int64_t offset, std::span<std::byte> out) = 0;
  virtual Status WriteStatePiece(int state, int64_t offset, std::span<const std::byte> data) = 0;
};

}  // namespace ampc
