// SPDX-License-Identifier: Apache-2.0
// Parser of elementwise programs: recursive descent with precedence climbing, straight into SSA.
//
// Every instruction goes through Parser::Emit, which folds constants (by running the evaluator in
// double), shares equal instructions and so needs no later passes; FinishExpr drops what no output
// uses and gives each value a scratch block by liveness. Nesting and size are bounded, because the
// text may come from a damaged plan.

#include "kernels/expr.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "kernels/expr_eval.h"

namespace ampc {
namespace {

constexpr int kMaxNesting = 400;
constexpr size_t kMaxCode = 4096;
constexpr int32_t kMaxIndex = 65535;

struct OpRow {
  std::string_view text;
  int arity;
};
constexpr OpRow kOps[] = {
#define EXPR_OP(name, arity, text) {text, arity},
#include "kernels/expr.def"
#undef EXPR_OP
};

struct Infix {
  std::string_view text;
  int level;  // larger binds tighter
  ExprOp op;
};
constexpr Infix kInfix[] = {
    {"||", 1, ExprOp::kOr}, {"&&", 2, ExprOp::kAnd}, {"==", 3, ExprOp::kEq}, {"!=", 3, ExprOp::kNe},
    {"<=", 4, ExprOp::kLe}, {">=", 4, ExprOp::kGe},  {"<", 4, ExprOp::kLt},  {">", 4, ExprOp::kGt},
    {"+", 5, ExprOp::kAdd}, {"-", 5, ExprOp::kSub},  {"*", 6, ExprOp::kMul}, {"/", 6, ExprOp::kDiv},
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// "x12" with prefix 'x' -> 12; -1 when it is something else.
int32_t IndexedName(std::string_view name, char prefix) {
  if (name.size() < 2 || name.size() > 6 || name[0] != prefix) return -1;
  int32_t index = 0;
  for (char c : name.substr(1)) {
    if (!IsDigit(c)) return -1;
    index = index * 10 + (c - '0');
  }
  return index;
}

/// The operator that is written as function `name`, if any.
std::optional<ExprOp> FindFunction(std::string_view name) {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i].text == name) return static_cast<ExprOp>(i);
  }
  return std::nullopt;
}

bool SameInstr(const ExprInstr& x, const ExprInstr& y) {
  // Constants by their bits: 0 and -0 differ, a NaN equals itself.
  return x.op == y.op && x.a == y.a && x.b == y.b && x.c == y.c &&
         std::bit_cast<uint64_t>(x.constant) == std::bit_cast<uint64_t>(y.constant);
}

/// op(a, b, c) in double, by the evaluator itself so that there is one definition of each operator.
double Fold(ExprOp op, double a, double b, double c) {
  ExprProgram p;
  p.code = {{.op = ExprOp::kInput, .a = 0},
            {.op = ExprOp::kInput, .a = 1},
            {.op = ExprOp::kInput, .a = 2},
            {.op = op, .a = 0, .b = 1, .c = 2}};
  const int arity = ExprArity(op);
  if (arity < 3) p.code[3].c = -1;
  if (arity < 2) p.code[3].b = -1;
  p.code[3].slot = -2;
  p.outputs = {3};
  double result = 0;
  const double* inputs[] = {&a, &b, &c};
  double* outputs[] = {&result};
  EvalBlock<double>(p, inputs, outputs, 1, nullptr);
  return result;
}

class Parser {
 public:
  Parser(std::string_view text, const Attrs& params) : text_(text), params_(params) {}

