// SPDX-License-Identifier: Apache-2.0
// gather, gather_bwd along one axis. The data is [outer, length, inner], the result
// [outer, indices, inner]. The sums of gather_bwd are made as the contract says: in acc (fp32, or
// double for double, or int64), in index order, rounded once.

#include <algorithm>
#include <cstring>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

struct GatherPlan {
  int64_t outer, length, inner, indices;
  DType index_type, data_type, picked_type;

  /// Index i made non-negative; one out of range is reported and taken as 0.
  int64_t Index(const void* data, int64_t i, const Buffers& run) const {
    int64_t index = Load<int64_t>(index_type, data, i);
    if (index < 0) index += length;
    if (index >= 0 && index < length) return index;
    run.BadIndex(i);
    return 0;
  }
};

/// `data` is what is indexed, `picked` what has the indices' dims in place of the axis.
Result<GatherPlan> ReadGather(const CallCheck& check, const Operand& data, const Operand& indices,
                              const Operand& picked) {
  AMPC_TRY(check.SameType(data, picked));
  AMPC_TRY(check.Index(indices));
  for (const Operand& t : {data, indices, picked}) AMPC_TRY(check.RowMajor(t));
  AMPC_ASSIGN(const int64_t axis, check.Axis(data));
  Dims want(data->dims.begin(), data->dims.begin() + axis);
  want.insert(want.end(), indices->dims.begin(), indices->dims.end());
  want.insert(want.end(), data->dims.begin() + axis + 1, data->dims.end());
  AMPC_TRY(check.HasDims(picked, want));
  const std::span<const int64_t> dims(data->dims);
  if (dims[axis] == 0 && indices->elements() > 0)
    return check.Fail("{}: axis {} is empty", data.name, axis);
  return GatherPlan{NumElements(dims.first(axis)),
                    dims[axis],
                    NumElements(dims.subspan(axis + 1)),
                    indices->elements(),
                    indices->dtype,
                    data->dtype,
                    picked->dtype};
}

/// ddata[o, index[i], :] += dy[o, i, :]
template <typename T>
void ScatterAdd(const GatherPlan& p, const Buffers& run, T* acc) {
  const ConstTensor dy{p.picked_type, run.in(0)};
  std::fill_n(acc, p.outer * p.length * p.inner, T{0});
  for (int64_t o = 0; o < p.outer; ++o) {
    for (int64_t i = 0; i < p.indices; ++i) {
      T* row = acc + (o * p.length + p.Index(run.in(1), i, run)) * p.inner;
      const int64_t first = (o * p.indices + i) * p.inner;
      for (int64_t k = 0; k < p.inner; ++k)
        row[k] = expr_internal::Add<T>(row[k], dy.at<T>(first + k));
    }
  }
}

template <typename T>
PrepareResult MakeScatterAdd(const GatherPlan& plan) {
  const int64_t size = plan.outer * plan.length * plan.inner;
  Scratch scratch(nullptr);
  if (plan.data_type == DTypeOf<T>()) {
    return MakeKernel(
        [plan](const Buffers& run) { ScatterAdd<T>(plan, run, static_cast<T*>(run.out(0))); });
  }
  scratch.Take<T>(size);
  return MakeKernel(
      [plan, size](const Buffers& run) {
        T* acc = static_cast<T*>(run.workspace);
        ScatterAdd<T>(plan, run, acc);
        StoreRun<T>(plan.data_type, run.out(0), 0, 1, size, acc);
      },
      scratch.bytes());
}

}  // namespace

PrepareResult prepare::gather(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "data indices", "y");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(const GatherPlan plan, ReadGather(check, check.In(0), check.In(1), check.Out(0)));
  return MakeKernel([plan](const Buffers& run) {
    const int64_t row = plan.inner * SizeOf(plan.data_type);
    const std::byte* data = static_cast<const std::byte*>(run.in(0));
    std::byte* y = static_cast<std::byte*>(run.out(0));
    if (row == 0) return;
    for (int64_t o = 0; o < plan.outer; ++o) {
      for (int64_t i = 0; i < plan.indices; ++i) {
        std::memcpy(y, data + (o * plan.length + plan.Index(run.in(1), i, run)) * row, row);
        y += row;
      }
    }
  });
}

PrepareResult prepare::gather_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "dy indices", "ddata");
  AMPC_TRY(check.Operands());
  AMPC_TRY(check.FloatOrInteger(check.In(0)));
  AMPC_ASSIGN(const GatherPlan plan, ReadGather(check, check.Out(0), check.In(1), check.In(0)));
  if (plan.data_type == DType::kFloat64) return MakeScatterAdd<double>(plan);
  if (IsFloat(plan.data_type)) return MakeScatterAdd<float>(plan);
  return MakeScatterAdd<int64_t>(plan);
}

}  // namespace ampc::ref
