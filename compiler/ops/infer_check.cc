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

Status CheckLengths(const std::vector<ir::TensorType>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Dims& dims = outputs[i].dims;
    if (std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 0; }))
      return BadInput("E0107", "output {} would have dims {}", i, ToString(dims));
    if (!CheckedNumElements(dims, SizeOf(outputs[i].dtype)))
      return BadInput("E0111", "output {} of dims {} is larger than 2^63 bytes", i, ToString(dims));
  }
  return {};
}

// What has channels-last form like slot 0 has its batch, a channel axis and as many spatial axes.
Status CheckChannelLayout(const OpDef& op, const ir::TensorType& x,
                          const std::vector<ir::TensorType>& outputs) {
  for (size_t i = 0; i < outputs.size() && HasSlot(op.channel_slots, 0); ++i) {
    if (!HasSlot(op.channel_outputs, i)) continue;
    const Dims& y = outputs[i].dims;
    if (y.size() == x.dims.size() && (y.empty() || y[0] == x.dims[0])) continue;
    return BadInput("E0107", "output {} would have dims {}, which do not fit the input's {}", i,
                    ToString(y), ToString(x.dims));
  }
  return {};
}

// Elementwise: every output has the operands' dims, broadcast.
Status CheckBroadcast(std::span<const ir::TensorType* const> inputs,
                      const std::vector<ir::TensorType>& outputs) {
  size_t rank = 0;
  for (const ir::TensorType* x : inputs) rank = std::max(rank, x == nullptr ? 0 : x->dims.size());
  Dims expected(rank, 1);
  for (const ir::TensorType* x : inputs) {
    for (size_t k = 0; x != nullptr && k < x->dims.size(); ++k) {
      int64_t& d = expected[rank - x->dims.size() + k];
      if (d == 1) d = x->dims[k];
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dims == expected) continue;
    return BadInput("E0107", "output {} would have dims {}, but the operands give {}", i,
                    ToString(outputs[i].dims), ToString(expected));
  }
  return {};
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
  AMPC_TRY(CheckLengths(outputs));
  if (inputs.empty() || inputs[0] == nullptr || outputs.empty()) return {};
  AMPC_TRY(CheckChannelLayout(op, *inputs[0], outputs));
  if (op.traits.elementwise || op.traits.cast) AMPC_TRY(CheckBroadcast(inputs, outputs));
  if (!op.traits.view || inputs[0]->elements() == outputs[0].elements()) return {};
  return BadInput("E0107", "{} elements of {} cannot become {}", inputs[0]->elements(),
                  ToString(inputs[0]->dims), ToString(outputs[0].dims));
}

}  // namespace ampc
