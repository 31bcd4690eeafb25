// SPDX-License-Identifier: Apache-2.0
#pragma once
// Precision policies: the built-in ones by name, or a file (cli.md, "Policy file").

#include <cstdint>
#include <string>

#include "passes/options.h"
#include "runtime/base/status.h"

namespace ampc {

/// `name` is torch-cuda, torch-cpu, fp32, or the path of a YAML file. Errors: E0311 (file), E0312
/// (key or value).
Result<Policy> LoadPolicy(const std::string& name);

/// The policy with every default written out, as YAML that LoadPolicy reads back: rules, limits,
/// and as comments the class of every op under the base policy.
std::string PolicyText(const Policy& policy);
/// FNV-1a of PolicyText: stored in the plan.
uint64_t PolicyHash(const Policy& policy);

}  // namespace ampc
