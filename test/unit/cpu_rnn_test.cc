// SPDX-License-Identifier: Apache-2.0
// The recurrent kernels cut a batch into lanes that go through all steps by themselves. What they
// compute is compared with the reference in test/conformance/kernels_test.cc; here, whether rows of
// different lanes keep apart: a batch gives the bits of its parts.
#include "test/unit/cpu_kernels_harness.h"

namespace ampc::kernel_test {
namespace {

constexpr int64_t kSteps = 5, kBatch = 37, kInput = 6, kHidden = 7;  // lanes of 18 and 19 rows
constexpr int64_t kCut = 18;

/// An operand and which of its axes is the batch; -1: none.
struct Batched {
  TensorDesc desc;
  int axis = -1;
};

struct RnnCase {
  Case call;
  std::vector<int> input_axes, output_axes;
};

RnnCase Make(std::string kernel, Attrs params, const std::vector<Batched>& inputs,
             const std::vector<Batched>& outputs) {
  RnnCase c{{std::move(kernel), std::move(params), {}, {}}, {}, {}};
  for (const Batched& b : inputs) {
    c.call.inputs.push_back(b.desc);
    c.input_axes.push_back(b.axis);
  }
  for (const Batched& b : outputs) {
    c.call.outputs.push_back(b.desc);
    c.output_axes.push_back(b.axis);
  }
  FillValues(c.call);
  for (size_t i = 0; i < c.call.inputs.size(); ++i) {
    if (IsFloat(c.call.inputs[i].dtype)) continue;
    for (size_t b = 0; b < c.call.values[i].size(); ++b)
      c.call.values[i][b] = static_cast<double>(b % (kSteps + 1));  // lengths
  }
  return c;
}

/// The rows [begin, begin + rows) of the batch axis.
template <typename T>
std::vector<T> Rows(const std::vector<T>& from, const Dims& dims, int axis, int64_t begin,
                    int64_t rows) {
  if (axis < 0) return from;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= dims[static_cast<size_t>(i)];
  for (size_t i = static_cast<size_t>(axis) + 1; i < dims.size(); ++i) inner *= dims[i];
  std::vector<T> part;
  for (int64_t o = 0; o < outer; ++o) {
    const auto first = from.begin() + (o * dims[static_cast<size_t>(axis)] + begin) * inner;
    part.insert(part.end(), first, first + rows * inner);
  }
  return part;
}

Case Part(const RnnCase& whole, int64_t begin, int64_t rows) {
  Case part = whole.call;
  for (size_t i = 0; i < part.inputs.size(); ++i) {
    if (!part.inputs[i].present()) continue;
    part.values[i] = Rows(part.values[i], part.inputs[i].dims, whole.input_axes[i], begin, rows);
    if (const int axis = whole.input_axes[i]; axis >= 0)
      part.inputs[i].dims[static_cast<size_t>(axis)] = rows;
  }
  for (size_t j = 0; j < part.outputs.size(); ++j) {
    if (const int axis = whole.output_axes[j]; axis >= 0 && part.outputs[j].present())
      part.outputs[j].dims[static_cast<size_t>(axis)] = rows;
  }
  return part;
}

Values Read(const TensorDesc& desc, const Guarded& bytes) {
  Values values(static_cast<size_t>(desc.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = LoadDouble(desc.dtype, bytes.get(), static_cast<int64_t>(i));
  return values;
}

class CpuRnn : public CpuKernels {
 protected:
  void ExpectRowsApart(const RnnCase& c) const {
    SCOPED_TRACE(Describe(c.call));
    const Implementation& cpu = *Cpu(c.call.kernel);
    const RunResult whole = kernel_test::Run(cpu, c.call, {.threads = 2}, std::byte{1});
    const RunResult serial = kernel_test::Run(cpu, c.call, {.threads = 1}, std::byte{2});
    for (size_t j = 0; j < c.call.outputs.size(); ++j)
      EXPECT_TRUE(whole.outputs[j] == serial.outputs[j]) << "output " << j << ": threads";
    for (const auto& [begin, rows] : {std::pair{int64_t{0}, kCut}, {kCut, kBatch - kCut}}) {
      const Case part = Part(c, begin, rows);
      const RunResult alone = kernel_test::Run(cpu, part, {.threads = 1}, std::byte{3});
      for (size_t j = 0; j < part.outputs.size(); ++j) {
        if (!part.outputs[j].present()) continue;
        const Values all = Read(c.call.outputs[j], whole.outputs[j]);
        EXPECT_EQ(Rows(all, c.call.outputs[j].dims, c.output_axes[j], begin, rows),
                  Read(part.outputs[j], alone.outputs[j]))
            << "output " << j << ", rows from " << begin;
      }
    }
  }
};

/// The cells, and GRU's two places of the reset.
struct Cell {
  const char* name;
  int64_t gates;
  int64_t linear_before_reset = 0;
};
constexpr Cell kCells[] = {{"rnn", 1}, {"gru", 3}, {"gru", 3, 1}, {"lstm", 4}};

Attrs ParamsOf(const Cell& cell, DType t) {
  Attrs params = {{"cell", std::string(cell.name)},
                  {"operand", t == kF32 ? int64_t{0} : static_cast<int64_t>(t)}};
  if (cell.gates == 3) params.Set("linear_before_reset", cell.linear_before_reset);
  return params;
}

TEST_F(CpuRnn, ForwardGivesTheBitsOfTheBatchInParts) {
  for (const Cell& cell : kCells) {
    for (DType t : kTypes) {
      const int64_t G = cell.gates * kHidden;
      const Batched none{};
      const Batched c0{Desc(t, {1, kBatch, kHidden}), 1};
      const Batched state{Desc(kF32, {1, kSteps, kBatch, kHidden}), 2};
      const bool lstm = cell.gates == 4;
      ExpectRowsApart(Make("rnn", ParamsOf(cell, t),
                           {{Desc(t, {kSteps, kBatch, kInput}), 1},
                            {Desc(t, {1, G, kInput})},
                            {Desc(t, {1, G, kHidden})},
                            {Desc(t, {1, 2 * G})},
                            {Desc(DType::kInt32, {kBatch}), 0},
                            c0,
                            lstm ? c0 : none},
                           {{Desc(t, {kSteps, 1, kBatch, kHidden}), 2},
                            c0,
                            lstm ? c0 : none,
                            {Desc(kF32, {1, kSteps, kBatch, G}), 2},
                            lstm || cell.linear_before_reset != 0 ? state : none,
                            {Desc(t, {1, kSteps, kBatch, kHidden}), 2}}));
    }
  }
}

TEST_F(CpuRnn, BackwardGivesTheBitsOfTheBatchInParts) {
  for (const Cell& cell : kCells) {
    for (DType t : kTypes) {
      const int64_t G = cell.gates * kHidden;
      const Batched none{};
      const Batched row{Desc(t, {1, kBatch, kHidden}), 1};
      const Batched steps{Desc(t, {1, kSteps, kBatch, kHidden}), 2};
      const Batched state{Desc(kF32, {1, kSteps, kBatch, kHidden}), 2};
      const bool lstm = cell.gates == 4, gru = cell.gates == 3;
      const bool after = cell.linear_before_reset != 0;
      const Batched extra{Desc(t, {1, kSteps, kBatch, after ? G : kHidden}), 2};
      ExpectRowsApart(Make("rnn_bwd", ParamsOf(cell, t),
                           {{Desc(t, {1, G, kHidden})},
                            {Desc(DType::kInt32, {kBatch}), 0},
                            {Desc(kF32, {1, kSteps, kBatch, G}), 2},
                            steps,
                            {Desc(t, {kSteps, 1, kBatch, kHidden}), 2},
                            row,
                            lstm || after ? state : none,
                            lstm ? row : none,
                            lstm ? row : none},
                           {{Desc(t, {1, kSteps, kBatch, G}), 2},
                            row,
                            lstm ? row : none,
                            none,
                            gru ? extra : none}));
    }
  }
}

}  // namespace
}  // namespace ampc::kernel_test
