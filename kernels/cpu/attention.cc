// SPDX-License-Identifier: Apache-2.0
// attention and attention_bwd without a matrix of scores in memory: tiles of them are made, used
// and forgotten (FlashAttention). Backward makes them once more from the log-sum-exp of each query.
//
// Forward: a task is a block of queries of one head; keys pass by, with a running maximum and sum.
// Backward: a task is one head of keys with all queries that read it, so every gradient is summed
// by one thread in one order. All sums are fp32 over at most kKeys terms at a time. Where q, k, v
// and dy are bf16 and the processor multiplies pairs of them, the products of two of them do that;
// weights and score gradients stay fp32, so that rounding them adds no error of its own.

#include <cmath>

#include "kernels/attention.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/families.h"

namespace ampc::cpu {
namespace {

using Tile = AttentionTiles::Tile;

/// Below this many multiply-adds a second thread costs more than it saves.
constexpr double kFlopsForThreads = 4e6;

int ThreadsOf(double flops, int threads) {
  return flops < kFlopsForThreads ? 1 : std::max(threads, 1);
}

/// Pieces of one thread's floats, each a whole number of cache lines.
class Floats {
 public:
  int64_t Take(int64_t n) {
    const int64_t at = total_;
    total_ += Padded(n);
    return at;
  }
  int64_t total() const { return total_; }

 private:
  int64_t total_ = 0;
};

// ---- forward ----

class Forward final : public PreparedKernel {
 public:
  Forward(const CallSpec& call, const PrepareOptions& options)
      : tiles_(call, 3),
        threads_(ThreadsOf(tiles_.flops(), options.threads)),
        y_type_(call.outputs[0].dtype),
        blocks_(CeilDiv(tiles_.t, kQueries)) {
    Floats f;
    kt_ = f.Take(tiles_.Columns(tiles_.s, tiles_.d));
    v_ = f.Take(tiles_.s * tiles_.ep);
    q_ = f.Take(kQueries * tiles_.dp);
    scores_ = f.Take(kQueries * kTileRow);
    y_ = f.Take(kQueries * tiles_.ep);
    floats_ = f.total();
  }

  int64_t workspace_bytes() const override { return threads_ * floats_ * 4; }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    // A head of keys comes with all blocks of the queries that read it.
    const int64_t per_group = tiles_.repeat() * blocks_, tasks = tiles_.b * tiles_.g * per_group;
    ParallelFor(threads_, threads_, [&](int64_t thread) {
      float* work = static_cast<float*>(workspace) + thread * floats_;
      const int64_t begin = tasks * thread / threads_, end = tasks * (thread + 1) / threads_;
      int64_t read = -1;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t group = task / per_group;
        if (group != read) {
          tiles_.ReadColumns(tiles_.k_type, inputs[1], group * tiles_.s, tiles_.s, tiles_.d,
                             work + kt_);
          tiles_.ReadRight(tiles_.v_type, inputs[2], group * tiles_.s, tiles_.s, tiles_.e,
                           work + v_);
          read = group;
        }
        const int64_t head = group * tiles_.repeat() + task % per_group / blocks_;
        Block(inputs, outputs, head, task % blocks_ * kQueries, work);
      }
    });
  }

 private:
  /// `head` counts the heads of all samples.
  void Block(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t head,
             int64_t first, float* work) const {
    const int64_t rows = std::min(kQueries, tiles_.t - first);
    Tile at{head / tiles_.h, head % tiles_.h, first, rows, 0, 0};
    float max[kQueries], sum[kQueries];
    std::fill_n(max, rows, -INFINITY);
    std::fill_n(sum, rows, 0.0f);
    float* y = work + y_;
    std::fill_n(y, rows * tiles_.ep, 0.0f);
    const float* q = tiles_.ReadLeft(tiles_.q_type, inputs[0], head * tiles_.t + first, rows,
                                     tiles_.d, tiles_.scale(), work + q_);
    const void* mask = inputs.size() > 3 ? inputs[3] : nullptr;
    const int64_t keys = tiles_.KeysFor(first + rows);
    for (at.key = 0; at.key < keys; at.key += kKeys) {
      at.keys = std::min(kKeys, keys - at.key);
      tiles_.ScoreTile(at, q, work + kt_ + tiles_.ColumnsAt(at.key, tiles_.d), mask, work + scores_,
                       nullptr);
      AddKeys(at, work, max, sum);
    }
    Finish(outputs, head, at, y, max, sum);
  }

