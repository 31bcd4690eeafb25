// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/window.h"

namespace ampc::ref {

namespace {

constexpr int64_t kLargest = int64_t{1} << 31;  // keeps every product of positions within int64

/// Parameter `name` with `count` entries of at least `low`; `fallback` for all when it is left out.
Result<std::vector<int64_t>> ReadInts(const CallCheck& check, std::string_view name, size_t count,
                                      int64_t fallback, int64_t low) {
  std::vector<int64_t> values = check.params().Ints(name);
  if (values.empty()) values.assign(count, fallback);
  if (values.size() != count) {
    return check.Fail("parameter '{}': expected {} entries, found {}", name, count, values.size());
  }
  for (int64_t v : values) AMPC_TRY(check.InRange(name, v, low, kLargest));
  return values;
}

}  // namespace

Result<Window> ReadWindow(const CallCheck& check, const Operand& x, const Operand& y,
                          std::span<const int64_t> kernel) {
  AMPC_TRY(check.RankBetween(x, 3, 5));
  AMPC_TRY(check.RankBetween(y, x->dims.size(), x->dims.size()));
  const size_t spatial = x->dims.size() - 2;
  if (kernel.size() != spatial) {
    return check.Fail("expected {} kernel dims for {} {}, found {}", spatial, x.name,
                      ToString(x->dims), ToString(kernel));
  }
  AMPC_ASSIGN(const std::vector<int64_t> strides, ReadInts(check, "strides", spatial, 1, 1));
  AMPC_ASSIGN(const std::vector<int64_t> dilations, ReadInts(check, "dilations", spatial, 1, 1));
  AMPC_ASSIGN(const std::vector<int64_t> pads, ReadInts(check, "pads", 2 * spatial, 0, 0));

  if (!CheckedNumElements(kernel, 8))
    return check.Fail("kernel dims {} are too large", ToString(kernel));

  Window w{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
  for (size_t i = 0; i < spatial; ++i) {
    const size_t axis = 3 - spatial + i;
    AMPC_TRY(check.InRange("kernel size", kernel[i], 1, kLargest));
    AMPC_TRY(check.InRange("spatial size", x->dims[2 + i], 0, kLargest));
    w.input[axis] = x->dims[2 + i];
    w.output[axis] = y->dims[2 + i];
    w.kernel[axis] = kernel[i];
    w.stride[axis] = strides[i];
    w.dilation[axis] = dilations[i];
    w.pad[axis] = pads[i];
    const int64_t room =
        w.input[axis] + pads[i] + pads[spatial + i] - (dilations[i] * (kernel[i] - 1) + 1);
    const int64_t want = room < 0 ? 0 : room / strides[i] + 1;
    if (w.output[axis] != want) {
      return check.Fail(
          "{}: expected {} along spatial axis {} (input {}, kernel {}, stride {}, dilation {}, "
          "pads {} and {}), "
          "found {}",
          y.name, want, i, w.input[axis], kernel[i], strides[i], dilations[i], pads[i],
          pads[spatial + i], w.output[axis]);
    }
  }
  return w;
}

}  // namespace ampc::ref
