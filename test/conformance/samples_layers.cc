// SPDX-License-Identifier: Apache-2.0
// Samples of layers: matrix products, convolutions, pools, resizing, norms, recurrent layers,
// attention, losses.
// clang-format off
#include "test/conformance/samples_args.h"

namespace ampc::conformance {
namespace {

// ---- matrix products, convolutions, pools ------------------------------------------------------------------------------

Table Matmuls() {
  Table t = {
      {"MatMul", {F({2, 3}), F({3, 4})}}, {"MatMul", {F({5}), F({5})}}, {"MatMul", {F({3}), F({3, 2})}}, {"MatMul", {F({2, 3}), F({3})}},
      {"MatMul", {F({2, 3, 4}), F({4, 2})}}, {"MatMul", {F({3, 4}), F({2, 4, 2})}}, {"MatMul", {F({2, 1, 3, 4}), F({3, 4, 2})}},
      {"MatMul", {F({2, 2, 3}), F({2, 3, 2})}}, {"MatMul", {F({4}), F({2, 4, 3})}}, {"MatMul", {F({2, 3, 4}), F({4})}},
      {"MatMul", {F({3, 3}), Same(0)}}, {"MatMul", {F({2, 3, 3}), Same(0)}}, {"MatMul", {F({1, 2, 3}), F({4, 3, 2})}}, {"MatMul", {F({2, 0}), F({0, 3})}},
      {"ai.ampc.MatMulEx", {F({3, 2}).NoGrad(), F({4, 3}).NoGrad()}, {{"trans_a", int64_t{1}}, {"trans_b", int64_t{1}}, {"alpha", 0.5}, {"to", kToTested}}},
      {"ai.ampc.MatMulEx", {F({2, 3}).NoGrad(), F({4, 3}).NoGrad(), F({4}).NoGrad()}, {{"trans_b", int64_t{1}}, {"to", kToAcc}, {"post", std::string("relu")}}},
      {"ai.ampc.MatMulEx", {F({2, 3, 2}).NoGrad(), F({1, 3, 4}).NoGrad()}, {{"trans_a", int64_t{1}}}},
  };
  for (const int64_t ta : {0, 1}) {
    for (const int64_t tb : {0, 1}) {
      t.push_back({"Gemm", {F(ta ? Dims{3, 2} : Dims{2, 3}), F(tb ? Dims{4, 3} : Dims{3, 4}), F({4})}, {{"transA", ta}, {"transB", tb}, {"alpha", 0.7}, {"beta", 1.3}}});
    }
  }
  Join(t, {
      {"Gemm", {F({2, 3}), F({3, 4})}}, {"Gemm", {F({2, 3}), F({3, 4}), F({})}}, {"Gemm", {F({2, 3}), F({3, 4}), F({1, 4})}},
      {"Gemm", {F({2, 3}), F({3, 4}), F({2, 1})}}, {"Gemm", {F({2, 3}), F({3, 4}), F({2, 4})}}, {"Gemm", {F({3, 3}), Same(0), Same(0)}},
  });
  return t;
}

Attrs Window(Ints strides, Ints dilations, Ints pads, int64_t group = 1) {
  return {{"strides", std::move(strides)}, {"dilations", std::move(dilations)}, {"pads", std::move(pads)}, {"group", group}};
}

Table Convolutions() {
  return {
      {"Conv", {F({2, 3, 7}), F({4, 3, 3})}, Window({1}, {1}, {0, 0}), 1, ~0u, 9},
      {"Conv", {F({1, 2, 9}), F({3, 2, 3}), F({3})}, Window({2}, {2}, {3, 1}), 1, ~0u, 6},
      {"Conv", {F({2, 4, 6}), F({6, 2, 2}), F({6})}, Window({1}, {1}, {1, 0}, 2), 1, ~0u, 4},
      {"Conv", {F({2, 3, 5, 4}), F({2, 3, 3, 2}), F({2})}, {}, 1, ~0u, 18},
      {"Conv", {F({1, 2, 6, 5}), F({2, 2, 3, 2})}, Window({2, 1}, {1, 2}, {1, 0, 2, 1}), 1, ~0u, 12},
      {"Conv", {F({2, 4, 5, 5}), F({4, 1, 3, 3})}, Window({1, 1}, {1, 1}, {1, 1, 1, 1}, 4), 1, ~0u, 9},
      {"Conv", {F({1, 4, 4, 4}), F({6, 2, 1, 1})}, Window({1, 1}, {1, 1}, {0, 0, 0, 0}, 2), 1, ~0u, 2},
      {"Conv", {F({1, 1, 8, 7}), F({2, 1, 2, 2})}, Window({3, 3}, {1, 1}, {0, 0, 0, 0}), 1, ~0u, 4},  // a stride wider than the window, an unread rim
      {"Conv", {F({1, 2, 5, 6}), F({2, 2, 3, 2})}, {{"auto_pad", Str("SAME_UPPER")}, {"strides", Ints{2, 2}}}, 1, ~0u, 12},
      {"Conv", {F({1, 2, 5, 6}), F({2, 2, 3, 2})}, {{"auto_pad", Str("SAME_LOWER")}, {"strides", Ints{2, 1}}}, 1, ~0u, 12},
      {"Conv", {F({1, 2, 5, 6}), F({2, 2, 3, 2}), None()}, {{"auto_pad", Str("VALID")}, {"kernel_shape", Ints{3, 2}}}, 1, ~0u, 12},
      {"Conv", {F({1, 2, 3, 4, 3}), F({2, 2, 2, 3, 2}), F({2})}, Window({1, 2, 1}, {1, 1, 2}, {0, 1, 1, 1, 0, 1}), 1, ~0u, 24},
      {"ConvTranspose", {F({2, 3, 5}), F({3, 2, 3})}, {}, 1, ~0u, 9},
      {"ConvTranspose", {F({1, 2, 4}), F({2, 2, 3}), F({4})}, Window({2}, {2}, {1, 2}, 2), 1, ~0u, 3},
      {"ConvTranspose", {F({1, 2, 3, 4}), F({2, 3, 3, 2}), F({3})}, With(Window({2, 3}, {1, 1}, {1, 0, 0, 1}), "output_padding", Ints{1, 2}), 1, ~0u, 12},
      {"ConvTranspose", {F({1, 2, 4}), F({2, 1, 3})}, With(Window({2}, {3}, {1, 2}), "output_padding", Ints{2}), 1, ~0u, 6},
      {"ConvTranspose", {F({1, 2, 3, 3}), F({2, 1, 3, 3})}, {{"strides", Ints{2, 2}}, {"output_shape", Ints{6, 5}}}, 1, ~0u, 18},
      {"ConvTranspose", {F({1, 2, 3, 3}), F({2, 1, 3, 3})}, {{"strides", Ints{2, 2}}, {"auto_pad", Str("SAME_UPPER")}}, 1, ~0u, 18},
      {"ConvTranspose", {F({1, 2, 3, 3}), F({2, 1, 3, 2})}, {{"strides", Ints{2, 2}}, {"auto_pad", Str("SAME_LOWER")}}, 1, ~0u, 18},
      {"ConvTranspose", {F({1, 2, 2, 3, 2}), F({2, 2, 2, 2, 3})}, Window({1, 2, 1}, {1, 1, 1}, {0, 1, 1, 0, 0, 1}), 1, ~0u, 24},
      {"ai.ampc.ConvEx", {F({1, 2, 5, 6}).NoGrad(), F({3, 2, 3, 2}).NoGrad()}, With(Window({2, 1}, {1, 1}, {1, 0, 0, 1}), "dims", Ints{1, 3, 2, 6}), 1, ~0u, 12},
      {"ai.ampc.ConvGradData", {F({1, 4, 3, 5}).NoGrad(), F({4, 1, 3, 2}).NoGrad()}, With(Window({2, 1}, {1, 1}, {1, 0, 1, 1}, 2), "dims", Ints{1, 2, 6, 5}), 1, ~0u, 12},
      {"ai.ampc.ConvGradWeights", {F({2, 4, 6, 5}).NoGrad(), F({2, 4, 3, 5}).NoGrad()}, With(With(Window({2, 1}, {1, 1}, {1, 0, 1, 1}, 2), "dims", Ints{4, 2, 3, 2}), "to", kToAcc), 1, ~0u, 30},
  };
}

Attrs Pool(Ints kernel, Ints strides = {}, Ints pads = {}, Ints dilations = {}, bool ceil = false, int include = -1) {
  Attrs a{{"kernel_shape", std::move(kernel)}};
  if (!strides.empty()) a.Set("strides", std::move(strides));
  if (!pads.empty()) a.Set("pads", std::move(pads));
  if (!dilations.empty()) a.Set("dilations", std::move(dilations));
  if (ceil) a.Set("ceil_mode", int64_t{1});
  if (include >= 0) a.Set("count_include_pad", int64_t{include});
  return a;
}
// All window parameters given, as in the own ops.
Attrs FullPool(Ints kernel, Ints strides, Ints pads, Ints dims) {
  return {{"dilations", Ints(kernel.size(), 1)}, {"kernel_shape", std::move(kernel)}, {"strides", std::move(strides)}, {"pads", std::move(pads)}, {"dims", std::move(dims)}};
}

Table Pools() {
  Table t;
  for (const char* op : {"MaxPool", "AveragePool"}) {
    const bool average = std::string_view(op) == "AveragePool";
    Join(t, {
        {op, {F({2, 2, 8})}, Pool({3})}, {op, {F({1, 2, 9})}, Pool({3}, {2}, {1, 0}, {2})},
        {op, {F({2, 2, 6, 6})}, Pool({2, 2}, {2, 2})}, {op, {F({1, 2, 7, 5})}, Pool({3, 2}, {2, 1}, {1, 0, 0, 1})},
        {op, {F({1, 2, 7, 6})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1})},
        {op, {F({1, 1, 7, 8})}, Pool({2, 3}, {2, 3}, {}, {}, true)}, {op, {F({1, 1, 6, 7})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1}, {}, true)},
        {op, {F({1, 1, 7, 7})}, Pool({2, 2}, {1, 2}, {}, {3, 2})},
        // windows that hang over the end by more than their kernel
        {op, {F({2, 2, 4})}, Pool({2}, {3}, {}, {2}, true)}, {op, {F({1, 2, 6, 7})}, Pool({2, 2}, {4, 3}, {}, {3, 2}, true)},
        {op, {F({1, 1, 3, 4, 5})}, Pool({2, 2, 2}, {1, 3, 1}, {}, {1, 2, 1}, true)},
        {op, {F({1, 2, 5, 6})}, With(Pool({3, 2}, {2, 2}), "auto_pad", Str("SAME_UPPER"))},
        {op, {F({1, 2, 5, 6})}, With(Pool({2, 3}, {2, 2}), "auto_pad", Str("SAME_LOWER"))},
        {op, {F({1, 2, 5, 6})}, With(Pool({2, 2}), "auto_pad", Str("VALID"))},
        {op, {F({1, 2, 3, 4, 4})}, Pool({2, 2, 3}, {1, 2, 1}, {1, 0, 0, 0, 1, 1})},
    });
    if (!average) {
      const auto indexed = [&](Dims dims, Attrs attrs, int64_t order) { return Sample{op, {F(std::move(dims))}, With(std::move(attrs), "storage_order", order), 2, 0b1}; };
      for (const int64_t order : {0, 1}) {
        Join(t, {indexed({2, 2, 6}, Pool({2}, {2}), order), indexed({2, 3, 6, 4}, Pool({3, 2}, {2, 1}, {1, 0, 0, 1}), order), indexed({1, 2, 3, 4, 5}, Pool({2, 2, 3}, {1, 2, 1}), order)});
      }
    }
    if (average) {
      // a window that hangs over does not count what is behind the padding
      for (const Dims& pads : {Dims{0, 0, 0, 0}, Dims{1, 0, 1, 1}})
        t.push_back({op, {F({1, 2, 7, 6})}, Pool({3, 3}, {3, 2}, pads, {}, true, 1), 1, ~0u, 9});
      Join(t, {
          {op, {F({1, 2, 7, 5})}, Pool({3, 2}, {2, 1}, {1, 0, 0, 1}, {}, false, 1)}, {op, {F({1, 1, 6})}, Pool({3}, {2}, {1, 1}, {}, false, 1)},
          {op, {F({1, 2, 7, 7})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1}, {}, true, 1)}, {op, {F({1, 2, 8})}, Pool({3}, {2}, {2, 1}, {2}, false, 1)},
          {op, {F({1, 2, 8})}, Pool({3}, {2}, {2, 1}, {2}, false, 0)},
      });
    }
  }
  for (const char* op : {"GlobalAveragePool", "GlobalMaxPool"}) {
    for (const Dims& dims : {Dims{2, 3, 5}, Dims{2, 2, 3, 4}, Dims{1, 2, 2, 3, 2}, Dims{2, 3, 1, 1}}) t.push_back({op, {F(dims)}});
  }
  Join(t, {
      {"ai.ampc.MaxPoolIndexed", {F({1, 2, 7, 5})}, FullPool({3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2, 3, 5}), 2, 0b1},
      {"ai.ampc.MaxPoolIndexed", {F({2, 1, 9})}, FullPool({3}, {2}, {1, 1}, {2, 1, 5}), 2, 0b1},
      {"ai.ampc.MaxPoolGrad", {F({1, 2, 2, 2}).NoGrad(), Ix({1, 2, 2, 2}, {4, 4, 4, 8, 0, 2, 6, 4}, DType::kInt32)}, FullPool({2, 2}, {1, 1}, {0, 0, 0, 0}, {1, 2, 3, 3})},
      {"ai.ampc.AveragePoolGrad", {F({1, 2, 3, 5}).NoGrad()}, With(FullPool({3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2, 6, 5}), "count_include_pad", int64_t{0})},
      {"ai.ampc.AveragePoolGrad", {F({1, 2, 3, 5}).NoGrad()}, With(FullPool({3, 2}, {2, 1}, {1, 0, 0, 1}, {1, 2, 6, 5}), "count_include_pad", int64_t{1})},
      {"ai.ampc.AveragePoolGrad", {F({1, 2, 3, 3}).NoGrad()}, With(With(FullPool({3, 3}, {3, 2}, {1, 0, 1, 2}, {1, 2, 7, 5}), "count_include_pad", int64_t{1}), "overhang", Ints{0, 2})},
  });
  return t;
}

