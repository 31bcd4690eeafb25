// SPDX-License-Identifier: Apache-2.0
#pragma once
// A hand-built plan that trains and evaluates: y = x w with loss mean(y), SGD, a finite check,
// counters of applied and skipped updates, and an eval program that counts every sample once.

#include "test/unit/tiny_plan.h"

#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ampc::trainer_test {

using plan::Plan;
using plan::ProgramBuilder;
using plan::Role;

inline void AddState(Plan* plan, const std::string& name, DType dtype, Dims dims, Role role,
                     double fill) {
  plan::State s;
  s.name = name;
  s.role = role;
  s.desc = {dtype, std::move(dims)};
  s.initial.fill = fill;
  plan->states.push_back(s);
}

inline void AddFeed(Plan* plan, const std::string& name, plan::Feed::Kind kind, Dims dims,
                    const std::string& program) {
  plan::Feed feed;
  feed.name = name;
  feed.kind = kind;
  feed.desc = {DType::kFloat32, std::move(dims)};
  feed.program = program;
  plan->feeds.push_back(feed);
}

inline void AddStep(Plan* plan) {
  ProgramBuilder b(plan, "step");
  const int32_t x = b.Feed(0), w = b.State("w"), lr = b.State("lr"), zero = b.State("zero");
  const int32_t applied = b.State("applied"), skips = b.State("skips");
  const int32_t dy = b.Constant(
      "dy", HostTensor::Of<float>(DType::kFloat32, {2, 1}, std::vector<float>{.5F, .5F}));
  const int32_t y = b.Block("y", DType::kFloat32, {2, 1});
  const int32_t loss = b.Block("loss", DType::kFloat32, {});
  const int32_t dw = b.Block("dw", DType::kFloat32, {3, 1});
  const int32_t found = b.Block("found_inf", DType::kBool, {}),
                norm = b.Block("norm", DType::kFloat32, {});
  const int32_t first = b.Block("first", DType::kBool, {});
  const int32_t grad = b.Block("grad:w", DType::kFloat32, {3, 1});
  b.Call("matmul", {}, {x, w}, {y}, "/fc/MatMul");
  b.Call("reduce", {{"op", std::string("mean")}, {"axes", std::vector<int64_t>{0, 1}}}, {y}, {loss},
         "loss");
  b.Call("matmul", {{"trans_a", int64_t{1}}}, {x, dy}, {dw}, "grad of /fc/MatMul");
  b.Call("unscale_check", {}, {-1, dw}, {grad, found, norm}, "check");
  b.Call("map", {{"expr", std::string("x0 == 0")}}, {applied}, {first}, "first");
  const int32_t w_new = b.Over(w, "w.next");
  b.Call("sgd", {{"count", int64_t{1}}, {"nesterov", int64_t{0}}},
         {found, lr, zero, zero, zero, first, w, grad}, {w_new}, "update");
  const int32_t applied_new = b.Over(applied, "applied.next"),
                skips_new = b.Over(skips, "skips.next");
  b.Call("map", {{"expr", std::string("x0 + (x1 == 0)")}}, {applied, found}, {applied_new},
         "count");
  b.Call("map", {{"expr", std::string("where(x1, x0 + 1, 0)")}}, {skips, found}, {skips_new},
         "count");
  for (auto [name, tensor] :
       std::initializer_list<std::pair<const char*, int32_t>>{{"loss", loss},
                                                              {"lr", lr},
                                                              {"found_inf", found},
                                                              {"grad_norm", norm},
                                                              {"applied", applied_new},
                                                              {"skips", skips_new}})
    b.Output(name, tensor);
  b.Finish();
}

inline void AddEval(Plan* plan) {
  ProgramBuilder b(plan, "eval");
  const int32_t x = b.Feed(0), valid = b.Feed(1), w = b.State("w");
  const int32_t y = b.Block("y", DType::kFloat32, {2, 1});
  const int32_t masked = b.Block("masked", DType::kFloat32, {2});
  const int32_t sum = b.Block("loss_sum", DType::kFloat32, {}),
                count = b.Block("loss_count", DType::kFloat32, {});
  const Attrs add{{"op", std::string("sum")}, {"axes", std::vector<int64_t>{0}}};
  b.Call("matmul", {}, {x, w}, {y}, "/fc/MatMul");
  const int32_t flat = b.Block("flat", DType::kFloat32, {2});
  b.Call("reduce", {{"op", std::string("sum")}, {"axes", std::vector<int64_t>{1}}}, {y}, {flat},
         "flat");
  b.Call("map", {{"expr", std::string("where(x1, x0, 0)")}}, {flat, valid}, {masked}, "mask");
  b.Call("reduce", add, {masked}, {sum}, "sum");
  b.Call("reduce", add, {valid}, {count}, "count");
  b.Output("loss_sum", sum);
  b.Output("loss_count", count);
  b.Output("y", y);
  b.Finish();
}

inline Plan MakePlan() {
  Plan plan;
  plan.producer = "ampc test";
  plan.precision = "fp32";
  plan.policy_name = "fp32";
  plan.source_name = "line.onnx";
  plan.config =
      "optimizer: {kind: sgd, momentum: 0}\nloss_scale: auto\nparam_group: [{glob: w, lr: 0.5}]\n";
  plan.max_skips = 3;
  plan.weights = std::make_shared<plan::VectorWeights>(plan::BytesOf<float>({1, 2, 3}));
  AddState(&plan, "w", DType::kFloat32, {3, 1}, Role::kWeight, 0);
  plan.states[0].source = "fc.weight";
  plan.states[0].initial = {.kind = plan::Initial::Kind::kBytes, .offset = 0, .length = 12};
  AddState(&plan, "lr", DType::kFloat32, {}, Role::kHyper, 0.5);
  AddState(&plan, "zero", DType::kFloat32, {}, Role::kHyper, 0);
  AddState(&plan, "applied", DType::kInt64, {}, Role::kCounter, 0);
  AddState(&plan, "skips", DType::kInt64, {}, Role::kCounter, 0);
  AddState(&plan, "total", DType::kFloat64, {}, Role::kHyper, std::nan(""));
  plan.states.back().initial.kind = plan::Initial::Kind::kAuto;
  plan.settings = {{"lr", 1}, {"lr_schedule.total", 5}};
  plan::Export weight;
  weight.initializer = "fc.weight";
  weight.dims = {3, 1};
  weight.state = 0;
  plan.exports.push_back(weight);
  AddFeed(&plan, "x", plan::Feed::Kind::kInput, {2, 3}, "");
  AddFeed(&plan, "valid", plan::Feed::Kind::kValid, {2}, "eval");
  AddStep(&plan);
  AddEval(&plan);
  return plan;
}

}  // namespace ampc::trainer_test
