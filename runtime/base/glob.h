// SPDX-License-Identifier: Apache-2.0
#pragma once
// Globs over names of tensors and nodes: '*' stands for any characters (also '/' and '.'), '?' for
// one. Nothing else is special, since names such as "onnx::MatMul_1[0]" are common.

#include <string_view>

namespace ampc {

inline bool IsGlob(std::string_view text) {
  return text.find_first_of("*?") != std::string_view::npos;
}

inline bool GlobMatches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  size_t star = std::string_view::npos,
         resume = 0;  // the last '*', and where its match ends so far
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ampc
