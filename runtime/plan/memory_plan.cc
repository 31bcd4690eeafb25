// SPDX-License-Identifier: Apache-2.0
//
// Offsets for the block buffers: first fit, largest buffers first. Real training steps reach the
// lower bound (the largest sum of live bytes at one call) that way; where they do not, other orders
// are tried, and orders in which a buffer at the top goes first; the best is kept.
//
// First fit wants the lowest offset at which [offset, offset + bytes) is free during all of [first,
// last]. A segment tree over the calls answers that. Each node keeps the union of the address
// ranges of the buffers that live over all of its calls (`whole`) and over any of them (`any`).
// What is taken during [first, last] is then the union of `any` of the O(log n) nodes that make up
// the lifetime and of `whole` of their ancestors. Neighbouring ranges merge, so that the sets stay
// small: a block is packed from the bottom.

#include "runtime/plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "runtime/base/inline_vector.h"

namespace ampc::plan {
namespace {

constexpr int64_t kAlignment = 64;

/// Rounds over one order, and buffers placed in all of them.
constexpr int64_t kMaxRounds = 16, kPlacements = 1 << 14;

int64_t AlignUp(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

/// Disjoint half-open ranges, sorted; touching ones are merged.
class RangeSet {
 public:
  /// End of the range that overlaps [begin, end), or `begin` when it is free.
  int64_t Blocked(int64_t begin, int64_t end) const {
    const auto it = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                     [](int64_t b, const Range& r) { return b < r.end; });
    return it != ranges_.end() && it->begin < end ? it->end : begin;
  }

  void Add(int64_t begin, int64_t end) {
    const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](const Range& r, int64_t b) { return r.end < b; });
    auto last = first;
    while (last != ranges_.end() && last->begin <= end) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
      ++last;
    }
    if (first == last) {
      const auto at = first - ranges_.begin();
      ranges_.push_back({begin, end});
      std::rotate(ranges_.begin() + at, ranges_.end() - 1, ranges_.end());
    } else {
      *first = {begin, end};
      const auto kept = std::copy(last, ranges_.end(), first + 1);
      ranges_.resize(static_cast<size_t>(kept - ranges_.begin()));
    }
  }

  void Clear() { ranges_.clear(); }

 private:
  struct Range {
    int64_t begin, end;
  };
  InlineVector<Range, 1> ranges_;  // mostly one: a block is packed from the bottom
};

/// What is taken of the address space, over time.
class Occupancy {
 public:
  explicit Occupancy(int64_t calls) {
    while (leaves_ < calls) leaves_ *= 2;
    nodes_.resize(static_cast<size_t>(2 * leaves_));
  }

  void Clear() {
    for (Node& n : nodes_) {
      n.any.Clear();
      n.whole.Clear();
    }
  }

  /// Lowest offset that is free for `bytes` during [first, last].
  int64_t FirstFit(int64_t first, int64_t last, int64_t bytes) const {
    std::array<const RangeSet*, 256> sets;
    size_t count = 0;
    ForEachNode(first, last,
                [&](int64_t node) { sets[count++] = &nodes_[static_cast<size_t>(node)].any; });
    ForEachAncestor(first, last, [&](int64_t node) {
      sets[count++] = &nodes_[static_cast<size_t>(node)].whole;
    });

    int64_t offset = 0;
    for (size_t free = 0, i = 0; free < count; i = (i + 1) % count) {
      const int64_t next = sets[i]->Blocked(offset, offset + bytes);
      free = next == offset ? free + 1 : 0;
      offset = next;
    }
    return offset;
  }

  void Place(int64_t first, int64_t last, int64_t begin, int64_t end) {
    ForEachNode(first, last, [&](int64_t node) {
      nodes_[static_cast<size_t>(node)].whole.Add(begin, end);
      nodes_[static_cast<size_t>(node)].any.Add(begin, end);
    });
    ForEachAncestor(first, last,
                    [&](int64_t node) { nodes_[static_cast<size_t>(node)].any.Add(begin, end); });
  }

 private:
  struct Node {
    RangeSet any, whole;
  };

  /// The largest nodes that together make up [first, last].
  template <typename F>
  void ForEachNode(int64_t first, int64_t last, F&& f) const {
    for (int64_t a = first + leaves_, b = last + leaves_ + 1; a < b; a /= 2, b /= 2) {
      if ((a & 1) != 0) f(a++);
      if ((b & 1) != 0) f(--b);
    }
  }

  /// The ancestors of those nodes, which are all ancestors of the two ends.
  template <typename F>
  void ForEachAncestor(int64_t first, int64_t last, F&& f) const {
    for (int64_t a = (first + leaves_) / 2, b = (last + leaves_) / 2; a > 0; a /= 2, b /= 2) {
      f(a);
      if (b != a) f(b);
    }
  }

  int64_t leaves_ = 1;
  std::vector<Node> nodes_;
};

