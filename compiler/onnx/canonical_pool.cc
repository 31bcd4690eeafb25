// SPDX-License-Identifier: Apache-2.0
// Pools that are other ops in a fixed arrangement: LpPool, GlobalLpPool, MaxUnpool.
#include <algorithm>

#include "compiler/onnx/canonical.h"
#include "compiler/onnx/source.h"
#include "compiler/ops/window.h"

namespace ampc {
namespace {

using ir::ValueId;

// ---- LpPool, GlobalLpPool

double PowerOf(const Attrs& attrs) {
  const Attr* p = attrs.Find("p");
  const auto* real = p == nullptr ? nullptr : std::get_if<double>(p);  // before opset 2
  return real != nullptr ? *real : static_cast<double>(attrs.Int("p", 2));
}

// |x|^p
ValueId Powered(CanonicalContext& c, ValueId x, double p) {
  if (p == 1) return c.b.Op("Abs", {x});
  const ValueId exponent = c.b.Scalar(c.Float(DType::kFloat32), p);
  return c.b.Op("Pow", {p == 2 ? x : c.b.Op("Abs", {x}), exponent});
}

// sum^(1/p). A sum of zero is given no gradient: the root has an infinite one there.
ValueId Root(CanonicalContext& c, ValueId sum, double p) {
  if (p == 1 || c.b.failed()) return sum;
  const DType dtype = c.graph.type(sum).dtype;
  const ValueId zero = c.b.Scalar(dtype, 0), positive = c.b.Op("Greater", {sum, zero});
  const ValueId safe = c.b.Op("Where", {positive, sum, c.b.Scalar(dtype, 1)});
  const ValueId root = c.b.Op("Pow", {safe, c.b.Scalar(c.Float(DType::kFloat32), 1 / p)});
  return c.b.Op("Where", {positive, root, zero});
}

// Padding of one spatial axis, what ceil_mode hangs over the end included.
struct AxisPads {
  int64_t begin, end;
};

AxisPads PadsOfAxis(const Attrs& attrs, size_t i, int64_t x) {
  const std::vector<int64_t> kernel = attrs.Ints("kernel_shape");
  const size_t n = kernel.size();
  const int64_t stride = attrs.Ints("strides", std::vector<int64_t>(n, 1))[i];
  const int64_t dilation = attrs.Ints("dilations", std::vector<int64_t>(n, 1))[i];
  const int64_t reach = (kernel[i] - 1) * dilation + 1;
  const std::string_view auto_pad = attrs.String("auto_pad", "NOTSET");
  if (auto_pad.starts_with("SAME")) {
    const int64_t y = (x + stride - 1) / stride;
    const int64_t total = std::max<int64_t>((y - 1) * stride + reach - x, 0);
    const int64_t begin = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    return {begin, total - begin};
  }
  if (auto_pad == "VALID") return {0, 0};
  const std::vector<int64_t> pads = attrs.Ints("pads", std::vector<int64_t>(2 * n, 0));
  AxisPads p{pads[i], pads[i + n]};
  const int64_t room = x + p.begin + p.end - reach;
  const int64_t rest = room < 0 ? 0 : room % stride;
  // A last window that would start behind the input and its first padding is left out.
  const int64_t start = room - rest + stride;
  if (attrs.Int("ceil_mode") != 0 && rest != 0 && start < x + p.begin) p.end += stride - rest;
  return p;
}

Status CheckWindow(const Attrs& attrs, const Dims& x) {
  const size_t n = attrs.Ints("kernel_shape").size();
  bool good = x.size() == n + 2 && n > 0;
  for (const char* name : {"kernel_shape", "strides", "dilations"}) {
    const std::vector<int64_t> v = attrs.Ints(name, std::vector<int64_t>(n, 1));
    good = good && v.size() == n &&
           std::all_of(v.begin(), v.end(), [](int64_t k) { return k > 0 && k < int64_t{1} << 31; });
  }
  const std::vector<int64_t> pads = attrs.Ints("pads", std::vector<int64_t>(2 * n, 0));
  good = good && pads.size() == 2 * n && std::all_of(pads.begin(), pads.end(), [](int64_t k) {
           return k >= 0 && k < int64_t{1} << 31;
         });
  if (good) return {};
  return BadInput("E0107",
                  "kernel_shape, strides, dilations and pads do not fit an input of dims {}",
                  ToString(x));
}

// Where AveragePool's padding would reach its window's length, x is padded with zeros before.
ValueId PaddedWhereWide(CanonicalContext& c, ValueId x, const std::vector<int64_t>& kernel,
                        std::vector<int64_t>& pads) {
  if (!PadsReachKernel(pads, kernel) || c.b.failed()) return x;
  std::vector<int64_t> all(4 + pads.size(), 0);
  const auto half = static_cast<int64_t>(kernel.size());
  std::copy_n(pads.begin(), half, all.begin() + 2);
  std::copy_n(pads.begin() + half, half, all.begin() + half + 4);
  std::fill(pads.begin(), pads.end(), 0);
  return c.b.Op("Pad", {x, c.b.Ints(all), c.b.Scalar(c.graph.type(x).dtype, 0)});
}

// The sum over a window is its average, padding counted, times its size.
Status LpPool(CanonicalContext& c, SourceNode& n) {
  const ir::TensorType x = c.type(n, 0);
  AMPC_TRY(CheckWindow(n.attrs, x.dims));
  const double p = PowerOf(n.attrs);
  if (!(p > 0)) return BadInput("E0107", "p is {}, expected more than 0", p);
  const std::vector<int64_t> kernel = n.attrs.Ints("kernel_shape");
  std::vector<int64_t> pads(2 * kernel.size());
  double size = 1;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const AxisPads axis = PadsOfAxis(n.attrs, i, x.dims[i + 2]);
    pads[i] = axis.begin;
    pads[i + kernel.size()] = axis.end;
    size *= static_cast<double>(kernel[i]);
  }
  const ValueId x_p = PaddedWhereWide(c, Powered(c, n.inputs[0], p), kernel, pads);
  Attrs window{{"kernel_shape", kernel}, {"pads", pads}, {"count_include_pad", int64_t{1}}};
  for (const char* name : {"strides", "dilations"})
    window.Set(name, n.attrs.Ints(name, std::vector<int64_t>(kernel.size(), 1)));
  const ValueId average = c.b.Op("AveragePool", {x_p}, std::move(window));
  if (c.b.failed()) return c.b.TakeStatus();
  const ValueId sum = c.b.Mul(average, c.b.Scalar(c.graph.type(average).dtype, size));
  n.Replace(Root(c, sum, p));
  return c.b.TakeStatus();
}

Status GlobalLpPool(CanonicalContext& c, SourceNode& n) {
  const double p = PowerOf(n.attrs);
  if (!(p > 0)) return BadInput("E0107", "p is {}, expected more than 0", p);
  std::vector<int64_t> axes;
  for (size_t i = 2; i < c.type(n, 0).dims.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (axes.empty())
    return BadInput("E0107", "an input of rank 3 and more is expected, found {}",
                    ToString(c.type(n, 0).dims));
  if (p == 1 || p == 2) {
    n.Replace(c.b.Op(p == 1 ? "ReduceL1" : "ReduceL2", {n.inputs[0], c.b.Ints(axes)}));
  } else {
    n.Replace(Root(c, c.b.Op("ReduceSum", {Powered(c, n.inputs[0], p), c.b.Ints(axes)}), p));
  }
  return c.b.TakeStatus();
}

// ---- MaxUnpool

// The indices come from a MaxPool over a tensor of these dims.
bool ArePoolIndicesOf(const ir::Graph& graph, ValueId indices, const Dims& dims) {
  const ir::NodeId def = graph.value(indices).def;
  return def != ir::kNone && graph.node(def).op->name == "MaxPool" &&
         graph.type(graph.node(def).inputs[0]).dims == dims;
}

// Elements scattered over zeros. Where output_shape is larger than what the window gives, ONNX's
// own test places that smaller result in a corner, while onnxruntime (and PyTorch) take indices of
// the given shape: this is so when they come from a MaxPool over such a tensor.
Status MaxUnpool(CanonicalContext& c, SourceNode& n) {
  const ir::TensorType x = c.type(n, 0);
  AMPC_TRY(CheckWindow(n.attrs, x.dims));
  if (c.type(n, 1).dims != x.dims)
    return BadInput("E0107", "the indices have dims {}, the input {}", ToString(c.type(n, 1).dims),
                    ToString(x.dims));
  const std::vector<int64_t> kernel = n.attrs.Ints("kernel_shape");
  const std::vector<int64_t> strides =
                                 n.attrs.Ints("strides", std::vector<int64_t>(kernel.size(), 1)),
                             pads =
                                 n.attrs.Ints("pads", std::vector<int64_t>(2 * kernel.size(), 0));
  Dims dims = {x.dims[0], x.dims[1]};
  for (size_t i = 0; i < kernel.size(); ++i) {
    dims.push_back((x.dims[i + 2] - 1) * strides[i] + kernel[i] - pads[i] -
                   pads[i + kernel.size()]);
  }
  if (n.Has(2)) {
    const HostTensor* given = c.Constant(n, 2);
    if (given == nullptr)
      return BadInput("E0108", "output_shape ('{}') is not known at compile time",
                      c.graph.value(n.inputs[2]).name);
    const Dims wanted = given->Ints();
    if (wanted.size() != dims.size())
      return BadInput("E0107", "output_shape {} for an input of dims {}", ToString(wanted),
                      ToString(x.dims));
    if (wanted != dims && !ArePoolIndicesOf(c.graph, n.inputs[1], wanted)) {
      return Unsupported("E0102",
                         "output_shape {} where kernel, strides and pads give {}, with indices "
                         "that do not come from a MaxPool over the former",
                         ToString(wanted), ToString(dims));
    }
    dims = wanted;
  }
  if (std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d < 0; }) ||
      !CheckedNumElements(dims, SizeOf(x.dtype)))
    return BadInput("E0107", "an output of dims {}", ToString(dims));
  const Dims all = {NumElements(dims)}, some = {x.elements()};
  const ValueId zeros = c.b.Expand(c.b.Scalar(x.dtype, 0), all);
  const ValueId flat = c.b.Op(
      "ScatterElements", {zeros, c.b.Reshape(n.inputs[1], some), c.b.Reshape(n.inputs[0], some)},
      {{"axis", int64_t{0}}});
  n.Replace(c.b.Reshape(flat, dims));
  return c.b.TakeStatus();
}

constexpr CanonicalRow kRules[] = {
    {"LpPool", LpPool, true},
    {"GlobalLpPool", GlobalLpPool, true},
    {"MaxUnpool", MaxUnpool, true},
};

}  // namespace

std::span<const CanonicalRow> PoolRules() { return kRules; }

}  // namespace ampc
