// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element types. The enumerators' values are those of ONNX's TensorProto.DataType, so no table maps
// them.

#include <cstdint>
#include <optional>
#include <string_view>

namespace ampc {

enum class DType : uint8_t {
  kNone = 0,  ///< an absent optional operand
  kFloat32 = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kBFloat16 = 16,
};

/// Bytes per element; 0 for kNone.
constexpr int64_t SizeOf(DType t) {
  switch (t) {
    case DType::kNone:
      return 0;
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kUInt32:
      return 4;
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool IsFloat(DType t) {
  return t == DType::kFloat32 || t == DType::kFloat16 || t == DType::kBFloat16 ||
         t == DType::kFloat64;
}
/// fp16 or bf16.
constexpr bool IsLow(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }
/// What floats of a type are summed in: double for double, else fp32.
constexpr DType AccOf(DType t) { return t == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }
constexpr bool IsInteger(DType t) { return t != DType::kNone && t != DType::kBool && !IsFloat(t); }

/// ONNX text names: "float", "float16", "bfloat16", "double", "int64", …
std::string_view Name(DType t);
/// Inverse of Name(); also accepts fp32, fp16, bf16, fp64.
std::optional<DType> ParseDType(std::string_view name);
/// True when `value` (an ONNX data type number) is one of the enumerators other than kNone.
bool IsKnownDType(int value);

}  // namespace ampc
