// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/float16.h"

namespace ampc {
namespace {

// Elements per pass through the buffers on the stack (at most 8 KiB in all: they stay in the first
// cache).
constexpr int64_t kChunk = 512;

template <typename T, typename Out>
void LoadAs(const std::byte* in, Out* out, int64_t n) {
  T buffer[kChunk];
  std::memcpy(buffer, in, static_cast<size_t>(n) * sizeof(T));
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Out>(buffer[i]);
}

template <typename Widen>
void LoadLow(const std::byte* in, double* out, int64_t n, Widen widen) {
  uint16_t low[kChunk];
  float wide[kChunk];
  std::memcpy(low, in, static_cast<size_t>(n) * sizeof(uint16_t));
  widen(low, wide, n);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<double>(wide[i]);
}

void LoadBools(const std::byte* in, auto* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] != std::byte{0} ? 1 : 0;
}

// n <= kChunk elements of any type as doubles.
void LoadDoubles(DType from, const std::byte* in, double* out, int64_t n) {
  switch (from) {
    case DType::kFloat32:
      return LoadAs<float>(in, out, n);
    case DType::kFloat64:
      return LoadAs<double>(in, out, n);
    case DType::kFloat16:
      return LoadLow(in, out, n, [](auto... a) { HalfToFloat(a...); });
    case DType::kBFloat16:
      return LoadLow(in, out, n, [](auto... a) { BFloat16ToFloat(a...); });
    case DType::kUInt8:
      return LoadAs<uint8_t>(in, out, n);
    case DType::kInt8:
      return LoadAs<int8_t>(in, out, n);
    case DType::kUInt16:
      return LoadAs<uint16_t>(in, out, n);
    case DType::kInt16:
      return LoadAs<int16_t>(in, out, n);
    case DType::kUInt32:
      return LoadAs<uint32_t>(in, out, n);
    case DType::kInt32:
      return LoadAs<int32_t>(in, out, n);
    case DType::kUInt64:
      return LoadAs<uint64_t>(in, out, n);
    case DType::kInt64:
      return LoadAs<int64_t>(in, out, n);
    case DType::kBool:
      return LoadBools(in, out, n);
    case DType::kNone:
      return;
  }
}

// n <= kChunk elements of an integer type or bool. A uint64 above the largest int64 turns negative,
// which every feed that takes uint64 sources refuses (low_ is 0 for them).
void LoadIntegers(DType from, const std::byte* in, int64_t* out, int64_t n) {
  switch (from) {
    case DType::kUInt8:
      return LoadAs<uint8_t>(in, out, n);
    case DType::kInt8:
      return LoadAs<int8_t>(in, out, n);
    case DType::kUInt16:
      return LoadAs<uint16_t>(in, out, n);
    case DType::kInt16:
      return LoadAs<int16_t>(in, out, n);
    case DType::kUInt32:
      return LoadAs<uint32_t>(in, out, n);
    case DType::kInt32:
      return LoadAs<int32_t>(in, out, n);
    case DType::kUInt64:
      return LoadAs<uint64_t>(in, out, n);
    case DType::kInt64:
      return LoadAs<int64_t>(in, out, n);
    case DType::kBool:
      return LoadBools(in, out, n);
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kNone:
      return;
  }
}

template <typename T>
void StoreAs(const auto* in, std::byte* out, int64_t n) {
  T* typed = reinterpret_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) typed[i] = static_cast<T>(in[i]);
}

template <typename T>
void LookUp(const std::byte* in, std::byte* out, int64_t n, const std::byte* table) {
  const T* results = reinterpret_cast<const T*>(table);
  T* typed = reinterpret_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) typed[i] = results[std::to_integer<uint8_t>(in[i])];
}

}  // namespace

