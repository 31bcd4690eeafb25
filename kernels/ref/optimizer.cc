// SPDX-License-Identifier: Apache-2.0
// unscale_check, clip_norm, sgd, adam: the end of a step, over lists of tensors, with PyTorch's
// formulas.
//
// Every operation rounds in the tensor's acc type (fp32, or double for double tensors), in the
// order in which the formula stands in kernels.def; the build forbids contraction. All scalars are
// read before anything is written, as a one-element tensor may lie where a scalar was. A skipped
// update (found_inf) copies bits.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

/// One operand in a list.
struct ListTensor {
  DType dtype = DType::kNone;
  int64_t elements = 0;
  int64_t bytes() const { return elements * SizeOf(dtype); }
};

ListTensor FormOf(const TensorDesc& d) { return {d.dtype, d.elements()}; }

/// f(T{}) with the acc type of a tensor.
template <typename F>
void VisitAcc(DType t, F f) {
  if (t == DType::kFloat64) {
    f(double{});
  } else {
    f(float{});
  }
}

/// The tensors `like` and `x` at the same place of two lists agree.
Status SameForm(const CallCheck& check, const Operand& like, const Operand& x) {
  if (!x->present()) return check.Fail("{} is missing", x.name);
  AMPC_TRY(check.Float(x));
  if (like->layout != x->layout && like->dims.size() >= 3) AMPC_TRY(check.SameLayout(like, x));
  return check.HasDims(x, like->dims);
}

Status CheckCounts(const CallCheck& check, size_t inputs, size_t outputs) {
  const CallSpec& call = check.call();
  if (call.inputs.size() == inputs && call.outputs.size() == outputs) return {};
  return check.Fail("expected {} inputs and {} outputs, found {} and {}", inputs, outputs,
                    call.inputs.size(), call.outputs.size());
}

Status NumberScalar(const CallCheck& check, const Operand& x) {
  if (!x->present()) return check.Fail("{} is missing", x.name);
  AMPC_TRY(check.Acc(x));
  return check.Scalar(x);
}

Status BoolScalar(const CallCheck& check, const Operand& x) {
  AMPC_TRY(check.OfType(x, DType::kBool));
  if (!x->present()) return check.Fail("{} is missing", x.name);
  return check.Scalar(x);
}

bool IsTrue(const void* flag) { return *static_cast<const uint8_t*>(flag) != 0; }

}  // namespace

PrepareResult prepare::unscale_check(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call);
  AMPC_TRY(check.Operands());
  const size_t n = call.inputs.empty() ? 0 : call.inputs.size() - 1;
  AMPC_TRY(CheckCounts(check, n + 1, n + 2));
  if (check.HasIn(0)) AMPC_TRY(NumberScalar(check, check.In(0)));
  std::vector<std::pair<ListTensor, DType>> tensors;  // g and the type of u
  for (size_t i = 0; i < n; ++i) {
    const Operand g = check.In(1 + i), u = check.Out(i);
    AMPC_TRY(SameForm(check, g, g));
    AMPC_TRY(SameForm(check, g, u));
    AMPC_TRY(check.Acc(u));
    tensors.emplace_back(FormOf(*g), u->dtype);
  }
  AMPC_TRY(BoolScalar(check, check.Out(n)));
  AMPC_TRY(NumberScalar(check, check.Out(n + 1)));
  const DType scale_type = check.In(0)->dtype, norm_type = check.Out(n + 1)->dtype;
  return MakeKernel([=, tensors = std::move(tensors)](const Buffers& run) {
    const double inverse =
        run.in(0) == nullptr ? 1.0 : 1.0 / Load<double>(scale_type, run.in(0), 0);
    bool finite = true;
    double squares = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [g, u_type] = tensors[i];
      VisitAcc(u_type, [&, &g = g](auto acc) {
        using T = decltype(acc);
        const T factor = static_cast<T>(inverse);
        T* u = static_cast<T*>(run.out(i));
        for (int64_t k = 0; k < g.elements; ++k) {
          u[k] = Load<T>(g.dtype, run.in(1 + i), k) * factor;
          finite = finite && std::isfinite(u[k]);
          squares += static_cast<double>(u[k]) * static_cast<double>(u[k]);
        }
      });
    }
    Store<double>(norm_type, run.out(n + 1), 0, std::sqrt(squares));
    finite = finite && std::isfinite(Load<double>(norm_type, run.out(n + 1), 0));
    *static_cast<uint8_t*>(run.out(n)) = finite ? 0 : 1;
  });
}

