// SPDX-License-Identifier: Apache-2.0
// CPU implementations of the end of a step: the bits of the reference.

#include <algorithm>

#include "test/unit/cpu_kernels_harness.h"

namespace ampc::kernel_test {
namespace {

// ---- optimizers: the reference's bits ----

/// `lists` of three tensors each behind the scalars.
void AddLists(std::vector<TensorDesc>& to, int lists, DType type) {
  for (int i = 0; i < lists; ++i) {
    for (const Dims& d : {Dims{3, 70}, Dims{40001}, Dims{1}}) to.push_back(Desc(type, d));
  }
}

/// Non-negative values for tensors from `first` on: second moments.
void FillPositive(Case& c, size_t first) {
  c.values.resize(c.inputs.size());
  for (size_t i = first; i < c.inputs.size(); ++i) {
    c.values[i].resize(static_cast<size_t>(c.inputs[i].elements()));
    for (size_t k = 0; k < c.values[i].size(); ++k)
      c.values[i][k] = static_cast<double>(k % 13) / 8;
  }
}

TEST_F(CpuKernels, AdamHasTheBitsOfTheReference) {
  const TensorDesc scalar = Desc(kF32, {}), flag = Desc(DType::kBool, {});
  for (int64_t decoupled : {0, 1}) {
    for (double skip : {0.0, 1.0}) {
      Case c{"adam",
             {{"count", int64_t{3}}, {"decoupled", decoupled}},
             {flag, scalar, scalar, scalar, scalar, scalar, scalar, scalar, scalar, scalar},
             {}};
      AddLists(c.inputs, 4, kF32);
      AddLists(c.outputs, 3, kF32);
      FillPositive(c, 10 + 9);
      const double values[] = {skip, 1e-3, 0.0123, 0.9, 0.1, 0.999, 0.001, 0.0447, 1e-8, 0.01};
      for (size_t i = 0; i < 10; ++i) c.values[i] = {values[i]};
      ExpectSameBits(*Cpu("adam"), Ref("adam"), c);
      for (int k = 0; k < 3; ++k) {
        c.in_place.push_back({10 + k, k});
        c.in_place.push_back({16 + k, 3 + k});
        c.in_place.push_back({19 + k, 6 + k});
      }
      Check(c);
    }
  }
}

TEST_F(CpuKernels, SgdHasTheBitsOfTheReference) {
  const TensorDesc scalar = Desc(kF32, {}), flag = Desc(DType::kBool, {});
  for (int variant = 0; variant < 24; ++variant) {
    const bool momentum = variant % 2 == 1, nesterov = momentum && variant / 2 % 2 == 1;
    Case c{"sgd",
           {{"count", int64_t{3}},
            {"nesterov", int64_t{nesterov}},
            {"maximize", int64_t{variant % 3 == 2}}},
           {flag, scalar, scalar, scalar, scalar, flag},
           {}};
    AddLists(c.inputs, momentum ? 3 : 2, kF32);
    AddLists(c.outputs, momentum ? 2 : 1, kF32);
    c.values = {{variant == 9 ? 1.0 : 0.0},        {0.05}, {0.9}, {0.1}, {1e-4},
                {variant / 4 % 2 == 1 ? 1.0 : 0.0}};
    ExpectSameBits(*Cpu("sgd"), Ref("sgd"), c);
  }
}

TEST_F(CpuKernels, UnscaleCheckMatchesTheReference) {
  const TensorDesc scalar = Desc(kF32, {}), flag = Desc(DType::kBool, {});
  for (DType t : kTypes) {
    for (int variant = 0; variant < 4; ++variant) {
      Case c{"unscale_check", {}, {variant == 3 ? TensorDesc{} : scalar}, {}};
      AddLists(c.inputs, 1, t);
      AddLists(c.outputs, 1, kF32);
      c.outputs.push_back(flag);
      c.outputs.push_back(scalar);
      FillValues(c);
      c.values[0] = {65536.0 * 3};
      if (variant == 1) c.values[2][39999] = INFINITY;
      if (variant == 2) c.values[3][0] = NAN;
      Check(c);
    }
  }
  Case huge{"unscale_check", {}, {scalar, Desc(kF32, {20})}, {Desc(kF32, {20}), flag, scalar}};
  huge.values = {{1.0}, Values(20, 3e38)};  // every value finite, the norm is not
  FillValues(huge);
  const RunResult run = kernel_test::Run(*Cpu("unscale_check"), huge, {}, std::byte{0});
  EXPECT_EQ(LoadDouble(DType::kBool, run.outputs[1].get(), 0), 1);
}

TEST_F(CpuKernels, ClipNormMatchesTheReference) {
  const TensorDesc scalar = Desc(kF32, {});
  for (double norm : {0.5, 20.0, static_cast<double>(NAN)}) {
    Case c{"clip_norm", {}, {scalar, scalar}, {}};
    AddLists(c.inputs, 1, kF32);
    AddLists(c.outputs, 1, kF32);
    c.values = {{norm}, {1.0}};
    ExpectSameBits(*Cpu("clip_norm"), Ref("clip_norm"), c);
  }
}

}  // namespace
}  // namespace ampc::kernel_test