void StoreDoubles(DType to, const double* in, std::byte* out, int64_t n) {
  uint16_t* low = reinterpret_cast<uint16_t*>(out);
  switch (to) {
    case DType::kFloat32:
      return StoreAs<float>(in, out, n);
    case DType::kFloat64:
      return StoreAs<double>(in, out, n);
    case DType::kFloat16:
      for (int64_t i = 0; i < n; ++i) low[i] = HalfFromDouble(in[i]);
      return;
    case DType::kBFloat16:
      for (int64_t i = 0; i < n; ++i) low[i] = BFloat16FromDouble(in[i]);
      return;
    default:
      return;  // callers store floats only
  }
}

void StoreIntegers(DType to, const int64_t* in, std::byte* out, int64_t n) {
  switch (SizeOf(to)) {
    case 1:
      return StoreAs<uint8_t>(in, out, n);
    case 2:
      return StoreAs<uint16_t>(in, out, n);
    case 4:
      return StoreAs<uint32_t>(in, out, n);
    default:
      return StoreAs<uint64_t>(in, out, n);
  }
}

int64_t LowestOf(DType type) {
  switch (type) {
    case DType::kInt8:
      return std::numeric_limits<int8_t>::min();
    case DType::kInt16:
      return std::numeric_limits<int16_t>::min();
    case DType::kInt32:
      return std::numeric_limits<int32_t>::min();
    case DType::kInt64:
      return std::numeric_limits<int64_t>::min();
    default:
      return 0;
  }
}

int64_t HighestOf(DType type) {
  if (type == DType::kBool) return 1;
  const int bits = static_cast<int>(SizeOf(type) * 8) - (LowestOf(type) < 0 ? 1 : 0);
  return bits >= 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
}

bool Normalization::identity() const {
  return scale == 1 && std::all_of(mean.begin(), mean.end(), [](double v) { return v == 0; }) &&
         std::all_of(std.begin(), std.end(), [](double v) { return v == 1; });
}

Result<Converter> Converter::Make(DType from, DType to, const Normalization& normalization,
                                  ChannelLayout layout, IntegerRange range) {
  Converter c;
  c.from_ = from;
  c.to_ = to;
  c.normalization_ = normalization;
  c.layout_ = layout;
  c.range_ = range;
  const bool plain = normalization.identity();
  if (!IsFloat(to)) {
    if (IsFloat(from)) {
      return BadInput(
          "E0751",
          "the feed is {}, the data {}: floats are not cut to integers; store the data as integers",
          Name(to), Name(from));
    }
    if (!plain)
      return UsageError("E0752", "scale, mean and std are for float feeds, this one is {}",
                        Name(to));
    c.path_ = Path::kInteger;
    c.low_ = from == DType::kUInt64 ? 0 : range.limit > 0 ? range.low : LowestOf(to);
    c.high_ = range.limit > 0 ? std::min(range.limit - 1, HighestOf(to)) : HighestOf(to);
    return c;
  }
  for (double s : normalization.std) {
    if (!std::isfinite(s) || s == 0)
      return UsageError("E0752", "std must be finite and not zero, got {}", s);
  }
  if (plain && from == to) {
    c.path_ = Path::kCopy;
  } else if (plain && from == DType::kFloat16 && to == DType::kFloat32) {
    c.path_ = Path::kHalf;
  } else if (plain && from == DType::kBFloat16 && to == DType::kFloat32) {
    c.path_ = Path::kBFloat16;
  } else if (SizeOf(from) == 1) {
    c.path_ = Path::kTable;
    c.BuildTable();
  } else {
    c.path_ = Path::kDouble;
  }
  return c;
}

// The table is made by the same code that converts everything else, so both agree to the bit.
void Converter::BuildTable() {
  std::byte values[256];
  for (size_t i = 0; i < 256; ++i) values[i] = static_cast<std::byte>(i);
  const size_t stride = 256 * static_cast<size_t>(SizeOf(to_));
  table_.resize(normalization_.channels() * stride);
  for (size_t channel = 0; channel < normalization_.channels(); ++channel) {
    std::byte* results = table_.data() + channel * stride;
    path_ = Path::kDouble;
    NormalizeRun(values, results, 256, channel);
    path_ = Path::kTable;
  }
}

