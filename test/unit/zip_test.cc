// SPDX-License-Identifier: Apache-2.0
// .npz: arrays that grow side by side, deflated members as other writers make them, and archives
// that lie.

#include "runtime/data/zip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/float16.h"
#include "runtime/data/array.h"
#include "runtime/data/inflate.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "test/unit/temp_dir.h"

namespace ampc {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

template <typename T>
std::string Le(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

// Everything of a member that a hostile writer may choose.
struct Member {
  std::string name = "a.npy";
  std::string data;
  uint16_t method = 0, flags = 0;
  uint32_t crc = 0;
  uint32_t compressed = 0, size = 0, offset = 0;
  std::string extra, local_name;

  explicit Member(std::string content)
      : data(std::move(content)), crc(ZipCrc32(Bytes(data))), local_name(name) {
    compressed = size = static_cast<uint32_t>(data.size());
  }
};

std::string Archive(const std::vector<Member>& members, int count_error = 0) {
  std::string file, directory;
  for (const Member& m : members) {
    directory += "PK\x01\x02" + Le<uint32_t>(20) + Le(m.flags) + Le(m.method) + Le<uint32_t>(0) +
                 Le(m.crc) + Le(m.compressed) + Le(m.size) +
                 Le(static_cast<uint16_t>(m.name.size())) +
                 Le(static_cast<uint16_t>(m.extra.size())) + std::string(10, '\0') + Le(m.offset) +
                 m.name + m.extra;
    file += "PK\x03\x04" + std::string(22, '\0') + Le(static_cast<uint16_t>(m.local_name.size())) +
            Le<uint16_t>(0) + m.local_name + m.data;
  }
  const uint32_t start = static_cast<uint32_t>(file.size());
  const uint16_t count = static_cast<uint16_t>(static_cast<int>(members.size()) + count_error);
  return file + directory + "PK\x05\x06" + Le<uint32_t>(0) + Le(count) + Le(count) +
         Le(static_cast<uint32_t>(directory.size())) + Le(start) + Le<uint16_t>(0);
}

std::string Deflate(std::string_view text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
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

// [n] uint8 of sevens.
std::string Sevens(int64_t n) {
  return MakeNpyHeader(DType::kUInt8, Dims{n}) + std::string(static_cast<size_t>(n), '\x07');
}

Member Deflated(const std::string& content) {
  Member m(content);
  m.method = 8;
  m.data = Deflate(content);
  m.compressed = static_cast<uint32_t>(m.data.size());
  return m;
}

class Npz : public TempDirTest {
 protected:
  std::string Refusal(std::string_view archive) {
    Result<Array> array = ArrayLoader().Load(Put("bad.npz", archive), "a");
    return array.ok() ? "" : array.status().ToString();
  }
  template <typename T>
  static std::vector<T> ValuesAs(const Array& array) {
    const std::vector<std::byte> packed = PackedBytes(array);
    std::vector<T> values(packed.size() / sizeof(T));
    std::memcpy(values.data(), packed.data(), packed.size());
    return values;
  }
};

TEST_F(Npz, ReadsStoredAndDeflatedMembers) {
  EXPECT_EQ(Refusal(Archive({Member(Sevens(5))})), "");
  Put("a.npz", Archive({Deflated(Sevens(10000))}));
  EXPECT_EQ(ValuesAs<uint8_t>(*ArrayLoader().Load(Path("a.npz"), "a")),
            std::vector<uint8_t>(10000, 7));
  EXPECT_EQ(ArrayLoader().Load(Path("a.npz"))->dims, Dims{10000}) << "the only array needs no name";
}

TEST_F(Npz, ArraysGrowSideBySide) {
  NpzWriter writer = NpzWriter::Create(Path("out.npz")).value();
  const int loss = *writer.AddArray("loss", DType::kFloat32, Dims{});
  const int grad = *writer.AddArray("grad:fc/w", DType::kFloat32, Dims{100, 10});
  const int low = *writer.AddArray("low", DType::kBFloat16, Dims{3});
  const int empty = *writer.AddArray("empty", DType::kInt64, Dims{0, 3});
  std::vector<float> losses, grads;
  for (int step = 0; step < 200; ++step) {  // 800 KB of gradients: beyond what is kept in memory
    const float value = static_cast<float>(step) / 4;
    const std::vector<float> row(1000, value);
    const std::vector<uint16_t> low_row(3, BFloat16FromFloat(value));
    losses.push_back(value);
    grads.insert(grads.end(), row.begin(), row.end());
    ASSERT_TRUE(writer.AppendRows(loss, 1, std::as_bytes(std::span(&value, 1))).ok());
    ASSERT_TRUE(writer.AppendRows(grad, 1, std::as_bytes(std::span(row))).ok());
    ASSERT_TRUE(writer.AppendRows(low, 1, std::as_bytes(std::span(low_row))).ok());
    ASSERT_TRUE(writer.AppendRows(empty, 1, {}).ok());
  }
  const int64_t answer = 42;
  ASSERT_TRUE(
      writer.AddWhole("answer", DType::kInt64, Dims{}, std::as_bytes(std::span(&answer, 1))).ok());
  ASSERT_EQ(Listing().size(), 1u) << "only the temporary: spilled rows have no name";
  ASSERT_TRUE(writer.Commit().ok());
  EXPECT_EQ(Listing(), std::vector<std::string>{"out.npz"});

  ArrayLoader loader;
  EXPECT_EQ(*loader.Members(Path("out.npz")),
            (std::vector<std::string>{"loss", "grad:fc/w", "low", "empty", "answer"}));
  EXPECT_EQ(ValuesAs<float>(*loader.Load(Path("out.npz"), "loss")), losses);
  Array read = loader.Load(Path("out.npz"), "grad:fc/w").value();
  EXPECT_EQ(read.dims, (Dims{200, 100, 10}));
  EXPECT_EQ(ValuesAs<float>(read), grads);
  EXPECT_EQ(loader.Load(Path("out.npz"), "low")->dims, (Dims{200, 3}));
  EXPECT_EQ(loader.Load(Path("out.npz"), "empty")->dims, (Dims{200, 0, 3}));
  EXPECT_EQ(ValuesAs<float>(*loader.Load(Path("out.npz"), "low"))[3 * 77], 77.0f / 4);
  EXPECT_EQ(ValuesAs<int64_t>(*loader.Load(Path("out.npz"), "answer")), std::vector<int64_t>{42});
}

TEST_F(Npz, EqualContentsGiveEqualFilesAndNoCommitLeavesNothing) {
  for (const char* name : {"a.npz", "b.npz"}) {
    NpzWriter writer = NpzWriter::Create(Path(name)).value();
    const int array = *writer.AddArray("x", DType::kUInt8, Dims{2});
    ASSERT_TRUE(writer.AppendRows(array, 2, Bytes("abcd")).ok());
    EXPECT_FALSE(writer.AppendRows(array, 1, Bytes("e")).ok()) << "half a row";
    EXPECT_FALSE(writer.AddArray("x", DType::kUInt8, Dims{}).ok()) << "the same name again";
    ASSERT_TRUE(writer.Commit().ok());
  }
  EXPECT_EQ(Get("a.npz"), Get("b.npz"));
  { NpzWriter writer = NpzWriter::Create(Path("c.npz")).value(); }
  EXPECT_EQ(Listing(), (std::vector<std::string>{"a.npz", "b.npz"}));
}

TEST_F(Npz, SixtyFourBitFieldsAreReadAndWritten) {
  Member m(Sevens(5));
  m.extra = Le<uint16_t>(0x9999) + Le<uint16_t>(2) + "xx" + Le<uint16_t>(1) + Le<uint16_t>(24) +
            Le<uint64_t>(m.size) + Le<uint64_t>(m.compressed) + Le<uint64_t>(0);
  m.size = m.compressed = m.offset = 0xFFFFFFFF;
  EXPECT_EQ(Refusal(Archive({m})), "");
  m.extra.resize(m.extra.size() - 8);
  m.extra[8] = 16;
  EXPECT_NE(Refusal(Archive({m})), "") << "the offset is missing";

  // More members than the 16-bit count holds.
  ZipWriter writer = ZipWriter::Create(Path("many.npz")).value();
  for (int i = 0; i < 66000; ++i) ASSERT_TRUE(writer.Begin(std::to_string(i), 0, 0).ok());
  ASSERT_TRUE(writer.Commit().ok());
  EXPECT_EQ(ArrayLoader().Members(Path("many.npz"))->size(), 66000u);
}

TEST_F(Npz, RefusesArchivesThatLie) {
  auto refusal = [&](auto change) {
    Member m(Sevens(50));
    change(m);
    return Refusal(Archive({m}));
  };
  EXPECT_NE(refusal([](Member& m) { m.crc ^= 1; }).find("checksum"), std::string::npos);
  EXPECT_NE(refusal([](Member& m) { m.size += 1; }), "");
  EXPECT_NE(refusal([](Member& m) { m.size = m.compressed = 0x7FFFFFFF; }).find("outside"),
            std::string::npos);
  EXPECT_NE(refusal([](Member& m) { m.offset = 0x7FFFFFFF; }).find("outside"), std::string::npos);
  EXPECT_NE(refusal([](Member& m) { m.offset = 1; }), "");
  EXPECT_NE(refusal([](Member& m) { m.local_name = "b.npy"; }), "");
  EXPECT_NE(refusal([](Member& m) { m.flags = 1; }).find("encrypted"), std::string::npos);
  EXPECT_NE(refusal([](Member& m) { m.method = 12; }).find("method 12"), std::string::npos);
  EXPECT_NE(Refusal(Archive({Member(Sevens(1)), Member(Sevens(1))})).find("twice"),
            std::string::npos);
  EXPECT_NE(Refusal(Archive({Member(Sevens(1))}, 1)), "") << "wrong number of entries";
  EXPECT_NE(Refusal(Archive({})).find("no such array"), std::string::npos);
  EXPECT_NE(Refusal(Archive({Member(Sevens(1).substr(0, 70))})), "") << "damaged array inside";
}

TEST_F(Npz, RefusesBombsBeforeAllocating) {
  Member m = Deflated(Sevens(5000));
  ASSERT_EQ(Refusal(Archive({m})), "");
  m.size = 0xFFFFFFF0;  // 4 GB out of a few dozen bytes
  EXPECT_NE(Refusal(Archive({m})).find("cannot have"), std::string::npos);
  m = Deflated(Sevens(5000));
  m.size -= 10;
  EXPECT_NE(Refusal(Archive({m})).find("more than"), std::string::npos);
  m.size += 20;
  EXPECT_NE(Refusal(Archive({m})).find("ends after"), std::string::npos);
  m = Deflated(Sevens(5000));
  m.data[5] = static_cast<char>(m.data[5] ^ 0x55);
  EXPECT_NE(Refusal(Archive({m})), "");
  m = Deflated(Sevens(5000));
  m.data += "y";
  m.compressed += 1;
  EXPECT_NE(Refusal(Archive({m})).find("follow"), std::string::npos);
}

TEST_F(Npz, SurvivesTruncationAndFlippedBytes) {
  const std::string good = Archive({Member(Sevens(40))});
  for (size_t n = 0; n < good.size(); n += 7) {
    EXPECT_NE(Refusal(good.substr(0, n)), "") << n;
  }
  int accepted = 0;
  for (size_t i = 0; i < good.size(); i += 3) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0xFF);
    accepted += Refusal(bad).empty() ? 1 : 0;  // dates, versions and the like may change
  }
  EXPECT_LT(accepted, 20);
}

TEST_F(Npz, MissingMembersAreListed) {
  Member b(Sevens(1));
  b.name = b.local_name = "b.npy";
  Member a(Sevens(1));
  b.offset = static_cast<uint32_t>(30 + a.name.size() + a.data.size());
  Put("two.npz", Archive({a, b}));
  const std::string message = ArrayLoader().Load(Path("two.npz"), "c").status().message();
  EXPECT_NE(message.find("'a', 'b'"), std::string::npos) << message;
  EXPECT_NE(ArrayLoader().Load(Path("two.npz")).status().message().find("member="),
            std::string::npos);
  EXPECT_TRUE(ArrayLoader().Load(Path("two.npz"), "b").ok());
}

}  // namespace
}  // namespace ampc
