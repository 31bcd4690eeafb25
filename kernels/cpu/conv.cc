// SPDX-License-Identifier: Apache-2.0
// Convolutions on oneDNN: forward, backward to the data (also transposed convolution), backward to
// the weights.
//
// Layouts, as measured (64 channels, 3x3, 56x56, batch 16, fp32, two cores):
//   channels-last  used as it is, 16 ms; weights in a private layout, refreshed each run (0.05 ms).
//   row-major      oneDNN's plain loop takes 26 ms and 33 ms backward, its blocked one 16 ms and
//                  the reorders 1 ms.
//
// A data gradient with unit strides is a convolution with the weights' axes swapped and their taps
// reversed. It is asked for as such: oneDNN does the same inside, but allocates in every run, and a
// forward convolution brings the bias of a transposed one along. A gradient to a few channels has a
// file of its own (conv_few.cc).
//
// fp16 has no oneDNN primitive: widened into the workspace, computed in fp32, rounded once. bf16 is
// native where the processor has it, with one exception: with strides, oneDNN's bf16 weight
// gradient makes its threads spin on barriers (0.1 to 0.4 s instead of 10 ms when they share a
// core), and fp32 is no slower even on one thread.
//
// Relu is a pass of our own, since oneDNN's relu turns NaN into 0; so is the bias of a transposed
// convolution.

#include <algorithm>

#include "kernels/cpu/families.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

/// Multiply-adds below which one thread is faster than two.
constexpr int64_t kFlopsForThreads = 4'000'000;

enum class Direction { kForward, kBackwardData, kBackwardWeights };

/// The forward convolution that the call is about.
struct Problem {
  TensorDesc x, w, y, bias;
  memory::dims strides, dilations, pads_begin, pads_end;
  int64_t group;
  bool turned = false;  // w is stored as [y's channels, x's channels, taps backwards]

  memory::dims WeightDims() const {
    if (group == 1) return w.dims;
    memory::dims dims = {group, w.dims[0] / group};
    dims.insert(dims.end(), w.dims.begin() + 1, w.dims.end());
    return dims;
  }
  memory::dims WeightStrides() const {
    const memory::dims dims = WeightDims();
    if (!turned) return StridesOf(dims, Layout::kRowMajor);
    memory::dims stored = dims;
    std::swap(stored[0], stored[1]);
    memory::dims strides_of = StridesOf(stored, Layout::kRowMajor);
    std::swap(strides_of[0], strides_of[1]);
    return strides_of;
  }
  int64_t flops() const { return 2 * y.elements() * (w.elements() / w.dims[0]); }
  bool HasStrides() const {
    const bool strided = std::ranges::any_of(strides, [](int64_t s) { return s > 1; });
    return strided &&
           std::any_of(w.dims.begin() + 2, w.dims.end(), [](int64_t k) { return k > 1; });
  }
};

Problem Analyse(const CallSpec& call, Direction direction) {
  Problem p;
  const bool has_bias = call.inputs.size() > 2;
  switch (direction) {
    case Direction::kForward:
      p.x = call.inputs[0];
      p.w = call.inputs[1];
      p.y = call.outputs[0];
      break;
    case Direction::kBackwardData:
      p.y = call.inputs[0];
      p.w = call.inputs[1];
      p.x = call.outputs[0];
      break;
    case Direction::kBackwardWeights:
      p.x = call.inputs[0];
      p.y = call.inputs[1];
      p.w = call.outputs[0];
      break;
  }
  if (has_bias) p.bias = call.inputs[2];
  const size_t axes = p.x.dims.size() - 2;
  p.strides = call.params.Ints("strides", std::vector<int64_t>(axes, 1));
  p.dilations = call.params.Ints("dilations", std::vector<int64_t>(axes, 1));
  for (int64_t& d : p.dilations) --d;  // oneDNN counts the holes
  const std::vector<int64_t> pads = call.params.Ints("pads", std::vector<int64_t>(2 * axes, 0));
  p.pads_begin.assign(pads.begin(), pads.begin() + static_cast<int64_t>(axes));
  p.pads_end.assign(pads.begin() + static_cast<int64_t>(axes), pads.end());
  p.group = call.params.Int("group", 1);
  return p;
}

