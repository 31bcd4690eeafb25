// SPDX-License-Identifier: Apache-2.0
//
// Every CUDA kernel against the reference kernels, on the same bits: equal to the last one, NaNs
// apart, whose payload is the hardware's. Built against the emulation it runs everywhere and under
// sanitizers; the same file, built against the real kernels, runs where there is a GPU
// (test/device/run.sh), with some units of leeway for mathematical functions.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/operand.h"
#include "kernels/expr.h"
#include "kernels/ref/ref.h"
#include "test/device/cuda_machine.h"

namespace ampc::cuda_test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kF32 = DType::kFloat32, kF64 = DType::kFloat64, kF16 = DType::kFloat16;
constexpr DType kBf16 = DType::kBFloat16, kI64 = DType::kInt64, kI32 = DType::kInt32;
constexpr DType kBool = DType::kBool;
constexpr Layout kLast = Layout::kChannelsLast;
constexpr DType kAllTypes[] = {kF32,           kF64,           kF16, kBf16,         DType::kInt8,
                               DType::kInt16,  kI32,           kI64, DType::kUInt8, DType::kUInt16,
                               DType::kUInt32, DType::kUInt64, kBool};

TensorDesc Desc(DType t, Dims dims, Layout layout = Layout::kRowMajor) {
  return {t, std::move(dims), layout};
}

struct Case {
  std::string kernel;
  Attrs params;
  std::vector<TensorDesc> inputs, outputs;
  std::vector<Bytes> values = {};  ///< of the inputs; random where empty
  size_t shift = 0;                ///< elements by which operands start off a 64-byte boundary
  int in_place = -1;               ///< input whose memory output 0 uses
  int64_t ulps = 0;                ///< floats may differ by so many, integers by the same part
};

// ---- values

/// Ordinary numbers, small integers, special values and arbitrary bits, mixed.
double RandomDouble(std::mt19937_64& random) {
  constexpr double kSpecial[] = {0.0,
                                 -0.0,
                                 1.0,
                                 -1.0,
                                 0.5,
                                 1.5,
                                 2.5,
                                 -2.5,
                                 65504,
                                 65520,
                                 1e-45,
                                 6e-8,
                                 3e38,
                                 1e300,
                                 1e-310,
                                 1.0000001,
                                 2147483648.0,
                                 9.3e18,
                                 -9.3e18,
                                 127,
                                 128,
                                 255.5,
                                 std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(),
                                 std::numeric_limits<double>::quiet_NaN()};
  switch (random() % 4) {
    case 0:
      return kSpecial[random() % std::size(kSpecial)];
    case 1:
      return static_cast<double>(static_cast<int64_t>(random() % 21) - 10);
    default:
      return std::normal_distribution<double>(0, 3)(random);
  }
}

Bytes RandomValues(const TensorDesc& desc, std::mt19937_64& random) {
  Bytes bytes(static_cast<size_t>(desc.bytes()));
  const auto size = static_cast<size_t>(SizeOf(desc.dtype));
  for (size_t at = 0; at < bytes.size(); at += size) {
    if (desc.dtype == kBool) {
      bytes[at] = static_cast<std::byte>(random() % 2);
    } else if (random() % 4 == 0) {
      const uint64_t bits = random();
      std::memcpy(&bytes[at], &bits, size);
    } else {
      const double v = RandomDouble(random);
      const bool integer = !IsFloat(desc.dtype);
      const HostTensor one =
          HostTensor::Scalar(desc.dtype, integer && !(std::abs(v) < 120) ? 7 : v);
      std::memcpy(&bytes[at], one.data.data(), size);
    }
  }
  return bytes;
}

// ---- comparison

/// Floats as integers in their order, so that neighbours differ by 1.
template <typename F, typename I>
int64_t Ordered(F v) {
  const auto bits = static_cast<int64_t>(std::bit_cast<I>(v));
  return bits < 0 ? static_cast<int64_t>(std::numeric_limits<I>::min()) - bits : bits;
}