// ---- resizing ------------------------------------------------------------------------------------------------------------

// X, region, scales, sizes; the latter three constant or left out.
Sample Resized(Dims x, Doubles scales, Doubles sizes, Attrs attrs, Doubles region = {}, double terms = 1) {
  const auto list = [](Doubles v, DType t) {
    const auto n = static_cast<int64_t>(v.size());
    return n == 0 ? None() : Ix({n}, std::move(v), t).Constant();
  };
  Sample s{"Resize", {F(std::move(x)), list(std::move(region), DType::kFloat32), list(std::move(scales), DType::kFloat32), list(std::move(sizes), DType::kInt64)}, std::move(attrs), 1, ~0u, terms};
  while (s.args.back().kind == Arg::Kind::kLeftOut) s.args.pop_back();
  return s;
}

Table Resizing() {
  Table t;
  const auto mode = [](const char* m, const char* coordinates) { return Attrs{{"mode", Str(m)}, {"coordinate_transformation_mode", Str(coordinates)}}; };
  for (const char* m : {"nearest", "linear", "cubic"}) {
    const double terms = m[0] == 'c' ? 40 : 4;
    for (const char* coordinates : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"}) {
      Join(t, {Resized({1, 2, 4, 5}, {}, {1, 2, 7, 3}, mode(m, coordinates), {}, terms), Resized({2, 1, 3, 4}, {1, 1, 2, 1.5}, {}, mode(m, coordinates), {}, terms)});
    }
    Join(t, {Resized({1, 1, 5, 4}, {1, 1, 0.6, 0.8}, {}, mode(m, "half_pixel"), {}, terms), Resized({1, 1, 5, 4}, {}, {1, 1, 1, 1}, mode(m, "pytorch_half_pixel"), {}, terms),
             Resized({1, 2, 3, 3}, {}, {1, 2, 3, 3}, mode(m, "half_pixel")),
             Resized({1, 1, 4, 5}, {}, {1, 1, 5, 6}, With(mode(m, "tf_crop_and_resize"), "extrapolation_value", 7.5), {0, 0, 0.4, -0.3, 1, 1, 1.2, 0.8}, terms)});
  }
  for (const char* rounding : {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}) {
    for (const char* coordinates : {"asymmetric", "half_pixel"})
      t.push_back(Resized({1, 1, 4, 6}, {}, {1, 1, 8, 4}, With(mode("nearest", coordinates), "nearest_mode", Str(rounding)), {}, 2));
  }
  const Attrs linear = mode("linear", "half_pixel"), cubic = mode("cubic", "half_pixel");
  Join(t, {Resized({1, 2, 3, 4, 5}, {}, {1, 2, 5, 2, 7}, linear, {}, 8), Resized({2, 3, 6}, {1, 1, 2}, {}, linear, {}, 4),
           Resized({1, 1, 4, 4}, {}, {1, 1, 9, 3}, With(cubic, "cubic_coeff_a", -0.5), {}, 40),
           Resized({1, 1, 4, 4}, {}, {1, 1, 9, 3}, With(cubic, "exclude_outside", int64_t{1}), {}, 40),
           Resized({1, 1, 9, 8}, {}, {1, 1, 4, 3}, With(linear, "antialias", int64_t{1}), {}, 8), Resized({1, 1, 9, 8}, {}, {1, 1, 4, 12}, With(cubic, "antialias", int64_t{1}), {}, 40),
           Resized({1, 1, 9, 8}, {}, {1, 1, 4, 12}, With(With(cubic, "antialias", int64_t{1}), "exclude_outside", int64_t{1}), {}, 40),
           Resized({2, 1, 3, 4}, {}, {5, 7}, With(linear, "axes", Ints{2, 3}), {}, 4), Resized({2, 1, 3, 4}, {}, {9, 5}, With(linear, "axes", Ints{3, 2}), {}, 4), Resized({2, 1, 3, 4}, {2, 1.5}, {}, With(cubic, "axes", Ints{-2, -1}), {}, 40),
           Resized({1, 1, 3, 4}, {}, {7, 7}, With(With(linear, "axes", Ints{2, 3}), "keep_aspect_ratio_policy", Str("not_larger")), {}, 4),
           Resized({1, 1, 3, 4}, {}, {7, 7}, With(With(linear, "axes", Ints{2, 3}), "keep_aspect_ratio_policy", Str("not_smaller")), {}, 4)});
  t.push_back({"Resize", {Ix({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}, DType::kInt32), None(), None(), Ix({4}, {1, 1, 4, 4}).Constant()}});
  const Attrs map{{"dims", Ints{2, 3, 2}}, {"axes", Ints{1, 2}}, {"begins", Ints{0, 2, 2, 5, 0, 1, 2}}, {"indices", Ints{0, 3, 1, 0, 2, 2, 0}}, {"weights", Doubles{0.5, -1.25, 2, 0.75, 1, 1, -0.5}}};
  t.push_back(Resized({4}, {2.5}, {}, mode("nearest", "asymmetric"), {}, 4));  // onnxruntime has no linear one of one axis
  t.push_back({"ai.ampc.Interpolate", {F({2, 4, 3})}, map, 1, ~0u, 8});
  return t;
}