  Result<ExprProgram> Run() {
    AMPC_TRY(Advance());
    if (token_.empty()) return Error(0, "expected an expression, found nothing");
    bool bare = false;
    while (!token_.empty()) {
      if (bare)
        return Error(at_, "a bare expression must be the whole program; name it, as in y0 = ...");
      AMPC_TRY(Statement(&bare));
      if (token_.empty()) break;
      AMPC_TRY(Expect(";"));
    }
    if (program_.outputs.empty()) {
      return Error(text_.size(), "the program sets no output; one statement must be y0 = ...");
    }
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (program_.outputs[i] < 0)
        return Error(text_.size(), fmt::format("output y{} is never set", i));
    }
    FinishExpr(program_);
    return std::move(program_);
  }

 private:
  struct Name {
    std::string_view name;
    int32_t reg;
  };

  Status Error(size_t at, std::string_view what) const {
    constexpr size_t kAround = 30;
    const size_t begin = at > kAround ? at - kAround : 0;
    std::string_view part = text_.substr(std::min(begin, text_.size()), 2 * kAround);
    return BadInput("E0901", "expression: {} at character {} of \"{}{}{}\"", what, at + 1,
                    begin > 0 ? "..." : "", part, begin + part.size() < text_.size() ? "..." : "");
  }
  std::string Found() const { return token_.empty() ? "the end" : fmt::format("'{}'", token_); }

  /// Reads the next token into token_ (empty at the end) and its place into at_.
  Status Advance() {
    while (pos_ < text_.size() &&
           (text_[pos_] == ' ' || text_[pos_] == '\n' || text_[pos_] == '\t'))
      ++pos_;
    at_ = pos_;
    is_number_ = false;
    if (pos_ == text_.size()) {
      token_ = {};
      return {};
    }
    const char c = text_[pos_];
    const char next = pos_ + 1 < text_.size() ? text_[pos_ + 1] : '\0';
    if (IsDigit(c) || (c == '.' && IsDigit(next))) return Number();
    size_t end = pos_ + 1;
    if (IsAlpha(c) || c == '$') {
      while (end < text_.size() && (IsAlpha(text_[end]) || IsDigit(text_[end]))) ++end;
    } else if (((c == '=' || c == '!' || c == '<' || c == '>') && next == '=') ||
               ((c == '&' || c == '|') && next == c)) {
      ++end;
    } else if (std::string_view("=!<>+-*/(),;").find(c) == std::string_view::npos) {
      return Error(pos_, fmt::format("unknown character 0x{:02x}", static_cast<unsigned char>(c)));
    }
    token_ = text_.substr(pos_, end - pos_);
    pos_ = end;
    return {};
  }

  Status Number() {
    const char* first = text_.data() + pos_;
    const char* last = text_.data() + text_.size();
    const auto [end, error] = std::from_chars(first, last, number_);
    if (error != std::errc()) return Error(pos_, "number out of range");
    token_ = std::string_view(first, static_cast<size_t>(end - first));
    pos_ += token_.size();
    is_number_ = true;
    return {};
  }

  Status Expect(std::string_view what) {
    if (token_ != what) return Error(at_, fmt::format("expected '{}', found {}", what, Found()));
    return Advance();
  }

  /// name = expression | expression
  Status Statement(bool* bare) {
    if (IsAlpha(token_[0])) {
      const std::string_view name = token_;
      const size_t name_at = at_, after = pos_;
      AMPC_TRY(Advance());
      if (token_ == "=") {
        AMPC_TRY(Advance());
        AMPC_ASSIGN(const int32_t reg, Expression(1));
        return Define(name, name_at, reg);
      }
      pos_ = after;  // not an assignment: read the name again as the start of an expression
      at_ = name_at;
      token_ = name;
      is_number_ = false;
    }
    if (!names_.empty()) {
      return Error(
          at_,
          "expected a statement such as y0 = ...; only a whole program may be a bare expression");
    }
    AMPC_ASSIGN(const int32_t reg, Expression(1));
    *bare = true;
    program_.outputs = {reg};
    return {};
  }

  Status Define(std::string_view name, size_t at, int32_t reg) {
    if (IndexedName(name, 'x') >= 0 || FindFunction(name) || name == "inf" || name == "nan") {
      return Error(
          at, fmt::format("'{}' cannot be assigned: it is an input, a function or a number", name));
    }
    if (Lookup(name) >= 0) return Error(at, fmt::format("'{}' is assigned twice", name));
    names_.push_back({name, reg});
    const int32_t output = IndexedName(name, 'y');
    if (output < 0) return {};
    if (output >= static_cast<int32_t>(program_.outputs.size())) {
      if (output > 1000) return Error(at, fmt::format("output '{}' is out of range", name));
      program_.outputs.resize(output + 1, -1);
    }
    program_.outputs[output] = reg;
    return {};
  }

  int32_t Lookup(std::string_view name) const {
    for (const Name& n : names_) {
      if (n.name == name) return n.reg;
    }
    return -1;
  }

  Result<int32_t> Expression(int min_level) {
    AMPC_ASSIGN(int32_t left, Unary());
    while (const Infix* infix = CurrentInfix()) {
      if (infix->level < min_level) break;
      AMPC_TRY(Advance());
      AMPC_ASSIGN(const int32_t right, Expression(infix->level + 1));
      AMPC_ASSIGN(left, Emit({.op = infix->op, .a = left, .b = right}));
    }
    return left;
  }

  const Infix* CurrentInfix() const {
    for (const Infix& infix : kInfix) {
      if (token_ == infix.text) return &infix;
    }
    return nullptr;
  }

  Result<int32_t> Unary() {
    if (++nesting_ > kMaxNesting)
      return Error(at_, fmt::format("nested deeper than {}", kMaxNesting));
    const bool neg = token_ == "-", negate = token_ == "!";
    if (!neg && !negate) {
      Result<int32_t> primary = Primary();
      --nesting_;
      return primary;
    }
    AMPC_TRY(Advance());
    AMPC_ASSIGN(const int32_t operand, Unary());
    --nesting_;
    return Emit({.op = neg ? ExprOp::kNeg : ExprOp::kNot, .a = operand});
  }

  Result<int32_t> Primary() {
    if (is_number_) {
      const double value = number_;
      AMPC_TRY(Advance());
      return Constant(value);
    }
    if (token_ == "(") {
      AMPC_TRY(Advance());
      AMPC_ASSIGN(const int32_t inner, Expression(1));
      AMPC_TRY(Expect(")"));
      return inner;
    }
    if (token_.empty() || (!IsAlpha(token_[0]) && token_[0] != '$')) {
      return Error(at_, fmt::format("expected a value, found {}", Found()));
    }
    const std::string_view name = token_;
    const size_t at = at_;
    AMPC_TRY(Advance());
    if (name[0] == '$') return Parameter(name.substr(1), at);
    if (token_ == "(") return Call(name, at);
    if (name == "inf") return Constant(std::numeric_limits<double>::infinity());
    if (name == "nan") return Constant(std::numeric_limits<double>::quiet_NaN());
    if (const int32_t input = IndexedName(name, 'x'); input >= 0) {
      if (input > kMaxIndex) return Error(at, fmt::format("input '{}' is out of range", name));
      return Emit({.op = ExprOp::kInput, .a = input});
    }
    const int32_t reg = Lookup(name);
    if (reg < 0) return Error(at, fmt::format("'{}' is not defined", name));
    return reg;
  }

  Result<int32_t> Parameter(std::string_view name, size_t at) {
    const Attr* value = params_.Find(name);
    if (value == nullptr) return Error(at, fmt::format("parameter '${}' is not given", name));
    if (const auto* i = std::get_if<int64_t>(value)) return Constant(static_cast<double>(*i));
    if (const auto* d = std::get_if<double>(value)) return Constant(*d);
    return Error(at, fmt::format("parameter '${}' is not a number", name));
  }

  Result<int32_t> Call(std::string_view name, size_t at) {
    const std::optional<ExprOp> op = FindFunction(name);
    if (!op) return Error(at, fmt::format("unknown function '{}'", name));
    AMPC_TRY(Advance());
    std::array<int32_t, 3> args = {-1, -1, -1};
    const int arity = ExprArity(*op);
    for (int i = 0; i < arity; ++i) {
      if (i > 0) AMPC_TRY(Expect(","));
      AMPC_ASSIGN(args[i], Expression(1));
    }
    if (token_ == ",") {
      return Error(at_, fmt::format("'{}' takes {} argument{}, found more", name, arity,
                                    arity == 1 ? "" : "s"));
    }
    AMPC_TRY(Expect(")"));
    return Emit({.op = *op, .a = args[0], .b = args[1], .c = args[2]});
  }

  Result<int32_t> Constant(double value) { return Emit({.op = ExprOp::kConst, .constant = value}); }

  /// The register of `instr`: folded, shared with an equal earlier one, or new.
  Result<int32_t> Emit(ExprInstr instr) {
    const int arity = ExprArity(instr.op);
    const std::array<int32_t, 3> args = {instr.a, instr.b, instr.c};
    if (instr.op == ExprOp::kWhere && IsConst(instr.a)) {
      return program_.code[instr.a].constant != 0 ? instr.b : instr.c;
    }
    if (arity > 0 &&
        std::all_of(args.begin(), args.begin() + arity, [&](int32_t r) { return IsConst(r); })) {
      std::array<double, 3> v = {};
      for (int i = 0; i < arity; ++i) v[i] = program_.code[args[i]].constant;
      instr = {.op = ExprOp::kConst, .constant = Fold(instr.op, v[0], v[1], v[2])};
    }
    for (size_t i = 0; i < program_.code.size(); ++i) {
      if (SameInstr(program_.code[i], instr)) return static_cast<int32_t>(i);
    }
    if (program_.code.size() == kMaxCode) {
      return Error(at_, fmt::format("more than {} operations", kMaxCode));
    }
    program_.code.push_back(instr);
    return static_cast<int32_t>(program_.code.size() - 1);
  }

  bool IsConst(int32_t reg) const { return program_.code[reg].op == ExprOp::kConst; }

  std::string_view text_;
  const Attrs& params_;
  size_t pos_ = 0;          // of the character after the current token
  size_t at_ = 0;           // of the current token
  std::string_view token_;  // empty at the end
  bool is_number_ = false;
  double number_ = 0;
  int nesting_ = 0;
  std::vector<Name> names_;
  ExprProgram program_;
};

