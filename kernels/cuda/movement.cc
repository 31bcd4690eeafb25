// SPDX-License-Identifier: Apache-2.0
// copy, scatter_copy, concat, fill: preparation. All but fill are strided copies. Where rows are
// long enough both sides are seen in elements of up to 16 bytes; the pointers of a run decide
// whether that holds (a tensor may start inside another one).

#include "kernels/cuda/movement.h"

#include <cstring>
#include <vector>

#include "kernels/cuda/axes.h"
#include "kernels/cuda/families.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"

namespace ampc::cuda {
namespace {

constexpr int64_t kWidest = 16;

bool IsAligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}
const std::byte* Offset(const void* p, int64_t bytes) {
  return static_cast<const std::byte*>(p) + bytes;
}
std::byte* Offset(void* p, int64_t bytes) { return static_cast<std::byte*>(p) + bytes; }

/// One side of a copy: where its first element lies (in elements) and the strides over the common
/// dims.
struct Side {
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

class StridedCopy {
 public:
  static Result<StridedCopy> Make(std::span<const int64_t> dims, const Side& from, const Side& to,
                                  int64_t element_bytes);
  void Run(const void* from, void* to, void* stream) const {
    from = Offset(from, from_offset_);
    to = Offset(to, to_offset_);
    const bool wide = IsAligned(from, wide_bytes_) && IsAligned(to, wide_bytes_);
    CopyParams params = wide ? wide_ : narrow_;
    params.from = from;
    params.to = to;
    LaunchCopy(params, wide ? wide_bytes_ : narrow_bytes_, stream);
  }

 private:
  CopyParams narrow_, wide_;
  int64_t narrow_bytes_ = 1, wide_bytes_ = 1;
  int64_t from_offset_ = 0, to_offset_ = 0;  // in bytes
};

Result<StridedCopy> StridedCopy::Make(std::span<const int64_t> dims, const Side& from,
                                      const Side& to, int64_t element_bytes) {
  StridedCopy copy;
  const int64_t elements = NumElements(dims);
  if (elements == 0) return copy;
  Axes source = Axes::Merge(dims, from.strides), target = Axes::Merge(dims, to.strides);
  copy.narrow_.elements = elements;
  AMPC_ASSIGN(copy.narrow_.source, source.ToWalk());
  AMPC_ASSIGN(copy.narrow_.target, target.ToWalk());
  copy.narrow_bytes_ = element_bytes;
  copy.from_offset_ = from.offset * element_bytes;
  copy.to_offset_ = to.offset * element_bytes;

  int64_t factor = kWidest / element_bytes;
  while (!source.CanWiden(factor) || !target.CanWiden(factor)) {
    if (factor == 1) break;
    factor /= 2;
  }
  copy.wide_bytes_ = element_bytes * factor;
  copy.wide_ = copy.narrow_;
  if (factor == 1) return copy;
  source.Widen(factor);
  target.Widen(factor);
  copy.wide_.elements = elements / factor;
  AMPC_ASSIGN(copy.wide_.source, source.ToWalk());
  AMPC_ASSIGN(copy.wide_.target, target.ToWalk());
  return copy;
}

/// The copy between `dense`, in its memory order, and the strided view that the call's parameters
/// describe.
struct View {
  std::vector<int64_t> dims;
  Side dense, view;
};
View ReadView(const CallSpec& call, const TensorDesc& dense) {
  const std::vector<size_t> order = ref::StorageOrder(dense);
  return {ref::Permute(dense.dims, order),
          {0, ref::Permute(StridesOf(dense.dims, dense.layout), order)},
          {call.params.Int("offset"), ref::Permute(call.params.Ints("strides"), order)}};
}

/// Writes one value everywhere.
class Filler {
 public:
  Filler(const Attrs& params, const TensorDesc& y)
      : elements_(y.elements()), element_bytes_(SizeOf(y.dtype)) {
    std::byte value[8] = {};
    if (const Attr* v = params.Find("value"); v != nullptr) {
      const auto* i = std::get_if<int64_t>(v);  // the contract's check has seen that it is a number
      if (i != nullptr && !IsFloat(y.dtype)) {
        ref::Store<int64_t>(y.dtype, value, 0, *i);
      } else {
        ref::Store<double>(y.dtype, value, 0,
                           i != nullptr ? static_cast<double>(*i) : std::get<double>(*v));
      }
    }
    for (int64_t at = 0; at < kWidest; at += element_bytes_) {
      std::memcpy(reinterpret_cast<std::byte*>(&value_) + at, value,
                  static_cast<size_t>(element_bytes_));
    }
  }
  void Run(void* y, void* stream) const {
    const int64_t bytes = elements_ * element_bytes_;
    const bool wide = bytes % kWidest == 0 && IsAligned(y, kWidest);
    LaunchFill({y, wide ? bytes / kWidest : elements_, value_}, wide ? kWidest : element_bytes_,
               stream);
  }

