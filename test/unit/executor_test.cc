// SPDX-License-Identifier: Apache-2.0
// The executor on hand-built plans, with the reference kernels.

#include "runtime/executor.h"

#include <cmath>

#include <gtest/gtest.h>

#include "runtime/base/float16.h"
#include "test/unit/count_allocations.h"
#include "test/unit/tiny_plan.h"

namespace ampc {
namespace {

using plan::BytesOf;
using plan::Plan;
using plan::ProgramBuilder;

std::unique_ptr<Device> ReferenceDevice() {
  return std::move(OpenDevice("cpu", {.threads = 1, .reference_only = true})).value();
}

std::unique_ptr<Executor> Prepare(const Plan& plan, Device& device) {
  auto executor = Executor::Prepare(plan, device);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return executor.ok() ? std::move(executor).value() : nullptr;
}

template <typename T>
void FillFeed(Executor& e, int feed, const std::vector<T>& values) {
  ASSERT_EQ(e.feed(feed).size(), values.size() * sizeof(T));
  std::memcpy(e.feed(feed).data(), values.data(), e.feed(feed).size());
}

template <typename T>
std::vector<T> StateOf(Executor& e, int state, size_t elements) {
  std::vector<T> out(elements);
  EXPECT_TRUE(e.ReadState(state, std::as_writable_bytes(std::span(out))).ok());
  return out;
}

const std::vector<float> kX = {1, 2, 3, 4, 5, 6};
const std::vector<float> kUpdated = {0.375F, 1.375F, 2.125F, 3.125F, 3.875F, 4.875F};

/// Memory of its own behind copies, as a GPU has: what the host writes arrives only through
/// CopyToDevice.
class RemoteDevice : public Device {
 public:
  std::string_view name() const override { return "remote"; }
  std::string Describe() const override { return "test device"; }
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  const KernelRegistry& kernels() const override { return cpu_->kernels(); }
  PrepareOptions prepare_options() const override { return cpu_->prepare_options(); }
  bool unified() const override { return false; }
  Result<void*> Allocate(int64_t bytes) override { return cpu_->Allocate(bytes); }
  void Free(void* memory, int64_t bytes) override { cpu_->Free(memory, bytes); }
  Result<void*> AllocateHost(int64_t bytes) override { return cpu_->Allocate(bytes); }
  void FreeHost(void* memory, int64_t bytes) override { cpu_->Free(memory, bytes); }
  Status CopyToDevice(void* to, const void* from, int64_t bytes) override {
    return cpu_->CopyToDevice(to, from, bytes);
  }
  Status CopyToHost(void* to, const void* from, int64_t bytes) override {
    return cpu_->CopyToHost(to, from, bytes);
  }
  Status BeginRun(int program) override {
    runs += program == 0 ? 1 : 0;
    return {};
  }
  Status EndRun(int) override { return {}; }
  Status Synchronize() override { return {}; }

  int runs = 0;

