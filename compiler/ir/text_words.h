// SPDX-License-Identifier: Apache-2.0
#pragma once
// The words of module text that stand for enumerators: one table each, read by the printer and the
// parser.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "compiler/ir/graph.h"

namespace ampc::ir {

// clang-format off
inline constexpr std::pair<Role, std::string_view> kRoleWords[] = {
    {Role::kWeight, "weight"},      {Role::kLowCopy, "low"},           {Role::kMoment, "moment"},
    {Role::kStatistic, "statistic"}, {Role::kAccumulator, "accumulator"}, {Role::kScaler, "scaler"},
    {Role::kCounter, "counter"},    {Role::kRng, "rng"},               {Role::kHyper, "hyper"},
    {Role::kConstant, "constant"},
};
inline constexpr std::pair<plan::Feed::Kind, std::string_view> kFeedWords[] = {
    {plan::Feed::Kind::kTarget, "target"}, {plan::Feed::Kind::kValid, "valid"},
};
// clang-format on

/// By the index of the Attr variant.
inline constexpr std::string_view kAttrWords[] = {"int",    "float",   "string", "ints",
                                                  "floats", "strings", "tensor"};

inline std::string_view RoleWord(Role role) {
  return std::find_if(std::begin(kRoleWords), std::end(kRoleWords),
                      [role](const auto& row) { return row.first == role; })
      ->second;
}

inline std::optional<Role> ParseRole(std::string_view word) {
  for (const auto& [role, name] : kRoleWords) {
    if (name == word) return role;
  }
  return std::nullopt;
}

inline std::string_view FeedWord(plan::Feed::Kind kind) {
  for (const auto& [row, name] : kFeedWords) {
    if (row == kind) return name;
  }
  return "";
}

/// What `source` is when the text does not say: what the model brings is named as there, what
/// passes make has no source.
inline std::string_view DefaultSource(Role role, std::string_view name) {
  const bool from_model =
      role == Role::kWeight || role == Role::kStatistic || role == Role::kConstant;
  return from_model ? name : std::string_view();
}

inline bool IsIdentifier(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '.';
  });
}

}  // namespace ampc::ir
