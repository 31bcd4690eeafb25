// SPDX-License-Identifier: Apache-2.0
// Where the elements of a resized axis come from, and with which weights (ONNX's Resize).
//
// Positions of linear and cubic taps are computed in double. Which element is the nearest, and what
// lies outside, is decided in float, as onnxruntime does: 3 / 0.6 must be 5 there.
#include "compiler/ops/taps.h"

#include <algorithm>
#include <cmath>

namespace ampc {

void AxisTaps::Add(int64_t index, double weight) {
  if (weight == 0) return;
  for (auto k = static_cast<size_t>(begins.back()); k < indices.size(); ++k) {
    if (indices[k] != index) continue;
    weights[k] += weight;
    return;
  }
  indices.push_back(index);
  weights.push_back(weight);
}

bool AxisTaps::IsIdentity() const {
  if (in != out || static_cast<int64_t>(indices.size()) != in) return false;
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto o = static_cast<int64_t>(i);
    if (begins[i] != o || indices[i] != o || weights[i] != 1) return false;
  }
  return true;
}

AxisTaps AxisTaps::Transposed() const {
  AxisTaps t(axis, out, in);
  std::vector<int64_t> place(static_cast<size_t>(in) + 1, 0);
  for (const int64_t i : indices) ++place[static_cast<size_t>(i) + 1];
  for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
  t.begins = place;
  t.indices.resize(indices.size());
  t.weights.resize(indices.size());
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = begins[static_cast<size_t>(o)]; k < begins[static_cast<size_t>(o) + 1]; ++k) {
      const auto from = static_cast<size_t>(k);
      const auto to = static_cast<size_t>(place[static_cast<size_t>(indices[from])]++);
      t.indices[to] = o;
      t.weights[to] = weights[from];
    }
  }
  return t;
}

namespace {

// Of an axis that is resized: its taps are written out.
constexpr int64_t kMaxLength = int64_t{1} << 24;

struct Mode {
  std::string_view coordinates, nearest;
  bool is_nearest = false, cubic = false, exclude_outside = false, antialias = false;
  double a = -0.75;
};

// How one axis is resized.
struct Axis {
  int64_t axis, in, out;
  double scale;               // out / in where sizes are given
  float narrow_scale;         // the same in float arithmetic
  double start = 0, end = 1;  // region
};

template <typename T>
T Position(const Mode& m, const Axis& a, int64_t output, T scale) {
  const T o = static_cast<T>(output), in = static_cast<T>(a.in), out = static_cast<T>(a.out);
  const T half = static_cast<T>(0.5);
  if (m.coordinates == "asymmetric") return o / scale;
  if (m.coordinates == "tf_half_pixel_for_nn") return (o + half) / scale;
  if (m.coordinates == "pytorch_half_pixel" && a.out <= 1) return 0;
  if (m.coordinates == "align_corners") return a.out <= 1 ? 0 : o * (in - 1) / (out - 1);
  if (m.coordinates == "tf_crop_and_resize") {
    const T start = static_cast<T>(a.start), end = static_cast<T>(a.end);
    return a.out <= 1 ? half * (start + end) * (in - 1)
                      : start * (in - 1) + o * (end - start) * (in - 1) / (out - 1);
  }
  const T centred = (o + half) / scale - half;
  if (m.coordinates != "half_pixel_symmetric") return centred;
  return in / 2 * (1 - out / (scale * in)) + centred;
}

int64_t Nearest(std::string_view mode, float at) {
  if (mode == "floor") return static_cast<int64_t>(std::floor(at));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(at));
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(at + 0.5f));
  return static_cast<int64_t>(std::ceil(at - 0.5f));
}

double Linear(double distance) { return std::max(1 - std::abs(distance), 0.0); }

