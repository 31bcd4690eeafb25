// SPDX-License-Identifier: Apache-2.0
// Max and average pooling over one to three axes, and their gradients.
//
// The lanes of a vector are the outputs of one row with all their channels (channels-last), of one
// row (row-major), or of a whole plane where no window leaves the input; `Lanes` says where they
// see x. Many channels are lanes enough: those are taken output by output. Forward: a task is a
// plane, or an (n, output row). Backward: row-major planes are summed by one task each, output by
// output; channels-last a task is a band of input positions: max adds each output where its index
// points, average adds rows. Either way one thread makes a sum, in an order that depends on shapes
// alone.

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

/// From so many channels on, loops over the channels of one output fill the vectors.
constexpr int64_t kManyChannels = 32;
/// Sums that a task of the channels-last gradient of max pooling keeps: 64 KiB.
constexpr int64_t kBandFloats = 16 * 1024;

/// Spatial axes, leading ones of length 1.
using Axes3 = std::array<int64_t, 3>;

struct Pool {
  int64_t n, c;
  Axes3 in, out, kernel, stride, dilation, pad;
  bool last;                                    // channels-last
  DType a, y;                                   // the call's first input and first output
  std::array<std::vector<int64_t>, 3> taps;     // per axis and output: taps inside the input
  std::array<std::vector<int64_t>, 3> counted;  // taps that an average divides by

  static int64_t Volume(const Axes3& v) { return v[0] * v[1] * v[2]; }
  /// Outputs [first, last) along an axis whose tap k lies inside the input.
  std::pair<int64_t, int64_t> Inside(size_t axis, int64_t k) const {
    const int64_t reach = pad[axis] - k * dilation[axis];  // o * stride >= reach
    const int64_t first = std::max<int64_t>(reach <= 0 ? 0 : CeilDiv(reach, stride[axis]), 0);
    const int64_t room = in[axis] - 1 + reach;
    const int64_t end = room < 0 ? 0 : std::min(out[axis], room / stride[axis] + 1);
    return {std::min(first, end), end};
  }
  int64_t At(size_t axis, int64_t o, int64_t k) const {
    return o * stride[axis] - pad[axis] + k * dilation[axis];
  }
  bool IsInside(size_t axis, int64_t at) const { return at >= 0 && at < in[axis]; }
  /// No window of the axis leaves the input.
  bool IsFull(size_t axis) const {
    return std::ranges::all_of(taps[axis], [&](int64_t t) { return t == kernel[axis]; });
  }
  float Share(int64_t o0, int64_t o1, int64_t o2) const {
    const int64_t count = counted[0][o0] * counted[1][o1] * counted[2][o2];
    return 1.0f / static_cast<float>(std::max<int64_t>(count, 1));
  }
};

Pool ReadPool(const CallSpec& call, const TensorDesc& x, const TensorDesc& y) {
  const size_t axes = x.dims.size() - 2, skip = 3 - axes;
  Pool p{x.dims[0],
         x.dims[1],
         {1, 1, 1},
         {1, 1, 1},
         {1, 1, 1},
         {1, 1, 1},
         {1, 1, 1},
         {0, 0, 0},
         x.layout == Layout::kChannelsLast,
         call.inputs[0].dtype,
         call.outputs[0].dtype,
         {},
         {}};
  const auto read = [&](const char* name, std::vector<int64_t> fallback, Axes3& to) {
    const std::vector<int64_t> v = call.params.Ints(name, std::move(fallback));
    for (size_t i = 0; i < axes; ++i) to[skip + i] = v[i];
  };
  read("kernel_shape", {}, p.kernel);
  read("strides", std::vector<int64_t>(axes, 1), p.stride);
  read("dilations", std::vector<int64_t>(axes, 1), p.dilation);
  read("pads", std::vector<int64_t>(2 * axes, 0), p.pad);
  for (size_t i = 0; i < axes; ++i) {
    p.in[skip + i] = x.dims[2 + i];
    p.out[skip + i] = y.dims[2 + i];
  }
  const bool include = call.params.Int("count_include_pad") != 0;
  Axes3 pad_end = {0, 0, 0}, overhang = {0, 0, 0};
  read("overhang", std::vector<int64_t>(axes, 0), overhang);
  const std::vector<int64_t> pads = call.params.Ints("pads", std::vector<int64_t>(2 * axes, 0));
  for (size_t i = 0; i < axes; ++i) pad_end[skip + i] = pads[axes + i];
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t counted_end = p.in[axis] + pad_end[axis] - overhang[axis];
    for (int64_t o = 0; o < p.out[axis]; ++o) {
      int64_t inside = 0, counted = 0;
      for (int64_t k = 0; k < p.kernel[axis]; ++k) {
        inside += p.IsInside(axis, p.At(axis, o, k)) ? 1 : 0;
        counted += p.At(axis, o, k) < counted_end ? 1 : 0;
      }
      p.taps[axis].push_back(inside);
      p.counted[axis].push_back(include ? counted : inside);
    }
  }
  return p;
}

