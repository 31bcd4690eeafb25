// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/builder.h"

#include "compiler/ops/infer.h"
#include "compiler/ops/op_def.h"

namespace ampc::ir {

std::vector<ValueId> Builder::Multi(std::string_view domain, std::string_view name,
                                    std::span<const ValueId> inputs, Attrs attrs,
                                    size_t num_outputs) {
  const auto none = [num_outputs] { return std::vector<ValueId>(num_outputs, kNone); };
  std::string first_name = std::move(next_name_);
  next_name_.clear();
  if (failed()) return none();
  const OpDef* op = FindOp(domain, name);
  if (op == nullptr) {
    status_ =
        InternalError("E7002", "no row for op '{}{}{}'", domain, domain.empty() ? "" : ".", name);
    return none();
  }
  FillDefaults(graph_.module(), *op, attrs);
  InlineVector<TypeId, 8> types;
  InlineVector<const HostTensor*, 8> constants;
  for (ValueId v : inputs) {
    types.push_back(v == kNone ? kNone : graph_.type_id(v));
    constants.push_back(graph_.ConstantOf(v));
  }
  auto inferred = InferTypes(graph_.module(), *op, attrs, types, constants, num_outputs);
  if (!inferred.ok()) {
    status_ = WithInputs(std::move(inferred).TakeStatus(), graph_, inputs)
                  .At(fmt::format("node '{}' ({}-{})", graph_.module().locs.Get(loc_), op->name,
                                  op->since));
    return none();
  }
  std::string_view names[] = {first_name};
  const NodeId n = graph_.AddNode(*op, std::move(attrs), inputs, *inferred, loc_, before_,
                                  first_name.empty() ? std::span<const std::string_view>()
                                                     : std::span<const std::string_view>(names));
  return graph_.node(n).outputs;
}

ValueId Builder::Op(std::string_view domain, std::string_view name, std::span<const ValueId> inputs,
                    Attrs attrs) {
  return Multi(domain, name, inputs, std::move(attrs), 1)[0];
}

ValueId Builder::Own(std::string_view name, std::initializer_list<ValueId> inputs, Attrs attrs) {
  return Op(kOwnDomain, name, std::span(inputs.begin(), inputs.size()), std::move(attrs));
}

ValueId Builder::Constant(HostTensor value) {
  return Op("Constant", {}, {{"value", std::make_shared<const HostTensor>(std::move(value))}});
}

ValueId Builder::Ints(std::span<const int64_t> values) {
  return Constant(HostTensor::Int64s(values));
}

ValueId Builder::Scalar(DType dtype, double value) {
  return Constant(HostTensor::Scalar(dtype, value));
}

ValueId Builder::Cast(ValueId v, DType dtype) {
  if (failed() || v == kNone) return kNone;
  if (type(v).dtype == dtype) return v;
  return Op("Cast", {v}, {{"to", static_cast<int64_t>(dtype)}});
}

ValueId Builder::Reshape(ValueId v, std::span<const int64_t> dims) {
  if (failed() || v == kNone) return kNone;
  if (std::equal(dims.begin(), dims.end(), type(v).dims.begin(), type(v).dims.end())) return v;
  // allowzero: a dim of 0 means 0, since all dims are known here.
  return Op("Reshape", {v, Ints(dims)}, {{"allowzero", int64_t{1}}});
}

ValueId Builder::Transpose(ValueId v, std::vector<int64_t> perm) {
  return Op("Transpose", {v}, {{"perm", std::move(perm)}});
}

ValueId Builder::Expand(ValueId v, std::span<const int64_t> dims) {
  if (failed() || v == kNone) return kNone;
  if (std::equal(dims.begin(), dims.end(), type(v).dims.begin(), type(v).dims.end())) return v;
  return Op("Expand", {v, Ints(dims)});
}

ValueId Builder::ReduceSum(ValueId v, std::vector<int64_t> axes, bool keepdims) {
  if (failed() || v == kNone) return kNone;
  if (axes.empty()) return v;
  // A reduction that autodiff makes keeps its input's dtype with fp32 accumulation; it isn't the
  // user's ReduceSum.
  return Own("ReduceSum", {v},
             {{"axes", std::move(axes)}, {"keepdims", static_cast<int64_t>(keepdims)}});
}

ValueId Builder::ReduceToDims(ValueId v, std::span<const int64_t> dims) {
  if (failed() || v == kNone) return kNone;
  const Dims from = type(v).dims;
  const size_t extra = from.size() - dims.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < extra || (dims[i - extra] == 1 && from[i] != 1))
      axes.push_back(static_cast<int64_t>(i));
  }
  if (axes.empty()) return Reshape(v, dims);
  return Reshape(ReduceSum(v, std::move(axes), true), dims);
}

ValueId Builder::Map(std::string_view expr, std::span<const ValueId> inputs, DType to,
                     Attrs params) {
  params.Set("expr", std::string(expr));
  params.Set("to", std::vector<int64_t>{static_cast<int64_t>(to)});
  return Op(kOwnDomain, "Map", inputs, std::move(params));
}

}  // namespace ampc::ir
