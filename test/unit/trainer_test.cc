// SPDX-License-Identifier: Apache-2.0
// Whole runs of a hand-built plan: y = x w, trained to a smaller mean of y, with a finite check,
// counters and an eval program that counts every sample once.
#include "runtime/trainer_session.h"

#include "runtime/data/array.h"
#include "runtime/data/npz.h"
#include "runtime/metrics.h"
#include "runtime/state.h"
#include "runtime/trainer_diagnose.h"
#include "runtime/trainer_inspect.h"
#include "runtime/trainer_profile.h"
#include "runtime/trainer_settings.h"
#include "test/unit/count_allocations.h"
#include "test/unit/temp_dir.h"
#include "test/unit/trainer_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <map>
#include <sstream>

namespace ampc {
namespace {

using plan::Plan;
using trainer_test::MakePlan;

class TrainerTest : public TempDirTest {
 protected:
  void SetUp() override {
    TempDirTest::SetUp();
    WriteFile(MakePlan());
    std::vector<float> x;
    for (int i = 0; i < 21; ++i) x.push_back(static_cast<float>(i % 5) - 1.5F);
    WriteData("x.npz", x);
  }
  void WriteFile(const Plan& plan) {
    Status status = plan::WritePlan(plan, Path("p.plan"));
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void WriteData(const std::string& name, const std::vector<float>& x) {
    auto npz = NpzWriter::Create(Path(name));
    ASSERT_TRUE(npz.ok());
    const int64_t dims[] = {static_cast<int64_t>(x.size()) / 3, 3};
    ASSERT_TRUE(npz->AddWhole("x", DType::kFloat32, dims, std::as_bytes(std::span(x))).ok());
    ASSERT_TRUE(npz->Commit().ok());
  }

  /// Runs amprun's session with `flags` (space separated, @ = the folder); -1000 - class on an
  /// error.
  int Run(const std::string& flags, const volatile std::sig_atomic_t* interrupt = nullptr) {
    std::vector<std::string> words = {"amprun", Path("p.plan")};
    std::istringstream in(flags);
    for (std::string word; in >> word;) {
      if (size_t at = word.find('@'); at != std::string::npos) word.replace(at, 1, dir_);
      words.push_back(word);
    }
    std::vector<const char*> argv;
    for (const std::string& w : words) argv.push_back(w.c_str());
    Result<Settings> settings =
        ParseCommandLine(Tool::kAmprun, static_cast<int>(argv.size()), argv.data());
    error_ = settings.ok() ? "" : settings.status().ToString();
    if (!settings.ok()) return -settings.status().exit_code();
    char *out = nullptr, *notes = nullptr;
    size_t out_size = 0, notes_size = 0;
    SessionIo io{open_memstream(&out, &out_size), open_memstream(&notes, &notes_size), false,
                 interrupt};
    Result<int> code = RunSession(std::move(settings).value(), io);
    fclose(io.out);
    fclose(io.notes);
    out_.assign(out, out_size);
    notes_.assign(notes, notes_size);
    free(out);
    free(notes);
    if (!code.ok()) error_ = code.status().ToString();
    return code.ok() ? *code : -code.status().exit_code();
  }

  /// Lines of a log that hold `key`, without times.
  std::vector<std::string> Lines(const std::string& log, const std::string& key) {
    std::vector<std::string> lines;
    std::istringstream in(Get(log));
    for (std::string line; std::getline(in, line);) {
      if (line.find("\"" + key + "\":") == std::string::npos) continue;
      for (const char* cut : {",\"ms\":", ",\"time\":"}) line = line.substr(0, line.find(cut));
      lines.push_back(line);
    }
    return lines;
  }
  Array Member(const std::string& file, const std::string& member) {
    ArrayLoader loader;
    Result<Array> array = loader.Load(Path(file), member);
    EXPECT_TRUE(array.ok()) << array.status().ToString();
    return array.ok() ? *array : Array{};
  }

  std::string out_, notes_, error_;
};

TEST_F(TrainerTest, TrainsAnEpochAndTellsIt) {
  ASSERT_EQ(Run("--data @/x.npz --epochs 2 --no-shuffle --log @/l --device cpu"), 0) << error_;
  std::vector<std::string> steps = Lines("l", "loss");
  ASSERT_EQ(steps.size(), 7u);  // 7 samples, 3 updates of 2 per epoch, and the done line
  // x = [[-1.5,-.5,.5],[1.5,2.5,-1.5]], w = [1,2,3]: y = -1, 2
  EXPECT_EQ(steps[0].find(
                "{\"step\":1,\"epoch\":0,\"loss\":0.5,\"lr\":0.5,\"skipped\":false,\"applied\":1,"),
            0u)
      << steps[0];
  EXPECT_EQ(steps[3].find("{\"step\":4,\"epoch\":1,"), 0u);
  EXPECT_EQ(Get("l").find("{\"run\":{"), 0u);
  EXPECT_EQ(out_.find("done: 6 steps, 6 applied, loss 0.5 -> "), 0u) << out_;
  EXPECT_NE(notes_.find("1 of 7 samples per epoch are left out"), std::string::npos) << notes_;
}

TEST_F(TrainerTest, EvaluationCountsEverySampleOnce) {
  ASSERT_EQ(Run("--data @/x.npz --steps 0 --log @/l"), 0) << error_;
  // The mean of y over the 7 samples with w = 1,2,3, computed here.
  double sum = 0;
  for (int i = 0; i < 21; ++i) sum += (i % 5 - 1.5) * (i % 3 + 1);
  std::vector<std::string> lines = Lines("l", "eval_samples");
  ASSERT_EQ(lines.size(), 1u);
  char buffer[40];
  EXPECT_NE(lines[0].find(
                fmt::format("\"eval_loss\":{},\"eval_samples\":7", FormatNumber(sum / 7, buffer))),
            std::string::npos)
      << lines[0] << sum / 7;
  EXPECT_EQ(out_.find("done: evaluated, eval_loss "), 0u) << out_;
}

TEST_F(TrainerTest, EvaluatesAfterEachEpochAndAtTheEnd) {
  ASSERT_EQ(Run("--data @/x.npz --steps 7 --eval-range 0:3 --log @/l"), 0) << error_;
  std::vector<std::string> lines = Lines("l", "eval_samples");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].find("{\"step\":3,\"epoch\":0,"), 0u);
  EXPECT_EQ(lines[2].find("{\"step\":7,\"epoch\":2,"), 0u);
  ASSERT_EQ(
      Run("--data @/x.npz --steps 6 --eval-every 2 --eval-steps 1 --eval-range 0:3 --log @/l"), 0)
      << error_;
  lines = Lines("l", "eval_samples");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[2].find("\"eval_samples\":2"), std::string::npos);
}

