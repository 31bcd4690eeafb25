// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_session.h"

#include "runtime/base/file.h"
#include "runtime/config/yaml.h"
#include "runtime/export_model.h"
#include "runtime/state.h"
#include "runtime/trainer.h"
#include "runtime/trainer_checkpoint.h"
#include "runtime/trainer_inspect.h"
#include "runtime/trainer_settings.h"
#include "runtime/trainer_weights.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace ampc {
namespace {

constexpr std::string_view kOutputFlags[] = {"log", "fetch-out", "export-model", "save-weights",
                                             "profile"};

constexpr int64_t kProfileWarmUp = 3;
constexpr int kExitNumeric = static_cast<int>(ErrorClass::kNumeric);

class Session {
 public:
  Session(Settings settings, const SessionIo& io) : settings_(std::move(settings)), io_(io) {}

  Result<int> Run();

 private:
  // In this order.
  Status ReadPlan();
  Status CheckOutputs();
  Status CheckApart() const;
  Status CheckSource(const std::string& target) const;
  Status CheckNeeds(std::string_view flag, bool has, std::string_view what) const;
  Status OpenData();
  Status ChooseSteps();
  Status PrepareDevice();
  Status RestoreStates();
  Status OpenOutputs();
  Status Train();
  Status WriteOutputs();

  Status WriteProfile();
  Status WriteRunLine();
  Status WriteDoneLine();
  Status SaveAt(int64_t step);
  TrainerPosition PositionAt(int64_t step) const;
  std::optional<double> ScaleNow();
  void NoteChanges(const LoadedCheckpoint& checkpoint);
  void NoteInterrupt();

  template <typename... Args>
  void Note(fmt::format_string<Args...> f, Args&&... args) {
    if (settings_.Switch("quiet")) return;
    std::string text = fmt::format(f, std::forward<Args>(args)...);
    std::fprintf(io_.notes, "%s\n", text.c_str());
  }
  /// What must be told with --quiet too.
  void Warn(const std::string& text) { std::fprintf(io_.notes, "%s\n", text.c_str()); }
  void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), io_.out); }

  Settings settings_;
  SessionIo io_;
  std::string path_;
  plan::Plan plan_;
  Programs programs_;
  std::vector<SettingValue> overrides_;
  ArrayLoader loader_;
  FeedSet train_feeds_, eval_feeds_;
  std::unique_ptr<Dataset> train_data_, eval_data_;
  std::optional<CheckpointFolder> folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<JsonlLog> log_;
  std::unique_ptr<Fetcher> fetcher_;
  std::unique_ptr<Profile> profile_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Trainer> trainer_;
  TrainerOptions options_;
  TrainerPosition position_;  ///< of the checkpoint that was resumed
  bool resumed_ = false;
  std::vector<std::pair<std::string, std::string>> effective_;  ///< settings of this run
  std::vector<std::pair<std::string, std::string>> compiled_;   ///< what else a resume compares
  RunResult result_;
};

Result<int> Session::Run() {
  AMPC_TRY(ReadPlan());
  if (settings_.Switch("info")) {
    Print(PlanInfoText(plan_, path_));
    if (!settings_.Switch("print-config")) return 0;
  }
  if (settings_.Switch("print-config")) {
    Print(ConfigText(settings_) + (plan_.config.empty() ? "" : "# compiled in\n" + plan_.config));
    return 0;
  }
  if (settings_.Switch("dump")) {
    AMPC_TRY(PrepareDevice());
    Print(PlanDumpText(plan_, executor_.get()));
    return 0;
  }
  AMPC_TRY(CheckOutputs());
  AMPC_TRY(OpenData());
  AMPC_TRY(ChooseSteps());
  AMPC_TRY(PrepareDevice());
  AMPC_TRY(RestoreStates());
  AMPC_TRY(OpenOutputs());
  AMPC_TRY(Train());
  AMPC_TRY(WriteOutputs());
  Print(ClosingLine(result_) + '\n');
  if (!result_.stopped.empty()) return kExitNumeric;
  return result_.signal == 0 ? 0 : 128 + result_.signal;
}

