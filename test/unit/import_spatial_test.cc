// SPDX-License-Identifier: Apache-2.0
// Import: ops that become others. Einsum against the plain sum over all labels; pools, resizing,
// grids and blocks against values worked out by hand.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include <onnx/onnx_pb.h>

#include "test/unit/import_harness.h"

namespace ampc {
namespace {

std::string ListOf(const std::vector<double>& values) {
  std::string text;
  for (const double v : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", v);
  return text;
}

std::vector<double> Folded(const std::string& body, int opset = 22) {
  const TextImport m = Import(ModelText(opset, "(float[1] unused) => (float[1] y)", body));
  EXPECT_TRUE(m.result.ok()) << m.Error() << "\n" << body;
  if (!m.result.ok()) return {};
  const std::vector<double> values = OutputValues(m.graph());
  EXPECT_FALSE(values.empty()) << "y did not fold: " << Short(m.graph());
  return values;
}

// ---- edges of small ranks

TEST(ImportRewrites, HardmaxTakesALine) {
  const std::string x = "x = Constant <value = float[3] {1, 5, 5}> ()\n";
  EXPECT_EQ(Folded(x + "y = Hardmax (x)\n"), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(Folded(x + "y = Hardmax <axis = 0> (x)\n", 11), (std::vector<double>{0, 1, 0}));
}

TEST(ImportRewrites, GatherNDGivesAScalar) {
  EXPECT_EQ(Folded("x = Constant <value = float[2,2] {1, 2, 3, 4}> ()\n"
                   "i = Constant <value = int64[2] {1, 0}> ()\ny = GatherND (x, i)\n"),
            (std::vector<double>{3}));
}

// ---- Einsum

// The same with every axis written out: "..." replaced by letters of its own.
struct Contraction {
  const char* equation;
  std::vector<std::string> inputs;  ///< labels of each operand
  std::string output;
  std::map<char, int64_t> sizes;
};

std::vector<double> Operand(size_t i, int64_t n) {
  std::vector<double> v(static_cast<size_t>(n));
  for (size_t k = 0; k < v.size(); ++k) v[k] = static_cast<double>((k * 7 + i * 5) % 11) - 4;
  return v;
}

std::vector<double> PlainSum(const Contraction& c) {
  std::string all;
  for (const auto& [label, size] : c.sizes) all += label;
  int64_t total = 1, out = 1;
  for (const char l : all) total *= c.sizes.at(l);
  for (const char l : c.output) out *= c.sizes.at(l);
  std::vector<double> y(static_cast<size_t>(out), 0.0);
  for (int64_t t = 0; t < total; ++t) {
    std::map<char, int64_t> at;
    int64_t rest = t;
    for (const char l : all) {
      at[l] = rest % c.sizes.at(l);
      rest /= c.sizes.at(l);
    }
    const auto place = [&](const std::string& labels) {
      int64_t flat = 0;
      for (const char l : labels) flat = flat * c.sizes.at(l) + at[l];
      return static_cast<size_t>(flat);
    };
    double product = 1;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      int64_t n = 1;
      for (const char l : c.inputs[i]) n *= c.sizes.at(l);
      product *= Operand(i, n)[place(c.inputs[i])];
    }
    y[place(c.output)] += product;
  }
  return y;
}

class Einsum : public testing::TestWithParam<Contraction> {};

TEST_P(Einsum, IsThePlainSum) {
  const Contraction& c = GetParam();
  std::string body, names;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    int64_t n = 1;
    std::string dims;
    for (const char l : c.inputs[i]) {
      n *= c.sizes.at(l);
      dims += fmt::format("{}{}", dims.empty() ? "" : ",", c.sizes.at(l));
    }
    const std::string type = dims.empty() ? "float" : fmt::format("float[{}]", dims);
    body += fmt::format("x{} = Constant <value = {} {{{}}}> ()\n", i, type, ListOf(Operand(i, n)));
    names += fmt::format("{}x{}", names.empty() ? "" : ", ", i);
  }
  body += fmt::format("y = Einsum <equation = \"{}\"> ({})", c.equation, names);
  EXPECT_EQ(Folded(body), PlainSum(c)) << c.equation;
}

const std::map<char, int64_t> kSizes = {{'i', 2}, {'j', 3}, {'k', 4}};

INSTANTIATE_TEST_SUITE_P(
    Import, Einsum,
    testing::Values(
        Contraction{"ij,jk->ik", {"ij", "jk"}, "ik", kSizes},
        Contraction{"ij,jk->ki", {"ij", "jk"}, "ki", kSizes},
        Contraction{"ij, jk", {"ij", "jk"}, "ik", kSizes},
        Contraction{"kj,ji", {"kj", "ji"}, "ik", kSizes},
        Contraction{
            "bij,bjk->bik", {"bij", "bjk"}, "bik", {{'b', 2}, {'i', 3}, {'j', 2}, {'k', 3}}},
        Contraction{"bhqd,bhkd->bhqk",
                    {"bhqd", "bhkd"},
                    "bhqk",
                    {{'b', 2}, {'h', 2}, {'q', 3}, {'k', 2}, {'d', 3}}},
        Contraction{"bqhd,bkhd->bhqk",
                    {"bqhd", "bkhd"},
                    "bhqk",
                    {{'b', 2}, {'h', 2}, {'q', 3}, {'k', 2}, {'d', 3}}},
        Contraction{"ij,ij->", {"ij", "ij"}, "", {{'i', 2}, {'j', 3}}},
        Contraction{"i,i->i", {"i", "i"}, "i", {{'i', 4}}},
        Contraction{"i,j->ij", {"i", "j"}, "ij", {{'i', 2}, {'j', 3}}},
        Contraction{"i,j->ji", {"i", "j"}, "ji", {{'i', 2}, {'j', 3}}},
        Contraction{"ij,k->ikj", {"ij", "k"}, "ikj", kSizes},
        Contraction{"ij->", {"ij"}, "", {{'i', 2}, {'j', 3}}},
        Contraction{"ji", {"ji"}, "ij", {{'i', 2}, {'j', 3}}},
        Contraction{"ii", {"ii"}, "", {{'i', 3}}}, Contraction{"ii->i", {"ii"}, "i", {{'i', 3}}},
        Contraction{"iji->j", {"iji"}, "j", {{'i', 3}, {'j', 2}}},
        Contraction{"iii->i", {"iii"}, "i", {{'i', 3}}},
        Contraction{"ijij->ji", {"ijij"}, "ji", {{'i', 2}, {'j', 3}}},
        Contraction{"ii,ij->j", {"ii", "ij"}, "j", {{'i', 3}, {'j', 2}}},
        Contraction{"...ii->...i", {"abii"}, "abi", {{'a', 2}, {'b', 2}, {'i', 3}}},
        Contraction{"...ij,...jk->...ik",
                    {"abij", "bjk"},
                    "abik",
                    {{'a', 2}, {'b', 3}, {'i', 2}, {'j', 3}, {'k', 2}}},
        Contraction{"...ij,jk", {"aij", "jk"}, "aik", {{'a', 2}, {'i', 2}, {'j', 3}, {'k', 2}}},
        Contraction{"i...->...", {"iab"}, "ab", {{'i', 3}, {'a', 2}, {'b', 2}}},
        Contraction{"i...,i...->i", {"iab", "ib"}, "i", {{'i', 3}, {'a', 2}, {'b', 2}}},
        Contraction{
            "ij,jk,kl->il", {"ij", "jk", "kl"}, "il", {{'i', 2}, {'j', 3}, {'k', 2}, {'l', 3}}},
        Contraction{
            "ij,ik,il->jkl", {"ij", "ik", "il"}, "jkl", {{'i', 3}, {'j', 2}, {'k', 2}, {'l', 2}}},
        Contraction{"i,i,i->", {"i", "i", "i"}, "", {{'i', 4}}},
        Contraction{"ij,k->i", {"ij", "k"}, "i", kSizes},
        Contraction{"aB,Bc->ca", {"aB", "Bc"}, "ca", {{'a', 2}, {'B', 3}, {'c', 2}}},
        Contraction{"->", {""}, "", {}}, Contraction{",i->i", {"", "i"}, "i", {{'i', 3}}}));

TEST(ImportEinsum, BroadcastsAxesOfSizeOne) {
  const std::string x =
      "a = Constant <value = float[1,3] {1, 2, 3}> ()\nb = Constant <value = float[2,3] {1, 0, 2, "
      "3, 1, 1}> ()\n";
  EXPECT_EQ(Folded(x + "y = Einsum <equation = \"...j,...j->...\"> (a, b)"),
            (std::vector<double>{7, 8}));
  EXPECT_EQ(Folded(x + "y = Einsum <equation = \"ij,ij->j\"> (a, b)"),
            (std::vector<double>{4, 2, 9}));
}

TEST(ImportEinsum, RefusesWhatDoesNotFit) {
  const auto error = [](const std::string& equation) {
    return Import(ModelText(22, "(float[2,3] a, float[3,2] b) => (float[1] y)",
                            "y = Einsum <equation = \"" + equation + "\"> (a, b)"))
        .Error();
  };
  EXPECT_NE(error("ij,ij->i").find("label 'i' has size 2, but 3 in operand 1"), std::string::npos);
  EXPECT_NE(error("ij->i").find("has 1 operands, the node 2"), std::string::npos);
  EXPECT_NE(error("ij,jk->ii").find("twice in the output"), std::string::npos);
  EXPECT_NE(error("ij,jk->iz").find("'z' is in no operand"), std::string::npos);
  EXPECT_NE(error("ijk,jk->i").find("does not fit its dims"), std::string::npos);
  EXPECT_NE(error("i1,jk->i").find("letters and one '...'"), std::string::npos);
}

// ---- pools

constexpr const char* kPlane =
    "x = Constant <value = float[1,1,2,4] {3, 0, 1, -2, 4, 0, 2, 0}> ()\n";

TEST(ImportPools, LpPoolIsTheRootOfTheSumOfPowers) {
  const std::string pool = "y = LpPool <kernel_shape = [2, 2], strides = [2, 2], p = {}> (x)";
  EXPECT_EQ(Folded(kPlane + fmt::format(fmt::runtime(pool), 2)), (std::vector<double>{5, 3}));
  EXPECT_EQ(Folded(kPlane + fmt::format(fmt::runtime(pool), 1)), (std::vector<double>{7, 5}));
  const std::vector<double> cubes = Folded(kPlane + fmt::format(fmt::runtime(pool), 3));
  ASSERT_EQ(cubes.size(), 2u);
  EXPECT_NEAR(cubes[0], std::cbrt(27 + 64), 1e-6);
  EXPECT_NEAR(cubes[1], std::cbrt(1 + 8 + 8), 1e-6);
}

TEST(ImportPools, LpPoolCountsWhatCeilModeHangsOver) {
  EXPECT_EQ(
      Folded(std::string(kPlane) +
             "y = LpPool <kernel_shape = [2, 3], strides = [2, 3], ceil_mode = 1, p = 1> (x)"),
      (std::vector<double>{10, 2}));
}

TEST(ImportPools, GlobalLpPoolTakesThePlane) {
  EXPECT_EQ(Folded(std::string(kPlane) + "y = GlobalLpPool <p = 1> (x)"), std::vector<double>{12});
  EXPECT_NEAR(Folded(std::string(kPlane) + "y = GlobalLpPool (x)").at(0), std::sqrt(34.0), 1e-6);
  EXPECT_NEAR(Folded(std::string(kPlane) + "y = GlobalLpPool <p = 3> (x)").at(0),
              std::cbrt(27 + 1 + 8 + 64 + 8), 1e-6);
}

TEST(ImportPools, MaxUnpoolInvertsMaxPoolAlsoForOddSizes) {
  // Indices of the 3 x 3 plane mean that plane.
  const TextImport m =
      Import(ModelText(22, "(float[1,1,3,3] x) => (float[1,1,3,3] y)",
                       "v, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)\n"
                       "s = Constant <value_ints = [1, 1, 3, 3]> ()\n"
                       "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (v, i, s)"));
  EXPECT_TRUE(m.result.ok()) << m.Error();
  const TextImport loose =
      Import(ModelText(22, "(float[1,1,1,1] v, int64[1,1,1,1] i) => (float[1,1,3,3] y)",
                       "s = Constant <value_ints = [1, 1, 3, 3]> ()\n"
                       "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (v, i, s)"));
  EXPECT_NE(loose.Error().find("do not come from a MaxPool"), std::string::npos) << loose.Error();
}

// ---- resizing, grids, blocks

TEST(ImportResize, OlderFormsMeanTheSame) {
  const std::string x = "x = Constant <value = float[1,1,1,4] {1, 2, 3, 4}> ()\n";
  const std::string up = "s = Constant <value = float[4] {1, 1, 1, 2}> ()\n",
                    down = "s = Constant <value = float[4] {1, 1, 1, 0.5}> ()\n";
  const std::vector<double> twice = {1, 1, 2, 2, 3, 3, 4, 4};
  EXPECT_EQ(Folded(x + "y = Upsample <scales = [1.0, 1.0, 1.0, 2.0]> (x)", 8), twice);
  EXPECT_EQ(Folded(x + up + "y = Upsample (x, s)", 9), twice);
  EXPECT_EQ(Folded(x + up + "y = Resize (x, s)", 10), twice);
  EXPECT_EQ(Folded(x + down + "y = Resize (x, s)", 10), (std::vector<double>{1, 3}));
  EXPECT_EQ(Folded(x + up + "y = Upsample <mode = \"linear\"> (x, s)", 9),
            (std::vector<double>{1, 1.5, 2, 2.5, 3, 3.5, 4, 4}));
  const std::string empty = "e = Constant <value = float[0] {}> ()\n";
  EXPECT_EQ(
      Folded(x + empty +
                 "z = Constant <value = int64[4] {1, 1, 1, 8}> ()\n"
                 "y = Resize <coordinate_transformation_mode = \"asymmetric\", nearest_mode = "
                 "\"floor\"> (x, e, e, z)",
             11),
      twice);
}

TEST(ImportResize, ScalesDoNotTrain) {
  const TextImport m = Import(
      "<ir_version: 8, opset_import: [\"\" : 9]>\n"
      "m (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1, 1, 2, 2}> { y = Upsample (x, "
      "s) }");
  EXPECT_TRUE(m.result.ok()) << m.Error();
}

TEST(ImportAffineGrid, IdentityGivesTheCentresOrTheCorners) {
  const std::string theta =
      "t = Constant <value = float[1,2,3] {1, 0, 0, 0, 1, 0}> ()\n"
      "s = Constant <value_ints = [1, 1, 2, 2]> ()\n";
  EXPECT_EQ(Folded(theta + "y = AffineGrid (t, s)"),
            (std::vector<double>{-0.5, -0.5, 0.5, -0.5, -0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(Folded(theta + "y = AffineGrid <align_corners = 1> (t, s)"),
            (std::vector<double>{-1, -1, 1, -1, -1, 1, 1, 1}));
}

TEST(ImportCol2Im, AddsBlocksWhereTheyOverlap) {
  EXPECT_EQ(Folded("x = Constant <value = float[1,2,3] {1, 2, 3, 10, 20, 30}> ()\n"
                   "i = Constant <value_ints = [4]> ()\nb = Constant <value_ints = [2]> ()\n"
                   "y = Col2Im (x, i, b)"),
            (std::vector<double>{1, 12, 23, 30}));
  EXPECT_EQ(Folded("x = Constant <value = float[1,2,3] {1, 2, 3, 10, 20, 30}> ()\n"
                   "i = Constant <value_ints = [2]> ()\nb = Constant <value_ints = [2]> ()\n"
                   "y = Col2Im <pads = [1, 1]> (x, i, b)"),
            (std::vector<double>{12, 23}));
}

}  // namespace
}  // namespace ampc
