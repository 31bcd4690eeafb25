// SPDX-License-Identifier: Apache-2.0
// copy, scatter_copy, concat, fill: elements move, bits stay.
//
// A copy walks the dense tensor in memory order beside the strides of the view. Where both run
// along memory it is memcpy; where the view runs along another axis (transposes, changes of layout)
// it goes through square tiles, so that every cache line read or written is used whole; else
// element by element.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/walk.h"
#include "kernels/ref/elements.h"
#include "kernels/ref/loops.h"

namespace ampc::cpu {
namespace {

/// Side of a transposed tile, in elements.
constexpr int64_t kTile = 32;

/// One element's bytes: the parameter `value` in the dtype (integers exact, floats rounded once).
uint64_t ReadValue(const CallSpec& call, DType t) {
  uint64_t bytes = 0;
  const Attr* value = call.params.Find("value");
  if (value == nullptr) return bytes;
  if (const auto* i = std::get_if<int64_t>(value)) {
    if (IsFloat(t)) {
      ref::Store<double>(t, &bytes, 0, static_cast<double>(*i));
    } else {
      ref::Store<int64_t>(t, &bytes, 0, *i);
    }
  } else if (const auto* d = std::get_if<double>(value)) {
    ref::Store<double>(t, &bytes, 0, *d);
  }
  return bytes;
}

void FillWith(int threads, void* out, int64_t n, int64_t size, uint64_t value) {
  ParallelRanges(ThreadsFor(threads, n * size), n, 4096, [&](int64_t begin, int64_t end) {
    ref::VisitSize(size, [&](auto tag) {
      using E = decltype(tag);
      std::fill(static_cast<E*>(out) + begin, static_cast<E*>(out) + end, static_cast<E>(value));
    });
  });
}

/// Moves between a dense tensor and a strided view, in either direction.
class StridedMove final : public PreparedKernel {
 public:
  StridedMove(const CallSpec& call, bool scatter, int threads)
      : scatter_(scatter), size_(SizeOf(call.inputs[0].dtype)), offset_(call.params.Int("offset")) {
    const TensorDesc& dense = scatter ? call.inputs[0] : call.outputs[0];
    const std::vector<size_t> order = ref::StorageOrder(dense);
    walk_ =
        Walk::Of(ref::Permute(dense.dims, order), ref::Permute(call.params.Ints("strides"), order));
    elements_ = dense.elements();
    out_elements_ = call.outputs[0].elements();
    all_threads_ = threads;
    threads_ = ThreadsFor(threads, elements_ * size_ * 2);
    value_ = scatter ? ReadValue(call, call.outputs[0].dtype) : 0;
    // A scatter that covers its output needs no filling.
    fills_ = scatter && elements_ != out_elements_;
    dense_strides_.assign(walk_.dims.size(), 1);
    for (size_t i = walk_.dims.size(); i-- > 1;)
      dense_strides_[i - 1] = dense_strides_[i] * walk_.dims[i];
    for (size_t i = 0; i + 1 < walk_.dims.size(); ++i) {
      if (walk_.strides[i] == 1 && walk_.dims[i] > 1 && walk_.strides.back() != 1)
        turned_ = static_cast<int>(i);
    }
  }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    if (fills_) FillWith(all_threads_, outputs[0], out_elements_, size_, value_);
    if (elements_ == 0) return;
    ref::VisitSize(size_, [&](auto tag) {
      using E = decltype(tag);
      // dense[..] and view[..], one of them written
      E* dense =
          scatter_ ? const_cast<E*>(static_cast<const E*>(inputs[0])) : static_cast<E*>(outputs[0]);
      E* view = (scatter_ ? static_cast<E*>(outputs[0])
                          : const_cast<E*>(static_cast<const E*>(inputs[0]))) +
                offset_;
      if (walk_.dims.empty()) {
        Line(dense, view, 1, 1);
      } else if (turned_ >= 0) {
        RunTurned(dense, view);
      } else {
        RunLines(dense, view);
      }
    });
  }

 private:
  /// n elements, contiguous in the dense tensor.
  template <typename E>
  void Line(E* dense, E* view, int64_t n, int64_t stride) const {
    if (stride == 1) {
      std::memcpy(scatter_ ? view : dense, scatter_ ? dense : view,
                  static_cast<size_t>(n) * sizeof(E));
    } else if (scatter_) {
      for (int64_t i = 0; i < n; ++i) view[i * stride] = dense[i];
    } else if (stride == 0) {
      std::fill_n(dense, n, *view);
    } else {
      for (int64_t i = 0; i < n; ++i) dense[i] = view[i * stride];
    }
  }

