// SPDX-License-Identifier: Apache-2.0
// grid_sample, grid_sample_bwd: an image read at given places. Coordinates, weights and sums in
// double.
//
// Along each axis a coordinate becomes up to four taps; a sample is their product over the axes.
// Two spatial axes are three with a leading one of length 1, which has one tap.

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

enum class Sampling : uint8_t { kNearest, kLinear, kCubic };
enum class Outside : uint8_t { kZeros, kBorder, kReflection };

struct GridPlan {
  Sampling mode;
  Outside padding;
  bool align_corners;
  int64_t batch, channels, places, axes;  // places: results per plane
  std::array<int64_t, 3> size;            // of x's planes, leading ones of length 1
  DType x_type, grid_type, y_type;

  int64_t plane() const { return size[0] * size[1] * size[2]; }
};

struct Taps {
  int count = 0;
  std::array<int64_t, 4> index{};           // -1: reads zero
  std::array<double, 4> weight{}, slope{};  // slope: d weight / d grid
};

/// Mirrored at both ends of [low, high]; `sign` is the derivative.
double Reflect(double x, double low, double high, double* sign) {
  const double range = high - low;
  *sign = 0;
  if (range <= 0) return low;
  const double u = x - low, r = u - std::floor(u / (2 * range)) * (2 * range);
  *sign = r <= range ? 1 : -1;
  return low + (r <= range ? r : 2 * range - r);
}

struct Axis {
  const GridPlan& p;
  int64_t size;

  double low() const { return p.align_corners ? 0 : -0.5; }
  double high() const { return static_cast<double>(size) - (p.align_corners ? 1 : 0.5); }

  /// Where a tap reads; -1: nowhere.
  int64_t Place(int64_t i) const {
    if (i >= 0 && i < size) return i;
    if (p.padding == Outside::kZeros || size == 0) return -1;
    if (p.padding == Outside::kReflection) {
      double sign;
      i = std::lround(Reflect(static_cast<double>(i), low(), high(), &sign));
    }
    return std::clamp<int64_t>(i, 0, size - 1);
  }

  /// The coordinate in elements, and its derivative.
  double Locate(double grid, double* slope) const {
    const auto n = static_cast<double>(size);
    *slope = (p.align_corners ? n - 1 : n) / 2;
    double x = grid * *slope + (n - 1) / 2;
    if (p.mode == Sampling::kNearest) x = std::nearbyint(x);
    // Cubic taps are clamped one by one (Place), as in PyTorch and onnxruntime.
    const bool clamped = p.padding == Outside::kBorder && p.mode != Sampling::kCubic;
    if (clamped && (x < low() || x > high())) {
      *slope = 0;
      x = std::clamp(x, 0.0, std::max(n - 1, 0.0));
    } else if (p.padding == Outside::kReflection && (x < low() || x > high())) {
      double sign;
      x = Reflect(x, low(), high(), &sign);
      *slope *= sign;
    }
    return std::clamp(x, -8.0, n + 8);  // further out all taps read the same
  }

  Taps At(double grid) const {
    Taps t;
    if (std::isnan(grid)) return t;
    double slope;
    const double x = Locate(grid, &slope), whole = std::floor(x), r = x - whole;
    const auto i = static_cast<int64_t>(whole);
    if (p.mode == Sampling::kNearest) {
      t = {1, {std::lround(x)}, {1}, {0}};
    } else if (p.mode == Sampling::kLinear) {
      t = {2, {i, i + 1}, {1 - r, r}, {-slope, slope}};
    } else {
      Cubic(i, r, slope, t);
    }
    for (int k = 0; k < t.count; ++k) t.index[k] = Place(t.index[k]);
    return t;
  }

