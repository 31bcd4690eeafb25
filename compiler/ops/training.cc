// SPDX-License-Identifier: Apache-2.0
// What happens after the gradients: unscale and check, clip, optimizers, scaler update.
//
// Each op that changes a state takes found_inf and gives the old value back, bit for bit, where it
// is true; lowering turns that into one predicated in-place kernel. Operands of the multi-tensor
// ops come in lists of `n`: w1..wn, g1..gn, …
#include <array>

#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

std::vector<Operand> Inputs(LowerContext& c) {
  std::vector<Operand> v;
  for (size_t i = 0; i < c.num_inputs(); ++i) v.push_back(c.in(i));
  return v;
}
std::vector<Operand> Outputs(LowerContext& c) {
  std::vector<Operand> v;
  for (size_t i = 0; i < c.num_outputs(); ++i) v.push_back(c.out(i));
  return v;
}
int Number(DType t) { return static_cast<int>(t); }

// ---- UnscaleCheck: [scale], g1..gn -> u1..un, found_inf, norm

Status InferUnscaleCheck(InferContext& c) {
  c.outputs.clear();
  DType acc = DType::kFloat32;
  for (size_t i = 1; i < c.inputs.size(); ++i) {
    acc = AccOf(c.in(i).dtype);
    c.outputs.push_back({acc, c.in(i).dims});
  }
  c.outputs.push_back({DType::kBool, {}});
  c.outputs.push_back({acc, {}});
  return {};
}

// Tensor k of a list and what replaces it: (input first_input + k, output first_output + k).
using Pairs = std::vector<std::pair<int, int>>;
void AddPairs(Pairs& pairs, size_t first_input, size_t first_output, size_t n) {
  for (size_t k = 0; k < n; ++k)
    pairs.emplace_back(static_cast<int>(first_input + k), static_cast<int>(first_output + k));
}

Status LowerUnscaleCheck(LowerContext& c) {
  Pairs pairs;
  AddPairs(pairs, 1, 0, c.num_inputs() - 1);
  c.Call("unscale_check", {}, Inputs(c), Outputs(c), std::move(pairs));
  return {};
}

Result<std::string> BodyUnscaleCheck(const BodyContext& c) {
  const size_t n = c.inputs.size() - 1;
  const int acc = Number(c.outputs[n + 1]->dtype);
  std::string t = "one64 = Constant <value = double {1.0}> ()\n";
  if (c.inputs[0] != nullptr) {
    t += fmt::format(
        "s64 = Cast <to = 11> (i0)\nr64 = Div (one64, s64)\nr32 = Cast <to = 1> (r64)\nr = Cast "
        "<to = {}> (r32)\n",
        acc);
  } else {
    t += fmt::format("r = Cast <to = {}> (one64)\n", acc);
  }
  std::string squares;
  for (size_t i = 0; i < n; ++i) {
    t += fmt::format(
        "g{0} = Cast <to = {1}> (i{2})\no{0} = Mul (g{0}, r)\nd{0} = Cast <to = 11> (o{0})\nq{0} = "
        "ReduceSumSquare <keepdims = 0> (d{0})\n",
        i, acc, i + 1);
    squares += fmt::format("{}q{}", i == 0 ? "" : ", ", i);
  }
  return t + fmt::format(
                 "ss = Sum ({0})\nn64 = Sqrt (ss)\no{2} = Cast <to = {1}> (n64)\nz = Sub (o{2}, "
                 "o{2})\no{3} = IsNaN (z)\n",
                 squares, acc, n + 1, n);
}

// ---- ClipNorm: norm, max_norm, g1..gn -> g * min(1, max_norm / (norm + 1e-6))

Status InferClipNorm(InferContext& c) {
  c.outputs.clear();
  for (size_t i = 2; i < c.inputs.size(); ++i) c.outputs.push_back(c.in(i));
  return {};
}

Status LowerClipNorm(LowerContext& c) {
  Pairs pairs;
  AddPairs(pairs, 2, 0, c.num_inputs() - 2);
  c.Call("clip_norm", {}, Inputs(c), Outputs(c), std::move(pairs));
  return {};
}

Result<std::string> BodyClipNorm(const BodyContext& c) {
  std::string t =
      ScalarText("e", 1e-6, "i0") +
      "d = Add (i0, e)\nr = Div (i1, d)\n"
      "unit = Constant <value_float = 1.0> ()\none = CastLike (unit, i0)\nf = Min (r, one)\n";
  for (size_t i = 0; i + 2 < c.inputs.size(); ++i)
    t += fmt::format("o{} = Mul (i{}, f)\n", i, i + 2);
  return t;
}

