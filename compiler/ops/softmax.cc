// SPDX-License-Identifier: Apache-2.0
// Softmax, LogSoftmax and their gradients.
#include "compiler/ir/builder.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

int64_t AxisOf(const Attrs& attrs, size_t rank) { return NormalAxis(attrs.Int("axis", -1), rank); }

Status LowerAs(LowerContext& c, std::string_view kernel) {
  std::vector<Operand> inputs;
  for (size_t i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.in(i));
  c.Call(kernel, {{"axis", AxisOf(c.attrs(), c.desc(c.in(0)).dims.size())}}, std::move(inputs),
         {c.out(0)});
  return {};
}
Status LowerSoftmax(LowerContext& c) { return LowerAs(c, "softmax"); }
Status LowerLogSoftmax(LowerContext& c) { return LowerAs(c, "log_softmax"); }
Status LowerSoftmaxGrad(LowerContext& c) { return LowerAs(c, "softmax_bwd"); }
Status LowerLogSoftmaxGrad(LowerContext& c) { return LowerAs(c, "log_softmax_bwd"); }

Status GradAs(GradContext& g, std::string_view op) {
  if (g.Needs(0))
    g.Set(0,
          g.b.Own(op, {g.y(), g.dy()}, {{"axis", AxisOf(g.attrs(), g.type(g.y()).dims.size())}}));
  return {};
}
Status GradSoftmax(GradContext& g) { return GradAs(g, "SoftmaxGrad"); }
Status GradLogSoftmax(GradContext& g) { return GradAs(g, "LogSoftmaxGrad"); }

Status InferGrad(InferContext& c) {
  if (c.in(0) != c.in(1)) {
    return BadInput("E0107", "result {} and gradient {} differ", ToString(c.in(0)),
                    ToString(c.in(1)));
  }
  c.outputs = {c.in(0)};
  return {};
}

Result<std::string> Body(const BodyContext& c, bool log) {
  const int compute = static_cast<int>(AccOf(c.inputs[0]->dtype));
  const std::string head = fmt::format(
      "y = Cast <to = {0}> (i0)\ndy = Cast <to = {0}> (i1)\na = Constant <value_ints = [{1}]> ()\n",
      compute, c.attrs.Int("axis"));
  const std::string tail =
      fmt::format("o0 = Cast <to = {}> (dx)\n", static_cast<int>(c.outputs[0]->dtype));
  return head +
         (log ? "s = ReduceSum (dy, a)\np = Exp (y)\nt = Mul (p, s)\ndx = Sub (dy, t)\n"
              : "t = Mul (y, dy)\ns = ReduceSum (t, a)\nd = Sub (dy, s)\ndx = Mul (y, d)\n") +
         tail;
}
Result<std::string> BodySoftmaxGrad(const BodyContext& c) { return Body(c, false); }
Result<std::string> BodyLogSoftmaxGrad(const BodyContext& c) { return Body(c, true); }

constexpr OpDef kOps[] = {
    {.name = "Softmax",
     .since = 13,
     .cast = kFp32OnCuda,
     .grad = GradSoftmax,
     .lower = LowerSoftmax,
     .traits = {.probability = true}},
    {.name = "LogSoftmax",
     .since = 13,
     .cast = kFp32OnCuda,
     .grad = GradLogSoftmax,
     .lower = LowerLogSoftmax},
    {.domain = kOwnDomain,
     .name = "SoftmaxGrad",
     .in = 2,
     .infer = InferGrad,
     .lower = LowerSoftmaxGrad,
     .body = BodySoftmaxGrad},
    {.domain = kOwnDomain,
     .name = "LogSoftmaxGrad",
     .in = 2,
     .infer = InferGrad,
     .lower = LowerLogSoftmaxGrad,
     .body = BodyLogSoftmaxGrad},
};

}  // namespace

std::span<const OpDef> SoftmaxOps() { return kOps; }

}  // namespace ampc