/// Calls f(register&) for each operand register of an instruction (an input's index is none).
template <typename F>
void ForEachOperand(ExprInstr& instr, F f) {
  const int arity = ExprArity(instr.op);
  if (arity > 0) f(instr.a);
  if (arity > 1) f(instr.b);
  if (arity > 2) f(instr.c);
}

void DropUnused(ExprProgram& p) {
  std::vector<int32_t> renamed(p.code.size(), -1);
  for (int32_t out : p.outputs) renamed[out] = 0;
  for (size_t i = p.code.size(); i-- > 0;) {
    if (renamed[i] < 0) continue;
    ForEachOperand(p.code[i], [&](int32_t& r) { renamed[r] = 0; });
  }
  int32_t next = 0;
  for (size_t i = 0; i < p.code.size(); ++i) {
    if (renamed[i] < 0) continue;
    renamed[i] = next;
    ExprInstr instr = p.code[i];
    ForEachOperand(instr, [&](int32_t& r) { r = renamed[r]; });
    p.code[next++] = instr;
  }
  p.code.resize(next);
  for (int32_t& out : p.outputs) out = renamed[out];
}

/// Linear scan. A result may take the block of an operand that dies with it: operators work element
/// by element. An output goes straight to its place once no input is read any more (the place may
/// be an input's), else it waits in a scratch block.
void AssignSlots(ExprProgram& p) {
  const int32_t size = static_cast<int32_t>(p.code.size());
  std::vector<int32_t> last_use(p.code.size(), -1);
  std::vector<int32_t> output_of(p.code.size(), -1);  // the first output that a register goes to
  for (size_t j = p.outputs.size(); j-- > 0;) output_of[p.outputs[j]] = static_cast<int32_t>(j);
  // An input that is itself an output is copied first, as another output may overwrite it.
  const auto copied = [&](int32_t i) {
    return p.code[i].op == ExprOp::kInput && output_of[i] >= 0 && p.outputs.size() > 1;
  };
  int32_t last_read = -1;  // last instruction that reads an input
  for (int32_t i = 0; i < size; ++i) {
    if (copied(i)) last_read = i;
    ForEachOperand(p.code[i], [&](int32_t& r) {
      last_use[r] = i;
      if (p.code[r].op == ExprOp::kInput) last_read = i;
    });
  }
  for (int32_t out : p.outputs) last_use[out] = size;  // waits to the end
  std::vector<int32_t> free;
  p.num_slots = 0;
  p.num_inputs = 0;
  for (int32_t i = 0; i < size; ++i) {
    ExprInstr& instr = p.code[i];
    instr.slot = -1;
    if (instr.op == ExprOp::kConst) continue;
    if (instr.op == ExprOp::kInput) {
      p.num_inputs = std::max(p.num_inputs, instr.a + 1);
      if (!copied(i)) continue;
    }
    ForEachOperand(instr, [&](int32_t& r) {
      if (last_use[r] == i && p.code[r].slot >= 0) {
        free.push_back(p.code[r].slot);
        last_use[r] = -1;  // an operand used twice is freed once
      }
    });
    if (output_of[i] >= 0 && i >= last_read && instr.op != ExprOp::kInput) {
      instr.slot = -2 - output_of[i];
    } else if (!free.empty()) {
      instr.slot = free.back();
      free.pop_back();
    } else {
      instr.slot = p.num_slots++;
    }
  }
}

}  // namespace

