// SPDX-License-Identifier: Apache-2.0
// .npy and idx: what is written reads back, foreign byte orders and Fortran order give the right
// elements, and a header that lies is refused before anything is allocated for it.

#include "runtime/data/npy.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/base/float16.h"
#include "runtime/data/array.h"
#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

// A version 1 file with the given dict text and data.
std::string Npy(const std::string& dict, std::string_view data, char major = 1) {
  std::string text = "\x93NUMPY";
  text += major;
  text += '\0';
  text += static_cast<char>(dict.size() & 0xFF);
  text += static_cast<char>(dict.size() >> 8);
  if (major > 1) text.append(2, '\0');
  return text + dict + std::string(data);
}
std::string Dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

std::vector<double> Values(const Array& array) {
  const HostTensor tensor{array.dtype, array.dims, PackedBytes(array)};
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.GetDouble(i));
  return values;
}

class NpyFiles : public TempDirTest {
 protected:
  Result<Array> Load(const std::string& name, std::string_view bytes) {
    return ArrayLoader().Load(Put(name, bytes));
  }
  // The message, or "" when the file is accepted.
  std::string Refusal(std::string_view bytes) {
    Result<Array> array = Load("bad", bytes);
    return array.ok() ? "" : array.status().ToString();
  }
};
using IdxFiles = NpyFiles;

TEST_F(NpyFiles, WhatIsWrittenReadsBack) {
  const std::vector<float> data = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(
      WriteNpy(Path("a.npy"), DType::kFloat32, Dims{2, 3}, std::as_bytes(std::span(data))).ok());
  Array array = ArrayLoader().Load(Path("a.npy")).value();
  EXPECT_EQ(array.dtype, DType::kFloat32);
  EXPECT_EQ(array.dims, (Dims{2, 3}));
  EXPECT_EQ(Values(array), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Get("a.npy").size() % 8, 0u) << "64-byte header";

  const uint8_t flag = 1;
  ASSERT_TRUE(
      WriteNpy(Path("b.npy"), DType::kBool, Dims{}, std::as_bytes(std::span(&flag, 1))).ok());
  EXPECT_EQ(ArrayLoader().Load(Path("b.npy"))->dims, Dims{});
  ASSERT_TRUE(WriteNpy(Path("c.npy"), DType::kInt64, Dims{0, 4}, {}).ok());
  EXPECT_EQ(ArrayLoader().Load(Path("c.npy"))->dims, (Dims{0, 4}));
}

TEST_F(NpyFiles, BFloat16IsWrittenAsFloat32) {
  const std::vector<uint16_t> data = {BFloat16FromFloat(1.5f), BFloat16FromFloat(-3.0f)};
  ASSERT_TRUE(
      WriteNpy(Path("a.npy"), DType::kBFloat16, Dims{2}, std::as_bytes(std::span(data))).ok());
  Array array = ArrayLoader().Load(Path("a.npy")).value();
  EXPECT_EQ(array.dtype, DType::kFloat32);
  EXPECT_EQ(Values(array), (std::vector<double>{1.5, -3.0}));
}

TEST_F(NpyFiles, ReadsEveryVersionAndSpelling) {
  for (char major : {'\1', '\2', '\3'}) {
    EXPECT_EQ(Values(*Load("a", Npy(Dict("|u1", "(2,)"), "\x05\x06", major))),
              (std::vector<double>{5, 6}));
  }
  EXPECT_EQ(
      Load("b", Npy("{\"shape\": (2L,), 'fortran_order':False,'descr':'u1'}", "\x05\x06"))->dims,
      Dims{2});
}

TEST_F(NpyFiles, BigEndianIsSwapped) {
  EXPECT_EQ(Values(*Load("a", Npy(Dict(">i2", "(2,)"), std::string("\x01\x02\xFF\xFE", 4)))),
            (std::vector<double>{258, -2}));
  EXPECT_EQ(Values(*Load("b", Npy(Dict(">f4", "()"), std::string("\x3F\xC0\x00\x00", 4)))),
            std::vector<double>{1.5});
}

