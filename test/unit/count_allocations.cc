// SPDX-License-Identifier: Apache-2.0
// Replaces the global operators. In a file of its own: where GCC can inline them, it warns about
// free().

#include "test/unit/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include "runtime/base/recycle.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// As in the tools: what oneDNN makes and drops within an execute call is recycled.
void* operator new(size_t bytes) {
  if (void* slot = ampc::TakeRecycled(bytes)) return slot;
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {  // std::stable_sort
  if (void* slot = ampc::TakeRecycled(bytes)) return slot;
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* p) noexcept {
  if (!ampc::GiveBackRecycled(p)) std::free(p);
}
void operator delete(void* p, size_t) noexcept { operator delete(p); }

namespace ampc {

int64_t CountAllocations() { return allocations; }

}  // namespace ampc
