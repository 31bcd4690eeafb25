// SPDX-License-Identifier: Apache-2.0
// Batch normalization: training, backward, inference. oneDNN's is fast for channels-last only, and
// its row-major form takes 13 ms where memory needs 1.
//
// Two shapes of loop. Rows: row-major data, one channel's S values lie together for each n; a task
// is a channel. Columns: channels-last and [N, C] data, a task is a chunk of rows whose number
// depends on the shape alone. Few channels would leave lanes empty, so several rows are seen as one
// row of `wide` columns, with the coefficients repeated, and their sums are added up at the end of
// a chunk. Statistics: two passes over each block in the cache, one over memory. The first finds
// the mean, rounded to fp32; the second the sums of the deviations from it and of their squares,
// which also gives back what the rounding took. Blocks are joined in double (Chan, Golub, LeVeque),
// in their order.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/moments.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

/// Elements of one chunk of rows in the column form.
constexpr int64_t kChunk = 16 * 1024;
/// Columns that keep the vectors of every instruction set full, several at a time.
constexpr int64_t kLanes = 16, kWideColumns = 64;

/// x as [n, c, s] by rows, or as [rows, c] by columns.
struct Shape {
  int64_t n, c, s;
  bool columns;

  int64_t count() const { return n * s; }
  int64_t elements() const { return n * c * s; }
  /// Rows that are seen as one, and its columns.
  int64_t tile() const {
    int64_t t = kLanes / std::gcd(c, kLanes);
    while (c * t < kWideColumns) t *= 2;
    return t;
  }
  int64_t wide() const { return c * tile(); }
  /// A multiple of tile().
  int64_t chunk_rows() const {
    return CeilDiv(std::clamp<int64_t>(kChunk / c, 8, 256 * tile()), tile()) * tile();
  }
  int64_t chunks() const { return CeilDiv(count(), chunk_rows()); }
};

Shape ShapeOf(const TensorDesc& x) {
  const int64_t n = x.dims[0], c = x.dims[1], s = x.elements() / (n * c);
  return {n, c, s, s == 1 || x.layout == Layout::kChannelsLast};
}

/// f(first element, length) over the blocks of channel c, rows form.
template <typename F>
void ForEachRowBlock(const Shape& p, int64_t c, F f) {
  for (int64_t n = 0; n < p.n; ++n) {
    const int64_t first = (n * p.c + c) * p.s;
    for (int64_t i = 0; i < p.s; i += kBlock) f(first + i, std::min(kBlock, p.s - i));
  }
}

class BatchNorm : public PreparedKernel {
 public:
  int64_t workspace_bytes() const override { return plan_.total(); }

 protected:
  BatchNorm(const TensorDesc& x, int threads)
      : p_(ShapeOf(x)), vec_(Vec()), threads_(ThreadsFor(threads, p_.elements() * 8)) {
    coefficients_ = plan_.Take(4 * p_.wide() * 4);
    if (!p_.columns) return;
    partial_a_ = plan_.Take(p_.chunks() * p_.c * 8);
    partial_b_ = plan_.Take(p_.chunks() * p_.c * 8);
    // Three rows of sums and, for low data, widened rows: a chunk of x and of dy.
    task_floats_ = 3 * p_.wide() + 2 * std::max(p_.chunk_rows() * p_.c, kBlock);
    tasks_at_ = plan_.Take(threads_ * task_floats_ * 4);
  }

  float* Coefficient(void* workspace, int k) const {
    return At<float>(workspace, coefficients_) + k * p_.wide();
  }
  /// Repeats the coefficients of the channels over the columns of a wide row.
  void SpreadCoefficients(void* workspace, int count) const {
    if (!p_.columns) return;
    for (int k = 0; k < count; ++k) Spread(Coefficient(workspace, k));
  }
  void Spread(float* channels) const {
    for (int64_t i = p_.c; i < p_.wide(); ++i) channels[i] = channels[i - p_.c];
  }
  /// The sums of the channels from those of a wide row, in their order.
  void Gather(float* columns) const {
    for (int64_t i = p_.c; i < p_.wide(); ++i) columns[i % p_.c] += columns[i];
  }
  /// f(first row, rows, columns of a row): the wide rows of [begin, end), then the rows left over.
  template <typename F>
  void ForEachWide(int64_t begin, int64_t end, F f) const {
    const int64_t wide = (end - begin) / p_.tile(), left = (end - begin) % p_.tile();
    if (wide > 0) f(int64_t{0}, wide, p_.wide());
    if (left > 0) f(wide * p_.tile(), left, p_.c);
  }