Result<ExprProgram> ParseExpr(std::string_view text, const Attrs& params) {
  return Parser(text, params).Run();
}

void FinishExpr(ExprProgram& program) {
  DropUnused(program);
  AssignSlots(program);
}

std::string ExprText(const ExprProgram& program) {
  const auto operand = [&](int32_t r) -> std::string {
    const ExprInstr& instr = program.code[r];
    if (instr.op == ExprOp::kInput) return fmt::format("x{}", instr.a);
    if (instr.op == ExprOp::kConst) {
      return std::isnan(instr.constant) ? "nan" : fmt::format("{}", instr.constant);
    }
    return fmt::format("t{}", r);
  };
  std::string text;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const ExprInstr& instr = program.code[i];
    const int arity = ExprArity(instr.op);
    if (arity == 0) continue;
    const std::string_view name = ExprOpName(instr.op);
    text += fmt::format("t{} = ", i);
    if (arity == 2 && !IsAlpha(name[0])) {
      text += fmt::format("{} {} {}; ", operand(instr.a), name, operand(instr.b));
    } else {
      text += fmt::format("{}({}", name, operand(instr.a));
      if (arity > 1) text += fmt::format(", {}", operand(instr.b));
      if (arity > 2) text += fmt::format(", {}", operand(instr.c));
      text += "); ";
    }
  }
  for (size_t j = 0; j < program.outputs.size(); ++j) {
    text += fmt::format("{}y{} = {}", j > 0 ? "; " : "", j, operand(program.outputs[j]));
  }
  return text;
}

std::string_view ExprOpName(ExprOp op) { return kOps[static_cast<size_t>(op)].text; }
int ExprArity(ExprOp op) { return kOps[static_cast<size_t>(op)].arity; }

}  // namespace ampc
