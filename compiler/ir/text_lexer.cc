// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/text_lexer.h"

#include <algorithm>

#include <fmt/format.h>

namespace ampc::ir {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWord(char c) { return IsLetter(c) || IsDigit(c) || c == '.'; }

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Lexer::SkipBlanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++at_;
    } else {
      return;
    }
  }
}

void Lexer::Next(Token* token) {
  SkipBlanks();
  token->offset = at_;
  token->value.clear();
  const size_t begin = at_;
  const auto finish = [&](Token::Kind kind) {
    token->kind = kind;
    token->text = text_.substr(begin, at_ - begin);
  };
  if (at_ == text_.size()) return finish(Token::Kind::kEnd);
  const char c = text_[at_];
  if (c == '"') return String(token);
  if (IsLetter(c)) {
    while (at_ < text_.size() && IsWord(text_[at_])) ++at_;
    return finish(Token::Kind::kIdentifier);
  }
  if (IsDigit(c) || c == '-' || c == '+' || c == '.') {
    for (++at_; at_ < text_.size(); ++at_) {
      const char d = text_[at_];
      const bool exponent_sign =
          (d == '-' || d == '+') && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E');
      if (!IsWord(d) && !exponent_sign) break;
    }
    return finish(Token::Kind::kNumber);
  }
  ++at_;
  if (c == '=' && at_ < text_.size() && text_[at_] == '>') ++at_;
  if (std::string_view("(){}[]<>,:=").find(c) != std::string_view::npos) {
    return finish(Token::Kind::kPunct);
  }
  finish(Token::Kind::kBad);
  const auto byte = static_cast<unsigned char>(c);
  token->value = byte > 0x20 && byte < 0x7F ? fmt::format("unexpected character '{}'", c)
                                            : fmt::format("unexpected byte 0x{:02x}", byte);
}

void Lexer::String(Token* token) {
  const size_t begin = at_++;
  const auto finish = [&](Token::Kind kind) {
    token->kind = kind;
    token->text = text_.substr(begin, at_ - begin);
  };
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    // A run without escapes at once: data strings are long.
    const size_t run = std::min(text_.find_first_of("\"\\\n", at_), text_.size());
    token->value.append(text_.substr(at_, run - at_));
    at_ = run;
    if (at_ == text_.size() || text_[at_] != '\\') continue;
    const char escaped = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    at_ = std::min(at_ + 2, text_.size());
    switch (escaped) {
      case 'n':
        token->value += '\n';
        break;
      case 'r':
        token->value += '\r';
        break;
      case 't':
        token->value += '\t';
        break;
      case '"':
      case '\\':
        token->value += escaped;
        break;
      case 'x': {
        const int high = at_ < text_.size() ? HexDigit(text_[at_]) : -1;
        const int low = at_ + 1 < text_.size() ? HexDigit(text_[at_ + 1]) : -1;
        if (high >= 0 && low >= 0) {
          token->value += static_cast<char>(high * 16 + low);
          at_ += 2;
          break;
        }
        [[fallthrough]];
      }
      default:
        finish(Token::Kind::kBad);
        token->value = R"(unknown escape in a string; known are \" \\ \n \r \t \xHH)";
        return;
    }
  }
  if (at_ == text_.size() || text_[at_] != '"') {
    finish(Token::Kind::kBad);
    token->value = "a string without closing '\"' in its line";
    return;
  }
  ++at_;
  finish(Token::Kind::kString);
}

std::string Lexer::Position(size_t offset) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n') + 1;  // npos + 1 = 0
  return fmt::format("{}:{}", line, offset - start + 1);
}

}  // namespace ampc::ir
