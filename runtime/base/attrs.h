// SPDX-License-Identifier: Apache-2.0
#pragma once
// Named attributes of a node, which are also the parameters of a kernel call.
//
// Sorted by name, so that two equal sets compare, hash and print equal. A few entries at most.
//
// Copies share their entries until one of them changes: nodes are copied often and changed rarely.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/tensor.h"

namespace ampc {

using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                          std::vector<std::string>, std::shared_ptr<const HostTensor>>;

class Attrs {
 public:
  using Entry = std::pair<std::string, Attr>;

  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  void Set(std::string_view name, Attr value);
  void Erase(std::string_view name);
  /// nullptr when absent.
  const Attr* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Typed readers with a default; a present attribute of another type also gives the default
  // (the importer and the plan reader have checked types by then).
  int64_t Int(std::string_view name, int64_t fallback = 0) const;
  double Float(std::string_view name, double fallback = 0) const;
  std::string_view String(std::string_view name, std::string_view fallback = "") const;
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> fallback = {}) const;
  std::vector<double> Floats(std::string_view name, std::vector<double> fallback = {}) const;
  const HostTensor* Tensor(std::string_view name) const;

  std::span<const Entry> entries() const {
    return entries_ == nullptr ? std::span<const Entry>() : std::span<const Entry>(*entries_);
  }
  bool empty() const { return entries_ == nullptr || entries_->empty(); }
  /// Tensor attributes compare by content.
  bool operator==(const Attrs& other) const;
  size_t Hash() const;

 private:
  /// The entries, no other's: to be changed.
  std::vector<Entry>& Own();

  std::shared_ptr<std::vector<Entry>> entries_;  // null: none
};

}  // namespace ampc
