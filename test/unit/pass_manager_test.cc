// SPDX-License-Identifier: Apache-2.0
// The pass manager's flags, and what the clean-up passes cost on a large graph.
#include "compiler/pass_manager.h"

#include <chrono>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/ir/text.h"

namespace ampc {
namespace {

constexpr std::string_view kText = R"(train (float[2] x) => (y) {
  a = Relu (x)
  b = Relu (x)
  y = Add (a, b)
  dead = Exp (x)
})";

class PassManagerTest : public testing::Test {
 protected:
  void Load(std::string_view text) {
    auto parsed = ir::ParseModule(text, "t");
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    module = std::move(*parsed);
  }
  void SetUp() override { Load(kText); }
  int32_t nodes() const { return module->train->num_live_nodes(); }

  CompileOptions options;
  Diagnostics diagnostics;
  PassContext context{options, diagnostics};
  std::unique_ptr<ir::Module> module;
  std::ostringstream out;
};

TEST_F(PassManagerTest, RunsPassesInTurn) {
  PassManager passes({}, out);
  ASSERT_TRUE(passes.CheckNames().ok());
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  EXPECT_EQ(nodes(), 3);
  EXPECT_TRUE(passes.Run("dce", *module, context).ok());
  EXPECT_EQ(nodes(), 2);
  EXPECT_EQ(out.str(), "");
}

TEST_F(PassManagerTest, StopsAfterThePassThatWasNamed) {
  PassManager passes({.print_after = {}, .stop_after = "cse", .disable = {}}, out);
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  EXPECT_TRUE(passes.stopped());
  EXPECT_TRUE(passes.Run("dce", *module, context).ok());
  EXPECT_EQ(nodes(), 3);
}

TEST_F(PassManagerTest, StopsAtADisabledPass) {
  PassManager passes({.print_after = {}, .stop_after = "cse", .disable = {"cse"}}, out);
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  EXPECT_TRUE(passes.stopped());
  EXPECT_EQ(nodes(), 4);
}

TEST_F(PassManagerTest, StopsAfterImport) {
  PassManager passes({.print_after = {}, .stop_after = "import", .disable = {}}, out);
  ASSERT_TRUE(passes.CheckNames().ok());
  EXPECT_TRUE(passes.After("import", *module).ok());
  EXPECT_TRUE(passes.stopped());
}

TEST_F(PassManagerTest, SkipsDisabledPasses) {
  PassManager passes({.print_after = {}, .stop_after = {}, .disable = {"cse"}}, out);
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  EXPECT_TRUE(passes.Run("dce", *module, context).ok());
  EXPECT_EQ(nodes(), 3);
}

TEST_F(PassManagerTest, PrintsTextThatParses) {
  PassManager passes({.print_after = {"cse"}, .stop_after = {}, .disable = {}}, out);
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  const std::string printed = out.str();
  EXPECT_EQ(printed.substr(0, 12), "# after cse\n");
  auto again = ir::ParseModule(printed, "printed");
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*ir::PrintModule(**again), *ir::PrintModule(*module));
  EXPECT_TRUE(passes.Run("dce", *module, context).ok());
  EXPECT_EQ(out.str(), printed);
}

TEST_F(PassManagerTest, PrintsWhatChanged) {
  PassManager passes({.print_after = {}, .print_changed = true, .stop_after = {}, .disable = {}},
                     out);
  EXPECT_TRUE(passes.Run("clean-casts", *module, context).ok());
  EXPECT_EQ(out.str(), "");
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  EXPECT_EQ(out.str().substr(0, 11), "# after cse");
  const size_t length = out.str().size();
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  EXPECT_EQ(out.str().size(), length);
}

