// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fixed set of small slots that stands in for the allocator while a foreign library runs.
//
// A step allocates nothing, but oneDNN's execute call builds a hash map of its arguments and a few
// objects beside it (most below 150 bytes, made by operator new on the caller's and on OpenMP's
// threads, gone when it returns), and its interface offers no way around. Where a RecyclingScope
// exists anywhere in the process, operator new of an executable that links ampc_recycling_new
// (runtime/base/recycling_new.cc) takes such blocks from slots in static memory, so a step asks the
// system for nothing. Without that file the scope does nothing, and so in sanitizer builds, which
// should see every block.
//
// Global state is the nature of operator new; it has no constructor. All functions may be called
// from any thread: a slot is a bit, taken and given back by one atomic operation.

#include <cstddef>

namespace ampc {

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kRecycles = false;
#else
inline constexpr bool kRecycles = true;
#endif

/// While one exists, TakeRecycled hands out slots.
class RecyclingScope {
 public:
  RecyclingScope() noexcept;
  ~RecyclingScope();
  RecyclingScope(const RecyclingScope&) = delete;
  RecyclingScope& operator=(const RecyclingScope&) = delete;
};

/// A block at a multiple of 64 bytes, or nullptr: no scope, too large, or all slots in use.
void* TakeRecycled(size_t bytes) noexcept;
/// False when the block is none of TakeRecycled's.
bool GiveBackRecycled(void* block) noexcept;
/// Slots in use; for tests.
int RecycledInUse() noexcept;

}  // namespace ampc
