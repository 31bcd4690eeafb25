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

Status Needs(const std::unique_ptr<ir::Graph>& graph, std::string_view name,
             std::initializer_list<std::string_view> outputs) {
  if (graph == nullptr)
    return UsageError("E0304", "graph '{}' is missing: a pass before this one did not run", name);
  for (std::string_view output : outputs) {
    if (graph->FindOutput(output) == ir::kNone) {
      return UsageError("E0304",
                        "output '{}' of graph '{}' is missing: a pass before this one did not run",
                        output, name);
    }
  }
  return {};
}

std::span<const PassInfo> AllPasses() { return kPasses; }

const PassInfo* FindPass(std::string_view name) {
  const auto* it = std::find_if(std::begin(kPasses), std::end(kPasses),
                                [name](const PassInfo& pass) { return pass.name == name; });
  return it == std::end(kPasses) ? nullptr : it;
}

}  // namespace ampc
