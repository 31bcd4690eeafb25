// SPDX-License-Identifier: Apache-2.0
// layer_norm and layer_norm_bwd of fp32, fp16 and bf16 data.
//
// A task is a range of rows; a row's blocks stay in the cache between its sums and its results.
// With one scale per element (layer normalization) the inner loops read the scales along with the
// row; with one scale per `inner` elements (group, instance) they run over stretches of one scale.
// Gradients of the scales: each task adds its rows in fp32, 32 at a time, into sums in double; the
// tasks, whose number depends on the shape alone, are joined in their order.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/common.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/moments.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

/// Rows whose contributions to the scales are added in fp32.
constexpr int64_t kRowsInFloat = 32;
constexpr int64_t kMaxTasks = 16;

struct Rows {
  int64_t rows, length, groups, inner;
  bool rms;

  bool per_element() const { return inner == 1; }
  int64_t per_row() const { return length / inner; }
  int64_t params() const { return groups * per_row(); }
  int64_t elements() const { return rows * length; }
  /// The first scale of a row.
  int64_t first_param(int64_t row) const { return row % groups * per_row(); }
};

Rows RowsOf(const CallSpec& call) {
  const int64_t length = call.params.Int("length");
  return {call.inputs[0].elements() / length, length, call.params.Int("groups", 1),
          call.params.Int("inner", 1), call.params.Int("rms") != 0};
}

/// f(first element of the block within the row, its length, its scale) over a row; a block lies
/// within what one scale covers, unless every element has its own.
template <typename F>
void ForEachBlock(const Rows& p, F f) {
  const int64_t stretch = p.per_element() ? p.length : p.inner;
  for (int64_t first = 0; first < p.length; first += stretch) {
    for (int64_t i = first; i < first + stretch; i += kBlock)
      f(i, std::min(kBlock, first + stretch - i), p.per_element() ? i : i / p.inner);
  }
}

/// A few numbers per call in any float dtype as floats.
const float* Parameters(DType t, const void* data, int64_t n, float* buffer) {
  return data == nullptr ? nullptr : FloatBlock(t, data, 0, n, buffer);
}

DType TypeAt(const std::vector<TensorDesc>& list, size_t i) {
  return i < list.size() ? list[i].dtype : DType::kNone;
}
template <typename T>
T* OperandAt(std::span<T* const> list, size_t i) {
  return i < list.size() ? list[i] : nullptr;
}

class Forward final : public PreparedKernel {
 public:
  Forward(const CallSpec& call, const PrepareOptions& options)
      : p_(RowsOf(call)),
        vec_(Vec()),
        threads_(ThreadsFor(options.threads, p_.elements() * 8)),
        x_type_(call.inputs[0].dtype),
        y_type_(TypeAt(call.outputs, 0)),
        param_type_(call.inputs[1].dtype),
        epsilon_(call.params.Float("epsilon")) {
    scale_at_ = plan_.Take(p_.params() * 4);
    bias_at_ = plan_.Take(p_.params() * 4);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const float* scale =
        Parameters(param_type_, inputs[1], p_.params(), At<float>(workspace, scale_at_));
    const float* bias =
        Parameters(param_type_, OperandAt(inputs, 2), p_.params(), At<float>(workspace, bias_at_));
    void* y = OperandAt(outputs, 0);
    auto* inv_std = static_cast<float*>(OperandAt(outputs, 1));
    auto* means = static_cast<float*>(OperandAt(outputs, 2));
    ParallelRanges(threads_, p_.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Moments m = Statistics(inputs[0], row);
        const double inv = 1 / std::sqrt(m.m2 / m.count + epsilon_);
        if (inv_std != nullptr) inv_std[row] = static_cast<float>(inv);
        if (means != nullptr) means[row] = static_cast<float>(m.mean);
        if (y != nullptr) Apply(inputs[0], row, m.mean, inv, scale, bias, y);
      }
    });
  }

 private:
  Moments Statistics(const void* x, int64_t row) const {
    Moments m;
    float buffer[kBlock];
    for (int64_t i = 0; i < p_.length; i += kBlock) {
      const int64_t n = std::min(kBlock, p_.length - i);
      const float* block = FloatBlock(x_type_, x, row * p_.length + i, n, buffer);
      if (!p_.rms) {
        m.JoinBlock(vec_, block, n);
        continue;
      }
      m.count += static_cast<double>(n);
      m.m2 += static_cast<double>(vec_.row_reduce[static_cast<int>(RowOp::kSumSquare)](block, n));
    }
    return m;
  }

  void Apply(const void* x, int64_t row, double mean, double inv, const float* scale,
             const float* bias, void* y) const {
    float in[kBlock], out[kBlock];
    const float shift = static_cast<float>(mean), factor = static_cast<float>(inv);
    const int64_t first = p_.first_param(row);
    ForEachBlock(p_, [&](int64_t i, int64_t n, int64_t param) {
      const int64_t at = row * p_.length + i, k = first + param;
      const float* block = FloatBlock(x_type_, x, at, n, in);
      float* result = OutputBlock(y_type_, y, at, out);
      if (p_.per_element()) {
        vec_.norm_row(block, shift, factor, scale + k, bias == nullptr ? nullptr : bias + k, result,
                      n);
      } else {
        const auto a = static_cast<float>(static_cast<double>(scale[k]) * inv);
        vec_.affine(block, shift, a, bias == nullptr ? 0 : bias[k], false, result, n);
      }
      StoreBlock(y_type_, result, y, at, n);
    });
  }

  Rows p_;
  const VecOps& vec_;
  int threads_;
  DType x_type_, y_type_, param_type_;
  double epsilon_;
  WorkspacePlan plan_;
  int64_t scale_at_ = 0, bias_at_ = 0;
};

