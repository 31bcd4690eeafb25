// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/type.h"

#include <algorithm>

#include <fmt/format.h>

namespace ampc::ir {

std::string ToString(const TensorType& type) {
  if (type.dims.empty()) return std::string(Name(type.dtype));
  return fmt::format("{}{}", Name(type.dtype), ampc::ToString(type.dims));
}

TypeId TypeTable::Intern(DType dtype, std::span<const int64_t> dims) {
  size_t h = static_cast<size_t>(dtype);
  for (int64_t d : dims) h = (h ^ static_cast<size_t>(d)) * 0x9E3779B97F4A7C15ull + (h >> 31);
  auto [begin, end] = index_.equal_range(h);
  for (auto it = begin; it != end; ++it) {
    const TensorType& t = Get(it->second);
    if (t.dtype == dtype && std::equal(t.dims.begin(), t.dims.end(), dims.begin(), dims.end()))
      return it->second;
  }
  const auto id = static_cast<TypeId>(types_.size());
  types_.push_back({dtype, Dims(dims.begin(), dims.end())});
  index_.emplace(h, id);
  return id;
}

LocId LocTable::Intern(std::string_view label) {
  const auto id = static_cast<LocId>(labels_.size());
  const LocId known = index_.FindOrAdd(
      label, id, [this](LocId known_id) { return std::string_view(Get(known_id)); });
  if (known != NameIndex::kAbsent) return known;
  labels_.emplace_back(label);
  return id;
}

}  // namespace ampc::ir
