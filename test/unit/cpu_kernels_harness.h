// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs one call on a CPU implementation and on the reference and compares them.
//
// Inputs are random numbers rounded to the operands' dtypes; the reference gets the same numbers
// widened to double. Around the run under test: outputs and workspace start as garbage, outputs and
// workspace have guard bytes behind them, and a second run with other garbage must give the same
// bits.

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/kernel.h"
#include "runtime/base/float16.h"
#include "runtime/base/recycle.h"
#include "test/unit/count_allocations.h"

namespace ampc::kernel_test {

constexpr DType kF32 = DType::kFloat32, kF16 = DType::kFloat16, kBF16 = DType::kBFloat16;
constexpr DType kTypes[] = {kF32, kF16, kBF16};
constexpr size_t kGuard = 64;

/// Memory at a 64-byte boundary with guard bytes on both sides.
class Guarded {
 public:
  Guarded(size_t bytes, std::byte garbage) : bytes_(bytes), data_(bytes + 2 * kGuard + 64, kFence) {
    const size_t at = reinterpret_cast<uintptr_t>(data_.data()) % 64;
    start_ = kGuard + (64 - at) % 64;
    std::memset(get(), static_cast<int>(garbage), bytes);
  }
  std::byte* get() { return data_.data() + start_; }
  const std::byte* get() const { return data_.data() + start_; }
  size_t size() const { return bytes_; }
  bool GuardsIntact() const {
    for (size_t i = 0; i < data_.size(); ++i) {
      if ((i < start_ || i >= start_ + bytes_) && data_[i] != kFence) return false;
    }
    return true;
  }
  bool operator==(const Guarded& o) const {
    return bytes_ == o.bytes_ && std::memcmp(get(), o.get(), bytes_) == 0;
  }

 private:
  static constexpr std::byte kFence{0xA5};
  size_t bytes_, start_ = 0;
  std::vector<std::byte> data_;
};

inline void StoreDouble(DType t, std::byte* p, int64_t i, double v) {
  const HostTensor one = HostTensor::Scalar(t, v);
  std::memcpy(p + i * SizeOf(t), one.data.data(), one.data.size());
}
inline double LoadDouble(DType t, const std::byte* p, int64_t i) {
  HostTensor one{t, {}, std::vector<std::byte>(static_cast<size_t>(SizeOf(t)))};
  std::memcpy(one.data.data(), p + i * SizeOf(t), one.data.size());
  return one.GetDouble(0);
}

using Values = std::vector<double>;

/// One call with its operands' values.
struct Case {
  std::string kernel;
  Attrs params;
  std::vector<TensorDesc> inputs, outputs;
  std::vector<Values> values = {};  ///< of the inputs; an empty one is filled with normal numbers
  /// Terms summed into one output element, for the tolerance.
  double terms = 1;
  /// Pairs {input, output} that share memory in one more run.
  std::vector<std::pair<int, int>> in_place = {};
  uint32_t seed = 1;
};

inline TensorDesc Desc(DType t, Dims dims, Layout layout = Layout::kRowMajor) {
  return {t, std::move(dims), layout};
}

/// Values as the dtype holds them.
inline Values Rounded(DType t, const Values& v) {
  Values out(v.size());
  for (size_t i = 0; i < v.size(); ++i) out[i] = HostTensor::Scalar(t, v[i]).GetDouble(0);
  return out;
}

inline void FillValues(Case& c) {
  std::mt19937 random(c.seed);
  std::normal_distribution<double> normal;
  c.values.resize(c.inputs.size());
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.inputs[i].present()) continue;
    if (c.values[i].empty()) {
      c.values[i].resize(static_cast<size_t>(c.inputs[i].elements()));
      for (double& v : c.values[i]) v = normal(random);
    }
    c.values[i] = Rounded(c.inputs[i].dtype, c.values[i]);
  }
}

struct RunResult {
  std::vector<Guarded> outputs;
  int64_t index_error = 0;
};

