// SPDX-License-Identifier: Apache-2.0
// Looking at a graph from one node, and the nodes that a pattern of `recover` has found: see the
// header.
#include "passes/recover_match.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/glob.h"

namespace ampc {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

bool IsNumber(double value, double expected) {
  if (static_cast<double>(static_cast<float>(expected)) == expected) return value == expected;
  constexpr double kRoundings = 0x1p-22;  // up to four of 2^-24 each
  return std::abs(value - expected) <= kRoundings * std::abs(expected);
}

bool Match::Is(NodeId n, std::string_view op) const {
  return n >= 0 && node(n).op != nullptr && node(n).op->domain.empty() && node(n).op->name == op;
}

NodeId Match::Def(ValueId v, std::string_view op) const {
  if (v == kNone) return kNone;
  const ir::Value& value = graph_.value(v);
  return value.kind == ir::ValueKind::kNode && value.index == 0 && Is(value.def, op) ? value.def
                                                                                     : kNone;
}

NodeId Match::OnlyReader(ValueId v) const {
  const auto& uses = graph_.value(v).uses;
  return uses.size() == 1 && uses[0].node >= 0 ? uses[0].node : kNone;
}

NodeId Match::ReaderOfTwo(ValueId v, std::string_view op) const {
  const auto& uses = graph_.value(v).uses;
  if (uses.size() != 2) return kNone;
  return Is(uses[0].node, op) ? uses[0].node : Is(uses[1].node, op) ? uses[1].node : kNone;
}

std::optional<double> Match::Number(ValueId v) const {
  if (v == kNone) return std::nullopt;
  const HostTensor* t = Constant(v);
  if (t == nullptr || t->elements() != 1) return std::nullopt;
  return t->GetDouble(0);
}

bool Match::IsNumber(ValueId v, double expected) const {
  const std::optional<double> number = Number(v);
  return number.has_value() && ampc::IsNumber(*number, expected);
}

ValueId Match::Other(NodeId n, ValueId v) const {
  const auto& in = node(n).inputs;
  if (in.size() != 2 || in[0] == in[1]) return kNone;
  return in[0] == v ? in[1] : in[1] == v ? in[0] : kNone;
}

std::optional<Match::Scaled> Match::WithNumber(NodeId n, bool commutes) const {
  const auto& in = node(n).inputs;
  if (in.size() != 2) return std::nullopt;
  for (const size_t i : {size_t{1}, size_t{0}}) {
    if (i == 0 && !commutes) break;
    const std::optional<double> number = Number(in[i]);
    const ValueId rest = in[1 - i];
    if (number.has_value() && rest != kNone && dims(rest) == dims(out(n)))
      return Scaled{*number, rest};
  }
  return std::nullopt;
}

void Match::Take(NodeId n) {
  if (set_.insert(n).second) nodes_.push_back(n);
}

void Match::Rewind(size_t count) {
  while (nodes_.size() > count) {
    set_.erase(nodes_.back());
    nodes_.pop_back();
  }
}

bool Match::IsNamed(std::string_view value) const {
  const CompileOptions& o = context_.options;
  return std::any_of(o.keep.begin(), o.keep.end(),
                     [&](const std::string& glob) { return GlobMatches(glob, value); }) ||
         std::any_of(o.policy.rules.begin(), o.policy.rules.end(),
                     [&](const PolicyRule& r) { return r.from == value || r.to == value; });
}

bool Match::SplitByRule(const PolicyRule& rule) const {
  if (rule.node.empty() && rule.op.empty()) return false;
  const auto hits = std::count_if(nodes_.begin(), nodes_.end(), [&](NodeId n) {
    return (rule.node.empty() || GlobMatches(rule.node, graph_.Label(n))) &&
           (rule.op.empty() || GlobMatches(rule.op, node(n).op->name));
  });
  return hits != 0 && hits != static_cast<std::ptrdiff_t>(nodes_.size());
}

bool Match::Closed(NodeId root) const {
  for (const NodeId n : nodes_) {
    for (const ValueId v : node(n).outputs) {
      if (v == kNone || (n == root && v == out(root))) continue;
      const ir::Value& value = graph_.value(v);
      const bool inside = std::all_of(value.uses.begin(), value.uses.end(), [&](const ir::Use& u) {
        return u.node >= 0 && IsTaken(u.node);
      });
      if (!inside || IsNamed(value.name)) return false;
    }
  }
  const auto& rules = context_.options.policy.rules;
  return std::none_of(rules.begin(), rules.end(),
                      [&](const PolicyRule& rule) { return SplitByRule(rule); });
}

Status Match::Replace(NodeId root, ValueId by, ir::Builder& b) {
  if (b.failed()) return b.TakeStatus();
  replaced_ = true;
  NodeId whole = graph_.value(by).def;
  if (node(whole).op->traits.view) whole = graph_.value(node(whole).inputs[0]).def;
  context_.diagnostics.Explain(
      graph_.Label(root), "recover",
      fmt::format("{} from {} nodes", node(whole).op->name, nodes_.size()));
  TakePlace(graph_, root, by);
  // Readers before what they read: nothing outside reads what is left.
  std::vector<NodeId> rest = nodes_;
  std::erase(rest, root);
  for (size_t round = 0; round < nodes_.size() && !rest.empty(); ++round) {
    std::erase_if(rest, [&](NodeId n) {
      const auto& outs = node(n).outputs;
      const bool dead = std::all_of(outs.begin(), outs.end(), [&](ValueId v) {
        return v == kNone || graph_.value(v).uses.empty();
      });
      if (dead) graph_.Erase(n);
      return dead;
    });
  }
  return {};
}

HostTensor Filled(DType dtype, const Dims& dims, double value) {
  HostTensor t = HostTensor::Scalar(dtype, value);
  const std::vector<std::byte> one = std::move(t.data);
  t.dims = dims;
  t.data.resize(one.size() * static_cast<size_t>(NumElements(dims)));
  for (size_t at = 0; at < t.data.size(); at += one.size())
    std::memcpy(t.data.data() + at, one.data(), one.size());
  return t;
}

}  // namespace ampc
