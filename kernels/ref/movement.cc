// SPDX-License-Identifier: Apache-2.0
// copy, scatter_copy, concat, fill: elements move, bits stay. Nothing here knows dtypes beyond
// their size, except to make the filling value.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

/// One element's bytes.
using Value = std::array<std::byte, 8>;

/// The parameter `value` (default 0) in the dtype: integers stay exact, floats round once.
Result<Value> ReadValue(const CallCheck& check, DType dtype) {
  Value bytes = {};
  const Attr* value = check.params().Find("value");
  if (value == nullptr) return bytes;
  if (const auto* i = std::get_if<int64_t>(value); i != nullptr && !IsFloat(dtype)) {
    Store<int64_t>(dtype, bytes.data(), 0, *i);
  } else if (i != nullptr) {
    Store<double>(dtype, bytes.data(), 0, static_cast<double>(*i));
  } else if (const auto* d = std::get_if<double>(value)) {
    Store<double>(dtype, bytes.data(), 0, *d);
  } else {
    return check.Fail("parameter 'value': expected a number");
  }
  return bytes;
}

void FillWith(void* out, int64_t n, int64_t size, const Value& value) {
  VisitSize(size, [&](auto tag) {
    decltype(tag) v;
    std::memcpy(&v, value.data(), sizeof v);
    std::fill_n(static_cast<decltype(tag)*>(out), n, v);
  });
}

/// `dense`, contiguous in its layout, against a strided view into the storage of `other`.
struct StridedPlan {
  int64_t size;    // bytes of an element
  int64_t offset;  // of the view, in elements
  LoopNest nest;   // operands: dense, view
};

/// Reads offset and strides over the dims of `dense` and checks that the view stays inside `other`.
Result<StridedPlan> ReadStrided(const CallCheck& check, const Operand& dense,
                                const Operand& other) {
  AMPC_TRY(check.SameType(other, dense));
  const size_t rank = dense->dims.size();
  AMPC_TRY(check.InRange("rank", static_cast<int64_t>(rank), 0, LoopNest::kMaxAxes));
  const std::vector<int64_t> strides = check.params().Ints("strides");
  const int64_t offset = check.params().Int("offset");
  if (strides.size() != rank) {
    return check.Fail("parameter 'strides': expected {} entries, found {}", rank, strides.size());
  }
  // The view's lowest and highest element; 128 bits because the numbers may be anything.
  __extension__ using Wide = __int128;
  Wide low = offset, high = offset;
  for (size_t i = 0; i < rank; ++i) {
    const Wide reach = Wide{strides[i]} * (dense->dims[i] - 1);
    (reach < 0 ? low : high) += reach;
  }
  if (dense->elements() > 0 && (low < 0 || high >= other->elements())) {
    return check.Fail("offset {} and strides {} over dims {} leave {} of {} elements", offset,
                      ToString(strides), ToString(dense->dims), other.name, other->elements());
  }
  const std::vector<size_t> order = StorageOrder(*dense);
  return StridedPlan{
      SizeOf(dense->dtype), offset,
      LoopNest(Permute(dense->dims, order),
               {Permute(StridesOf(dense->dims, dense->layout), order), Permute(strides, order)})};
}

}  // namespace

PrepareResult prepare::copy(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(StridedPlan plan, ReadStrided(check, check.Out(0), check.In(0)));
  return MakeKernel([plan = std::move(plan)](const Buffers& run) {
    VisitSize(plan.size, [&](auto tag) {
      using E = decltype(tag);
      const E* x = static_cast<const E*>(run.in(0)) + plan.offset;
      E* y = static_cast<E*>(run.out(0));
      int64_t offsets[2];
      plan.nest.ForEachRun(offsets, [&](const int64_t* at) {
        const int64_t to = plan.nest.inner_stride(0), from = plan.nest.inner_stride(1);
        for (int64_t i = 0; i < plan.nest.inner_length(); ++i)
          y[at[0] + i * to] = x[at[1] + i * from];
      });
    });
  });
}

PrepareResult prepare::scatter_copy(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  AMPC_ASSIGN(StridedPlan plan, ReadStrided(check, check.In(0), check.Out(0)));
  AMPC_ASSIGN(const Value value, ReadValue(check, check.Out(0)->dtype));
  const int64_t elements = check.Out(0)->elements();
  return MakeKernel([plan = std::move(plan), value, elements](const Buffers& run) {
    FillWith(run.out(0), elements, plan.size, value);
    VisitSize(plan.size, [&](auto tag) {
      using E = decltype(tag);
      const E* x = static_cast<const E*>(run.in(0));
      E* y = static_cast<E*>(run.out(0)) + plan.offset;
      int64_t offsets[2];
      plan.nest.ForEachRun(offsets, [&](const int64_t* at) {
        const int64_t from = plan.nest.inner_stride(0), to = plan.nest.inner_stride(1);
        for (int64_t i = 0; i < plan.nest.inner_length(); ++i)
          y[at[1] + i * to] = x[at[0] + i * from];
      });
    });
  });
}

PrepareResult prepare::concat(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call);
  AMPC_TRY(check.Operands());
  if (call.outputs.size() != 1 || call.inputs.empty()) {
    return check.Fail("expected inputs and 1 output, found {} and {}", call.inputs.size(),
                      call.outputs.size());
  }
  const Operand y = check.Out(0);
  if (!y->present()) return check.Fail("{} is missing", y.name);
  AMPC_ASSIGN(const int64_t axis, check.Axis(y));
  AMPC_TRY(check.RowMajor(y));
  const int64_t inner = NumElements(std::span(y->dims).subspan(axis + 1)) * SizeOf(y->dtype);
  std::vector<int64_t> pieces;  // bytes of each input per outer index
  int64_t along = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Operand x = check.In(i);
    if (!x->present()) return check.Fail("{} is missing", x.name);
    AMPC_TRY(check.SameType(y, x));
    AMPC_TRY(check.RowMajor(x));
    Dims want = y->dims;
    if (x->dims.size() == want.size()) want[axis] = x->dims[axis];
    AMPC_TRY(check.HasDims(x, want));
    pieces.push_back(x->dims[axis] * inner);
    along += x->dims[axis];
  }
  if (along != y->dims[axis]) {
    return check.Fail("{}: expected {} along axis {}, found {}", y.name, along, axis,
                      y->dims[axis]);
  }
  const int64_t outer = NumElements(std::span(y->dims).first(axis));
  return MakeKernel([outer, pieces = std::move(pieces)](const Buffers& run) {
    std::byte* y_bytes = static_cast<std::byte*>(run.out(0));
    for (int64_t o = 0; o < outer; ++o) {
      for (size_t i = 0; i < pieces.size(); ++i) {
        if (pieces[i] == 0) continue;
        std::memcpy(y_bytes, static_cast<const std::byte*>(run.in(i)) + o * pieces[i], pieces[i]);
        y_bytes += pieces[i];
      }
    }
  });
}

PrepareResult prepare::fill(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "", "y");
  AMPC_TRY(check.Operands());
  const DType dtype = check.Out(0)->dtype;
  AMPC_ASSIGN(const Value value, ReadValue(check, dtype));
  const int64_t elements = check.Out(0)->elements(), size = SizeOf(dtype);
  return MakeKernel([=](const Buffers& run) { FillWith(run.out(0), elements, size, value); });
}

}  // namespace ampc::ref
