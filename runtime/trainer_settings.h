// SPDX-License-Identifier: Apache-2.0
#pragma once
// Settings of a plan: named scalars in its states. amprun may override them before the first step;
// those that the compiler left `auto` are filled from the run.
//
// Names in plan.settings: "lr", "clip_norm", "clip_value"; keys of --optimizer as they are
// ("weight_decay"; betas are "beta1" and "beta2"); "lr_schedule.KEY", "loss_scale.KEY";
// "param_group.INDEX.KEY" in the order of --param-group.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/settings.h"
#include "runtime/executor.h"

namespace ampc {

struct SettingValue {
  std::string name;
  double value = 0;
};

/// Its state holds the loss scale: the initial one first, then the one that the scaler made of it.
inline constexpr std::string_view kScaleSetting = "loss_scale.init_scale";

/// Null: the plan has no such setting.
const plan::Setting* FindSetting(const plan::Plan& plan, std::string_view name);

/// What the command line overrides (recipe values were compiled in). Errors: Usage E0608 for what
/// is compiled in.
Result<std::vector<SettingValue>> SettingOverrides(const plan::Plan& plan,
                                                   const Settings& settings);

/// False for a setting whose state moves on in the training (the loss scale): a checkpoint has it.
bool IsRunSetting(const plan::Plan& plan, std::string_view name);

/// Writes overrides into the plan's states, and `total_steps` into a schedule whose length is auto.
/// After a resume only hyper states are written: the others (the loss scale) have moved on.
Status ApplySettings(const plan::Plan& plan, Executor& executor,
                     const std::vector<SettingValue>& overrides, int64_t total_steps, bool resumed);

/// Every setting with the value that its state holds now.
Result<std::vector<SettingValue>> EffectiveSettings(const plan::Plan& plan, Executor& executor);

/// Keys the random states (dropout) by --seed.
Status SeedRandomStates(const plan::Plan& plan, Executor& executor, int64_t seed);

}  // namespace ampc