/// With g = dy * scale: dx = inv * (g - (sum g + xhat * sum g xhat) / length), as
/// g * a + (x - mean) * b + c.
class Backward final : public PreparedKernel {
 public:
  Backward(const CallSpec& call, const PrepareOptions& options)
      : p_(RowsOf(call)),
        vec_(Vec()),
        threads_(ThreadsFor(options.threads, p_.elements() * 12)),
        x_type_(call.inputs[0].dtype),
        dy_type_(call.inputs[1].dtype),
        dx_type_(TypeAt(call.outputs, 0)),
        param_type_(call.inputs[2].dtype),
        wants_params_(TypeAt(call.outputs, 1) != DType::kNone ||
                      TypeAt(call.outputs, 2) != DType::kNone),
        tasks_(std::clamp<int64_t>(p_.rows / (p_.per_element() ? kRowsInFloat : 1), 1, kMaxTasks)) {
    scale_at_ = plan_.Take(p_.params() * 4);
    task_doubles_ = CeilDiv(p_.params() * (p_.per_element() ? 3 : 2), 8) * 8;
    if (wants_params_) tasks_at_ = plan_.Take(tasks_ * task_doubles_ * 8);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const Call c{inputs[0],
                 inputs[1],
                 Parameters(param_type_, inputs[2], p_.params(), At<float>(workspace, scale_at_)),
                 static_cast<const float*>(inputs[3]),
                 static_cast<const float*>(OperandAt(inputs, 4)),
                 OperandAt(outputs, 0)};
    if (!wants_params_) {
      ParallelRanges(threads_, p_.rows, 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) Row(c, row, nullptr);
      });
      return;
    }
    auto* partial = At<double>(workspace, tasks_at_);
    ParallelFor(threads_, tasks_, [&](int64_t t) {
      Task(c, p_.rows * t / tasks_, p_.rows * (t + 1) / tasks_, partial + t * task_doubles_);
    });
    Join(partial, OperandAt(outputs, 1), 0);
    Join(partial, OperandAt(outputs, 2), p_.params());
  }

 private:
  struct Call {
    const void *x, *dy;
    const float *scale, *inv_std, *mean;
    void* dx;
  };
  /// Where a task adds gradients of the scales: in fp32 with one scale per element, else in double.
  struct Sums {
    double *dscale, *dbias;
    float *dscale_part, *dbias_part;
  };

  void Task(const Call& c, int64_t begin, int64_t end, double* memory) const {
    auto* parts = reinterpret_cast<float*>(memory + 2 * p_.params());
    Sums sums{memory, memory + p_.params(), parts, parts + p_.params()};
    std::fill_n(memory, 2 * p_.params(), 0.0);
    if (!p_.per_element()) {
      for (int64_t row = begin; row < end; ++row) Row(c, row, &sums);
      return;
    }
    for (int64_t row = begin; row < end; row += kRowsInFloat) {
      std::fill_n(parts, 2 * p_.params(), 0.0f);
      for (int64_t r = row; r < std::min(end, row + kRowsInFloat); ++r) Row(c, r, &sums);
      for (int64_t k = 0; k < 2 * p_.params(); ++k) memory[k] += static_cast<double>(parts[k]);
    }
  }

  void Row(const Call& c, int64_t row, const Sums* sums) const {
    float x_buffer[kBlock], dy_buffer[kBlock];
    const float shift = c.mean == nullptr ? 0 : c.mean[row];
    const float factor = c.inv_std[row];
    const int64_t first = p_.first_param(row);
    const auto x_at = [&](int64_t i, int64_t n) {
      return FloatBlock(x_type_, c.x, row * p_.length + i, n, x_buffer);
    };
    const auto dy_at = [&](int64_t i, int64_t n) {
      return FloatBlock(dy_type_, c.dy, row * p_.length + i, n, dy_buffer);
    };
    double sum = 0, dot = 0;
    ForEachBlock(p_, [&](int64_t i, int64_t n, int64_t param) {
      const float *x = x_at(i, n), *dy = dy_at(i, n);
      const int64_t k = first + param;
      if (p_.per_element()) {
        float s, d;
        vec_.scaled_dots(dy, c.scale + k, x, shift, n, &s, &d);
        sum += static_cast<double>(s);
        dot += static_cast<double>(d);
        if (sums != nullptr)
          vec_.norm_row_params(dy, x, shift, factor, sums->dscale_part + k, sums->dbias_part + k,
                               n);
        return;
      }
      const auto s = static_cast<double>(vec_.row_reduce[static_cast<int>(RowOp::kSum)](dy, n));
      const auto d = static_cast<double>(vec_.dot_around(dy, x, shift, n));
      sum += s * static_cast<double>(c.scale[k]);
      dot += d * static_cast<double>(c.scale[k]);
      if (sums == nullptr) return;
      sums->dscale[k] += d * static_cast<double>(factor);
      sums->dbias[k] += s;
    });
    if (c.dx == nullptr) return;
    const auto inv = static_cast<double>(factor), n_row = static_cast<double>(p_.length);
    const auto b = static_cast<float>(-inv * inv * inv * dot / n_row);
    const auto mean_part = p_.rms ? 0.0f : static_cast<float>(-inv * sum / n_row);
    ForEachBlock(p_, [&](int64_t i, int64_t n, int64_t param) {
      const float *x = x_at(i, n), *dy = dy_at(i, n);
      const int64_t at = row * p_.length + i, k = first + param;
      float* out = OutputBlock(dx_type_, c.dx, at, dy_buffer);
      if (p_.per_element()) {
        vec_.norm_row_bwd(dy, c.scale + k, x, shift, factor, b, mean_part, out, n);
      } else {
        const auto a = static_cast<float>(inv * static_cast<double>(c.scale[k]));
        vec_.norm_bwd(dy, x, shift, a, b, mean_part, out, n);
      }
      StoreBlock(dx_type_, out, c.dx, at, n);
    });
  }

  /// The sums of the tasks at `offset`, in their order.
  void Join(const double* partial, void* out, int64_t offset) const {
    for (int64_t k = 0; k < p_.params() && out != nullptr; ++k) {
      double sum = 0;
      for (int64_t t = 0; t < tasks_; ++t) sum += partial[t * task_doubles_ + offset + k];
      StoreFloat(param_type_, out, k, static_cast<float>(sum));
    }
  }

  Rows p_;
  const VecOps& vec_;
  int threads_;
  DType x_type_, dy_type_, dx_type_, param_type_;
  bool wants_params_;
  int64_t tasks_;
  WorkspacePlan plan_;
  int64_t scale_at_ = 0, tasks_at_ = 0, task_doubles_ = 0;
};

}  // namespace

std::string DeclinesLayerNorm(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}
std::string DeclinesLayerNormBackward(const CallSpec& call, const PrepareOptions& options) {
  return DeclinesLayerNorm(call, options);
}

PrepareResult PrepareLayerNorm(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Forward>(call, options));
}
PrepareResult PrepareLayerNormBackward(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Backward>(call, options));
}

}  // namespace ampc::cpu
