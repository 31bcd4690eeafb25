// SPDX-License-Identifier: Apache-2.0
// gather_elements, scatter_elements, gather_nd, scatter_nd.
//
// Both families pick places of the data by an index tensor: one element per index, or one block per
// index tuple. A Picker says which place entry i means; what is read or written there is the same.
// Reductions of a scatter are made in index order, in acc, and rounded once.

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

/// Entry i of the indices -> first element of its block in the data.
class Picker {
 public:
  /// Element indices along `axis`: block 1, the other coordinates are the entry's own.
  static Picker Elements(const TensorDesc& data, const TensorDesc& indices, int64_t axis) {
    Picker p;
    p.index_type_ = indices.dtype;
    p.entries_ = indices.elements();
    p.block_ = 1;
    const std::vector<int64_t> to = StridesOf(data.dims, Layout::kRowMajor),
                               from = StridesOf(indices.dims, Layout::kRowMajor);
    for (size_t i = 0; i < data.dims.size(); ++i) {
      if (static_cast<int64_t>(i) != axis) p.own_.push_back({indices.dims[i], from[i], to[i]});
    }
    p.tuple_ = {{data.dims[static_cast<size_t>(axis)], 0, to[static_cast<size_t>(axis)]}};
    return p;
  }
  /// Tuples in the last axis of the indices, behind `batch_dims` common axes.
  static Picker Tuples(const TensorDesc& data, const TensorDesc& indices, int64_t batch_dims) {
    Picker p;
    p.index_type_ = indices.dtype;
    const auto batch = static_cast<size_t>(batch_dims),
               length = static_cast<size_t>(indices.dims.back());
    p.entries_ = NumElements(std::span(indices.dims).first(indices.dims.size() - 1));
    p.block_ = NumElements(std::span(data.dims).subspan(batch + length));
    const std::vector<int64_t> to = StridesOf(data.dims, Layout::kRowMajor);
    int64_t per_batch = p.entries_;
    for (size_t i = 0; i < batch; ++i) {
      per_batch = data.dims[i] == 0 ? 0 : per_batch / data.dims[i];
      p.own_.push_back({data.dims[i], per_batch, to[i]});
    }
    for (size_t i = 0; i < length; ++i)
      p.tuple_.push_back({data.dims[batch + i], 0, to[batch + i]});
    return p;
  }

  int64_t entries() const { return entries_; }
  int64_t block() const { return block_; }

  int64_t At(const void* indices, int64_t entry, const Buffers& run) const {
    int64_t at = 0;
    for (const Axis& axis : own_) at += entry / axis.from % axis.length * axis.to;
    const auto n = static_cast<int64_t>(tuple_.size());
    for (int64_t k = 0; k < n; ++k) {
      const Axis& axis = tuple_[static_cast<size_t>(k)];
      int64_t index = Load<int64_t>(index_type_, indices, entry * n + k);
      if (index < 0) index += axis.length;
      if (index < 0 || index >= axis.length) {
        run.BadIndex(entry * n + k);
        index = 0;
      }
      at += index * axis.to;
    }
    return at;
  }

 private:
  struct Axis {
    int64_t length, from, to;  // strides in entries and in elements of the data
  };
  DType index_type_ = DType::kNone;
  int64_t entries_ = 0, block_ = 0;
  std::vector<Axis> own_, tuple_;
};

Result<Picker> ReadElements(const CallCheck& check, const Operand& data, const Operand& indices) {
  AMPC_TRY(check.Index(indices));
  AMPC_ASSIGN(const int64_t axis, check.Axis(data));
  const Dims &d = data->dims, &e = indices->dims;
  if (d.size() != e.size())
    return check.Fail("{} has rank {}, {} has rank {}", data.name, d.size(), indices.name,
                      e.size());
  for (size_t i = 0; i < d.size(); ++i) {
    const bool along = static_cast<int64_t>(i) == axis;
    if ((!along && e[i] > d[i]) || (along && d[i] == 0 && indices->elements() > 0))
      return check.Fail("{} of {} reach beyond {}", indices.name, ToString(e), ToString(d));
  }
  return Picker::Elements(*data, *indices, axis);
}

