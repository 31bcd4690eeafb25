// SPDX-License-Identifier: Apache-2.0
//
// The invariants P1..P6 of one program (plan.h). A program that passes runs without touching memory
// that is not its own and without reading a value that was overwritten.
//
// P3 and P5 follow the calls in order and keep, per memory, which value each byte holds (an
// interval map). A read must find exactly the value that its tensor stands for. Everything is
// near-linear in calls and operands.

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "kernels/kernel.h"
#include "runtime/base/name_index.h"
#include "runtime/plan/verify.h"

namespace ampc::plan {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int32_t kInitialValue =
    -1;  ///< what a state, feed or constant holds when the program starts
constexpr size_t kMaxItems = size_t{1} << 24;

struct Range {
  int64_t begin = 0, end = 0;
};

class ProgramVerifier {
 public:
  ProgramVerifier(const Plan& plan, const Program& program) : plan_(plan), p_(program) {}

  Status Run() {
    AMPC_TRY(CheckBuffers());
    AMPC_TRY(CheckTensors());
    AMPC_TRY(CheckCalls());
    AMPC_TRY(CheckViews());
    AMPC_TRY(CheckValues());
    return CheckBlock();
  }

 private:
  Status CheckBuffers();
  Status CheckTensors();
  Status CheckCalls();
  Status CheckViews();
  Status CheckValues();
  Status CheckBlock();

  struct Piece {
    int64_t end;
    int32_t value;  ///< tensor whose write put it there, or kInitialValue
  };
  using Contents = std::map<int64_t, Piece>;  ///< by first byte
  static constexpr int32_t kNothing = -2, kPieces = -3;

  Status RunCall(const Call& call);
  Status Read(int32_t tensor);
  void Write(int32_t tensor);
  Contents& PiecesOf(size_t storage);
  bool SharesMemory(const Call& call) const;
  Status CheckInPlace(const Call& call) const;
  Status CheckOverlaps(const Call& call, const std::vector<std::pair<int32_t, int32_t>>& inputs,
                       const std::vector<int64_t>& reach, int32_t output) const;
  bool MayOverwrite(const KernelInfo& kernel, int32_t input, int32_t output,
                    const Call& call) const;

  const Tensor& T(int32_t i) const { return p_.tensors[static_cast<size_t>(i)]; }
  const Buffer& BufferOf(int32_t tensor) const {
    return p_.buffers[static_cast<size_t>(T(tensor).buffer)];
  }
  int32_t StorageOf(int32_t tensor) const {
    return storage_[static_cast<size_t>(T(tensor).buffer)];
  }
  Range BytesOf(int32_t tensor) const {
    return {T(tensor).byte_offset, T(tensor).byte_offset + T(tensor).desc.bytes()};
  }
  std::string_view NameOf(int32_t value) const {
    return value == kInitialValue ? std::string_view("its initial value")
                                  : std::string_view(T(value).name);
  }
  std::string Place(size_t call) const {
    return fmt::format("program '{}', call {} ({}) of '{}'", p_.name, call, p_.calls[call].kernel,
                       p_.calls[call].loc);
  }