  /// f(begin, end, scratch) over rows in chunks, one contiguous range of chunks per thread.
  template <typename F>
  void ForEachChunk(void* workspace, F f) const {
    const int64_t chunks = p_.chunks(), tasks = std::min<int64_t>(threads_, chunks);
    ParallelFor(threads_, tasks, [&](int64_t t) {
      float* scratch = At<float>(workspace, tasks_at_) + t * task_floats_;
      for (int64_t c = chunks * t / tasks; c < chunks * (t + 1) / tasks; ++c) {
        const int64_t begin = c * p_.chunk_rows();
        f(c, begin, std::min(p_.count(), begin + p_.chunk_rows()), scratch);
      }
    });
  }
  /// A chunk of rows as floats.
  const float* Widened(DType t, const void* data, int64_t begin, int64_t end, float* buffer) const {
    return FloatBlock(t, data, begin * p_.c, (end - begin) * p_.c, buffer);
  }

  /// y = (x - shift) * a + b per channel, with the coefficients 0, 1, 2.
  void Apply(DType x_type, const void* x, DType y_type, void* y, bool relu, void* workspace) const {
    const float *shift = Coefficient(workspace, 0), *a = Coefficient(workspace, 1),
                *b = Coefficient(workspace, 2);
    if (p_.columns) {
      return ForEachChunk(workspace, [&](int64_t, int64_t begin, int64_t end, float* scratch) {
        float* buffer = scratch + 3 * p_.wide();
        const float* in = Widened(x_type, x, begin, end, buffer);
        float* out = OutputBlock(y_type, y, begin * p_.c, buffer);
        ForEachWide(begin, end, [&](int64_t first, int64_t rows, int64_t columns) {
          vec_.affine_columns(in + first * p_.c, rows, shift, a, b, relu, out + first * p_.c,
                              columns);
        });
        StoreBlock(y_type, out, y, begin * p_.c, (end - begin) * p_.c);
      });
    }
    ParallelRanges(threads_, p_.n * p_.c, 1, [&](int64_t begin, int64_t end) {
      float in[kBlock], out[kBlock];
      for (int64_t row = begin; row < end; ++row) {
        const int64_t c = row % p_.c;
        for (int64_t i = 0; i < p_.s; i += kBlock) {
          const int64_t at = row * p_.s + i, n = std::min(kBlock, p_.s - i);
          float* block = OutputBlock(y_type, y, at, out);
          vec_.affine(FloatBlock(x_type, x, at, n, in), shift[c], a[c], b[c], relu, block, n);
          StoreBlock(y_type, block, y, at, n);
        }
      }
    });
  }

  Shape p_;
  const VecOps& vec_;
  int threads_;
  WorkspacePlan plan_;
  int64_t coefficients_ = 0, partial_a_ = 0, partial_b_ = 0, tasks_at_ = 0, task_floats_ = 0;
};