// ---- Sgd

// Operands before the lists.
constexpr size_t kSgdScalars = 6;    // found_inf, lr, momentum, dampening, weight_decay, first
constexpr size_t kAdamScalars = 10;  // found_inf, lr, step_size, beta1, 1-beta1, beta2, 1-beta2,
                                     // sqrt(bias correction 2), eps, weight_decay

// Outputs of a multi-tensor update: every list but the gradients (list 1) comes back.
Status InferUpdate(InferContext& c, size_t scalars) {
  const auto n = static_cast<size_t>(c.attrs.Int("n", 1));
  if (c.inputs.size() < scalars + 2 * n || (c.inputs.size() - scalars) % n != 0) {
    return BadInput("E0107", "{} operands do not divide into lists of {} after {} scalars",
                    c.inputs.size(), n, scalars);
  }
  c.outputs.clear();
  for (size_t i = scalars; i < c.inputs.size(); ++i) {
    const size_t list = (i - scalars) / n, of = (i - scalars) % n;
    if (c.in(i).dims != c.in(scalars + of).dims) {
      return BadInput("E0107", "operand {} has dims {}, its weight has {}", i,
                      ToString(c.in(i).dims), ToString(c.in(scalars + of).dims));
    }
    if (list != 1) c.outputs.push_back(c.in(i));
  }
  return {};
}
Status InferSgd(InferContext& c) { return InferUpdate(c, kSgdScalars); }
Status InferAdam(InferContext& c) { return InferUpdate(c, kAdamScalars); }

// Every list but the gradients is updated in place.
Pairs UpdatePairs(const LowerContext& c, size_t scalars) {
  const auto n = static_cast<size_t>(c.attrs().Int("n", 1));
  Pairs pairs;
  AddPairs(pairs, scalars, 0, n);
  AddPairs(pairs, scalars + 2 * n, n, c.num_inputs() - scalars - 2 * n);
  return pairs;
}

Status LowerSgd(LowerContext& c) {
  c.Call("sgd", {{"count", c.attrs().Int("n", 1)}, {"nesterov", c.attrs().Int("nesterov")}},
         Inputs(c), Outputs(c), UpdatePairs(c, kSgdScalars));
  return {};
}

Status LowerAdam(LowerContext& c) {
  c.Call("adam", {{"count", c.attrs().Int("n", 1)}, {"decoupled", c.attrs().Int("decoupled")}},
         Inputs(c), Outputs(c), UpdatePairs(c, kAdamScalars));
  return {};
}

Result<std::string> BodySgd(const BodyContext& c) {
  const auto n = static_cast<size_t>(c.attrs.Int("n", 1));
  const bool momentum = c.inputs.size() == kSgdScalars + 3 * n,
             nesterov = c.attrs.Int("nesterov") != 0;
  std::string t =
      "unit = Constant <value_float = 1.0> ()\none = CastLike (unit, i1)\nnd = Sub (one, i3)\n";
  for (size_t k = 0; k < n; ++k) {
    const size_t w = kSgdScalars + k, g = w + n, v = g + n;
    t += fmt::format("wd{0} = Mul (i{1}, i4)\ng{0} = Add (i{2}, wd{0})\n", k, w, g);
    if (momentum) {
      t += fmt::format(
          "mv{0} = Mul (i{1}, i2)\ndg{0} = Mul (g{0}, nd)\nnv{0} = Add (mv{0}, dg{0})\nv{0} = "
          "Where (i5, g{0}, nv{0})\n",
          k, v);
      t += nesterov ? fmt::format("nm{0} = Mul (v{0}, i2)\nu{0} = Add (g{0}, nm{0})\n", k)
                    : fmt::format("u{0} = Identity (v{0})\n", k);
      t += fmt::format("o{1} = Where (i0, i{2}, v{0})\n", k, n + k, v);
    } else {
      t += fmt::format("u{0} = Identity (g{0})\n", k);
    }
    t += fmt::format(
        "lu{0} = Mul (u{0}, i1)\nw{0} = Sub (i{1}, lu{0})\no{0} = Where (i0, i{1}, w{0})\n", k, w);
  }
  return t;
}

