// SPDX-License-Identifier: Apache-2.0
//
// A run is a loop over prepared calls: nothing is allocated, looked up or locked. How they were
// prepared: executor_prepare.cc.

#include <chrono>
#include <cstring>

#include "runtime/executor_impl.h"

namespace ampc {

using plan::Program;
using plan::State;
using plan::Tensor;

namespace {

/// Row-major elements from channels-last ones: [N, spatial, C] -> [N, C, spatial].
void ToRowMajor(const TensorDesc& desc, const std::byte* in, std::byte* out) {
  const auto size = static_cast<size_t>(SizeOf(desc.dtype));
  const int64_t batch = desc.dims[0], channels = desc.dims[1];
  const int64_t plane = NumElements(std::span(desc.dims).subspan(2));
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t s = 0; s < plane; ++s, out += size) {
        std::memcpy(out, in + static_cast<size_t>((n * plane + s) * channels + c) * size, size);
      }
    }
  }
}

}  // namespace

// ---- running ------------------------------------------------------------------------------------

Status ExecutorImpl::CopyFeeds(const BoundProgram& bound) {
  if (unified_) return {};
  for (const int32_t i : bound.feeds) {
    const int64_t offset = feed_offsets_[static_cast<size_t>(i)];
    AMPC_TRY(device_.CopyToDevice(feeds_.data() + offset, host_feeds_.data() + offset,
                                  plan_.feeds[static_cast<size_t>(i)].desc.bytes()));
  }
  return {};
}

Status ExecutorImpl::Run(int program) {
  BoundProgram& bound = programs_[static_cast<size_t>(program)];
  AMPC_TRY(CopyFeeds(bound));
  AMPC_TRY(device_.BeginRun(program));
  if (device_.Replays(program)) {
    bound.unchecked = !unified_;
    return device_.EndRun(program);
  }
  for (BoundCall& call : bound.calls) {
    call.kernel->Run(call.inputs, call.outputs, workspace_.data(), call.context);
    // Where the word can be read at once the run stops before a wrong value reaches a state.
    if (unified_ && *call.context.index_error != 0) {
      return IndexError(program, static_cast<size_t>(&call - bound.calls.data()),
                        *call.context.index_error);
    }
  }
  bound.unchecked = !unified_;
  return device_.EndRun(program);
}

Status ExecutorImpl::RunInstrumented(int program, std::span<int64_t> nanoseconds,
                                     const CallHook* hook) {
  BoundProgram& bound = programs_[static_cast<size_t>(program)];
  AMPC_TRY(CopyFeeds(bound));
  for (size_t c = 0; c < bound.calls.size(); ++c) {
    BoundCall& call = bound.calls[c];
    const auto start = std::chrono::steady_clock::now();
    call.kernel->Run(call.inputs, call.outputs, workspace_.data(), call.context);
    AMPC_TRY(device_.Synchronize());
    const auto time = std::chrono::steady_clock::now() - start;
    if (c < nanoseconds.size()) nanoseconds[c] = std::chrono::nanoseconds(time).count();
    if (unified_ && *call.context.index_error != 0)
      return IndexError(program, c, *call.context.index_error);
    if (hook != nullptr) hook->after(program, static_cast<int>(c));
  }
  bound.unchecked = !unified_;
  return CheckIndexErrors(program);
}

Status ExecutorImpl::CheckIndexErrors(int program) {
  BoundProgram& bound = programs_[static_cast<size_t>(program)];
  if (!bound.unchecked) return {};
  bound.unchecked = false;
  AMPC_TRY(device_.CopyToHost(bound.errors.data(), bound.device_errors,
                              static_cast<int64_t>(bound.errors.size() * sizeof(int64_t))));
  for (size_t c = 0; c < bound.errors.size(); ++c) {
    if (bound.errors[c] != 0) return IndexError(program, c, bound.errors[c]);
  }
  return {};
}

/// Names the node, the position and the index found there: the integer operand that is long enough
/// to have the position.
Status ExecutorImpl::IndexError(int program, size_t call, int64_t word) {
  constexpr int64_t kZero = 0;
  AMPC_TRY(device_.CopyToDevice(programs_[static_cast<size_t>(program)].device_errors + call,
                                &kZero, sizeof kZero));
  const Program& p = plan_.programs[static_cast<size_t>(program)];
  const int64_t position = word - 1;
  for (const int32_t t : p.calls[call].inputs) {
    if (t < 0) continue;
    const Tensor& tensor = p.tensors[static_cast<size_t>(t)];
    if (!IsInteger(tensor.desc.dtype) || position >= tensor.desc.elements()) continue;
    HostTensor indices{tensor.desc.dtype, tensor.desc.dims,
                       std::vector<std::byte>(static_cast<size_t>(tensor.desc.bytes()))};
    AMPC_TRY(device_.CopyToHost(indices.data.data(), Address(p, t), tensor.desc.bytes()));
    return BadInput("E0805", "index {} at position {} of '{}' {} is out of range",
                    indices.GetInt(position), position, tensor.name, ToString(tensor.desc.dims))
        .At(PlaceOf(p, call));
  }
  return BadInput("E0805", "the index at position {} is out of range", position)
      .At(PlaceOf(p, call));
}

