// SPDX-License-Identifier: Apache-2.0
// Replaces the global operators. In a file of its own: where GCC can inline them, it warns about
// free().

#include "test/unit/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> allocations{0};
}

void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {  // std::stable_sort
  ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace ampc {

int64_t CountAllocations() { return allocations; }

}  // namespace ampc
