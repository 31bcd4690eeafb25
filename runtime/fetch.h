// SPDX-License-Identifier: Apache-2.0
#pragma once
// --fetch: copies values of the programs to a .npz file as the run goes.
//
// A member is named like its value. Training values have one row per update (values of the
// micro-batch program: one per micro-batch); evaluation values are joined along the samples,
// padding left out, when their first axis is the batch, and stacked per batch otherwise or with
// layout=steps. A value is copied right after the call that defines it, before its memory is used
// again. Where train and eval give values of the same name, eval's is called eval:NAME.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/config/settings.h"
#include "runtime/data/npz.h"
#include "runtime/executor.h"

namespace ampc {

class Fetcher {
 public:
  /// Null when nothing is to be fetched. `runs` = the programs (indices) that this run will
  /// execute; a pattern that matches nothing in them is an error.
  static Result<std::unique_ptr<Fetcher>> Create(const plan::Plan& plan, Executor& executor,
                                                 const Settings& settings,
                                                 const std::set<int>& runs);

  /// Whether a run of `program` must be instrumented with hook().
  bool Wants(int program) const {
    auto p = static_cast<size_t>(program);
    return !by_call_[p].empty() || !at_end_[p].empty();
  }
  const CallHook& hook() const { return hook_; }
  /// After a run with the hook: feeds, and the first error of the hook. `samples`: real ones in an
  /// eval batch.
  void BeginRun(int64_t samples) { samples_ = samples; }
  Status EndRun(int program);
  /// After an update: states.
  Status AfterUpdate();
  /// Writes the file.
  Status Finish();

 private:
  struct Member {
    std::string key;
    int program = -1, tensor = -1;  ///< a value, or
    int state = -1;                 ///< a state
    DType dtype = DType::kNone;
    Dims dims;
    bool by_sample = false;
    int array = -1;
    std::vector<std::byte> bytes;  ///< of the last copy
  };
  struct Request;

  Fetcher(const plan::Plan& plan, Executor& executor, NpzWriter writer);
  Status AddRequest(const Option& option, bool steps_layout, const std::set<int>& runs);
  bool AddFromProgram(const Request& request, int program);
  bool AddStates(const Request& request);
  void AddTensor(const Request& request, int program, int tensor, const std::string& name);
  const std::string& NameOf(int program) const {
    return plan_.programs[static_cast<size_t>(program)].name;
  }
  Status Declare();
  void After(int program, int call);
  Status Copy(Member& member);
  Status NoMatch(const Request& request, const std::set<int>& runs) const;

  const plan::Plan& plan_;
  Executor& executor_;
  NpzWriter writer_;
  CallHook hook_;
  std::vector<Member> members_;
  std::vector<std::vector<std::vector<int>>>
      by_call_;                           ///< [program][call] -> members; empty when none
  std::vector<std::vector<int>> at_end_;  ///< [program] -> members that live in feeds or constants
  std::vector<std::vector<int>> defining_;  ///< [program][tensor] -> call, made on first use
  std::vector<int> states_;
  int64_t samples_ = 0;
  Status status_;
};

/// The tensor that holds the unscaled, unclipped gradient of a weight in `program`, or -1.
int FindGradient(const plan::Program& program, const plan::State& weight);

}  // namespace ampc
