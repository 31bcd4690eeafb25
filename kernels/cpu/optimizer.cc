// SPDX-License-Identifier: Apache-2.0
// unscale_check, clip_norm, sgd, adam over lists of fp32 (or low) tensors.
//
// All tensors of a call are one flat index space, cut into chunks of a fixed size that are dealt
// out to the threads. Sums are kept per chunk, in double, and added in chunk order. Operations and
// their order are the reference's, so results have its bits. Scalars are read before anything is
// written, as a one-element tensor may lie where a scalar was.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/families.h"
#include "kernels/cpu/common.h"
#include "kernels/cpu/vec/vec.h"

namespace ampc::cpu {
namespace {

constexpr int64_t kChunk = 16 * 1024;

struct Chunk {
  size_t tensor;
  int64_t begin, end;
};

/// Chunks over tensors of these sizes.
std::vector<Chunk> CutIntoChunks(std::span<const int64_t> sizes) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t at = 0; at < sizes[i]; at += kChunk)
      chunks.push_back({i, at, std::min(sizes[i], at + kChunk)});
  }
  return chunks;
}

/// What the four kernels share: chunks and threads.
class MultiTensor : public PreparedKernel {
 protected:
  MultiTensor(std::span<const int64_t> sizes, int64_t bytes_per_element, int threads)
      : vec_(Vec()), chunks_(CutIntoChunks(sizes)) {
    int64_t total = 0;
    for (int64_t n : sizes) total += n;
    threads_ = ThreadsFor(threads, total * bytes_per_element);
  }
  /// f(chunk number, chunk)
  template <typename F>
  void ForEachChunk(F f) const {
    ParallelRanges(threads_, static_cast<int64_t>(chunks_.size()), 1,
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) f(i, chunks_[static_cast<size_t>(i)]);
                   });
  }
  /// f(begin, n) over the blocks of a chunk.
  template <typename F>
  static void ForEachBlock(const Chunk& c, F f) {
    for (int64_t at = c.begin; at < c.end; at += kBlock) f(at, std::min(kBlock, c.end - at));
  }

  const VecOps& vec_;
  std::vector<Chunk> chunks_;
  int threads_ = 1;
};

std::vector<int64_t> SizesOf(std::span<const TensorDesc> list) {
  std::vector<int64_t> sizes;
  for (const TensorDesc& t : list) sizes.push_back(t.elements());
  return sizes;
}
std::vector<DType> TypesOf(std::span<const TensorDesc> list) {
  std::vector<DType> types;
  for (const TensorDesc& t : list) types.push_back(t.dtype);
  return types;
}
float Scalar(const void* p) { return *static_cast<const float*>(p); }
bool Flag(const void* p) { return *static_cast<const uint8_t*>(p) != 0; }

class UnscaleCheck final : public MultiTensor {
 public:
  UnscaleCheck(const CallSpec& call, int threads)
      : MultiTensor(SizesOf(std::span(call.inputs).subspan(1)), 8, threads),
        has_scale_(call.inputs[0].present()),
        types_(TypesOf(std::span(call.inputs).subspan(1))) {
    const int64_t n = static_cast<int64_t>(chunks_.size());
    squares_ = plan_.Take(n * 8);
    flags_ = plan_.Take(n);
  }
  int64_t workspace_bytes() const override { return plan_.total(); }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const float inverse =
        has_scale_ ? static_cast<float>(1.0 / static_cast<double>(Scalar(inputs[0]))) : 1.0f;
    double* squares = At<double>(workspace, squares_);
    uint8_t* flags = At<uint8_t>(workspace, flags_);
    ForEachChunk([&](int64_t i, const Chunk& c) {
      float buffer[kBlock];
      int bad = 0;
      double square = 0;
      ForEachBlock(c, [&](int64_t at, int64_t n) {
        const float* g = FloatBlock(types_[c.tensor], inputs[1 + c.tensor], at, n, buffer);
        bad |= vec_.unscale(g, inverse, static_cast<float*>(outputs[c.tensor]) + at, n, &square);
      });
      squares[i] = square;
      flags[i] = bad != 0 ? 1 : 0;
    });
    double sum = 0;
    bool bad = false;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      sum += squares[i];
      bad |= flags[i] != 0;
    }
    const float norm = static_cast<float>(std::sqrt(sum));
    *static_cast<float*>(outputs[types_.size() + 1]) = norm;
    *static_cast<uint8_t*>(outputs[types_.size()]) = bad || !std::isfinite(norm) ? 1 : 0;
  }

 private:
  bool has_scale_;
  std::vector<DType> types_;
  WorkspacePlan plan_;
  int64_t squares_, flags_;
};