bool SameElement(DType t, const std::byte* a, const std::byte* b, int64_t ulps) {
  const auto size = static_cast<size_t>(SizeOf(t));
  if (std::memcmp(a, b, size) == 0) return true;
  HostTensor x{t, {}, Bytes(a, a + size)}, y{t, {}, Bytes(b, b + size)};
  if (IsFloat(t) && std::isnan(x.GetDouble(0)) && std::isnan(y.GetDouble(0))) return true;
  if (ulps == 0) return false;
  if (t == kF32) {
    const int64_t d =
        Ordered<float, int32_t>(x.As<float>()[0]) - Ordered<float, int32_t>(y.As<float>()[0]);
    return std::abs(d) <= ulps;
  }
  const double u = x.GetDouble(0), v = y.GetDouble(0);
  const double part = static_cast<double>(ulps) * 0x1p-52;
  if (t == kF64) return std::abs(u - v) <= part * std::abs(v) + 0x1p-1070;
  return std::abs(u - v) <= 1 + part * std::abs(v);  // integers: truncated from such a double
}

std::string ElementText(DType t, const std::byte* p) {
  const auto size = static_cast<size_t>(SizeOf(t));
  std::string bits;
  for (size_t i = size; i-- > 0;) bits += fmt::format("{:02x}", static_cast<unsigned>(p[i]));
  return fmt::format("{} (0x{})", HostTensor{t, {}, Bytes(p, p + size)}.GetDouble(0), bits);
}

void ExpectSame(const TensorDesc& desc, const Bytes& found, const Bytes& expected, int64_t ulps,
                size_t output) {
  ASSERT_EQ(found.size(), expected.size());
  const auto size = static_cast<size_t>(SizeOf(desc.dtype));
  int shown = 0;
  for (size_t at = 0; at < found.size() && shown < 4; at += size) {
    if (SameElement(desc.dtype, &found[at], &expected[at], ulps)) continue;
    ++shown;
    ADD_FAILURE() << "output " << output << " at " << at / size << ": expected "
                  << ElementText(desc.dtype, &expected[at]) << ", found "
                  << ElementText(desc.dtype, &found[at]);
  }
}

// ---- runs

const Implementation* Find(std::span<const Implementation> table, std::string_view kernel) {
  for (const Implementation& impl : table) {
    if (impl.kernel == kernel) return &impl;
  }
  return nullptr;
}

CallSpec SpecOf(const Case& c) { return {c.kernel, c.params, c.inputs, c.outputs}; }

std::vector<Bytes> RunReference(const Case& c) {
  auto kernel = Find(ref::Implementations(), c.kernel)->prepare(SpecOf(c), {});
  if (!kernel.ok()) {
    ADD_FAILURE() << kernel.status().ToString();
    return {};
  }
  std::vector<Bytes> outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    in.push_back(c.inputs[i].present() ? c.values[i].data() : nullptr);
  for (const TensorDesc& y : c.outputs)
    outputs.emplace_back(static_cast<size_t>(y.bytes()), std::byte{0x11});
  for (size_t j = 0; j < outputs.size(); ++j)
    out.push_back(c.outputs[j].present() ? outputs[j].data() : nullptr);
  Bytes workspace(static_cast<size_t>((*kernel)->workspace_bytes()));
  int64_t index_error = 0;
  (*kernel)->Run(in, out, workspace.data(), {nullptr, &index_error});
  return outputs;
}