TEST_F(NpyFiles, FortranOrderIsAView) {
  // Columns of [[1,2,3],[4,5,6]] one after the other.
  Array array = Load("a", Npy(Dict("|u1", "(2, 3)", "True"), "\x01\x04\x02\x05\x03\x06")).value();
  EXPECT_FALSE(array.contiguous());
  EXPECT_EQ(Values(array), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST_F(NpyFiles, RefusesWhatWouldRunCodeOrIsNotPlain) {
  EXPECT_NE(Refusal(Npy(Dict("|O", "(1,)"), "xxxxxxxx")).find("pickled"), std::string::npos);
  EXPECT_NE(
      Refusal(Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "xxxx"))
          .find("structured"),
      std::string::npos);
  for (const char* descr : {"<U4", "|S3", "|V2", "<M8[ns]", "<c8", "<f16", "", "<"}) {
    EXPECT_NE(Refusal(Npy(Dict(descr, "(1,)"), "xxxx")).find("E0712"), std::string::npos) << descr;
  }
}

TEST_F(NpyFiles, RefusesTruncatedAndLyingFiles) {
  const std::string good = Npy(Dict("<f4", "(2, 2)"), std::string(16, 'x'));
  ASSERT_EQ(Refusal(good), "");
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_NE(Refusal(good.substr(0, n)), "") << n << " bytes";
  EXPECT_NE(Refusal(good + "y").find("needs 16 bytes"), std::string::npos)
      << "bytes behind the end";
  for (const char* shape :
       {"(9223372036854775807, 2)", "(4294967296, 4294967296, 4294967296)",
        "(99999999999999999999,)", "(-1,)", "(2,,2)", "(2, 2", "2", "(1.5,)", "(a,)", "(2 2)"}) {
    EXPECT_NE(Refusal(Npy(Dict("<f4", shape), std::string(16, 'x'))), "") << shape;
  }
  EXPECT_NE(Refusal(Npy(Dict("<f8", "(1000000000000,)"), "")).find("8000000000000"),
            std::string::npos)
      << "no memory is asked for before the file's size is checked";
  EXPECT_NE(Refusal(Npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (), }",
                        "xxxx")),
            "");
  EXPECT_NE(Refusal(Npy("{'descr': '<f4', 'shape': (), }", "xxxx")), "") << "a key is missing";
  EXPECT_NE(Refusal(Npy(Dict("<f4", "()") + "trailing", "xxxx")), "");
  EXPECT_NE(Refusal(Npy(Dict("<f4", "()", "Maybe"), "xxxx")), "");
  EXPECT_NE(Refusal(Npy(Dict("<f4", "()"), "xxxx", 9)), "") << "unknown version";
}

TEST_F(NpyFiles, AnEmptyArrayMayHaveHugeOtherAxes) {
  for (const char* fortran : {"False", "True"}) {
    Array array = Load("a", Npy(Dict("<f4", "(0, 4294967296, 4294967296)", fortran), "")).value();
    EXPECT_TRUE(array.contiguous());
    EXPECT_TRUE(PackedBytes(array).empty());
  }
}

TEST_F(NpyFiles, ErrorsNameTheFile) {
  EXPECT_NE(Refusal("garbage").find(Path("bad")), std::string::npos);
  EXPECT_NE(Refusal("garbage").find("unknown format"), std::string::npos);
  EXPECT_NE(Refusal(""), "");
  Put("a.npy", Npy(Dict("|u1", "(1,)"), "x"));
  EXPECT_EQ(ArrayLoader().Load(Path("a.npy"), "x").status().exit_code(), 2)
      << "member= without an archive";
  EXPECT_EQ(ArrayLoader().Load(Path("none")).status().exit_code(), 6);
}