TEST_F(TrainerTest, ResumedRunRepeatsTheUnbrokenOne) {
  const std::string data = "--data @/x.npz --seed 7 ";
  ASSERT_EQ(Run(data + "--steps 11 --log @/a --checkpoint-dir @/ca --save-weights @/a.st"), 0)
      << error_;
  ASSERT_EQ(Run(data + "--steps 5 --log @/b --checkpoint-dir @/cb"), 0) << error_;
  ASSERT_EQ(Run(data + "--steps 11 --log @/b --checkpoint-dir @/cb --resume --save-weights @/b.st"),
            0)
      << error_;
  EXPECT_NE(notes_.find("resumed after step 5"), std::string::npos);
  EXPECT_EQ(Lines("a", "grad_norm"), Lines("b", "grad_norm"));
  EXPECT_EQ(Lines("b", "run").size(), 2u);
  EXPECT_EQ(Lines("b", "done").size(), 1u);
  EXPECT_EQ(Get("a.st"), Get("b.st"));
  // Steps after the checkpoint are cut from the log when the run goes on from there.
  ASSERT_EQ(Run(data + "--steps 6 --log @/b --checkpoint-dir @/cb --resume --lr 0.25"), 0)
      << error_;
  EXPECT_NE(notes_.find("lr: 0.5 then, 0.25 now"), std::string::npos) << notes_;
}

