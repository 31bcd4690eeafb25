// SPDX-License-Identifier: Apache-2.0
// pool_max, pool_max_bwd, pool_avg, pool_avg_bwd. Float data accumulates in double; max pooling
// also takes integers. Backward sums into a double copy of dx and rounds once.

#include <algorithm>
#include <limits>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/window.h"

namespace ampc::ref {
namespace {

struct PoolPlan {
  Window w;
  ChannelView x, y;
  DType x_type, y_type;
  bool count_include_pad = false;
  Axes3 counted_end = {1, 1, 1};  // count_include_pad: where the counted padding ends
};

/// f(flat input position) for every tap of output `o` that does not lie in the padding.
template <typename F>
void ForEachTap(const Window& w, const Axes3& o, F f) {
  ForEachIndex(w.kernel, [&](const Axes3& k, int64_t) {
    const int64_t s0 = w.At(0, o[0], k[0]), s1 = w.At(1, o[1], k[1]), s2 = w.At(2, o[2], k[2]);
    if (w.Inside(0, s0) && w.Inside(1, s1) && w.Inside(2, s2)) f(Flat(w.input, s0, s1, s2));
  });
}

/// f(n, c, o, flat o) for every output element.
template <typename F>
void ForEachOutput(const PoolPlan& p, F f) {
  for (int64_t n = 0; n < p.y.n; ++n) {
    for (int64_t c = 0; c < p.y.c; ++c) {
      ForEachIndex(p.w.output, [&](const Axes3& o, int64_t o_flat) { f(n, c, o, o_flat); });
    }
  }
}

/// Where the positions of the maxima go: in their planes (int32), or ONNX's Indices (int64).
struct IndexPlan {
  bool whole = false, column_major = false;
  ChannelView view;

