// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tokens of module text. Comments run from '#' to the end of the line.

#include <cstdint>
#include <string>
#include <string_view>

namespace ampc::ir {

struct Token {
  enum class Kind : uint8_t {
    kEnd,
    kIdentifier,  ///< letters, digits, '_' and '.', not starting with a digit
    kString,      ///< quoted; `value` is the text without quotes and escapes
    kNumber,      ///< starts with a digit or a sign; includes -inf, 0x7fc0
    kPunct,       ///< one of ( ) { } [ ] < > , : = or =>
    kBad,         ///< what can be no token; `value` says why
  };
  Kind kind = Kind::kEnd;
  size_t offset = 0;      ///< of the first character in the text
  std::string_view text;  ///< as written
  std::string value;

  bool Is(std::string_view punct_or_word) const {
    return (kind == Kind::kPunct || kind == Kind::kIdentifier) && text == punct_or_word;
  }
  /// An identifier or a quoted name.
  bool IsName() const { return kind == Kind::kIdentifier || kind == Kind::kString; }
  std::string_view name() const { return kind == Kind::kString ? std::string_view(value) : text; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  /// Reads the next token. At the end: kEnd, again and again.
  void Next(Token* token);
  /// "LINE:COLUMN" of an offset, both from 1. Linear in the text, for messages.
  std::string Position(size_t offset) const;

 private:
  void SkipBlanks();
  void String(Token* token);

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace ampc::ir