/// Where the lanes see x, relative to the first lane: as an element, and as a position in the
/// plane.
struct Lanes {
  std::vector<int32_t> offset, position;

  void Add(int64_t o, int64_t p) {
    offset.push_back(static_cast<int32_t>(o));
    position.push_back(static_cast<int32_t>(p));
  }
};

/// The outputs of one row, channel by channel.
Lanes RowLanes(const Pool& p) {
  Lanes lanes;
  for (int64_t o = 0; o < p.out[2]; ++o) {
    for (int64_t c = 0; c < p.c; ++c) lanes.Add(o * p.stride[2] * p.c + c, o * p.stride[2]);
  }
  return lanes;
}
/// The outputs of a plane along axes 1 and 2.
Lanes PlaneLanes(const Pool& p) {
  Lanes lanes;
  for (int64_t o1 = 0; o1 < p.out[1]; ++o1) {
    for (int64_t o2 = 0; o2 < p.out[2]; ++o2) {
      const int64_t at = o1 * p.stride[1] * p.in[2] + o2 * p.stride[2];
      lanes.Add(at, at);
    }
  }
  return lanes;
}

/// f(input row) for the window rows of output (o0, o1).
template <typename F>
void ForEachWindowRow(const Pool& p, int64_t o0, int64_t o1, F f) {
  for (int64_t k0 = 0; k0 < p.kernel[0]; ++k0) {
    const int64_t i0 = p.At(0, o0, k0);
    if (!p.IsInside(0, i0)) continue;
    for (int64_t k1 = 0; k1 < p.kernel[1]; ++k1) {
      const int64_t i1 = p.At(1, o1, k1);
      if (p.IsInside(1, i1)) f(i0 * p.in[1] + i1);
    }
  }
}

class PoolKernel : public PreparedKernel {
 public:
  int64_t workspace_bytes() const override { return task_floats_ * 4 * threads_; }

 protected:
  PoolKernel(const Pool& p, int threads)
      : p_(p),
        vec_(Vec()),
        threads_(ThreadsFor(threads, p.n * p.c * (Pool::Volume(p.in) + Pool::Volume(p.out)) * 4)),
        many_(p.last && p.c >= kManyChannels && p.stride[2] > 1),
        whole_(!p.last && p.IsFull(1) && p.IsFull(2)) {
    if (p.last && !many_) lanes_ = RowLanes(p);
    if (whole_) lanes_ = PlaneLanes(p);
  }

  int64_t in_size() const { return Pool::Volume(p_.in); }
  int64_t out_size() const { return Pool::Volume(p_.out); }
  float* Scratch(void* workspace, int64_t task) const {
    return static_cast<float*>(workspace) + task * task_floats_;
  }

  /// f(item, scratch) over items, one contiguous range per thread.
  template <typename F>
  void ForEachItem(void* workspace, int64_t items, F f) const {
    const int64_t tasks = std::min<int64_t>(threads_, items);
    ParallelFor(threads_, tasks, [&](int64_t t) {
      float* scratch = Scratch(workspace, t);
      for (int64_t i = items * t / tasks; i < items * (t + 1) / tasks; ++i) f(i, scratch);
    });
  }

  Pool p_;
  const VecOps& vec_;
  int threads_;
  bool many_, whole_;  // channels-last, output by output; row-major, a plane at once
  Lanes lanes_;
  int64_t task_floats_ = 0;
};

