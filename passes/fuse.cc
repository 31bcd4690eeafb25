// SPDX-License-Identifier: Apache-2.0
// Fewer, larger kernels with the same numbers.
//
//   epilogue   y = Conv(x); z = Relu(y)                 ->  z = Conv <post = "relu"> (x)        one
//   rounding: Relu rounds nothing widening   f = Cast <fp32> (low); Unscale(…, f)     -> Unscale(…,
//   low) group      t = Mul(a, b); y = Add(t, c)             ->  y = Map <expr = "fp16(x0 * x1) +
//   x2"> (a, b, c)
//
// A value disappears only when the op behind it is its single reader, no output or state needs it,
// and --keep does not name it. A group keeps the rounding of every op inside it; its members have
// equal dims and layout and compute in float. Test: test/passes/fuse.onnxtext
#include <algorithm>

#include "runtime/base/glob.h"
#include "passes/passes.h"

namespace ampc {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

constexpr size_t kMaxGroupInputs = 8;
constexpr size_t kMaxGroupText = 1500;
constexpr int32_t kMaxDistance = 8;  // nodes between producer and reader

class Fuser {
 public:
  Fuser(ir::Graph& graph, PassContext& context) : g_(graph), context_(context) {}

  Status Run() {
    for (NodeId n : g_.Order()) {
      if (g_.node(n).op == nullptr) continue;
      FuseEpilogue(n);
    }
    for (NodeId n : g_.Order()) DropWidening(n);
    const std::vector<NodeId> order = g_.Order();
    position_.assign(static_cast<size_t>(g_.num_nodes()), 0);
    for (size_t i = 0; i < order.size(); ++i)
      position_[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    for (NodeId n : order) {
      if (g_.node(n).op != nullptr) AMPC_TRY(GrowGroup(n, position_[static_cast<size_t>(n)]));
    }
    return {};
  }

 private:
  // The node's only reader is what follows it: its value may vanish.
  bool Private(ValueId v) const {
    const ir::Value& value = g_.value(v);
    if (value.kind != ir::ValueKind::kNode || value.uses.size() != 1 || value.uses[0].node < 0)
      return false;
    return std::none_of(context_.options.keep.begin(), context_.options.keep.end(),
                        [&](const std::string& glob) { return GlobMatches(glob, value.name); });
  }

  void FuseEpilogue(NodeId n) {
    const ir::Node& node = g_.node(n);
    if (node.op->post.empty() || node.inputs.size() != 1 || !Private(node.inputs[0])) return;
    const NodeId producer = g_.value(node.inputs[0]).def;
    const ir::Node& p = g_.node(producer);
    if (!p.op->traits.epilogue || p.attrs.Has("post") || g_.value(node.inputs[0]).index != 0)
      return;
    Attrs attrs = p.attrs;
    attrs.Set("post", std::string(node.op->post));
    g_.SetAttrs(producer, std::move(attrs));
    // The result takes the place, and the name, of the value that vanishes.
    const std::string name = g_.value(node.outputs[0]).name;
    g_.SetLayout(node.inputs[0], g_.value(node.outputs[0]).layout);
    g_.ReplaceUsesExcept(node.outputs[0], node.inputs[0], n);
    const ValueId kept = node.inputs[0];
    g_.Erase(n);
    g_.Rename(kept, name);
  }

  void DropWidening(NodeId n) {
    const ir::Node& node = g_.node(n);
    if (!node.op->traits.widens) return;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone || !Private(node.inputs[i])) continue;
      const NodeId cast = g_.value(node.inputs[i]).def;
      const ir::Node& c = g_.node(cast);
      if (!c.op->traits.cast || !IsLow(g_.type(c.inputs[0]).dtype) ||
          g_.type(node.inputs[i]).dtype != DType::kFloat32)
        continue;
      g_.SetInput(n, static_cast<int32_t>(i), c.inputs[0]);
      g_.Erase(cast);
    }
  }

  // ---- elementwise groups

  // True when the node has a program: it may join a group.
  static bool HasProgram(const ir::Node& node) {
    return node.op != nullptr && node.outputs.size() == 1 && node.outputs[0] != kNone &&
           (node.op->traits.elementwise || node.attrs.Has("expr"));
  }

