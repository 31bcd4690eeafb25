// SPDX-License-Identifier: Apache-2.0
// Kernels that treat lines along one axis: cumulate, cumprod_bwd, topk, one_hot, reverse_sequence;
// and trilu over the last two axes.

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/ref/check.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::ref {
namespace {

/// Lines of a row-major tensor along one axis: line (o, i) starts at o * length * inner + i and
/// steps by `inner`.
struct Lines {
  int64_t outer, length, inner;
  int64_t count() const { return outer * inner; }
  int64_t start(int64_t line) const { return line / inner * length * inner + line % inner; }
};

Lines LinesOf(const Dims& dims, int64_t axis) {
  const std::span<const int64_t> d(dims);
  return {NumElements(d.first(static_cast<size_t>(axis))), d[static_cast<size_t>(axis)],
          NumElements(d.subspan(static_cast<size_t>(axis) + 1))};
}

/// One operand in and one out, of one type, one shape, row-major.
Status CheckSame(const CallCheck& check, size_t inputs) {
  for (size_t i = 0; i < inputs; ++i) {
    AMPC_TRY(check.RowMajor(check.In(i)));
    AMPC_TRY(check.SameType(check.In(i), check.Out(0)));
    AMPC_TRY(check.HasDims(check.In(i), check.Out(0)->dims));
  }
  return check.RowMajor(check.Out(0));
}

struct Cumulation {
  Lines lines;
  DType dtype;
  bool product, exclusive, reverse;

  /// Position of step k of a line.
  int64_t At(int64_t line, int64_t k) const {
    return lines.start(line) + (reverse ? lines.length - 1 - k : k) * lines.inner;
  }
};

Result<Cumulation> ReadCumulation(const CallCheck& check) {
  AMPC_TRY(check.FloatOrInteger(check.In(0)));
  AMPC_ASSIGN(const int64_t axis, check.Axis(check.In(0)));
  return Cumulation{LinesOf(check.In(0)->dims, axis), check.In(0)->dtype, false,
                    check.params().Int("exclusive") != 0, check.params().Int("reverse") != 0};
}

template <typename T>
void Cumulate(const Cumulation& c, const Buffers& run) {
  const ConstTensor x{c.dtype, run.in(0)};
  const MutableTensor y{c.dtype, run.out(0)};
  for (int64_t line = 0; line < c.lines.count(); ++line) {
    T acc = c.product ? T{1} : T{0};
    for (int64_t k = 0; k < c.lines.length; ++k) {
      const int64_t at = c.At(line, k);
      const T v = x.at<T>(at),
              next = c.product ? expr_internal::Mul<T>(acc, v) : expr_internal::Add<T>(acc, v);
      y.set<T>(at, c.exclusive ? acc : next);
      acc = next;
    }
  }
}

// y_j = product of x up to j. dx_i = (product of x before i) * s_i, with s_i = dy_i + x_{i+1}
// s_{i+1} (exclusive: s_i = dy_{i+1} + x_{i+1} s_{i+1}). Zeros need no care: nothing is divided.
template <typename T>
void CumprodBackward(const Cumulation& c, const Buffers& run) {
  const ConstTensor x{c.dtype, run.in(0)}, dy{c.dtype, run.in(1)};
  const MutableTensor dx{c.dtype, run.out(0)};
  T* sums = static_cast<T*>(run.workspace);
  for (int64_t line = 0; line < c.lines.count(); ++line) {
    T s = T{0};
    for (int64_t k = c.lines.length - 1; k >= 0; --k) {
      const bool last = k + 1 == c.lines.length;
      const T carried = last ? T{0} : x.at<T>(c.At(line, k + 1)) * s;
      const T fresh =
          c.exclusive ? (last ? T{0} : dy.at<T>(c.At(line, k + 1))) : dy.at<T>(c.At(line, k));
      sums[k] = s = fresh + carried;
    }
    T before = T{1};
    for (int64_t k = 0; k < c.lines.length; ++k) {
      const int64_t at = c.At(line, k);
      const T v = x.at<T>(at);
      dx.set<T>(at, before * sums[k]);
      before *= v;
    }
  }
}

template <typename T>
PrepareResult MakeCumprodBackward(const Cumulation& c) {
  return MakeKernel([c](const Buffers& run) { CumprodBackward<T>(c, run); },
                    c.lines.length * static_cast<int64_t>(sizeof(T)));
}

/// NaN first where the largest are wanted and last where the smallest are, equal values by index.
template <typename T>
bool Before(bool largest, T a, T b) {
  if (a != a || b != b) return largest ? a != a && b == b : a == a && b != b;
  return largest ? a > b : a < b;
}

template <typename T>
PrepareResult MakeTopK(const CallCheck& check, const Lines& lines, int64_t k) {
  const DType dtype = check.In(0)->dtype;
  const bool largest = check.params().Int("largest", 1) != 0;
  return MakeKernel(
      [=](const Buffers& run) {
        const ConstTensor x{dtype, run.in(0)};
        auto* order = static_cast<int64_t*>(run.workspace);
        for (int64_t line = 0; line < lines.count(); ++line) {
          const int64_t start = lines.start(line);
          for (int64_t i = 0; i < lines.length; ++i) order[i] = i;
          std::partial_sort(order, order + k, order + lines.length, [&](int64_t a, int64_t b) {
            const T va = x.at<T>(start + a * lines.inner), vb = x.at<T>(start + b * lines.inner);
            if (Before(largest, va, vb)) return true;
            return !Before(largest, vb, va) && a < b;
          });
          const int64_t to = line / lines.inner * k * lines.inner + line % lines.inner;
          for (int64_t i = 0; i < k; ++i) {
            const int64_t at = to + i * lines.inner;
            if (run.out(0) != nullptr)
              Store<T>(dtype, run.out(0), at, x.at<T>(start + order[i] * lines.inner));
            if (run.out(1) != nullptr) static_cast<int64_t*>(run.out(1))[at] = order[i];
          }
        }
      },
      lines.length * static_cast<int64_t>(sizeof(int64_t)));
}

}  // namespace

PrepareResult prepare::cumulate(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckSame(check, 1));
  AMPC_ASSIGN(Cumulation c, ReadCumulation(check));
  const std::string_view op = check.params().String("op");
  AMPC_TRY(check.OneOf("op", op, std::array<std::string_view, 2>{"sum", "prod"}));
  c.product = op == "prod";
  if (c.dtype == DType::kFloat64)
    return MakeKernel([c](const Buffers& run) { Cumulate<double>(c, run); });
  if (IsFloat(c.dtype)) return MakeKernel([c](const Buffers& run) { Cumulate<float>(c, run); });
  return MakeKernel([c](const Buffers& run) { Cumulate<int64_t>(c, run); });
}