  template <typename E>
  void RunLines(E* dense, E* view) const {
    const size_t last = walk_.dims.size() - 1;
    const int64_t length = walk_.dims[last], lines = elements_ / length;
    // A single long line is cut; many lines are dealt out.
    if (lines == 1) {
      return ParallelRanges(threads_, length, 4096, [&](int64_t begin, int64_t end) {
        Line(dense + begin, view + begin * walk_.strides[last], end - begin, walk_.strides[last]);
      });
    }
    ParallelRanges(threads_, lines, 1, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        Line(dense + line * length, view + ViewOffset(line, last), length, walk_.strides[last]);
      }
    });
  }

  /// Where the view has the element at position `index` of the axes before `last`.
  int64_t ViewOffset(int64_t index, size_t last, int skipped = -1) const {
    int64_t at = 0;
    for (size_t axis = last; axis-- > 0;) {
      if (static_cast<int>(axis) == skipped) continue;
      at += index % walk_.dims[axis] * walk_.strides[axis];
      index /= walk_.dims[axis];
    }
    return at;
  }
  int64_t DenseOffset(int64_t index, size_t last, int skipped) const {
    int64_t at = 0;
    for (size_t axis = last; axis-- > 0;) {
      if (static_cast<int>(axis) == skipped) continue;
      at += index % walk_.dims[axis] * dense_strides_[axis];
      index /= walk_.dims[axis];
    }
    return at;
  }

  /// Tiles of the last axis (contiguous in the dense tensor) and the turned one (contiguous in the
  /// view).
  template <typename E>
  void RunTurned(E* dense, E* view) const {
    const size_t last = walk_.dims.size() - 1;
    const int64_t length = walk_.dims[last], turned = walk_.dims[static_cast<size_t>(turned_)];
    const int64_t stride = walk_.strides[last],
                  dense_stride = dense_strides_[static_cast<size_t>(turned_)];
    const int64_t planes = elements_ / (length * turned), tiles = CeilDiv(turned, kTile);
    ParallelRanges(threads_, planes * tiles, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t plane = task / tiles, first = task % tiles * kTile,
                      rows = std::min(kTile, turned - first);
        E* d = dense + DenseOffset(plane, last, turned_) + first * dense_stride;
        E* v = view + ViewOffset(plane, last, turned_) + first;
        for (int64_t at = 0; at < length; at += kTile) {
          Tile(d + at, dense_stride, v + at * stride, stride, rows, std::min(kTile, length - at));
        }
      }
    });
  }
  /// Through a buffer, so that every line of either side is touched once even where lines collide
  /// in the cache.
  template <typename E>
  void Tile(E* dense, int64_t dense_stride, E* view, int64_t view_stride, int64_t rows,
            int64_t cols) const {
    if (scatter_) {
      Transpose(dense, dense_stride, rows, cols, view, view_stride);
    } else {
      Transpose(view, view_stride, cols, rows, dense, dense_stride);
    }
  }
  /// to[j][i] = from[i][j], i < rows, j < cols.
  template <typename E>
  static void Transpose(const E* from, int64_t from_stride, int64_t rows, int64_t cols, E* to,
                        int64_t to_stride) {
    E buffer[kTile][kTile];
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) buffer[j][i] = from[i * from_stride + j];
    }
    for (int64_t j = 0; j < cols; ++j)
      std::memcpy(to + j * to_stride, buffer[j], static_cast<size_t>(rows) * sizeof(E));
  }

  bool scatter_, fills_ = false;
  int64_t size_, offset_, elements_ = 0, out_elements_ = 0;
  uint64_t value_ = 0;
  int threads_ = 1, all_threads_ = 1, turned_ = -1;
  Walk walk_;
  std::vector<int64_t> dense_strides_;
};

class Concat final : public PreparedKernel {
 public:
  Concat(const CallSpec& call, int threads) {
    const TensorDesc& y = call.outputs[0];
    const size_t axis = static_cast<size_t>(call.params.Int("axis"));
    const std::span<const int64_t> dims(y.dims);
    const int64_t inner = NumElements(dims.subspan(axis + 1)) * SizeOf(y.dtype);
    outer_ = NumElements(dims.first(axis));
    row_ = dims[axis] * inner;
    threads_ = ThreadsFor(threads, y.bytes() * 2);
    int64_t at = 0;
    for (const TensorDesc& x : call.inputs) {
      pieces_.push_back({at, x.dims[axis] * inner});
      at += pieces_.back().bytes;
    }
  }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    const int64_t count = static_cast<int64_t>(pieces_.size());
    ParallelRanges(threads_, outer_ * count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Piece& p = pieces_[static_cast<size_t>(i % count)];
        if (p.bytes == 0) continue;
        std::memcpy(Offset(outputs[0], i / count * row_ + p.at),
                    Offset(inputs[static_cast<size_t>(i % count)], i / count * p.bytes),
                    static_cast<size_t>(p.bytes));
      }
    });
  }

 private:
  struct Piece {
    int64_t at, bytes;
  };
  std::vector<Piece> pieces_;
  int64_t outer_, row_;
  int threads_;
};

class Fill final : public PreparedKernel {
 public:
  Fill(const CallSpec& call, int threads)
      : elements_(call.outputs[0].elements()),
        size_(SizeOf(call.outputs[0].dtype)),
        value_(ReadValue(call, call.outputs[0].dtype)),
        threads_(threads) {}
  void Run(std::span<const void* const>, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    FillWith(threads_, outputs[0], elements_, size_, value_);
  }

 private:
  int64_t elements_, size_;
  uint64_t value_;
  int threads_;
};

}  // namespace

std::string DeclinesCopy(const CallSpec&, const PrepareOptions&) { return {}; }
std::string DeclinesScatterCopy(const CallSpec&, const PrepareOptions&) { return {}; }
std::string DeclinesConcat(const CallSpec&, const PrepareOptions&) { return {}; }
std::string DeclinesFill(const CallSpec&, const PrepareOptions&) { return {}; }

PrepareResult PrepareCopy(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<StridedMove>(call, false, options.threads));
}
PrepareResult PrepareScatterCopy(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(
      std::make_unique<StridedMove>(call, true, options.threads));
}
PrepareResult PrepareConcat(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Concat>(call, options.threads));
}
PrepareResult PrepareFill(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Fill>(call, options.threads));
}

}  // namespace ampc::cpu
