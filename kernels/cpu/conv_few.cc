// SPDX-License-Identifier: Apache-2.0
// The gradient of a convolution to the data of one to four channels, which is also the transposed
// convolution at the end of a decoder. Four channels fill a quarter of a register, so the lanes
// here are neighbouring positions.
//
// With strides S the outputs fall into phases, S1 * S2 interleaved grids: a position of a grid sees
// the taps of its phase at fixed distances in dy. dy is copied into rows with zeros around them, so
// that a phase of a band of rows is one long loop, acc[i] += sum over taps of w * rows[i +
// distance]. A task is an image, an index along the first of three axes and a band of rows; every
// sum is made by one task, channel by channel, whatever the number of threads.

#include <algorithm>
#include <array>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

constexpr int64_t kFewChannels = 4;
/// Sums of one band, all channels and phases: 16 KiB, half of an L1 cache.
constexpr int64_t kBandFloats = 4096;
/// Vectors of the widest set: rows and sums are padded to this.
constexpr int64_t kLanes = 16;

using Axes3 = std::array<int64_t, 3>;

/// One tap of a phase: which weight, and the distance in the padded rows.
struct Tap {
  int64_t k1, k2;
  int32_t distance;
};

/// A tensor [N, C, i0, i1, i2] in either layout.
struct Strides {
  int64_t n, c;
  Axes3 at;
};

Strides StridesIn(const TensorDesc& t) {
  const std::vector<int64_t> s = StridesOf(t.dims, t.layout);
  Strides out{s[0], s[1], {0, 0, 0}};
  for (size_t i = 2, skip = 3 - (s.size() - 2); i < s.size(); ++i) out.at[skip + i - 2] = s[i];
  return out;
}

class FewChannels final : public PreparedKernel {
 public:
  FewChannels(const CallSpec& call, const PrepareOptions& options);
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override;

 private:
  void PlanPhases();
  /// Position i = a * S + r along an axis sees output a + Shift when tap k is of phase r.
  bool IsOfPhase(size_t axis, int64_t r, int64_t k) const {
    return (r + pad_[axis] - k * dilation_[axis]) % stride_[axis] == 0;
  }
  int64_t Shift(size_t axis, int64_t r, int64_t k) const {
    return (r + pad_[axis] - k * dilation_[axis]) / stride_[axis];
  }
  /// Grid positions of phase r.
  int64_t Length(size_t axis, int64_t r) const {
    return std::max<int64_t>(CeilDiv(in_[axis] - r, stride_[axis]), 0);
  }
  void PackWeights(const void* w, float* packed) const;
  void CopyRows(const void* dy, int64_t n, int64_t o, int64_t o0, int64_t first, float* rows) const;
  void Band(const void* dy, const float* packed, const float* bias, void* dx, int64_t task,
            float* scratch) const;
  void StoreBand(const float* acc, const float* bias, void* dx, int64_t n, int64_t i0,
                 int64_t first, int64_t end, float* line) const;

  const VecOps& vec_;
  int64_t n_, channels_, outputs_;
  Axes3 in_{1, 1, 1}, out_{1, 1, 1}, kernel_{1, 1, 1}, stride_{1, 1, 1}, dilation_{1, 1, 1},
      pad_{0, 0, 0};
  DType dy_type_, w_type_, dx_type_, bias_type_ = DType::kNone;
  Strides dy_strides_, dx_strides_;
  int threads_;
  std::vector<std::vector<Tap>> phases_;           // S1 * S2
  std::vector<std::vector<int32_t>> distances_;    // of their taps
  int64_t width_ = 0, before1_ = 0, before2_ = 0;  // padded row; zeros above and to the left
  int64_t band_ = 0, band_rows_ = 0, bands_ = 0;   // grid rows of a band, rows copied for it
  int64_t row_floats_ = 0, acc_floats_ = 0, task_floats_ = 0;
  int64_t packed_at_ = 0, bias_at_ = 0, tasks_at_ = 0;
  WorkspacePlan plan_;
};

FewChannels::FewChannels(const CallSpec& call, const PrepareOptions& options)
    : vec_(Vec()),
      n_(call.outputs[0].dims[0]),
      channels_(call.outputs[0].dims[1]),
      outputs_(call.inputs[0].dims[1]),
      dy_type_(call.inputs[0].dtype),
      w_type_(call.inputs[1].dtype),
      dx_type_(call.outputs[0].dtype),
      dy_strides_(StridesIn(call.inputs[0])),
      dx_strides_(StridesIn(call.outputs[0])) {
  const TensorDesc &dy = call.inputs[0], &w = call.inputs[1], &dx = call.outputs[0];
  if (call.inputs.size() > 2) bias_type_ = call.inputs[2].dtype;
  const size_t axes = dx.dims.size() - 2, skip = 3 - axes;
  const auto read = [&](const char* name, std::vector<int64_t> fallback, Axes3& to) {
    const std::vector<int64_t> v = call.params.Ints(name, std::move(fallback));
    for (size_t i = 0; i < axes; ++i) to[skip + i] = v[i];
  };
  read("strides", std::vector<int64_t>(axes, 1), stride_);
  read("dilations", std::vector<int64_t>(axes, 1), dilation_);
  read("pads", std::vector<int64_t>(2 * axes, 0), pad_);
  for (size_t i = 0; i < axes; ++i) {
    in_[skip + i] = dx.dims[2 + i];
    out_[skip + i] = dy.dims[2 + i];
    kernel_[skip + i] = w.dims[2 + i];
  }
  PlanPhases();
  const int64_t multiplies = dy.elements() * channels_ * kernel_[0] * kernel_[1] * kernel_[2];
  threads_ = ThreadsFor(options.threads, multiplies + dx.elements() * 4);
  packed_at_ = plan_.Take(w.elements() * 4);
  bias_at_ = plan_.Take(channels_ * 4);
  tasks_at_ = plan_.Take(task_floats_ * 4 * threads_);
}

