// SPDX-License-Identifier: Apache-2.0
// Damaged calls and garbage data on every reference kernel: a call is refused with E0802 (E0901 for
// a program), or it runs on any bytes and writes nothing outside its outputs and workspace.

#include <algorithm>
#include <set>

#include "test/unit/ref_kernels_harness.h"

namespace ampc::testing {
namespace {

using Ints = std::vector<int64_t>;

struct Call {
  const char* kernel;
  Attrs params;
  std::vector<Tensor> inputs, outputs;
};

Tensor F(Dims dims, Layout layout = kRow) { return Of(kF32, std::move(dims), {}, layout); }
Tensor I(Dims dims) { return Of(kI64, std::move(dims)); }

/// One valid call per kernel.
std::vector<Call> ValidCalls() {
  const Tensor s = F({}), flag = Of(kBool, {}), c = F({3}), x4 = F({2, 4, 5, 5}, kLast),
               y4 = F({2, 6, 3, 3}, kLast);
  const Attrs conv{{"strides", Ints{2, 2}},
                   {"pads", Ints{1, 1, 1, 1}},
                   {"dilations", Ints{1, 1}},
                   {"group", int64_t{2}}};
  const Attrs pool{{"kernel_shape", Ints{2, 3}},
                   {"strides", Ints{1, 2}},
                   {"pads", Ints{0, 1, 0, 1}},
                   {"count_include_pad", int64_t{1}}};
  const Attrs axis{{"axis", int64_t{1}}},
      eps{{"epsilon", 1e-5}, {"momentum", 0.9}, {"unbiased", int64_t{1}}};
  const Attrs loss{{"reduction", std::string("mean")},
                   {"has_ignore_index", int64_t{1}},
                   {"ignore_index", int64_t{1}},
                   {"label_smoothing", 0.1}};
  const Attrs rows{{"length", int64_t{12}},
                   {"groups", int64_t{2}},
                   {"inner", int64_t{4}},
                   {"rms", int64_t{0}},
                   {"epsilon", 1e-5}};
  const Attrs view{{"offset", int64_t{1}}, {"strides", Ints{6, 2}}};
  const Tensor pooled = F({2, 4, 4, 3}), index = Of(kI32, {2, 4, 4, 3}), plane = F({2, 4, 5, 5});
  const Tensor bn = F({2, 3, 4}), w = F({2, 2}), t = F({3});
  return {
      {"map",
       {{"expr",
         std::string(
             "y0 = mod(x0, x1) / x1 + pow(x0, x1); y1 = where(x0 < x1, fp16(x0), exp(x1))")}},
       {F({2, 1, 3}), F({4, 1})},
       {F({2, 4, 3}), F({2, 4, 3})}},
      {"map",
       {{"expr", std::string("mod(x0, x1) / x1 + pow(x0, x1) + round(abs(-x0))")}},
       {I({2, 3}), I({3})},
       {I({2, 3})}},
      {"reduce",
       {{"op", std::string("log_sum_exp")}, {"axes", Ints{0, 2}}},
       {F({2, 3, 4})},
       {F({3})}},
      {"reduce", {{"op", std::string("mean")}, {"axes", Ints{1}}}, {I({2, 3})}, {I({2})}},
      {"arg_reduce",
       {{"op", std::string("max")}, {"axis", int64_t{1}}},
       {F({2, 3, 4})},
       {I({2, 4})}},
      {"matmul",
       {{"alpha", 2.0}, {"trans_b", int64_t{1}}},
       {F({2, 3, 4}), F({5, 4}), F({5})},
       {F({2, 3, 5})}},
      {"conv", conv, {x4, F({6, 2, 3, 3}), F({6})}, {y4}},
      {"conv_bwd_data", conv, {y4, F({6, 2, 3, 3}), F({4})}, {x4}},
      {"conv_bwd_weights", conv, {x4, y4}, {F({6, 2, 3, 3})}},
      {"pool_max", pool, {plane}, {pooled, index}},
      {"pool_max_bwd", pool, {pooled, index}, {plane}},
      {"pool_avg", pool, {plane}, {pooled}},
      {"pool_avg_bwd", pool, {pooled}, {plane}},
      {"batch_norm_train", eps, {bn, c, c, c, c}, {bn, c, c, c, c}},
      {"batch_norm_bwd", {}, {bn, bn, c, c, c}, {bn, c, c}},
      {"batch_norm_infer", eps, {bn, c, c, c, c}, {bn}},
      {"rnn",
       {{"cell", std::string("lstm")},
        {"direction", std::string("bidirectional")},
        {"clip", 0.5},
        {"operand", int64_t{0}}},
       {F({3, 2, 4}), F({2, 12, 4}), F({2, 12, 3}), F({2, 24}), Of(kI32, {2}), F({2, 2, 3}),
        F({2, 2, 3}), F({2, 9})},
       {F({3, 2, 2, 3}), F({2, 2, 3}), F({2, 2, 3}), F({2, 3, 2, 12}), F({2, 3, 2, 3}),
        F({2, 3, 2, 3})}},
      {"rnn",
       {{"cell", std::string("gru")}, {"linear_before_reset", int64_t{0}}},
       {F({3, 2, 4}), F({1, 9, 4}), F({1, 9, 3})},
       {F({3, 1, 2, 3}), F({1, 2, 3})}},
      {"rnn_bwd",
       {{"cell", std::string("lstm")}, {"direction", std::string("reverse")}},
       {F({1, 12, 3}), Of(kI32, {2}), F({1, 3, 2, 12}), F({1, 3, 2, 3}), F({3, 1, 2, 3}),
        F({1, 2, 3}), F({1, 3, 2, 3}), F({1, 2, 3}), F({1, 2, 3}), F({1, 9})},
       {F({1, 3, 2, 12}), F({1, 2, 3}), F({1, 2, 3}), F({1, 9})}},
      {"layer_norm", rows, {bn, F({6}), F({6})}, {bn, F({2}), F({2})}},
      {"layer_norm_bwd", rows, {bn, bn, F({6}), F({2}), F({2})}, {bn, F({6}), F({6})}},
      {"softmax", axis, {bn}, {bn}},
      {"log_softmax", axis, {bn}, {bn}},
      {"softmax_bwd", axis, {bn, bn}, {bn}},
      {"log_softmax_bwd", axis, {bn, bn}, {bn}},
      {"softmax_cross_entropy", loss, {bn, I({2, 4}), c}, {s, bn, s}},
      {"softmax_cross_entropy_bwd", loss, {s, bn, I({2, 4}), c, s}, {bn}},
      {"nll_loss", loss, {bn, I({2, 4}), c}, {s, s}},
      {"nll_loss_bwd", loss, {s, I({2, 4}), c, s}, {bn}},
      {"topk_correct", {{"k", int64_t{2}}}, {bn, I({2, 4})}, {F({2, 4})}},
      {"copy", view, {F({4, 6})}, {F({3, 2})}},
      {"scatter_copy", view, {F({3, 2})}, {F({4, 6})}},
      {"concat", axis, {F({2, 3}), F({2, 1})}, {F({2, 4})}},
      {"fill", {{"value", 2.0}}, {}, {F({3})}},
      {"gather", axis, {F({2, 3, 2}), I({2, 2})}, {F({2, 2, 2, 2})}},
      {"gather_bwd", axis, {F({2, 2, 2, 2}), I({2, 2})}, {F({2, 3, 2})}},
      {"gather_elements", axis, {F({2, 3, 2}), I({2, 4, 1})}, {F({2, 4, 1})}},
      {"scatter_elements",
       {{"axis", int64_t{1}}, {"reduction", std::string("add")}},
       {Of(kF16, {2, 3}), I({2, 2}), Of(kF16, {2, 2})},
       {Of(kF16, {2, 3})}},
      {"scatter_elements", axis, {F({2, 3}), I({2, 2}), F({2, 2})}, {F({2, 3})}},
      {"gather_nd", {{"batch_dims", int64_t{1}}}, {F({2, 3, 2}), I({2, 4, 1})}, {F({2, 4, 2})}},
      {"scatter_nd",
       {{"reduction", std::string("max")}},
       {F({2, 3, 2}), I({4, 2}), F({4, 2})},
       {F({2, 3, 2})}},
      {"one_hot", axis, {I({2, 3}), F({2})}, {F({2, 4, 3})}},
      {"cumulate",
       {{"axis", int64_t{1}}, {"op", std::string("prod")}, {"reverse", int64_t{1}}},
       {bn},
       {bn}},
      {"cumprod_bwd", {{"axis", int64_t{1}}, {"exclusive", int64_t{1}}}, {bn, bn}, {bn}},
      {"topk", {{"axis", int64_t{1}}, {"k", int64_t{2}}}, {bn}, {F({2, 2, 4}), I({2, 2, 4})}},
      {"reverse_sequence",
       {{"time_axis", int64_t{0}}, {"batch_axis", int64_t{1}}},
       {bn, I({3})},
       {bn}},
      {"trilu", {{"upper", int64_t{0}}, {"k", int64_t{-1}}}, {bn}, {bn}},
      {"interpolate",
       {{"axis", int64_t{1}},
        {"begins", Ints{0, 2, 2, 4}},
        {"indices", Ints{0, 1, 2, 0}},
        {"weights", std::vector<double>{0.25, 0.75, -0.5, 1.5}},
        {"fill", 3.0}},
       {bn},
       {bn}},
      {"grid_sample",
       {{"mode", std::string("cubic")}, {"padding_mode", std::string("reflection")}},
       {F({2, 3, 4, 5}), F({2, 3, 2, 2})},
       {F({2, 3, 3, 2})}},
      {"grid_sample_bwd",
       {{"mode", std::string("linear")}, {"padding_mode", std::string("border")}},
       {F({2, 3, 3, 2}), F({2, 3, 4, 5}), F({2, 3, 2, 2})},
       {F({2, 3, 4, 5}), F({2, 3, 2, 2})}},
      {"attention",
       {{"scale", 0.5}, {"softcap", 2.0}, {"causal", int64_t{1}}, {"offset", int64_t{1}}},
       {F({2, 4, 3, 6}), F({2, 2, 5, 6}), F({2, 2, 5, 7}), Of(kBool, {3, 5})},
       {F({2, 4, 3, 7}), F({2, 4, 3})}},
      {"attention_bwd",
       {{"scale", 0.5}, {"causal", int64_t{1}}, {"offset", int64_t{0}}},
       {F({2, 4, 3, 6}), F({2, 2, 5, 6}), F({2, 2, 5, 7}), F({2, 4, 3, 7}), F({2, 4, 3}),
        F({2, 4, 3, 7}), F({3, 5})},
       {F({2, 4, 3, 6}), F({2, 2, 5, 6}), F({2, 2, 5, 7}), F({2, 4, 3, 5})}},
      {"random",
       {{"stream", int64_t{1}}, {"normal", int64_t{1}}, {"shift", 0.5}, {"scale", 2.0}},
       {I({2})},
       {bn}},
      {"dropout", {{"stream", int64_t{1}}}, {bn, s, I({2})}, {bn, Of(kBool, {2, 3, 4})}},
      {"unscale_check", {}, {s, w, t}, {w, t, flag, s}},
      {"clip_norm", {}, {s, s, w, t}, {w, t}},
      {"sgd", {{"count", int64_t{2}}}, {flag, s, s, s, s, flag, w, t, w, t, w, t}, {w, t, w, t}},
      {"adam", {{"count", int64_t{1}}}, {flag, s, s, s, s, s, s, s, s, s, w, w, w, w}, {w, w, w}},
  };
}

constexpr size_t kFence = 64;

/// `size` bytes behind and before which nothing may be written.
std::vector<std::byte> Fenced(int64_t size, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(size) + 2 * kFence, std::byte{0xEE});
  for (size_t i = 0; i < static_cast<size_t>(size); ++i)
    bytes[kFence + i] = static_cast<std::byte>(random());
  return bytes;
}
bool FencesStand(const std::vector<std::byte>& bytes) {
  const auto intact = [](std::byte b) { return b == std::byte{0xEE}; };
  return std::all_of(bytes.begin(), bytes.begin() + kFence, intact) &&
         std::all_of(bytes.end() - kFence, bytes.end(), intact);
}

/// Runs a prepared call on random bytes.
void RunOnGarbage(PreparedKernel& kernel, const CallSpec& spec, std::mt19937& random) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const TensorDesc& d : spec.inputs) {
    memory.push_back(Fenced(d.bytes(), random));
    in.push_back(d.present() ? memory.back().data() + kFence : nullptr);
  }
  for (const TensorDesc& d : spec.outputs) {
    memory.push_back(Fenced(d.bytes(), random));
    out.push_back(d.present() ? memory.back().data() + kFence : nullptr);
  }
  memory.push_back(Fenced(kernel.workspace_bytes(), random));
  int64_t index_error = 0;
  kernel.Run(in, out, memory.back().data() + kFence, RunContext{nullptr, &index_error});
  for (const auto& bytes : memory) EXPECT_TRUE(FencesStand(bytes)) << spec.kernel;
}

