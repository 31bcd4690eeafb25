// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/proto_util.h"

#include <cstring>
#include <memory>

#include <onnx/onnx_pb.h>

namespace ampc {
namespace {

using onnx::AttributeProto;
using onnx::TensorProto;

template <typename T, typename Field>
void Copy(const Field& field, std::span<std::byte> out) {
  auto* p = out.data();
  for (const auto& x : field) {
    const T value = static_cast<T>(x);
    std::memcpy(p, &value, sizeof(T));
    p += sizeof(T);
  }
}

// Entries of the typed field that holds this dtype.
int64_t TypedEntries(const TensorProto& p, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return p.float_data_size();
    case DType::kFloat64:
      return p.double_data_size();
    case DType::kInt64:
      return p.int64_data_size();
    case DType::kUInt32:
    case DType::kUInt64:
      return p.uint64_data_size();
    default:
      return p.int32_data_size();
  }
}

int64_t AllTypedEntries(const TensorProto& p) {
  return int64_t{p.float_data_size()} + p.double_data_size() + p.int64_data_size() +
         p.uint64_data_size() + p.int32_data_size() + p.string_data_size();
}

std::string NameOf(const TensorProto& p) { return p.name().empty() ? "(unnamed)" : p.name(); }

// A bool is 0 or 1 in memory, whatever the file says.
void NormalizeBools(DType dtype, std::span<std::byte> data) {
  if (dtype != DType::kBool) return;
  for (std::byte& b : data) b = b == std::byte{0} ? std::byte{0} : std::byte{1};
}

}  // namespace

std::string OnnxTypeName(int data_type) {
  if (TensorProto::DataType_IsValid(data_type)) {
    return TensorProto::DataType_Name(static_cast<TensorProto::DataType>(data_type));
  }
  return fmt::format("type {}", data_type);
}

Result<TensorForm> CheckTensor(const TensorProto& proto) {
  if (!IsKnownDType(proto.data_type())) {
    return Unsupported("E0104", "tensor '{}' has element type {}, which is not supported",
                       NameOf(proto), OnnxTypeName(proto.data_type()));
  }
  TensorForm form;
  form.dtype = static_cast<DType>(proto.data_type());
  form.dims.assign(proto.dims().begin(), proto.dims().end());
  const auto elements = CheckedNumElements(form.dims, SizeOf(form.dtype));
  if (!elements) {
    return BadInput("E0104", "tensor '{}' has impossible dims {}", NameOf(proto),
                    ToString(form.dims));
  }
  form.elements = *elements;
  if (proto.has_segment()) {
    return Unsupported("E0104", "tensor '{}' is stored in segments, which is not supported",
                       NameOf(proto));
  }
  if (proto.data_location() == TensorProto::EXTERNAL) {
    form.storage = TensorForm::Storage::kExternal;
    return form;
  }
  const auto raw = static_cast<int64_t>(proto.raw_data().size());
  const int64_t typed = TypedEntries(proto, form.dtype);
  if (raw > 0 && AllTypedEntries(proto) > 0) {
    return BadInput("E0104", "tensor '{}' has data twice: {} bytes of raw_data and {} typed values",
                    NameOf(proto), raw, AllTypedEntries(proto));
  }
  if (raw > 0 || AllTypedEntries(proto) == 0) {
    if (raw != form.bytes()) {
      return BadInput("E0104", "tensor '{}' ({}{}) needs {} bytes of data, but has {}",
                      NameOf(proto), Name(form.dtype), ToString(form.dims), form.bytes(), raw);
    }
    return form;
  }
  if (typed != form.elements || AllTypedEntries(proto) != typed) {
    return BadInput("E0104", "tensor '{}' ({}{}) needs {} values, but has {}", NameOf(proto),
                    Name(form.dtype), ToString(form.dims), form.elements, typed);
  }
  form.storage = TensorForm::Storage::kTyped;
  return form;
}

