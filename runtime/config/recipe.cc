// SPDX-License-Identifier: Apache-2.0
// Recipes: a YAML map to settings and back. A recipe key is the flag's name with "_"; `KIND:k=v`
// may also be written {kind: KIND, k: v}; a repeatable flag is a list, or a map from name (or glob)
// to value.
#include <algorithm>

#include "runtime/base/file.h"
#include "runtime/config/settings.h"
#include "runtime/config/yaml.h"

namespace ampc {
namespace {

std::string RecipeKey(std::string_view flag) {
  std::string key(flag);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// The row that a recipe's key means. Two tools may use one name (keep): then an integer goes to
/// the integer row.
Result<const FlagSpec*> FindRow(const std::string& key, const ConfigValue& value) {
  std::vector<std::string_view> names;
  std::vector<std::string> owned;
  owned.reserve(AllFlags().size());
  const FlagSpec* found = nullptr;
  for (const FlagSpec& flag : AllFlags()) {
    if (!flag.recipe) continue;
    owned.push_back(RecipeKey(flag.name));
    if (flag.built) names.push_back(owned.back());
    if (owned.back() != key) continue;
    bool fits = (flag.kind == ValueKind::kInt) == value.Int().has_value();
    if (found == nullptr || fits) found = &flag;
  }
  if (found != nullptr) return found;
  return UsageError("E0601", "line {}: unknown key '{}'{}", value.line, key, Suggest(key, names));
}

bool HeadIsPath(const Option& option) {
  const FlagSpec& spec = *option.spec;
  if (option.head.empty()) return false;
  if (spec.kind == ValueKind::kPath || spec.kind == ValueKind::kOptionalPath) return true;
  if (spec.kind != ValueKind::kData && spec.kind != ValueKind::kChoiceOrPath) return false;
  return std::none_of(spec.choices.begin(), spec.choices.end(),
                      [&](const Choice& c) { return c.name == option.head; });
}

/// Applies `change` to every file name of the option.
template <typename Change>
void ForEachPath(Option& option, Change change) {
  if (HeadIsPath(option)) option.head = change(option.head);
  for (auto& [key, value] : option.keys) {
    const KeySpec* row = FindKey(*option.spec, option.head, key);
    if (row == nullptr || !value.is_scalar()) continue;
    if (row->kind == KeyKind::kPath ||
        (row->kind == KeyKind::kNumbersOrPath && IsFileName(value.text)))
      value.text = change(value.text);
  }
}

/// The file name, written so that it is read as one where a word or a number may stand, too.
std::string AsPath(const std::string& path) { return IsFileName(path) ? path : "./" + path; }

class RecipeReader {
 public:
  RecipeReader(const FlagSpec& flag, const std::string& key) : flag_(flag), key_(key) {}

  Result<std::vector<Option>> Read(const ConfigValue& value) {
    if (flag_.repeatable && value.is_list()) {
      for (const ConfigValue& item : value.items) AMPC_TRY(Add(item, ""));
    } else if (flag_.repeatable && value.is_map() && HeadOf(value) == nullptr) {
      for (const auto& [name, item] : value.entries) AMPC_TRY(AddNamed(name, item));
    } else {
      AMPC_TRY(Add(value, ""));
    }
    return std::move(options_);
  }

 private:
  const ConfigValue* HeadOf(const ConfigValue& map) const {
    if (flag_.naming == Naming::kRequired) return nullptr;
    for (std::string_view key : {std::string_view("kind"), flag_.head_key}) {
      const ConfigValue* head = map.Find(key);
      if (head != nullptr && head->is_scalar()) return head;
    }
    return nullptr;
  }

  /// `name: value` of a map: the name of NAME=VALUE, or the head itself (a glob) with its keys.
  Status AddNamed(const std::string& name, const ConfigValue& value) {
    if (flag_.naming != Naming::kNone) return Add(value, name);
    if (!value.is_map())
      return UsageError("E0603", "line {}: {}: expected keys for '{}', found '{}'", value.line,
                        key_, name, value.ToString());
    Option option;
    option.spec = &flag_;
    option.head = name;
    option.keys = value.entries;
    return Finish(std::move(option), value.line);
  }

  Status Add(const ConfigValue& value, const std::string& name) {
    Option option;
    option.spec = &flag_;
    option.name = name;
    if (value.is_null())
      return UsageError("E0603", "line {}: {}: expected {}, found nothing", value.line, key_,
                        flag_.meta);
    if (value.is_list())
      return UsageError("E0603", "line {}: {}: expected one value, found a list", value.line, key_);
    if (value.is_scalar()) {
      bool with_options = !flag_.keys.empty() && FindOptionPart(value.text) != std::string::npos;
      AMPC_ASSIGN(ParsedOption parsed, ParseOptionText(value.text, with_options));
      option.head = std::move(parsed.head);
      option.keys = std::move(parsed.keys);
      return Finish(std::move(option), value.line);
    }
    std::string_view head_key = value.Find("kind") != nullptr ? "kind" : flag_.head_key;
    const ConfigValue* head = value.Find(head_key);
    if (head == nullptr || !head->is_scalar())
      return UsageError("E0603", "line {}: {}: the map needs '{}'", value.line, key_,
                        flag_.head_key);
    option.head = head->text;
    for (const auto& entry : value.entries) {
      if (entry.first != head_key) option.keys.push_back(entry);
    }
    return Finish(std::move(option), value.line);
  }

  Status Finish(Option option, int line) {
    AMPC_TRY(CheckOption(option, fmt::format("line {}: {}", line, key_)));
    options_.push_back(std::move(option));
    return {};
  }

  const FlagSpec& flag_;
  const std::string& key_;
  std::vector<Option> options_;
};

/// True when the head alone would be read back as it is: no part of it looks like ":key=value".
bool StandsAlone(const Option& option) {
  const bool with_options =
      !option.spec->keys.empty() && FindOptionPart(option.head) != std::string::npos;
  const Result<ParsedOption> parsed = ParseOptionText(option.head, with_options);
  return parsed.ok() && parsed->head == option.head && parsed->keys.empty();
}

ConfigValue OptionValue(const Option& option) {
  ConfigValue head = ConfigValue::Scalar(option.head);
  if (option.keys.empty() && StandsAlone(option)) return head;
  ConfigValue map = ConfigValue::Map();
  map.Set(option.spec->head_key, std::move(head));
  for (const auto& [key, value] : option.keys) map.Set(key, value);
  return map;
}

/// All values of one flag as a recipe writes them.
ConfigValue FlagValue(const FlagSpec& flag, const std::vector<Option>& options) {
  if (!flag.repeatable) return OptionValue(options.front());
  bool named =
      std::all_of(options.begin(), options.end(), [](const Option& o) { return !o.name.empty(); });
  ConfigValue out = named ? ConfigValue::Map() : ConfigValue::List({});
  for (const Option& option : options) {
    if (named) {
      out.Set(option.name, OptionValue(option));
    } else {
      out.items.push_back(OptionValue(option));
    }
  }
  return out;
}

}  // namespace

Status MergeRecipe(Settings& settings, const ConfigValue& recipe, const std::string& dir,
                   std::string_view name) {
  for (const auto& [key, value] : recipe.entries) {
    Result<const FlagSpec*> flag = FindRow(key, value);
    if (!flag.ok()) return std::move(flag).TakeStatus().Of(name);
    Result<std::vector<Option>> options = RecipeReader(**flag, key).Read(value);
    if (!options.ok()) return std::move(options).TakeStatus().Of(name);
    for (Option& option : *options)
      ForEachPath(option,
                  [&](const std::string& path) { return dir == "." ? path : JoinPath(dir, path); });
    settings.Put(**flag, std::move(*options), Origin::kRecipe);
  }
  return {};
}

std::string RecipeText(const Settings& settings, const std::string& dir) {
  ConfigValue root = ConfigValue::Map();
  for (const FlagSpec& flag : AllFlags()) {
    if (!flag.recipe || settings.origin(flag) == Origin::kDefault) continue;
    std::vector<Option> options = settings.All(flag);
    if (options.empty()) continue;
    for (Option& option : options) {
      ForEachPath(option, [&](const std::string& path) {
        return path.starts_with('/') ? path : AsPath(RelativePath(dir, path));
      });
    }
    root.Set(RecipeKey(flag.name), FlagValue(flag, options));
  }
  return WriteYaml(root);
}

std::string ConfigText(const Settings& settings) {
  ConfigValue root = ConfigValue::Map();
  for (const FlagSpec& flag : AllFlags()) {
    if (!flag.recipe || !flag.For(settings.tool()) || !flag.built) continue;
    // What amprun shares with ampc is compiled in unless it was given anew.
    bool shared = settings.tool() == Tool::kAmprun && flag.For(Tool::kAmpc);
    if (shared && settings.origin(flag) != Origin::kFlag) continue;
    std::vector<Option> options = settings.All(flag);
    if (options.empty()) continue;
    for (Option& option : options) {
      for (const KeySpec& key : flag.keys) {
        if (shared) break;  // keys that were left out keep what was compiled in
        if (FindKey(flag, option.head, key.name) != &key || key.fallback.empty() || !key.built)
          continue;
        if (option.Given(key.name)) continue;
        Result<ConfigValue> value = ParseValueText(key.fallback);
        if (value.ok()) option.keys.emplace_back(key.name, std::move(*value));
      }
    }
    root.Set(RecipeKey(flag.name), FlagValue(flag, options));
  }
  return WriteYaml(root);
}

}  // namespace ampc