/// Changes one thing of the call.
void Damage(CallSpec& spec, std::mt19937& random) {
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  constexpr DType kTypes[] = {kF32, kF16,  kBf16,        kF64,           kI32,
                              kI64, kBool, DType::kInt8, DType::kUInt64, DType::kNone};
  constexpr int64_t kNumbers[] = {0,
                                  1,
                                  2,
                                  3,
                                  4,
                                  7,
                                  -1,
                                  -5,
                                  int64_t{1} << 31,
                                  int64_t{1} << 62,
                                  std::numeric_limits<int64_t>::min()};
  std::vector<TensorDesc>& list =
      spec.outputs.empty() || (random() % 2 != 0 && !spec.inputs.empty()) ? spec.inputs
                                                                          : spec.outputs;
  const size_t what = pick(8);
  if (what < 5) {
    if (list.empty()) return;
    TensorDesc& d = list[pick(list.size())];
    if (what == 0) d.dtype = kTypes[pick(std::size(kTypes))];
    if (what == 1 && !d.dims.empty())
      d.dims[pick(d.dims.size())] = kNumbers[pick(std::size(kNumbers))];
    if (what == 2) d.layout = d.layout == kRow ? kLast : kRow;
    if (what == 3) d.dims.push_back(kNumbers[pick(4)]);
    if (what == 4 && !d.dims.empty()) d.dims.pop_back();
  } else if (what == 5) {
    if (!list.empty()) list.pop_back();
  } else if (!spec.params.empty()) {
    const Attrs::Entry entry = spec.params.entries()[pick(spec.params.entries().size())];
    Attr value = entry.second;
    if (auto* ints = std::get_if<Ints>(&value); ints != nullptr && !ints->empty()) {
      (*ints)[pick(ints->size())] = kNumbers[pick(std::size(kNumbers))];
    } else if (std::holds_alternative<int64_t>(value)) {
      value = kNumbers[pick(std::size(kNumbers))];
    } else if (std::holds_alternative<double>(value)) {
      value = kNan;
    } else {
      value = std::string("median");
    }
    if (random() % 8 == 0) {
      spec.params.Erase(entry.first);
    } else {
      spec.params.Set(entry.first, value);
    }
  }
}

