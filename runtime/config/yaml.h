// SPDX-License-Identifier: Apache-2.0
#pragma once
// YAML for recipes and policy files: text to ConfigValue and back.
//
// Only what a settings file needs: maps with scalar keys, lists, scalars. Refused, with the line:
// anchors and aliases, tags, duplicate keys, several documents, more than 4 MiB, 200,000 values or
// 16 levels.

#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/config/value.h"

namespace ampc {

/// `name` stands in messages. An empty text is an empty map. Errors: BadInput E0611 (syntax), E0612
/// (not allowed).
Result<ConfigValue> ParseYaml(std::string_view text, std::string_view name);
/// Reads and parses a file; an IoError when it cannot be read.
Result<ConfigValue> ReadYamlFile(const std::string& path);

/// Block style for the first two levels, flow style below; ParseYaml gives back an equal value.
std::string WriteYaml(const ConfigValue& value);

}  // namespace ampc
