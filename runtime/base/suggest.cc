// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ampc {

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string Suggest(std::string_view name, const std::vector<std::string_view>& names) {
  std::string_view best;
  int best_distance = std::numeric_limits<int>::max();
  if (name.size() > 200) return "";
  for (std::string_view candidate : names) {
    int distance = EditDistance(name, candidate);
    if (name.size() >= 2 && candidate.starts_with(name)) distance = std::min(distance, 1);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  int limit = std::max(name.size() < 2 ? 0 : 1, static_cast<int>(name.size()) / 3);
  return best_distance <= limit ? fmt::format("; did you mean '{}'?", best) : "";
}

}  // namespace ampc
