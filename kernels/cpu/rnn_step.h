// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pieces of the recurrent kernels: the product of one step, and programs over the rows of a batch.

#include <array>
#include <span>

#include "kernels/cpu/onednn.h"
#include "kernels/cpu/vec/vec.h"
#include "kernels/rnn.h"

namespace ampc::cpu {

/// y [rows, n] += x [rows, k] m. m is the same in every step, so it is brought into oneDNN's own
/// blocked form once (Pack) and read from there. x and m have one type (fp32 or bf16), y is fp32.
/// Rows of x or y with gaps between go through dense copies: oneDNN has no fast product for them.
class StepProduct {
 public:
  struct Form {
    int64_t rows = 0, k = 0, n = 0;
    DType type = DType::kFloat32;
    int64_t x_stride = 0, y_stride = 0;  ///< from row to row
    bool transposed = false;             ///< m is stored [n, k]
  };
  StepProduct() = default;
  /// `threads`: for one product. `like`: a product of the same m, which is packed before this one;
  /// where both want the same form, they read the same copy.
  StepProduct(const Form& form, int threads, WorkspacePlan& plan,
              const StepProduct* like = nullptr);

  /// m in its plain form. Until the next Pack, Run needs the same workspace, and m where it is.
  void Pack(const void* m, void* workspace) noexcept;
  void Run(const void* x, float* y, void* workspace) noexcept;

 private:
  Form form_;
  OneDnnPrimitive product_, reorder_;
  dnnl::memory::desc blocked_;
  int x_slot_ = -1, m_slot_ = -1, y_slot_ = -1, from_slot_ = -1, to_slot_ = -1;
  int64_t packed_ = -1;  // offset of the blocked m; -1: read as it is
  int64_t dense_x_ = -1, dense_y_ = -1;
};

/// The operands of one run; those that are left out are null.
struct RnnBuffers {
  std::span<const void* const> in;
  std::span<void* const> out;
  void* workspace;

  const void* In(size_t i) const { return i < in.size() ? in[i] : nullptr; }
  void* Out(size_t i) const { return i < out.size() ? out[i] : nullptr; }
  float* Floats(int64_t at) const { return At<float>(workspace, at); }
};

/// The most operands that a cell's program has.
inline constexpr size_t kMaxCellOperands = 11;

/// A program over rows of `n` elements; row b of operand i begins at base[i] + b * stride[i].
class CellProgram {
 public:
  struct Operand {
    float* base;
    int64_t stride;
  };
  CellProgram() = default;
  explicit CellProgram(ExprProgram program) : program_(std::move(program)) {}

  int64_t scratch() const;  ///< floats
  /// Row b.
  void Row(int64_t b, std::span<const Operand> in, std::span<const Operand> out, int64_t n,
           float* scratch) const;

 private:
  ExprProgram program_;
};

/// Rows of a batch.
struct RowRange {
  int64_t begin = 0, rows = 0;
};

/// Work on rows of a batch, on as many threads as pay, each with scratch floats of its own.
class RowTasks {
 public:
  RowTasks() = default;
  RowTasks(RowRange range, int64_t width, int64_t scratch_floats, int threads, WorkspacePlan& plan);
  /// f(b, scratch) for every row.
  template <typename F>
  void Run(void* workspace, const F& f) const noexcept {
    ParallelFor(tasks_, tasks_, [&](int64_t task) {
      float* scratch = At<float>(workspace, scratch_at_) + task * scratch_floats_;
      const int64_t begin = range_.begin + range_.rows * task / tasks_;
      const int64_t end = range_.begin + range_.rows * (task + 1) / tasks_;
      for (int64_t b = begin; b < end; ++b) f(b, scratch);
    });
  }

 private:
  RowRange range_;
  int64_t scratch_floats_ = 0, scratch_at_ = 0;
  int tasks_ = 1;
};

/// Rows that go through all steps of a direction by themselves: rows of a batch know nothing of
/// each other, so with several lanes no thread waits for another between two steps.
struct RnnLane : RowRange {
  StepProduct product, reset_product;
  RowTasks tasks;
};

/// Lanes for a recurrent matrix of so many bytes: several where each thread's cache can hold it,
/// else one, whose products are divided among the threads. The same for every number of threads.
std::vector<RnnLane> CutIntoLanes(int64_t batch, int64_t matrix_bytes);
/// Threads of one product of `flops` in one of `lanes` lanes.
int ThreadsOfProduct(size_t lanes, int64_t flops, int64_t k, const PrepareOptions& options);

/// A row of the operand in floats, or zeros where there is none.
inline void LoadRow(DType t, const void* data, int64_t begin, int64_t n, float* to) {
  if (data == nullptr) {
    std::memset(to, 0, static_cast<size_t>(n) * sizeof(float));
  } else {
    Widen(t, Offset(data, begin * SizeOf(t)), to, n);
  }
}
/// The other way; from == nullptr: zeros.
inline void StoreRow(DType t, const float* from, void* data, int64_t begin, int64_t n) {
  if (data == nullptr) return;
  std::byte* to = Offset(data, begin * SizeOf(t));
  if (from == nullptr) {
    std::memset(to, 0, static_cast<size_t>(n * SizeOf(t)));
  } else {
    Narrow(t, from, to, n);
  }
}

}  // namespace ampc::cpu
