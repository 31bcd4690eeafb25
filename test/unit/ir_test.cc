// SPDX-License-Identifier: Apache-2.0
// The graph: use lists, order, names, outputs and next values under edits; a long random walk of
// edits that the verifier checks after each.
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/ir/builder.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/verify.h"
#include "compiler/ops/op_def.h"

namespace ampc::ir {
namespace {

class IrTest : public testing::Test {
 protected:
  IrTest() {
    module.train = std::make_unique<Graph>(module, "train");
    float2 = module.types.Intern(DType::kFloat32, std::vector<int64_t>{2});
    x = g().AddFeed("x", float2, plan::Feed::Kind::kInput);
  }
  Graph& g() { return *module.train; }
  /// A node with one output of type float[2].
  NodeId Add(std::string_view op, std::vector<ValueId> inputs, NodeId before = kNone,
             std::string_view name = "") {
    const TypeId types[] = {float2};
    const std::string_view names[] = {name};
    return g().AddNode(*FindOp("", op), {}, inputs, types, 0, before, names);
  }
  ValueId Out(NodeId n) { return g().node(n).outputs[0]; }
  StateId AddState(std::string name, std::string source = "") {
    StateVar state;
    state.name = std::move(name);
    state.type = float2;
    state.role = Role::kMoment;
    state.source = std::move(source);
    return module.AddState(std::move(state));
  }
  void Check() {
    const Status status = Verify(module);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  Module module;
  TypeId float2 = kNone;
  ValueId x = kNone;
};

TEST_F(IrTest, EqualTypesHaveEqualIds) {
  EXPECT_EQ(module.types.Intern(DType::kFloat32, std::vector<int64_t>{2}), float2);
  EXPECT_NE(module.types.Intern(DType::kFloat32, std::vector<int64_t>{2, 1}), float2);
  EXPECT_NE(module.types.Intern(DType::kFloat16, std::vector<int64_t>{2}), float2);
  EXPECT_EQ(ToString(module.types.Get(float2)), "float[2]");
  EXPECT_EQ(ToString(TensorType{DType::kInt64, {}}), "int64");
}

TEST_F(IrTest, NodesStandWhereTheyAreInserted) {
  const NodeId a = Add("Relu", {x}), c = Add("Relu", {x});
  const NodeId b = Add("Relu", {x}, c), first = Add("Relu", {x}, a);
  EXPECT_EQ(g().Order(), (std::vector<NodeId>{first, a, b, c}));
  g().MoveBefore(c, a);
  EXPECT_EQ(g().Order(), (std::vector<NodeId>{first, c, a, b}));
  g().MoveBefore(first, kNone);
  g().MoveBefore(a, a);
  g().MoveBefore(c, a);  // is there already
  EXPECT_EQ(g().Order(), (std::vector<NodeId>{c, a, b, first}));
  g().Erase(a);
  g().Erase(first);
  g().Erase(c);
  EXPECT_EQ(g().Order(), std::vector<NodeId>{b});
  EXPECT_EQ(g().num_live_nodes(), 1);
  g().Erase(b);
  EXPECT_EQ(g().first(), kNone);
  EXPECT_EQ(g().last(), kNone);
  Check();
}

TEST_F(IrTest, NamesAreUniqueAndComeFree) {
  const NodeId a = Add("Relu", {x}, kNone, "y"), b = Add("Relu", {x}, kNone, "y");
  EXPECT_EQ(g().value(Out(a)).name, "y");
  EXPECT_EQ(g().value(Out(b)).name, "y.1");
  g().Rename(Out(b), "z");
  EXPECT_EQ(g().FindValue("y.1"), kNone);
  EXPECT_EQ(g().FindValue("z"), Out(b));
  g().Erase(a);
  EXPECT_EQ(g().FindValue("y"), kNone);
  g().Rename(Out(b), "y");
  EXPECT_EQ(g().value(Out(b)).name, "y");
  Check();
}

TEST_F(IrTest, ReplaceUsesMovesAllKindsOfUse) {
  const NodeId a = Add("Relu", {x}), b = Add("Add", {Out(a), Out(a)}), c = Add("Relu", {x}, b);
  const StateId s = AddState("s");
  g().SetOutput("y", Out(a));
  g().SetNext(s, Out(a));
  g().ReplaceUses(Out(a), Out(c));
  EXPECT_TRUE(g().value(Out(a)).uses.empty());
  EXPECT_EQ(g().value(Out(c)).uses.size(), 4u);
  EXPECT_EQ(g().node(b).inputs, (std::vector<ValueId>{Out(c), Out(c)}));
  EXPECT_EQ(g().FindOutput("y"), Out(c));
  EXPECT_EQ(g().FindNext(s), Out(c));
  g().ReplaceUses(Out(c), Out(c));
  g().Erase(a);
  Check();
}

TEST_F(IrTest, ReplaceUsesExceptLeavesOneNodeAlone) {
  const NodeId cast = Add("Relu", {x}), other = Add("Add", {x, x});
  g().SetOutput("x", x);
  g().ReplaceUsesExcept(x, Out(cast), cast);
  EXPECT_EQ(g().node(cast).inputs, std::vector<ValueId>{x});
  EXPECT_EQ(g().node(other).inputs, (std::vector<ValueId>{Out(cast), Out(cast)}));
  EXPECT_EQ(g().FindOutput("x"), Out(cast));
  Check();
}

TEST_F(IrTest, RemovalOfAUseCostsTheSameForManyUses) {
  // 20,000 uses: each is moved or removed once. What a use costs is counted by where the last one
  // ends up, not timed.
  constexpr int kUses = 20000;
  const NodeId a = Add("Relu", {x});
  std::vector<NodeId> readers;
  for (int i = 0; i < kUses; ++i) readers.push_back(Add("Relu", {Out(a)}));
  ASSERT_EQ(g().value(Out(a)).uses.size(), static_cast<size_t>(kUses));
  // The last use takes the hole; nothing else moves.
  std::vector<int32_t> before;
  for (NodeId n : readers) before.push_back(g().node(n).use_index[0]);
  g().SetInput(readers[5], 0, x);
  int moved = 0;
  for (int i = 0; i < kUses; ++i) {
    if (i != 5)
      moved +=
          g().node(readers[static_cast<size_t>(i)]).use_index[0] != before[static_cast<size_t>(i)];
  }
  EXPECT_EQ(moved, 1);
  Check();
  for (size_t i = 0; i < readers.size(); i += 2) g().Erase(readers[i]);
  g().ReplaceUses(Out(a), x);
  g().Erase(a);
  EXPECT_EQ(g().value(x).uses.size(), static_cast<size_t>(kUses / 2));
  Check();
}

TEST_F(IrTest, OutputsAndNextsAreReplacedByName) {
  const NodeId a = Add("Relu", {x}), b = Add("Relu", {x});
  g().SetOutput("y", Out(a));
  g().SetOutput("z", Out(a));
  g().SetOutput("y", Out(b));
  ASSERT_EQ(g().outputs().size(), 2u);
  EXPECT_EQ(g().outputs()[0].name, "y");
  EXPECT_EQ(g().FindOutput("y"), Out(b));
  EXPECT_EQ(g().value(Out(a)).uses.size(), 1u);
  const StateId s = AddState("s");
  g().SetNext(s, Out(a));
  g().SetNext(s, Out(b));
  g().SetNext(s, Out(b));
  EXPECT_EQ(g().nexts().size(), 1u);
  EXPECT_EQ(g().value(Out(b)).uses.size(), 2u);
  Check();
}

TEST_F(IrTest, RemoveOutputsKeepsTheOthersInOrder) {
  const NodeId a = Add("Relu", {x}), reader = Add("Relu", {Out(a)});
  const StateId s = AddState("s"), t = AddState("t");
  for (const char* name : {"a", "b", "c", "d"}) g().SetOutput(name, Out(a));
  g().SetNext(s, Out(a));
  g().SetNext(t, Out(a));
  g().RemoveOutputs([](const std::string& name) { return name == "a" || name == "c"; });
  ASSERT_EQ(g().outputs().size(), 2u);
  EXPECT_EQ(g().outputs()[0].name, "b");
  EXPECT_EQ(g().outputs()[1].name, "d");
  EXPECT_EQ(g().FindOutput("a"), kNone);
  Check();
  g().RemoveNexts([&](StateId id) { return id == s; });
  EXPECT_EQ(g().FindNext(s), kNone);
  EXPECT_EQ(g().FindNext(t), Out(a));
  EXPECT_EQ(g().node(reader).inputs[0], Out(a));
  Check();
}

TEST_F(IrTest, InputsGrowAndAreLeftOut) {
  const NodeId clip = Add("Clip", {x});
  const ValueId low =
      g().AddFeed("low", module.types.Intern(DType::kFloat32, std::vector<int64_t>{}),
                  plan::Feed::Kind::kInput);
  g().SetInput(clip, 2, low);
  EXPECT_EQ(g().node(clip).inputs, (std::vector<ValueId>{x, kNone, low}));
  Check();
  g().SetInput(clip, 1, low);
  g().SetInput(clip, 2, kNone);
  EXPECT_EQ(g().value(low).uses.size(), 1u);
  Check();
}

TEST_F(IrTest, RemoveStatesRenumbersTheRest) {
  const StateId a = AddState("a", "a"), b = AddState("b"), c = AddState("c");
  StateVar derived;
  derived.name = "d";
  derived.type = float2;
  derived.role = Role::kLowCopy;
  derived.initial = {.kind = plan::Initial::Kind::kDerived, .bytes = {}, .derived_from = c};
  module.AddState(std::move(derived));
  g().State(b);  // a value that nothing reads
  g().SetOutput("c", g().State(c));
  g().SetNext(c, x);
  g().SetNext(module.FindState("d"), x);
  g().SetOutput("a", g().State(a));
  module.RemoveStates({false, true, false, false});
  ASSERT_EQ(module.states.size(), 3u);
  EXPECT_EQ(module.FindState("a"), 0);
  EXPECT_EQ(module.FindState("b"), kNone);
  EXPECT_EQ(module.FindState("c"), 1);
  EXPECT_EQ(module.state(2).initial.derived_from, 1);
  EXPECT_EQ(g().FindState(1), g().FindOutput("c"));
  EXPECT_EQ(g().FindNext(1), x);
  EXPECT_EQ(g().FindNext(2), x);
  EXPECT_EQ(g().FindValue("b"), kNone);
  Check();
  EXPECT_EQ(AddState("b"), 3);  // the name is free again
  Check();
}

TEST_F(IrTest, BuilderKeepsTheFirstFailure) {
  Builder b(g(), module.locs.Intern("/here"));
  const ValueId y = b.Named("y").Add(x, x);
  EXPECT_EQ(g().value(y).name, "y");
  const ValueId three =
      b.Constant(HostTensor::Of<float>(DType::kFloat32, {3}, std::vector<float>{1, 2, 3}));
  EXPECT_EQ(b.Add(y, three), kNone);
  EXPECT_EQ(b.Mul(y, y), kNone);
  ASSERT_TRUE(b.failed());
  const Status status = b.TakeStatus();
  EXPECT_EQ(status.id(), "E0107");
  EXPECT_EQ(status.node(), "node '/here' (Add-14)");
  EXPECT_EQ(g().num_live_nodes(), 2);
  Check();
}

// Every kind of edit, at random places that keep the graph sorted; the verifier is the judge after
// each.
TEST_F(IrTest, StaysSoundUnderRandomEdits) {
  std::mt19937 random(3);
  const auto pick = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  for (int i = 0; i < 4; ++i) AddState(fmt::format("s{}", i));
  for (int step = 0; step < 3000; ++step) {
    const std::vector<NodeId> order = g().Order();
    const size_t at = order.empty() ? 0 : pick(order.size() + 1);
    // Values that stand before position `at`.
    std::vector<ValueId> ready{x, g().State(static_cast<StateId>(pick(4)))};
    for (size_t i = 0; i < at; ++i) ready.push_back(Out(order[i]));
    const auto value = [&] { return ready[pick(ready.size())]; };
    const NodeId before = at < order.size() ? order[at] : kNone;
    switch (pick(9)) {
      case 0:
      case 1:
      case 2:
        Add(pick(2) == 0 ? "Relu" : "Exp", {value()}, before, fmt::format("v{}", pick(50)));
        break;
      case 3:
        Add("Add", {value(), value()}, before);
        break;
      case 4:
        if (before != kNone) g().SetInput(before, 0, value());
        break;
      case 5: {  // merge the node at `at` into an earlier value
        if (before == kNone) break;
        g().ReplaceUses(Out(before), value());
        g().Erase(before);
        break;
      }
      case 6:
        if (before != kNone && g().value(Out(before)).uses.empty()) g().Erase(before);
        break;
      case 7:
        if (pick(3) == 0) {
          g().RemoveOutputs([&](const std::string&) { return pick(2) == 0; });
        } else {
          g().SetOutput(fmt::format("o{}", pick(5)), value());
        }
        break;
      default: {
        const auto state = static_cast<StateId>(pick(4));
        if (pick(3) == 0) {
          g().RemoveNexts([&](StateId s) { return s == state; });
        } else {
          g().SetNext(state, value());
        }
        if (before != kNone) g().ReplaceUsesExcept(Out(before), value(), before);
      }
    }
    const Status status = Verify(module);
    ASSERT_TRUE(status.ok()) << "step " << step << ": " << status.ToString();
  }
  EXPECT_GT(g().num_live_nodes(), 20);
}

}  // namespace
}  // namespace ampc::ir
