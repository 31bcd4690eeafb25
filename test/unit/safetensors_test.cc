// SPDX-License-Identifier: Apache-2.0
// safetensors: what is written reads back, and a file that breaks a rule of the format is refused.

#include "runtime/data/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

class Safetensors : public TempDirTest {
 protected:
  static std::string File(const std::string& header, const std::string& data, int64_t length = -1) {
    const uint64_t size = length < 0 ? header.size() : static_cast<uint64_t>(length);
    return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
  }
  // The message, or "" when the file is accepted.
  std::string Refusal(const std::string& bytes) {
    Result<SafetensorsFile> file = SafetensorsFile::Open(Put("bad", bytes));
    return file.ok() ? "" : file.status().ToString();
  }
  std::string Refusal(const std::string& header, size_t data_size) {
    return Refusal(File(header, std::string(data_size, 'x')));
  }
};

TEST_F(Safetensors, WhatIsWrittenReadsBack) {
  std::vector<SafetensorsEntry> entries = {{"b", DType::kUInt8, Dims{3}},
                                           {"a\"\n\xC3\xA9", DType::kFloat32, Dims{2, 2}},
                                           {"low", DType::kBFloat16, Dims{}},
                                           {"none", DType::kInt64, Dims{0, 5}}};
  SafetensorsWriter writer =
      SafetensorsWriter::Create(Path("w"), entries, {{"format", "pt"}}).value();
  std::vector<std::string> order;
  for (const SafetensorsEntry& entry : writer.entries()) {
    order.push_back(entry.name);
    const std::string data(static_cast<size_t>(entry.bytes), entry.name[0]);
    ASSERT_TRUE(writer.Append(std::as_bytes(std::span(data))).ok());
  }
  EXPECT_EQ(order, (std::vector<std::string>{"none", "a\"\n\xC3\xA9", "low", "b"}))
      << "widest elements first";
  ASSERT_TRUE(writer.Commit().ok());

  SafetensorsFile file = SafetensorsFile::Open(Path("w")).value();
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.entries().size(), 4u);
  for (const SafetensorsEntry& entry : entries) {
    const SafetensorsEntry* found = file.Find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(found->dtype, entry.dtype);
    EXPECT_EQ(found->dims, entry.dims);
    for (std::byte b : file.bytes(*found)) EXPECT_EQ(std::to_integer<char>(b), entry.name[0]);
  }
  EXPECT_EQ(file.Find("c"), nullptr);
}

TEST_F(Safetensors, AnIncompleteFileIsNotCommitted) {
  SafetensorsWriter writer =
      SafetensorsWriter::Create(Path("w"), {{"a", DType::kFloat32, Dims{2}}}).value();
  const float half[1] = {1};
  ASSERT_TRUE(writer.Append(std::as_bytes(std::span(half))).ok());
  EXPECT_FALSE(writer.Commit().ok());
  EXPECT_FALSE(std::filesystem::exists(Path("w")));
}

TEST_F(Safetensors, NamesThatCannotBeWrittenAreRefused) {
  EXPECT_FALSE(SafetensorsWriter::Create(Path("w"), {{"\xFF", DType::kFloat32, Dims{}}}).ok());
  EXPECT_FALSE(
      SafetensorsWriter::Create(Path("w"), {{"__metadata__", DType::kFloat32, Dims{}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(
                   Path("w"), {{"a", DType::kFloat32, Dims{}}, {"a", DType::kFloat32, Dims{}}})
                   .ok());
}

TEST_F(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(Refusal("{}", 0), "");
  EXPECT_EQ(Refusal("{}      ", 0), "") << "padding";
  EXPECT_EQ(
      Refusal(R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
              8),
      "");
  EXPECT_EQ(Refusal(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},
                        "z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},
                        "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                    5),
            "")
      << "in any order";
}

TEST_F(Safetensors, RefusesWhatBreaksARule) {
  struct Case {
    const char* header;
    size_t data;
    const char* why;
  };
  const Case cases[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, "file holds 9"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, "file holds 7"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "does not have 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, "lists of sizes"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "a hole"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "overlap"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1, "twice"},
      {R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "twice"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1, "F8_E4M3"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "lists of sizes"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "lists of sizes"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})",
       0, "does not have"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
       "lists of sizes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "expected dtype"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "expected dtype"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "lists of sizes"},
      {R"({"__metadata__":{"a":1}})", 0, "text to text"},
      {R"({"__metadata__":[1]})", 0, "text to text"},
      {R"([1])", 0, "no JSON object"},
      {R"( {})", 0, "no JSON object"},
      {R"({"a":)", 0, "no JSON object"},
      {"", 0, "no JSON object"},
  };
  for (const Case& c : cases) {
    const std::string message = Refusal(c.header, c.data);
    EXPECT_NE(message.find(c.why), std::string::npos) << c.header << " gave " << message;
  }
}

TEST_F(Safetensors, RefusesLyingHeaderSizesAndTruncation) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const std::string good = File(header, std::string(8, 'x'));
  ASSERT_EQ(Refusal(good), "");
  for (size_t n = 0; n < good.size(); n += 3) EXPECT_NE(Refusal(good.substr(0, n)), "") << n;
  for (int64_t length :
       {int64_t{1} << 62, int64_t{100'000'001}, int64_t{1000}, int64_t{1}, int64_t{0}}) {
    EXPECT_NE(Refusal(File(header, std::string(8, 'x'), length)), "") << length;
  }
}

TEST_F(Safetensors, DeepNestingIsRefusedWithoutBeingBuilt) {
  const std::string deep = "{\"a\":" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}";
  EXPECT_NE(Refusal(deep, 0), "");
}

}  // namespace
}  // namespace ampc
