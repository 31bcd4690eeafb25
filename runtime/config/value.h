// SPDX-License-Identifier: Apache-2.0
#pragma once
// ConfigValue: what the flag grammar and a YAML file both become, and the grammar of one valued
// flag.
//
//   option = HEAD [ ":" key "=" value { "," key "=" value } ]
//   value  = text | "[" [ value { "," value } ] "]" | "'" text "'"
//
// The option part starts at the last ":" outside quotes that is followed by `key=`, so that names
// such as onnx::MatMul_1 are safe. Within quotes, '' is one quote. Numbers are decimal, may be
// fractions (1/255) and `inf`.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/suggest.h"

namespace ampc {

/// A scalar (kept as its text), a list, or a map whose keys keep their order.
struct ConfigValue {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  using Entry = std::pair<std::string, ConfigValue>;

  Kind kind = Kind::kNull;
  std::string text;     ///< of a scalar, without quotes
  bool quoted = false;  ///< written in quotes: never a number or a switch
  int line = 0;         ///< in the YAML file, from 1; 0 = from a flag
  std::vector<ConfigValue> items;
  std::vector<Entry> entries;

  // Defined below: an Entry is only complete when this class is.
  ConfigValue();
  ConfigValue(const ConfigValue&);
  ConfigValue(ConfigValue&&) noexcept;
  ConfigValue& operator=(const ConfigValue&);
  ConfigValue& operator=(ConfigValue&&) noexcept;
  ~ConfigValue();

  static ConfigValue Scalar(std::string_view text);
  static ConfigValue List(std::vector<ConfigValue> items);
  static ConfigValue Map();

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
  /// Value of a map's key, or nullptr.
  const ConfigValue* Find(std::string_view key) const;
  void Set(std::string_view key, ConfigValue value);

  // What an unquoted scalar means; nullopt when it means something else.
  std::optional<double> Number() const;
  std::optional<int64_t> Int() const;
  std::optional<bool> Bool() const;

  /// In the flag grammar: `[0.9,0.999]`, quoted where needed; a map as `{k=v,…}` (for messages
  /// only).
  std::string ToString() const;
  bool operator==(const ConfigValue& other) const;
};

inline ConfigValue::ConfigValue() = default;
inline ConfigValue::ConfigValue(const ConfigValue&) = default;
inline ConfigValue::ConfigValue(ConfigValue&&) noexcept = default;
inline ConfigValue& ConfigValue::operator=(const ConfigValue&) = default;
inline ConfigValue& ConfigValue::operator=(ConfigValue&&) noexcept = default;
inline ConfigValue::~ConfigValue() = default;

/// "0.5", "1e-3", "1/255", "inf", "-inf"; nullopt for anything else (NaN too).
std::optional<double> ParseNumber(std::string_view text);
/// Decimal digits with a sign, or a number that is integral ("1e3"), within int64.
std::optional<int64_t> ParseInt(std::string_view text);
/// "true" or "false", 1 or 0.
std::optional<bool> ParseBool(std::string_view text);

/// HEAD and its keys, before any flag gave them a meaning.
struct ParsedOption {
  std::string head;
  std::vector<ConfigValue::Entry> keys;
};

/// Where the option part starts (index of its ":"), or npos.
size_t FindOptionPart(std::string_view text);
/// Splits `text` by the grammar; `with_options` false: all of it is the head. Errors: E0604.
Result<ParsedOption> ParseOptionText(std::string_view text, bool with_options);
/// One value of the grammar, at most 8 lists deep.
Result<ConfigValue> ParseValueText(std::string_view text);

}  // namespace ampc