class Train final : public BatchNorm {
 public:
  Train(const CallSpec& call, const PrepareOptions& options)
      : BatchNorm(call.inputs[0], options.threads),
        x_type_(call.inputs[0].dtype),
        y_type_(call.outputs[0].dtype),
        epsilon_(call.params.Float("epsilon")),
        momentum_(call.params.Float("momentum", 0.9)),
        unbiased_(call.params.Int("unbiased") != 0),
        relu_(call.params.String("post") == "relu") {}

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const Channels channels{inputs, outputs, Coefficient(workspace, 0), Coefficient(workspace, 1),
                            Coefficient(workspace, 2)};
    if (p_.columns) {
      ColumnMoments(inputs[0], workspace);
      for (int64_t c = 0; c < p_.c; ++c) Finish(channels, c, JoinColumn(workspace, c));
      SpreadCoefficients(workspace, 3);
    } else {
      ParallelRanges(threads_, p_.c, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) Finish(channels, c, RowMoments(inputs[0], c));
      });
    }
    Apply(x_type_, inputs[0], y_type_, outputs[0], relu_, workspace);
  }

 private:
  struct Channels {
    std::span<const void* const> inputs;
    std::span<void* const> outputs;
    float *shift, *a, *b;
  };

  Moments RowMoments(const void* x, int64_t c) const {
    Moments m;
    float buffer[kBlock];
    ForEachRowBlock(p_, c, [&](int64_t at, int64_t n) {
      m.JoinBlock(vec_, FloatBlock(x_type_, x, at, n, buffer), n);
    });
    return m;
  }

  /// Per chunk and channel: the mean (partial_a) and the sum of squares around it (partial_b).
  void ColumnMoments(const void* x, void* workspace) const {
    double *means = At<double>(workspace, partial_a_), *squares = At<double>(workspace, partial_b_);
    ForEachChunk(workspace, [&](int64_t chunk, int64_t begin, int64_t end, float* scratch) {
      float *mean = scratch, *sum = mean + p_.wide(), *square = sum + p_.wide();
      std::fill_n(scratch, 3 * p_.wide(), 0.0f);
      const float* data = Widened(x_type_, x, begin, end, scratch + 3 * p_.wide());
      ForEachWide(begin, end, [&](int64_t first, int64_t rows, int64_t columns) {
        vec_.column_reduce[static_cast<int>(RowOp::kSum)](data + first * p_.c, rows, columns,
                                                          columns, mean);
      });
      Gather(mean);
      const float count = static_cast<float>(end - begin);
      for (int64_t c = 0; c < p_.c; ++c) mean[c] /= count;
      Spread(mean);
      ForEachWide(begin, end, [&](int64_t first, int64_t rows, int64_t columns) {
        vec_.column_moments_around(data + first * p_.c, rows, columns, columns, mean, sum, square);
      });
      Gather(sum);
      Gather(square);
      const double each = 1 / static_cast<double>(end - begin);
      for (int64_t c = 0; c < p_.c; ++c) {
        const double s = static_cast<double>(sum[c]);
        means[chunk * p_.c + c] = static_cast<double>(mean[c]) + s * each;
        squares[chunk * p_.c + c] = std::max(static_cast<double>(square[c]) - s * s * each, 0.0);
      }
    });
  }
  /// All chunks of a channel: no division per chunk, which would take longer than the data.
  Moments JoinColumn(void* workspace, int64_t c) const {
    const double *means = At<double>(workspace, partial_a_),
                 *squares = At<double>(workspace, partial_b_);
    const auto rows = [&](int64_t chunk) {
      return static_cast<double>(std::min(p_.chunk_rows(), p_.count() - chunk * p_.chunk_rows()));
    };
    Moments m;
    m.count = static_cast<double>(p_.count());
    const int64_t chunks = p_.chunks();
    for (int64_t i = 0; i < chunks; ++i) m.mean += rows(i) * means[i * p_.c + c];
    m.mean /= m.count;
    for (int64_t i = 0; i < chunks; ++i) {
      const double d = means[i * p_.c + c] - m.mean;
      m.m2 += squares[i * p_.c + c] + rows(i) * d * d;
    }
    return m;
  }

  /// The results of one channel and its coefficients.
  void Finish(const Channels& ch, int64_t c, const Moments& m) const {
    const auto in = [&](size_t i) {
      return static_cast<double>(static_cast<const float*>(ch.inputs[i])[c]);
    };
    const auto out = [&](size_t j, double v) {
      if (j < ch.outputs.size() && ch.outputs[j] != nullptr)
        static_cast<float*>(ch.outputs[j])[c] = static_cast<float>(v);
    };
    const double var = m.m2 / m.count, inv_std = 1 / std::sqrt(var + epsilon_);
    const double batch_var = unbiased_ ? var * (m.count / (m.count - 1)) : var;
    const bool keep = !std::isfinite(m.mean) || !std::isfinite(batch_var);
    const auto running = [&](size_t i, double batch) {
      const double before = in(i);
      return keep ? before : before * momentum_ + batch * (1 - momentum_);
    };
    ch.shift[c] = static_cast<float>(m.mean);
    ch.a[c] = static_cast<float>(in(1) * inv_std);
    // What the rounding of the mean took away comes back with the bias.
    ch.b[c] =
        static_cast<float>(in(2) + (static_cast<double>(ch.shift[c]) - m.mean) * in(1) * inv_std);
    out(1, running(3, m.mean));
    out(2, running(4, batch_var));
    out(3, m.mean);
    out(4, inv_std);
  }

  DType x_type_, y_type_;
  double epsilon_, momentum_;
  bool unbiased_, relu_;
};

