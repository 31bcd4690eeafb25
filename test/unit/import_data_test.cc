// SPDX-License-Identifier: Apache-2.0
// Import: tensor data in every storage, weights that stay references, external files that must not
// be opened, damage.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include <onnx/onnx_pb.h>

#include "compiler/onnx/proto_util.h"
#include "compiler/onnx/weights.h"
#include "test/unit/import_harness.h"
#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> Bytes(const TensorData& data) {
  const auto tensor = ReadTensor(data);
  return tensor.ok() ? tensor->data : std::vector<std::byte>();
}

onnx::TensorProto Header(DType dtype, int64_t elements) {
  onnx::TensorProto t;
  t.set_name("t");
  t.set_data_type(static_cast<int>(dtype));
  t.add_dims(elements);
  return t;
}

class ImportData : public TempDirTest {
 protected:
  // A model y = x + w with w as given; returns its path.
  std::string Model(const onnx::TensorProto& w, const std::string& name = "m.onnx") {
    onnx::ModelProto model;
    model.set_ir_version(8);
    model.add_opset_import()->set_version(17);
    auto* graph = model.mutable_graph();
    graph->set_name("g");
    for (auto* value : {graph->add_input(), graph->add_output()}) {
      value->set_name(value == &graph->input(0) ? "x" : "y");
      auto* tensor = value->mutable_type()->mutable_tensor_type();
      tensor->set_elem_type(w.data_type());
      for (int64_t d : w.dims()) tensor->mutable_shape()->add_dim()->set_dim_value(d);
    }
    auto* node = graph->add_node();
    node->set_op_type("Add");
    node->add_input("x");
    node->add_input("w");
    node->add_output("y");
    *graph->add_initializer() = w;
    graph->mutable_initializer(0)->set_name("w");
    return Put(name, model.SerializeAsString());
  }
  onnx::TensorProto External(const std::string& location, const std::string& key = "",
                             const std::string& value = "") {
    onnx::TensorProto t = Header(DType::kFloat32, 4);
    t.set_data_location(onnx::TensorProto::EXTERNAL);
    Entry(t, "location", location);
    if (!key.empty()) Entry(t, key, value);
    return t;
  }
  static void Entry(onnx::TensorProto& t, const std::string& key, const std::string& value) {
    auto* entry = t.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  std::string Refusal(const onnx::TensorProto& w) {
    Diagnostics d;
    const auto imported = ImportModel(Model(w), Fp32(), d, EvaluateNode);
    return imported.ok() ? "" : imported.status().ToString();
  }
};

// The same 5 elements from raw_data, from the typed field and from a file.
TEST_F(ImportData, EveryTypeDecodesEquallyFromEveryStorage) {
  const DType types[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                         DType::kInt64,   DType::kInt32,   DType::kInt16,   DType::kInt8,
                         DType::kUInt64,  DType::kUInt32,  DType::kUInt16,  DType::kUInt8,
                         DType::kBool};
  for (DType dtype : types) {
    HostTensor expected{dtype, {5}, {}};
    for (double v : {0.0, 1.0, 0.0, 1.0, 1.0}) {
      const HostTensor one = HostTensor::Scalar(dtype, dtype == DType::kBool ? v : v * 100 + 7);
      expected.data.insert(expected.data.end(), one.data.begin(), one.data.end());
    }
    onnx::TensorProto raw = Header(dtype, 5), typed = Header(dtype, 5), external = Header(dtype, 5);
    TensorToProto(expected, &raw);
    for (int64_t i = 0; i < 5; ++i) {
      switch (dtype) {
        case DType::kFloat32:
          typed.add_float_data(expected.As<float>()[static_cast<size_t>(i)]);
          break;
        case DType::kFloat64:
          typed.add_double_data(expected.GetDouble(i));
          break;
        case DType::kInt64:
          typed.add_int64_data(expected.GetInt(i));
          break;
        case DType::kUInt64:
        case DType::kUInt32:
          typed.add_uint64_data(static_cast<uint64_t>(expected.GetInt(i)));
          break;
        case DType::kFloat16:
        case DType::kBFloat16:
          typed.add_int32_data(expected.As<uint16_t>()[static_cast<size_t>(i)]);
          break;
        default:
          typed.add_int32_data(static_cast<int32_t>(expected.GetInt(i)));
          break;
      }
    }
    Put("data.bin",
        std::string(3, 'x') +
            std::string(reinterpret_cast<const char*>(expected.data.data()), expected.data.size()));
    external.set_data_location(onnx::TensorProto::EXTERNAL);
    Entry(external, "location", "data.bin");
    Entry(external, "offset", "3");
    for (const onnx::TensorProto* proto : {&raw, &typed, &external}) {
      ModelFiles files(dir_);
      const auto found = files.Find(*proto);
      ASSERT_TRUE(found.ok()) << found.status().ToString();
      EXPECT_EQ(found->form.dtype, dtype);
      EXPECT_EQ(Bytes(*found), expected.data) << Name(dtype);
    }
  }
}

TEST_F(ImportData, LargeWeightsStayInTheFile) {
  constexpr int64_t kElements = 1 << 18;
  onnx::TensorProto raw = Header(DType::kFloat32, kElements), packed = raw;
  for (int64_t i = 0; i < kElements; ++i) packed.add_float_data(static_cast<float>(i));
  raw.set_raw_data(packed.float_data().data(), kElements * sizeof(float));
  for (const onnx::TensorProto* proto : {&raw, &packed}) {
    const std::string path = Model(*proto);
    Diagnostics d;
    const auto imported = ImportModel(path, Fp32(), d, EvaluateNode);
    ASSERT_TRUE(imported.ok()) << imported.status().ToString();
    const ir::StateVar& w = imported->module->states.at(0);
    EXPECT_EQ(w.initial.bytes.source->path(), path);
    EXPECT_EQ(w.initial.bytes.length, kElements * 4);
    float last = 0;
    ASSERT_TRUE(w.initial.bytes.source
                    ->Read(w.initial.bytes.offset + (kElements - 1) * 4,
                           std::as_writable_bytes(std::span(&last, 1)))
                    .ok());
    EXPECT_EQ(last, static_cast<float>(kElements - 1));
    EXPECT_LT(imported->source.model.size(), 300u);
  }
}

TEST_F(ImportData, LargeConstantNodesCountAsInitializers) {
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(Get(fs::path(Model(Header(DType::kFloat32, 0))).filename())));
  auto* graph = model.mutable_graph();
  graph->clear_initializer();
  for (auto* value : {graph->mutable_input(0), graph->mutable_output(0)}) {
    value->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(
        100000);
  }
  auto* node = graph->add_node();
  node->set_op_type("Constant");
  node->add_output("w");
  auto* attribute = node->add_attribute();
  attribute->set_name("value");
  attribute->set_type(onnx::AttributeProto::TENSOR);
  *attribute->mutable_t() = Header(DType::kFloat32, 100000);
  attribute->mutable_t()->set_raw_data(std::string(400000, '\0'));
  Diagnostics d;
  const auto imported =
      ImportModel(Put("c.onnx", model.SerializeAsString()), Fp32(), d, EvaluateNode);
  ASSERT_TRUE(imported.ok()) << imported.status().ToString();
  ASSERT_EQ(imported->module->states.size(), 1u);
  EXPECT_EQ(imported->module->states[0].role, ir::Role::kConstant);
  EXPECT_FALSE(imported->module->states[0].trainable);
  EXPECT_LT(imported->source.model.size(), 300u);
}