Table Sampling() {
  Table t;
  // Coordinates keep off whole positions, where the taps change, and off the edges.
  const auto grid = [](Dims dims, double low, double high, int64_t align, Ints sizes) {
    Doubles kinks = {-1, 1};
    for (const int64_t size : sizes) {
      for (int64_t i = -3; i < size + 3; ++i) kinks.push_back(static_cast<double>(2 * i - size + 1) / static_cast<double>(size - align));
    }
    return U(std::move(dims), low, high).Avoiding(std::move(kinks));
  };
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const double terms = mode[0] == 'c' ? 200 : 8;
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const int64_t align : {0, 1}) {
        const Attrs attrs{{"mode", Str(mode)}, {"padding_mode", Str(padding)}, {"align_corners", align}};
        t.push_back({"GridSample", {F({2, 2, 4, 5}), grid({2, 3, 2, 2}, -1.37, 1.41, align, {4, 5})}, attrs, 1, ~0u, terms});
        if (mode[0] != 'c' && align == 0) t.push_back({"GridSample", {F({1, 2, 3, 4, 2}), grid({1, 2, 2, 2, 3}, -1.3, 1.2, align, {3, 4, 2})}, attrs, 1, ~0u, terms});
        if (mode[0] != 'c' && align == 1) t.push_back({"ai.ampc.GridSampleGradGrid", {F({1, 2, 2, 3}).NoGrad(), F({1, 2, 3, 4}).NoGrad(), grid({1, 2, 3, 2}, -1.1, 1.2, align, {3, 4}).NoGrad()}, attrs, 1, ~0u, terms});
        if (mode[0] != 'c' && align == 0) t.push_back({"ai.ampc.GridSampleGradInput", {F({1, 2, 2, 3}).NoGrad(), grid({1, 2, 3, 2}, -1.1, 1.2, align, {3, 4}).NoGrad()}, With(attrs, "dims", Ints{1, 2, 3, 4}), 1, ~0u, terms});
      }
    }
  }
  return t;
}

