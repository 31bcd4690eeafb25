// SPDX-License-Identifier: Apache-2.0
// map: preparation. Values get slots by liveness (a slot is free after the last instruction that
// reads it), constants a table in the type of the program, operands a form: dense, scalar or
// strided. A plain cast has a kernel of its own.

#include "kernels/cuda/map.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/axes.h"
#include "kernels/cuda/families.h"
#include "kernels/expr_eval.h"
#include "kernels/ref/loops.h"

namespace ampc::cuda {
namespace {

/// What the program computes in (kernels.def).
enum class Compute : uint8_t { kFloat, kDouble, kInt64 };

Compute ComputeType(const CallSpec& call) {
  Compute type = Compute::kInt64;
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const TensorDesc& t : *list) {
      if (t.dtype == DType::kFloat64) return Compute::kDouble;
      if (IsFloat(t.dtype)) type = Compute::kFloat;
    }
  }
  return type;
}

/// Slot of each value that is no constant. Results of the program live to its end, where they are
/// stored.
struct Slots {
  std::vector<int> of;
  int count = 0;
};

Slots AssignSlots(const ExprProgram& program) {
  const int n = static_cast<int>(program.code.size());
  std::vector<int> last(program.code.size(), -1);
  const auto operands = [&](const ExprInstr& instr) {
    return std::array<int32_t, 3>{instr.op == ExprOp::kInput ? -1 : instr.a, instr.b, instr.c};
  };
  for (int i = 0; i < n; ++i) {
    for (const int32_t a : operands(program.code[i])) {
      if (a >= 0) last[a] = i;
    }
  }
  for (const int32_t a : program.outputs) last[a] = n;

  Slots slots{std::vector<int>(program.code.size(), -1)};
  std::vector<int> free;
  for (int i = 0; i < n; ++i) {
    if (program.code[i].op == ExprOp::kConst) continue;
    for (const int32_t a : operands(program.code[i])) {
      if (a < 0 || last[a] != i || slots.of[a] < 0) continue;
      free.push_back(slots.of[a]);
      last[a] = -1;  // an operand that is read twice dies once
    }
    if (free.empty()) free.push_back(slots.count++);
    slots.of[i] = free.back();
    free.pop_back();
  }
  return slots;
}

/// Operand of the kernel's list and where it stands in the call.
struct Place {
  size_t index;
  bool output;
};

template <typename T>
class MapKernel final : public PreparedKernel {
 public:
  static Result<MapKernel> Make(const CallSpec& call, const ExprProgram& program);
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    if (params_.elements == 0) return;  // there are no operands
    params_.vector = true;
    for (size_t k = 0; k < places_.size(); ++k) {
      const auto [index, output] = places_[k];
      // The kernel writes to no input.
      params_.data[k] = output ? outputs[index] : const_cast<void*>(inputs[index]);
      params_.vector &= AllowsVectors(params_.operands[k], params_.data[k]);
    }
    if (cast_) return LaunchCast(params_, context.stream);
    LaunchMap(params_, threads_, context.stream);
  }

 private:
  Status AddOperands(const CallSpec& call, const std::vector<bool>& used);
  Status AddCode(const ExprProgram& program);
  Status ChooseThreads();

  MapParams<T> params_;
  std::vector<Place> places_;
  std::vector<int16_t> operand_of_input_;
  int threads_ = 0;
  bool cast_ = false;
};

template <typename T>
Status MapKernel<T>::AddOperands(const CallSpec& call, const std::vector<bool>& used) {
  const TensorDesc& shape = *std::ranges::find_if(call.outputs, &TensorDesc::present);
  const std::vector<size_t> order = ref::StorageOrder(shape);
  const std::vector<int64_t> dims = ref::Permute(shape.dims, order);
  params_.elements = shape.elements();
  const auto add = [&](const TensorDesc& t, const std::vector<int64_t>& strides,
                       Place place) -> Status {
    if (places_.size() == kMaxMapOperands)
      return Unsupported("E0801", "more than {} operands", kMaxMapOperands);
    if (params_.elements != 0) {
      AMPC_ASSIGN(params_.operands[places_.size()],
                  MakeOperand(t.dtype, dims, ref::Permute(strides, order)));
    }
    places_.push_back(place);
    return {};
  };
  operand_of_input_.assign(call.inputs.size(), 0);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!used[i]) continue;
    operand_of_input_[i] = static_cast<int16_t>(places_.size());
    AMPC_TRY(add(call.inputs[i], ref::BroadcastStrides(call.inputs[i], shape.dims), {i, false}));
    ++params_.num_inputs;
  }
  for (size_t j = 0; j < call.outputs.size(); ++j) {
    const TensorDesc& y = call.outputs[j];
    if (!y.present()) continue;
    AMPC_TRY(add(y, StridesOf(y.dims, y.layout), {j, true}));
    ++params_.num_outputs;
  }
  return {};
}

