// SPDX-License-Identifier: Apache-2.0
#pragma once
// A test that links count_allocations.cc can ask how often `operator new` was called so far.

#include <cstdint>

namespace ampc {

int64_t CountAllocations();

}  // namespace ampc
