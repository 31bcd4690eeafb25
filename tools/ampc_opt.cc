// SPDX-License-Identifier: Apache-2.0
// ampc-opt: runs passes on a module in text form and prints the module.
//
//   ampc-opt --passes=clean-casts,cse [settings as for ampc] IN.onnxtext [-o OUT]
//
// IN is a module (compiler/ir/text.h) or a plain ONNX text model, which is imported first; .onnx
// files work, too.
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>

#include <fmt/format.h>

#include "compiler/diagnostics.h"
#include "compiler/ir/text.h"
#include "compiler/lower/evaluate.h"
#include "compiler/onnx/import.h"
#include "compiler/pass_manager.h"
#include "runtime/base/glob.h"
#include "runtime/base/file.h"
#include "runtime/config/settings.h"
#include "tools/compile_options.h"

namespace ampc {
namespace {

constexpr int64_t kMaxText = int64_t{1} << 31;

std::vector<std::string> SplitNames(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

Result<std::unique_ptr<ir::Module>> Read(const std::string& path, const CompileOptions& options,
                                         Diagnostics& diagnostics) {
  if (!path.ends_with(".onnx")) {
    AMPC_ASSIGN(const std::string text, ReadFile(path, kMaxText));
    if (ir::IsModuleText(text)) return ir::ParseModule(text, path);
  }
  AMPC_ASSIGN(ImportedModel imported, ImportModel(path, options, diagnostics, EvaluateNode));
  return std::move(imported.module);
}

Status Write(const std::string& path, std::string_view text) {
  if (path.empty()) {
    std::cout << text << std::flush;
    return std::cout ? Status() : IoError("E0502", "cannot write to standard output");
  }
  AMPC_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  AMPC_TRY(file.Append(text));
  return file.Commit();
}

Status RunPasses(const Settings& settings, const CompileOptions& options, PassManager& passes,
                 Diagnostics& diagnostics) {
  AMPC_TRY(passes.CheckNames());
  AMPC_ASSIGN(const std::unique_ptr<ir::Module> module,
              Read(settings.positional(), options, diagnostics));
  AMPC_TRY(passes.Check("import", *module));
  AMPC_TRY(passes.After("import", *module));
  PassContext context{options, diagnostics, EvaluateNode};
  std::string last = "import";
  for (const std::string& pass : SplitNames(settings.Text("passes"))) {
    AMPC_TRY(passes.Run(pass, *module, context));
    if (!passes.stopped()) last = pass;
  }
  AMPC_TRY(passes.Check(last, *module));
  AMPC_ASSIGN(const std::string text, ir::PrintModule(*module));
  return Write(settings.Text("output"), text);
}

void Report(const Settings& settings, const PassManager& passes, const Diagnostics& diagnostics) {
  if (!settings.Switch("quiet")) {
    for (const std::string& note : diagnostics.notes()) std::cerr << "note: " << note << "\n";
  }
  const std::string glob = settings.Text("explain");
  for (const Remark& remark : diagnostics.remarks()) {
    if (glob.empty() || GlobMatches(glob, remark.node))
      std::cerr << remark.node << ": " << remark.topic << ": " << remark.text << "\n";
  }
  if (settings.Switch("time-passes")) std::cerr << passes.Summary();
}

Status Main(int argc, const char* const* argv) {
  AMPC_ASSIGN(const Settings settings, ParseCommandLine(Tool::kAmpcOpt, argc, argv));
  if (settings.Switch("help")) return Write("", HelpText(Tool::kAmpcOpt));
  if (settings.Switch("version")) return Write("", VersionText(Tool::kAmpcOpt) + "\n");
  if (settings.Switch("list-passes")) return Write("", PassList());
  if (settings.positional().empty()) {
    return UsageError("E0609", "no input file; see ampc-opt --help");
  }
  AMPC_ASSIGN(const CompileOptions options, CompileOptionsFrom(settings));
  Diagnostics diagnostics;
  diagnostics.explaining = settings.Given("explain");
  PassManager passes(PassRunOptionsFrom(settings), std::cerr);
  Status status = RunPasses(settings, options, passes, diagnostics);
  Report(settings, passes, diagnostics);
  return status;
}

}  // namespace
}  // namespace ampc

int main(int argc, char** argv) {
  try {
    const ampc::Status status = ampc::Main(argc, argv);
    if (status.ok()) return 0;
    std::fprintf(stderr, "%s%s\n", status.file().empty() ? "ampc-opt: " : "",
                 status.ToString().c_str());
    return status.exit_code();
  } catch (const std::bad_alloc&) {
    std::fputs("ampc-opt: error[E0701]: out of memory\n", stderr);
    return static_cast<int>(ampc::ErrorClass::kDevice);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ampc-opt: error[E9999]: internal error: %s\n", e.what());
    return static_cast<int>(ampc::ErrorClass::kInternal);
  }
}