class CudaKernels : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto machine = Machine::Open();
    if (machine.ok()) {
      machine_ = std::move(machine).value();
    } else {
      no_machine_ = machine.status().message();
    }
  }
  static void TearDownTestSuite() { machine_.reset(); }
  void SetUp() override {
    if (machine_ == nullptr) GTEST_SKIP() << no_machine_;
  }

  /// Runs the case on the machine. Outputs start as garbage.
  static std::vector<Bytes> RunCuda(const Case& c) {
    const Implementation* impl = Find(cuda::Implementations(), c.kernel);
    EXPECT_EQ(impl->declines(SpecOf(c), {}), "");
    auto kernel = impl->prepare(SpecOf(c), {});
    if (!kernel.ok()) {
      ADD_FAILURE() << kernel.status().ToString();
      return {};
    }
    std::vector<std::unique_ptr<DeviceBuffer>> inputs, outputs;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      inputs.push_back(Buffer(c.inputs[i], c.values[i], c.shift));
      in.push_back(c.inputs[i].present() ? inputs[i]->data() : nullptr);
    }
    for (const TensorDesc& y : c.outputs) {
      outputs.push_back(Buffer(y, Bytes(static_cast<size_t>(y.bytes()), std::byte{0x5A}), c.shift));
      out.push_back(y.present() ? outputs.back()->data() : nullptr);
    }
    if (c.in_place >= 0) out[0] = const_cast<void*>(in[c.in_place]);
    (*kernel)->Run(in, out, nullptr, {machine_->stream(), nullptr});
    const Status finished = machine_->Finish();
    EXPECT_TRUE(finished.ok()) << finished.ToString();

    std::vector<Bytes> results;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Bytes now = Contents(*inputs[i]);
      if (static_cast<int>(i) == c.in_place) continue;
      EXPECT_TRUE(now == c.values[i]) << "input " << i << " changed";
    }
    for (size_t j = 0; j < outputs.size(); ++j) {
      results.push_back(Contents(j == 0 && c.in_place >= 0 ? *inputs[c.in_place] : *outputs[j]));
    }
    return results;
  }

  static void Check(Case c, uint64_t seed = 1) {
    SCOPED_TRACE(Describe(c));
    std::mt19937_64 random(seed);
    c.values.resize(c.inputs.size());
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (c.values[i].empty()) c.values[i] = RandomValues(c.inputs[i], random);
    }
    const std::vector<Bytes> expected = RunReference(c), found = RunCuda(c);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t j = 0; j < found.size(); ++j) {
      if (c.outputs[j].present()) ExpectSame(c.outputs[j], found[j], expected[j], c.ulps, j);
    }
  }

  /// Aligned and not.
  static void CheckShifted(Case c) {
    Check(c);
    c.shift = 1;
    Check(c);
  }

 private:
  static std::unique_ptr<DeviceBuffer> Buffer(const TensorDesc& desc, const Bytes& content,
                                              size_t shift) {
    auto buffer = std::make_unique<DeviceBuffer>(*machine_, content,
                                                 shift * static_cast<size_t>(SizeOf(desc.dtype)));
    EXPECT_TRUE(buffer->status().ok()) << buffer->status().ToString();
    return buffer;
  }
  static Bytes Contents(DeviceBuffer& buffer) {
    bool fences = false;
    auto bytes = buffer.Read(&fences);
    EXPECT_TRUE(bytes.ok() && fences) << "wrote outside an operand";
    return bytes.ok() ? std::move(bytes).value() : Bytes();
  }
  static std::string Describe(const Case& c) {
    std::string text = c.kernel + (c.shift != 0 ? " shifted" : "");
    for (const auto* list : {&c.inputs, &c.outputs}) {
      text += list == &c.outputs ? " ->" : "";
      for (const TensorDesc& t : *list) {
        text += fmt::format(" {}{}{}", Name(t.dtype), ampc::ToString(t.dims),
                            t.layout == kLast ? "cl" : "");
      }
    }
    return text + " " + std::string(c.params.String("expr").substr(0, 80));
  }

  static inline std::unique_ptr<Machine> machine_;
  static inline std::string no_machine_;
};

// ---- map

Case MapOf(std::string expr, std::vector<TensorDesc> inputs, std::vector<TensorDesc> outputs) {
  return {"map", {{"expr", std::move(expr)}}, std::move(inputs), std::move(outputs)};
}

