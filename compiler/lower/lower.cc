// SPDX-License-Identifier: Apache-2.0
// Graph -> Program, in five steps: emit calls through the op rows, place next values in their
// states, share buffers in place, snapshot outputs that would be overwritten, plan memory.
#include "compiler/lower/lower.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "compiler/ops/op_def.h"
#include "kernels/kernel.h"
#include "runtime/plan/memory_plan.h"

namespace ampc {
namespace {

using plan::Space;

constexpr int32_t kNever = -1;

class ProgramBuilder;

// What a lowering rule sees of one node.
class NodeLowering final : public LowerContext {
 public:
  NodeLowering(ProgramBuilder& builder, ir::NodeId id);
  const ir::Graph& graph() const override;
  const ir::Node& node() const override;
  Operand in(size_t i) const override;
  Operand out(size_t i) const override;
  const TensorDesc& desc(Operand t) const override;
  Operand Temp(TensorDesc desc) override;
  Operand View(Operand base, TensorDesc desc, int64_t byte_offset) override;
  void Call(std::string_view kernel, Attrs params, std::vector<Operand> inputs,
            std::vector<Operand> outputs, std::vector<std::pair<int, int>> in_place) override;
  void Alias(size_t i, Operand source) override;

 private:
  ProgramBuilder& b_;
  ir::NodeId id_;
};

class ProgramBuilder {
 public:
  ProgramBuilder(const ir::Graph& graph, const std::vector<int32_t>& feed_index,
                 std::vector<HostTensor>& constants)
      : g_(graph), feed_index_(feed_index), constants_(constants) {
    program_.name = graph.name();
    tensor_of_.assign(static_cast<size_t>(graph.num_values()), ir::kNone);
  }

  Result<plan::Program> Run() {
    // Outputs that are a state's old value are read by the host after the run: keep a copy from
    // before the update.
    for (const ir::OutputInfo& out : g_.outputs()) AMPC_TRY(SnapshotState(out));
    for (ir::NodeId n = g_.first(); n != ir::kNone; n = g_.node(n).next) {
      const ir::Node& node = g_.node(n);
      if (node.op->traits.constant) continue;
      if (node.op->lower == nullptr)
        return InternalError("E7601", "'{}' has no lowering", node.op->name).At(g_.Describe(n));
      NodeLowering context(*this, n);
      Status status = node.op->lower(context);
      if (!status.ok()) return std::move(status).At(g_.Describe(n));
    }
    for (const ir::OutputInfo& out : g_.outputs()) {
      auto it = snapshots_.find(out.name);
      program_.outputs.push_back(
          {out.name, it != snapshots_.end() ? it->second : TensorOf(out.value)});
    }
    FindLifetimes();
    PlaceNextStates();
    ShareInPlace();
    AppendCopies();
    program_.tensors.assign(std::make_move_iterator(tensors_.begin()),
                            std::make_move_iterator(tensors_.end()));
    tensors_.clear();
    DropUnusedBuffers();
    plan::PlanMemory(program_);
    return std::move(program_);
  }

  // Those that in-place reuse merged into others.
  void DropUnusedBuffers() {
    std::vector<int32_t> index(program_.buffers.size(), ir::kNone);
    for (const plan::Tensor& t : program_.tensors) index[Index(t.buffer)] = 0;
    std::vector<plan::Buffer> kept;
    for (size_t b = 0; b < index.size(); ++b) {
      if (index[b] == ir::kNone) continue;
      index[b] = static_cast<int32_t>(kept.size());
      kept.push_back(program_.buffers[b]);
    }
    for (plan::Tensor& t : program_.tensors) t.buffer = index[Index(t.buffer)];
    program_.buffers = std::move(kept);
  }

  // ---- tensors

  const ir::Graph& graph() const { return g_; }
  const TensorDesc& desc(Operand t) const { return tensors_[Index(t)].desc; }

