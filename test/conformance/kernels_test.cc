// SPDX-License-Identifier: Apache-2.0
// Every implementation of every kernel, in every element type, against the reference in double,
// over the calls that the samples and their backward passes lower to.
//
// A call's operands are those of the sample, as the reference computed them in the type under test.
// The reference in double reads the same numbers. Around each run outputs and workspace start as
// garbage with guards about them; a second run with other garbage gives the same bits
// (kernel_test::Run), and so do runs in which outputs overwrite inputs. The bound is on the mean
// square error of each result; NaN and infinities stand where they should. AMPC_VERBOSE=1 prints
// kernel, implementation, calls and the largest error.
#include <cmath>
#include <cstdlib>
#include <deque>
#include <set>

#include <gtest/gtest.h>

#include "test/conformance/samples.h"
#include "test/unit/cpu_kernels_harness.h"

namespace ampc::conformance {
namespace {

using kernel_test::Case;
using kernel_test::Guarded;

/// Lowers one node and keeps its calls with their operands' values; the reference computes what
/// later calls read.
class CallRecorder final : public LowerContext {
 public:
  CallRecorder(const ir::Graph& graph, ir::NodeId id, const Values& values)
      : graph_(graph), id_(id) {
    for (const ir::ValueId v : node().inputs)
      in_.push_back(v == ir::kNone ? ir::kNone : Add(graph.type(v), &values.at(v)));
    for (const ir::ValueId v : node().outputs)
      out_.push_back(v == ir::kNone ? ir::kNone : Add(graph.type(v), nullptr));
  }
  const ir::Graph& graph() const override { return graph_; }
  const ir::Node& node() const override { return graph_.node(id_); }
  Operand in(size_t i) const override { return i < in_.size() ? in_[i] : ir::kNone; }
  Operand out(size_t i) const override { return i < out_.size() ? out_[i] : ir::kNone; }
  const TensorDesc& desc(Operand t) const override { return slots_[static_cast<size_t>(t)].desc; }
  Operand Temp(TensorDesc desc) override { return Add({desc.dtype, desc.dims}, nullptr); }
  Operand View(Operand base, TensorDesc desc, int64_t byte_offset) override {
    const Slot& s = slots_[static_cast<size_t>(base)];
    slots_.push_back({std::move(desc), s.memory, s.offset + byte_offset});
    return static_cast<Operand>(slots_.size() - 1);
  }
  void Alias(size_t i, Operand source) override { out_[i] = source; }
  void Call(std::string_view kernel, Attrs params, std::vector<Operand> inputs,
            std::vector<Operand> outputs, std::vector<std::pair<int, int>> in_place) override {
    Case c{.kernel = std::string(kernel), .params = std::move(params), .inputs = {}, .outputs = {}};
    for (const Operand t : inputs) {
      c.inputs.push_back(t == ir::kNone ? TensorDesc{} : desc(t));
      c.values.push_back(t == ir::kNone ? kernel_test::Values{} : Read(t));
    }
    for (const Operand t : outputs) c.outputs.push_back(t == ir::kNone ? TensorDesc{} : desc(t));
    const kernel_test::RunResult run = kernel_test::Run(Reference(c.kernel), c, {}, std::byte{0});
    for (size_t j = 0; j < run.outputs.size(); ++j) {
      if (outputs[j] != ir::kNone && run.outputs[j].size() > 0)
        std::memcpy(Bytes(outputs[j]), run.outputs[j].get(), run.outputs[j].size());
    }
    c.in_place = std::move(in_place);
    calls_.push_back(std::move(c));
  }
  std::vector<Case> Take() { return std::move(calls_); }

  static const Implementation& Reference(std::string_view kernel) {
    for (const Implementation& impl : ref::Implementations()) {
      if (impl.kernel == kernel) return impl;
    }
    std::abort();  // every kernel has one
  }

 private:
  struct Slot {
    TensorDesc desc;
    size_t memory = 0;
    int64_t offset = 0;
  };
  Operand Add(const ir::TensorType& type, const HostTensor* value) {
    memory_.push_back(value != nullptr ? value->data
                                       : std::vector<std::byte>(static_cast<size_t>(type.bytes())));
    slots_.push_back({{type.dtype, type.dims}, memory_.size() - 1, 0});
    return static_cast<Operand>(slots_.size() - 1);
  }
  std::byte* Bytes(Operand t) {
    const Slot& s = slots_[static_cast<size_t>(t)];
    return memory_[s.memory].data() + s.offset;
  }
  kernel_test::Values Read(Operand t) {
    kernel_test::Values v(static_cast<size_t>(desc(t).elements()));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = kernel_test::LoadDouble(desc(t).dtype, Bytes(t), static_cast<int64_t>(i));
    return v;
  }