/// Max or average, forward.
class Forward final : public PoolKernel {
 public:
  Forward(const Pool& p, bool max, int threads) : PoolKernel(p, threads), max_(max) {
    // Values and their positions, then x as floats: channels-last a row or the channels of one
    // output, row-major a plane.
    count_ = many_ ? p.c : p.last ? p.out[2] * p.c : whole_ ? p.out[1] * p.out[2] : p.out[2];
    row_floats_ = CeilDiv(count_, 16) * 16;
    const int64_t x_floats = many_ ? p.c : !IsLow(p.a) ? 0 : p.last ? p.in[2] * p.c : in_size();
    task_floats_ = 2 * row_floats_ + CeilDiv(x_floats, 16) * 16;
  }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    auto* index = max_ && outputs.size() > 1 ? static_cast<int32_t*>(outputs[1]) : nullptr;
    if (p_.last) {
      ForEachItem(workspace, p_.n * p_.out[0] * p_.out[1], [&](int64_t row, float* scratch) {
        if (many_) {
          ManyChannelsRow(inputs[0], outputs[0], index, row, scratch);
        } else {
          FewChannelsRow(inputs[0], outputs[0], index, row, scratch);
        }
      });
    } else {
      ForEachItem(workspace, p_.n * p_.c, [&](int64_t plane, float* scratch) {
        if (whole_) {
          WholePlane(inputs[0], outputs[0], index, plane, scratch);
        } else {
          Plane(inputs[0], outputs[0], index, plane, scratch);
        }
      });
    }
  }

 private:
  void Start(float* best, int32_t* where) const {
    std::fill_n(best, count_, max_ ? -INFINITY : 0.0f);
    std::fill_n(where, count_, -1);
  }
  /// The first n lanes from x on, the first of which is at position `index`.
  void Take(const float* x, int64_t index, float* best, int32_t* where, int64_t n) const {
    if (max_) {
      vec_.max_gather(x, lanes_.offset.data(), lanes_.position.data(), static_cast<int32_t>(index),
                      best, where, n);
    } else {
      vec_.add_gather(x, lanes_.offset.data(), best, n);
    }
  }
  void Finish(const float* best, const int32_t* where, void* y, int32_t* index, int64_t to) const {
    Narrow(p_.y, best, Offset(y, to * SizeOf(p_.y)), count_);
    if (index != nullptr) std::memcpy(index + to, where, static_cast<size_t>(count_) * 4);
  }

  void WholePlane(const void* x, void* y, int32_t* index, int64_t plane, float* scratch) const {
    float* best = scratch;
    auto* where = reinterpret_cast<int32_t*>(scratch + row_floats_);
    const float* in = FloatBlock(p_.a, x, plane * in_size(), in_size(), scratch + 2 * row_floats_);
    for (int64_t o0 = 0; o0 < p_.out[0]; ++o0) {
      Start(best, where);
      ForEachWindowRow(p_, o0, 0, [&](int64_t i01) {
        for (int64_t k = 0; k < p_.kernel[2]; ++k) {
          const int64_t at = i01 * p_.in[2] + k * p_.dilation[2];
          Take(in + at, at, best, where, count_);
        }
      });
      if (!max_) vec_.scale(best, p_.Share(o0, 0, 0), best, count_);
      Finish(best, where, y, index, plane * out_size() + o0 * count_);
    }
  }

  void FewChannelsRow(const void* x, void* y, int32_t* index, int64_t row, float* scratch) const {
    float* best = scratch;
    auto* where = reinterpret_cast<int32_t*>(scratch + row_floats_);
    const int64_t n = row / (p_.out[0] * p_.out[1]), o0 = row / p_.out[1] % p_.out[0],
                  o1 = row % p_.out[1], in_row = p_.in[2] * p_.c;
    Start(best, where);
    ForEachWindowRow(p_, o0, o1, [&](int64_t i01) {
      const float* in = FloatBlock(p_.a, x, n * in_size() * p_.c + i01 * in_row, in_row,
                                   scratch + 2 * row_floats_);
      for (int64_t k = 0; k < p_.kernel[2]; ++k) {
        const auto [first, end] = p_.Inside(2, k);
        if (first == end) continue;
        const int64_t at = p_.At(2, first, k);
        Take(in + at * p_.c, i01 * p_.in[2] + at, best + first * p_.c, where + first * p_.c,
             (end - first) * p_.c);
      }
    });
    if (!max_ && p_.IsFull(2)) {
      vec_.scale(best, p_.Share(o0, o1, 0), best, count_);
    } else if (!max_) {
      for (int64_t o2 = 0; o2 < p_.out[2]; ++o2)
        vec_.scale(best + o2 * p_.c, p_.Share(o0, o1, o2), best + o2 * p_.c, p_.c);
    }
    Finish(best, where, y, index, row * count_);
  }

  void Plane(const void* x, void* y, int32_t* index, int64_t plane, float* scratch) const {
    float* best = scratch;
    auto* where = reinterpret_cast<int32_t*>(scratch + row_floats_);
    const float* in = FloatBlock(p_.a, x, plane * in_size(), in_size(), scratch + 2 * row_floats_);
    for (int64_t row = 0; row < p_.out[0] * p_.out[1]; ++row) {
      const int64_t o0 = row / p_.out[1], o1 = row % p_.out[1];
      Start(best, where);
      ForEachWindowRow(p_, o0, o1, [&](int64_t i01) {
        if (!max_ && p_.out[2] == 1 &&
            p_.dilation[2] == 1) {  // one output: lanes along the window instead
          const int64_t first = std::max<int64_t>(-p_.pad[2], 0),
                        end = std::min(p_.in[2], p_.kernel[2] - p_.pad[2]);
          best[0] += vec_.row_reduce[static_cast<int>(RowOp::kSum)](
              in + i01 * p_.in[2] + first, std::max(end - first, int64_t{0}));
          return;
        }
        for (int64_t k = 0; k < p_.kernel[2]; ++k) {
          const auto [first, end] = p_.Inside(2, k);
          if (first == end) continue;
          const int64_t at = i01 * p_.in[2] + p_.At(2, first, k);
          if (max_) {
            vec_.max_update(in + at, p_.stride[2], static_cast<int32_t>(at),
                            static_cast<int32_t>(p_.stride[2]), best + first, where + first,
                            end - first);
          } else {
            vec_.add_strided(in + at, p_.stride[2], best + first, end - first);
          }
        }
      });
      if (!max_) {
        for (int64_t o2 = 0; o2 < p_.out[2]; ++o2) best[o2] *= p_.Share(o0, o1, o2);
      }
      Finish(best, where, y, index, plane * out_size() + row * p_.out[2]);
    }
  }

  void ManyChannelsRow(const void* x, void* y, int32_t* index, int64_t row, float* scratch) const {
    float* best = scratch;
    auto* where = reinterpret_cast<int32_t*>(scratch + row_floats_);
    float* buffer = scratch + 2 * row_floats_;
    const int64_t n = row / (p_.out[0] * p_.out[1]), o0 = row / p_.out[1] % p_.out[0],
                  o1 = row % p_.out[1];
    for (int64_t o2 = 0; o2 < p_.out[2]; ++o2) {
      Start(best, where);
      ForEachWindowRow(p_, o0, o1, [&](int64_t i01) {
        for (int64_t k = 0; k < p_.kernel[2]; ++k) {
          const int64_t i2 = p_.At(2, o2, k);
          if (!p_.IsInside(2, i2)) continue;
          const int64_t at = i01 * p_.in[2] + i2;
          const float* in = FloatBlock(p_.a, x, (n * in_size() + at) * p_.c, p_.c, buffer);
          if (max_) {
            vec_.max_update(in, 1, static_cast<int32_t>(at), 0, best, where, p_.c);
          } else {
            vec_.add_strided(in, 1, best, p_.c);
          }
        }
      });
      if (!max_) vec_.scale(best, p_.Share(o0, o1, o2), best, p_.c);
      Finish(best, where, y, index, (row * p_.out[2] + o2) * p_.c);
    }
  }

  bool max_;
  int64_t count_, row_floats_;  // outputs at a time
};

