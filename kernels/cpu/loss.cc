// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy, nll_loss, their backward forms and topk_correct over fp32, fp16 and bf16
// scores.
//
// Scores are [N, C, S]. With S == 1 a sample is a row; else a task takes a tile of S positions of
// one n and lets the classes pass by. Per-sample losses and weights go to the workspace in double
// and are added in sample order, so the result does not depend on threads. What is read of a sample
// is read before its log-probabilities (or gradients) are written over it.

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

constexpr int64_t kColumns = 256;
constexpr int64_t kExpCost = 16;

enum class Reduction { kMean, kSum, kNone };

struct Loss {
  int64_t n, c, s;
  Reduction reduction;
  std::optional<int64_t> ignore_index;
  double smoothing;
  std::vector<DType> in, out;  // kNone where absent

  int64_t samples() const { return n * s; }
  int64_t tiles() const { return CeilDiv(s, kColumns); }
  /// Position of class k of the sample at (n, s).
  int64_t At(int64_t in_n, int64_t k, int64_t in_s) const { return (in_n * c + k) * s + in_s; }
  int64_t Raw(DType t, const void* labels, int64_t i) const {
    return t == DType::kInt64 ? static_cast<const int64_t*>(labels)[i]
                              : static_cast<const int32_t*>(labels)[i];
  }
  /// The class of a sample, -1 when it is ignored. One out of range is reported and taken as 0.
  int64_t Label(DType t, const void* labels, int64_t i, const RunContext& context) const {
    const int64_t label = Raw(t, labels, i);
    if (label == ignore_index) return -1;
    if (label >= 0 && label < c) return label;
    ReportIndexError(context, i);
    return 0;
  }
};

Loss ReadLoss(const CallSpec& call, const TensorDesc& scores) {
  Loss p{scores.dims[0],
         scores.dims[1],
         NumElements(std::span(scores.dims).subspan(2)),
         Reduction::kMean,
         {},
         call.params.Float("label_smoothing"),
         {},
         {}};
  const std::string_view reduction = call.params.String("reduction", "mean");
  p.reduction = reduction == "mean"  ? Reduction::kMean
                : reduction == "sum" ? Reduction::kSum
                                     : Reduction::kNone;
  if (call.params.Int("has_ignore_index") != 0) p.ignore_index = call.params.Int("ignore_index");
  for (size_t i = 0; i < 5; ++i) {
    p.in.push_back(i < call.inputs.size() ? call.inputs[i].dtype : DType::kNone);
    p.out.push_back(i < call.outputs.size() ? call.outputs[i].dtype : DType::kNone);
  }
  return p;
}

/// Operand i of a run; null when absent or left out.
template <typename T>
T* Get(std::span<T* const> operands, size_t i) {
  return i < operands.size() ? operands[i] : nullptr;
}

/// Class weights as floats: the operand itself, widened into `buffer`, or null for ones.
const float* Weights(DType t, const void* data, int64_t c, float* buffer) {
  if (t == DType::kNone || data == nullptr) return nullptr;
  if (t == DType::kFloat32) return static_cast<const float*>(data);
  Widen(t, data, buffer, c);
  return buffer;
}
double WeightOf(const float* weights, int64_t c) {
  return weights == nullptr ? 1.0 : static_cast<double>(weights[c]);
}

/// Sums (or stores) the samples' losses; values and weights are [samples] doubles.
void Reduce(const Loss& p, const double* values, const double* weights, DType loss_type, void* loss,
            DType total_type, void* total) {
  double sum = 0, weight = 0;
  for (int64_t i = 0; i < p.samples(); ++i) {
    if (p.reduction == Reduction::kNone)
      StoreFloat(loss_type, loss, i, static_cast<float>(values[i]));
    sum += values[i];
    weight += weights[i];
  }
  if (p.reduction == Reduction::kSum) StoreFloat(loss_type, loss, 0, static_cast<float>(sum));
  if (p.reduction == Reduction::kMean) {
    StoreFloat(loss_type, loss, 0, weight == 0 ? 0.0f : static_cast<float>(sum / weight));
  }
  if (total != nullptr) StoreFloat(total_type, total, 0, static_cast<float>(weight));
}

