// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks of a call against its contract. Every failure is E0802 and says kernel, operand, expected
// and found; a damaged or foreign plan can cause it.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/kernel.h"

namespace ampc::ref {

/// One operand of a call with the name that the contract gives it.
struct Operand {
  const TensorDesc* desc;
  std::string name;
  const TensorDesc* operator->() const { return desc; }
  const TensorDesc& operator*() const { return *desc; }
};

class CallCheck {
 public:
  /// `inputs`, `outputs`: the operands' names in order, separated by spaces; "b?" is optional.
  CallCheck(const CallSpec& call, std::string_view inputs, std::string_view outputs);
  /// A call with any number of operands, named input 0, … and output 0, …
  explicit CallCheck(const CallSpec& call);

  /// Counts, presence, and dims that are no nonsense. First of all checks.
  Status Operands() const;

  /// Operand i; an absent optional one has dtype kNone.
  Operand In(size_t i) const { return Get(i, call_.inputs, inputs_, "input"); }
  Operand Out(size_t i) const { return Get(i, call_.outputs, outputs_, "output"); }
  bool HasIn(size_t i) const { return In(i)->present(); }
  bool HasOut(size_t i) const { return Out(i)->present(); }

  // Each passes when the operand is absent.
  Status Float(const Operand& x) const;
  Status FloatOrInteger(const Operand& x) const;
  Status Acc(const Operand& x) const;    ///< fp32 or fp64
  Status Index(const Operand& x) const;  ///< int32 or int64
  Status OfType(const Operand& x, DType t) const;
  Status SameType(const Operand& x, const Operand& y) const;
  Status HasDims(const Operand& x, std::span<const int64_t> dims) const;
  Status Elements(const Operand& x, int64_t n) const;
  Status Scalar(const Operand& x) const { return Elements(x, 1); }
  Status RankBetween(const Operand& x, size_t low, size_t high) const;
  Status RowMajor(const Operand& x) const;
  Status SameLayout(const Operand& x, const Operand& y) const;
  /// `x` broadcasts (numpy) to `dims`.
  Status BroadcastsTo(const Operand& x, std::span<const int64_t> dims) const;
  /// low <= value <= high for parameter `name`.
  Status InRange(std::string_view name, int64_t value, int64_t low, int64_t high) const;
  Status OneOf(std::string_view name, std::string_view value,
               std::span<const std::string_view> allowed) const;
  /// The parameter "axis", within the rank of x.
  Result<int64_t> Axis(const Operand& x) const;

  template <typename... Args>
  Status Fail(fmt::format_string<Args...> f, Args&&... args) const {
    return FailText(fmt::format(f, std::forward<Args>(args)...));
  }
  const CallSpec& call() const { return call_; }
  const Attrs& params() const { return call_.params; }

 private:
  struct OperandName {
    std::string name;
    bool optional;
  };
  static std::vector<OperandName> ParseNames(std::string_view names);
  static Operand Get(size_t i, const std::vector<TensorDesc>& descs,
                     const std::vector<OperandName>& names, std::string_view kind);
  Status CheckList(const std::vector<TensorDesc>& descs, const std::vector<OperandName>& names,
                   std::string_view kind) const;
  Status FailText(std::string text) const;

  const CallSpec& call_;
  std::vector<OperandName> inputs_, outputs_;
  bool variadic_ = false;
};

/// "" or "relu".
Result<bool> ReluPost(const CallCheck& check);
/// max(v, 0) that passes NaN on.
template <typename T>
T Relu(T v) {
  return v > T{0} || v != v ? v : T{0};
}

/// N, C and the flattened spatial positions of a tensor [N,C,d..] in any layout; element (n, c, s)
/// is at n * n_stride + c * c_stride + s * s_stride.
struct ChannelView {
  int64_t n, c, s;
  int64_t n_stride, c_stride, s_stride;
  int64_t at(int64_t in, int64_t ic, int64_t is) const {
    return in * n_stride + ic * c_stride + is * s_stride;
  }
};
ChannelView ViewChannels(const TensorDesc& x);

}  // namespace ampc::ref
