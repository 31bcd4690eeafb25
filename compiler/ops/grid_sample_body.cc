// SPDX-License-Identifier: Apache-2.0
// The gradients of GridSample in standard ONNX: positions, weights and their slopes as tensors
// [N, places] per axis and tap; one ScatterElements, or one GatherElements, per combination of
// taps.
#include "compiler/ops/grid_sample.h"

#include <algorithm>
#include <array>

#include "compiler/ops/body.h"

namespace ampc {
namespace {

// A weight over the fraction r of a coordinate: c[0] + c[1] r + c[2] r^2 + c[3] r^3.
using Polynomial = std::array<double, 4>;

std::vector<Polynomial> WeightsOf(std::string_view mode) {
  constexpr double a = -0.75;
  if (mode == "nearest") return {{1, 0, 0, 0}};
  if (mode == "linear") return {{1, -1, 0, 0}, {0, 1, 0, 0}};
  return {{0, a, -2 * a, a}, {1, 0, -(a + 3), a + 2}, {0, -a, 2 * a + 3, -(a + 2)}, {0, 0, a, -a}};
}

constexpr size_t kNoAxis = 9;

class GridText {
 public:
  GridText(const Attrs& attrs, Dims x, int64_t places, DType acc)
      : weights_(WeightsOf(attrs.String("mode"))),
        nearest_(attrs.String("mode") == "nearest"),
        padding_(attrs.String("padding_mode")),
        align_(attrs.Int("align_corners") != 0),
        x_(std::move(x)),
        axes_(x_.size() - 2),
        places_(places),
        acc_(acc) {}

  int64_t places() const { return places_; }
  int64_t plane() const { return NumElements(std::span(x_).subspan(2)); }
  Dims Flat(int64_t last) const { return {x_[0], x_[1], last}; }
  size_t axes() const { return axes_; }

  template <typename... Args>
  void Line(fmt::format_string<Args...> f, Args&&... args) {
    text_ += fmt::format(f, std::forward<Args>(args)...) + "\n";
  }
  void Shape(std::string_view to, std::string_view from, std::span<const int64_t> dims) {
    Line(
        "{0}_shape = Constant <value_ints = [{2}]> ()\n{0} = Reshape <allowzero = 1> ({1}, "
        "{0}_shape)",
        to, from, ListText(dims));
  }
  void Widen(std::string_view to, std::string_view from) {
    Line("{} = Cast <to = {}> ({})", to, static_cast<int>(acc_), from);
  }

  // i<axis>_<tap>, w<axis>_<tap>, d<axis>_<tap>: part of the flat position, weight, its slope.
  void Axes(std::string_view grid, bool slopes) {
    Widen("grid", grid);
    Shape("g", "grid", Dims{x_[0], places_, static_cast<int64_t>(axes_)});
    Number("one", 1);
    Number("zero", 0);
    int64_t stride = plane();
    for (size_t a = 0; a < axes_; ++a) {
      stride /= std::max<int64_t>(x_[a + 2], 1);
      Axis(a, stride, slopes);
    }
  }

  int combinations() const {
    int n = 1;
    for (size_t a = 0; a < axes_; ++a) n *= static_cast<int>(weights_.size());
    return n;
  }
  // Combination n: its weight [N, places], with the slope instead along axis `sloped`.
  std::string Weight(int n, size_t sloped = kNoAxis) {
    std::string product;
    for (size_t a = 0; a < axes_; ++a) {
      const std::string part = fmt::format("{}{}_{}", a == sloped ? "d" : "w", a, TapOf(n, a));
      const std::string next = fmt::format("u{}_{}_{}", n, sloped, a);
      if (a > 0) Line("{} = Mul ({}, {})", next, product, part);
      product = a > 0 ? next : part;
    }
    return product;
  }
  // Its position in the plane, as an index [N, C, places].
  std::string Index(int n) {
    std::string sum;
    for (size_t a = 0; a < axes_; ++a) {
      const std::string part = fmt::format("i{}_{}", a, TapOf(n, a));
      const std::string next = fmt::format("at{}_{}", n, a);
      if (a > 0) Line("{} = Add ({}, {})", next, sum, part);
      sum = a > 0 ? next : part;
    }
    Line(
        "k{0}_r = Cast <to = 7> ({1})\nk{0}_a = Constant <value_ints = [1]> ()\n"
        "k{0}_u = Unsqueeze (k{0}_r, k{0}_a)\nk{0}_s = Constant <value_ints = [{2}]> ()\n"
        "k{0} = Expand (k{0}_u, k{0}_s)",
        n, sum, ListText(Flat(places_)));
    return fmt::format("k{}", n);
  }
  std::string Take() { return std::move(text_); }

 private:
  double low() const { return align_ ? 0 : -0.5; }
  double high(size_t a) const { return static_cast<double>(x_[a + 2]) - (align_ ? 1 : 0.5); }