template <typename T>
Status MapKernel<T>::AddCode(const ExprProgram& program) {
  const Slots slots = AssignSlots(program);
  std::vector<int16_t> registers(program.code.size(), 0);
  int constants = 0;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const ExprInstr& instr = program.code[i];
    if (instr.op == ExprOp::kConst) {
      if (constants == kMaxMapConstants)
        return Unsupported("E0801", "more than {} constants", kMaxMapConstants);
      params_.constants[constants] = expr_internal::FromConstant<T>(instr.constant);
      registers[i] = static_cast<int16_t>(~constants++);
      continue;
    }
    if (params_.num_instrs == kMaxMapInstrs)
      return Unsupported("E0801", "more than {} operations", kMaxMapInstrs);
    if (slots.of[i] > 255) return Unsupported("E0801", "more than 256 values alive at a time");
    registers[i] = static_cast<int16_t>(slots.of[i]);
    const auto reg = [&](int32_t a) { return a < 0 ? int16_t{0} : registers[a]; };
    const int16_t a = instr.op == ExprOp::kInput ? operand_of_input_[instr.a] : reg(instr.a);
    params_.code[params_.num_instrs++] = {static_cast<uint8_t>(instr.op),
                                          static_cast<uint8_t>(slots.of[i]), a, reg(instr.b),
                                          reg(instr.c)};
  }
  params_.num_slots = slots.count;
  for (size_t k = static_cast<size_t>(params_.num_inputs); k < places_.size(); ++k) {
    params_.results[k - static_cast<size_t>(params_.num_inputs)] =
        registers[program.outputs[places_[k].index]];
  }
  return {};
}

/// The largest block whose registers fit into shared memory.
template <typename T>
Status MapKernel<T>::ChooseThreads() {
  for (threads_ = 128; threads_ >= 32; threads_ /= 2) {
    if (MapSharedBytes(params_.num_slots, threads_, sizeof(T)) <= kMaxMapSharedBytes) return {};
  }
  return Unsupported("E0801", "{} values alive at a time, {} fit into shared memory",
                     params_.num_slots, kMaxMapSharedBytes / MapSharedBytes(1, 32, sizeof(T)));
}

template <typename T>
Result<MapKernel<T>> MapKernel<T>::Make(const CallSpec& call, const ExprProgram& program) {
  MapKernel kernel;
  std::vector<bool> used(call.inputs.size(), false);
  for (const ExprInstr& instr : program.code) {
    if (instr.op == ExprOp::kInput) used[instr.a] = true;
  }
  AMPC_TRY(kernel.AddOperands(call, used));
  AMPC_TRY(kernel.AddCode(program));
  AMPC_TRY(kernel.ChooseThreads());
  const auto& operands = kernel.params_.operands;
  kernel.cast_ = program.code.size() == 1 && kernel.places_.size() == 2 &&
                 operands[0].form == Form::kDense && operands[1].form == Form::kDense;
  return kernel;
}

template <typename T>
PrepareResult MakeIn(const CallSpec& call, const ExprProgram& program) {
  AMPC_ASSIGN(MapKernel<T> kernel, MapKernel<T>::Make(call, program));
  return std::unique_ptr<PreparedKernel>(std::make_unique<MapKernel<T>>(std::move(kernel)));
}

}  // namespace

PrepareResult PrepareMap(const CallSpec& call, const PrepareOptions&) {
  AMPC_ASSIGN(const ExprProgram program, ParseExpr(call.params.String("expr"), call.params));
  switch (ComputeType(call)) {
    case Compute::kDouble:
      return MakeIn<double>(call, program);
    case Compute::kFloat:
      return MakeIn<float>(call, program);
    case Compute::kInt64:
      break;
  }
  return MakeIn<int64_t>(call, program);
}

}  // namespace ampc::cuda
