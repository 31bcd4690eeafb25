// SPDX-License-Identifier: Apache-2.0
// The verifier: a sound module passes, and for every label there is damage that it finds under that
// label. Most damage can't be done through Graph, so GraphCorruptor reaches inside.
#include "compiler/ir/verify.h"

#include <functional>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"
#include "compiler/ops/op_def.h"

namespace ampc::ir {

struct GraphCorruptor {
  Graph& g;
  Value& value(std::string_view name) { return g.values_[static_cast<size_t>(g.FindValue(name))]; }
  Node& def(std::string_view name) { return g.nodes_[static_cast<size_t>(value(name).def)]; }
  NodeId& first() { return g.first_; }
  NodeId& last() { return g.last_; }
  int32_t& live() { return g.live_; }
  std::vector<OutputInfo>& outputs() { return g.outputs_; }
  std::vector<NextInfo>& nexts() { return g.nexts_; }
  void ForgetName(std::string_view name) { g.by_name_.Remove(name, g.NameOf()); }
  static std::unordered_map<std::string, StateId>& states(Module& m) { return m.state_index_; }
};

namespace {

// One of everything: read, updated and copied states, unscaling, a constant, random numbers,
// layouts, a left-out operand.
constexpr std::string_view kSound = R"(
state {
  weight trainable "w" : float[2,3] = {1, 2, 3, 4, 5, 6}
  moment "m" : float[2,3] = fill(0)
  low "low" : bfloat16[2,3] = derived(w)
  hyper "lr" : float = fill(0.1)
  scaler "scale" : float = fill(1024)
  accumulator "acc" : float[2,3] = fill(0)
  rng "seed" : int64[2] = fill(0)
  constant "two" : float = fill(2)
}
train (float[2,3] x, int64[2] label target limit 10, float[2] real valid, float[1,8,2,2] image)
  => ("out" = d, "grad:w" = u, image2)
  next (w = w2, low = low2, m = u, acc = acc2)
{
  ratio = Constant <value = float {0.5}> ()
  g = Mul (x, w)
  d, mask = ai.ampc.DropoutTrain <stream = 3> (g, ratio, seed)
  d2, mask2 = ai.ampc.DropoutTrain <stream = 4> (g, ratio, seed)
  acc2 = Add (acc, g)
  u, found, norm = ai.ampc.UnscaleCheck (scale, g)
  w2 = Sub (w, u)
  low2 = Cast <to = 16> (w2)
  small = Clip (g, "", two)
  image1 channels_last = Relu (image)
  image2 channels_last = Relu (image1)
  shape = Constant <value = int64[2] {1, 32}> ()
  flat = Reshape (image, shape)
}
)";

struct Damage {
  std::string_view label;  ///< of the invariant that it breaks
  std::string_view what;
  std::function<void(Module&, GraphCorruptor&)> make;
};

TypeId Type(Module& m, DType dtype, std::vector<int64_t> dims) {
  return m.types.Intern(dtype, dims);
}

StateVar& State(Module& m, std::string_view name) { return m.state(m.FindState(name)); }

// clang-format off
const std::vector<Damage>& AllDamage() {
  using M = Module&;
  using C = GraphCorruptor&;
  static const std::vector<Damage> all = {
      {"V1", "back link", [](M, C c) { c.def("d").prev = kNone; }},
      {"V1", "list ends early", [](M, C c) { c.def("d").next = kNone; }},
      {"V1", "list ends elsewhere", [](M, C c) { c.last() = c.value("d").def; }},
      {"V1", "list starts late", [](M, C c) { c.first() = c.def("ratio").next; }},
      {"V1", "circle", [](M, C c) { c.def("flat").next = c.value("g").def; }},
      {"V1", "erased node in the list", [](M, C c) { c.def("d").op = nullptr; }},
      {"V1", "wrong count", [](M, C c) { ++c.live(); }},
      {"V1", "link out of range", [](M, C c) { c.def("flat").next = 1000; }},
      {"V2", "two nodes define one value", [](M, C c) { c.def("d2").outputs[0] = c.g.FindValue("d"); }},
      {"V2", "node doesn't know its value", [](M, C c) { c.def("small").outputs.clear(); }},
      {"V2", "output out of range", [](M, C c) { c.def("small").outputs[0] = 1000; }},
      {"V2", "value doesn't know its node", [](M, C c) { c.value("small").def = kNone; }},
      {"V2", "wrong output number", [](M, C c) { c.value("mask").index = 0; }},
      {"V2", "feed number", [](M, C c) { c.value("x").index = 1; }},
      {"V2", "state number", [](M, C c) { c.value("seed").index = 99; }},
      {"V3", "read before it is defined", [](M, C c) { c.g.MoveBefore(c.value("g").def, kNone); }},
      {"V3", "operand out of range", [](M, C c) { c.def("g").inputs[0] = 1000; }},
      {"V3", "output of nothing", [](M, C c) { c.outputs()[0].value = 1000; }},
      {"V3", "next value of nothing", [](M, C c) { c.nexts()[0].value = -7; }},
      {"V4", "operand changed behind the use list", [](M, C c) { c.def("g").inputs[0] = c.g.FindValue("w"); }},
      {"V4", "use forgotten", [](M, C c) { c.value("x").uses.clear(); }},
      {"V4", "use too many", [](M, C c) { c.value("flat").uses.push_back({0, 0}); }},
      {"V4", "back index", [](M, C c) { c.def("d").use_index[0] = 7; }},
      {"V4", "back indices are missing", [](M, C c) { c.def("d").use_index.clear(); }},
      {"V4", "output's back index", [](M, C c) { c.outputs()[0].use_index = 5; }},
      {"V4", "next's back index", [](M, C c) { c.nexts()[0].use_index = -1; }},
      {"V5", "name changed", [](M, C c) { c.value("d").name = std::string("e"); }},
      {"V5", "name of another", [](M, C c) { c.value("d").name = std::string("g"); }},
      {"V5", "empty name", [](M, C c) { c.value("d").name = std::string(""); }},
      {"V5", "look-up forgotten", [](M, C c) { c.ForgetName("d"); }},
      {"V5", "two outputs of one name", [](M, C c) { c.outputs()[1].name = std::string("out"); }},
      {"V5", "two feeds of one name", [](M, C c) { c.g.mutable_feeds()[1].name = std::string("x"); }},
      {"V5", "state's name", [](M m, C) { State(m, "lr").name = std::string("rl"); }},
      {"V5", "state's look-up", [](M m, C c) { c.states(m).erase("lr"); }},
      {"V6", "input too many", [](M, C c) { c.g.SetInput(c.value("image1").def, 1, c.g.FindValue("image")); }},
      {"V6", "required input left out", [](M, C c) { c.g.SetInput(c.value("flat").def, 1, kNone); }},
      {"V6", "variadic input left out", [](M, C c) { c.g.SetInput(c.value("found").def, 1, kNone); }},
      {"V6", "required output left out", [](M, C c) { c.g.AddNode(*FindOp("", "Relu"), {}, std::vector<ValueId>{c.g.FindValue("g")}, std::vector<TypeId>{kNone}, 0); }},
      {"V6", "output of a list left out", [](M, C c) { c.g.AddNode(*FindOp("", "Split"), {}, std::vector<ValueId>{c.g.FindValue("g")}, std::vector<TypeId>{c.g.type_id(c.g.FindValue("g")), kNone}, 0); }},
      {"V6", "output too many", [](M m, C c) { c.g.AddOutputValue(c.value("flat").def, Type(m, DType::kFloat32, {}), "more"); }},
      {"V7", "type out of range", [](M, C c) { c.value("d").type = 1000; }},
      {"V7", "no type", [](M m, C c) { c.value("x").type = Type(m, DType::kNone, {}); }},
      {"V7", "negative dim", [](M m, C c) { c.value("x").type = Type(m, DType::kFloat32, {-1, 3}); }},
      {"V7", "value and state differ", [](M m, C c) { c.value("two").type = Type(m, DType::kFloat32, {1}); }},
      {"V7", "state without a type", [](M m, C) { State(m, "lr").type = kNone; }},
      {"V8", "element type that the schema forbids", [](M m, C c) { c.g.SetType(c.g.FindValue("x"), Type(m, DType::kBool, {2, 3})); }},
      {"V8", "dims that don't broadcast", [](M m, C c) { c.g.SetType(c.g.FindValue("x"), Type(m, DType::kFloat32, {2, 4})); }},
      {"V9", "stale dims", [](M m, C c) { c.g.SetType(c.g.FindValue("flat"), Type(m, DType::kFloat32, {32})); }},
      {"V9", "declared fp16, computed fp32", [](M m, C c) { c.g.SetType(c.g.FindValue("d2"), Type(m, DType::kFloat16, {2, 3})); }},
      {"V10", "next value of another dtype", [](M m, C c) { c.g.SetNext(m.FindState("m"), c.g.FindValue("low2")); }},
      {"V10", "two next values", [](M, C c) { c.nexts()[1].state = c.nexts()[0].state; }},
      {"V10", "next of no state", [](M, C c) { c.nexts()[0].state = 99; }},
      {"V11", "hyper", [](M m, C) { State(m, "m").role = Role::kHyper; }},
      {"V11", "constant", [](M m, C) { State(m, "m").role = Role::kConstant; }},
      {"V11", "derived", [](M m, C) { State(m, "low").role = Role::kMoment; }},
      {"V12", "stale low copy", [](M m, C c) { c.g.RemoveNexts([&](StateId s) { return s == m.FindState("low"); }); }},
      {"V12", "low copy without an update", [](M m, C c) { c.g.RemoveNexts([&](StateId s) { return s == m.FindState("w"); }); }},
      {"V13", "low copy with data of its own", [](M m, C) { State(m, "low").initial.kind = plan::Initial::Kind::kFill; }},
      {"V13", "derived from a later state", [](M m, C) { State(m, "low").initial.derived_from = m.FindState("lr"); }},
      {"V13", "derived from itself", [](M m, C) { State(m, "low").initial.derived_from = m.FindState("low"); }},
      {"V13", "derived from a derived one", [](M m, C) { State(m, "m").initial.kind = plan::Initial::Kind::kDerived; State(m, "m").initial.derived_from = 0; State(m, "low").initial.derived_from = 1; }},
      {"V13", "other dims", [](M m, C) { State(m, "low").type = Type(m, DType::kBFloat16, {3, 2}); }},
      {"V14", "too few bytes", [](M m, C) { State(m, "w").initial.bytes.length = 20; }},
      {"V14", "no bytes", [](M m, C) { State(m, "w").initial.bytes.source = nullptr; }},
      {"V14", "no stored type", [](M m, C) { State(m, "w").initial.stored = DType::kNone; }},
      {"V14", "trainable moment", [](M m, C) { State(m, "m").trainable = true; }},
      {"V15", "rank 2", [](M, C c) { c.g.SetLayout(c.g.FindValue("flat"), Layout::kChannelsLast); }},
      {"V15", "reader wants row-major", [](M, C c) { c.g.SetLayout(c.g.FindValue("image"), Layout::kChannelsLast); }},
      {"V15", "state", [](M m, C c) { m.AddState({.name = "s", .type = Type(m, DType::kFloat32, {1, 2, 3}), .role = Role::kConstant, .initial = {}, .source = "", .setting = ""}); c.g.SetLayout(c.g.State(m.FindState("s")), Layout::kChannelsLast); }},
      {"V15", "next value", [](M m, C c) { m.AddState({.name = "s", .type = Type(m, DType::kFloat32, {1, 8, 2, 2}), .role = Role::kCounter, .initial = {}, .source = "", .setting = ""}); c.g.SetNext(m.FindState("s"), c.g.FindValue("image2")); }},
      {"V16", "no stream", [](M, C c) { c.def("d").attrs.Erase("stream"); }},
      {"V16", "stream of another", [](M, C c) { c.def("d").attrs.Set("stream", int64_t{4}); }},
      {"V17", "unscaled twice", [](M, C c) { c.g.SetInput(c.value("found").def, 0, kNone); Graph& g = c.g; const ValueId in[] = {kNone, g.FindValue("u")}; const TypeId types[] = {g.type_id(in[1]), g.type_id(g.FindValue("found")), g.type_id(g.FindValue("norm"))}; g.AddNode(*FindOp(kOwnDomain, "UnscaleCheck"), {}, in, types, 0); }},
      {"V17", "moment of scaled gradients", [](M m, C c) { c.g.SetNext(m.FindState("m"), c.g.FindValue("g")); }},
      {"V17", "weight moved by scaled gradients", [](M, C c) { c.g.SetInput(c.value("w2").def, 1, c.g.FindValue("g")); }},
      {"V17", "accumulates unscaled gradients", [](M m, C c) { c.g.SetNext(m.FindState("acc"), c.g.FindValue("w2")); }},
      {"V17", "gradient output", [](M, C c) { c.g.SetOutput("grad:w", c.g.FindValue("g")); }},
      {"V18", "limit of floats", [](M, C c) { c.g.mutable_feeds()[0].limit = 3; }},
      {"V18", "negative limit", [](M, C c) { c.g.mutable_feeds()[1].limit = -3; }},
      {"V18", "from the end of nothing", [](M, C c) { FeedInfo& feed = c.g.mutable_feeds()[1]; feed.limit = 0; feed.from_end = true; }},
      {"V18", "mask of rank 2", [](M, C c) { c.g.mutable_feeds()[0].kind = plan::Feed::Kind::kValid; }},
  };
  return all;
}
// clang-format on

std::unique_ptr<Module> Sound() {
  auto module = ParseModule(kSound, "sound");
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  return std::move(*module);
}

TEST(Verify, AcceptsASoundModule) {
  const Status status = Verify(*Sound());
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Verify, AcceptsAGraphWithErasedNodes) {
  auto module = Sound();
  Graph& g = *module->train;
  g.Erase(g.value(g.FindValue("small")).def);
  g.Erase(g.value(g.FindValue("flat")).def);
  const Status status = Verify(*module);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Verify, FindsEveryDamageUnderItsLabel) {
  for (const Damage& damage : AllDamage()) {
    auto module = Sound();
    GraphCorruptor corruptor{*module->train};
    damage.make(*module, corruptor);
    const Status status = Verify(*module);
    ASSERT_FALSE(status.ok()) << damage.label << ": " << damage.what;
    EXPECT_EQ(status.error_class(), ErrorClass::kInternal);
    EXPECT_EQ(status.id(), "E7010");
    EXPECT_EQ(status.message().substr(0, damage.label.size() + 2),
              fmt::format("{}: ", damage.label))
        << damage.what << ": " << status.ToString();
  }
}

TEST(Verify, HasDamageForEveryLabel) {
  std::set<std::string_view> damaged, labels;
  for (const Damage& damage : AllDamage()) damaged.insert(damage.label);
  for (const Invariant& invariant : Invariants()) {
    EXPECT_TRUE(labels.insert(invariant.label).second) << invariant.label << " is there twice";
  }
  EXPECT_EQ(damaged, labels);
}

TEST(Verify, NamesGraphAndNode) {
  auto module = Sound();
  Graph& g = *module->train;
  g.SetLoc(g.value(g.FindValue("flat")).def, module->locs.Intern("/flatten"));
  g.SetType(g.FindValue("flat"), module->types.Intern(DType::kFloat32, std::vector<int64_t>{32}));
  EXPECT_EQ(Verify(*module).ToString(),
            "error[E7010]: node '/flatten' (Reshape-21): V9: graph 'train': output 0 ('flat') is "
            "float[32], inference gives "
            "float[1,32]");
}

}  // namespace
}  // namespace ampc::ir
