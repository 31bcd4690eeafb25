// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one converter between our attributes and tensors and ONNX's protobuf messages.
//
// fp16, bf16, fp32, fp64, integers and bool decode to the same bytes from raw_data and from the
// typed fields; a length that disagrees with the dims is an error before anything is allocated.
// Data in external files is read by compiler/onnx/weights.h.

#include <span>
#include <string>
#include <string_view>

#include "runtime/base/attrs.h"
#include "runtime/base/status.h"
#include "runtime/base/tensor.h"

namespace onnx {
class AttributeProto;
class TensorProto;
}  // namespace onnx

namespace ampc {

/// What a TensorProto says about itself, checked against the data that it carries.
struct TensorForm {
  enum class Storage : uint8_t {
    kRaw,       ///< in raw_data, exactly elements * SizeOf(dtype) bytes
    kTyped,     ///< in the typed field of its dtype, exactly one entry per element
    kExternal,  ///< in another file; the length is checked by whoever opens it
  };
  DType dtype = DType::kNone;
  Dims dims;
  int64_t elements = 0;
  Storage storage = Storage::kRaw;

  int64_t bytes() const { return elements * SizeOf(dtype); }
};

/// Errors: E0104 (element type, dims, length of the data), naming the tensor.
Result<TensorForm> CheckTensor(const onnx::TensorProto& proto);

/// The tensor with its bytes. A tensor with external data is refused (E0104).
Result<HostTensor> TensorFromProto(const onnx::TensorProto& proto);
/// Bytes of a tensor that CheckTensor() has found to be kRaw or kTyped. `out` has form.bytes()
/// bytes.
void DecodeTensor(const onnx::TensorProto& proto, const TensorForm& form, std::span<std::byte> out);
/// Writes raw_data; leaves the name alone.
void TensorToProto(const HostTensor& tensor, onnx::TensorProto* proto);

/// INT, FLOAT, STRING, INTS, FLOATS, STRINGS, TENSOR. Graphs, sparse tensors, types and references
/// to a function's attributes are refused (E0102).
Result<Attr> AttrFromProto(const onnx::AttributeProto& proto);
/// `name` and the value. Floats are narrowed to ONNX's float.
void AttrToProto(std::string_view name, const Attr& attr, onnx::AttributeProto* proto);

/// Removes the elements of a repeated field for which `pred` holds; the others keep their order.
template <typename Field, typename Pred>
void EraseIf(Field& field, Pred pred) {
  int kept = 0;
  for (int i = 0; i < field.size(); ++i) {
    if (pred(field[i])) continue;
    if (i != kept) field.SwapElements(i, kept);
    ++kept;
  }
  field.DeleteSubrange(kept, field.size() - kept);
}

/// ONNX's name of a data type number: "FLOAT8E4M3FN"; "type 99" when it has none.
std::string OnnxTypeName(int data_type);

}  // namespace ampc
