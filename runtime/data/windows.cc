// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/windows.h"

namespace ampc {

Result<Array> WindowsOf(const Array& tokens, const WindowForm& form) {
  const int64_t count = tokens.dims[0];
  if (form.length > count || form.shift > count - form.length) {
    return BadInput("E0767", "{} tokens are too few: one window takes {}{}", count, form.length,
                    form.shift > 0 ? fmt::format(" behind the first {}", form.shift) : "");
  }
  Array windows = tokens;
  windows.dims = {(count - form.shift - form.length) / form.stride + 1, form.length};
  windows.strides = {form.stride, 1};
  windows.data += form.shift * SizeOf(tokens.dtype);
  return windows;
}

}  // namespace ampc
