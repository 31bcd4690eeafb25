// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text from files, made safe for a terminal.

#include <string>
#include <string_view>

namespace ampc {

/// Names come from files and may hold control characters, which are written as \xNN. A line break
/// stays where an indented line follows, as in our own lists. Status::ToString does this to all of
/// its text. What is longer than 64 KiB is cut.
std::string Printable(std::string_view text);

}  // namespace ampc
