// SPDX-License-Identifier: Apache-2.0
#pragma once
// The generic rules of elementwise ops: a row with `expr` needs nothing else.

#include "compiler/ops/op_def.h"

namespace ampc {

/// Gradient of input i = Map(grad_expr[i]) over the operands that the expression names.
Status GradElementwise(GradContext& g);
/// One `map` call with the row's program; attributes become parameters.
Status LowerElementwise(LowerContext& c);
/// Rounds to the output's dtype through one `map` call with `expr`.
void LowerMap(LowerContext& c, std::string_view expr, const Attrs& params);

/// The program as ONNX text for an own op's body (compiler/ops/body.cc): one node per instruction,
/// all in the compute type (fp32, double, int64), cast once at the ends.
Result<std::string> MapBody(std::string_view expr, const BodyContext& c);

/// Broadcast of two shapes (numpy rules), or an error E0107 naming both.
Result<Dims> BroadcastDims(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace ampc
