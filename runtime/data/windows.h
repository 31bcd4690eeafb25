// SPDX-License-Identifier: Apache-2.0
#pragma once
// Samples of a token stream: windows of one length that begin every `stride` tokens. A window is a
// view of the stream, so windows may overlap, and those of an input and of its shifted target share
// all memory.

#include <cstdint>

#include "runtime/base/status.h"
#include "runtime/data/array.h"

namespace ampc {

struct WindowForm {
  int64_t length = 1;
  int64_t stride = 1;
  int64_t shift = 0;  ///< where the first window begins

  bool operator==(const WindowForm&) const = default;
};

/// [windows, length] over `tokens` (one axis, row-major): all windows that lie within it. A stream
/// shorter than one window is an error.
Result<Array> WindowsOf(const Array& tokens, const WindowForm& form);

}  // namespace ampc