void ComputeLifetimes(Program& program) {
  const auto calls = static_cast<int32_t>(program.calls.size());
  for (Buffer& b : program.buffers) {
    if (b.space == Space::kBlock) b = {.bytes = b.bytes, .first = calls, .last = -1};
  }
  const auto use = [&](int32_t tensor, int32_t at) {
    if (tensor < 0) return;
    Buffer& b =
        program.buffers[static_cast<size_t>(program.tensors[static_cast<size_t>(tensor)].buffer)];
    if (b.space != Space::kBlock) return;
    b.first = std::min(b.first, at);
    b.last = std::max(b.last, at);
  };
  for (int32_t c = 0; c < calls; ++c) {
    for (const int32_t t : program.calls[static_cast<size_t>(c)].inputs) use(t, c);
    for (const int32_t t : program.calls[static_cast<size_t>(c)].outputs) use(t, c);
  }
  for (const Output& o : program.outputs) use(o.tensor, calls);
}

/// Largest sum of `size(buffer)` over the buffers that live at one call.
template <typename Size>
int64_t LargestLiveSum(const Program& program, std::span<const int32_t> live, Size&& size) {
  std::vector<int64_t> change(program.calls.size() + 2);
  for (const int32_t i : live) {
    const Buffer& b = program.buffers[static_cast<size_t>(i)];
    change[static_cast<size_t>(b.first)] += size(b);
    change[static_cast<size_t>(b.last) + 1] -= size(b);
  }
  int64_t sum = 0, largest = 0;
  for (const int64_t c : change) largest = std::max(largest, sum += c);
  return largest;
}

/// Places the buffers in the given order; returns the block's size.
int64_t PlaceInOrder(const Program& program, std::span<const int32_t> order, Occupancy* taken,
                     std::vector<int64_t>* offsets) {
  taken->Clear();
  int64_t top = 0;
  for (const int32_t i : order) {
    const Buffer& b = program.buffers[static_cast<size_t>(i)];
    const int64_t bytes = AlignUp(b.bytes);
    const int64_t offset = taken->FirstFit(b.first, b.last, bytes);
    taken->Place(b.first, b.last, offset, offset + bytes);
    (*offsets)[static_cast<size_t>(i)] = offset;
    top = std::max(top, offset + bytes);
  }
  return top;
}

using Key = std::tuple<double, int64_t, int64_t>;

/// The orders, best bet first. Every key ends in first use; the sort is stable in the index.
constexpr std::array<Key (*)(const Buffer&), 4> kOrders = {
    [](const Buffer& b) { return Key(-static_cast<double>(b.bytes), b.first, 0); },
    [](const Buffer& b) {
      return Key(-static_cast<double>(b.bytes) * (b.last - b.first + 1), b.first, 0);
    },
    [](const Buffer& b) { return Key(b.first, -b.bytes, 0); },
    [](const Buffer& b) { return Key(b.first - b.last, -b.bytes, b.first); },
};

}  // namespace

void PlanMemory(Program& program) {
  ComputeLifetimes(program);
  std::vector<int32_t> live;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    if (b.space == Space::kBlock && b.bytes > 0 && b.last >= b.first)
      live.push_back(static_cast<int32_t>(i));
  }
  program.bound_bytes = LargestLiveSum(program, live, [](const Buffer& b) { return b.bytes; });
  const int64_t aligned =
      LargestLiveSum(program, live, [](const Buffer& b) { return AlignUp(b.bytes); });

  Occupancy taken(static_cast<int64_t>(program.calls.size()) + 1);
  std::vector<int64_t> best(program.buffers.size()), offsets(program.buffers.size());
  program.block_bytes = live.empty() ? 0 : -1;
  for (const auto& key : kOrders) {
    if (live.empty()) break;
    std::vector<int32_t> order = live;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return key(program.buffers[static_cast<size_t>(a)]) <
             key(program.buffers[static_cast<size_t>(b)]);
    });
    // A buffer that ends at the top is placed first in the next round, while that is cheap.
    const int64_t rounds = std::clamp<int64_t>(kPlacements / std::ssize(live), 1, kMaxRounds);
    for (int64_t round = 0; round < rounds; ++round) {
      const int64_t top = PlaceInOrder(program, order, &taken, &offsets);
      if (program.block_bytes < 0 || top < program.block_bytes) {
        program.block_bytes = top;
        best = offsets;
      }
      if (program.block_bytes <= aligned + aligned / 50) break;
      const auto highest = std::find_if(order.begin(), order.end(), [&](int32_t i) {
        const auto b = static_cast<size_t>(i);
        return offsets[b] + AlignUp(program.buffers[b].bytes) == top;
      });
      std::rotate(order.begin(), highest, highest + 1);
    }
    if (program.block_bytes <= aligned + aligned / 50) break;
  }
  for (const int32_t i : live)
    program.buffers[static_cast<size_t>(i)].offset = best[static_cast<size_t>(i)];
}

}  // namespace ampc::plan
