// SPDX-License-Identifier: Apache-2.0
// dropout: sixteen Philox counters side by side (vec/dropout.inc); random: whole counters per
// thread. The bits and results are the reference's.

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"
#include "kernels/philox.h"

namespace ampc::cpu {
namespace {

class Dropout final : public PreparedKernel {
 public:
  Dropout(const CallSpec& call, int threads)
      : x_(call.inputs[0].dtype),
        ratio_(call.inputs[1].dtype),
        y_(call.outputs[0].dtype),
        elements_(call.inputs[0].elements()),
        stream_(static_cast<uint32_t>(call.params.Int("stream"))),
        threads_(ThreadsFor(threads, elements_ * 24)),
        vec_(Vec()) {}

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    const auto* rng = static_cast<const int64_t*>(inputs[2]);
    const float ratio = LoadFloat(ratio_, inputs[1], 0), keep = 1.0f - ratio;
    const uint64_t threshold = DropoutThreshold(static_cast<double>(ratio));
    const int64_t seed = rng[0], index = rng[1];
    auto* mask = outputs.size() > 1 ? static_cast<uint8_t*>(outputs[1]) : nullptr;
    ParallelRanges(threads_, elements_, kBlock, [&](int64_t begin, int64_t end) {
      float in[kBlock], out[kBlock];
      uint8_t kept[kBlock];
      for (int64_t at = begin; at < end; at += kBlock) {
        const int64_t n = std::min(kBlock, end - at), quads = CeilDiv(n, 4);
        Widen(x_, Offset(inputs[0], at * SizeOf(x_)), in, n);
        std::fill(in + n, in + quads * 4, 0.0f);
        vec_.dropout(seed, index, stream_, at / 4, quads, threshold, keep, in, out, kept);
        Narrow(y_, out, Offset(outputs[0], at * SizeOf(y_)), n);
        if (mask != nullptr) std::memcpy(mask + at, kept, static_cast<size_t>(n));
      }
    });
  }

 private:
  DType x_, ratio_, y_;
  int64_t elements_;
  uint32_t stream_;
  int threads_;
  const VecOps& vec_;
};

class Random final : public PreparedKernel {
 public:
  Random(const CallSpec& call, int threads)
      : elements_(call.outputs[0].elements()),
        stream_(static_cast<uint32_t>(call.params.Int("stream"))),
        normal_(call.params.Int("normal") != 0),
        shift_(call.params.Float("shift")),
        scale_(call.params.Float("scale")),
        threads_(ThreadsFor(threads, elements_ * 64)) {}

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    const auto* rng = static_cast<const int64_t*>(inputs[0]);
    const int64_t seed = rng[0], index = rng[1];
    ParallelRanges(threads_, elements_, kBlock, [&](int64_t begin, int64_t end) {
      float out[kBlock];
      for (int64_t at = begin; at < end; at += kBlock) {
        const int64_t n = std::min(kBlock, end - at);
        for (int64_t quad = 0; quad < CeilDiv(n, 4); ++quad) {
          const PhiloxBlock bits =
              StreamBits(seed, index, stream_, static_cast<uint32_t>(at / 4 + quad));
          double drawn[4];
          normal_ ? NormalNumbers(bits, drawn) : UniformNumbers(bits, drawn);
          for (int lane = 0; lane < 4; ++lane)
            out[quad * 4 + lane] = static_cast<float>(shift_ + scale_ * drawn[lane]);
        }
        std::memcpy(Offset(outputs[0], at * SizeOf(DType::kFloat32)), out,
                    static_cast<size_t>(n) * sizeof(float));
      }
    });
  }

 private:
  int64_t elements_;
  uint32_t stream_;
  bool normal_;
  double shift_, scale_;
  int threads_;
};

}  // namespace

std::string DeclinesRandom(const CallSpec& call, const PrepareOptions&) {
  // A half is rounded once, from the double.
  return call.outputs[0].dtype == DType::kFloat32 ? "" : "another type than fp32";
}

PrepareResult PrepareRandom(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Random>(call, options.threads));
}

std::string DeclinesDropout(const CallSpec& call, const PrepareOptions&) {
  for (const TensorDesc* t : {&call.inputs[0], &call.inputs[1], &call.outputs[0]}) {
    if (!IsFloatUpTo32(t->dtype)) return "a double operand";
  }
  for (const TensorDesc& t : {call.inputs[0], call.outputs[0],
                              call.outputs.size() > 1 ? call.outputs[1] : call.outputs[0]}) {
    if (t.dims.size() > 2 && t.layout != Layout::kRowMajor)
      return "elements are numbered in row-major order";
  }
  return {};
}

PrepareResult PrepareDropout(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Dropout>(call, options.threads));
}

}  // namespace ampc::cpu