Status Session::ReadPlan() {
  path_ = settings_.positional();
  if (path_.empty())
    return UsageError("E0609", "which plan? amprun PLAN [flags]; see amprun --help");
  AMPC_ASSIGN(plan_, plan::ReadPlan(path_));
  AMPC_ASSIGN(ConfigValue recipe, ParseYaml(plan_.recipe, fmt::format("{} (recipe)", path_)));
  AMPC_TRY(MergeRecipe(settings_, recipe, DirName(path_), fmt::format("{} (recipe)", path_)));
  AMPC_ASSIGN(programs_, Programs::Of(plan_));
  AMPC_ASSIGN(overrides_, SettingOverrides(plan_, settings_));
  return {};
}

Status Session::CheckOutputs() {
  for (std::string_view flag : {"epochs", "checkpoint-dir"}) {
    if (!programs_.trains() && settings_.origin(flag) == Origin::kFlag)
      return UsageError("E0973", "--{}: the plan only evaluates; there is nothing to train", flag);
  }
  for (std::string_view flag : kOutputFlags) {
    if (std::string file = settings_.Text(flag); !file.empty()) AMPC_TRY(CheckWritable(flag, file));
  }
  AMPC_TRY(CheckApart());
  AMPC_TRY(CheckSource(settings_.Text("export-model")));
  std::string dir = settings_.Text("checkpoint-dir");
  bool resume = settings_.Switch("resume");
  if (dir.empty() && resume) return UsageError("E0973", "--resume needs --checkpoint-dir DIR");
  AMPC_TRY(CheckNeeds("checkpoint-every", !dir.empty(), "--checkpoint-dir DIR"));
  AMPC_TRY(CheckNeeds("keep", !dir.empty(), "--checkpoint-dir DIR"));
  AMPC_TRY(CheckNeeds("log-every", !settings_.Text("log").empty(), "--log FILE.jsonl"));
  if (dir.empty()) return {};
  AMPC_ASSIGN(const bool used, IsUsedFolder(dir));
  if (!resume && used)
    return UsageError(
        "E0973", "--checkpoint-dir: '{}' is not empty; go on with --resume, or give another folder",
        dir);
  AMPC_ASSIGN(CheckpointFolder folder, CheckpointFolder::Open(dir));
  folder_.emplace(std::move(folder));
  if (!folder_->locked())
    Note("'{}' is on a file system without locks: keep other runs away from it", dir);
  return {};
}

/// An output that takes the place of another, or of a file that is read, would lose it.
Status Session::CheckApart() const {
  FilePlaces places;
  places.Add(path_, "the plan");
  for (std::string_view flag : {"data", "eval-data", "init-from"}) {
    for (const Option& option : settings_.All(flag)) {
      if (!option.head.empty()) places.Add(option.head, fmt::format("a file of --{}", flag));
      if (option.Given("vocab"))
        places.Add(option.Text("vocab"), fmt::format("a file of --{}", flag));
    }
  }
  for (std::string_view flag : kOutputFlags) {
    const std::string file = settings_.Text(flag);
    if (file.empty()) continue;
    if (const std::string_view what = places.Find(file); !what.empty())
      return UsageError("E0973", "--{}: '{}' is {}", flag, file, what);
    places.Add(file, fmt::format("the file of --{}", flag));
  }
  return {};
}

/// The model that the plan was compiled from would be gone: a file of its name, older than the
/// plan.
Status Session::CheckSource(const std::string& target) const {
  namespace fs = std::filesystem;
  std::error_code error;
  if (target.empty() || fs::path(target).filename() != plan_.source_name) return {};
  const auto written = fs::last_write_time(target, error);
  if (error || written > fs::last_write_time(path_, error) || error) return {};
  return UsageError("E0973",
                    "--export-model: '{}' has the name of the model that the plan was compiled "
                    "from and is older than the plan; give another name",
                    target);
}

/// A flag that would have no effect is refused. In a recipe it may wait for its partner.
Status Session::CheckNeeds(std::string_view flag, bool has, std::string_view what) const {
  if (has || settings_.origin(flag) != Origin::kFlag) return {};
  return UsageError("E0973", "--{} needs {}", flag, what);
}