/// Runs the implementation with garbage in outputs and workspace.
inline RunResult Run(const Implementation& impl, const Case& c, const PrepareOptions& options,
                     std::byte garbage, bool in_place = false) {
  RunResult result;
  const CallSpec call{c.kernel, c.params, c.inputs, c.outputs};
  const std::string reason = impl.declines(call, options);
  EXPECT_EQ(reason, "");
  auto prepared = impl.prepare(call, options);
  if (!prepared.ok()) {
    ADD_FAILURE() << prepared.status().ToString();
    return result;
  }
  std::vector<Guarded> inputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    inputs.emplace_back(static_cast<size_t>(c.inputs[i].present() ? c.inputs[i].bytes() : 0),
                        garbage);
    for (size_t k = 0; c.inputs[i].present() && k < c.values[i].size(); ++k) {
      StoreDouble(c.inputs[i].dtype, inputs[i].get(), static_cast<int64_t>(k), c.values[i][k]);
    }
  }
  for (const TensorDesc& y : c.outputs) {
    result.outputs.emplace_back(static_cast<size_t>(y.present() ? y.bytes() : 0), garbage);
  }
  for (size_t j = 0; j < c.outputs.size(); ++j) {
    out.push_back(c.outputs[j].present() ? result.outputs[j].get() : nullptr);
  }
  for (size_t i = 0; i < c.inputs.size(); ++i)
    in.push_back(c.inputs[i].present() ? inputs[i].get() : nullptr);
  if (in_place) {
    for (const auto& [i, j] : c.in_place) {
      std::memcpy(result.outputs[j].get(), inputs[i].get(), inputs[i].size());
      in[i] = result.outputs[j].get();
    }
  }
  const auto before = inputs;
  Guarded workspace(static_cast<size_t>((*prepared)->workspace_bytes()), garbage);
  RunContext context;
  context.index_error = &result.index_error;
  // oneDNN makes some of its code in the first run; a sanitizer sees the small map that it makes of
  // the arguments in every run.
  const bool onednn = impl.name == "onednn";
  if (onednn && !in_place) (*prepared)->Run(in, out, workspace.get(), context);
  const int64_t allocations = CountAllocations();
  (*prepared)->Run(in, out, workspace.get(), context);
  if (impl.name != "ref" && !(onednn && (in_place || !kRecycles))) {
    EXPECT_EQ(CountAllocations(), allocations) << "allocated while running";
  }
  EXPECT_TRUE(workspace.GuardsIntact()) << "wrote outside the workspace";
  EXPECT_TRUE(before == inputs) << "changed an input";
  for (const Guarded& y : result.outputs)
    EXPECT_TRUE(y.GuardsIntact()) << "wrote outside an output";
  return result;
}

/// Relative spacing of the dtype's numbers.
inline double Epsilon(DType t) {
  return t == DType::kFloat16    ? 0x1p-10
         : t == DType::kBFloat16 ? 0x1p-7
         : t == DType::kFloat32  ? 0x1p-23
                                 : 0;
}
/// Spacing of its subnormals.
inline double Smallest(DType t) { return t == DType::kFloat16 ? 0x1p-24 : 0x1p-126; }

/// The same call on the reference, all floats widened to double.
inline std::vector<Values> Expected(const Implementation& ref, Case c) {
  for (auto* list : {&c.inputs, &c.outputs}) {
    for (TensorDesc& t : *list) {
      if (IsFloat(t.dtype)) t.dtype = DType::kFloat64;
    }
  }
  const RunResult run = Run(ref, c, {}, std::byte{0x7F});
  std::vector<Values> out;
  for (size_t j = 0; j < run.outputs.size(); ++j) {
    Values v(c.outputs[j].present() ? static_cast<size_t>(c.outputs[j].elements()) : 0);
    for (size_t k = 0; k < v.size(); ++k) {
      v[k] = LoadDouble(c.outputs[j].dtype, run.outputs[j].get(), static_cast<int64_t>(k));
    }
    out.push_back(std::move(v));
  }
  return out;
}

/// |y - e| <= half a unit of the output's dtype + what `terms` sums in fp32 may lose, seen against
/// the root mean square of the tensor. Integers and bools are equal. NaN and infinities stand where
/// they should.
inline void ExpectNear(const TensorDesc& desc, const Guarded& y, const Values& expected,
                       double terms, int output) {
  double square = 0;
  for (double e : expected) square += std::isfinite(e) ? e * e : 0;
  const double rms = std::sqrt(square / std::max<double>(1, static_cast<double>(expected.size())));
  const double sum_error = 4 * 0x1p-23 * std::sqrt(terms);
  int shown = 0;
  for (size_t i = 0; i < expected.size() && shown < 4; ++i) {
    const double v = LoadDouble(desc.dtype, y.get(), static_cast<int64_t>(i)), e = expected[i];
    bool good;
    if (!IsFloat(desc.dtype)) {
      good = v == e;
    } else {
      const double rounded = HostTensor::Scalar(desc.dtype, e).GetDouble(0);
      const double bound = (0.51 * Epsilon(desc.dtype) + sum_error) * std::abs(e) +
                           sum_error * rms + Smallest(desc.dtype);
      good = std::isnan(e)         ? std::isnan(v)
             : std::isinf(rounded) ? v == rounded || std::abs(v - e) <= bound
                                   : std::abs(v - e) <= bound;
    }
    if (!good) {
      ++shown;
      ADD_FAILURE() << "output " << output << " element " << i << " of " << ToString(desc.dims)
                    << ": expected " << e << ", found " << v;
    }
  }
}