std::string OperatorText(ExprOp op) {
  const std::string name(ExprOpName(op));
  if (op == ExprOp::kNeg) return "-x0";
  const bool function = std::isalpha(static_cast<unsigned char>(name[0])) != 0;
  switch (ExprArity(op)) {
    case 1:
      return function ? name + "(x0)" : name + "x0";
    case 2:
      return function ? name + "(x0, x1)" : "x0 " + name + " x1";
    default:
      return name + "(x0, x1, x2)";
  }
}

bool IsFunction(ExprOp op) {
  return op == ExprOp::kPow || op == ExprOp::kSigmoid ||
         (op >= ExprOp::kExp && op <= ExprOp::kErf && op != ExprOp::kSqrt);
}

TEST_F(CudaKernels, ComputeEveryOperatorInEveryType) {
  constexpr ExprOp kOps[] = {
#define EXPR_OP(name, arity, text) ExprOp::k##name,
#include "kernels/expr.def"
#undef EXPR_OP
  };
  for (const ExprOp op : kOps) {
    if (ExprArity(op) == 0) continue;
    for (const DType t : {kF32, kF64, kI64}) {
      const TensorDesc x = Desc(t, {1234});
      Case c = MapOf(OperatorText(op),
                     std::vector<TensorDesc>(static_cast<size_t>(ExprArity(op)), x), {x});
      c.ulps = IsFunction(op) ? kFunctionUlps : 0;
      Check(c);
    }
  }
}

TEST_F(CudaKernels, CastEveryTypeToEveryOther) {
  for (const DType from : kAllTypes) {
    for (const DType to : kAllTypes) {
      // 515 elements: whole vectors, a block and a bit, and a tail.
      CheckShifted(MapOf("x0", {Desc(from, {515})}, {Desc(to, {515})}));
      Check(MapOf("x0 * x1", {Desc(from, {7}), Desc(to, {7})}, {Desc(to, {7})}));
    }
  }
}

TEST_F(CudaKernels, CastsRoundOnce) {
  // Just above the middle of two fp16, of two bf16: rounded to float first they would be ties, and
  // go to even.
  const std::vector<double> values = {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40, 65520 - 0x1p-20,
                                      -0x1p-25 - 0x1p-70};
  const auto bytes = std::as_bytes(std::span(values));
  for (const DType to : {kF16, kBf16}) {
    Case c = MapOf("x0", {Desc(kF64, {4})}, {Desc(to, {4})});
    c.values = {Bytes(bytes.begin(), bytes.end())};
    Check(c);
    c = MapOf(to == kF16 ? "fp16(x0)" : "bf16(x0)", {Desc(kF64, {4})}, {Desc(kF64, {4})});
    c.values = {Bytes(bytes.begin(), bytes.end())};
    Check(c);
  }
}

TEST_F(CudaKernels, MapTakesEveryLength) {
  for (int64_t n = 0; n < 10; ++n)
    CheckShifted(MapOf("x0 + x1", {Desc(kF32, {n}), Desc(kF16, {n})}, {Desc(kBf16, {n})}));
  for (const int64_t n : {511, 512, 513, 2048, 5000})
    CheckShifted(MapOf("x0 * x0 - 1", {Desc(kF32, {n})}, {Desc(kF32, {n})}));
}