/// dx = factor * (dy - (sum + xhat * dot) / count), as dy * a + (x - mean) * b + c.
class Backward final : public BatchNorm {
 public:
  Backward(const CallSpec& call, const PrepareOptions& options)
      : BatchNorm(call.inputs[0], options.threads),
        x_type_(call.inputs[0].dtype),
        dy_type_(call.inputs[1].dtype),
        dx_type_(call.outputs[0].dtype) {}

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const auto* mean = static_cast<const float*>(inputs[3]);
    if (p_.columns) {
      std::copy_n(mean, p_.c, Coefficient(workspace, 3));
      Spread(Coefficient(workspace, 3));
      mean = Coefficient(workspace, 3);
      ColumnSums(inputs[0], inputs[1], mean, workspace);
      const double *sums = At<double>(workspace, partial_a_),
                   *dots = At<double>(workspace, partial_b_);
      for (int64_t c = 0; c < p_.c; ++c) {
        double sum = 0, dot = 0;
        for (int64_t chunk = 0; chunk < p_.chunks(); ++chunk) {
          sum += sums[chunk * p_.c + c];
          dot += dots[chunk * p_.c + c];
        }
        Finish(inputs, outputs, c, sum, dot, workspace);
      }
      SpreadCoefficients(workspace, 3);
    } else {
      ParallelRanges(threads_, p_.c, 1, [&](int64_t begin, int64_t end) {
        float a[kBlock], b[kBlock];
        for (int64_t c = begin; c < end; ++c) {
          double sum = 0, dot = 0;
          ForEachRowBlock(p_, c, [&](int64_t at, int64_t n) {
            const float *x = FloatBlock(x_type_, inputs[0], at, n, a),
                        *dy = FloatBlock(dy_type_, inputs[1], at, n, b);
            sum += static_cast<double>(vec_.row_reduce[static_cast<int>(RowOp::kSum)](dy, n));
            dot += static_cast<double>(vec_.dot_around(dy, x, mean[c], n));
          });
          Finish(inputs, outputs, c, sum, dot, workspace);
        }
      });
    }
    if (outputs[0] != nullptr) Gradient(inputs, outputs[0], mean, workspace);
  }

 private:
  void ColumnSums(const void* x, const void* dy, const float* mean, void* workspace) const {
    double *sums = At<double>(workspace, partial_a_), *dots = At<double>(workspace, partial_b_);
    ForEachChunk(workspace, [&](int64_t chunk, int64_t begin, int64_t end, float* scratch) {
      float *sum = scratch, *dot = sum + p_.wide();
      std::fill_n(sum, 2 * p_.wide(), 0.0f);
      float* buffer = scratch + 3 * p_.wide();
      const float* x_data = Widened(x_type_, x, begin, end, buffer);
      const float* dy_data = Widened(dy_type_, dy, begin, end, buffer + p_.chunk_rows() * p_.c);
      ForEachWide(begin, end, [&](int64_t first, int64_t rows, int64_t columns) {
        vec_.column_dot_around(dy_data + first * p_.c, x_data + first * p_.c, rows, columns,
                               columns, mean, sum, dot);
      });
      Gather(sum);
      Gather(dot);
      for (int64_t c = 0; c < p_.c; ++c) {
        sums[chunk * p_.c + c] = static_cast<double>(sum[c]);
        dots[chunk * p_.c + c] = static_cast<double>(dot[c]);
      }
    });
  }

  /// `dot` is of dy with x - mean.
  void Finish(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t c,
              double sum, double dot, void* workspace) const {
    const auto in = [&](size_t i) {
      return static_cast<double>(static_cast<const float*>(inputs[i])[c]);
    };
    const auto out = [&](size_t j, double v) {
      if (j < outputs.size() && outputs[j] != nullptr)
        static_cast<float*>(outputs[j])[c] = static_cast<float>(v);
    };
    const double inv_std = in(4), factor = in(2) * inv_std, count = static_cast<double>(p_.count());
    Coefficient(workspace, 0)[c] = static_cast<float>(factor);
    Coefficient(workspace, 1)[c] = static_cast<float>(-factor * inv_std * inv_std * dot / count);
    Coefficient(workspace, 2)[c] = static_cast<float>(-factor * sum / count);
    out(1, dot * inv_std);
    out(2, sum);
  }

  void Gradient(std::span<const void* const> inputs, void* dx, const float* mean,
                void* workspace) const {
    const float *a = Coefficient(workspace, 0), *b = Coefficient(workspace, 1),
                *c = Coefficient(workspace, 2);
    if (p_.columns) {
      return ForEachChunk(workspace, [&](int64_t, int64_t begin, int64_t end, float* scratch) {
        float *x_buffer = scratch + 3 * p_.wide(), *dy_buffer = x_buffer + p_.chunk_rows() * p_.c;
        const float* x = Widened(x_type_, inputs[0], begin, end, x_buffer);
        const float* dy = Widened(dy_type_, inputs[1], begin, end, dy_buffer);
        float* out = OutputBlock(dx_type_, dx, begin * p_.c, dy_buffer);
        ForEachWide(begin, end, [&](int64_t first, int64_t rows, int64_t columns) {
          const int64_t at = first * p_.c;
          vec_.norm_bwd_columns(dy + at, x + at, rows, mean, a, b, c, out + at, columns);
        });
        StoreBlock(dx_type_, out, dx, begin * p_.c, (end - begin) * p_.c);
      });
    }
    ParallelRanges(threads_, p_.n * p_.c, 1, [&](int64_t begin, int64_t end) {
      float x_buffer[kBlock], dy_buffer[kBlock];
      for (int64_t row = begin; row < end; ++row) {
        const int64_t ch = row % p_.c;
        for (int64_t i = 0; i < p_.s; i += kBlock) {
          const int64_t at = row * p_.s + i, n = std::min(kBlock, p_.s - i);
          const float* x = FloatBlock(x_type_, inputs[0], at, n, x_buffer);
          const float* dy = FloatBlock(dy_type_, inputs[1], at, n, dy_buffer);
          float* out = OutputBlock(dx_type_, dx, at, dy_buffer);
          vec_.norm_bwd(dy, x, mean[ch], a[ch], b[ch], c[ch], out, n);
          StoreBlock(dx_type_, out, dx, at, n);
        }
      }
    });
  }

  DType x_type_, dy_type_, dx_type_;
};

