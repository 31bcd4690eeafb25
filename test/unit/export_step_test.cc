// SPDX-License-Identifier: Apache-2.0
// The training step as ONNX: what becomes an input, an output, a cast; where the data goes.
#include "compiler/onnx/export_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <onnx/checker.h>
#include <onnx/onnx_pb.h>

#include "compiler/ir/text.h"
#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

// A weight with its low copy, a setting that is also an output, a value that two states become.
constexpr std::string_view kStep = R"(state {
  weight trainable "w" : float[2,2] = {1, 2, 3, 4}
  hyper setting "lr" "lr" : double = fill(0.5)
  moment "m" : float[2,2] = fill(0)
  moment "n" : float[2,2] = fill(3)
  hyper setting "lr_schedule.total" "total" : double = auto
  low "w.fp16" : float16[2,2] = derived("w")
}
train (float16[2,2] "x") => ("loss" = "y", "lr") next ("w" = "new", "m" = "new", "w.fp16" = "low") {
  "p" = MatMul ("x", "w.fp16")
  "y" = Mul ("p", "x")
  "q" = Cast <to: int = 1> ("y")
  "t" = Cast <to: int = 1> ("total")
  "s" = Mul ("q", "t")
  "new" = Add ("n", "s")
  "low" = Cast <to: int = 10> ("new")
}
)";

class ExportStepTest : public TempDirTest {
 protected:
  Status Export(std::string_view text, StepOptions options = {}) {
    auto module = ir::ParseModule(text, "t");
    if (!module.ok()) return std::move(module).TakeStatus();
    auto files = ExportStep(**module, options, Path("step.onnx"));
    return files.ok() ? Status() : std::move(files).TakeStatus();
  }
  // The file, valid with all types.
  onnx::ModelProto Load(const std::string& name = "step.onnx") {
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(Get(name)));
    EXPECT_NO_THROW(onnx::checker::check_model(Path(name), /*full_check=*/true));
    return model;
  }
};

template <typename Items>
std::vector<std::string> NamesOf(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.push_back(item.name());
  return names;
}

std::vector<std::string> Nodes(const onnx::GraphProto& graph) {
  std::vector<std::string> nodes;
  for (const auto& node : graph.node()) {
    std::string text = node.op_type();
    for (const std::string& name : node.input()) text += " " + name;
    text += " ->";
    for (const std::string& name : node.output()) text += " " + name;
    nodes.push_back(text);
  }
  return nodes;
}

using Texts = std::vector<std::string>;

TEST_F(ExportStepTest, StatesAreInputsWithTheirInitialData) {
  const Status status = Export(kStep);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const onnx::ModelProto model = Load();
  EXPECT_EQ(NamesOf(model.graph().input()), (Texts{"x", "w", "lr", "n", "total"}));
  EXPECT_EQ(NamesOf(model.graph().initializer()), (Texts{"w", "lr", "n"}));  // total is auto
  const std::vector<float> w = {1, 2, 3, 4}, n = {3, 3, 3, 3};
  const auto bytes = [](const std::vector<float>& v) {
    return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
  };
  EXPECT_EQ(model.graph().initializer(0).raw_data(), bytes(w));
  EXPECT_EQ(model.graph().initializer(2).raw_data(), bytes(n));
}

TEST_F(ExportStepTest, NextValuesAndOutputsHaveNamesOfTheirOwn) {
  ASSERT_TRUE(Export(kStep).ok());
  const onnx::ModelProto model = Load();
  EXPECT_EQ(NamesOf(model.graph().output()), (Texts{"loss", "lr.1", "w.next", "m.next"}));
  const std::string meta = model.metadata_props(0).value();
  EXPECT_NE(meta.find(R"("outputs": {"loss": "loss", "lr": "lr.1"})"), std::string::npos) << meta;
  EXPECT_NE(meta.find(R"("m": {"input": null, "output": "m.next", "role": "moment")"),
            std::string::npos)
      << meta;
  EXPECT_NE(meta.find(R"("setting": "lr_schedule.total", "auto": true)"), std::string::npos);
  EXPECT_EQ(meta.find("w.fp16"), std::string::npos) << meta;  // derived: no state of its own
}

TEST_F(ExportStepTest, LowOperandsAreWidenedOnceAndResultsRounded) {
  ASSERT_TRUE(Export(kStep).ok());
  EXPECT_EQ(Nodes(Load().graph()),
            (Texts{"Cast w -> w.fp16", "Cast x -> x.wide", "Cast w.fp16 -> w.fp16.wide",
                   "MatMul x.wide w.fp16.wide -> p.unrounded", "Cast p.unrounded -> p",
                   "Cast p -> p.wide", "Mul p.wide x.wide -> y.unrounded", "Cast y.unrounded -> y",
                   "Cast y -> q", "Cast total -> t", "Mul q t -> s", "Add n s -> w.next",
                   "Identity lr -> lr.1", "Identity w.next -> m.next", "Cast y -> loss"}));
}

