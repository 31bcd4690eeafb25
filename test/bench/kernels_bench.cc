// SPDX-License-Identifier: Apache-2.0
// Rates of the CPU kernels, beside oneDNN's own rate for the same work in the same run. Not a test.
//
//   OMP_WAIT_POLICY=passive build/bin/kernels_bench --benchmark_filter=matmul
//
// "direct" rows call oneDNN with the plain layout of the plan's tensors; the kernels should not be
// slower.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <omp.h>

#include "kernels/kernel.h"

namespace ampc {
namespace {

constexpr DType kF32 = DType::kFloat32, kF16 = DType::kFloat16, kBF16 = DType::kBFloat16;

TensorDesc Desc(DType t, Dims dims, Layout layout = Layout::kRowMajor) {
  return {t, std::move(dims), layout};
}

/// A block of memory at a 64-byte boundary, filled with small normal numbers of the dtype.
class Buffer {
 public:
  explicit Buffer(int64_t bytes, DType t = DType::kNone) : data_(static_cast<size_t>(bytes) + 64) {
    const size_t at = reinterpret_cast<uintptr_t>(data_.data()) % 64;
    start_ = (64 - at) % 64;
    if (t == DType::kNone) return;
    const HostTensor values[] = {HostTensor::Scalar(t, 1), HostTensor::Scalar(t, -0.5),
                                 HostTensor::Scalar(t, 0.75)};
    const int64_t size = SizeOf(t);
    for (int64_t i = 0; i < bytes / size; ++i) {
      std::memcpy(get() + i * size, values[i * 7 % 3].data.data(), static_cast<size_t>(size));
    }
  }
  std::byte* get() { return data_.data() + start_; }

 private:
  std::vector<std::byte> data_;
  size_t start_ = 0;
};

/// A prepared call with its memory.
struct Prepared {
  std::unique_ptr<PreparedKernel> kernel;
  std::vector<Buffer> memory;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* workspace = nullptr;
  int64_t index_error = 0, bytes = 0;
  std::string error;

