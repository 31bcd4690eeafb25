// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dtype.h"

#include <array>

namespace ampc {
namespace {

struct Row {
  DType type;
  std::string_view name, alias;
};

constexpr std::array<Row, 13> kRows{{
    {DType::kFloat32, "float", "fp32"},
    {DType::kFloat16, "float16", "fp16"},
    {DType::kBFloat16, "bfloat16", "bf16"},
    {DType::kFloat64, "double", "fp64"},
    {DType::kUInt8, "uint8", ""},
    {DType::kInt8, "int8", ""},
    {DType::kUInt16, "uint16", ""},
    {DType::kInt16, "int16", ""},
    {DType::kInt32, "int32", ""},
    {DType::kInt64, "int64", ""},
    {DType::kBool, "bool", ""},
    {DType::kUInt32, "uint32", ""},
    {DType::kUInt64, "uint64", ""},
}};

}  // namespace

std::string_view Name(DType t) {
  for (const Row& row : kRows) {
    if (row.type == t) return row.name;
  }
  return "none";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name || (!row.alias.empty() && row.alias == name)) return row.type;
  }
  return std::nullopt;
}

bool IsKnownDType(int value) {
  for (const Row& row : kRows) {
    if (static_cast<int>(row.type) == value) return true;
  }
  return false;
}

}  // namespace ampc