  static void Cubic(int64_t i, double r, double slope, Taps& t) {
    constexpr double a = -0.75;
    const auto inner = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto outer = [](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    const auto inner_slope = [](double d) { return (3 * (a + 2) * d - 2 * (a + 3)) * d; };
    const auto outer_slope = [](double d) { return (3 * a * d - 10 * a) * d + 8 * a; };
    t = {4,
         {i - 1, i, i + 1, i + 2},
         {outer(1 + r), inner(r), inner(1 - r), outer(2 - r)},
         {slope * outer_slope(1 + r), slope * inner_slope(r), -slope * inner_slope(1 - r),
          -slope * outer_slope(2 - r)}};
  }
};

using PlaceTaps = std::array<Taps, 3>;

PlaceTaps TapsAt(const GridPlan& p, ConstTensor grid, int64_t place) {
  PlaceTaps taps;
  for (int64_t a = 0; a < 3; ++a) {
    const int64_t given = a - (3 - p.axes);
    if (given < 0) {
      taps[static_cast<size_t>(a)] = {1, {0}, {1}, {0}};
      continue;
    }
    const double g = grid.at(place * p.axes + p.axes - 1 - given);
    taps[static_cast<size_t>(a)] = Axis{p, p.size[static_cast<size_t>(a)]}.At(g);
  }
  return taps;
}

/// f(position in the plane, tap of axis 0, 1, 2) for all taps that read something.
template <typename F>
void ForEachTap(const GridPlan& p, const PlaceTaps& t, F f) {
  for (int i = 0; i < t[0].count; ++i) {
    for (int j = 0; j < t[1].count; ++j) {
      for (int k = 0; k < t[2].count; ++k) {
        const int64_t a = t[0].index[i], b = t[1].index[j], c = t[2].index[k];
        if (a >= 0 && b >= 0 && c >= 0) f((a * p.size[1] + b) * p.size[2] + c, i, j, k);
      }
    }
  }
}

double WeightOf(const PlaceTaps& t, int i, int j, int k) {
  return t[0].weight[i] * t[1].weight[j] * t[2].weight[k];
}

void Sample(const GridPlan& p, ConstTensor x, ConstTensor grid, MutableTensor y) {
  for (int64_t n = 0; n < p.batch; ++n) {
    for (int64_t o = 0; o < p.places; ++o) {
      const PlaceTaps taps = TapsAt(p, grid, n * p.places + o);
      for (int64_t c = 0; c < p.channels; ++c) {
        const int64_t plane = (n * p.channels + c) * p.plane();
        double sum = 0;
        ForEachTap(p, taps, [&](int64_t at, int i, int j, int k) {
          sum += WeightOf(taps, i, j, k) * x.at(plane + at);
        });
        y.set((n * p.channels + c) * p.places + o, sum);
      }
    }
  }
}

void AddToImage(const GridPlan& p, ConstTensor dy, ConstTensor grid, double* dx) {
  for (int64_t n = 0; n < p.batch; ++n) {
    for (int64_t o = 0; o < p.places; ++o) {
      const PlaceTaps taps = TapsAt(p, grid, n * p.places + o);
      for (int64_t c = 0; c < p.channels; ++c) {
        double* plane = dx + (n * p.channels + c) * p.plane();
        const double d = dy.at((n * p.channels + c) * p.places + o);
        ForEachTap(p, taps, [&](int64_t at, int i, int j, int k) {
          plane[at] += d * WeightOf(taps, i, j, k);
        });
      }
    }
  }
}

void GridGradient(const GridPlan& p, ConstTensor dy, ConstTensor x, ConstTensor grid,
                  MutableTensor dgrid) {
  for (int64_t n = 0; n < p.batch; ++n) {
    for (int64_t o = 0; o < p.places; ++o) {
      const PlaceTaps t = TapsAt(p, grid, n * p.places + o);
      std::array<double, 3> sum{};
      for (int64_t c = 0; c < p.channels; ++c) {
        const int64_t plane = (n * p.channels + c) * p.plane();
        const double d = dy.at((n * p.channels + c) * p.places + o);
        ForEachTap(p, t, [&](int64_t at, int i, int j, int k) {
          const double v = d * x.at(plane + at);
          sum[0] += v * t[0].slope[i] * t[1].weight[j] * t[2].weight[k];
          sum[1] += v * t[0].weight[i] * t[1].slope[j] * t[2].weight[k];
          sum[2] += v * t[0].weight[i] * t[1].weight[j] * t[2].slope[k];
        });
      }
      for (int64_t a = 0; a < p.axes; ++a)
        dgrid.set((n * p.places + o) * p.axes + a, sum[static_cast<size_t>(2 - a)]);
    }
  }
}

/// x, y: dims of the image and of what is read from it; `like` gives the element type of x.
Result<GridPlan> ReadGrid(const CallCheck& check, const Operand& x, const Operand& grid,
                          const Operand& y) {
  for (const Operand& t : {x, grid, y}) {
    AMPC_TRY(check.RowMajor(t));
    AMPC_TRY(check.Float(t));
  }
  constexpr std::string_view kModes[] = {"nearest", "linear", "cubic"},
                             kPadding[] = {"zeros", "border", "reflection"};
  const std::string_view mode = check.params().String("mode"),
                         padding = check.params().String("padding_mode");
  AMPC_TRY(check.OneOf("mode", mode, kModes));
  AMPC_TRY(check.OneOf("padding_mode", padding, kPadding));
  AMPC_TRY(check.RankBetween(x, 4, 5));
  AMPC_TRY(check.RankBetween(y, x->dims.size(), x->dims.size()));
  const auto axes = static_cast<int64_t>(x->dims.size()) - 2;
  Dims want = {x->dims[0]};
  want.insert(want.end(), y->dims.begin() + 2, y->dims.end());
  want.push_back(axes);
  AMPC_TRY(check.HasDims(grid, want));
  if (y->dims[0] != x->dims[0] || y->dims[1] != x->dims[1])
    return check.Fail("{}: expected batch {} and {} channels, found {}", y.name, x->dims[0],
                      x->dims[1], ToString(y->dims));
  GridPlan p{static_cast<Sampling>(std::find(std::begin(kModes), std::end(kModes), mode) -
                                   std::begin(kModes)),
             static_cast<Outside>(std::find(std::begin(kPadding), std::end(kPadding), padding) -
                                  std::begin(kPadding)),
             check.params().Int("align_corners") != 0,
             x->dims[0],
             x->dims[1],
             NumElements(std::span(y->dims).subspan(2)),
             axes,
             {1, 1, 1},
             x->dtype,
             grid->dtype,
             y->dtype};
  std::copy(x->dims.begin() + 2, x->dims.end(), p.size.end() - axes);
  return p;
}

}  // namespace

