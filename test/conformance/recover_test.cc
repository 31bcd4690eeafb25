// SPDX-License-Identifier: Apache-2.0
// The pass recover: result and gradients of every pattern, recovered and not, in double and in
// float; and patterns that nearly match, which stay as they are.
//
// A case is the body of a graph over trainable states. In it T stands for the element type; the
// loss is the sum of y times fixed numbers. Gradients are those of the op's own rule against those
// of the single nodes' rules.
#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "compiler/ir/builder.h"
#include "compiler/ir/text.h"
#include "passes/passes.h"
#include "test/conformance/samples.h"

namespace ampc::conformance {
namespace {

struct Case {
  std::string name, op;  ///< op: what comes out; "" = nothing does
  std::string states;    ///< "x[2,3] w[3]"
  std::string body;
};

// ---- norms

const std::string kMean = R"(
  axes = Constant <value: tensor = int64[1] {-1}> ()
  two = Constant <value: tensor = T {2}> ()
  eps = Constant <value: tensor = T {1e-5}> ()
  m = ReduceMean <keepdims: int = 1> (x, axes)
  d = Sub (x, m)
  p = Pow (d, two)
  v = ReduceMean <keepdims: int = 1> (p, axes)
  e = Add (v, eps)
)";
const std::string kSquare = R"(
  axes = Constant <value: tensor = int64[1] {2}> ()
  one = Constant <value: tensor = T {1}> ()
  eps = Constant <value: tensor = T[1] {1e-6}> ()
  p = Mul (x, x)
  v = ReduceMean <keepdims: int = 1> (p, axes)
  e = Add (eps, v)
  s = Sqrt (e)
)";
const std::string kGroups = R"(
  split = Constant <value: tensor = int64[3] {2, 3, -1}> ()
  ones = Constant <value: tensor = T[3] {1, 1, 1}> ()
  zeros = Constant <value: tensor = T[3] {0, 0, 0}> ()
  g = Reshape (x, split)
  n = InstanceNormalization <epsilon: float = 1e-3> (g, ones, zeros)
  join = Constant <value: tensor = int64[4] {2, 6, 2, 2}> ()
  r = Reshape (n, join)
)";

