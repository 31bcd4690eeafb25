// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sliding windows of convolutions and pools: what one spatial axis of them is, and which cannot be.
//
// ONNX's inference gives a window that is longer than its input a length of zero or less (or one,
// since its division truncates); the reason, in numbers, is given here.

#include "compiler/ops/op_def.h"

namespace ampc {

/// One spatial axis.
struct WindowAxis {
  int64_t in = 0, kernel = 1, stride = 1, dilation = 1, begin = 0, end = 0;

  /// Elements from the first to the last that one window reads.
  int64_t reach() const { return (kernel - 1) * dilation + 1; }
  /// How far the window can move; negative when it is longer than the padded input.
  int64_t room() const { return in + begin + end - reach(); }
};

/// "a window of 7 (kernel 4, dilation 2)"
std::string DescribeWindow(const WindowAxis& axis);

/// E0107 unless attribute `name`, where it is given, is a list of `n` numbers of `least` and more.
Status CheckList(const Attrs& attrs, std::string_view name, size_t n, int64_t least);

/// The axes of a node over `x` [N, C, …] whose window is `kernel`, with the padding that `pads`
/// gives. E0107: attributes that do not fit.
Result<std::vector<WindowAxis>> ReadWindow(const Attrs& attrs, const Dims& x,
                                           std::span<const int64_t> kernel);

/// Padding as long as the window (of `pads`, begins before ends), which onnxruntime refuses: a
/// dilated window that hangs over the end asks for it, or SAME.
bool PadsReachKernel(std::span<const int64_t> pads, std::span<const int64_t> kernel);

/// auto_pad is SAME_UPPER or SAME_LOWER: every input has room.
bool PadsToSame(const Attrs& attrs);

/// E0107: a window does not fit its input. One that is short of a stride may hang over the end of
/// it where `may_hang`.
Status CheckRoom(std::span<const WindowAxis> axes, bool may_hang);

}  // namespace ampc
