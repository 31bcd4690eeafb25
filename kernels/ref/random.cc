// SPDX-License-Identifier: Apache-2.0
// dropout, random: the numbers are a function of seed, micro-batch, stream and logical index
// (kernels/philox.h), so they are the same in every layout; dropout's division is made in acc.

#include <algorithm>
#include <limits>

#include "kernels/philox.h"
#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

struct DropoutPlan {
  DType x, ratio, y;
  uint32_t stream;
  LoopNest nest;  // over the logical axes in order; operands: x, y, mask
};

template <typename T>
void RunDropout(const DropoutPlan& p, const Buffers& run) {
  const ConstTensor x{p.x, run.in(0)};
  const MutableTensor y{p.y, run.out(0)};
  uint8_t* mask = static_cast<uint8_t*>(run.out(1));
  const int64_t* rng = static_cast<const int64_t*>(run.in(2));
  const uint64_t threshold = DropoutThreshold(Load<double>(p.ratio, run.in(1), 0));
  const T keep = T{1} - Load<T>(p.ratio, run.in(1), 0);
  const int64_t dx = p.nest.inner_stride(0), dy = p.nest.inner_stride(1),
                dm = p.nest.inner_stride(2);
  int64_t element = 0;
  PhiloxBlock bits = {};
  int64_t offsets[3];
  p.nest.ForEachRun(offsets, [&](const int64_t* at) {
    for (int64_t i = 0; i < p.nest.inner_length(); ++i, ++element) {
      if (element % 4 == 0)
        bits = StreamBits(rng[0], rng[1], p.stream, static_cast<uint32_t>(element / 4));
      const bool kept = bits.word[element % 4] >= threshold;
      const T v = x.at<T>(at[0] + i * dx);
      y.set<T>(at[1] + i * dy, kept ? v / keep : T{0});
      if (mask != nullptr) mask[at[2] + i * dm] = kept ? 1 : 0;
    }
  });
}

}  // namespace

PrepareResult prepare::dropout(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x ratio rng", "y mask?");
  AMPC_TRY(check.Operands());
  const Operand x = check.In(0), y = check.Out(0), mask = check.Out(1);
  AMPC_TRY(check.Float(x));
  AMPC_TRY(check.Float(y));
  AMPC_TRY(check.HasDims(y, x->dims));
  AMPC_TRY(check.Float(check.In(1)));
  AMPC_TRY(check.Scalar(check.In(1)));
  AMPC_TRY(check.OfType(check.In(2), DType::kInt64));
  AMPC_TRY(check.Elements(check.In(2), 2));
  AMPC_TRY(check.OfType(mask, DType::kBool));
  AMPC_TRY(check.HasDims(mask, x->dims));
  AMPC_TRY(check.InRange("rank", static_cast<int64_t>(x->dims.size()), 0, LoopNest::kMaxAxes));
  AMPC_TRY(
      check.InRange("elements", x->elements(), 0, int64_t{1} << 34));  // the counter holds i / 4
  const int64_t stream = call.params.Int("stream");
  AMPC_TRY(check.InRange("stream", stream, 0, std::numeric_limits<uint32_t>::max()));
  const TensorDesc& mask_form = mask->present() ? *mask : *x;
  DropoutPlan plan{x->dtype, check.In(1)->dtype, y->dtype, static_cast<uint32_t>(stream),
                   LoopNest(x->dims, {StridesOf(x->dims, x->layout), StridesOf(y->dims, y->layout),
                                      StridesOf(mask_form.dims, mask_form.layout)})};
  if (x->dtype == DType::kFloat64 || y->dtype == DType::kFloat64) {
    return MakeKernel(
        [plan = std::move(plan)](const Buffers& run) { RunDropout<double>(plan, run); });
  }
  return MakeKernel([plan = std::move(plan)](const Buffers& run) { RunDropout<float>(plan, run); });
}

PrepareResult prepare::random(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "rng", "y");
  AMPC_TRY(check.Operands());
  AMPC_TRY(check.OfType(check.In(0), DType::kInt64));
  AMPC_TRY(check.Elements(check.In(0), 2));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_TRY(check.RowMajor(check.Out(0)));
  AMPC_TRY(check.InRange("elements", check.Out(0)->elements(), 0, int64_t{1} << 34));
  const int64_t stream = call.params.Int("stream");
  AMPC_TRY(check.InRange("stream", stream, 0, std::numeric_limits<uint32_t>::max()));
  const int64_t normal = call.params.Int("normal");
  AMPC_TRY(check.InRange("normal", normal, 0, 1));
  const double shift = call.params.Float("shift"), scale = call.params.Float("scale");
  return MakeKernel([=, dtype = check.Out(0)->dtype,
                     n = check.Out(0)->elements()](const Buffers& run) {
    const int64_t* rng = static_cast<const int64_t*>(run.in(0));
    const MutableTensor y{dtype, run.out(0)};
    for (int64_t at = 0; at < n; at += 4) {
      double drawn[4];
      const PhiloxBlock bits =
          StreamBits(rng[0], rng[1], static_cast<uint32_t>(stream), static_cast<uint32_t>(at / 4));
      normal != 0 ? NormalNumbers(bits, drawn) : UniformNumbers(bits, drawn);
      for (int64_t i = at; i < std::min(at + 4, n); ++i)
        y.set<double>(i, shift + scale * drawn[i - at]);
    }
  });
}

}  // namespace ampc::ref
