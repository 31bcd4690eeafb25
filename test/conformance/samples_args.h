// SPDX-License-Identifier: Apache-2.0
#pragma once
// The samples table. A row is {op, operands, attributes, …}; the functions below write operands:
//
//   F(dims)            float of the type under test, differentiated; |v| in [0.2, 1.7]
//   P(dims), U(dims, low, high)   the same, positive, or in a range
//   V(dims, values)    the same with explicit values
//   A(dims)            float32 (float64 when that is under test): statistics, scales
//   I(values), IS(value)   int64 constant: shapes, axes    Ix(dims, values, dtype)  indices,
//   labels: a feed Same(slot)         the value of an earlier slot        None()  left out
//
// Behind the attributes: outputs, outputs that enter the loss (~0u: all), terms.
// clang-format off
#include <limits>

#include "test/conformance/samples.h"

namespace ampc::conformance {

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;
using Table = std::vector<Sample>;

inline Arg F(Dims dims) { return {.dims = std::move(dims), .differentiate = true}; }
inline Arg P(Dims dims) { return {.dims = std::move(dims), .both_signs = false, .differentiate = true}; }
inline Arg U(Dims dims, double low, double high) {
  return {.dims = std::move(dims), .low = low, .high = high, .both_signs = false, .differentiate = true};
}
inline Arg V(Dims dims, Doubles values) { return {.dims = std::move(dims), .values = std::move(values), .differentiate = true}; }
inline Arg A(Dims dims) { return {.kind = Arg::Kind::kAcc, .dims = std::move(dims), .differentiate = true}; }
inline Arg AP(Dims dims) { return {.kind = Arg::Kind::kAcc, .dims = std::move(dims), .both_signs = false, .differentiate = true}; }
inline Arg AV(Dims dims, Doubles values) { return {.kind = Arg::Kind::kAcc, .dims = std::move(dims), .values = std::move(values)}; }
inline Arg AS(double value) { return AV({}, {value}); }  // scalar of an optimizer
inline Arg Ix(Dims dims, Doubles values, DType dtype = DType::kInt64) {
  return {.kind = Arg::Kind::kFixed, .dtype = dtype, .dims = std::move(dims), .values = std::move(values)};
}
inline Arg B(Dims dims, Doubles values) { return Ix(std::move(dims), std::move(values), DType::kBool); }
inline Arg I(Doubles values) {
  const auto n = static_cast<int64_t>(values.size());
  return Ix({n}, std::move(values)).Constant();
}
inline Arg IS(double value) { return Ix({}, {value}).Constant(); }
inline Arg Same(size_t slot) { return {.kind = Arg::Kind::kSame, .same = slot}; }
inline Arg None() { return {.kind = Arg::Kind::kLeftOut}; }
constexpr int64_t kBf16 = static_cast<int64_t>(DType::kBFloat16), kF16 = static_cast<int64_t>(DType::kFloat16), kF32 = 1, kF64 = 11,
                  kI64 = 7, kI32 = 6, kBoolType = 9;
constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

inline void Join(Table& table, Table more) { table.insert(table.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end())); }

inline Attrs With(Attrs attrs, std::string_view name, Attr value) {
  attrs.Set(name, std::move(value));
  return attrs;
}
inline Attr Str(const char* text) { return std::string(text); }

/// n labels of the first classes, mixed.
inline Doubles Labels(size_t n, int classes) {
  Doubles v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<double>(i * 7 % static_cast<size_t>(classes));
  return v;
}

/// The large ones of LayerSamples.
Table LargeLayerSamples();

}  // namespace ampc::conformance
