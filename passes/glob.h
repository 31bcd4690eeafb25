// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shell-like patterns on names: * any run of characters, ? one character. Everything else is
// literal, dots and slashes too.

#include <string_view>

namespace ampc {

/// Linear in name × stars at worst; no recursion.
inline bool MatchesGlob(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == name[n] && pattern[p] != '*'))) {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ampc