  void Set(void* index, const PoolPlan& p, int64_t n, int64_t c, int64_t o, int64_t s) const {
    if (index == nullptr) return;
    const int64_t to = view.at(n, c, o);
    if (!whole) {
      static_cast<int32_t*>(index)[to] = static_cast<int32_t>(s);
      return;
    }
    const Axes3& d = p.w.input;
    if (column_major) {
      const int64_t s2 = s % d[2], s1 = s / d[2] % d[1], s0 = s / d[2] / d[1];
      s = s0 + d[0] * (s1 + d[1] * s2);
    }
    static_cast<int64_t*>(index)[to] = (n * p.x.c + c) * p.x.s + s;
  }
};

template <typename T>
void RunMax(const PoolPlan& p, ConstTensor x, MutableTensor y, const IndexPlan& to, void* index) {
  using Limits = std::numeric_limits<T>;
  ForEachOutput(p, [&](int64_t n, int64_t c, const Axes3& o, int64_t o_flat) {
    T best = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    int64_t where = -1;  // stays when the window lies in the padding
    ForEachTap(p.w, o, [&](int64_t s) {
      const T v = x.at<T>(p.x.at(n, c, s));
      // The first of equals; a NaN once found stays.
      if (where < 0 || v > best || (v != v && best == best)) {
        best = v;
        where = s;
      }
    });
    y.set(p.y.at(n, c, o_flat), best);
    to.Set(index, p, n, c, o_flat, where);
  });
}

double Divisor(const PoolPlan& p, const Axes3& o) {
  int64_t count = 1;
  for (int axis = 0; axis < 3; ++axis) {
    int64_t taps = 0;
    for (int64_t k = 0; k < p.w.kernel[axis]; ++k) {
      const int64_t at = p.w.At(axis, o[axis], k);
      taps += p.count_include_pad ? at < p.counted_end[axis] : p.w.Inside(axis, at);
    }
    count *= taps;
  }
  return static_cast<double>(std::max<int64_t>(count, 1));
}

void RunAvg(const PoolPlan& p, ConstTensor x, MutableTensor y) {
  ForEachOutput(p, [&](int64_t n, int64_t c, const Axes3& o, int64_t o_flat) {
    double sum = 0;
    ForEachTap(p.w, o, [&](int64_t s) { sum += x.at(p.x.at(n, c, s)); });
    y.set(p.y.at(n, c, o_flat), sum / Divisor(p, o));
  });
}

/// Runs `add(acc)` on a zeroed double copy of dx in the workspace and rounds it into dx.
template <typename F>
void SumIntoInput(const PoolPlan& p, const Buffers& run, F add) {
  const int64_t size = p.x.n * p.x.c * p.x.s;
  double* acc = static_cast<double*>(run.workspace);
  std::fill_n(acc, size, 0.0);
  add(acc);
  StoreRun<double>(p.x_type, run.out(0), 0, 1, size, acc);
}

int64_t InputScratch(const PoolPlan& p) {
  Scratch size(nullptr);
  size.Take<double>(p.x.n * p.x.c * p.x.s);
  return size.bytes();
}

/// Checks what the pools share; x, y: input and output of the forward pool.
Result<PoolPlan> ReadPool(const CallCheck& check, const Operand& x, const Operand& y) {
  AMPC_TRY(check.SameLayout(x, y));
  AMPC_ASSIGN(const Window window, ReadWindow(check, x, y, check.params().Ints("kernel_shape")));
  if (x->dims[0] != y->dims[0] || x->dims[1] != y->dims[1]) {
    return check.Fail("{}: expected batch {} and {} channels, found {}", y.name, x->dims[0],
                      x->dims[1], ToString(y->dims));
  }
  PoolPlan plan{window,   ViewChannels(*x), ViewChannels(*y),
                x->dtype, y->dtype,         check.params().Int("count_include_pad") != 0};
  const size_t n = x->dims.size() - 2;
  const std::vector<int64_t> pads = check.params().Ints("pads", std::vector<int64_t>(2 * n, 0)),
                             overhang = check.params().Ints("overhang", std::vector<int64_t>(n, 0));
  if (overhang.size() != n) {
    return check.Fail("parameter 'overhang': expected {} entries, found {}", n, overhang.size());
  }
  for (size_t i = 0; i < n; ++i) {
    AMPC_TRY(check.InRange("overhang", overhang[i], 0, pads[n + i]));
    plan.counted_end[3 - n + i] = x->dims[2 + i] + pads[n + i] - overhang[i];
  }
  return plan;
}

Status CheckIndex(const CallCheck& check, const Operand& index, const Operand& y,
                  const PoolPlan& plan) {
  AMPC_TRY(check.OfType(index, DType::kInt32));
  AMPC_TRY(check.HasDims(index, y->dims));
  AMPC_TRY(check.SameLayout(y, index));
  if (index->present() && plan.x.s > std::numeric_limits<int32_t>::max()) {
    return check.Fail("{}: a plane of {} elements is too large for int32", index.name, plan.x.s);
  }
  return {};
}

template <typename T>
PrepareResult MakeMax(const PoolPlan& plan, const IndexPlan& to) {
  return MakeKernel([plan, to](const Buffers& run) {
    RunMax<T>(plan, {plan.x_type, run.in(0)}, {plan.y_type, run.out(0)}, to, run.out(1));
  });
}

}  // namespace

PrepareResult prepare::pool_max(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y index?");
  AMPC_TRY(check.Operands());
  AMPC_TRY(check.SameType(check.In(0), check.Out(0)));
  AMPC_ASSIGN(const PoolPlan plan, ReadPool(check, check.In(0), check.Out(0)));
  const Operand index = check.Out(1);
  IndexPlan to;
  if (index->present() && index->dtype == DType::kInt64) {
    AMPC_TRY(check.HasDims(index, check.Out(0)->dims));
    to.whole = true;
    to.column_major = check.params().Int("storage_order") != 0;
  } else {
    AMPC_TRY(CheckIndex(check, index, check.Out(0), plan));
  }
  if (index->present()) to.view = ViewChannels(*index);
  return IsFloat(plan.x_type) ? MakeMax<double>(plan, to) : MakeMax<int64_t>(plan, to);
}

PrepareResult prepare::pool_max_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "dy index", "dx");
  AMPC_TRY(check.Operands());
  AMPC_TRY(check.Float(check.In(0)));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_ASSIGN(const PoolPlan plan, ReadPool(check, check.Out(0), check.In(0)));
  AMPC_TRY(CheckIndex(check, check.In(1), check.In(0), plan));
  const auto body = [plan](const Buffers& run) {
    const ConstTensor dy{plan.y_type, run.in(0)};
    const int32_t* index = static_cast<const int32_t*>(run.in(1));
    SumIntoInput(plan, run, [&](double* acc) {
      ForEachOutput(plan, [&](int64_t n, int64_t c, const Axes3&, int64_t o_flat) {
        const int64_t at = plan.y.at(n, c, o_flat), s = index[at];
        if (s >= 0 && s < plan.x.s) acc[plan.x.at(n, c, s)] += dy.at(at);
      });
    });
  };
  return MakeKernel(body, InputScratch(plan));
}

PrepareResult prepare::pool_avg(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  AMPC_TRY(check.Float(check.In(0)));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_ASSIGN(const PoolPlan plan, ReadPool(check, check.In(0), check.Out(0)));
  return MakeKernel([plan](const Buffers& run) {
    RunAvg(plan, {plan.x_type, run.in(0)}, {plan.y_type, run.out(0)});
  });
}

PrepareResult prepare::pool_avg_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "dy", "dx");
  AMPC_TRY(check.Operands());
  AMPC_TRY(check.Float(check.In(0)));
  AMPC_TRY(check.Float(check.Out(0)));
  AMPC_ASSIGN(const PoolPlan plan, ReadPool(check, check.Out(0), check.In(0)));
  const auto body = [plan](const Buffers& run) {
    const ConstTensor dy{plan.y_type, run.in(0)};
    SumIntoInput(plan, run, [&](double* acc) {
      ForEachOutput(plan, [&](int64_t n, int64_t c, const Axes3& o, int64_t o_flat) {
        const double share = dy.at(plan.y.at(n, c, o_flat)) / Divisor(plan, o);
        ForEachTap(plan.w, o, [&](int64_t s) { acc[plan.x.at(n, c, s)] += share; });
      });
    });
  };
  return MakeKernel(body, InputScratch(plan));
}

}  // namespace ampc::ref