Status Session::OpenData() {
  if (programs_.trains()) {
    train_feeds_ = FeedsOf(plan_, plan_.programs[static_cast<size_t>(programs_.micro())]);
    bool evaluate_only = settings_.Int("steps") == 0 && settings_.Given("steps");
    if (!evaluate_only) {
      AMPC_ASSIGN(train_data_, OpenTrainingData(plan_, train_feeds_, settings_, loader_));
    }
  }
  const auto note_vocabularies = [this](const Dataset& data) {
    for (const std::string& vocabulary : data.vocabularies()) Note("vocabulary: {}", vocabulary);
  };
  if (train_data_ != nullptr) note_vocabularies(*train_data_);
  bool evaluates = train_data_ == nullptr || HasEvalData(settings_);
  for (std::string_view flag : {"eval-data", "eval-range", "eval-every", "eval-steps"}) {
    AMPC_TRY(CheckNeeds(flag, programs_.eval >= 0, "a plan with an eval program"));
    AMPC_TRY(CheckNeeds(flag, evaluates, "--eval-data NAME=FILE or --eval-range a:b"));
  }
  if (programs_.eval < 0 || !evaluates) return {};
  const plan::Program& eval = plan_.programs[static_cast<size_t>(programs_.eval)];
  eval_feeds_ = FeedsOf(plan_, eval);
  bool pad = eval_feeds_.valid >= 0 || FindSums(eval).empty();
  AMPC_ASSIGN(eval_data_, OpenEvalData(plan_, eval_feeds_, settings_, pad, loader_));
  if (train_data_ == nullptr) note_vocabularies(*eval_data_);
  if (!programs_.trains() && FindSums(eval).empty() && !settings_.Given("fetch"))
    Note("the plan has no loss and no metric: --fetch GLOB --fetch-out FILE.npz keeps its outputs");
  if (eval_data_->dropped_samples() > 0)
    Note("evaluation: the last {} samples are left out, since this loss cannot be masked",
         eval_data_->dropped_samples());
  return {};
}

Status Session::ChooseSteps() {
  options_.eval_every = settings_.Int("eval-every").value_or(0);
  options_.checkpoint_every = settings_.Int("checkpoint-every").value_or(0);
  options_.log_every = settings_.Int("log-every").value_or(1);
  options_.notes = settings_.Switch("quiet") ? nullptr : io_.notes;
  options_.terminal = io_.terminal;
  options_.interrupt = io_.interrupt;
  options_.max_skips = plan_.max_skips;
  const Option* scale = settings_.Find("loss-scale");
  if (settings_.origin("loss-scale") == Origin::kFlag && scale->Given("max_skips"))
    options_.max_skips = scale->Int("max_skips");
  if (train_data_ == nullptr) return {};
  if (!train_data_->endless())
    options_.steps_per_epoch = train_data_->num_batches() / plan_.accumulate;
  // The later word counts: a flag over the recipe; at the same place steps over epochs.
  bool by_steps =
      settings_.Given("steps") && settings_.origin("steps") >= settings_.origin("epochs");
  if (!by_steps && options_.steps_per_epoch == 0)
    return UsageError("E0974", "made-up data has no end: give --steps N");
  options_.total_steps = by_steps ? settings_.Int("steps").value_or(0)
                                  : settings_.Int("epochs").value_or(1) * options_.steps_per_epoch;
  if (train_data_->dropped_samples() > 0)
    Note("training: {} of {} samples per epoch are left out, less than one update of {}",
         train_data_->dropped_samples(), train_data_->num_samples(),
         train_data_->batch() * plan_.accumulate);
  return {};
}

Status Session::PrepareDevice() {
  DeviceOptions options;
  options.threads = static_cast<int>(settings_.Int("threads").value_or(DefaultThreads()));
  options.deterministic = settings_.Switch("deterministic");
  options.reference_only = settings_.Switch("reference") || plan_.precision == "fp64";
  AMPC_ASSIGN(device_, OpenDevice(settings_.Text("device"), options));
  AMPC_ASSIGN(executor_, Executor::Prepare(plan_, *device_));
  if (settings_.Switch("dump")) return {};
  const MemoryReport& m = executor_->memory();
  Note("{}", device_->Describe());
  Note("memory: states {}, feeds {}, constants {}, block {}, private {}, workspace {}; {} in all",
       FormatBytes(m.states), FormatBytes(m.feeds), FormatBytes(m.constants), FormatBytes(m.block),
       FormatBytes(m.private_), FormatBytes(m.workspace), FormatBytes(m.total()));
  if (plan_.precision == "bf16" && !device_->multiplies_bf16())
    Note("warning: this CPU has no bf16 instructions; fp32 is likely to be faster");
  if (settings_.Switch("verbose")) {
    for (const Dataset* data : {train_data_.get(), eval_data_.get()}) {
      if (data == nullptr) continue;
      Note("{}: {} samples, batches of {}", data == eval_data_.get() ? "evaluation" : "training",
           data->num_samples(), data->batch());
      for (const std::string& line : data->description()) Note("  {}", line);
    }
  }
  return {};
}