// ---- normalisation, softmax, losses --------------------------------------------------------------------------------------

Table Norms() {
  Table t;
  for (const Dims& x : {Dims{4, 3}, Dims{2, 3, 4}, Dims{2, 3, 2, 3}}) {
    const int64_t channels = x[1];
    t.push_back({"BatchNormalization", {F(x), A({channels}), A({channels}), A({channels}).NoGrad(), AP({channels}).NoGrad()}, {{"epsilon", 1e-3}}});
    for (const int64_t unbiased : {0, 1}) {
      t.push_back({"ai.ampc.BatchNormTrain", {F(x), A({channels}), A({channels}), A({channels}).NoGrad(), AP({channels}).NoGrad()},
                   {{"epsilon", 1e-3}, {"momentum", 0.8}, {"unbiased", unbiased}}, 5, 0b1, 8});
    }
    t.push_back({"ai.ampc.BatchNormGrad", {F(x).NoGrad(), F(x).NoGrad(), A({channels}).NoGrad(), A({channels}).NoGrad(), AP({channels}).NoGrad()}, {}, 3, ~0u, 12});
  }
  t.push_back({"BatchNormalization", {F({2, 3, 4}), A({3}).NoGrad(), A({3}).NoGrad(), A({3}).NoGrad(), AP({3}).NoGrad()}, {{"training_mode", int64_t{1}}}, 3, ~0u, 8, true});
  t.push_back({"ai.ampc.BatchNormTrain", {V({2, 2, 2}, {1, 2, kInf, 0, 3, 4, 1, 1}).NoGrad(), A({2}).NoGrad(), A({2}).NoGrad(), A({2}).NoGrad(), AP({2}).NoGrad()}, {}, 5});
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    Join(t, {{op, {F({2, 5})}, {}, 1, ~0u, 5}, {op, {F({2, 3, 4})}, {{"axis", int64_t{0}}}, 1, ~0u, 4}, {op, {F({2, 3, 4})}, {{"axis", int64_t{1}}}, 1, ~0u, 4},
             {op, {U({3, 4}, -30, 30)}, {{"axis", int64_t{-2}}}, 1, ~0u, 4}, {op, {F({7})}, {{"axis", int64_t{0}}}, 1, ~0u, 7}, {op, {F({2, 2, 2, 3})}, {}, 1, ~0u, 4}});
    const std::string grad = "ai.ampc." + std::string(op) + "Grad";
    Join(t, {{grad, {F({2, 5}).NoGrad(), F({2, 5}).NoGrad()}, {{"axis", int64_t{1}}}, 1, ~0u, 8}, {grad, {F({2, 3, 2}).NoGrad(), F({2, 3, 2}).NoGrad()}, {{"axis", int64_t{0}}}, 1, ~0u, 8}});
  }
  return t;
}