// ---- values -------------------------------------------------------------------------------------

Result<double> ExecutorImpl::ScalarOutput(int program, int output) {
  BoundProgram& bound = programs_[static_cast<size_t>(program)];
  AMPC_TRY(CheckIndexErrors(program));
  const Program& p = plan_.programs[static_cast<size_t>(program)];
  const plan::Output& o = p.outputs[static_cast<size_t>(output)];
  HostTensor& scalar = bound.scalars[static_cast<size_t>(output)];
  if (scalar.data.empty())
    return InternalError("E0806", "output '{}' of program '{}' is not a scalar", o.name, p.name);
  AMPC_TRY(device_.CopyToHost(scalar.data.data(), Address(p, o.tensor),
                              static_cast<int64_t>(scalar.data.size())));
  return scalar.GetDouble(0);
}

Status ExecutorImpl::ReadTensor(int program, int tensor, std::span<std::byte> out) {
  AMPC_TRY(CheckIndexErrors(program));
  const Program& p = plan_.programs[static_cast<size_t>(program)];
  const Tensor& t = p.tensors[static_cast<size_t>(tensor)];
  const int64_t bytes = t.desc.bytes();
  if (static_cast<int64_t>(out.size()) != bytes) {
    return InternalError("E0806", "'{}' has {} bytes, the reader expects {}", t.name, bytes,
                         out.size());
  }
  if (t.desc.layout == Layout::kRowMajor)
    return device_.CopyToHost(out.data(), Address(p, tensor), bytes);
  std::vector<std::byte> stored(out.size());
  AMPC_TRY(device_.CopyToHost(stored.data(), Address(p, tensor), bytes));
  ToRowMajor(t.desc, stored.data(), out.data());
  return {};
}

Status ExecutorImpl::ReadState(int state, std::span<std::byte> out) {
  const State& s = plan_.states[static_cast<size_t>(state)];
  if (static_cast<int64_t>(out.size()) != s.desc.bytes()) {
    return InternalError("E0806", "state '{}' has {} bytes, the reader expects {}", s.name,
                         s.desc.bytes(), out.size());
  }
  return ReadStatePiece(state, 0, out);
}

Status ExecutorImpl::WriteState(int state, std::span<const std::byte> data) {
  const State& s = plan_.states[static_cast<size_t>(state)];
  if (static_cast<int64_t>(data.size()) != s.desc.bytes()) {
    return InternalError("E0806", "state '{}' has {} bytes, the writer brings {}", s.name,
                         s.desc.bytes(), data.size());
  }
  return WriteStatePiece(state, 0, data);
}

Status ExecutorImpl::CheckPiece(int state, int64_t offset, size_t bytes) const {
  const State& s = plan_.states[static_cast<size_t>(state)];
  if (offset >= 0 && offset <= s.desc.bytes() &&
      static_cast<int64_t>(bytes) <= s.desc.bytes() - offset)
    return {};
  return InternalError("E0806", "state '{}' has {} bytes, a piece of {} at {} is outside", s.name,
                       s.desc.bytes(), bytes, offset);
}

Status ExecutorImpl::ReadStatePiece(int state, int64_t offset, std::span<std::byte> out) {
  AMPC_TRY(CheckPiece(state, offset, out.size()));
  return device_.CopyToHost(out.data(), StateMemory(state) + offset,
                            static_cast<int64_t>(out.size()));
}

Status ExecutorImpl::WriteStatePiece(int state, int64_t offset, std::span<const std::byte> data) {
  AMPC_TRY(CheckPiece(state, offset, data.size()));
  const auto bytes = static_cast<int64_t>(data.size());
  AMPC_TRY(device_.CopyToDevice(StateMemory(state) + offset, data.data(), bytes));
  if (offset + bytes < plan_.states[static_cast<size_t>(state)].desc.bytes())
    return device_.Synchronize();
  for (const Derivation& d : derivations_) {
    if (d.from == state) AMPC_TRY(Derive(d));
  }
  return device_.Synchronize();
}

}  // namespace ampc