Status Session::RestoreStates() {
  std::string dir = settings_.Text("checkpoint-dir");
  std::optional<LoadedCheckpoint> checkpoint;
  if (settings_.Switch("resume")) {
    std::vector<std::string> notes;
    AMPC_ASSIGN(checkpoint, LoadLatestCheckpoint(dir, &notes));
    for (const std::string& note : notes) Warn(note);
    if (!checkpoint) Note("nothing to resume in '{}': a fresh start", dir);
  }
  if (const Option* init = settings_.Find("init-from"); init != nullptr && checkpoint) {
    Note("--init-from '{}' is not read: the checkpoint has the weights", init->head);
  } else if (init != nullptr) {
    std::vector<std::string> notes;
    AMPC_TRY(InitWeights(plan_, *executor_, init->head, init->Bool("strict"), &notes));
    for (const std::string& note : notes) Note("{}", note);
  }
  if (checkpoint) {
    AMPC_TRY(RestoreCheckpoint(*checkpoint, plan_, *executor_));
    auto position = TrainerPosition::Parse(checkpoint->position);
    if (!position.ok()) return std::move(position).TakeStatus().Of(checkpoint->path);
    if (position->step != checkpoint->step) {
      return BadInput("E0972", "the checkpoint contradicts itself: step {} and step {}",
                      checkpoint->step, position->step)
          .Of(checkpoint->path);
    }
    position_ = std::move(position).value();
    resumed_ = true;
    options_.first_step = position_.step;
  }
  AMPC_TRY(ApplySettings(plan_, *executor_, overrides_, options_.total_steps, resumed_));
  AMPC_TRY(SeedRandomStates(plan_, *executor_, settings_.Int("seed").value_or(0)));
  AMPC_ASSIGN(std::vector<SettingValue> values, EffectiveSettings(plan_, *executor_));
  char buffer[40];
  for (const SettingValue& v : values)
    effective_.emplace_back(v.name, FormatNumber(v.value, buffer));
  effective_.emplace_back("seed", fmt::format("{}", settings_.Int("seed").value_or(0)));
  effective_.emplace_back("shuffle", settings_.Switch("no-shuffle") ? "false" : "true");
  const std::string range = settings_.Text("range");
  effective_.emplace_back("range", range.empty() ? "all" : range);
  effective_.emplace_back("threads", fmt::format("{}", device_->prepare_options().threads));
  effective_.emplace_back("device", device_->name());
  compiled_ = {{"precision", plan_.precision},
               {"policy", plan_.policy_name},
               {"accumulate", fmt::format("{}", plan_.accumulate)}};
  if (train_data_ != nullptr)
    compiled_.emplace_back("batch", fmt::format("{}", train_data_->batch()));
  if (resumed_) NoteChanges(*checkpoint);
  return {};
}

/// After a resume: all that is not as it was in the earlier run.
void Session::NoteChanges(const LoadedCheckpoint& checkpoint) {
  Note("resumed after step {}", position_.step);
  for (const std::string& line : DifferentSettings(position_, PositionAt(position_.step)))
    Note("  {}", line);
  if (checkpoint.plan_fingerprint != plan::Fingerprint(plan_)) Note("  the plan has changed since");
  if (train_data_ != nullptr && checkpoint.data_fingerprint != train_data_->fingerprint())
    Note("  the training data has changed since");
  for (const SettingValue& v : overrides_) {
    if (!IsRunSetting(plan_, v.name))
      Note("  {} counts at the start of a training only; the checkpoint's value goes on", v.name);
  }
  if (train_data_ != nullptr && position_.step > options_.total_steps)
    Note("  the run of {} steps is over already", options_.total_steps);
}