PrepareResult prepare::cumprod_bwd(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x dy", "dx");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckSame(check, 2));
  AMPC_TRY(check.Float(check.In(0)));
  AMPC_ASSIGN(const Cumulation c, ReadCumulation(check));
  return c.dtype == DType::kFloat64 ? MakeCumprodBackward<double>(c)
                                    : MakeCumprodBackward<float>(c);
}

PrepareResult prepare::topk(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "values? indices?");
  AMPC_TRY(check.Operands());
  AMPC_TRY(check.FloatOrInteger(check.In(0)));
  AMPC_TRY(check.RowMajor(check.In(0)));
  AMPC_ASSIGN(const int64_t axis, check.Axis(check.In(0)));
  const int64_t k = check.params().Int("k");
  const Lines lines = LinesOf(check.In(0)->dims, axis);
  AMPC_TRY(check.InRange("k", k, 0, lines.length));
  Dims want = check.In(0)->dims;
  want[static_cast<size_t>(axis)] = k;
  for (size_t i = 0; i < 2; ++i) {
    AMPC_TRY(check.RowMajor(check.Out(i)));
    AMPC_TRY(check.HasDims(check.Out(i), want));
  }
  AMPC_TRY(check.SameType(check.In(0), check.Out(0)));
  AMPC_TRY(check.OfType(check.Out(1), DType::kInt64));
  const DType dtype = check.In(0)->dtype;
  if (dtype == DType::kFloat64) return MakeTopK<double>(check, lines, k);
  if (IsFloat(dtype)) return MakeTopK<float>(check, lines, k);
  return MakeTopK<int64_t>(check, lines, k);
}