  static size_t ProgramLength(const ir::Node& node) {
    return node.attrs.Has("expr") ? node.attrs.String("expr").size() : node.op->expr.size();
  }
  std::string Program(const ir::Node& node) const {
    const bool map = node.attrs.Has("expr");
    std::string text(map ? node.attrs.String("expr") : node.op->expr);
    // Parameters become numbers: a group has none of its own.
    for (size_t at = text.find('$'); at != std::string::npos; at = text.find('$', at)) {
      size_t end = at + 1;
      while (end < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
        ++end;
      const std::string name = text.substr(at + 1, end - at - 1);
      const double value = node.attrs.Float(name, static_cast<double>(node.attrs.Int(name)));
      text.replace(at, end - at, fmt::format("({:.17g})", value));
    }
    return text;
  }

  // Floats of at most fp32 (and bool): the group computes in float.
  bool ComputesInFloat(const ir::Node& node) const {
    bool any = false;
    for (ValueId v : node.inputs) {
      if (v == kNone) return false;
      const DType t = g_.type(v).dtype;
      if (t == DType::kFloat64 || IsInteger(t)) return false;
      any = any || IsFloat(t);
    }
    const DType out = g_.type(node.outputs[0]).dtype;
    return any && (out == DType::kFloat32 || IsLow(out));
  }

  static std::string_view Rounding(DType t) {
    return t == DType::kFloat16 ? "fp16" : t == DType::kBFloat16 ? "bf16" : "";
  }

  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  static bool IsAlpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
  static bool IsWord(char c) { return IsDigit(c) || IsAlpha(c) || c == '_'; }

  // Appends a program with its identifiers renamed: inputs by `input` (which appends the name of
  // input k), temporaries with a prefix; "y0" becomes `result`.
  template <typename InputName>
  static void AppendRenamed(std::string_view text, std::string_view prefix, std::string_view result,
                            const InputName& input, std::string& out) {
    if (text.find('=') == std::string::npos || text.find("y0") == std::string::npos) {
      out += result;
      out += " = ";
    }
    for (size_t i = 0; i < text.size();) {
      size_t j = i + 1;
      if (IsDigit(text[i])) {  // a number, with its exponent
        while (j < text.size() && (IsDigit(text[j]) || IsAlpha(text[j]) || text[j] == '.' ||
                                   ((text[j] == '-' || text[j] == '+') && text[j - 1] == 'e')))
          ++j;
        out += text.substr(i, j - i);
      } else if (!IsAlpha(text[i])) {  // what stands between words
        while (j < text.size() && !IsDigit(text[j]) && !IsAlpha(text[j])) ++j;
        out += text.substr(i, j - i);
      } else {
        while (j < text.size() && IsWord(text[j])) ++j;
        const std::string_view id = text.substr(i, j - i);
        const bool call = j < text.size() && text[j] == '(';
        if (id == "y0") {
          out += result;
        } else if (id.size() >= 2 && id[0] == 'x' && IsDigit(id[1])) {
          size_t k = 0;
          for (size_t d = 1; d < id.size() && IsDigit(id[d]); ++d)
            k = k * 10 + static_cast<size_t>(id[d] - '0');
          input(k);
        } else {
          if (!call && id != "inf" && id != "nan") out += prefix;
          out += id;
        }
      }
      i = j;
    }
  }

  bool SameForm(ValueId a, ValueId b) const {
    return g_.type(a).dims == g_.type(b).dims && g_.value(a).layout == g_.value(b).layout;
  }

  // Far apart, a producer's operands would live longer than its result: a forward value kept for
  // the backward pass.
  bool Near(NodeId producer, int32_t at) const {
    const auto i = static_cast<size_t>(producer);
    return i >= position_.size() ||
           at - position_[i] <= kMaxDistance;  // a group made just now is near
  }

  // The input of a group at `out` whose producer may join it, or the number of inputs.
  size_t FindProducer(const std::vector<ValueId>& inputs, ValueId out, size_t from, int32_t at,
                      size_t length) const {
    for (size_t i = from; i < inputs.size(); ++i) {
      if (!Private(inputs[i])) continue;
      const NodeId def = g_.value(inputs[i]).def;
      const ir::Node& producer = g_.node(def);
      if (!HasProgram(producer) || !Near(def, at) || !SameForm(inputs[i], out) ||
          !ComputesInFloat(producer))
        continue;
      if (inputs.size() + producer.inputs.size() - 1 > kMaxGroupInputs ||
          length + ProgramLength(producer) > kMaxGroupText)
        continue;
      return i;
    }
    return inputs.size();
  }

  // Pulls elementwise producers of `n`, which stands at place `at`, into it, as long as one fits.
  Status GrowGroup(NodeId n, int32_t at) {
    if (!HasProgram(g_.node(n)) || !ComputesInFloat(g_.node(n))) return {};
    std::vector<ValueId> inputs = g_.node(n).inputs;
    const ValueId out = g_.node(n).outputs[0];
    std::string text;
    levels_ = 0;
    for (size_t i = FindProducer(inputs, out, 0, at, ProgramLength(g_.node(n))); i < inputs.size();
         i = FindProducer(inputs, out, 0, at, text.size())) {
      if (text.empty()) text = Program(g_.node(n));
      const ir::Value& v = g_.value(inputs[i]);
      text = Join(text, Program(g_.node(v.def)), inputs, i, v);
    }
    return text.empty() ? Status() : Replace(n, text, inputs);
  }

  // text with input i replaced by its producer's program; `inputs` becomes the union.
  std::string Join(const std::string& text, const std::string& producer,
                   std::vector<ValueId>& inputs, size_t i, const ir::Value& v) {
    const std::vector<ValueId> theirs = g_.node(v.def).inputs;
    std::vector<ValueId> merged;
    std::string joined;
    joined.reserve(text.size() + 2 * producer.size() + 32);
    const auto place = [&](ValueId value) {
      auto it = std::find(merged.begin(), merged.end(), value);
      if (it == merged.end()) it = merged.insert(merged.end(), value);
      joined += 'x';
      joined += std::to_string(it - merged.begin());
    };
    const std::string level = fmt::format("g{}_", levels_++);
    const std::string raw = level + "r";
    AppendRenamed(
        producer, level, raw, [&](size_t k) { place(theirs[k]); }, joined);
    const std::string_view rounding = Rounding(g_.module().types.Get(v.type).dtype);
    const std::string value = rounding.empty() ? raw : level + "v";
    if (!rounding.empty()) joined += fmt::format("; {} = {}({})", value, rounding, raw);
    joined += "; ";
    const auto ours = [&](size_t k) {
      if (k == i) {
        joined += value;
      } else {
        place(inputs[k]);
      }
    };
    AppendRenamed(text, "", "y0", ours, joined);
    inputs = std::move(merged);
    return joined;
  }

  Status Replace(NodeId n, const std::string& text, const std::vector<ValueId>& inputs) {
    const ir::Node node = g_.node(n);
    ir::Builder b(g_, node.loc, n);
    const DType to = g_.type(node.outputs[0]).dtype;
    const ValueId fused =
        b.Op(kOwnDomain, "Map", inputs,
             {{"expr", text}, {"to", std::vector<int64_t>{static_cast<int64_t>(to)}}});
    if (b.failed()) return b.TakeStatus();
    const std::string name = g_.value(node.outputs[0]).name;
    g_.SetLayout(fused, g_.value(node.outputs[0]).layout);
    g_.ReplaceUses(node.outputs[0], fused);
    EraseChain(n);
    g_.Rename(fused, name);
    return {};
  }

  // Erases a node and the producers that nothing reads any more.
  void EraseChain(NodeId n) {
    const std::vector<ValueId> inputs = g_.node(n).inputs;
    g_.Erase(n);
    for (ValueId v : inputs) {
      if (v == kNone) continue;
      const ir::Value& value = g_.value(v);
      if (value.kind == ir::ValueKind::kNode && value.def != kNone && value.uses.empty() &&
          HasProgram(g_.node(value.def)))
        EraseChain(value.def);
    }
  }

  ir::Graph& g_;
  PassContext& context_;
  std::vector<int32_t> position_;  // of the nodes that were there at the start
  int levels_ = 0;                 // joins of the group at hand: they name its temporaries
};

}  // namespace

Status FuseGroups(ir::Module& module, PassContext& context) {
  for (ir::Graph* g : module.graphs()) AMPC_TRY(Fuser(*g, context).Run());
  return {};
}

}  // namespace ampc