/// The data gradient of `p` as a convolution of its own, where it is one that oneDNN can take.
bool Turn(Problem* p) {
  Problem t = *p;
  std::swap(t.x, t.y);
  std::swap(t.w.dims[0], t.w.dims[1]);
  for (size_t i = 0; i < p->strides.size(); ++i) {
    const int64_t reach = (p->w.dims[2 + i] - 1) * (p->dilations[i] + 1);
    t.pads_begin[i] = reach - p->pads_begin[i];
    t.pads_end[i] = t.y.dims[2 + i] - t.x.dims[2 + i] + p->pads_begin[i];
    if (p->strides[i] != 1 || t.pads_begin[i] < 0 || t.pads_end[i] < 0) return false;
  }
  if (p->group != 1) return false;
  t.turned = true;
  *p = std::move(t);
  return true;
}

/// What oneDNN chose for a problem, with the layouts that it wants.
struct Chosen {
  dnnl::primitive primitive;
  int a_arg, b_arg, result_arg;  // the call's two inputs and its output
  memory::desc a, b, result, scratch;
};

struct Types {
  memory::data_type in, out;  // of the call's two inputs, of its output
  bool bias;
};

Chosen Choose(const Problem& p, Direction direction, const Types& types,
              const dnnl::engine& engine) {
  const auto data = [&](const TensorDesc& t, memory::data_type type) {
    if (p.x.layout == Layout::kChannelsLast)
      return memory::desc(t.dims, type, StridesOf(t.dims, p.x.layout));
    return memory::desc(t.dims, type, Tag::any);
  };
  const bool is_forward = direction == Direction::kForward;
  const memory::desc x = data(p.x, types.in), y = data(p.y, is_forward ? types.out : types.in),
                     w(p.WeightDims(), types.in, Tag::any);
  memory::desc bias;
  if (types.bias) bias = {{p.y.dims[1]}, memory::data_type::f32, Tag::a};
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  using Forward = dnnl::convolution_forward;
  const Forward::primitive_desc forward(engine, dnnl::prop_kind::forward_training, kAlgorithm, x, w,
                                        bias, y, p.strides, p.dilations, p.pads_begin, p.pads_end,
                                        attr);
  switch (direction) {
    case Direction::kForward:
      break;
    case Direction::kBackwardData: {
      using Backward = dnnl::convolution_backward_data;
      const Backward::primitive_desc pd(engine, kAlgorithm, data(p.x, types.out), w, y, p.strides,
                                        p.dilations, p.pads_begin, p.pads_end, forward, attr);
      return {Backward(pd),       DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS,   DNNL_ARG_DIFF_SRC,
              pd.diff_dst_desc(), pd.weights_desc(), pd.diff_src_desc(), pd.scratchpad_desc()};
    }
    case Direction::kBackwardWeights: {
      using Backward = dnnl::convolution_backward_weights;
      const memory::desc dw(p.WeightDims(), types.out, Tag::any);
      const Backward::primitive_desc pd(engine, kAlgorithm, x, dw, y, p.strides, p.dilations,
                                        p.pads_begin, p.pads_end, forward, attr);
      return {Backward(pd),  DNNL_ARG_SRC,       DNNL_ARG_DIFF_DST,      DNNL_ARG_DIFF_WEIGHTS,
              pd.src_desc(), pd.diff_dst_desc(), pd.diff_weights_desc(), pd.scratchpad_desc()};
    }
  }
  return {
      Forward(forward),   DNNL_ARG_SRC,           DNNL_ARG_WEIGHTS,   DNNL_ARG_DST,
      forward.src_desc(), forward.weights_desc(), forward.dst_desc(), forward.scratchpad_desc()};
}

/// One tensor between the plan's form and the primitive's: type and layout.
struct Stage {
  DType type;
  int64_t elements;
  int64_t wide_at = -1;   // fp32 in the plan's layout; -1: the tensor itself will do
  int64_t inner_at = -1;  // in the primitive's layout; -1: that is the plan's
  int slot = -1;
  OneDnnPrimitive reorder = {};
  int reorder_from = -1, reorder_to = -1;

