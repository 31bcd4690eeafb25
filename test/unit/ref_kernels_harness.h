// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs one call on the reference kernels. Values are doubles in logical row-major order, whatever
// the operand's dtype and layout. Outputs and workspace start as garbage and have exactly their
// size, so that a sanitizer sees every access beyond them.

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ref/elements.h"
#include "kernels/ref/ref.h"

namespace ampc::testing {

using Values = std::vector<double>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr DType kF32 = DType::kFloat32, kF64 = DType::kFloat64, kF16 = DType::kFloat16;
inline constexpr DType kBf16 = DType::kBFloat16, kI64 = DType::kInt64, kI32 = DType::kInt32,
                       kBool = DType::kBool;
inline constexpr Layout kRow = Layout::kRowMajor, kLast = Layout::kChannelsLast;

/// An operand; without values it is an output.
struct Tensor {
  TensorDesc desc;
  Values values;
};

inline Tensor Of(DType t, Dims dims, Values values = {}, Layout layout = kRow) {
  return {{t, std::move(dims), layout}, std::move(values)};
}
inline Tensor Scalar(DType t, double v) { return Of(t, {}, {v}); }
inline Tensor Absent() { return {}; }

/// `n` numbers around 0, of about one digit after the point so that ties and exact sums happen.
inline Values Random(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> digit(-20, 20);
  Values v(static_cast<size_t>(n));
  for (double& x : v) x = digit(random) / 8.0;
  return v;
}
inline Tensor RandomTensor(DType t, Dims dims, uint32_t seed, Layout layout = kRow) {
  const int64_t n = NumElements(dims);
  return Of(t, std::move(dims), Random(n, seed), layout);
}

/// Place in memory of each logical element.
inline std::vector<int64_t> Places(const TensorDesc& d) {
  const std::vector<int64_t> strides = StridesOf(d.dims, d.layout);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < d.elements(); ++i) {
    int64_t rest = i, at = 0;
    for (size_t axis = d.dims.size(); axis-- > 0;) {
      at += rest % d.dims[axis] * strides[axis];
      rest /= d.dims[axis];
    }
    places.push_back(at);
  }
  return places;
}

struct RunResult {
  std::vector<Values> y;
  int64_t index_error = 0;
};

/// Output `output` uses the memory of input `input`.
using Alias = std::pair<size_t, size_t>;  // {input, output}

inline CallSpec SpecOf(std::string_view kernel, const Attrs& params,
                       const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  CallSpec call{kernel, params, {}, {}};
  for (const Tensor& t : inputs) call.inputs.push_back(t.desc);
  for (const Tensor& t : outputs) call.outputs.push_back(t.desc);
  return call;
}

inline const Implementation& Reference(std::string_view kernel) {
  for (const Implementation& impl : ref::Implementations()) {
    if (impl.kernel == kernel) return impl;
  }
  ADD_FAILURE() << "no reference for " << kernel;
  return ref::Implementations()[0];
}

/// Memory of the operand's exact size; garbage where it has no values.
inline std::vector<std::byte> Buffer(const Tensor& t) {
  std::vector<std::byte> bytes(static_cast<size_t>(t.desc.bytes()), std::byte{0xA5});
  if (t.values.empty()) return bytes;
  const std::vector<int64_t> places = Places(t.desc);
  EXPECT_EQ(places.size(), t.values.size());
  for (size_t i = 0; i < places.size(); ++i)
    ref::Store<double>(t.desc.dtype, bytes.data(), places[i], t.values[i]);
  return bytes;
}

inline RunResult RunCall(const std::string& kernel, const Attrs& params,
                         const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                         const std::vector<Alias>& aliases = {}) {
  RunResult result;
  const Implementation& impl = Reference(kernel);
  Result<std::unique_ptr<PreparedKernel>> prepared =
      impl.prepare(SpecOf(kernel, params, inputs, outputs), {});
  if (!prepared.ok()) {
    ADD_FAILURE() << prepared.status().ToString();
    result.y.resize(outputs.size(), Values(64, kNan));
    return result;
  }
  std::vector<std::vector<std::byte>> in_bytes, out_bytes;
  for (const Tensor& t : inputs) in_bytes.push_back(Buffer(t));
  for (const Tensor& t : outputs) out_bytes.push_back(Buffer(t));
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(inputs[i].desc.present() ? in_bytes[i].data() : nullptr);
  for (size_t i = 0; i < outputs.size(); ++i)
    out.push_back(outputs[i].desc.present() ? out_bytes[i].data() : nullptr);
  for (const auto& [input, output] : aliases) out[output] = in_bytes[input].data();
  // Zero-size vectors may have a null pointer, which means "absent" to a kernel.
  std::byte nothing[8] = {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].desc.present() && in[i] == nullptr) in[i] = nothing;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].desc.present() && out[i] == nullptr) out[i] = nothing;
  }
  std::vector<std::byte> workspace(static_cast<size_t>((*prepared)->workspace_bytes()),
                                   std::byte{0x5A});
  (*prepared)->Run(in, out, workspace.data(), RunContext{nullptr, &result.index_error});
  for (size_t i = 0; i < outputs.size(); ++i) {
    Values values;
    for (int64_t place : Places(outputs[i].desc)) {
      if (out[i] != nullptr)
        values.push_back(ref::Load<double>(outputs[i].desc.dtype, out[i], place));
    }
    result.y.push_back(std::move(values));
  }
  return result;
}

/// The first output.
inline Values Run1(const std::string& kernel, const Attrs& params,
                   const std::vector<Tensor>& inputs, const Tensor& output,
                   const std::vector<Alias>& aliases = {}) {
  return RunCall(kernel, params, inputs, {output}, aliases).y[0];
}

/// The message of a refused call.
inline std::string Refusal(const std::string& kernel, const Attrs& params,
                           const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  const Status status = ref::CheckCall(SpecOf(kernel, params, inputs, outputs));
  if (status.ok()) return "accepted";
  EXPECT_TRUE(status.id() == "E0802" || status.id() == "E0901") << status.id();
  EXPECT_EQ(status.error_class(), ErrorClass::kBadInput);
  return status.message();
}

inline double DotOf(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

inline void ExpectNear(const Values& got, const Values& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << ": " << got[i];
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << "element " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
    }
  }
}

/// d f(x) / d x by central differences, in double.
template <typename F>
Values NumericGradient(const Values& x, F f, double step = 1e-5) {
  Values gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    Values up = x, down = x;
    up[i] += step;
    down[i] -= step;
    gradient[i] = (f(up) - f(down)) / (2 * step);
  }
  return gradient;
}

}  // namespace ampc::testing
