// SPDX-License-Identifier: Apache-2.0
// Ops over planes: Col2Im and AffineGrid as other ops; Upsample and the older forms of Resize in
// Resize's.
#include <algorithm>
#include <cmath>

#include "compiler/onnx/canonical.h"
#include "compiler/onnx/source.h"

namespace ampc {
namespace {

using ir::ValueId;

// ---- Col2Im

Result<std::vector<int64_t>> ConstantList(CanonicalContext& c, const SourceNode& n, size_t slot,
                                          std::string_view what) {
  const HostTensor* given = c.Constant(n, slot);
  if (given == nullptr)
    return BadInput("E0108", "{} ('{}') is not known at compile time", what,
                    c.graph.value(n.inputs[slot]).name);
  return given->Ints();
}

// Where each element of a block at each place goes, in the flattened image; padding goes behind it.
struct Blocks {
  std::vector<int64_t> image, block, dilations, pads, strides;

  int64_t Places(size_t i) const {
    const int64_t room =
        image[i] + pads[i] + pads[i + image.size()] - dilations[i] * (block[i] - 1) - 1;
    return room < 0 ? 0 : room / strides[i] + 1;
  }
  std::vector<int64_t> Positions() const {
    const int64_t elements = NumElements(block), behind = NumElements(image);
    int64_t places = 1;
    for (size_t i = 0; i < image.size(); ++i) places *= Places(i);
    std::vector<int64_t> to;
    for (int64_t k = 0; k < elements; ++k) {
      for (int64_t l = 0; l < places; ++l) to.push_back(PositionOf(k, l, behind));
    }
    return to;
  }