class Backward final : public PoolKernel {
 public:
  Backward(const Pool& p, bool max, int threads) : PoolKernel(p, threads), max_(max) {
    outer_ = p.in[0] > 1 ? 0 : p.in[1] > 1 ? 1 : 2;
    for (size_t axis = outer_ + 1; axis < 3; ++axis) {
      inner_in_ *= p.in[axis];
      inner_out_ *= p.out[axis];
    }
    band_ = std::clamp<int64_t>(kBandFloats / (inner_in_ * p.c), 1, p.in[outer_]);
    const auto padded = [](int64_t floats) { return CeilDiv(floats, 16) * 16; };
    if (!p.last) {  // planes of dx and dy, outputs with their share
      share_at_ = padded(in_size()) + padded(out_size());
      task_floats_ = share_at_ + padded(p.out[1] * p.out[2]);
    } else if (max) {  // sums of a band, a block of dy
      task_floats_ = padded(band_ * inner_in_ * p.c) + padded(std::max(kBlock, p.c));
    } else {  // a row of sums, a row of dy
      task_floats_ = padded(p.in[2] * p.c) + padded(p.out[2] * p.c);
    }
  }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const auto* index = max_ ? static_cast<const int32_t*>(inputs[1]) : nullptr;
    if (p_.last && max_) {
      const int64_t bands = CeilDiv(p_.in[outer_], band_);
      ForEachItem(workspace, p_.n * bands, [&](int64_t i, float* scratch) {
        MaxBand(inputs[0], index, outputs[0], i / bands, i % bands * band_, scratch);
      });
    } else if (p_.last) {
      ForEachItem(workspace, p_.n * p_.in[0] * p_.in[1], [&](int64_t row, float* scratch) {
        AverageRow(inputs[0], outputs[0], row, scratch);
      });
    } else {
      ForEachItem(workspace, p_.n * p_.c, [&](int64_t plane, float* scratch) {
        Plane(inputs[0], index, outputs[0], plane, scratch);
      });
    }
  }

 private:
  void Plane(const void* dy, const int32_t* index, void* dx, int64_t plane, float* scratch) const {
    float* acc = OutputBlock(p_.y, dx, plane * in_size(), scratch);
    const float* d =
        FloatBlock(p_.a, dy, plane * out_size(), out_size(), scratch + CeilDiv(in_size(), 16) * 16);
    std::fill_n(acc, in_size(), 0.0f);
    if (max_) {
      const int32_t* where = index + plane * out_size();
      for (int64_t o = 0; o < out_size(); ++o) {
        if (where[o] >= 0 && where[o] < in_size()) acc[where[o]] += d[o];
      }
    } else {
      SpreadPlane(d, acc, scratch + share_at_);
    }
    StoreBlock(p_.y, acc, dx, plane * in_size(), in_size());
  }

  /// acc += what each output of dy gives to its window; `share` holds a row or a plane of outputs.
  void SpreadPlane(const float* dy, float* acc, float* share) const {
    const int64_t plane = p_.out[1] * p_.out[2];
    for (int64_t o0 = 0; whole_ && o0 < p_.out[0]; ++o0) {
      vec_.scale(dy + o0 * plane, p_.Share(o0, 0, 0), share, plane);
      ForEachWindowRow(p_, o0, 0, [&](int64_t i01) {
        for (int64_t k = 0; k < p_.kernel[2]; ++k) {
          vec_.add_scatter(share, lanes_.offset.data(), acc + i01 * p_.in[2] + k * p_.dilation[2],
                           plane);
        }
      });
    }
    if (whole_) return;
    for (int64_t row = 0; row < p_.out[0] * p_.out[1]; ++row) {
      const int64_t o0 = row / p_.out[1], o1 = row % p_.out[1];
      for (int64_t o2 = 0; o2 < p_.out[2]; ++o2)
        share[o2] = dy[row * p_.out[2] + o2] * p_.Share(o0, o1, o2);
      ForEachWindowRow(p_, o0, o1, [&](int64_t i01) {
        for (int64_t k = 0; k < p_.kernel[2]; ++k) {
          const auto [first, end] = p_.Inside(2, k);
          float* to = acc + i01 * p_.in[2] + p_.At(2, 0, k);
          for (int64_t o2 = first; o2 < end; ++o2) to[o2 * p_.stride[2]] += share[o2];
        }
      });
    }
  }

  /// Outputs [first, last) whose windows may cover input `at`.
  std::pair<int64_t, int64_t> Covering(size_t axis, int64_t at) const {
    const int64_t low = at + p_.pad[axis] - (p_.kernel[axis] - 1) * p_.dilation[axis];
    const int64_t first = low <= 0 ? 0 : CeilDiv(low, p_.stride[axis]);
    return {first, std::min(p_.out[axis], (at + p_.pad[axis]) / p_.stride[axis] + 1)};
  }
  /// Does a tap of output o fall on input `at`?
  bool Hits(size_t axis, int64_t o, int64_t at) const {
    return (at + p_.pad[axis] - o * p_.stride[axis]) % p_.dilation[axis] == 0;
  }

  /// Positions [first, first + band_) of the outermost axis of one n.
  void MaxBand(const void* dy, const int32_t* index, void* dx, int64_t n, int64_t first,
               float* scratch) const {
    const int64_t end = std::min(first + band_, p_.in[outer_]), c = p_.c;
    const int64_t positions = (end - first) * inner_in_, base = first * inner_in_;
    const int64_t to = (n * in_size() + base) * c;
    float* acc = OutputBlock(p_.y, dx, to, scratch);
    float* buffer = scratch + CeilDiv(band_ * inner_in_ * c, 16) * 16;
    std::fill_n(acc, positions * c, 0.0f);
    const int64_t o_begin = Covering(outer_, first).first * inner_out_,
                  o_end = Covering(outer_, end - 1).second * inner_out_,
                  step = std::max<int64_t>(kBlock / c, 1);
    for (int64_t o = o_begin; o < o_end; o += step) {
      const int64_t outputs = std::min(step, o_end - o), at = (n * out_size() + o) * c;
      const float* d = FloatBlock(p_.a, dy, at, outputs * c, buffer);
      const int32_t* where = index + at;
      for (int64_t i = 0; i < outputs; ++i, d += c, where += c) {
        for (int64_t j = 0; j < c; ++j) {
          const int64_t position = where[j] - base;
          if (position >= 0 && position < positions) acc[position * c + j] += d[j];
        }
      }
    }
    StoreBlock(p_.y, acc, dx, to, positions * c);
  }

  void AverageRow(const void* dy, void* dx, int64_t row, float* scratch) const {
    const int64_t n = row / (p_.in[0] * p_.in[1]), i0 = row / p_.in[1] % p_.in[0],
                  i1 = row % p_.in[1], c = p_.c, out_row = p_.out[2] * c;
    float* acc = OutputBlock(p_.y, dx, row * p_.in[2] * c, scratch);
    float* share = scratch + CeilDiv(p_.in[2] * c, 16) * 16;
    std::fill_n(acc, p_.in[2] * c, 0.0f);
    const auto [first0, end0] = Covering(0, i0);
    const auto [first1, end1] = Covering(1, i1);
    for (int64_t o0 = first0; o0 < end0; ++o0) {
      for (int64_t o1 = first1; o1 < end1; ++o1) {
        if (!Hits(0, o0, i0) || !Hits(1, o1, i1)) continue;
        const int64_t at = ((n * p_.out[0] + o0) * p_.out[1] + o1) * out_row;
        const float* d = FloatBlock(p_.a, dy, at, out_row, share);
        if (p_.IsFull(2)) {
          vec_.scale(d, p_.Share(o0, o1, 0), share, out_row);
        } else {
          for (int64_t o2 = 0; o2 < p_.out[2]; ++o2)
            vec_.scale(d + o2 * c, p_.Share(o0, o1, o2), share + o2 * c, c);
        }
        AddRow(share, acc);
      }
    }
    StoreBlock(p_.y, acc, dx, row * p_.in[2] * c, p_.in[2] * c);
  }

  /// acc += a row of shares along the last axis, each input's outputs in their order.
  void AddRow(const float* share, float* acc) const {
    const int64_t c = p_.c;
    for (int64_t k = p_.kernel[2]; k-- > 0;) {
      const auto [first, end] = p_.Inside(2, k);
      if (first == end) continue;
      float* to = acc + p_.At(2, first, k) * c;
      if (p_.stride[2] == 1) {
        vec_.add_strided(share + first * c, 1, to, (end - first) * c);
      } else if (many_) {
        for (int64_t o2 = first; o2 < end; ++o2, to += p_.stride[2] * c)
          vec_.add_strided(share + o2 * c, 1, to, c);
      } else {
        vec_.add_scatter(share + first * c, lanes_.offset.data(), to, (end - first) * c);
      }
    }
  }

  bool max_;
  // Channels-last: the first axis with more than one position, elements behind it, band.
  size_t outer_ = 2;
  int64_t inner_in_ = 1, inner_out_ = 1, band_ = 1;
  int64_t share_at_ = 0;
};

}  // namespace

std::string DeclinesPoolMax(const CallSpec& call, const PrepareOptions&) {
  if (call.outputs.size() > 1 && call.outputs[1].dtype == DType::kInt64)
    return "indices through the whole tensor";
  if (std::string reason = DeclinesUnlessFloat(call, -1, 1); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}
std::string DeclinesPoolMaxBackward(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call, 1); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}
std::string DeclinesPoolAvg(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}
std::string DeclinesPoolAvgBackward(const CallSpec& call, const PrepareOptions& options) {
  return DeclinesPoolAvg(call, options);
}

PrepareResult PreparePoolMax(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Forward>(
      ReadPool(call, call.inputs[0], call.outputs[0]), true, options.threads));
}
PrepareResult PreparePoolAvg(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Forward>(
      ReadPool(call, call.inputs[0], call.outputs[0]), false, options.threads));
}
PrepareResult PreparePoolMaxBackward(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Backward>(
      ReadPool(call, call.outputs[0], call.inputs[0]), true, options.threads));
}
PrepareResult PreparePoolAvgBackward(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Backward>(
      ReadPool(call, call.outputs[0], call.inputs[0]), false, options.threads));
}

}  // namespace ampc::cpu