PrepareResult prepare::clip_norm(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call);
  AMPC_TRY(check.Operands());
  const size_t n = call.outputs.size();
  AMPC_TRY(CheckCounts(check, n + 2, n));
  AMPC_TRY(NumberScalar(check, check.In(0)));
  AMPC_TRY(NumberScalar(check, check.In(1)));
  std::vector<std::pair<ListTensor, DType>> tensors;  // g and the type of c
  for (size_t i = 0; i < n; ++i) {
    const Operand g = check.In(2 + i), c = check.Out(i);
    AMPC_TRY(SameForm(check, g, g));
    AMPC_TRY(SameForm(check, g, c));
    tensors.emplace_back(FormOf(*g), c->dtype);
  }
  const DType norm_type = check.In(0)->dtype, max_type = check.In(1)->dtype;
  return MakeKernel([=, tensors = std::move(tensors)](const Buffers& run) {
    const double norm = Load<double>(norm_type, run.in(0), 0),
                 max_norm = Load<double>(max_type, run.in(1), 0);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& [g, c_type] = tensors[i];
      VisitAcc(g.dtype, [&, &g = g, c = MutableTensor{c_type, run.out(i)}](auto acc) {
        using T = decltype(acc);
        const T ratio = static_cast<T>(max_norm) / (static_cast<T>(norm) + static_cast<T>(1e-6));
        const T factor = expr_internal::Min(T{1}, ratio);  // passes NaN on
        for (int64_t k = 0; k < g.elements; ++k)
          c.set<T>(k, Load<T>(g.dtype, run.in(2 + i), k) * factor);
      });
    }
  });
}

namespace {

/// A multi-tensor update: scalars, then lists of `count` tensors in and out.
struct UpdatePlan {
  size_t scalars = 0, count = 0, lists_in = 0, lists_out = 0;
  std::vector<DType> scalar_types;
  std::vector<ListTensor> tensors;  // [list][tensor] of the inputs

  size_t InputAt(size_t list, size_t i) const { return scalars + list * count + i; }
  const ListTensor& Tensor(size_t list, size_t i) const { return tensors[list * count + i]; }
};

/// Scalars: bool at `flags`, numbers elsewhere. Output list k has the form of input list
/// `output_of[k]`.
Result<UpdatePlan> ReadUpdate(const CallCheck& check, size_t scalars, std::span<const size_t> flags,
                              std::span<const size_t> output_of, size_t lists_in) {
  const int64_t count = check.params().Int("count");
  AMPC_TRY(check.InRange("count", count, 0, int64_t{1} << 31));
  UpdatePlan plan{scalars, static_cast<size_t>(count), lists_in, output_of.size(), {}, {}};
  AMPC_TRY(CheckCounts(check, scalars + lists_in * plan.count, output_of.size() * plan.count));
  for (size_t i = 0; i < scalars; ++i) {
    const bool flag = std::ranges::find(flags, i) != flags.end();
    AMPC_TRY(flag ? BoolScalar(check, check.In(i)) : NumberScalar(check, check.In(i)));
    plan.scalar_types.push_back(check.In(i)->dtype);
  }
  for (size_t list = 0; list < lists_in; ++list) {
    for (size_t i = 0; i < plan.count; ++i) {
      const Operand x = check.In(plan.InputAt(list, i));
      AMPC_TRY(SameForm(check, check.In(plan.InputAt(0, i)), x));
      plan.tensors.push_back(FormOf(*x));
    }
  }
  for (size_t k = 0; k < output_of.size(); ++k) {
    for (size_t i = 0; i < plan.count; ++i) {
      const Operand x = check.In(plan.InputAt(output_of[k], i)), y = check.Out(k * plan.count + i);
      AMPC_TRY(SameForm(check, x, y));
      AMPC_TRY(check.SameType(x, y));
    }
  }
  return plan;
}

/// The scalars as numbers, each rounded to the acc type where it is used.
template <size_t N>
std::array<double, N> ReadScalars(const UpdatePlan& plan, const Buffers& run) {
  std::array<double, N> values;
  for (size_t i = 0; i < N; ++i) values[i] = Load<double>(plan.scalar_types[i], run.in(i), 0);
  return values;
}

/// A skipped update: output list k = input list output_of[k], bit for bit.
void CopyThrough(const UpdatePlan& plan, const Buffers& run, std::span<const size_t> output_of) {
  for (size_t k = 0; k < plan.lists_out; ++k) {
    for (size_t i = 0; i < plan.count; ++i) {
      const ListTensor& x = plan.Tensor(output_of[k], i);
      std::memmove(run.out(k * plan.count + i), run.in(plan.InputAt(output_of[k], i)), x.bytes());
    }
  }
}

constexpr size_t kSgdOutputs[] = {0, 2};      // w, v
constexpr size_t kAdamOutputs[] = {0, 2, 3};  // w, m, v
enum SgdScalar { kFoundInf, kLr, kMomentum, kDampening, kSgdWeightDecay, kFirst, kSgdScalars };

struct SgdOptions {
  bool has_momentum, nesterov, maximize;
};

template <typename T>
void SgdTensor(const UpdatePlan& p, const SgdOptions& options,
               const std::array<double, kSgdScalars>& scalars, size_t i, const Buffers& run) {
  const T lr = static_cast<T>(scalars[kLr]), momentum = static_cast<T>(scalars[kMomentum]);
  const T dampening = static_cast<T>(scalars[kDampening]),
          weight_decay = static_cast<T>(scalars[kSgdWeightDecay]);
  const bool first = scalars[kFirst] != 0;
  const ListTensor& w_form = p.Tensor(0, i);
  const ConstTensor w{w_form.dtype, run.in(p.InputAt(0, i))};
  const ConstTensor g_in{p.Tensor(1, i).dtype, run.in(p.InputAt(1, i))};
  const ConstTensor v_in = options.has_momentum
                               ? ConstTensor{p.Tensor(2, i).dtype, run.in(p.InputAt(2, i))}
                               : ConstTensor{};
  for (int64_t k = 0; k < w_form.elements; ++k) {
    const T w_old = w.at<T>(k);
    T g = g_in.at<T>(k);
    if (options.maximize) g = -g;
    g = g + weight_decay * w_old;
    if (options.has_momentum) {
      const T v = first ? g : momentum * v_in.at<T>(k) + (T{1} - dampening) * g;
      g = options.nesterov ? g + momentum * v : v;
      Store<T>(v_in.dtype, run.out(p.count + i), k, v);
    }
    Store<T>(w.dtype, run.out(i), k, w_old - lr * g);
  }
}

enum AdamScalar {
  kAdamFoundInf,
  kAdamLr,
  kStepSize,
  kBeta1,
  kOneMinusBeta1,
  kBeta2,
  kOneMinusBeta2,
  kBiasCorrection2Sqrt,
  kEps,
  kAdamWeightDecay,
  kAdamScalars
};

template <typename T>
void AdamTensor(const UpdatePlan& p, bool decoupled,
                const std::array<double, kAdamScalars>& scalars, size_t i, const Buffers& run) {
  const auto scalar = [&](AdamScalar s) { return static_cast<T>(scalars[s]); };
  const T lr = scalar(kAdamLr), step_size = scalar(kStepSize),
          weight_decay = scalar(kAdamWeightDecay);
  const T one_minus_beta1 = scalar(kOneMinusBeta1), beta2 = scalar(kBeta2),
          one_minus_beta2 = scalar(kOneMinusBeta2);
  const T bias_correction2_sqrt = scalar(kBiasCorrection2Sqrt), eps = scalar(kEps);
  const ListTensor& w_form = p.Tensor(0, i);
  const auto list = [&](size_t l) {
    return ConstTensor{p.Tensor(l, i).dtype, run.in(p.InputAt(l, i))};
  };
  const ConstTensor w_in = list(0), g_in = list(1), m_in = list(2), v_in = list(3);
  for (int64_t k = 0; k < w_form.elements; ++k) {
    T w = w_in.at<T>(k), g = g_in.at<T>(k), m = m_in.at<T>(k), v = v_in.at<T>(k);
    if (decoupled) {
      w = w * (T{1} - lr * weight_decay);
    } else {
      g = g + weight_decay * w;
    }
    m = m + one_minus_beta1 * (g - m);
    v = beta2 * v + one_minus_beta2 * g * g;
    w = w - step_size * m / (std::sqrt(v) / bias_correction2_sqrt + eps);
    Store<T>(w_in.dtype, run.out(i), k, w);
    Store<T>(m_in.dtype, run.out(p.count + i), k, m);
    Store<T>(v_in.dtype, run.out(2 * p.count + i), k, v);
  }
}

}  // namespace

