// SPDX-License-Identifier: Apache-2.0
#pragma once
// "did you mean": the nearest of the names that would have been right.

#include <string>
#include <string_view>
#include <vector>

namespace ampc {

/// Levenshtein distance.
int EditDistance(std::string_view a, std::string_view b);
/// "; did you mean 'x'?" for the nearest of `names`, or "" when none is near.
std::string Suggest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace ampc