std::vector<Case> Norms() {
  const std::string x = "x[2,3,8] w[8] b[8]", image = "x[2,6,2,2] w[6,1,1] b[6,1,1]";
  return {
      {"layer norm", "LayerNormalization", x,
       kMean + "s = Sqrt (e)\n n = Div (d, s)\n t = Mul (n, w)\n y = Add (t, b)"},
      {"layer norm, operands turned", "LayerNormalization", x,
       kMean + "s = Sqrt (e)\n n = Div (d, s)\n t = Mul (w, n)\n y = Add (b, t)"},
      {"layer norm by Reciprocal", "LayerNormalization", x,
       kMean +
           "s = Sqrt (e)\n i = Reciprocal (s)\n n = Mul (d, i)\n t = Mul (n, w)\n y = Add (t, b)"},
      {"layer norm by Pow", "LayerNormalization", x,
       kMean + "h = Constant <value: tensor = T {-0.5}> ()\n i = Pow (e, h)\n n = Mul (i, d)\n t = "
               "Mul (n, w)\n y = Add (t, b)"},
      {"layer norm without bias", "LayerNormalization", x,
       kMean + "s = Sqrt (e)\n n = Div (d, s)\n y = Mul (n, w)"},
      {"layer norm without parameters", "LayerNormalization", x,
       kMean + "s = Sqrt (e)\n y = Div (d, s)"},
      {"layer norm, scale of other dims behind it", "LayerNormalization", "x[2,3,8] w[3,1]",
       kMean + "s = Sqrt (e)\n n = Div (d, s)\n y = Mul (n, w)"},
      {"layer norm of two axes", "LayerNormalization", "x[2,3,8] w[3,8] b[3,8]", R"(
         axes = Constant <value: tensor = int64[2] {2, -2}> ()
         eps = Constant <value: tensor = T {1e-5}> ()
         m = ReduceMean <keepdims: int = 1> (x, axes)
         d = Sub (x, m)
         p = Mul (d, d)
         v = ReduceMean <keepdims: int = 1> (p, axes)
         e = Add (v, eps)
         s = Sqrt (e)
         n = Div (d, s)
         t = Mul (n, w)
         y = Add (t, b))"},
      {"RMS norm", "RMSNormalization", x, kSquare + "n = Div (x, s)\n y = Mul (n, w)"},
      {"RMS norm by 1 / root", "RMSNormalization", x,
       kSquare + "i = Div (one, s)\n n = Mul (x, i)\n y = Mul (w, n)"},
      {"RMS norm, bias stays", "RMSNormalization", x,
       kSquare + "n = Div (x, s)\n t = Mul (n, w)\n y = Add (t, b)"},
      {"RMS norm of what has its mean read elsewhere", "RMSNormalization", x,
       kMean + "s = Sqrt (e)\n n = Div (d, s)\n y = Add (n, m)"},
      {"group norm", "GroupNormalization", image, kGroups + "t = Mul (r, w)\n y = Add (t, b)"},
      {"group norm without parameters", "GroupNormalization", image, kGroups + "y = Identity (r)"},
      {"group norm without bias", "GroupNormalization", image, kGroups + "y = Mul (w, r)"},
      {"group norm, parameters of rank 4", "GroupNormalization", "x[2,6,2,2] w[1,6,1,1] b[1,6,1,1]",
       kGroups + "t = Mul (r, w)\n y = Add (t, b)"},
      {"group norm, parameters unsqueezed", "GroupNormalization", "x[2,6,2,2] w[6] b[6]",
       kGroups + "at = Constant <value: tensor = int64[2] {1, 2}> ()\n w3 = Unsqueeze (w, at)\n b3 "
                 "= Unsqueeze (b, at)\n"
                 "t = Mul (r, w3)\n y = Add (t, b3)"},
      // near misses
      {"deviation + epsilon", "", x, kMean + "s = Sqrt (v)\n z = Add (s, eps)\n y = Div (d, z)"},
      {"inner value read elsewhere", "", x,
       kMean + "s = Sqrt (e)\n n = Div (d, s)\n y = Add (n, e)"},
      {"another value divided", "", x, kMean + "s = Sqrt (e)\n y = Div (x, s)"},
      {"cubes", "", x, R"(
         axes = Constant <value: tensor = int64[1] {2}> ()
         three = Constant <value: tensor = T {3}> ()
         eps = Constant <value: tensor = T {9}> ()
         p = Pow (x, three)
         v = ReduceMean <keepdims: int = 1> (p, axes)
         e = Add (v, eps)
         s = Sqrt (e)
         y = Div (x, s))"},
      {"means over a middle axis", "", x, R"(
         axes = Constant <value: tensor = int64[1] {1}> ()
         eps = Constant <value: tensor = T {1e-5}> ()
         p = Mul (x, x)
         v = ReduceMean <keepdims: int = 1> (p, axes)
         e = Add (v, eps)
         s = Sqrt (e)
         y = Div (x, s))"},
      {"epsilon that trains", "", "x[2,3,8] eps[1]", R"(
         axes = Constant <value: tensor = int64[1] {2}> ()
         p = Mul (x, x)
         v = ReduceMean <keepdims: int = 1> (p, axes)
         q = Mul (eps, eps)
         e = Add (v, q)
         s = Sqrt (e)
         y = Div (x, s))"},
      {"instances with a scale", "", image,
       kGroups.substr(0, kGroups.find("ones")) +
           "ones = Constant <value: tensor = T[3] {1, 2, 1}> ()\n" +
           kGroups.substr(kGroups.find("zeros")) + "y = Identity (r)"},
      {"groups, other dims behind", "", image,
       kGroups + "k = Constant <value: tensor = int64[3] {2, 6, 4}> ()\n y = Reshape (n, k)"},
  };
}

// ---- activations

const std::string kErf = R"(
  one = Constant <value: tensor = T {1}> ()
  half = Constant <value: tensor = T {0.5}> ()
  root = Constant <value: tensor = T {1.4142135623730951}> ()
  u = Div (x, root)
  f = Erf (u)
  a = Add (f, one)
)";
const std::string kCube = R"(
  one = Constant <value: tensor = T {1}> ()
  half = Constant <value: tensor = T {0.5}> ()
  three = Constant <value: tensor = T {3}> ()
  c = Constant <value: tensor = T {0.044715}> ()
  k = Constant <value: tensor = T {0.7978845608028654}> ()
)";
const std::string kTanhTail =
    "f = Tanh (z)\n a = Add (one, f)\n h = Mul (half, x)\n y = Mul (h, a)";

