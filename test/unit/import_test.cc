// SPDX-License-Identifier: Apache-2.0
// Import: names, order, dims, functions, what trains, and real exported models against ONNX's own
// shape inference.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include "compiler/onnx/info.h"
#include "test/unit/import_harness.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(Contains(text, part)) << text

const ir::StateVar* State(const TextImport& m, std::string_view name) {
  const ir::StateId s = m.module().FindState(name);
  return s == ir::kNone ? nullptr : &m.module().state(s);
}

// ---- structure

constexpr char kMlp[] = R"(
<ir_version: 8, opset_import: ["" : 17]>
main (float[batch,4] x) => (float[batch,2] y)
<float[3,4] w1 = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] b1 = {1,2,3}, float[2,3] w2 = {1,2,3,4,5,6}>
{
  [first] h = Gemm <transB = 1> (x, w1, b1)
  [act] r = Relu (h)
  [second] y = Gemm <transB = 1> (r, w2)
}
)";

TEST(Import, MlpBecomesTheCanonicalGraph) {
  CompileOptions options = Fp32();
  options.dims = {{"batch", 5}};
  const TextImport m = Import(kMlp, options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(
      Short(m.graph()),
      "Gemm(x, w1, b1) -> h float[5,3]\nRelu(h) -> r float[5,3]\nGemm(r, w2) -> y float[5,2]\n");
  ASSERT_EQ(m.graph().feeds().size(), 1u);
  EXPECT_EQ(m.graph().outputs()[0].name, "y");
  EXPECT_EQ(m.graph().Describe(m.graph().first()), "node 'first' (Gemm-13)");
  ASSERT_EQ(m.module().states.size(), 3u);
  EXPECT_TRUE(State(m, "w1")->trainable);
  EXPECT_EQ(State(m, "w1")->role, ir::Role::kWeight);
  EXPECT_EQ(m.Notes(), "");
}

TEST(Import, ShuffledNodesGiveTheSameGraph) {
  const std::string signature = "(float[2,3] x) => (float[2,3] y)";
  const std::string a = "a = Relu (x)", b = "b = Sigmoid (a)", c = "y = Mul (a, b)";
  const TextImport sorted = Import(ModelText(17, signature, a + "\n" + b + "\n" + c));
  const TextImport shuffled = Import(ModelText(17, signature, c + "\n" + a + "\n" + b));
  ASSERT_TRUE(shuffled.result.ok()) << shuffled.Error();
  EXPECT_EQ(Short(sorted.graph()), Short(shuffled.graph()));
}

TEST(Import, NodeNamesDecideNothing) {
  const std::string signature = "(float[2,3] x) => (float[2,3] y)";
  const TextImport named = Import(ModelText(17, signature, "[a] h = Relu (x)\n[b] y = Exp (h)"));
  const TextImport same = Import(ModelText(17, signature, "[n] h = Relu (x)\n[n] y = Exp (h)"));
  const TextImport none = Import(ModelText(17, signature, "h = Relu (x)\ny = Exp (h)"));
  ASSERT_TRUE(named.result.ok() && same.result.ok() && none.result.ok());
  EXPECT_EQ(Short(named.graph()), Short(same.graph()));
  EXPECT_EQ(Short(named.graph()), Short(none.graph()));
  EXPECT_EQ(none.graph().Label(none.graph().first()), "Relu:h");
}

TEST(Import, ValueMadeTwiceNamesBothNodes) {
  const TextImport m = Import(
      ModelText(17, "(float[2] x) => (float[2] y)", "[one] y = Relu (x)\n[two] y = Exp (x)"));
  EXPECT_EQ(
      m.Error(),
      "error[E0103]: value 'y' is made twice: by node 'one' (Relu-14) and by node 'two' (Exp-13)");
}

TEST(Import, CycleNamesNodeAndTensor) {
  const TextImport m = Import(ModelText(17, "(float[2] x) => (float[2] y)",
                                        "[a] p = Add (x, q)\n[b] q = Exp (p)\ny = Neg (q)"));
  EXPECT_CONTAINS(m.Error(), "the graph has a cycle");
  EXPECT_CONTAINS(m.Error(), "reads 'q'");
}

TEST(Import, MissingValueIsNamed) {
  const TextImport m =
      Import(ModelText(17, "(float[2] x) => (float[2] y)", "[a] y = Add (x, nowhere)"));
  EXPECT_EQ(
      m.Error(),
      "error[E0103]: node 'a' (Add-14): reads 'nowhere', which no node, input or initializer is");
  EXPECT_CONTAINS(Import(ModelText(17, "(float[2] x) => (float[2] z)", "y = Exp (x)")).Error(),
                  "output 'z' is no value");
}

TEST(Import, NodeThatMakesAnInputIsRefused) {
  const TextImport m =
      Import(ModelText(17, "(float[2] x) => (float[2] y)", "x = Exp (y)\ny = Relu (x)"));
  EXPECT_FALSE(m.result.ok());
}

TEST(Import, UnneededNodesAreLeftOutAndCounted) {
  const TextImport m =
      Import(ModelText(17, "(float[2] x) => (float[2] y)", "y = Exp (x)\nz = Unknowable (x)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_CONTAINS(m.Notes(), "1 node that no output needs is left out");
}

TEST(Import, UnreadOutputsGoOnlyWhereTheyAreOptional) {
  const TextImport split = Import(ModelText(18, "(float[2,3] x) => (float[2,1] y)",
                                            "a, b, c = Split <axis = 1, num_outputs = 3> (x)\n"
                                            "y = Exp (b)"));
  ASSERT_TRUE(split.result.ok()) << split.Error();
  EXPECT_CONTAINS(Short(split.graph()), "-> a float[2,1], b float[2,1], c float[2,1]\n");
  const TextImport top =
      Import(ModelText(17, "(float[2,3] x) => (float[2,2] v)",
                       "k = Constant <value_ints = [2]> ()\nv, i = TopK (x, k)"));
  ASSERT_TRUE(top.result.ok()) << top.Error();
  EXPECT_CONTAINS(Short(top.graph()), "-> v float[2,2], i int64[2,2]\n");
  const TextImport pool = Import(ModelText(17, "(float[1,1,4] x) => (float[1,1,3] y)",
                                           "y, i = MaxPool <kernel_shape = [2]> (x)"));
  ASSERT_TRUE(pool.result.ok()) << pool.Error();
  EXPECT_CONTAINS(Short(pool.graph()), "-> y float[1,1,3], -\n");
}

TEST(Import, NamelessOutputsOfAListCount) {
  const TextImport m = Import(ModelText(18, "(float[2,3] x) => (float[2,1] y)",
                                        "\"\", b, \"\" = Split <axis = 1, num_outputs = 3> (x)\n"
                                        "y = Exp (b)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_CONTAINS(Short(m.graph()), "float[2,1], b float[2,1], ");
}

TEST(Import, OutputMayBeAnInputOrAnInnerValue) {
  const TextImport m = Import(ModelText(17, "(float[2] x) => (float[2] x, float[2] h, float[2] y)",
                                        "h = Exp (x)\ny = Relu (h)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  ASSERT_EQ(m.graph().outputs().size(), 3u);
  EXPECT_EQ(m.graph().outputs()[0].value, m.graph().feeds()[0].value);
  EXPECT_EQ(m.graph().value(m.graph().FindOutput("h")).name, "h");
}

TEST(Import, DeclaredTypeThatContradictsIsNoted) {
  const TextImport m = Import(ModelText(17, "(float[2] x) => (float[3] y)", "y = Exp (x)"));
  EXPECT_EQ(m.Notes(), "output 'y' is declared as float[3], but is float[2]\n");
}

// ---- dims

TEST(Import, UnboundDimNamesTheFeeds) {
  const TextImport m = Import(ModelText(
      17, "(float[batch,seq] x, float[batch,seq] z) => (float[batch,seq] y)", "y = Add (x, z)"));
  EXPECT_EQ(m.Error(),
            "error[E0112]: symbolic dims without a size: 'batch' (of 'x', 'z'), 'seq' (of 'x', "
            "'z'); give --dim batch=SIZE --dim seq=SIZE");
}

TEST(Import, UnknownDimSuggestsTheNearest) {
  CompileOptions options = Fp32();
  options.dims = {{"batc", 4}};
  const std::string text =
      ModelText(17, "(float[batch,3] x) => (float[batch,3] y)", "y = Relu (x)");
  EXPECT_CONTAINS(Import(text, options).Error(), "did you mean 'batch'?");
  options.dims = {{"batch", 4}};
  EXPECT_TRUE(Import(text, options).result.ok());
}

TEST(Import, DimWithoutANameIsKnownByItsPlace) {
  const std::string text = ModelText(17, "(float[?,3] x) => (float[?,3] y)", "y = Relu (x)");
  EXPECT_CONTAINS(Import(text).Error(), "'x[0]' (of 'x')");
  CompileOptions options = Fp32();
  options.dims = {{"x[0]", 4}};
  const TextImport m = Import(text, options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(ToString(m.graph().type(m.graph().feeds()[0].value)), "float[4,3]");
}

TEST(Import, EvalDimsStandInFrontOfTheOthers) {
  CompileOptions options = Fp32();
  options.dims = {{"n", 4}};
  options.eval_dims = {{"n", 10}};
  const std::string text = ModelText(17, "(float[n,3] x) => (float[n,3] y)", "y = Relu (x)");
  Diagnostics d;
  auto train = ImportText(text, "", options, d, EvaluateNode, DimSet::kTrain);
  auto eval = ImportText(text, "", options, d, EvaluateNode, DimSet::kEval);
  ASSERT_TRUE(train.ok() && eval.ok());
  EXPECT_EQ(Short(*train->module->train), "Relu(x) -> y float[4,3]\n");
  EXPECT_EQ(Short(*eval->module->train), "Relu(x) -> y float[10,3]\n");
}

// ---- support

TEST(Import, AllUnsupportedOpsAreListedAtOnce) {
  const TextImport m = Import(ModelText(17, "(float[2,2] x) => (float[2,2] y)",
                                        "[d] a = Det (x)\n[h] b = DFT (x)\n[h2] c = DFT (x)\n[f] e "
                                        "= Fancy (x)\ny = Sum (a, b, c, e)"));
  ASSERT_FALSE(m.result.ok());
  EXPECT_EQ(m.result.status().exit_code(), 3);
  EXPECT_EQ(m.Error(),
            "error[E0102]: 3 ops in 4 nodes are not supported:\n"
            "  DFT-17 (opset 17): node 'h', node 'h2'\n"
            "  Det-11 (opset 17): node 'd'\n"
            "  Fancy-17 (opset 17 has no such op): node 'f'");
}

TEST(Import, OtherDomainsAreNamed) {
  const TextImport m = Import(R"(<ir_version: 8, opset_import: ["" : 17, "com.example" : 3]>
main (float[2] x) => (float[2] y) { [f] y = com.example.Fuse (x) })");
  EXPECT_CONTAINS(m.Error(), "com.example.Fuse-3 (domain 'com.example', opset 3): node 'f'");
}

TEST(Import, OpsetsOutsideTheRangeAreRefused) {
  EXPECT_CONTAINS(Import(ModelText(99, "(float[2] x) => (float[2] y)", "y = Relu (x)")).Error(),
                  "the model uses opset 99, newer than");
  EXPECT_CONTAINS(Import(ModelText(5, "(float[2] x) => (float[2] y)", "y = Relu (x)")).Error(),
                  "the model uses opset 5, older than");
}

TEST(Import, TypeErrorsNameNodeAndShapes) {
  const TextImport m = Import(ModelText(17, "(float[2,3] x, float[4,5] w) => (float[2,5] y)",
                                        "[\"/fc1/MatMul\"] y = MatMul (x, w)"));
  EXPECT_CONTAINS(m.Error(), "error[E0107]: node '/fc1/MatMul' (MatMul-13)");
  EXPECT_CONTAINS(m.Error(),
                  "(inputs: 'x' float[2,3], a graph input; 'w' float[4,5], a graph input)");
}

TEST(Import, OpsWithABodyInOnnxAreImportedThroughIt) {
  const TextImport m = Import(ModelText(18, "(float[2,3] x) => (float[2,3] y)",
                                        "[p] y = ThresholdedRelu <alpha = 0.5> (x)"));
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(ToString(m.graph().type(m.graph().FindOutput("y"))), "float[2,3]");
}

// ---- functions

TEST(Import, FunctionsAreInlinedWithTheirAttributes) {
  const TextImport m = Import(R"(<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2,4] x) => (float[2,4] y) {
  [call1] h = local.Twice <slope = 0.25> (x)
  [call2] y = local.Twice <slope = 0.5> (h)
}
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Twice <slope> (a) => (c) { [leak] b = LeakyRelu <alpha : float = @slope> (a) [in] c = local.Inner (b) }
<domain: "local", opset_import: ["" : 13]>
Inner (a) => (c) { s = Constant <value_int = 1> () t = Cast <to = 1> (s) c = Add (a, t) })");
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()),
            "LeakyRelu(x) -> call1/b float[2,4]\nAdd(call1/b, 1) -> h float[2,4]\n"
            "LeakyRelu(h) -> call2/b float[2,4]\nAdd(call2/b, 1) -> y float[2,4]\n");
  std::vector<double> slopes;
  for (ir::NodeId n : m.graph().Order()) {
    if (m.graph().node(n).op->name == "LeakyRelu")
      slopes.push_back(m.graph().node(n).attrs.Float("alpha"));
  }
  EXPECT_EQ(slopes, (std::vector<double>{0.25, 0.5}));
  EXPECT_EQ(m.graph().Describe(m.graph().first()), "node 'call1/leak' (LeakyRelu-16)");
}

TEST(Import, ArgumentLeftOutOfACallStaysInItsSlot) {
  const TextImport m = Import(R"(<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2] x) => (float[2] y, float[2] z) <float high = {2}> { y = local.Bound (x, , high) z = local.Bound (x) }
<domain: "local", opset_import: ["" : 17]> Bound (a, low, high) => (c) { c = Clip (a, low, high) })");
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()), "Clip(x, -, 2) -> y float[2]\nClip(x) -> z float[2]\n");
}

TEST(Import, OutputThatIsALeftOutInputIsRefused) {
  EXPECT_CONTAINS(Import(R"(<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2] x) => (float[2] y, float[2] z) { y, z = local.F (x) }
<domain: "local", opset_import: ["" : 17]> F (a, b) => (c, b) { c = Relu (a) })")
                      .Error(),
                  "output 'b' of function 'F' is an input that the call leaves out");
}

TEST(Import, ValueMadeTwiceInAFunctionNamesBothNodes) {
  EXPECT_CONTAINS(Import(R"(<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2] x) => (float[2] y) { y = local.F (x) }
<domain: "local", opset_import: ["" : 17]> F (a) => (c) { [one] c = Relu (a) [two] c = Tanh (a) })")
                      .Error(),
                  "value 'c' is made twice: by node 'one' (Relu-14) and by node 'two' (Tanh-13)");
}

TEST(Import, FunctionThatCallsItselfIsRefused) {
  const TextImport m = Import(R"(<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2] x) => (float[2] y) { y = local.A (x) }
<domain: "local", opset_import: ["" : 17, "local" : 1]> A (a) => (c) { c = local.B (a) }
<domain: "local", opset_import: ["" : 17, "local" : 1]> B (a) => (c) { c = local.A (a) })");
  EXPECT_CONTAINS(m.Error(), "error[E0115]");
  EXPECT_CONTAINS(m.Error(), "function 'A' calls itself: A -> B -> A");
}

// ---- what trains

constexpr char kZoo[] = R"(
<ir_version: 8, opset_import: ["" : 17]>
main (float[2,3] x, int64[2] i) => (float[2,3] y)
<float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[3] scale = {1,1,2}, float[3] bias = {0,1,0}, float[3] mean = {0,0,1},
 float[3] var = {1,1,2}, float[1] two = {2}, float half = {0.5}, float[3] mask = {0,-inf,0}, float[3] large = {0,-1e38,1},
 int64[2] idx = {0,1}, float[2] unused = {1,2}>
{
  a = MatMul (x, w)
  n = BatchNormalization (a, scale, bias, mean, var)
  b = Mul (n, two)
  c = Mul (b, half)
  d = Add (c, mask)
  e = Add (d, large)
  f = Gather (e, idx)
  y = Add (e, f)
}
)";

TEST(Import, DefaultTrainableSetGivesReasons) {
  const TextImport m = Import(kZoo);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  std::set<std::string> trained, statistics;
  for (const ir::StateVar& s : m.module().states) {
    if (s.trainable) trained.insert(s.name);
    if (s.role == ir::Role::kStatistic) statistics.insert(s.name);
  }
  EXPECT_EQ(trained, (std::set<std::string>{"w", "scale", "bias"}));
  EXPECT_EQ(statistics, (std::set<std::string>{"mean", "var"}));
  EXPECT_EQ(m.module().states.size(), 5u);
  EXPECT_EQ(m.Explained("mean"), "a running statistic (BatchNormalization-15 input 3)");
  EXPECT_EQ(m.Explained("two"), "one element, used in arithmetic (Mul-14 input 1)");
  EXPECT_EQ(m.Explained("half"), "rank 0, a scalar");
  EXPECT_EQ(m.Explained("mask"), "holds infinities, a mask");
  EXPECT_EQ(m.Explained("large"), "holds values of 1e30 and more, a mask");
  EXPECT_EQ(m.Explained("unused"), "nothing reads it");
  EXPECT_CONTAINS(m.Notes(), "initializers that nothing reads: 'unused'");
}

TEST(Import, GlobsSelectAndFreeze) {
  CompileOptions options = Fp32();
  options.trainable = {"*"};
  options.freeze = {"bias"};
  TextImport m = Import(kZoo, options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_TRUE(State(m, "w")->trainable);
  EXPECT_FALSE(State(m, "bias")->trainable);
  EXPECT_EQ(State(m, "bias")->role, ir::Role::kWeight);
  EXPECT_EQ(State(m, "two"), nullptr) << "a wildcard selects among the default set";
  options.trainable = {"two", "s*"};
  options.freeze = {};
  m = Import(kZoo, options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_TRUE(State(m, "two")->trainable);
  EXPECT_TRUE(State(m, "scale")->trainable);
  EXPECT_FALSE(State(m, "w")->trainable);
  options.trainable = {"wieght"};
  EXPECT_CONTAINS(Import(kZoo, options).Error(), "--trainable 'wieght' matches no initializer");
  options.trainable = {"mean"};
  EXPECT_CONTAINS(Import(kZoo, options).Error(),
                  "matches nothing that can train: 'mean' (a running statistic");
}

TEST(Import, ConstantNodesTrainOnlyWhenNamed) {
  const std::string text = ModelText(17, "(float[2,2] x) => (float[2,2] y)",
                                     "c = Constant <value = float[2] {1, 2}> ()\ny = Add (x, c)");
  EXPECT_EQ(Import(text).module().states.size(), 0u);
  CompileOptions options = Fp32();
  options.trainable = {"c"};
  const TextImport m = Import(text, options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  ASSERT_NE(State(m, "c"), nullptr);
  EXPECT_TRUE(State(m, "c")->trainable);
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(m.result->source.model));
  EXPECT_EQ(exported.graph().node_size(), 1)
      << "the Constant node became an initializer that the export appends";
  EXPECT_EQ(m.result->source.exports.at(0).entry.initializer, "c");
}

TEST(Import, ListsOfFloatsInConstantNodesTrainWhenNamed) {
  CompileOptions options = Fp32();
  options.trainable = {"c", "d"};
  const TextImport m = Import(
      ModelText(17, "(float[2,2] x) => (float[2,2] y)",
                "c = Constant <value_floats = [1.5, 2]> ()\nd = Constant <value_float = 3.0> ()\n"
                "a = Add (x, c)\ny = Mul (a, d)"),
      options);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  ASSERT_EQ(m.module().states.size(), 2u);
  EXPECT_EQ(ToString(m.module().types.Get(State(m, "c")->type)), "float[2]");
  EXPECT_EQ(ToString(m.module().types.Get(State(m, "d")->type)), "float");
  float first = 0;
  const ir::ByteRef& bytes = State(m, "c")->initial.bytes;
  ASSERT_TRUE(bytes.source->Read(bytes.offset, std::as_writable_bytes(std::span(&first, 1))).ok());
  EXPECT_EQ(first, 1.5f);
  EXPECT_EQ(m.result->source.exports.size(), 2u);
}

TEST(Import, EqualParametersAreReportedAndTrainApart) {
  const std::string head =
      "<ir_version: 8, opset_import: [\"\" : 17]>\n"
      "main (float[2,2] x) => (float[2,2] y)\n";
  const std::string body =
      "{ a = MatMul (x, v) b = MatMul (a, w) c = Add (b, p) d = Add (c, q) "
      "y = MatMul (d, u) }";
  const TextImport m = Import(head +
                              "<float[2,2] v = {1,2,3,4}, float[2,2] w = {1,2,3,4}, "
                              "float[2,2] u = {1,3,2,4}, float[2] p = {0,0}, float[2] q = {0,0}>" +
                              body);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(m.Notes(), "equal values, but parameters of their own: 'v' = 'w'\n")
      << "u has the same elements in another order, and constants are equal by chance";
  EXPECT_TRUE(State(m, "v")->trainable && State(m, "w")->trainable);
}

constexpr char kShared[] = R"(
<ir_version: 8, opset_import: ["" : 17]>
main (float[2,3] x) => (float[2,3] y)
<float[3] ones = {1,1,1}, float[3] zeros = {0,0,0}, float[3,3] w = {1,2,3,4,5,6,7,8,9}>
{
  same = Identity (ones)
  a = BatchNormalization (x, ones, zeros, zeros, ones)
  b = MatMul (a, w)
  c = Mul (b, same)
  y = MatMul (c, w)
}
)";

TEST(Import, MergedParametersAreUntiedAndTiedOnesStay) {
  const TextImport m = Import(kShared);
  ASSERT_TRUE(m.result.ok()) << m.Error();
  EXPECT_EQ(Short(m.graph()),
            "BatchNormalization(x, ones.2, zeros.1, zeros.2, ones.3) -> a float[2,3]\nMatMul(a, w) "
            "-> b float[2,3]\n"
            "Mul(b, ones.1) -> c float[2,3]\nMatMul(c, w) -> y float[2,3]\n");
  EXPECT_EQ(State(m, "ones"), nullptr);
  EXPECT_CONTAINS(m.Notes(), "tied, one parameter with several uses: 'w' (2 uses)");
  EXPECT_CONTAINS(m.Notes(), "'ones' is shared by 3 uses and its elements are all equal");
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(m.result->source.model));
  EXPECT_EQ(exported.graph().node_size(), 4)
      << "the Identity went with the initializer that it copied";
  EXPECT_EQ(exported.graph().node(2).input(1), "ones.1");
  EXPECT_EQ(State(m, "ones.3")->role, ir::Role::kStatistic);
  EXPECT_TRUE(State(m, "ones.2")->trainable);

  CompileOptions options = Fp32();
  options.untie = "none";
  EXPECT_EQ(Import(kShared, options).module().states.size(), 3u);
  options.untie = "w";
  EXPECT_EQ(Import(kShared, options).module().states.size(), 4u);
  options.untie = "q*";
  EXPECT_CONTAINS(Import(kShared, options).Error(), "--untie 'q*' matches no initializer");
}

// ---- real models

std::vector<fs::path> GoldenModels() {
  std::vector<fs::path> found;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(AMPC_TEST_DIR) / "golden/models")) {
    // Training artifacts are parts of a model (test/golden/training_graphs.py).
    if (entry.path().extension() == ".onnx" && !Contains(entry.path(), "ort_artifacts"))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

CompileOptions Batch16(const fs::path& path) {
  CompileOptions options = Fp32();
  if (Contains(path.filename(), "dynamic")) options.dims = {{"batch", 16}};
  return options;
}

TEST(GoldenModels, AllImport) {
  const std::vector<fs::path> models = GoldenModels();
  EXPECT_GE(models.size(), 54u);
  for (const fs::path& path : models) {
    Diagnostics d;
    const auto imported = ImportModel(path, Batch16(path), d, EvaluateNode);
    ASSERT_TRUE(imported.ok()) << imported.status().ToString();
    EXPECT_FALSE(imported->module->train->outputs().empty());
  }
}

// Every value that ONNX's shape inference knows has the same type here.
TEST(GoldenModels, TypesAreThoseOfOnnx) {
  int compared = 0;
  for (const fs::path& path : GoldenModels()) {
    if (Contains(path, "external")) continue;
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(bytes));
    model.mutable_graph()->clear_value_info();
    for (auto& input : *model.mutable_graph()->mutable_input()) {
      for (auto& dim :
           *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
        if (dim.has_dim_param()) dim.set_dim_value(16);
      }
    }
    for (auto& output : *model.mutable_graph()->mutable_output())
      output.mutable_type()->mutable_tensor_type()->clear_shape();
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(true, 1, true));

    Diagnostics d;
    const auto imported = ImportModel(path, Batch16(path), d, EvaluateNode);
    ASSERT_TRUE(imported.ok()) << imported.status().ToString();
    const ir::Graph& g = *imported->module->train;
    for (const auto& value : model.graph().value_info()) {
      const ir::ValueId v = g.FindValue(value.name());
      const auto& tensor = value.type().tensor_type();
      if (v == ir::kNone || !tensor.has_shape()) continue;
      ir::TensorType expected{static_cast<DType>(tensor.elem_type()), {}};
      bool known = true;
      for (const auto& dim : tensor.shape().dim()) {
        known = known && dim.has_dim_value();
        expected.dims.push_back(dim.dim_value());
      }
      if (!known) continue;
      EXPECT_EQ(ToString(g.type(v)), ToString(expected)) << path << ": " << value.name();
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(GoldenModels, TrainableSetIsPyTorchs) {
  const fs::path path = fs::path(AMPC_TEST_DIR) / "golden/models/resnet_mnist/ts_train.onnx";
  Diagnostics d;
  const auto info = ReadModelInfo(path, Fp32(), d);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  size_t trained = 0, statistics = 0;
  for (const InitializerInfo& t : info->initializers) {
    trained += t.trainable;
    statistics += t.role == plan::Role::kStatistic;
    EXPECT_EQ(t.role == plan::Role::kStatistic, Contains(t.name, "running_")) << t.name;
  }
  EXPECT_EQ(trained + statistics, info->initializers.size());
  EXPECT_EQ(statistics % 2, 0u);
  EXPECT_CONTAINS(FormatModelInfo(*info), "input     image  float[16,1,28,28]\n");
}

}  // namespace
}  // namespace ampc