  int TapOf(int n, size_t a) const {
    const int taps = static_cast<int>(weights_.size());
    for (size_t i = a + 1; i < axes_; ++i) n /= taps;
    return n % taps;
  }

  void Number(std::string_view name, double v) {
    Line("{} = Constant <value = {} {{{}}}> ()", name, Name(acc_), NumberText(v));
  }

  // `to` = from mirrored at both ends; `to`_sign: the derivative.
  void Reflect(const std::string& to, const std::string& from, double low, double high) {
    const double range = high - low;
    Number(to + "_low", low);
    if (range <= 0)
      return Line("{0}_sign = Mul ({1}, zero)\n{0} = Add ({0}_sign, {0}_low)", to, from);
    Number(to + "_range", range);
    Number(to + "_twice", 2 * range);
    Line(
        "{0}_x = Sub ({1}, {0}_low)\n{0}_q = Div ({0}_x, {0}_twice)\n{0}_f = Floor ({0}_q)\n"
        "{0}_m = Mul ({0}_f, {0}_twice)\n{0}_r = Sub ({0}_x, {0}_m)\n"
        "{0}_b = LessOrEqual ({0}_r, {0}_range)\n{0}_o = Sub ({0}_twice, {0}_r)\n"
        "{0}_t = Where ({0}_b, {0}_r, {0}_o)\n{0} = Add ({0}_t, {0}_low)\n{0}_n = Neg (one)\n"
        "{0}_sign = Where ({0}_b, one, {0}_n)",
        to, from);
  }

  void Axis(size_t a, int64_t stride, bool slopes) {
    const auto n = static_cast<double>(x_[a + 2]);
    const std::string p = fmt::format("a{}", a);
    Line("{0}_c = Constant <value_int = {1}> ()\n{0}_g = Gather <axis = 2> (g, {0}_c)", p,
         axes_ - 1 - a);
    Number(p + "_k", (align_ ? n - 1 : n) / 2);
    Number(p + "_h", (n - 1) / 2);
    Number(p + "_lo", low());
    Number(p + "_hi", high(a));
    Number(p + "_end", n - 1);
    Number(p + "_stride", static_cast<double>(stride));
    Line("{0}_m = Mul ({0}_g, {0}_k)\n{0}_p = Add ({0}_m, {0}_h)", p);
    Line("{0}_q = {1} ({0}_p)", p, nearest_ ? "Round" : "Identity");
    const bool cubic = weights_.size() == 4;  // its taps are clamped one by one
    if (padding_ == "zeros" || (padding_ == "border" && cubic)) {
      Line("{0}_x = Identity ({0}_q)\n{0}_s = Identity ({0}_k)", p);
    } else {
      Line(
          "{0}_b1 = Less ({0}_q, {0}_lo)\n{0}_b2 = Greater ({0}_q, {0}_hi)\n"
          "{0}_b = Or ({0}_b1, {0}_b2)",
          p);
      if (padding_ == "border") {
        Line("{0}_v = Clip ({0}_q, zero, {0}_end)\n{0}_t = Identity (zero)", p);
      } else {
        Reflect(p + "_v", p + "_q", low(), high(a));
        Line("{0}_t = Mul ({0}_k, {0}_v_sign)", p);
      }
      Line("{0}_x = Where ({0}_b, {0}_v, {0}_q)\n{0}_s = Where ({0}_b, {0}_t, {0}_k)", p);
    }
    Line("{0}_w = {1} ({0}_x)\n{0}_r = Sub ({0}_x, {0}_w)", p, nearest_ ? "Round" : "Floor");
    for (size_t j = 0; j < weights_.size(); ++j) Tap(a, j, slopes);
  }

  void Evaluate(const std::string& to, const Polynomial& c, const std::string& r) {
    Number(to + "_3", c[3]);
    std::string sum = to + "_3";
    for (size_t i = 3; i-- > 0;) {
      Number(fmt::format("{}_{}", to, i), c[i]);
      const std::string next = i == 0 ? to : fmt::format("{}_s{}", to, i);
      Line("{0}_m = Mul ({1}, {2})\n{0} = Add ({0}_m, {3}_{4})", next, sum, r, to, i);
      sum = next;
    }
  }

  void Tap(size_t a, size_t j, bool slopes) {
    const std::string p = fmt::format("a{}", a), t = fmt::format("{}_{}", p, j);
    const Polynomial& c = weights_[j];
    Evaluate(t + "_w", c, p + "_r");
    if (slopes) Evaluate(t + "_d", {c[1], 2 * c[2], 3 * c[3], 0}, p + "_r");
    Number(t + "_j", weights_.size() == 4 ? static_cast<double>(j) - 1 : static_cast<double>(j));
    Line("{0}_i = Add ({1}_w, {0}_j)", t, p);
    std::string at = t + "_i";
    if (padding_ == "reflection") {
      Reflect(t + "_v", at, low(), high(a));
      Line("{0}_n = Round ({0}_v)", t);
      at = t + "_n";
    }
    Line("{0}_in = Clip ({1}, zero, {2}_end)\ni{3}_{4} = Mul ({0}_in, {2}_stride)", t, at, p, a, j);
    Line("{0}_is = Equal ({0}_in, {1})", t, padding_ == "zeros" ? t + "_i" : t + "_in");
    Line("w{1}_{2} = Where ({0}_is, {0}_w, zero)", t, a, j);
    if (!slopes) return;
    Line("{0}_e = Where ({0}_is, {0}_d, zero)\nd{1}_{2} = Mul ({0}_e, {3}_s)", t, a, j, p);
  }