TEST_F(ImportData, LocationsOutsideTheFolderAreRefused) {
  fs::create_directory(Path("inner"));
  Put("secret.bin", std::string(16, 's'));
  Put("linked.bin", std::string(16, 's'));
  fs::create_symlink(Path("secret.bin"), Path("link.bin"));
  fs::create_directory_symlink(Path("inner"), Path("inner_link"));
  Put("inner/data.bin", std::string(16, 'd'));
  fs::create_hard_link(Path("linked.bin"), Path("hard.bin"));
  ASSERT_EQ(mkfifo(Path("pipe.bin").c_str(), 0600), 0);
  const std::pair<std::string, std::string> cases[] = {
      {"../secret.bin", "'..' is not allowed"},
      {"inner/../../secret.bin", "'..' is not allowed"},
      {Path("secret.bin"), "an absolute path is not allowed"},
      {"link.bin", "is a symbolic link"},
      {"inner_link/data.bin", "Not a directory"},
      {"hard.bin", "has 2 hard links"},
      {"missing.bin", "No such file or directory"},
      {"inner", "is a folder"},
      {"inner/", "names no file"},
      {"pipe.bin", "is no regular file"},
      {"", "without a location"},
      {std::string("secret.bin\0x", 12), "NUL"},
  };
  for (const auto& [location, why] : cases) {
    const std::string error = Refusal(External(location));
    EXPECT_NE(error.find("m.onnx: error[E0105]: tensor 'w'"), std::string::npos)
        << location << ": " << error;
    EXPECT_NE(error.find(why), std::string::npos) << location << ": " << error;
  }
  EXPECT_EQ(Refusal(External("inner/data.bin")), "");
  EXPECT_EQ(Refusal(External("./inner//data.bin")), "");
}

TEST_F(ImportData, ExternalRangesAreChecked) {
  Put("data.bin", std::string(16, 'd'));
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {"offset", "1", "needs bytes 1 to 17 of"},
      {"offset", "9223372036854775807", "which has 16"},
      {"offset", "-1", "expected a number >= 0"},
      {"offset", "12345678901234567890", "expected a number >= 0"},
      {"length", "15", "its external length is 15"},
      {"colour", "1", "has the external_data key 'colour'"},
      {"location", "data.bin", "twice"},
      {"ampc.region", "0", "has the external_data key 'ampc.region'"},
  };
  for (const auto& [key, value, why] : cases) {
    const std::string error = Refusal(External("data.bin", key, value));
    EXPECT_NE(error.find(why), std::string::npos) << key << "=" << value << ": " << error;
  }
  EXPECT_EQ(Refusal(External("data.bin", "length", "16")), "");
}

