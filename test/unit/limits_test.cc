// SPDX-License-Identifier: Apache-2.0
// Limits of the readers that a small file could otherwise use to make much work or to wrap a sum.
// The readers' other checks are in their own tests and in test/hostile.

#include <chrono>

#include <gtest/gtest.h>

#include "runtime/base/printable.h"
#include "runtime/config/settings.h"
#include "runtime/config/yaml.h"
#include "runtime/data/safetensors.h"
#include "test/unit/temp_dir.h"
#include "test/unit/tiny_plan.h"

namespace ampc {
namespace {

class Limits : public TempDirTest {
 protected:
  std::string SafetensorsError(const std::string& header) const {
    const uint64_t length = header.size();
    const std::string start(reinterpret_cast<const char*>(&length), sizeof length);
    const auto file = SafetensorsFile::Open(Put("x.safetensors", start + header));
    return file.ok() ? "" : file.status().message();
  }
};

TEST_F(Limits, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(Printable("a\x1b[2Jb\x7f"), "a\\x1b[2Jb\\x7f");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "31m \xC3\xA9"),
            "\\xc2\x9B"
            "31m \xC3\xA9");
  EXPECT_EQ(Printable("name\nerror[E0000]: forged"), "name\\x0aerror[E0000]: forged");
  EXPECT_EQ(Printable("2 ops:\n  Foo\n  Bar"), "2 ops:\n  Foo\n  Bar");
  EXPECT_EQ(BadInput("E0001", "x\ry").At("node 'a\nb'").ToString(),
            "error[E0001]: node 'a\\x0ab': x\\x0dy");
}

TEST_F(Limits, LongMessagesAreCut) {
  const std::string text = Printable(std::string(1 << 20, 'x'));
  EXPECT_LT(text.size(), size_t{70000});
  EXPECT_NE(text.find("more bytes"), std::string::npos);
}

TEST_F(Limits, ManyYamlKeysTakeLinearTime) {
  std::string text;
  for (int i = 0; i < 90'000; ++i) text += fmt::format("key{}: 1\n", i);
  const auto started = std::chrono::steady_clock::now();
  const auto value = ParseYaml(text, "test");
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_EQ(value->entries.size(), size_t{90'000});
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
  const auto twice = ParseYaml(text + "key5: 2\n", "test");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.status().message().find("'key5', which already stands in line 6"),
            std::string::npos)
      << twice.status().message();
}

TEST_F(Limits, PlanSizesThatWrapAreRefused) {
  plan::Plan p = plan::TinyPlan();
  const size_t first = p.states.size();
  for (int i = 0; i < 4; ++i) {  // 4 x 2^62 bytes are 0 in 64 bits
    plan::State s;
    s.name = fmt::format("huge{}", i);
    s.desc = {DType::kFloat32, {int64_t{1} << 60}};
    s.initial.fill = 1;
    p.states.push_back(s);
  }
  EXPECT_NE(plan::VerifyPlan(p).message().find("states"), std::string::npos);
  p.states.resize(first);
  ASSERT_TRUE(plan::VerifyPlan(p).ok()) << plan::VerifyPlan(p).message();
  p.programs[0].block_bytes = int64_t{1} << 60;
  EXPECT_NE(plan::VerifyPlan(p).message().find("block"), std::string::npos);
  p = plan::TinyPlan();
  p.accumulate = int64_t{1} << 62;
  EXPECT_NE(plan::VerifyPlan(p).message().find("micro-batches"), std::string::npos);
}

TEST_F(Limits, CallsOfManyParametersAreRefused) {
  plan::Plan p = plan::TinyPlan();
  for (int i = 0; i < 2000; ++i)
    p.programs[0].calls[0].params.Set(fmt::format("p{}", i), int64_t{1});
  const std::string path = Path("many.plan");
  ASSERT_TRUE(plan::WritePlan(p, path).ok());
  EXPECT_NE(plan::ReadPlan(path).status().message().find("parameters"), std::string::npos);
}

TEST_F(Limits, SafetensorsHeadersAreBounded) {
  EXPECT_NE(SafetensorsError(R"({"__metadata__":[]})").find("text to text"), std::string::npos);
  EXPECT_EQ(SafetensorsError(R"({"__metadata__":{}})"), "");
  std::string axes = R"({"w":{"dtype":"F32","data_offsets":[0,0],"shape":[0)";
  for (int i = 0; i < 100; ++i) axes += ",1";
  EXPECT_NE(SafetensorsError(axes + "]}}").find("101 axes"), std::string::npos);
}

Status Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"ampc", "m.onnx"});
  const auto settings =
      ParseCommandLine(Tool::kAmpc, static_cast<int>(arguments.size()), arguments.data());
  return settings.ok() ? Status()
                       : UsageError(settings.status().id(), "{}", settings.status().message());
}

TEST_F(Limits, SettingsAreFinite) {
  EXPECT_NE(Parse({"--lr", "inf"}).message().find("finite"), std::string::npos);
  EXPECT_NE(Parse({"--clip-norm", "inf"}).message().find("finite"), std::string::npos);
  EXPECT_NE(Parse({"--loss-scale", "dynamic:init_scale=0"}).message().find("at least"),
            std::string::npos);
  EXPECT_TRUE(Parse({"--loss-scale", "dynamic:max_scale=inf"}).ok());
  EXPECT_NE(Parse({"--loss-scale", "dynamic:min_scale=9,max_scale=1"}).message().find("above"),
            std::string::npos);
}

}  // namespace
}  // namespace ampc
