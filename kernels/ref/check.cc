// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/check.h"

#include <algorithm>

namespace ampc::ref {

CallCheck::CallCheck(const CallSpec& call, std::string_view inputs, std::string_view outputs)
    : call_(call), inputs_(ParseNames(inputs)), outputs_(ParseNames(outputs)) {}

CallCheck::CallCheck(const CallSpec& call) : call_(call), variadic_(true) {}

std::vector<CallCheck::OperandName> CallCheck::ParseNames(std::string_view names) {
  std::vector<OperandName> parsed;
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    std::string_view name = names.substr(0, end);
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    parsed.push_back({std::string(name), optional});
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return parsed;
}

Operand CallCheck::Get(size_t i, const std::vector<TensorDesc>& descs,
                       const std::vector<OperandName>& names, std::string_view kind) {
  static constexpr TensorDesc kAbsent;
  return {i < descs.size() ? &descs[i] : &kAbsent, i < names.size()
                                                       ? fmt::format("{} '{}'", kind, names[i].name)
                                                       : fmt::format("{} {}", kind, i)};
}

Status CallCheck::CheckList(const std::vector<TensorDesc>& descs,
                            const std::vector<OperandName>& names, std::string_view kind) const {
  if (!variadic_ && descs.size() > names.size()) {
    return Fail("expected at most {} {}s, found {}", names.size(), kind, descs.size());
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].optional && (i >= descs.size() || !descs[i].present())) {
      return Fail("{} '{}' is missing", kind, names[i].name);
    }
  }
  for (size_t i = 0; i < descs.size(); ++i) {
    // The largest scalar that a kernel widens to has 8 bytes. An empty tensor's other dims count
    // too: strides are computed from them.
    Dims dims = descs[i].dims;
    std::ranges::replace(dims, 0, 1);
    if (!CheckedNumElements(dims, 8)) {
      return Fail("{}: dims {} are negative or too large", Get(i, descs, names, kind).name,
                  ToString(descs[i].dims));
    }
  }
  return {};
}

Status CallCheck::Operands() const {
  AMPC_TRY(CheckList(call_.inputs, inputs_, "input"));
  return CheckList(call_.outputs, outputs_, "output");
}

Status CallCheck::FailText(std::string text) const {
  return BadInput("E0802", "kernel '{}': {}", call_.kernel, text);
}

Status CallCheck::Float(const Operand& x) const {
  if (!x->present() || IsFloat(x->dtype)) return {};
  return Fail("{}: expected a float type, found {}", x.name, Name(x->dtype));
}

Status CallCheck::FloatOrInteger(const Operand& x) const {
  if (!x->present() || x->dtype != DType::kBool) return {};
  return Fail("{}: expected a number type, found bool", x.name);
}

Status CallCheck::Acc(const Operand& x) const {
  if (!x->present() || x->dtype == DType::kFloat32 || x->dtype == DType::kFloat64) return {};
  return Fail("{}: expected float or double, found {}", x.name, Name(x->dtype));
}

Status CallCheck::Index(const Operand& x) const {
  if (!x->present() || x->dtype == DType::kInt32 || x->dtype == DType::kInt64) return {};
  return Fail("{}: expected int32 or int64, found {}", x.name, Name(x->dtype));
}

Status CallCheck::OfType(const Operand& x, DType t) const {
  if (!x->present() || x->dtype == t) return {};
  return Fail("{}: expected {}, found {}", x.name, Name(t), Name(x->dtype));
}

Status CallCheck::SameType(const Operand& x, const Operand& y) const {
  if (!x->present() || !y->present() || x->dtype == y->dtype) return {};
  return Fail("{}: expected {} as {}, found {}", y.name, Name(x->dtype), x.name, Name(y->dtype));
}

Status CallCheck::HasDims(const Operand& x, std::span<const int64_t> dims) const {
  if (!x->present() || std::ranges::equal(x->dims, dims)) return {};
  return Fail("{}: expected dims {}, found {}", x.name, ToString(dims), ToString(x->dims));
}

Status CallCheck::Elements(const Operand& x, int64_t n) const {
  if (!x->present() || x->elements() == n) return {};
  return Fail("{}: expected {} elements, found dims {}", x.name, n, ToString(x->dims));
}

Status CallCheck::RankBetween(const Operand& x, size_t low, size_t high) const {
  if (!x->present() || (x->dims.size() >= low && x->dims.size() <= high)) return {};
  return Fail("{}: expected {} to {} dims, found {}", x.name, low, high, ToString(x->dims));
}

Status CallCheck::RowMajor(const Operand& x) const {
  if (!x->present() || x->layout == Layout::kRowMajor || x->dims.size() < 3) return {};
  return Fail("{}: expected row-major layout, found channels-last", x.name);
}

Status CallCheck::SameLayout(const Operand& x, const Operand& y) const {
  if (!x->present() || !y->present() || x->layout == y->layout) return {};
  return Fail("{}: expected the layout of {}, found the other one", y.name, x.name);
}

Status CallCheck::BroadcastsTo(const Operand& x, std::span<const int64_t> dims) const {
  if (!x->present()) return {};
  bool fits = x->dims.size() <= dims.size();
  for (size_t i = 0; fits && i < x->dims.size(); ++i) {
    const int64_t d = x->dims[x->dims.size() - 1 - i];
    fits = d == 1 || d == dims[dims.size() - 1 - i];
  }
  if (fits) return {};
  return Fail("{}: dims {} do not broadcast to {}", x.name, ToString(x->dims), ToString(dims));
}

Status CallCheck::InRange(std::string_view name, int64_t value, int64_t low, int64_t high) const {
  if (value >= low && value <= high) return {};
  return Fail("parameter '{}': expected {} to {}, found {}", name, low, high, value);
}

Status CallCheck::OneOf(std::string_view name, std::string_view value,
                        std::span<const std::string_view> allowed) const {
  if (std::ranges::find(allowed, value) != allowed.end()) return {};
  std::string list;
  for (std::string_view a : allowed) list += fmt::format("{}'{}'", list.empty() ? "" : ", ", a);
  return Fail("parameter '{}': expected one of {}, found '{}'", name, list, value);
}

Result<int64_t> CallCheck::Axis(const Operand& x) const {
  if (!params().Has("axis")) return Fail("parameter 'axis' is missing");
  const int64_t axis = params().Int("axis", -1);
  AMPC_TRY(InRange("axis", axis, 0, static_cast<int64_t>(x->dims.size()) - 1));
  return axis;
}

Result<bool> ReluPost(const CallCheck& check) {
  constexpr std::string_view kAllowed[] = {"", "relu"};
  const std::string_view post = check.params().String("post");
  AMPC_TRY(check.OneOf("post", post, kAllowed));
  return post == "relu";
}

ChannelView ViewChannels(const TensorDesc& x) {
  const int64_t n = x.dims[0], c = x.dims[1];
  int64_t s = 1;
  for (size_t i = 2; i < x.dims.size(); ++i) s *= x.dims[i];
  if (x.layout == Layout::kChannelsLast && x.dims.size() >= 3) return {n, c, s, c * s, 1, c};
  return {n, c, s, c * s, s, 1};
}

}  // namespace ampc::ref
