// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a node may not be, where ONNX's own inference does not look: what holds for every op; the
// rest stands in the op's row (OpDef::check). Errors are E0107.

#include <span>
#include <vector>

#include "compiler/ops/op_def.h"

namespace ampc {

/// Attributes and operands that contradict each other. Null inputs are left out.
Status CheckBeforeInference(const OpDef& op, const Attrs& attrs,
                            std::span<const ir::TensorType* const> inputs);
/// Results that cannot come from the operands, whoever inferred them: ONNX's inference may return
/// early and leave a part of a shape. E0107; E0111: larger than can be counted.
Status CheckAfterInference(const OpDef& op, std::span<const ir::TensorType* const> inputs,
                           const std::vector<ir::TensorType>& outputs);

}  // namespace ampc
