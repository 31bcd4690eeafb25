// SPDX-License-Identifier: Apache-2.0
#include "runtime/config/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ampc {
namespace {

constexpr int kMaxListDepth = 8;

bool IsKeyStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsKeyChar(char c) { return IsKeyStart(c) || (c >= '0' && c <= '9'); }

/// A decimal number that is not a fraction.
std::optional<double> ParseDecimal(std::string_view text) {
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return std::nullopt;
  }
  if (text.empty()) return std::nullopt;
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (std::isnan(value)) return std::nullopt;
  // from_chars also takes "infinity"; one spelling is enough.
  if (std::isinf(value) && text != "inf" && text != "-inf") return std::nullopt;
  return value;
}

/// Index after the quoted text that starts at `at`, or npos when the quote is not closed.
size_t SkipQuoted(std::string_view text, size_t at) {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] != '\'') continue;
    if (i + 1 < text.size() && text[i + 1] == '\'') {
      ++i;
    } else {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

/// Takes the quotes off a text; they may stand around any part of it ('a:b'=c).
Result<std::string> Unquote(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\'') {
      out += text[i++];
      continue;
    }
    size_t end = SkipQuoted(text, i);
    if (end == std::string_view::npos) return UsageError("E0604", "quote not closed in '{}'", text);
    for (size_t j = i + 1; j + 1 < end; ++j) {
      out += text[j];
      if (text[j] == '\'') ++j;
    }
    i = end;
  }
  return out;
}

/// Splits at `separator` outside quotes and brackets.
Result<std::vector<std::string_view>> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\'') {
      i = SkipQuoted(text, i);
      if (i == std::string_view::npos) return UsageError("E0604", "quote not closed in '{}'", text);
      continue;
    }
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth < 0) return UsageError("E0604", "']' without '[' in '{}'", text);
    if (text[i] == separator && depth == 0) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    }
    ++i;
  }
  if (depth > 0) return UsageError("E0604", "'[' not closed in '{}'", text);
  parts.push_back(text.substr(start));
  return parts;
}

Result<ConfigValue> ParseValueAt(std::string_view text, int depth) {
  if (text.empty() || text.front() != '[') {
    AMPC_ASSIGN(std::string plain, Unquote(text));
    ConfigValue value = ConfigValue::Scalar(plain);
    value.quoted = !text.empty() && text.front() == '\'';
    return value;
  }
  if (text.back() != ']') return UsageError("E0604", "'{}' goes on after the list", text);
  if (depth >= kMaxListDepth)
    return UsageError("E0604", "lists nest deeper than {}", kMaxListDepth);
  std::string_view inner = text.substr(1, text.size() - 2);
  std::vector<ConfigValue> items;
  if (!inner.empty()) {
    AMPC_ASSIGN(std::vector<std::string_view> parts, Split(inner, ','));
    for (std::string_view part : parts) {
      AMPC_ASSIGN(ConfigValue item, ParseValueAt(part, depth + 1));
      items.push_back(std::move(item));
    }
  }
  return ConfigValue::List(std::move(items));
}

}  // namespace

ConfigValue ConfigValue::Scalar(std::string_view text) {
  ConfigValue v;
  v.kind = Kind::kScalar;
  v.text = text;
  return v;
}

ConfigValue ConfigValue::List(std::vector<ConfigValue> items) {
  ConfigValue v;
  v.kind = Kind::kList;
  v.items = std::move(items);
  return v;
}

ConfigValue ConfigValue::Map() {
  ConfigValue v;
  v.kind = Kind::kMap;
  return v;
}

const ConfigValue* ConfigValue::Find(std::string_view key) const {
  for (const Entry& e : entries) {
    if (e.first == key) return &e.second;
  }
  return nullptr;
}

void ConfigValue::Set(std::string_view key, ConfigValue value) {
  for (Entry& e : entries) {
    if (e.first == key) {
      e.second = std::move(value);
      return;
    }
  }
  entries.emplace_back(key, std::move(value));
}

