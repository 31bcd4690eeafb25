// SPDX-License-Identifier: Apache-2.0
// interpolate: weighted sums of elements along one axis. x is [outer, in, inner], y [outer, out,
// inner].
//
// Where inner fills vectors, a task adds rows of inner elements; else it widens a whole line of x
// and takes its results element by element. Each result is one sum in the order of its taps.

#include <algorithm>

#include "kernels/cpu/common.h"
#include "kernels/cpu/families.h"

namespace ampc::cpu {
namespace {

/// From so many inner elements on rows are added.
constexpr int64_t kRow = 8;

class Interpolate final : public PreparedKernel {
 public:
  Interpolate(const CallSpec& call, int threads)
      : x_(call.inputs[0].dtype),
        y_(call.outputs[0].dtype),
        begins_(call.params.Ints("begins")),
        indices_(call.params.Ints("indices")),
        fill_(static_cast<float>(call.params.Float("fill"))) {
    const auto axis = static_cast<size_t>(call.params.Int("axis"));
    const std::span<const int64_t> dims(call.inputs[0].dims);
    outer_ = NumElements(dims.first(axis));
    in_ = dims[axis];
    out_ = call.outputs[0].dims[axis];
    inner_ = NumElements(dims.subspan(axis + 1));
    for (const double w : call.params.Floats("weights")) weights_.push_back(static_cast<float>(w));
    const int64_t taps = static_cast<int64_t>(indices_.size());
    threads_ = ThreadsFor(threads, outer_ * inner_ * (in_ + out_ + taps) * 4);
    line_ = CeilDiv((in_ + out_) * inner_, 16) * 16;
  }
  int64_t workspace_bytes() const override { return inner_ < kRow ? threads_ * line_ * 4 : 0; }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const void* x = inputs[0];
    void* y = outputs[0];
    if (inner_ >= kRow) {
      ParallelRanges(threads_, outer_ * out_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) Row(x, y, i / out_, i % out_);
      });
      return;
    }
    const int64_t tasks = std::min<int64_t>(threads_, outer_);
    ParallelFor(threads_, tasks, [&](int64_t t) {
      float* buffer = static_cast<float*>(workspace) + t * line_;
      for (int64_t n = outer_ * t / tasks; n < outer_ * (t + 1) / tasks; ++n) Line(x, y, n, buffer);
    });
  }

 private:
  /// The inner elements of result `o`.
  void Row(const void* x, void* y, int64_t n, int64_t o) const {
    alignas(64) float from[kBlock], to[kBlock];
    const int64_t first = begins_[o], last = begins_[o + 1];
    for (int64_t at = 0; at < inner_; at += kBlock) {
      const int64_t count = std::min(kBlock, inner_ - at), place = (n * out_ + o) * inner_ + at;
      float* sum = OutputBlock(y_, y, place, to);
      std::fill_n(sum, count, first == last ? fill_ : 0.0f);
      for (int64_t k = first; k < last; ++k) {
        const float* row = FloatBlock(x_, x, (n * in_ + indices_[k]) * inner_ + at, count, from);
        const float w = weights_[k];
        for (int64_t i = 0; i < count; ++i) sum[i] += w * row[i];
      }
      StoreBlock(y_, sum, y, place, count);
    }
  }

  void Line(const void* x, void* y, int64_t n, float* buffer) const {
    const float* from = FloatBlock(x_, x, n * in_ * inner_, in_ * inner_, buffer);
    const int64_t place = n * out_ * inner_;
    float* to = OutputBlock(y_, y, place, buffer + in_ * inner_);
    for (int64_t o = 0; o < out_; ++o) {
      const int64_t first = begins_[o], last = begins_[o + 1];
      for (int64_t i = 0; i < inner_; ++i) {
        float sum = first == last ? fill_ : 0.0f;
        for (int64_t k = first; k < last; ++k) sum += weights_[k] * from[indices_[k] * inner_ + i];
        to[o * inner_ + i] = sum;
      }
    }
    StoreBlock(y_, to, y, place, out_ * inner_);
  }

  DType x_, y_;
  std::vector<int64_t> begins_, indices_;
  std::vector<float> weights_;
  float fill_;
  int64_t outer_, in_, out_, inner_, line_;
  int threads_;
};

}  // namespace

std::string DeclinesInterpolate(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}
PrepareResult PrepareInterpolate(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Interpolate>(call, options.threads));
}

}  // namespace ampc::cpu