// Rows with statistics of their own.
Table RowNorms() {
  const Attrs epsilon{{"epsilon", 1e-3}};
  const auto rows = [](int64_t length, int64_t groups, int64_t inner, int64_t rms) {
    return Attrs{{"length", length}, {"groups", groups}, {"inner", inner}, {"rms", rms}, {"epsilon", 1e-3}};
  };
  // Our statistics are double for double data; ONNX's definition, which onnxruntime runs, has them in `stash_type`.
  const auto groups = [](int64_t n) { return Attrs{{"num_groups", n}, {"epsilon", 1e-3}, {"stash_type", kF64}}; };
  Table t = {
      {"LayerNormalization", {F({3, 5}), F({5}), F({5})}, {}, 1, ~0u, 12},
      {"LayerNormalization", {F({2, 3, 4}), F({3, 4})}, With(epsilon, "axis", int64_t{1}), 1, ~0u, 24},
      {"LayerNormalization", {F({2, 2, 3}), F({3}), F({3})}, With(epsilon, "axis", int64_t{-1}), 3, 0b1, 12},
      {"LayerNormalization", {U({2, 6}, 1000, 1003), F({6}), F({6})}, epsilon, 1, ~0u, 4000},
      {"LayerNormalization", {F({4}), F({4}), F({4})}, {{"axis", int64_t{0}}}, 1, ~0u, 8},
      {"RMSNormalization", {F({3, 5}), F({5})}, epsilon, 1, ~0u, 12},
      {"RMSNormalization", {F({2, 3, 4}), F({2, 3, 4})}, {{"axis", int64_t{0}}}, 1, ~0u, 48},
      {"RMSNormalization", {F({4}), F({4})}, epsilon, 1, ~0u, 12},
      {"GroupNormalization", {F({2, 4, 3}), F({4}), F({4})}, groups(2), 1, ~0u, 24}, {"GroupNormalization", {F({2, 6, 2, 2}), F({6}), F({6})}, groups(3), 1, ~0u, 24},
      {"GroupNormalization", {F({3, 4}), F({4}), F({4})}, groups(2), 1, ~0u, 8},
      {"InstanceNormalization", {F({2, 3, 4}), F({3}), F({3})}, {}, 1, ~0u, 16},
      {"InstanceNormalization", {F({2, 2, 2, 3}), F({2}), F({2})}, epsilon, 1, ~0u, 24},
      {"ai.ampc.Normalize", {F({3, 4}), A({4}), A({4})}, rows(4, 1, 1, 0), 3, ~0u, 16},
      {"ai.ampc.Normalize", {F({3, 4}), A({4})}, rows(4, 1, 1, 1), 2, ~0u, 16},
      {"ai.ampc.Normalize", {F({2, 4, 3}), A({4}), A({4})}, rows(6, 2, 3, 0), 3, ~0u, 24},
      {"ai.ampc.Normalize", {F({2, 4}), F({4}), F({4})}, rows(2, 2, 1, 1), 2, ~0u, 16},
      {"ai.ampc.NormalizeGrad", {F({3, 4}).NoGrad(), F({3, 4}).NoGrad(), A({4}).NoGrad(), AP({3}).NoGrad(), A({3}).NoGrad()}, rows(4, 1, 1, 0), 3, ~0u, 24},
      {"ai.ampc.NormalizeGrad", {F({2, 4, 3}).NoGrad(), F({2, 4, 3}).NoGrad(), F({4}).NoGrad(), AP({4}).NoGrad()}, rows(6, 2, 3, 1), 3, ~0u, 24},
      {"LpNormalization", {F({2, 5})}, {}, 1, ~0u, 8}, {"LpNormalization", {F({2, 3, 4})}, {{"axis", int64_t{1}}, {"p", int64_t{1}}}, 1, ~0u, 8},
      {"LpNormalization", {V({2, 3}, {0, 0, 0, 1, -2, 2}).NoGrad()}, {{"axis", int64_t{1}}}, 1, ~0u, 3}, {"LpNormalization", {U({2, 3}, 280, 300)}, {}, 1, ~0u, 8},
      {"LpNormalization", {F({5})}, {}, 1, ~0u, 8}, {"LpNormalization", {F({5})}, {{"p", int64_t{1}}}, 1, ~0u, 8}, {"MeanVarianceNormalization", {F({5})}, {{"axes", Ints{0}}}, 1, ~0u, 12},
      {"MeanVarianceNormalization", {F({2, 3, 2, 2})}, {}, 1, ~0u, 24}, {"MeanVarianceNormalization", {F({3, 4})}, {{"axes", Ints{-1}}}, 1, ~0u, 12},
      {"MeanVarianceNormalization", {F({2, 3, 4})}, {{"axes", Ints{2, 0}}}, 1, ~0u, 24},
      {"LRN", {F({2, 5, 3, 2})}, {{"size", int64_t{3}}, {"alpha", 0.4}}, 1, ~0u, 8}, {"LRN", {F({2, 4, 3})}, {{"size", int64_t{4}}, {"alpha", 0.3}, {"beta", 0.5}, {"bias", 1.5}}, 1, ~0u, 8},
      {"LRN", {F({3, 2})}, {{"size", int64_t{5}}, {"alpha", 0.2}}, 1, ~0u, 8}, {"LRN", {F({1, 3, 2, 2})}, {{"size", int64_t{1}}, {"alpha", 0.5}}, 1, ~0u, 4},
  };
  return t;
}

// ---- recurrent layers ------------------------------------------------------------------------------------------------------

// What a layer has beside X, W and R.
enum : unsigned { kBias = 1, kLengths = 2, kH0 = 4, kC0 = 8, kPeepholes = 16, kBatchFirst = 32, kEverything = 31 };
struct LayerSize {
  int64_t steps = 3, batch = 2, input = 2, hidden = 3;
};

Sample Recurrent(const std::string& op, unsigned has, Attrs attrs, size_t outputs, uint32_t loss_outputs = ~0u, LayerSize n = {}) {
  const std::string direction(attrs.String("direction", "forward"));
  const int64_t d = direction == "bidirectional" ? 2 : 1, gates = op == "RNN" ? 1 : op == "GRU" ? 3 : 4, g = gates * n.hidden;
  const bool turned = (has & kBatchFirst) != 0, lstm = op == "LSTM";
  const Dims state = turned ? Dims{n.batch, d, n.hidden} : Dims{d, n.batch, n.hidden};
  Doubles lengths;
  for (int64_t b = 0; b < n.batch; ++b) lengths.push_back(static_cast<double>(n.steps - b % n.steps));
  if (turned) attrs.Set("layout", int64_t{1});
  attrs.Set("hidden_size", n.hidden);
  std::vector<Arg> args = {F(turned ? Dims{n.batch, n.steps, n.input} : Dims{n.steps, n.batch, n.input}), F({d, g, n.input}), F({d, g, n.hidden})};
  // Weights of order 1 would make differences of the last digit grow from step to step.
  if (n.hidden > 8) args[1].low = args[2].low = 0.01, args[1].high = args[2].high = 0.12;
  const auto add = [&](unsigned bit, Arg arg) { args.push_back((has & bit) != 0 ? std::move(arg) : None()); };
  add(kBias, F({d, 2 * g}));
  add(kLengths, Ix({n.batch}, lengths, DType::kInt32));
  add(kH0, F(state));
  if (lstm) add(kC0, F(state));
  if (lstm) add(kPeepholes, F({d, 3 * n.hidden}));
  while (args.back().kind == Arg::Kind::kLeftOut) args.pop_back();
  return {op, std::move(args), std::move(attrs), outputs, loss_outputs, static_cast<double>(n.steps * (n.input + n.hidden) * (d + gates))};
}

Attr Names(std::vector<std::string> names) { return names; }