inline std::string Describe(const Case& c) {
  std::ostringstream text;
  text << c.kernel;
  for (const TensorDesc& t : c.inputs) {
    text << ' ' << Name(t.dtype) << ToString(t.dims)
         << (t.layout == Layout::kChannelsLast ? "cl" : "");
  }
  text << " ->";
  for (const TensorDesc& t : c.outputs) text << ' ' << Name(t.dtype) << ToString(t.dims);
  for (const auto& [name, value] : c.params.entries()) {
    text << ' ' << name << '=';
    if (const auto* s = std::get_if<std::string>(&value)) text << *s;
    if (const auto* i = std::get_if<int64_t>(&value)) text << *i;
    if (const auto* d = std::get_if<double>(&value)) text << *d;
    if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) text << ToString(*v);
  }
  return text.str();
}

/// The whole comparison; two threads, so that both ways of cutting the work are seen.
inline void CompareWithReference(const Implementation& impl, const Implementation& ref, Case c) {
  SCOPED_TRACE(Describe(c));
  FillValues(c);
  const PrepareOptions options{.threads = 2};
  const RunResult first = Run(impl, c, options, std::byte{0xFF});
  const RunResult second = Run(impl, c, options, std::byte{0x11});
  if (first.outputs.empty() || second.outputs.empty()) return;
  const std::vector<Values> expected = Expected(ref, c);
  for (size_t j = 0; j < c.outputs.size(); ++j) {
    if (!c.outputs[j].present()) continue;
    ExpectNear(c.outputs[j], first.outputs[j], expected[j], c.terms, static_cast<int>(j));
    EXPECT_TRUE(first.outputs[j] == second.outputs[j])
        << "output " << j << " differs between two runs";
  }
  EXPECT_EQ(first.index_error, second.index_error);
  if (c.in_place.empty()) return;
  const RunResult shared = Run(impl, c, options, std::byte{0x22}, true);
  for (size_t j = 0; j < c.outputs.size(); ++j) {
    if (c.outputs[j].present()) {
      EXPECT_TRUE(first.outputs[j] == shared.outputs[j]) << "output " << j << " differs in place";
    }
  }
}

/// Bits equal to the reference's in the call's own dtypes.
inline void ExpectSameBits(const Implementation& impl, const Implementation& ref, Case c) {
  SCOPED_TRACE(Describe(c));
  FillValues(c);
  const RunResult y = kernel_test::Run(impl, c, {.threads = 2}, std::byte{0xFF});
  const RunResult e = kernel_test::Run(ref, c, {}, std::byte{0x33});
  for (size_t j = 0; j < c.outputs.size(); ++j)
    EXPECT_TRUE(y.outputs[j] == e.outputs[j]) << "output " << j;
  EXPECT_EQ(y.index_error, e.index_error);
}

/// The CPU table and the reference.
class CpuKernels : public ::testing::Test {
 protected:
  CpuKernels() {
    cpu_.Add(cpu::Implementations());
    ref_.Add(ref::Implementations());
  }
  /// The one that takes most calls.
  const Implementation* Cpu(std::string_view kernel) const {
    const auto found = cpu_.Of(kernel);
    return found.empty() ? nullptr : found.back();
  }
  const Implementation& Ref(std::string_view kernel) const { return *ref_.Of(kernel).front(); }
  /// Against the first implementation that takes the call; the CPU has one for every case here.
  void Check(const Case& c) const {
    const Result<const Implementation*> impl =
        cpu_.Select({c.kernel, c.params, c.inputs, c.outputs}, {.threads = 2});
    ASSERT_TRUE(impl.ok()) << impl.status().ToString();
    CompareWithReference(**impl, Ref(c.kernel), c);
  }

  KernelRegistry cpu_, ref_;
};

}  // namespace ampc::kernel_test