/// `picked`: what has one block per tuple.
Result<Picker> ReadTuples(const CallCheck& check, const Operand& data, const Operand& indices,
                          const Operand& picked) {
  AMPC_TRY(check.Index(indices));
  const Dims &d = data->dims, &e = indices->dims;
  const int64_t batch = check.params().Int("batch_dims");
  if (e.empty()) return check.Fail("{} is a scalar", indices.name);
  AMPC_TRY(check.InRange("batch_dims", batch, 0,
                         static_cast<int64_t>(std::min(d.size(), e.size() - 1))));
  AMPC_TRY(check.InRange("the length of an index tuple", e.back(), 0,
                         static_cast<int64_t>(d.size()) - batch));
  const auto first = static_cast<size_t>(batch), last = first + static_cast<size_t>(e.back());
  if (!std::equal(d.begin(), d.begin() + batch, e.begin()))
    return check.Fail("{} of {} and {} of {} share no {} batch axes", data.name, ToString(d),
                      indices.name, ToString(e), batch);
  Dims want(e.begin(), e.end() - 1);
  want.insert(want.end(), d.begin() + static_cast<std::ptrdiff_t>(last), d.end());
  AMPC_TRY(check.HasDims(picked, want));
  for (size_t i = first; i < last; ++i) {
    if (d[i] == 0 && picked->elements() > 0)
      return check.Fail("{}: axis {} is empty", data.name, i);
  }
  return Picker::Tuples(*data, *indices, batch);
}

Status CheckPlain(const CallCheck& check, std::initializer_list<Operand> operands) {
  for (const Operand& t : operands) AMPC_TRY(check.RowMajor(t));
  return {};
}

PrepareResult MakeGather(const Picker& picker, DType dtype) {
  return MakeKernel([picker, dtype](const Buffers& run) {
    const int64_t bytes = picker.block() * SizeOf(dtype);
    const auto* data = static_cast<const std::byte*>(run.in(0));
    auto* y = static_cast<std::byte*>(run.out(0));
    if (bytes == 0) return;
    for (int64_t i = 0; i < picker.entries(); ++i) {
      const int64_t at = picker.At(run.in(1), i, run);
      std::memcpy(y + i * bytes, data + at * SizeOf(dtype), static_cast<size_t>(bytes));
    }
  });
}

enum class Reduction : uint8_t { kNone, kAdd, kMul, kMax, kMin };

template <typename T>
T Combine(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kAdd:
      return expr_internal::Add<T>(a, b);
    case Reduction::kMul:
      return expr_internal::Mul<T>(a, b);
    case Reduction::kMax:
      return a != a || a > b ? a : b;
    case Reduction::kMin:
      return a != a || a < b ? a : b;
    case Reduction::kNone:
      break;
  }
  return b;
}

template <typename T>
PrepareResult MakeReducingScatter(const Picker& picker, DType dtype, int64_t size,
                                  Reduction reduction) {
  const bool direct = dtype == DTypeOf<T>();
  Scratch scratch(nullptr);
  if (!direct) scratch.Take<T>(size);
  return MakeKernel(
      [=](const Buffers& run) {
        T* acc = static_cast<T*>(direct ? run.out(0) : run.workspace);
        if (acc != run.in(0)) LoadRun<T>(dtype, run.in(0), 0, 1, size, acc);
        const ConstTensor updates{dtype, run.in(2)};
        for (int64_t i = 0; i < picker.entries(); ++i) {
          T* block = acc + picker.At(run.in(1), i, run);
          for (int64_t k = 0; k < picker.block(); ++k)
            block[k] = Combine(reduction, block[k], updates.at<T>(i * picker.block() + k));
        }
        if (!direct) StoreRun<T>(dtype, run.out(0), 0, 1, size, acc);
      },
      scratch.bytes());
}