TEST_F(TrainerTest, UsedCheckpointFolderNeedsResume) {
  ASSERT_EQ(Run("--data @/x.npz --resume --checkpoint-dir @/c"), 0) << error_;
  EXPECT_NE(notes_.find("nothing to resume"), std::string::npos);
  EXPECT_EQ(Run("--data @/x.npz --checkpoint-dir @/c"), -2);
  EXPECT_NE(error_.find("is not empty"), std::string::npos);
  EXPECT_EQ(Run("--data @/x.npz --resume"), -2);
}

TEST_F(TrainerTest, KeepsTheNewestCheckpoints) {
  ASSERT_EQ(Run("--data @/x.npz --steps 9 --checkpoint-dir @/c --checkpoint-every 2 --keep 2"), 0)
      << error_;
  EXPECT_TRUE(std::filesystem::exists(Path("c/step-000000000009.ckpt")));
  EXPECT_TRUE(std::filesystem::exists(Path("c/step-000000000008.ckpt")));
  EXPECT_FALSE(std::filesystem::exists(Path("c/step-000000000006.ckpt")));
}

TEST_F(TrainerTest, StopsAfterConsecutiveSkipsAndSaysWhy) {
  std::vector<float> x(18, 1);
  x[6] = x[12] = std::numeric_limits<float>::infinity();
  WriteData("bad.npz", x);
  // Samples 0 and 1 are good, 2 and 4 are not: updates 2 and 3 of each epoch are skipped.
  const std::string run = "--data @/bad.npz --no-shuffle --log @/l --checkpoint-dir @/c";
  ASSERT_EQ(Run(run + " --steps 50 --range 2:6"), 4) << error_;
  EXPECT_EQ(
      out_.find(
          "stopped: step 3, 3 consecutive updates were skipped because gradients are not finite"),
      0u)
      << out_;
  EXPECT_EQ(notes_.find("the update is skipped"), notes_.rfind("the update is skipped"))
      << "told once";
  EXPECT_NE(notes_.find("step 1: gradients are not finite"), std::string::npos) << notes_;
  EXPECT_NE(out_.find("first, feed 'x' has inf"), std::string::npos) << out_;
  std::vector<std::string> lines = Lines("l", "skipped");
  EXPECT_NE(lines[2].find("\"skipped\":true,\"applied\":0"), std::string::npos) << lines[2];
  EXPECT_NE(Lines("l", "done")[0].find("\"stopped\":\"3 consecutive"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(Path("c/step-000000000003.ckpt")));
  std::filesystem::remove_all(Path("c"));
  ASSERT_EQ(Run(run + " --steps 50"), 0) << "two skips are not three: " << error_;
  EXPECT_EQ(out_.find("done: 50 steps, 17 applied"), 0u) << out_;
  std::filesystem::remove_all(Path("c"));
  ASSERT_EQ(Run(run + " --steps 8 --range 2:6 --loss-scale auto:max_skips=0"), 0) << error_;
}

TEST(FindFirstNonFinite, NamesTheNodeThatOverflows) {
  Plan plan = MakePlan();
  auto device = std::move(OpenDevice("cpu", {.threads = 1, .reference_only = true})).value();
  auto executor = std::move(Executor::Prepare(plan, *device)).value();
  EXPECT_EQ(*FindFirstNonFinite(plan, *executor, 0), "");
  std::vector<float> x(6, std::numeric_limits<float>::max());
  std::memcpy(executor->feed(0).data(), x.data(), 24);
  EXPECT_EQ(*FindFirstNonFinite(plan, *executor, 0),
            "'y' of node '/fc/MatMul' (kernel matmul/ref) has inf in 2 of 2 elements");
}

TEST(NonFiniteKind, ReadsEveryFloatType) {
  auto kind = [](DType type, double v) {
    return NonFiniteKind(type, HostTensor::Scalar(type, v).data);
  };
  for (DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_EQ(kind(type, 65000), "");
    EXPECT_EQ(kind(type, -std::numeric_limits<double>::infinity()), "inf");
    EXPECT_EQ(kind(type, std::nan("")), "nan");
  }
  EXPECT_EQ(kind(DType::kFloat16, 1e6), "inf");
  EXPECT_EQ(kind(DType::kInt32, -1), "");
}

TEST_F(TrainerTest, InterruptFinishesTheStepAndSaves) {
  volatile std::sig_atomic_t signal = SIGTERM;
  EXPECT_EQ(Run("--data @/x.npz --steps 9 --checkpoint-dir @/c", &signal), 128 + SIGTERM) << error_;
  EXPECT_EQ(out_.find("done: 0 steps"), 0u) << out_;
  EXPECT_FALSE(std::filesystem::exists(Path("c")));
}

TEST_F(TrainerTest, ResumeMakesUpForAnEvaluationThatAnInterruptPrevented) {
  const std::string flags =
      "--data @/x.npz --eval-range 0:3 --log @/l --checkpoint-dir @/c --steps ";
  ASSERT_EQ(Run(flags + "3 --eval-every 100"), 0)
      << error_;  // evaluates after step 3, since it is the last
  ASSERT_EQ(Run(flags + "9 --resume"), 0) << error_;
  EXPECT_EQ(Lines("l", "eval_samples").size(), 3u) << "steps 3, 6, 9";
  ASSERT_EQ(Run("--data @/x.npz --log @/m --checkpoint-dir @/d --steps 3"), 0) << error_;
  ASSERT_EQ(
      Run("--data @/x.npz --eval-range 0:3 --log @/m --checkpoint-dir @/d --steps 9 --resume"), 0)
      << error_;
  EXPECT_EQ(Lines("m", "eval_samples").size(), 3u) << "step 3 was not evaluated before";
}

TEST_F(TrainerTest, UnwritableOutputsAreFoundBeforeTraining) {
  for (const char* flag :
       {"--log", "--export-model", "--save-weights", "--profile", "--fetch y --fetch-out"}) {
    std::string separator = std::string(flag) == "--profile" ? "=" : " ";
    EXPECT_EQ(Run(std::string("--data @/x.npz ") + flag + separator + "@/no/such/file"), -6)
        << flag;
    EXPECT_EQ(notes_, "") << flag;
  }
}

TEST_F(TrainerTest, FetchesValuesGradientsAndStates) {
  ASSERT_EQ(Run("--data @/x.npz --steps 4 --no-shuffle --eval-range 0:3 --eval-every 4 --fetch y "
                "--fetch grad:* --fetch fc.weight "
                "--fetch x --fetch eval:y --fetch eval:flat:layout=steps --fetch-out @/o.npz"),
            0)
      << error_;
  EXPECT_EQ(Member("o.npz", "y").dims, (Dims{4, 2, 1}));
  EXPECT_EQ(Member("o.npz", "x").dims, (Dims{4, 2, 3}));
  EXPECT_EQ(Member("o.npz", "fc.weight").dims, (Dims{4, 3, 1}));
  EXPECT_EQ(Member("o.npz", "eval:y").dims, (Dims{3, 1}));
  EXPECT_EQ(Member("o.npz", "flat").dims, (Dims{2, 2}));
  Array grad = Member("o.npz", "grad:fc.weight"), weight = Member("o.npz", "fc.weight");
  ASSERT_EQ(grad.dims, (Dims{4, 3, 1}));
  float g[12], w[12];
  std::memcpy(g, grad.data, sizeof g);
  std::memcpy(w, weight.data, sizeof w);
  EXPECT_EQ(w[0], 1 - 0.5F * g[0]);
  EXPECT_EQ(w[3], w[0] - 0.5F * g[3]);
}

TEST_F(TrainerTest, FetchOfAnUnknownValueSuggestsKeep) {
  EXPECT_EQ(Run("--data @/x.npz --steps 1 --fetch nothing_like_it --fetch-out @/o.npz"), -2);
  EXPECT_NE(error_.find("ampc --keep nothing_like_it"), std::string::npos) << error_;
  EXPECT_FALSE(std::filesystem::exists(Path("o.npz")));
}

TEST_F(TrainerTest, SettingsAreOverriddenAndFilled) {
  ASSERT_EQ(Run("--data @/x.npz --steps 5 --lr 1/8 --log @/l"), 0) << error_;
  EXPECT_NE(Lines("l", "grad_norm")[0].find("\"lr\":0.125"), std::string::npos);
  EXPECT_NE(Get("l").find("\"settings\":{\"lr\":0.125,\"lr_schedule.total\":5,"),
            std::string::npos);
  for (const char* flags :
       {"--clip-norm 1", "--optimizer adam", "--optimizer sgd:momentum=0.9", "--loss-scale 8",
        "--lr-schedule constant:warmup=3", "--param-group nothing:lr=1"}) {
    EXPECT_EQ(Run(std::string("--data @/x.npz --steps 1 ") + flags), -2) << flags;
    EXPECT_NE(error_.find("compiled in"), std::string::npos) << error_;
  }
}

TEST_F(TrainerTest, InitialWeightsComeFromSafetensors) {
  ASSERT_EQ(Run("--data @/x.npz --steps 3 --save-weights @/w.st"), 0) << error_;
  ASSERT_EQ(
      Run("--data @/x.npz --steps 0 --init-from @/w.st --fetch y --fetch-out @/a.npz --log @/l"), 0)
      << error_;
  ASSERT_EQ(Run("--data @/x.npz --steps 3 --eval-range : --log @/m"), -2)
      << "an empty range is none";
  ASSERT_EQ(Run("--data @/x.npz --steps 3 --eval-range 0: --log @/m"), 0) << error_;
  EXPECT_EQ(Lines("l", "eval_loss")[0].substr(20), Lines("m", "eval_loss")[0].substr(20));
}

TEST_F(TrainerTest, StepsAllocateNothing) {
  auto allocations = [&](const char* flags) {
    const int64_t before = CountAllocations();
    EXPECT_EQ(Run(flags), 0) << error_;
    return CountAllocations() - before;
  };
  // The reference kernels: what a vendor's library does inside one of its calls is not the loop's.
  const std::string rest = " --reference --log @/l --eval-range 0:3 --eval-every 10";
  allocations(("--data @/x.npz --steps 20" + rest).c_str());
  int64_t few = allocations(("--data @/x.npz --steps 20" + rest).c_str());
  int64_t many = allocations(("--data @/x.npz --steps 920" + rest).c_str());
  EXPECT_LT(many - few, 10) << "over 900 steps and 90 evaluations";
}

TEST_F(TrainerTest, MadeUpDataNeedsSteps) {
  EXPECT_EQ(Run("--data random"), -2);
  EXPECT_NE(error_.find("--steps"), std::string::npos);
  EXPECT_EQ(Run("--data random --steps 3 --profile"), 0) << error_;
  EXPECT_NE(out_.find("profile: no run after"), std::string::npos) << out_;
  EXPECT_EQ(Run("--data x=const:value=1 --steps 9 --profile"), 0) << error_;
  EXPECT_NE(out_.find("matmul/"), std::string::npos) << out_;
  EXPECT_EQ(Run("--data x=random --steps 9 --profile=@/p.json"), 0) << error_;
  EXPECT_NE(Get("p.json").find("\"runs\":6"), std::string::npos) << Get("p.json");
}

TEST_F(TrainerTest, RecipeInThePlanIsRelativeToIt) {
  Plan plan = MakePlan();
  plan.recipe = "data: {x: {file: x.npz}}\nsteps: 2\n";
  WriteFile(plan);
  ASSERT_EQ(Run(""), 0) << error_;
  EXPECT_EQ(out_.find("done: 2 steps"), 0u);
  ASSERT_EQ(Run("--epochs 1"), 0) << error_;
  EXPECT_EQ(out_.find("done: 3 steps"), 0u) << "a flag counts more than the recipe's steps";
  ASSERT_EQ(Run("--print-config"), 0) << error_;
  EXPECT_NE(out_.find("steps: 2"), std::string::npos) << out_;
}

/// The bound that the plan states, computed again from the dump alone.
TEST_F(TrainerTest, DumpGivesTheMemoryBound) {
  ASSERT_EQ(Run("--dump"), 0) << error_;
  std::map<std::string, std::vector<std::array<int64_t, 3>>> buffers;
  std::map<std::string, int64_t> bound, calls;
  std::istringstream in(out_);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> f;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, '\t');) f.push_back(field);
    if (f[0] == "program") {
      calls[f[2]] = std::stoll(f[3]);
      bound[f[2]] = std::stoll(f[5]);
    }
    if (f[0] == "buffer" && f[3] == "block")
      buffers[f[1]].push_back({std::stoll(f[5]), std::stoll(f[7]), std::stoll(f[8])});
    if (f[0] == "call") {
      EXPECT_EQ(f.size(), 8u) << line;
    }
  }
  ASSERT_EQ(bound.size(), 2u);
  for (const auto& [program, stated] : bound) {
    int64_t most = 0;
    for (int64_t c = 0; c <= calls[program]; ++c) {
      int64_t live = 0;
      for (const auto& [bytes, first, last] : buffers[program])
        live += first <= c && c <= last ? bytes : 0;
      most = std::max(most, live);
    }
    EXPECT_EQ(most, stated) << program;
  }
}

