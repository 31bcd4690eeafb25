// SPDX-License-Identifier: Apache-2.0
// clean-casts: removes casts that change no value.
//
//   b = Cast <to: int = 11> (h)          h is float16; b its double
//   c = Cast <to: int = 1> (b)      ->   c = Cast <to: int = 1> (h)
//   d = Cast <to: int = 10> (c)          y = Relu (h)
//   y = Relu (d)
//
// A cast of a cast reads the first one's input when the first cast is exact (every value of its
// input type exists in its output type): rounding what was widened is rounding the value itself.
// What is then a cast to its own dtype goes away. So a widening followed by the narrowing back
// cancels, chains of widenings become one, and a narrowing that is widened again stays: it has
// rounded, whether the source or autocast wrote it. Test: test/passes/clean-casts.onnxtext
#include <algorithm>
#include <unordered_set>

#include "passes/passes.h"

namespace ampc {
namespace {

using ir::Graph;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// What a dtype can hold: magnitudes up to `digits` significant bits, from 2^low to below 2^high.
// The most negative integer has one significant bit and fits wherever the others do.
struct Range {
  int digits = 0, low = 0, high = 0;
  bool negative = false;
  bool real = false;  ///< has fractions, infinities, NaN
};

Range RangeOf(DType t) {
  switch (t) {
    case DType::kFloat64:
      return {53, -1074, 1024, true, true};
    case DType::kFloat32:
      return {24, -149, 128, true, true};
    case DType::kFloat16:
      return {11, -24, 16, true, true};
    case DType::kBFloat16:
      return {8, -133, 128, true, true};
    case DType::kInt64:
      return {63, 0, 63, true, false};
    case DType::kInt32:
      return {31, 0, 31, true, false};
    case DType::kInt16:
      return {15, 0, 15, true, false};
    case DType::kInt8:
      return {7, 0, 7, true, false};
    case DType::kUInt64:
      return {64, 0, 64, false, false};
    case DType::kUInt32:
      return {32, 0, 32, false, false};
    case DType::kUInt16:
      return {16, 0, 16, false, false};
    case DType::kUInt8:
      return {8, 0, 8, false, false};
    case DType::kBool:
      return {1, 0, 1, false, false};
    case DType::kNone:
      break;
  }
  return {};
}

// Every value of `from` is a value of `to`.
bool IsExact(DType from, DType to) {
  if (from == to) return true;
  const Range a = RangeOf(from), b = RangeOf(to);
  if (to == DType::kBool || (a.real && !b.real) || (a.negative && !b.negative)) return false;
  return a.digits <= b.digits && a.low >= b.low && a.high <= b.high;
}

// A wide integer that becomes a 16-bit float may be rounded to fp32 on the way: not the same as
// from a double.
bool RoundsOnce(DType from, DType to) { return IsFloat(from) || !IsLow(to) || IsExact(from, to); }

class Cleaner {
 public:
  Cleaner(Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        keep_(context.options.keep.begin(), context.options.keep.end()) {}

  void Run() {
    for (NodeId n : graph_.Order()) {
      if (graph_.node(n).op == nullptr || !graph_.node(n).op->traits.cast) continue;
      SkipExactCast(n);
      RemoveIdentity(n);
    }
  }

 private:
  DType DTypeOf(ValueId v) const { return graph_.type(v).dtype; }
  bool Kept(ValueId v) const { return !keep_.empty() && keep_.contains(graph_.value(v).name); }

  // Inner casts come first in the order and have been treated: one step is enough.
  void SkipExactCast(NodeId n) {
    const ValueId middle = graph_.node(n).inputs[0];
    const ir::Value& value = graph_.value(middle);
    if (value.kind != ir::ValueKind::kNode || !graph_.node(value.def).op->traits.cast) return;
    const NodeId inner = value.def;
    const ValueId source = graph_.node(inner).inputs[0];
    const DType from = DTypeOf(source), to = DTypeOf(graph_.node(n).outputs[0]);
    if (!IsExact(from, DTypeOf(middle)) || !RoundsOnce(from, to)) return;
    if (graph_.value(source).layout != value.layout) return;
    graph_.SetInput(n, 0, source);
    if (graph_.value(middle).uses.empty() && !Kept(middle)) Erase(inner);
  }

  void RemoveIdentity(NodeId n) {
    const ValueId x = graph_.node(n).inputs[0], y = graph_.node(n).outputs[0];
    if (DTypeOf(x) != DTypeOf(y) || graph_.value(x).layout != graph_.value(y).layout || Kept(y)) {
      return;
    }
    graph_.ReplaceUses(y, x);
    Erase(n);
  }

  void Erase(NodeId n) {
    context_.diagnostics.Explain(graph_.Label(n), "precision", "cast removed: it changes no value");
    graph_.Erase(n);
  }

  Graph& graph_;
  PassContext& context_;
  const std::unordered_set<std::string_view> keep_;
};

}  // namespace

Status CleanCasts(ir::Module& module, PassContext& context) {
  for (Graph* graph : module.graphs()) Cleaner(*graph, context).Run();
  return {};
}

}  // namespace ampc
