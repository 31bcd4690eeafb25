// SPDX-License-Identifier: Apache-2.0
// Models that are written piece by piece: where the data of large ones lies, and that an old model
// keeps its own until the new one is in place.
#include "runtime/base/model_writer.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/onnx_weights.h"
#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

class ModelWriterTest : public TempDirTest {
 protected:
  /// A model whose initializer "w" is 1,024 floats `value`; not committed.
  Result<ModelWriter> Begin(const std::string& name, float value, bool beside = true) {
    AMPC_ASSIGN(ModelWriter writer, ModelWriter::Create(Path(name), beside));
    const std::vector<float> data(1024, value);
    const Dims dims = {1024};
    AMPC_TRY(writer.Begin({.name = "w", .dtype = DType::kFloat32, .dims = dims}));
    AMPC_TRY(writer.AppendData(std::as_bytes(std::span(data))));
    return writer;
  }
  void Write(const std::string& name, float value, bool beside = true) {
    Result<ModelWriter> writer = Begin(name, value, beside);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    const Status status = writer->Commit();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  /// What a reader of the model gets.
  float Value(const std::string& name) {
    const Result<OnnxWeights> model = OnnxWeights::Open(Path(name));
    if (!model.ok()) return -1;
    const auto bytes = model->Read(model->entries().at(0));
    if (!bytes.ok() || bytes->size() != 4096) return -2;
    float value = 0;
    std::memcpy(&value, bytes->data(), sizeof value);
    return value;
  }
};

TEST_F(ModelWriterTest, DataLiesBesideTheModel) {
  Write("m.onnx", 1);
  EXPECT_EQ(Listing(), (Texts{"m.onnx", "m.onnx.data"}));
  EXPECT_EQ(Value("m.onnx"), 1);
  Write("inside.onnx", 2, /*beside=*/false);
  EXPECT_EQ(Value("inside.onnx"), 2);
  EXPECT_FALSE(fs::exists(Path("inside.onnx.data")));
}

TEST_F(ModelWriterTest, DataLiesBesideTheFileThatALinkNames) {
  fs::create_directory(Path("far"));
  fs::create_symlink("far/m.onnx", Path("link.onnx"));
  Write("link.onnx", 3);
  EXPECT_EQ(Value("far/m.onnx"), 3);
  EXPECT_TRUE(fs::exists(Path("far/m.onnx.data")));
  EXPECT_EQ(Listing(), (Texts{"far", "link.onnx"}));
}

TEST_F(ModelWriterTest, WithoutACommitTheOldModelStays) {
  Write("m.onnx", 1);
  ASSERT_TRUE(Begin("m.onnx", 2).ok());
  EXPECT_EQ(Value("m.onnx"), 1);
  EXPECT_EQ(Listing(), (Texts{"m.onnx", "m.onnx.data"}));
}

TEST_F(ModelWriterTest, TheOldModelKeepsItsDataUntilTheNewOneIsInPlace) {
  Write("m.onnx", 1);
  Result<ModelWriter> writer = Begin("m.onnx", 2);
  ASSERT_TRUE(writer.ok());
  // The model's rename fails, after that of its data.
  ASSERT_TRUE(fs::remove(Path("m.onnx.tmp." + std::to_string(getpid()))));
  EXPECT_EQ(writer->Commit().exit_code(), 6);
  EXPECT_EQ(Value("m.onnx"), 1);
  EXPECT_EQ(Listing(), (Texts{"m.onnx", "m.onnx.data", "m.onnx.data2"}));
  Write("m.onnx", 3);
  EXPECT_EQ(Value("m.onnx"), 3);
  EXPECT_EQ(Listing(), (Texts{"m.onnx", "m.onnx.data2"}));
  Write("m.onnx", 4);
  EXPECT_EQ(Value("m.onnx"), 4);
  EXPECT_EQ(Listing(), (Texts{"m.onnx", "m.onnx.data"}));
}

}  // namespace
}  // namespace ampc