std::vector<Case> Activations() {
  const std::string x = "x[2,3,8]";
  return {
      {"gelu, half last", "Gelu", x, kErf + "t = Mul (x, a)\n y = Mul (t, half)"},
      {"gelu, half first", "Gelu", x, kErf + "t = Mul (half, a)\n y = Mul (x, t)"},
      {"gelu, half at x", "Gelu", x, kErf + "h = Mul (x, half)\n y = Mul (h, a)"},
      {"gelu, halved by Div", "Gelu", x,
       kErf + "two = Constant <value: tensor = T {2}> ()\n t = Mul (a, x)\n y = Div (t, two)"},
      {"gelu of a product", "Gelu", "x0[2,3,8] w[8]",
       "x = Mul (x0, w)\n" + kErf + "t = Mul (x, a)\n y = Mul (t, half)"},
      {"gelu by the root of one half", "Gelu", x, R"(
         one = Constant <value: tensor = T {1}> ()
         half = Constant <value: tensor = T[1] {0.5}> ()
         root = Constant <value: tensor = T[1] {0.7071067811865476}> ()
         u = Mul (root, x)
         f = Erf (u)
         a = Add (f, one)
         h = Mul (x, half)
         y = Mul (h, a))"},
      {"tanh gelu", "Gelu", x,
       kCube + "p = Pow (x, three)\n q = Mul (p, c)\n s = Add (x, q)\n z = Mul (s, k)\n" +
           kTanhTail},
      {"tanh gelu by products", "Gelu", x,
       kCube +
           "p2 = Mul (x, x)\n p = Mul (p2, x)\n q = Mul (c, p)\n s = Add (q, x)\n z = Mul (k, "
           "s)\n" +
           kTanhTail},
      {"tanh gelu, x outside", "Gelu", x,
       kCube +
           "p2 = Mul (x, x)\n q = Mul (c, p2)\n s = Add (q, one)\n g = Mul (k, x)\n z = Mul (g, "
           "s)\n" +
           kTanhTail},
      {"swish", "Swish", x, "s = Sigmoid (x)\n y = Mul (x, s)"},
      {"swish, turned", "Swish", x, "s = Sigmoid (x)\n y = Mul (s, x)"},
      {"swish with alpha", "Swish", x,
       "k = Constant <value: tensor = T {1.702}> ()\n u = Mul (x, k)\n s = Sigmoid (u)\n y = Mul "
       "(x, s)"},
      {"log-softmax", "LogSoftmax", x, "s = Softmax <axis: int = 1> (x)\n y = Log (s)"},
      // near misses
      {"half of another size", "", x,
       kErf + "h = Constant <value: tensor = T {0.5000001}> ()\n t = Mul (x, a)\n y = Mul (t, h)"},
      {"another root", "", x, R"(
         one = Constant <value: tensor = T {1}> ()
         half = Constant <value: tensor = T {0.5}> ()
         root = Constant <value: tensor = T {1.4142}> ()
         u = Div (x, root)
         f = Erf (u)
         a = Add (f, one)
         t = Mul (x, a)
         y = Mul (t, half))"},
      {"another value times", "", "x[2,3,8] w[2,3,8]", kErf + "t = Mul (w, a)\n y = Mul (t, half)"},
      {"result of Erf read elsewhere", "", x,
       kErf + "t = Mul (x, a)\n h = Mul (t, half)\n y = Add (h, f)"},
      {"gelu, x of fewer dims", "", "x[8] w[3,8]",
       kErf + "t = Mul (x, a)\n t2 = Mul (t, half)\n k = Mul (t2, f)\n y = Mul (k, w)"},
      {"another cube", "", x,
       kCube +
           "c2 = Constant <value: tensor = T {0.0447}> ()\n p = Pow (x, three)\n q = Mul (p, c2)\n "
           "s = Add (x, q)\n z = Mul (s, k)\n" +
           kTanhTail},
      {"gate", "", "x[2,3,8] w[2,3,8]", "s = Sigmoid (w)\n y = Mul (x, s)"},
      {"sigmoid read twice", "", x, "s = Sigmoid (x)\n t = Mul (x, s)\n y = Add (t, s)"},
      {"softmax read twice", "", x,
       "s = Softmax <axis: int = 1> (x)\n t = Log (s)\n y = Add (t, s)"},
  };
}

