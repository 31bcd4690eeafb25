// SPDX-License-Identifier: Apache-2.0
// ampc: model to plan. Parses flags and prints; everything else is the compiler's.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>

#include "compiler/compiler.h"
#include "compiler/ir/text.h"
#include "compiler/onnx/export_step.h"
#include "compiler/onnx/info.h"
#include "compiler/policy.h"
#include "runtime/base/glob.h"
#include "runtime/base/file.h"
#include "runtime/base/printable.h"
#include "runtime/plan/text.h"
#include "tools/compile_options.h"

namespace ampc {
namespace {

/// -o never takes the place of what is read.
Status CheckOutput(const Settings& settings, const std::string& model) {
  const std::string output = settings.Text("output");
  FilePlaces places;
  places.Add(model, "the model itself");
  if (!settings.Text("artifacts").empty()) {
    for (std::string_view part : {"training_model.onnx", "optimizer_model.onnx"})
      places.Add(JoinPath(model, part), "a part of the artifacts");
    places.Add(settings.Text("init-from"), "the file of --init-from");
  }
  for (std::string_view flag : {"recipe", "policy"}) {
    if (const std::string file = settings.Text(flag); !file.empty())
      places.Add(file, fmt::format("the file of --{}", flag));
  }
  for (const Option& loss : settings.All("loss")) {
    for (std::string_view key : {"weight", "pos_weight"})
      if (loss.Has(key)) places.Add(loss.Text(key), fmt::format("the {} of --loss", key));
  }
  const std::string_view what = output.empty() ? std::string_view() : places.Find(output);
  if (what.empty()) return {};
  return UsageError("E0609", "-o {} is {}, which would be lost", output, what);
}

Status WriteText(const std::string& path, const std::string& text) {
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  AMPC_TRY(file.Append(text));
  return file.Commit();
}

Status PrintExplanation(const Diagnostics& diagnostics, const std::string& glob) {
  bool any = false;
  for (const Remark& r : diagnostics.remarks()) {
    if (!glob.empty() && !GlobMatches(glob, r.node)) continue;
    any = true;
    std::printf("%-10s %-40s %s\n", r.topic.c_str(), r.node.c_str(), r.text.c_str());
  }
  if (any || glob.empty()) return {};
  return UsageError("E0306", "--explain={}: no node or parameter has such a name", glob);
}

// What the artifacts bring along can't be asked for, too.
Status CheckArtifacts(const Settings& settings) {
  const bool given = !settings.Text("artifacts").empty();
  const Option* weights = settings.Find("init-from");
  if (!given) {
    if (weights == nullptr) return {};
    return UsageError("E0609", "--init-from goes with --artifacts here; give it to amprun");
  }
  if (!settings.positional().empty() || settings.Given("model")) {
    return UsageError(
        "E0609", "--artifacts has a model of its own: '{}' is one too many",
        settings.positional().empty() ? settings.Text("model") : settings.positional());
  }
  for (std::string_view flag : {"loss", "metric", "optimizer", "trainable", "freeze", "untie"}) {
    if (settings.Given(flag))
      return UsageError("E0609", "--{} with --artifacts: the artifacts say it themselves", flag);
  }
  for (std::string_view flag : {"forward-only", "info"}) {
    if (settings.Switch(flag))
      return UsageError("E0609", "--{} with --artifacts: give it the model itself", flag);
  }
  if (weights == nullptr) {
    return UsageError("E0609",
                      "--artifacts needs the initial weights: --init-from FILE.onnx (its "
                      "checkpoint file is not read)");
  }
  return {};
}

// A full disk behind a redirected standard output, above all.
Status FlushOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return IoError("E0502", "cannot write to standard output");
}

std::string Mib(int64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / 1048576.0);
}

// A plan that only evaluates has low precision only where it was asked for.
bool EvaluatesInFp32(const CompileOptions& options) {
  return options.forward_only && !options.eval_same && IsLow(LowType(options.precision));
}

// To or from 16 bits; the optimizer's scalars become single precision in every plan.
bool IsCast(const plan::Program& p, const plan::Call& call) {
  if (call.kernel != "map" || call.params.String("expr") != "x0") return false;
  const auto low = [&p](int32_t t) { return IsLow(p.tensors[static_cast<size_t>(t)].desc.dtype); };
  return low(call.inputs[0]) || low(call.outputs[0]);
}