 private:
  int64_t elements_, element_bytes_;
  Bytes16 value_ = {};
};

class CopyKernel final : public PreparedKernel {
 public:
  explicit CopyKernel(StridedCopy copy) : copy_(copy) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    copy_.Run(inputs[0], outputs[0], context.stream);
  }

 private:
  StridedCopy copy_;
};

class ScatterCopyKernel final : public PreparedKernel {
 public:
  ScatterCopyKernel(Filler filler, StridedCopy copy) : filler_(filler), copy_(copy) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    filler_.Run(outputs[0], context.stream);
    copy_.Run(inputs[0], outputs[0], context.stream);
  }

 private:
  Filler filler_;
  StridedCopy copy_;
};

class ConcatKernel final : public PreparedKernel {
 public:
  explicit ConcatKernel(std::vector<StridedCopy> copies) : copies_(std::move(copies)) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    for (size_t i = 0; i < copies_.size(); ++i)
      copies_[i].Run(inputs[i], outputs[0], context.stream);
  }

 private:
  std::vector<StridedCopy> copies_;
};

class FillKernel final : public PreparedKernel {
 public:
  explicit FillKernel(Filler filler) : filler_(filler) {}
  void Run(std::span<const void* const>, std::span<void* const> outputs, void*,
           const RunContext& context) noexcept override {
    filler_.Run(outputs[0], context.stream);
  }

 private:
  Filler filler_;
};

}  // namespace

PrepareResult PrepareCopy(const CallSpec& call, const PrepareOptions&) {
  const TensorDesc& y = call.outputs[0];
  const View view = ReadView(call, y);
  AMPC_ASSIGN(const StridedCopy copy,
              StridedCopy::Make(view.dims, view.view, view.dense, SizeOf(y.dtype)));
  return std::unique_ptr<PreparedKernel>(std::make_unique<CopyKernel>(copy));
}

PrepareResult PrepareScatterCopy(const CallSpec& call, const PrepareOptions&) {
  const TensorDesc& x = call.inputs[0];
  const View view = ReadView(call, x);
  AMPC_ASSIGN(const StridedCopy copy,
              StridedCopy::Make(view.dims, view.dense, view.view, SizeOf(x.dtype)));
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<ScatterCopyKernel>(Filler(call.params, call.outputs[0]), copy));
}

PrepareResult PrepareConcat(const CallSpec& call, const PrepareOptions&) {
  const TensorDesc& y = call.outputs[0];
  const auto axis = static_cast<size_t>(call.params.Int("axis"));
  const int64_t outer = NumElements(std::span(y.dims).first(axis));
  const int64_t row = NumElements(std::span(y.dims).subspan(axis));
  std::vector<StridedCopy> copies;
  int64_t offset = 0;
  for (const TensorDesc& x : call.inputs) {
    const int64_t piece = NumElements(std::span(x.dims).subspan(axis));
    AMPC_ASSIGN(const StridedCopy copy,
                StridedCopy::Make(std::vector<int64_t>{outer, piece}, {0, {piece, 1}},
                                  {offset, {row, 1}}, SizeOf(y.dtype)));
    copies.push_back(copy);
    offset += piece;
  }
  return std::unique_ptr<PreparedKernel>(std::make_unique<ConcatKernel>(std::move(copies)));
}

PrepareResult PrepareFill(const CallSpec& call, const PrepareOptions&) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<FillKernel>(Filler(call.params, call.outputs[0])));
}

}  // namespace ampc::cuda
