// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elementwise programs: the one language in which every elementwise op, its gradient, the schedules
// and the scaler update are written, from the op tables down to the kernels.
//
//   program   = statement { ";" statement }     a single bare expression means y0 = expression
//   statement = name "=" expression             y0, y1, … are the outputs, others temporaries
//   primary   = number | inf | nan | name | x0, x1, … (inputs) | $name (numeric parameter)
//             | fn "(" args ")" | "(" expression ")"
//   operators, loosest first:  ||   &&   == !=   < <= > >=   + -   * /   unary - !
//
// Functions: abs exp log log1p expm1 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh
// atanh erf sigmoid floor ceil round (half to even) sign isnan isinf, pow min max (both pass NaN
// on) mod (sign of the divisor) fmod, where(condition, a, b) (selects, never multiplies), the
// roundings fp32() fp16() bf16() that fused groups use between their ops, and on the bits of int64
// (other types are converted to it and back) bitand bitor bitxor bitnot, shl, which fills with
// zeros, and shr, with the sign (a distance outside [0, 64) leaves nothing but these). Comparisons
// give 1 or 0.
// Everything is computed in one type T: double, float or int64 (see map in kernels.def). Constants
// are folded in double and converted to T where they are used. kernels/expr_eval.h evaluates
// programs.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/attrs.h"
#include "runtime/base/status.h"

namespace ampc {

enum class ExprOp : uint8_t {
#define EXPR_OP(name, arity, text) k##name,
#include "kernels/expr.def"
#undef EXPR_OP
};

/// One instruction in SSA form: instruction i defines register i. Operands are earlier registers.
struct ExprInstr {
  ExprOp op;
  int32_t a = -1, b = -1, c = -1;  ///< operand registers; for kInput: a = input index
  double constant = 0;             ///< for kConst
  /// Where its value lies while EvalBlock runs: >= 0 a scratch block, <= -2 straight in output -2 -
  /// slot, -1 nowhere (constants; inputs are read in place).
  int32_t slot = -1;
};

/// A parsed program. Common subexpressions are shared, unused ones dropped, constants folded in
/// double.
struct ExprProgram {
  std::vector<ExprInstr> code;
  std::vector<int32_t> outputs;  ///< register of y0, y1, …
  int num_inputs = 0;            ///< 1 + largest input index used
  int num_slots = 0;             ///< scratch blocks that EvalBlock needs
};

/// Parses `text`; `$name` takes its number from `params`. Errors (E0901) quote the place in the
/// text.
Result<ExprProgram> ParseExpr(std::string_view text, const Attrs& params);

/// A program text that parses back to an equal program.
std::string ExprText(const ExprProgram& program);

/// Drops unused instructions and sets `slot`, `num_slots` and `num_inputs`. ParseExpr has done so;
/// call it after building or changing a program by hand (without operators on constants only, which
/// ParseExpr folds and the evaluator does not know).
void FinishExpr(ExprProgram& program);

/// The text form of an operator ("add", "where", …) and its arity.
std::string_view ExprOpName(ExprOp op);
int ExprArity(ExprOp op);

}  // namespace ampc
