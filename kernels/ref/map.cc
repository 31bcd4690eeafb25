// SPDX-License-Identifier: Apache-2.0
// map: elementwise programs over broadcast operands, in blocks of kExprBlock elements.
//
// All operands of a block are read before its outputs are written, so an output may overwrite an
// input that has the same dims, element size and layout.

#include <algorithm>

#include "kernels/expr_eval.h"
#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

/// One operand that takes part.
struct MapOperand {
  size_t index;
  DType dtype;
};

struct MapPlan {
  ExprProgram program;
  std::vector<MapOperand> inputs, outputs;  // those that are used
  size_t num_inputs = 0, num_outputs = 0;
  LoopNest nest;  // operands: inputs, then outputs
};

/// The workspace of a run in T.
template <typename T>
struct MapScratch {
  MapScratch(const MapPlan& plan, Scratch& scratch) {
    offsets = scratch.Take<int64_t>(static_cast<int64_t>(plan.inputs.size() + plan.outputs.size()));
    x = scratch.Take<const T*>(static_cast<int64_t>(plan.num_inputs));
    y = scratch.Take<T*>(static_cast<int64_t>(plan.num_outputs));
    blocks =
        scratch.Take<T>(static_cast<int64_t>(plan.inputs.size() + plan.num_outputs) * kExprBlock);
    registers = scratch.Take<T>(ExprScratchSize(plan.program));
  }
  int64_t* offsets;
  const T** x;
  T** y;
  T* blocks;
  T* registers;
};

template <typename T>
void RunMap(const MapPlan& plan, const Buffers& run) {
  Scratch scratch(run.workspace);
  const MapScratch<T> ws(plan, scratch);
  T* const out_blocks = ws.blocks + static_cast<int64_t>(plan.inputs.size()) * kExprBlock;
  std::fill_n(ws.x, plan.num_inputs, nullptr);
  for (size_t j = 0; j < plan.num_outputs; ++j)
    ws.y[j] = out_blocks + static_cast<int64_t>(j) * kExprBlock;

  plan.nest.ForEachRun(ws.offsets, [&](const int64_t* offsets) {
    for (int64_t done = 0; done < plan.nest.inner_length(); done += kExprBlock) {
      const int64_t n = std::min(kExprBlock, plan.nest.inner_length() - done);
      for (size_t k = 0; k < plan.inputs.size(); ++k) {
        T* block = ws.blocks + static_cast<int64_t>(k) * kExprBlock;
        const int64_t stride = plan.nest.inner_stride(k);
        LoadRun<T>(plan.inputs[k].dtype, run.in(plan.inputs[k].index), offsets[k] + done * stride,
                   stride, n, block);
        ws.x[plan.inputs[k].index] = block;
      }
      EvalBlock<T>(plan.program, ws.x, ws.y, n, ws.registers);
      for (size_t k = 0; k < plan.outputs.size(); ++k) {
        const size_t operand = plan.inputs.size() + k;
        const int64_t stride = plan.nest.inner_stride(operand);
        StoreRun<T>(plan.outputs[k].dtype, run.out(plan.outputs[k].index),
                    offsets[operand] + done * stride, stride, n, ws.y[plan.outputs[k].index]);
      }
    }
  });
}

template <typename T>
PrepareResult MakeMap(MapPlan plan) {
  Scratch size(nullptr);
  MapScratch<T>(plan, size);
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunMap<T>(plan, run); },
                    size.bytes());
}

}  // namespace

PrepareResult prepare::map(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call);
  AMPC_TRY(check.Operands());
  if (!call.params.Has("expr")) return check.Fail("parameter 'expr' is missing");
  AMPC_ASSIGN(ExprProgram program, ParseExpr(call.params.String("expr"), call.params));
  if (call.outputs.size() != program.outputs.size()) {
    return check.Fail("the program sets {} outputs, the call has {}", program.outputs.size(),
                      call.outputs.size());
  }
  if (static_cast<size_t>(program.num_inputs) > call.inputs.size()) {
    return check.Fail("the program reads x{}, the call has {} inputs", program.num_inputs - 1,
                      call.inputs.size());
  }
  const TensorDesc* shape = nullptr;  // the outputs' dims and the order of the loops
  for (const TensorDesc& y : call.outputs) {
    if (y.present() && shape == nullptr) shape = &y;
  }
  if (shape == nullptr) return check.Fail("the call has no output");
  AMPC_TRY(check.InRange("rank", static_cast<int64_t>(shape->dims.size()), 0, LoopNest::kMaxAxes));

  bool any_double = false, any_float = false;
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const TensorDesc& t : *list) {
      any_double |= t.dtype == DType::kFloat64;
      any_float |= IsFloat(t.dtype);
    }
  }
  const std::vector<size_t> order = StorageOrder(*shape);
  std::vector<std::vector<int64_t>> strides;
  std::vector<MapOperand> inputs, outputs;
  std::vector<bool> used(call.inputs.size(), false);
  for (const ExprInstr& instr : program.code) {
    if (instr.op == ExprOp::kInput) used[instr.a] = true;
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!used[i]) continue;
    if (!call.inputs[i].present()) return check.Fail("the program reads x{}, which is absent", i);
    AMPC_TRY(check.BroadcastsTo(check.In(i), shape->dims));
    inputs.push_back({i, call.inputs[i].dtype});
    strides.push_back(Permute(BroadcastStrides(call.inputs[i], shape->dims), order));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.outputs[i].present()) continue;
    AMPC_TRY(check.HasDims(check.Out(i), shape->dims));
    outputs.push_back({i, call.outputs[i].dtype});
    strides.push_back(Permute(StridesOf(call.outputs[i].dims, call.outputs[i].layout), order));
  }
  MapPlan plan{std::move(program),  std::move(inputs),
               std::move(outputs),  call.inputs.size(),
               call.outputs.size(), LoopNest(Permute(shape->dims, order), strides)};
  if (any_double) return MakeMap<double>(std::move(plan));
  if (any_float) return MakeMap<float>(std::move(plan));
  return MakeMap<int64_t>(std::move(plan));
}

}  // namespace ampc::ref