class ClipNorm final : public MultiTensor {
 public:
  ClipNorm(const CallSpec& call, int threads)
      : MultiTensor(SizesOf(call.outputs), 8, threads),
        in_(TypesOf(std::span(call.inputs).subspan(2))),
        out_(TypesOf(call.outputs)) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    const float ratio = Scalar(inputs[1]) / (Scalar(inputs[0]) + 1e-6f);
    const float factor = 1.0f < ratio ? 1.0f : ratio;  // a NaN ratio stays
    ForEachChunk([&](int64_t, const Chunk& c) {
      float a[kBlock], b[kBlock];
      ForEachBlock(c, [&](int64_t at, int64_t n) {
        float* out = OutputBlock(out_[c.tensor], outputs[c.tensor], at, b);
        vec_.scale(FloatBlock(in_[c.tensor], inputs[2 + c.tensor], at, n, a), factor, out, n);
        StoreBlock(out_[c.tensor], out, outputs[c.tensor], at, n);
      });
    });
  }

 private:
  std::vector<DType> in_, out_;
};

/// The lists of an optimizer call: `lists` inputs of `count` tensors behind the scalars; output
/// list k has the form of input list output_of[k].
struct Update {
  size_t scalars, count;
  std::vector<size_t> output_of;
  std::vector<DType> types;  // [list][tensor]

  Update(const CallSpec& call, size_t scalar_count, std::vector<size_t> outputs)
      : scalars(scalar_count),
        count(static_cast<size_t>(call.params.Int("count"))),
        output_of(std::move(outputs)),
        types(TypesOf(std::span(call.inputs).subspan(scalar_count))) {}
  DType Type(size_t list, size_t tensor) const { return types[list * count + tensor]; }
  const void* In(std::span<const void* const> inputs, size_t list, size_t tensor) const {
    return inputs[scalars + list * count + tensor];
  }
  /// found_inf: output = input, bit for bit.
  void CopyThrough(std::span<const void* const> inputs, std::span<void* const> outputs,
                   const Chunk& c) const {
    for (size_t k = 0; k < output_of.size(); ++k) {
      const int64_t size = SizeOf(Type(output_of[k], c.tensor));
      const void* from = In(inputs, output_of[k], c.tensor);
      void* to = outputs[k * count + c.tensor];
      if (from != to) {
        std::memcpy(Offset(to, c.begin * size), Offset(from, c.begin * size),
                    static_cast<size_t>((c.end - c.begin) * size));
      }
    }
  }
};

class Sgd final : public MultiTensor {
 public:
  Sgd(const CallSpec& call, int threads)
      : MultiTensor(
            SizesOf(
                std::span(call.inputs).subspan(6, static_cast<size_t>(call.params.Int("count")))),
            20, threads),
        update_(call, 6, {0, 2}),
        momentum_(call.outputs.size() > update_.count),
        nesterov_(call.params.Int("nesterov") != 0),
        maximize_(call.params.Int("maximize") != 0) {
    if (!momentum_) update_.output_of.pop_back();
  }
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    const bool skip = Flag(inputs[0]), first = Flag(inputs[5]);
    const SgdScalars s = {Scalar(inputs[1]), Scalar(inputs[2]), 1.0f - Scalar(inputs[3]),
                          Scalar(inputs[4])};
    ForEachChunk([&](int64_t, const Chunk& c) {
      if (skip) return update_.CopyThrough(inputs, outputs, c);
      float w[kBlock], g[kBlock], v[kBlock], w_new[kBlock], v_new[kBlock];
      const size_t i = c.tensor;
      ForEachBlock(c, [&](int64_t at, int64_t n) {
        const auto in = [&](size_t list, float* buffer) {
          return FloatBlock(update_.Type(list, i), update_.In(inputs, list, i), at, n, buffer);
        };
        const float* gradient = in(1, g);
        if (maximize_) {
          vec_.scale(gradient, -1.0f, g, n);
          gradient = g;
        }
        const DType w_type = update_.Type(0, i),
                    v_type = momentum_ ? update_.Type(2, i) : DType::kNone;
        float* w_out = OutputBlock(w_type, outputs[i], at, w_new);
        float* v_out =
            momentum_ ? OutputBlock(v_type, outputs[update_.count + i], at, v_new) : nullptr;
        vec_.sgd(s, nesterov_, first, in(0, w), gradient, momentum_ ? in(2, v) : nullptr, w_out,
                 v_out, n);
        StoreBlock(w_type, w_out, outputs[i], at, n);
        if (momentum_) StoreBlock(v_type, v_out, outputs[update_.count + i], at, n);
      });
    });
  }

 private:
  Update update_;
  bool momentum_, nesterov_, maximize_;
};