TEST_F(CudaKernels, MapBroadcastsAsNumpyDoes) {
  const std::vector<std::pair<Dims, Dims>> shapes = {
      {{3, 1, 5}, {4, 1}},       {{1}, {2, 3, 130}},    {{}, {700}},
      {{2, 3, 4, 5}, {3, 1, 1}}, {{6, 7}, {7}},         {{5, 1}, {1, 9}},
      {{2, 1, 3, 1}, {5, 1, 4}}, {{8, 1, 1}, {8, 6, 5}}};
  for (const auto& [a, b] : shapes) {
    Dims y(std::max(a.size(), b.size()), 1);
    for (const Dims* d : {&a, &b}) {
      for (size_t i = 0; i < d->size(); ++i) {
        int64_t& to = y[y.size() - d->size() + i];
        to = std::max(to, (*d)[i]);
      }
    }
    Check(MapOf("x0 - x1", {Desc(kF32, a), Desc(kBf16, b)}, {Desc(kF32, y)}));
    Check(MapOf("x1 / x0", {Desc(kI32, a), Desc(kI64, b)}, {Desc(kI64, y)}));
  }
}

TEST_F(CudaKernels, MapMixesLayouts) {
  const Dims dims = {2, 5, 3, 7};
  for (const Layout a : {Layout::kRowMajor, kLast}) {
    for (const Layout y0 : {Layout::kRowMajor, kLast}) {
      for (const Layout y1 : {Layout::kRowMajor, kLast}) {
        Check(MapOf("y0 = x0 + x1; y1 = x0 > x1", {Desc(kF16, dims, a), Desc(kF32, {5, 1, 1})},
                    {Desc(kF32, dims, y0), Desc(kBool, dims, y1)}));
      }
    }
  }
}

TEST_F(CudaKernels, MapRunsLongPrograms) {
  Case group = MapOf(
      "t = x0 * 0.5 + x1; u = max(t, 0); y0 = u; y1 = where(t > 0, bf16(t), x2 * -1.25e-3);"
      "y2 = fp16(u) * $k; y3 = isnan(x0) || t >= 1e30; y4 = 3",
      {Desc(kF32, {41, 13}), Desc(kF16, {13}), Desc(kBf16, {41, 1})},
      {Desc(kF32, {41, 13}), Desc(kBf16, {41, 13}), Desc(kF16, {41, 13}), Desc(kBool, {41, 13}),
       Desc(kF32, {41, 13})});
  group.params.Set("k", 0.1);
  Check(group);
  group.outputs[4].dtype = kF64;  // now in double
  Check(group);
  std::string text, sum = "x0";  // 40 values alive at a time: a smaller block
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("t{} = {} * x1;", i, i == 0 ? "x0" : fmt::format("t{}", i - 1));
    sum = fmt::format("t{} + ({})", i, sum);
  }
  for (const DType t : {kF32, kI64})
    Check(MapOf(text + "y0 = " + sum, {Desc(t, {300}), Desc(t, {300})}, {Desc(t, {300})}));
}

TEST_F(CudaKernels, MapLeavesOutAbsentOutputs) {
  Check(MapOf("y0 = x0; y1 = x0 * x2", {Desc(kF32, {9}), {}, Desc(kF32, {9})},
              {{}, Desc(kF32, {9})}));
}

TEST_F(CudaKernels, MapMayOverwriteAnInput) {
  for (const size_t shift : {size_t{0}, size_t{1}}) {
    Case same =
        MapOf("x0 * 2 + x1", {Desc(kF32, {1500}), Desc(kF32, {1500})}, {Desc(kF32, {1500})});
    same.in_place = 1;
    same.shift = shift;
    Check(same);
    Case cast = MapOf("x0", {Desc(kI32, {1500})}, {Desc(kF32, {1500})});
    cast.in_place = 0;
    cast.shift = shift;
    Check(cast);
  }
}

