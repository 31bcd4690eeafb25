// SPDX-License-Identifier: Apache-2.0
#pragma once
// The initializers of an ONNX file, read from the wire without the ONNX library, for --init-from.
//
// Only what names and holds weights is looked at: names, types, dims and data, inside the file or
// beside it. Every length is checked against the file, so that a damaged one is an error.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/external_data.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace ampc {

struct OnnxInitializer {
  std::string name;
  DType dtype = DType::kNone;
  Dims dims;

  int64_t bytes() const { return TensorDesc{dtype, dims}.bytes(); }

 private:
  friend class OnnxWeights;
  enum class Place : uint8_t { kRaw, kFloats, kInt32s, kInt64s, kDoubles, kUint64s, kBeside };

  Place place = Place::kRaw;
  std::vector<std::string_view> data;  ///< fields of the file with the elements
  ExternalData beside;                 ///< kBeside
};

class OnnxWeights {
 public:
  static Result<OnnxWeights> Open(const std::string& path);
  /// Of a model in memory, which must outlive this object; it has no data beside it.
  static Result<OnnxWeights> Of(std::string_view model);

  /// In the order of the file.
  const std::vector<OnnxInitializer>& entries() const { return entries_; }
  /// Row-major, little-endian.
  Result<std::vector<std::byte>> Read(const OnnxInitializer& entry) const;

 private:
  Status ReadModel(std::string_view model);
  Status ReadGraph(std::string_view graph);
  Status ReadTensor(std::string_view tensor);
  Status ReadExternal(std::string_view entry, OnnxInitializer* out);

  MappedFile file_;
  std::vector<OnnxInitializer> entries_;
};

}  // namespace ampc