  std::vector<Polynomial> weights_;
  bool nearest_;
  std::string_view padding_;
  bool align_;
  Dims x_;
  size_t axes_;
  int64_t places_;
  DType acc_;
  std::string text_;
};

std::string ZerosText(const ir::TensorType& type) {
  return fmt::format(
      "n = Constant <value_ints = [{}]> ()\nz = ConstantOfShape <value = float[1] {{0}}> (n)\n"
      "o0 = Cast <to = {}> (z)\n",
      ListText(type.dims), static_cast<int>(type.dtype));
}

int64_t PlacesOf(const ir::TensorType& dy) { return NumElements(std::span(dy.dims).subspan(2)); }

}  // namespace

Result<std::string> BodyGridSampleGradInput(const BodyContext& c) {
  const ir::TensorType &dy = *c.inputs[0], &dx = *c.outputs[0];
  if (dx.elements() == 0 || dy.elements() == 0) return ZerosText(dx);
  GridText t(c.attrs, dx.dims, PlacesOf(dy), AccOf(dy.dtype));
  t.Axes("i1", false);
  t.Widen("dy", "i0");
  t.Shape("d", "dy", t.Flat(t.places()));
  t.Line("ns = Constant <value_ints = [{}]> ()\nz0 = ConstantOfShape <value = float[1] {{0}}> (ns)",
         ListText(t.Flat(t.plane())));
  t.Widen("s0", "z0");
  t.Line("ua = Constant <value_ints = [1]> ()");
  for (int n = 0; n < t.combinations(); ++n) {
    const std::string weight = t.Weight(n), index = t.Index(n);
    t.Line(
        "q{0} = Unsqueeze ({1}, ua)\nv{0} = Mul (d, q{0})\n"
        "s{2} = ScatterElements <axis = 2, reduction = \"add\"> (s{0}, {3}, v{0})",
        n, weight, n + 1, index);
  }
  t.Shape("r", fmt::format("s{}", t.combinations()), dx.dims);
  t.Line("o0 = Cast <to = {}> (r)", static_cast<int>(dx.dtype));
  return t.Take();
}

Result<std::string> BodyGridSampleGradGrid(const BodyContext& c) {
  const ir::TensorType &dy = *c.inputs[0], &x = *c.inputs[1], &grid = *c.inputs[2];
  if (x.elements() == 0 || dy.elements() == 0) return ZerosText(*c.outputs[0]);
  GridText t(c.attrs, x.dims, PlacesOf(dy), AccOf(dy.dtype));
  t.Axes("i2", true);
  t.Widen("dy", "i0");
  t.Shape("d", "dy", t.Flat(t.places()));
  t.Widen("xw", "i1");
  t.Shape("x", "xw", t.Flat(t.plane()));
  t.Line("ca = Constant <value_ints = [1]> ()\nza = Sub (a0_g, a0_g)");
  for (size_t a = 0; a < t.axes(); ++a) t.Line("sum{}_0 = Identity (za)", a);
  for (int n = 0; n < t.combinations(); ++n) {
    const std::string index = t.Index(n);
    t.Line(
        "v{0} = GatherElements <axis = 2> (x, {1})\nm{0} = Mul (d, v{0})\n"
        "p{0} = ReduceSum <keepdims = 0> (m{0}, ca)",
        n, index);
    for (size_t a = 0; a < t.axes(); ++a) {
      const std::string slope = t.Weight(n, a);
      t.Line("e{0}_{1} = Mul (p{1}, {2})\nsum{0}_{3} = Add (sum{0}_{1}, e{0}_{1})", a, n, slope,
             n + 1);
    }
  }
  std::string parts;
  t.Line("la = Constant <value_ints = [2]> ()");
  for (size_t a = t.axes(); a-- > 0;) {
    t.Line("c{0} = Unsqueeze (sum{0}_{1}, la)", a, t.combinations());
    parts += fmt::format("{}c{}", parts.empty() ? "" : ", ", a);
  }
  t.Line("all = Concat <axis = 2> ({})", parts);
  t.Shape("r", "all", grid.dims);
  t.Line("o0 = Cast <to = {}> (r)", static_cast<int>(c.outputs[0]->dtype));
  return t.Take();
}

}  // namespace ampc
