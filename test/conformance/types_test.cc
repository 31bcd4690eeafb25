// SPDX-License-Identifier: Apache-2.0
// Types over the samples table, and the cast classes of the rows.
//
// The types that an own op's row infers are those that ONNX infers from the op's body, strictly and
// in every element type; nodes that gradient rules make are included. Standard ops get their types
// from ONNX's schemas; ort_test.py compares them with what onnxruntime really computes.
#include <set>

#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>

#include "compiler/onnx/own_functions.h"
#include "compiler/onnx/proto_util.h"
#include "test/conformance/samples.h"

namespace ampc::conformance {
namespace {

constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

std::string TypeText(const onnx::TypeProto& type) {
  std::string text = fmt::format("{}[", OnnxTypeName(type.tensor_type().elem_type()));
  for (const auto& d : type.tensor_type().shape().dim())
    text += d.has_dim_value() ? fmt::format("{},", d.dim_value()) : "?,";
  return text + "]";
}

/// The types of the row stand in the model's outputs; without them, ONNX finds its own from the
/// body.
void ExpectTypesOfBody(const ir::Graph& graph, ir::NodeId node) {
  onnx::ModelProto model;
  const Status made = MakeNodeModel(graph, node, &model);
  ASSERT_TRUE(made.ok()) << made.ToString();
  std::vector<std::string> expected;
  for (auto& out : *model.mutable_graph()->mutable_output()) {
    expected.push_back(TypeText(out.type()));
    out.clear_type();
  }
  try {
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(),
                                       onnx::ShapeInferenceOptions(true, 1, true));
    onnx::checker::check_model(model);
  } catch (const std::exception& e) {
    FAIL() << e.what();
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(TypeText(model.graph().output(static_cast<int>(i)).type()), expected[i])
        << "output " << i;
  }
}

TEST(Types, OwnOpsAgreeWithTheirBodies) {
  std::set<std::string> seen;
  for (const Sample& sample : AllSamples()) {
    for (const DType type : kTypes) {
      SCOPED_TRACE(fmt::format("{} in {}", Describe(sample), Name(type)));
      auto instance = Build(sample, type);
      ASSERT_TRUE(instance.ok()) << instance.status().ToString();
      const Status status = AddGradientNodes(*instance, sample);
      ASSERT_TRUE(status.ok()) << status.ToString();
      const ir::Graph& g = instance->graph();
      for (const ir::NodeId n : g.Order()) {
        if (g.node(n).op->domain != kOwnDomain) continue;
        ExpectTypesOfBody(g, n);
        seen.insert(std::string(g.node(n).op->name));
      }
    }
  }
  for (const OpDef* op : AllOps())
    EXPECT_TRUE(op->domain != kOwnDomain || seen.contains(std::string(op->name))) << op->name;
}

// ---- cast classes

/// PyTorch's autocast lists, in ONNX's words. Everything that they do not name follows its input,
/// or takes the widest of its operands where it has several.
struct ClassList {
  CastClasses classes;
  std::vector<std::string_view> ops;
};

std::vector<ClassList> ClassLists() {
  return {
      {kLowClass, {"Conv", "ConvTranspose", "MatMul", "Gemm", "PRelu", "RNN", "GRU", "LSTM"}},
      // on both lists; prod is the one reduction that the CPU lists, too
      {kFp32Class, {"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", "ReduceProd"}},
      {kFp32OnCuda,
       {"Exp",
        "Log",
        "Reciprocal",
        "Acos",
        "Asin",
        "Cosh",
        "Sinh",
        "Tan",
        "Softplus",
        "Softmax",
        "LogSoftmax",
        "ReduceSum",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "CumSum",
        "LayerNormalization",
        "RMSNormalization",
        "GroupNormalization",
        "LpNormalization",
        "MeanVarianceNormalization",
        "LRN",
        "Resize"}},
      {{CastClass::kFp32, CastClass::kWidest}, {"Pow"}},
      {{CastClass::kWidest, CastClass::kFp32}, {"GridSample"}},
      {kWidestClass,
       {"Add", "Sub", "Mul", "Div", "Mod", "Sum", "Mean", "Max", "Min", "Where", "Concat", "Equal",
        "ScatterElements", "ScatterND", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"}},
      {kFollowClass,
       {"Relu",
        "LeakyRelu",
        "ThresholdedRelu",
        "Elu",
        "Selu",
        "Celu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Softsign",
        "Mish",
        "Gelu",
        "Clip",
        "Tanh",
        "Erf",
        "Abs",
        "Neg",
        "Sign",
        "Floor",
        "Ceil",
        "Round",
        "Sqrt",
        "Sin",
        "Cos",
        "Atan",
        "Asinh",
        "Acosh",
        "Atanh",
        "IsNaN",
        "IsInf",
        "And",
        "Or",
        "Xor",
        "Not",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "BitwiseNot",
        "BitShift",
        "Cast",
        "Dropout",
        "RandomUniform",
        "RandomNormal",
        "RandomUniformLike",
        "RandomNormalLike",
        "Bernoulli",
        "BatchNormalization",
        "InstanceNormalization",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ArgMax",
        "ArgMin",
        "Constant",
        "Identity",
        "Reshape",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Transpose",
        "Slice",
        "Split",
        "Expand",
        "Pad",
        "Gather",
        "GatherElements",
        "GatherND",
        "TopK",
        "OneHot",
        "ReverseSequence",
        "Tile",
        "Trilu"}},
  };
}

TEST(CastClass, IsPyTorchsForEveryStandardOp) {
  std::map<std::string_view, CastClasses> expected;
  for (const ClassList& list : ClassLists()) {
    for (const std::string_view op : list.ops)
      EXPECT_TRUE(expected.emplace(op, list.classes).second) << op << " stands in two lists";
  }
  for (const OpDef* op : AllOps()) {
    if (!op->domain.empty()) continue;
    const auto it = expected.find(op->name);
    ASSERT_NE(it, expected.end()) << op->name << " is in no list";
    EXPECT_EQ(op->cast.cuda, it->second.cuda) << op->name;
    EXPECT_EQ(op->cast.cpu, it->second.cpu) << op->name;
    expected.erase(it);
  }
  for (const auto& [op, classes] : expected) ADD_FAILURE() << op << " is listed and has no row";
}

TEST(CastClass, LossesOfOurOwnAreFp32) {
  for (const char* name : {"SquaredError", "AbsoluteError", "SmoothL1", "Huber", "BceWithLogits",
                           "KlDivergence", "CrossEntropy", "Nll"}) {
    const OpDef* op = FindOp(kOwnDomain, name);
    ASSERT_NE(op, nullptr) << name;
    EXPECT_EQ(op->cast.cuda, CastClass::kFp32) << name;
    EXPECT_EQ(op->cast.cpu, CastClass::kFp32) << name;
  }
}

}  // namespace
}  // namespace ampc::conformance