TEST_F(CudaKernels, MapSaysWhatItCannotDo) {
  const Implementation& map = *Find(cuda::Implementations(), "map");
  std::string sum = "x0";
  for (int i = 1; i < 30; ++i) sum += fmt::format(" + x{}", i);
  Case many = MapOf(sum, std::vector<TensorDesc>(30, Desc(kF32, {4})), {Desc(kF32, {4})});
  EXPECT_EQ(map.declines(SpecOf(many), {}), "more than 24 operands");
  const auto prepared = map.prepare(SpecOf(many), {});
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.status().error_class(), ErrorClass::kUnsupported);

  std::string text = "t0 = x0 * x0;", all = "x0";
  for (int i = 1; i < 60; ++i) {
    text += fmt::format("t{} = t{} * x0;", i, i - 1);
    all = fmt::format("t{} + ({})", i, all);
  }
  EXPECT_EQ(
      map.declines(SpecOf(MapOf(text + "y0 = " + all, {Desc(kF64, {4})}, {Desc(kF64, {4})})), {}),
      "60 values alive at a time, 48 fit into shared memory");
  const Dims deep(20, 2), thin = [] {
    Dims d(20, 1);
    for (size_t i = 0; i < d.size(); i += 2) d[i] = 2;
    return d;
  }();
  EXPECT_EQ(map.declines(SpecOf(MapOf("x0", {Desc(kF32, thin)}, {Desc(kF32, deep)})), {}),
            "an operand has 20 axes of its own, the CUDA kernels walk 8");
  EXPECT_NE(map.declines(SpecOf(MapOf("x0", {Desc(kF32, {3})}, {Desc(kF32, {4})})), {}),
            "");  // breaks the contract
}

// ---- movement

Attrs View(int64_t offset, std::vector<int64_t> strides) {
  return {{"offset", offset}, {"strides", std::move(strides)}};
}

TEST_F(CudaKernels, CopyReadsThroughStrides) {
  for (const DType t : {DType::kInt8, kF16, kF32, kF64}) {
    CheckShifted({"copy", View(0, {1}), {Desc(t, {1000})}, {Desc(t, {1000})}});
    CheckShifted(
        {"copy", View(0, {1, 24}), {Desc(t, {17, 24})}, {Desc(t, {24, 17})}});  // transpose
    CheckShifted(
        {"copy", View(64, {128, 1}), {Desc(t, {6, 128})}, {Desc(t, {6, 32})}});  // wide rows
    CheckShifted({"copy", View(3, {128, 1}), {Desc(t, {6, 128})}, {Desc(t, {6, 33})}});  // odd ones
    CheckShifted(
        {"copy", View(2, {128, 1}), {Desc(t, {6, 128})}, {Desc(t, {6, 32})}});  // in between
    CheckShifted(
        {"copy", View(29, {-3, 0}), {Desc(t, {30})}, {Desc(t, {10, 4})}});  // backward, repeated
    CheckShifted({"copy", View(5, {}), {Desc(t, {30})}, {Desc(t, {})}});
    Check(
        {"copy", View(0, {60, 20, 5, 1}), {Desc(t, {2, 3, 4, 5})}, {Desc(t, {2, 3, 4, 5}, kLast)}});
    Check(
        {"copy", View(0, {60, 1, 15, 3}), {Desc(t, {2, 3, 4, 5}, kLast)}, {Desc(t, {2, 3, 4, 5})}});
    Check({"copy", View(0, {8, 1}), {Desc(t, {4, 8})}, {Desc(t, {0, 8})}});
  }
}

TEST_F(CudaKernels, ScatterCopyFillsWhatItDoesNotWrite) {
  for (const DType t : {kBool, kBf16, kF32, kI64}) {
    Attrs padding = View(2 * 40 + 4, {40, 1});
    padding.Set("value", 1.0);
    CheckShifted({"scatter_copy", padding, {Desc(t, {5, 32})}, {Desc(t, {8, 40})}});
    Attrs backward = View(39, {-3});
    CheckShifted({"scatter_copy", backward, {Desc(t, {13})}, {Desc(t, {41})}});
  }
}

