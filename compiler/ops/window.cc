// SPDX-License-Identifier: Apache-2.0
// Sliding windows: their attributes, and the one message for those that do not fit.
#include "compiler/ops/window.h"

#include <algorithm>
#include <limits>

namespace ampc {

std::string DescribeWindow(const WindowAxis& axis) {
  if (axis.dilation == 1) return fmt::format("a window of {}", axis.kernel);
  return fmt::format("a window of {} (kernel {}, dilation {})", axis.reach(), axis.kernel,
                     axis.dilation);
}

Status CheckList(const Attrs& attrs, std::string_view name, size_t n, int64_t least) {
  if (!attrs.Has(name)) return {};
  const std::vector<int64_t> values = attrs.Ints(name);
  const bool good = values.size() == n && std::all_of(values.begin(), values.end(), [&](int64_t v) {
                      return v >= least && v <= std::numeric_limits<int32_t>::max();
                    });
  if (good) return {};
  return BadInput("E0107", "{} is {}, expected {} number{} from {} to 2^31 - 1", name,
                  ToString(values), n, n == 1 ? "" : "s", least);
}

Result<std::vector<WindowAxis>> ReadWindow(const Attrs& attrs, const Dims& x,
                                           std::span<const int64_t> kernel) {
  const size_t n = kernel.size();
  if (n == 0 || x.size() != n + 2) {
    return BadInput("E0107", "a window of {} axes (kernel_shape) for an input of {}", n,
                    ToString(x));
  }
  // Two lengths multiplied fit into 63 bits.
  const auto large = [](int64_t d) { return d > std::numeric_limits<int32_t>::max(); };
  if (std::any_of(kernel.begin(), kernel.end(), [&](int64_t k) { return k < 1 || large(k); }))
    return BadInput("E0107", "a window of {}", ToString(kernel));
  if (std::any_of(x.begin() + 2, x.end(), large)) {
    return Unsupported("E0102",
                       "a window of {} over an input of {}: axes of up to 2^31 - 1 are "
                       "supported",
                       ToString(kernel), ToString(x));
  }
  AMPC_TRY(CheckList(attrs, "kernel_shape", n, 1));
  AMPC_TRY(CheckList(attrs, "strides", n, 1));
  AMPC_TRY(CheckList(attrs, "dilations", n, 1));
  AMPC_TRY(CheckList(attrs, "pads", 2 * n, 0));
  // ONNX has one or the other; which of them counts differs between implementations.
  const std::vector<int64_t> pads = attrs.Ints("pads", std::vector<int64_t>(2 * n, 0));
  const std::string_view automatic = attrs.String("auto_pad", "NOTSET");
  const bool zero = std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; });
  if (attrs.Has("pads") && automatic != "NOTSET" && (automatic != "VALID" || !zero))
    return BadInput("E0107", "both pads {} and auto_pad {} are given", ToString(pads), automatic);
  const std::vector<int64_t> ones(n, 1), strides = attrs.Ints("strides", ones),
                                         dilations = attrs.Ints("dilations", ones);
  std::vector<WindowAxis> axes;
  for (size_t i = 0; i < n; ++i)
    axes.push_back({x[i + 2], kernel[i], strides[i], dilations[i], pads[i], pads[i + n]});
  return axes;
}

bool PadsReachKernel(std::span<const int64_t> pads, std::span<const int64_t> kernel) {
  for (size_t i = 0; i < pads.size(); ++i) {
    if (pads[i] >= kernel[i % kernel.size()]) return true;
  }
  return false;
}

bool PadsToSame(const Attrs& attrs) {
  return attrs.String("auto_pad", "NOTSET").starts_with("SAME");
}

Status CheckRoom(std::span<const WindowAxis> axes, bool may_hang) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const WindowAxis& a = axes[i];
    // Pools: ONNX and onnxruntime divide with truncation, so a window that is short of its stride
    // only hangs over the end.
    if (a.room() >= 0 || (may_hang && a.room() / a.stride + 1 >= 0)) continue;
    return BadInput("E0107", "axis {}: {} does not fit {} elements with padding {} and {}", i + 2,
                    DescribeWindow(a), a.in, a.begin, a.end);
  }
  return {};
}

}  // namespace ampc