Table RecurrentLayers() {
  Table t;
  const auto add = [&](const char* op, unsigned has, Attrs attrs = {}, uint32_t loss_outputs = ~0u) {
    t.push_back(Recurrent(op, has, std::move(attrs), std::string_view(op) == "LSTM" ? 3 : 2, loss_outputs));
  };
  for (const char* op : {"RNN", "GRU", "LSTM"}) {
    add(op, 0);
    add(op, kBias | kH0 | kC0, {}, 0b001);
    add(op, kBias, {}, 0b010);
    add(op, kEverything & ~kPeepholes, {{"direction", Str("forward")}});
    add(op, kEverything & ~kPeepholes, {{"direction", Str("reverse")}});
    add(op, kEverything & ~kPeepholes, {{"direction", Str("bidirectional")}});
    add(op, kBias | kH0 | kC0, {{"clip", 0.87}});
    add(op, kBatchFirst | kBias | kH0 | kC0, {{"direction", Str("bidirectional")}});
    add(op, kBatchFirst | kLengths);
  }
  for (const char* direction : {"forward", "reverse", "bidirectional"}) {
    add("GRU", kBias | kLengths | kH0, {{"direction", Str(direction)}, {"linear_before_reset", int64_t{1}}});
    add("LSTM", kEverything, {{"direction", Str(direction)}});
  }
  add("GRU", 0, {{"linear_before_reset", int64_t{1}}}, 0b10);
  add("GRU", kBias, {{"linear_before_reset", int64_t{1}}, {"clip", 0.8}});
  add("LSTM", kBias | kC0, {}, 0b100);
  add("LSTM", kPeepholes, {}, 0b011);
  add("LSTM", kEverything, {{"input_forget", int64_t{1}}});
  add("LSTM", kBias, {{"input_forget", int64_t{1}}, {"clip", 0.9}});
  add("LSTM", kEverything, {{"clip", 1.1}, {"direction", Str("bidirectional")}});
  for (const char* name : {"Relu", "Tanh", "Sigmoid", "Softsign", "Softplus", "LeakyRelu", "Elu", "HardSigmoid"}) add("RNN", kBias | kH0, {{"activations", Names({name})}});
  add("RNN", kBias, {{"activations", Names({"ThresholdedRelu"})}, {"activation_alpha", Doubles{0.6}}});
  add("RNN", kBias, {{"activations", Names({"Affine"})}, {"activation_alpha", Doubles{0.4}}, {"activation_beta", Doubles{-0.3}}});
  add("RNN", kBias, {{"activations", Names({"ScaledTanh", "LeakyRelu"})}, {"direction", Str("bidirectional")}, {"activation_alpha", Doubles{0.7, 0.2}}, {"activation_beta", Doubles{1.3}}});
  add("GRU", kBias | kH0, {{"activations", Names({"HardSigmoid", "Softsign"})}, {"activation_alpha", Doubles{0.13}}, {"activation_beta", Doubles{0.41}}});
  add("GRU", kBias | kH0, {{"activations", Names({"Sigmoid", "Elu"})}, {"linear_before_reset", int64_t{1}}, {"activation_alpha", Doubles{0.6}}});
  add("LSTM", kEverything, {{"activations", Names({"HardSigmoid", "Softsign", "ScaledTanh"})}, {"activation_alpha", Doubles{0.15, 0.8}}, {"activation_beta", Doubles{0.5, 1.2}}});
  add("LSTM", kBias, {{"direction", Str("bidirectional")}, {"activations", Names({"Sigmoid", "Tanh", "Tanh", "Sigmoid", "Relu", "Softplus"})}});
  return t;
}

// The own ops that layers become, with and without everything that may be left out.
Table OwnRecurrentLayers() {
  Table t;
  const auto train = [&](const std::string& op, const std::string& standard, unsigned has, Attrs attrs, size_t outputs, uint32_t loss_outputs) {
    Sample s = Recurrent(standard, has, std::move(attrs), outputs, loss_outputs);
    s.op = "ai.ampc." + op;
    s.attrs.Erase("hidden_size");
    t.push_back(std::move(s));
  };
  const auto grad = [&](const std::string& op, int64_t gates, int64_t d, bool has_state, bool full, Attrs attrs, size_t outputs) {
    const LayerSize n;
    const Dims hidden{d, n.batch, n.hidden}, steps{d, n.steps, n.batch, n.hidden};
    const Arg h = F(hidden).NoGrad();
    std::vector<Arg> args = {F({d, gates * n.hidden, n.hidden}).NoGrad(), full ? Ix({n.batch}, {2, 3}, DType::kInt32) : None(),
                             A({d, n.steps, n.batch, gates * n.hidden}).NoGrad(), F(steps).NoGrad(), F({n.steps, d, n.batch, n.hidden}).NoGrad()};
    if (full || has_state) args.push_back(full ? h : None());
    if (has_state) args.push_back(A(steps).NoGrad());
    if (gates == 4 && full) args.insert(args.end(), {h, h, F({d, 3 * n.hidden}).NoGrad()});
    t.push_back({"ai.ampc." + op, std::move(args), std::move(attrs), outputs, ~0u, static_cast<double>(n.steps * n.hidden * gates * 4)});
  };
  const Attrs both{{"direction", Str("bidirectional")}}, reset{{"direction", Str("reverse")}, {"linear_before_reset", int64_t{1}}}, clip{{"clip", 0.9}};
  train("RnnTrain", "RNN", 0, {}, 4, 0b11);
  train("RnnTrain", "RNN", kEverything, both, 4, 0b11);
  train("GruTrain", "GRU", kEverything & ~kLengths, both, 4, 0b11);
  train("GruTrain", "GRU", kEverything, reset, 5, 0b11);
  train("LstmTrain", "LSTM", kBias, {}, 6, 0b100011);
  train("LstmTrain", "LSTM", kEverything, both, 6, 0b100011);
  grad("RnnGrad", 1, 1, false, false, {}, 2);
  grad("RnnGrad", 1, 2, false, true, both, 2);
  grad("GruGrad", 3, 1, false, false, {}, 3);
  grad("GruGrad", 3, 2, false, true, both, 3);
  grad("GruGrad", 3, 1, true, true, reset, 3);
  grad("GruGrad", 3, 1, true, false, reset, 3);
  grad("LstmGrad", 4, 1, true, false, {}, 3);
  grad("LstmGrad", 4, 2, true, true, both, 4);
  grad("LstmGrad", 4, 1, true, true, clip, 4);
  return t;
}

// Hidden states that fill blocks, and enough work for threads.
Table LargeRecurrentLayers() {
  const LayerSize wide{.steps = 3, .batch = 17, .input = 21, .hidden = 270}, tall{.steps = 9, .batch = 5, .input = 40, .hidden = 40};
  const Attrs both{{"direction", Str("bidirectional")}}, reset{{"linear_before_reset", int64_t{1}}};
  return {Recurrent("LSTM", kEverything, {}, 3, ~0u, wide), Recurrent("LSTM", kBias, both, 3, ~0u, tall), Recurrent("GRU", kEverything, {}, 2, ~0u, wide),
          Recurrent("GRU", kBias, reset, 2, ~0u, wide), Recurrent("GRU", kBias | kLengths, reset, 2, ~0u, tall), Recurrent("RNN", kEverything, both, 2, ~0u, wide)};
}

// ---- attention -------------------------------------------------------------------------------------------------------------

struct Heads {
  int64_t b = 2, h = 2, g = 2, t = 3, s = 4, d = 3, e = 2;
  Arg q() const { return F({b, h, t, d}); }
  Arg k() const { return F({b, g, s, d}); }
  Arg v() const { return F({b, g, s, e}); }
};

Sample Attend(const Heads& n, Attrs attrs = {}, std::vector<Arg> mask = {}, size_t outputs = 1) {
  std::vector<Arg> args = {n.q(), n.k(), n.v()};
  if (!attrs.Has("scale")) attrs.Set("scale", 0.57);
  for (Arg& m : mask) args.push_back(std::move(m));
  return {"ai.ampc.Attention", std::move(args), std::move(attrs), outputs, 0b1, static_cast<double>(4 * (n.s + n.t + n.d + n.e))};
}

