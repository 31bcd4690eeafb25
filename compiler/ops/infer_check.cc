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

}  // namespace

Status CheckBeforeInference(const OpDef& op, const Attrs& attrs,
                            std::span<const ir::TensorType* const> inputs) {
  AMPC_TRY(CheckIntegers(attrs));
  AMPC_TRY(CheckAutoPad(attrs));
  return op.check == nullptr ? Status() : op.check(attrs, inputs);
}

Status CheckAfterInference(const OpDef& op, std::span<const ir::TensorType* const> inputs,
                           const std::vector<ir::TensorType>& outputs) {
  if (!op.traits.view || inputs.empty() || inputs[0] == nullptr || outputs.empty()) return {};
  if (inputs[0]->elements() == outputs[0].elements()) return {};
  return BadInput("E0107", "{} elements of {} cannot become {}", inputs[0]->elements(),
                  ToString(inputs[0]->dims), ToString(outputs[0].dims));
}

}  // namespace ampc