  const ir::Graph& graph_;
  ir::NodeId id_;
  std::vector<Operand> in_, out_;
  std::deque<Slot> slots_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Case> calls_;
};

/// Values of a row-major tensor of rank >= 3 in channels-last order.
kernel_test::Values ChannelsLast(const kernel_test::Values& values, const Dims& dims) {
  const int64_t channels = dims[1], plane = NumElements(std::span(dims).subspan(2));
  kernel_test::Values out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t n = at / (channels * plane), c = at / plane % channels, s = at % plane;
    out[static_cast<size_t>((n * plane + s) * channels + c)] = values[i];
  }
  return out;
}

/// The same call on channels-last operands, where the kernel takes them (kernels.def: "any
/// layout"); false where it does not.
bool MakeChannelsLast(Case& c) {
  const std::string_view k = c.kernel;
  const bool conv = k.starts_with("conv"),
             any = k == "map" || k.starts_with("pool_") || k.starts_with("batch_norm");
  if (!conv && !any && k != "reduce") return false;
  bool changed = false;
  const auto set = [&](TensorDesc& desc) {
    if (desc.dims.size() < 3) return;
    desc.layout = Layout::kChannelsLast;
    changed = true;
  };
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (conv && i == 1 && k != "conv_bwd_weights") continue;  // weights stay row-major
    set(c.inputs[i]);
    if (c.inputs[i].layout == Layout::kChannelsLast)
      c.values[i] = ChannelsLast(c.values[i], c.inputs[i].dims);
  }
  for (TensorDesc& desc : c.outputs) {
    if (k != "reduce" && k != "conv_bwd_weights") set(desc);
  }
  return changed;
}

/// Mean square error of a result as a share of what rounding it and summing `terms` in fp32
/// explain, or infinity when a non-finite element is not the expected one. Rounding goes with the
/// result, sums with the operands, which are of order 1.
double Error(DType type, const Guarded& found, const kernel_test::Values& expected, double terms,
             bool any_non_finite) {
  double square = 0, error = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double v = kernel_test::LoadDouble(type, found.get(), static_cast<int64_t>(i));
    const double e = expected[i], rounded = HostTensor::Scalar(type, e).GetDouble(0);
    if (!std::isfinite(rounded) || !std::isfinite(v)) {
      const bool good = any_non_finite  ? !std::isfinite(v) && !std::isfinite(e)
                        : std::isnan(e) ? std::isnan(v)
                                        : v == rounded;
      if (!good) return HUGE_VAL;
      continue;
    }
    square += e * e;
    // What the type cannot tell from zero is no error.
    const double d = std::max(0.0, std::abs(v - e) - kernel_test::Smallest(type));
    error += d * d;
  }
  if (error == 0) return 0;
  if (!IsFloat(type)) return HUGE_VAL;
  const auto n = static_cast<double>(expected.size());
  const double rounding = kernel_test::Epsilon(type) / 2, sums = 8 * 0x1p-24;
  return error / (rounding * rounding * square + sums * sums * terms * std::max(square, n));
}

/// Ways in which lowering may let outputs share memory with inputs of the same form: all pairs of a
/// lowering rule at once, or each pair of kernels.def by itself (a mask of all ones counts for
/// elementwise programs alone).
std::vector<std::vector<std::pair<int, int>>> SharedMemory(const Case& c) {
  const auto same_form = [&](size_t i, size_t o) {
    const TensorDesc &x = c.inputs[i], &y = c.outputs[o];
    return x.present() && y.present() && x.dims == y.dims && SizeOf(x.dtype) == SizeOf(y.dtype) &&
           x.layout == y.layout;
  };
  std::vector<std::pair<int, int>> listed;
  for (const auto& [i, o] : c.in_place) {
    if (same_form(static_cast<size_t>(i), static_cast<size_t>(o))) listed.emplace_back(i, o);
  }
  if (!listed.empty()) return {listed};
  std::vector<std::vector<std::pair<int, int>>> ways;
  const uint64_t mask = FindKernel(c.kernel)->in_place;
  if (mask == ~uint64_t{0} && c.kernel != "map") return ways;
  for (size_t o = 0; o < std::min<size_t>(c.outputs.size(), 8); ++o) {
    for (size_t i = 0; i < std::min<size_t>(c.inputs.size(), 8); ++i) {
      if ((mask >> (o * 8 + i) & 1) != 0 && same_form(i, o))
        ways.push_back({{static_cast<int>(i), static_cast<int>(o)}});
    }
  }
  return ways;
}