void FewChannels::PlanPhases() {
  // How far taps reach beyond dy, per axis.
  Axes3 before{0, 0, 0}, after{0, 0, 0};
  for (size_t axis = 1; axis < 3; ++axis) {
    for (int64_t r = 0; r < stride_[axis]; ++r) {
      for (int64_t k = 0; k < kernel_[axis]; ++k) {
        if (!IsOfPhase(axis, r, k)) continue;
        const int64_t shift = Shift(axis, r, k);
        before[axis] = std::max(before[axis], -shift);
        after[axis] = std::max(after[axis], Length(axis, r) - 1 + shift - (out_[axis] - 1));
      }
    }
  }
  before1_ = before[1];
  before2_ = before[2];
  const int64_t grid = Length(2, 0);  // phase 0 has the most positions
  width_ = std::max(before2_ + out_[2] + after[2], grid);
  const int64_t sums_per_row = channels_ * stride_[1] * stride_[2] * width_, rows = Length(1, 0);
  band_ = std::clamp<int64_t>(kBandFloats / sums_per_row, 1, rows);
  bands_ = CeilDiv(rows, band_);
  // The copied rows start `before1_` above the band's first; the furthest tap looks this far down.
  int64_t down = 0;
  for (int64_t r = 0; r < stride_[1]; ++r) {
    for (int64_t k = 0; k < kernel_[1]; ++k) {
      if (IsOfPhase(1, r, k)) down = std::max(down, before1_ + Shift(1, r, k));
    }
  }
  band_rows_ = band_ + down;
  for (int64_t r1 = 0; r1 < stride_[1]; ++r1) {
    for (int64_t r2 = 0; r2 < stride_[2]; ++r2) {
      std::vector<Tap>& taps = phases_.emplace_back();
      std::vector<int32_t>& distances = distances_.emplace_back();
      for (int64_t k1 = 0; k1 < kernel_[1]; ++k1) {
        for (int64_t k2 = 0; k2 < kernel_[2]; ++k2) {
          if (!IsOfPhase(1, r1, k1) || !IsOfPhase(2, r2, k2)) continue;
          const int64_t distance =
              (before1_ + Shift(1, r1, k1)) * width_ + before2_ + Shift(2, r2, k2);
          taps.push_back({k1, k2, static_cast<int32_t>(distance)});
          distances.push_back(static_cast<int32_t>(distance));
        }
      }
    }
  }
  // A vector may start at a phase's last sum and at its furthest tap.
  acc_floats_ = CeilDiv(band_ * width_, kLanes) * kLanes;
  row_floats_ = CeilDiv(band_rows_ * width_ + width_ + kLanes, kLanes) * kLanes;
  task_floats_ = row_floats_ + channels_ * stride_[1] * stride_[2] * acc_floats_ +
                 CeilDiv(in_[2] * channels_, kLanes) * kLanes;
}

/// [k0][output][channel][phase][tap] as floats.
void FewChannels::PackWeights(const void* w, float* packed) const {
  for (int64_t k0 = 0; k0 < kernel_[0]; ++k0) {
    for (int64_t pair = 0; pair < outputs_ * channels_; ++pair) {
      for (const std::vector<Tap>& taps : phases_) {
        for (const Tap& tap : taps) {
          const int64_t at = ((pair * kernel_[0] + k0) * kernel_[1] + tap.k1) * kernel_[2] + tap.k2;
          *packed++ = LoadFloat(w_type_, w, at);
        }
      }
    }
  }
}

/// Rows [first - before1_, ...) of a plane of dy, with zeros where there is none.
void FewChannels::CopyRows(const void* dy, int64_t n, int64_t o, int64_t o0, int64_t first,
                           float* rows) const {
  std::fill_n(rows, row_floats_, 0.0f);
  const int64_t begin = std::max<int64_t>(first - before1_, 0),
                end = std::min(first - before1_ + band_rows_, out_[1]), stride = dy_strides_.at[2];
  for (int64_t row = begin; row < end; ++row) {
    float* to = rows + (row - first + before1_) * width_ + before2_;
    const int64_t at =
        n * dy_strides_.n + o * dy_strides_.c + o0 * dy_strides_.at[0] + row * dy_strides_.at[1];
    if (stride == 1) {
      Widen(dy_type_, Offset(dy, at * SizeOf(dy_type_)), to, out_[2]);
    } else {
      for (int64_t i = 0; i < out_[2]; ++i) to[i] = LoadFloat(dy_type_, dy, at + i * stride);
    }
  }
}

