// SPDX-License-Identifier: Apache-2.0
// Import: every opset's form of an op means the same, optional slots stay where they are, constants
// fold.

#include <gtest/gtest.h>

#include <cmath>

#include <onnx/onnx_pb.h>

#include "test/unit/import_harness.h"

namespace ampc {
namespace {

// The values of y when `body` is computed from the constant x = float[2,6] {0.5, -1, …}.
std::vector<double> Values(int opset, const std::string& body) {
  const TextImport m = Import(ModelText(
      opset, "(float[1] unused) => (float[1] y)",
      "x = Constant <value = float[2,6] {0.5, -1, 2, -3, 4, -5, 6, -7, 8, -9, 10, -11}> ()\n" +
          body));
  EXPECT_TRUE(m.result.ok()) << m.Error() << "\n" << body;
  if (!m.result.ok()) return {};
  const std::vector<double> values = OutputValues(m.graph());
  EXPECT_FALSE(values.empty()) << "y did not fold: " << Short(m.graph());
  return values;
}

struct FormPair {
  int old_opset;
  const char* old_form;
  int new_opset;
  const char* new_form;
};

class Forms : public testing::TestWithParam<FormPair> {};

TEST_P(Forms, OldAndNewGiveTheSameValues) {
  const FormPair& p = GetParam();
  EXPECT_EQ(Values(p.old_opset, p.old_form), Values(p.new_opset, p.new_form)) << p.old_form;
}

#define SHAPE143 "sh = Constant <value_ints = [1, 4, 3]> ()\nx3 = Reshape (x, sh)\n"
#define AXIS1 "a = Constant <value_ints = [1]> ()\n"

INSTANTIATE_TEST_SUITE_P(
    Import, Forms,
    testing::Values(
        FormPair{18,
                 SHAPE143
                 "s = Constant <value = float[2] {1, 2}> ()\nb = Constant <value = float[2] {0, "
                 "3}> ()\ny = GroupNormalization <num_groups = 2> (x3, s, b)",
                 21,
                 SHAPE143
                 "s = Constant <value = float[4] {1, 1, 2, 2}> ()\nb = Constant <value = float[4] "
                 "{0, 0, 3, 3}> ()\ny = GroupNormalization <num_groups = 2> (x3, s, b)"},
        FormPair{
            17, "s = Constant <value = float[1] {2}> ()\ny = LayerNormalization (x, s)", 17,
            "s = Constant <value = float[6] {2, 2, 2, 2, 2, 2}> ()\ny = LayerNormalization (x, s)"},
        FormPair{17,
                 "s = Constant <value = float[1,6] {1, 2, 3, 4, 5, 6}> ()\ny = LayerNormalization "
                 "(x, s, s)",
                 17,
                 "s = Constant <value = float[6] {1, 2, 3, 4, 5, 6}> ()\ny = LayerNormalization "
                 "<stash_type = 16> (x, s, s)"},
        FormPair{
            23, "s = Constant <value = float {2}> ()\ny = RMSNormalization (x, s)", 23,
            "s = Constant <value = float[6] {2, 2, 2, 2, 2, 2}> ()\ny = RMSNormalization (x, s)"},
        FormPair{13, "y = ReduceMean <axes = [1], keepdims = 0> (x)", 18,
                 AXIS1 "y = ReduceMean <keepdims = 0> (x, a)"},
        FormPair{13, "y = ReduceMax <axes = [-1]> (x)", 20, AXIS1 "y = ReduceMax (x, a)"},
        FormPair{13, "y = ReduceMean (x)", 18, "y = ReduceMean (x)"},
        FormPair{11, "y = ReduceSum <axes = [1]> (x)", 13, AXIS1 "y = ReduceSum (x, a)"},
        FormPair{11, "h = Unsqueeze <axes = [1]> (x)\ny = Squeeze <axes = [1]> (h)", 13,
                 AXIS1 "h = Unsqueeze (x, a)\ny = Squeeze (h, a)"},
        FormPair{
            11, "p, q = Split <axis = 1, split = [2, 4]> (x)\ny = Exp (q)", 13,
            "s = Constant <value_ints = [2, 4]> ()\np, q = Split <axis = 1> (x, s)\ny = Exp (q)"},
        FormPair{13, "p, q, r = Split <axis = 1> (x)\ny = Exp (r)", 18,
                 "p, q, r = Split <axis = 1, num_outputs = 3> (x)\ny = Exp (r)"},
        FormPair{18,
                 "s = Constant <value_ints = [2, 2, 2]> ()\np, q, r = Split <axis = 1> (x, s)\ny = "
                 "Exp (q)",
                 18, "p, q, r = Split <axis = 1, num_outputs = 3> (x)\ny = Exp (q)"},
        FormPair{7, "y = Clip <min = -2.0, max = 3.0> (x)", 13,
                 "l = Constant <value_float = -2.0> ()\nh = Constant <value_float = 3.0> ()\ny = "
                 "Clip (x, l, h)"},
        FormPair{9, "y = Pad <pads = [0, 1, 1, 0], value = 7.0> (x)", 13,
                 "p = Constant <value_ints = [0, 1, 1, 0]> ()\nv = Constant <value_float = 7.0> "
                 "()\ny = Pad (x, p, v)"},
        FormPair{9, "y = Slice <starts = [0, 1], ends = [2, 4], axes = [0, 1]> (x)", 13,
                 "s = Constant <value_ints = [1]> ()\ne = Constant <value_ints = [4]> ()\n" AXIS1
                 "y = Slice (x, s, e, a)"},
        FormPair{11, "y = Softmax <axis = 1> (x)", 13, "y = Softmax <axis = -1> (x)"},
        FormPair{11, "y = Softmax <axis = 0> (x)", 13,
                 "f = Constant <value_ints = [1, 12]> ()\nb = Constant <value_ints = [2, 6]> ()\nr "
                 "= Reshape (x, f)\n"
                 "s = Softmax <axis = 1> (r)\ny = Reshape (s, b)"},
        FormPair{13, "s = Constant <value_ints = [0, -1, 2]> ()\ny = Reshape (x, s)", 25,
                 "s = Constant <value_ints = [2, 3, 2]> ()\ny = Reshape (x, s)"}));

TEST(ImportForms, ConstantsInEveryForm) {
  EXPECT_EQ(Values(17, "y = Constant <value_float = 1.5> ()"), std::vector<double>{1.5});
  EXPECT_EQ(Values(17, "y = Constant <value_int = -3> ()"), std::vector<double>{-3});
  EXPECT_EQ(Values(17, "y = Constant <value_floats = [1.5, 2.5]> ()"),
            (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(Values(17, "y = Constant <value_ints = [3, 4]> ()"), (std::vector<double>{3, 4}));
  const TextImport strings = Import(
      ModelText(17, "(float[1] u) => (float[1] y)", "[c] y = Constant <value_string = \"a\"> ()"));
  EXPECT_NE(strings.Error().find("node 'c' (Constant-13): a Constant of strings"),
            std::string::npos)
      << strings.Error();
}

TEST(ImportForms, ShapeArithmeticFolds) {
  CompileOptions options = Fp32();
  options.dims = {{"n", 3}};
  const TextImport m = Import(ModelText(18, "(float[n,4,5] x) => (float[k,l] y)", R"(
  s = Shape (x)
  b = Shape <start = 0, end = 1> (x)
  i = Constant <value_int = 0> ()
  g = Gather (s, i)
  axes = Constant <value_ints = [0]> ()
  u = Unsqueeze (g, axes)
  rest = Constant <value_ints = [-1]> ()
  to = Concat <axis = 0> (u, rest)
  y = Reshape (x, to))"),
                              options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()), "Reshape(x, [3 -1]) -> y float[3,20]\n");
}

TEST(ImportForms, WhatTypesDecideFoldsOnTrainableValuesToo) {
  const TextImport m = Import(R"(<ir_version: 8, opset_import: ["" : 17]>
main (float[2,3] x, int64[1] i) => (float[2,3] y) <float[3] w = {1,2,3}> {
  n = Size (w)
  f = CastLike (n, w)
  c = CastLike (i, w)
  d = Div (w, f)
  e = Add (d, c)
  y = Mul (x, e)
})");
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()),
            "Div(w, 3) -> d float[3]\nCast(i) -> c float[1]\nAdd(d, c) -> e float[3]\nMul(x, e) -> "
            "y float[2,3]\n");
}

TEST(ImportForms, ConstantsFromConstantShapes) {
  EXPECT_EQ(Values(17,
                   "s = Constant <value_ints = [2, 2]> ()\ny = ConstantOfShape <value = float[1] "
                   "{1.5}> (s)"),
            (std::vector<double>{1.5, 1.5, 1.5, 1.5}));
  EXPECT_EQ(Values(17,
                   "a = Constant <value_int = 1> ()\nb = Constant <value_int = 8> ()\nd = Constant "
                   "<value_int = 3> ()\ny = Range (a, b, d)"),
            (std::vector<double>{1, 4, 7}));
  EXPECT_EQ(Values(17, "m = Constant <value = int64[2,2] {0, 5, 6, 0}> ()\ny = NonZero (m)"),
            (std::vector<double>{0, 1, 1, 0}));
  EXPECT_EQ(
      Values(17, "m = Constant <value = int64[2,2] {0, 5, 6, 0}> ()\ny = EyeLike <k = 1> (m)"),
      (std::vector<double>{0, 1, 0, 0}));
  const TextImport m =
      Import(ModelText(17, "(int64[2] s) => (float[1] y)", "[z] y = ConstantOfShape (s)"));
  EXPECT_EQ(
      m.Error(),
      "error[E0108]: node 'z' (ConstantOfShape-9): the shape ('s') is not known at compile time");
}

TEST(ImportForms, LargeExpansionsStayNodes) {
  const TextImport m = Import(ModelText(
      17, "(float[1] u) => (float[1] y)",
      "s = Constant <value_ints = [512, 512]> ()\ny = ConstantOfShape <value = float[1] {2}> (s)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()), "Expand(2, [512 512]) -> y float[512,512]\n");
}

TEST(ImportForms, SequencesOfKnownElementsVanish) {
  const TextImport m = Import(ModelText(17, "(float[2,6] x) => (float[2,2] y)", R"(
  three = Constant <value_int = 3> ()
  parts = SplitToSequence <axis = 1> (x, three)
  same = Identity (parts)
  first = Constant <value_int = 0> ()
  last = Constant <value_int = -1> ()
  a = SequenceAt (same, first)
  b = SequenceAt (parts, last)
  y = Sub (a, b))"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()),
            "Split(x, [3 3]) -> Split float[2,3], Split.1 float[2,3]\nSub(Split, Split.1) -> y "
            "float[2,3]\n");
  const TextImport lost = Import(ModelText(17, "(float[2,6] x) => (float[2,6] y)",
                                           "s = SequenceConstruct (x, x)\n[e] y = Exp (s)"));
  EXPECT_NE(lost.Error().find("node 'e' (Exp-13): input 0 ('s') is a sequence"), std::string::npos)
      << lost.Error();
}

TEST(ImportForms, IdentityVanishesAndOutputsKeepTheirNames) {
  const TextImport m = Import(ModelText(17, "(float[2] x) => (float[2] y, float[2] z)",
                                        "h = Identity (x)\ny = Exp (h)\nz = Identity (y)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()), "Exp(x) -> y float[2]\n");
  EXPECT_EQ(m.graph().FindOutput("z"), m.graph().FindOutput("y"));
}

TEST(ImportForms, EmptyNameKeepsTheSlotsBehindIt) {
  const TextImport m =
      Import(ModelText(17, "(float[2] x) => (float[2] y)",
                       "h = Constant <value_float = 3.0> ()\ny = Clip (x, \"\", h)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()), "Clip(x, -, 3) -> y float[2]\n");
}

TEST(ImportForms, TrailingEmptyNamesAreNoInputs) {
  const TextImport m =
      Import(ModelText(17, "(float[2,4] x) => (float[2,1] y)", "y = ReduceSum (x, \"\")"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(m.graph().node(m.graph().first()).inputs.size(), 1u);
  EXPECT_TRUE(
      Import(ModelText(17, "(float[2,4] x) => (float[2,2] p)", "p, q = Split <axis = 1> (x, \"\")"))
          .result.ok());
}

TEST(ImportForms, RequiredInputLeftOutIsRefused) {
  const TextImport m =
      Import(ModelText(17, "(float[2] x) => (float[2] y)", "[g] y = Add (\"\", x)"));
  EXPECT_EQ(m.Error(), "error[E0107]: node 'g' (Add-14): input 0 ('A') is required but left out");
}

constexpr char kNorm[] =
    "<float[3] s = {1,2,3}, float[3] b = {1,2,4}, float[3] m = {0,1,0}, float[3] v = {1,2,1}>";

TEST(ImportForms, BatchNormalizationKeepsItsMode) {
  const std::string head = "<ir_version: 8, opset_import: [\"\" : ";
  const std::string main = "]> main (float[2,3,4] x) => (float[2,3,4] y) " + std::string(kNorm);
  const TextImport inference =
      Import(head + "17" + main + "{ y = BatchNormalization (x, s, b, m, v) }");
  ASSERT_TRUE(inference.result.ok()) << inference.Error();
  EXPECT_EQ(Short(inference.graph()), "BatchNormalization(x, s, b, m, v) -> y float[2,3,4]\n");
  const std::string trained = "BatchNormalization(x, s, b, m, v) -> y float[2,3,4], -, -\n";
  const TextImport newer =
      Import(head + "17" + main +
             "{ y, rm, rv = BatchNormalization <training_mode = 1> (x, s, b, m, v) }");
  ASSERT_TRUE(newer.result.ok()) << newer.Error();
  EXPECT_EQ(Short(newer.graph()), trained);
  const TextImport older =
      Import(head + "13" + main + "{ y, rm, rv, sm, sv = BatchNormalization (x, s, b, m, v) }");
  ASSERT_TRUE(older.result.ok()) << older.Error();
  EXPECT_EQ(Short(older.graph()), trained);
  EXPECT_EQ(older.graph().node(older.graph().first()).attrs.Int("training_mode"), 1);

  onnx::ModelProto exported;
  for (const TextImport* m : {&newer, &older}) {
    ASSERT_TRUE(exported.ParseFromString(m->result->source.model));
    EXPECT_EQ(exported.graph().node(0).output_size(), 1);
    EXPECT_EQ(exported.graph().node(0).attribute_size(), 0);
    EXPECT_EQ(exported.graph().initializer_size(), 0);
  }
}

TEST(ImportForms, DropoutExportsInInferenceForm) {
  const TextImport m = Import(ModelText(17, "(float[2] x) => (float[2] y)",
                                        "r = Constant <value_float = 0.25> ()\nt = Constant <value "
                                        "= bool {1}> ()\ny = Dropout (x, r, t)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()), "Dropout(x, 0.25, 1) -> y float[2]\n");
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(m.result->source.model));
  EXPECT_EQ(exported.graph().node(2).input_size(), 2);
  const TextImport old =
      Import(ModelText(10, "(float[2] x) => (float[2] y)", "y = Dropout <ratio = 0.25> (x)"));
  ASSERT_TRUE(old.result.ok()) << old.Error();
  EXPECT_EQ(Short(old.graph()), "Dropout(x, 0.25) -> y float[2]\n");
}

TEST(ImportForms, Fp64WidensEveryFloat) {
  CompileOptions options;
  options.precision = Precision::kFp64;
  const TextImport m = Import(R"(<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x, int64[2] i) => (float[2] y) <float[2] w = {1,2}, float16[2] h = {3,4}> {
  c = Constant <value_float = 0.1> ()
  a = Cast <to = 1> (i)
  b = Cast <to = 10> (x)
  d = Sum (x, w, c, a)
  e = Mul (b, h)
  f = Cast <to = 1> (e)
  y = Add (d, f)
})",
                              options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  for (ir::NodeId n : m.graph().Order()) {
    for (ir::ValueId v : m.graph().node(n).outputs)
      EXPECT_EQ(m.graph().type(v).dtype, DType::kFloat64) << m.graph().Describe(n);
  }
  for (const ir::StateVar& s : m.module().states)
    EXPECT_EQ(m.module().types.Get(s.type).dtype, DType::kFloat64);
  EXPECT_EQ(m.module().state(m.module().FindState("h")).initial.stored, DType::kFloat16);
  EXPECT_EQ(m.graph().type(m.graph().feeds()[0].value).dtype, DType::kFloat64);
}

TEST(ImportForms, LowPrecisionParametersGetFp32Masters) {
  const TextImport m = Import(R"(<ir_version: 8, opset_import: ["" : 17]>
main (float16[2,3] x) => (float16[2,3] y) <float16[3,3] w = {1,2,3,4,5,6,7,8,9}, float16[3] s = {1,2,3}, float16[3] b = {0,1,0},
 float16[3] m = {0,0,1}, float16[3] v = {1,1,2}> {
  a = MatMul (x, w)
  y = BatchNormalization (a, s, b, m, v)
})");
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()),
            "Cast(w) -> w:float16 float16[3,3]\nMatMul(x, w:float16) -> a float16[2,3]\n"
            "Cast(s) -> s:float16 float16[3]\nCast(b) -> b:float16 float16[3]\nCast(m) -> "
            "m:float16 float16[3]\nCast(v) -> v:float16 float16[3]\n"
            "BatchNormalization(a, s, b, m, v) -> y float16[2,3]\n");
  for (const SourceExport& e : m.result->source.exports) {
    EXPECT_EQ(e.entry.inverse, plan::Export::Inverse::kRound);
    EXPECT_EQ(e.entry.dtype, DType::kFloat16);
  }
}

}  // namespace
}  // namespace ampc