  void Run() {
    RunContext context;
    context.index_error = &index_error;
    kernel->Run(inputs, outputs, workspace, context);
  }
};

Prepared Prepare(const CallSpec& call) {
  KernelRegistry registry;
  registry.Add(cpu::Implementations());
  Prepared p;
  const PrepareOptions options{.threads = omp_get_max_threads()};
  auto impl = registry.Select(call, options);
  if (!impl.ok()) {
    p.error = impl.status().ToString();
    return p;
  }
  auto kernel = (*impl)->prepare(call, options);
  if (!kernel.ok()) {
    p.error = kernel.status().ToString();
    return p;
  }
  p.kernel = std::move(kernel).value();
  p.memory.reserve(call.inputs.size() + call.outputs.size() + 1);
  for (const TensorDesc& t : call.inputs) {
    p.memory.emplace_back(t.bytes(), t.dtype);
    p.inputs.push_back(t.present() ? p.memory.back().get() : nullptr);
    p.bytes += t.present() ? t.bytes() : 0;
  }
  for (const TensorDesc& t : call.outputs) {
    p.memory.emplace_back(t.bytes());
    p.outputs.push_back(t.present() ? p.memory.back().get() : nullptr);
    p.bytes += t.present() ? t.bytes() : 0;
  }
  p.memory.emplace_back(p.kernel->workspace_bytes());
  p.workspace = p.memory.back().get();
  return p;
}

/// `flops` and bytes per run become rates.
void Register(const std::string& name, CallSpec call, double flops = 0) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [call = std::move(call), flops](benchmark::State& state) {
                                 Prepared p = Prepare(call);
                                 if (!p.error.empty()) return state.SkipWithError(p.error.c_str());
                                 p.Run();
                                 for (auto _ : state) p.Run();
                                 const double runs = static_cast<double>(state.iterations());
                                 if (flops > 0)
                                   state.counters["GFLOP/s"] = benchmark::Counter(
                                       flops * runs / 1e9, benchmark::Counter::kIsRate);
                                 state.counters["GB/s"] =
                                     benchmark::Counter(static_cast<double>(p.bytes) * runs / 1e9,
                                                        benchmark::Counter::kIsRate);
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

// ---- oneDNN directly ----

using dnnl::memory;
using Tag = memory::format_tag;

memory::data_type Type(DType t) {
  return t == kF32 ? memory::data_type::f32 : memory::data_type::bf16;
}

struct Direct {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<int, memory> args;

  void Arg(int arg, const memory::desc& desc) {
    memory m(desc, engine);
    std::memset(m.get_data_handle(), 0, desc.get_size());
    args.emplace(arg, m);
  }
  void Time(benchmark::State& state, const dnnl::primitive& primitive, double flops) {
    primitive.execute(stream, args);
    for (auto _ : state) {
      primitive.execute(stream, args);
      stream.wait();
    }
    state.counters["GFLOP/s"] = benchmark::Counter(
        flops * static_cast<double>(state.iterations()) / 1e9, benchmark::Counter::kIsRate);
  }
};

void RegisterDirectMatmul(int64_t n, DType t) {
  const std::string name = "direct/matmul/" + std::string(Name(t)) + "/" + std::to_string(n);
  benchmark::RegisterBenchmark(
      name.c_str(),
      [n, t](benchmark::State& state) {
        Direct d;
        const memory::desc m({n, n}, Type(t), Tag::ab);
        d.Arg(DNNL_ARG_SRC, m);
        d.Arg(DNNL_ARG_WEIGHTS, m);
        d.Arg(DNNL_ARG_DST, m);
        const double size = static_cast<double>(n);
        d.Time(state, dnnl::matmul({d.engine, m, m, m}), 2 * size * size * size);
      })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Blocked layouts throughout, no reorders: the most that oneDNN can do.
void RegisterDirectConv(int64_t n, int64_t c, int64_t hw, DType t) {
  const std::string name = "direct/conv3x3_blocked/" + std::string(Name(t));
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        Direct d;
        const memory::desc x({n, c, hw, hw}, Type(t), Tag::any), w({c, c, 3, 3}, Type(t), Tag::any);
        const dnnl::convolution_forward::primitive_desc pd(
            d.engine, dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, x, w,
            x, {1, 1}, {1, 1}, {1, 1});
        d.Arg(DNNL_ARG_SRC, pd.src_desc());
        d.Arg(DNNL_ARG_WEIGHTS, pd.weights_desc());
        d.Arg(DNNL_ARG_DST, pd.dst_desc());
        d.Time(state, dnnl::convolution_forward(pd),
               2.0 * static_cast<double>(n * hw * hw * c * c * 9));
      })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

/// The same shapes as few/*, in the same layout.
void RegisterDirectNormAndPool(DType t, Layout layout, const std::string& tail) {
  const Tag tag = layout == Layout::kRowMajor ? Tag::nchw : Tag::nhwc;
  const auto add = [](const std::string& name, auto run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->UseRealTime()->Unit(benchmark::kMicrosecond);
  };
  add("direct/batch_norm_train" + tail, [t, tag](benchmark::State& state) {
    Direct d;
    const memory::desc x({64, 8, 28, 28}, Type(t), tag);
    const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    const dnnl::batch_normalization_forward::primitive_desc pd(
        d.engine, dnnl::prop_kind::forward_training, x, x, 1e-5f, flags);
    d.Arg(DNNL_ARG_SRC, x);
    d.Arg(DNNL_ARG_DST, x);
    for (int arg : {DNNL_ARG_SCALE, DNNL_ARG_SHIFT}) d.Arg(arg, pd.weights_desc());
    d.Arg(DNNL_ARG_MEAN, pd.mean_desc());
    d.Arg(DNNL_ARG_VARIANCE, pd.variance_desc());
    d.Time(state, dnnl::batch_normalization_forward(pd), 0);
  });
  for (const bool max : {true, false}) {
    add((max ? "direct/pool_max" : "direct/pool_avg") + tail, [=](benchmark::State& state) {
      Direct d;
      const memory::desc x({64, 6, 28, 28}, Type(t), tag), y({64, 6, 14, 14}, Type(t), tag);
      const auto algorithm =
          max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_exclude_padding;
      const dnnl::pooling_forward::primitive_desc pd(d.engine, dnnl::prop_kind::forward_training,
                                                     algorithm, x, y, {2, 2}, {2, 2}, {0, 0},
                                                     {0, 0}, {0, 0});
      d.Arg(DNNL_ARG_SRC, x);
      d.Arg(DNNL_ARG_DST, y);
      if (max) d.Arg(DNNL_ARG_WORKSPACE, pd.workspace_desc());
      d.Time(state, dnnl::pooling_forward(pd), 0);
    });
  }
}

// ---- the table ----

void RegisterMatmuls() {
  for (DType t : {kF32, kBF16, kF16}) {
    const std::string type = "/" + std::string(Name(t)) + "/";
    const auto product = [&](const std::string& name, int64_t m, int64_t n, int64_t k,
                             int64_t trans_a, int64_t trans_b) {
      Register("matmul" + type + name,
               {"matmul",
                {{"trans_a", trans_a}, {"trans_b", trans_b}},
                {Desc(t, trans_a != 0 ? Dims{k, m} : Dims{m, k}),
                 Desc(t, trans_b != 0 ? Dims{n, k} : Dims{k, n})},
                {Desc(t, {m, n})}},
               2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
    };
    if (t != kF16) RegisterDirectMatmul(1024, t);
    product("1024", 1024, 1024, 1024, 0, 0);
    product("1024_nt", 1024, 1024, 1024, 0, 1);
    product("mlp_forward_64x128x784", 64, 128, 784, 0, 1);
    product("mlp_weights_128x784x64", 128, 784, 64, 1, 0);
    product("small_64x10x128", 64, 10, 128, 0, 1);
    product("column_1024x1x1024", 1024, 1, 1024, 0, 0);
    product("head_256x50304x768", 256, 50304, 768, 0, 0);
  }
}

void RegisterConvs() {
  const double flops = 2.0 * 16 * 56 * 56 * 64 * 64 * 9;
  const Attrs params = {{"pads", std::vector<int64_t>{1, 1, 1, 1}},
                        {"strides", std::vector<int64_t>{1, 1}}};
  for (DType t : {kF32, kBF16, kF16}) {
    if (t != kF16) RegisterDirectConv(16, 64, 56, t);
    for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
      const std::string tail =
          "/" + std::string(Name(t)) + (layout == Layout::kRowMajor ? "/nchw" : "/nhwc");
      const TensorDesc x = Desc(t, {16, 64, 56, 56}, layout), w = Desc(t, {64, 64, 3, 3});
      Register("conv3x3" + tail, {"conv", params, {x, w}, {x}}, flops);
      Register("conv3x3_bwd_data" + tail, {"conv_bwd_data", params, {x, w}, {x}}, flops);
      Register("conv3x3_bwd_weights" + tail,
               {"conv_bwd_weights", params, {x, x}, {Desc(kF32, {64, 64, 3, 3})}}, flops);
    }
  }
}

void RegisterElementwise() {
  const Dims big = {4096, 1024};
  for (DType t : {kF32, kBF16, kF16}) {
    const std::string type = "/" + std::string(Name(t));
    const auto map = [&](const std::string& name, const std::string& expr,
                         std::vector<TensorDesc> in, DType out) {
      Register("map/" + name + type, {"map", {{"expr", expr}}, std::move(in), {Desc(out, big)}});
    };
    map("cast_to_float", "x0", {Desc(t, big)}, kF32);
    map("cast_from_float", "x0", {Desc(kF32, big)}, t);
    map("relu", "max(x0, 0)", {Desc(t, big)}, t);
    map("relu_bwd", "where(x0 > 0, x1, 0)", {Desc(t, big), Desc(t, big)}, t);
    map("add", "x0 + x1", {Desc(t, big), Desc(t, big)}, t);
    map("bias", "x0 + x1", {Desc(t, big), Desc(t, {1024})}, t);
    map("gelu", "x0 * 0.5 * (1 + erf(x0 * 0.70710678118654752))", {Desc(t, big)}, t);
    for (int64_t axis : {0, 1}) {
      Register("reduce/sum_axis" + std::to_string(axis) + type,
               {"reduce",
                {{"op", std::string("sum")}, {"axes", std::vector<int64_t>{axis}}},
                {Desc(t, big)},
                {Desc(kF32, {big[1 - axis]})}});
    }
    Register("reduce/conv_bias_nchw" + type,
             {"reduce",
              {{"op", std::string("sum")}, {"axes", std::vector<int64_t>{0, 2, 3}}},
              {Desc(t, {16, 64, 56, 56})},
              {Desc(kF32, {64})}});
  }
}

/// What small networks have: 6 and 8 channels, images of 28 x 28, batch 64.
void RegisterFewChannels(DType t) {
  const Attrs window = {{"kernel_shape", std::vector<int64_t>{2, 2}},
                        {"strides", std::vector<int64_t>{2, 2}}};
  const Attrs epsilon = {{"epsilon", 1e-5}};
  for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
    const std::string tail =
        "/" + std::string(Name(t)) + (layout == Layout::kRowMajor ? "/nchw" : "/nhwc");
    const TensorDesc n = Desc(t, {64, 8, 28, 28}, layout), v = Desc(kF32, {8});
    Register("few/batch_norm_train" + tail,
             {"batch_norm_train", epsilon, {n, v, v, v, v}, {n, v, v, v, v}});
    Register("few/batch_norm_bwd" + tail, {"batch_norm_bwd", {}, {n, n, v, v, v}, {n, v, v}});
    const TensorDesc x = Desc(t, {64, 6, 28, 28}, layout), y = Desc(t, {64, 6, 14, 14}, layout),
                     index = Desc(DType::kInt32, {64, 6, 14, 14}, layout);
    Register("few/pool_max" + tail, {"pool_max", window, {x}, {y, index}});
    Register("few/pool_max_bwd" + tail, {"pool_max_bwd", window, {y, index}, {x}});
    Register("few/pool_avg" + tail, {"pool_avg", window, {x}, {y}});
    Register("few/pool_avg_bwd" + tail, {"pool_avg_bwd", window, {y}, {x}});
    if (t != kF16) RegisterDirectNormAndPool(t, layout, tail);
  }
  // A decoder's last layer: the gradient to one channel.
  Register("few/conv_bwd_data/" + std::string(Name(t)),
           {"conv_bwd_data",
            {{"pads", std::vector<int64_t>{1, 1, 1, 1}}, {"strides", std::vector<int64_t>{2, 2}}},
            {Desc(t, {64, 8, 14, 14}), Desc(t, {8, 1, 4, 4})},
            {Desc(t, {64, 1, 28, 28})}},
           2.0 * 64 * 8 * 14 * 14 * 16);
}

void RegisterNormsAndLosses() {
  for (DType t : {kF32, kBF16, kF16}) {
    for (Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
      const std::string tail =
          "/" + std::string(Name(t)) + (layout == Layout::kRowMajor ? "/nchw" : "/nhwc");
      const TensorDesc x = Desc(t, {16, 64, 56, 56}, layout), v = Desc(kF32, {64});
      const TensorDesc y = Desc(t, {16, 64, 28, 28}, layout);
      const TensorDesc index = Desc(DType::kInt32, {16, 64, 28, 28}, layout);
      const Attrs epsilon = {{"epsilon", 1e-5}};
      Register("batch_norm_train" + tail,
               {"batch_norm_train", epsilon, {x, v, v, v, v}, {x, v, v, v, v}});
      Register("batch_norm_bwd" + tail, {"batch_norm_bwd", {}, {x, x, v, v, v}, {x, v, v}});
      const Attrs window = {{"kernel_shape", std::vector<int64_t>{3, 3}},
                            {"strides", std::vector<int64_t>{2, 2}},
                            {"pads", std::vector<int64_t>{1, 1, 1, 1}}};
      Register("pool_max" + tail, {"pool_max", window, {x}, {y, index}});
      Register("pool_max_bwd" + tail, {"pool_max_bwd", window, {y, index}, {x}});
      Register("pool_avg" + tail, {"pool_avg", window, {x}, {y}});
      Register("pool_avg_bwd" + tail, {"pool_avg_bwd", window, {y}, {x}});
    }
    RegisterFewChannels(t);
    const std::string type = "/" + std::string(Name(t));
    const TensorDesc x = Desc(t, {4096, 1024});
    const Attrs axis = {{"axis", int64_t{1}}};
    Register("softmax" + type, {"softmax", axis, {x}, {x}});
    Register("softmax_bwd" + type, {"softmax_bwd", axis, {x, x}, {x}});
    Register("cross_entropy_256x50304" + type,
             {"softmax_cross_entropy",
              {},
              {Desc(t, {256, 50304}), Desc(DType::kInt64, {256})},
              {Desc(kF32, {}), Desc(t, {256, 50304}), Desc(kF32, {})}});
    Register("transpose" + type,
             {"copy", {{"strides", std::vector<int64_t>{1, 1024}}}, {x}, {Desc(t, {1024, 4096})}});
    Register("dropout" + type, {"dropout",
                                {},
                                {x, Desc(kF32, {}), Desc(DType::kInt64, {2})},
                                {x, Desc(DType::kBool, {4096, 1024})}});
  }
}

/// Several calls in a row, each with memory of its own.
void RegisterRow(const std::string& name, std::vector<CallSpec> calls) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [calls = std::move(calls)](benchmark::State& state) {
                                 std::vector<Prepared> row;
                                 for (const CallSpec& call : calls) {
                                   row.push_back(Prepare(call));
                                   if (!row.back().error.empty())
                                     return state.SkipWithError(row.back().error.c_str());
                                   row.back().Run();
                                 }
                                 for (auto _ : state) {
                                   for (Prepared& p : row) p.Run();
                                 }
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Attention beside the single nodes that it stands for; b samples of h heads.
void RegisterAttention(int64_t b, int64_t h, int64_t t, int64_t d) {
  for (DType type : {kF32, kBF16, kF16}) {
    const std::string tail = "/" + std::string(Name(type)) + "/" + std::to_string(b * h) + "x" +
                             std::to_string(t) + "x" + std::to_string(d);
    const TensorDesc x = Desc(type, {b, h, t, d}), lse = Desc(kF32, {b, h, t}),
                     scores = Desc(type, {b, h, t, t});
    const Attrs scale = {{"scale", 0.125}}, axis = {{"axis", int64_t{3}}};
    const auto product = [](int64_t trans_a, int64_t trans_b, const TensorDesc& left,
                            const TensorDesc& right, const TensorDesc& y) {
      return CallSpec{"matmul", {{"trans_a", trans_a}, {"trans_b", trans_b}}, {left, right}, {y}};
    };
    const double pairs = static_cast<double>(b * h * t * t), depth = static_cast<double>(d);
    Register("attention" + tail, {"attention", scale, {x, x, x}, {x, lse}}, 4 * pairs * depth);
    RegisterRow("nodes/attention" + tail, {product(0, 1, x, x, scores),
                                           {"softmax", axis, {scores}, {scores}},
                                           product(0, 0, scores, x, x)});
    Register("attention_bwd" + tail, {"attention_bwd", scale, {x, x, x, x, lse, x}, {x, x, x}},
             10 * pairs * depth);
    RegisterRow("nodes/attention_bwd" + tail, {product(0, 1, x, x, scores),
                                               product(1, 0, scores, x, x),
                                               {"softmax_bwd", axis, {scores, scores}, {scores}},
                                               product(0, 0, scores, x, x),
                                               product(1, 0, scores, x, x)});
  }
}

void RegisterOptimizers() {
  const TensorDesc scalar = Desc(kF32, {}), flag = Desc(DType::kBool, {}),
                   w = Desc(kF32, {4096, 1024});
  std::vector<TensorDesc> in(10, scalar);
  in[0] = flag;
  in.insert(in.end(), {w, w, w, w});
  Register("adam", {"adam", {{"count", int64_t{1}}}, in, {w, w, w}});
  Register("sgd_momentum", {"sgd",
                            {{"count", int64_t{1}}},
                            {flag, scalar, scalar, scalar, scalar, flag, w, w, w},
                            {w, w}});
  for (DType t : {kF32, kBF16}) {
    Register("unscale_check/" + std::string(Name(t)),
             {"unscale_check", {}, {scalar, Desc(t, w.dims)}, {w, flag, scalar}});
  }
}

}  // namespace
}  // namespace ampc

int main(int argc, char** argv) {
  ampc::RegisterMatmuls();
  ampc::RegisterConvs();
  ampc::RegisterElementwise();
  ampc::RegisterNormsAndLosses();
  ampc::RegisterAttention(4, 8, 128, 64);
  ampc::RegisterAttention(2, 8, 512, 64);
  ampc::RegisterAttention(64, 4, 24, 16);
  ampc::RegisterAttention(64, 4, 64, 32);
  ampc::RegisterOptimizers();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
