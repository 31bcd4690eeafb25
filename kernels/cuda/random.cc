// SPDX-License-Identifier: Apache-2.0
// dropout: preparation.

#include "kernels/cuda/random.h"

#include "kernels/cuda/axes.h"
#include "kernels/cuda/families.h"

namespace ampc::cuda {
namespace {

class DropoutKernel final : public PreparedKernel {
 public:
  explicit DropoutKernel(const DropoutParams& params) : params_(params) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    if (params_.elements == 0) return;  // there are no operands
    params_.x_data = inputs[0];
    params_.ratio = inputs[1];
    params_.rng = static_cast<const int64_t*>(inputs[2]);
    params_.y_data = outputs[0];
    params_.mask_data = outputs.size() > 1 ? outputs[1] : nullptr;
    params_.vector = AllowsVectors(params_.x, params_.x_data) &&
                     AllowsVectors(params_.y, params_.y_data) &&
                     AllowsVectors(params_.mask, params_.mask_data);
    LaunchDropout(params_, context.stream);
  }

 private:
  DropoutParams params_;
};

Result<Operand> InRowMajorOrder(const TensorDesc& t) {
  return MakeOperand(t.dtype, t.dims, StridesOf(t.dims, t.layout));
}

}  // namespace

PrepareResult PrepareDropout(const CallSpec& call, const PrepareOptions&) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  DropoutParams params;
  params.elements = x.elements();
  params.stream = static_cast<uint32_t>(call.params.Int("stream"));
  params.ratio_dtype = call.inputs[1].dtype;
  params.in_double = x.dtype == DType::kFloat64 || y.dtype == DType::kFloat64;
  if (params.elements != 0) {
    AMPC_ASSIGN(params.x, InRowMajorOrder(x));
    AMPC_ASSIGN(params.y, InRowMajorOrder(y));
    if (call.outputs.size() > 1 && call.outputs[1].present()) {
      AMPC_ASSIGN(params.mask, InRowMajorOrder(call.outputs[1]));
    }
  }
  return std::unique_ptr<PreparedKernel>(std::make_unique<DropoutKernel>(params));
}

}  // namespace ampc::cuda