class CrossEntropy final : public PreparedKernel {
 public:
  CrossEntropy(Loss loss, int threads)
      : p_(std::move(loss)),
        vec_(Vec()),
        threads_(ThreadsFor(threads, p_.samples() * p_.c * kExpCost)) {
    values_ = plan_.Take(p_.samples() * 8);
    weights_ = plan_.Take(p_.samples() * 8);
    if (IsLow(p_.in[2])) wide_ = plan_.Take(p_.c * 4);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext& context) noexcept override {
    Operands run{inputs[0],
                 inputs[1],
                 Weights(p_.in[2], Get(inputs, 2), p_.c, At<float>(workspace, wide_)),
                 Get(outputs, 1),
                 At<double>(workspace, values_),
                 At<double>(workspace, weights_),
                 context};
    ParallelRanges(threads_, p_.n * p_.tiles(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        if (p_.s == 1) {
          Row(run, task);
        } else {
          Columns(run, task / p_.tiles(), task % p_.tiles() * kColumns);
        }
      }
    });
    Reduce(p_, run.values, run.sample_weights, p_.out[0], outputs[0], p_.out[2], Get(outputs, 2));
  }

 private:
  struct Operands {
    const void* scores;
    const void* labels;
    const float* weights;
    void* log_prob;
    double* values;
    double* sample_weights;
    const RunContext& context;
  };

  /// Loss and weight of a sample whose label has log-probability `picked`.
  void Finish(const Operands& run, int64_t sample, int64_t label, double picked,
              double smooth) const {
    const double weight = label < 0 ? 0 : WeightOf(run.weights, label);
    double loss = label < 0 ? 0 : -(1 - p_.smoothing) * weight * picked;
    if (label >= 0 && p_.smoothing != 0) loss -= p_.smoothing / static_cast<double>(p_.c) * smooth;
    run.values[sample] = loss;
    run.sample_weights[sample] = weight;
  }

  void Row(const Operands& run, int64_t sample) const {
    float in[kBlock], out[kBlock];
    const int64_t first = sample * p_.c;
    const DType t = p_.in[0];
    float max = -INFINITY;
    for (int64_t i = 0; i < p_.c; i += kBlock) {
      const int64_t n = std::min(kBlock, p_.c - i);
      const float m = vec_.row_reduce[static_cast<int>(RowOp::kMax)](
          FloatBlock(t, run.scores, first + i, n, in), n);
      max = m > max || m != m ? m : max;
    }
    double sum = 0;
    for (int64_t i = 0; i < p_.c; i += kBlock) {
      const int64_t n = std::min(kBlock, p_.c - i);
      sum += static_cast<double>(vec_.sum_exp(FloatBlock(t, run.scores, first + i, n, in), max, n));
    }
    const double log_sum = std::log(sum);
    const int64_t label = p_.Label(p_.in[1], run.labels, sample, run.context);
    const double score =
        static_cast<double>(LoadFloat(t, run.scores, first + std::max<int64_t>(label, 0)));
    const double picked = score - static_cast<double>(max) - log_sum;
    double smooth = 0;
    if (run.log_prob != nullptr || p_.smoothing != 0) {
      for (int64_t i = 0; i < p_.c; i += kBlock) {
        const int64_t n = std::min(kBlock, p_.c - i);
        const float* block = FloatBlock(t, run.scores, first + i, n, in);
        float* log_prob =
            run.log_prob == nullptr ? out : OutputBlock(p_.out[1], run.log_prob, first + i, out);
        vec_.subtract(block, max, static_cast<float>(log_sum), log_prob, n);
        if (p_.smoothing != 0) {
          smooth += static_cast<double>(
              run.weights == nullptr ? vec_.row_reduce[static_cast<int>(RowOp::kSum)](log_prob, n)
                                     : vec_.dot(log_prob, run.weights + i, n));
        }
        if (run.log_prob != nullptr) StoreBlock(p_.out[1], log_prob, run.log_prob, first + i, n);
      }
    }
    Finish(run, sample, label, picked, smooth);
  }

  void Columns(const Operands& run, int64_t n, int64_t column) const {
    float in[kColumns], out[kColumns], max[kColumns], sum[kColumns];
    double picked[kColumns], smooth[kColumns];
    const int64_t cols = std::min(kColumns, p_.s - column), first = n * p_.s + column;
    const auto row = [&](int64_t k) {
      return FloatBlock(p_.in[0], run.scores, p_.At(n, k, column), cols, in);
    };
    std::fill_n(max, cols, -INFINITY);
    std::fill_n(sum, cols, 0.0f);
    std::fill_n(smooth, cols, 0.0);
    for (int64_t k = 0; k < p_.c; ++k)
      vec_.column_reduce[static_cast<int>(RowOp::kMax)](row(k), 1, cols, cols, max);
    for (int64_t k = 0; k < p_.c; ++k) vec_.sum_exp_columns(row(k), max, sum, cols);
    for (int64_t j = 0; j < cols; ++j) {
      const double log_sum = std::log(static_cast<double>(sum[j]));
      sum[j] = static_cast<float>(log_sum);
      const int64_t raw = p_.Raw(p_.in[1], run.labels, first + j),
                    label = raw >= 0 && raw < p_.c ? raw : 0;
      const double score =
          static_cast<double>(LoadFloat(p_.in[0], run.scores, p_.At(n, label, column + j)));
      picked[j] = score - static_cast<double>(max[j]) - log_sum;
    }
    if (run.log_prob != nullptr || p_.smoothing != 0) {
      for (int64_t k = 0; k < p_.c; ++k) {
        const int64_t at = p_.At(n, k, column);
        float* log_prob =
            run.log_prob == nullptr ? out : OutputBlock(p_.out[1], run.log_prob, at, out);
        vec_.log_softmax_columns(row(k), max, sum, log_prob, cols);
        const double weight = WeightOf(run.weights, k);
        if (p_.smoothing != 0) {
          for (int64_t j = 0; j < cols; ++j) smooth[j] += weight * static_cast<double>(log_prob[j]);
        }
        if (run.log_prob != nullptr) StoreBlock(p_.out[1], log_prob, run.log_prob, at, cols);
      }
    }
    for (int64_t j = 0; j < cols; ++j) {
      Finish(run, first + j, p_.Label(p_.in[1], run.labels, first + j, run.context), picked[j],
             smooth[j]);
    }
  }

  Loss p_;
  const VecOps& vec_;
  int threads_;
  WorkspacePlan plan_;
  int64_t values_, weights_, wide_ = 0;
};

