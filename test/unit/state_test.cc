// SPDX-License-Identifier: Apache-2.0
// Checkpoints: what is saved comes back bit for bit; what is damaged, half-written or of another
// plan does not.

#include "runtime/state.h"

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/unit/tiny_plan.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;
using plan::Plan;

class StateTest : public testing::Test {
 protected:
  StateTest() {
    folder_ =
        fs::temp_directory_path() / ("state_test." + std::to_string(getpid()) + "." +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    device_ = std::move(OpenDevice("cpu", {.threads = 1, .reference_only = true})).value();
    executor_ = NewExecutor(plan_);
  }
  ~StateTest() override { fs::remove_all(folder_); }

  std::unique_ptr<Executor> NewExecutor(const Plan& plan) {
    auto executor = Executor::Prepare(plan, *device_);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    return std::move(executor).value();
  }
  /// One step of training; w changes.
  void Step() {
    const std::vector<float> x = {1, 2, 3, 4, 5, 6};
    std::memcpy(executor_->feed(0).data(), x.data(), executor_->feed(0).size());
    ASSERT_TRUE(executor_->Run(0).ok());
  }
  std::vector<float> Weights(Executor& e) {
    std::vector<float> w(6);
    EXPECT_TRUE(e.ReadState(0, std::as_writable_bytes(std::span(w))).ok());
    return w;
  }
  Status Save(int64_t step, int keep = 3) {
    return SaveCheckpoint(folder_, {step, "{\"cursor\":" + std::to_string(step) + "}", 7, 9}, plan_,
                          *executor_, keep);
  }
  Result<std::optional<LoadedCheckpoint>> Load() { return LoadLatestCheckpoint(folder_, &notes_); }
  fs::path File(int64_t step) const { return folder_ / fmt::format("step-{:012}.ckpt", step); }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& e : fs::directory_iterator(folder_)) names.push_back(e.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string Contents(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Replace(const fs::path& path, std::string_view bytes) {
    fs::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
  }

  fs::path folder_;
  Plan plan_ = plan::TinyPlan();
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::string> notes_;
};

TEST_F(StateTest, RestoresBitsAndPosition) {
  Step();
  const std::vector<float> trained = Weights(*executor_);
  ASSERT_TRUE(Save(12).ok());
  auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ASSERT_TRUE(loaded->has_value());
  const LoadedCheckpoint& c = **loaded;
  EXPECT_EQ(c.step, 12);
  EXPECT_EQ(c.position, "{\"cursor\":12}");
  EXPECT_EQ(c.plan_fingerprint, 7U);
  EXPECT_EQ(c.data_fingerprint, 9U);
  EXPECT_TRUE(notes_.empty());

  const auto fresh = NewExecutor(plan_);
  EXPECT_NE(Weights(*fresh), trained);
  ASSERT_TRUE(RestoreCheckpoint(c, plan_, *fresh).ok());
  EXPECT_EQ(Weights(*fresh), trained);
  std::vector<std::byte> low(12), low_trained(12);
  EXPECT_TRUE(fresh->ReadState(1, low).ok() && executor_->ReadState(1, low_trained).ok());
  EXPECT_EQ(low, low_trained) << "derived states are rebuilt";
}

TEST_F(StateTest, LeavesSettingsAndDerivedStatesOut) {
  ASSERT_TRUE(Save(1).ok());
  const auto loaded = Load();
  ASSERT_EQ((*loaded)->states.size(), 1U);
  EXPECT_EQ((*loaded)->states[0].name, "w");
}

TEST_F(StateTest, NoFolderAndEmptyFolderMeanNothingToResume) {
  EXPECT_FALSE(Load()->has_value());
  fs::create_directories(folder_);
  EXPECT_FALSE(Load()->has_value());
  std::ofstream(folder_ / "notes.txt") << "mine";
  EXPECT_FALSE(Load()->has_value());
}

TEST_F(StateTest, KeepsTheNewestAndRemovesOlderAndLaterOnes) {
  for (int64_t step = 1; step <= 5; ++step) ASSERT_TRUE(Save(step, 2).ok());
  EXPECT_EQ(Files(),
            (std::vector<std::string>{"step-000000000004.ckpt", "step-000000000005.ckpt"}));
  ASSERT_TRUE(Save(3, 1).ok());  // the run went back to before step 4
  EXPECT_EQ(Files(), (std::vector<std::string>{"step-000000000003.ckpt"}));
}

TEST_F(StateTest, FallsBackFromADamagedFileAndSaysSo) {
  ASSERT_TRUE(Save(1).ok());
  ASSERT_TRUE(Save(2).ok());
  const std::string whole = Contents(File(2));
  for (size_t length = 0; length < whole.size(); length += 7) {
    Replace(File(2), whole.substr(0, length));
    notes_.clear();
    const auto loaded = Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_EQ((*loaded)->step, 1) << length;
    ASSERT_EQ(notes_.size(), 1U);
    EXPECT_NE(notes_[0].find("step-000000000002.ckpt' is damaged: "), std::string::npos)
        << notes_[0];
  }
}

TEST_F(StateTest, NoticesEveryFlippedBitThatMatters) {
  ASSERT_TRUE(Save(1).ok());
  const std::string whole = Contents(File(1));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    Replace(File(1), damaged);
    const auto loaded = Load();
    if (loaded.ok()) {  // zeros between the parts
      EXPECT_EQ(whole[i], '\0') << "byte " << i;
    } else {
      EXPECT_EQ(loaded.status().id(),
                i >= 8 && i < 12 && whole[i] != damaged[i] && damaged[8] != 0 ? "E0653" : "E0652");
    }
  }
}

TEST_F(StateTest, RefusesANewerFormatInsteadOfFallingBack) {
  ASSERT_TRUE(Save(1).ok());
  ASSERT_TRUE(Save(2).ok());
  std::string bytes = Contents(File(2));
  bytes[8] = 2;
  Replace(File(2), bytes);
  EXPECT_EQ(Load().status().id(), "E0653");
  EXPECT_NE(Load().status().message().find("format 2 is newer than format 1"), std::string::npos);
}

TEST_F(StateTest, AllDamagedIsAnErrorNotAFreshStart) {
  ASSERT_TRUE(Save(1).ok());
  Replace(File(1), "");
  EXPECT_EQ(Load().status().id(), "E0652");
  EXPECT_EQ(Load().status().file(), folder_.string());
}

TEST_F(StateTest, OtherPlansAreRefusedWithTheFirstDifference) {
  ASSERT_TRUE(Save(1).ok());
  const auto loaded = Load();
  const auto refusal = [&](const Plan& plan) {
    const auto executor = NewExecutor(plan);
    const std::vector<float> before = Weights(*executor);
    const Status s = RestoreCheckpoint(**loaded, plan, *executor);
    EXPECT_EQ(s.id(), "E0654");
    EXPECT_EQ(Weights(*executor), before);
    return s.message();
  };
  Plan plan = plan_;
  plan.states[0].name = "v";
  EXPECT_NE(refusal(plan).find("state 'v': expected float[3,2], found none"), std::string::npos);
  plan = plan_;
  plan.states[3].role = plan::Role::kScaler;
  EXPECT_NE(refusal(plan).find("state 'zero': expected float[], found none"), std::string::npos);
  plan = plan_;
  plan.programs.clear();
  plan.states[0].desc.dims = {2, 3};
  EXPECT_NE(refusal(plan).find("state 'w': expected float[2,3], found float[3,2]"),
            std::string::npos);
  plan = plan_;
  plan.states[0].role = plan::Role::kHyper;
  EXPECT_NE(refusal(plan).find("state 'w': expected none, found float[3,2]"), std::string::npos);
}

TEST_F(StateTest, FilesOfOthersAreNeitherReadNorRemoved) {
  ASSERT_TRUE(Save(1).ok());
  const std::vector<std::string> others = {"notes.txt", "step-7.ckpt", "step-000000000009.ckpt.bak",
                                           "x.ckpt.tmp.1"};
  for (const std::string& name : others) std::ofstream(folder_ / name) << "mine";
  fs::create_directory(File(8));
  fs::create_directory(folder_ / "step-000000000003.ckpt.d");
  ASSERT_EQ((*Load())->step, 1);
  EXPECT_TRUE(notes_.empty());
  ASSERT_TRUE(Save(2, 1).ok());
  for (const std::string& name : others) EXPECT_EQ(Contents(folder_ / name), "mine") << name;
  EXPECT_TRUE(fs::is_directory(File(8)));
  EXPECT_FALSE(fs::exists(File(1)));
}

TEST_F(StateTest, AFolderBelongsToOneProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto held = CheckpointFolder::Open(folder_);
    const char byte = held.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  const Status refused = CheckpointFolder::Open(folder_).TakeStatus();
  EXPECT_EQ(refused.id(), "E0655");
  EXPECT_EQ(refused.error_class(), ErrorClass::kIo);
  EXPECT_EQ(refused.file(), folder_.string());
  EXPECT_NE(refused.message().find(fmt::format("(process {})", child)), std::string::npos)
      << refused.message();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_TRUE(CheckpointFolder::Open(folder_).ok()) << "a killed run holds no lock";
}

TEST_F(StateTest, AFolderThatWasMadeForNothingGoesAgain) {
  { ASSERT_TRUE(CheckpointFolder::Open(folder_ / "sub").ok()); }
  EXPECT_FALSE(fs::exists(folder_ / "sub"));
  EXPECT_TRUE(fs::exists(folder_)) << "only the last folder";
  {
    const auto folder = CheckpointFolder::Open(folder_ / "sub");
    std::ofstream(folder_ / "sub" / "x") << "x";
  }
  EXPECT_TRUE(fs::exists(folder_ / "sub" / "x"));
  fs::create_directory(folder_ / "empty");
  { ASSERT_TRUE(CheckpointFolder::Open(folder_ / "empty").ok()); }
  EXPECT_TRUE(fs::exists(folder_ / "empty")) << "it was there before";
}

TEST_F(StateTest, WhatIsNoFolderIsRefusedAndALinkToOneIsTaken) {
  fs::create_directories(folder_ / "real");
  std::ofstream(folder_ / "file") << "x";
  fs::create_directory_symlink("real", folder_ / "link");
  fs::create_directory_symlink("nowhere", folder_ / "dangling");
  EXPECT_TRUE(CheckpointFolder::Open(folder_ / "link").ok());
  for (const char* name : {"file", "dangling", "file/sub"}) {
    const Status s = CheckpointFolder::Open(folder_ / name).TakeStatus();
    EXPECT_EQ(s.id(), "E0651") << name;
    EXPECT_EQ(s.exit_code(), 6);
  }
}

TEST_F(StateTest, LargeStatesGoThroughASmallBuffer) {
  // One state of 48 MiB. Neither writing nor reading it back may need room for a second one.
  constexpr int64_t kRows = int64_t{4} << 20, kBytes = kRows * 3 * 4;
  Plan plan = plan_;
  plan.programs.clear();
  plan.states[0].desc.dims = {kRows, 3};
  plan.states[1].desc.dims = {kRows, 3};
  plan.states[0].initial = {};
  plan.states[0].initial.fill = 2;
  const auto executor = NewExecutor(plan);
  const auto peak = [] {
    std::ifstream in("/proc/self/status");
    std::string word;
    while (in >> word && word != "VmHWM:") continue;
    int64_t kib = 0;
    in >> kib;
    return kib * 1024;
  };
  std::vector<std::byte> first(4);
  const int64_t before = peak();
  ASSERT_TRUE(SaveCheckpoint(folder_, {5, "p", 7, 9}, plan, *executor, 1).ok());
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok() && loaded->has_value()) << loaded.status().ToString();
  const float three = 3;
  ASSERT_TRUE(executor->WriteStatePiece(0, kBytes - 4, std::as_bytes(std::span(&three, 1))).ok());
  ASSERT_TRUE(RestoreCheckpoint(**loaded, plan, *executor).ok());
  EXPECT_LT(peak() - before, kBytes / 4);
  float last = 0;
  ASSERT_TRUE(
      executor->ReadStatePiece(0, kBytes - 4, std::as_writable_bytes(std::span(&last, 1))).ok());
  EXPECT_EQ(last, 2);
  EXPECT_FALSE(executor->ReadStatePiece(0, kBytes - 3, first).ok()) << "beyond the end";
}

