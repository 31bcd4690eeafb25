// SPDX-License-Identifier: Apache-2.0
#pragma once
// RunPass of the pipeline: every pass goes through PassManager::Run, which skips disabled passes,
// times, counts nodes, verifies the module, prints it on request, and stops after the pass that the
// user named.
//
//   PassManager passes(options);
//   AMPC_TRY(passes.CheckNames());
//   AMPC_TRY(passes.After("import", module));      // a step that is no pass: verified, printed,
//   may be the last AMPC_TRY(passes.Run("autocast", module, ctx)); if (passes.stopped()) … //
//   --stop-after: later calls do nothing
//
// A module that breaks an invariant after a pass is our bug: E7010 with the pass, and how to see it
// happen.

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "passes/passes.h"

namespace ampc {

#ifdef NDEBUG
inline constexpr bool kVerifyByDefault = false;
#else
inline constexpr bool kVerifyByDefault = true;
#endif

/// The compiler-debugging flags.
struct PassRunOptions {
  std::vector<std::string> print_after;  ///< passes, or "all"
  bool print_changed = false;  ///< print after each pass that changed the text of the module
  std::string stop_after;      ///< "" = run all
  std::vector<std::string> disable;
  bool time_passes = false;
  bool verify_each = kVerifyByDefault;  ///< else only where the caller asks (Check)
};

class PassManager {
 public:
  /// Printed modules go to `out` (the tools: stderr).
  PassManager(PassRunOptions options, std::ostream& out);

  /// A usage error (E0301) for a name in the options that is no pass; names the nearest one.
  Status CheckNames() const;

  /// Runs one pass. An unknown name is a usage error, too.
  Status Run(std::string_view pass, ir::Module& module, PassContext& context);
  /// What Run does after a pass, for a step that isn't one ("import"), which took `seconds`.
  Status After(std::string_view step, ir::Module& module, double seconds = 0);
  /// Verifies, whatever the options: after import and before lowering.
  Status Check(std::string_view step, const ir::Module& module) const;

  /// True once the pass of --stop-after has run.
  bool stopped() const { return stopped_; }
  /// The table of --time-passes: pass, ms, nodes before and after, µs per node.
  std::string Summary() const;

 private:
  struct Row {
    std::string name;
    double seconds = 0;
    int64_t before = 0, after = 0;
  };
  Status Finish(std::string_view step, const ir::Module& module);

  PassRunOptions options_;
  std::ostream& out_;
  std::vector<Row> rows_;
  std::string last_;  ///< the step before, for "how to reproduce"
  std::string text_;  ///< of the module after it (--print-changed)
  bool stopped_ = false;
};

/// --list-passes: name and summary, a line each, in the order of the pipeline.
std::string PassList();

}  // namespace ampc