/// The gradient of the result with respect to one sample's loss.
double SampleGradient(const Loss& p, DType dloss_type, const void* dloss, DType total_type,
                      const void* total, int64_t sample) {
  const auto load = [](DType t, const void* data, int64_t i) {
    return static_cast<double>(LoadFloat(t, data, i));
  };
  if (p.reduction == Reduction::kNone) return load(dloss_type, dloss, sample);
  if (p.reduction == Reduction::kSum) return load(dloss_type, dloss, 0);
  const double weight = load(total_type, total, 0);
  return weight == 0 ? 0.0 : load(dloss_type, dloss, 0) / weight;
}

/// dscores[k] = g * ((1 - e) * w_label * (p_k - [k == label]) + e/C * (W * p_k - w_k)), W the sum
/// of all weights: p_k * a - w_k * b for every class, and the label's own element apart.
class CrossEntropyBackward final : public PreparedKernel {
 public:
  CrossEntropyBackward(Loss loss, int threads)
      : p_(std::move(loss)),
        vec_(Vec()),
        threads_(ThreadsFor(threads, p_.samples() * p_.c * kExpCost)) {
    if (IsLow(p_.in[3])) wide_ = plan_.Take(p_.c * 4);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext& context) noexcept override {
    const float* weights = Weights(p_.in[3], Get(inputs, 3), p_.c, At<float>(workspace, wide_));
    double all = static_cast<double>(p_.c);
    if (weights != nullptr) {
      all = 0;
      for (int64_t k = 0; k < p_.c; ++k) all += static_cast<double>(weights[k]);
    }
    const Operands run{inputs, outputs[0], weights, all, context};
    ParallelRanges(threads_, p_.n * p_.tiles(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        if (p_.s == 1) {
          Row(run, task);
        } else {
          Columns(run, task / p_.tiles(), task % p_.tiles() * kColumns);
        }
      }
    });
  }

 private:
  struct Operands {
    std::span<const void* const> inputs;
    void* dscores;
    const float* weights;
    double all_weights;
    const RunContext& context;
  };
  struct Factors {
    int64_t label = -1;
    double gradient = 0, a = 0, b = 0, own = 0;
  };

  Factors Prepare(const Operands& run, int64_t sample, int64_t n, int64_t s) const {
    Factors f;
    f.label = p_.Label(p_.in[2], run.inputs[2], sample, run.context);
    if (f.label < 0) return f;
    f.gradient = SampleGradient(p_, p_.in[0], run.inputs[0], p_.in[4], Get(run.inputs, 4), sample);
    const double spread = p_.smoothing / static_cast<double>(p_.c),
                 weight = WeightOf(run.weights, f.label);
    f.a = f.gradient * ((1 - p_.smoothing) * weight + spread * run.all_weights);
    f.b = f.gradient * spread;
    const double prob =
        std::exp(static_cast<double>(LoadFloat(p_.in[1], run.inputs[1], p_.At(n, f.label, s))));
    f.own = f.gradient *
            ((1 - p_.smoothing) * weight * (prob - 1) + spread * (run.all_weights * prob - weight));
    return f;
  }

  void Row(const Operands& run, int64_t sample) const {
    float in[kBlock], out[kBlock];
    const Factors f = Prepare(run, sample, sample, 0);
    const int64_t first = sample * p_.c;
    for (int64_t i = 0; i < p_.c; i += kBlock) {
      const int64_t n = std::min(kBlock, p_.c - i);
      float* block = OutputBlock(p_.out[0], run.dscores, first + i, out);
      if (f.label < 0) {
        std::fill_n(block, n, 0.0f);
      } else {
        vec_.exp_scale(FloatBlock(p_.in[1], run.inputs[1], first + i, n, in),
                       static_cast<float>(f.a),
                       f.b == 0 || run.weights == nullptr ? nullptr : run.weights + i,
                       static_cast<float>(f.b), block, n);
      }
      StoreBlock(p_.out[0], block, run.dscores, first + i, n);
    }
    if (f.label >= 0)
      StoreFloat(p_.out[0], run.dscores, first + f.label, static_cast<float>(f.own));
  }

  void Columns(const Operands& run, int64_t n, int64_t column) const {
    float in[kColumns], out[kColumns], zero[kColumns] = {}, a[kColumns];
    Factors factors[kColumns];
    const int64_t cols = std::min(kColumns, p_.s - column);
    for (int64_t j = 0; j < cols; ++j) {
      factors[j] = Prepare(run, n * p_.s + column + j, n, column + j);
      a[j] = static_cast<float>(factors[j].a);
    }
    for (int64_t k = 0; k < p_.c; ++k) {
      const int64_t at = p_.At(n, k, column);
      float* block = OutputBlock(p_.out[0], run.dscores, at, out);
      const float* log_prob = FloatBlock(p_.in[1], run.inputs[1], at, cols, in);
      vec_.softmax_columns(log_prob, zero, a, block, cols);  // exp(log_prob - 0) * a
      const double weight = WeightOf(run.weights, k);
      for (int64_t j = 0; j < cols; ++j) {
        const Factors& f = factors[j];
        if (f.b != 0) block[j] -= static_cast<float>(weight * f.b);
        if (f.label == k) block[j] = static_cast<float>(f.own);
        if (f.label < 0) block[j] = 0;
      }
      StoreBlock(p_.out[0], block, run.dscores, at, cols);
    }
  }

  Loss p_;
  const VecOps& vec_;
  int threads_;
  WorkspacePlan plan_;
  int64_t wide_ = 0;
};