Status Session::OpenOutputs() {
  std::set<int> runs;
  // Also when a resumed run has no step left: then their values have no rows.
  if (train_data_ != nullptr) runs.insert({programs_.micro(), programs_.update()});
  if (eval_data_ != nullptr) runs.insert(programs_.eval);
  AMPC_ASSIGN(fetcher_, Fetcher::Create(plan_, *executor_, settings_, runs));
  if (settings_.Given("profile"))
    profile_ = std::make_unique<Profile>(plan_, *executor_, kProfileWarmUp);
  if (eval_data_ != nullptr) {
    // Where there is nothing to train, --steps says how many batches of made-up data are run.
    int64_t batches = settings_.Int("eval-steps").value_or(0);
    if (batches == 0 && !programs_.trains() && eval_data_->endless())
      batches = settings_.Int("steps").value_or(0);
    evaluator_ = std::make_unique<Evaluator>(plan_, *executor_, programs_.eval, eval_feeds_,
                                             *eval_data_, batches, fetcher_.get(), profile_.get());
  }
  // Last: a run that is refused leaves the log as it was.
  std::string log = settings_.Text("log");
  if (log.empty()) return {};
  AMPC_ASSIGN(log_, resumed_ ? JsonlLog::Resume(log, position_.step) : JsonlLog::Create(log));
  return WriteRunLine();
}

Status Session::Train() {
  Trainer::Parts parts;
  parts.plan = &plan_;
  parts.executor = executor_.get();
  parts.programs = programs_;
  parts.data = train_data_.get();
  parts.feeds = train_feeds_;
  parts.evaluator = evaluator_.get();
  parts.log = log_.get();
  parts.fetcher = fetcher_.get();
  parts.profile = profile_.get();
  if (!settings_.Text("checkpoint-dir").empty())
    parts.save = [this](int64_t step) { return SaveAt(step); };
  trainer_ = std::make_unique<Trainer>(std::move(parts), options_);
  if (resumed_)
    trainer_->Resume(position_.applied, position_.evaluated,
                     position_.has_first_loss ? std::optional(position_.first_loss) : std::nullopt);
  AMPC_TRY(trainer_->Run());
  result_ = trainer_->result();
  result_.scale = ScaleNow();
  if (result_.signal != 0) NoteInterrupt();
  if (result_.stopped.empty()) return {};
  AMPC_TRY(trainer_->ExplainStop());
  result_.stopped = trainer_->result().stopped;
  return {};
}

void Session::NoteInterrupt() {
  std::string dir = settings_.Text("checkpoint-dir");
  bool exports = !settings_.Text("export-model").empty() || !settings_.Text("save-weights").empty();
  Note("interrupted by signal {} after step {}{}{}", result_.signal, result_.steps,
       dir.empty() ? "" : "; --resume goes on from there",
       exports ? "; the model is not written" : "");
}

TrainerPosition Session::PositionAt(int64_t step) const {
  TrainerPosition p;
  p.step = step;
  p.settings = effective_;
  p.settings.insert(p.settings.end(), compiled_.begin(), compiled_.end());
  if (trainer_ == nullptr) return p;
  const RunResult& r = trainer_->result();
  p.applied = r.applied;
  p.evaluated = r.evaluated;
  p.has_first_loss = r.first_loss.has_value();
  p.first_loss = r.first_loss.value_or(0);
  return p;
}

Status Session::SaveAt(int64_t step) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.position = PositionAt(step).ToText();
  checkpoint.plan_fingerprint = plan::Fingerprint(plan_);
  checkpoint.data_fingerprint = train_data_ == nullptr ? 0 : train_data_->fingerprint();
  return SaveCheckpoint(settings_.Text("checkpoint-dir"), checkpoint, plan_, *executor_,
                        static_cast<int>(settings_.Int("keep").value_or(1)));
}

/// The loss scale after the last step.
std::optional<double> Session::ScaleNow() {
  const plan::Setting* setting = FindSetting(plan_, kScaleSetting);
  if (setting == nullptr) return std::nullopt;
  const plan::State& state = plan_.states[static_cast<size_t>(setting->state)];
  HostTensor scalar{
      state.desc.dtype, {}, std::vector<std::byte>(static_cast<size_t>(state.desc.bytes()))};
  if (state.desc.elements() != 1 || !executor_->ReadState(setting->state, scalar.data).ok())
    return std::nullopt;
  return scalar.GetDouble(0);
}

