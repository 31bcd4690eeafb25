// SPDX-License-Identifier: Apache-2.0
// JSONL lines, log files that are cut back, tables.
#include "runtime/metrics.h"

#include "test/unit/count_allocations.h"
#include "test/unit/temp_dir.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <limits>

namespace ampc {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string Number(double v) {
  char buffer[40];
  return std::string(FormatNumber(v, buffer));
}

TEST(FormatNumber, IsTheShortestTextThatReadsBackEqual) {
  EXPECT_EQ(Number(0.1f), "0.1");
  EXPECT_EQ(Number(0.1), "0.1");
  EXPECT_EQ(Number(65536), "65536");
  EXPECT_EQ(Number(1073741824), "1073741824");
  EXPECT_EQ(Number(-3), "-3");
  EXPECT_EQ(Number(-0.0), "-0");
  EXPECT_EQ(std::stod(Number(1.0 / 3)), 1.0 / 3);
  EXPECT_EQ(std::stof(Number(2.3025851f)), 2.3025851f);
  EXPECT_EQ(Number(1e300), "1e+300");
  EXPECT_EQ(Number(kInf), "inf");
  EXPECT_EQ(Number(-kInf), "-inf");
  EXPECT_EQ(Number(std::nan("")), "nan");
}

TEST(JsonLine, WritesEveryKindOfValue) {
  JsonLine line;
  for (int i = 0; i < 2; ++i) {
    line.Begin();
    line.Add("step", int64_t{1});
    line.Add("loss", 2.5);
    line.Add("skipped", false);
    line.Add("name", std::string_view("a\"b\\c\n\x01"));
    line.AddFixed("ms", 3.14159, 2);
    line.BeginObject("more");
    line.Add("scale", kInf);
    line.Add("x", std::nan(""));
    line.EndObject();
    line.Add("last", int64_t{-7});
    EXPECT_EQ(
        line.Finish(),
        "{\"step\":1,\"loss\":2.5,\"skipped\":false,\"name\":\"a\\\"b\\\\c\\n\\u0001\",\"ms\":3.14,"
        "\"more\":{\"scale\":\"inf\",\"x\":\"nan\"},\"last\":-7}\n");
  }
}

TEST(JsonLine, DoesNotAllocate) {
  JsonLine line;
  const int64_t before = CountAllocations();
  for (int i = 0; i < 100; ++i) {
    line.Begin();
    line.Add("loss", 1.0 / (i + 1));
    line.Add("step", int64_t{i});
    line.AddFixed("time", 1e10 + i, 3);
    line.Finish();
  }
  EXPECT_EQ(CountAllocations(), before);
}

constexpr std::string_view kLog =
    "{\"run\":{}}\n"
    "{\"step\":1,\"loss\":1}\n"
    "{\"step\":2,\"loss\":2}\n"
    "{\"step\":2,\"eval_loss\":2}\n"
    "{\"step\":10,\"loss\":3}\n"
    "{\"done\":{}}\n";

TEST(KeptLogBytes, CutsAtLaterStepsDoneAndTornLines) {
  auto kept = [](std::string_view log, int64_t step) {
    return std::string(log.substr(0, static_cast<size_t>(KeptLogBytes(log, step))));
  };
  EXPECT_EQ(kept(kLog, 2), kLog.substr(0, kLog.find("{\"step\":10")));
  EXPECT_EQ(kept(kLog, 1), kLog.substr(0, kLog.find("{\"step\":2")));
  EXPECT_EQ(kept(kLog, 10), kLog.substr(0, kLog.find("{\"done\"")));
  EXPECT_EQ(kept("{\"run\":{}}\n{\"step\":1,\"lo", 5), "{\"run\":{}}\n");
  EXPECT_EQ(kept("something else\n", 5), "");
  const std::string twice = "{\"run\":{}}\n{\"step\":1}\n{\"run\":{\"resumed_after\":1}}\n";
  EXPECT_EQ(kept(twice + "{\"step\":2}\n", 2), twice + "{\"step\":2}\n");
  EXPECT_EQ(kept(twice + "{\"step\":2}\n", 1), "{\"run\":{}}\n{\"step\":1}\n")
      << "a run whose steps are all cut off leaves no line";
}

class LogFile : public TempDirTest {};

TEST_F(LogFile, IsCutBackAndContinued) {
  std::string path = Put("l.jsonl", kLog);
  Result<std::unique_ptr<JsonlLog>> log = JsonlLog::Resume(path, 2);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Write("{\"step\":3}\n").ok());
  ASSERT_TRUE((*log)->Close().ok());
  EXPECT_EQ(Get("l.jsonl"),
            std::string(kLog.substr(0, kLog.find("{\"step\":10"))) + "{\"step\":3}\n");
}