  Operand TensorOf(ir::ValueId v) {
    Operand& known = tensor_of_[Index(v)];
    if (known != ir::kNone) return known;
    const ir::Value& value = g_.value(v);
    const ir::TensorType& type = g_.type(v);
    const TensorDesc desc{type.dtype, type.dims, value.layout};
    int32_t buffer = ir::kNone;
    if (value.kind == ir::ValueKind::kState) {
      buffer = AddBuffer(Space::kState, value.index, type.bytes());
    } else if (value.kind == ir::ValueKind::kFeed) {
      buffer = AddBuffer(Space::kFeed, feed_index_[Index(value.index)], type.bytes());
    } else if (const HostTensor* constant = g_.ConstantOf(v)) {
      buffer = AddBuffer(Space::kConstant, ConstantIndex(*constant), type.bytes());
    } else {
      buffer = AddBuffer(Space::kBlock, 0, type.bytes());
    }
    return known = AddTensor(value.name, desc, buffer, 0);
  }

  Operand AddTensor(std::string name, TensorDesc desc, int32_t buffer, int64_t byte_offset) {
    tensors_.push_back({std::move(name), std::move(desc), buffer, byte_offset});
    return static_cast<Operand>(tensors_.size() - 1);
  }
  int32_t AddBuffer(Space space, int32_t index, int64_t bytes) {
    program_.buffers.push_back({.space = space, .index = index, .bytes = bytes});
    return static_cast<int32_t>(program_.buffers.size() - 1);
  }
  Operand Temp(std::string_view label, TensorDesc desc) {
    const int32_t buffer = AddBuffer(Space::kBlock, 0, desc.bytes());
    return AddTensor(fmt::format("{}.tmp{}", label, tensors_.size()), std::move(desc), buffer, 0);
  }
  Operand View(Operand base, TensorDesc desc, int64_t byte_offset) {
    const plan::Tensor& t = tensors_[Index(base)];
    if (t.desc == desc && byte_offset == 0) return base;
    return AddTensor(fmt::format("{}.view{}", t.name, tensors_.size()), std::move(desc), t.buffer,
                     t.byte_offset + byte_offset);
  }
  void Alias(ir::ValueId v, Operand source) {
    const ir::TensorType& type = g_.type(v);
    const plan::Tensor& s = tensors_[Index(source)];
    assert(tensor_of_[Index(v)] == ir::kNone && "the output has memory of its own already");
    tensor_of_[Index(v)] = AddTensor(g_.value(v).name, {type.dtype, type.dims, g_.value(v).layout},
                                     s.buffer, s.byte_offset);
  }

  void AddCall(std::string_view kernel, Attrs params, std::vector<Operand> inputs,
               std::vector<Operand> outputs, std::vector<std::pair<int, int>> in_place,
               std::string loc) {
    // Calls of one kind share their parameters.
    program_.calls.push_back({std::string(kernel), *params_.insert(std::move(params)).first,
                              std::move(inputs), std::move(outputs), std::move(loc)});
    kernels_.push_back(FindKernel(kernel));
    // Per output: the input whose memory it may take.
    std::vector<int32_t>& pairs = in_place_.emplace_back();
    if (!in_place.empty()) pairs.assign(program_.calls.back().outputs.size(), kNever);
    for (const auto& [i, o] : in_place) pairs[Index(o)] = i;
  }

 private:
  static size_t Index(int32_t i) { return static_cast<size_t>(i); }

  int32_t ConstantIndex(const HostTensor& value) {
    const std::string_view bytes(reinterpret_cast<const char*>(value.data.data()),
                                 value.data.size());
    const size_t hash = std::hash<std::string_view>{}(bytes) ^ static_cast<size_t>(value.dtype);
    auto [begin, end] = constant_index_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (constants_[Index(it->second)] == value) return it->second;
    }
    constants_.push_back(value);
    const auto index = static_cast<int32_t>(constants_.size() - 1);
    constant_index_.emplace(hash, index);
    return index;
  }