  void* Plain(void* data, void* workspace) const {
    return wide_at < 0 ? data : At<std::byte>(workspace, wide_at);
  }
  void* Inner(void* plain, void* workspace) const {
    return inner_at < 0 ? plain : At<std::byte>(workspace, inner_at);
  }
  void Reorder(const void* from, const void* to, void* workspace) {
    reorder.SetData(reorder_from, from);
    reorder.SetData(reorder_to, to);
    reorder.Execute(workspace);
  }
};

class Conv final : public PreparedKernel {
 public:
  static PrepareResult Prepare(const CallSpec& call, const PrepareOptions& options,
                               Direction direction) {
    Problem problem = Analyse(call, direction);
    if (direction == Direction::kBackwardData && Turn(&problem)) direction = Direction::kForward;
    auto kernel = std::unique_ptr<Conv>(new Conv(call, options, problem, direction));
    kernel->Create();
    return std::unique_ptr<PreparedKernel>(std::move(kernel));
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override;

 private:
  Conv(const CallSpec& call, const PrepareOptions& options, const Problem& problem,
       Direction direction);
  void Create();
  void PlanStage(Stage& s, const TensorDesc& t, const memory::desc& inner, bool is_result);
  void Bring(Stage& s, const void* data, void* workspace);
  const void* Reversed(const void* weights, void* workspace) const;
  void Finish(const float* wide, const float* bias, void* y) const;

  Problem problem_;
  Direction direction_;
  const VecOps& vec_;
  int threads_;
  DType compute_;
  bool relu_, bias_after_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  Stage a_, b_, result_;
  int64_t bias_at_ = -1, reversed_at_ = -1;
  int bias_slot_ = -1;
  WorkspacePlan plan_;
  OneDnnPrimitive primitive_;
};

Stage StageOf(const TensorDesc& t) { return {t.dtype, t.elements()}; }

Conv::Conv(const CallSpec& call, const PrepareOptions& options, const Problem& problem,
           Direction direction)
    : problem_(problem),
      direction_(direction),
      vec_(Vec()),
      threads_(problem_.flops() < kFlopsForThreads ? 1 : std::max(options.threads, 1)),
      relu_(call.params.String("post") == "relu"),
      bias_after_(direction == Direction::kBackwardData && problem_.bias.present()),
      a_(StageOf(call.inputs[0])),
      b_(StageOf(call.inputs[1])),
      result_(StageOf(call.outputs[0])) {
  // oneDNN adds up weight gradients per thread.
  if (direction == Direction::kBackwardWeights && options.deterministic) threads_ = 1;
  const bool slow = direction == Direction::kBackwardWeights && problem_.HasStrides();
  const bool bf16 =
      a_.type == DType::kBFloat16 && b_.type == DType::kBFloat16 && HasNativeBf16() && !slow;
  compute_ = bf16 ? DType::kBFloat16 : DType::kFloat32;
}

void Conv::Create() {
  const Problem& p = problem_;
  // The result leaves the primitive in fp32 when a bias or another rounding waits for it.
  const auto in = OneDnnType(compute_);
  const auto out =
      OneDnnType(result_.type == compute_ && !bias_after_ ? compute_ : DType::kFloat32);
  const bool forward = direction_ == Direction::kForward,
             to_weights = direction_ == Direction::kBackwardWeights;
  const Types types = {in, out, forward && p.bias.present()};
  const ScopedThreads scope(threads_);
  const Chosen chosen = Choose(p, direction_, types, engine_);
  PlanStage(a_, forward || to_weights ? p.x : p.y, chosen.a, false);
  PlanStage(b_, to_weights ? p.y : p.w, chosen.b, false);
  PlanStage(result_, forward ? p.y : to_weights ? p.w : p.x, chosen.result, true);
  primitive_ = OneDnnPrimitive(engine_, chosen.primitive, threads_);
  a_.slot = primitive_.Bind(chosen.a_arg, chosen.a);
  b_.slot = primitive_.Bind(chosen.b_arg, chosen.b);
  result_.slot = primitive_.Bind(chosen.result_arg, chosen.result);
  primitive_.BindScratch(chosen.scratch, plan_);
  if (!p.bias.present()) return;
  if (p.bias.dtype != DType::kFloat32) bias_at_ = plan_.Take(p.bias.elements() * 4);
  if (types.bias)
    bias_slot_ = primitive_.Bind(DNNL_ARG_BIAS, {{p.y.dims[1]}, memory::data_type::f32, Tag::a});
}

void Conv::PlanStage(Stage& s, const TensorDesc& t, const memory::desc& inner, bool is_result) {
  const bool same_type = OneDnnType(s.type) == inner.get_data_type();
  if (!same_type || (is_result && bias_after_)) s.wide_at = plan_.Take(s.elements * 4);
  const bool is_weights = &t == &problem_.w;
  const memory::dims dims = is_weights ? problem_.WeightDims() : t.dims;
  const memory::desc plain(dims, inner.get_data_type(),
                           is_weights ? problem_.WeightStrides() : StridesOf(dims, t.layout));
  if (is_weights && problem_.turned && t.elements() > t.dims[0] * t.dims[1])
    reversed_at_ = plan_.Take(static_cast<int64_t>(plain.get_size()));
  if (inner == plain) return;
  s.inner_at = plan_.Take(static_cast<int64_t>(inner.get_size()));
  const memory::desc &from = is_result ? inner : plain, &to = is_result ? plain : inner;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc pd(engine_, from, engine_, to, attr);
  s.reorder = OneDnnPrimitive(engine_, dnnl::reorder(pd), threads_);
  s.reorder_from = s.reorder.Bind(DNNL_ARG_FROM, from);
  s.reorder_to = s.reorder.Bind(DNNL_ARG_TO, to);
  s.reorder.BindScratch(pd.scratchpad_desc(), plan_);
}

/// Hands an input to the primitive.
void Conv::Bring(Stage& s, const void* data, void* workspace) {
  const void* plain = data;
  if (s.wide_at >= 0) {
    float* wide = At<float>(workspace, s.wide_at);
    WidenAll(threads_, s.type, data, wide, s.elements);
    plain = wide;
  }
  if (&s == &b_ && reversed_at_ >= 0) plain = Reversed(plain, workspace);
  const void* inner = plain;
  if (s.inner_at >= 0) {
    inner = At<std::byte>(workspace, s.inner_at);
    s.Reorder(plain, inner, workspace);
  }
  primitive_.SetData(s.slot, inner);
}

/// The taps of each pair of channels from the last to the first.
const void* Conv::Reversed(const void* weights, void* workspace) const {
  void* reversed = At<std::byte>(workspace, reversed_at_);
  const int64_t pairs = problem_.w.dims[0] * problem_.w.dims[1],
                taps = problem_.w.elements() / pairs;
  const auto copy = [&]<typename T>(const T* from, T* to) {
    ParallelRanges(ThreadsFor(threads_, pairs * taps * SizeOf(compute_) * 2), pairs, 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i)
                       std::reverse_copy(from + i * taps, from + (i + 1) * taps, to + i * taps);
                   });
  };
  if (compute_ == DType::kFloat32) {
    copy(static_cast<const float*>(weights), static_cast<float*>(reversed));
  } else {
    copy(static_cast<const uint16_t*>(weights), static_cast<uint16_t*>(reversed));
  }
  return reversed;
}

