// SPDX-License-Identifier: Apache-2.0
// Bodies of own ops: shared pieces of text, and elementwise programs as standard ONNX, one node per
// instruction.
#include "compiler/ops/body.h"

#include <cmath>

#include "compiler/ops/elementwise.h"
#include "kernels/expr.h"

namespace ampc {
namespace {

constexpr int kBool = static_cast<int>(DType::kBool);
constexpr int kDouble = static_cast<int>(DType::kFloat64);

}  // namespace

std::string ListText(std::span<const int64_t> values) {
  std::string text;
  for (const int64_t v : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", v);
  return text;
}

std::string NumberText(double value) {
  std::string text = fmt::format("{:.17g}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string ScalarText(std::string_view name, double value, std::string_view like) {
  return fmt::format(
      "{0}_64 = Constant <value = double {{{1}}}> ()\n{0} = CastLike ({0}_64, {2})\n", name,
      NumberText(value), like);
}

std::string SumText(std::string_view name, std::string_view x, std::span<const int64_t> axes,
                    std::span<const int64_t> dims, DType type) {
  constexpr int64_t kStretch = 256;
  const auto sum = [](std::string_view to, std::string_view from, std::span<const int64_t> over) {
    return fmt::format(
        "{0}_a = Constant <value_ints = [{2}]> ()\n{0} = ReduceSum <keepdims = 1> ({1}, {0}_a)\n",
        to, from, ListText(over));
  };
  if (axes.empty()) return fmt::format("{} = Identity ({})\n", name, x);
  const bool stretch = dims[static_cast<size_t>(axes.back())] <= kStretch;
  if (type != DType::kFloat32 || (stretch && axes.size() == 1)) return sum(name, x, axes);
  const std::string part = fmt::format("{}_s", name), wide = fmt::format("{}_d", name),
                    total = fmt::format("{}_t", name);
  std::string text;
  if (stretch) {
    text = sum(part, x, axes.last(1));
    x = part;
    axes = axes.first(axes.size() - 1);
  }
  return text + fmt::format("{} = Cast <to = {}> ({})\n", wide, kDouble, x) +
         sum(total, wide, axes) +
         fmt::format("{} = Cast <to = {}> ({})\n", name, static_cast<int>(type), total);
}

namespace {

// The type in which the map kernel computes (kernels.def).
DType ComputeType(const BodyContext& c) {
  bool all_integer = true;
  for (const auto* list : {&c.inputs, &c.outputs}) {
    for (const ir::TensorType* t : *list) {
      if (t == nullptr) continue;
      if (t->dtype == DType::kFloat64) return DType::kFloat64;
      all_integer = all_integer && !IsFloat(t->dtype);
    }
  }
  return all_integer ? DType::kInt64 : DType::kFloat32;
}

class Writer {
 public:
  explicit Writer(DType type) : type_(type), number_(static_cast<int>(type)) {}

  void Write(size_t i, const ExprInstr& in) {
    const std::string r = fmt::format("r{}", i), a = fmt::format("r{}", in.a),
                      b = fmt::format("r{}", in.b), c = fmt::format("r{}", in.c);
    switch (in.op) {
      case ExprOp::kInput:
        Line("{} = Cast <to = {}> (i{})", r, number_, in.a);
        break;
      case ExprOp::kConst:
        Constant(r, in.constant);
        break;
      case ExprOp::kLt:
        Compare(r, "Less", a, b);
        break;
      case ExprOp::kLe:
        Compare(r, "LessOrEqual", a, b);
        break;
      case ExprOp::kGt:
        Compare(r, "Greater", a, b);
        break;
      case ExprOp::kGe:
        Compare(r, "GreaterOrEqual", a, b);
        break;
      case ExprOp::kEq:
        Compare(r, "Equal", a, b);
        break;
      case ExprOp::kNe:
        Line("{0}_e = Equal ({1}, {2})\n{0}_n = Not ({0}_e)\n{0} = Cast <to = {3}> ({0}_n)", r, a,
             b, number_);
        break;
      case ExprOp::kAnd:
        Logic(r, "And", a, b);
        break;
      case ExprOp::kOr:
        Logic(r, "Or", a, b);
        break;
      case ExprOp::kNot:
        Line("{0}_b = Cast <to = {1}> ({2})\n{0}_n = Not ({0}_b)\n{0} = Cast <to = {3}> ({0}_n)", r,
             kBool, a, number_);
        break;
      case ExprOp::kWhere:
        Line("{0}_b = Cast <to = {1}> ({2})\n{0} = Where ({0}_b, {3}, {4})", r, kBool, a, b, c);
        break;
      case ExprOp::kIsNan:
        Line("{0}_b = IsNaN ({1})\n{0} = Cast <to = {2}> ({0}_b)", r, a, number_);
        break;
      case ExprOp::kIsInf:
        Line("{0}_b = IsInf ({1})\n{0} = Cast <to = {2}> ({0}_b)", r, a, number_);
        break;
      case ExprOp::kMod:
        WriteMod(r, a, b);
        break;
      case ExprOp::kFmod:
        Line("{} = Mod <fmod = 1> ({}, {})", r, a, b);
        break;
      case ExprOp::kLog1p:
        Constant(r + "_1", 1);
        Line("{0}_s = Add ({1}, {0}_1)\n{0} = Log ({0}_s)", r, a);
        break;
      case ExprOp::kExpm1:
        Constant(r + "_1", 1);
        Line("{0}_e = Exp ({1})\n{0} = Sub ({0}_e, {0}_1)", r, a);
        break;
      case ExprOp::kRoundFp32:
        Round(r, a, DType::kFloat32);
        break;
      case ExprOp::kRoundFp16:
        Round(r, a, DType::kFloat16);
        break;
      case ExprOp::kRoundBf16:
        Round(r, a, DType::kBFloat16);
        break;
      case ExprOp::kBitwiseAnd:
      case ExprOp::kBitwiseOr:
      case ExprOp::kBitwiseXor:
      case ExprOp::kBitwiseNot:
      case ExprOp::kShiftLeft:
      case ExprOp::kShiftRight:
        Bits(r, in.op, a, b);
        break;
      default:
        Plain(r, in, a, b);
        break;
    }
  }
  void Output(size_t i, int32_t reg, DType to) {
    Line("o{} = Cast <to = {}> (r{})", i, static_cast<int>(to), reg);
  }
  std::string Take() { return std::move(text_); }

 private:
  template <typename... Args>
  void Line(fmt::format_string<Args...> f, Args&&... args) {
    text_ += fmt::format(f, std::forward<Args>(args)...) + "\n";
  }
  // ONNX text has no inf or nan: they come from arithmetic.
  void Constant(const std::string& r, double v) {
    if (std::isfinite(v)) {
      const std::string number =
          type_ == DType::kInt64 ? fmt::format("{}", static_cast<int64_t>(v)) : NumberText(v);
      Line("{} = Constant <value = {} {{{}}}> ()", r, Name(type_), number);
      return;
    }
    Constant(r + "_0", 0);
    Constant(r + "_s", std::isnan(v) ? 0 : std::signbit(v) ? -1 : 1);
    Line("{0} = Div ({0}_s, {0}_0)", r);
  }
  void Compare(const std::string& r, std::string_view op, const std::string& a,
               const std::string& b) {
    Line("{0}_b = {1} ({2}, {3})\n{0} = Cast <to = {4}> ({0}_b)", r, op, a, b, number_);
  }
  void Logic(const std::string& r, std::string_view op, const std::string& a,
             const std::string& b) {
    Line(
        "{0}_a = Cast <to = {1}> ({2})\n{0}_b = Cast <to = {1}> ({3})\n{0}_c = {4} ({0}_a, "
        "{0}_b)\n{0} = Cast <to = {5}> ({0}_c)",
        r, kBool, a, b, op, number_);
  }
  void Round(const std::string& r, const std::string& a, DType to) {
    Line("{0}_l = Cast <to = {1}> ({2})\n{0} = Cast <to = {3}> ({0}_l)", r, static_cast<int>(to), a,
         number_);
  }
  // On the bits of a uint64: ONNX shifts unsigned types alone.
  void Bits(const std::string& r, ExprOp op, const std::string& a, const std::string& b) {
    const auto bits = static_cast<int>(DType::kUInt64), whole = static_cast<int>(DType::kInt64);
    const auto widen = [&](std::string_view to, const std::string& from) {
      Line("{0}_{1}l = Cast <to = {2}> ({3})\n{0}_{1} = Cast <to = {4}> ({0}_{1}l)", r, to, whole,
           from, bits);
    };
    widen("a", a);
    if (op == ExprOp::kBitwiseNot) {
      Line("{0}_r = BitwiseNot ({0}_a)", r);
    } else if (op == ExprOp::kShiftRight) {  // of a negative number: the bits inverted around it
      widen("b", b);
      Constant(r + "_z", 0);
      Line(
          "{0}_m = Less ({1}, {0}_z)\n{0}_i = Cast <to = {2}> ({0}_m)\n{0}_n = Neg ({0}_i)\n"
          "{0}_s = Cast <to = {3}> ({0}_n)\n{0}_x = BitwiseXor ({0}_a, {0}_s)\n"
          "{0}_h = BitShift <direction = \"RIGHT\"> ({0}_x, {0}_b)\n"
          "{0}_r = BitwiseXor ({0}_h, {0}_s)",
          r, a, whole, bits);
    } else {
      widen("b", b);
      const std::string_view name = op == ExprOp::kBitwiseAnd   ? "BitwiseAnd"
                                    : op == ExprOp::kBitwiseOr  ? "BitwiseOr"
                                    : op == ExprOp::kBitwiseXor ? "BitwiseXor"
                                                                : "BitShift <direction = \"LEFT\">";
      Line("{0}_r = {1} ({0}_a, {0}_b)", r, name);
    }
    Line("{0}_w = Cast <to = {1}> ({0}_r)\n{0} = Cast <to = {2}> ({0}_w)", r, whole, number_);
  }
  void WriteMod(const std::string& r, const std::string& a, const std::string& b) {
    if (type_ == DType::kInt64) return Line("{} = Mod ({}, {})", r, a, b);
    Line(
        "{0}_q = Div ({1}, {2})\n{0}_f = Floor ({0}_q)\n{0}_m = Mul ({0}_f, {2})\n{0} = Sub ({1}, "
        "{0}_m)",
        r, a, b);
  }
  // Operators whose ONNX name is the name of the enumerator.
  void Plain(const std::string& r, const ExprInstr& in, const std::string& a,
             const std::string& b) {
    static constexpr std::string_view kNames[] = {
#define EXPR_OP(name, arity, text) #name,
#include "kernels/expr.def"
#undef EXPR_OP
    };
    const std::string_view name = kNames[static_cast<size_t>(in.op)];
    if (ExprArity(in.op) == 1) {
      Line("{} = {} ({})", r, name, a);
    } else {
      Line("{} = {} ({}, {})", r, name, a, b);
    }
  }

  DType type_;
  int number_;
  std::string text_;
};

}  // namespace

Result<std::string> MapBody(std::string_view expr, const BodyContext& c) {
  AMPC_ASSIGN(const ExprProgram program, ParseExpr(expr, c.attrs));
  Writer w(ComputeType(c));
  for (size_t i = 0; i < program.code.size(); ++i) w.Write(i, program.code[i]);
  for (size_t i = 0; i < program.outputs.size(); ++i)
    w.Output(i, program.outputs[i], c.outputs[i]->dtype);
  return w.Take();
}

}  // namespace ampc
