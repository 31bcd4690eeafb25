// SPDX-License-Identifier: Apache-2.0
//
// Preparation, in order: memory (one region each for states, feeds, constants, the shared block),
// initial values, one prepared kernel per call, the shared workspace, pointers, derived states.

#include <algorithm>
#include <cstring>

#include "runtime/executor_impl.h"

namespace ampc {

using plan::Buffer;
using plan::Call;
using plan::Initial;
using plan::Plan;
using plan::Program;
using plan::Space;
using plan::State;
using plan::Tensor;

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kChunk = int64_t{1} << 20;

int64_t AlignUp(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

/// Places items one after another; returns the total.
template <typename Items, typename Bytes>
int64_t PlaceAll(const Items& items, Bytes&& bytes, std::vector<int64_t>* offsets) {
  int64_t total = 0;
  for (const auto& item : items) {
    offsets->push_back(total);
    total += AlignUp(bytes(item));
  }
  return total;
}

CallSpec SpecOf(const Program& program, const Call& call) {
  const auto forms = [&](const std::vector<int32_t>& operands) {
    std::vector<TensorDesc> descs;
    descs.reserve(operands.size());
    for (const int32_t t : operands) {
      descs.push_back(t < 0 ? TensorDesc{} : program.tensors[static_cast<size_t>(t)].desc);
    }
    return descs;
  };
  return {call.kernel, call.params, forms(call.inputs), forms(call.outputs)};
}

}  // namespace

std::string PlaceOf(const Program& program, size_t call) {
  return fmt::format("node '{}' (kernel {}, call {} of program '{}')", program.calls[call].loc,
                     program.calls[call].kernel, call, program.name);
}

Status ExecutorImpl::Prepare() {
  device_.Attach(plan_);
  if (Status s = AllocateMemory(); !s.ok()) return OutOfMemory(std::move(s));
  AMPC_TRY(LoadStates());
  AMPC_TRY(LoadConstants());
  programs_.resize(plan_.programs.size());
  for (size_t i = 0; i < programs_.size(); ++i) AMPC_TRY(PrepareProgram(i));
  AMPC_TRY(PrepareDerivations());
  if (Status s = workspace_.Allocate(device_, memory_.workspace); !s.ok())
    return OutOfMemory(std::move(s));
  for (size_t i = 0; i < programs_.size(); ++i) Bind(i);
  for (const Derivation& d : derivations_) AMPC_TRY(Derive(d));
  return device_.Synchronize();
}

Status ExecutorImpl::AllocateMemory() {
  memory_.states = PlaceAll(
      plan_.states, [](const State& s) { return s.desc.bytes(); }, &state_offsets_);
  memory_.feeds = PlaceAll(
      plan_.feeds, [](const plan::Feed& f) { return f.desc.bytes(); }, &feed_offsets_);
  memory_.constants = PlaceAll(
      plan_.constants, [](const HostTensor& t) { return static_cast<int64_t>(t.data.size()); },
      &constant_offsets_);
  int64_t calls = 0;
  for (const Program& p : plan_.programs) {
    memory_.block = std::max(memory_.block, p.block_bytes);
    calls += static_cast<int64_t>(p.calls.size());
  }
  memory_.private_ = AlignUp(calls * static_cast<int64_t>(sizeof(int64_t)));
  AMPC_TRY(states_.Allocate(device_, memory_.states));
  AMPC_TRY(feeds_.Allocate(device_, memory_.feeds));
  if (!unified_) AMPC_TRY(host_feeds_.AllocateHost(device_, memory_.feeds));
  AMPC_TRY(constants_.Allocate(device_, memory_.constants));
  AMPC_TRY(block_.Allocate(device_, memory_.block));
  return errors_.Allocate(device_, memory_.private_);
}

/// Says what the memory was wanted for: the parts, and the largest tensors of the block.
Status ExecutorImpl::OutOfMemory(Status status) const {
  if (status.error_class() != ErrorClass::kDevice) return status;
  std::vector<std::pair<int64_t, const Tensor*>> tensors;
  for (const Program& p : plan_.programs) {
    if (p.block_bytes != memory_.block) continue;
    for (const Tensor& t : p.tensors) {
      if (p.buffers[static_cast<size_t>(t.buffer)].space == Space::kBlock)
        tensors.emplace_back(t.desc.bytes(), &t);
    }
    break;
  }
  const auto shown = static_cast<int64_t>(std::min<size_t>(3, tensors.size()));
  std::partial_sort(tensors.begin(), tensors.begin() + shown, tensors.end(),
                    [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string largest;
  for (int64_t i = 0; i < shown; ++i) {
    const auto& [bytes, t] = tensors[static_cast<size_t>(i)];
    largest += fmt::format("{}'{}' {}{} {} bytes", i == 0 ? "; largest tensors: " : ", ", t->name,
                           Name(t->desc.dtype), ToString(t->desc.dims), bytes);
  }
  return DeviceError(status.id(),
                     "{}; the plan wants {} bytes for states, {} for its block, {} for feeds{}",
                     status.message(), memory_.states, memory_.block, memory_.feeds, largest);
}

Status ExecutorImpl::LoadStates() {
  for (size_t i = 0; i < plan_.states.size(); ++i) {
    AMPC_TRY(LoadState(plan_.states[i], StateMemory(static_cast<int32_t>(i))));
  }
  return {};
}

Status ExecutorImpl::LoadState(const State& state, std::byte* to) {
  const Initial& initial = state.initial;
  switch (initial.kind) {
    case Initial::Kind::kFill:
    case Initial::Kind::kAuto:
      return Fill(HostTensor::Scalar(state.desc.dtype, initial.fill), state.desc.elements(), to);
    case Initial::Kind::kDerived:
      return {};  // when all others are loaded
    case Initial::Kind::kBytes:
      break;
  }
  const auto bytes = static_cast<size_t>(initial.length);
  if (unified_)
    return plan::ReadWeight(plan_, initial.offset, initial.crc, state.name, {to, bytes});
  std::vector<std::byte> staging(bytes);
  AMPC_TRY(plan::ReadWeight(plan_, initial.offset, initial.crc, state.name, staging));
  return device_.CopyToDevice(to, staging.data(), initial.length);
}

Status ExecutorImpl::Fill(const HostTensor& element, int64_t elements, std::byte* to) {
  const auto zero = [](std::byte b) { return b == std::byte{0}; };
  if (std::all_of(element.data.begin(), element.data.end(), zero)) return {};  // as allocated
  const auto size = static_cast<int64_t>(element.data.size());
  const int64_t total = elements * size;
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(total, kChunk)));
  for (size_t at = 0; at < chunk.size(); at += element.data.size()) {
    std::memcpy(chunk.data() + at, element.data.data(), element.data.size());
  }
  for (int64_t at = 0; at < total; at += kChunk) {
    AMPC_TRY(device_.CopyToDevice(to + at, chunk.data(), std::min(kChunk, total - at)));
  }
  return {};
}

Status ExecutorImpl::LoadConstants() {
  for (size_t i = 0; i < plan_.constants.size(); ++i) {
    const std::vector<std::byte>& data = plan_.constants[i].data;
    AMPC_TRY(device_.CopyToDevice(constants_.data() + constant_offsets_[i], data.data(),
                                  static_cast<int64_t>(data.size())));
  }
  return {};
}

Status ExecutorImpl::PrepareProgram(size_t index) {
  const Program& program = plan_.programs[index];
  BoundProgram& bound = programs_[index];
  bound.calls.resize(program.calls.size());
  const PrepareOptions options = device_.prepare_options();
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const CallSpec spec = SpecOf(program, program.calls[c]);
    auto implementation = device_.kernels().Select(spec, options);
    if (!implementation.ok()) return std::move(implementation).TakeStatus().At(PlaceOf(program, c));
    auto kernel = (*implementation)->prepare(spec, options);
    if (!kernel.ok()) return std::move(kernel).TakeStatus().At(PlaceOf(program, c));
    bound.calls[c].implementation = *implementation;
    bound.calls[c].kernel = std::move(*kernel);
    memory_.workspace = std::max(memory_.workspace, bound.calls[c].kernel->workspace_bytes());
    memory_.private_ += bound.calls[c].kernel->private_bytes();
  }
  std::vector<bool> used(plan_.feeds.size());
  for (const Buffer& b : program.buffers) {
    if (b.space == Space::kFeed) used[static_cast<size_t>(b.index)] = true;
  }
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) bound.feeds.push_back(static_cast<int32_t>(i));
  }
  for (const plan::Output& o : program.outputs) {
    const TensorDesc& desc = program.tensors[static_cast<size_t>(o.tensor)].desc;
    const bool scalar = desc.elements() == 1;
    bound.scalars.push_back(
        scalar
            ? HostTensor{desc.dtype, {}, std::vector<std::byte>(static_cast<size_t>(desc.bytes()))}
            : HostTensor{});
  }
  if (!unified_) bound.errors.resize(program.calls.size());
  return {};
}