int64_t LargestOperand(const CallSpec& spec) {
  int64_t largest = 0;
  for (const auto* list : {&spec.inputs, &spec.outputs}) {
    for (const TensorDesc& d : *list) largest = std::max(largest, d.elements());
  }
  return largest;
}

TEST(RefHostile, ValidCallsOfEveryKernelRunOnGarbage) {
  std::mt19937 random(1);
  std::set<std::string_view> covered;
  for (const Call& call : ValidCalls()) {
    covered.insert(call.kernel);
    const CallSpec spec = SpecOf(call.kernel, call.params, call.inputs, call.outputs);
    auto prepared = Reference(call.kernel).prepare(spec, {});
    ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
    for (int round = 0; round < 20; ++round) RunOnGarbage(**prepared, spec, random);
  }
  EXPECT_EQ(covered.size(), AllKernels().size());
}

TEST(RefHostile, DamagedCallsAreRefusedOrRun) {
  std::mt19937 random(2);
  int refused = 0, ran = 0;
  for (const Call& call : ValidCalls()) {
    for (int round = 0; round < 400; ++round) {
      CallSpec spec = SpecOf(call.kernel, call.params, call.inputs, call.outputs);
      for (uint32_t changes = 1 + static_cast<uint32_t>(random() % 3); changes > 0; --changes)
        Damage(spec, random);
      auto prepared = Reference(call.kernel).prepare(spec, {});
      if (!prepared.ok()) {
        EXPECT_TRUE(prepared.status().id() == "E0802" || prepared.status().id() == "E0901")
            << prepared.status().ToString();
        ++refused;
      } else if (LargestOperand(spec) < 100000) {
        RunOnGarbage(**prepared, spec, random);
        ++ran;
      }
    }
  }
  EXPECT_GT(refused, 5000);
  EXPECT_GT(ran, 500);
}

}  // namespace
}  // namespace ampc::testing
