// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_settings.h"

#include "runtime/config/yaml.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace ampc {
namespace {

constexpr std::string_view kTotal = "lr_schedule.total";

/// The kind that was compiled in for `key`, from the plan's own record of its settings; "" when it
/// has none.
std::string CompiledKind(const ConfigValue& config, std::string_view key) {
  const ConfigValue* value = config.Find(key);
  if (value == nullptr) return "";
  if (value->is_map()) value = value->Find("kind");
  return value != nullptr && value->is_scalar() ? value->text : "";
}

class OverrideReader {
 public:
  OverrideReader(const plan::Plan& plan, const Settings& settings, ConfigValue config)
      : plan_(plan), settings_(settings), config_(std::move(config)) {}

  Result<std::vector<SettingValue>> Read() {
    AMPC_TRY(Head("lr", "lr"));
    AMPC_TRY(Head("clip-norm", "clip_norm"));
    AMPC_TRY(Head("clip-value", "clip_value"));
    AMPC_TRY(Keys("optimizer", "optimizer", ""));
    AMPC_TRY(Keys("lr-schedule", "lr_schedule", "lr_schedule."));
    AMPC_TRY(LossScale());
    AMPC_TRY(Groups());
    AMPC_TRY(CheckScaleLimits());
    return std::move(values_);
  }

 private:
  bool Overrides(std::string_view flag) const { return settings_.origin(flag) == Origin::kFlag; }

  Status Add(std::string_view flag, const std::string& name, double value) {
    if (FindSetting(plan_, name) == nullptr)
      return UsageError("E0608", "--{}: the plan has no setting '{}': it is compiled in; use ampc",
                        flag, name);
    // Settings are single precision on the device. A limit may be inf: then it is the largest
    // number.
    constexpr double kLargest = std::numeric_limits<float>::max();
    if (name == "loss_scale.max_scale" && value > kLargest) value = kLargest;
    if (!(std::abs(value) <= kLargest))
      return UsageError("E0603", "--{}: {}: expected a finite number (at most {:.6g}), found {}",
                        flag, name, kLargest, value);
    values_.push_back({name, value});
    return {};
  }

  /// What the run will have: the override, or what was compiled in.
  double ValueOf(std::string_view name) const {
    for (const SettingValue& v : values_) {
      if (v.name == name) return v.value;
    }
    const plan::Setting* setting = FindSetting(plan_, name);
    return setting == nullptr ? 0 : plan_.states[static_cast<size_t>(setting->state)].initial.fill;
  }

  /// Each may be right by itself, one from the plan and one from the command line.
  Status CheckScaleLimits() {
    constexpr std::string_view kMin = "loss_scale.min_scale", kMax = "loss_scale.max_scale";
    if (!Overrides("loss-scale") || FindSetting(plan_, kMin) == nullptr ||
        FindSetting(plan_, kMax) == nullptr)
      return {};
    if (ValueOf(kMin) > ValueOf(kMax))
      return UsageError("E0603", "--loss-scale: expected min_scale <= max_scale, found {} and {}",
                        ValueOf(kMin), ValueOf(kMax));
    return {};
  }

  Status Head(std::string_view flag, const std::string& name) {
    if (!Overrides(flag)) return {};
    return Add(flag, name, settings_.Number(flag).value_or(0));
  }

  Status AddKeys(std::string_view flag, const Option& option, const std::string& prefix) {
    for (const auto& [key, value] : option.keys) {
      if (key == "betas") {
        std::vector<double> betas = option.Numbers(key);
        if (betas.size() != 2) return UsageError("E0603", "--{}: betas takes two numbers", flag);
        AMPC_TRY(Add(flag, prefix + "beta1", betas[0]));
        AMPC_TRY(Add(flag, prefix + "beta2", betas[1]));
      } else if (std::optional<double> number = value.Number()) {
        AMPC_TRY(Add(flag, prefix + key, *number));
      } else {
        return UsageError("E0608", "--{}: '{}' is compiled in; use ampc", flag, key);
      }
    }
    return {};
  }

  Status Keys(std::string_view flag, std::string_view config_key, const std::string& prefix) {
    if (!Overrides(flag)) return {};
    const Option& option = *settings_.Find(flag);
    std::string compiled = CompiledKind(config_, config_key);
    if (!compiled.empty() && compiled != option.head)
      return UsageError("E0608", "--{}: '{}' is compiled in, found '{}'; use ampc", flag, compiled,
                        option.head);
    return AddKeys(flag, option, prefix);
  }

  /// max_skips is the run's own; a number replaces the static scale of a plan.
  Status LossScale() {
    if (!Overrides("loss-scale")) return {};
    Option option = *settings_.Find("loss-scale");
    std::erase_if(option.keys, [](const ConfigValue::Entry& e) { return e.first == "max_skips"; });
    std::string compiled = CompiledKind(config_, "loss_scale");
    if (compiled == "auto") compiled = plan_.precision == "fp16" ? "dynamic" : "off";
    bool number = option.HeadNumber().has_value();
    if (number && ParseNumber(compiled))
      return Add("loss-scale", std::string(kScaleSetting), *option.HeadNumber());
    if (option.head != "auto" && !compiled.empty() && option.head != compiled)
      return UsageError("E0608", "--loss-scale: '{}' is compiled in, found '{}'; use ampc",
                        compiled, option.head);
    return AddKeys("loss-scale", option, "loss_scale.");
  }