/// Bias of a transposed convolution, relu and the one rounding. `wide` is null when y holds the
/// result already.
void Conv::Finish(const float* wide, const float* bias, void* y) const {
  if (wide == nullptr && !relu_) return;
  const TensorDesc& t = direction_ == Direction::kForward ? problem_.y : problem_.x;
  const int used = ThreadsFor(threads_, result_.elements * 6);
  if (wide == nullptr && result_.type == DType::kBFloat16) {
    return ParallelRanges(used, result_.elements, kBlock, [&](int64_t begin, int64_t end) {
      vec_.relu_bf16(static_cast<uint16_t*>(y) + begin, end - begin);
    });
  }
  const float* from = wide == nullptr ? static_cast<const float*>(y) : wide;
  if (bias == nullptr) {
    return ParallelRanges(used, result_.elements, kBlock, [&](int64_t begin, int64_t end) {
      float buffer[kBlock];
      for (int64_t i = begin; i < end; i += kBlock) {
        const int64_t n = std::min(kBlock, end - i);
        float* block = OutputBlock(result_.type, y, i, buffer);
        if (relu_) {
          vec_.relu(from + i, block, n);
        } else if (result_.type == DType::kFloat32) {
          std::memcpy(block, from + i, static_cast<size_t>(n) * 4);
        } else {
          Narrow(result_.type, from + i, Offset(y, i * 2), n);
          continue;
        }
        StoreBlock(result_.type, block, y, i, n);
      }
    });
  }
  // Rows of one channel (row-major) or of all channels (channels-last).
  const int64_t channels = t.dims[1], spatial = result_.elements / (t.dims[0] * channels);
  const bool last = t.layout == Layout::kChannelsLast;
  const int64_t length = last ? channels : spatial, rows = result_.elements / length;
  ParallelRanges(used, rows, 1, [&](int64_t begin, int64_t end) {
    float buffer[kBlock];
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < length; i += kBlock) {
        const int64_t n = std::min(kBlock, length - i), at = row * length + i;
        float* block = OutputBlock(result_.type, y, at, buffer);
        if (last) {
          for (int64_t j = 0; j < n; ++j) block[j] = from[at + j] + bias[i + j];
        } else {
          for (int64_t j = 0; j < n; ++j) block[j] = from[at + j] + bias[row % channels];
        }
        StoreBlock(result_.type, block, y, at, n);
      }
    }
  });
}

