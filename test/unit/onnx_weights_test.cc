// SPDX-License-Identifier: Apache-2.0
// Initializers read from the wire, of files that ONNX's own classes wrote; damaged ones are errors.

#include "runtime/onnx_weights.h"

#include <cstring>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

class OnnxWeightsTest : public TempDirTest {
 protected:
  onnx::TensorProto* Add(const std::string& name, int dtype, std::vector<int64_t> dims) {
    onnx::TensorProto* t = model_.mutable_graph()->add_initializer();
    t->set_name(name);
    t->set_data_type(dtype);
    t->mutable_dims()->Assign(dims.begin(), dims.end());
    return t;
  }
  void External(onnx::TensorProto* t, const std::string& location, const std::string& offset) {
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>{"location", location}, {"offset", offset}}) {
      onnx::StringStringEntryProto* entry = t->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
  }
  Result<OnnxWeights> Open() {
    Put("m.onnx", model_.SerializeAsString());
    return OnnxWeights::Open(Path("m.onnx"));
  }
  template <typename T>
  static std::vector<T> As(const Result<std::vector<std::byte>>& bytes) {
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    std::vector<T> out(bytes->size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), bytes->data(), bytes->size());
    return out;
  }

  onnx::ModelProto model_;
};

TEST_F(OnnxWeightsTest, ReadsAModelInMemory) {
  Add("ints", onnx::TensorProto::INT64, {1})->add_int64_data(7);
  External(Add("beside", onnx::TensorProto::FLOAT, {2}), "m.data", "4");
  const std::string model = model_.SerializeAsString();
  const Result<OnnxWeights> weights = OnnxWeights::Of(model);
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  EXPECT_EQ(As<int64_t>(weights->Read(weights->entries()[0])), (std::vector<int64_t>{7}));
  EXPECT_EQ(weights->Read(weights->entries()[1]).status().id(), "E0664") << "beside which file?";
}

TEST_F(OnnxWeightsTest, ReadsEveryFormOfData) {
  const float raw[] = {1, -2};
  Add("raw", onnx::TensorProto::FLOAT, {2})->set_raw_data(raw, sizeof raw);
  onnx::TensorProto* typed = Add("typed", onnx::TensorProto::FLOAT, {1, 2});
  typed->add_float_data(3);
  typed->add_float_data(4);
  Add("double", onnx::TensorProto::DOUBLE, {})->add_double_data(0.1);
  onnx::TensorProto* half = Add("half", onnx::TensorProto::FLOAT16, {2});
  half->add_int32_data(0x3c00);
  half->add_int32_data(0xbc00);
  onnx::TensorProto* ints = Add("ints", onnx::TensorProto::INT64, {2});
  ints->add_int64_data(-1);
  ints->add_int64_data(int64_t{1} << 40);
  Add("int8", onnx::TensorProto::INT8, {1})->add_int32_data(-3);
  Add("empty", onnx::TensorProto::FLOAT, {0, 3});
  Add("words", onnx::TensorProto::STRING, {1})->add_string_data("no weight");
  External(Add("beside", onnx::TensorProto::FLOAT, {2}), "m.data", "4");
  Put("m.data", std::string("skip") + std::string(reinterpret_cast<const char*>(raw), 8));

  const Result<OnnxWeights> weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  const std::vector<OnnxInitializer>& e = weights->entries();
  ASSERT_EQ(e.size(), 8U) << "strings are left out";
  EXPECT_EQ(e[1].name, "typed");
  EXPECT_EQ(e[1].dims, (Dims{1, 2}));
  EXPECT_EQ(As<float>(weights->Read(e[0])), (std::vector<float>{1, -2}));
  EXPECT_EQ(As<float>(weights->Read(e[1])), (std::vector<float>{3, 4}));
  EXPECT_EQ(As<double>(weights->Read(e[2])), std::vector<double>{0.1});
  EXPECT_EQ(As<uint16_t>(weights->Read(e[3])), (std::vector<uint16_t>{0x3c00, 0xbc00}));
  EXPECT_EQ(As<int64_t>(weights->Read(e[4])), (std::vector<int64_t>{-1, int64_t{1} << 40}));
  EXPECT_EQ(As<int8_t>(weights->Read(e[5])), std::vector<int8_t>{-3});
  EXPECT_TRUE(As<float>(weights->Read(e[6])).empty());
  EXPECT_EQ(As<float>(weights->Read(e[7])), (std::vector<float>{1, -2}));
}