// ---- attention: q [2,2,3,4], k [2,2,5,4], v [2,2,5,3]

std::string Numbers(const std::vector<double>& values) {
  std::string text;
  for (double v : values) text += (text.empty() ? "" : ", ") + fmt::format("{}", v);
  return text;
}
// Queries see keys up to their own place + 2; the others have `off`.
std::string Causal(double off, double on = 0) {
  std::vector<double> values;
  for (int t = 0; t < 3; ++t) {
    for (int s = 0; s < 5; ++s) values.push_back(s <= t + 2 ? on : off);
  }
  return Numbers(values);
}

std::vector<Case> Attentions() {
  const std::string heads = "q[2,2,3,4] k[2,2,5,4] v[2,2,5,3]";
  const std::string head = "c = Constant <value: tensor = T {0.7071067811865476}> ()\n";
  const std::string kt = "kt = Transpose <perm: ints = [0, 1, 3, 2]> (k)\n";
  const std::string product = head + kt + "s = MatMul (q, kt)\n";
  const std::string scaled = product + "z = Mul (s, c)\n";
  const std::string tail = "p = Softmax <axis: int = -1> (r)\n y = MatMul (p, v)";
  const auto constant = [](std::string_view name, std::string_view type,
                           const std::string& values) {
    return fmt::format("{} = Constant <value: tensor = {} {{{}}}> ()\n", name, type, values);
  };
  const std::string inf = constant("off", "T", "-inf");
  return {
      {"attention", "Attention", heads,
       product + "p = Softmax <axis: int = 3> (s)\n y = MatMul (p, v)"},
      {"scores scaled", "Attention", heads, product + "r = Mul (c, s)\n" + tail},
      {"scores divided", "Attention", heads, product + "r = Div (s, c)\n" + tail},
      {"scaled on both sides", "Attention", heads,
       head + kt + "q2 = Mul (q, c)\n k2 = Mul (kt, c)\n r = MatMul (q2, k2)\n" + tail},
      {"scaled before the transpose", "Attention", heads,
       head +
           "q2 = Div (q, c)\n k2 = Mul (c, k)\n kt = Transpose <perm: ints = [0, 1, 3, 2]> (k2)\n "
           "r = MatMul (q2, kt)\n" +
           tail},
      {"mask added", "Attention", heads + " m[2,1,1,5]", scaled + "r = Add (z, m)\n" + tail},
      {"mask first", "Attention", heads + " m[3,5]", scaled + "r = Add (m, z)\n" + tail},
      {"two masks", "Attention", heads + " m[2,1,1,5] n[2,3,5]",
       scaled + "z2 = Add (z, m)\n r = Add (z2, n)\n" + tail},
      {"causal mask added", "Attention causal", heads,
       scaled + constant("m", "T[3,5]", Causal(-INFINITY)) + "r = Add (z, m)\n" + tail},
      {"causal mask of the least float", "Attention causal", heads,
       scaled + constant("m", "T[1,1,3,5]", Causal(-3.4028234663852886e38)) + "r = Add (z, m)\n" +
           tail},
      {"causal mask chosen", "Attention causal", heads,
       scaled + inf + constant("m", "bool[3,5]", Causal(0, 1)) + "r = Where (m, z, off)\n" + tail},
      {"causal mask chosen, turned", "Attention causal", heads,
       scaled + inf + constant("m", "bool[3,5]", Causal(1, 0)) + "r = Where (m, off, z)\n" + tail},
      {"causal mask chosen, -1e9", "Attention causal", heads,
       scaled + constant("off", "T", "-1e9") + constant("m", "bool[3,5]", Causal(0, 1)) +
           "r = Where (m, z, off)\n" + tail},
      {"causal and padding", "Attention causal", heads + " m[2,1,1,5]",
       scaled + constant("n", "T[3,5]", Causal(-INFINITY)) + "z2 = Add (z, n)\n r = Add (z2, m)\n" +
           tail},
      {"mask chosen", "Attention", heads,
       scaled + inf + constant("m", "bool[3,5]", "1,0,1,1,0, 1,1,1,0,1, 0,0,0,0,1") +
           "r = Where (m, z, off)\n" + tail},
      {"mask chosen, turned", "Attention", heads,
       scaled + inf + constant("m", "bool[3,5]", "1,0,1,1,0, 1,1,1,0,1, 0,0,0,0,1") +
           "r = Where (m, off, z)\n" + tail},
      {"mask chosen, -1e9, each query has a key", "Attention", heads,
       scaled + constant("off", "T", "-1e9") +
           constant("m", "bool[3,5]", "1,0,1,1,0, 1,1,1,0,1, 0,0,0,0,1") +
           "r = Where (m, z, off)\n" + tail},
      {"keys transposed from another order", "Attention", "q[2,2,3,4] k[2,5,2,4] v[2,2,5,3]",
       head +
           "kt = Transpose <perm: ints = [0, 2, 3, 1]> (k)\n s = MatMul (q, kt)\n r = Mul (s, "
           "c)\n" +
           tail},
      {"keys transposed as three axes", "Attention", heads, head + R"(
         flat = Constant <value: tensor = int64[3] {-1, 5, 4}> ()
         full = Constant <value: tensor = int64[4] {2, 2, 4, 5}> ()
         k3 = Reshape (k, flat)
         t3 = Transpose <perm: ints = [0, 2, 1]> (k3)
         kt = Reshape (t3, full)
         r = MatMul (q, kt)
)" + tail},
      {"keys not transposed here", "Attention", "q[2,2,3,4] k[2,2,4,5] v[2,2,5,3]",
       "r = MatMul (q, k)\n" + tail},
      {"transposed keys read elsewhere", "Attention", heads,
       product + "p = Softmax (s)\n y0 = MatMul (p, v)\n at = Constant <value: tensor = int64[2] "
                 "{-1, -2}> ()\n"
                 "sum = ReduceSum <keepdims: int = 1> (kt, at)\n y = Add (y0, sum)"},
      {"three axes", "Attention", "q[2,3,4] k[2,5,4] v[2,5,3] m[2,3,5]",
       head +
           "kt = Transpose <perm: ints = [0, 2, 1]> (k)\n s = MatMul (q, kt)\n z = Mul (s, c)\n r "
           "= Add (z, m)\n" +
           tail},
      {"dropout with ratio 0", "Attention", heads,
       scaled + "p = Softmax (z)\n ratio = Constant <value: tensor = float {0}> ()\n on = Constant "
                "<value: tensor = bool {1}> ()\n"
                "d = Dropout (p, ratio, on)\n y = MatMul (d, v)"},
      {"0 where NaN", "Attention", heads,
       scaled + inf + constant("m", "bool[3,5]", "1,0,1,1,0, 1,1,1,0,1, 0,0,0,0,1") +
           "zero = Constant <value: tensor = T {0}> ()\n r = Where (m, z, off)\n p = Softmax (r)\n "
           "n = IsNaN (p)\n w = Where (n, zero, p)\n"
           "y = MatMul (w, v)"},
      {"casts to the same type", "Attention", heads,
       scaled + "z2 = Cast <to: int = TO> (z)\n p = Softmax (z2)\n p2 = Cast <to: int = TO> (p)\n "
                "y = MatMul (p2, v)"},
      // near misses
      {"softmax over another axis", "", heads,
       scaled + "p = Softmax <axis: int = 2> (z)\n y = MatMul (p, v)"},
      {"probabilities read elsewhere", "", "q[2,2,3,4] k[2,2,3,4] v[2,2,3,3]",
       head + kt + "s = MatMul (q, kt)\n p = Softmax (s)\n t = MatMul (p, v)\n y = Add (t, p)"},
      {"probabilities behind", "", "q[2,2,3,4] k[2,2,3,4] v[2,2,3,3]",
       head + kt + "s = MatMul (q, kt)\n p = Softmax (s)\n y = MatMul (v, p)"},
      {"scale that is no number", "", heads + " w[5]", product + "r = Mul (s, w)\n" + tail},
      {"values shared by the heads", "", "q[2,2,3,4] k[2,2,5,4] v[5,3]",
       product + "p = Softmax (s)\n y = MatMul (p, v)"},
      {"-1e9 for a query without keys", "", heads,
       scaled + constant("off", "T", "-1e9") +
           constant("m", "bool[3,5]", "0,0,0,0,0, 1,1,1,0,1, 0,0,0,0,1") +
           "r = Where (m, z, off)\n" + tail},
      {"chosen with a number of an ordinary size", "", heads,
       scaled + constant("off", "T", "-100") + constant("m", "bool[3,5]", Causal(0, 1)) +
           "r = Where (m, z, off)\n" + tail},
      {"activation between", "", heads, scaled + "r = Tanh (z)\n" + tail},
  };
}

