// SPDX-License-Identifier: Apache-2.0
#pragma once
// --init-from: initial weights by the names of the source model's initializers.

#include <string>
#include <vector>

#include "runtime/executor.h"

namespace ampc {

/// Puts the tensors of a safetensors file, or the initializers of an ONNX file (.onnx), into the
/// states that hold the initializers of their names; float types are converted. An initializer that
/// was compiled in has to be the same there. `strict`: every initializer with a state must be in
/// the file, and every tensor of the file must be one of the model. Otherwise what is missing or
/// unknown on either side goes to `notes`. A tensor of another shape or of a type that is no float
/// where a float is wanted is an error either way. All mismatches are listed; nothing is written
/// then.
Status InitWeights(const plan::Plan& plan, Executor& executor, const std::string& path, bool strict,
                   std::vector<std::string>* notes);

}  // namespace ampc