PrepareResult prepare::one_hot(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "indices values", "y");
  AMPC_TRY(check.Operands());
  for (const Operand& t : {check.In(0), check.In(1), check.Out(0)}) AMPC_TRY(check.RowMajor(t));
  AMPC_TRY(check.FloatOrInteger(check.In(0)));
  AMPC_TRY(check.Elements(check.In(1), 2));
  AMPC_TRY(check.SameType(check.In(1), check.Out(0)));
  AMPC_ASSIGN(const int64_t axis, check.Axis(check.Out(0)));
  const Lines lines = LinesOf(check.Out(0)->dims, axis);
  Dims rest = check.Out(0)->dims;
  rest.erase(rest.begin() + axis);
  AMPC_TRY(check.HasDims(check.In(0), rest));
  const DType index_type = check.In(0)->dtype;
  const auto width = static_cast<size_t>(SizeOf(check.Out(0)->dtype));
  return MakeKernel([=](const Buffers& run) {
    const auto *off = static_cast<const std::byte*>(run.in(1)), *on = off + width;
    auto* y = static_cast<std::byte*>(run.out(0));
    for (int64_t line = 0; line < lines.count(); ++line) {
      // Beyond the depth nothing is on (ONNX).
      int64_t index = Load<int64_t>(index_type, run.in(0), line);
      if (index < 0) index += lines.length;
      for (int64_t k = 0; k < lines.length; ++k)
        std::memcpy(y + static_cast<size_t>(lines.start(line) + k * lines.inner) * width,
                    k == index ? on : off, width);
    }
  });
}

PrepareResult prepare::reverse_sequence(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x lengths", "y");
  AMPC_TRY(check.Operands());
  for (const Operand& t : {check.In(0), check.In(1), check.Out(0)}) AMPC_TRY(check.RowMajor(t));
  AMPC_TRY(check.SameType(check.In(0), check.Out(0)));
  AMPC_TRY(check.HasDims(check.Out(0), check.In(0)->dims));
  AMPC_TRY(check.Index(check.In(1)));
  const int64_t time = check.params().Int("time_axis"), batch = check.params().Int("batch_axis");
  const Dims& dims = check.In(0)->dims;
  AMPC_TRY(check.RankBetween(check.In(0), 2, 64));
  if (time + batch != 1 || time * batch != 0)
    return check.Fail("time_axis {} and batch_axis {}: 0 and 1 are expected", time, batch);
  AMPC_TRY(check.HasDims(check.In(1), Dims{dims[static_cast<size_t>(batch)]}));
  const int64_t inner = NumElements(std::span(dims).subspan(2)) * SizeOf(check.In(0)->dtype);
  const int64_t steps = dims[static_cast<size_t>(time)], samples = dims[static_cast<size_t>(batch)];
  const DType length_type = check.In(1)->dtype;
  return MakeKernel([=](const Buffers& run) {
    const auto* x = static_cast<const std::byte*>(run.in(0));
    auto* y = static_cast<std::byte*>(run.out(0));
    if (inner == 0) return;
    const auto at = [=](int64_t t, int64_t b) {
      return (time == 0 ? t * samples + b : b * steps + t) * inner;
    };
    for (int64_t b = 0; b < samples; ++b) {
      int64_t length = Load<int64_t>(length_type, run.in(1), b);
      if (length < 0 || length > steps) {
        run.BadIndex(b);
        length = 0;
      }
      for (int64_t t = 0; t < steps; ++t)
        std::memcpy(y + at(t, b), x + at(t < length ? length - 1 - t : t, b),
                    static_cast<size_t>(inner));
    }
  });
}

PrepareResult prepare::trilu(const CallSpec& call, const PrepareOptions&) {
  const CallCheck check(call, "x", "y");
  AMPC_TRY(check.Operands());
  AMPC_TRY(CheckSame(check, 1));
  AMPC_TRY(check.RankBetween(check.In(0), 2, 64));
  const Dims& dims = check.In(0)->dims;
  const int64_t rows = dims[dims.size() - 2], columns = dims.back();
  const int64_t planes = NumElements(std::span(dims).first(dims.size() - 2));
  const int64_t k = std::clamp(check.params().Int("k"), -rows, columns);
  const bool upper = check.params().Int("upper", 1) != 0;
  const int64_t width = SizeOf(check.In(0)->dtype);
  return MakeKernel([=](const Buffers& run) {
    const auto* x = static_cast<const std::byte*>(run.in(0));
    auto* y = static_cast<std::byte*>(run.out(0));
    for (int64_t row = 0; row < planes * rows; ++row) {
      // Columns [0, split) are below the diagonal, the rest is on it or above.
      const int64_t diagonal = row % rows + k;
      const int64_t split = std::clamp<int64_t>(upper ? diagonal : diagonal + 1, 0, columns);
      const int64_t from = upper ? split : 0, to = upper ? columns : split;
      const int64_t at = row * columns * width;
      if (x != y)
        std::memcpy(y + at + from * width, x + at + from * width,
                    static_cast<size_t>((to - from) * width));
      std::memset(y + at, 0, static_cast<size_t>(from * width));
      std::memset(y + at + to * width, 0, static_cast<size_t>((columns - to) * width));
    }
  });
}

}  // namespace ampc::ref
