// SPDX-License-Identifier: Apache-2.0
// map: elementwise programs in float, in blocks of kExprBlock elements taken in the outputs' memory
// order.
//
// Per block, an input is one of: read in place (fp32, same dims and layout as the outputs), widened
// (the same in fp16, bf16 or an integer), a constant block filled once per task (one element), or
// gathered from a walk over its strides (broadcast or another layout). Plain casts skip the
// evaluator. Programs that compute in double or int64 go to the reference: they work on scalars and
// indices.
//
// All of a block is read before its outputs are written, so an output may overwrite an input of the
// same form.

#include <algorithm>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"
#include "kernels/cpu/walk.h"
#include "kernels/expr_eval.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"

namespace ampc::cpu {
namespace {

struct MapInput {
  size_t index;
  DType dtype;
  enum class Form { kDense, kScalar, kStrided } form;
  Walk walk;
};
struct MapOutput {
  size_t index;
  DType dtype;
};

void LoadBlock(DType t, const void* p, int64_t begin, int64_t n, float* out) {
  if (IsFloatUpTo32(t)) {
    Widen(t, Offset(p, begin * SizeOf(t)), out, n);
  } else {
    ref::LoadRun<float>(t, p, begin, 1, n, out);
  }
}

void GatherBlock(const MapInput& x, const void* p, int64_t begin, int64_t n, float* out) {
  alignas(64) std::byte raw[kExprBlock * 8];
  const auto as = [&]<typename S>(S) {
    x.walk.Gather(static_cast<const S*>(p), begin, n, reinterpret_cast<S*>(raw));
  };
  switch (SizeOf(x.dtype)) {
    case 1:
      as(uint8_t{});
      break;
    case 2:
      as(uint16_t{});
      break;
    case 4:
      as(uint32_t{});
      break;
    default:
      as(uint64_t{});
      break;
  }
  LoadBlock(x.dtype, raw, 0, n, out);
}

class MapKernel final : public PreparedKernel {
 public:
  MapKernel(ExprProgram program, const CallSpec& call, const PrepareOptions& options);
  int64_t workspace_bytes() const override { return task_bytes_ * threads_; }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override;

 private:
  void RunTask(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
               int64_t begin, int64_t end) const;
  void RunCast(const void* x, void* y) const;

  ExprProgram program_;
  const VecOps& vec_;
  std::vector<MapInput> inputs_;
  std::vector<MapOutput> outputs_;
  size_t num_inputs_, num_outputs_;
  int64_t elements_ = 0;
  int threads_ = 1;
  bool cast_ = false;
  // The workspace of one task.
  int64_t x_at_ = 0, y_at_ = 0, blocks_at_ = 0, registers_at_ = 0, task_bytes_ = 0;
};

/// What one element costs beside its memory traffic, in bytes moved at the same time.
int64_t ComputeCost(const ExprProgram& program) {
  int64_t cost = 0;
  for (const ExprInstr& instr : program.code) {
    switch (instr.op) {
      case ExprOp::kInput:
      case ExprOp::kConst:
        break;
      case ExprOp::kPow:
      case ExprOp::kMod:
      case ExprOp::kFmod:
        cost += 200;
        break;
      default:
        cost += instr.op >= ExprOp::kExp && instr.op <= ExprOp::kErf && instr.op != ExprOp::kSqrt
                    ? 20
                    : 1;
    }
  }
  return cost;
}

MapKernel::MapKernel(ExprProgram program, const CallSpec& call, const PrepareOptions& options)
    : program_(std::move(program)),
      vec_(Vec()),
      num_inputs_(call.inputs.size()),
      num_outputs_(call.outputs.size()) {
  const TensorDesc& shape = *std::ranges::find_if(call.outputs, &TensorDesc::present);
  const std::vector<size_t> order = ref::StorageOrder(shape);
  const std::vector<int64_t> dims = ref::Permute(shape.dims, order);
  elements_ = shape.elements();
  int64_t cost = ComputeCost(program_);
  std::vector<bool> used(num_inputs_, false);
  for (const ExprInstr& instr : program_.code) {
    if (instr.op == ExprOp::kInput) used[instr.a] = true;
  }
  for (size_t i = 0; i < num_inputs_; ++i) {
    if (!used[i]) continue;
    const TensorDesc& x = call.inputs[i];
    Walk walk = Walk::Of(dims, ref::Permute(ref::BroadcastStrides(x, shape.dims), order));
    using Form = MapInput::Form;
    const Form form = walk.IsDense() && x.elements() == elements_ ? Form::kDense
                      : walk.IsScalar()                           ? Form::kScalar
                                                                  : Form::kStrided;
    inputs_.push_back({i, x.dtype, form, std::move(walk)});
    cost += form == Form::kScalar ? 0 : SizeOf(x.dtype);
  }
  for (size_t j = 0; j < num_outputs_; ++j) {
    if (!call.outputs[j].present()) continue;
    outputs_.push_back({j, call.outputs[j].dtype});
    cost += SizeOf(call.outputs[j].dtype);
  }
  threads_ = ThreadsFor(options.threads, elements_ * cost);
  cast_ = program_.code.size() == 1 && inputs_.size() == 1 && outputs_.size() == 1 &&
          inputs_[0].form == MapInput::Form::kDense && IsFloatUpTo32(inputs_[0].dtype) &&
          IsFloatUpTo32(outputs_[0].dtype);
  if (cast_) return;
  WorkspacePlan plan;
  x_at_ = plan.Take(static_cast<int64_t>(num_inputs_ * sizeof(float*)));
  y_at_ = plan.Take(static_cast<int64_t>(num_outputs_ * sizeof(float*)));
  blocks_at_ = plan.Take(static_cast<int64_t>(inputs_.size() + num_outputs_) * kExprBlock * 4);
  registers_at_ = plan.Take(ExprScratchSize(program_) * 4);
  task_bytes_ = plan.total();
}

void MapKernel::RunTask(std::span<const void* const> inputs, std::span<void* const> outputs,
                        void* workspace, int64_t begin, int64_t end) const {
  using Form = MapInput::Form;
  const float** x = At<const float*>(workspace, x_at_);
  float** y = At<float*>(workspace, y_at_);
  float* blocks = At<float>(workspace, blocks_at_);
  float* y_blocks = blocks + static_cast<int64_t>(inputs_.size()) * kExprBlock;
  std::fill_n(x, num_inputs_, nullptr);
  for (size_t j = 0; j < num_outputs_; ++j) y[j] = y_blocks + static_cast<int64_t>(j) * kExprBlock;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (inputs_[k].form != Form::kScalar) continue;
    float* block = blocks + static_cast<int64_t>(k) * kExprBlock;
    LoadBlock(inputs_[k].dtype, inputs[inputs_[k].index], 0, 1, block);
    std::fill_n(block, kExprBlock, block[0]);
    x[inputs_[k].index] = block;
  }
  for (int64_t at = begin; at < end; at += kExprBlock) {
    const int64_t n = std::min(kExprBlock, end - at);
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const MapInput& input = inputs_[k];
      const void* data = inputs[input.index];
      float* block = blocks + static_cast<int64_t>(k) * kExprBlock;
      if (input.form == Form::kScalar) continue;
      if (input.form == Form::kStrided) {
        GatherBlock(input, data, at, n, block);
      } else if (input.dtype == DType::kFloat32) {
        x[input.index] = static_cast<const float*>(data) + at;
        continue;
      } else {
        LoadBlock(input.dtype, data, at, n, block);
      }
      x[input.index] = block;
    }
    for (const MapOutput& output : outputs_) {
      if (output.dtype == DType::kFloat32)
        y[output.index] = static_cast<float*>(outputs[output.index]) + at;
    }
    vec_.eval(program_, x, y, n, At<float>(workspace, registers_at_));
    for (const MapOutput& output : outputs_) {
      if (IsFloatUpTo32(output.dtype)) {
        StoreBlock(output.dtype, y[output.index], outputs[output.index], at, n);
      } else {
        ref::StoreRun<float>(output.dtype, outputs[output.index], at, 1, n, y[output.index]);
      }
    }
  }
}