// ---- an unrolled layer: x [3,2,4], hidden 5

std::string Unrolled(const std::string& between, bool last_reads_another_bias = false,
                     int swapped = 0, std::string_view perm = "1, 0") {
  std::string text = fmt::format(
      "wt = Transpose <perm: ints = [1, 0]> (w)\n rt = Transpose <perm: ints = [{}]> (r)\n", perm);
  text +=
      "xw = MatMul (x, wt)\n xb = Add (xw, bw)\n h0 = Identity (h)\n"
      "zero = Constant <value: tensor = int64[1] {0}> ()\n";
  for (int t = 1; t <= 3; ++t) {
    const int at = t - 1 == 1 ? 1 + swapped : t - 1 == 2 ? 2 - swapped : 0;
    text += fmt::format(
        "a{0} = Constant <value: tensor = int64[1] {{{1}}}> ()\n"
        "e{0} = Constant <value: tensor = int64[1] {{{2}}}> ()\n"
        "s{0} = Slice (xb, a{0}, e{0}, zero)\n i{0} = Squeeze (s{0}, zero)\n"
        "p{0} = MatMul (h{3}, rt)\n l{0} = Add (p{0}, {4})\n u{0} = Add (l{0}, i{0})\n"
        "h{0} = Tanh (u{0})\n",
        t, at, at + 1, t - 1, last_reads_another_bias && t == 3 ? "bw" : "br");
  }
  return text + "c = Concat <axis: int = 0> (h1, h2, h3)\n" + between;
}

