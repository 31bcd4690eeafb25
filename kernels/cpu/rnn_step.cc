// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/rnn_step.h"

#include "kernels/expr_eval.h"

namespace ampc::cpu {
namespace {

using dnnl::memory;

/// As for single products (linalg.cc): below this a second thread costs more than it saves.
constexpr int64_t kFlopsForThreads = 4'000'000;
constexpr int64_t kLongestUnsplitK = 1024;
/// What an element of a cell costs, as bytes moved in the same time (RowTasks).
constexpr int64_t kBytesPerElement = 120;

int ThreadsOf(const StepProduct::Form& f, const PrepareOptions& options) {
  if (2 * f.rows * f.k * f.n < kFlopsForThreads) return 1;
  if (options.deterministic && f.k > kLongestUnsplitK) return 1;
  return std::max(options.threads, 1);
}

}  // namespace

StepProduct::StepProduct(const Form& f, const PrepareOptions& options, WorkspacePlan& plan)
    : form_(f) {
  const auto type = OneDnnType(f.type);
  const memory::desc x({f.rows, f.k}, type, memory::dims{f.k, 1});
  const memory::desc any({f.k, f.n}, type, memory::format_tag::any);
  const memory::desc plain({f.k, f.n}, type,
                           f.transposed ? memory::dims{1, f.k} : memory::dims{f.n, 1});
  const memory::desc y({f.rows, f.n}, memory::data_type::f32, memory::dims{f.n, 1});
  if (f.x_stride != f.k) dense_x_ = plan.Take(f.rows * f.k * SizeOf(f.type));
  if (f.y_stride != f.n) dense_y_ = plan.Take(f.rows * f.n * 4);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (dense_y_ < 0) post.append_sum();
  attr.set_post_ops(post);

  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const int threads = ThreadsOf(f, options);
  const ScopedThreads scope(threads);
  const dnnl::matmul::primitive_desc pd(engine, x, any, y, attr);
  const memory::desc blocked = pd.weights_desc();
  product_ = OneDnnPrimitive(engine, dnnl::matmul(pd), threads);
  x_slot_ = product_.Bind(DNNL_ARG_SRC, x);
  m_slot_ = product_.Bind(DNNL_ARG_WEIGHTS, blocked);
  y_slot_ = product_.Bind(DNNL_ARG_DST, y);
  product_.BindScratch(pd.scratchpad_desc(), plan);
  if (blocked == plain) return;

  packed_ = plan.Take(static_cast<int64_t>(blocked.get_size()));
  dnnl::primitive_attr reorder_attr;
  reorder_attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc rd(engine, plain, engine, blocked, reorder_attr);
  reorder_ = OneDnnPrimitive(engine, dnnl::reorder(rd), threads);
  from_slot_ = reorder_.Bind(DNNL_ARG_FROM, plain);
  to_slot_ = reorder_.Bind(DNNL_ARG_TO, blocked);
  reorder_.BindScratch(rd.scratchpad_desc(), plan);
}

void StepProduct::Pack(const void* m, void* workspace) noexcept {
  if (packed_ < 0) return product_.SetData(m_slot_, m);
  reorder_.SetData(from_slot_, m);
  reorder_.SetData(to_slot_, At<std::byte>(workspace, packed_));
  reorder_.Execute(workspace);
  product_.SetData(m_slot_, At<std::byte>(workspace, packed_));
}

void StepProduct::Run(const void* x, float* y, void* workspace) noexcept {
  if (dense_x_ >= 0) {
    const int64_t size = SizeOf(form_.type);
    std::byte* dense = At<std::byte>(workspace, dense_x_);
    for (int64_t b = 0; b < form_.rows; ++b) {
      std::memcpy(dense + b * form_.k * size, Offset(x, b * form_.x_stride * size),
                  static_cast<size_t>(form_.k * size));
    }
    x = dense;
  }
  float* sum = dense_y_ < 0 ? y : At<float>(workspace, dense_y_);
  product_.SetData(x_slot_, x);
  product_.SetData(y_slot_, sum);
  product_.Execute(workspace);
  for (int64_t b = 0; dense_y_ >= 0 && b < form_.rows; ++b) {
    float* to = y + b * form_.y_stride;
    const float* from = sum + b * form_.n;
    for (int64_t j = 0; j < form_.n; ++j) to[j] += from[j];
  }
}

int64_t CellProgram::scratch() const { return ExprScratchSize(program_); }

void CellProgram::Row(int64_t b, std::span<const Operand> in, std::span<const Operand> out,
                      int64_t n, float* scratch) const {
  std::array<const float*, kMaxCellOperands> x;
  std::array<float*, kMaxCellOperands> y;
  for (int64_t begin = 0; begin < n; begin += kExprBlock) {
    for (size_t i = 0; i < in.size(); ++i) x[i] = in[i].base + b * in[i].stride + begin;
    for (size_t i = 0; i < out.size(); ++i) y[i] = out[i].base + b * out[i].stride + begin;
    Vec().eval(program_, x.data(), y.data(), std::min(kExprBlock, n - begin), scratch);
  }
}

RowTasks::RowTasks(int64_t rows, int64_t width, int64_t scratch_floats,
                   const PrepareOptions& options, WorkspacePlan& plan)
    : rows_(rows), scratch_floats_(CeilDiv(scratch_floats, 16) * 16) {
  const int threads = ThreadsFor(options.threads, rows * width * kBytesPerElement);
  tasks_ = static_cast<int>(std::clamp<int64_t>(rows, 1, threads));
  scratch_at_ = plan.Take(tasks_ * scratch_floats_ * 4);
}

}  // namespace ampc::cpu
