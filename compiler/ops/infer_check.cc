// SPDX-License-Identifier: Apache-2.0
#include "compiler/ops/infer_check.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace ampc {
namespace {

// ONNX's inference reads an integer attribute (an axis, a group) as an int: one that does not fit
// would mean one thing to it and another to us.
Status CheckIntegers(const Attrs& attrs) {
  for (const auto& [name, value] : attrs.entries()) {
    const int64_t* number = std::get_if<int64_t>(&value);
    if (name == "seed") continue;  // any bits will do
    if (number != nullptr && (*number < std::numeric_limits<int32_t>::min() ||
                              *number > std::numeric_limits<int32_t>::max())) {
      return BadInput("E0107", "attribute '{}' is {}, which is out of range", name, *number);
    }
  }
  return {};
}

Status CheckAutoPad(const Attrs& attrs) {
  constexpr std::string_view kKnown[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
  const std::string_view found = attrs.String("auto_pad", "NOTSET");
  if (std::find(std::begin(kKnown), std::end(kKnown), found) != std::end(kKnown)) return {};
  return BadInput("E0107", "auto_pad is '{}', expected NOTSET, VALID, SAME_UPPER or SAME_LOWER",
                  found);
}

// x [N, C, …] and w [M, C / group, …], or [C, M / group, …] of a transposed convolution.
Status CheckConv(const Attrs& attrs, std::span<const ir::TensorType* const> inputs,
                 bool transposed) {
  AMPC_TRY(CheckAutoPad(attrs));
  if (inputs.size() < 2 || inputs[0] == nullptr || inputs[1] == nullptr) return {};
  const Dims &x = inputs[0]->dims, &w = inputs[1]->dims;
  if (x.size() < 3 || w.size() != x.size()) {
    return BadInput("E0107", "the data {} and the weight {} must have the same rank, 3 or more",
                    ToString(x), ToString(w));
  }
  const int64_t group = attrs.Int("group", 1);
  if (group < 1) return BadInput("E0107", "group is {}, expected 1 or more", group);
  const bool fits = transposed ? w[0] == x[1] : x[1] % group == 0 && w[1] == x[1] / group;
  if (!fits || w[0] % group != 0) {
    return BadInput("E0107", "the weight {} does not fit {} channels in {} groups", ToString(w),
                    x[1], group);
  }
  const Dims window(w.begin() + 2, w.end());
  if (attrs.Has("kernel_shape") && attrs.Ints("kernel_shape", {}) != window) {
    return BadInput("E0107", "kernel_shape is {}, but the weight is {}",
                    ToString(attrs.Ints("kernel_shape", {})), ToString(w));
  }
  const int64_t channels = transposed ? w[1] * group : w[0];
  if (inputs.size() > 2 && inputs[2] != nullptr && inputs[2]->dims != Dims{channels}) {
    return BadInput("E0107", "the bias is {}, expected [{}]", ToString(inputs[2]->dims), channels);
  }
  return {};
}

Status CheckGemm(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  if (inputs.size() < 2 || inputs[0] == nullptr || inputs[1] == nullptr) return {};
  const Dims &a = inputs[0]->dims, &b = inputs[1]->dims;
  if (a.size() != 2 || b.size() != 2) return {};  // inference says so
  const int64_t left = a[attrs.Int("transA", 0) != 0 ? 0 : 1];
  const int64_t right = b[attrs.Int("transB", 0) != 0 ? 1 : 0];
  if (left != right) {
    return BadInput("E0107", "inner dimensions differ: {} of {} and {} of {}", left, ToString(a),
                    right, ToString(b));
  }
  if (inputs.size() < 3 || inputs[2] == nullptr) return {};
  const Dims y = {a[attrs.Int("transA", 0) != 0 ? 1 : 0], b[attrs.Int("transB", 0) != 0 ? 0 : 1]};
  const Dims& c = inputs[2]->dims;
  bool fits = c.size() <= 2;
  for (size_t i = 0; fits && i < c.size(); ++i) {
    const int64_t wanted = y[i + 2 - c.size()];
    fits = c[i] == 1 || c[i] == wanted;
  }
  if (fits) return {};
  return BadInput("E0107", "the bias {} does not broadcast to {}", ToString(c), ToString(y));
}

}  // namespace

Status CheckBeforeInference(const OpDef& op, const Attrs& attrs,
                            std::span<const ir::TensorType* const> inputs) {
  AMPC_TRY(CheckIntegers(attrs));
  if (op.name == "Conv") return CheckConv(attrs, inputs, false);
  if (op.name == "ConvTranspose") return CheckConv(attrs, inputs, true);
  if (op.name == "Gemm") return CheckGemm(attrs, inputs);
  return attrs.Has("auto_pad") ? CheckAutoPad(attrs) : Status();
}

Status CheckAfterInference(const OpDef& op, std::span<const ir::TensorType* const> inputs,
                           const std::vector<ir::TensorType>& outputs) {
  if (!op.traits.view || inputs.empty() || inputs[0] == nullptr || outputs.empty()) return {};
  if (inputs[0]->elements() == outputs[0].elements()) return {};
  return BadInput("E0107", "{} elements of {} cannot become {}", inputs[0]->elements(),
                  ToString(inputs[0]->dims), ToString(outputs[0].dims));
}

}  // namespace ampc