  const Plan& plan_;
  const Program& p_;
  std::vector<int32_t> storage_;  ///< per buffer: the first buffer that lies in the same memory
  std::vector<bool> touched_;     ///< per buffer: some call writes it
  std::vector<int32_t> root_;     ///< per tensor: the tensor whose value it shows
  std::vector<bool> written_;     ///< per tensor: some call writes it
  // Most memory is written as a whole: one value fills it. Only where parts are written, pieces are
  // kept.
  std::vector<int32_t> filled_;  ///< per storage: the value in all of it, kNothing or kPieces
  std::vector<int64_t> extent_;  ///< per storage: its bytes
  std::unordered_map<size_t, Contents> pieces_;
  /// Per tensor that nobody writes: what it showed at its first read; 0 = not yet read.
  std::vector<uint64_t> seen_;
};

// ---- P1, P2: indices and sizes ------------------------------------------------------------------

Status ProgramVerifier::CheckBuffers() {
  if (p_.buffers.size() > kMaxItems || p_.tensors.size() > kMaxItems ||
      p_.calls.size() > kMaxItems) {
    return Violation("P1", "more than {} buffers, tensors or calls", kMaxItems);
  }
  std::map<std::pair<Space, int32_t>, int32_t> first_in;
  for (size_t i = 0; i < p_.buffers.size(); ++i) {
    const Buffer& b = p_.buffers[i];
    const auto number = static_cast<int32_t>(i);
    storage_.push_back(b.space == Space::kBlock
                           ? number
                           : first_in.emplace(std::pair(b.space, b.index), number).first->second);
    if (b.bytes < 0) return Violation("P2", "buffer {} has {} bytes", i, b.bytes);
    int64_t available = b.bytes;
    bool known = true;
    switch (b.space) {
      case Space::kBlock:
        break;
      case Space::kState:
        if ((known = InRange(b.index, plan_.states.size()))) {
          available = plan_.states[static_cast<size_t>(b.index)].desc.bytes();
        }
        break;
      case Space::kFeed:
        if ((known = InRange(b.index, plan_.feeds.size()))) {
          const Feed& feed = plan_.feeds[static_cast<size_t>(b.index)];
          available = feed.desc.bytes();
          if (!feed.program.empty() && feed.program != p_.name &&
              !(feed.program == "train" && p_.name != "eval")) {
            return Violation("P1", "buffer {} uses feed '{}' of program '{}'", i, feed.name,
                             feed.program);
          }
        }
        break;
      case Space::kConstant:
        if ((known = InRange(b.index, plan_.constants.size()))) {
          available =
              static_cast<int64_t>(plan_.constants[static_cast<size_t>(b.index)].data.size());
        }
        break;
    }
    if (!known) return Violation("P1", "buffer {} has index {}, which is out of range", i, b.index);
    if (b.bytes > available) {
      return Violation("P2", "buffer {} has {} bytes, but what it lies in has {}", i, b.bytes,
                       available);
    }
  }
  return {};
}

Status ProgramVerifier::CheckTensors() {
  NameIndex names;
  const auto name_of = [this](int32_t t) { return std::string_view(T(t).name); };
  for (size_t i = 0; i < p_.tensors.size(); ++i) {
    const Tensor& t = p_.tensors[i];
    AMPC_TRY(CheckDesc("P2", t.name, t.desc));
    if (names.FindOrAdd(t.name, static_cast<int32_t>(i), name_of) != NameIndex::kAbsent)
      return Violation("P1", "two tensors are named '{}'", t.name);
    if (!InRange(t.buffer, p_.buffers.size())) {
      return Violation("P1", "tensor '{}' has buffer {} of {}", t.name, t.buffer,
                       p_.buffers.size());
    }
    const int64_t available = p_.buffers[static_cast<size_t>(t.buffer)].bytes;
    if (t.byte_offset < 0 || t.byte_offset > available ||
        t.desc.bytes() > available - t.byte_offset) {
      return Violation("P2", "tensor '{}' takes {} bytes at {}, but buffer {} has {}", t.name,
                       t.desc.bytes(), t.byte_offset, t.buffer, available);
    }
    if (t.byte_offset % SizeOf(t.desc.dtype) != 0) {
      return Violation("P2", "tensor '{}' of {} lies at byte {}, which is not aligned", t.name,
                       Name(t.desc.dtype), t.byte_offset);
    }
  }
  for (const Output& o : p_.outputs) {
    if (!InRange(o.tensor, p_.tensors.size())) {
      return Violation("P1", "output '{}' is tensor {} of {}", o.name, o.tensor, p_.tensors.size());
    }
  }
  return {};
}

Status ProgramVerifier::CheckCalls() {
  written_.assign(p_.tensors.size(), false);
  touched_.assign(p_.buffers.size(), false);
  for (size_t c = 0; c < p_.calls.size(); ++c) {
    const Call& call = p_.calls[c];
    if (FindKernel(call.kernel) == nullptr) {
      return Violation("P1", "kernel '{}' is unknown to this version", call.kernel).At(Place(c));
    }
    for (const int32_t t : call.inputs) {
      if (t != -1 && !InRange(t, p_.tensors.size())) {
        return Violation("P1", "input {} is not one of {} tensors", t, p_.tensors.size())
            .At(Place(c));
      }
    }
    for (const int32_t t : call.outputs) {
      if (t == -1) continue;
      if (!InRange(t, p_.tensors.size())) {
        return Violation("P1", "output {} is not one of {} tensors", t, p_.tensors.size())
            .At(Place(c));
      }
      const Space space = BufferOf(t).space;
      if (space == Space::kFeed || space == Space::kConstant) {
        return Violation("P4", "writes '{}', which lies in a {}", T(t).name,
                         space == Space::kFeed ? "feed" : "constant")
            .At(Place(c));
      }
      written_[static_cast<size_t>(t)] = true;
      touched_[static_cast<size_t>(T(t).buffer)] = true;
    }
  }
  return {};
}

/// Follows view_of to the tensor whose value is shown. Marks the path, so that a cycle is found and
/// each is walked once.
Status ProgramVerifier::CheckViews() {
  constexpr int32_t kUnknown = -1, kOnPath = -2;
  root_.assign(p_.tensors.size(), kUnknown);
  std::vector<int32_t> path;
  for (int32_t start = 0; start < static_cast<int32_t>(p_.tensors.size()); ++start) {
    path.clear();
    int32_t t = start;
    while (root_[static_cast<size_t>(t)] == kUnknown) {
      path.push_back(t);
      root_[static_cast<size_t>(t)] = kOnPath;
      const int32_t of = T(t).view_of;
      if (of == -1) break;
      if (!InRange(of, p_.tensors.size())) {
        return Violation("P1", "tensor '{}' is a view of {}, which is out of range", T(t).name, of);
      }
      const Range inner = BytesOf(t), outer = BytesOf(of);
      if (written_[static_cast<size_t>(t)] || StorageOf(of) != StorageOf(t) ||
          inner.begin < outer.begin || inner.end > outer.end) {
        return Violation(
            "P2", "tensor '{}' cannot be a view of '{}': it is written, or lies outside of it",
            T(t).name, T(of).name);
      }
      if (root_[static_cast<size_t>(of)] == kOnPath)
        return Violation("P1", "tensor '{}' is a view of itself", T(t).name);
      t = of;
    }
    const int32_t known = root_[static_cast<size_t>(t)];
    for (const int32_t on_path : path)
      root_[static_cast<size_t>(on_path)] = known == kOnPath ? t : known;
  }
  return {};
}

// ---- P3, P5: every read finds its value ---------------------------------------------------------

Status ProgramVerifier::CheckValues() {
  filled_.assign(p_.buffers.size(), kNothing);
  extent_.assign(p_.buffers.size(), 0);
  seen_.assign(p_.tensors.size(), 0);
  for (size_t b = 0; b < p_.buffers.size(); ++b) {
    const auto storage = static_cast<size_t>(storage_[b]);
    extent_[storage] = std::max(extent_[storage], p_.buffers[b].bytes);
    if (p_.buffers[b].space != Space::kBlock) filled_[storage] = kInitialValue;
  }
  for (size_t c = 0; c < p_.calls.size(); ++c) {
    const Call& call = p_.calls[c];
    if (Status s = RunCall(call); !s.ok()) return std::move(s).At(Place(c));
  }
  for (const Output& o : p_.outputs) {
    AMPC_TRY(Read(o.tensor).At(fmt::format("program '{}', output '{}'", p_.name, o.name)));
  }
  return {};
}

Status ProgramVerifier::RunCall(const Call& call) {
  for (const int32_t t : call.inputs) {
    if (t != -1) AMPC_TRY(Read(t));
  }
  AMPC_TRY(CheckInPlace(call));
  for (const int32_t t : call.outputs) {
    if (t != -1) Write(t);
  }
  return {};
}

Status ProgramVerifier::Read(int32_t tensor) {
  const Range range = BytesOf(tensor);
  if (range.begin == range.end) return {};
  const auto storage = static_cast<size_t>(StorageOf(tensor));
  const int32_t root = root_[static_cast<size_t>(tensor)];
  const bool own_value = written_[static_cast<size_t>(root)];
  const bool snapshot = !own_value && touched_[static_cast<size_t>(T(root).buffer)];
  const int32_t expected = own_value ? root : kInitialValue;

  uint64_t shown = 1;
  const auto take = [&](int32_t value, int64_t end) -> Status {
    if (!snapshot && value != expected) {
      return Violation("P5", "reads '{}', but its bytes now hold '{}'", T(tensor).name,
                       NameOf(value));
    }
    shown = (shown ^ static_cast<uint64_t>(value + 2)) * 0x9E3779B97F4A7C15ull;
    shown = (shown ^ static_cast<uint64_t>(end)) * 0x9E3779B97F4A7C15ull + (shown >> 29);
    return {};
  };
  const auto unwritten = [&](int64_t at) {
    return Violation("P3", "reads '{}', of which byte {} has not been written", T(tensor).name,
                     at - range.begin);
  };
  if (filled_[storage] == kNothing) return unwritten(range.begin);
  if (filled_[storage] != kPieces) {
    AMPC_TRY(take(filled_[storage], range.end));
  } else {
    const Contents& contents = pieces_.at(storage);
    auto it = contents.upper_bound(range.begin);
    if (it != contents.begin()) --it;
    for (int64_t at = range.begin; at < range.end; ++it) {
      if (it == contents.end() || it->first > at || it->second.end <= at) return unwritten(at);
      const int64_t end = std::min(it->second.end, range.end);
      AMPC_TRY(take(it->second.value, end));
      at = end;
    }
  }
  if (snapshot) {
    const Range whole = BytesOf(root);
    const bool all_of_root = whole.begin == range.begin && whole.end == range.end;
    uint64_t& record = seen_[static_cast<size_t>(all_of_root ? root : tensor)];
    if (record == 0) record = shown | 1;
    if (record != (shown | 1)) {
      return Violation("P5",
                       "reads '{}' again, but its bytes were overwritten since its first read",
                       T(tensor).name);
    }
  }
  return {};
}

/// What is in a memory, as pieces.
ProgramVerifier::Contents& ProgramVerifier::PiecesOf(size_t storage) {
  Contents& contents = pieces_[storage];
  if (filled_[storage] != kPieces && filled_[storage] != kNothing)
    contents[0] = {extent_[storage], filled_[storage]};
  filled_[storage] = kPieces;
  return contents;
}

void ProgramVerifier::Write(int32_t tensor) {
  const Range range = BytesOf(tensor);
  if (range.begin == range.end) return;
  const auto storage = static_cast<size_t>(StorageOf(tensor));
  if (range.begin == 0 && range.end == extent_[storage]) {
    if (filled_[storage] == kPieces) pieces_.erase(storage);
    filled_[storage] = tensor;
    return;
  }
  Contents& contents = PiecesOf(storage);
  auto it = contents.lower_bound(range.begin);
  if (it != contents.begin() &&
      std::prev(it)->second.end > range.begin) {  // cut the piece that reaches in
    auto before = std::prev(it);
    if (before->second.end > range.end) contents.emplace(range.end, before->second);
    before->second.end = range.begin;
    it = contents.lower_bound(range.begin);
  }
  while (it != contents.end() && it->first < range.end) {
    if (it->second.end > range.end) contents.emplace(range.end, it->second);
    it = contents.erase(it);
  }
  contents[range.begin] = {range.end, tensor};
}

bool ProgramVerifier::MayOverwrite(const KernelInfo& kernel, int32_t input, int32_t output,
                                   const Call& call) const {
  const Tensor& x = T(call.inputs[static_cast<size_t>(input)]);
  const Tensor& y = T(call.outputs[static_cast<size_t>(output)]);
  const bool same_place = x.byte_offset == y.byte_offset && x.desc.bytes() == y.desc.bytes();
  const bool same_order = x.desc.layout == y.desc.layout && x.desc.elements() == y.desc.elements();
  const bool any = kernel.in_place == ~uint64_t{0};
  const bool allowed =
      any || (input < 8 && output < 8 && ((kernel.in_place >> (output * 8 + input)) & 1) != 0);
  return same_place && same_order && allowed;
}

/// Reports the first input that output number `output` would damage. `inputs` = (tensor, slot) by
/// storage and first byte; `reach[i]` = largest end of the inputs up to i in the same storage.
Status ProgramVerifier::CheckOverlaps(const Call& call,
                                      const std::vector<std::pair<int32_t, int32_t>>& inputs,
                                      const std::vector<int64_t>& reach, int32_t output) const {
  const int32_t y = call.outputs[static_cast<size_t>(output)];
  const Range written = BytesOf(y);
  const int32_t storage = StorageOf(y);
  const KernelInfo& kernel = *FindKernel(call.kernel);
  const auto before = [&](int64_t limit) {
    return [this, storage, limit](const std::pair<int32_t, int32_t>& input) {
      const int32_t x = StorageOf(input.first);
      return x < storage || (x == storage && T(input.first).byte_offset < limit);
    };
  };
  const auto group = std::partition_point(inputs.begin(), inputs.end(), before(0));
  const auto past = std::partition_point(group, inputs.end(), before(written.end));
  const auto end = static_cast<size_t>(past - inputs.begin());
  auto i = static_cast<size_t>(group - inputs.begin());
  const auto first = reach.begin() + static_cast<int64_t>(i);
  i += static_cast<size_t>(std::partition_point(first, reach.begin() + static_cast<int64_t>(end),
                                                [&](int64_t r) { return r <= written.begin; }) -
                           first);
  for (; i < end; ++i) {
    const auto [x, slot] = inputs[i];
    if (BytesOf(x).end <= written.begin || MayOverwrite(kernel, slot, output, call)) continue;
    return Violation("P5",
                     "output {} '{}' overwrites input {} '{}', which kernel '{}' does not allow",
                     output, T(y).name, slot, T(x).name, call.kernel);
  }
  return {};
}

/// False when no output lies in the memory of another operand. True for long lists of operands, of
/// which it is not known.
bool ProgramVerifier::SharesMemory(const Call& call) const {
  constexpr size_t kFew = 8;
  if (call.inputs.size() > kFew || call.outputs.size() > kFew) return true;
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    if (call.outputs[o] == -1) continue;
    const auto same = [&](int32_t other) {
      return other != -1 && StorageOf(other) == StorageOf(call.outputs[o]);
    };
    const auto before = call.outputs.begin() + static_cast<int64_t>(o);
    if (std::any_of(call.inputs.begin(), call.inputs.end(), same) ||
        std::any_of(call.outputs.begin(), before, same))
      return true;
  }
  return false;
}

