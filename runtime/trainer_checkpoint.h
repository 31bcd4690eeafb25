// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the trainer keeps in a checkpoint beside the states: where it stands, and under which
// settings it ran, so that a resumed run can say what is different.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace ampc {

struct TrainerPosition {
  int64_t step = 0, applied = 0;
  int64_t evaluated = -1;  ///< step of the last evaluation; -1 = none
  double first_loss = 0;
  bool has_first_loss = false;
  std::vector<std::pair<std::string, std::string>> settings;  ///< name, value as text

  /// YAML.
  std::string ToText() const;
  static Result<TrainerPosition> Parse(std::string_view text);
};

/// "lr: 0.1 then, 0.2 now", one per setting that differs.
std::vector<std::string> DifferentSettings(const TrainerPosition& then, const TrainerPosition& now);

/// An error when a file could not be made at `path`: its folder is missing or not writable. Asked
/// before a long run.
Status CheckWritable(std::string_view flag, const std::string& path);

/// A folder with anything in it. One that cannot be listed is an error; a file is none here.
Result<bool> IsUsedFolder(const std::string& path);

}  // namespace ampc
