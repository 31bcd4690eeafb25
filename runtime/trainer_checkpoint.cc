// SPDX-License-Identifier: Apache-2.0
#include "runtime/trainer_checkpoint.h"

#include "runtime/base/file.h"
#include "runtime/config/yaml.h"
#include "runtime/metrics.h"
#include "runtime/state.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace ampc {

std::string TrainerPosition::ToText() const {
  ConfigValue root = ConfigValue::Map();
  root.Set("step", ConfigValue::Scalar(fmt::format("{}", step)));
  root.Set("applied", ConfigValue::Scalar(fmt::format("{}", applied)));
  root.Set("evaluated", ConfigValue::Scalar(fmt::format("{}", evaluated)));
  char buffer[40];
  if (has_first_loss) root.Set("first_loss", ConfigValue::Scalar(FormatNumber(first_loss, buffer)));
  ConfigValue map = ConfigValue::Map();
  for (const auto& [name, value] : settings) map.Set(name, ConfigValue::Scalar(value));
  root.Set("settings", std::move(map));
  return WriteYaml(root);
}

Result<TrainerPosition> TrainerPosition::Parse(std::string_view text) {
  AMPC_ASSIGN(ConfigValue root, ParseYaml(text, "position of the checkpoint"));
  TrainerPosition p;
  const ConfigValue* step = root.Find("step");
  const ConfigValue* applied = root.Find("applied");
  if (step == nullptr || applied == nullptr || !step->Int() || !applied->Int() || *step->Int() < 0)
    return BadInput("E0972", "the checkpoint does not say where the run stood");
  p.step = *step->Int();
  p.applied = *applied->Int();
  if (const ConfigValue* evaluated = root.Find("evaluated"))
    p.evaluated = evaluated->Int().value_or(-1);
  if (p.applied < 0 || p.applied > p.step || p.evaluated < -1 || p.evaluated > p.step) {
    return BadInput(
        "E0972", "the checkpoint contradicts itself: {} of {} updates applied, evaluated after {}",
        p.applied, p.step, p.evaluated);
  }
  if (const ConfigValue* loss = root.Find("first_loss"); loss != nullptr && loss->Number()) {
    p.first_loss = *loss->Number();
    p.has_first_loss = true;
  }
  if (const ConfigValue* settings = root.Find("settings")) {
    for (const auto& [name, value] : settings->entries) p.settings.emplace_back(name, value.text);
  }
  return p;
}

std::vector<std::string> DifferentSettings(const TrainerPosition& then,
                                           const TrainerPosition& now) {
  std::vector<std::string> lines;
  auto value_in = [](const TrainerPosition& p, const std::string& name) {
    for (const auto& [n, v] : p.settings) {
      if (n == name) return v;
    }
    return std::string("not set");
  };
  for (const auto& [name, value] : then.settings) {
    std::string other = value_in(now, name);
    if (other != value) lines.push_back(fmt::format("{}: {} then, {} now", name, value, other));
  }
  for (const auto& [name, value] : now.settings) {
    if (value_in(then, name) == "not set" && value != "not set")
      lines.push_back(fmt::format("{}: not set then, {} now", name, value));
  }
  return lines;
}

Status CheckWritable(std::string_view flag, const std::string& path) {
  const auto fails = [&](const std::string& what, int reason) {
    return IoError("E0951", "--{}: '{}' cannot be written: {}", flag, what,
                   std::generic_category().message(reason))
        .Of(path);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return fails(path, EISDIR);
  const bool exists = access(path.c_str(), F_OK) == 0;
  if (exists && !std::filesystem::is_regular_file(path, ignored)) {  // a device or a pipe
    return access(path.c_str(), W_OK) == 0 ? Status() : fails(path, errno);
  }
  if (exists && access(path.c_str(), W_OK) != 0) return fails(path, errno);
  // A new file is made beside the old one and takes its place.
  const std::string folder = DirName(FollowLinks(path));
  if (access(folder.c_str(), W_OK) != 0) return fails(folder, errno);
  return std::filesystem::is_directory(folder, ignored) ? Status() : fails(folder, ENOTDIR);
}

Result<bool> IsUsedFolder(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored))
    return false;
  AMPC_ASSIGN(const std::vector<std::string> names, ListFolder(path));
  return !names.empty();
}

}  // namespace ampc
