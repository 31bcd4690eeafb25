// SPDX-License-Identifier: Apache-2.0
// rnn_bwd: back through time. Per step the cell's program turns dh and dc into the gradients of the
// gates, and one product with R makes the dh of the step before.
//
// dgates are rounded to the layer's type by the program, so products may read them where they are
// stored (bf16, fp32) or in floats beside (`wide`). Rows whose step lies behind their length keep
// dh and dc, and their dgates are zero.

#include "kernels/cpu/families.h"
#include "kernels/cpu/rnn_step.h"
#include "kernels/ref/rnn.h"

namespace ampc::cpu {
namespace {

using Operand = CellProgram::Operand;

enum : size_t { kR, kLengths, kGates, kHPrev, kDy, kDyh, kState, kC0, kDyc, kP };  // inputs
enum : size_t { kDgates, kDh0, kDc0, kDp, kExtra };                                // outputs

class RnnBackwardKernel final : public PreparedKernel {
 public:
  static PrepareResult Prepare(const CallSpec& call, const PrepareOptions& options) {
    AMPC_ASSIGN(ref::RnnCall read, ref::ReadRnnBackward(call));
    AMPC_ASSIGN(auto programs, ref::ParseBackward(read.layer));
    auto kernel = std::unique_ptr<RnnBackwardKernel>(new RnnBackwardKernel(std::move(read), call));
    kernel->Create(std::move(programs), options);
    return std::unique_ptr<PreparedKernel>(std::move(kernel));
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override;

 private:
  using Buffers = RnnBuffers;
  /// One step of one direction.
  struct Place {
    int64_t d, t, first;  ///< first: position of the step's first row in [D, T, B]
    bool start;           ///< no step of the layer comes before it
  };

  RnnBackwardKernel(ref::RnnCall read, const CallSpec& call)
      : call_(std::move(read)), in_(call.inputs), out_(call.outputs) {
    in_.resize(kP + 1);
    out_.resize(kExtra + 1);
  }
  void Create(std::vector<RnnPrograms> programs, const PrepareOptions& options);
  void CreateLanes(int64_t scratch_floats, const PrepareOptions& options);

  const RnnCell& cell() const { return call_.cell(0); }

  void StartDirection(const Buffers& r, int64_t d) noexcept;
  // One step of a lane.
  void Step(const Buffers& r, RnnLane& lane, const Place& p) noexcept;
  void LoadHidden(const Buffers& r, RnnLane& lane, const Place& p) noexcept;
  void CellStep(const Buffers& r, RnnLane& lane, const Place& p) noexcept;
  void ResetStep(const Buffers& r, RnnLane& lane, const Place& p) noexcept;
  void StoreGates(const Buffers& r, const Place& p, int64_t b) const noexcept;
  void AddPeepholes(const Buffers& r, const Place& p) noexcept;
  bool Inside(const Buffers& r, const Place& p, int64_t b) const {
    return p.t < ref::RnnLength(static_cast<const int32_t*>(r.In(kLengths)), b, call_.steps);
  }
  const float* CellBefore(const Buffers& r, const Place& p) const;
  Operand GateOf(const Buffers& r, const Place& p, int64_t i) const;
  /// dgates (or for GRU with linear_before_reset `extra`) of the lane's rows in the step, as the
  /// products read them.
  const std::byte* Source(const Buffers& r, const RnnLane& lane, const Place& p) const;

  ref::RnnCall call_;
  std::vector<TensorDesc> in_, out_;
  std::vector<CellProgram> first_, second_;  // by direction
  DType compute_ = DType::kFloat32;          // of the step products
  std::vector<RnnLane> lanes_;
  int threads_ = 1;
  WorkspacePlan plan_;
  int64_t dh_at_ = 0, dc_at_ = 0, h_at_ = 0, c0_at_ = 0, wide_at_ = 0, third_at_ = -1,
          reset_at_ = -1, r_at_ = -1, p_at_ = -1, dp_at_ = -1;
};

void RnnBackwardKernel::CreateLanes(int64_t scratch_floats, const PrepareOptions& options) {
  const int64_t H = call_.hidden, B = call_.batch, G = call_.gates;
  // dP is one sum over all rows.
  lanes_ = CutIntoLanes(in_[kP].present() ? 1 : B, G * H * SizeOf(compute_));
  if (in_[kP].present()) lanes_[0].rows = B;
  threads_ = lanes_.size() > 1 ? std::max(options.threads, 1) : 1;
  for (RnnLane& lane : lanes_) {
    const auto product = [&](int64_t k, StepProduct& first) {
      const int threads = ThreadsOfProduct(lanes_.size(), 2 * B * k * H, k, options);
      return StepProduct(
          {.rows = lane.rows, .k = k, .n = H, .type = compute_, .x_stride = G, .y_stride = H},
          threads, plan_, &first);
    };
    lane.product = product(cell().reset_first() ? 2 * H : G, lanes_[0].product);
    if (cell().reset_first()) lane.reset_product = product(H, lanes_[0].reset_product);
    const int threads = lanes_.size() > 1 ? 1 : options.threads;
    lane.tasks = RowTasks(lane, H, scratch_floats, threads, plan_);
  }
}

void RnnBackwardKernel::Create(std::vector<RnnPrograms> programs, const PrepareOptions& options) {
  const int64_t H = call_.hidden, B = call_.batch, G = call_.gates;
  const DType stored = out_[kDgates].dtype;
  const bool bf16 = cell().operand == DType::kBFloat16 && in_[kR].dtype == DType::kBFloat16 &&
                    stored == DType::kBFloat16 && HasNativeBf16() &&
                    (!cell().reset_last() || out_[kExtra].dtype == stored);
  compute_ = bf16 ? DType::kBFloat16 : DType::kFloat32;
  int64_t scratch = 0;
  for (RnnPrograms& p : programs) {
    first_.emplace_back(std::move(p.first));
    second_.emplace_back(std::move(p.second));
    scratch = std::max({scratch, first_.back().scratch(), second_.back().scratch()});
  }
  CreateLanes(scratch, options);
  dh_at_ = plan_.Take(B * H * 4);
  dc_at_ = plan_.Take(B * H * 4);
  h_at_ = plan_.Take(B * H * 4);
  wide_at_ = plan_.Take(B * G * 4);
  if (cell().kind == RnnKind::kLstm) c0_at_ = plan_.Take(B * H * 4);
  if (cell().reset_first()) reset_at_ = plan_.Take(B * H * 4);
  if (cell().kind == RnnKind::kGru) third_at_ = plan_.Take(B * (cell().reset_last() ? G : H) * 4);
  if (in_[kR].dtype != compute_) r_at_ = plan_.Take(G * H * 4);
  if (in_[kP].present()) {
    p_at_ = plan_.Take(3 * H * 4);
    dp_at_ = plan_.Take(3 * H * 4);
  }
}

void RnnBackwardKernel::StartDirection(const Buffers& r, int64_t d) noexcept {
  const int64_t H = call_.hidden, B = call_.batch, G = call_.gates, row = B * H;
  const std::byte* m = Offset(r.In(kR), d * G * H * SizeOf(in_[kR].dtype));
  if (r_at_ >= 0) {
    Widen(in_[kR].dtype, m, r.Floats(r_at_), G * H);
    m = At<std::byte>(r.workspace, r_at_);
  }
  for (RnnLane& lane : lanes_) {
    lane.product.Pack(m, r.workspace);
    if (cell().reset_first())
      lane.reset_product.Pack(m + 2 * H * H * SizeOf(compute_), r.workspace);
  }
  LoadRow(in_[kDyh].dtype, r.In(kDyh), d * row, row, r.Floats(dh_at_));
  LoadRow(in_[kDyc].dtype, r.In(kDyc), d * row, row, r.Floats(dc_at_));
  if (cell().kind == RnnKind::kLstm)
    LoadRow(in_[kC0].dtype, r.In(kC0), d * row, row, r.Floats(c0_at_));
  if (p_at_ < 0) return;
  LoadRow(in_[kP].dtype, r.In(kP), d * 3 * H, 3 * H, r.Floats(p_at_));
  LoadRow(DType::kFloat32, nullptr, 0, 3 * H, r.Floats(dp_at_));
}

/// c of the step before: of [batch, hidden].
const float* RnnBackwardKernel::CellBefore(const Buffers& r, const Place& p) const {
  if (p.start) return r.Floats(c0_at_);
  const int64_t step = call_.batch * (call_.reverse(p.d) ? 1 : -1);
  return static_cast<const float*>(r.In(kState)) + (p.first + step) * call_.hidden;
}

Operand RnnBackwardKernel::GateOf(const Buffers& r, const Place& p, int64_t i) const {
  // The program only reads it.
  float* gates = const_cast<float*>(static_cast<const float*>(r.In(kGates)));
  return {gates + p.first * call_.gates + i * call_.hidden, call_.gates};
}

const std::byte* RnnBackwardKernel::Source(const Buffers& r, const RnnLane& lane,
                                           const Place& p) const {
  const bool third = cell().reset_last();
  const int64_t G = call_.gates;
  if (compute_ == DType::kFloat32)
    return At<std::byte>(r.workspace, (third ? third_at_ : wide_at_) + lane.begin * G * 4);
  return Offset(r.Out(third ? kExtra : kDgates), (p.first + lane.begin) * G * 2);
}

/// dh += dy of the step's rows; h' in floats for GRU.
void RnnBackwardKernel::LoadHidden(const Buffers& r, RnnLane& lane, const Place& p) noexcept {
  const int64_t H = call_.hidden, B = call_.batch;
  const bool gru = cell().kind == RnnKind::kGru;
  float *dh = r.Floats(dh_at_), *h = r.Floats(h_at_);
  lane.tasks.Run(r.workspace, [&](int64_t b, float*) {
    if (!Inside(r, p, b)) return;
    float* row = h + b * H;
    if (r.In(kDy) != nullptr) {
      const int64_t at = ((p.t * call_.directions() + p.d) * B + b) * H;
      LoadRow(in_[kDy].dtype, r.In(kDy), at, H, row);
      for (int64_t j = 0; j < H; ++j) dh[b * H + j] += row[j];
    }
    if (gru) LoadRow(in_[kHPrev].dtype, r.In(kHPrev), (p.first + b) * H, H, row);
  });
}

/// Stores row b of `wide` and what `extra` has of it.
void RnnBackwardKernel::StoreGates(const Buffers& r, const Place& p, int64_t b) const noexcept {
  const int64_t H = call_.hidden, G = call_.gates;
  float* wide = r.Floats(wide_at_) + b * G;
  StoreRow(out_[kDgates].dtype, wide, r.Out(kDgates), (p.first + b) * G, G);
  if (cell().kind != RnnKind::kGru) return;
  const int64_t width = cell().reset_last() ? G : H;
  float* third = r.Floats(third_at_) + b * width;
  if (cell().reset_last()) std::memcpy(third, wide, static_cast<size_t>(2 * H) * 4);
  StoreRow(out_[kExtra].dtype, third, r.Out(kExtra), (p.first + b) * width, width);
}

/// The program of every cell but the GRU whose reset comes first.
void RnnBackwardKernel::CellStep(const Buffers& r, RnnLane& lane, const Place& p) noexcept {
  const int64_t H = call_.hidden, G = call_.gates;
  float *dh = r.Floats(dh_at_), *dc = r.Floats(dc_at_), *wide = r.Floats(wide_at_);
  float *h = r.Floats(h_at_), *third = third_at_ < 0 ? nullptr : r.Floats(third_at_);
  float* state = const_cast<float*>(static_cast<const float*>(r.In(kState)));
  if (state != nullptr) state += p.first * H;
  const bool lstm = cell().kind == RnnKind::kLstm, gru = cell().kind == RnnKind::kGru;
  std::array<Operand, kMaxCellOperands> in, out;
  size_t n = 0, m = 0;
  for (int64_t i = 0; i < cell().gates(); ++i) in[n++] = GateOf(r, p, i);
  for (int64_t i = 0; i < cell().gates(); ++i) out[m++] = {wide + i * H, G};
  if (lstm) {
    in[n++] = {const_cast<float*>(CellBefore(r, p)), H};
    in[n++] = {state, H};
  } else if (gru) {
    in[n++] = {state, H};
    in[n++] = {h, H};
    out[m++] = {third + 2 * H, G};
    out[m++] = {dh, H};
  }
  in[n++] = {dh, H};
  if (lstm) {
    in[n++] = {dc, H};
    out[m++] = {dc, H};
    for (int64_t i = 0; p_at_ >= 0 && i < 3; ++i) in[n++] = {r.Floats(p_at_) + i * H, 0};
  }
  const CellProgram& program = first_[static_cast<size_t>(p.d)];
  lane.tasks.Run(r.workspace, [&](int64_t b, float* scratch) {
    if (Inside(r, p, b)) {
      program.Row(b, std::span(in).first(n), std::span(out).first(m), H, scratch);
      if (!gru) std::memset(dh + b * H, 0, static_cast<size_t>(H) * 4);
    } else {
      std::memset(wide + b * G, 0, static_cast<size_t>(G) * 4);
      if (third != nullptr) std::memset(third + b * G, 0, static_cast<size_t>(G) * 4);
    }
    StoreGates(r, p, b);
  });
}

/// GRU whose reset comes before the product: z and the last gate, back through the product to r h',
/// then r.
void RnnBackwardKernel::ResetStep(const Buffers& r, RnnLane& lane, const Place& p) noexcept {
  const int64_t H = call_.hidden, G = call_.gates;
  float *dh = r.Floats(dh_at_), *wide = r.Floats(wide_at_), *h = r.Floats(h_at_);
  float *third = r.Floats(third_at_), *reset = r.Floats(reset_at_);
  const auto d = static_cast<size_t>(p.d);
  const Operand in1[] = {GateOf(r, p, 0), GateOf(r, p, 2), {h, H}, {dh, H}};
  const Operand out1[] = {{wide, G}, {wide + 2 * H, G}, {dh, H}};
  lane.tasks.Run(r.workspace, [&](int64_t b, float* scratch) {
    std::memset(wide + b * G, 0, static_cast<size_t>(G) * 4);
    if (Inside(r, p, b)) first_[d].Row(b, in1, out1, H, scratch);
    if (compute_ != DType::kFloat32) StoreGates(r, p, b);
  });
  float* sums = reset + lane.begin * H;
  std::memset(sums, 0, static_cast<size_t>(lane.rows * H) * 4);
  lane.reset_product.Run(Source(r, lane, p) + 2 * H * SizeOf(compute_), sums, r.workspace);
  const Operand in2[] = {GateOf(r, p, 1), {h, H}, {reset, H}, {dh, H}};
  const Operand out2[] = {{wide + H, G}, {dh, H}, {third, H}};
  lane.tasks.Run(r.workspace, [&](int64_t b, float* scratch) {
    if (Inside(r, p, b)) {
      second_[d].Row(b, in2, out2, H, scratch);
    } else {
      std::memset(third + b * H, 0, static_cast<size_t>(H) * 4);
    }
    StoreGates(r, p, b);
  });
}

/// dP, row after row.
void RnnBackwardKernel::AddPeepholes(const Buffers& r, const Place& p) noexcept {
  const int64_t H = call_.hidden;
  const float *wide = r.Floats(wide_at_), *before = CellBefore(r, p);
  const float* c = static_cast<const float*>(r.In(kState)) + p.first * H;
  float* dp = r.Floats(dp_at_);
  for (int64_t b = 0; b < call_.batch; ++b) {
    if (!Inside(r, p, b)) continue;
    const float* row = wide + b * call_.gates;
    for (int64_t j = 0; j < H; ++j) {
      dp[j] += row[j] * before[b * H + j];
      dp[H + j] += row[H + j] * c[b * H + j];
      dp[2 * H + j] += row[2 * H + j] * before[b * H + j];
    }
  }
}

void RnnBackwardKernel::Step(const Buffers& r, RnnLane& lane, const Place& p) noexcept {
  LoadHidden(r, lane, p);
  if (cell().reset_first()) {
    ResetStep(r, lane, p);
  } else {
    CellStep(r, lane, p);
  }
  if (p_at_ >= 0) AddPeepholes(r, p);
  lane.product.Run(Source(r, lane, p), r.Floats(dh_at_) + lane.begin * call_.hidden, r.workspace);
}

void RnnBackwardKernel::Run(std::span<const void* const> inputs, std::span<void* const> outputs,
                            void* workspace, const RunContext&) noexcept {
  const Buffers r{inputs, outputs, workspace};
  const int64_t row = call_.batch * call_.hidden;
  for (int64_t d = 0; d < call_.directions(); ++d) {
    StartDirection(r, d);
    ParallelFor(threads_, static_cast<int64_t>(lanes_.size()), [&](int64_t lane) {
      for (int64_t i = call_.steps; i-- > 0;) {
        const int64_t t = call_.Step(d, i);
        Step(r, lanes_[static_cast<size_t>(lane)],
             {d, t, (d * call_.steps + t) * call_.batch, i == 0});
      }
    });
    StoreRow(out_[kDh0].dtype, r.Floats(dh_at_), r.Out(kDh0), d * row, row);
    StoreRow(out_[kDc0].dtype, r.Floats(dc_at_), r.Out(kDc0), d * row, row);
    if (dp_at_ >= 0)
      StoreRow(out_[kDp].dtype, r.Floats(dp_at_), r.Out(kDp), d * 3 * call_.hidden,
               3 * call_.hidden);
  }
}

}  // namespace

std::string DeclinesRnnBackward(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call, kLengths); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}

PrepareResult PrepareRnnBackward(const CallSpec& call, const PrepareOptions& options) {
  return CatchOneDnn("a recurrent layer's backward pass",
                     [&] { return RnnBackwardKernel::Prepare(call, options); });
}

}  // namespace ampc::cpu