class Adam final : public MultiTensor {
 public:
  Adam(const CallSpec& call, int threads)
      : MultiTensor(
            SizesOf(
                std::span(call.inputs).subspan(10, static_cast<size_t>(call.params.Int("count")))),
            28, threads),
        update_(call, 10, {0, 2, 3}),
        decoupled_(call.params.Int("decoupled") != 0) {}
  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void*,
           const RunContext&) noexcept override {
    const bool skip = Flag(inputs[0]);
    const auto scalar = [&](size_t i) { return Scalar(inputs[i]); };
    const float decay = scalar(9);
    const AdamScalars s = {.lr_decay = decoupled_ ? 1.0f - scalar(1) * decay : decay,
                           .step_size = scalar(2),
                           .beta2 = scalar(5),
                           .one_minus_beta1 = scalar(4),
                           .one_minus_beta2 = scalar(6),
                           .bias_correction2_sqrt = scalar(7),
                           .eps = scalar(8)};
    ForEachChunk([&](int64_t, const Chunk& c) {
      if (skip) return update_.CopyThrough(inputs, outputs, c);
      float buffers[4][kBlock], results[3][kBlock];
      ForEachBlock(c, [&](int64_t at, int64_t n) {
        const float* in[4];
        for (size_t l = 0; l < 4; ++l) {
          in[l] = FloatBlock(update_.Type(l, c.tensor), update_.In(inputs, l, c.tensor), at, n,
                             buffers[l]);
        }
        float* out[3];
        const auto type = [&](size_t k) { return update_.Type(update_.output_of[k], c.tensor); };
        const auto target = [&](size_t k) { return outputs[k * update_.count + c.tensor]; };
        for (size_t k = 0; k < 3; ++k) out[k] = OutputBlock(type(k), target(k), at, results[k]);
        vec_.adam(s, decoupled_, in[0], in[1], in[2], in[3], out[0], out[1], out[2], n);
        for (size_t k = 0; k < 3; ++k) StoreBlock(type(k), out[k], target(k), at, n);
      });
    });
  }

 private:
  Update update_;
  bool decoupled_;
};

/// Flags are bools, everything else fp32 or low.
std::string DeclinesLists(const CallSpec& call, std::span<const int> flags, int flag_output) {
  for (int i = 0; i < static_cast<int>(call.inputs.size()); ++i) {
    const TensorDesc& t = call.inputs[static_cast<size_t>(i)];
    if (std::ranges::find(flags, i) == flags.end() && t.present() && !IsFloatUpTo32(t.dtype))
      return "a double operand";
  }
  for (int j = 0; j < static_cast<int>(call.outputs.size()); ++j) {
    if (j != flag_output && !IsFloatUpTo32(call.outputs[static_cast<size_t>(j)].dtype))
      return "a double operand";
  }
  return {};
}

template <typename K>
PrepareResult Make(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<K>(call, options.threads));
}

}  // namespace

std::string DeclinesUnscaleCheck(const CallSpec& call, const PrepareOptions&) {
  return DeclinesLists(call, {}, static_cast<int>(call.outputs.size()) - 2);
}
std::string DeclinesClipNorm(const CallSpec& call, const PrepareOptions&) {
  return DeclinesLists(call, {}, -1);
}
std::string DeclinesSgd(const CallSpec& call, const PrepareOptions&) {
  constexpr int kFlags[] = {0, 5};
  return DeclinesLists(call, kFlags, -1);
}
std::string DeclinesAdam(const CallSpec& call, const PrepareOptions&) {
  constexpr int kFlags[] = {0};
  return DeclinesLists(call, kFlags, -1);
}

PrepareResult PrepareUnscaleCheck(const CallSpec& call, const PrepareOptions& options) {
  return Make<UnscaleCheck>(call, options);
}
PrepareResult PrepareClipNorm(const CallSpec& call, const PrepareOptions& options) {
  return Make<ClipNorm>(call, options);
}
PrepareResult PrepareSgd(const CallSpec& call, const PrepareOptions& options) {
  return Make<Sgd>(call, options);
}
PrepareResult PrepareAdam(const CallSpec& call, const PrepareOptions& options) {
  return Make<Adam>(call, options);
}

}  // namespace ampc::cpu
