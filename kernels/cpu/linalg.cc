// SPDX-License-Identifier: Apache-2.0
// matmul on oneDNN.
//
// The call is brought to the form [g0, g1, .., M, N] = [g.., M, K] x [g.., K, N], where batch axes
// that all operands walk alike are one group, and a batch that only `a` has is folded into M.
// Transposed operands are strides. Products with a single column are turned into products with a
// single row, which oneDNN runs three times as fast.
//
// fp16 has no oneDNN primitive, and neither have mixed operands: those are widened into the
// workspace, the product is made in fp32 and rounded once. Relu is a pass of our own, since
// oneDNN's relu turns NaN into 0.

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

using dnnl::memory;

/// Below this many multiply-adds a second thread costs more than it saves (measured: 64^3 in fp32
/// takes 6 us on one thread and 34 us on two that sleep between calls).
constexpr int64_t kFlopsForThreads = 4'000'000;
/// Sums of fewer terms than this are never split between threads, so results do not depend on their
/// number.
constexpr int64_t kLongestUnsplitK = 1024;

/// One batch axis of the product, or M or N: does an operand move along it?
struct Group {
  int64_t length;
  bool a, b, bias;
};

struct Problem {
  std::vector<Group> batch;
  int64_t m, n, k;
  bool trans_a, trans_b;
  bool bias = false, bias_m = false, bias_n = false;  // present; moves along M, N

  int64_t matrices() const {
    int64_t count = 1;
    for (const Group& g : batch) count *= g.length;
    return count;
  }
  int64_t flops() const { return 2 * matrices() * m * n * k; }
};

Problem Analyse(const CallSpec& call) {
  const TensorDesc &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  Problem p;
  p.trans_a = call.params.Int("trans_a") != 0;
  p.trans_b = call.params.Int("trans_b") != 0;
  const size_t rank = y.dims.size(), batch = rank - 2;
  p.m = y.dims[rank - 2];
  p.n = y.dims[rank - 1];
  p.k = a.dims[a.dims.size() - (p.trans_a ? 2 : 1)];
  p.bias = call.inputs.size() > 2 && call.inputs[2].present();

  const auto moves = [&](const TensorDesc& x, size_t axis) {
    const size_t missing = rank - x.dims.size();
    return axis >= missing && x.dims[axis - missing] != 1;
  };
  if (p.bias) {
    p.bias_m = moves(call.inputs[2], batch);
    p.bias_n = moves(call.inputs[2], batch + 1);
  }
  for (size_t i = 0; i < batch; ++i) {
    if (y.dims[i] == 1) continue;
    const Group g{y.dims[i], moves(a, i), moves(b, i), p.bias && moves(call.inputs[2], i)};
    if (!p.batch.empty() && p.batch.back().a == g.a && p.batch.back().b == g.b &&
        p.batch.back().bias == g.bias) {
      p.batch.back().length *= g.length;
    } else {
      p.batch.push_back(g);
    }
  }
  // Rows of a shared weight: one tall product. The bias must treat the folded axis as one.
  if (p.batch.size() == 1 && p.batch[0].a && !p.batch[0].b && !p.trans_a &&
      (!p.bias || p.batch[0].bias == p.bias_m || (p.m == 1))) {
    p.bias_m = p.bias && p.batch[0].bias;
    p.m *= p.batch[0].length;
    p.batch.clear();
  }
  return p;
}

/// dims and strides of [g.., rows, cols] for an operand that moves along the groups selected by
/// `moves`.
memory::desc Matrix(const Problem& p, bool Group::*moves, int64_t rows, int64_t cols,
                    int64_t row_stride, int64_t col_stride, DType type) {
  const size_t groups = p.batch.size();
  memory::dims dims(groups + 2), strides(groups + 2);
  dims[groups] = rows;
  dims[groups + 1] = cols;
  strides[groups] = row_stride;
  strides[groups + 1] = col_stride;
  int64_t stride = rows * cols;
  for (size_t i = groups; i-- > 0;) {
    const bool moving = moves == nullptr || p.batch[i].*moves;
    dims[i] = moving ? p.batch[i].length : 1;
    strides[i] = stride;
    stride *= dims[i];
  }
  return {dims, OneDnnType(type), strides};
}