double Cubic(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// The taps around one position. A filter that shrinks is stretched by 1 / scale (antialias).
void AddTaps(const Mode& m, const Axis& a, double at, AxisTaps& taps) {
  const double stretch = m.antialias ? std::min(a.scale, 1.0) : 1.0, radius = m.cubic ? 2 : 1;
  const double reach = std::min(radius / stretch, 4 * static_cast<double>(a.in) + 8);
  const auto low = static_cast<int64_t>(std::floor(at - reach)) + 1;
  const auto high = static_cast<int64_t>(std::ceil(at + reach)) - 1;
  double sum = 0;
  const auto weight = [&](int64_t i) {
    if (m.exclude_outside && (i < 0 || i >= a.in)) return 0.0;
    const double d = (static_cast<double>(i) - at) * stretch;
    return m.cubic ? Cubic(d, m.a) : Linear(d);
  };
  for (int64_t i = low; i <= high; ++i) sum += weight(i);
  const bool plain = !m.exclude_outside && stretch == 1;  // they add up to 1 as they are
  if (sum == 0) return;
  for (int64_t i = low; i <= high; ++i)
    taps.Add(std::clamp<int64_t>(i, 0, a.in - 1), plain ? weight(i) : weight(i) / sum);
}

AxisTaps TapsOf(const Mode& m, const Axis& a) {
  AxisTaps taps(a.axis, a.in, a.out);
  const bool crops = m.coordinates == "tf_crop_and_resize";
  const double far = 2 * static_cast<double>(a.in) + 4;  // any position out here is like another
  for (int64_t o = 0; o < a.out; ++o) {
    const float decides = Position<float>(m, a, o, a.narrow_scale);
    const bool outside = crops && !(decides >= 0 && decides <= static_cast<float>(a.in - 1));
    if (outside) {
    } else if (m.is_nearest) {
      const auto at = std::clamp(decides, -static_cast<float>(far), static_cast<float>(far));
      taps.Add(std::clamp<int64_t>(Nearest(m.nearest, at), 0, a.in - 1), 1);
    } else {
      AddTaps(m, a, std::clamp(Position<double>(m, a, o, a.scale), -far, far), taps);
    }
    taps.Next();
  }
  return taps;
}

Result<Mode> ReadMode(const Attrs& attrs) {
  constexpr std::string_view kCoordinates[] = {
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
      "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};
  constexpr std::string_view kNearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                           "ceil"};
  Mode m{.coordinates = attrs.String("coordinate_transformation_mode", "half_pixel"),
         .nearest = attrs.String("nearest_mode", "round_prefer_floor"),
         .exclude_outside = attrs.Int("exclude_outside") != 0,
         .antialias = attrs.Int("antialias") != 0,
         .a = attrs.Float("cubic_coeff_a", -0.75)};
  const std::string_view mode = attrs.String("mode", "nearest");
  m.is_nearest = mode == "nearest";
  m.cubic = mode == "cubic";
  if (!m.is_nearest && !m.cubic && mode != "linear" && mode != "bilinear")
    return BadInput("E0107", "mode '{}': nearest, linear or cubic is expected", mode);
  if (std::find(std::begin(kCoordinates), std::end(kCoordinates), m.coordinates) ==
      std::end(kCoordinates))
    return BadInput("E0107", "unknown coordinate_transformation_mode '{}'", m.coordinates);
  if (std::find(std::begin(kNearest), std::end(kNearest), m.nearest) == std::end(kNearest))
    return BadInput("E0107", "unknown nearest_mode '{}'", m.nearest);
  return m;
}

Result<std::vector<int64_t>> ReadAxes(const Attrs& attrs, int64_t rank) {
  std::vector<int64_t> axes = attrs.Ints("axes");
  if (!attrs.Has("axes")) {
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  }
  for (int64_t& axis : axes) {
    AMPC_TRY(CheckAxis(axis, static_cast<size_t>(rank)));
    axis = NormalAxis(axis, static_cast<size_t>(rank));
  }
  return axes;
}

Status ExpectElements(std::string_view what, const HostTensor* list, size_t n) {
  if (list == nullptr || list->elements() == static_cast<int64_t>(n)) return {};
  return BadInput("E0107", "'{}' has {} elements, expected {}", what, list->elements(), n);
}

// One scale for all axes, by keep_aspect_ratio_policy; 0: stretch.
double SharedScale(const Attrs& attrs, const Dims& x, const std::vector<int64_t>& axes,
                   const HostTensor& sizes) {
  const std::string_view policy = attrs.String("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch") return 0;
  double shared = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const double s = static_cast<double>(sizes.GetInt(static_cast<int64_t>(i))) /
                     static_cast<double>(x[static_cast<size_t>(axes[i])]);
    shared = i == 0 ? s : policy == "not_larger" ? std::min(shared, s) : std::max(shared, s);
  }
  return shared;
}

// With a scale that gives no whole length, ONNX's reference takes the fractional one for its last
// corner, its text (with PyTorch and onnxruntime) the whole one.
Status CheckLength(const Mode& m, const Axis& a) {
  const double length = a.scale * static_cast<double>(a.in);
  if (m.coordinates != "align_corners" || std::abs(length - std::round(length)) < 1e-4 * length)
    return {};
  return Unsupported("E0102",
                     "align_corners with scale {} of a length of {}: implementations differ where "
                     "the result has no whole length; give sizes",
                     a.scale, a.in);
}

}  // namespace

