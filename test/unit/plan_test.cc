// SPDX-License-Identifier: Apache-2.0
// The plan file: what is written reads back equal, what is damaged is refused; and the verifier,
// one case per invariant.

#include "runtime/plan/plan.h"

#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "runtime/base/crc32c.h"
#include "runtime/plan/codec.h"
#include "runtime/plan/text.h"
#include "test/unit/tiny_plan.h"

namespace ampc::plan {
namespace {

class PlanFileTest : public testing::Test {
 protected:
  PlanFileTest() {
    folder_ = std::filesystem::temp_directory_path() /
              ("plan_test." + std::to_string(getpid()) + "." +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "train.plan";
  }
  ~PlanFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Load() {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Store(std::string_view bytes) {
    std::filesystem::remove(path_);  // truncating an old file would make the file system flush it
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  /// Writes the bytes, with the prelude's own checksum made right.
  void StoreSealed(std::string bytes) {
    const auto prelude = std::as_bytes(std::span(bytes)).first(124);
    const uint32_t crc = Crc32c(prelude);
    std::memcpy(bytes.data() + 124, &crc, 4);
    Store(bytes);
  }
  /// Reads the plan and all its weights.
  Status ReadAll() {
    AMPC_ASSIGN(const Plan plan, ReadPlan(path_));
    for (const State& s : plan.states) {
      if (s.initial.kind != Initial::Kind::kBytes) continue;
      std::vector<std::byte> bytes(static_cast<size_t>(s.initial.length));
      AMPC_TRY(ReadWeight(plan, s.initial.offset, s.initial.crc, s.name, bytes));
    }
    for (const Export& e : plan.exports) {
      if (e.state >= 0) continue;
      std::vector<std::byte> bytes(static_cast<size_t>(e.length));
      AMPC_TRY(ReadWeight(plan, e.offset, e.crc, e.initializer, bytes));
    }
    return {};
  }

  std::filesystem::path folder_;
  std::string path_;
};

std::string Encoded(const Plan& plan) { return EncodePlan(plan, IndexWeights(plan)).value(); }

Attrs StrangeAttrs() {
  auto tensor = std::make_shared<HostTensor>(
      HostTensor::Of<float>(DType::kFloat32, {2}, std::vector<float>{1.5F, -0.0F}));
  return {{"int", std::numeric_limits<int64_t>::min()},
          {"float", std::bit_cast<double>(0x7FF8000000001234ull)},
          {"negative_zero", -0.0},
          {"string", std::string("a\0b\xFF", 4)},
          {"ints", std::vector<int64_t>{-1, 0, std::numeric_limits<int64_t>::max()}},
          {"floats", std::vector<double>{0.1, -std::numeric_limits<double>::infinity()}},
          {"strings", std::vector<std::string>{"", "x\xC0"}},
          {"no_ints", std::vector<int64_t>{}},
          {"tensor", std::shared_ptr<const HostTensor>(tensor)}};
}

TEST_F(PlanFileTest, ReadsBackEqual) {
  Plan plan = TinyPlan();
  plan.programs[0].calls[0].params = StrangeAttrs();
  plan.programs[0].tensors[0].name = "name \xFF";
  plan.source_model = "\x3a\xe5\x07" + std::string(997, '\7');  // field 7, its graph
  plan.exports[0].rest = 1000;
  plan.exports[0].notes = "\x62\x02hi";  // field 12, its documentation
  plan.accumulate = 3;
  plan.max_skips = 7;
  plan.states[3].initial.kind = Initial::Kind::kAuto;
  plan.states[3].initial.fill = std::numeric_limits<double>::quiet_NaN();
  plan.feeds[0].limit = 10;
  plan.feeds[0].from_end = true;
  plan.feeds[0].has_ignore = true;
  plan.feeds[0].ignore = -100;
  ASSERT_TRUE(WritePlan(plan, path_).ok()) << WritePlan(plan, path_).ToString();
  const auto read = ReadPlan(path_);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(Encoded(*read), Encoded(plan));
  EXPECT_TRUE(read->programs[0].calls[0].params == plan.programs[0].calls[0].params);
  EXPECT_EQ(ProgramToString(*read, read->programs[0]), ProgramToString(plan, plan.programs[0]));
  EXPECT_EQ(read->producer, plan.producer);
  EXPECT_EQ(read->programs[0].buffers[8].offset, plan.programs[0].buffers[8].offset);
  EXPECT_EQ(read->feeds[0].ignore, -100);
  EXPECT_TRUE(read->feeds[0].from_end);
  EXPECT_EQ(read->exports[0].rest, 1000);
  EXPECT_EQ(read->exports[0].notes, plan.exports[0].notes);
  EXPECT_TRUE(std::isnan(read->states[3].initial.fill));

  std::vector<std::byte> w(24), frozen(8);
  EXPECT_TRUE(
      ReadWeight(*read, read->states[0].initial.offset, read->states[0].initial.crc, "w", w).ok());
  EXPECT_EQ(w, BytesOf<float>({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read->exports[1].offset % 64, 0);
  EXPECT_TRUE(
      ReadWeight(*read, read->exports[1].offset, read->exports[1].crc, "frozen", frozen).ok());
  EXPECT_EQ(frozen, BytesOf<float>({7, 8}));
  EXPECT_EQ(Fingerprint(*read), Fingerprint(*ReadPlan(path_)));
}

TEST_F(PlanFileTest, WritesTheSameBytesTwice) {
  ASSERT_TRUE(WritePlan(TinyPlan(), path_).ok());
  const std::string first = Load();
  ASSERT_TRUE(WritePlan(TinyPlan(), path_).ok());
  EXPECT_EQ(Load(), first);
}

TEST_F(PlanFileTest, StreamsWeightsLargerThanAChunk) {
  Plan plan = TinyPlan();
  const int64_t n = (int64_t{3} << 20) / 4 + 5;
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  plan.weights = std::make_shared<VectorWeights>(BytesOf(values));
  State big;
  big.name = "big";
  big.desc = {DType::kFloat32, {n}};
  big.initial = {.kind = Initial::Kind::kBytes, .offset = 0, .length = 4 * n};
  plan.states.push_back(big);
  ASSERT_TRUE(WritePlan(plan, path_).ok());
  const auto read = ReadPlan(path_);
  ASSERT_TRUE(read.ok());
  std::vector<std::byte> bytes(static_cast<size_t>(4 * n));
  const Initial& initial = read->states.back().initial;
  ASSERT_TRUE(ReadWeight(*read, initial.offset, initial.crc, "big", bytes).ok());
  EXPECT_EQ(bytes, BytesOf(values));
}

TEST_F(PlanFileTest, RefusesEveryTruncation) {
  ASSERT_TRUE(WritePlan(TinyPlan(), path_).ok());
  const std::string whole = Load();
  for (size_t length = 0; length < whole.size(); length += length < 200 ? 1 : 13) {
    Store(std::string_view(whole).substr(0, length));
    EXPECT_FALSE(ReadPlan(path_).ok()) << "of " << length << " bytes";
  }
  Store(whole + "x");
  EXPECT_EQ(ReadPlan(path_).status().id(), "E0643");
}

TEST_F(PlanFileTest, NoticesEveryFlippedBit) {
  ASSERT_TRUE(WritePlan(TinyPlan(), path_).ok());
  const std::string whole = Load();
  const auto plan = ReadPlan(path_);
  const std::string encoded = Encoded(*plan);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    Store(damaged);
    if (ReadAll().ok()) {  // only the zeros between sections carry nothing
      EXPECT_EQ(whole[i], '\0') << "byte " << i;
      EXPECT_EQ(Encoded(*ReadPlan(path_)), encoded) << "byte " << i;
      EXPECT_GE(i, 128U);
    }
  }
}

TEST_F(PlanFileTest, NamesTheDamagedWeight) {
  ASSERT_TRUE(WritePlan(TinyPlan(), path_).ok());
  std::string bytes = Load();
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  Store(bytes);
  EXPECT_TRUE(ReadPlan(path_).ok());
  const Status s = ReadAll();
  EXPECT_EQ(s.id(), "E0647");
  EXPECT_NE(s.message().find("'frozen'"), std::string::npos) << s.ToString();
}

TEST_F(PlanFileTest, RefusesANewerFormatNamingBoth) {
  ASSERT_TRUE(WritePlan(TinyPlan(), path_).ok());
  std::string bytes = Load();
  bytes[8] = 9;
  Store(bytes);
  const auto plan = ReadPlan(path_);
  EXPECT_EQ(plan.status().id(), "E0642");
  EXPECT_NE(
      plan.status().message().find("format 9 (written by 'ampc test') is newer than format 1"),
      std::string::npos)
      << plan.status().ToString();
  const auto info = ReadPlanInfo(path_);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->format, 9U);
  EXPECT_EQ(info->producer, "ampc test");
  EXPECT_FALSE(info->readable);
}

TEST_F(PlanFileTest, RefusesOtherFiles) {
  Store("");
  EXPECT_EQ(ReadPlan(path_).status().id(), "E0641");
  Store(std::string(500, 'x'));
  EXPECT_EQ(ReadPlan(path_).status().id(), "E0641");
  EXPECT_EQ(ReadPlan(path_).status().file(), path_);
  EXPECT_EQ(ReadPlan(folder_ / "absent").status().error_class(), ErrorClass::kIo);
}

TEST_F(PlanFileTest, SurvivesForgedHeaders) {
  // Checksums made right, contents random: the decoder and the verifier must hold alone.
  Plan plan = TinyPlan();
  ASSERT_TRUE(WritePlan(plan, path_).ok());
  const std::string whole = Load();
  int64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data() + 80, 8);
  std::mt19937 rng(7);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string forged = whole;
    for (int edits = 1 + static_cast<int>(rng() % 3); edits > 0; --edits) {
      const size_t at = 128 + rng() % static_cast<size_t>(header_bytes);
      forged[at] = static_cast<char>(
          rng() % 3 == 0 ? rng() : static_cast<unsigned>(forged[at]) ^ (1U << rng() % 8));
    }
    const auto header =
        std::as_bytes(std::span(forged)).subspan(128, static_cast<size_t>(header_bytes));
    const uint32_t crc = Crc32c(header);
    std::memcpy(forged.data() + 104, &crc, 4);
    StoreSealed(std::move(forged));
    const auto read = ReadPlan(path_);
    if (read.ok()) {
      EXPECT_TRUE(VerifyPlan(*read).ok());
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST_F(PlanFileTest, RefusesSizesBeyondTheFile) {
  ASSERT_TRUE(WritePlan(TinyPlan(), path_).ok());
  const std::string whole = Load();
  for (const size_t field : {80U, 88U, 96U}) {
    for (const int64_t value :
         {int64_t{-1}, int64_t{0}, int64_t{1} << 40, std::numeric_limits<int64_t>::max(),
          std::numeric_limits<int64_t>::min(), int64_t{64}}) {
      std::string forged = whole;
      std::memcpy(forged.data() + field, &value, 8);
      StoreSealed(forged);
      EXPECT_EQ(ReadPlan(path_).status().id(), "E0643") << field << " " << value;
    }
  }
}

TEST_F(PlanFileTest, RefusesToWriteAnInvalidPlanAndLeavesNoFile) {
  Plan plan = TinyPlan();
  plan.programs[0].calls[0].kernel = "matmull";
  const Status s = WritePlan(plan, path_);
  EXPECT_EQ(s.error_class(), ErrorClass::kInternal);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 0);
}

// ---- the verifier -------------------------------------------------------------------------------

void ExpectViolation(const Plan& plan, std::string_view label) {
  const Status s = VerifyPlan(plan);
  ASSERT_FALSE(s.ok()) << "expected a violation of " << label;
  EXPECT_EQ(s.id(), "E0645");
  EXPECT_EQ(s.message().substr(0, 2), label) << s.ToString();
}

TEST(VerifyTest, AcceptsTheTinyPlan) {
  EXPECT_TRUE(VerifyPlan(TinyPlan()).ok()) << VerifyPlan(TinyPlan()).ToString();
}

TEST(VerifyTest, P0FindsInconsistentStatesAndExports) {
  Plan plan = TinyPlan();
  plan.states[0].initial.length = 20;
  ExpectViolation(plan, "P0");
  plan = TinyPlan();
  plan.states[0].initial.offset = std::numeric_limits<int64_t>::max();
  ExpectViolation(plan, "P0");
  plan = TinyPlan();
  plan.states[1].initial.derived_from = 1;
  ExpectViolation(plan, "P0");
  plan = TinyPlan();
  plan.states[1].name = "w";
  ExpectViolation(plan, "P0");
  plan = TinyPlan();
  plan.exports[0].dtype = DType::kFloat16;
  ExpectViolation(plan, "P0");
  plan.exports[0].inverse = Export::Inverse::kRound;
  EXPECT_TRUE(VerifyPlan(plan).ok());
  plan = TinyPlan();
  plan.settings[0].state = 0;
  ExpectViolation(plan, "P0");
  // Exports stand between whole fields of the source model, in its order.
  plan = TinyPlan();
  plan.source_model = std::string("\x3a\x02\x0a\x00\x3a\x00", 6);
  EXPECT_TRUE(VerifyPlan(plan).ok()) << VerifyPlan(plan).ToString();
  for (const int64_t rest : {6, 2, 0}) {
    plan.exports[0].rest = rest;
    EXPECT_TRUE(VerifyPlan(plan).ok()) << rest;
  }
  for (const int64_t rest : {-1, 1, 5, 7}) {
    plan.exports[0].rest = rest;
    ExpectViolation(plan, "P0");
  }
  plan.exports[0].rest = 2;
  plan.exports[1].rest = 6;
  ExpectViolation(plan, "P0");
  plan.exports[1].rest = 2;
  EXPECT_TRUE(VerifyPlan(plan).ok());
  plan.exports[1].notes = "\x62\x05gone";
  ExpectViolation(plan, "P0");
}

TEST(VerifyTest, P1FindsIndicesAndKernels) {
  Plan plan = TinyPlan();
  plan.programs[0].calls[0].kernel = "matmull";
  ExpectViolation(plan, "P1");
  for (const int32_t bad : {-2, 1000}) {
    plan = TinyPlan();
    plan.programs[0].calls[1].inputs[0] = bad;
    ExpectViolation(plan, "P1");
    plan = TinyPlan();
    plan.programs[0].calls[1].outputs[0] = bad;
    ExpectViolation(plan, "P1");
    plan = TinyPlan();
    plan.programs[0].outputs[0].tensor = bad;
    ExpectViolation(plan, "P1");
    plan = TinyPlan();
    plan.programs[0].tensors[3].buffer = bad;
    ExpectViolation(plan, "P1");
    plan = TinyPlan();
    plan.programs[0].buffers[1].index = bad;
    ExpectViolation(plan, "P1");
  }
  plan = TinyPlan();
  plan.programs[0].tensors[1].name = "x";
  ExpectViolation(plan, "P1");
  plan = TinyPlan();
  plan.programs[0].tensors[1].view_of = 1;
  ExpectViolation(plan, "P1");
}

TEST(VerifyTest, P0FindsRangesOfFeedsThatCannotBe) {
  for (const int64_t limit : {int64_t{-1}, std::numeric_limits<int64_t>::min(), int64_t{0}}) {
    Plan plan = TinyPlan();
    plan.feeds[0].limit = limit;
    plan.feeds[0].from_end = true;
    ExpectViolation(plan, "P0");
  }
}

TEST(VerifyTest, P2FindsTensorsOutsideOfTheirBuffer) {
  Plan plan = TinyPlan();
  plan.programs[0].tensors[0].byte_offset = 4;
  ExpectViolation(plan, "P2");
  plan = TinyPlan();
  plan.programs[0].tensors[0].byte_offset = std::numeric_limits<int64_t>::max();
  ExpectViolation(plan, "P2");
  plan = TinyPlan();
  plan.programs[0].buffers[0].bytes += 4;
  ExpectViolation(plan, "P2");
  plan = TinyPlan();
  plan.programs[0].tensors[0].desc.dims = {int64_t{1} << 40, int64_t{1} << 40};
  ExpectViolation(plan, "P2");
  plan = TinyPlan();
  plan.programs[0].tensors[0].desc.dims = {1, 1};
  plan.programs[0].tensors[0].byte_offset = 2;
  ExpectViolation(plan, "P2");
}

TEST(VerifyTest, P3FindsReadsOfUnwrittenBytes) {
  Plan plan = TinyPlan();
  std::swap(plan.programs[0].calls[0], plan.programs[0].calls[1]);
  ExpectViolation(plan, "P3");
}

TEST(VerifyTest, P4FindsWritesToFeedsAndConstants) {
  for (const int32_t target : {0, 5}) {
    Plan plan = TinyPlan();
    plan.programs[0].calls[0].outputs[0] = target;
    ExpectViolation(plan, "P4");
  }
}

/// a -> b -> c over blocks of 16 bytes; the test moves tensors together.
struct Chain {
  Plan plan;
  Program p;
  Chain() {
    ProgramBuilder b(&plan, "step");
    const int32_t x = b.Block("a", DType::kFloat32, {4}), y = b.Block("b", DType::kFloat32, {4});
    const int32_t z = b.Block("c", DType::kFloat32, {4});
    b.Call("fill", {{"value", 1.0}}, {}, {x});
    b.Call("map", {{"expr", std::string("x0")}}, {x}, {y});
    b.Call("map", {{"expr", std::string("x0 + x1")}}, {x, y}, {z});
    b.Output("c", z);
    p = b.program();
  }
  Status Verify() {
    PlanMemory(p);
    return VerifyProgram(plan, p);
  }
};

TEST(VerifyTest, P5FindsAnOverwrittenValueThatIsReadLater) {
  Chain c;
  EXPECT_TRUE(c.Verify().ok());
  c.p.tensors[1].buffer = 0;  // b over a, but a is read again
  EXPECT_EQ(c.Verify().message().substr(0, 2), "P5");
}

TEST(VerifyTest, P5AllowsInPlaceWhereTheKernelDoes) {
  Chain c;
  c.p.tensors[2].buffer = 0;  // c over a, which the same call reads last
  EXPECT_TRUE(c.Verify().ok());
  c.p.calls[2].kernel = "matmul";
  EXPECT_EQ(c.Verify().message().substr(0, 2), "P5");
  c.p.calls[2].kernel = "softmax_bwd";  // dx may lie on dy (input 1), not on y (input 0)
  EXPECT_EQ(c.Verify().message().substr(0, 2), "P5");
  c.p.tensors[2].buffer = 1;
  EXPECT_TRUE(c.Verify().ok());
}

TEST(VerifyTest, P5RefusesInPlaceAcrossLayoutsAndPartly) {
  Chain c;
  c.p.tensors[2].buffer = 0;
  c.p.buffers[0].bytes = 20;
  c.p.tensors[2].byte_offset = 4;
  EXPECT_EQ(c.Verify().message().substr(0, 2), "P5");
  c = Chain();
  c.p.tensors[2].buffer = 0;
  c.p.tensors[2].desc = {DType::kFloat32, {1, 2, 2}, Layout::kChannelsLast};
  EXPECT_EQ(c.Verify().message().substr(0, 2), "P5");
}

TEST(VerifyTest, P5FindsTheOldValueOfAnUpdatedState) {
  Plan plan = TinyPlan();
  plan.programs[0].calls[4].inputs[0] = 1;  // refreshes from "w" after w.next took its place
  ExpectViolation(plan, "P5");
}

TEST(VerifyTest, P5KnowsViews) {
  Plan plan = TinyPlan();
  Program& p = plan.programs[0];
  Tensor view = p.tensors[10];  // of w.next
  ASSERT_EQ(view.name, "w.next");
  view.name = "flat";
  view.desc.dims = {6};
  p.tensors.push_back(view);
  p.calls[4].inputs[0] = static_cast<int32_t>(p.tensors.size()) - 1;
  p.tensors.back().view_of = 10;
  EXPECT_TRUE(VerifyPlan(plan).ok()) << VerifyPlan(plan).ToString();
  p.tensors.back().view_of = 1;
  ExpectViolation(plan, "P5");
}

TEST(VerifyTest, P5KnowsStatesWithSeveralBuffers) {
  // The old value in a buffer of its own, which no call writes: never read after the update.
  Plan plan = TinyPlan();
  Program& p = plan.programs[0];
  p.buffers.push_back(p.buffers[1]);
  p.tensors[10].buffer = static_cast<int32_t>(p.buffers.size()) - 1;
  ASSERT_EQ(p.tensors[10].name, "w.next");
  EXPECT_TRUE(VerifyPlan(plan).ok()) << VerifyPlan(plan).ToString();
  p.calls[0].inputs[1] = 3;  // so that the refresh reads "w" for the first time
  p.calls[0].kernel = "map";
  p.calls[4].inputs[0] = 1;
  p.calls[3].inputs[6] = 7;
  ExpectViolation(plan, "P5");
}

TEST(VerifyTest, P5FindsAViewWhoseBytesChangedBetweenReads) {
  Chain c;
  Tensor view = c.p.tensors[0];
  view.name = "view";
  c.p.tensors.push_back(view);
  c.p.tensors[1].buffer = 0;
  c.p.calls[1].inputs = {3};
  c.p.calls[2].inputs = {3, 1};
  EXPECT_EQ(c.Verify().message().substr(0, 2), "P5");
}

TEST(VerifyTest, P6FindsBuffersThatShareMemoryWhileLive) {
  Plan plan = TinyPlan();
  plan.programs[0].buffers[7].offset = plan.programs[0].buffers[8].offset;  // y and loss
  ExpectViolation(plan, "P6");
  plan = TinyPlan();
  plan.programs[0].buffers[7].offset += 32;
  ExpectViolation(plan, "P6");
  plan = TinyPlan();
  plan.programs[0].block_bytes = 64;
  ExpectViolation(plan, "P6");
  plan = TinyPlan();
  plan.programs[0].buffers[8].last = 2;  // loss is an output
  ExpectViolation(plan, "P6");
  plan = TinyPlan();
  plan.programs[0].buffers[7].last = 0;  // y is read by call 1
  ExpectViolation(plan, "P6");
}

TEST(VerifyTest, TakesLargeFlatBuffersInOneCall) {
  // One kernel over 20,000 gradients that lie in one buffer, in place: near-linear.
  Plan plan;
  ProgramBuilder b(&plan, "step");
  const int32_t flat = b.Block("flat", DType::kFloat32, {20000});
  std::vector<int32_t> in, out;
  for (int32_t i = 0; i < 20000; ++i) {
    for (const char* name : {"g", "u"}) {
      const int32_t t = b.Over(flat, name + std::to_string(i));
      b.program().tensors.back().desc.dims = {1};
      b.program().tensors.back().byte_offset = 4 * i;
      (name[0] == 'g' ? in : out).push_back(t);
    }
  }
  for (const int32_t g : in) b.Call("fill", {{"value", 0.0}}, {}, {g});
  b.Call("unscale_check", {}, in, out);
  for (const int32_t u : out) b.Output("u", u);
  PlanMemory(b.program());
  EXPECT_TRUE(VerifyProgram(plan, b.program()).ok());
}

TEST(TextTest, PrintsACallOnOneLine) {
  const Plan plan = TinyPlan();
  EXPECT_EQ(CallToString(plan, plan.programs[0], 2),
            "call 2: matmul(x float[2,3] feed 'x'+0, dy float[2,2] constant 1+0) -> (dw float[3,2] "
            "block+" +
                std::to_string(plan.programs[0].buffers[9].offset) +
                ") {trans_a=1} of 'grad of /fc/MatMul'");
}

}  // namespace
}  // namespace ampc::plan
