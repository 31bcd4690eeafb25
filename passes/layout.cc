// SPDX-License-Identifier: Apache-2.0
// Channels-last chains where the kernels want them.
//
//   before   all values row-major
//   after    operands of convolutions are channels-last, and so is everything between them that
//   works in any layout;
//            ToLayout nodes stand where a chain begins and ends, one per (value, layout)
//
// One sweep in order: a node that wants channels-last operands gets them; a node that takes any
// layout follows its operands; every other node gets row-major ones. Feeds, states and the
// program's results stay row-major. Test: test/passes/layout.onnxtext
#include <map>

#include "passes/passes.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

class LayoutAssigner {
 public:
  explicit LayoutAssigner(ir::Graph& graph) : g_(graph) {}

  Status Run() {
    for (NodeId n : g_.Order()) {
      const ir::Node node = g_.node(n);
      if (node.op->traits.constant) continue;
      const bool last = WantsChannelsLast(node);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const ValueId v = node.inputs[i];
        if (v == kNone || node.op->traits.reads_any_layout) continue;
        const bool channel = HasChannels(node, i);
        const Layout to = last && channel ? Layout::kChannelsLast : Layout::kRowMajor;
        if (g_.value(v).layout == to) continue;
        AMPC_ASSIGN(const ValueId converted, Convert(v, to));
        g_.SetInput(n, static_cast<int32_t>(i), converted);
      }
      if (!last) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        const ValueId out = node.outputs[i];
        if (out != kNone && g_.type(out).rank() >= 3 && OutputHasChannels(node, i))
          g_.SetLayout(out, Layout::kChannelsLast);
      }
    }
    const std::vector<ir::NextInfo> nexts = g_.nexts();
    for (const ir::NextInfo& next : nexts) {
      if (g_.value(next.value).layout == Layout::kRowMajor) continue;
      AMPC_ASSIGN(const ValueId converted, Convert(next.value, Layout::kRowMajor));
      g_.SetNext(next.state, converted);
    }
    return {};
  }

 private:
  // Ops without a mask (elementwise): operands of the result's dims. A broadcast operand stays as
  // it is.
  bool HasChannels(const ir::Node& node, size_t i) const {
    const ir::TensorType& t = g_.type(node.inputs[i]);
    if (t.rank() < 3) return false;
    if (node.op->channel_slots != 0) return HasSlot(node.op->channel_slots, i);
    return t.dims == g_.type(FirstOutput(node)).dims;
  }
  static bool OutputHasChannels(const ir::Node& node, size_t i) {
    if (node.op->channel_slots == 0) return true;
    return HasSlot(node.op->channel_outputs, i);
  }
  static ValueId FirstOutput(const ir::Node& node) {
    for (ValueId v : node.outputs) {
      if (v != kNone) return v;
    }
    return kNone;
  }

  bool WantsChannelsLast(const ir::Node& node) const {
    const Traits& t = node.op->traits;
    if (!t.any_layout || g_.type(FirstOutput(node)).rank() < 3) return false;
    if (t.channels) return true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNone && HasChannels(node, i) &&
          g_.value(node.inputs[i]).layout == Layout::kChannelsLast)
        return true;
    }
    return false;
  }

  // The value in another layout: one copy per value, behind its definition (feeds, states: at the
  // head of the graph).
  Result<ValueId> Convert(ValueId v, Layout to) {
    if (auto it = converted_.find({v, to}); it != converted_.end()) return it->second;
    const ir::Value& value = g_.value(v);
    const NodeId place = value.kind == ir::ValueKind::kNode ? g_.node(value.def).next : g_.first();
    ir::Builder b(g_, value.kind == ir::ValueKind::kNode ? g_.node(value.def).loc : 0, place);
    const ValueId result =
        b.Own("ToLayout", {v}, {{"channels_last", int64_t{to == Layout::kChannelsLast}}});
    if (b.failed()) return b.TakeStatus();
    g_.SetLayout(result, to);
    converted_.emplace(std::pair(v, to), result);
    converted_.emplace(std::pair(result, g_.value(v).layout), v);  // and back
    return result;
  }

  ir::Graph& g_;
  std::map<std::pair<ValueId, Layout>, ValueId> converted_;
};

}  // namespace

Status AssignLayouts(ir::Module& module, PassContext&) {
  for (ir::Graph* g : module.graphs()) AMPC_TRY(LayoutAssigner(*g).Run());
  return {};
}

}  // namespace ampc
