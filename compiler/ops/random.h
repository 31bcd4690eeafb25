// SPDX-License-Identifier: Apache-2.0
#pragma once
// The bodies of the own ops that draw.
#include "compiler/ops/op_def.h"

namespace ampc {

Result<std::string> BodyDropoutTrain(const BodyContext& c);
Result<std::string> BodyRandom(const BodyContext& c);

}  // namespace ampc