TEST_F(CudaKernels, ConcatJoinsAlongAnyAxis) {
  for (const DType t : {kBool, kF16, kF32, kF64}) {
    for (int64_t axis = 0; axis < 3; ++axis) {
      Dims a = {3, 4, 8}, b = a, none = a, y = a;
      b[axis] = 5;
      none[axis] = 0;
      y[axis] = 2 * a[axis] + 5;
      CheckShifted({"concat",
                    {{"axis", axis}},
                    {Desc(t, a), Desc(t, b), Desc(t, none), Desc(t, a)},
                    {Desc(t, y)}});
    }
  }
}

TEST_F(CudaKernels, FillWritesOneValue) {
  for (const DType t : kAllTypes) {
    for (const int64_t n : {0, 1, 16, 1000, 1001})
      CheckShifted({"fill", {{"value", -2.7}}, {}, {Desc(t, {n})}});
    Check({"fill", {{"value", int64_t{200}}}, {}, {Desc(t, {33})}});
    Check({"fill", {}, {}, {Desc(t, {33})}});
  }
}

// ---- dropout

Case DropoutOf(TensorDesc x, double ratio, TensorDesc y, TensorDesc mask,
               DType ratio_dtype = kF32) {
  const std::vector<int64_t> rng = {0x123456789ABCDEF, 0x700000003};
  const HostTensor rng_values = HostTensor::Int64s(rng);
  return {"dropout",
          {{"stream", int64_t{0xFFFFFFF0}}},
          {std::move(x), Desc(ratio_dtype, {}), Desc(kI64, {2})},
          {std::move(y), std::move(mask)},
          {{}, HostTensor::Scalar(ratio_dtype, ratio).data, rng_values.data}};
}

TEST_F(CudaKernels, DropoutKeepsTheSameElementsAsTheReference) {
  for (const double ratio : {0.0, 0.25, 0.5, 0.9, 1.0}) {
    for (const DType t : {kF16, kBf16, kF32, kF64}) {
      CheckShifted(DropoutOf(Desc(t, {1003}), ratio, Desc(t, {1003}), Desc(kBool, {1003})));
      const Dims dims = {2, 6, 5, 3};
      Check(DropoutOf(Desc(t, dims, kLast), ratio, Desc(t, dims), Desc(kBool, dims, kLast), kF64));
      Check(DropoutOf(Desc(t, dims), ratio, Desc(kF32, dims, kLast), {}, kF16));
    }
  }
  Check(DropoutOf(Desc(kF32, {0}), 0.5, Desc(kF32, {0}), Desc(kBool, {0})));
  Case in_place = DropoutOf(Desc(kF32, {600}), 0.3, Desc(kF32, {600}), Desc(kBool, {600}));
  in_place.in_place = 0;
  Check(in_place);
}

// ---- what stands below

TEST(CudaTable, NamesKernelsOfTheVocabularyOnce) {
  std::vector<std::string_view> seen;
  for (const Implementation& impl : cuda::Implementations()) {
    EXPECT_NE(FindKernel(impl.kernel), nullptr) << impl.kernel;
    EXPECT_EQ(std::ranges::count(seen, impl.kernel), 0) << impl.kernel;
    seen.push_back(impl.kernel);
  }
  EXPECT_FALSE(seen.empty());
}

TEST(CudaDivisor, DividesAsTheOperatorDoes) {
  std::mt19937 random(7);
  std::vector<uint32_t> numbers = {1,          2,          3,          5,         7,
                                   641,        65535,      65536,      65537,     0x7FFFFFFF,
                                   0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF};
  for (int i = 0; i < 200; ++i)
    numbers.push_back((static_cast<uint32_t>(random()) >> (random() % 32)) | 1u);
  for (const uint32_t d : numbers) {
    const cuda::Divisor divisor(d);
    ASSERT_EQ(divisor.Divide(0), 0u);
    for (const uint32_t n : numbers) {
      ASSERT_EQ(divisor.Divide(n), n / d) << n << " / " << d;
      ASSERT_EQ(divisor.Divide(n - 1), (n - 1) / d) << n - 1 << " / " << d;
    }
  }
}

}  // namespace
}  // namespace ampc::cuda_test
