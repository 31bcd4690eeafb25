// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pieces of ONNX text that the bodies of own ops share.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ampc {

/// "1, 2, 3"
std::string ListText(std::span<const int64_t> values);
/// A finite double with all its digits; ONNX text takes a float literal only with a point or an
/// exponent.
std::string NumberText(double value);
/// Statements that define `name` as a rank-0 constant of the element type of `like`.
std::string ScalarText(std::string_view name, double value, std::string_view like);

}  // namespace ampc
