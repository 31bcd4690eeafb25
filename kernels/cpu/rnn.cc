// SPDX-License-Identifier: Apache-2.0
// rnn: one product x W over all steps; then, lane by lane of the batch (RnnLane), per step one
// product h' R into the same gates and the cell's program over the lane's rows.
//
// bf16 products run on bf16 operands where the processor has them; otherwise low operands are
// widened. Gates, cells and the hidden state are fp32 (h rounded to the low type by the program).

#include "kernels/cpu/families.h"
#include "kernels/cpu/rnn_step.h"
#include "kernels/ref/rnn.h"

namespace ampc::cpu {
namespace {

using Operand = CellProgram::Operand;

enum : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP };  // inputs
enum : size_t { kY, kYh, kYc, kGates, kState, kHPrev };    // outputs

class RnnForwardKernel final : public PreparedKernel {
 public:
  static PrepareResult Prepare(const CallSpec& call, const PrepareOptions& options) {
    AMPC_ASSIGN(ref::RnnCall read, ref::ReadRnn(call));
    AMPC_ASSIGN(auto programs, ref::ParseForward(read.layer));
    auto kernel = std::unique_ptr<RnnForwardKernel>(new RnnForwardKernel(std::move(read), call));
    AMPC_TRY(kernel->Create(std::move(programs), options));
    return std::unique_ptr<PreparedKernel>(std::move(kernel));
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext& context) noexcept override;

 private:
  using Buffers = RnnBuffers;

  RnnForwardKernel(ref::RnnCall read, const CallSpec& call)
      : call_(std::move(read)), in_(call.inputs), out_(call.outputs) {
    in_.resize(kP + 1);
    out_.resize(kHPrev + 1);
  }
  Status Create(std::vector<RnnPrograms> programs, const PrepareOptions& options);
  Status CreateInputProduct(const PrepareOptions& options);
  void CreateLanes(int64_t scratch_floats, const PrepareOptions& options);

  const RnnCell& cell() const { return call_.cell(0); }
  /// Gates and state of step t in direction d: in the output, or in the workspace.
  float* Gates(const Buffers& r, int64_t d, int64_t t) const;
  float* State(const Buffers& r, int64_t d, int64_t t) const;

  void StartDirection(const Buffers& r, int64_t d, const RunContext& context) noexcept;
  void PrepareBias(const Buffers& r, int64_t d) noexcept;
  void PackRecurrent(const Buffers& r, int64_t d) noexcept;
  // One step of a lane.
  void Step(const Buffers& r, RnnLane& lane, int64_t d, int64_t t) noexcept;
  const void* OperandOf(const Buffers& r, const RnnLane& lane, const float* h,
                        void* stored) noexcept;
  void ResetStep(const Buffers& r, RnnLane& lane, int64_t d, float* gates) noexcept;
  void CellStep(const Buffers& r, RnnLane& lane, int64_t d, int64_t t) noexcept;