Sample AttendGrad(const Heads& n, Attrs attrs, std::vector<Arg> mask, size_t outputs) {
  Sample s = Attend(n, std::move(attrs), {}, outputs);
  s.op = "ai.ampc.AttentionGrad";
  for (Arg arg : {F({n.b, n.h, n.t, n.e}), AP({n.b, n.h, n.t}), F({n.b, n.h, n.t, n.e})}) s.args.push_back(std::move(arg));
  for (Arg& m : mask) s.args.push_back(std::move(m));
  for (Arg& arg : s.args) arg.differentiate = false;
  s.loss_outputs = ~0u;
  return s;
}

Table AttentionSamples() {
  const Attrs causal{{"causal", int64_t{1}}}, shifted = With(causal, "offset", int64_t{1}), before = With(causal, "offset", int64_t{-1}), cap{{"softcap", 1.5}};
  const Heads plain, grouped{.h = 4, .g = 2}, shared{.b = 1, .h = 3, .g = 1, .t = 2, .s = 2}, square{.t = 4}, longer{.t = 5, .s = 2};
  const Arg keys = B({2, 1, 1, 4}, {1, 1, 0, 1, 1, 0, 0, 0}), none = B({3, 4}, {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1});
  const Arg infinite = V({3, 4}, {0, -kInf, 0.5, 0, -kInf, -kInf, -kInf, -kInf, 1, 0, -kInf, -1}).NoGrad();
  return {Attend(plain), Attend(plain, {}, {}, 2), Attend(square, causal), Attend(plain, shifted), Attend(plain, before), Attend(longer, causal),
          Attend(grouped), Attend(grouped, causal), Attend(shared, causal), Attend(plain, cap), Attend(grouped, With(cap, "causal", int64_t{1})),
          Attend(plain, {}, {keys}), Attend(plain, {}, {none}), Attend(plain, causal, {keys}), Attend(plain, {}, {infinite}), Attend(plain, shifted, {infinite}),
          Attend(plain, {}, {F({3, 4})}), Attend(plain, cap, {F({2, 1, 3, 4})}), Attend(grouped, causal, {F({4, 1, 4})}), Attend(plain, {}, {F({2, 2, 3, 4})}), Attend(plain, {}, {A({1, 2, 3, 1})}),
          Attend({.t = 1, .s = 1}), Attend({.b = 0}), Attend({.s = 0}), Attend(plain, {{"scale", 40.0}}),
          AttendGrad(plain, {}, {}, 3), AttendGrad(grouped, causal, {}, 3), AttendGrad(plain, cap, {none}, 3), AttendGrad(plain, {{"mask_grad", int64_t{1}}}, {infinite}, 4)};
}

Table LargeAttentions() {
  const Attrs causal{{"causal", int64_t{1}}, {"scale", 0.2}};
  Doubles keys(150), rows(70 * 150);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = i < 131 ? 1 : 0;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = i / 150 == 9 || i % 7 == 0 ? 0 : 1;  // query 9 has no key
  const Heads some{.b = 1, .h = 4, .g = 2, .t = 70, .s = 150, .d = 20, .e = 33}, square{.b = 2, .h = 2, .g = 2, .t = 133, .s = 133, .d = 16, .e = 16}, wide{.b = 1, .h = 1, .g = 1, .t = 67, .s = 130, .d = 72, .e = 64};
  return {Attend(some, {{"scale", 0.2}}), Attend(square, causal), Attend(some, With(causal, "offset", int64_t{80})), Attend(wide, With(causal, "softcap", 3.0)),
          Attend(some, causal, {B({150}, keys)}), Attend(some, {{"scale", 0.2}}, {B({70, 150}, rows)}), Attend(some, causal, {F({4, 70, 150})}), Attend(square, {{"scale", 0.2}}, {F({2, 1, 1, 133})})};
}

struct LossCase {
  Dims scores;
  Doubles labels;
  Attrs attrs;
  bool weights = false;
  DType labels_type = DType::kInt64;
};

std::vector<LossCase> LossCases() {
  const Attr mean = Str("mean"), sum = Str("sum"), none = Str("none");
  return {
      {{3, 4}, {0, 3, 1}, {{"reduction", mean}}},
      {{3, 4}, {0, 3, 1}, {{"reduction", sum}}, true},
      {{3, 4}, {0, 3, 1}, {{"reduction", none}}, false, DType::kInt32},
      {{3, 4}, {0, -1, 1}, {{"reduction", mean}, {"ignore_index", int64_t{-1}}}},
      {{4, 3}, {2, 1, 0, 1}, {{"reduction", mean}, {"ignore_index", int64_t{1}}}, true},
      {{2, 3, 2}, {2, 1, 0, 9}, {{"reduction", none}, {"ignore_index", int64_t{9}}}, true},
      {{2, 3, 2, 2}, {2, 1, 0, 2, 1, 1, 0, 2}, {{"reduction", mean}}, true},
      {{2, 3, 2, 2}, {2, 1, 0, 2, 1, 1, 0, 2}, {{"reduction", sum}, {"ignore_index", int64_t{0}}}},
  };
}

Dims LabelDims(Dims scores) {
  scores.erase(scores.begin() + 1);
  return scores;
}

Sample Loss(const std::string& op, const LossCase& c, Arg scores, size_t outputs, Attrs attrs) {
  Sample s{op, {std::move(scores), Ix(LabelDims(c.scores), c.labels, c.labels_type)}, std::move(attrs), outputs, 0b1, 12};
  if (c.weights) s.args.push_back(P({c.scores[1]}).NoGrad());
  return s;
}
// dloss, log_prob, labels, [weights], total
Sample LossGrad(const std::string& op, const LossCase& c, Attrs attrs) {
  const bool none = attrs.String("reduction") == "none";
  return {op, {F(none ? LabelDims(c.scores) : Dims{}).NoGrad(), U(c.scores, -3, -0.2).NoGrad(), Ix(LabelDims(c.scores), c.labels, c.labels_type),
               c.weights ? P({c.scores[1]}).NoGrad() : None(), AS(2.5)}, std::move(attrs), 1, ~0u, 12};
}