Result<std::vector<AxisTaps>> ResizeTaps(const Attrs& attrs, const Dims& x, const Dims& y,
                                         const HostTensor* roi, const HostTensor* scales,
                                         const HostTensor* sizes) {
  AMPC_ASSIGN(const Mode mode, ReadMode(attrs));
  AMPC_ASSIGN(const std::vector<int64_t> axes, ReadAxes(attrs, static_cast<int64_t>(x.size())));
  const size_t n = axes.size();
  AMPC_TRY(ExpectElements("roi", roi, 2 * n));
  AMPC_TRY(ExpectElements("scales", scales, n));
  AMPC_TRY(ExpectElements("sizes", sizes, n));
  if (scales == nullptr && sizes == nullptr)
    return BadInput("E0108", "neither 'scales' nor 'sizes' is known at compile time");
  const bool crops = mode.coordinates == "tf_crop_and_resize";
  if (crops && roi == nullptr)
    return BadInput("E0107", "tf_crop_and_resize wants a region ('roi')");
  const double shared = sizes == nullptr ? 0 : SharedScale(attrs, x, axes, *sizes);
  std::vector<AxisTaps> all;
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<int64_t>(i), axis = axes[i];
    Axis a{axis, x[static_cast<size_t>(axis)], y[static_cast<size_t>(axis)], 1, 1};
    if (scales != nullptr && !(scales->GetDouble(at) > 0))
      return BadInput("E0107", "scale {} of axis {}", scales->GetDouble(at), axis);
    const bool same = scales != nullptr ? scales->GetDouble(at) == 1 : shared == 0 || shared == 1;
    if (a.out == 0 || (!crops && same && a.in == a.out)) continue;
    if (a.in > kMaxLength || a.out > kMaxLength) {
      return Unsupported("E0102", "axis {} of {} elements resized to {}: up to {} are supported",
                         axis, a.in, a.out, kMaxLength);
    }
    if (a.in == 0) return BadInput("E0107", "axis {} is empty and cannot grow to {}", axis, a.out);
    a.scale = scales != nullptr ? scales->GetDouble(at)
              : shared > 0      ? shared
                                : static_cast<double>(a.out) / static_cast<double>(a.in);
    a.narrow_scale = scales != nullptr || shared > 0
                         ? static_cast<float>(a.scale)
                         : static_cast<float>(a.out) / static_cast<float>(a.in);
    if (!(a.scale > 0) || !std::isfinite(a.scale))
      return BadInput("E0107", "scale {} of axis {}", a.scale, axis);
    if (crops) {
      a.start = roi->GetDouble(at);
      a.end = roi->GetDouble(at + static_cast<int64_t>(n));
      if (!std::isfinite(a.start) || !std::isfinite(a.end))
        return BadInput("E0107", "the region of axis {} is {} to {}", axis, a.start, a.end);
    }
    if (scales != nullptr) AMPC_TRY(CheckLength(mode, a));
    AxisTaps taps = TapsOf(mode, a);
    if (!taps.IsIdentity()) all.push_back(std::move(taps));
  }
  // What shrinks comes first.
  std::stable_sort(all.begin(), all.end(), [](const AxisTaps& a, const AxisTaps& b) {
    return static_cast<double>(a.out) * static_cast<double>(b.in) <
           static_cast<double>(b.out) * static_cast<double>(a.in);
  });
  return all;
}

Attrs InterpolateAttrs(std::span<const AxisTaps> taps, const Dims& dims) {
  std::vector<int64_t> axes, begins, indices;
  std::vector<double> weights;
  for (const AxisTaps& t : taps) {
    axes.push_back(t.axis);
    begins.insert(begins.end(), t.begins.begin(), t.begins.end());
    indices.insert(indices.end(), t.indices.begin(), t.indices.end());
    weights.insert(weights.end(), t.weights.begin(), t.weights.end());
  }
  return {{"dims", dims},
          {"axes", axes},
          {"begins", begins},
          {"indices", indices},
          {"weights", weights}};
}

Result<std::vector<AxisTaps>> ReadTaps(const Attrs& attrs, const Dims& x) {
  const std::vector<int64_t> dims = attrs.Ints("dims"), axes = attrs.Ints("axes"),
                             begins = attrs.Ints("begins"), indices = attrs.Ints("indices");
  const std::vector<double> weights = attrs.Floats("weights");
  const auto bad = [&] {
    return BadInput("E0107", "'dims', 'axes', 'begins', 'indices' and 'weights' do not fit dims {}",
                    ToString(x));
  };
  Dims now = x;
  std::vector<AxisTaps> all;
  size_t row = 0, tap = 0;
  for (const int64_t axis : axes) {
    if (axis < 0 || axis >= static_cast<int64_t>(x.size()) || dims.size() != x.size()) return bad();
    AxisTaps t(axis, now[static_cast<size_t>(axis)], dims[static_cast<size_t>(axis)]);
    if (t.out < 0 || begins.size() - row < static_cast<size_t>(t.out) + 1) return bad();
    t.begins.assign(begins.begin() + static_cast<std::ptrdiff_t>(row),
                    begins.begin() + static_cast<std::ptrdiff_t>(row) + t.out + 1);
    row += static_cast<size_t>(t.out) + 1;
    const bool sorted = std::is_sorted(t.begins.begin(), t.begins.end());
    if (!sorted || t.begins.front() != 0) return bad();
    const auto n = static_cast<size_t>(t.begins.back());
    if (n > indices.size() - tap || n > weights.size() - std::min(tap, weights.size()))
      return bad();
    t.indices.assign(indices.begin() + static_cast<std::ptrdiff_t>(tap),
                     indices.begin() + static_cast<std::ptrdiff_t>(tap + n));
    t.weights.assign(weights.begin() + static_cast<std::ptrdiff_t>(tap),
                     weights.begin() + static_cast<std::ptrdiff_t>(tap + n));
    tap += n;
    for (const int64_t i : t.indices) {
      if (i < 0 || i >= t.in) return bad();
    }
    now[static_cast<size_t>(axis)] = t.out;
    all.push_back(std::move(t));
  }
  if (now != dims || row != begins.size() || tap != indices.size() || tap != weights.size())
    return bad();
  return all;
}

}  // namespace ampc