 private:
  std::unique_ptr<Device> cpu_ = ReferenceDevice();
};

void ExpectOneStep(Device& device) {
  const Plan plan = plan::TinyPlan();
  const auto e = Prepare(plan, device);
  ASSERT_NE(e, nullptr);
  FillFeed(*e, 0, kX);
  EXPECT_EQ(StateOf<uint16_t>(*e, 1, 6)[5], HalfFromFloat(6)) << "derived at load";
  ASSERT_TRUE(e->Run(0).ok());
  EXPECT_EQ(e->ScalarOutput(0, 0).value(), 40.75);
  EXPECT_EQ(StateOf<float>(*e, 0, 6), kUpdated);
  EXPECT_EQ(StateOf<uint16_t>(*e, 1, 6)[5], HalfFromFloat(4.875F)) << "refreshed by the step";
  EXPECT_EQ(e->implementation(0, 0), "ref");
}

TEST(ExecutorTest, TrainsOneStepWithTheExpectedNumbers) { ExpectOneStep(*ReferenceDevice()); }

TEST(ExecutorTest, TrainsOnADeviceWithMemoryOfItsOwn) {
  RemoteDevice device;
  ExpectOneStep(device);
  EXPECT_EQ(device.runs, 1);
}

TEST(ExecutorTest, StepsAllocateNothing) {
  const Plan plan = plan::TinyPlan();
  const auto device = ReferenceDevice();
  const auto e = Prepare(plan, *device);
  FillFeed(*e, 0, kX);
  ASSERT_TRUE(e->Run(0).ok());
  const int64_t before = CountAllocations();
  double loss = 0;
  for (int step = 0; step < 3; ++step) {
    if (!e->Run(0).ok()) loss = -1;
    loss += e->ScalarOutput(0, 0).value();
  }
  EXPECT_EQ(CountAllocations(), before);
  EXPECT_GT(loss, 0);
}

TEST(ExecutorTest, WriteStateRebuildsWhatIsDerived) {
  const Plan plan = plan::TinyPlan();
  const auto device = ReferenceDevice();
  const auto e = Prepare(plan, *device);
  const std::vector<float> w = {1e-8F, 70000, -3, 0, 5, 1.0009765F};
  ASSERT_TRUE(e->WriteState(0, std::as_bytes(std::span(w))).ok());
  const auto low = StateOf<uint16_t>(*e, 1, 6);
  for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(low[i], HalfFromFloat(w[i])) << i;
  EXPECT_EQ(e->WriteState(0, std::as_bytes(std::span(w)).first(20)).error_class(),
            ErrorClass::kInternal);
}

TEST(ExecutorTest, ReportsTheMemoryItObtained) {
  const Plan plan = plan::TinyPlan();
  const auto device = ReferenceDevice();
  const auto e = Prepare(plan, *device);
  EXPECT_EQ(e->memory().states, 4 * 64);
  EXPECT_EQ(e->memory().feeds, 64);
  EXPECT_EQ(e->memory().constants, 2 * 64);
  EXPECT_EQ(e->memory().block, plan.programs[0].block_bytes);
  EXPECT_GE(e->memory().private_, 5 * 8);
}

TEST(ExecutorTest, FillsStatesOfEveryKind) {
  Plan plan;
  const auto add = [&](DType dtype, Dims dims, double fill) {
    plan::State s;
    s.name = std::to_string(plan.states.size());
    s.desc = {dtype, std::move(dims)};
    s.initial.fill = fill;
    plan.states.push_back(s);
  };
  add(DType::kFloat32, {600000}, 1.5);  // larger than one chunk
  add(DType::kInt64, {3}, -2);
  add(DType::kBool, {}, 1);
  add(DType::kFloat16, {2}, 65536);
  add(DType::kFloat32, {}, 0);
  plan.states.back().initial.kind = plan::Initial::Kind::kAuto;
  plan.states.back().initial.fill = std::numeric_limits<double>::quiet_NaN();
  ASSERT_TRUE(VerifyPlan(plan).ok());
  const auto device = ReferenceDevice();
  const auto e = Prepare(plan, *device);
  EXPECT_EQ(StateOf<float>(*e, 0, 600000), std::vector<float>(600000, 1.5F));
  EXPECT_EQ(StateOf<int64_t>(*e, 1, 3), std::vector<int64_t>(3, -2));
  EXPECT_EQ(StateOf<uint8_t>(*e, 2, 1)[0], 1);
  EXPECT_EQ(StateOf<uint16_t>(*e, 3, 2)[1], 0x7C00);
  EXPECT_TRUE(std::isnan(StateOf<float>(*e, 4, 1)[0]));
}

/// A lookup of two rows of w by labels, then an update that must not happen when a label is wrong.
Plan GatherPlan() {
  Plan plan = plan::TinyPlan();
  plan.programs.clear();
  plan.feeds[0].desc = {DType::kInt32, {2}};
  ProgramBuilder b(&plan, "step");
  const int32_t indices = b.Feed(0), w = b.State("w"), lr = b.State("lr");
  const int32_t rows = b.Block("rows", DType::kFloat32, {2, 2});
  const int32_t lr_new = b.Over(lr, "lr.next");
  b.Call("gather", {{"axis", int64_t{0}}}, {w, indices}, {rows}, "/embed/Gather");
  b.Call("fill", {{"value", 9.0}}, {}, {lr_new}, "update");
  b.Output("rows", rows);
  b.Finish();
  return plan;
}

TEST(ExecutorTest, IndexErrorNamesNodeAndPositionAndStopsTheRun) {
  const Plan plan = GatherPlan();
  const auto device = ReferenceDevice();
  const auto e = Prepare(plan, *device);
  FillFeed<int32_t>(*e, 0, {2, 3});
  const Status s = e->Run(0);
  EXPECT_EQ(s.id(), "E0805");
  EXPECT_EQ(s.error_class(), ErrorClass::kBadInput);
  EXPECT_NE(s.ToString().find("'/embed/Gather'"), std::string::npos) << s.ToString();
  EXPECT_NE(s.message().find("index 3 at position 1 of 'x' [2]"), std::string::npos)
      << s.ToString();
  EXPECT_EQ(StateOf<float>(*e, 2, 1)[0], 0.5F);
  FillFeed<int32_t>(*e, 0, {2, 0});  // the error does not stick
  ASSERT_TRUE(e->Run(0).ok());
  std::vector<float> rows(4);
  ASSERT_TRUE(e->ReadTensor(0, 3, std::as_writable_bytes(std::span(rows))).ok());
  EXPECT_EQ(rows, (std::vector<float>{5, 6, 1, 2}));
  EXPECT_FALSE(e->ScalarOutput(0, 0).ok());
}

TEST(ExecutorTest, IndexErrorOfADistantDeviceAppearsWhenAValueIsRead) {
  const Plan plan = GatherPlan();
  RemoteDevice device;
  const auto e = Prepare(plan, device);
  FillFeed<int32_t>(*e, 0, {-4, 0});
  ASSERT_TRUE(e->Run(0).ok());
  std::vector<float> rows(4);
  EXPECT_EQ(e->ReadTensor(0, 3, std::as_writable_bytes(std::span(rows))).id(), "E0805");
  FillFeed<int32_t>(*e, 0, {1, 0});
  ASSERT_TRUE(e->Run(0).ok());
  EXPECT_TRUE(e->ReadTensor(0, 3, std::as_writable_bytes(std::span(rows))).ok());
}

TEST(ExecutorTest, ReadsChannelsLastTensorsInRowMajorOrder) {
  Plan plan;
  plan::Feed feed;
  feed.name = "x";
  feed.desc = {DType::kFloat32, {2, 3, 2}};
  plan.feeds.push_back(feed);
  ProgramBuilder b(&plan, "eval");
  const int32_t x = b.Feed(0), y = b.Block("y", DType::kFloat32, {2, 3, 2});
  b.program().tensors.back().desc.layout = Layout::kChannelsLast;
  b.Call("map", {{"expr", std::string("x0")}}, {x}, {y});
  b.Output("y", y);
  b.Finish();
  const auto device = ReferenceDevice();
  const auto e = Prepare(plan, *device);
  std::vector<float> values(12), out(12);
  for (size_t i = 0; i < 12; ++i) values[i] = static_cast<float>(i);
  FillFeed(*e, 0, values);
  ASSERT_TRUE(e->Run(0).ok());
  ASSERT_TRUE(e->ReadTensor(0, y, std::as_writable_bytes(std::span(out))).ok());
  EXPECT_EQ(out, values);
}

TEST(ExecutorTest, InstrumentedRunTimesAndReportsEveryCall) {
  const Plan plan = plan::TinyPlan();
  const auto device = ReferenceDevice();
  const auto e = Prepare(plan, *device);
  FillFeed(*e, 0, kX);
  std::vector<int64_t> nanoseconds(5, -1);
  std::vector<int> seen;
  std::vector<float> y(4);
  const CallHook hook{[&](int program, int call) {
    EXPECT_EQ(program, 0);
    seen.push_back(call);
    const auto bytes = std::as_writable_bytes(std::span(y));
    EXPECT_TRUE(call != 0 || e->ReadTensor(0, 7, bytes).ok());
  }};
  ASSERT_TRUE(e->RunInstrumented(0, nanoseconds, &hook).ok());
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(y, (std::vector<float>{22, 28, 49, 64}));
  for (const int64_t t : nanoseconds) EXPECT_GE(t, 0);
  EXPECT_EQ(StateOf<float>(*e, 0, 6), kUpdated);
}

TEST(ExecutorTest, RefusesACallThatNoKernelTakesNamingTheNode) {
  Plan plan = plan::TinyPlan();
  plan.programs[0].calls[0].inputs.pop_back();
  const auto device = ReferenceDevice();
  const auto e = Executor::Prepare(plan, *device);
  ASSERT_FALSE(e.ok());
  EXPECT_NE(e.status().ToString().find("'/fc/MatMul'"), std::string::npos) << e.status().ToString();
}

TEST(ExecutorTest, OutOfMemoryNamesNeedsAndTheLargestTensor) {
  Plan plan;
  ProgramBuilder b(&plan, "step");
  const int32_t huge = b.Block("logits", DType::kFloat32, {int64_t{1} << 40});
  b.Call("fill", {{"value", 0.0}}, {}, {huge});
  b.Output("logits", huge);
  b.Finish();
  const auto device = ReferenceDevice();
  const auto e = Executor::Prepare(plan, *device);
  ASSERT_FALSE(e.ok());
  EXPECT_EQ(e.status().id(), "E0701");
  EXPECT_EQ(e.status().error_class(), ErrorClass::kDevice);
  EXPECT_NE(e.status().message().find("4398046511104 bytes needed"), std::string::npos)
      << e.status().ToString();
  EXPECT_NE(e.status().message().find("'logits' float[1099511627776]"), std::string::npos)
      << e.status().ToString();
}

TEST(NullDeviceTest, PrintsTheCallsAndReadsZeros) {
  Plan plan = plan::TinyPlan();
  ProgramBuilder b(&plan, "eval");  // a block of 1 TiB, which no machine has to have
  const int32_t huge = b.Block("huge", DType::kFloat32, {int64_t{1} << 38});
  b.Call("fill", {{"value", 0.0}}, {}, {huge}, "/big");
  b.Output("huge", huge);
  b.Finish();
  const auto device = std::move(OpenDevice("null", {})).value();
  const auto e = Prepare(plan, *device);
  ASSERT_NE(e, nullptr);
  FillFeed(*e, 0, kX);
  testing::internal::CaptureStdout();
  EXPECT_TRUE(e->Run(0).ok());
  const std::string trace = testing::internal::GetCapturedStdout();
  EXPECT_EQ(trace.substr(0, trace.find("->")),
            "run 'step'\ncall 0: matmul(x float[2,3] feed 'x'+0, w float[3,2] state 'w'+0) ");
  EXPECT_NE(
      trace.find(
          "call 4: map(w.next float[3,2] state 'w'+0) -> (w.low.next float16[3,2] state 'w.low'+0) "
          "{expr='x0'} of 'refresh'\n"),
      std::string::npos)
      << trace;
  EXPECT_EQ(e->ScalarOutput(0, 0).value(), 0);
  EXPECT_EQ(e->implementation(0, 0), "null");
}

TEST(DeviceTest, UnknownDevicesAreRefused) {
  EXPECT_EQ(OpenDevice("tpu", {}).status().error_class(), ErrorClass::kUsage);
  EXPECT_EQ(OpenDevice("cpu:1", {}).status().error_class(), ErrorClass::kUsage);
  EXPECT_EQ(OpenDevice("cpu", {.threads = 0}).status().error_class(), ErrorClass::kUsage);
}

TEST(DeviceTest, CpuDescribesItself) {
  const std::string text = ReferenceDevice()->Describe();
  EXPECT_NE(text.find("1 thread, "), std::string::npos) << text;
  EXPECT_NE(text.find("oneDNN 3."), std::string::npos) << text;
}

}  // namespace
}  // namespace ampc
