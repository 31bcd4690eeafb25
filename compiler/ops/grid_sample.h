// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradients of GridSample in standard ONNX (grid_sample_body.cc).

#include "compiler/ops/op_def.h"

namespace ampc {

/// dy, grid -> dx
Result<std::string> BodyGridSampleGradInput(const BodyContext& c);
/// dy, x, grid -> dgrid
Result<std::string> BodyGridSampleGradGrid(const BodyContext& c);

}  // namespace ampc
