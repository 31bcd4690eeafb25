// SPDX-License-Identifier: Apache-2.0
// Every gradient rule against central differences in double, over the samples table; ties and edges
// against PyTorch's answers. AMPC_VERBOSE=1 prints op, samples and the largest error.
//
// The loss is the sum of the outputs times fixed random weights. The rule's gradient comes from the
// differentiated graph (so training forms are used as in training), the numeric one from the graph
// as the sample wrote it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include <gtest/gtest.h>

#include "compiler/ir/builder.h"
#include "passes/passes.h"
#include "test/conformance/samples.h"

namespace ampc::conformance {
namespace {

constexpr double kTolerance = 1e-6;

/// Rows that have neither gradient nor training form, and why that is right.
const std::map<std::string, std::string> kNoRule = {
    {"Dropout", "becomes DropoutTrain, or its input, before the backward pass is made"},
    {"RandomUniform", "becomes Random"},
    {"RandomNormal", "becomes Random"},
    {"RandomUniformLike", "becomes Random"},
    {"RandomNormalLike", "becomes Random"},
    {"Bernoulli", "becomes a comparison with Random"},
    {"ai.ampc.Random", "has no operand that numbers flow into"},
    {"ai.ampc.Map", "made by gradient rules"},
    {"ai.ampc.MatMulEx", "made by gradient rules"},
    {"ai.ampc.ConvEx", "made by gradient rules"},
    {"ai.ampc.ConvGradData", "made by gradient rules"},
    {"ai.ampc.ConvGradWeights", "made by gradient rules"},
    {"ai.ampc.MaxPoolGrad", "made by gradient rules"},
    {"ai.ampc.AveragePoolGrad", "made by gradient rules"},
    {"ai.ampc.GridSampleGradInput", "made by gradient rules"},
    {"ai.ampc.GridSampleGradGrid", "made by gradient rules"},
    {"ai.ampc.BatchNormGrad", "made by gradient rules"},
    {"ai.ampc.NormalizeGrad", "made by gradient rules"},
    {"ai.ampc.AttentionGrad", "made by gradient rules"},
    {"ai.ampc.RnnGrad", "made by gradient rules"},
    {"ai.ampc.GruGrad", "made by gradient rules"},
    {"ai.ampc.LstmGrad", "made by gradient rules"},
    {"ai.ampc.SoftmaxGrad", "made by gradient rules"},
    {"ai.ampc.LogSoftmaxGrad", "made by gradient rules"},
    {"ai.ampc.CrossEntropyGrad", "made by gradient rules"},
    {"ai.ampc.NllGrad", "made by gradient rules"},
    {"ai.ampc.SliceGrad", "made by gradient rules"},
    {"ai.ampc.CumProdGrad", "made by gradient rules"},
    {"ai.ampc.ToLayout", "made by the layout pass, behind the backward pass"},
    {"ai.ampc.UnscaleCheck", "works on gradients"},
    {"ai.ampc.ClipNorm", "works on gradients"},
    {"ai.ampc.Sgd", "optimizer"},
    {"ai.ampc.Adam", "optimizer"},
    {"ai.ampc.ScalerUpdate", "works on the loss scale"},
};

std::string FullName(const OpDef& op) {
  return op.domain.empty() ? std::string(op.name) : fmt::format("{}.{}", op.domain, op.name);
}

bool Differentiable(const OpDef& op) {
  return (op.grad != nullptr && op.grad != NoGradient) || op.training != nullptr;
}

double* DoublesOf(HostTensor& t) { return reinterpret_cast<double*>(t.data.data()); }

/// Gradients by the rules, one tensor per parameter (empty dtype: none flows).
Result<std::vector<HostTensor>> RuleGradients(Instance& instance) {
  const CompileOptions options;
  Diagnostics diagnostics;
  PassContext context{options, diagnostics};
  const std::vector<ir::ValueId> parameters = instance.parameters;
  AMPC_TRY(Differentiate(*instance.module, context));
  Values values = instance.values;
  AMPC_TRY(EvaluateGraph(instance.graph(), values));
  std::vector<HostTensor> grads;
  for (const ir::ValueId p : parameters) {
    const ir::ValueId g = instance.graph().FindOutput("grad:" + instance.graph().value(p).name);
    grads.push_back(g == ir::kNone ? HostTensor{} : values.at(g));
    if (g != ir::kNone && instance.graph().type(g) != instance.graph().type(p)) {
      return InternalError("E7999", "the gradient of {} has type {}",
                           ToString(instance.graph().type(p)), ToString(instance.graph().type(g)));
    }
  }
  return grads;
}

Result<double> Loss(const Instance& instance, Values values) {
  AMPC_TRY(EvaluateGraph(instance.graph(), values));
  return values.at(instance.graph().FindOutput("loss")).GetDouble(0);
}

/// Fourth-order central difference for element i of a parameter.
Result<double> Difference(const Instance& instance, ir::ValueId parameter, int64_t i) {
  Values values = instance.values;
  double& x = DoublesOf(values.at(parameter))[i];
  const double at = x, h = 1e-3;
  double sum = 0;
  for (const auto& [step, weight] : {std::pair{-2, 1.0}, {-1, -8.0}, {1, 8.0}, {2, -1.0}}) {
    x = at + step * h;
    AMPC_ASSIGN(const double loss, Loss(instance, values));
    sum += weight * loss;
  }
  return sum / (12 * h);
}

/// Largest error of a sample, each element against its own size or the tensor's root mean square.
double LargestError(const Sample& sample, uint32_t seed) {
  auto instance = Build(sample, DType::kFloat64, seed);
  if (!instance.ok()) return ADD_FAILURE() << instance.status().ToString(), 0;
  if (instance->parameters.empty()) return 0;
  auto has_loss = AddLoss(*instance, sample);
  if (!has_loss.ok() || !*has_loss)
    return ADD_FAILURE() << "a differentiated sample has no float output", 0;
  auto forward = Build(sample, DType::kFloat64, seed);
  auto forward_loss = AddLoss(*forward, sample);
  auto rule = RuleGradients(*instance);
  if (!rule.ok()) return ADD_FAILURE() << rule.status().ToString(), 0;
  double largest = 0;
  for (size_t p = 0; p < rule->size(); ++p) {
    const ir::ValueId parameter = forward->parameters[p];
    const int64_t n = forward->values.at(parameter).elements();
    if ((*rule)[p].dtype == DType::kNone) {
      ADD_FAILURE() << "no gradient for " << forward->graph().value(parameter).name;
      continue;
    }
    std::vector<double> numeric(static_cast<size_t>(n));
    double square = 0;
    for (int64_t i = 0; i < n; ++i) {
      auto d = Difference(*forward, parameter, i);
      if (!d.ok()) return ADD_FAILURE() << d.status().ToString(), 0;
      numeric[i] = *d;
      square += *d * *d;
    }
    const double rms = std::sqrt(square / static_cast<double>(std::max<int64_t>(n, 1)));
    for (int64_t i = 0; i < n; ++i) {
      const double found = (*rule)[p].GetDouble(i);
      const double error =
          std::abs(found - numeric[i]) / std::max({std::abs(numeric[i]), rms, 1e-6});
      if (!(error <= kTolerance)) {
        ADD_FAILURE() << forward->graph().value(parameter).name << "[" << i << "]: rule " << found
                      << ", differences " << numeric[i];
        return error;
      }
      largest = std::max(largest, error);
    }
  }
  return largest;
}

TEST(Samples, CoverEveryRow) {
  std::set<std::string> sampled;
  for (const Sample& s : AllSamples()) sampled.insert(s.op);
  for (const OpDef* op : AllOps())
    EXPECT_TRUE(sampled.contains(FullName(*op))) << FullName(*op) << " has no sample";
}

TEST(Samples, DifferentiateEveryRowThatHasARule) {
  std::set<std::string> differentiated;
  for (const Sample& s : AllSamples()) {
    for (const Arg& arg : s.args) {
      if (arg.differentiate) differentiated.insert(s.op);
    }
  }
  for (const OpDef* op : AllOps()) {
    EXPECT_TRUE(!Differentiable(*op) || differentiated.contains(FullName(*op))) << FullName(*op);
  }
}

TEST(Gradient, EveryRowHasARuleOrAReason) {
  for (const OpDef* op : AllOps()) {
    const bool listed = kNoRule.contains(FullName(*op));
    EXPECT_EQ(op->grad == nullptr && op->training == nullptr, listed) << FullName(*op);
  }
}

TEST(Gradient, RulesAgreeWithDifferences) {
  struct Row {
    int samples = 0;
    double error = 0;
  };
  std::map<std::string, Row> table;
  for (const Sample& sample : AllSamples()) {
    const OpDef* op = FindOp(sample.domain(), sample.name());
    if (op == nullptr || !Differentiable(*op) || sample.types_only || sample.large) continue;
    SCOPED_TRACE(Describe(sample));
    Row& row = table[sample.op];
    for (const uint32_t seed : {1u, 2u})
      row.error = std::max(row.error, LargestError(sample, seed));
    ++row.samples;
  }
  if (std::getenv("AMPC_VERBOSE") == nullptr) return;
  for (const auto& [op, row] : table)
    std::printf("%-28s %3d samples  largest error %.1e\n", op.c_str(), row.samples, row.error);
}

// ---- ties and edges

/// Operands with explicit values, the weights of the loss left at 1, and PyTorch's gradient of each
/// operand.
struct Edge {
  std::string op;
  std::vector<std::pair<Dims, std::vector<double>>> args;
  std::vector<std::vector<double>> gradients;
  Attrs attrs = {};
  std::vector<double> condition = {};  ///< Where's first operand
};

Sample SampleOf(const Edge& edge) {
  Sample s{.op = edge.op, .args = {}, .attrs = edge.attrs};
  if (!edge.condition.empty()) {
    s.args.push_back({.kind = Arg::Kind::kFixed,
                      .dtype = DType::kBool,
                      .dims = {static_cast<int64_t>(edge.condition.size())},
                      .values = edge.condition});
  }
  for (const auto& [dims, values] : edge.args)
    s.args.push_back({.dims = dims, .values = values, .differentiate = true});
  return s;
}

std::vector<Edge> Edges() {
  const double nan = std::nan(""), inf = HUGE_VAL;
  const auto ints = [](std::vector<int64_t> v) { return Attr(std::move(v)); };
  return {
      {"Relu", {{{3}, {-1, 0, 2}}}, {{0, 0, 1}}},
      {"Abs", {{{3}, {-1, 0, 2}}}, {{-1, 0, 1}}},
      {"LeakyRelu", {{{2}, {0, -1}}}, {{0.5, 0.5}}, {{"alpha", 0.5}}},
      {"PRelu", {{{2}, {0, -2}}, {{2}, {0.5, 0.5}}}, {{0.5, 0.5}, {0, -2}}},
      {"HardSigmoid", {{{2}, {-2.5, 2.5}}}, {{0, 0}}},
      {"Clip", {{{4}, {-1, 0, 1, 2}}, {{}, {0}}, {{}, {1}}}, {{0, 1, 1, 0}, {}, {}}},
      {"Max", {{{3}, {1, 2, 3}}, {{3}, {1, 3, 2}}}, {{0.5, 0, 1}, {0.5, 1, 0}}},
      {"Min", {{{3}, {1, 2, 3}}, {{3}, {1, 3, 2}}}, {{0.5, 1, 0}, {0.5, 0, 1}}},
      {"ReduceMax", {{{4}, {3, 1, 3, 2}}}, {{0.5, 0, 0.5, 0}}},
      {"ReduceMin", {{{4}, {1, 3, 1, 1}}}, {{1.0 / 3, 0, 1.0 / 3, 1.0 / 3}}},
      {"ReduceL1", {{{3}, {-1, 0, 2}}}, {{-1, 0, 1}}},
      {"ReduceL2", {{{2}, {0, 0}}}, {{0, 0}}},
      {"MaxPool", {{{1, 1, 4}, {1, 3, 3, 2}}}, {{0, 2, 1, 0}}, {{"kernel_shape", ints({2})}}},
      {"GlobalMaxPool", {{{1, 1, 3}, {2, 2, 1}}}, {{1, 0, 0}}},
      {"Pow", {{{2}, {0, 0}}, {{2}, {2, 0}}}, {{0, 0}, {0, 0}}},
      {"Where", {{{2}, {1, nan}}, {{2}, {inf, 2}}}, {{1, 0}, {0, 1}}, {}, {1, 0}},
      {"ReduceProd", {{{3}, {2, 0, 3}}}, {{0, 6, 0}}},
      {"ReduceProd", {{{3}, {0, 0, 3}}}, {{0, 0, 0}}},
  };
}

TEST(Gradient, FollowsPyTorchAtTiesAndEdges) {
  for (const Edge& edge : Edges()) {
    const Sample sample = SampleOf(edge);
    SCOPED_TRACE(Describe(sample));
    auto instance = Build(sample, DType::kFloat64);
    ASSERT_TRUE(instance.ok()) << instance.status().ToString();
    auto loss = AddLoss(*instance, sample, Weights::kOnes);
    ASSERT_TRUE(loss.ok() && *loss);
    const auto grads = RuleGradients(*instance);
    ASSERT_TRUE(grads.ok()) << grads.status().ToString();
    for (size_t p = 0; p < edge.gradients.size(); ++p) {
      for (size_t i = 0; i < edge.gradients[p].size(); ++i) {
        EXPECT_DOUBLE_EQ((*grads)[p].GetDouble(static_cast<int64_t>(i)), edge.gradients[p][i])
            << "operand " << p << ", element " << i;
      }
    }
  }
}

TEST(Gradient, SqrtOfZeroPassesNoNanWhereNothingFlows) {
  // Where selects the other branch: Sqrt's dy is 0 there, and 0 / 0 must not become its gradient.
  const Sample sample{.op = "Sqrt",
                      .args = {{.dims = {2}, .values = {0, 4}, .differentiate = true}}};
  auto instance = Build(sample, DType::kFloat64);
  ASSERT_TRUE(instance.ok());
  ir::Graph& g = instance->graph();
  ir::Builder b(g, instance->module->locs.Intern("loss"));
  const ir::ValueId mask =
      b.Constant(HostTensor::Of<uint8_t>(DType::kBool, {2}, std::vector<uint8_t>{0, 1}));
  const ir::ValueId y = g.node(instance->node).outputs[0];
  g.SetOutput("loss",
              b.ReduceSum(b.Op("Where", {mask, y, b.Scalar(DType::kFloat64, 0)}), {0}, false));
  ASSERT_FALSE(b.failed());
  const auto grads = RuleGradients(*instance);
  ASSERT_TRUE(grads.ok()) << grads.status().ToString();
  EXPECT_EQ((*grads)[0].GetDouble(0), 0);
  EXPECT_EQ((*grads)[0].GetDouble(1), 0.25);
}

TEST(Gradient, StopsAtRowsWithoutOne) {
  int checked = 0;
  for (const Sample& sample : AllSamples()) {
    const OpDef* op = FindOp(sample.domain(), sample.name());
    if (op == nullptr || op->grad != NoGradient) continue;
    SCOPED_TRACE(Describe(sample));
    auto instance = Build(sample, DType::kFloat64);
    ASSERT_TRUE(instance.ok()) << instance.status().ToString();
    if (instance->parameters.empty() ||
        instance->graph().type(instance->graph().node(instance->node).outputs[0]).elements() == 0)
      continue;
    auto loss = AddLoss(*instance, sample);
    ASSERT_TRUE(loss.ok()) << loss.status().ToString();
    if (!*loss) continue;  // its outputs are integers or booleans: nothing to seed
    const auto grads = RuleGradients(*instance);
    ASSERT_FALSE(grads.ok());
    EXPECT_EQ(grads.status().id(), "E0405");
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace ampc::conformance