  Status SnapshotState(const ir::OutputInfo& out) {
    const ir::Value& value = g_.value(out.value);
    if (value.kind != ir::ValueKind::kState || g_.FindNext(value.index) == ir::kNone) return {};
    const Operand state = TensorOf(out.value);
    const Operand copy = Temp(out.name, desc(state));
    EmitCopy(state, copy, "output " + out.name);
    snapshots_.emplace(out.name, copy);
    return {};
  }

  void EmitCopy(Operand from, Operand to, std::string loc) {
    Attrs params{{"offset", int64_t{0}},
                 {"strides", StridesOf(desc(from).dims, desc(from).layout)}};
    AddCall("copy", std::move(params), {from}, {to}, {}, std::move(loc));
  }

  // ---- lifetimes

  // Per buffer: last call that reads it, first call that writes it, number of writing calls;
  // outputs live for ever.
  void FindLifetimes() {
    const size_t n = program_.buffers.size();
    last_read_.assign(n, kNever);
    first_write_.assign(n, kNever);
    is_output_.assign(n, false);
    last_reader_.assign(n, kNever);
    last_reads_.assign(n, 0);
    writer_.assign(n, kNever);
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      const auto at = static_cast<int32_t>(c);
      const plan::Call& call = program_.calls[c];
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        if (call.inputs[i] == ir::kNone) continue;
        const size_t b = BufferOf(call.inputs[i]);
        last_reads_[b] = last_read_[b] == at ? last_reads_[b] + 1 : 1;
        last_read_[b] = at;
        last_reader_[b] = static_cast<int32_t>(i);
      }
      for (size_t o = 0; o < call.outputs.size(); ++o) {
        if (call.outputs[o] == ir::kNone || first_write_[BufferOf(call.outputs[o])] != kNever)
          continue;
        first_write_[BufferOf(call.outputs[o])] = at;
        writer_[BufferOf(call.outputs[o])] = static_cast<int32_t>(o);
      }
    }
    for (const plan::Output& out : program_.outputs) is_output_[BufferOf(out.tensor)] = true;
    // A next value that is another state's old value is copied at the very end.
    for (const ir::NextInfo& next : g_.nexts()) {
      const Operand t = tensor_of_[Index(next.value)];
      if (t != ir::kNone && program_.buffers[BufferOf(t)].space == Space::kState) {
        last_read_[BufferOf(t)] = static_cast<int32_t>(program_.calls.size());
      }
    }
  }
  size_t BufferOf(Operand t) const { return Index(tensors_[Index(t)].buffer); }

  bool Whole(Operand t) const {
    const plan::Tensor& tensor = tensors_[Index(t)];
    return tensor.byte_offset == 0 &&
           tensor.desc.bytes() == program_.buffers[Index(tensor.buffer)].bytes;
  }

  // May output o of the call share memory with its input i?
  bool MayShare(size_t call, size_t i, size_t o) const {
    const plan::Call& c = program_.calls[call];
    const TensorDesc &a = desc(c.inputs[i]), &b = desc(c.outputs[o]);
    if (a.dims != b.dims || SizeOf(a.dtype) != SizeOf(b.dtype) || a.layout != b.layout)
      return false;
    if (!in_place_[call].empty()) return in_place_[call][o] == static_cast<int32_t>(i);
    const uint64_t mask = kernels_[call]->in_place;
    if (mask == ~uint64_t{0})
      return c.kernel == "map";  // lists of tensors say their pairs themselves
    return i < 8 && o < 8 && (mask >> (o * 8 + i) & 1) != 0;
  }

  // ---- next states

  // The buffer of a state that this graph reads, or kNever.
  int32_t StateBuffer(ir::StateId state) {
    const ir::ValueId v = g_.FindState(state);
    return v == ir::kNone || tensor_of_[Index(v)] == ir::kNone
               ? kNever
               : static_cast<int32_t>(BufferOf(tensor_of_[Index(v)]));
  }

  void PlaceNextStates() {
    std::vector<bool> claimed(program_.buffers.size(), false);
    for (const ir::NextInfo& next : g_.nexts()) {
      const Operand t = TensorOf(next.value);
      const size_t buffer = BufferOf(t);
      if (buffer < claimed.size() && !claimed[buffer] && CanLiveInState(next.state, t)) {
        claimed[buffer] = true;
        Rebind(static_cast<int32_t>(buffer), next.state);
      } else {
        copies_.emplace_back(next.state, t);
      }
    }
  }

  bool CanLiveInState(ir::StateId state, Operand t) {
    const size_t buffer = BufferOf(t);
    const plan::Buffer& b = program_.buffers[buffer];
    if (b.space != Space::kBlock || !Whole(t) || is_output_[buffer] ||
        desc(t).layout != Layout::kRowMajor)
      return false;
    const int32_t written = first_write_[buffer];
    if (written == kNever) return false;
    const int32_t old = StateBuffer(state);
    if (old == kNever) return true;
    if (is_output_[Index(old)] || last_read_[Index(old)] > written) return false;
    if (last_read_[Index(old)] < written) return true;
    // The writing call reads the old value too: fine when it does so once, through a pair that may
    // share memory.
    const auto call = Index(written);
    const size_t i = Index(last_reader_[Index(old)]), o = Index(writer_[buffer]);
    return last_reads_[Index(old)] == 1 && Whole(program_.calls[call].inputs[i]) &&
           MayShare(call, i, o);
  }

  // The buffer becomes the state's memory. Reads of the old value keep their own buffer entry: the
  // same memory, earlier.
  void Rebind(int32_t buffer, ir::StateId state) {
    program_.buffers[Index(buffer)].space = Space::kState;
    program_.buffers[Index(buffer)].index = state;
  }

  // ---- in-place reuse

  void ShareInPlace() {
    std::vector<int32_t> merged(program_.buffers.size());
    std::iota(merged.begin(), merged.end(), 0);
    const auto root = [&](size_t b) {
      while (merged[b] != static_cast<int32_t>(b)) b = Index(merged[b] = merged[Index(merged[b])]);
      return b;
    };
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      const plan::Call& call = program_.calls[c];
      for (size_t o = 0; o < call.outputs.size(); ++o) {
        const Operand out = call.outputs[o];
        if (out == ir::kNone) continue;
        const size_t to = root(BufferOf(out));
        if (program_.buffers[to].space != Space::kBlock || !Whole(out) ||
            first_write_[to] != static_cast<int32_t>(c))
          continue;
        const bool listed = !in_place_[c].empty();
        if (listed && in_place_[c][o] == kNever) continue;
        const size_t first = listed ? Index(in_place_[c][o]) : 0,
                     end = listed ? first + 1 : call.inputs.size();
        for (size_t i = first; i < end; ++i) {
          if (call.inputs[i] == ir::kNone || !MayShare(c, i, o)) continue;
          const size_t from = root(BufferOf(call.inputs[i]));
          const bool dies = last_read_[from] == static_cast<int32_t>(c) && !is_output_[from];
          if (program_.buffers[from].space != Space::kBlock || !dies || from == to ||
              !Whole(call.inputs[i]))
            continue;
          if (listed ? last_reads_[from] != 1 : ReadsTwice(call, from, i, root)) continue;
          // `to` continues in `from`'s memory; no other output of this call may take it, too.
          merged[to] = static_cast<int32_t>(from);
          last_read_[from] = std::max(static_cast<int32_t>(c) + 1, last_read_[to]);
          last_reads_[from] = last_reads_[to];
          if (is_output_[to]) is_output_[from] = true;
          break;
        }
      }
    }
    for (plan::Tensor& t : tensors_) t.buffer = static_cast<int32_t>(root(Index(t.buffer)));
  }

  template <typename Root>
  bool ReadsTwice(const plan::Call& call, size_t buffer, size_t except, const Root& root) const {
    if (call.kernel == "map") return false;  // reads every operand at the element that it writes
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (i != except && call.inputs[i] != ir::kNone && root(BufferOf(call.inputs[i])) == buffer)
        return true;
    }
    return false;
  }

  // Next values that could not live in their state: copied at the end. A source that is itself a
  // state which an earlier copy overwrites is saved first.
  void AppendCopies() {
    std::unordered_set<ir::StateId> overwritten;
    for (const auto& [state, t] : copies_) overwritten.insert(state);
    for (auto& [state, t] : copies_) {
      const plan::Buffer& b = program_.buffers[BufferOf(t)];
      if (b.space != Space::kState || b.index == state || !overwritten.contains(b.index)) continue;
      const Operand saved = Temp("next", desc(t));
      EmitCopy(t, saved, "next of " + g_.module().state(state).name);
      t = saved;
    }
    for (const auto& [state, t] : copies_) {
      const plan::Buffer& b = program_.buffers[BufferOf(t)];
      if (b.space == Space::kState && b.index == state) continue;
      TensorDesc target = desc(t);
      target.layout = Layout::kRowMajor;
      const int32_t buffer = AddBuffer(Space::kState, state, target.bytes());
      const Operand to =
          AddTensor(fmt::format("{}.next{}", g_.module().state(state).name, tensors_.size()),
                    target, buffer, 0);
      EmitCopy(t, to, "next of " + g_.module().state(state).name);
    }
  }

  const ir::Graph& g_;
  const std::vector<int32_t>& feed_index_;
  std::vector<HostTensor>& constants_;
  plan::Program program_;
  std::deque<plan::Tensor>
      tensors_;  // a deque: rules hold references to forms while tensors are added
  std::vector<Operand> tensor_of_;              // value -> tensor
  std::vector<std::vector<int32_t>> in_place_;  // per call: pairs that its lowering gave, by output
  std::vector<const KernelInfo*> kernels_;      // per call
  struct AttrsHash {
    size_t operator()(const Attrs& attrs) const { return attrs.Hash(); }
  };
  std::unordered_set<Attrs, AttrsHash> params_;   // of all calls
  std::vector<int32_t> last_read_, first_write_;  // per buffer: calls
  std::vector<int32_t> last_reader_, last_reads_,
      writer_;  // input and number of reads in the last call; output of the first
  std::vector<bool> is_output_;
  std::unordered_map<std::string, Operand> snapshots_;
  std::unordered_multimap<size_t, int32_t> constant_index_;
  std::vector<std::pair<ir::StateId, Operand>> copies_;
};