PrepareResult prepare::sgd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call);
  AMPC_TRY(check.Operands());
  const bool has_momentum =
      call.outputs.size() > static_cast<size_t>(std::max<int64_t>(call.params.Int("count"), 0));
  const SgdOptions options{has_momentum, call.params.Int("nesterov") != 0,
                           call.params.Int("maximize") != 0};
  const auto outputs = std::span(kSgdOutputs).first(has_momentum ? 2 : 1);
  constexpr size_t kFlags[] = {kFoundInf, kFirst};
  AMPC_ASSIGN(UpdatePlan plan,
              ReadUpdate(check, kSgdScalars, kFlags, outputs, has_momentum ? 3 : 2));
  return MakeKernel([=, plan = std::move(plan)](const Buffers& run) {
    if (IsTrue(run.in(kFoundInf))) return CopyThrough(plan, run, outputs);
    const auto scalars = ReadScalars<kSgdScalars>(plan, run);
    for (size_t i = 0; i < plan.count; ++i) {
      VisitAcc(plan.Tensor(0, i).dtype,
               [&](auto acc) { SgdTensor<decltype(acc)>(plan, options, scalars, i, run); });
    }
  });
}

PrepareResult prepare::adam(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call);
  AMPC_TRY(check.Operands());
  const bool decoupled = call.params.Int("decoupled") != 0;
  constexpr size_t kFlags[] = {kAdamFoundInf};
  AMPC_ASSIGN(UpdatePlan plan, ReadUpdate(check, kAdamScalars, kFlags, kAdamOutputs, 4));
  return MakeKernel([=, plan = std::move(plan)](const Buffers& run) {
    if (IsTrue(run.in(kAdamFoundInf))) return CopyThrough(plan, run, kAdamOutputs);
    const auto scalars = ReadScalars<kAdamScalars>(plan, run);
    for (size_t i = 0; i < plan.count; ++i) {
      VisitAcc(plan.Tensor(0, i).dtype,
               [&](auto acc) { AdamTensor<decltype(acc)>(plan, decoupled, scalars, i, run); });
    }
  });
}

}  // namespace ampc::ref