TEST_F(ImportData, DimsThatDisagreeWithTheDataAreRefused) {
  onnx::TensorProto t = Header(DType::kFloat32, 4);
  t.set_raw_data(std::string(15, 'x'));
  EXPECT_NE(
      Refusal(t).find("error[E0104]: tensor 'w' (float[4]) needs 16 bytes of data, but has 15"),
      std::string::npos)
      << Refusal(t);
  t.set_raw_data(std::string(5000, 'x'));
  EXPECT_NE(Refusal(t).find("needs 16 bytes of data, but has 5000"), std::string::npos)
      << "data that was left out of the message";
  t.clear_raw_data();
  t.add_float_data(1);
  EXPECT_NE(Refusal(t).find("needs 4 values, but has 1"), std::string::npos);
  t.set_dims(0, -4);
  EXPECT_NE(Refusal(t).find("impossible dims [-4]"), std::string::npos);
  t.set_dims(0, int64_t{1} << 40);
  t.add_dims(int64_t{1} << 40);
  EXPECT_NE(Refusal(t).find("impossible dims"), std::string::npos);
  onnx::TensorProto unknown = Header(DType::kFloat32, 1);
  unknown.set_data_type(onnx::TensorProto::FLOAT8E4M3FN);
  unknown.set_raw_data("x");
  EXPECT_NE(Refusal(unknown).find("tensor 'w' has element type FLOAT8E4M3FN"), std::string::npos);
  unknown.set_data_type(99);
  EXPECT_NE(Refusal(unknown).find("has element type type 99"), std::string::npos);
}

TEST_F(ImportData, WhatIsNoModelIsRefused) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "the file is empty"},
      {"hello, world", "not an ONNX model"},
      {std::string("\x08\x08", 2), "it has no graph"}};
  for (const auto& [bytes, why] : cases) {
    Diagnostics d;
    const auto imported = ImportModel(Put("bad.onnx", bytes), Fp32(), d, EvaluateNode);
    ASSERT_FALSE(imported.ok());
    EXPECT_NE(imported.status().ToString().find(why), std::string::npos)
        << imported.status().ToString();
  }
  Diagnostics d;
  EXPECT_EQ(ImportModel(Path("none.onnx"), Fp32(), d, EvaluateNode).status().exit_code(), 6);
}

// Every truncation and every flipped byte is an error or another valid model, never a crash.
TEST_F(ImportData, DamagedFilesAreRefusedCleanly) {
  onnx::TensorProto w = Header(DType::kFloat32, 400);
  w.set_raw_data(std::string(1600, '\1'));
  const std::string good = Get(fs::path(Model(w)).filename());
  int refused = 0;
  auto run = [&](const std::string& bytes) {
    Diagnostics d;
    refused += !ImportModel(Put("damaged.onnx", bytes), Fp32(), d, EvaluateNode).ok();
  };
  for (size_t n = 0; n < good.size(); n += n < 120 ? 1 : 97) run(good.substr(0, n));
  EXPECT_GT(refused, 100);
  for (size_t i = 0; i < good.size(); i += i < 120 || i + 40 > good.size() ? 1 : 301) {
    for (int flip : {0x01, 0x80}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(static_cast<unsigned char>(bytes[i]) ^ flip);
      run(bytes);
    }
  }
}

TEST_F(ImportData, RepeatedGraphMessagesMerge) {
  onnx::TensorProto w = Header(DType::kFloat32, 2000);
  w.set_raw_data(std::string(8000, '\1'));
  const std::string whole = Get(fs::path(Model(w)).filename());
  onnx::ModelProto model, tail;
  ASSERT_TRUE(model.ParseFromString(whole));
  *tail.mutable_graph()->add_initializer() = model.graph().initializer(0);
  model.mutable_graph()->clear_initializer();
  Diagnostics d;
  const auto imported =
      ImportModel(Put("two.onnx", model.SerializeAsString() + tail.SerializeAsString()), Fp32(), d,
                  EvaluateNode);
  ASSERT_TRUE(imported.ok()) << imported.status().ToString();
  EXPECT_EQ(imported->module->states.at(0).initial.bytes.length, 8000);
}

TEST(ProtoUtil, AttributesSurviveTheRoundTrip) {
  const Attr values[] = {
      int64_t{-5},
      0.5,
      std::string("text"),
      std::vector<int64_t>{1, 2},
      std::vector<double>{0.25},
      std::vector<std::string>{"a", ""},
      std::make_shared<const HostTensor>(HostTensor::Scalar(DType::kBFloat16, 1.5))};
  for (const Attr& value : values) {
    onnx::AttributeProto proto;
    AttrToProto("a", value, &proto);
    const auto back = AttrFromProto(proto);
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_TRUE((Attrs{{"a", value}} == Attrs{{"a", *back}}));
  }
}

}  // namespace
}  // namespace ampc