TEST_F(TrainerTest, InfoNamesFeedsProgramsAndSettings) {
  ASSERT_EQ(Run("--info"), 0) << error_;
  for (const char* text : {"float [2,3]", "step", "eval", "lr_schedule.total", "auto", "weight"})
    EXPECT_NE(out_.find(text), std::string::npos) << text << out_;
}

TEST(FlopsOf, CountsMatrixProductsAndConvolutions) {
  Plan plan = MakePlan();
  const plan::Program& step = plan.programs[0];
  EXPECT_EQ(FlopsOf(step, step.calls[0]), 2 * 2 * 3);
  EXPECT_EQ(FlopsOf(step, step.calls[2]), 2 * 2 * 3);
  EXPECT_EQ(FlopsOf(step, step.calls[1]), 0);
  EXPECT_EQ(BytesOf(step, step.calls[0]), 4 * (6 + 3 + 2));
}

TEST(FlopsOf, CountsWhatRecurrentLayersAndAttentionMultiply) {
  plan::Program p;
  const auto tensor = [&](Dims dims) {
    p.tensors.push_back({.desc = {DType::kFloat32, std::move(dims)}});
    return static_cast<int32_t>(p.tensors.size() - 1);
  };
  const int32_t x = tensor({7, 2, 3}), w = tensor({1, 20, 3}), r = tensor({1, 20, 5});
  const int32_t dgates = tensor({1, 7, 2, 20});
  EXPECT_EQ(FlopsOf(p, {"rnn", {}, {x, w, r}, {}, ""}), 2 * 7 * 2 * 20 * (3 + 5));
  EXPECT_EQ(FlopsOf(p, {"rnn_bwd", {}, {r}, {dgates}, ""}), 2 * 7 * 2 * 20 * 5);
  const int32_t q = tensor({2, 4, 6, 8}), k = tensor({2, 1, 9, 8}), v = tensor({2, 1, 9, 5});
  EXPECT_EQ(FlopsOf(p, {"attention", {}, {q, k, v}, {}, ""}), 2 * (8 * 6 * 9) * (8 + 5));
  const Attrs causal = {{"causal", int64_t{1}}, {"offset", int64_t{5}}};
  EXPECT_EQ(FlopsOf(p, {"attention_bwd", causal, {q, k, v}, {}, ""}),
            2 * 8 * (6 + 7 + 8 + 9 + 9 + 9) * (3 * 8 + 2 * 5));
}

}  // namespace
}  // namespace ampc
