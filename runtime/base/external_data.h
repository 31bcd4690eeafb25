// SPDX-License-Identifier: Apache-2.0
#pragma once
// ONNX's external data: a tensor's bytes in a file beside the model (onnx.proto, TensorProto,
// external_data). One set of rules for whoever reads a model.
//
// A model must not make us read other places, or wait: the file is opened relative to the model's
// folder, component by component and without following links, and must be a regular file of one
// name. What is refused is never opened. Errors are E0105, and say what the tensor "has".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace ampc {

struct ExternalData {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;

  /// One entry of the tensor. Unknown keys, repeated ones, and numbers below 0 are errors.
  Status Set(std::string_view key, std::string_view value);
  /// That a tensor of so many bytes lies in the file.
  Status Check(int64_t bytes, const InputFile& file) const;

 private:
  std::vector<std::string> seen_;
};

/// `folder`: the model's; "" is the current one.
Result<InputFile> OpenExternalData(const std::string& folder, const std::string& location);

/// "tensor 'NAME' " before what it has or needs.
Status OfTensor(std::string_view name, const Status& error);

}  // namespace ampc
