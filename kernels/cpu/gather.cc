// SPDX-License-Identifier: Apache-2.0
// gather and gather_bwd along one axis: the data is [outer, length, inner], the result [outer,
// indices, inner].
//
// gather_bwd adds in index order. Threads divide the inner axis (or the outer one), never the
// indices, so every sum is made by one thread in the order of the contract and the bits are the
// reference's.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

struct GatherShape {
  int64_t outer, length, inner, indices;
  DType index_type, type;

  /// Index i made non-negative; one out of range is reported and taken as 0.
  int64_t Index(const void* data, int64_t i, const RunContext& context) const {
    int64_t index = index_type == DType::kInt64 ? static_cast<const int64_t*>(data)[i]
                                                : static_cast<const int32_t*>(data)[i];
    if (index < 0) index += length;
    if (index >= 0 && index < length) return index;
    ReportIndexError(context, i);
    return 0;
  }
};

GatherShape ShapeOf(const CallSpec& call, const TensorDesc& data) {
  const size_t axis = static_cast<size_t>(call.params.Int("axis"));
  const std::span<const int64_t> dims(data.dims);
  return {NumElements(dims.first(axis)), dims[axis],           NumElements(dims.subspan(axis + 1)),
          call.inputs[1].elements(),     call.inputs[1].dtype, data.dtype};
}

class Gather final : public PreparedKernel {
 public:
  Gather(const CallSpec& call, int threads)
      : p_(ShapeOf(call, call.inputs[0])),
        row_(p_.inner * SizeOf(p_.type)),
        threads_(ThreadsFor(threads, p_.outer * p_.indices * (row_ + 16))) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    if (row_ == 0) return;
    ParallelRanges(threads_, p_.outer * p_.indices, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t index = p_.Index(inputs[1], i % p_.indices, context);
        std::memcpy(Offset(outputs[0], i * row_),
                    Offset(inputs[0], (i / p_.indices * p_.length + index) * row_),
                    static_cast<size_t>(row_));
      }
    });
  }

 private:
  GatherShape p_;
  int64_t row_;
  int threads_;
};

class GatherBackward final : public PreparedKernel {
 public:
  GatherBackward(const CallSpec& call, int threads)
      : p_(ShapeOf(call, call.outputs[0])),
        size_(p_.outer * p_.length * p_.inner),
        all_threads_(threads),
        threads_(ThreadsFor(threads, p_.outer * p_.indices * p_.inner * 12)),
        vec_(Vec()) {
    if (IsLow(p_.type) && p_.indices != 1) acc_ = plan_.Take(size_ * 4);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext& context) noexcept override {
    if (p_.indices == 1) return Place(inputs, outputs[0], context);
    float* acc = acc_ < 0 ? static_cast<float*>(outputs[0]) : At<float>(workspace, acc_);
    ParallelRanges(ThreadsFor(all_threads_, size_ * 4), size_, 4096,
                   [&](int64_t begin, int64_t end) {
                     std::memset(acc + begin, 0, static_cast<size_t>(end - begin) * 4);
                   });
    if (p_.outer >= threads_) {
      ParallelRanges(threads_, p_.outer, 1, [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) Add(inputs, o, 0, p_.inner, acc, context);
      });
    } else {
      for (int64_t o = 0; o < p_.outer; ++o) {
        ParallelRanges(threads_, p_.inner, 16, [&](int64_t begin, int64_t end) {
          Add(inputs, o, begin, end, acc, context);
        });
      }
    }
    if (acc_ >= 0) NarrowAll(all_threads_, p_.type, acc, outputs[0], size_);
  }

 private:
  /// With one index nothing is added up: its slices lie among zeros.
  void Place(std::span<const void* const> inputs, void* out, const RunContext& context) const {
    const int64_t bytes = p_.inner * SizeOf(p_.type), all = p_.outer * p_.length * bytes;
    ParallelRanges(ThreadsFor(all_threads_, all), all, 16384, [&](int64_t begin, int64_t end) {
      std::memset(Offset(out, begin), 0, static_cast<size_t>(end - begin));
    });
    const int64_t index = p_.Index(inputs[1], 0, context);
    ParallelRanges(threads_, p_.outer, 1, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o)
        std::memcpy(Offset(out, (o * p_.length + index) * bytes), Offset(inputs[0], o * bytes),
                    static_cast<size_t>(bytes));
    });
  }

  /// Columns [begin, end) of the inner axis.
  void Add(std::span<const void* const> inputs, int64_t o, int64_t begin, int64_t end, float* acc,
           const RunContext& context) const {
    float buffer[kBlock];
    for (int64_t i = 0; i < p_.indices; ++i) {
      float* row = acc + (o * p_.length + p_.Index(inputs[1], i, context)) * p_.inner;
      const int64_t first = (o * p_.indices + i) * p_.inner;
      for (int64_t k = begin; k < end; k += kBlock) {
        const int64_t n = std::min(kBlock, end - k);
        vec_.add_strided(FloatBlock(p_.type, inputs[0], first + k, n, buffer), 1, row + k, n);
      }
    }
  }

  GatherShape p_;
  int64_t size_;
  int all_threads_, threads_;
  const VecOps& vec_;
  WorkspacePlan plan_;
  int64_t acc_ = -1;
};

}  // namespace

std::string DeclinesGather(const CallSpec&, const PrepareOptions&) { return {}; }
std::string DeclinesGatherBackward(const CallSpec& call, const PrepareOptions&) {
  return DeclinesUnlessFloat(call, 1);
}

PrepareResult PrepareGather(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Gather>(call, options.threads));
}
PrepareResult PrepareGatherBackward(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<GatherBackward>(call, options.threads));
}

}  // namespace ampc::cpu