class Nll final : public PreparedKernel {
 public:
  explicit Nll(Loss loss) : p_(std::move(loss)) {
    values_ = plan_.Take(p_.samples() * 8);
    weights_ = plan_.Take(p_.samples() * 8);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext& context) noexcept override {
    double* values = At<double>(workspace, values_);
    double* weights = At<double>(workspace, weights_);
    const void* class_weights = Get(inputs, 2);
    for (int64_t i = 0; i < p_.samples(); ++i) {
      const int64_t label = p_.Label(p_.in[1], inputs[1], i, context);
      const double weight = label < 0 ? 0.0
                            : class_weights == nullptr
                                ? 1.0
                                : static_cast<double>(LoadFloat(p_.in[2], class_weights, label));
      weights[i] = weight;
      values[i] = 0;
      if (label < 0) continue;
      values[i] = -weight * static_cast<double>(
                                LoadFloat(p_.in[0], inputs[0], p_.At(i / p_.s, label, i % p_.s)));
    }
    Reduce(p_, values, weights, p_.out[0], outputs[0], p_.out[1], Get(outputs, 1));
  }

 private:
  Loss p_;
  WorkspacePlan plan_;
  int64_t values_, weights_;
};

class NllBackward final : public PreparedKernel {
 public:
  explicit NllBackward(Loss loss) : p_(std::move(loss)) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    std::memset(outputs[0], 0, static_cast<size_t>(p_.samples() * p_.c * SizeOf(p_.out[0])));
    const void* class_weights = Get(inputs, 2);
    for (int64_t i = 0; i < p_.samples(); ++i) {
      const int64_t label = p_.Label(p_.in[1], inputs[1], i, context);
      if (label < 0) continue;
      const double weight = class_weights == nullptr
                                ? 1.0
                                : static_cast<double>(LoadFloat(p_.in[2], class_weights, label));
      const double d =
          -weight * SampleGradient(p_, p_.in[0], inputs[0], p_.in[3], Get(inputs, 3), i);
      StoreFloat(p_.out[0], outputs[0], p_.At(i / p_.s, label, i % p_.s), static_cast<float>(d));
    }
  }

 private:
  Loss p_;
};