  /// Scores become weights under a new maximum; sums under the old one are scaled.
  void AddKeys(const Tile& at, float* work, float* max, float* sum) const {
    const VecOps& vec = tiles_.vec();
    const int64_t padded = Padded(at.keys);
    for (int64_t i = 0; i < at.queries; ++i) {
      float *row = work + scores_ + i * kTileRow, *y = work + y_ + i * tiles_.ep;
      const float here = vec.row_reduce[static_cast<int>(RowOp::kMax)](row, padded);
      const float top = here > max[i] || here != here ? here : max[i];
      if (top == -INFINITY) {
        std::fill_n(row, padded, 0.0f);
        continue;
      }
      if (top != max[i] && max[i] != -INFINITY) {
        const float factor = std::exp(max[i] - top);
        sum[i] *= factor;
        vec.scale(y, factor, y, tiles_.ep);
      }
      max[i] = top;
      sum[i] += vec.exp_sum(row, top, row, padded);
    }
    tiles_.Multiply(work + scores_, kTileRow, 1, work + v_ + at.key * tiles_.ep, tiles_.ep,
                    work + y_, tiles_.ep, at.queries, tiles_.ep, at.keys, true);
  }

  void Finish(std::span<void* const> outputs, int64_t head, const Tile& at, float* y,
              const float* max, const float* sum) const {
    const int64_t row = head * tiles_.t + at.query;
    auto* lse = outputs.size() > 1 ? static_cast<float*>(outputs[1]) : nullptr;
    for (int64_t i = 0; i < at.queries; ++i) {
      const bool none = max[i] == -INFINITY;
      if (lse != nullptr) lse[row + i] = none ? -INFINITY : max[i] + std::log(sum[i]);
      if (outputs[0] == nullptr) continue;
      float* r = y + i * tiles_.ep;
      if (none) std::fill_n(r, tiles_.ep, 0.0f);
      tiles_.WriteRow(y_type_, r, tiles_.e, none ? 1 : 1 / sum[i], outputs[0], row + i);
    }
  }

  AttentionTiles tiles_;
  int threads_;
  DType y_type_;
  int64_t blocks_;
  int64_t kt_, v_, q_, scores_, y_, floats_;  // a thread's places
};

// ---- backward ----

class Backward final : public PreparedKernel {
 public:
  Backward(const CallSpec& call, const PrepareOptions& options)
      : tiles_(call, 6),
        y_type_(call.inputs[3].dtype),
        dy_type_(call.inputs[5].dtype),
        mask_grad_(call.outputs.size() > 3 && call.outputs[3].present()) {
    const AttentionTiles& n = tiles_;
    threads_ = static_cast<int>(std::clamp<int64_t>(ThreadsOf(n.flops(), options.threads), 1,
                                                    std::max<int64_t>(n.b * n.g, 1)));
    for (size_t i = 0; i < 3 && i < call.outputs.size(); ++i) types_[i] = call.outputs[i].dtype;
    Floats f;
    kt_ = f.Take(n.Columns(n.s, n.d));
    vt_ = f.Take(n.Columns(n.s, n.e));
    k_ = f.Take(n.s * n.dp);
    dk_ = f.Take(n.s * n.dp);
    dv_ = f.Take(n.s * n.ep);
    q_ = f.Take(n.t * n.LeftRow(n.d));
    dq_ = f.Take(n.t * n.dp);
    dy_ = f.Take(n.t * n.LeftRow(n.e));
    right_q_ = n.pairs() != nullptr ? f.Take(n.t * n.dp) : q_;
    right_dy_ = n.pairs() != nullptr ? f.Take(n.t * n.ep) : dy_;
    dot_ = f.Take(n.t);
    y_ = f.Take(n.pairs() == nullptr ? kQueries * n.ep : 0);
    p_ = f.Take(kQueries * kTileRow);
    ds_ = f.Take(kQueries * kTileRow);
    capped_ = f.Take(n.softcap() != 0 ? kQueries * kTileRow : 0);
    floats_ = f.total();
  }

  int64_t workspace_bytes() const override { return threads_ * floats_ * 4; }

