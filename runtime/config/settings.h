// SPDX-License-Identifier: Apache-2.0
#pragma once
// Settings: the value of every flag, merged from defaults, recipe and command line (in rising order
// of precedence; a flag replaces the recipe's value, lists included), checked against the table in
// flags.h. After parsing, reading a setting cannot fail: heads and keys have the type that their
// row says.
//
// File names in Settings are relative to the working directory (a recipe's are rebased when it is
// merged).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/flags.h"
#include "runtime/config/value.h"

namespace ampc {

enum class Origin : uint8_t { kDefault, kRecipe, kFlag };

/// One value of a flag: `NAME=HEAD:k=v,…`.
struct Option {
  const FlagSpec* spec = nullptr;
  std::string name;  ///< of NAME=…; "" when left out
  std::string head;
  std::vector<ConfigValue::Entry> keys;  ///< those that were given

  /// Written by the user.
  bool Given(std::string_view key) const { return Find(key) != nullptr; }
  /// Given or with a default for this head.
  bool Has(std::string_view key) const;
  // Value given, else the table's default. The key must have one of them: ask Has() where the row
  // has no default.
  std::string Text(std::string_view key) const;
  double Number(std::string_view key) const;
  int64_t Int(std::string_view key) const;
  bool Bool(std::string_view key) const;
  /// A single number is a list of one.
  std::vector<double> Numbers(std::string_view key) const;
  std::vector<int64_t> Ints(std::string_view key) const;

  std::optional<double> HeadNumber() const { return ParseNumber(head); }
  std::optional<int64_t> HeadInt() const { return ParseInt(head); }
  /// The flag grammar.
  std::string ToString() const;

 private:
  const ConfigValue* Find(std::string_view key) const;
  ConfigValue Value(std::string_view key) const;
};

class Settings {
 public:
  explicit Settings(Tool tool);

  Tool tool() const { return tool_; }
  /// The argument that is no flag: MODEL.onnx, PLAN; "" when left out.
  const std::string& positional() const { return positional_; }
  void set_positional(std::string_view text) { positional_ = text; }

  // By flag name without dashes. A name that the tool does not have is our bug (assert).
  Origin origin(std::string_view flag) const;
  bool Given(std::string_view flag) const { return origin(flag) != Origin::kDefault; }
  /// All values; the default's when none was given; empty when there is no default.
  const std::vector<Option>& All(std::string_view flag) const;
  /// The first value, or nullptr.
  const Option* Find(std::string_view flag) const;
  bool Switch(std::string_view flag) const;
  /// Head of the value, "" when there is none.
  std::string Text(std::string_view flag) const;
  std::optional<double> Number(std::string_view flag) const;
  std::optional<int64_t> Int(std::string_view flag) const;
  std::vector<std::string> Texts(std::string_view flag) const;

  // By row, for the parsers.
  Origin origin(const FlagSpec& flag) const;
  const std::vector<Option>& All(const FlagSpec& flag) const;
  /// Replaces the value unless one of higher precedence stands. The options have been checked
  /// (CheckOption).
  void Put(const FlagSpec& flag, std::vector<Option> options, Origin origin);
  void Append(const FlagSpec& flag, Option option);

 private:
  struct Entry {
    Origin origin = Origin::kDefault;
    std::vector<Option> options;
  };
  const Entry& Get(std::string_view flag) const;

  Tool tool_;
  std::string positional_;
  std::vector<Entry> entries_;  ///< one per row of AllFlags()
};

/// Head and keys against the row: type, range, known, built. `where` starts the message. Errors:
/// Usage E0602 (not built), E0603 (value), E0605 (unknown key).
Status CheckOption(const Option& option, std::string_view where);

/// True for a text that means a file where words or numbers may stand, too: it has a '.' or a '/'
/// and is no number. Others are written ./FILE.
bool IsFileName(std::string_view text);

/// Parses the command line; for ampc also reads `--recipe`. With --help or --version nothing else
/// is checked. Errors are Usage (exit 2), or BadInput and Io for the recipe file.
Result<Settings> ParseCommandLine(Tool tool, int argc, const char* const* argv);

/// Adds a recipe below the flags. `dir` = the folder that its file names are relative to; `name`
/// stands in messages. Keys of every tool are accepted.
Status MergeRecipe(Settings& settings, const ConfigValue& recipe, const std::string& dir,
                   std::string_view name);

/// What was given (recipe and flags), as a recipe whose file names are relative to `dir` (absolute
/// ones stay).
std::string RecipeText(const Settings& settings, const std::string& dir);
/// --print-config: every effective setting of the tool, defaults included, as a recipe.
std::string ConfigText(const Settings& settings);

/// --help.
std::string HelpText(Tool tool);
/// "ampc 0.1.0"
std::string VersionText(Tool tool);

}  // namespace ampc