TEST_F(LogFile, NewOneReplacesTheOld) {
  std::string path = Put("l.jsonl", kLog);
  Result<std::unique_ptr<JsonlLog>> log = JsonlLog::Create(path);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Write("x\n").ok());
  log->reset();
  EXPECT_EQ(Get("l.jsonl"), "x\n");
}

TEST_F(LogFile, TheOldOneStaysUntilTheFirstLineIsWritten) {
  std::string path = Put("l.jsonl", "old\n");
  {
    Result<std::unique_ptr<JsonlLog>> log = JsonlLog::Create(path);
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(Get("l.jsonl"), "old\n");
    ASSERT_TRUE((*log)->Write("{\"run\":{}}\n").ok());
    EXPECT_EQ(Get("l.jsonl"), "{\"run\":{}}\n") << "without waiting";
    ASSERT_TRUE((*log)->Write("{\"step\":1}\n").ok());
  }
  EXPECT_EQ(Get("l.jsonl"), "{\"run\":{}}\n{\"step\":1}\n") << "also when the run fails";
  EXPECT_EQ(Listing(), std::vector<std::string>{"l.jsonl"});
}

TEST_F(LogFile, AFullDiskCutsOffTheTornLine) {
  std::string path = Path("l.jsonl");
  const std::string line = "{\"step\":" + std::string(90, '1') + "}\n";
  Result<std::unique_ptr<JsonlLog>> log = JsonlLog::Create(path);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Write(line).ok());
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {line.size() * 3 + 20, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  Status status;
  for (int i = 0; i < 6 && status.ok(); ++i) status = (*log)->Write(line);
  if (status.ok()) status = (*log)->Flush();
  const Status after = (*log)->Write(line);
  const Status closed = (*log)->Close();
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(status.exit_code(), 6);
  EXPECT_EQ(status.file(), path);
  EXPECT_NE(status.message().find("File too large"), std::string::npos) << status.message();
  EXPECT_FALSE(closed.ok()) << "an error is not forgotten";
  EXPECT_EQ(Get("l.jsonl"), line + line + line);
}

TEST_F(LogFile, AResumeRefusesAFileThatIsNoLog) {
  std::string path = Put("l.jsonl", "my notes\n");
  Result<std::unique_ptr<JsonlLog>> log = JsonlLog::Resume(path, 3);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().file(), path);
  EXPECT_EQ(Get("l.jsonl"), "my notes\n");
  Put("l.jsonl", "");
  EXPECT_TRUE(JsonlLog::Resume(path, 3).ok());
}

TEST_F(LogFile, UnwritablePlacesAreIoErrors) {
  Result<std::unique_ptr<JsonlLog>> log = JsonlLog::Create(Path("no/such/l.jsonl"));
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().exit_code(), 6);
  Result<std::unique_ptr<JsonlLog>> full = JsonlLog::Create("/dev/full");
  ASSERT_TRUE(full.ok());
  ASSERT_TRUE((*full)->Write("x\n").ok());
  EXPECT_EQ((*full)->Close().exit_code(), 6);
}

TEST(Table, AlignsNumbersRightAndTextLeft) {
  Table table({"name", "n"});
  table.Add({"a", "1"});
  table.Add({"long name", "100"});
  EXPECT_EQ(table.ToString(), "name       n\na            1\nlong name  100\n");
}

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{5} << 30), "5.0 GiB");
}

}  // namespace
}  // namespace ampc
