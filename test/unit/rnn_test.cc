// SPDX-License-Identifier: Apache-2.0
// Attributes of recurrent layers and the programs made from them (kernels/rnn.h). The arithmetic is
// held to onnxruntime and to differences by the conformance tests.
#include "kernels/rnn.h"

#include <gtest/gtest.h>

namespace ampc {
namespace {

using Names = std::vector<std::string>;
using Numbers = std::vector<double>;

Result<RnnLayer> Read(RnnKind kind, const Attrs& attrs, DType operand = DType::kNone) {
  return ReadRnnLayer(kind, attrs, false, operand);
}

TEST(Rnn, DefaultsAreThoseOfOnnx) {
  const auto lstm = Read(RnnKind::kLstm, {{"direction", std::string("bidirectional")}});
  ASSERT_TRUE(lstm.ok());
  ASSERT_EQ(lstm->directions(), 2);
  EXPECT_FALSE(lstm->reverse[0]);
  EXPECT_TRUE(lstm->reverse[1]);
  for (const RnnCell& cell : lstm->cells) {
    ASSERT_EQ(cell.activations.size(), 3u);
    EXPECT_EQ(cell.activations[0].name, "sigmoid");
    EXPECT_EQ(cell.activations[1].name, "tanh");
    EXPECT_EQ(cell.activations[2].name, "tanh");
  }
  // The schema of RNN fills in names for two directions, whatever the direction.
  const auto rnn = Read(RnnKind::kRnn, {{"activations", Names{"Tanh", "Tanh"}}});
  ASSERT_TRUE(rnn.ok());
  EXPECT_EQ(rnn->cells[0].activations.size(), 1u);
}

TEST(Rnn, AlphasAndBetasGoToTheActivationsThatTakeThemInOrder) {
  const auto layer = Read(
      RnnKind::kLstm,
      {{"activations", Names{"HardSigmoid", "Tanh", "LeakyRelu", "sigmoid", "Elu", "HARDSIGMOID"}},
       {"direction", std::string("bidirectional")},
       {"activation_alpha", Numbers{0.1, 0.2, 0.3}},
       {"activation_beta", Numbers{0.4}}});
  ASSERT_TRUE(layer.ok()) << layer.status().message();
  const auto &first = layer->cells[0].activations, &second = layer->cells[1].activations;
  EXPECT_EQ(first[0].alpha, 0.1);
  EXPECT_EQ(first[0].beta, 0.4);
  EXPECT_EQ(first[2].alpha, 0.2);
  EXPECT_EQ(second[1].alpha, 0.3);
  EXPECT_EQ(second[2].alpha, 0.2);  // the default
  EXPECT_EQ(second[2].beta, 0.5);
}

TEST(Rnn, WhatIsNotInOnnxIsRefused) {
  const std::pair<Attrs, std::string_view> cases[] = {
      {{{"direction", std::string("backward")}}, "direction is 'backward'"},
      {{{"activations", Names{"Sigmoid", "Swish"}}}, "activation 'Swish' is not one of ONNX's"},
      {{{"activations", Names{"Sigmoid"}}}, "expected 2 activations, found 1"},
      {{{"activations", Names{"Sigmoid", "ScaledTanh"}}, {"activation_alpha", Numbers{1}}},
       "wants activation_alpha and activation_beta"},
      {{{"clip", -1.0}}, "clip is -1"},
  };
  for (const auto& [attrs, text] : cases) {
    const auto layer = Read(RnnKind::kGru, attrs);
    ASSERT_FALSE(layer.ok()) << text;
    EXPECT_EQ(layer.status().id(), "E0107");
    EXPECT_NE(layer.status().message().find(text), std::string::npos) << layer.status().message();
  }
}

TEST(Rnn, ProgramsOfEveryCellParse) {
  const Names all = {"Sigmoid",    "Tanh",        "Relu",      "Softsign",
                     "Softplus",   "Affine",      "LeakyRelu", "ThresholdedRelu",
                     "ScaledTanh", "HardSigmoid", "Elu"};
  for (const RnnKind kind : {RnnKind::kRnn, RnnKind::kGru, RnnKind::kLstm}) {
    for (const std::string& name : all) {
      for (const int64_t variant : {0, 1}) {
        const size_t count = kind == RnnKind::kRnn ? 1 : kind == RnnKind::kGru ? 2 : 3;
        const Attrs attrs{
            {"activations", Names(count, name)},   {"activation_alpha", Numbers(3, -0.5)},
            {"activation_beta", Numbers(3, 0.25)}, {"clip", variant != 0 ? 2.5 : 0.0},
            {"linear_before_reset", variant},      {"input_forget", variant}};
        const auto layer = ReadRnnLayer(kind, attrs, kind == RnnKind::kLstm, DType::kBFloat16);
        ASSERT_TRUE(layer.ok()) << layer.status().message();
        EXPECT_TRUE(ParseRnn(RnnForward(layer->cells[0])).ok()) << name;
        EXPECT_TRUE(ParseRnn(RnnBackward(layer->cells[0])).ok()) << name;
      }
    }
  }
}

TEST(Rnn, OnlyWhatAProductReadsIsRounded) {
  const auto layer = Read(RnnKind::kLstm, {}, DType::kBFloat16);
  ASSERT_TRUE(layer.ok());
  const auto programs = ParseRnn(RnnForward(layer->cells[0]));
  ASSERT_TRUE(programs.ok());
  const ExprProgram& p = programs->first;
  ASSERT_EQ(p.outputs.size(), 2u);  // c, h
  EXPECT_NE(p.code[static_cast<size_t>(p.outputs[0])].op, ExprOp::kRoundBf16);
  EXPECT_EQ(p.code[static_cast<size_t>(p.outputs[1])].op, ExprOp::kRoundBf16);
}

}  // namespace
}  // namespace ampc