std::string PrecisionName(const Settings& settings, const CompileOptions& options) {
  return EvaluatesInFp32(options) ? "fp32" : settings.Text("precision");
}

// Loss, optimizer, rate: what trains it, the defaults included.
void PrintTraining(const Settings& settings, const CompileOptions& options) {
  std::vector<std::string> losses;
  for (const Option& loss : settings.All("loss")) losses.push_back(loss.ToString());
  std::printf("loss        %s\n", losses.empty()
                                      ? "the model's own"
                                      : fmt::format("{}", fmt::join(losses, " + ")).c_str());
  if (!options.artifacts.empty() || losses.empty()) return;  // the model says how it is updated
  std::printf("update      %s, lr %s, schedule %s", settings.Find("optimizer")->ToString().c_str(),
              settings.Text("lr").c_str(), settings.Find("lr-schedule")->ToString().c_str());
  if (options.accumulate > 1)
    std::printf(", %lld micro-batches each", static_cast<long long>(options.accumulate));
  for (const char* flag : {"clip-norm", "clip-value"}) {
    if (settings.Given(flag)) std::printf(", %s %s", flag, settings.Text(flag).c_str());
  }
  std::printf("\n");
}

// What was compiled, in a few lines.
void PrintSummary(const Compiled& c, const Settings& settings, const CompileOptions& options) {
  int64_t trained = 0, elements = 0;
  for (const ir::StateVar& s : c.module->states) {
    if (s.trainable) {
      ++trained;
      elements += c.module->types.Get(s.type).elements();
    }
  }
  std::printf("model       %s\n", c.plan.source_name.c_str());
  if (!options.forward_only)
    std::printf("parameters  %lld tensors, %lld elements\n", static_cast<long long>(trained),
                static_cast<long long>(elements));
  if (!options.forward_only) PrintTraining(settings, options);
  std::printf("precision   %s, policy %s\n", PrecisionName(settings, options).c_str(),
              options.policy.name.c_str());
  for (const plan::Program& p : c.plan.programs) {
    int64_t casts = 0;
    for (const plan::Call& call : p.calls) casts += IsCast(p, call) ? 1 : 0;
    const double over =
        p.bound_bytes > 0
            ? 100.0 * (static_cast<double>(p.block_bytes) / static_cast<double>(p.bound_bytes) - 1)
            : 0;
    std::printf("program     %-6s %4zu calls, %lld casts, block %s (bound %s, +%.2f %%)\n",
                p.name.c_str(), p.calls.size(), static_cast<long long>(casts),
                Mib(p.block_bytes).c_str(), Mib(p.bound_bytes).c_str(), over);
  }
}

Status FillPlan(const Settings& settings, const CompileOptions& options, const std::string& output,
                plan::Plan& plan) {
  plan.producer = VersionText(Tool::kAmpc);
  plan.precision = PrecisionName(settings, options);
  plan.policy_name = options.policy.name;
  plan.policy_text = PolicyText(options.policy);
  plan.policy_hash = PolicyHash(options.policy);
  plan.config = ConfigText(settings);
  plan.recipe = RecipeText(settings, DirName(output));
  return {};
}

Status WriteStep(const Settings& settings, const CompileOptions& options,
                 const Compiled& compiled) {
  const StepOptions step{.native = settings.Find("emit")->Bool("native"),
                         .accumulate = options.accumulate,
                         .producer = VersionText(Tool::kAmpc),
                         .precision = settings.Text("precision"),
                         .policy = options.policy.name};
  AMPC_ASSIGN(const std::vector<StepFile> files,
              ExportStep(*compiled.module, step, settings.Text("output")));
  if (settings.Switch("quiet")) return {};
  for (const StepFile& file : files) {
    std::printf("step        %s: %lld nodes, %lld functions, %lld states\n", file.path.c_str(),
                static_cast<long long>(file.nodes), static_cast<long long>(file.functions),
                static_cast<long long>(file.states));
  }
  return {};
}