struct Row {
  int calls = 0;
  double error = 0;  ///< largest, 1 = the bound
};

class Kernels : public ::testing::Test {
 protected:
  void CheckCall(const Case& c, double terms) {
    if (!seen_.insert(kernel_test::Describe(c)).second) return;
    SCOPED_TRACE(kernel_test::Describe(c));
    const std::vector<kernel_test::Values> expected =
        kernel_test::Expected(CallRecorder::Reference(c.kernel), c);
    const PrepareOptions options{.threads = 2};
    const CallSpec spec{c.kernel, c.params, c.inputs, c.outputs};
    int supported = 0;
    for (const std::span<const Implementation> table :
         {cpu::Implementations(), ref::Implementations()}) {
      for (const Implementation& impl : table) {
        if (impl.kernel != c.kernel || !impl.declines(spec, options).empty()) continue;
        ++supported;
        CheckImplementation(impl, c, options, expected, terms);
      }
    }
    EXPECT_GT(supported, 0);
  }

  void CheckImplementation(const Implementation& impl, const Case& c, const PrepareOptions& options,
                           const std::vector<kernel_test::Values>& expected, double terms) {
    SCOPED_TRACE(impl.name);
    const kernel_test::RunResult first = kernel_test::Run(impl, c, options, std::byte{0xFF});
    const kernel_test::RunResult second = kernel_test::Run(impl, c, options, std::byte{0x11});
    ASSERT_EQ(first.outputs.size(), c.outputs.size());
    Row& row = table_[fmt::format("{} {}", c.kernel, impl.name)];
    ++row.calls;
    for (size_t j = 0; j < c.outputs.size(); ++j) {
      if (!c.outputs[j].present()) continue;
      EXPECT_TRUE(first.outputs[j] == second.outputs[j])
          << "output " << j << " differs between two runs";
      // Statistics of a channel that overflowed: infinity or NaN, by the order of the sums.
      const bool any_non_finite = c.kernel == "batch_norm_train" && j >= 3;
      const double error =
          Error(c.outputs[j].dtype, first.outputs[j], expected[j], terms, any_non_finite);
      EXPECT_LE(error, 1) << "output " << j << ", " << Name(c.outputs[j].dtype);
      row.error = std::max(row.error, error);
    }
    Case shared = c;
    for (auto& way : SharedMemory(c)) {
      shared.in_place = std::move(way);
      const kernel_test::RunResult run =
          kernel_test::Run(impl, shared, options, std::byte{0x22}, true);
      EXPECT_TRUE(run.outputs == first.outputs)
          << "differs when output " << shared.in_place[0].second << " overwrites input "
          << shared.in_place[0].first;
    }
  }

  std::map<std::string, Row> table_;
  std::set<std::string> seen_;
};

TEST_F(Kernels, AgreeWithTheReferenceInDouble) {
  std::set<std::string> kernels;
  for (const Sample& sample : AllSamples()) {
    if (sample.types_only) continue;
    for (const DType type : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} in {}", Describe(sample), Name(type)));
      auto instance = Build(sample, type);
      ASSERT_TRUE(instance.ok()) << instance.status().ToString();
      const Status grads = AddGradientNodes(*instance, sample);
      ASSERT_TRUE(grads.ok()) << grads.ToString();
      Values values = instance->values;
      const Status status = EvaluateGraph(instance->graph(), values);
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (const ir::NodeId n : instance->graph().Order()) {
        const ir::Node& node = instance->graph().node(n);
        if (node.op->traits.constant || instance->module->locs.Get(node.loc) == "loss") continue;
        CallRecorder recorder(instance->graph(), n, values);
        ASSERT_TRUE(node.op->lower(recorder).ok());
        for (Case& c : recorder.Take()) {
          kernels.insert(c.kernel);
          CheckCall(c, sample.terms);
          if (MakeChannelsLast(c)) CheckCall(c, sample.terms);
        }
      }
    }
  }
  for (const KernelInfo& kernel : AllKernels()) {
    EXPECT_TRUE(kernel.name == "fill" || kernels.contains(std::string(kernel.name)))
        << kernel.name << " was not called";
  }
  if (std::getenv("AMPC_VERBOSE") == nullptr) return;
  for (const auto& [name, row] : table_)
    std::printf("%-40s %4d calls  largest error %.2f of the bound\n", name.c_str(), row.calls,
                row.error);
}

}  // namespace
}  // namespace ampc::conformance
