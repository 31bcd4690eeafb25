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

/// Rows of a lane: a product has use for a few blocks of rows, and more lanes for more threads.
constexpr int64_t kLaneRows = 16;
/// A matrix up to this size stays in a core's own cache from step to step.
constexpr int64_t kLaneMatrixBytes = 512 * 1024;

}  // namespace

StepProduct::StepProduct(const Form& f, int threads, WorkspacePlan& plan, const StepProduct* like)
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
  const ScopedThreads scope(threads);
  const dnnl::matmul::primitive_desc pd(engine, x, any, y, attr);
  blocked_ = pd.weights_desc();
  product_ = OneDnnPrimitive(engine, dnnl::matmul(pd), threads);
  x_slot_ = product_.Bind(DNNL_ARG_SRC, x);
  m_slot_ = product_.Bind(DNNL_ARG_WEIGHTS, blocked_);
  y_slot_ = product_.Bind(DNNL_ARG_DST, y);
  product_.BindScratch(pd.scratchpad_desc(), plan);
  if (blocked_ == plain) return;
  if (like != nullptr && like->packed_ >= 0 && like->blocked_ == blocked_) {
    packed_ = like->packed_;
    return;
  }
  packed_ = plan.Take(static_cast<int64_t>(blocked_.get_size()));
  dnnl::primitive_attr reorder_attr;
  reorder_attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc rd(engine, plain, engine, blocked_, reorder_attr);
  reorder_ = OneDnnPrimitive(engine, dnnl::reorder(rd), threads);
  from_slot_ = reorder_.Bind(DNNL_ARG_FROM, plain);
  to_slot_ = reorder_.Bind(DNNL_ARG_TO, blocked_);
  reorder_.BindScratch(rd.scratchpad_desc(), plan);
}

void StepProduct::Pack(const void* m, void* workspace) noexcept {
  if (packed_ < 0) return product_.SetData(m_slot_, m);
  if (reorder_) {
    reorder_.SetData(from_slot_, m);
    reorder_.SetData(to_slot_, At<std::byte>(workspace, packed_));
    reorder_.Execute(workspace);
  }
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

RowTasks::RowTasks(RowRange range, int64_t width, int64_t scratch_floats, int threads,
                   WorkspacePlan& plan)
    : range_(range), scratch_floats_(CeilDiv(scratch_floats, 16) * 16) {
  threads = ThreadsFor(threads, range.rows * width * kBytesPerElement);
  tasks_ = static_cast<int>(std::clamp<int64_t>(range.rows, 1, threads));
  scratch_at_ = plan.Take(tasks_ * scratch_floats_ * 4);
}

std::vector<RnnLane> CutIntoLanes(int64_t batch, int64_t matrix_bytes) {
  const int64_t count =
      matrix_bytes > kLaneMatrixBytes ? 1 : std::max<int64_t>(batch / kLaneRows, 1);
  std::vector<RnnLane> lanes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    RowRange& range = lanes[static_cast<size_t>(i)];
    range.begin = batch * i / count;
    range.rows = batch * (i + 1) / count - range.begin;
  }
  return lanes;
}

int ThreadsOfProduct(size_t lanes, int64_t flops, int64_t k, const PrepareOptions& options) {
  if (lanes > 1 || flops < kFlopsForThreads) return 1;
  if (options.deterministic && k > kLongestUnsplitK) return 1;
  return std::max(options.threads, 1);
}

}  // namespace ampc::cpu