std::vector<Case> Layers() {
  const std::string states = "x[3,2,4] w[5,4] r[5,5] bw[5] br[5] h[1,2,5]";
  return {
      {"RNN", "RNN", states, Unrolled("y = Neg (c)")},
      {"a Transpose that moves nothing", "RNN", states, Unrolled("y = Neg (c)", false, 0, "0, 1")},
      // near misses
      {"another bias in the last step", "", states, Unrolled("y = Neg (c)", true)},
      {"steps out of order", "", states, Unrolled("y = Neg (c)", false, 1)},
      {"a state read elsewhere", "", states, Unrolled("y = Add (c, h2)")},
  };
}

// ---- the comparison

std::string Text(const Case& c, std::string_view type) {
  std::string text = "state {\n";
  std::string_view rest = c.states;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    const std::string_view state = rest.substr(0, end);
    const size_t bracket = state.find('[');
    text += fmt::format("  weight trainable {} : T{} = fill(0)\n", state.substr(0, bracket),
                        state.substr(bracket));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  text += "}\ntrain () => (y) {\n" + c.body + "\n}\n";
  std::string typed;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool alone =
        text[i] == 'T' && text[i - 1] == ' ' && (text[i + 1] == '[' || text[i + 1] == ' ');
    alone ? typed += type : typed += text[i];
  }
  for (size_t at = typed.find("= TO>"); at != std::string::npos; at = typed.find("= TO>"))
    typed.replace(at, 5, type == "double" ? "= 11>" : "= 1>");
  return typed;
}

