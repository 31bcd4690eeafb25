// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text_data.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "runtime/base/float16.h"

namespace ampc::ir {
namespace {

template <typename T>
T Load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

template <typename T>
bool Store(std::optional<T> value, std::byte* out) {
  if (value) std::memcpy(out, &*value, sizeof(T));
  return value.has_value();
}

template <typename T>
std::optional<T> FromChars(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename Bits>
std::optional<Bits> BitsFromChars(std::string_view text) {
  Bits bits{};
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return bits;
}

// Floats wider than 16 bits, whose text std::from_chars reads with one rounding.
template <typename T, typename Bits>
std::optional<T> FloatFromChars(std::string_view text) {
  if (text.starts_with("0x")) {
    const auto bits = BitsFromChars<Bits>(text);
    return bits ? std::optional(std::bit_cast<T>(*bits)) : std::nullopt;
  }
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint16_t> SmallFloatFromChars(std::string_view text, uint16_t (*narrow)(double)) {
  if (text.starts_with("0x")) return BitsFromChars<uint16_t>(text);
  const auto value = FloatFromChars<double, uint64_t>(text);
  return value ? std::optional(narrow(*value)) : std::nullopt;
}

template <typename T, typename Bits>
void AppendFloat(T value, Bits bits, Bits quiet_nan, std::string* out) {
  if (!std::isnan(value)) {
    fmt::format_to(std::back_inserter(*out), "{}", value);
  } else if (bits == quiet_nan) {
    *out += "nan";
  } else {
    fmt::format_to(std::back_inserter(*out), "{:#x}", bits);
  }
}

void AppendElement(DType dtype, const std::byte* p, std::string* out) {
  const auto number = [out](auto v) { fmt::format_to(std::back_inserter(*out), "{}", v); };
  switch (dtype) {
    case DType::kFloat32:
      AppendFloat<float, uint32_t>(Load<float>(p), Load<uint32_t>(p), 0x7FC00000u, out);
      break;
    case DType::kFloat64:
      AppendDouble(Load<double>(p), out);
      break;
    case DType::kFloat16: {
      const auto h = Load<uint16_t>(p);
      AppendFloat<float, uint16_t>(FloatFromHalf(h), h, 0x7E00, out);
      break;
    }
    case DType::kBFloat16: {
      const auto h = Load<uint16_t>(p);
      AppendFloat<float, uint16_t>(FloatFromBFloat16(h), h, 0x7FC0, out);
      break;
    }
    case DType::kInt64:
      number(Load<int64_t>(p));
      break;
    case DType::kInt32:
      number(Load<int32_t>(p));
      break;
    case DType::kInt16:
      number(Load<int16_t>(p));
      break;
    case DType::kInt8:
      number(static_cast<int>(Load<int8_t>(p)));
      break;
    case DType::kUInt64:
      number(Load<uint64_t>(p));
      break;
    case DType::kUInt32:
      number(Load<uint32_t>(p));
      break;
    case DType::kUInt16:
      number(Load<uint16_t>(p));
      break;
    case DType::kUInt8:
      number(static_cast<int>(Load<uint8_t>(p)));
      break;
    case DType::kBool:
      number(Load<uint8_t>(p) != 0 ? 1 : 0);
      break;
    case DType::kNone:
      break;
  }
}

}  // namespace

void AppendDouble(double value, std::string* out) {
  AppendFloat<double, uint64_t>(value, std::bit_cast<uint64_t>(value), 0x7FF8000000000000ull, out);
}

std::optional<double> ParseDouble(std::string_view text) {
  return FloatFromChars<double, uint64_t>(text);
}

std::optional<int64_t> ParseInt64(std::string_view text) { return FromChars<int64_t>(text); }

void AppendData(DType dtype, std::span<const std::byte> bytes, std::string* out) {
  const auto size = static_cast<size_t>(SizeOf(dtype));
  if (bytes.size() <= size * static_cast<size_t>(kInlineElements)) {
    *out += '{';
    for (size_t i = 0; i < bytes.size(); i += size) {
      if (i > 0) *out += ", ";
      AppendElement(dtype, bytes.data() + i, out);
    }
    *out += '}';
    return;
  }
  constexpr char kDigits[] = "0123456789abcdef";
  *out += "hex(\"";
  out->reserve(out->size() + 2 * bytes.size() + 2);
  for (std::byte b : bytes) {
    *out += kDigits[static_cast<uint8_t>(b) >> 4];
    *out += kDigits[static_cast<uint8_t>(b) & 15];
  }
  *out += "\")";
}

bool ParseElement(DType dtype, std::string_view text, std::byte* out) {
  switch (dtype) {
    case DType::kFloat32:
      return Store(FloatFromChars<float, uint32_t>(text), out);
    case DType::kFloat64:
      return Store(FloatFromChars<double, uint64_t>(text), out);
    case DType::kFloat16:
      return Store(
          SmallFloatFromChars(
              text, [](double v) { return std::isnan(v) ? uint16_t{0x7E00} : HalfFromDouble(v); }),
          out);
    case DType::kBFloat16:
      return Store(
          SmallFloatFromChars(
              text,
              [](double v) { return std::isnan(v) ? uint16_t{0x7FC0} : BFloat16FromDouble(v); }),
          out);
    case DType::kInt64:
      return Store(FromChars<int64_t>(text), out);
    case DType::kInt32:
      return Store(FromChars<int32_t>(text), out);
    case DType::kInt16:
      return Store(FromChars<int16_t>(text), out);
    case DType::kInt8:
      return Store(FromChars<int8_t>(text), out);
    case DType::kUInt64:
      return Store(FromChars<uint64_t>(text), out);
    case DType::kUInt32:
      return Store(FromChars<uint32_t>(text), out);
    case DType::kUInt16:
      return Store(FromChars<uint16_t>(text), out);
    case DType::kUInt8:
      return Store(FromChars<uint8_t>(text), out);
    case DType::kBool: {
      const bool yes = text == "1" || text == "true";
      *out = static_cast<std::byte>(yes);
      return yes || text == "0" || text == "false";
    }
    case DType::kNone:
      return false;
  }
  return false;
}

std::optional<std::vector<std::byte>> ParseHex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::vector<std::byte> bytes(text.size() / 2);
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return bytes;
}

void AppendQuoted(std::string_view text, std::string* out) {
  *out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          fmt::format_to(std::back_inserter(*out), "\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

}  // namespace ampc::ir