// A run of elements of one channel, by table or by arithmetic.
void Converter::NormalizeRun(const std::byte* in, std::byte* out, int64_t n, size_t channel) const {
  const int64_t from_size = SizeOf(from_), to_size = SizeOf(to_);
  if (path_ == Path::kTable) {
    const std::byte* results = table_.data() + channel * 256 * static_cast<size_t>(to_size);
    if (to_size == 2) return LookUp<uint16_t>(in, out, n, results);
    if (to_size == 4) return LookUp<float>(in, out, n, results);
    return LookUp<double>(in, out, n, results);
  }
  const double scale = normalization_.scale;
  const double mean = normalization_.mean[std::min(channel, normalization_.mean.size() - 1)];
  const double std = normalization_.std[std::min(channel, normalization_.std.size() - 1)];
  const bool plain = normalization_.identity();
  for (int64_t done = 0; done < n; done += kChunk) {
    const int64_t count = std::min(kChunk, n - done);
    double values[kChunk];
    LoadDoubles(from_, in + done * from_size, values, count);
    if (!plain) {
      for (int64_t i = 0; i < count; ++i) values[i] = (values[i] * scale - mean) / std;
    }
    StoreDoubles(to_, values, out + done * to_size, count);
  }
}

int64_t Converter::ConvertIntegers(const std::byte* in, std::byte* out, int64_t n) const {
  for (int64_t done = 0; done < n; done += kChunk) {
    const int64_t count = std::min(kChunk, n - done);
    int64_t values[kChunk];
    LoadIntegers(from_, in + done * SizeOf(from_), values, count);
    const int64_t ignore = range_.ignore.value_or(low_);
    bool bad = false;
    for (int64_t i = 0; i < count; ++i) {
      bad |= (values[i] < low_ || values[i] > high_) && values[i] != ignore;
    }
    if (bad) {
      for (int64_t i = 0; i < count; ++i) {
        if ((values[i] < low_ || values[i] > high_) && values[i] != ignore) return done + i;
      }
    }
    StoreIntegers(to_, values, out + done * SizeOf(to_), count);
  }
  return -1;
}

int64_t Converter::Convert(const std::byte* in, std::byte* out, int64_t n, int64_t first) const {
  switch (path_) {
    case Path::kCopy:
      std::memcpy(out, in, static_cast<size_t>(n * SizeOf(to_)));
      return -1;
    case Path::kHalf:
    case Path::kBFloat16:
      for (int64_t done = 0; done < n; done += kChunk) {
        uint16_t low[kChunk];
        const int64_t count = std::min(kChunk, n - done);
        std::memcpy(low, in + 2 * done, static_cast<size_t>(2 * count));
        float* wide = reinterpret_cast<float*>(out) + done;
        path_ == Path::kHalf ? HalfToFloat(low, wide, count) : BFloat16ToFloat(low, wide, count);
      }
      return -1;
    case Path::kInteger:
      return ConvertIntegers(in, out, n);
    case Path::kTable:
    case Path::kDouble:
      break;
  }
  if (normalization_.channels() == 1) {
    NormalizeRun(in, out, n, 0);
    return -1;
  }
  for (int64_t at = 0; at < n;) {
    const int64_t run = std::min(layout_.inner - (first + at) % layout_.inner, n - at);
    const size_t channel = static_cast<size_t>((first + at) / layout_.inner % layout_.channels);
    NormalizeRun(in + at * SizeOf(from_), out + at * SizeOf(to_), run, channel);
    at += run;
  }
  return -1;
}

std::string Converter::DescribeBad(const std::byte* in, int64_t index) const {
  int64_t value = 0;
  LoadIntegers(from_, in + index * SizeOf(from_), &value, 1);
  std::string text = from_ == DType::kUInt64 ? fmt::format("{}", static_cast<uint64_t>(value))
                                             : fmt::format("{}", value);
  text += fmt::format(", the feed takes {} to {}", low_, high_);
  if (range_.ignore) text += fmt::format(" and {}", *range_.ignore);
  return text;
}

}  // namespace ampc