class Infer final : public BatchNorm {
 public:
  Infer(const CallSpec& call, const PrepareOptions& options)
      : BatchNorm(call.inputs[0], options.threads),
        x_type_(call.inputs[0].dtype),
        y_type_(call.outputs[0].dtype),
        epsilon_(call.params.Float("epsilon")),
        relu_(call.params.String("post") == "relu") {}

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    for (int64_t c = 0; c < p_.c; ++c) {
      const auto in = [&](size_t i) { return static_cast<const float*>(inputs[i])[c]; };
      Coefficient(workspace, 0)[c] = in(3);
      Coefficient(workspace, 1)[c] = static_cast<float>(
          static_cast<double>(in(1)) / std::sqrt(static_cast<double>(in(4)) + epsilon_));
      Coefficient(workspace, 2)[c] = in(2);
    }
    SpreadCoefficients(workspace, 3);
    Apply(x_type_, inputs[0], y_type_, outputs[0], relu_, workspace);
  }

 private:
  DType x_type_, y_type_;
  double epsilon_;
  bool relu_;
};

/// `data`: the operands with x's dims, inputs then outputs; all others hold one fp32 number per
/// channel.
std::string DeclinesNorm(const CallSpec& call, size_t data_inputs) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  if (std::string reason = DeclinesEmpty(call); !reason.empty()) return reason;
  const Layout layout = call.inputs[0].layout;
  const bool matters = call.inputs[0].dims.size() > 2;
  for (size_t i = 1; i < data_inputs; ++i) {
    if (matters && call.inputs[i].layout != layout) return "operands in different layouts";
  }
  const TensorDesc& y = call.outputs[0];
  if (matters && y.present() && y.layout != layout) return "operands in different layouts";
  return {};
}

template <typename K>
PrepareResult Make(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<K>(call, options));
}

}  // namespace

std::string DeclinesNormTrain(const CallSpec& call, const PrepareOptions&) {
  return DeclinesNorm(call, 1);
}
std::string DeclinesNormBackward(const CallSpec& call, const PrepareOptions&) {
  return DeclinesNorm(call, 2);
}
std::string DeclinesNormInfer(const CallSpec& call, const PrepareOptions&) {
  return DeclinesNorm(call, 1);
}

PrepareResult PrepareNormTrain(const CallSpec& call, const PrepareOptions& options) {
  return Make<Train>(call, options);
}
PrepareResult PrepareNormBackward(const CallSpec& call, const PrepareOptions& options) {
  return Make<Backward>(call, options);
}
PrepareResult PrepareNormInfer(const CallSpec& call, const PrepareOptions& options) {
  return Make<Infer>(call, options);
}

}  // namespace ampc::cpu