TEST_F(OnnxWeightsTest, RefusesDataThatDoesNotFit) {
  Add("short", onnx::TensorProto::FLOAT, {3})->set_raw_data("1234");
  External(Add("large", onnx::TensorProto::FLOAT, {int64_t{1} << 40}), "m.data", "0");
  External(Add("late", onnx::TensorProto::FLOAT, {1}), "m.data", "7");
  External(Add("outside", onnx::TensorProto::FLOAT, {1}), "a/../../m.data", "0");
  External(Add("absolute", onnx::TensorProto::FLOAT, {1}), Path("m.data"), "0");
  Put("m.data", "12345678");
  const Result<OnnxWeights> weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  for (const OnnxInitializer& e : weights->entries())
    EXPECT_EQ(weights->Read(e).status().id(), e.name == "short" ? "E0664" : "E0105") << e.name;
  External(Add("negative", onnx::TensorProto::FLOAT, {1}), "m.data", "-4");
  EXPECT_EQ(Open().status().message(),
            "tensor 'negative' has external_data offset='-4', expected a number >= 0");
}

// The rules of the importer: the file itself, beside the model, and nothing that would wait.
TEST_F(OnnxWeightsTest, ReadsNoOtherPlace) {
  Put("m.data", "12345678");
  ASSERT_EQ(symlink(Path("m.data").c_str(), Path("link").c_str()), 0);
  ASSERT_EQ(symlink(Path(".").c_str(), Path("folder").c_str()), 0);
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(Path("dir").c_str(), 0700), 0);
  for (const char* place : {"link", "folder/m.data", "pipe", "dir", "none", "", "../m.data"})
    External(Add(place, onnx::TensorProto::FLOAT, {1}), place, "0");
  const Result<OnnxWeights> weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().ToString();
  for (const OnnxInitializer& e : weights->entries()) {
    const Status s = weights->Read(e).TakeStatus();
    EXPECT_EQ(s.id(), "E0105") << e.name;
    EXPECT_TRUE(s.message().starts_with(fmt::format("tensor '{}' has external", e.name)))
        << s.message();
  }
  ASSERT_EQ(link(Path("m.data").c_str(), Path("second_name").c_str()), 0);
  External(Add("hard", onnx::TensorProto::FLOAT, {1}), "m.data", "0");
  EXPECT_EQ(Open()->Read(Open()->entries().back()).status().id(), "E0105");
}

TEST_F(OnnxWeightsTest, DamageIsAnErrorOrOtherNumbersNeverACrash) {
  Add("a", onnx::TensorProto::FLOAT, {2})->set_raw_data("12345678");
  Add("b", onnx::TensorProto::INT64, {2, 1})->add_int64_data(5);
  const std::string whole = model_.SerializeAsString();
  int refused = 0;
  const auto look = [&](const std::string& bytes) {
    Put("m.onnx", bytes);
    const Result<OnnxWeights> weights = OnnxWeights::Open(Path("m.onnx"));
    refused += weights.ok() ? 0 : 1;
    if (!weights.ok()) return;
    for (const OnnxInitializer& e : weights->entries()) {
      if (e.bytes() < 1000) static_cast<void>(weights->Read(e).ok());
    }
  };
  for (size_t length = 0; length < whole.size(); ++length) look(whole.substr(0, length));
  EXPECT_EQ(refused, static_cast<int>(whole.size())) << "a part is never taken for the whole";
  for (size_t i = 0; i < whole.size() * 8; ++i) {
    std::string damaged = whole;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
    look(damaged);
  }
}

}  // namespace
}  // namespace ampc
