// SPDX-License-Identifier: Apache-2.0
#pragma once
// Takes the weight bytes out of a serialised ModelProto without parsing them.
//
// A scanner walks the wire format, copies the model and leaves out large tensor data, noting where
// it lies in the file. The copy is small whatever the weights are, and the weights stay references.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace ampc {

/// A range of the model file.
struct FileRegion {
  int64_t offset = 0, length = 0;
};

/// Key of the external_data entry that stands in the copy for bytes that were left out; its value
/// is an index into StrippedModel::regions. A file cannot smuggle one in: every other index is
/// refused.
inline constexpr std::string_view kRegionKey = "ampc.region";

struct StrippedModel {
  std::string
      model;  ///< ModelProto; a tensor without its bytes is EXTERNAL with one kRegionKey entry
  std::vector<FileRegion> regions;
};

/// Leaves out the data of tensors that has more than `threshold` bytes. Errors: E0101.
Result<StrippedModel> StripWeights(std::span<const std::byte> file, int64_t threshold);

}  // namespace ampc
