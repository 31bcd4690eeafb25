// SPDX-License-Identifier: Apache-2.0
#include "runtime/config/settings.h"

#include <cassert>
#include <cmath>

namespace ampc {
namespace {

/// "; did you mean …" or the list of all words.
std::string SuggestOrList(std::string_view word, const std::vector<std::string_view>& words) {
  std::string text = Suggest(word, words);
  if (!text.empty() || words.empty()) return text;
  std::string list;
  for (std::string_view w : words) list += fmt::format("{}{}", list.empty() ? "" : ", ", w);
  return fmt::format("; it is one of {}", list);
}

Status CheckChoice(const Option& option, std::string_view where, std::string_view also) {
  std::vector<std::string_view> built;
  for (const Choice& choice : option.spec->choices) {
    if (choice.name == option.head) {
      if (choice.built) return {};
      return UsageError("E0602", "{}: '{}' is not built", where, option.head);
    }
    if (choice.built) built.push_back(choice.name);
  }
  return UsageError("E0603", "{}: unknown value '{}'{}{}", where, option.head, also,
                    SuggestOrList(option.head, built));
}

Status CheckNumber(std::string_view where, const std::string& text, bool integer, double min,
                   double max) {
  std::optional<double> value = ParseNumber(text);
  if (integer && !ParseInt(text)) value.reset();
  if (!value)
    return UsageError("E0603", "{}: expected {}, found '{}'", where,
                      integer ? "an integer" : "a number", text);
  if (std::isinf(*value) && !(*value < 0 ? std::isinf(min) : std::isinf(max)))
    return UsageError("E0603", "{}: expected a finite number, found {}", where, text);
  if (*value < min)
    return UsageError("E0603", "{}: expected at least {}, found {}", where, min, text);
  if (*value > max)
    return UsageError("E0603", "{}: expected at most {}, found {}", where, max, text);
  return {};
}

bool IsChoice(const Option& option) {
  for (const Choice& choice : option.spec->choices) {
    if (choice.name == option.head) return true;
  }
  return false;
}

bool LooksLikePath(std::string_view text) {
  return text.find_first_of("./") != std::string_view::npos;
}

/// A non-negative integer, or a percentage; an empty bound is none.
bool IsBound(std::string_view text) {
  if (text.empty()) return true;
  if (text.back() != '%') return ParseInt(text).value_or(-1) >= 0;
  double percent = ParseNumber(text.substr(0, text.size() - 1)).value_or(-1);
  return percent >= 0 && percent <= 100;
}

/// The form a:b; what it means depends on the number of samples.
bool IsRange(std::string_view text) {
  size_t colon = text.find(':');
  return colon != std::string_view::npos && text.size() > 1 && IsBound(text.substr(0, colon)) &&
         IsBound(text.substr(colon + 1));
}

Status CheckHead(const Option& option, std::string_view where) {
  const FlagSpec& spec = *option.spec;
  bool optional = spec.kind == ValueKind::kOptionalText || spec.kind == ValueKind::kOptionalPath;
  if (option.head.empty() && !optional)
    return UsageError("E0603", "{}: expected {}, found nothing", where, spec.meta);
  switch (spec.kind) {
    case ValueKind::kText:
    case ValueKind::kPath:
    case ValueKind::kOptionalText:
    case ValueKind::kOptionalPath:
      return {};
    case ValueKind::kSwitch:
      if (ParseBool(option.head)) return {};
      return UsageError("E0603", "{}: expected true or false, found '{}'", where, option.head);
    case ValueKind::kNumber:
    case ValueKind::kInt:
      return CheckNumber(where, option.head, spec.kind == ValueKind::kInt, spec.min, spec.max);
    case ValueKind::kChoice:
      return CheckChoice(option, where, "");
    case ValueKind::kChoiceOrNumber:
      if (std::optional<double> number = ParseNumber(option.head)) {
        if (*number > 0 && std::isfinite(*number)) return {};
        return UsageError("E0603", "{}: expected a positive number, found {}", where, option.head);
      }
      return CheckChoice(option, where, " (and no number)");
    case ValueKind::kChoiceOrPath:
    case ValueKind::kData:
      if (LooksLikePath(option.head)) return {};
      return CheckChoice(option, where, " (a file without a '.' is written ./FILE)");
    case ValueKind::kChoiceOrText:
      return IsChoice(option) ? CheckChoice(option, where, "") : Status();
    case ValueKind::kRange:
      if (IsRange(option.head)) return {};
      return UsageError("E0603",
                        "{}: expected a:b (either may be left out, or a percentage), found '{}'",
                        where, option.head);
  }
  return {};
}

Status CheckNumbers(std::string_view where, const KeySpec& key, const ConfigValue& value) {
  bool integer = key.kind == KeyKind::kInts;
  if (value.is_scalar()) {
    if (integer) return UsageError("E0603", "{}: expected a list, found '{}'", where, value.text);
    return CheckNumber(where, value.text, integer, key.min, key.max);
  }
  if (value.items.empty()) return UsageError("E0603", "{}: the list is empty", where);
  for (const ConfigValue& item : value.items) {
    if (!item.is_scalar())
      return UsageError("E0603", "{}: expected numbers, found {}", where, item.ToString());
    AMPC_TRY(CheckNumber(where, item.text, integer, key.min, key.max));
  }
  return {};
}

Status CheckKey(const KeySpec& key, const ConfigValue& value, std::string_view where) {
  if (!key.built) return UsageError("E0602", "{} is not built", where);
  bool list_kind = key.kind == KeyKind::kNumbers || key.kind == KeyKind::kInts ||
                   key.kind == KeyKind::kNumbersOrPath;
  if (!value.is_scalar() && !(value.is_list() && list_kind))
    return UsageError("E0603", "{}: expected a single value, found {}", where, value.ToString());
  switch (key.kind) {
    case KeyKind::kText:
    case KeyKind::kPath:
      if (!value.text.empty()) return {};
      return UsageError("E0603", "{}: expected a name, found nothing", where);
    case KeyKind::kNumber:
    case KeyKind::kInt:
      return CheckNumber(where, value.text, key.kind == KeyKind::kInt, key.min, key.max);
    case KeyKind::kBool:
      if (ParseBool(value.text)) return {};
      return UsageError("E0603", "{}: expected true or false, found '{}'", where, value.text);
    case KeyKind::kChoice:
      if (HasWord(key.choices, value.text)) return {};
      return UsageError("E0603", "{}: unknown value '{}'{}", where, value.text,
                        SuggestOrList(value.text, Words(key.choices)));
    case KeyKind::kNumbersOrPath:
      if (value.is_scalar() && IsFileName(value.text)) return {};
      return CheckNumbers(where, key, value);
    case KeyKind::kNumbers:
    case KeyKind::kInts:
      return CheckNumbers(where, key, value);
  }
  return {};
}

Status UnknownKey(const Option& option, const std::string& key, std::string_view where) {
  std::vector<std::string_view> names;
  bool other_head = false;
  for (const KeySpec& k : option.spec->keys) {
    if (k.name == key) other_head = true;
    if (!k.built || (!k.heads.empty() && !HasWord(k.heads, option.head))) continue;
    names.push_back(k.name);
  }
  if (names.empty()) return UsageError("E0605", "{}: '{}' takes no keys", where, option.head);
  if (other_head)
    return UsageError("E0605", "{}: '{}' has no key '{}'{}", where, option.head, key,
                      SuggestOrList("", names));
  return UsageError("E0605", "{}: unknown key '{}'{}", where, key, SuggestOrList(key, names));
}

}  // namespace

bool IsFileName(std::string_view text) { return LooksLikePath(text) && !ParseNumber(text); }

Status CheckOption(const Option& option, std::string_view where) {
  const FlagSpec& spec = *option.spec;
  if (!spec.built) return UsageError("E0602", "{} is not built", where);
  if (spec.naming == Naming::kRequired && option.name.empty())
    return UsageError("E0603", "{}: expected {}, found '{}'", where, spec.meta, option.head);
  AMPC_TRY(CheckHead(option, where));
  for (const auto& [key, value] : option.keys) {
    const KeySpec* row = FindKey(spec, option.head, key);
    if (row == nullptr) return UnknownKey(option, key, where);
    AMPC_TRY(CheckKey(*row, value, fmt::format("{}: key '{}'", where, key)));
  }
  if (option.Given("min_scale") || option.Given("max_scale")) {
    const double low = option.Number("min_scale"), high = option.Number("max_scale");
    if (low > high)
      return UsageError("E0603", "{}: min_scale {} is above max_scale {}", where, low, high);
  }
  return {};
}

const ConfigValue* Option::Find(std::string_view key) const {
  for (const auto& [name_of_key, value] : keys) {
    if (name_of_key == key) return &value;
  }
  return nullptr;
}

bool Option::Has(std::string_view key) const {
  if (Given(key)) return true;
  const KeySpec* row = FindKey(*spec, head, key);
  return row != nullptr && !row->fallback.empty();
}

ConfigValue Option::Value(std::string_view key) const {
  if (const ConfigValue* given = Find(key)) return *given;
  const KeySpec* row = FindKey(*spec, head, key);
  assert(row != nullptr && !row->fallback.empty());
  if (row == nullptr) return {};
  Result<ConfigValue> value = ParseValueText(row->fallback);
  assert(value.ok());
  return *value;
}

std::string Option::Text(std::string_view key) const { return Value(key).text; }
double Option::Number(std::string_view key) const {
  return ParseNumber(Value(key).text).value_or(0);
}
int64_t Option::Int(std::string_view key) const { return ParseInt(Value(key).text).value_or(0); }
bool Option::Bool(std::string_view key) const { return ParseBool(Value(key).text).value_or(false); }

std::vector<double> Option::Numbers(std::string_view key) const {
  ConfigValue value = Value(key);
  if (value.is_scalar()) return {ParseNumber(value.text).value_or(0)};
  std::vector<double> out;
  for (const ConfigValue& item : value.items) out.push_back(ParseNumber(item.text).value_or(0));
  return out;
}

std::vector<int64_t> Option::Ints(std::string_view key) const {
  std::vector<int64_t> out;
  for (const ConfigValue& item : Value(key).items) out.push_back(ParseInt(item.text).value_or(0));
  return out;
}

std::string Option::ToString() const {
  std::string text = name.empty() ? head : name + "=" + head;
  for (size_t i = 0; i < keys.size(); ++i)
    text += fmt::format("{}{}={}", i == 0 ? ":" : ",", keys[i].first, keys[i].second.ToString());
  return text;
}

Settings::Settings(Tool tool) : tool_(tool), entries_(AllFlags().size()) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const FlagSpec& spec = AllFlags()[i];
    if (spec.fallback.empty()) continue;
    Option option;
    option.spec = &spec;
    option.head = spec.fallback;
    entries_[i].options.push_back(std::move(option));
  }
}

