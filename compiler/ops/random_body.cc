// SPDX-License-Identifier: Apache-2.0
// DropoutTrain and Random in standard ONNX: Philox4x32-10 in uint64 arithmetic (Salmon et al., SC
// 2011), one row of four words per counter.
#include <fmt/format.h>

#include "compiler/ops/random.h"

namespace ampc {
namespace {

std::string DimsText(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

// `flat` = the words of ceil(n / 4) counters one after another, uint64; `rng` names the state.
std::string Words(int64_t n, int64_t stream, std::string_view rng) {
  std::string t = fmt::format(R"(
k32 = Constant <value = uint64 {{32}}> ()
low = Constant <value = uint64 {{4294967295}}> ()
mA = Constant <value = uint64 {{3528531795}}> ()
mB = Constant <value = uint64 {{3449720151}}> ()
wA = Constant <value = uint64 {{2654435769}}> ()
wB = Constant <value = uint64 {{3144134277}}> ()
i0_ = Constant <value_int = 0> ()
i1_ = Constant <value_int = 1> ()
r64 = Cast <to = 13> ({2})
seed = Gather (r64, i0_)
index = Gather (r64, i1_)
ka0 = BitwiseAnd (seed, low)
kb0 = BitShift <direction = "RIGHT"> (seed, k32)
q = Constant <value_int = {0}> ()
rg = Range (i0_, q, i1_)
a0 = Cast <to = 13> (rg)
z = Sub (a0, a0)
st0 = Constant <value_int = {1}> ()
st = Cast <to = 13> (st0)
b0 = Add (z, st)
ilo = BitwiseAnd (index, low)
ihi = BitShift <direction = "RIGHT"> (index, k32)
c0 = Add (z, ilo)
d0 = Add (z, ihi)
)",
                              (n + 3) / 4, stream, rng);
  for (int r = 0; r < 10; ++r) {
    t += fmt::format(R"(
pA{0} = Mul (a{0}, mA)
pB{0} = Mul (c{0}, mB)
hA{0} = BitShift <direction = "RIGHT"> (pA{0}, k32)
hB{0} = BitShift <direction = "RIGHT"> (pB{0}, k32)
xa{0} = BitwiseXor (hB{0}, b{0})
a{1} = BitwiseXor (xa{0}, ka{0})
b{1} = BitwiseAnd (pB{0}, low)
xc{0} = BitwiseXor (hA{0}, d{0})
c{1} = BitwiseXor (xc{0}, kb{0})
d{1} = BitwiseAnd (pA{0}, low)
sa{0} = Add (ka{0}, wA)
ka{1} = BitwiseAnd (sa{0}, low)
sb{0} = Add (kb{0}, wB)
kb{1} = BitwiseAnd (sb{0}, low)
)",
                     r, r + 1);
  }
  return t + R"(
column = Constant <value_ints = [-1, 1]> ()
ra = Reshape <allowzero = 0> (a10, column)
rb = Reshape <allowzero = 0> (b10, column)
rc = Reshape <allowzero = 0> (c10, column)
rd = Reshape <allowzero = 0> (d10, column)
all = Concat <axis = 1> (ra, rb, rc, rd)
row = Constant <value_ints = [-1]> ()
flat = Reshape <allowzero = 0> (all, row)
)";
}

// `values` (one per element of `from`) = the first of them, in the dims of the output.
std::string FirstOf(std::string_view from, int64_t n, const Dims& dims) {
  return fmt::format(R"(
s0 = Constant <value_ints = [0]> ()
s1 = Constant <value_ints = [{1}]> ()
cut = Slice ({0}, s0, s1)
shape = Constant <value_ints: ints = {2}> ()
values = Reshape <allowzero = 1> (cut, shape)
)",
                     from, n, DimsText(dims));
}

// `drawn` of `flat`: bits * 2^-24 of the upper 24 bits.
constexpr std::string_view kUniform = R"(
k8 = Constant <value = uint64 {8}> ()
upper = BitShift <direction = "RIGHT"> (flat, k8)
bits = Cast <to = 11> (upper)
unit = Constant <value = double {5.9604644775390625e-08}> ()
drawn = Mul (bits, unit)
)";

// `drawn` of `flat` (Box, Muller: "A note on the generation of random normal deviates", 1958): two
// words give two numbers.
constexpr std::string_view kNormal = R"(
bits = Cast <to = 11> (flat)
unit = Constant <value = double {2.3283064365386963e-10}> ()
u = Mul (bits, unit)
pairs = Constant <value_ints = [-1, 2]> ()
uu = Reshape (u, pairs)
first = Constant <value_ints = [0]> ()
second = Constant <value_ints = [1]> ()
u0 = Gather <axis = 1> (uu, first)
u1 = Gather <axis = 1> (uu, second)
one = Constant <value = double {1}> ()
rest = Sub (one, u0)
ln = Log (rest)
minus2 = Constant <value = double {-2}> ()
square = Mul (minus2, ln)
radius = Sqrt (square)
turn = Constant <value = double {6.283185307179586}> ()
angle = Mul (turn, u1)
cosine = Cos (angle)
sine = Sin (angle)
x = Mul (radius, cosine)
y = Mul (radius, sine)
xy = Concat <axis = 1> (x, y)
drawn = Reshape (xy, row)
)";

}  // namespace

Result<std::string> BodyDropoutTrain(const BodyContext& c) {
  const ir::TensorType& x = *c.inputs[0];
  const int64_t n = x.elements();
  return Words(n, c.attrs.Int("stream"), "i2") + FirstOf("flat", n, x.dims) +
         fmt::format(R"(
bits = Cast <to = 11> (values)
unit = Constant <value = double {{2.3283064365386963e-10}}> ()
u = Mul (bits, unit)
ratio = Cast <to = 11> (i1)
less = Less (u, ratio)
o1 = Not (less)
w = Cast <to = {0}> (i0)
rate = Cast <to = {0}> (i1)
one32 = Constant <value_float = 1.0> ()
one = CastLike (one32, rate)
keep = Sub (one, rate)
scaled = Div (w, keep)
zero = Sub (one, one)
y = Where (o1, scaled, zero)
o0 = Cast <to = {1}> (y)
)",
                     static_cast<int>(AccOf(x.dtype)), static_cast<int>(c.outputs[0]->dtype));
}

Result<std::string> BodyRandom(const BodyContext& c) {
  const ir::TensorType& y = *c.outputs[0];
  const int64_t n = y.elements();
  std::string t = Words(n, c.attrs.Int("stream"), "i0");
  t += c.attrs.Int("normal") != 0 ? kNormal : kUniform;
  t += FirstOf("drawn", n, y.dims);
  return t + fmt::format(R"(
scale = Constant <value = double {{{0:.17g}}}> ()
shift = Constant <value = double {{{1:.17g}}}> ()
scaled = Mul (values, scale)
shifted = Add (scaled, shift)
o0 = Cast <to = {2}> (shifted)
)",
                         c.attrs.Float("scale"), c.attrs.Float("shift"), static_cast<int>(y.dtype));
}

}  // namespace ampc