void Conv::Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
               const RunContext&) noexcept {
  const float* bias = nullptr;
  if (problem_.bias.present()) {
    bias = static_cast<const float*>(inputs[2]);
    if (bias_at_ >= 0) {
      float* wide = At<float>(workspace, bias_at_);
      Widen(problem_.bias.dtype, inputs[2], wide, problem_.bias.elements());
      bias = wide;
    }
    if (bias_slot_ >= 0) primitive_.SetData(bias_slot_, bias);
  }
  Bring(a_, inputs[0], workspace);
  Bring(b_, inputs[1], workspace);
  void* plain = result_.Plain(outputs[0], workspace);
  void* inner = result_.Inner(plain, workspace);
  primitive_.SetData(result_.slot, inner);
  primitive_.Execute(workspace);
  if (inner != plain) result_.Reorder(inner, plain, workspace);
  Finish(result_.wide_at < 0 ? nullptr : static_cast<const float*>(plain),
         bias_after_ ? bias : nullptr, outputs[0]);
}

std::string DeclinesAny(const CallSpec& call) {
  if (std::string reason = DeclinesUnlessFloat(call); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}

PrepareResult PrepareAny(const CallSpec& call, const PrepareOptions& options, Direction direction) {
  return CatchOneDnn("a convolution", [&] { return Conv::Prepare(call, options, direction); });
}

}  // namespace

std::string DeclinesConv(const CallSpec& call, const PrepareOptions&) { return DeclinesAny(call); }
std::string DeclinesConvBackwardData(const CallSpec& call, const PrepareOptions&) {
  return DeclinesAny(call);
}
std::string DeclinesConvBackwardWeights(const CallSpec& call, const PrepareOptions&) {
  return DeclinesAny(call);
}

PrepareResult PrepareConv(const CallSpec& call, const PrepareOptions& options) {
  return PrepareAny(call, options, Direction::kForward);
}
PrepareResult PrepareConvBackwardData(const CallSpec& call, const PrepareOptions& options) {
  return PrepareAny(call, options, Direction::kBackwardData);
}
PrepareResult PrepareConvBackwardWeights(const CallSpec& call, const PrepareOptions& options) {
  return PrepareAny(call, options, Direction::kBackwardWeights);
}

}  // namespace ampc::cpu
