// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pieces of ONNX text that the bodies of own ops share.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"

namespace ampc {

/// "1, 2, 3"
std::string ListText(std::span<const int64_t> values);
/// A finite double with all its digits; ONNX text takes a float literal only with a point or an
/// exponent.
std::string NumberText(double value);
/// Statements that define `name` as a rank-0 constant of the element type of `like`.
std::string ScalarText(std::string_view name, double value, std::string_view like);
/// Statements that define `name` as the sum of `x` over ascending `axes`, which stay as 1. `x` has
/// the dims given and is fp32 (or double, as `type`); so is the sum. As in our kernels fp32 runs
/// over a short stretch and stretches are joined in double: runtimes that add one by one would lose
/// half of the digits in a sum of 2^14 elements.
std::string SumText(std::string_view name, std::string_view x, std::span<const int64_t> axes,
                    std::span<const int64_t> dims, DType type);

}  // namespace ampc