/// Within one call: an output may lie on an input only as the kernel's in_place mask says, and
/// never on another output.
Status ProgramVerifier::CheckInPlace(const Call& call) const {
  if (!SharesMemory(call)) return {};
  const auto by_place = [&](const auto& a, const auto& b) {
    return std::tuple(StorageOf(a.first), T(a.first).byte_offset, a.second) <
           std::tuple(StorageOf(b.first), T(b.first).byte_offset, b.second);
  };
  const auto sorted = [&](const std::vector<int32_t>& operands) {
    std::vector<std::pair<int32_t, int32_t>> list;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] != -1 && T(operands[i]).desc.bytes() > 0)
        list.emplace_back(operands[i], static_cast<int32_t>(i));
    }
    std::sort(list.begin(), list.end(), by_place);
    return list;
  };
  const auto inputs = sorted(call.inputs), outputs = sorted(call.outputs);
  std::vector<int64_t> reach(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool same = i > 0 && StorageOf(inputs[i].first) == StorageOf(inputs[i - 1].first);
    reach[i] = std::max(same ? reach[i - 1] : 0, BytesOf(inputs[i].first).end);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i > 0 && StorageOf(outputs[i].first) == StorageOf(outputs[i - 1].first) &&
        BytesOf(outputs[i].first).begin < BytesOf(outputs[i - 1].first).end) {
      return Violation("P5", "outputs '{}' and '{}' overlap", T(outputs[i - 1].first).name,
                       T(outputs[i].first).name);
    }
    AMPC_TRY(CheckOverlaps(call, inputs, reach, outputs[i].second));
  }
  return {};
}