const Settings::Entry& Settings::Get(std::string_view flag) const {
  const FlagSpec* row = FindFlag(tool_, flag);
  assert(row != nullptr && "no such flag");
  if (row == nullptr) row = AllFlags().data();
  return entries_[static_cast<size_t>(row - AllFlags().data())];
}

Origin Settings::origin(std::string_view flag) const { return Get(flag).origin; }
const std::vector<Option>& Settings::All(std::string_view flag) const { return Get(flag).options; }

const Option* Settings::Find(std::string_view flag) const {
  const std::vector<Option>& all = All(flag);
  return all.empty() ? nullptr : &all.front();
}

bool Settings::Switch(std::string_view flag) const { return Text(flag) == "true"; }

std::string Settings::Text(std::string_view flag) const {
  const Option* option = Find(flag);
  return option == nullptr ? "" : option->head;
}

std::optional<double> Settings::Number(std::string_view flag) const {
  const Option* option = Find(flag);
  return option == nullptr ? std::nullopt : option->HeadNumber();
}

std::optional<int64_t> Settings::Int(std::string_view flag) const {
  const Option* option = Find(flag);
  return option == nullptr ? std::nullopt : option->HeadInt();
}

std::vector<std::string> Settings::Texts(std::string_view flag) const {
  std::vector<std::string> out;
  for (const Option& option : All(flag)) out.push_back(option.head);
  return out;
}

Origin Settings::origin(const FlagSpec& flag) const {
  return entries_[static_cast<size_t>(&flag - AllFlags().data())].origin;
}
const std::vector<Option>& Settings::All(const FlagSpec& flag) const {
  return entries_[static_cast<size_t>(&flag - AllFlags().data())].options;
}

void Settings::Put(const FlagSpec& flag, std::vector<Option> options, Origin origin) {
  Entry& entry = entries_[static_cast<size_t>(&flag - AllFlags().data())];
  if (entry.origin > origin) return;
  entry.origin = origin;
  entry.options = std::move(options);
}

void Settings::Append(const FlagSpec& flag, Option option) {
  Entry& entry = entries_[static_cast<size_t>(&flag - AllFlags().data())];
  if (entry.origin != Origin::kFlag) entry.options.clear();
  entry.origin = Origin::kFlag;
  entry.options.push_back(std::move(option));
}

}  // namespace ampc
