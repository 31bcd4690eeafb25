// SPDX-License-Identifier: Apache-2.0
// Matrix products: MatMul, Gemm, and MatMulEx, the own op that their gradients use so that no
// transpose is ever copied.
#include <algorithm>

#include "compiler/ir/builder.h"
#include "compiler/ops/body.h"
#include "compiler/ops/elementwise.h"
#include "compiler/ops/op_def.h"

namespace ampc {
namespace {

Status CheckGemm(const Attrs& attrs, std::span<const ir::TensorType* const> inputs) {
  if (inputs.size() < 2 || inputs[0] == nullptr || inputs[1] == nullptr) return {};
  const Dims &a = inputs[0]->dims, &b = inputs[1]->dims;
  if (a.size() != 2 || b.size() != 2) return {};  // inference says so
  const int64_t left = a[attrs.Int("transA", 0) != 0 ? 0 : 1];
  const int64_t right = b[attrs.Int("transB", 0) != 0 ? 1 : 0];
  if (left != right) {
    return BadInput("E0107", "inner dimensions differ: {} of {} and {} of {}", left, ToString(a),
                    right, ToString(b));
  }
  if (inputs.size() < 3 || inputs[2] == nullptr) return {};
  const Dims y = {a[attrs.Int("transA", 0) != 0 ? 1 : 0], b[attrs.Int("transB", 0) != 0 ? 0 : 1]};
  const Dims& c = inputs[2]->dims;
  bool fits = c.size() <= 2;
  for (size_t i = 0; fits && i < c.size(); ++i) {
    const int64_t wanted = y[i + 2 - c.size()];
    fits = c[i] == 1 || c[i] == wanted;
  }
  if (fits) return {};
  return BadInput("E0107", "the bias {} does not broadcast to {}", ToString(c), ToString(y));
}

// dims of a, b with rank-1 operands as a row and a column (ONNX MatMul follows numpy).
Dims AsMatrix(Dims dims, bool left) {
  if (dims.size() == 1) dims.insert(left ? dims.begin() : dims.end(), 1);
  return dims;
}

Result<Dims> ProductDims(const Dims& a, const Dims& b, bool trans_a, bool trans_b) {
  if (a.size() < 2 || b.size() < 2)
    return BadInput("E0107", "operands {} and {} are not matrices", ToString(a), ToString(b));
  const int64_t m = a[a.size() - (trans_a ? 1 : 2)], ka = a[a.size() - (trans_a ? 2 : 1)];
  const int64_t kb = b[b.size() - (trans_b ? 1 : 2)], n = b[b.size() - (trans_b ? 2 : 1)];
  if (ka != kb) {
    return BadInput("E0107", "inner dimensions differ: {} has {}, {} has {}", ToString(a), ka,
                    ToString(b), kb);
  }
  AMPC_ASSIGN(Dims out,
              BroadcastDims(std::span(a).first(a.size() - 2), std::span(b).first(b.size() - 2)));
  out.push_back(m);
  out.push_back(n);
  return out;
}

// ---- MatMulEx: op(a) op(b) * alpha, output dtype `to`

Status InferMatMulEx(InferContext& c) {
  AMPC_ASSIGN(Dims dims, ProductDims(c.in(0).dims, c.in(1).dims, c.attrs.Int("trans_a") != 0,
                                     c.attrs.Int("trans_b") != 0));
  const auto to = static_cast<DType>(c.attrs.Int("to", static_cast<int64_t>(c.in(0).dtype)));
  c.outputs = {{to, std::move(dims)}};
  return {};
}

// What fusion put behind the product goes into the kernel.
void TakePost(LowerContext& c, Attrs& params) {
  if (c.attrs().Has("post")) params.Set("post", std::string(c.attrs().String("post")));
}

Status LowerMatMulEx(LowerContext& c) {
  Attrs params{{"trans_a", c.attrs().Int("trans_a")},
               {"trans_b", c.attrs().Int("trans_b")},
               {"alpha", c.attrs().Float("alpha", 1)}};
  TakePost(c, params);
  c.Call("matmul", std::move(params), {c.in(0), c.in(1), c.in(2)}, {c.out(0)});
  return {};
}

std::string TransposeText(std::string_view out, std::string_view in, size_t rank) {
  std::string perm;
  for (size_t i = 0; i < rank; ++i) {
    const size_t p = i + 2 == rank ? rank - 1 : i + 1 == rank ? rank - 2 : i;
    perm += fmt::format("{}{}", i == 0 ? "" : ", ", p);
  }
  return fmt::format("{} = Transpose <perm = [{}]> ({})\n", out, perm, in);
}

Result<std::string> BodyMatMulEx(const BodyContext& c) {
  const DType compute = AccOf(c.inputs[0]->dtype);
  std::string text;
  for (int i = 0; i < 2; ++i) {
    const size_t rank = c.inputs[static_cast<size_t>(i)]->dims.size();
    text += fmt::format("w{} = Cast <to = {}> (i{})\n", i, static_cast<int>(compute), i);
    if (c.attrs.Int(i == 0 ? "trans_a" : "trans_b") != 0) {
      text += TransposeText(fmt::format("m{}", i), fmt::format("w{}", i), rank);
    } else {
      text += fmt::format("m{} = Identity (w{})\n", i, i);
    }
  }
  text += "p = MatMul (m0, m1)\n";
  text += ScalarText("alpha", c.attrs.Float("alpha", 1), "p") + "s = Mul (p, alpha)\n";
  std::string last = "s";
  if (c.inputs.size() > 2 && c.inputs[2] != nullptr) {
    text += fmt::format("w2 = Cast <to = {}> (i2)\nsb = Add (s, w2)\n", static_cast<int>(compute));
    last = "sb";
  }
  if (c.attrs.String("post") == "relu") {
    text += fmt::format("r = Relu ({})\n", last);
    last = "r";
  }
  return text +
         fmt::format("o0 = Cast <to = {}> ({})\n", static_cast<int>(c.outputs[0]->dtype), last);
}

ir::ValueId Product(ir::Builder& b, ir::ValueId x, bool trans_x, ir::ValueId y, bool trans_y,
                    double alpha = 1) {
  Attrs attrs{{"trans_a", int64_t{trans_x}}, {"trans_b", int64_t{trans_y}}};
  if (alpha != 1) attrs.Set("alpha", alpha);
  return b.Own("MatMulEx", {x, y}, std::move(attrs));
}

// Leading axes folded into the rows: [.., M, K] -> [.. * M, K].
ir::ValueId Flatten(ir::Builder& b, ir::ValueId v) {
  if (b.failed() || v == ir::kNone) return ir::kNone;
  const Dims& dims = b.type(v).dims;
  const int64_t columns = dims.back();
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
  return b.Reshape(v, Dims{rows, columns});
}

// ---- MatMul

Status GradMatMul(GradContext& g) {
  const Dims da = AsMatrix(g.type(g.x(0)).dims, true), db = AsMatrix(g.type(g.x(1)).dims, false);
  AMPC_ASSIGN(const Dims dyd, ProductDims(da, db, false, false));
  const ir::ValueId a = g.b.Reshape(g.x(0), da), b = g.b.Reshape(g.x(1), db),
                    dy = g.b.Reshape(g.dy(), dyd);
  if (g.Needs(0))
    g.Set(0,
          g.b.Reshape(g.b.ReduceToDims(Product(g.b, dy, false, b, true), da), g.type(g.x(0)).dims));
  if (g.Needs(1)) {
    // A weight shared by all batches: its gradient is one product over all rows, accumulated in
    // fp32, rounded once.
    const bool shared = db.size() == 2;
    const ir::ValueId dw = shared ? Product(g.b, Flatten(g.b, a), true, Flatten(g.b, dy), false)
                                  : g.b.ReduceToDims(Product(g.b, a, true, dy, false), db);
    g.Set(1, g.b.Reshape(dw, g.type(g.x(1)).dims));
  }
  return {};
}

Status LowerMatMul(LowerContext& c) {
  TensorDesc a = c.desc(c.in(0)), b = c.desc(c.in(1)), y = c.desc(c.out(0));
  a.dims = AsMatrix(a.dims, true);
  b.dims = AsMatrix(b.dims, false);
  AMPC_ASSIGN(y.dims, ProductDims(a.dims, b.dims, false, false));
  Attrs params;
  TakePost(c, params);
  c.Call("matmul", std::move(params), {c.View(c.in(0), a), c.View(c.in(1), b), ir::kNone},
         {c.View(c.out(0), y)});
  return {};
}

// ---- Gemm

Status GradGemm(GradContext& g) {
  const bool ta = g.attrs().Int("transA") != 0, tb = g.attrs().Int("transB") != 0;
  const double alpha = g.attrs().Float("alpha", 1), beta = g.attrs().Float("beta", 1);
  const ir::ValueId a = g.x(0), b = g.x(1), dy = g.dy();
  if (g.Needs(0))
    g.Set(0, ta ? Product(g.b, b, tb, dy, true, alpha) : Product(g.b, dy, false, b, !tb, alpha));
  if (g.Needs(1))
    g.Set(1, tb ? Product(g.b, dy, true, a, ta, alpha) : Product(g.b, a, !ta, dy, false, alpha));
  if (g.Needs(2)) {
    const ir::ValueId dc = g.b.ReduceToDims(dy, g.type(g.x(2)).dims);
    g.Set(2, beta == 1 ? dc : g.b.Map("x0 * $beta", {dc}, g.type(g.x(2)).dtype, {{"beta", beta}}));
  }
  return {};
}

Status LowerGemm(LowerContext& c) {
  Attrs params{{"trans_a", c.attrs().Int("transA")},
               {"trans_b", c.attrs().Int("transB")},
               {"alpha", c.attrs().Float("alpha", 1)},
               {"beta", c.attrs().Float("beta", 1)}};
  TakePost(c, params);
  const Operand bias = c.num_inputs() > 2 ? c.in(2) : ir::kNone;
  c.Call("matmul", std::move(params), {c.in(0), c.in(1), bias}, {c.out(0)});
  return {};
}

constexpr OpDef kOps[] = {
    {.name = "MatMul",
     .since = 13,
     .in = 2,
     .cast = kLowClass,
     .grad = GradMatMul,
     .lower = LowerMatMul,
     .traits = {.epilogue = true, .product = true}},
    {.name = "Gemm",
     .since = 13,
     .in = {2, 3},
     .cast = kLowClass,
     .check = CheckGemm,
     .grad = GradGemm,
     .lower = LowerGemm,
     .traits = {.epilogue = true}},
    {.domain = kOwnDomain,
     .name = "MatMulEx",
     .in = {2, 3},
     .cast = kLowClass,
     .infer = InferMatMulEx,
     .lower = LowerMatMulEx,
     .body = BodyMatMulEx,
     .traits = {.wide_output = true}},
};

}  // namespace

std::span<const OpDef> MatmulOps() { return kOps; }

}  // namespace ampc