/// y = x in another float type, or a copy.
void MapKernel::RunCast(const void* x, void* y) const {
  const DType from = inputs_[0].dtype, to = outputs_[0].dtype;
  if (x == y && from == to) return;
  ParallelRanges(threads_, elements_, kBlock, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    if (from == to) {
      std::memcpy(Offset(y, begin * SizeOf(to)), Offset(x, begin * SizeOf(from)),
                  static_cast<size_t>(n * SizeOf(to)));
    } else if (from == DType::kFloat32) {
      Narrow(to, static_cast<const float*>(x) + begin, Offset(y, begin * 2), n);
    } else if (to == DType::kFloat32) {
      Widen(from, Offset(x, begin * 2), static_cast<float*>(y) + begin, n);
    } else {
      float block[kBlock];
      for (int64_t at = begin; at < end; at += kBlock) {
        const int64_t size = std::min(kBlock, end - at);
        Widen(from, Offset(x, at * 2), block, size);
        Narrow(to, block, Offset(y, at * 2), size);
      }
    }
  });
}

void MapKernel::Run(std::span<const void* const> inputs, std::span<void* const> outputs,
                    void* workspace, const RunContext&) noexcept {
  if (cast_) return RunCast(inputs[inputs_[0].index], outputs[outputs_[0].index]);
  const int64_t blocks = CeilDiv(elements_, kExprBlock),
                tasks = std::min<int64_t>(threads_, blocks);
  ParallelFor(threads_, tasks, [&](int64_t t) {
    const int64_t begin = blocks * t / tasks * kExprBlock;
    const int64_t end = std::min(elements_, blocks * (t + 1) / tasks * kExprBlock);
    RunTask(inputs, outputs, Offset(workspace, t * task_bytes_), begin, end);
  });
}

}  // namespace

std::string DeclinesMap(const CallSpec& call, const PrepareOptions&) {
  bool any_float = false;
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const TensorDesc& t : *list) {
      if (t.dtype == DType::kFloat64) return "computes in double";
      any_float |= IsFloat(t.dtype);
    }
  }
  if (!any_float) return "computes in int64";
  const TensorDesc* first = nullptr;
  for (const TensorDesc& y : call.outputs) {
    if (!y.present()) continue;
    if (first == nullptr) first = &y;
    if (y.dims.size() > 2 && y.layout != first->layout) return "outputs in different layouts";
  }
  return DeclinesEmpty(call);
}

PrepareResult PrepareMap(const CallSpec& call, const PrepareOptions& options) {
  AMPC_ASSIGN(ExprProgram program, ParseExpr(call.params.String("expr"), call.params));
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<MapKernel>(std::move(program), call, options));
}

}  // namespace ampc::cpu
