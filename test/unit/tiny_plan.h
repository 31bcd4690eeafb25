// SPDX-License-Identifier: Apache-2.0
#pragma once
// A hand-built plan for the tests of plan, executor and checkpoints: one linear layer, trained by
// SGD.
//
//   y = x w          x [2,3] feed, w [3,2] state
//   loss = mean(y)   so that dy = 1/4 everywhere
//   dw = x' dy, w -= lr * dw; w16 = half(w)

#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/plan/memory_plan.h"
#include "runtime/plan/plan.h"

namespace ampc::plan {

/// Weight bytes in memory.
class VectorWeights : public WeightSection {
 public:
  explicit VectorWeights(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  Status Read(int64_t offset, std::span<std::byte> out) const override {
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::vector<std::byte> bytes_;
};

template <typename T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// Adds buffers, tensors and calls to a program, by name.
class ProgramBuilder {
 public:
  ProgramBuilder(Plan* plan, std::string name) : plan_(plan) { program_.name = std::move(name); }

  int32_t Block(std::string name, DType dtype, Dims dims) {
    const TensorDesc desc{dtype, std::move(dims)};
    return Add(std::move(name), desc, {.space = Space::kBlock, .bytes = desc.bytes()});
  }
  int32_t State(std::string_view name) {
    for (size_t i = 0; i < plan_->states.size(); ++i) {
      const ampc::plan::State& s = plan_->states[i];
      if (s.name != name) continue;
      return Add(
          s.name, s.desc,
          {.space = Space::kState, .index = static_cast<int32_t>(i), .bytes = s.desc.bytes()});
    }
    return -2;  // out of range: the verifier says so
  }
  int32_t Feed(int32_t index) {
    const ampc::plan::Feed& f = plan_->feeds[static_cast<size_t>(index)];
    return Add(f.name, f.desc, {.space = Space::kFeed, .index = index, .bytes = f.desc.bytes()});
  }
  int32_t Constant(std::string name, HostTensor value) {
    const TensorDesc desc{value.dtype, value.dims};
    plan_->constants.push_back(std::move(value));
    return Add(std::move(name), desc,
               {.space = Space::kConstant,
                .index = static_cast<int32_t>(plan_->constants.size()) - 1,
                .bytes = desc.bytes()});
  }
  /// Another value in the place of `of`.
  int32_t Over(int32_t of, std::string name) {
    Tensor t = program_.tensors[static_cast<size_t>(of)];
    t.name = std::move(name);
    program_.tensors.push_back(t);
    return static_cast<int32_t>(program_.tensors.size()) - 1;
  }
  void Call(std::string kernel, Attrs params, std::vector<int32_t> inputs,
            std::vector<int32_t> outputs, std::string loc = "") {
    program_.calls.push_back({std::move(kernel), std::move(params), std::move(inputs),
                              std::move(outputs), std::move(loc)});
  }
  void Output(std::string name, int32_t tensor) {
    program_.outputs.push_back({std::move(name), tensor});
  }

  Program& program() { return program_; }
  /// Plans the memory and adds the program to the plan.
  void Finish() {
    PlanMemory(program_);
    plan_->programs.push_back(std::move(program_));
  }

 private:
  int32_t Add(std::string name, TensorDesc desc, Buffer buffer) {
    program_.buffers.push_back(buffer);
    Tensor t;
    t.name = std::move(name);
    t.desc = std::move(desc);
    t.buffer = static_cast<int32_t>(program_.buffers.size()) - 1;
    program_.tensors.push_back(std::move(t));
    return static_cast<int32_t>(program_.tensors.size()) - 1;
  }

  Plan* plan_;
  Program program_;
};

inline void AddScalarState(Plan* plan, std::string name, double value) {
  State s;
  s.name = std::move(name);
  s.role = Role::kHyper;
  s.desc = {DType::kFloat32, {}};
  s.initial.fill = value;
  plan->states.push_back(s);
}

/// Initial w = 1..6, lr = 0.5.
inline Plan TinyPlan() {
  Plan plan;
  plan.producer = "ampc test";
  plan.precision = "fp32";
  plan.policy_name = "fp32";
  plan.recipe = "loss: output\n";
  plan.source_name = "tiny.onnx";
  plan.policy_hash = 0xFFFFFFFFFFFFFFFFull;
  plan.weights = std::make_shared<VectorWeights>(BytesOf<float>({1, 2, 3, 4, 5, 6, 7, 8}));

  State w;
  w.name = "w";
  w.desc = {DType::kFloat32, {3, 2}};
  w.source = "fc.weight";
  w.initial = {.kind = Initial::Kind::kBytes, .offset = 0, .length = 24};
  plan.states.push_back(w);
  State w16;
  w16.name = "w.low";
  w16.role = Role::kLowCopy;
  w16.desc = {DType::kFloat16, {3, 2}};
  w16.initial = {.kind = Initial::Kind::kDerived, .derived_from = 0};
  plan.states.push_back(w16);
  AddScalarState(&plan, "lr", 0.5);
  AddScalarState(&plan, "zero", 0);
  plan.settings.push_back({"lr", 2});
  Feed x_feed;
  x_feed.name = "x";
  x_feed.desc = {DType::kFloat32, {2, 3}};
  plan.feeds.push_back(x_feed);
  plan.exports.push_back(
      {.initializer = "fc.weight", .dtype = DType::kFloat32, .dims = {3, 2}, .state = 0});
  plan.exports.push_back(
      {.initializer = "frozen", .dtype = DType::kFloat32, .dims = {2}, .offset = 24, .length = 8});

  ProgramBuilder b(&plan, "step");
  const int32_t x = b.Feed(0), w_old = b.State("w"), w_low = b.State("w.low");
  const int32_t lr = b.State("lr"), zero = b.State("zero");
  const int32_t no = b.Constant("no", HostTensor::Scalar(DType::kBool, 0));
  const int32_t dy = b.Constant(
      "dy",
      HostTensor::Of<float>(DType::kFloat32, {2, 2}, std::vector<float>{.25F, .25F, .25F, .25F}));
  const int32_t y = b.Block("y", DType::kFloat32, {2, 2});
  const int32_t loss = b.Block("loss", DType::kFloat32, {});
  const int32_t dw = b.Block("dw", DType::kFloat32, {3, 2});
  const int32_t w_new = b.Over(w_old, "w.next"), w_low_new = b.Over(w_low, "w.low.next");
  b.Call("matmul", {}, {x, w_old}, {y}, "/fc/MatMul");
  b.Call("reduce", {{"op", std::string("mean")}, {"axes", std::vector<int64_t>{0, 1}}}, {y}, {loss},
         "loss");
  b.Call("matmul", {{"trans_a", int64_t{1}}}, {x, dy}, {dw}, "grad of /fc/MatMul");
  b.Call("sgd", {{"count", int64_t{1}}, {"nesterov", int64_t{0}}},
         {no, lr, zero, zero, zero, no, w_old, dw}, {w_new}, "update");
  b.Call("map", {{"expr", std::string("x0")}}, {w_new}, {w_low_new}, "refresh");
  b.Output("loss", loss);
  b.Finish();
  return plan;
}

}  // namespace ampc::plan