Status ExecutorImpl::PrepareDerivations() {
  const PrepareOptions options = device_.prepare_options();
  for (size_t i = 0; i < plan_.states.size(); ++i) {
    const State& to = plan_.states[i];
    if (to.initial.kind != Initial::Kind::kDerived) continue;
    const State& from = plan_.states[static_cast<size_t>(to.initial.derived_from)];
    const CallSpec spec{"map",
                        {{"expr", std::string("x0")}},
                        {{from.desc.dtype, {from.desc.elements()}}},
                        {{to.desc.dtype, {to.desc.elements()}}}};
    AMPC_ASSIGN(const Implementation* implementation, device_.kernels().Select(spec, options));
    AMPC_ASSIGN(auto kernel, implementation->prepare(spec, options));
    memory_.workspace = std::max(memory_.workspace, kernel->workspace_bytes());
    memory_.private_ += kernel->private_bytes();
    derivations_.push_back({to.initial.derived_from, static_cast<int32_t>(i), std::move(kernel)});
  }
  return {};
}

std::byte* ExecutorImpl::Address(const Program& program, int32_t tensor) const {
  const Tensor& t = program.tensors[static_cast<size_t>(tensor)];
  const Buffer& b = program.buffers[static_cast<size_t>(t.buffer)];
  const auto index = static_cast<size_t>(b.index);
  switch (b.space) {
    case Space::kBlock:
      return block_.data() + b.offset + t.byte_offset;
    case Space::kState:
      return states_.data() + state_offsets_[index] + t.byte_offset;
    case Space::kFeed:
      return feeds_.data() + feed_offsets_[index] + t.byte_offset;
    case Space::kConstant:
      return constants_.data() + constant_offsets_[index] + t.byte_offset;
  }
  return nullptr;
}