void DecodeTensor(const TensorProto& proto, const TensorForm& form, std::span<std::byte> out) {
  if (form.storage == TensorForm::Storage::kRaw) {
    if (!out.empty()) std::memcpy(out.data(), proto.raw_data().data(), out.size());
    NormalizeBools(form.dtype, out);
    return;
  }
  switch (form.dtype) {
    case DType::kFloat32:
      Copy<float>(proto.float_data(), out);
      break;
    case DType::kFloat64:
      Copy<double>(proto.double_data(), out);
      break;
    case DType::kInt64:
      Copy<int64_t>(proto.int64_data(), out);
      break;
    case DType::kUInt64:
      Copy<uint64_t>(proto.uint64_data(), out);
      break;
    case DType::kUInt32:
      Copy<uint32_t>(proto.uint64_data(), out);
      break;
    case DType::kInt32:
      Copy<int32_t>(proto.int32_data(), out);
      break;
    case DType::kInt16:
      Copy<int16_t>(proto.int32_data(), out);
      break;
    case DType::kInt8:
      Copy<int8_t>(proto.int32_data(), out);
      break;
    case DType::kUInt8:
      Copy<uint8_t>(proto.int32_data(), out);
      break;
    // The low 16 bits of each entry are the bit pattern.
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      Copy<uint16_t>(proto.int32_data(), out);
      break;
    case DType::kBool: {
      size_t i = 0;
      for (int32_t x : proto.int32_data()) out[i++] = std::byte{x != 0};
      break;
    }
    case DType::kNone:
      break;
  }
}

Result<HostTensor> TensorFromProto(const TensorProto& proto) {
  AMPC_ASSIGN(const TensorForm form, CheckTensor(proto));
  if (form.storage == TensorForm::Storage::kExternal) {
    return BadInput("E0104", "tensor '{}' has external data, which is not possible here",
                    NameOf(proto));
  }
  HostTensor t{form.dtype, form.dims, std::vector<std::byte>(static_cast<size_t>(form.bytes()))};
  DecodeTensor(proto, form, t.data);
  return t;
}

void TensorToProto(const HostTensor& tensor, TensorProto* proto) {
  proto->set_data_type(static_cast<int>(tensor.dtype));
  proto->mutable_dims()->Assign(tensor.dims.begin(), tensor.dims.end());
  proto->set_raw_data(tensor.data.data(), tensor.data.size());
}

Result<Attr> AttrFromProto(const AttributeProto& proto) {
  if (!proto.ref_attr_name().empty()) {
    return Unsupported("E0102",
                       "attribute '{}' refers to attribute '{}' of a function, but stands in none",
                       proto.name(), proto.ref_attr_name());
  }
  switch (proto.type()) {
    case AttributeProto::INT:
      return Attr(int64_t{proto.i()});
    case AttributeProto::FLOAT:
      return Attr(static_cast<double>(proto.f()));
    case AttributeProto::STRING:
      return Attr(proto.s());
    case AttributeProto::INTS:
      return Attr(std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
    case AttributeProto::FLOATS:
      return Attr(std::vector<double>(proto.floats().begin(), proto.floats().end()));
    case AttributeProto::STRINGS:
      return Attr(std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case AttributeProto::TENSOR: {
      AMPC_ASSIGN(HostTensor tensor, TensorFromProto(proto.t()));
      return Attr(std::make_shared<const HostTensor>(std::move(tensor)));
    }
    default:
      break;
  }
  return Unsupported("E0102", "attribute '{}' is of type {}, which is not supported", proto.name(),
                     AttributeProto::AttributeType_IsValid(proto.type())
                         ? AttributeProto::AttributeType_Name(proto.type())
                         : "?");
}

void AttrToProto(std::string_view name, const Attr& attr, AttributeProto* proto) {
  proto->set_name(std::string(name));
  if (const auto* i = std::get_if<int64_t>(&attr)) {
    proto->set_type(AttributeProto::INT);
    proto->set_i(*i);
  } else if (const auto* f = std::get_if<double>(&attr)) {
    proto->set_type(AttributeProto::FLOAT);
    proto->set_f(static_cast<float>(*f));
  } else if (const auto* s = std::get_if<std::string>(&attr)) {
    proto->set_type(AttributeProto::STRING);
    proto->set_s(*s);
  } else if (const auto* ints = std::get_if<std::vector<int64_t>>(&attr)) {
    proto->set_type(AttributeProto::INTS);
    proto->mutable_ints()->Assign(ints->begin(), ints->end());
  } else if (const auto* floats = std::get_if<std::vector<double>>(&attr)) {
    proto->set_type(AttributeProto::FLOATS);
    for (double x : *floats) proto->add_floats(static_cast<float>(x));
  } else if (const auto* strings = std::get_if<std::vector<std::string>>(&attr)) {
    proto->set_type(AttributeProto::STRINGS);
    for (const std::string& x : *strings) proto->add_strings(x);
  } else if (const auto* tensor = std::get_if<std::shared_ptr<const HostTensor>>(&attr)) {
    proto->set_type(AttributeProto::TENSOR);
    TensorToProto(**tensor, proto->mutable_t());
  }
}

}  // namespace ampc