Status Session::WriteOutputs() {
  // What took the training to make comes first, and an output that fails does not keep the others
  // from being written.
  Status first;
  const auto write = [&](Status status) {
    if (status.ok()) return;
    if (first.ok()) {
      first = std::move(status);
    } else {
      Warn(status.ToString());
    }
  };
  bool finished = result_.signal == 0 && result_.stopped.empty();
  std::string weights = settings_.Text("save-weights"), model = settings_.Text("export-model");
  if (finished && !weights.empty()) write(SaveWeights(plan_, *executor_, weights));
  if (finished && !model.empty()) write(ExportModel(plan_, *executor_, model));
  if (fetcher_ != nullptr) write(fetcher_->Finish());
  if (profile_ != nullptr) write(WriteProfile());
  if (log_ != nullptr) {
    Status done = first.ok() ? WriteDoneLine() : Status();
    write(done.ok() ? log_->Close() : std::move(done));
  }
  return first;
}

Status Session::WriteProfile() {
  std::string path = settings_.Text("profile");
  if (path.empty()) {
    Print(profile_->ToText());
    return {};
  }
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  AMPC_TRY(file.Append(profile_->ToJson()));
  return file.Commit();
}

Status Session::WriteRunLine() {
  JsonLine line;
  line.Begin();
  line.BeginObject("run");
  line.Add("version", std::string_view(VersionText(Tool::kAmprun)));
  line.Add("plan", std::string_view(path_));
  line.Add("plan_hash", std::string_view(fmt::format("{:016x}", plan::Fingerprint(plan_))));
  line.Add("producer", std::string_view(plan_.producer));
  line.Add("model", std::string_view(plan_.source_name));
  line.Add("precision", std::string_view(plan_.precision));
  line.Add("policy", std::string_view(plan_.policy_name));
  line.Add("policy_hash", std::string_view(fmt::format("{:016x}", plan_.policy_hash)));
  line.Add("device", std::string_view(device_->Describe()));
  line.Add("accumulate", plan_.accumulate);
  line.Add("total_steps", options_.total_steps);
  if (train_data_ != nullptr) {
    line.Add("batch", train_data_->batch());
    line.Add("samples", train_data_->num_samples());
    line.Add("data_hash", std::string_view(fmt::format("{:08x}", train_data_->fingerprint())));
  }
  if (eval_data_ != nullptr) line.Add("evaluation_samples", eval_data_->num_samples());
  line.Add("planned_bytes", executor_->memory().total());
  if (resumed_) line.Add("resumed_after", position_.step);
  line.BeginObject("settings");
  for (const auto& [name, text] : effective_) {
    if (std::optional<double> number = ParseNumber(text)) {
      line.Add(name, *number);
    } else {
      line.Add(name, std::string_view(text));
    }
  }
  line.EndObject();
  line.EndObject();
  return log_->Write(line.Finish());
}

Status Session::WriteDoneLine() {
  JsonLine line;
  line.Begin();
  line.BeginObject("done");
  line.Add("steps", result_.steps);
  line.Add("applied", result_.applied);
  line.Add("skipped", result_.skipped);
  if (result_.scale) line.Add("scale", *result_.scale);
  if (result_.first_loss) line.Add("first_loss", *result_.first_loss);
  if (result_.last_loss) line.Add("loss", *result_.last_loss);
  for (const auto& [name, value] : result_.eval) line.Add(name, value);
  line.AddFixed("seconds", result_.seconds, 3);
  line.Add("peak_bytes", result_.peak_bytes);
  line.Add("planned_bytes", executor_->memory().total());
  if (!result_.stopped.empty()) line.Add("stopped", std::string_view(result_.stopped));
  if (result_.signal != 0) line.Add("signal", int64_t{result_.signal});
  line.EndObject();
  return log_->Write(line.Finish());
}

}  // namespace

int DefaultThreads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    std::string_view first(text);
    std::optional<int64_t> threads = ParseInt(first.substr(0, first.find(',')));
    if (threads && *threads >= 1 && *threads <= 4096) return static_cast<int>(*threads);
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Result<int> RunSession(Settings settings, const SessionIo& io) {
  return Session(std::move(settings), io).Run();
}

}  // namespace ampc
