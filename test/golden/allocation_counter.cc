// SPDX-License-Identifier: Apache-2.0
// Preloaded into a process (LD_PRELOAD) it counts every call that gets memory, of all threads, and
// writes "name count" lines to the file named by AMPC_ALLOCATIONS_OUT when the process ends. The
// calls go on to the C library's own functions. operator new of the process ends in malloc.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace {

enum Call { kMalloc, kCalloc, kRealloc, kPosixMemalign, kAlignedAlloc, kMemalign, kMmap, kCalls };
constexpr const char* kNames[kCalls] = {"malloc",        "calloc",   "realloc", "posix_memalign",
                                        "aligned_alloc", "memalign", "mmap"};
constinit std::atomic<long> counts[kCalls] = {};

void Count(Call call) { counts[call].fetch_add(1, std::memory_order_relaxed); }

[[gnu::destructor]] void WriteCounts() {
  const char* path = std::getenv("AMPC_ALLOCATIONS_OUT");
  if (path == nullptr) return;
  long seen[kCalls];
  for (int i = 0; i < kCalls; ++i) seen[i] = counts[i];
  std::FILE* out = std::fopen(path, "w");
  if (out == nullptr) return;  // the check misses the file
  for (int i = 0; i < kCalls; ++i) std::fprintf(out, "%s %ld\n", kNames[i], seen[i]);
  std::fclose(out);
}

}  // namespace

extern "C" {

void* malloc(size_t bytes) {
  Count(kMalloc);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count(kCalloc);
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) {
  Count(kRealloc);
  return __libc_realloc(block, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  Count(kPosixMemalign);
  void* block = __libc_memalign(alignment, bytes);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  Count(kAlignedAlloc);
  return __libc_memalign(alignment, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  Count(kMemalign);
  return __libc_memalign(alignment, bytes);
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file, off_t offset) {
  Count(kMmap);
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
void* mmap64(void* address, size_t bytes, int protection, int flags, int file, off_t offset)
    __attribute__((alias("mmap")));

}  // extern "C"
