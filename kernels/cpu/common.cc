// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <fmt/format.h>

namespace ampc::cpu {

std::string DeclinesUnlessFloat(const CallSpec& call, int skip_input, int skip_output) {
  const auto refused = [](const TensorDesc& d) { return d.present() && !IsFloatUpTo32(d.dtype); };
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i) {
    if (i != skip_input && refused(call.inputs[i])) {
      return fmt::format("input {} is {}: only fp32, fp16 and bf16 are vectorised", i,
                         Name(call.inputs[i].dtype));
    }
  }
  for (int i = 0; i < static_cast<int>(call.outputs.size()); ++i) {
    if (i != skip_output && refused(call.outputs[i])) {
      return fmt::format("output {} is {}: only fp32, fp16 and bf16 are vectorised", i,
                         Name(call.outputs[i].dtype));
    }
  }
  return {};
}

std::string DeclinesEmpty(const CallSpec& call) {
  for (const TensorDesc& d : call.inputs) {
    if (d.present() && d.elements() == 0) return "an operand has no elements";
  }
  for (const TensorDesc& d : call.outputs) {
    if (d.present() && d.elements() == 0) return "an operand has no elements";
  }
  return {};
}

}  // namespace ampc::cpu