class Run {
 public:
  /// y and the gradients of the states.
  Result<std::vector<HostTensor>> Results(const Case& c, std::string_view type, bool recover) {
    AMPC_ASSIGN(module_, ir::ParseModule(Text(c, type), "case"));
    ir::Graph& g = *module_->train;
    const CompileOptions options;
    Diagnostics diagnostics;
    PassContext context{options, diagnostics};
    if (recover) AMPC_TRY(RecoverOps(*module_, context));
    for (const ir::NodeId n : g.Order()) {
      const ir::Node& node = g.node(n);
      ops_.push_back(
          fmt::format("{}{}", node.op->name, node.attrs.Int("causal") != 0 ? " causal" : ""));
    }
    AMPC_TRY(SetTrainMode(*module_, context));
    std::mt19937 random(3);
    const auto number = [&] { return (static_cast<double>(random() % 2001) - 1000) / 800; };
    const ir::ValueId y = g.FindOutput("y");
    const DType t = g.type(y).dtype;
    ir::Builder b(g, module_->locs.Intern("loss"));
    std::vector<int64_t> axes;
    for (int64_t a = 0; a < g.type(y).rank(); ++a) axes.push_back(a);
    const ir::ValueId weights = b.Constant(Random(g.type(y), number));
    const ir::ValueId loss = b.ReduceSum(b.Mul(y, weights), axes, false);
    if (b.failed()) return b.TakeStatus();
    g.SetOutput("loss", loss);
    Values values;
    for (size_t s = 0; s < module_->states.size(); ++s) {
      const auto id = static_cast<ir::StateId>(s);
      const ir::StateVar& state = module_->states[s];
      values[g.State(id)] = state.role == ir::Role::kRng
                                ? HostTensor::Int64s(Dims{1, 0})
                                : Random(module_->types.Get(state.type), number);
    }
    AMPC_TRY(Differentiate(*module_, context));
    AMPC_TRY(EvaluateGraph(g, values));
    std::vector<HostTensor> results = {values.at(g.FindOutput("y"))};
    EXPECT_EQ(results[0].dtype, t);
    for (const ir::StateVar& state : module_->states) {
      if (!state.trainable) continue;
      const ir::ValueId grad = g.FindOutput("grad:" + state.name);
      results.push_back(grad == ir::kNone ? HostTensor() : values.at(grad));
    }
    return results;
  }
  const std::vector<std::string>& ops() const { return ops_; }

 private:
  template <typename F>
  static HostTensor Random(const ir::TensorType& type, F number) {
    std::vector<double> values(static_cast<size_t>(type.elements()));
    for (double& v : values) v = number();
    if (type.dtype == DType::kFloat64) return HostTensor::Of<double>(type.dtype, type.dims, values);
    const std::vector<float> floats(values.begin(), values.end());
    return HostTensor::Of<float>(type.dtype, type.dims, floats);
  }

  std::unique_ptr<ir::Module> module_;
  std::vector<std::string> ops_;
};

double Distance(const HostTensor& a, const HostTensor& b) {
  if (a.dims != b.dims || a.dtype != b.dtype) return INFINITY;
  if (a.dtype == DType::kNone) return 0;  // no gradient, on both sides
  double difference = 0, size = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    difference += std::pow(a.GetDouble(i) - b.GetDouble(i), 2);
    size += std::pow(a.GetDouble(i), 2);
  }
  return std::sqrt(difference) / std::max(std::sqrt(size), 1e-3);
}

void Compare(const Case& c, std::string_view type, double tolerance) {
  SCOPED_TRACE(fmt::format("{} ({})", c.name, type));
  Run whole, single;
  const auto a = whole.Results(c, type, true), b = single.Results(c, type, false);
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  ASSERT_TRUE(b.ok()) << b.status().ToString();
  if (c.op.empty()) {
    EXPECT_EQ(whole.ops(), single.ops());
    return;
  }
  EXPECT_EQ(std::ranges::count(whole.ops(), c.op), 1) << testing::PrintToString(whole.ops());
  EXPECT_EQ(std::ranges::count(single.ops(), c.op), 0);
  ASSERT_EQ(a->size(), b->size());
  for (size_t i = 0; i < a->size(); ++i) {
    EXPECT_LE(Distance((*a)[i], (*b)[i]), tolerance)
        << (i == 0 ? "result" : fmt::format("gradient of state {}", i - 1));
  }
}

// Double: rounding alone. Float: some roundings of 2^-24 per element, in sums of at most 24.
void CompareAll(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Compare(c, "double", 1e-14);
    Compare(c, "float", 1e-6);
  }
}

TEST(Recover, Norms) { CompareAll(Norms()); }
TEST(Recover, Activations) { CompareAll(Activations()); }
TEST(Recover, Layers) { CompareAll(Layers()); }
TEST(Recover, Attention) { CompareAll(Attentions()); }

}  // namespace
}  // namespace ampc::conformance