PrepareResult prepare::grid_sample(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x grid", "y");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(const GridPlan plan, ReadGrid(check, check.In(0), check.In(1), check.Out(0)));
  return MakeKernel([plan](const Buffers& run) {
    Sample(plan, {plan.x_type, run.in(0)}, {plan.grid_type, run.in(1)}, {plan.y_type, run.out(0)});
  });
}

PrepareResult prepare::grid_sample_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "dy x? grid", "dx? dgrid?");
  AMPC_TRY(check.Operands());
  const Operand x = check.HasIn(1) ? check.In(1) : check.Out(0);
  if (!x->present()) return check.Fail("neither x nor dx is given");
  if (check.HasOut(1) && !check.HasIn(1)) return check.Fail("dgrid needs x");
  AMPC_ASSIGN(const GridPlan plan, ReadGrid(check, x, check.In(2), check.In(0)));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_TRY(check.RowMajor(check.Out(0)));
  AMPC_TRY(check.HasDims(check.Out(0), x->dims));
  AMPC_TRY(check.Float(check.Out(1)));
  AMPC_TRY(check.RowMajor(check.Out(1)));
  AMPC_TRY(check.HasDims(check.Out(1), check.In(2)->dims));
  const DType dx_type = check.Out(0)->dtype, dgrid_type = check.Out(1)->dtype;
  const int64_t size = plan.batch * plan.channels * plan.plane();
  Scratch scratch(nullptr);
  if (check.HasOut(0)) scratch.Take<double>(size);
  const auto body = [plan, dx_type, dgrid_type, size](const Buffers& run) {
    const ConstTensor dy{plan.y_type, run.in(0)}, image{plan.x_type, run.in(1)},
        grid{plan.grid_type, run.in(2)};
    if (run.out(0) != nullptr) {
      double* acc = static_cast<double*>(run.workspace);
      std::fill_n(acc, size, 0.0);
      AddToImage(plan, dy, grid, acc);
      StoreRun<double>(dx_type, run.out(0), 0, 1, size, acc);
    }
    if (run.out(1) != nullptr) GridGradient(plan, dy, image, grid, {dgrid_type, run.out(1)});
  };
  return MakeKernel(body, scratch.bytes());
}

}  // namespace ampc::ref
