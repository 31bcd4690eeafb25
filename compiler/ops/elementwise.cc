// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: arithmetic, activations, comparisons, casts, and Map, the own op in which their
// gradients are written.
//
// One row = one op: its program (kernels/expr.h) over x0, x1, … with attributes as $name, and one
// program per input for the gradient, which may also read y (the result) and dy. A gradient is one
// Map node: computed in fp32, rounded once. Edges follow PyTorch: relu'(0) = 0; Clip passes the
// gradient at its bounds; Max and Min share a tie in halves; an unselected branch never multiplies
// (where selects).
#include "compiler/ops/elementwise.h"

#include <algorithm>
#include <cctype>

#include "compiler/ir/builder.h"
#include "kernels/expr.h"

namespace ampc {

Result<Dims> BroadcastDims(std::span<const int64_t> a, std::span<const int64_t> b) {
  const size_t rank = std::max(a.size(), b.size());
  Dims out(rank);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t da = i + a.size() < rank ? 1 : a[i + a.size() - rank];
    const int64_t db = i + b.size() < rank ? 1 : b[i + b.size() - rank];
    if (da != db && da != 1 && db != 1) {
      return BadInput("E0107", "shapes {} and {} do not broadcast", ToString(a), ToString(b));
    }
    out[i] = da == 1 ? db : da;
  }
  return out;
}

namespace {

// Renames identifiers of a gradient program: x<i>, y, dy -> inputs of the Map node, in order of
// first use.
class MapInputs {
 public:
  explicit MapInputs(const GradContext& g) : g_(g) {}

  std::string Rewrite(std::string_view expr) {
    std::string out;
    for (size_t i = 0; i < expr.size();) {
      const char c = expr[i];
      const bool starts = std::isalpha(static_cast<unsigned char>(c)) != 0;
      if (!starts && c != '$' && std::isdigit(static_cast<unsigned char>(c)) == 0) {
        out += c;
        ++i;
        continue;
      }
      size_t j = i + 1;
      while (j < expr.size() && (std::isalnum(static_cast<unsigned char>(expr[j])) != 0 ||
                                 expr[j] == '_' || expr[j] == '.'))
        ++j;
      out += Name(expr.substr(i, j - i));
      i = j;
    }
    return out;
  }
  const std::vector<ir::ValueId>& inputs() const { return inputs_; }

 private:
  std::string Name(std::string_view id) {
    ir::ValueId v = ir::kNone;
    if (id == "y") {
      v = g_.y(0);
    } else if (id == "dy") {
      v = g_.dy(0);
    } else if (id.size() == 2 && id[0] == 'x' &&
               std::isdigit(static_cast<unsigned char>(id[1])) != 0) {
      v = g_.x(static_cast<size_t>(id[1] - '0'));
    } else {
      return std::string(id);
    }
    auto it = std::find(inputs_.begin(), inputs_.end(), v);
    if (it == inputs_.end()) it = inputs_.insert(inputs_.end(), v);
    return fmt::format("x{}", it - inputs_.begin());
  }

  const GradContext& g_;
  std::vector<ir::ValueId> inputs_;
};

// Numeric attributes are the program's parameters.
Attrs NumericAttrs(const Attrs& attrs) {
  Attrs numeric;
  for (const auto& [name, value] : attrs.entries()) {
    if (std::holds_alternative<double>(value) || std::holds_alternative<int64_t>(value))
      numeric.Set(name, value);
  }
  return numeric;
}

}  // namespace

Status GradElementwise(GradContext& g) {
  const OpDef& op = *g.node.op;
  for (size_t i = 0; i < std::min<size_t>(g.node.inputs.size(), 3); ++i) {
    if (!g.Needs(i) || op.grad_expr[i].empty()) continue;
    MapInputs inputs(g);
    if (op.grad_expr[i] == "dy") {
      g.Set(i, g.dy());
      continue;
    }
    const std::string expr = inputs.Rewrite(op.grad_expr[i]);
    Attrs attrs = NumericAttrs(g.attrs());
    attrs.Set("expr", expr);
    attrs.Set("to", std::vector<int64_t>{static_cast<int64_t>(g.type(g.x(i)).dtype)});
    g.Set(i, g.b.Op(kOwnDomain, "Map", inputs.inputs(), std::move(attrs)));
  }
  return {};
}

