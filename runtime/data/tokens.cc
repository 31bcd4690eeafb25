// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/tokens.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ampc {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kTableEnd = 0x10000;  // what lies beyond is rare in any text

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {{"u8", DType::kUInt8},
                                   {"u16", DType::kUInt16},
                                   {"u32", DType::kUInt32},
                                   {"i32", DType::kInt32},
                                   {"i64", DType::kInt64}};

// Walks over the characters of UTF-8 text as RFC 3629 has it: the shortest form only, no
// surrogates.
class Utf8Reader {
 public:
  explicit Utf8Reader(std::span<const std::byte> text) : text_(text) {}

  bool done() const { return at_ == text_.size(); }
  /// Where the next character begins.
  size_t position() const { return at_; }
  /// The next character, or false where there is none.
  bool Next(char32_t* character) {
    const uint32_t first = std::to_integer<uint32_t>(text_[at_]);
    if (first < 0x80) {
      *character = first;
      ++at_;
      return true;
    }
    const size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || text_.size() - at_ <= more) return false;
    char32_t code = first & (0x3Fu >> more);
    for (size_t i = 1; i <= more; ++i) {
      const uint32_t next = std::to_integer<uint32_t>(text_[at_ + i]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3F);
    }
    constexpr char32_t kLowest[] = {0, 0x80, 0x800, 0x10000};
    if (code < kLowest[more] || code > kLastCodePoint || (code >= 0xD800 && code < 0xE000))
      return false;
    at_ += more + 1;
    *character = code;
    return true;
  }

  Status NotUtf8() const {
    return BadInput("E0766", "not UTF-8 text: no character begins with byte {} (0x{:02x})", at_,
                    std::to_integer<uint32_t>(text_[at_]));
  }

 private:
  std::span<const std::byte> text_;
  size_t at_ = 0;
};

// "'ß' (U+00DF)"; the code alone for what a terminal would not show.
std::string Shown(char32_t c, std::span<const std::byte> bytes) {
  const std::string code = fmt::format("U+{:04X}", static_cast<uint32_t>(c));
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return code;
  return fmt::format("'{}' ({})",
                     std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                     code);
}

// The narrowest type for ids below `size`.
DType TypeFor(int64_t size) {
  return size <= 0x100 ? DType::kUInt8 : size <= 0x10000 ? DType::kUInt16 : DType::kUInt32;
}

}  // namespace

DType TokenTypeOf(std::string_view name) {
  for (const TypeName& row : kTypeNames) {
    if (row.name == name) return row.dtype;
  }
  return DType::kNone;
}

Result<Array> BinaryTokens(std::shared_ptr<const MappedFile> file, DType dtype, int64_t header) {
  const int64_t size = SizeOf(dtype);
  if (header < 0 || header > file->size())
    return BadInput("E0765", "header={}, but the file has {} bytes", header, file->size());
  const int64_t bytes = file->size() - header;
  if (bytes == 0)
    return BadInput("E0765", "no tokens: the file has {} bytes, of which {} are header",
                    file->size(), header);
  if (bytes % size != 0) {
    return BadInput("E0765",
                    "{} bytes behind the header of {} are no whole number of {} tokens ({} bytes "
                    "each): check dtype= and header=",
                    bytes, header, Name(dtype), size);
  }
  const std::byte* data = file->data() + header;
  return MakeArray(dtype, Dims{bytes / size}, data, std::move(file));
}

Result<Vocabulary> Vocabulary::Of(std::span<const std::byte> text) {
  if (text.empty()) return BadInput("E0766", "the text is empty");
  std::vector<uint64_t> seen((kLastCodePoint + 1) / 64);  // one bit each
  for (Utf8Reader reader(text); !reader.done();) {
    char32_t c = 0;
    if (!reader.Next(&c)) return reader.NotUtf8();
    seen[c / 64] |= uint64_t{1} << c % 64;
  }
  Vocabulary v;
  for (size_t i = 0; i < seen.size(); ++i) {
    for (uint64_t bits = seen[i]; bits != 0; bits &= bits - 1)
      v.characters_.push_back(static_cast<char32_t>(64 * i) +
                              static_cast<char32_t>(std::countr_zero(bits)));
  }
  v.ids_.assign(std::min<size_t>(v.characters_.back() + 1, kTableEnd), -1);
  for (size_t id = 0; id < v.characters_.size() && v.characters_[id] < kTableEnd; ++id)
    v.ids_[v.characters_[id]] = static_cast<int32_t>(id);
  return v;
}

int32_t Vocabulary::IdOf(char32_t character) const {
  if (character < ids_.size()) return ids_[character];
  const auto at = std::lower_bound(characters_.begin(), characters_.end(), character);
  return at != characters_.end() && *at == character
             ? static_cast<int32_t>(at - characters_.begin())
             : -1;
}

template <typename T>
Result<int64_t> Vocabulary::EncodeAs(std::span<const std::byte> text, std::string_view place,
                                     T* out) const {
  int64_t count = 0;
  for (Utf8Reader reader(text); !reader.done();) {
    const size_t begin = reader.position();
    char32_t c = 0;
    if (!reader.Next(&c)) return reader.NotUtf8();
    const int32_t id = IdOf(c);
    if (id < 0) {
      return BadInput("E0768", "the character {} at byte {} is not among the {} of '{}'",
                      Shown(c, text.subspan(begin, reader.position() - begin)), begin, size(),
                      place);
    }
    out[count++] = static_cast<T>(id);
  }
  return count;
}

Result<Array> Vocabulary::Encode(std::span<const std::byte> text, std::string_view place) const {
  if (text.empty()) return BadInput("E0766", "the text is empty");
  const DType dtype = TypeFor(size());
  // As many characters as bytes that do not continue one.
  const int64_t characters = std::count_if(text.begin(), text.end(), [](std::byte b) {
    return (b & std::byte{0xC0}) != std::byte{0x80};
  });
  AMPC_ASSIGN(OwnedBytes bytes, AllocateBytes(characters * SizeOf(dtype)));
  Result<int64_t> count = 0;
  if (dtype == DType::kUInt8) {
    count = EncodeAs(text, place, reinterpret_cast<uint8_t*>(bytes.memory.get()));
  } else if (dtype == DType::kUInt16) {
    count = EncodeAs(text, place, reinterpret_cast<uint16_t*>(bytes.memory.get()));
  } else {
    count = EncodeAs(text, place, reinterpret_cast<uint32_t*>(bytes.memory.get()));
  }
  if (!count.ok()) return std::move(count).TakeStatus();
  return MakeArray(dtype, Dims{*count}, bytes.memory.get(), bytes.memory);
}

}  // namespace ampc