Status Write(const Settings& settings, const CompileOptions& options, bool stopped,
             Compiled& compiled) {
  const std::string output = settings.Text("output"), emit = settings.Text("emit");
  if (emit == "step" && !stopped) return WriteStep(settings, options, compiled);
  if (emit == "text" || stopped) {
    AMPC_ASSIGN(const std::string text, ir::PrintModule(*compiled.module));
    if (!output.empty()) return WriteText(output, text);
    std::fputs(text.c_str(), stdout);
    return {};
  }
  if (emit == "schedule") {
    std::string text;
    for (const plan::Program& p : compiled.plan.programs)
      text += plan::ProgramToString(compiled.plan, p);
    if (!output.empty()) return WriteText(output, text);
    std::fputs(text.c_str(), stdout);
    return {};
  }
  if (output.empty()) return {};
  AMPC_TRY(FillPlan(settings, options, output, compiled.plan));
  return plan::WritePlan(compiled.plan, output);
}

Status Run(const Settings& settings) {
  if (settings.Switch("list-passes")) {
    for (const PassInfo& p : AllPasses())
      std::printf("%-16s %s\n", std::string(p.name).c_str(), std::string(p.summary).c_str());
    return {};
  }
  AMPC_ASSIGN(const CompileOptions options, CompileOptionsFrom(settings));
  if (settings.Switch("print-config")) {
    std::fputs(ConfigText(settings).c_str(), stdout);
    return {};
  }
  if (settings.Switch("print-policy")) {
    std::fputs(PolicyText(options.policy).c_str(), stdout);
    return {};
  }
  AMPC_TRY(CheckArtifacts(settings));
  const std::string model = !settings.Text("artifacts").empty() ? settings.Text("artifacts")
                            : settings.positional().empty()     ? settings.Text("model")
                                                                : settings.positional();
  if (model.empty()) return UsageError("E0609", "no model given: ampc MODEL.onnx [-o train.plan]");
  const Goal goal = settings.Text("emit") == "step" ? Goal::kStep : Goal::kPlan;
  if (goal == Goal::kStep && settings.Text("output").empty())
    return UsageError("E0609", "--emit step writes a binary file: give -o STEP.onnx");
  if (EvaluatesInFp32(options) && settings.origin("precision") == Origin::kFlag &&
      !settings.Switch("quiet"))
    std::fprintf(stderr,
                 "note: --forward-only evaluates in fp32; --eval-precision same has casts\n");
  AMPC_TRY(CheckOutput(settings, model));
  Diagnostics diagnostics;
  diagnostics.explaining = settings.Given("explain") || settings.Switch("verbose");
  if (settings.Switch("info")) {
    AMPC_ASSIGN(const ModelInfo info, ReadModelInfo(model, options, diagnostics));
    std::fputs(FormatModelInfo(info).c_str(), stdout);
    return {};
  }
  PassManager passes(PassRunOptionsFrom(settings), std::cerr);
  auto compiled = Compile(model, options, passes, diagnostics, goal);
  if (!settings.Switch("quiet")) {
    for (const std::string& note : diagnostics.notes())
      std::fprintf(stderr, "%s: note: %s\n", model.c_str(), Printable(note).c_str());
  }
  if (settings.Switch("time-passes")) std::fputs(passes.Summary().c_str(), stderr);
  if (!compiled.ok()) return std::move(compiled).TakeStatus().Of(model);
  if (diagnostics.explaining) AMPC_TRY(PrintExplanation(diagnostics, settings.Text("explain")));
  AMPC_TRY(Write(settings, options, passes.stopped(), *compiled));
  if (compiled->lowered && settings.Text("emit") == "plan" && !settings.Switch("quiet"))
    PrintSummary(*compiled, settings, options);
  return {};
}

int Main(int argc, char** argv) {
  auto settings = ParseCommandLine(Tool::kAmpc, argc, argv);
  Status status;
  if (!settings.ok()) {
    status = std::move(settings).TakeStatus();
  } else if (settings->Switch("help")) {
    std::fputs(HelpText(Tool::kAmpc).c_str(), stdout);
  } else if (settings->Switch("version")) {
    std::printf("%s\n", VersionText(Tool::kAmpc).c_str());
  } else {
    status = Run(*settings);
  }
  if (status.ok()) status = FlushOutput();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.exit_code();
}

}  // namespace
}  // namespace ampc

int main(int argc, char** argv) {
  // The one place where an exception that a library let through ends: out of memory, above all.
  try {
    return ampc::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error[E0701]: out of memory\n");
    return static_cast<int>(ampc::ErrorClass::kDevice);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error[E9999]: internal error: %s\n", e.what());
    return static_cast<int>(ampc::ErrorClass::kInternal);
  }
}
