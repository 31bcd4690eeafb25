// SPDX-License-Identifier: Apache-2.0
// The table of all passes, made from passes.def.
#include <algorithm>
#include <iterator>

#include "passes/passes.h"

namespace ampc {
namespace {

constexpr PassInfo kPasses[] = {
#define PASS(name, function, summary) {name, summary, function},
#include "passes/passes.def"
#undef PASS
};

}  // namespace

std::span<const PassInfo> AllPasses() { return kPasses; }

const PassInfo* FindPass(std::string_view name) {
  const auto* it = std::find_if(std::begin(kPasses), std::end(kPasses),
                                [name](const PassInfo& pass) { return pass.name == name; });
  return it == std::end(kPasses) ? nullptr : it;
}

}  // namespace ampc