Table Losses() {
  Table t;
  for (const LossCase& c : LossCases()) {
    t.push_back(Loss("SoftmaxCrossEntropyLoss", c, F(c.scores), 1, c.attrs));
    t.push_back(Loss("SoftmaxCrossEntropyLoss", c, F(c.scores), 2, c.attrs));
    t.push_back(Loss("NegativeLogLikelihoodLoss", c, U(c.scores, -3, -0.2), 1, c.attrs));
    t.push_back(Loss("ai.ampc.CrossEntropy", c, F(c.scores), 3, c.attrs));
    t.push_back(Loss("ai.ampc.CrossEntropy", c, F(c.scores), 3, With(c.attrs, "label_smoothing", 0.1)));
    t.push_back(LossGrad("ai.ampc.CrossEntropyGrad", c, c.attrs));
    t.push_back(LossGrad("ai.ampc.CrossEntropyGrad", c, With(c.attrs, "label_smoothing", 0.2)));
    t.push_back(Loss("ai.ampc.Nll", c, U(c.scores, -3, -0.2), 2, c.attrs));
    t.push_back(LossGrad("ai.ampc.NllGrad", c, c.attrs));
  }
  const Attrs all_ignored{{"reduction", Str("mean")}, {"ignore_index", int64_t{1}}};
  t.push_back({"ai.ampc.CrossEntropy", {F({2, 3}), Ix({2}, {1, 1})}, all_ignored, 3, 0b1});
  t.push_back({"ai.ampc.Nll", {F({2, 3}), Ix({2}, {1, 1})}, all_ignored, 2, 0b1});
  Join(t, {
      {"ai.ampc.TopKCorrect", {F({4, 5}), Ix({4}, {0, 1, 4, 2})}, {{"k", int64_t{1}}}},
      {"ai.ampc.TopKCorrect", {F({2, 5, 3}), Ix({2, 3}, {0, 1, 4, 2, 3, 3})}, {{"k", int64_t{3}}}},
      {"ai.ampc.TopKCorrect", {V({3, 3}, {1, 1, 0, 1, 1, 0, 0, 0, 0}).NoGrad(), Ix({3}, {0, 1, 2})}, {{"k", int64_t{1}}}},
      {"ai.ampc.TopKCorrect", {F({2, 3}), Ix({2}, {0, 1})}, {{"k", int64_t{5}}}},
  });
  return t;
}

}  // namespace

Table LayerSamples() {
  Table t;
  for (auto* family : {Matmuls, Convolutions, Pools, Resizing, Sampling, Norms, RowNorms, RecurrentLayers, OwnRecurrentLayers, AttentionSamples, Losses}) Join(t, family());
  return t;
}

Table LargeLayerSamples() {
  const Attr mean = Str("mean");
  Table t = {
      {"MatMul", {F({33, 70}), F({70, 17})}, {}, 1, ~0u, 70}, {"MatMul", {F({3, 40, 65}), F({65, 48})}, {}, 1, ~0u, 120}, {"Gemm", {F({65, 130}), F({40, 130}), F({40})}, {{"transB", int64_t{1}}}, 1, ~0u, 130},
      {"Conv", {F({2, 16, 9, 9}), F({32, 16, 3, 3}), F({32})}, Window({1, 1}, {1, 1}, {1, 1, 1, 1}), 1, ~0u, 288},
      {"Conv", {F({2, 24, 11, 10}), F({24, 1, 3, 3}), F({24})}, Window({2, 2}, {1, 1}, {1, 1, 1, 1}, 24), 1, ~0u, 60},
      {"ConvTranspose", {F({2, 16, 6, 7}), F({16, 8, 3, 3}), F({8})}, Window({2, 2}, {1, 1}, {1, 1, 1, 1}), 1, ~0u, 200},
      {"MaxPool", {F({2, 17, 15, 15})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1})}, {"AveragePool", {F({2, 17, 15, 15})}, Pool({3, 3}, {2, 2}, {1, 1, 1, 1}), 1, ~0u, 9}, {"GlobalAveragePool", {F({3, 33, 9, 9})}, {}, 1, ~0u, 81},
      {"ai.ampc.BatchNormTrain", {F({5, 33, 7, 6}), A({33}), A({33}), A({33}).NoGrad(), AP({33}).NoGrad()}, {{"unbiased", int64_t{0}}}, 5, 0b1, 210},
      {"ai.ampc.BatchNormTrain", {F({70, 19}), A({19}), A({19}), A({19}).NoGrad(), AP({19}).NoGrad()}, {{"unbiased", int64_t{1}}}, 5, 0b1, 70},
      {"LayerNormalization", {F({131, 70}), A({70}), A({70})}, {}, 1, ~0u, 140}, {"LayerNormalization", {F({3, 5001}), A({5001}), A({5001})}, {}, 1, ~0u, 5001},
      {"RMSNormalization", {F({70, 33}), A({33})}, {}, 1, ~0u, 140}, {"GroupNormalization", {F({3, 20, 9, 9}), A({20}), A({20})}, {{"num_groups", int64_t{4}}, {"stash_type", kF64}}, 1, ~0u, 405},
      {"InstanceNormalization", {F({2, 3, 67, 41}), A({3}), A({3})}, {}, 1, ~0u, 5494},
      {"Softmax", {F({9, 1000})}, {}, 1, ~0u, 1000}, {"LogSoftmax", {F({3, 65, 34})}, {{"axis", int64_t{1}}}, 1, ~0u, 65}, {"Softmax", {F({257, 3})}, {{"axis", int64_t{0}}}, 1, ~0u, 257},
  };
  Join(t, LargeRecurrentLayers());
  Join(t, LargeAttentions());
  t.push_back({"SoftmaxCrossEntropyLoss", {F({37, 300}), Ix({37}, Labels(37, 300))}, {{"reduction", mean}}, 1, 0b1, 300});
  t.push_back({"SoftmaxCrossEntropyLoss", {F({4, 20, 9, 9}), Ix({4, 9, 9}, Labels(324, 20)), P({20}).NoGrad()}, {{"reduction", mean}, {"ignore_index", int64_t{3}}}, 1, 0b1, 324});
  t.push_back({"ai.ampc.TopKCorrect", {F({40, 100}).NoGrad(), Ix({40}, Labels(40, 100))}, {{"k", int64_t{5}}}});
  const Attrs linear{{"mode", Str("linear")}};
  // powers of two: onnxruntime rounds positions to float
  Join(t, {Resized({2, 3, 40, 36}, {}, {2, 3, 80, 9}, linear, {}, 16), Resized({1, 5, 50, 50}, {}, {9}, With(linear, "axes", Ints{1}), {}, 4), Resized({3, 7, 64, 9}, {1, 1, 2, 3}, {}, {}, {}, 6)});
  t.push_back({"MaxPool", {F({2, 17, 15, 16})}, Pool({2, 2}, {2, 2}), 2, 0b1});
  t.push_back({"GridSample", {F({2, 9, 16, 17}), U({2, 11, 13, 2}, -1.1, 1.1)}, {}, 1, ~0u, 100});
  return t;
}

}  // namespace ampc::conformance
