// SPDX-License-Identifier: Apache-2.0
#pragma once
// Token streams: raw binary files (what nanoGPT's and llm.c's scripts write) and text whose tokens
// are its characters.
//
// A stream is an Array of one axis. A binary file is used in place; a text is held as the ids of
// its characters, in the narrowest type that holds them all, so never larger than four bytes a
// character. Windows are views of a stream (dataset.cc): nothing is expanded.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/data/array.h"

namespace ampc {

/// How a file becomes tokens.
struct TokenForm {
  enum class Kind : uint8_t {
    kBinary,      ///< little-endian integers behind a header
    kCharacters,  ///< UTF-8 text; the id of a character is its rank among those of the vocabulary
  };
  Kind kind = Kind::kBinary;
  DType dtype = DType::kUInt16;  ///< kBinary
  int64_t header = 0;            ///< kBinary: bytes to skip
  std::string vocabulary;  ///< kCharacters: the text whose characters count; "" = the text itself
};

/// "u8", "u16", "u32", "i32", "i64"; kNone for another name.
DType TokenTypeOf(std::string_view name);

/// Elements of `dtype` behind the header. The file must hold whole ones, and at least one.
Result<Array> BinaryTokens(std::shared_ptr<const MappedFile> file, DType dtype, int64_t header);

/// The different characters (Unicode code points) of a text, in ascending order.
class Vocabulary {
 public:
  /// `text` must be UTF-8 and not empty.
  static Result<Vocabulary> Of(std::span<const std::byte> text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }
  std::span<const char32_t> characters() const { return characters_; }
  /// The ids of the characters of `text`. One that the vocabulary lacks is an error; `place` says
  /// there which text the vocabulary is of.
  Result<Array> Encode(std::span<const std::byte> text, std::string_view place) const;

 private:
  /// -1: not among them.
  int32_t IdOf(char32_t character) const;
  template <typename T>
  Result<int64_t> EncodeAs(std::span<const std::byte> text, std::string_view place, T* out) const;

  std::vector<char32_t> characters_;
  std::vector<int32_t> ids_;  // by code point, of those below 2^16; -1 = not among them
};

/// A text as tokens.
struct TextTokens {
  Array ids;
  std::shared_ptr<const Vocabulary> vocabulary;
};

}  // namespace ampc