// ---- idx ----

std::string Idx(char type, const std::vector<uint32_t>& dims, std::string_view data) {
  std::string text(2, '\0');
  text += type;
  text += static_cast<char>(dims.size());
  for (uint32_t d : dims) {
    for (int shift : {24, 16, 8, 0}) text += static_cast<char>(d >> shift);
  }
  return text + std::string(data);
}

std::string Gzip(std::string_view text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

TEST_F(IdxFiles, BigEndianElementsOfEveryTypeAreRead) {
  EXPECT_EQ(Values(*Load("a", Idx(0x08, {2, 2}, "\x01\x02\x03\xFF"))),
            (std::vector<double>{1, 2, 3, 255}));
  EXPECT_EQ(Values(*Load("b", Idx(0x09, {1}, "\xFF"))), std::vector<double>{-1});
  EXPECT_EQ(Values(*Load("c", Idx(0x0B, {1}, "\x01\x02"))), std::vector<double>{258});
  EXPECT_EQ(Values(*Load("d", Idx(0x0C, {1}, "\xFF\xFF\xFF\xFE"))), std::vector<double>{-2});
  EXPECT_EQ(Values(*Load("e", Idx(0x0D, {1}, std::string("\x3F\xC0\0\0", 4)))),
            std::vector<double>{1.5});
  EXPECT_EQ(Values(*Load("f", Idx(0x0E, {1}, std::string("\x3F\xF8\0\0\0\0\0\0", 8)))),
            std::vector<double>{1.5});
}

TEST_F(IdxFiles, GzippedFilesAreReadAlsoInSeveralMembers) {
  const std::string plain = Idx(0x08, {3, 100}, std::string(300, '\x07'));
  Array array = Load("a.gz", Gzip(plain)).value();
  EXPECT_EQ(array.dims, (Dims{3, 100}));
  EXPECT_EQ(Values(array), std::vector<double>(300, 7));
  EXPECT_EQ(Values(*Load("b.gz", Gzip(plain.substr(0, 150)) + Gzip(plain.substr(150)))),
            std::vector<double>(300, 7));
}

TEST_F(IdxFiles, RefusesTruncatedAndLyingFiles) {
  const std::string good = Idx(0x0B, {2, 3}, std::string(12, 'x'));
  ASSERT_EQ(Refusal(good), "");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(Refusal(good.substr(0, n)), "") << n;
  EXPECT_NE(Refusal(good + "y"), "");
  EXPECT_NE(Refusal(Idx(0x0A, {1}, "x")), "") << "unknown type";
  EXPECT_NE(Refusal(Idx(0x08, std::vector<uint32_t>(33, 1), "x")), "") << "too many axes";
  const std::vector<uint32_t> huge(4, 0xFFFFFFFF);
  EXPECT_NE(Refusal(Idx(0x08, huge, "x")).find("addressed"), std::string::npos);

  const std::string zipped = Gzip(good);
  ASSERT_EQ(Refusal(zipped), "");
  for (size_t n = 2; n < zipped.size(); ++n) EXPECT_NE(Refusal(zipped.substr(0, n)), "") << n;
  EXPECT_NE(Refusal(zipped + "y"), "");
  EXPECT_NE(Refusal(Gzip(good + "y")).find("more than"), std::string::npos);
  EXPECT_NE(Refusal(Gzip(Idx(0x08, {0xFFFFFFFF, 0xFFFF}, "x"))).find("cannot come from"),
            std::string::npos)
      << "no memory is asked for what the compressed bytes cannot hold";
  EXPECT_NE(Refusal(Gzip(Idx(0x08, huge, "x"))), "");
  std::string wrong_crc = zipped;
  wrong_crc[wrong_crc.size() - 6] ^= 1;
  EXPECT_NE(Refusal(wrong_crc).find("damaged"), std::string::npos);
}

}  // namespace
}  // namespace ampc
