// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the axes of a file meet the axes of a feed, and which samples of the file are used.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/tensor.h"
#include "runtime/data/array.h"

namespace ampc {

/// True when row-major data of shape `from` is row-major data of shape `to` up to axes of size one
/// and to adjacent axes merged into one or one split into several: [28,28] and [1,28,28] and [784],
/// but not [28,28,3] and [3,28,28].
bool Adapts(std::span<const int64_t> from, std::span<const int64_t> to);

/// Axis i of the result is axis permute[i] of `array`.
Result<Array> Permuted(const Array& array, std::span<const int64_t> permute);
/// The same with `axis` moved to the front.
Result<Array> SampleAxisFirst(const Array& array, int64_t axis);

/// The first permutation of `file_dims` (sample axis in front if possible) that would give samples
/// of shape `sample`.
std::optional<std::vector<int64_t>> ProposePermute(std::span<const int64_t> file_dims,
                                                   int64_t sample_axis,
                                                   std::span<const int64_t> sample);

struct SampleRange {
  int64_t begin = 0, end = 0;
};
/// "a:b", "a:", ":b"; each side a number or a percentage of `count` (rounded down); "" =
/// everything. An empty range or one beyond `count` is an error.
Result<SampleRange> ParseRange(std::string_view text, int64_t count);

}  // namespace ampc