  void Run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace,
           const RunContext&) noexcept override {
    const int64_t tasks = tiles_.b * tiles_.g;
    ParallelFor(threads_, threads_, [&](int64_t thread) {
      float* work = static_cast<float*>(workspace) + thread * floats_;
      const int64_t begin = tasks * thread / threads_, end = tasks * (thread + 1) / threads_;
      for (int64_t group = begin; group < end; ++group) Group(inputs, outputs, group, work);
    });
  }

 private:
  void Group(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t group,
             float* work) const {
    const AttentionTiles& n = tiles_;
    n.ReadColumns(n.k_type, inputs[1], group * n.s, n.s, n.d, work + kt_);
    n.ReadColumns(n.v_type, inputs[2], group * n.s, n.s, n.e, work + vt_);
    n.ReadRight(n.k_type, inputs[1], group * n.s, n.s, n.d, work + k_);
    std::fill_n(work + dk_, n.s * n.dp, 0.0f);
    std::fill_n(work + dv_, n.s * n.ep, 0.0f);
    for (int64_t r = 0; r < n.repeat(); ++r) {
      const int64_t head = group * n.repeat() + r;
      const Left left = ReadHead(inputs, head, work);
      Head(inputs, left, mask_grad_ ? static_cast<float*>(outputs[3]) : nullptr, head, work);
      if (outputs[0] != nullptr)
        n.WriteRows(types_[0], work + dq_, n.t, n.d, n.scale(), outputs[0], head * n.t);
    }
    if (outputs[1] != nullptr)
      n.WriteRows(types_[1], work + dk_, n.s, n.d, n.late_scale(), outputs[1], group * n.s);
    if (outputs[2] != nullptr)
      n.WriteRows(types_[2], work + dv_, n.s, n.e, 1, outputs[2], group * n.s);
  }

  /// The queries and gradients of one head as left operands.
  struct Left {
    const float *q, *dy;
  };

  Left ReadHead(std::span<const void* const> inputs, int64_t head, float* work) const {
    const AttentionTiles& n = tiles_;
    const int64_t first = head * n.t;
    const Left left = {
        n.ReadLeft(n.q_type, inputs[0], first, n.t, n.d, n.scale(), work + q_),
        n.ReadLeft(dy_type_, inputs[5], first, n.t, n.e, 1, work + dy_),
    };
    if (n.pairs() != nullptr) {
      n.ReadRight(n.q_type, inputs[0], first, n.t, n.d, work + right_q_);
      n.ReadRight(dy_type_, inputs[5], first, n.t, n.e, work + right_dy_);
    }
    std::fill_n(work + dq_, n.t * n.dp, 0.0f);
    ReadDots(inputs, first, work);
    return left;
  }

  /// The product of gradient and result per query.
  void ReadDots(std::span<const void* const> inputs, int64_t first, float* work) const {
    const AttentionTiles& n = tiles_;
    if (n.pairs() != nullptr) {
      const auto* y = static_cast<const uint16_t*>(inputs[3]) + first * n.e;
      const auto* dy = static_cast<const uint16_t*>(inputs[5]) + first * n.e;
      for (int64_t i = 0; i < n.t; ++i)
        work[dot_ + i] = n.pairs()->dot(dy + i * n.e, y + i * n.e, n.e);
      return;
    }
    for (int64_t i = 0; i < n.t; i += kQueries) {
      const int64_t rows = std::min(kQueries, n.t - i);
      n.ReadRight(y_type_, inputs[3], first + i, rows, n.e, work + y_);
      for (int64_t j = 0; j < rows; ++j)
        work[dot_ + i + j] = n.vec().dot(work + dy_ + (i + j) * n.ep, work + y_ + j * n.ep, n.ep);
    }
  }

  void Head(std::span<const void* const> inputs, const Left& left, float* dscores, int64_t head,
            float* work) const {
    const AttentionTiles& n = tiles_;
    float* ds = dscores == nullptr ? nullptr : dscores + head * n.t * n.s;
    if (ds != nullptr) std::fill_n(ds, n.t * n.s, 0.0f);
    const void* mask = inputs.size() > 6 ? inputs[6] : nullptr;
    const float* lse = static_cast<const float*>(inputs[4]) + head * n.t;
    Tile at{head / n.h, head % n.h, 0, 0, 0, 0};
    for (at.query = 0; at.query < n.t; at.query += kQueries) {
      at.queries = std::min(kQueries, n.t - at.query);
      const int64_t keys = n.KeysFor(at.query + at.queries);
      float factors[kQueries];
      FactorsOf(at, left, keys, mask, lse + at.query, factors, work);
      for (at.key = 0; at.key < keys; at.key += kKeys) {
        at.keys = std::min(kKeys, keys - at.key);
        OneTile(at, left, mask, lse + at.query, factors, ds, work);
      }
    }
  }

  /// What the weights of each query are multiplied by: 1, or where lse is too large to tell the sum
  /// of the exponentials, the inverse of that sum, for which the scores are made once more.
  void FactorsOf(Tile at, const Left& left, int64_t keys, const void* mask, const float* lse,
                 float* factors, float* work) const {
    const AttentionTiles& n = tiles_;
    std::fill_n(factors, at.queries, 1.0f);
    if (std::none_of(lse, lse + at.queries, [](float x) { return IsFarLse(x); })) return;
    float sums[kQueries] = {};
    for (at.key = 0; at.key < keys; at.key += kKeys) {
      at.keys = std::min(kKeys, keys - at.key);
      n.ScoreTile(at, left.q + at.query * n.LeftRow(n.d), work + kt_ + n.ColumnsAt(at.key, n.d),
                  mask, work + p_, nullptr);
      for (int64_t i = 0; i < at.queries; ++i) {
        float* row = work + p_ + i * kTileRow;
        if (IsFarLse(lse[i])) sums[i] += n.vec().exp_sum(row, lse[i], row, Padded(at.keys));
      }
    }
    for (int64_t i = 0; i < at.queries; ++i) {
      if (IsFarLse(lse[i])) factors[i] = 1 / sums[i];
    }
  }

  void OneTile(const Tile& at, const Left& left, const void* mask, const float* lse,
               const float* factors, float* dscores, float* work) const {
    const AttentionTiles& n = tiles_;
    float *p = work + p_, *ds = work + ds_, *capped = n.softcap() != 0 ? work + capped_ : nullptr;
    const int64_t padded = Padded(at.keys);
    n.ScoreTile(at, left.q + at.query * n.LeftRow(n.d), work + kt_ + n.ColumnsAt(at.key, n.d), mask,
                p, capped);
    n.MultiplyStored(left.dy + at.query * n.LeftRow(n.e), work + vt_ + n.ColumnsAt(at.key, n.e), ds,
                     at.queries, padded, n.e);
    for (int64_t i = 0; i < at.queries; ++i) {
      float* ds_row = ds + i * kTileRow;
      OneRow(lse[i], factors[i], work[dot_ + at.query + i], p + i * kTileRow, ds_row, padded);
      if (dscores != nullptr) std::copy_n(ds_row, at.keys, dscores + (at.query + i) * n.s + at.key);
      if (capped != nullptr)
        n.vec().soft_cap_bwd(capped + i * kTileRow, n.softcap(), ds_row, padded);
    }
    AddTile(at, work);
  }

  /// Scores become weights, gradients of weights become gradients of scores.
  void OneRow(float lse, float factor, float dot, float* p, float* ds, int64_t padded) const {
    const AttentionTiles& n = tiles_;
    if (lse == -INFINITY) {  // no key counts
      std::fill_n(p, padded, 0.0f);
      n.vec().softmax_bwd(p, ds, dot, ds, padded);
    } else {
      n.vec().exp_sum(p, lse, p, padded);
      if (factor != 1) n.vec().scale(p, factor, p, padded);
      n.vec().softmax_bwd(p, ds, dot, ds, padded);
    }
  }

  /// The tile's shares of the gradients.
  void AddTile(const Tile& at, float* work) const {
    const AttentionTiles& n = tiles_;
    float *p = work + p_, *ds = work + ds_;
    n.Multiply(ds, kTileRow, 1, work + k_ + at.key * n.dp, n.dp, work + dq_ + at.query * n.dp, n.dp,
               at.queries, n.dp, at.keys, true);
    n.Multiply(ds, 1, kTileRow, work + right_q_ + at.query * n.dp, n.dp, work + dk_ + at.key * n.dp,
               n.dp, at.keys, n.dp, at.queries, true);
    n.Multiply(p, 1, kTileRow, work + right_dy_ + at.query * n.ep, n.ep, work + dv_ + at.key * n.ep,
               n.ep, at.keys, n.ep, at.queries, true);
  }

  AttentionTiles tiles_;
  DType y_type_, dy_type_, types_[3] = {};
  bool mask_grad_;
  int threads_;
  int64_t kt_, vt_, k_, dk_, dv_, q_, dq_, dy_, right_q_, right_dy_, dot_, y_, p_, ds_;
  int64_t capped_, floats_;
};

std::string Declines(const CallSpec& call, size_t mask_slot) {
  if (std::string reason = DeclinesUnlessFloat(call, static_cast<int>(mask_slot)); !reason.empty())
    return reason;
  if (call.inputs.size() > mask_slot && call.inputs[mask_slot].dtype == DType::kFloat64)
    return "a mask of doubles";
  return DeclinesEmpty(call);
}

}  // namespace

std::string DeclinesAttention(const CallSpec& call, const PrepareOptions&) {
  return Declines(call, 3);
}
std::string DeclinesAttentionBackward(const CallSpec& call, const PrepareOptions&) {
  return Declines(call, 6);
}

PrepareResult PrepareAttention(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Forward>(call, options));
}
PrepareResult PrepareAttentionBackward(const CallSpec& call, const PrepareOptions& options) {
  return std::unique_ptr<PreparedKernel>(std::make_unique<Backward>(call, options));
}

}  // namespace ampc::cpu