class TopK final : public PreparedKernel {
 public:
  TopK(const CallSpec& call, int threads)
      : p_(ReadLoss(call, call.inputs[0])),
        k_(call.params.Int("k", 1)),
        vec_(Vec()),
        threads_(ThreadsFor(threads, call.inputs[0].bytes())) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    ParallelRanges(threads_, p_.n, 1, [&](int64_t begin, int64_t end) {
      float buffer[kBlock];
      for (int64_t sample = begin; sample < end; ++sample) {
        const int64_t label = p_.Raw(p_.in[1], inputs[1], sample), first = sample * p_.c;
        bool hit =
            label >= 0 && label < p_.c;  // one outside is an ignored one here: the loss reports it
        if (hit) {
          const float own = LoadFloat(p_.in[0], inputs[0], first + label);
          int64_t better = 0;
          for (int64_t i = 0; i < p_.c; i += kBlock) {
            const int64_t n = std::min(kBlock, p_.c - i);
            better += vec_.count_better(FloatBlock(p_.in[0], inputs[0], first + i, n, buffer), own,
                                        label - i, n);
          }
          hit = own == own && better < k_;
        }
        StoreFloat(p_.out[0], outputs[0], sample, hit ? 1.0f : 0.0f);
      }
    });
  }

 private:
  Loss p_;
  int64_t k_;
  const VecOps& vec_;
  int threads_;
};

std::string DeclinesLoss(const CallSpec& call, int labels) {
  if (std::string reason = DeclinesUnlessFloat(call, labels); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}

}  // namespace

std::string DeclinesCrossEntropy(const CallSpec& call, const PrepareOptions&) {
  return DeclinesLoss(call, 1);
}
std::string DeclinesCrossEntropyBackward(const CallSpec& call, const PrepareOptions&) {
  return DeclinesLoss(call, 2);
}
std::string DeclinesNll(const CallSpec& call, const PrepareOptions&) {
  return DeclinesLoss(call, 1);
}
std::string DeclinesNllBackward(const CallSpec& call, const PrepareOptions&) {
  return DeclinesLoss(call, 1);
}
std::string DeclinesTopK(const CallSpec& call, const PrepareOptions&) {
  if (call.inputs[0].dims.size() > 2) return "scores have axes behind the classes";
  return DeclinesLoss(call, 1);
}

PrepareResult PrepareCrossEntropy(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<CrossEntropy>(ReadLoss(call, call.inputs[0]), options.threads));
}
PrepareResult PrepareCrossEntropyBackward(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<CrossEntropyBackward>(ReadLoss(call, call.inputs[1]), options.threads));
}
PrepareResult PrepareNll(const CallSpec& call, const PrepareOptions&) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Nll>(ReadLoss(call, call.inputs[0])));
}
PrepareResult PrepareNllBackward(const CallSpec& call, const PrepareOptions&) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<NllBackward>(ReadLoss(call, call.outputs[0])));
}
PrepareResult PrepareTopK(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<TopK>(call, options.threads));
}

}  // namespace ampc::cpu