std::optional<double> ConfigValue::Number() const {
  return is_scalar() && !quoted ? ParseNumber(text) : std::nullopt;
}
std::optional<int64_t> ConfigValue::Int() const {
  return is_scalar() && !quoted ? ParseInt(text) : std::nullopt;
}
std::optional<bool> ConfigValue::Bool() const {
  return is_scalar() && !quoted ? ParseBool(text) : std::nullopt;
}

std::string ConfigValue::ToString() const {
  std::string out;
  switch (kind) {
    case Kind::kNull:
      return "";
    case Kind::kScalar: {
      if (!quoted && text.find_first_of(",[]'") == std::string::npos) return text;
      for (char c : text) out.append(c == '\'' ? 2 : 1, c);
      return fmt::format("'{}'", out);
    }
    case Kind::kList:
      for (const ConfigValue& item : items)
        out += fmt::format("{}{}", out.empty() ? "" : ",", item.ToString());
      return fmt::format("[{}]", out);
    case Kind::kMap:
      for (const Entry& e : entries)
        out += fmt::format("{}{}={}", out.empty() ? "" : ",", e.first, e.second.ToString());
      return fmt::format("{{{}}}", out);
  }
  return out;
}

bool ConfigValue::operator==(const ConfigValue& other) const {
  return kind == other.kind && text == other.text && quoted == other.quoted &&
         items == other.items && entries == other.entries;
}

std::optional<double> ParseNumber(std::string_view text) {
  size_t slash = text.find('/');
  if (slash == std::string_view::npos) return ParseDecimal(text);
  std::optional<double> over = ParseDecimal(text.substr(0, slash));
  std::optional<double> under = ParseDecimal(text.substr(slash + 1));
  if (!over || !under || *under == 0 || std::isinf(*over) || std::isinf(*under))
    return std::nullopt;
  return *over / *under;
}

std::optional<int64_t> ParseInt(std::string_view text) {
  std::string_view digits = text;
  if (!digits.empty() && digits.front() == '+') digits.remove_prefix(1);
  int64_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc() && end == digits.data() + digits.size() && !digits.empty()) return value;
  std::optional<double> number = ParseNumber(text);
  if (!number || *number != std::floor(*number) || std::abs(*number) > 9007199254740992.0)
    return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}

size_t FindOptionPart(std::string_view text) {
  size_t found = std::string_view::npos;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\'') {
      i = SkipQuoted(text, i);
      if (i == std::string_view::npos) break;
      continue;
    }
    if (text[i] == ':' && i + 1 < text.size() && IsKeyStart(text[i + 1])) {
      size_t j = i + 1;
      while (j < text.size() && IsKeyChar(text[j])) ++j;
      if (j < text.size() && text[j] == '=') found = i;
    }
    ++i;
  }
  return found;
}

Result<ParsedOption> ParseOptionText(std::string_view text, bool with_options) {
  size_t colon = with_options ? FindOptionPart(text) : std::string_view::npos;
  ParsedOption option;
  AMPC_ASSIGN(option.head, with_options ? Unquote(text.substr(0, colon)) : std::string(text));
  if (colon == std::string_view::npos) return option;
  AMPC_ASSIGN(std::vector<std::string_view> parts, Split(text.substr(colon + 1), ','));
  for (std::string_view part : parts) {
    size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return UsageError("E0604", "expected key=value, found '{}' in '{}'", part, text);
    std::string key(part.substr(0, equals));
    AMPC_ASSIGN(ConfigValue value, ParseValueText(part.substr(equals + 1)));
    for (const ConfigValue::Entry& e : option.keys) {
      if (e.first == key) return UsageError("E0604", "key '{}' stands twice in '{}'", key, text);
    }
    option.keys.emplace_back(std::move(key), std::move(value));
  }
  return option;
}

Result<ConfigValue> ParseValueText(std::string_view text) { return ParseValueAt(text, 0); }

}  // namespace ampc
