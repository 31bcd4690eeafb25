// SPDX-License-Identifier: Apache-2.0
// The command line against the flag table: --flag value, --flag=value, -o value, one positional
// argument.
#include "runtime/base/file.h"
#include "runtime/config/settings.h"
#include "runtime/config/yaml.h"

namespace ampc {
namespace {

bool TakesValue(const FlagSpec& flag) {
  return flag.kind != ValueKind::kSwitch && flag.kind != ValueKind::kOptionalText &&
         flag.kind != ValueKind::kOptionalPath;
}

/// NAME of NAME=VALUE is what stands before the first "=" outside quotes.
size_t NameEnd(std::string_view text, bool last) {
  bool quoted = false;
  size_t found = std::string_view::npos;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\'') quoted = !quoted;
    if (text[i] != '=' || quoted) continue;
    found = i;
    if (!last) break;
  }
  return found;
}

/// `onnx::X=file.npy` looks like the option part `:X=file.npy`. It is a name when nothing before it
/// is a NAME= or a file, and its key is not one of the flag's, nor near one.
bool OptionPartIsName(const FlagSpec& flag, std::string_view text, size_t colon) {
  if (colon == std::string_view::npos || flag.naming == Naming::kNone) return false;
  if (NameEnd(text.substr(0, colon), false) != std::string_view::npos) return false;
  std::string_view key = text.substr(colon + 1, text.find('=', colon) - colon - 1);
  std::vector<std::string_view> names;
  for (const KeySpec& k : flag.keys) {
    if (k.name == key) return false;
    names.push_back(k.name);
  }
  return Suggest(key, names).empty();
}

Result<std::string> PlainText(std::string_view text) {
  AMPC_ASSIGN(ConfigValue value, ParseValueText(text));
  return value.is_scalar() ? value.text : std::string(text);
}

Result<Option> ParseFlagValue(const FlagSpec& flag, std::string_view text) {
  Option option;
  option.spec = &flag;
  size_t colon = flag.keys.empty() ? std::string_view::npos : FindOptionPart(text);
  bool with_options = !flag.keys.empty() && !OptionPartIsName(flag, text, colon);
  if (flag.naming == Naming::kNone) {
    AMPC_ASSIGN(ParsedOption parsed, ParseOptionText(text, with_options));
    option.head = std::move(parsed.head);
    option.keys = std::move(parsed.keys);
    return option;
  }
  std::string_view front = with_options ? text.substr(0, colon) : text;
  size_t equals = NameEnd(front, flag.naming == Naming::kRequired);
  if (equals != std::string_view::npos) {
    AMPC_ASSIGN(option.name, PlainText(front.substr(0, equals)));
    if (option.name.empty()) return UsageError("E0603", "no name before '=' in '{}'", text);
    text.remove_prefix(equals + 1);
  }
  AMPC_ASSIGN(ParsedOption parsed, ParseOptionText(text, with_options));
  option.head = std::move(parsed.head);
  option.keys = std::move(parsed.keys);
  return option;
}

Status UnknownFlag(Tool tool, std::string_view name, std::string_view written) {
  for (Tool other : {Tool::kAmpc, Tool::kAmprun, Tool::kAmpcOpt}) {
    const FlagSpec* flag = other == tool ? nullptr : FindFlag(other, name);
    if (flag == nullptr) continue;
    if (!flag->built) return UsageError("E0602", "{} is not built", written);
    if (tool == Tool::kAmprun && other == Tool::kAmpc)
      return UsageError("E0608", "{} is compiled in; use ampc", written);
    if (tool == Tool::kAmpc && other == Tool::kAmprun)
      return UsageError("E0608", "{} is a flag of amprun{}", written,
                        flag->recipe ? "; here it may stand in the recipe" : "");
  }
  std::vector<std::string_view> names;
  for (const FlagSpec& flag : AllFlags()) {
    if (flag.For(tool) && flag.built) names.push_back(flag.name);
  }
  std::string hint = Suggest(name, names);
  size_t quote = hint.find('\'');
  if (quote != std::string::npos) hint.insert(quote + 1, "--");
  return UsageError("E0601", "unknown flag {}{}", written, hint);
}

