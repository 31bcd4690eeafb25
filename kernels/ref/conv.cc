// SPDX-License-Identifier: Apache-2.0
// conv, conv_bwd_data, conv_bwd_weights: the sums of the definition, each result gathered from what
// it depends on, so that nothing is rounded before the store. Operands are widened to double first.

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/window.h"

namespace ampc::ref {
namespace {

struct ConvPlan {
  Window w;
  ChannelView x, y;  // the forward's input [N,C,s..] and output [N,M,o..]
  int64_t group;
  bool relu;
  TensorDesc a, b, c;  // the call's inputs
  DType result;

  int64_t c_per_group() const { return x.c / group; }
  int64_t m_per_group() const { return y.c / group; }
  /// Position of w[m, c, tap] for c counted within the group.
  int64_t Weight(int64_t m, int64_t c_in_group, int64_t tap) const {
    return (m * c_per_group() + c_in_group) * Window::Volume(w.kernel) + tap;
  }
};

/// The call's inputs in double.
struct ConvInputs {
  ConvInputs(const ConvPlan& p, const void* a_data, const void* b_data, const void* c_data,
             Scratch& scratch)
      : a(scratch.TakeWidened<double>(p.a, a_data)),
        b(scratch.TakeWidened<double>(p.b, b_data)),
        c(p.c.present() ? scratch.TakeWidened<double>(p.c, c_data) : nullptr) {}
  const double* a;
  const double* b;
  const double* c;
};

/// y[n,m,o] = bias[m] + sum over c, tap of x[n,c,o*stride - pad + tap*dilation] * w[m,c,tap].
void RunForward(const ConvPlan& p, const ConvInputs& in, MutableTensor y) {
  const Window& w = p.w;
  for (int64_t n = 0; n < p.y.n; ++n) {
    for (int64_t m = 0; m < p.y.c; ++m) {
      const int64_t first_c = m / p.m_per_group() * p.c_per_group();
      ForEachIndex(w.output, [&](const Axes3& o, int64_t o_flat) {
        double sum = in.c != nullptr ? in.c[m] : 0;
        ForEachIndex(w.kernel, [&](const Axes3& k, int64_t tap) {
          const int64_t s0 = w.At(0, o[0], k[0]), s1 = w.At(1, o[1], k[1]),
                        s2 = w.At(2, o[2], k[2]);
          if (!w.Inside(0, s0) || !w.Inside(1, s1) || !w.Inside(2, s2)) return;
          const int64_t s = Flat(w.input, s0, s1, s2);
          for (int64_t c = 0; c < p.c_per_group(); ++c) {
            sum += in.a[p.x.at(n, first_c + c, s)] * in.b[p.Weight(m, c, tap)];
          }
        });
        y.set(p.y.at(n, m, o_flat), p.relu ? Relu(sum) : sum);
      });
    }
  }
}

/// dx[n,c,s] = bias[c] + sum over m, tap of dy[n,m,o] * w[m,c,tap] where o reads s through the tap.
void RunBackwardData(const ConvPlan& p, const ConvInputs& in, MutableTensor dx) {
  const Window& w = p.w;
  for (int64_t n = 0; n < p.x.n; ++n) {
    for (int64_t c = 0; c < p.x.c; ++c) {
      const int64_t first_m = c / p.c_per_group() * p.m_per_group();
      ForEachIndex(w.input, [&](const Axes3& s, int64_t s_flat) {
        double sum = in.c != nullptr ? in.c[c] : 0;
        ForEachIndex(w.kernel, [&](const Axes3& k, int64_t tap) {
          const int64_t o0 = w.OutputOf(0, s[0], k[0]), o1 = w.OutputOf(1, s[1], k[1]),
                        o2 = w.OutputOf(2, s[2], k[2]);
          if (o0 < 0 || o1 < 0 || o2 < 0) return;
          const int64_t o = Flat(w.output, o0, o1, o2);
          for (int64_t m = first_m; m < first_m + p.m_per_group(); ++m) {
            sum += in.a[p.y.at(n, m, o)] * in.b[p.Weight(m, c % p.c_per_group(), tap)];
          }
        });
        dx.set(p.x.at(n, c, s_flat), sum);
      });
    }
  }
}

/// dw[m,c,tap] = sum over n, o of dy[n,m,o] * x[n,c,o*stride - pad + tap*dilation].
void RunBackwardWeights(const ConvPlan& p, const ConvInputs& in, MutableTensor dw) {
  const Window& w = p.w;
  for (int64_t m = 0; m < p.y.c; ++m) {
    const int64_t first_c = m / p.m_per_group() * p.c_per_group();
    for (int64_t c = 0; c < p.c_per_group(); ++c) {
      ForEachIndex(w.kernel, [&](const Axes3& k, int64_t tap) {
        double sum = 0;
        for (int64_t n = 0; n < p.x.n; ++n) {
          ForEachIndex(w.output, [&](const Axes3& o, int64_t o_flat) {
            const int64_t s0 = w.At(0, o[0], k[0]), s1 = w.At(1, o[1], k[1]),
                          s2 = w.At(2, o[2], k[2]);
            if (!w.Inside(0, s0) || !w.Inside(1, s1) || !w.Inside(2, s2)) return;
            sum += in.b[p.y.at(n, m, o_flat)] *
                   in.a[p.x.at(n, first_c + c, Flat(w.input, s0, s1, s2))];
          });
        }
        dw.set(p.Weight(m, c, tap), sum);
      });
    }
  }
}

/// Checks what the three kernels share. x, y: input and output of the forward convolution; w
/// [M,C/group,k..].
Result<ConvPlan> ReadConv(const CallCheck& check, const Operand& x, const Operand& w,
                          const Operand& y) {
  AMPC_TRY(check.RankBetween(x, 3, 5));
  AMPC_TRY(check.RankBetween(w, x->dims.size(), x->dims.size()));
  AMPC_TRY(check.RankBetween(y, x->dims.size(), x->dims.size()));
  AMPC_TRY(check.RowMajor(w));
  AMPC_TRY(check.SameLayout(x, y));
  const int64_t group = check.params().Int("group", 1);
  const int64_t channels = x->dims[1], filters = w->dims[0];
  if (group < 1 || channels % group != 0 || filters % group != 0) {
    return check.Fail("parameter 'group': {} does not divide {} channels and {} filters", group,
                      channels, filters);
  }
  if (w->dims[1] != channels / group) {
    return check.Fail("{}: expected {} channels per group ({} has {}, {} groups), found {}", w.name,
                      channels / group, x.name, channels, group, w->dims[1]);
  }
  if (y->dims[0] != x->dims[0] || y->dims[1] != filters) {
    return check.Fail("{}: expected batch {} and {} channels, found {}", y.name, x->dims[0],
                      filters, ToString(y->dims));
  }
  AMPC_ASSIGN(Window window, ReadWindow(check, x, y, std::span(w->dims).subspan(2)));
  ConvPlan plan{window, ViewChannels(*x),   ViewChannels(*y), group, false, {}, {},
                {},     check.Out(0)->dtype};
  plan.a = *check.In(0);
  plan.b = *check.In(1);
  plan.c = *check.In(2);
  return plan;
}

Status CheckTypes(const CallCheck& check) {
  for (size_t i = 0; i < 3; ++i) AMPC_TRY(check.Float(check.In(i)));
  return check.Float(check.Out(0));
}

template <void (*kRun)(const ConvPlan&, const ConvInputs&, MutableTensor)>
PrepareResult MakeConv(ConvPlan plan) {
  Scratch size(nullptr);
  ConvInputs(plan, nullptr, nullptr, nullptr, size);
  return MakeKernel(
      [plan = std::move(plan)](const Buffers& run) {
        Scratch scratch(run.workspace);
        kRun(plan, ConvInputs(plan, run.in(0), run.in(1), run.in(2), scratch),
             {plan.result, run.out(0)});
      },
      size.bytes());
}

Status NoPost(const CallCheck& check) {
  if (check.params().String("post").empty()) return {};
  return check.Fail("parameter 'post': the backward kernels have none, found '{}'",
                    check.params().String("post"));
}

}  // namespace

PrepareResult prepare::conv(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x w b?", "y");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckTypes(check));
  AMPC_ASSIGN(ConvPlan plan, ReadConv(check, check.In(0), check.In(1), check.Out(0)));
  AMPC_ASSIGN(plan.relu, ReluPost(check));
  AMPC_TRY(check.Elements(check.In(2), plan.y.c));
  return MakeConv<RunForward>(std::move(plan));
}

PrepareResult prepare::conv_bwd_data(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "dy w b?", "dx");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckTypes(check));
  AMPC_TRY(NoPost(check));
  AMPC_ASSIGN(ConvPlan plan, ReadConv(check, check.Out(0), check.In(1), check.In(0)));
  AMPC_TRY(check.Elements(check.In(2), plan.x.c));
  return MakeConv<RunBackwardData>(std::move(plan));
}

PrepareResult prepare::conv_bwd_weights(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x dy", "dw");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckTypes(check));
  AMPC_TRY(NoPost(check));
  AMPC_ASSIGN(ConvPlan plan, ReadConv(check, check.In(0), check.Out(0), check.In(1)));
  return MakeConv<RunBackwardWeights>(std::move(plan));
}

}  // namespace ampc::ref