 private:
  int64_t PositionOf(int64_t k, int64_t l, int64_t behind) const {
    int64_t position = 0, stride = 1;
    for (size_t i = image.size(); i-- > 0;) {
      const int64_t at = l % Places(i) * strides[i] - pads[i] + k % block[i] * dilations[i];
      if (at < 0 || at >= image[i]) return behind;
      position += at * stride;
      stride *= image[i];
      l /= Places(i);
      k /= block[i];
    }
    return position;
  }
};

Result<Blocks> ReadBlocks(CanonicalContext& c, const SourceNode& n) {
  AMPC_ASSIGN(const std::vector<int64_t> image, ConstantList(c, n, 1, "image_shape"));
  AMPC_ASSIGN(const std::vector<int64_t> block, ConstantList(c, n, 2, "block_shape"));
  const std::vector<int64_t> ones(image.size(), 1);
  Blocks b{image, block, n.attrs.Ints("dilations", ones),
           n.attrs.Ints("pads", std::vector<int64_t>(2 * image.size(), 0)),
           n.attrs.Ints("strides", ones)};
  bool good = !image.empty() && b.pads.size() == 2 * image.size();
  for (const auto* list : {&b.image, &b.block, &b.dilations, &b.strides}) {
    good = good && list->size() == image.size() &&
           std::all_of(list->begin(), list->end(),
                       [](int64_t v) { return v > 0 && v < int64_t{1} << 24; });
  }
  good = good && std::all_of(b.pads.begin(), b.pads.end(),
                             [](int64_t v) { return v >= 0 && v < int64_t{1} << 24; });
  if (good) return b;
  return BadInput("E0107", "image_shape {}, block_shape {}, dilations, strides and pads do not fit",
                  ToString(image), ToString(block));
}

// The adjoint of gathering the blocks.
Status Col2Im(CanonicalContext& c, SourceNode& n) {
  AMPC_ASSIGN(const Blocks b, ReadBlocks(c, n));
  const Dims x = c.type(n, 0).dims;
  const auto elements = CheckedNumElements(b.block, 8), plane = CheckedNumElements(b.image, 8);
  int64_t places = 1;
  for (size_t i = 0; i < b.image.size(); ++i) places *= std::min(b.Places(i), int64_t{1} << 20);
  if (x.size() != 3 || !elements || !plane || x[1] % *elements != 0 || x[2] != places)
    return BadInput("E0107", "an input of dims {} for blocks {} at {} places of {}", ToString(x),
                    ToString(b.block), places, ToString(b.image));
  const Dims flat = {x[0], x[1] / *elements, *elements * places};
  const ValueId summed =
      c.b.Own("GatherGrad", {c.b.Reshape(n.inputs[0], flat), c.b.Ints(b.Positions())},
              {{"dims", Dims{flat[0], flat[1], *plane + 1}}, {"axis", int64_t{2}}});
  const ValueId inside =
      c.b.Op("Slice", {summed, c.b.Ints({0}), c.b.Ints({*plane}), c.b.Ints({2})});
  Dims dims = {flat[0], flat[1]};
  dims.insert(dims.end(), b.image.begin(), b.image.end());
  n.Replace(c.b.Reshape(inside, dims));
  return c.b.TakeStatus();
}

// ---- Resize, Upsample

void SetInput(SourceNode& n, size_t i, ValueId v) {
  if (n.inputs.size() <= i) n.inputs.resize(i + 1, ir::kNone);
  n.inputs[i] = v;
}

// Slot 2 from a constant list of numbers: fp32, whatever the model's width.
Status SetScales(CanonicalContext& c, SourceNode& n, std::span<const float> scales) {
  SetInput(n, 2,
           c.b.Constant(HostTensor::Of<float>(DType::kFloat32,
                                              {static_cast<int64_t>(scales.size())}, scales)));
  return c.b.TakeStatus();
}

Result<std::vector<float>> ConstantScales(CanonicalContext& c, const SourceNode& n, size_t slot) {
  const HostTensor* given = c.Constant(n, slot);
  if (given == nullptr)
    return BadInput("E0108", "the scales ('{}') are not known at compile time",
                    c.graph.value(n.inputs[slot]).name);
  std::vector<float> scales;
  for (int64_t i = 0; i < given->elements(); ++i)
    scales.push_back(static_cast<float>(given->GetDouble(i)));
  return scales;
}

// Before opset 10: positions are multiples of 1/scale, the nearest element is the one before.
Status Upsample(CanonicalContext& c, SourceNode& n) {
  std::vector<float> scales;
  if (n.attrs.Has("scales")) {
    for (const double s : n.attrs.Floats("scales")) scales.push_back(static_cast<float>(s));
  } else if (n.Has(1)) {
    AMPC_ASSIGN(scales, ConstantScales(c, n, 1));
  } else {
    return Unsupported("E0102", "Upsample before opset 7 is not supported");
  }
  n.op = "Resize";
  n.inputs.resize(1);
  n.attrs = {{"mode", std::string(n.attrs.String("mode", "nearest"))},
             {"coordinate_transformation_mode", std::string("asymmetric")},
             {"nearest_mode", std::string("floor")}};
  return SetScales(c, n, scales);
}

// Opset 10: as Upsample, but where it shrinks the nearest element is the one behind.
Status FirstResize(CanonicalContext& c, SourceNode& n) {
  AMPC_ASSIGN(const std::vector<float> scales, ConstantScales(c, n, 1));
  const bool grows = std::any_of(scales.begin(), scales.end(), [](float s) { return s > 1; });
  const bool shrinks = std::any_of(scales.begin(), scales.end(), [](float s) { return s < 1; });
  const std::string mode(n.attrs.String("mode", "nearest"));
  if (mode == "nearest" && grows && shrinks) {
    return Unsupported("E0102",
                       "Resize-10 that grows along one axis and shrinks along another rounds in "
                       "two ways; export with opset 11 or newer");
  }
  n.inputs.resize(1);
  n.attrs = {{"mode", mode},
             {"coordinate_transformation_mode", std::string("asymmetric")},
             {"nearest_mode", std::string(shrinks ? "ceil" : "floor")}};
  return SetScales(c, n, scales);
}

// Empty lists stand for inputs that are left out; so does a region that nothing reads.
Status Resize(CanonicalContext& c, SourceNode& n) {
  if (n.version < 11) return FirstResize(c, n);
  const bool crops =
      n.attrs.String("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
  for (size_t i = 1; i < n.inputs.size(); ++i) {
    if (n.Has(i) && (c.type(n, i).elements() == 0 || (i == 1 && !crops))) n.inputs[i] = ir::kNone;
  }
  if (n.Has(1) && c.Constant(n, 1) == nullptr)
    return BadInput("E0108", "the region ('{}') is not known at compile time",
                    c.graph.value(n.inputs[1]).name);
  if (n.Has(3) && c.Constant(n, 3) == nullptr)
    return BadInput("E0108", "the sizes ('{}') are not known at compile time",
                    c.graph.value(n.inputs[3]).name);
  if (n.Has(2)) {
    AMPC_ASSIGN(const std::vector<float> scales, ConstantScales(c, n, 2));
    AMPC_TRY(SetScales(c, n, scales));
  }
  while (!n.inputs.empty() && n.inputs.back() == ir::kNone) n.inputs.pop_back();
  return {};
}

// ---- GridSample, AffineGrid

// Coordinates of one axis, from edge to edge or from centre to centre of the outer elements.
double GridCoordinate(int64_t i, int64_t size, bool align_corners) {
  const auto at = static_cast<double>(i), n = static_cast<double>(size);
  if (!align_corners) return (2 * at + 1) / n - 1;
  return size > 1 ? 2 * at / (n - 1) - 1 : 0;
}

// theta [N, k, k+1] on the homogeneous coordinates of every place: a sum of products, since no
// policy makes it low.
Status AffineGrid(CanonicalContext& c, SourceNode& n) {
  const ir::TensorType theta = c.type(n, 0);
  AMPC_ASSIGN(const std::vector<int64_t> size, ConstantList(c, n, 1, "the size"));
  const auto axes = static_cast<int64_t>(size.size()) - 2;
  if ((axes != 2 && axes != 3) || theta.dims != Dims{size[0], axes, axes + 1} ||
      std::any_of(size.begin(), size.end(), [](int64_t d) { return d <= 0; }) ||
      !CheckedNumElements(size, 8))
    return BadInput("E0107", "theta of dims {} for a grid of size {}", ToString(theta.dims),
                    ToString(size));
  const Dims space(size.begin() + 2, size.end());
  const bool align = n.attrs.Int("align_corners") != 0;
  std::vector<double> base;
  for (int64_t place = 0; place < NumElements(space); ++place) {
    int64_t rest = place;
    for (size_t i = space.size(); i-- > 0; rest /= space[i])  // x first
      base.push_back(GridCoordinate(rest % space[i], space[i], align));
    base.push_back(1);
  }
  const HostTensor table = HostTensor::Of<double>(
      DType::kFloat64, {1, NumElements(space), 1, axes + 1}, std::span<const double>(base));
  const ValueId rows = c.b.Reshape(n.inputs[0], Dims{size[0], 1, axes, axes + 1});
  const ValueId products = c.b.Mul(rows, c.b.Constant(ConvertFloats(table, theta.dtype)));
  Dims dims = {size[0]};
  dims.insert(dims.end(), space.begin(), space.end());
  dims.push_back(axes);
  n.Replace(c.b.Reshape(c.b.ReduceSum(products, {3}, false), dims));
  return c.b.TakeStatus();
}

// Before opset 20 the modes had the names of two axes.
Status GridSample(CanonicalContext&, SourceNode& n) {
  const std::string_view mode = n.attrs.String("mode", "linear");
  if (mode == "bilinear") n.attrs.Set("mode", std::string("linear"));
  if (mode == "bicubic") n.attrs.Set("mode", std::string("cubic"));
  return {};
}

constexpr CanonicalRow kRules[] = {
    {"Col2Im", Col2Im, true},          {"AffineGrid", AffineGrid, true},
    {"GridSample", GridSample},        {"Upsample", Upsample, true, 0b10},
    {"Resize", Resize, false, 0b1110},
};

}  // namespace

std::span<const CanonicalRow> SpatialRules() { return kRules; }

}  // namespace ampc