  /// A group is known by its glob; the plan numbers them in the order in which they were compiled.
  Status Groups() {
    if (!Overrides("param-group")) return {};
    const ConfigValue* groups = config_.Find("param_group");
    for (const Option& option : settings_.All("param-group")) {
      size_t index = 0, count = groups != nullptr ? groups->items.size() : 0;
      for (; index < count; ++index) {
        const ConfigValue& item = groups->items[index];
        const ConfigValue* glob = item.is_map() ? item.Find("glob") : &item;
        if (glob != nullptr && glob->text == option.head) break;
      }
      if (index == count)
        return UsageError("E0608", "--param-group: no group '{}' is compiled in; use ampc",
                          option.head);
      AMPC_TRY(AddKeys("param-group", option, fmt::format("param_group.{}.", index)));
    }
    return {};
  }

  const plan::Plan& plan_;
  const Settings& settings_;
  ConfigValue config_;
  std::vector<SettingValue> values_;
};

Status WriteScalar(const plan::Plan& plan, Executor& executor, int32_t state, double value) {
  const plan::State& s = plan.states[static_cast<size_t>(state)];
  if (s.desc.elements() != 1)
    return InternalError("E0961", "setting state '{}' has {} elements, expected 1", s.name,
                         s.desc.elements());
  HostTensor scalar = HostTensor::Scalar(s.desc.dtype, value);
  return executor.WriteState(state, scalar.data);
}

}  // namespace

const plan::Setting* FindSetting(const plan::Plan& plan, std::string_view name) {
  for (const plan::Setting& setting : plan.settings) {
    if (setting.name == name) return &setting;
  }
  return nullptr;
}

Result<std::vector<SettingValue>> SettingOverrides(const plan::Plan& plan,
                                                   const Settings& settings) {
  AMPC_ASSIGN(ConfigValue config, ParseYaml(plan.config, "settings of the plan"));
  return OverrideReader(plan, settings, std::move(config)).Read();
}

bool IsRunSetting(const plan::Plan& plan, std::string_view name) {
  const plan::Setting* setting = FindSetting(plan, name);
  return setting != nullptr &&
         plan.states[static_cast<size_t>(setting->state)].role == plan::Role::kHyper;
}

Status ApplySettings(const plan::Plan& plan, Executor& executor,
                     const std::vector<SettingValue>& overrides, int64_t total_steps,
                     bool resumed) {
  for (const plan::Setting& setting : plan.settings) {
    const plan::State& state = plan.states[static_cast<size_t>(setting.state)];
    if (resumed && state.role != plan::Role::kHyper) continue;
    auto given = std::find_if(overrides.begin(), overrides.end(),
                              [&](const SettingValue& v) { return v.name == setting.name; });
    double value = 0;
    if (given != overrides.end()) {
      value = given->value;
    } else if (state.initial.kind == plan::Initial::Kind::kAuto) {
      if (setting.name != kTotal)
        return InternalError("E0961", "setting '{}' is auto, but only {} can be filled",
                             setting.name, kTotal);
      value = static_cast<double>(std::max<int64_t>(total_steps, 1));
    } else {
      continue;
    }
    AMPC_TRY(WriteScalar(plan, executor, setting.state, value));
  }
  return {};
}

Result<std::vector<SettingValue>> EffectiveSettings(const plan::Plan& plan, Executor& executor) {
  std::vector<SettingValue> values;
  for (const plan::Setting& setting : plan.settings) {
    const plan::State& state = plan.states[static_cast<size_t>(setting.state)];
    HostTensor scalar{
        state.desc.dtype, {}, std::vector<std::byte>(static_cast<size_t>(state.desc.bytes()))};
    AMPC_TRY(executor.ReadState(setting.state, scalar.data));
    values.push_back({setting.name, scalar.GetDouble(0)});
  }
  return values;
}

Status SeedRandomStates(const plan::Plan& plan, Executor& executor, int64_t seed) {
  for (size_t i = 0; i < plan.states.size(); ++i) {
    const plan::State& state = plan.states[i];
    if (state.role != plan::Role::kRng || state.desc.dtype != DType::kInt64 ||
        state.desc.elements() < 1)
      continue;
    // int64[2] = {seed, index of the micro-batch}: see dropout in kernels/kernels.def.
    std::vector<std::byte> data(static_cast<size_t>(state.desc.bytes()));
    AMPC_TRY(executor.ReadState(static_cast<int>(i), data));
    std::memcpy(data.data(), &seed, sizeof seed);
    AMPC_TRY(executor.WriteState(static_cast<int>(i), data));
  }
  return {};
}

}  // namespace ampc
