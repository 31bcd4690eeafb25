// SPDX-License-Identifier: Apache-2.0
#pragma once
// Interned tensor types and source locations: the two tables that all graphs of a module share.

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/name_index.h"
#include "runtime/base/tensor.h"

namespace ampc::ir {

using TypeId = int32_t;
using LocId = int32_t;
using ValueId = int32_t;
using NodeId = int32_t;
using StateId = int32_t;
inline constexpr int32_t kNone = -1;

/// dtype + dims. Equal types have equal ids, so comparing types is comparing integers.
struct TensorType {
  DType dtype = DType::kNone;
  Dims dims;

  int64_t elements() const { return NumElements(dims); }
  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t bytes() const { return elements() * SizeOf(dtype); }
  bool operator==(const TensorType&) const = default;
};

/// "float[16,784]", as ONNX text writes it.
std::string ToString(const TensorType& type);

class TypeTable {
 public:
  TypeId Intern(DType dtype, std::span<const int64_t> dims);
  TypeId Intern(const TensorType& t) { return Intern(t.dtype, t.dims); }
  /// The same dims with another dtype.
  TypeId WithDType(TypeId id, DType dtype) { return Intern(dtype, Get(id).dims); }
  const TensorType& Get(TypeId id) const { return types_[static_cast<size_t>(id)]; }
  /// Ids run from 0 to size() - 1.
  int32_t size() const { return static_cast<int32_t>(types_.size()); }

 private:
  std::deque<TensorType> types_;  // a deque: references stay valid
  std::unordered_multimap<size_t, TypeId> index_;
};

/// Where something comes from: the label of a source node ("/encoder/0/MatMul") or a phrase around
/// one
/// ("grad of /fc1/Gemm", "cast for /fc1/Gemm input 1").
class LocTable {
 public:
  LocTable() { Intern(""); }
  LocId Intern(std::string_view label);
  const std::string& Get(LocId id) const { return labels_[static_cast<size_t>(id)]; }

 private:
  std::deque<std::string> labels_;
  NameIndex index_;
};

}  // namespace ampc::ir
