// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/recycle.h"

#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace ampc {
namespace {

TEST(RecycleTest, GivesNothingOutsideAScope) { EXPECT_EQ(TakeRecycled(32), nullptr); }

TEST(RecycleTest, KnowsItsOwnBlocks) {
  int other = 0;
  EXPECT_FALSE(GiveBackRecycled(&other));
  EXPECT_FALSE(GiveBackRecycled(nullptr));
}

TEST(RecycleTest, BlocksAreAlignedApartAndComeBack) {
  if (!kRecycles) GTEST_SKIP() << "sanitizers see every block";
  const RecyclingScope scope;
  std::vector<std::byte*> blocks;
  std::set<uintptr_t> starts;
  for (const size_t bytes : {size_t{1}, size_t{192}, size_t{193}, size_t{8192}, size_t{64}}) {
    auto* block = static_cast<std::byte*>(TakeRecycled(bytes));
    ASSERT_NE(block, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    EXPECT_TRUE(starts.insert(reinterpret_cast<uintptr_t>(block)).second);
    std::memset(block, static_cast<int>(blocks.size()), bytes);
    blocks.push_back(block);
  }
  EXPECT_EQ(RecycledInUse(), 5);
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i][0], static_cast<std::byte>(i)) << "another block wrote here";
    EXPECT_TRUE(GiveBackRecycled(blocks[i]));
  }
  EXPECT_EQ(RecycledInUse(), 0);
  EXPECT_EQ(TakeRecycled(8193), nullptr);
}

TEST(RecycleTest, RunsOutWithoutHarm) {
  if (!kRecycles) GTEST_SKIP() << "sanitizers see every block";
  const RecyclingScope scope;
  std::vector<void*> blocks;
  while (void* block = TakeRecycled(8000)) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 256u);
  EXPECT_NE(blocks.front(), blocks.back());
  for (void* block : blocks) EXPECT_TRUE(GiveBackRecycled(block));
}

TEST(RecycleTest, ThreadsNeverShareABlock) {
  if (!kRecycles) GTEST_SKIP() << "sanitizers see every block";
  const RecyclingScope scope;
  std::vector<std::thread> threads;
  std::vector<int> clashes(4);
  for (size_t t = 0; t < clashes.size(); ++t) {
    threads.emplace_back([t, &clashes] {
      for (int i = 0; i < 20000; ++i) {
        auto* a = static_cast<size_t*>(TakeRecycled(48));
        auto* b = static_cast<size_t*>(TakeRecycled(300));
        *a = t;
        *b = t;
        if (i % 64 == 0) std::this_thread::yield();
        clashes[t] += *a != t || *b != t;
        GiveBackRecycled(b);
        GiveBackRecycled(a);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(clashes, std::vector<int>(4));
  EXPECT_EQ(RecycledInUse(), 0);
}

}  // namespace
}  // namespace ampc