void FewChannels::Band(const void* dy, const float* packed, const float* bias, void* dx,
                       int64_t task, float* scratch) const {
  const int64_t band = task % bands_, i0 = task / bands_ % in_[0], n = task / bands_ / in_[0];
  const int64_t first = band * band_, end = std::min(first + band_, Length(1, 0));
  const int64_t sums = CeilDiv((end - first) * width_, kLanes) * kLanes;
  float *rows = scratch, *acc = rows + row_floats_;
  const int64_t phases = static_cast<int64_t>(phases_.size());
  float* line = acc + channels_ * phases * acc_floats_;
  std::fill_n(acc, channels_ * phases * acc_floats_, 0.0f);
  const int64_t taps = kernel_[1] * kernel_[2];
  for (int64_t k0 = 0; k0 < kernel_[0]; ++k0) {
    const int64_t reach = i0 + pad_[0] - k0 * dilation_[0], o0 = reach / stride_[0];
    if (reach < 0 || reach % stride_[0] != 0 || o0 >= out_[0]) continue;
    for (int64_t o = 0; o < outputs_; ++o) {
      CopyRows(dy, n, o, o0, first, rows);
      const float* w = packed + (k0 * outputs_ + o) * channels_ * taps;
      for (int64_t c = 0; c < channels_; ++c) {
        for (int64_t phase = 0; phase < phases; ++phase) {
          const std::vector<int32_t>& distances = distances_[static_cast<size_t>(phase)];
          const auto count = static_cast<int64_t>(distances.size());
          vec_.add_taps(rows, distances.data(), w, count, acc + (c * phases + phase) * acc_floats_,
                        sums);
          w += count;
        }
      }
    }
  }
  StoreBand(acc, bias, dx, n, i0, first, end, line);
}

/// The phases of each row are interleaved again; channels-last also the channels.
void FewChannels::StoreBand(const float* acc, const float* bias, void* dx, int64_t n, int64_t i0,
                            int64_t first, int64_t end, float* line) const {
  const bool last = dx_strides_.at[2] != 1 && channels_ > 1;
  const int64_t s1 = stride_[1], s2 = stride_[2], step = last ? channels_ : 1;
  const int64_t lines_per_row = last ? 1 : channels_, length = last ? in_[2] * channels_ : in_[2];
  for (int64_t i1 = first * s1; i1 < std::min(end * s1, in_[1]); ++i1) {
    const int64_t row = i1 / s1 - first, r1 = i1 % s1;
    for (int64_t l = 0; l < lines_per_row; ++l) {
      for (int64_t c = l; c < (last ? channels_ : l + 1); ++c) {
        for (int64_t r2 = 0; r2 < s2; ++r2) {
          const float* from = acc + ((c * s1 + r1) * s2 + r2) * acc_floats_ + row * width_;
          float* to = line + r2 * step + (last ? c : 0);
          const int64_t positions = Length(2, r2);
          for (int64_t i = 0; i < positions; ++i) to[i * s2 * step] = from[i] + bias[c];
        }
      }
      const int64_t at =
          n * dx_strides_.n + l * dx_strides_.c + i0 * dx_strides_.at[0] + i1 * dx_strides_.at[1];
      Narrow(dx_type_, line, Offset(dx, at * SizeOf(dx_type_)), length);
    }
  }
}

void FewChannels::Run(std::span<const void* const> inputs, std::span<void* const> outputs,
                      void* workspace, const RunContext&) noexcept {
  float *packed = At<float>(workspace, packed_at_), *bias = At<float>(workspace, bias_at_);
  PackWeights(inputs[1], packed);
  std::fill_n(bias, channels_, 0.0f);
  if (bias_type_ != DType::kNone) Widen(bias_type_, inputs[2], bias, channels_);
  const int64_t items = n_ * in_[0] * bands_, tasks = std::min<int64_t>(threads_, items);
  ParallelFor(threads_, tasks, [&](int64_t t) {
    float* scratch = At<float>(workspace, tasks_at_) + t * task_floats_;
    for (int64_t i = items * t / tasks; i < items * (t + 1) / tasks; ++i)
      Band(inputs[0], packed, bias, outputs[0], i, scratch);
  });
}

}  // namespace

std::string DeclinesConvFewChannels(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  if (std::string reason = DeclinesEmpty(call); !reason.empty()) return reason;
  if (call.outputs[0].dims[1] > kFewChannels) return "more than four channels";
  if (call.params.Int("group", 1) != 1) return "groups of channels";
  return {};
}

PrepareResult PrepareConvFewChannels(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<FewChannels>(call, options));
}

}  // namespace ampc::cpu