/// How the bias reaches the sum.
enum class BiasForm { kNone, kRow, kFull };

class Matmul final : public PreparedKernel {
 public:
  static PrepareResult Prepare(const CallSpec& call, const PrepareOptions& options) {
    auto kernel = std::unique_ptr<Matmul>(new Matmul(call, options));
    kernel->Create();
    return std::unique_ptr<PreparedKernel>(std::move(kernel));
  }

  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override;

 private:
  /// An operand that may need widening.
  struct Source {
    DType type;
    int64_t elements;
    int slot = -1;
    int64_t widened = -1;  // offset in the workspace, -1: used as it is
  };

  Matmul(const CallSpec& call, const PrepareOptions& options);
  void Create();
  const void* Ready(const Source& s, const void* data, void* workspace) const;
  const void* ReadyBias(const void* data, void* workspace) const;
  void Finish(const float* wide, void* y) const;

  Problem problem_;
  const VecOps& vec_;
  int threads_;
  DType compute_, y_type_;
  Source a_, b_;
  int y_slot_ = -1, bias_slot_ = -1;
  int64_t y_elements_, y_wide_ = -1;
  double alpha_, beta_;
  bool relu_;
  BiasForm bias_form_ = BiasForm::kNone;
  DType bias_type_ = DType::kNone;
  int64_t bias_elements_ = 0, bias_wide_ = -1;
  std::vector<int64_t>
      bias_strides_;  // over [groups.., M, N], for a bias that has to be spread out
  WorkspacePlan plan_;
  OneDnnPrimitive primitive_;
};

int ThreadsOf(const Problem& p, const PrepareOptions& options) {
  if (p.flops() < kFlopsForThreads) return 1;
  // Few outputs and long sums: oneDNN splits K between threads.
  if (options.deterministic && p.k > kLongestUnsplitK) return 1;
  return std::max(options.threads, 1);
}

Matmul::Matmul(const CallSpec& call, const PrepareOptions& options)
    : problem_(Analyse(call)),
      vec_(Vec()),
      threads_(ThreadsOf(problem_, options)),
      y_type_(call.outputs[0].dtype),
      a_{call.inputs[0].dtype, call.inputs[0].elements()},
      b_{call.inputs[1].dtype, call.inputs[1].elements()},
      y_elements_(call.outputs[0].elements()),
      alpha_(call.params.Float("alpha", 1)),
      beta_(call.params.Float("beta", 1)),
      relu_(call.params.String("post") == "relu") {
  const bool bf16 = a_.type == DType::kBFloat16 && b_.type == DType::kBFloat16 && HasNativeBf16();
  compute_ = bf16 ? DType::kBFloat16 : DType::kFloat32;
  for (Source* s : {&a_, &b_}) {
    if (s->type != compute_) s->widened = plan_.Take(s->elements * 4);
  }
  if (y_type_ != DType::kFloat32 && y_type_ != compute_) y_wide_ = plan_.Take(y_elements_ * 4);
  if (!problem_.bias) return;

  const TensorDesc& bias = call.inputs[2];
  bias_type_ = bias.dtype;
  bias_elements_ = bias.elements();
  const bool moves_in_batch =
      std::ranges::any_of(problem_.batch, [](const Group& g) { return g.bias; });
  const bool row = !problem_.bias_m && !moves_in_batch && (problem_.bias_n || problem_.n == 1);
  bias_form_ = row ? BiasForm::kRow : BiasForm::kFull;
  const bool spread = !row && bias_elements_ != y_elements_;
  if (spread) {
    int64_t stride = 1;
    bias_strides_.resize(problem_.batch.size() + 2);
    const auto take = [&](bool moves, int64_t length, size_t at) {
      bias_strides_[at] = moves ? stride : 0;
      if (moves) stride *= length;
    };
    take(problem_.bias_n, problem_.n, problem_.batch.size() + 1);
    take(problem_.bias_m, problem_.m, problem_.batch.size());
    for (size_t i = problem_.batch.size(); i-- > 0;)
      take(problem_.batch[i].bias, problem_.batch[i].length, i);
  }
  if (spread || bias_type_ != DType::kFloat32 || beta_ != 1) {
    bias_wide_ = plan_.Take((spread ? y_elements_ : bias_elements_) * 4);
  }
}

