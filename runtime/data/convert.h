// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of a file into elements of a feed.
//
// To a float: (x * scale - mean) / std in double, rounded once; without normalisation the exact
// widening (or one rounding from double). One-byte sources go through a table of 256 results per
// channel. To an integer: the same number, or an error when the feed's type or range cannot hold
// it. Float to integer is refused. Convert() does not allocate; sources may lie at any address,
// outputs are aligned to their element.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

namespace ampc {

/// mean and std hold one number, or one per channel.
struct Normalization {
  double scale = 1;
  std::vector<double> mean{0}, std{1};

  bool identity() const;
  size_t channels() const { return mean.size() > std.size() ? mean.size() : std.size(); }
};

/// What an integer feed accepts besides the range of its type.
struct IntegerRange {
  int64_t limit = 0;              ///< > 0: values in [low, limit)
  std::optional<int64_t> ignore;  ///< and this one
  int64_t low = 0;
};

/// Where the channels lie: element i of a feed belongs to channel (i / inner) % channels.
struct ChannelLayout {
  int64_t channels = 1, inner = 1;
};

class Converter {
 public:
  static Result<Converter> Make(DType from, DType to, const Normalization& normalization,
                                ChannelLayout layout, IntegerRange range);

  /// Converts n elements of which the first is element `first` of the sample. Returns -1, or the
  /// index of an element that the feed cannot hold; then `out` is not complete.
  int64_t Convert(const std::byte* in, std::byte* out, int64_t n, int64_t first = 0) const;
  /// "-3, the feed takes 0 to 9": element `index` of `in`, for the error message.
  std::string DescribeBad(const std::byte* in, int64_t index) const;

 private:
  enum class Path : uint8_t { kCopy, kTable, kHalf, kBFloat16, kDouble, kInteger };

  void BuildTable();
  void NormalizeRun(const std::byte* in, std::byte* out, int64_t n, size_t channel) const;
  int64_t ConvertIntegers(const std::byte* in, std::byte* out, int64_t n) const;

  DType from_ = DType::kNone, to_ = DType::kNone;
  Path path_ = Path::kCopy;
  Normalization normalization_;
  ChannelLayout layout_;
  IntegerRange range_;
  int64_t low_ = 0, high_ = 0;    // values an integer feed takes
  std::vector<std::byte> table_;  // [channel][256] elements of the feed
};

/// n doubles rounded to a float type, n int64s cut to an integer type or bool.
void StoreDoubles(DType to, const double* in, std::byte* out, int64_t n);
void StoreIntegers(DType to, const int64_t* in, std::byte* out, int64_t n);
/// Smallest and largest number of an integer type or bool (uint64: up to the largest int64).
int64_t LowestOf(DType type);
int64_t HighestOf(DType type);

}  // namespace ampc
