// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass_manager.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <ostream>

#include <fmt/format.h>

#include "compiler/ir/text.h"
#include "compiler/ir/verify.h"
#include "runtime/base/suggest.h"

namespace ampc {
namespace {

// Steps that are no passes and that the flags may name.
constexpr std::string_view kSteps[] = {"import"};

int64_t CountNodes(const ir::Module& module) {
  int64_t count = 0;
  for (const ir::Graph* graph : module.graphs()) count += graph->num_live_nodes();
  return count;
}

Status UnknownPass(std::string_view name) {
  std::vector<std::string_view> names(std::begin(kSteps), std::end(kSteps));
  for (const PassInfo& pass : AllPasses()) names.push_back(pass.name);
  const std::string nearest = Suggest(name, names);
  return UsageError("E0301", "unknown pass '{}'{}", name,
                    nearest.empty() ? "; --list-passes shows them" : nearest);
}

bool Listed(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsStep(std::string_view name) {
  return FindPass(name) != nullptr ||
         std::find(std::begin(kSteps), std::end(kSteps), name) != std::end(kSteps);
}

}  // namespace

PassManager::PassManager(PassRunOptions options, std::ostream& out)
    : options_(std::move(options)), out_(out) {}

Status PassManager::CheckNames() const {
  for (const std::string& name : options_.print_after) {
    if (name != "all" && !IsStep(name)) return UnknownPass(name);
  }
  for (const std::string& name : options_.disable) {
    if (FindPass(name) == nullptr) return UnknownPass(name);
  }
  if (!options_.stop_after.empty() && !IsStep(options_.stop_after)) {
    return UnknownPass(options_.stop_after);
  }
  return {};
}

Status PassManager::Run(std::string_view pass, ir::Module& module, PassContext& context) {
  if (stopped_) return {};
  const PassInfo* info = FindPass(pass);
  if (info == nullptr) return UnknownPass(pass);
  // A disabled pass can still be the last one: --stop-after means the place in the line.
  if (Listed(options_.disable, pass)) {
    stopped_ = pass == options_.stop_after;
    return {};
  }
  if (options_.print_changed && text_.empty()) {
    AMPC_ASSIGN(text_, ir::PrintModule(module));
  }
  Row row{.name = std::string(pass), .before = CountNodes(module)};
  const auto start = std::chrono::steady_clock::now();
  Status status = info->run(module, context);
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!status.ok()) return std::move(status).In(pass);
  row.after = CountNodes(module);
  rows_.push_back(std::move(row));
  return Finish(pass, module);
}

Status PassManager::After(std::string_view step, ir::Module& module, double seconds) {
  if (stopped_) return {};
  const int64_t nodes = CountNodes(module);
  rows_.push_back({.name = std::string(step), .seconds = seconds, .before = nodes, .after = nodes});
  return Finish(step, module);
}

Status PassManager::Finish(std::string_view step, const ir::Module& module) {
  if (options_.verify_each) AMPC_TRY(Check(step, module));
  last_ = step;
  const bool wanted = Listed(options_.print_after, "all") || Listed(options_.print_after, step);
  if (wanted || options_.print_changed) {
    AMPC_ASSIGN(std::string text, ir::PrintModule(module));
    if (wanted || text != text_) out_ << "# after " << step << "\n" << text;
    if (options_.print_changed) text_ = std::move(text);
  }
  stopped_ = step == options_.stop_after;
  return {};
}

Status PassManager::Check(std::string_view step, const ir::Module& module) const {
  Status status = ir::Verify(module);
  if (status.ok()) return status;
  const std::string_view before = last_.empty() ? "import" : std::string_view(last_);
  return Status::Error(
             status.error_class(), status.id(),
             fmt::format(
                 "{}; this is a bug of ampc; to reproduce: write the module with "
                 "--stop-after {} --emit text and run ampc-opt --verify-each --passes={} on it",
                 status.message(), before, step))
      .At(status.node())
      .In(step);
}

std::string PassManager::Summary() const {
  std::string table =
      fmt::format("{:<16}{:>10}{:>10}{:>10}{:>10}\n", "pass", "ms", "nodes", "after", "us/node");
  const auto line = [&table](const Row& row) {
    const double nodes = static_cast<double>(std::max<int64_t>(1, std::max(row.before, row.after)));
    fmt::format_to(std::back_inserter(table), "{:<16}{:>10.3f}{:>10}{:>10}{:>10.3f}\n", row.name,
                   row.seconds * 1e3, row.before, row.after, row.seconds * 1e6 / nodes);
  };
  Row total{.name = "total"};
  for (const Row& row : rows_) {
    line(row);
    total.seconds += row.seconds;
  }
  if (!rows_.empty()) {
    total.before = rows_.front().before;
    total.after = rows_.back().after;
  }
  line(total);
  return table;
}

std::string PassList() {
  std::string list;
  for (const PassInfo& pass : AllPasses()) {
    list += fmt::format("{:<16}{}\n", pass.name, pass.summary);
  }
  return list;
}

}  // namespace ampc
