// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/bind.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

namespace ampc {
namespace {

std::vector<int64_t> WithoutOnes(std::span<const int64_t> dims) {
  std::vector<int64_t> kept;
  std::copy_if(dims.begin(), dims.end(), std::back_inserter(kept),
               [](int64_t d) { return d != 1; });
  return kept;
}

}  // namespace

bool Adapts(std::span<const int64_t> from, std::span<const int64_t> to) {
  const std::vector<int64_t> a = WithoutOnes(from), b = WithoutOnes(to);
  size_t i = 0, k = 0;
  // Each round matches a group of axes on both sides with equal products; one side's group must be
  // a single axis.
  while (i < a.size() && k < b.size()) {
    int64_t left = a[i++], right = b[k++];
    size_t merged_left = 1, merged_right = 1;
    while (left != right) {
      if (left < right) {
        if (i == a.size()) return false;
        left *= a[i++];
        ++merged_left;
      } else {
        if (k == b.size()) return false;
        right *= b[k++];
        ++merged_right;
      }
      if (merged_left > 1 && merged_right > 1) return false;
    }
  }
  return i == a.size() && k == b.size();
}

Result<Array> Permuted(const Array& array, std::span<const int64_t> permute) {
  std::vector<bool> seen(array.dims.size());
  for (int64_t axis : permute) {
    if (axis < 0 || axis >= static_cast<int64_t>(seen.size()) || seen[static_cast<size_t>(axis)]) {
      return UsageError("E0761", "permute={} does not order the {} axes of {}", ToString(permute),
                        array.dims.size(), ToString(array.dims));
    }
    seen[static_cast<size_t>(axis)] = true;
  }
  if (permute.size() != array.dims.size()) {
    return UsageError("E0761", "permute={} does not order the {} axes of {}", ToString(permute),
                      array.dims.size(), ToString(array.dims));
  }
  Array result = array;
  for (size_t i = 0; i < permute.size(); ++i) {
    result.dims[i] = array.dims[static_cast<size_t>(permute[i])];
    result.strides[i] = array.strides[static_cast<size_t>(permute[i])];
  }
  return result;
}

Result<Array> SampleAxisFirst(const Array& array, int64_t axis) {
  if (axis < 0 || axis >= static_cast<int64_t>(array.dims.size())) {
    return UsageError("E0762", "axis={} is not an axis of {}", axis, ToString(array.dims));
  }
  std::vector<int64_t> order(array.dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + axis, order.begin() + axis + 1);
  return Permuted(array, order);
}

std::optional<std::vector<int64_t>> ProposePermute(std::span<const int64_t> file_dims,
                                                   int64_t sample_axis,
                                                   std::span<const int64_t> sample) {
  const int64_t rank = static_cast<int64_t>(file_dims.size());
  if (rank < 2 || rank > 6) return std::nullopt;
  const std::vector<int64_t> wanted = WithoutOnes(sample);
  auto fits = [&](const std::vector<int64_t>& order) {
    std::vector<int64_t> dims;
    for (size_t i = 1; i < order.size(); ++i)
      dims.push_back(file_dims[static_cast<size_t>(order[i])]);
    return WithoutOnes(dims) == wanted;
  };
  std::vector<int64_t> order(file_dims.size());
  std::iota(order.begin(), order.end(), 0);
  // Channels last is by far the likeliest, so it wins where several orders fit.
  std::vector<int64_t> channels_last = order;
  std::rotate(channels_last.begin() + 1, channels_last.end() - 1, channels_last.end());
  if (sample_axis == 0 && fits(channels_last)) return channels_last;
  std::optional<std::vector<int64_t>> fallback;
  do {
    if (!fits(order)) continue;
    if (order[0] == sample_axis) return order;
    if (!fallback) fallback = order;
  } while (std::next_permutation(order.begin(), order.end()));
  return fallback;
}

namespace {

Result<int64_t> ParseBound(std::string_view text, int64_t count, int64_t fallback) {
  if (text.empty()) return fallback;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  const bool percent = rest == "%";
  if (error != std::errc() || (!rest.empty() && !percent) || !(value >= 0) || value > 9e15) {
    return UsageError("E0763", "'{}' is not a sample number or a percentage", text);
  }
  const double scaled = percent ? static_cast<double>(count) * value / 100 : value;
  const int64_t bound = static_cast<int64_t>(scaled);
  if (!percent && static_cast<double>(bound) != value)
    return UsageError("E0763", "'{}' is not a whole number", text);
  return bound;
}

}  // namespace

Result<SampleRange> ParseRange(std::string_view text, int64_t count) {
  if (text.empty()) return SampleRange{0, count};
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return UsageError("E0763", "'{}' is not a range a:b", text);
  AMPC_ASSIGN(const int64_t begin, ParseBound(text.substr(0, colon), count, 0));
  AMPC_ASSIGN(const int64_t end, ParseBound(text.substr(colon + 1), count, count));
  if (end > count)
    return BadInput("E0764", "the range {} ends beyond the {} samples that there are", text, count);
  if (begin >= end) return BadInput("E0764", "the range {} of {} samples is empty", text, count);
  return SampleRange{begin, end};
}

}  // namespace ampc