// ---- P6: the block ------------------------------------------------------------------------------

Status ProgramVerifier::CheckBlock() {
  const int32_t calls = static_cast<int32_t>(p_.calls.size());
  const auto covers = [&](int32_t tensor, int32_t at) {
    const Buffer& b = BufferOf(tensor);
    return b.space != Space::kBlock || (b.first <= at && at <= b.last);
  };
  for (int32_t c = 0; c < calls; ++c) {
    const Call& call = p_.calls[static_cast<size_t>(c)];
    for (const auto* operands : {&call.inputs, &call.outputs}) {
      for (const int32_t t : *operands) {
        if (t != -1 && !covers(t, c)) {
          return Violation("P6", "uses '{}' outside of the lifetime {}..{} of its buffer",
                           T(t).name, BufferOf(t).first, BufferOf(t).last)
              .At(Place(static_cast<size_t>(c)));
        }
      }
    }
  }
  for (const Output& o : p_.outputs) {
    if (!covers(o.tensor, calls)) {
      return Violation("P6", "the buffer of output '{}' ends at call {} of {}", o.name,
                       BufferOf(o.tensor).last, calls);
    }
  }

  std::vector<int32_t> by_first, by_last;
  for (size_t i = 0; i < p_.buffers.size(); ++i) {
    const Buffer& b = p_.buffers[i];
    if (b.space != Space::kBlock || b.bytes == 0 || b.last < b.first) continue;
    if (b.offset < 0 || b.offset % kAlignment != 0 || b.offset > p_.block_bytes ||
        b.bytes > p_.block_bytes - b.offset) {
      return Violation(
          "P6", "buffer {} at {}+{} does not fit a block of {} bytes, or is not aligned to {}", i,
          b.offset, b.bytes, p_.block_bytes, kAlignment);
    }
    if (b.first < 0 || b.last > calls) {
      return Violation("P6", "buffer {} lives over calls {}..{} of {}", i, b.first, b.last, calls);
    }
    by_first.push_back(static_cast<int32_t>(i));
  }
  by_last = by_first;
  const auto sort_by = [this](std::vector<int32_t>& list, int32_t Buffer::*key) {
    std::stable_sort(list.begin(), list.end(), [this, key](int32_t a, int32_t b) {
      return p_.buffers[static_cast<size_t>(a)].*key < p_.buffers[static_cast<size_t>(b)].*key;
    });
  };
  sort_by(by_first, &Buffer::first);
  sort_by(by_last, &Buffer::last);
  std::map<int64_t, int32_t> live;  // by offset
  size_t ended = 0;
  for (const int32_t i : by_first) {
    const Buffer& b = p_.buffers[static_cast<size_t>(i)];
    for (; ended < by_last.size(); ++ended) {  // what was over before this one begins
      const Buffer& other = p_.buffers[static_cast<size_t>(by_last[ended])];
      if (other.last >= b.first) break;
      live.erase(other.offset);
    }
    const auto [it, fresh] = live.emplace(b.offset, i);
    auto clash = fresh ? live.end() : it;
    if (fresh && std::next(it) != live.end() && std::next(it)->first < b.offset + b.bytes)
      clash = std::next(it);
    if (fresh && it != live.begin()) {
      const Buffer& below = p_.buffers[static_cast<size_t>(std::prev(it)->second)];
      if (below.offset + below.bytes > b.offset) clash = std::prev(it);
    }
    if (clash != live.end()) {
      return Violation("P6", "buffers {} and {} live at call {} and overlap in the block",
                       clash->second, i, b.first);
    }
  }
  return {};
}

}  // namespace

Status VerifyProgram(const Plan& plan, const Program& program) {
  return ProgramVerifier(plan, program).Run();
}

}  // namespace ampc::plan
