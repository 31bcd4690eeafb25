// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where tensor data of a model lies: in the model file, in an external file beside it, or in
// memory.
//
// Weight bytes are references that are read on demand. What may be read beside the model:
// runtime/base/external_data.h.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/onnx/proto_util.h"
#include "compiler/onnx/wire.h"

namespace ampc {

/// A tensor whose bytes may not be in memory.
struct TensorData {
  TensorForm form;
  ir::ByteRef bytes;
};

class ModelFiles {
 public:
  /// A model that is in memory only. External data is looked up in `folder`.
  explicit ModelFiles(std::string folder) : folder_(std::move(folder)) {}
  /// The model file, of which StripWeights() left out `regions`.
  static Result<ModelFiles> Open(const std::string& path, std::vector<FileRegion> regions);

  /// Checks the tensor and finds its bytes. Errors: E0104 (the tensor), E0105 (its external data).
  Result<TensorData> Find(const onnx::TensorProto& proto);

 private:
  Result<ir::ByteRef> FindExternal(const onnx::TensorProto& proto, const TensorForm& form);
  /// Data that StripWeights left out: `index` into the regions.
  Result<ir::ByteRef> FindRegion(const std::string& index, const TensorForm& form);
  Result<std::shared_ptr<const ir::ByteSource>> OpenExternal(const std::string& location);

  std::string folder_;
  std::shared_ptr<const ir::ByteSource> model_;
  std::vector<FileRegion> regions_;
  std::map<std::string, std::shared_ptr<const ir::ByteSource>> external_;  // by location
};

/// The tensor with its bytes in memory.
Result<HostTensor> ReadTensor(const TensorData& tensor);

/// What one pass over the values of a float tensor finds.
struct ValueScan {
  bool all_equal = true;  ///< every element has the bits of the first
  bool has_inf = false;   ///< +inf or -inf
  double max_finite = 0;  ///< largest finite magnitude
  uint64_t sum = 0;       ///< of the bits, modulo their width: equal tensors have equal sums

  /// Infinities or values that only masks have.
  bool is_mask() const { return has_inf || max_finite >= 1e30; }
};
/// Streams the bytes; memory does not grow with the tensor.
Result<ValueScan> ScanValues(const TensorData& tensor);
/// Whether two tensors of one type have the same bytes; streams them, too.
Result<bool> EqualBytes(const TensorData& a, const TensorData& b);

/// The bytes as a tensor of another float type (each value is rounded once). Integers stay as they
/// are.
HostTensor ConvertFloats(const HostTensor& tensor, DType to);

}  // namespace ampc