TEST_F(PassManagerTest, SuggestsTheNearestPass) {
  const auto error = [&](PassRunOptions run) {
    return PassManager(std::move(run), out).CheckNames().ToString();
  };
  EXPECT_EQ(error({.print_after = {"clean-cast"}, .stop_after = {}, .disable = {}}),
            "error[E0301]: unknown pass 'clean-cast'; did you mean 'clean-casts'?");
  EXPECT_EQ(error({.print_after = {}, .stop_after = "dse", .disable = {}}),
            "error[E0301]: unknown pass 'dse'; did you mean 'cse'?");
  EXPECT_EQ(error({.print_after = {}, .stop_after = {}, .disable = {"nothing-like-it"}}),
            "error[E0301]: unknown pass 'nothing-like-it'; --list-passes shows them");
  // Import can be printed and stopped at, but not left out.
  EXPECT_EQ(error({.print_after = {"all", "import"}, .stop_after = "import", .disable = {}}), "ok");
  EXPECT_NE(error({.print_after = {}, .stop_after = {}, .disable = {"import"}}), "ok");
  const Status status = PassManager({}, out).Run("cze", *module, context);
  EXPECT_EQ(status.error_class(), ErrorClass::kUsage);
  for (const PassInfo& pass : AllPasses()) EXPECT_NE(PassList().find(pass.name), std::string::npos);
}

TEST_F(PassManagerTest, NamesThePassThatBrokeTheModule) {
  PassManager passes({.print_after = {}, .stop_after = {}, .disable = {}, .verify_each = true},
                     out);
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  ir::Graph& g = *module->train;
  g.SetType(g.FindValue("a"), module->types.Intern(DType::kFloat16, std::vector<int64_t>{2}));
  const Status status = passes.Run("clean-casts", *module, context);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.exit_code(), 70);
  const std::string text = status.ToString();
  EXPECT_NE(text.find("node 'Relu:a' (Relu-14): V9: "), std::string::npos) << text;
  EXPECT_NE(
      text.find("--stop-after cse --emit text and run ampc-opt --verify-each --passes=clean-casts"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("(in pass clean-casts)"), std::string::npos) << text;
}

TEST_F(PassManagerTest, TabulatesTimesAndNodes) {
  PassManager passes({.print_after = {}, .stop_after = {}, .disable = {}, .time_passes = true},
                     out);
  EXPECT_TRUE(passes.Run("cse", *module, context).ok());
  EXPECT_TRUE(passes.Run("dce", *module, context).ok());
  std::istringstream table(passes.Summary());
  std::string name, ms, before, after, per_node, line;
  std::getline(table, line);
  EXPECT_NE(line.find("us/node"), std::string::npos);
  table >> name >> ms >> before >> after >> per_node;
  EXPECT_EQ(name + before + after, "cse43");
  table >> name >> ms >> before >> after >> per_node;
  EXPECT_EQ(name + before + after, "dce32");
  table >> name >> ms >> before >> after >> per_node;
  EXPECT_EQ(name + before + after, "total42");
}

// 40,000 nodes, half of them equal to the other half, one value with 20,000 uses, chains of casts.
// The bound is ten times what a pass should take, so that a busy machine does not fail it;
// something quadratic takes minutes.
TEST_F(PassManagerTest, CleansLargeGraphsInLinearTime) {
  constexpr int kPairs = 10000;
  std::string text = "train (float16[8] x) => (y = z9999) {\n  z0 = Relu (x)\n";
  for (int i = 1; i < kPairs; ++i) {
    text += fmt::format(
        "  a{0} = Cast <to = 1> (x)\n  b{0} = Cast <to = 11> (a{0})\n  c{0} = Cast <to = 10> "
        "(b{0})\n  z{0} = Add (z{1}, c{0})\n",
        i, i - 1);
  }
  Load(text + "}\n");
  PassManager passes({}, out);
  const auto start = std::chrono::steady_clock::now();
  for (const char* pass : {"cse", "clean-casts", "cse", "dce"})
    ASSERT_TRUE(passes.Run(pass, *module, context).ok());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(nodes(), kPairs);
  EXPECT_LT(seconds, 10 * 4 * 2e-6 * 4 * kPairs) << passes.Summary();
  EXPECT_TRUE(passes.Check("dce", *module).ok());
}

}  // namespace
}  // namespace ampc