TEST_F(StateTest, SweepsTemporariesOfDeadProcesses) {
  ASSERT_TRUE(Save(1).ok());
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const fs::path stale = File(2).string() + ".tmp." + std::to_string(child);
  const fs::path live = File(3).string() + ".tmp." + std::to_string(getppid());
  std::ofstream(stale) << "half a checkpoint";
  std::ofstream(live) << "of another process";
  ASSERT_TRUE(Load()->has_value());
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(live));
}

TEST_F(StateTest, SurvivesBeingKilledWhileSaving) {
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t step = 1;; ++step) {
        const std::vector<float> w(6, static_cast<float>(step));
        if (!executor_->WriteState(0, std::as_bytes(std::span(w))).ok() || !Save(step).ok())
          _exit(1);
      }
    }
    usleep(static_cast<useconds_t>(5000 + 3700 * round));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    notes_.clear();
    const auto loaded = Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    EXPECT_TRUE(notes_.empty()) << notes_[0];
    if (!loaded->has_value()) continue;  // killed before the first one
    ASSERT_TRUE(RestoreCheckpoint(**loaded, plan_, *executor_).ok());
    EXPECT_EQ(Weights(*executor_), std::vector<float>(6, static_cast<float>((*loaded)->step)));
    for (const std::string& name : Files()) EXPECT_TRUE(name.ends_with(".ckpt")) << name;
  }
}

TEST_F(StateTest, UnwritableFolderIsAnIoError) {
  const fs::path file = folder_.string() + ".file";
  std::ofstream(file) << "x";
  const Status s = SaveCheckpoint(file / "sub", {}, plan_, *executor_, 1);
  EXPECT_EQ(s.error_class(), ErrorClass::kIo);
  fs::remove(file);
}

}  // namespace
}  // namespace ampc
