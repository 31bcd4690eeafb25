// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/recycle.h"

#include <atomic>
#include <bit>
#include <cstdint>

namespace ampc {
namespace {

constinit std::atomic<int> scopes = 0;

/// Slots of one size in static memory. The first free one is taken, so only as many pages are
/// touched as needed.
template <size_t kSlotBytes, size_t kSlots>
class Pool {
 public:
  void* Take(size_t bytes) noexcept {
    if (bytes > kSlotBytes) return nullptr;
    for (size_t word = 0; word < kWords; ++word) {
      uint64_t now = used_[word].load(std::memory_order_relaxed);
      while (now != ~uint64_t{0}) {
        const int bit = std::countr_one(now);
        if (used_[word].compare_exchange_weak(now, now | uint64_t{1} << bit,
                                              std::memory_order_acquire, std::memory_order_relaxed))
          return slots_ + (word * 64 + static_cast<size_t>(bit)) * kSlotBytes;
      }
    }
    return nullptr;
  }
  bool GiveBack(void* block) noexcept {
    // As numbers: pointers into different objects have no order.
    const uintptr_t at = reinterpret_cast<uintptr_t>(block) - reinterpret_cast<uintptr_t>(slots_);
    if (at >= sizeof slots_) return false;
    const size_t slot = at / kSlotBytes;
    used_[slot / 64].fetch_and(~(uint64_t{1} << slot % 64), std::memory_order_release);
    return true;
  }
  int InUse() const noexcept {
    int count = 0;
    for (const auto& word : used_) count += std::popcount(word.load(std::memory_order_relaxed));
    return count;
  }

 private:
  static constexpr size_t kWords = kSlots / 64;
  alignas(64) std::byte slots_[kSlots * kSlotBytes];
  std::atomic<uint64_t> used_[kWords];
};

// Zero-initialized by being static; nothing runs before main().
Pool<192, 4096> small_blocks;   // nodes of the map, contexts
Pool<8192, 256> larger_blocks;  // lists of matrices in a batch

}  // namespace

RecyclingScope::RecyclingScope() noexcept { scopes.fetch_add(1, std::memory_order_relaxed); }
RecyclingScope::~RecyclingScope() { scopes.fetch_sub(1, std::memory_order_relaxed); }

void* TakeRecycled(size_t bytes) noexcept {
  if (!kRecycles || scopes.load(std::memory_order_relaxed) == 0) return nullptr;
  if (void* block = small_blocks.Take(bytes)) return block;
  return larger_blocks.Take(bytes);
}

bool GiveBackRecycled(void* block) noexcept {
  return small_blocks.GiveBack(block) || larger_blocks.GiveBack(block);
}

int RecycledInUse() noexcept { return small_blocks.InUse() + larger_blocks.InUse(); }

}  // namespace ampc