PrepareResult MakePlainScatter(const Picker& picker, DType dtype, int64_t size) {
  return MakeKernel([=](const Buffers& run) {
    const int64_t bytes = picker.block() * SizeOf(dtype);
    auto* y = static_cast<std::byte*>(run.out(0));
    const auto* updates = static_cast<const std::byte*>(run.in(2));
    if (y != run.in(0) && size > 0)
      std::memcpy(y, run.in(0), static_cast<size_t>(size * SizeOf(dtype)));
    if (bytes == 0) return;
    for (int64_t i = 0; i < picker.entries(); ++i) {
      const int64_t at = picker.At(run.in(1), i, run);
      std::memcpy(y + at * SizeOf(dtype), updates + i * bytes, static_cast<size_t>(bytes));
    }
  });
}

constexpr std::string_view kReductions[] = {"none", "add", "mul", "max", "min"};

PrepareResult MakeScatter(const CallCheck& check, const Picker& picker) {
  const TensorDesc& data = *check.In(0);
  const std::string_view name = check.params().String("reduction", "none");
  AMPC_TRY(check.OneOf("reduction", name, kReductions));
  const auto reduction = static_cast<Reduction>(
      std::find(std::begin(kReductions), std::end(kReductions), name) - std::begin(kReductions));
  const int64_t size = data.elements();
  if (reduction == Reduction::kNone) return MakePlainScatter(picker, data.dtype, size);
  if (data.dtype == DType::kFloat64)
    return MakeReducingScatter<double>(picker, data.dtype, size, reduction);
  if (IsFloat(data.dtype)) return MakeReducingScatter<float>(picker, data.dtype, size, reduction);
  return MakeReducingScatter<int64_t>(picker, data.dtype, size, reduction);
}

Status CheckScatter(const CallCheck& check) {
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckPlain(check, {check.In(0), check.In(1), check.In(2), check.Out(0)}));
  AMPC_TRY(check.SameType(check.In(0), check.In(2)));
  AMPC_TRY(check.SameType(check.In(0), check.Out(0)));
  return check.HasDims(check.Out(0), check.In(0)->dims);
}

}  // namespace

PrepareResult prepare::gather_elements(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "data indices", "y");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckPlain(check, {check.In(0), check.In(1), check.Out(0)}));
  AMPC_TRY(check.SameType(check.In(0), check.Out(0)));
  AMPC_TRY(check.HasDims(check.Out(0), check.In(1)->dims));
  AMPC_ASSIGN(const Picker picker, ReadElements(check, check.In(0), check.In(1)));
  return MakeGather(picker, check.In(0)->dtype);
}

PrepareResult prepare::scatter_elements(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "data indices updates", "y");
  AMPC_TRY(CheckScatter(check));
  AMPC_TRY(check.HasDims(check.In(2), check.In(1)->dims));
  AMPC_ASSIGN(const Picker picker, ReadElements(check, check.In(0), check.In(1)));
  return MakeScatter(check, picker);
}

PrepareResult prepare::gather_nd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "data indices", "y");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckPlain(check, {check.In(0), check.In(1), check.Out(0)}));
  AMPC_TRY(check.SameType(check.In(0), check.Out(0)));
  AMPC_ASSIGN(const Picker picker, ReadTuples(check, check.In(0), check.In(1), check.Out(0)));
  return MakeGather(picker, check.In(0)->dtype);
}

PrepareResult prepare::scatter_nd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "data indices updates", "y");
  AMPC_TRY(CheckScatter(check));
  AMPC_ASSIGN(const Picker picker, ReadTuples(check, check.In(0), check.In(1), check.In(2)));
  return MakeScatter(check, picker);
}

}  // namespace ampc::ref