void LowerMap(LowerContext& c, std::string_view expr, const Attrs& params) {
  Attrs call = NumericAttrs(params);
  call.Set("expr", std::string(expr));
  std::vector<Operand> inputs, outputs;
  for (size_t i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.in(i));
  for (size_t i = 0; i < c.num_outputs(); ++i) outputs.push_back(c.out(i));
  c.Call("map", std::move(call), std::move(inputs), std::move(outputs));
}

Status LowerElementwise(LowerContext& c) {
  LowerMap(c, c.node().op->expr, c.attrs());
  return {};
}

namespace {

// ---- Map

Status InferMap(InferContext& c) {
  Dims dims;
  for (const ir::TensorType* in : c.inputs) {
    AMPC_ASSIGN(dims, BroadcastDims(dims, in->dims));
  }
  const std::vector<int64_t> to = c.attrs.Ints("to");
  AMPC_ASSIGN(const ExprProgram program, ParseExpr(c.attrs.String("expr"), c.attrs));
  if (program.outputs.size() != to.size() ||
      program.num_inputs > static_cast<int>(c.inputs.size())) {
    return BadInput("E0107",
                    "program '{}' has {} outputs and reads {} inputs; the node has {} and {}",
                    c.attrs.String("expr"), program.outputs.size(), program.num_inputs, to.size(),
                    c.inputs.size());
  }
  c.outputs.clear();
  for (int64_t t : to) c.outputs.push_back({static_cast<DType>(t), dims});
  return {};
}

Status LowerMapOp(LowerContext& c) {
  LowerMap(c, c.attrs().String("expr"), c.attrs());
  return {};
}

Result<std::string> BodyElementwise(const BodyContext& c) { return MapBody(c.op.expr, c); }
Result<std::string> BodyMap(const BodyContext& c) { return MapBody(c.attrs.String("expr"), c); }

// ---- variadic

// "op(op(x0, x1), x2)…" for the number of inputs at hand.
std::string Chain(std::string_view call, size_t n) {
  std::string text = "x0";
  for (size_t i = 1; i < n; ++i)
    text = fmt::format(fmt::runtime(call), text, fmt::format("x{}", i));
  return text;
}

Status LowerSum(LowerContext& c) {
  LowerMap(c, Chain("({} + {})", c.num_inputs()), {});
  return {};
}
Status LowerMean(LowerContext& c) {
  LowerMap(c, fmt::format("({}) / {}", Chain("({} + {})", c.num_inputs()), c.num_inputs()), {});
  return {};
}
Status LowerMin(LowerContext& c) {
  LowerMap(c, Chain("min({}, {})", c.num_inputs()), {});
  return {};
}
Status LowerMax(LowerContext& c) {
  LowerMap(c, Chain("max({}, {})", c.num_inputs()), {});
  return {};
}

Status GradSum(GradContext& g) {
  for (size_t i = 0; i < g.node.inputs.size(); ++i) {
    if (g.Needs(i)) g.Set(i, g.dy());
  }
  return {};
}
Status GradMean(GradContext& g) {
  const auto n = static_cast<double>(g.node.inputs.size());
  for (size_t i = 0; i < g.node.inputs.size(); ++i) {
    if (g.Needs(i)) g.Set(i, g.b.Map("x0 / $n", {g.dy()}, g.type(g.dy()).dtype, {{"n", n}}));
  }
  return {};
}

// Equal elements share the gradient equally (PyTorch: two operands in halves).
Status GradExtreme(GradContext& g) {
  const size_t n = g.node.inputs.size();
  std::vector<ir::ValueId> inputs = {g.dy(), g.y()};
  std::string count;
  for (size_t i = 0; i < n; ++i) {
    inputs.push_back(g.x(i));
    count += fmt::format("{}(x{} == x1)", i == 0 ? "" : " + ", i + 2);
  }
  for (size_t i = 0; i < n; ++i) {
    if (!g.Needs(i)) continue;
    Attrs attrs{{"expr", fmt::format("where(x{} == x1, x0 / ({}), 0)", i + 2, count)},
                {"to", std::vector<int64_t>{static_cast<int64_t>(g.type(g.x(i)).dtype)}}};
    g.Set(i, g.b.Op(kOwnDomain, "Map", inputs, std::move(attrs)));
  }
  return {};
}

// ---- ops whose program depends on attributes or on optional inputs

Status LowerClip(LowerContext& c) {
  std::string expr = "x0";
  std::vector<Operand> inputs = {c.in(0)};
  for (size_t i = 1; i < c.num_inputs(); ++i) {
    if (c.in(i) == ir::kNone) continue;
    expr = fmt::format("{}({}, x{})", i == 1 ? "max" : "min", expr, inputs.size());
    inputs.push_back(c.in(i));
  }
  c.Call("map", {{"expr", expr}}, std::move(inputs), {c.out(0)});
  return {};
}

// What lies within the bounds keeps its gradient; the rest of it belongs to the bound that took the
// element's place, the upper one where they cross (PyTorch's clamp).
Status GradClip(GradContext& g) {
  const ir::ValueId dy = g.dy(), x = g.x(0), low = g.x(1), high = g.x(2);
  const DType dtype = g.type(x).dtype;
  const bool both = low != ir::kNone && high != ir::kNone;
  const auto map = [&](size_t slot, std::string_view of_both, std::string_view of_one) {
    if (!g.Needs(slot)) return;
    const ir::ValueId one = low != ir::kNone ? low : high;
    g.Set(slot, both               ? g.b.Map(of_both, {dy, x, low, high}, dtype)
                : one == ir::kNone ? g.b.Map("x0", {dy}, dtype)
                                   : g.b.Map(of_one, {dy, x, one}, dtype));
  };
  map(0, "where(x1 >= x2 && x1 <= x3, x0, 0)",
      low != ir::kNone ? "where(x1 >= x2, x0, 0)" : "where(x1 <= x2, x0, 0)");
  map(1, "where(x1 < x2 && x2 < x3, x0, 0)", "where(x1 < x2, x0, 0)");
  map(2, "where(x1 > x3 || x3 < x2, x0, 0)", "where(x1 > x2, x0, 0)");
  return {};
}

constexpr std::string_view kGeluErf = "0.5 * x0 * (1 + erf(x0 * 0.70710678118654752))";
constexpr std::string_view kGeluTanh =
    "0.5 * x0 * (1 + tanh(0.79788456080286536 * (x0 + 0.044715 * x0 * x0 * x0)))";

Status LowerGelu(LowerContext& c) {
  LowerMap(c, c.attrs().String("approximate", "none") == "tanh" ? kGeluTanh : kGeluErf, {});
  return {};
}

Status GradGelu(GradContext& g) {
  if (!g.Needs(0)) return {};
  const bool tanh = g.attrs().String("approximate", "none") == "tanh";
  const std::string_view expr =
      tanh ? "u = 0.79788456080286536 * (x1 + 0.044715 * x1 * x1 * x1); t = tanh(u);"
             "y0 = x0 * (0.5 * (1 + t) + 0.5 * x1 * (1 - t * t) * 0.79788456080286536 * (1 + "
             "0.134145 * x1 * x1))"
           : "x0 * (0.5 * (1 + erf(x1 * 0.70710678118654752)) + x1 * exp(-0.5 * x1 * x1) * "
             "0.39894228040143268)";
  g.Set(0, g.b.Map(expr, {g.dy(), g.x(0)}, g.type(g.x(0)).dtype));
  return {};
}

Status LowerMod(LowerContext& c) {
  LowerMap(c, c.attrs().Int("fmod") != 0 ? "fmod(x0, x1)" : "mod(x0, x1)", {});
  return {};
}

Status LowerBitShift(LowerContext& c) {
  const std::string_view direction = c.attrs().String("direction");
  if (direction != "LEFT" && direction != "RIGHT")
    return BadInput("E0107", "direction '{}': LEFT or RIGHT is expected", direction);
  // The sign of a uint64 is a bit like others.
  const bool whole = c.desc(c.in(0)).dtype == DType::kUInt64;
  LowerMap(c,
           direction == "LEFT" ? "shl(x0, x1)"
           : whole ? "where(x1 < 0 || x1 > 63, 0, bitand(shr(x0, x1), bitnot(shl(-1, 64 - x1))))"
                   : "shr(x0, x1)",
           {});
  return {};
}

Status LowerIsInf(LowerContext& c) {
  const bool positive = c.attrs().Int("detect_positive", 1) != 0,
             negative = c.attrs().Int("detect_negative", 1) != 0;
  LowerMap(c,
           positive && negative ? "isinf(x0)"
           : positive           ? "x0 == inf"
           : negative           ? "x0 == -inf"
                                : "0 * (x0 == x0)",
           {});
  return {};
}

// Own elementwise ops: one output with the broadcast dims and slot 0's dtype.
Status InferElementwise(InferContext& c) {
  Dims dims;
  for (const ir::TensorType* in : c.inputs) {
    if (in == nullptr) continue;
    AMPC_ASSIGN(dims, BroadcastDims(dims, in->dims));
  }
  c.outputs = {{c.in(0).dtype, dims}};
  return {};
}

Status GradCast(GradContext& g) {
  if (g.Needs(0)) g.Set(0, g.dy());  // Set brings it back to the input's dtype
  return {};
}

constexpr Traits kPlain{.elementwise = true, .any_layout = true};
constexpr Traits kArithmetic{.elementwise = true, .any_layout = true, .arithmetic = true};
constexpr Traits kProbability{.elementwise = true, .any_layout = true, .probability = true};
constexpr Traits kLogarithm{.elementwise = true, .any_layout = true, .logarithm = true};
constexpr Traits kAddition{
    .elementwise = true, .any_layout = true, .adds = true, .arithmetic = true};

constexpr OpDef Unary(std::string_view name, int since, CastClasses cast, std::string_view expr,
                      std::string_view grad, Traits traits = kPlain) {
  return {.name = name,
          .since = since,
          .cast = cast,
          .grad = grad.empty() ? NoGradient : GradElementwise,
          .lower = LowerElementwise,
          .expr = expr,
          .grad_expr = {grad},
          .traits = traits};
}
constexpr OpDef Binary(std::string_view name, int since, CastClasses cast, std::string_view expr,
                       std::string_view grad0, std::string_view grad1) {
  return {.name = name,
          .since = since,
          .in = 2,
          .cast = cast,
          .grad = grad0.empty() ? NoGradient : GradElementwise,
          .lower = LowerElementwise,
          .expr = expr,
          .grad_expr = {grad0, grad1},
          .traits = expr == "x0 + x1" ? kAddition : kArithmetic};
}
// Slot 1 is a parameter also when it has one element.
constexpr OpDef WithParameter(OpDef row) {
  row.traits.arithmetic = false;
  return row;
}
constexpr OpDef Variadic(std::string_view name, int since, GradFn grad, LowerFn lower) {
  return {.name = name,
          .since = since,
          .in = {1, kVariadic},
          .cast = kWidestClass,
          .grad = grad,
          .lower = lower,
          .traits = {.any_layout = true, .arithmetic = true}};
}

// clang-format off
constexpr OpDef kOps[] = {
    // arithmetic
    Binary("Add", 14, kWidestClass, "x0 + x1", "dy", "dy"),
    Binary("Sub", 14, kWidestClass, "x0 - x1", "dy", "-dy"),
    Binary("Mul", 14, kWidestClass, "x0 * x1", "dy * x1", "dy * x0"),
    Binary("Div", 14, kWidestClass, "x0 / x1", "dy / x1", "-dy * (x0 / x1) / x1"),
    Binary("Pow", 15, {CastClass::kFp32, CastClass::kWidest}, "pow(x0, x1)", "where(x1 == 0, 0, dy * (x1 * pow(x0, x1 - 1)))", "where(x0 == 0 && x1 >= 0, 0, dy * (y * log(x0)))"),
    // floats are only for fmod = 1
    {.name = "Mod", .since = 13, .in = 2, .cast = kWidestClass, .grad = GradElementwise, .lower = LowerMod,
     .grad_expr = {"dy", "q = x0 / x1; y0 = -dy * where(q < 0, ceil(q), floor(q))"}, .traits = {.any_layout = true}},
    Variadic("Sum", 13, GradSum, LowerSum), Variadic("Mean", 13, GradMean, LowerMean),
    Variadic("Min", 13, GradExtreme, LowerMin), Variadic("Max", 13, GradExtreme, LowerMax),
    Unary("Neg", 13, kFollowClass, "-x0", "-dy"),
    Unary("Abs", 13, kFollowClass, "abs(x0)", "dy * sign(x0)"),
    Unary("Sign", 13, kFollowClass, "sign(x0)", ""),
    Unary("Floor", 13, kFollowClass, "floor(x0)", ""), Unary("Ceil", 13, kFollowClass, "ceil(x0)", ""),
    Unary("Round", 22, kFollowClass, "round(x0)", ""),
    Unary("Reciprocal", 13, kFp32OnCuda, "1 / x0", "-dy * y * y"),
    Unary("Sqrt", 13, kFollowClass, "sqrt(x0)", "where(dy == 0, 0, dy / (2 * y))"),
    Unary("Exp", 13, kFp32OnCuda, "exp(x0)", "dy * y"),
    Unary("Log", 13, kFp32OnCuda, "log(x0)", "dy / x0", kLogarithm),
    Unary("Erf", 13, kFollowClass, "erf(x0)", "dy * 1.1283791670955126 * exp(-x0 * x0)"),
    {.name = "Clip", .since = 13, .in = {1, 3}, .grad = GradClip, .lower = LowerClip, .traits = {.any_layout = true, .arithmetic = true}},
    // trigonometric and hyperbolic
    Unary("Sin", 22, kFollowClass, "sin(x0)", "dy * cos(x0)"), Unary("Cos", 22, kFollowClass, "cos(x0)", "-dy * sin(x0)"),
    Unary("Tan", 22, kFp32OnCuda, "tan(x0)", "dy * (1 + y * y)"),
    Unary("Asin", 22, kFp32OnCuda, "asin(x0)", "dy / sqrt(1 - x0 * x0)"), Unary("Acos", 22, kFp32OnCuda, "acos(x0)", "-dy / sqrt(1 - x0 * x0)"),
    Unary("Atan", 22, kFollowClass, "atan(x0)", "dy / (1 + x0 * x0)"),
    Unary("Sinh", 22, kFp32OnCuda, "sinh(x0)", "dy * cosh(x0)"), Unary("Cosh", 22, kFp32OnCuda, "cosh(x0)", "dy * sinh(x0)"),
    Unary("Tanh", 13, kFollowClass, "tanh(x0)", "dy * (1 - y * y)"),
    Unary("Asinh", 22, kFollowClass, "asinh(x0)", "dy / sqrt(x0 * x0 + 1)"), Unary("Acosh", 22, kFollowClass, "acosh(x0)", "dy / sqrt(x0 * x0 - 1)"),
    Unary("Atanh", 22, kFollowClass, "atanh(x0)", "dy / (1 - x0 * x0)"),
    // activations
    {.name = "Relu", .since = 14, .post = "relu", .grad = GradElementwise, .lower = LowerElementwise, .expr = "max(x0, 0)",
     .grad_expr = {"where(y <= 0, 0, dy)"}, .traits = kPlain},
    Unary("LeakyRelu", 16, kFollowClass, "where(x0 > 0, x0, $alpha * x0)", "where(x0 > 0, dy, $alpha * dy)"),
    Unary("ThresholdedRelu", 22, kFollowClass, "where(x0 > $alpha, x0, 0)", "where(x0 > $alpha, dy, 0)"),
    Unary("Elu", 22, kFollowClass, "where(x0 > 0, x0, $alpha * expm1(x0))", "where(x0 > 0, dy, dy * ($alpha * exp(x0)))"),
    Unary("Selu", 22, kFollowClass, "$gamma * where(x0 > 0, x0, $alpha * expm1(x0))", "dy * $gamma * where(x0 > 0, 1, $alpha * exp(x0))"),
    Unary("Celu", 12, kFollowClass, "where(x0 > 0, x0, $alpha * expm1(x0 / $alpha))", "where(x0 > 0, dy, dy * exp(x0 / $alpha))"),
    Unary("Sigmoid", 13, kFollowClass, "sigmoid(x0)", "dy * (y * (1 - y))", kProbability),
    Unary("HardSigmoid", 22, kFollowClass, "max(0, min(1, $alpha * x0 + $beta))", "u = $alpha * x0 + $beta; y0 = where(u > 0 && u < 1, dy * $alpha, 0)"),
    Unary("HardSwish", 22, kFollowClass, "x0 * max(0, min(1, x0 / 6 + 0.5))", "where(x0 < -3, 0, where(x0 <= 3, dy * (x0 / 3 + 0.5), dy))"),
    Unary("Softplus", 22, kFp32OnCuda, "max(x0, 0) + log1p(exp(-abs(x0)))", "dy * sigmoid(x0)"),
    Unary("Softsign", 22, kFollowClass, "x0 / (1 + abs(x0))", "u = 1 + abs(x0); y0 = dy / (u * u)"),
    Unary("Mish", 22, kFollowClass, "x0 * tanh(max(x0, 0) + log1p(exp(-abs(x0))))",
          "t = tanh(max(x0, 0) + log1p(exp(-abs(x0)))); y0 = dy * (t + x0 * (1 - t * t) * sigmoid(x0))"),
    {.name = "Gelu", .since = 20, .grad = GradGelu, .lower = LowerGelu, .traits = {.any_layout = true}},
    WithParameter(Binary("PRelu", 16, kLowClass, "where(x0 > 0, x0, x1 * x0)", "where(x0 > 0, dy, dy * x1)", "where(x0 > 0, 0, dy * x0)")),
    // comparisons and logic
    Binary("Equal", 19, kWidestClass, "x0 == x1", "", ""), Binary("Greater", 13, kWidestClass, "x0 > x1", "", ""),
    Binary("Less", 13, kWidestClass, "x0 < x1", "", ""), Binary("GreaterOrEqual", 16, kWidestClass, "x0 >= x1", "", ""),
    Binary("LessOrEqual", 16, kWidestClass, "x0 <= x1", "", ""), Binary("And", 7, kFollowClass, "x0 && x1", "", ""),
    Binary("Or", 7, kFollowClass, "x0 || x1", "", ""), Binary("Xor", 7, kFollowClass, "x0 != x1", "", ""),
    Unary("Not", 1, kFollowClass, "!x0", ""), Unary("IsNaN", 20, kFollowClass, "isnan(x0)", ""),
    Binary("BitwiseAnd", 18, kFollowClass, "bitand(x0, x1)", "", ""), Binary("BitwiseOr", 18, kFollowClass, "bitor(x0, x1)", "", ""),
    Binary("BitwiseXor", 18, kFollowClass, "bitxor(x0, x1)", "", ""), Unary("BitwiseNot", 18, kFollowClass, "bitnot(x0)", ""),
    {.name = "BitShift", .since = 11, .in = 2, .grad = NoGradient, .lower = LowerBitShift, .traits = {.any_layout = true}},
    {.name = "IsInf", .since = 20, .grad = NoGradient, .lower = LowerIsInf, .traits = {.any_layout = true}},
    {.name = "Where", .since = 16, .in = 3, .cast = kWidestClass, .grad = GradElementwise, .lower = LowerElementwise,
     .expr = "where(x0, x1, x2)", .grad_expr = {{}, "where(x0, dy, 0)", "where(x0, 0, dy)"}, .traits = kPlain},
    // casts
    {.name = "Cast", .since = 21, .grad = GradCast, .lower = LowerElementwise, .expr = "x0",
     .traits = {.elementwise = true, .cast = true, .any_layout = true}},
    // own
    {.domain = kOwnDomain, .name = "Map", .in = {1, kVariadic}, .out = {1, kVariadic}, .infer = InferMap, .lower = LowerMapOp,
     .body = BodyMap, .traits = {.any_layout = true}},
    // ONNX's Swish of opset 24; alpha 1 is PyTorch's silu
    {.domain = kOwnDomain, .name = "Swish", .infer = InferElementwise, .grad = GradElementwise, .lower = LowerElementwise, .body = BodyElementwise,
     .expr = "x0 * sigmoid($alpha * x0)", .grad_expr = {"s = sigmoid($alpha * x0); y0 = dy * (s + $alpha * x0 * s * (1 - s))"}, .traits = kPlain},
    {.domain = kOwnDomain, .name = "SquaredError", .in = 2, .cast = kFp32Class, .infer = InferElementwise, .grad = GradElementwise,
     .lower = LowerElementwise, .body = BodyElementwise, .expr = "u = x0 - x1; y0 = u * u",
     .grad_expr = {"dy * (2 * (x0 - x1))", "dy * (2 * (x1 - x0))"}, .traits = kPlain},
    {.domain = kOwnDomain, .name = "AbsoluteError", .in = 2, .cast = kFp32Class, .infer = InferElementwise, .grad = GradElementwise,
     .lower = LowerElementwise, .body = BodyElementwise, .expr = "abs(x0 - x1)",
     .grad_expr = {"dy * sign(x0 - x1)", "dy * sign(x1 - x0)"}, .traits = kPlain},
    // PyTorch's smooth_l1_loss (beta 0 is l1) and huber_loss
    {.domain = kOwnDomain, .name = "SmoothL1", .in = 2, .cast = kFp32Class, .infer = InferElementwise, .grad = GradElementwise,
     .lower = LowerElementwise, .body = BodyElementwise, .expr = "u = abs(x0 - x1); y0 = where(u < $beta, 0.5 * u * u / $beta, u - 0.5 * $beta)",
     .grad_expr = {"u = x0 - x1; y0 = dy * where(abs(u) < $beta, u / $beta, sign(u))",
                   "u = x1 - x0; y0 = dy * where(abs(u) < $beta, u / $beta, sign(u))"}, .traits = kPlain},
    {.domain = kOwnDomain, .name = "Huber", .in = 2, .cast = kFp32Class, .infer = InferElementwise, .grad = GradElementwise,
     .lower = LowerElementwise, .body = BodyElementwise, .expr = "u = abs(x0 - x1); y0 = where(u < $delta, 0.5 * u * u, $delta * (u - 0.5 * $delta))",
     .grad_expr = {"u = x0 - x1; y0 = dy * where(abs(u) < $delta, u, $delta * sign(u))",
                   "u = x1 - x0; y0 = dy * where(abs(u) < $delta, u, $delta * sign(u))"}, .traits = kPlain},
    // x0 log-probabilities, x1 probabilities: PyTorch's kl_div
    {.domain = kOwnDomain, .name = "KlDivergence", .in = 2, .cast = kFp32Class, .infer = InferElementwise, .grad = GradElementwise,
     .lower = LowerElementwise, .body = BodyElementwise, .expr = "where(x1 == 0, 0, x1 * log(x1)) - x1 * x0",
     .grad_expr = {"-dy * x1", "dy * (log(x1) + 1 - x0)"}, .traits = kPlain},
    // x0 logits, x1 targets, x2 pos_weight (1 when not given): PyTorch's binary_cross_entropy_with_logits
    {.domain = kOwnDomain, .name = "BceWithLogits", .in = 3, .cast = kFp32Class, .infer = InferElementwise, .grad = GradElementwise,
     .lower = LowerElementwise, .body = BodyElementwise,
     .expr = "(1 - x1) * x0 + (1 + (x2 - 1) * x1) * (log1p(exp(-abs(x0))) + max(-x0, 0))",
     .grad_expr = {"dy * ((1 - x1) - (1 + (x2 - 1) * x1) * (1 - sigmoid(x0)))",
                   "dy * (-x0 + (x2 - 1) * (log1p(exp(-abs(x0))) + max(-x0, 0)))", ""}, .traits = kPlain},
};
// clang-format on

}  // namespace

std::span<const OpDef> ElementwiseOps() { return kOps; }

}  // namespace ampc
