// SPDX-License-Identifier: Apache-2.0
// A feed whose integers index an axis gets the axis as its range, so that a token outside of the
// vocabulary is found where the data is read, with its place in the file, and made-up data fits.
//
//   before   (int64[2,8] ids)                     e = Gather (table [65,16], ids)
//   after    (int64[2,8] ids limit 65 from_end)   e = Gather (table [65,16], ids)
//
// Which operand indexes stands in the op's row. Casts between integers and views on the way are
// looked through; a Slice is not: the rest of the feed may mean something else. A range that the
// loss gave (class labels) only gets narrower. Test: test/passes/bound-feeds.onnxtext
#include "passes/passes.h"

namespace ampc {
namespace {

using ir::ValueId;

// The value whose elements `v` has, all of them, maybe widened or narrowed.
ValueId Origin(const ir::Graph& g, ValueId v) {
  while (g.value(v).kind == ir::ValueKind::kNode) {
    const ir::Node& node = g.node(g.value(v).def);
    const Traits& t = node.op->traits;
    if (!t.cast && !t.view) break;
    if (!IsInteger(g.type(node.inputs[0]).dtype)) break;
    v = node.inputs[0];
  }
  return v;
}

void Narrow(ir::FeedInfo& feed, int64_t length) {
  if (feed.limit == 0) feed.from_end = true;
  if (feed.limit == 0 || length < feed.limit) feed.limit = length;
}

void BoundFeedsOf(ir::Graph& g) {
  std::vector<ir::FeedInfo*> feed_of(static_cast<size_t>(g.num_values()), nullptr);
  for (ir::FeedInfo& feed : g.mutable_feeds()) {
    if (IsInteger(g.type(feed.value).dtype)) feed_of[static_cast<size_t>(feed.value)] = &feed;
  }
  for (const ir::NodeId n : g.Order()) {
    const ir::Node& node = g.node(n);
    const auto slot = static_cast<size_t>(node.op->index_slot);
    if (slot == 0) continue;
    ir::FeedInfo* feed = feed_of[static_cast<size_t>(Origin(g, node.inputs[slot]))];
    if (feed == nullptr) continue;
    const Dims& dims = g.type(node.inputs[0]).dims;
    const int64_t length =
        dims[static_cast<size_t>(NormalAxis(node.attrs.Int("axis"), dims.size()))];
    if (length > 0) Narrow(*feed, length);
  }
}

}  // namespace

Status BoundFeeds(ir::Module& module, PassContext&) {
  for (ir::Graph* graph : module.graphs()) BoundFeedsOf(*graph);
  return {};
}

}  // namespace ampc
