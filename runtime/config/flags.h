// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table of every flag of ampc, amprun and ampc-opt: what values and keys it takes, its default,
// its help, whether it is built. Parsing, recipes, --help, --print-config and every default come
// from this one table.

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace ampc {

enum class Tool : uint8_t { kAmpc = 1, kAmprun = 2, kAmpcOpt = 4 };

/// What stands as the head of a flag's value.
enum class ValueKind : uint8_t {
  kSwitch,  ///< no value on the command line; true or false in a recipe
  kText,    ///< anything
  kNumber,
  kInt,
  kChoice,          ///< one of `choices`
  kChoiceOrNumber,  ///< one of `choices`, or a positive number
  kChoiceOrPath,    ///< one of `choices`, or a file (has a '.' or '/')
  kChoiceOrText,    ///< one of `choices`, or anything else (a glob)
  kPath,
  kData,          ///< a file, or one of `choices` (made-up data)
  kRange,         ///< a:b, either side may be left out or be a percentage
  kOptionalText,  ///< --flag or --flag=text
  kOptionalPath,  ///< --flag or --flag=file
};

enum class KeyKind : uint8_t {
  kText,
  kNumber,
  kInt,
  kBool,
  kChoice,
  kNumbers,        ///< a number or a list of numbers
  kInts,           ///< a list of integers
  kNumbersOrPath,  ///< a number, a list of numbers, or a .npy file
  kPath,
};

/// One word that a flag or key accepts. Known words that are not built are refused by name.
struct Choice {
  std::string_view name;
  bool built = true;
};

struct KeySpec {
  std::string_view name;
  KeyKind kind = KeyKind::kText;
  std::string_view fallback = {};  ///< in the flag grammar; "" = none
  std::string_view heads = {};     ///< "adam|adamw": only with these heads; "" = all
  std::string_view choices = {};   ///< "mean|sum" for kChoice
  std::string_view help = {};
  double min = std::numeric_limits<double>::lowest();  ///< a row that takes inf says so
  double max = std::numeric_limits<double>::max();
  bool built = true;
};

enum class Group : uint8_t {
  kModel,
  kLoss,
  kOptimizer,
  kPrecision,
  kData,
  kRun,
  kOutput,
  kGeneral,
  kDebug
};

/// Whether a value has a name in front: NAME=VALUE.
enum class Naming : uint8_t { kNone, kOptional, kRequired };

struct FlagSpec {
  std::string_view name;  ///< without the dashes
  uint8_t tools = 0;      ///< mask of Tool
  Group group = Group::kGeneral;
  ValueKind kind = ValueKind::kText;
  std::string_view meta = {};  ///< placeholder of the value in --help
  std::string_view help = {};
  std::string_view fallback = {};  ///< default, in the flag grammar; "" = none
  std::span<const Choice> choices = {};
  std::span<const KeySpec> keys = {};
  bool repeatable = false;
  Naming naming = Naming::kNone;
  std::string_view head_key =
      "kind";  ///< key of the head in a recipe map ("kind" always works too)
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool recipe = true;  ///< may stand in a recipe
  bool built = true;
  char short_name = 0;

  bool For(Tool tool) const { return (tools & static_cast<uint8_t>(tool)) != 0; }
};

std::span<const FlagSpec> AllFlags();
/// The row that `tool` knows by this name; nullptr when it has none.
const FlagSpec* FindFlag(Tool tool, std::string_view name);
/// The key's row for a value with this head, or nullptr. Keys may have one row per head, for their
/// defaults.
const KeySpec* FindKey(const FlagSpec& flag, std::string_view head, std::string_view key);
/// True when `word` is one of the words of "a|b|c".
bool HasWord(std::string_view words, std::string_view word);
/// The words of "a|b|c".
std::vector<std::string_view> Words(std::string_view words);

std::string_view Name(Tool tool);

}  // namespace ampc