TEST_F(ExportStepTest, NoOutputIsLow) {
  for (const bool native : {false, true}) {
    ASSERT_TRUE(Export(kStep, {.native = native}).ok());
    const onnx::ModelProto model = Load();
    const auto& loss = model.graph().output(0);
    EXPECT_EQ(loss.name(), "loss");
    EXPECT_EQ(loss.type().tensor_type().elem_type(), onnx::TensorProto::FLOAT);
  }
}

TEST_F(ExportStepTest, NativeKeepsLowOperands) {
  ASSERT_TRUE(Export(kStep, {.native = true}).ok());
  EXPECT_EQ(Nodes(Load().graph())[1], "MatMul x w.fp16 -> p");
}

TEST_F(ExportStepTest, LargeDataLiesBesideTheModel) {
  const std::string text =
      "state {\n  weight trainable \"w\" : float[1024] = fill(2)\n  weight \"v\" : float = "
      "fill(1)\n"
      "}\ntrain (float \"x\") => (\"loss\" = \"v\") next (\"w\" = \"y\") {\n"
      "  \"y\" = Mul (\"w\", \"x\")\n}\n";
  ASSERT_TRUE(Export(text, {.max_inline_bytes = 4096}).ok());
  EXPECT_EQ(Listing(), (Texts{"step.onnx", "step.onnx.data"}));
  const onnx::ModelProto model = Load();
  const onnx::TensorProto& w = model.graph().initializer(0);
  EXPECT_EQ(w.data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(w.external_data(0).value(), "step.onnx.data");
  EXPECT_EQ(w.external_data(2).value(), "4096");
  const std::string data = Get("step.onnx.data");
  ASSERT_EQ(data.size(), 4096U);
  float last = 0;
  std::memcpy(&last, data.data() + 4092, sizeof last);
  EXPECT_EQ(last, 2);
  EXPECT_EQ(model.graph().initializer(1).raw_data().size(), 4U);  // small: inline
}

TEST_F(ExportStepTest, WindowsMakeTwoFiles) {
  const std::string text =
      "state {\n  weight trainable \"w\" : float = fill(2)\n  accumulator \"sum\" : float = "
      "fill(0)\n}\n"
      "train (float \"x\") => (\"loss\" = \"x\") next (\"sum\" = \"a\") {\n"
      "  \"a\" = Add (\"sum\", \"x\")\n}\n"
      "apply () => (\"norm\" = \"sum\") next (\"w\" = \"b\") {\n  \"b\" = Sub (\"w\", "
      "\"sum\")\n}\n";
  const Status status = Export(text, {.accumulate = 4});
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Listing(), (Texts{"step.apply.onnx", "step.train.onnx"}));
  EXPECT_EQ(NamesOf(Load("step.train.onnx").graph().input()), (Texts{"x", "sum"}));
  EXPECT_EQ(NamesOf(Load("step.apply.onnx").graph().input()), (Texts{"w", "sum"}));
}

// A function is in SSA form: its own constants and its 33rd output once had the same name.
TEST_F(ExportStepTest, UpdatesOfManyWeightsAreValidFunctions) {
  constexpr int kWeights = 70;
  const auto list = [](std::string_view format) {
    std::string text;
    for (int i = 0; i < kWeights; ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ", ", fmt::format(fmt::runtime(format), i));
    return text;
  };
  std::string states;
  for (int i = 0; i < kWeights; ++i) {
    for (const char kind : {'w', 'v'})
      states += fmt::format("  weight trainable \"{}{}\" : float = fill(1)\n", kind, i);
  }
  const std::string text = fmt::format(
      "state {{\n{}}}\ntrain (bool \"f\", float \"g\") => (\"loss\" = \"g\", {}) next ({}) {{\n"
      "  {} = ai.ampc.Sgd <n: int = {}, nesterov: int = 1> (\"f\", \"g\", \"g\", \"g\", \"g\", "
      "\"f\", {}, {}, {})\n  {} = ai.ampc.ClipNorm (\"g\", \"g\", {})\n}}\n",
      states, list("\"c{}\""), list("\"w{0}\" = \"a{0}\"") + ", " + list("\"v{0}\" = \"d{0}\""),
      list("\"a{}\"") + ", " + list("\"d{}\""), kWeights, list("\"w{}\""), list("\"g\""),
      list("\"v{}\""), list("\"c{}\""), list("\"g\""));
  const Status status = Export(text);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(Load().functions_size(), 2);
}

TEST_F(ExportStepTest, RefusesAModelWithoutAStep) {
  const Status status = Export("train (float \"x\") => (\"y\" = \"x\") {\n}\n");
  EXPECT_NE(status.ToString().find("E0215"), std::string::npos) << status.ToString();
  EXPECT_TRUE(Listing().empty());
}

}  // namespace
}  // namespace ampc