NodeLowering::NodeLowering(ProgramBuilder& builder, ir::NodeId id) : b_(builder), id_(id) {}
const ir::Graph& NodeLowering::graph() const { return b_.graph(); }
const ir::Node& NodeLowering::node() const { return b_.graph().node(id_); }
Operand NodeLowering::in(size_t i) const {
  const ir::ValueId v = i < node().inputs.size() ? node().inputs[i] : ir::kNone;
  return v == ir::kNone ? ir::kNone : b_.TensorOf(v);
}
Operand NodeLowering::out(size_t i) const {
  const ir::ValueId v = i < node().outputs.size() ? node().outputs[i] : ir::kNone;
  return v == ir::kNone ? ir::kNone : b_.TensorOf(v);
}
const TensorDesc& NodeLowering::desc(Operand t) const { return b_.desc(t); }
Operand NodeLowering::Temp(TensorDesc desc) {
  return b_.Temp(b_.graph().Label(id_), std::move(desc));
}
Operand NodeLowering::View(Operand base, TensorDesc desc, int64_t byte_offset) {
  return b_.View(base, std::move(desc), byte_offset);
}
void NodeLowering::Call(std::string_view kernel, Attrs params, std::vector<Operand> inputs,
                        std::vector<Operand> outputs, std::vector<std::pair<int, int>> in_place) {
  b_.AddCall(kernel, std::move(params), std::move(inputs), std::move(outputs), std::move(in_place),
             b_.graph().Label(id_));
}
void NodeLowering::Alias(size_t i, Operand source) { b_.Alias(node().outputs[i], source); }

}  // namespace

Result<plan::Program> LowerGraph(const ir::Graph& graph, const std::vector<int32_t>& feed_index,
                                 std::vector<HostTensor>& constants) {
  return ProgramBuilder(graph, feed_index, constants).Run();
}

}  // namespace ampc
