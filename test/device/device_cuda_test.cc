// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device under an executor: first runs, the captured one and replays must add up, with
// feeds that the host overwrites as soon as it may. What can be said without a GPU is tested
// everywhere.

#include <vector>

#include <gtest/gtest.h>

#include "runtime/device.h"
#include "runtime/executor.h"
#include "test/unit/tiny_plan.h"

namespace ampc {
namespace {

using plan::Plan;
using plan::ProgramBuilder;

constexpr int64_t kElements = 1000;

/// Program 0: sum += x; y = 2 * sum. Program 1: sum = 0.
Plan SumPlan() {
  Plan plan;
  plan.producer = "ampc test";
  plan.precision = "fp32";
  plan.weights = std::make_shared<plan::VectorWeights>(std::vector<std::byte>());
  plan::State sum;
  sum.name = "sum";
  sum.desc = {DType::kFloat32, {kElements}};
  plan.states.push_back(sum);
  plan::Feed x;
  x.name = "x";
  x.desc = {DType::kFloat32, {kElements}};
  plan.feeds.push_back(x);
  {
    ProgramBuilder b(&plan, "add");
    const int32_t feed = b.Feed(0), old = b.State("sum"), next = b.Over(old, "sum.next");
    const int32_t y = b.Block("y", DType::kFloat32, {kElements});
    const int32_t first = b.Block("first", DType::kFloat32, {1});
    b.Call("map", {{"expr", std::string("x0 + x1")}}, {old, feed}, {next}, "add");
    b.Call("map", {{"expr", std::string("2 * x0")}}, {next}, {y}, "double");
    b.Call("copy", {{"offset", int64_t{3}}, {"strides", std::vector<int64_t>{1}}}, {y}, {first},
           "pick");
    b.Output("first", first);
    b.Finish();
  }
  {
    ProgramBuilder b(&plan, "clear");
    const int32_t next = b.Over(b.State("sum"), "sum.next");
    b.Call("fill", {{"value", 0.0}}, {}, {next}, "clear");
    b.Finish();
  }
  return plan;
}

TEST(CudaDevice, IsOpenedOrSaysWhyNot) {
  const auto device = OpenDevice("cuda", {});
  if (device.ok()) {
    EXPECT_EQ((*device)->name(), "cuda:0");
    EXPECT_NE((*device)->Describe().find("compute capability"), std::string::npos);
    EXPECT_FALSE((*device)->unified());
    return;
  }
  EXPECT_EQ(device.status().exit_code(), 5);
  EXPECT_EQ(device.status().id(), "E0702");
  EXPECT_EQ(device.status().message().substr(0, 16), "no CUDA device: ");
}

TEST(CudaDevice, RefusesANameThatIsNone) {
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999"}) {
    const auto device = OpenDevice(name, {});
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_EQ(device.status().id(), "E0703") << name;
  }
  const auto device = OpenDevice("cuda:4096", {});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().id(), "E0702");
}

class CudaRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = OpenDevice("cuda", {});
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    device_ = std::move(device).value();
  }
  std::unique_ptr<Device> device_;
};

TEST_F(CudaRuns, FirstCapturedAndReplayedRunsAddUp) {
  const Plan plan = SumPlan();
  auto executor = std::move(Executor::Prepare(plan, *device_)).value();
  for (int round = 0; round < 2; ++round) {
    float expected = 0;
    for (int run = 1; run <= 8; ++run) {
      const std::span<std::byte> feed = executor->feed(0);
      const std::vector<float> x(kElements, static_cast<float>(run));
      std::memcpy(feed.data(), x.data(), feed.size());
      ASSERT_TRUE(executor->Run(0).ok());
      std::memset(feed.data(), 0xFF, feed.size());  // the device must not see this
      expected += static_cast<float>(run);
      if (run % 4 == 0) {
        const auto first = executor->ScalarOutput(0, 0);
        ASSERT_TRUE(first.ok()) << first.status().ToString();
        EXPECT_EQ(*first, 2 * expected);
      }
    }
    std::vector<float> sum(kElements);
    ASSERT_TRUE(executor->ReadState(0, std::as_writable_bytes(std::span(sum))).ok());
    EXPECT_EQ(sum, std::vector<float>(kElements, expected));
    ASSERT_TRUE(executor->Run(1).ok());
  }
}

TEST_F(CudaRuns, AnotherExecutorDoesNotReplayTheFirstOnesGraphs) {
  const Plan plan = SumPlan();
  for (int i = 0; i < 2; ++i) {
    auto executor = std::move(Executor::Prepare(plan, *device_)).value();
    for (int run = 0; run < 3; ++run) {
      const std::vector<float> x(kElements, 1.0F);
      std::memcpy(executor->feed(0).data(), x.data(), executor->feed(0).size());
      ASSERT_TRUE(executor->Run(0).ok());
    }
    const auto first = executor->ScalarOutput(0, 0);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(*first, 6);
  }
}

TEST_F(CudaRuns, TooMuchMemoryIsAnErrorThatNamesBothSides) {
  const auto memory = device_->Allocate(int64_t{1} << 50);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.status().id(), "E0701");
  EXPECT_NE(memory.status().message().find("1125899906842624 bytes needed"), std::string::npos);
  EXPECT_TRUE(device_->Synchronize().ok());
}

}  // namespace
}  // namespace ampc