  ref::RnnCall call_;
  std::vector<TensorDesc> in_, out_;
  std::vector<CellProgram> first_, second_;  // by direction
  DType compute_ = DType::kFloat32;          // of the step products
  std::unique_ptr<PreparedKernel> input_product_;
  std::vector<RnnLane> lanes_;
  int threads_ = 1;
  WorkspacePlan plan_;
  int64_t input_at_ = 0, bias_at_ = 0, gates_at_ = -1, state_at_ = -1, h_at_ = 0, c_at_ = 0,
          reset_at_ = -1, operand_at_ = -1, r_at_ = -1, p_at_ = -1;
};

Status RnnForwardKernel::CreateInputProduct(const PrepareOptions& options) {
  const int64_t rows = call_.steps * call_.batch;
  const CallSpec spec{"matmul",
                      {{"trans_b", int64_t{1}}},
                      {{in_[kX].dtype, {rows, call_.input}},
                       {in_[kW].dtype, {call_.gates, call_.input}},
                       {DType::kFloat32, {call_.gates}}},
                      {{DType::kFloat32, {rows, call_.gates}}}};
  AMPC_ASSIGN(input_product_, PrepareMatmul(spec, options));
  input_at_ = plan_.Take(input_product_->workspace_bytes());
  return {};
}

void RnnForwardKernel::CreateLanes(int64_t scratch_floats, const PrepareOptions& options) {
  const int64_t H = call_.hidden, B = call_.batch, G = call_.gates;
  const bool gru = cell().kind == RnnKind::kGru;
  const int64_t plain = gru ? 2 * H : G;  // gates that read h' at once
  lanes_ = CutIntoLanes(B, G * H * SizeOf(compute_));
  threads_ = lanes_.size() > 1 ? std::max(options.threads, 1) : 1;
  for (RnnLane& lane : lanes_) {
    const auto product = [&](int64_t n, int64_t y_stride, StepProduct& first) {
      const int threads = ThreadsOfProduct(lanes_.size(), 2 * B * H * n, H, options);
      return StepProduct({.rows = lane.rows,
                          .k = H,
                          .n = n,
                          .type = compute_,
                          .x_stride = H,
                          .y_stride = y_stride,
                          .transposed = true},
                         threads, plan_, &first);
    };
    lane.product = product(plain, G, lanes_[0].product);
    if (gru) lane.reset_product = product(H, cell().reset_last() ? H : G, lanes_[0].reset_product);
    const int threads = lanes_.size() > 1 ? 1 : options.threads;
    lane.tasks = RowTasks(lane, H, scratch_floats, threads, plan_);
  }
}

Status RnnForwardKernel::Create(std::vector<RnnPrograms> programs, const PrepareOptions& options) {
  const int64_t H = call_.hidden, B = call_.batch, G = call_.gates;
  AMPC_TRY(CreateInputProduct(options));
  const bool bf16 =
      cell().operand == DType::kBFloat16 && in_[kR].dtype == DType::kBFloat16 && HasNativeBf16();
  compute_ = bf16 ? DType::kBFloat16 : DType::kFloat32;
  int64_t scratch = 0;
  for (RnnPrograms& p : programs) {
    first_.emplace_back(std::move(p.first));
    second_.emplace_back(std::move(p.second));
    scratch = std::max({scratch, first_.back().scratch(), second_.back().scratch()});
  }
  CreateLanes(scratch, options);
  if (cell().reset_first()) reset_at_ = plan_.Take(B * H * 4);
  if (cell().reset_last() && !out_[kState].present()) state_at_ = plan_.Take(B * H * 4);
  bias_at_ = plan_.Take((G + H) * 4);
  if (!out_[kGates].present()) gates_at_ = plan_.Take(call_.steps * B * G * 4);
  h_at_ = plan_.Take(B * H * 4);
  c_at_ = plan_.Take(B * H * 4);
  if (bf16) operand_at_ = plan_.Take(B * H * 2);
  if (in_[kR].dtype != compute_) r_at_ = plan_.Take(G * H * 4);
  if (in_[kP].present()) p_at_ = plan_.Take(3 * H * 4);
  return {};
}

float* RnnForwardKernel::Gates(const Buffers& r, int64_t d, int64_t t) const {
  const int64_t step = call_.batch * call_.gates;
  if (gates_at_ >= 0) return r.Floats(gates_at_) + t * step;
  return static_cast<float*>(r.Out(kGates)) + (d * call_.steps + t) * step;
}

float* RnnForwardKernel::State(const Buffers& r, int64_t d, int64_t t) const {
  if (state_at_ >= 0) return r.Floats(state_at_);
  float* state = static_cast<float*>(r.Out(kState));
  if (state == nullptr) return nullptr;
  return state + (d * call_.steps + t) * call_.batch * call_.hidden;
}

/// The biases that every step adds: Wb + Rb, and behind them what the last gate of a reset GRU adds
/// inside the reset.
void RnnForwardKernel::PrepareBias(const Buffers& r, int64_t d) noexcept {
  const int64_t H = call_.hidden, G = call_.gates;
  float* bias = r.Floats(bias_at_);
  LoadRow(in_[kB].dtype, r.In(kB), d * 2 * G, G, bias);
  std::memset(bias + G, 0, static_cast<size_t>(H) * 4);
  if (r.In(kB) == nullptr) return;
  const int64_t plain = cell().reset_last() ? 2 * H : G;
  for (int64_t j = 0; j < G; ++j) {
    const float rb = LoadFloat(in_[kB].dtype, r.In(kB), d * 2 * G + G + j);
    if (j < plain) {
      bias[j] += rb;
    } else {
      bias[G + j - plain] = rb;
    }
  }
}

void RnnForwardKernel::PackRecurrent(const Buffers& r, int64_t d) noexcept {
  const int64_t H = call_.hidden, G = call_.gates, size = SizeOf(in_[kR].dtype);
  const std::byte* m = Offset(r.In(kR), d * G * H * size);
  if (r_at_ >= 0) {
    Widen(in_[kR].dtype, m, r.Floats(r_at_), G * H);
    m = At<std::byte>(r.workspace, r_at_);
  }
  for (RnnLane& lane : lanes_) {
    lane.product.Pack(m, r.workspace);
    if (cell().kind == RnnKind::kGru)
      lane.reset_product.Pack(m + 2 * H * H * SizeOf(compute_), r.workspace);
  }
}

void RnnForwardKernel::StartDirection(const Buffers& r, int64_t d,
                                      const RunContext& context) noexcept {
  const int64_t H = call_.hidden, B = call_.batch, G = call_.gates;
  PrepareBias(r, d);
  PackRecurrent(r, d);
  const void* inputs[] = {r.In(kX), Offset(r.In(kW), d * G * call_.input * SizeOf(in_[kW].dtype)),
                          r.Floats(bias_at_)};
  void* outputs[] = {Gates(r, d, 0)};
  input_product_->Run(inputs, outputs, At<std::byte>(r.workspace, input_at_), context);
  LoadRow(in_[kH0].dtype, r.In(kH0), d * B * H, B * H, r.Floats(h_at_));
  LoadRow(in_[kC0].dtype, r.In(kC0), d * B * H, B * H, r.Floats(c_at_));
  if (p_at_ >= 0) LoadRow(in_[kP].dtype, r.In(kP), d * 3 * H, 3 * H, r.Floats(p_at_));
}

/// The lane's rows of `h` as the products read them. `stored`: the same in the layer's own type, or
/// null.
const void* RnnForwardKernel::OperandOf(const Buffers& r, const RnnLane& lane, const float* h,
                                        void* stored) noexcept {
  if (compute_ == DType::kFloat32) return h;
  if (stored != nullptr) return stored;
  const int64_t H = call_.hidden;
  void* operand = At<std::byte>(r.workspace, operand_at_ + lane.begin * H * SizeOf(compute_));
  Narrow(compute_, h, operand, lane.rows * H);
  return operand;
}

/// GRU whose reset comes before the product: r h', and its product into the last gate.
void RnnForwardKernel::ResetStep(const Buffers& r, RnnLane& lane, int64_t d,
                                 float* gates) noexcept {
  const int64_t H = call_.hidden, G = call_.gates;
  float *h = r.Floats(h_at_), *reset = r.Floats(reset_at_);
  const Operand in[] = {{gates + H, G}, {h, H}}, out[] = {{reset, H}};
  lane.tasks.Run(r.workspace, [&](int64_t b, float* scratch) {
    first_[static_cast<size_t>(d)].Row(b, in, out, H, scratch);
  });
  lane.reset_product.Run(OperandOf(r, lane, reset + lane.begin * H, nullptr),
                         gates + lane.begin * G + 2 * H, r.workspace);
}

void RnnForwardKernel::CellStep(const Buffers& r, RnnLane& lane, int64_t d, int64_t t) noexcept {
  const int64_t H = call_.hidden, G = call_.gates, B = call_.batch, D = call_.directions();
  float *h = r.Floats(h_at_), *c = r.Floats(c_at_), *gates = Gates(r, d, t);
  float *state = State(r, d, t), *p = p_at_ < 0 ? nullptr : r.Floats(p_at_);
  const auto* lengths = static_cast<const int32_t*>(r.In(kLengths));
  std::array<Operand, kMaxCellOperands> in;
  size_t n = 0;
  const auto gate = [&](int64_t i) { in[n++] = {gates + i * H, G}; };
  const bool reset_first = cell().reset_first(), lstm = cell().kind == RnnKind::kLstm;
  for (int64_t i = 0; i < cell().gates(); ++i) {
    if (!(reset_first && i == 1)) gate(i);
  }
  if (cell().reset_last()) in[n++] = {state, H};
  if (lstm) {
    in[n++] = {c, H};
    for (int64_t i = 0; p != nullptr && i < 3; ++i) in[n++] = {p + i * H, 0};
  } else if (cell().kind == RnnKind::kGru) {
    in[n++] = {h, H};
  }
  const Operand outs[] = {{c, H}, {h, H}};
  const std::span<const Operand> out = std::span(outs).subspan(lstm ? 0 : 1);
  const CellProgram& program = (reset_first ? second_ : first_)[static_cast<size_t>(d)];
  void* y = r.Out(kY);
  lane.tasks.Run(r.workspace, [&](int64_t b, float* scratch) {
    const bool inside = t < ref::RnnLength(lengths, b, call_.steps);
    if (inside) program.Row(b, std::span(in).first(n), out, H, scratch);
    if (lstm && state != nullptr) std::memcpy(state + b * H, c + b * H, static_cast<size_t>(H) * 4);
    StoreRow(out_[kY].dtype, inside ? h + b * H : nullptr, y, ((t * D + d) * B + b) * H, H);
  });
}

void RnnForwardKernel::Step(const Buffers& r, RnnLane& lane, int64_t d, int64_t t) noexcept {
  const int64_t H = call_.hidden, B = call_.batch, G = call_.gates;
  float *h = r.Floats(h_at_) + lane.begin * H, *gates = Gates(r, d, t);
  const int64_t at = ((d * call_.steps + t) * B + lane.begin) * H;
  const DType kept = out_[kHPrev].dtype;
  StoreRow(kept, h, r.Out(kHPrev), at, lane.rows * H);
  void* stored = r.Out(kHPrev) != nullptr && kept == compute_
                     ? Offset(r.Out(kHPrev), at * SizeOf(kept))
                     : nullptr;
  const void* operand = OperandOf(r, lane, h, stored);
  lane.product.Run(operand, gates + lane.begin * G, r.workspace);
  if (cell().reset_last()) {
    float* state = State(r, d, t) + lane.begin * H;
    for (int64_t b = 0; b < lane.rows; ++b)
      std::memcpy(state + b * H, r.Floats(bias_at_) + G, static_cast<size_t>(H) * 4);
    lane.reset_product.Run(operand, state, r.workspace);
  } else if (cell().reset_first()) {
    ResetStep(r, lane, d, gates);
  }
  CellStep(r, lane, d, t);
}

void RnnForwardKernel::Run(std::span<const void* const> inputs, std::span<void* const> outputs,
                           void* workspace, const RunContext& context) noexcept {
  const Buffers r{inputs, outputs, workspace};
  const int64_t row = call_.batch * call_.hidden;
  ref::CheckRnnLengths(static_cast<const int32_t*>(r.In(kLengths)), call_.batch, call_.steps,
                       context);
  for (int64_t d = 0; d < call_.directions(); ++d) {
    StartDirection(r, d, context);
    ParallelFor(threads_, static_cast<int64_t>(lanes_.size()), [&](int64_t lane) {
      for (int64_t i = 0; i < call_.steps; ++i)
        Step(r, lanes_[static_cast<size_t>(lane)], d, call_.Step(d, i));
    });
    StoreRow(out_[kYh].dtype, r.Floats(h_at_), r.Out(kYh), d * row, row);
    StoreRow(out_[kYc].dtype, r.Floats(c_at_), r.Out(kYc), d * row, row);
  }
}

}  // namespace

std::string DeclinesRnn(const CallSpec& call, const PrepareOptions&) {
  if (std::string reason = DeclinesUnlessFloat(call, kLengths); !reason.empty()) return reason;
  return DeclinesEmpty(call);
}

PrepareResult PrepareRnn(const CallSpec& call, const PrepareOptions& options) {
  return CatchOneDnn("a recurrent layer", [&] { return RnnForwardKernel::Prepare(call, options); });
}

}  // namespace ampc::cpu