const FlagSpec* FindShort(Tool tool, char name) {
  for (const FlagSpec& flag : AllFlags()) {
    if (flag.For(tool) && flag.short_name == name) return &flag;
  }
  return nullptr;
}

class CommandLine {
 public:
  CommandLine(Tool tool, int argc, const char* const* argv) : settings_(tool) {
    for (int i = 1; i < argc; ++i) arguments_.emplace_back(argv[i]);
  }

  Result<Settings> Parse() {
    bool flags_end = false;
    while (next_ < arguments_.size()) {
      std::string_view argument = arguments_[next_++];
      if (!flags_end && argument == "--") {
        flags_end = true;
      } else if (!flags_end && argument.size() > 1 && argument.front() == '-') {
        AMPC_TRY(Flag(argument));
      } else {
        if (!settings_.positional().empty())
          return UsageError("E0609", "expected one file, found '{}' and '{}'",
                            settings_.positional(), argument);
        if (argument.empty()) return UsageError("E0609", "an empty argument is no file");
        settings_.set_positional(argument);
      }
    }
    return std::move(settings_);
  }

 private:
  Status Flag(std::string_view argument) {
    Tool tool = settings_.tool();
    std::string_view written = argument.substr(0, argument.find('='));
    std::optional<std::string_view> value;
    if (written.size() < argument.size()) value = argument.substr(written.size() + 1);
    const FlagSpec* flag = nullptr;
    if (argument.starts_with("--")) {
      flag = FindFlag(tool, written.substr(2));
      if (flag == nullptr) return UnknownFlag(tool, written.substr(2), written);
    } else {
      flag = written.size() == 2 ? FindShort(tool, written[1]) : nullptr;
      if (flag == nullptr) return UnknownFlag(tool, written.substr(1), written);
    }
    if (!flag->built) return UsageError("E0602", "{} is not built", written);
    if (TakesValue(*flag) && !value) {
      if (next_ == arguments_.size() || arguments_[next_].starts_with("--"))
        return UsageError("E0603", "{} needs a value: {}", written, flag->meta);
      value = arguments_[next_++];
    }
    if (flag->kind == ValueKind::kSwitch && value)
      return UsageError("E0603", "{} takes no value, found '{}'", written, *value);
    return Store(*flag, written, flag->kind == ValueKind::kSwitch ? "true" : value.value_or(""));
  }

  Status Store(const FlagSpec& flag, std::string_view written, std::string_view value) {
    if (settings_.origin(flag) == Origin::kFlag && !flag.repeatable) {
      if (flag.kind == ValueKind::kSwitch) return {};
      return UsageError("E0607", "{} is given twice", written);
    }
    Result<Option> parsed = ParseFlagValue(flag, value);
    if (!parsed.ok())
      return Status::Error(parsed.status().error_class(), parsed.status().id(),
                           fmt::format("{}: {}", written, parsed.status().message()));
    AMPC_TRY(CheckOption(*parsed, written));
    for (const Option& earlier : settings_.All(flag)) {
      if (settings_.origin(flag) == Origin::kFlag && flag.naming != Naming::kNone &&
          earlier.name == parsed->name)
        return UsageError("E0607", "{} is given twice for '{}'", written, parsed->name);
    }
    settings_.Append(flag, std::move(*parsed));
    return {};
  }

  Settings settings_;
  std::vector<std::string_view> arguments_;
  size_t next_ = 0;
};

}  // namespace

Result<Settings> ParseCommandLine(Tool tool, int argc, const char* const* argv) {
  AMPC_ASSIGN(Settings settings, CommandLine(tool, argc, argv).Parse());
  if (settings.Switch("help") || settings.Switch("version") || tool != Tool::kAmpc) return settings;
  std::string path = settings.Text("recipe");
  if (!path.empty()) {
    AMPC_ASSIGN(ConfigValue recipe, ReadYamlFile(path));
    AMPC_TRY(MergeRecipe(settings, recipe, DirName(path), path));
  }
  if (settings.positional().empty()) settings.set_positional(settings.Text("model"));
  return settings;
}

}  // namespace ampc