Result<std::string> BodyAdam(const BodyContext& c) {
  const auto n = static_cast<size_t>(c.attrs.Int("n", 1));
  const bool decoupled = c.attrs.Int("decoupled") != 0;
  std::string t =
      "unit = Constant <value_float = 1.0> ()\none = CastLike (unit, i1)\nlw = Mul (i1, i9)\nkeep "
      "= "
      "Sub (one, lw)\n";
  for (size_t k = 0; k < n; ++k) {
    const size_t w = kAdamScalars + k, g = w + n, m = g + n, v = m + n;
    t += decoupled
             ? fmt::format("w{0} = Mul (i{1}, keep)\ng{0} = Identity (i{2})\n", k, w, g)
             : fmt::format(
                   "w{0} = Identity (i{1})\ndw{0} = Mul (i{1}, i9)\ng{0} = Add (i{2}, dw{0})\n", k,
                   w, g);
    t += fmt::format(
        "d{0} = Sub (g{0}, i{2})\nb{0} = Mul (d{0}, i4)\nm{0} = Add (i{2}, b{0})\nvb{0} = Mul "
        "(i{3}, i5)\nga{0} = Mul (g{0}, i6)\n"
        "gg{0} = Mul (ga{0}, g{0})\nv{0} = Add (vb{0}, gg{0})\nsv{0} = Sqrt (v{0})\nsb{0} = Div "
        "(sv{0}, i7)\nde{0} = Add (sb{0}, i8)\n"
        "sm{0} = Mul (m{0}, i2)\nst{0} = Div (sm{0}, de{0})\nn{0} = Sub (w{0}, st{0})\no{0} = "
        "Where (i0, i{1}, n{0})\n"
        "o{4} = Where (i0, i{2}, m{0})\no{5} = Where (i0, i{3}, v{0})\n",
        k, w, m, v, n + k, 2 * n + k);
  }
  return t;
}

// ---- ScalerUpdate

// x0 scale, x1 growth tracker, x2 hysteresis tracker, x3 consecutive skips, x4 found_inf, then
// double scalars: x5 growth factor, x6 backoff factor, x7 growth interval, x8 min, x9 max, x10
// hysteresis. PyTorch's update, with a floor, a ceiling and Apex's hysteresis (backs off at the
// n-th overflow in a row). Growth is an equality, assigned only when within the ceiling; backing
// off never raises a scale that already lies under the floor.
constexpr std::string_view kScalerExpr =
    "h = where(x4, x2 - 1, x10); back = x4 && h <= 0; t = x1 + 1; due = !x4 && t == x7; grown = x0 "
    "* x5;"
    "y0 = where(back, min(x0, max(x8, x0 * x6)), where(due && grown <= x9, grown, x0));"
    "y1 = where(x4 || due, 0, t); y2 = where(back, x10, h); y3 = where(x4, x3 + 1, 0)";

Status InferScalerUpdate(InferContext& c) {
  c.outputs = {c.in(0), c.in(1), c.in(2), c.in(3)};
  return {};
}

Status LowerScalerUpdate(LowerContext& c) {
  LowerMap(c, c.node().op->expr, {});
  return {};
}

Result<std::string> BodyScalerUpdate(const BodyContext& c) { return MapBody(c.op.expr, c); }

// clang-format off
constexpr OpDef kOps[] = {
    {.domain = kOwnDomain, .name = "UnscaleCheck", .in = {2, kVariadic}, .out = {3, kVariadic}, .optional_slots = 0b1, .infer = InferUnscaleCheck, .lower = LowerUnscaleCheck, .body = BodyUnscaleCheck, .traits = {.widens = true, .unscale = true}},
    {.domain = kOwnDomain, .name = "ClipNorm", .in = {3, kVariadic}, .out = {1, kVariadic}, .infer = InferClipNorm, .lower = LowerClipNorm, .body = BodyClipNorm},
    {.domain = kOwnDomain, .name = "Sgd", .in = {8, kVariadic}, .out = {1, kVariadic}, .infer = InferSgd, .lower = LowerSgd, .body = BodySgd},
    {.domain = kOwnDomain, .name = "Adam", .in = {14, kVariadic}, .out = {3, kVariadic}, .infer = InferAdam, .lower = LowerAdam, .body = BodyAdam},
    {.domain = kOwnDomain, .name = "ScalerUpdate", .in = 11, .out = 4, .infer = InferScalerUpdate, .lower = LowerScalerUpdate, .body = BodyScalerUpdate, .expr = kScalerExpr},
};
// clang-format on

}  // namespace

std::span<const OpDef> TrainingOps() { return kOps; }

}  // namespace ampc
