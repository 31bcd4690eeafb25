// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/evaluate.h"

#include <cstring>
#include <deque>
#include <memory>

#include "compiler/ops/op_def.h"
#include "kernels/kernel.h"

namespace ampc {
namespace {

// A tensor being computed: its form, and the memory that it views.
struct Slot {
  TensorDesc desc;
  size_t memory = 0;
  int64_t offset = 0;
};

class HostLowering final : public LowerContext {
 public:
  HostLowering(const ir::Graph& graph, ir::NodeId id, std::span<const HostTensor* const> inputs)
      : g_(graph), id_(id) {
    const ir::Node& n = graph.node(id);
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      in_.push_back(inputs[i] == nullptr
                        ? ir::kNone
                        : Add({inputs[i]->dtype, inputs[i]->dims}, inputs[i]->data));
    }
    for (ir::ValueId v : n.outputs) {
      out_.push_back(v == ir::kNone ? ir::kNone : Temp({graph.type(v).dtype, graph.type(v).dims}));
    }
  }
  const ir::Graph& graph() const override { return g_; }
  const ir::Node& node() const override { return g_.node(id_); }
  Operand in(size_t i) const override { return i < in_.size() ? in_[i] : ir::kNone; }
  Operand out(size_t i) const override { return i < out_.size() ? out_[i] : ir::kNone; }
  const TensorDesc& desc(Operand t) const override { return slots_[static_cast<size_t>(t)].desc; }
  Operand Temp(TensorDesc desc) override {
    std::vector<std::byte> bytes(static_cast<size_t>(desc.bytes()));
    return Add(std::move(desc), std::move(bytes));
  }
  Operand View(Operand base, TensorDesc desc, int64_t byte_offset) override {
    const Slot& s = slots_[static_cast<size_t>(base)];
    slots_.push_back({std::move(desc), s.memory, s.offset + byte_offset});
    return static_cast<Operand>(slots_.size() - 1);
  }
  void Call(std::string_view kernel, Attrs params, std::vector<Operand> inputs,
            std::vector<Operand> outputs, std::vector<std::pair<int, int>>) override {
    if (status_.ok()) status_ = RunCall(kernel, std::move(params), inputs, outputs);
  }
  void Alias(size_t i, Operand source) override {
    const ir::TensorType& type = g_.type(node().outputs[i]);
    out_[i] = View(source, {type.dtype, type.dims}, 0);
  }

  Result<std::vector<HostTensor>> Finish() {
    if (!status_.ok()) return std::move(status_);
    std::vector<HostTensor> results;
    for (size_t i = 0; i < out_.size(); ++i) {
      if (out_[i] == ir::kNone) {
        results.emplace_back();
        continue;
      }
      const Slot& s = slots_[static_cast<size_t>(out_[i])];
      const std::byte* data = memory_[s.memory].data() + s.offset;
      results.push_back(
          {s.desc.dtype, s.desc.dims, std::vector<std::byte>(data, data + s.desc.bytes())});
    }
    return results;
  }

 private:
  Operand Add(TensorDesc desc, std::vector<std::byte> bytes) {
    memory_.push_back(std::move(bytes));
    slots_.push_back({std::move(desc), memory_.size() - 1, 0});
    return static_cast<Operand>(slots_.size() - 1);
  }
  std::byte* Data(Operand t) {
    if (t == ir::kNone) return nullptr;
    const Slot& s = slots_[static_cast<size_t>(t)];
    return memory_[s.memory].data() + s.offset;
  }

  Status RunCall(std::string_view kernel, Attrs params, const std::vector<Operand>& inputs,
                 const std::vector<Operand>& outputs) {
    CallSpec spec{kernel, std::move(params), {}, {}};
    std::vector<const void*> in;
    std::vector<void*> out;
    for (Operand t : inputs) {
      spec.inputs.push_back(t == ir::kNone ? TensorDesc{} : desc(t));
      in.push_back(Data(t));
    }
    for (Operand t : outputs) {
      spec.outputs.push_back(t == ir::kNone ? TensorDesc{} : desc(t));
      out.push_back(Data(t));
    }
    KernelRegistry registry;
    registry.Add(ref::Implementations());
    AMPC_ASSIGN(const Implementation* impl, registry.Select(spec, {}));
    AMPC_ASSIGN(auto prepared, impl->prepare(spec, {}));
    std::vector<std::byte> workspace(static_cast<size_t>(prepared->workspace_bytes()) + 64);
    void* aligned = workspace.data();
    size_t space = workspace.size();
    std::align(64, static_cast<size_t>(prepared->workspace_bytes()), aligned, space);
    int64_t index_error = 0;
    prepared->Run(in, out, aligned, {.index_error = &index_error});
    if (index_error != 0)
      return BadInput("E0805", "index {} of a {} is out of range", index_error - 1, kernel);
    return {};
  }

  const ir::Graph& g_;
  ir::NodeId id_;
  std::vector<Operand> in_, out_;
  std::deque<Slot> slots_;  // a deque: rules hold references to forms while slots are added
  std::vector<std::vector<std::byte>> memory_;
  Status status_;
};

}  // namespace

Result<std::vector<HostTensor>> EvaluateNode(const ir::Graph& graph, ir::NodeId node,
                                             std::span<const HostTensor* const> inputs) {
  const OpDef& op = *graph.node(node).op;
  if (op.lower == nullptr)
    return InternalError("E7601", "'{}' has no lowering", op.name).At(graph.Describe(node));
  HostLowering lowering(graph, node, inputs);
  AMPC_TRY(op.lower(lowering));
  return lowering.Finish();
}

Result<std::vector<HostTensor>> EvaluateNode(const ir::Graph& graph, ir::NodeId node) {
  std::vector<const HostTensor*> inputs;
  for (ir::ValueId v : graph.node(node).inputs) inputs.push_back(graph.ConstantOf(v));
  return EvaluateNode(graph, node, inputs);
}

}  // namespace ampc
