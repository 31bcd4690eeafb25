// SPDX-License-Identifier: Apache-2.0
// Max and average pooling over one to three axes, and their gradients.
//
// The lanes of a vector are the outputs of one row (row-major data: x strided by the window's
// stride) or the channels (channels-last). Forward: a task is a plane, or an (n, output row).
// Backward: row-major planes are summed by one task each, output by output; channels-last gathers
// each input position from the windows that cover it. Either way one thread makes a sum, in an
// order that depends on shapes alone.

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

/// Spatial axes, leading ones of length 1.
using Axes3 = std::array<int64_t, 3>;

struct Pool {
  int64_t n, c;
  Axes3 in, out, kernel, stride, dilation, pad;
  bool last;  // channels-last
  bool count_include_pad;
  DType a, y;                                // the call's first input and first output
  std::array<std::vector<int64_t>, 3> taps;  // per axis and output: taps inside the input

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
  float Share(int64_t o0, int64_t o1, int64_t o2) const {
    const int64_t count =
        count_include_pad ? Volume(kernel) : taps[0][o0] * taps[1][o1] * taps[2][o2];
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
         call.params.Int("count_include_pad") != 0,
         call.inputs[0].dtype,
         call.outputs[0].dtype,
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
  for (size_t axis = 0; axis < 3; ++axis) {
    for (int64_t o = 0; o < p.out[axis]; ++o) {
      int64_t inside = 0;
      for (int64_t k = 0; k < p.kernel[axis]; ++k)
        inside += p.IsInside(axis, p.At(axis, o, k)) ? 1 : 0;
      p.taps[axis].push_back(inside);
    }
  }
  return p;
}

/// f(tap along axis 0, along axis 1, input position along 0, along 1) for the window rows of output
/// (o0, o1).
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
        threads_(ThreadsFor(threads, p.n * p.c * (Pool::Volume(p.in) + Pool::Volume(p.out)) * 4)) {}

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
  int64_t task_floats_ = 0;
};

/// Max or average, forward.
class Forward final : public PoolKernel {
 public:
  Forward(const Pool& p, bool max, int threads) : PoolKernel(p, threads), max_(max) {
    // Row-major: a plane of x and a row of outputs with its positions. Channels-last: C values,
    // theirs, and x's.
    lanes_ = p.last ? p.c : p.out[2];
    row_floats_ = CeilDiv(lanes_, 16) * 16;
    task_floats_ = 2 * row_floats_ + (p.last       ? row_floats_
                                      : IsLow(p.a) ? CeilDiv(in_size(), 16) * 16
                                                   : 0);
  }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    auto* index = max_ && outputs.size() > 1 ? static_cast<int32_t*>(outputs[1]) : nullptr;
    if (p_.last) {
      ForEachItem(workspace, p_.n * p_.out[0] * p_.out[1], [&](int64_t row, float* scratch) {
        ChannelsLastRow(inputs[0], outputs[0], index, row, scratch);
      });
    } else {
      ForEachItem(workspace, p_.n * p_.c, [&](int64_t plane, float* scratch) {
        Plane(inputs[0], outputs[0], index, plane, scratch);
      });
    }
  }

 private:
  void Start(float* best, int32_t* where) const {
    std::fill_n(best, lanes_, max_ ? -INFINITY : 0.0f);
    std::fill_n(where, lanes_, -1);
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
      const int64_t to = plane * out_size() + row * p_.out[2];
      Narrow(p_.y, best, Offset(y, to * SizeOf(p_.y)), lanes_);
      if (index != nullptr) std::memcpy(index + to, where, static_cast<size_t>(lanes_) * 4);
    }
  }

  void ChannelsLastRow(const void* x, void* y, int32_t* index, int64_t row, float* scratch) const {
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
      const int64_t to = (row * p_.out[2] + o2) * p_.c;
      Narrow(p_.y, best, Offset(y, to * SizeOf(p_.y)), p_.c);
      if (index != nullptr) std::memcpy(index + to, where, static_cast<size_t>(p_.c) * 4);
    }
  }

  bool max_;
  int64_t lanes_, row_floats_;
};

class Backward final : public PoolKernel {
 public:
  Backward(const Pool& p, bool max, int threads) : PoolKernel(p, threads), max_(max) {
    // Row-major: planes of dx and dy, a row of outputs. Channels-last: C sums and a widened row of
    // dy.
    task_floats_ =
        p.last ? 2 * CeilDiv(p.c, 16) * 16
               : (CeilDiv(in_size(), 16) + CeilDiv(out_size(), 16) + CeilDiv(p.out[2], 16)) * 16;
  }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const auto* index = max_ ? static_cast<const int32_t*>(inputs[1]) : nullptr;
    if (p_.last) {
      ForEachItem(workspace, p_.n * p_.in[0] * p_.in[1], [&](int64_t row, float* scratch) {
        ChannelsLastRow(inputs[0], index, outputs[0], row, scratch);
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
      SpreadPlane(d, acc, scratch + (CeilDiv(in_size(), 16) + CeilDiv(out_size(), 16)) * 16);
    }
    StoreBlock(p_.y, acc, dx, plane * in_size(), in_size());
  }

  /// acc += what each output of dy gives to its window; `share` holds a row of outputs.
  void SpreadPlane(const float* dy, float* acc, float* share) const {
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

  void ChannelsLastRow(const void* dy, const int32_t* index, void* dx, int64_t row,
                       float* scratch) const {
    float *acc = scratch, *buffer = scratch + CeilDiv(p_.c, 16) * 16;
    const int64_t n = row / (p_.in[0] * p_.in[1]), i0 = row / p_.in[1] % p_.in[0],
                  i1 = row % p_.in[1];
    const auto [first0, end0] = Covering(0, i0);
    const auto [first1, end1] = Covering(1, i1);
    for (int64_t i2 = 0; i2 < p_.in[2]; ++i2) {
      const auto [first2, end2] = Covering(2, i2);
      std::fill_n(acc, p_.c, 0.0f);
      for (int64_t o0 = first0; o0 < end0; ++o0) {
        for (int64_t o1 = first1; o1 < end1; ++o1) {
          for (int64_t o2 = first2; o2 < end2; ++o2) {
            if (!Hits(0, o0, i0) || !Hits(1, o1, i1) || !Hits(2, o2, i2)) continue;
            const int64_t at = (((n * p_.out[0] + o0) * p_.out[1] + o1) * p_.out[2] + o2) * p_.c;
            const float* d = FloatBlock(p_.a, dy, at, p_.c, buffer);
            if (max_) {
              vec_.add_where(d, index + at,
                             static_cast<int32_t>((i0 * p_.in[1] + i1) * p_.in[2] + i2), acc, p_.c);
            } else {
              vec_.add_scaled(d, p_.Share(o0, o1, o2), acc, p_.c);
            }
          }
        }
      }
      Narrow(p_.y, acc, Offset(dx, (row * p_.in[2] + i2) * p_.c * SizeOf(p_.y)), p_.c);
    }
  }

  bool max_;
};

}  // namespace

std::string DeclinesPoolMax(const CallSpec& call, const PrepareOptions&) {
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
