// SPDX-License-Identifier: Apache-2.0
#pragma once
// Settings (flags and recipe) -> what passes and pass manager read.

#include "compiler/pass_manager.h"
#include "passes/options.h"
#include "runtime/base/status.h"
#include "runtime/config/settings.h"

namespace ampc {

Result<CompileOptions> CompileOptionsFrom(const Settings& settings);
PassRunOptions PassRunOptionsFrom(const Settings& settings);

}  // namespace ampc