void Matmul::Create() {
  const Problem& p = problem_;
  memory::desc a = p.trans_a ? Matrix(p, &Group::a, p.m, p.k, 1, p.m, compute_)
                             : Matrix(p, &Group::a, p.m, p.k, p.k, 1, compute_);
  memory::desc b = p.trans_b ? Matrix(p, &Group::b, p.k, p.n, 1, p.k, compute_)
                             : Matrix(p, &Group::b, p.k, p.n, p.n, 1, compute_);
  const DType y_stored = y_wide_ >= 0 ? DType::kFloat32 : y_type_;
  const bool turned = p.n == 1 && p.m > 1;  // y^T = op(b)^T op(a)^T
  if (turned) {
    b = p.trans_a ? Matrix(p, &Group::a, p.k, p.m, p.m, 1, compute_)
                  : Matrix(p, &Group::a, p.k, p.m, 1, p.k, compute_);
    a = Matrix(p, &Group::b, 1, p.k, p.k, 1, compute_);
  }
  const int64_t rows = turned ? 1 : p.m, cols = turned ? p.m : p.n;
  const memory::desc y = Matrix(p, nullptr, rows, cols, cols, 1, y_stored);

  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops post;
  if (alpha_ != 1)
    post.append_eltwise(dnnl::algorithm::eltwise_linear, static_cast<float>(alpha_), 0);
  // A row of one number for a turned product is a scalar; both forms have all dims but the last
  // equal to 1.
  memory::desc bias;
  bool native = false;
  if (bias_form_ == BiasForm::kRow) {
    const size_t last = p.batch.size() + 1;
    memory::dims dims(last + 1, 1), strides(last + 1, bias_elements_);
    dims[last] = bias_elements_;
    strides[last] = 1;
    bias = {dims, memory::data_type::f32, strides};
    native = alpha_ == 1 && bias_elements_ == cols;
  } else if (bias_form_ == BiasForm::kFull) {
    bias = Matrix(p, nullptr, rows, cols, cols, 1, DType::kFloat32);
  }
  const bool post_bias = bias_form_ != BiasForm::kNone && !native;
  const int bias_index = post.len();
  if (post_bias) post.append_binary(dnnl::algorithm::binary_add, bias);
  attr.set_post_ops(post);

  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const ScopedThreads scope(threads_);
  const auto pd = native ? dnnl::matmul::primitive_desc(engine, a, b, bias, y, attr)
                         : dnnl::matmul::primitive_desc(engine, a, b, y, attr);
  primitive_ = OneDnnPrimitive(engine, dnnl::matmul(pd), threads_);
  a_.slot = primitive_.Bind(turned ? DNNL_ARG_WEIGHTS : DNNL_ARG_SRC, turned ? b : a);
  b_.slot = primitive_.Bind(turned ? DNNL_ARG_SRC : DNNL_ARG_WEIGHTS, turned ? a : b);
  y_slot_ = primitive_.Bind(DNNL_ARG_DST, y);
  if (bias_form_ != BiasForm::kNone) {
    bias_slot_ = primitive_.Bind(
        native ? DNNL_ARG_BIAS : DNNL_ARG_ATTR_MULTIPLE_POST_OP(bias_index) | DNNL_ARG_SRC_1, bias);
  }
  primitive_.BindScratch(pd.scratchpad_desc(), plan_);
}

