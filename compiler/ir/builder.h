// SPDX-License-Identifier: Apache-2.0
#pragma once
// Adds nodes with inferred types at one place of a graph. Gradient rules and passes are written
// with it.
//
// The first failure (a type error in what a pass builds is a bug of ours) is kept in status();
// later calls then return kNone and do nothing, so a rule reads as straight lines and its caller
// checks once.

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"

namespace ampc::ir {

class Builder {
 public:
  /// Inserts before `before` (kNone: appends), stamping nodes with `loc`.
  Builder(Graph& graph, LocId loc, NodeId before = kNone)
      : graph_(graph), loc_(loc), before_(before) {}

  Graph& graph() { return graph_; }
  const Status& status() const { return status_; }
  Status TakeStatus() { return std::move(status_); }
  void set_loc(LocId loc) { loc_ = loc; }
  void set_before(NodeId before) { before_ = before; }
  LocId loc() const { return loc_; }
  /// Names the first output of the next node.
  Builder& Named(std::string_view name) {
    next_name_ = name;
    return *this;
  }

  /// A node with one output.
  ValueId Op(std::string_view domain, std::string_view name, std::span<const ValueId> inputs,
             Attrs attrs = {});
  ValueId Op(std::string_view name, std::initializer_list<ValueId> inputs, Attrs attrs = {}) {
    return Op("", name, std::span(inputs.begin(), inputs.size()), std::move(attrs));
  }
  ValueId Own(std::string_view name, std::initializer_list<ValueId> inputs, Attrs attrs = {});
  /// A node with several outputs; returns its output values.
  std::vector<ValueId> Multi(std::string_view domain, std::string_view name,
                             std::span<const ValueId> inputs, Attrs attrs, size_t num_outputs);

  // What rules use most. `v` may be kNone after a failure.
  ValueId Constant(HostTensor value);
  ValueId Ints(std::span<const int64_t> values);
  ValueId Ints(std::initializer_list<int64_t> values) {
    return Ints(std::span(values.begin(), values.size()));
  }
  ValueId Scalar(DType dtype, double value);
  ValueId Cast(ValueId v, DType dtype);  ///< v itself when it has that dtype
  ValueId Reshape(ValueId v, std::span<const int64_t> dims);
  ValueId Transpose(ValueId v, std::vector<int64_t> perm);
  ValueId Expand(ValueId v, std::span<const int64_t> dims);
  ValueId ReduceSum(ValueId v, std::vector<int64_t> axes, bool keepdims);
  ValueId Add(ValueId a, ValueId b) { return Op("Add", {a, b}); }
  ValueId Mul(ValueId a, ValueId b) { return Op("Mul", {a, b}); }
  /// Sums the axes along which `dims` was broadcast to v's dims: the adjoint of broadcasting.
  ValueId ReduceToDims(ValueId v, std::span<const int64_t> dims);
  /// Own op Map: program over `inputs`, output dtype `to` (kernels/expr.h).
  ValueId Map(std::string_view expr, std::span<const ValueId> inputs, DType to, Attrs params = {});
  ValueId Map(std::string_view expr, std::initializer_list<ValueId> inputs, DType to,
              Attrs params = {}) {
    return Map(expr, std::span(inputs.begin(), inputs.size()), to, std::move(params));
  }

  const TensorType& type(ValueId v) const { return graph_.type(v); }
  bool failed() const { return !status_.ok(); }

 private:
  Graph& graph_;
  LocId loc_;
  NodeId before_;
  std::string next_name_;
  Status status_;
};

}  // namespace ampc::ir
