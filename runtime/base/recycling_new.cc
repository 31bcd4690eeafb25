// SPDX-License-Identifier: Apache-2.0
// Operator new and delete of an executable that runs steps: malloc, except for what recycle.h
// explains. The other forms (array, nothrow, sized) end in these two by the standard; over-aligned
// ones are left to the library, which never gets a slot for them.

#include <cstdlib>
#include <new>

#include "runtime/base/recycle.h"

void* operator new(size_t bytes) {
  if (void* slot = ampc::TakeRecycled(bytes)) return slot;
  for (;;) {
    if (void* block = std::malloc(bytes > 0 ? bytes : 1)) return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}
void operator delete(void* block) noexcept {
  if (!ampc::GiveBackRecycled(block)) std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }
