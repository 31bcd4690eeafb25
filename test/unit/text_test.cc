// SPDX-License-Identifier: Apache-2.0
// Module text: what is printed parses back equal, hand-written forms are understood, every kind of
// error is found with its place, and no damaged text does worse than an error.
#include "compiler/ir/text.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/ir/text_data.h"
#include "compiler/ops/op_def.h"

namespace ampc::ir {
namespace {

std::unique_ptr<Module> Parse(std::string_view text, TextCheck check = TextCheck::kVerify) {
  auto module = ParseModule(text, "t", check);
  EXPECT_TRUE(module.ok()) << module.status().ToString() << "\n" << text;
  return module.ok() ? std::move(*module) : std::make_unique<Module>();
}

std::string Print(const Module& module) {
  auto text = PrintModule(module);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return text.ok() ? *text : "";
}

// Prints, parses, prints: the two texts are one. Returns it.
std::string RoundTrip(const Module& module, TextCheck check = TextCheck::kVerify) {
  const std::string once = Print(module);
  EXPECT_EQ(Print(*Parse(once, check)), once);
  return once;
}

std::string ErrorOf(std::string_view text) {
  auto module = ParseModule(text, "t");
  return module.ok() ? "parsed" : module.status().ToString();
}

TEST(Text, KeepsTheWholeForm) {
  // In the printer's own form, so that parsing and printing give the same bytes.
  const std::string text = R"(state {
  weight trainable "fc.weight" : float[2,3] = {0.1, -0, nan, inf, -inf, 1e-45}
  weight trainable "half" : float[2] = float16 {1, 65504}
  low "fc.low" : bfloat16[2,3] = derived("fc.weight")
  moment "fc.m" : float[2,3] = fill(0)
  statistic "bn.mean" : float[2] = fill(0.5) source "/bn/mean"
  hyper setting "lr" "lr" : double = fill(0.1)
  hyper "total" : double = auto
  counter "applied" : int64 = fill(0)
  rng "seed" : int64[2] = {0, -9223372036854775808}
  constant "empty" : float[0,3] = {} source ""
  scaler "scale" : float = fill(65536)
  accumulator "acc" : float[2,3] = fill(-0)
}
train (float[4,2] "x", int64[4] "label" target limit 10 ignore -100, int64[4] "id" limit 5 from_end, float[4] "mask" valid)
  => ("y", "grad:fc.weight" = "w")
  next ("fc.m" = "w")
{
  ["/fc/MatMul"] "y" = MatMul ("x", "fc.weight")  # float[4,3]
  ["scale of \"it\""] "w" = Add ("fc.weight", "acc")  # float[2,3]
}
apply "step" ()
{
}
eval (float[4,2] "x" as "image")
{
  "out", "" = Dropout ("image", "", "")  # float[4,2], -
}
)";
  EXPECT_EQ(Print(*Parse(text)), text);
}

TEST(Text, KeepsTheMeaning) {
  const auto module = Parse(R"(
    state {
      weight trainable w : float[2] = double {0.1, 2}
      weight v : float[2] = fill(3) source ""
      hyper lr : double = auto
    }
    train (int64[4] "label" target limit 10 ignore -100) { })");
  ASSERT_EQ(module->states.size(), 3u);
  const StateVar& w = module->state(0);
  EXPECT_TRUE(w.trainable);
  EXPECT_EQ(w.source, "w");
  EXPECT_EQ(w.initial.stored, DType::kFloat64);
  double values[2] = {};
  ASSERT_TRUE(w.initial.bytes.source
                  ->Read(w.initial.bytes.offset, std::as_writable_bytes(std::span(values)))
                  .ok());
  EXPECT_EQ(values[0], 0.1);
  EXPECT_EQ(module->state(1).source, "");
  EXPECT_EQ(module->state(2).initial.kind, plan::Initial::Kind::kAuto);
  EXPECT_TRUE(std::isnan(module->state(2).initial.fill));
  const FeedInfo& feed = module->train->feeds()[0];
  EXPECT_EQ(feed.kind, plan::Feed::Kind::kTarget);
  EXPECT_EQ(feed.limit, 10);
  EXPECT_TRUE(feed.has_ignore);
  EXPECT_EQ(feed.ignore, -100);
}

TEST(Text, AcceptsHandWrittenForms) {
  const auto module = Parse(R"(
    # names without quotes, types before outputs, attributes after the operands and without types
    state { weight fc.weight : float[3,2] = fill(1) }
    train (float[4,2] x, float target) => (float[4,3] y, target, float = h) {
      float[4,3] y = Gemm (x, fc.weight) <transB = 1, alpha = 0.5>
      [some.label] h, bare = Split <num_outputs: int = 2> (y)
      c = Constant <value = float[2] {1, 2}> ()
      s = Constant <value: tensor = int64 {-7}> ()
      r = ReduceSum <keepdims = 0> (y)
      q = ai.ampc.Map <expr = "x0 * x1", to = [1]> (y, y)
    })");
  const Graph& g = *module->train;
  EXPECT_EQ(g.FindOutput("float"), g.FindValue("h"));
  EXPECT_EQ(g.num_live_nodes(), 6);
  const Node& gemm = g.node(g.first());
  EXPECT_EQ(gemm.attrs.Int("transB"), 1);
  EXPECT_EQ(gemm.attrs.Float("alpha"), 0.5);
  EXPECT_EQ(module->locs.Get(g.node(gemm.next).loc), "some.label");
  EXPECT_EQ(g.ConstantOf(g.FindValue("s"))->GetInt(0), -7);
  RoundTrip(*module);
}

TEST(Text, KeepsEveryAttributeType) {
  auto module = Parse("train (float[2] x) { y = Relu (x) }");
  Graph& g = *module->train;
  const double values[] = {
      0.1,      -0.0,      1e300, std::numeric_limits<double>::denorm_min(),
      INFINITY, -INFINITY, NAN,   std::bit_cast<double>(0xFFF8000000000001ull)};
  std::vector<double> floats(std::begin(values), std::end(values));
  floats.push_back(0.1f);
  Attrs attrs{{"f", 0.1},
              {"fs", floats},
              {"i", int64_t{-3}},
              {"is", std::vector<int64_t>{}},
              {"odd name", std::string("line\nbreak \"quoted\" \\ \x01 \xc3\xa9")},
              {"ss", std::vector<std::string>{"", "a,b"}},
              {"t", std::make_shared<const HostTensor>(HostTensor::Scalar(DType::kFloat16, 0.1))}};
  g.SetAttrs(g.first(), attrs);
  const std::string text = RoundTrip(*module, TextCheck::kSkip);
  const auto again = Parse(text, TextCheck::kSkip);
  EXPECT_EQ(again->train->node(again->train->first()).attrs, attrs) << text;  // compares bits
}

TEST(Text, KeepsEveryBitOfEveryDType) {
  std::mt19937_64 random(7);
  for (int d = 1; d <= 16; ++d) {
    if (!IsKnownDType(d)) continue;
    const auto dtype = static_cast<DType>(d);
    for (int64_t count : {int64_t{0}, kInlineElements, kInlineElements + 1}) {
      std::vector<std::byte> bytes(static_cast<size_t>(count * SizeOf(dtype)));
      for (std::byte& b : bytes)
        b = static_cast<std::byte>(random() & (dtype == DType::kBool ? 1 : 255));
      Module module;
      StateVar state;
      state.name = "s";
      state.type = module.types.Intern(dtype, std::vector<int64_t>{count});
      state.initial.kind = plan::Initial::Kind::kBytes;
      state.initial.bytes = {MemorySource(bytes), 0, static_cast<int64_t>(bytes.size())};
      state.initial.stored = dtype;
      module.AddState(std::move(state));
      const auto again = Parse(RoundTrip(module));
      ASSERT_EQ(again->states.size(), 1u);
      std::vector<std::byte> read(bytes.size());
      ASSERT_TRUE(again->state(0).initial.bytes.source->Read(0, read).ok());
      EXPECT_EQ(read, bytes) << Name(dtype);
    }
  }
}

TEST(Text, KeepsAll16BitFloats) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (uint32_t bits = 0; bits < 0x10000; bits += 7) {
      const auto value = static_cast<uint16_t>(bits);
      std::string text;
      AppendData(dtype, std::as_bytes(std::span(&value, 1)), &text);
      uint16_t read = 0;
      ASSERT_TRUE(
          ParseElement(dtype, text.substr(1, text.size() - 2), reinterpret_cast<std::byte*>(&read)))
          << text;
      ASSERT_EQ(read, value) << text;
    }
  }
}

TEST(Text, ReadsFileRanges) {
  const std::string path = testing::TempDir() + "text_test.bin";
  std::ofstream(path, std::ios::binary) << "0123456789abcdef";
  const std::string text = fmt::format(R"(state {{ weight "w" : float[2] = "{}":4:8 }})", path);
  const auto module = Parse(text);
  ASSERT_EQ(module->states.size(), 1u);
  const ByteRef& bytes = module->state(0).initial.bytes;
  EXPECT_EQ(bytes.source->path(), path);
  char read[8] = {};
  ASSERT_TRUE(bytes.source->Read(bytes.offset, std::as_writable_bytes(std::span(read))).ok());
  EXPECT_EQ(std::string_view(read, 8), "456789ab");
  RoundTrip(*module);
  EXPECT_NE(ErrorOf(fmt::format(R"(state {{ weight "w" : float[2] = "{}":9:8 }})", path))
                .find("error[E0127]: 1:33: bytes [9, +8)"),
            std::string::npos);
  std::remove(path.c_str());
  EXPECT_NE(ErrorOf(text).find("1:33: cannot open"), std::string::npos) << ErrorOf(text);
}

TEST(Text, KeepsNamesThatTheGraphMadeUnique) {
  // A node called like a state that the graph reads: the state's value has another name.
  auto module =
      Parse("state { weight w : float[2] = fill(1) } train (float[2] x) => (w) { w = Relu (x) }");
  Graph& g = *module->train;
  const ValueId state = g.State(0);
  EXPECT_EQ(g.value(state).name, "w.1");
  g.SetOutput("s", state);
  const std::string text = RoundTrip(*module);
  EXPECT_NE(text.find(R"(with ("w" as "w.1"))"), std::string::npos) << text;
}

TEST(Text, KeepsLayouts) {
  const auto module =
      Parse(R"(train (float[1,8,4,4] x channels_last) => (y) { y channels_last = Relu (x) })");
  EXPECT_EQ(module->train->value(module->train->FindValue("y")).layout, Layout::kChannelsLast);
  EXPECT_EQ(module->train->value(module->train->FindValue("x")).layout, Layout::kChannelsLast);
  RoundTrip(*module);
}

TEST(Text, NamesPlaceAndReason) {
  // What the message must contain, for texts that are wrong in one way each.
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"graph () {}",
       "error[E0120]: 1:1: expected 'state', 'train', 'apply', 'update' or 'eval', found 'graph'"},
      {"train (float[2] x)\n  => (y", "error[E0120]: 2:8: expected ',' or ')', found the end"},
      {"train (float[2] x) { y = Relu (x) ",
       "error[E0120]: 1:35: expected the name of an output, or '}', found the end"},
      {"train (float[2] x) { y = Relu (\"x", "1:32: a string without closing"},
      {"train (float[2] x) { y = Relu (\"\\q\") }", "1:32: unknown escape"},
      {"train (float[2] x) { y = Relu (x) ; }", "1:35: unexpected character ';'"},
      {"train (flat[2] x) { }", "1:8: expected an element type"},
      {"train (float[two] x) { }", "1:14: expected an integer, found 'two'"},
      {"train (float[-2] x) { }", "error[E0124]: 1:13: dims [-2] are negative or too large"},
      {"train (float[4611686018427387904] x) { }", "error[E0124]: 1:13: dims"},
      {"train (float[99999999999999999999] x) { }", "1:14: expected an integer"},
      {"train () { } train () { }", "error[E0123]: 1:14: graph 'train' is defined twice"},
      {"train (float x, float x) { }", "error[E0123]: 1:23: 'x' is empty or defined twice"},
      {"train (float x) {\n y = Relu (x)\n y = Relu (x) }",
       "error[E0123]: 3:2: value 'y' is defined twice"},
      {"train (float x) { y = Nope (x) }", "error[E0121]: 1:23: unknown op 'Nope'"},
      {"train (float x) { y = ai.ampc.Nope (x) }", "error[E0121]: 1:23: unknown op 'ai.ampc.Nope'"},
      {"train (float x) { y = Relu (z) }",
       "error[E0122]: 1:29: no value, feed or state above is named 'z'"},
      {"train (float x) { y = Add (x) }", "error[E0126]: 1:19: Add takes 2 inputs, 1 are given"},
      {"train (float x) { y = Add (x, \"\") }", "error[E0126]: 1:19: Add can't do without input 1"},
      {"train (float[4] x, int64[2] s) { a, \"\" = Split (x, s) }",
       "error[E0126]: 1:34: Split can't do without output 1"},
      {"train (float x) { y = Concat <axis = 0> (x, \"\") }", "error[E0126]"},
      {"train (float x) { y, z = Relu (x) }",
       "error[E0126]: 1:19: Relu has 1 outputs, 2 are named"},
      {"train (float[2] x, float[3] z) { y = Add (x, z) }", "error[E0107]: 1:34: "},
      {"train (int64[2] x) { y = Sigmoid (x) }", "error[E0109]: 1:22: "},
      {"train (float[2] x) { float[3] y = Relu (x) }",
       "error[E0124]: 1:31: 'y' is declared float[3], it is float[2]"},
      {"train (float[2] x) => (float y = x) { }",
       "error[E0124]: 1:30: output 'y' is declared float, it is float[2]"},
      {"train (float x) => (x, x) { }", "error[E0123]: 1:24: output 'x' is empty or defined twice"},
      {"train (float x) => (y) { }", "error[E0122]: 1:21: no value"},
      {"train (float x) next (w = x) { }", "error[E0122]: 1:23: no state is named 'w'"},
      {"train (float x) { y = Elu <alpha = 1.0, alpha = 2.0> (x) }",
       "error[E0123]: 1:41: attribute 'alpha' is given twice"},
      {"train (float x) { y = Elu <alpha: double = 1> (x) }",
       "error[E0124]: 1:44: attribute type 'double'"},
      {"train (float x) { y = Elu <alpha: int = [1]> (x) }",
       "error[E0124]: 1:41: an attribute of type int doesn't stand in brackets"},
      {"train (float x) { y = Elu <alpha: ints = 1> (x) }",
       "error[E0124]: 1:42: an attribute of type ints stands in brackets"},
      {"train () { y = Constant <value = float[2] {1}> () }",
       "error[E0124]: 1:43: 4 bytes of data; float[2] has 8"},
      {"train () { y = Constant <value = float[1] hex(\"0\")> () }",
       "1:47: no string of hex digit pairs"},
      {"train () { y = Constant <value = int8[1] {128}> () }",
       "error[E0124]: 1:43: '128' is no int8"},
      {"train () { y = Constant <value = bool {2}> () }", "'2' is no bool"},
      {"state { heavy w : float = fill(0) }", "error[E0120]: 1:9: expected a role"},
      {"state { weight w : float = fill(0) weight w : float = fill(0) }",
       "error[E0123]: 1:43: state 'w' is defined twice"},
      {"state { low w : float = derived(x) }",
       "error[E0122]: 1:33: state 'x' is not defined above"},
      {"state { weight w : float = 7 }", "1:28: expected fill(…)"},
      {"state { weight w : float = fill(zero) }", "1:33: expected a number"},
      {"state { weight w : float = \"/nonexistent\":0:4 }", "1:28: "},
      {"state { weight w : float[2] = fill(0) } train (float x) next (w = x) { }",
       "error[E0124]: 1:63: state 'w' is float[2], its next value is float"},
      {"state { weight trainable w : int64 = fill(0) }", "error[E0128]: V14: "},
      {"state { hyper lr : float = fill(0) } train (float x) next (lr = x) { }",
       "error[E0128]: V11: "},
  };
  for (const auto& [text, wanted] : cases) {
    EXPECT_NE(ErrorOf(text).find(wanted), std::string::npos) << text << "\n" << ErrorOf(text);
  }
}

TEST(Text, TellsModulesFromModels) {
  EXPECT_TRUE(IsModuleText("# RUN: x\n state {"));
  EXPECT_TRUE(IsModuleText("train () {}"));
  EXPECT_FALSE(IsModuleText("<ir_version: 8> g () => () {}"));
  EXPECT_FALSE(IsModuleText("agraph (float[2] x) => (float[2] y) {}"));
  EXPECT_FALSE(IsModuleText(""));
}

// Deletes, doubles and swaps pieces of a valid text. The result is an error with a place or a
// module that round-trips.
TEST(Text, SurvivesDamage) {
  const std::string_view text = R"(state {
  weight trainable "w" : float[3,2] = {0.1, -0, nan, inf, -inf, 1}
  low l : bfloat16[3,2] = derived(w)
  hyper setting "lr" "lr" : double = fill(0.1)
}
train (float[4,2] x, int64[4] "label" target limit 10 ignore -100, float[1,2,3,4] i channels_last)
  => ("y", "s" = "sum") next ("w" = "w2", l = l2)
{
  ["/fc"] "y" = Gemm <transB: int = 1, alpha: float = 0.5> ("x", "w")
  c = Constant <value: tensor = int64[1] {0}> ()
  "sum" = ReduceSum <keepdims: int = 0> (y, c)
  w2 = Mul(w, w)
  l2 = Cast <to = 16> (w2)
  "a", "" = Dropout (y, "", "")
  r channels_last = Relu (i)
}
)";
  Parse(text);
  std::mt19937 random(11);
  const auto pick = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  int parsed = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string damaged(text);
    for (size_t edits = 1 + pick(2); edits > 0 && !damaged.empty(); --edits) {
      const size_t at = pick(damaged.size()), length = 1 + pick(6);
      switch (pick(4)) {
        case 0:
          damaged.erase(at, length);
          break;
        case 1:
          damaged.insert(at, damaged.substr(pick(damaged.size()), length));
          break;
        case 2:
          damaged[at] = "(){}[]<>,:=\"\\#-0e.x\xff"[pick(20)];
          break;
        default:
          damaged.resize(at);
          break;
      }
    }
    auto module = ParseModule(damaged, "t");
    if (module.ok()) {
      ++parsed;
      RoundTrip(**module);
    } else {
      EXPECT_NE(module.status().error_class(), ErrorClass::kInternal) << damaged;
    }
  }
  EXPECT_GT(parsed, 100);
}

TEST(Text, PrintsTheSameTextForTheSameModule) {
  std::string text = "state {\n";
  for (int i = 0; i < 300; ++i) text += fmt::format("  weight \"w{}\" : float = fill({})\n", i, i);
  text += "}\ntrain (float x) {\n";
  for (int i = 299; i >= 0; --i) text += fmt::format("  y{} = Add (x, w{})\n", i, i);
  text += "}\n";
  EXPECT_EQ(Print(*Parse(text)), Print(*Parse(text)));
}

}  // namespace
}  // namespace ampc::ir
