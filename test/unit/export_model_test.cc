// SPDX-License-Identifier: Apache-2.0
// Exported models, read by ONNX's own classes.

#include "runtime/export_model.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "runtime/base/float16.h"
#include "runtime/data/safetensors.h"
#include "test/unit/tiny_plan.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;
using plan::Plan;

class ExportModelTest : public testing::Test {
 protected:
  ExportModelTest() {
    folder_ =
        fs::temp_directory_path() / ("export_test." + std::to_string(getpid()) + "." +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    onnx::ModelProto source;
    source.set_ir_version(10);
    source.add_opset_import()->set_version(18);
    source.mutable_graph()->set_name("tiny");
    source.mutable_graph()->add_input()->set_name("x");
    source.mutable_graph()->add_initializer()->set_name("shape");
    onnx::NodeProto* node = source.mutable_graph()->add_node();
    node->set_op_type("MatMul");
    node->add_input("x");
    node->add_input("fc.weight");
    plan_.source_model = source.SerializeAsString();
    device_ = std::move(OpenDevice("cpu", {.threads = 1, .reference_only = true})).value();
  }
  ~ExportModelTest() override { fs::remove_all(folder_); }

  Status Export(int64_t max_inline_bytes) {
    AMPC_ASSIGN(const auto executor, Executor::Prepare(plan_, *device_));
    return ExportModel(plan_, *executor, path_(), {max_inline_bytes});
  }
  std::string path_() const { return folder_ / "out.onnx"; }
  onnx::ModelProto Read() {
    onnx::ModelProto model;
    std::ifstream in(path_(), std::ios::binary);
    EXPECT_TRUE(model.ParseFromIstream(&in));
    return model;
  }

  fs::path folder_;
  Plan plan_ = plan::TinyPlan();
  std::unique_ptr<Device> device_;
};

std::string Raw(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(ExportModelTest, AppendsInitializersToTheSource) {
  ASSERT_TRUE(Export(1 << 20).ok());
  const onnx::ModelProto model = Read();
  EXPECT_EQ(model.opset_import(0).version(), 18);
  EXPECT_EQ(model.graph().name(), "tiny");
  EXPECT_EQ(model.graph().node_size(), 1);
  ASSERT_EQ(model.graph().initializer_size(), 3);
  EXPECT_EQ(model.graph().initializer(0).name(), "shape");
  const onnx::TensorProto& w = model.graph().initializer(1);
  EXPECT_EQ(w.name(), "fc.weight");
  EXPECT_EQ(w.data_type(), onnx::TensorProto::FLOAT);
  ASSERT_EQ(w.dims_size(), 2);
  EXPECT_EQ(w.dims(0), 3);
  EXPECT_EQ(w.dims(1), 2);
  EXPECT_EQ(w.raw_data(), Raw(plan::BytesOf<float>({1, 2, 3, 4, 5, 6})));
  EXPECT_EQ(model.graph().initializer(2).raw_data(), Raw(plan::BytesOf<float>({7, 8})));
  EXPECT_FALSE(fs::exists(path_() + ".data"));
}

TEST_F(ExportModelTest, RoundsOnceToTheSourceType) {
  const std::vector<double> values = {
      1 + 0x1p-11 + 0x1p-40, 70000, 1e-9, 0, -1, 2};  // two roundings would give 1
  plan_.weights = std::make_shared<plan::VectorWeights>(plan::BytesOf(values));
  plan_.programs.clear();
  plan_.states[0].desc.dtype = DType::kFloat64;
  plan_.states[0].initial.length = 48;
  plan_.exports.pop_back();
  plan_.exports[0].inverse = plan::Export::Inverse::kRound;
  plan_.exports[0].dtype = DType::kFloat16;
  ASSERT_TRUE(Export(1 << 20).ok());
  std::vector<uint16_t> expected;
  for (const double v : values) expected.push_back(HalfFromDouble(v));
  EXPECT_EQ(expected[0], HalfFromFloat(1 + 0x1p-10F));
  const onnx::ModelProto model = Read();
  EXPECT_EQ(model.graph().initializer(1).data_type(), onnx::TensorProto::FLOAT16);
  EXPECT_EQ(model.graph().initializer(1).raw_data(), Raw(plan::BytesOf(expected)));
}

TEST_F(ExportModelTest, InitializersKeepTheirPlaceAndTheirNotes) {
  onnx::ModelProto after;
  after.mutable_graph()->add_initializer()->set_name("between");
  onnx::TensorProto notes;
  notes.set_doc_string("the only layer");
  plan_.exports[0].notes = notes.SerializeAsString();
  plan_.exports[0].rest = static_cast<int64_t>(after.ByteSizeLong());
  plan_.source_model += after.SerializeAsString();
  ASSERT_TRUE(VerifyPlan(plan_).ok()) << VerifyPlan(plan_).ToString();
  ASSERT_TRUE(Export(1 << 20).ok());
  const onnx::ModelProto model = Read();
  std::string names;
  for (const onnx::TensorProto& t : model.graph().initializer()) names += t.name() + " ";
  EXPECT_EQ(names, "shape fc.weight between frozen ");
  EXPECT_EQ(model.graph().initializer(1).doc_string(), "the only layer");
}

TEST_F(ExportModelTest, LargeModelsPutWeightsBeside) {
  std::vector<float> big(1000);
  for (size_t i = 0; i < big.size(); ++i) big[i] = static_cast<float>(i);
  plan_.weights = std::make_shared<plan::VectorWeights>(plan::BytesOf(big));
  plan_.programs.clear();
  plan_.states[0].desc.dims = {10, 100};
  plan_.states[0].initial.length = 4000;
  plan_.states[1].desc.dims = {10, 100};
  plan_.exports[0].dims = {10, 100};
  plan::Export again = plan_.exports[0];
  again.initializer = "again";
  plan_.exports.push_back(again);
  ASSERT_TRUE(VerifyPlan(plan_).ok());
  ASSERT_TRUE(Export(1000).ok());
  const onnx::ModelProto model = Read();
  ASSERT_EQ(model.graph().initializer_size(), 4);
  EXPECT_EQ(model.graph().initializer(2).raw_data().size(), 8U) << "small ones stay inside";
  for (const int i : {1, 3}) {
    const onnx::TensorProto& t = model.graph().initializer(i);
    EXPECT_EQ(t.data_location(), onnx::TensorProto::EXTERNAL);
    EXPECT_FALSE(t.has_raw_data());
    ASSERT_EQ(t.external_data_size(), 3);
    EXPECT_EQ(t.external_data(0).value(), "out.onnx.data");
    const int64_t offset = std::stoll(t.external_data(1).value());
    EXPECT_EQ(offset % 4096, 0);
    EXPECT_EQ(t.external_data(2).value(), "4000");
    std::ifstream in(path_() + ".data", std::ios::binary);
    in.seekg(offset);
    std::vector<float> read(1000);
    in.read(reinterpret_cast<char*>(read.data()), 4000);
    EXPECT_EQ(read, big);
  }
}

TEST_F(ExportModelTest, TheDataOfAModelStaysUntilAnotherModelIsInPlace) {
  std::vector<float> big(1000, 1);
  plan_.weights = std::make_shared<plan::VectorWeights>(plan::BytesOf(big));
  plan_.programs.clear();
  plan_.states[0].desc.dims = plan_.states[1].desc.dims = {10, 100};
  plan_.states[0].initial.length = 4000;
  plan_.exports[0].dims = {10, 100};
  const auto location = [&] { return Read().graph().initializer(1).external_data(0).value(); };
  const auto exists = [&](const char* suffix) { return std::filesystem::exists(path_() + suffix); };
  ASSERT_TRUE(Export(1000).ok());
  EXPECT_EQ(location(), "out.onnx.data");
  // The next one never touches the file that the model in place reads.
  ASSERT_TRUE(Export(1000).ok());
  EXPECT_EQ(location(), "out.onnx.data2");
  EXPECT_FALSE(exists(".data")) << "nobody reads it any more";
  ASSERT_TRUE(Export(1000).ok());
  EXPECT_EQ(location(), "out.onnx.data");
  EXPECT_FALSE(exists(".data2"));
  // A file of that name which the model does not name is not ours to remove.
  std::ofstream(path_() + ".data2") << "mine";
  ASSERT_TRUE(Export(1 << 20).ok());
  EXPECT_EQ(Read().graph().initializer(1).raw_data().size(), 4000U);
  EXPECT_TRUE(exists(".data2"));
}

TEST_F(ExportModelTest, NoSourceModelIsAnError) {
  plan_.source_model.clear();
  EXPECT_EQ(Export(1).id(), "E0662");
  EXPECT_FALSE(fs::exists(path_()));
}

TEST_F(ExportModelTest, SavesWeightsByInitializerName) {
  const auto executor = Executor::Prepare(plan_, *device_);
  const std::string path = folder_ / "w.safetensors";
  ASSERT_TRUE(SaveWeights(plan_, **executor, path).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->entries().size(), 2U);
  const SafetensorsEntry* w = file->Find("fc.weight");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->dims, (Dims{3, 2}));
  const auto bytes = file->bytes(*w);
  EXPECT_EQ(std::vector<std::byte>(bytes.begin(), bytes.end()),
            plan::BytesOf<float>({1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace ampc