void ExecutorImpl::Bind(size_t index) {
  const Program& program = plan_.programs[index];
  BoundProgram& bound = programs_[index];
  int64_t words_before = 0;
  for (size_t i = 0; i < index; ++i)
    words_before += static_cast<int64_t>(plan_.programs[i].calls.size());
  bound.device_errors = reinterpret_cast<int64_t*>(errors_.data()) + words_before;

  for (const Call& call : program.calls) {
    for (const int32_t t : call.inputs)
      bound.inputs.push_back(t < 0 ? nullptr : Address(program, t));
    for (const int32_t t : call.outputs)
      bound.outputs.push_back(t < 0 ? nullptr : Address(program, t));
  }
  size_t in = 0, out = 0;
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const Call& call = program.calls[c];
    bound.calls[c].inputs = std::span(bound.inputs).subspan(in, call.inputs.size());
    bound.calls[c].outputs = std::span(bound.outputs).subspan(out, call.outputs.size());
    bound.calls[c].context = {device_.stream(), bound.device_errors + c};
    in += call.inputs.size();
    out += call.outputs.size();
  }
}

Status ExecutorImpl::Derive(const Derivation& d) {
  const void* const input = StateMemory(d.from);
  void* const output = StateMemory(d.to);
  const RunContext context{device_.stream(), reinterpret_cast<int64_t*>(errors_.data())};
  d.kernel->Run({&input, 1}, {&output, 1}, workspace_.data(), context);
  return {};
}

Result<std::unique_ptr<Executor>> Executor::Prepare(const Plan& plan, Device& device) {
  auto executor = std::make_unique<ExecutorImpl>(plan, device);
  AMPC_TRY(executor->Prepare());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace ampc