const void* Matmul::Ready(const Source& s, const void* data, void* workspace) const {
  if (s.widened < 0) return data;
  float* wide = At<float>(workspace, s.widened);
  WidenAll(threads_, s.type, data, wide, s.elements);
  return wide;
}

/// beta * bias in fp32, spread out to y's shape where oneDNN needs it.
const void* Matmul::ReadyBias(const void* data, void* workspace) const {
  if (bias_wide_ < 0) return data;
  float* wide = At<float>(workspace, bias_wide_);
  const float beta = static_cast<float>(beta_);
  if (bias_strides_.empty()) {
    WidenAll(threads_, bias_type_, data, wide, bias_elements_);
    if (beta != 1) vec_.scale(wide, beta, wide, bias_elements_);
    return wide;
  }
  const size_t groups = problem_.batch.size();
  const int64_t m = problem_.m, n = problem_.n;
  ParallelFor(ThreadsFor(threads_, y_elements_ * 4), problem_.matrices() * m, [&](int64_t row) {
    int64_t at = row % m * bias_strides_[groups], matrix = row / m;
    for (size_t i = groups; i-- > 0;) {
      at += matrix % problem_.batch[i].length * bias_strides_[i];
      matrix /= problem_.batch[i].length;
    }
    for (int64_t j = 0; j < n; ++j) {
      wide[row * n + j] = beta * LoadFloat(bias_type_, data, at + j * bias_strides_[groups + 1]);
    }
  });
  return wide;
}

/// Relu and the one rounding, where the primitive has not done them.
void Matmul::Finish(const float* wide, void* y) const {
  if (wide == nullptr && !relu_) return;
  ParallelRanges(
      ThreadsFor(threads_, y_elements_ * 6), y_elements_, kBlock, [&](int64_t begin, int64_t end) {
        if (wide == nullptr && y_type_ == DType::kFloat32) {
          vec_.relu(static_cast<float*>(y) + begin, static_cast<float*>(y) + begin, end - begin);
        } else if (wide == nullptr) {
          vec_.relu_bf16(static_cast<uint16_t*>(y) + begin, end - begin);
        } else if (!relu_) {
          Narrow(y_type_, wide + begin, Offset(y, begin * 2), end - begin);
        } else {
          float block[kBlock];
          for (int64_t i = begin; i < end; i += kBlock) {
            const int64_t n = std::min(kBlock, end - i);
            vec_.relu(wide + i, block, n);
            Narrow(y_type_, block, Offset(y, i * 2), n);
          }
        }
      });
}

void Matmul::Run(std::span<const void* const> inputs, std::span<void* const> outputs,
                 void* workspace, const RunContext&) noexcept {
  float* wide = y_wide_ < 0 ? nullptr : At<float>(workspace, y_wide_);
  primitive_.SetData(a_.slot, Ready(a_, inputs[0], workspace));
  primitive_.SetData(b_.slot, Ready(b_, inputs[1], workspace));
  if (bias_slot_ >= 0) primitive_.SetData(bias_slot_, ReadyBias(inputs[2], workspace));
  primitive_.SetData(y_slot_, wide == nullptr ? outputs[0] : wide);
  primitive_.Execute(workspace);
  Finish(wide, outputs[0]);
}

}  // namespace

std::string DeclinesMatmul(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  if (std::string reason = DeclinesEmpty(call); !reason.empty()) return reason;
  const Problem p = Analyse(call);
  if (p.batch.size() > 4) return "more than four groups of batch axes";
  return {};
}

PrepareResult PrepareMatmul(const CallSpec& call, const PrepareOptions& options) {
  return CatchOneDnn("a matrix product", [&] { return Matmul::Prepare(call, options); });
}

}  // namespace ampc::cpu
