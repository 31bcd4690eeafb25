// SPDX-License-Identifier: Apache-2.0
// Token streams: what characters become which ids, and windows of binary files and texts as the
// samples of a dataset.

#include "runtime/data/tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/npy.h"
#include "test/unit/count_allocations.h"
#include "test/unit/dataset_fixture.h"

namespace ampc {
namespace {

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<int64_t> Ids(const Vocabulary& vocabulary, std::string_view text) {
  const Result<Array> ids = vocabulary.Encode(Bytes(text), "v.txt");
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  if (!ids.ok()) return {};
  std::vector<int64_t> out;
  for (int64_t i = 0; i < ids->elements(); ++i) {
    uint32_t id = 0;  // of a little-endian machine
    std::memcpy(&id, ids->data + i * SizeOf(ids->dtype), static_cast<size_t>(SizeOf(ids->dtype)));
    out.push_back(id);
  }
  return out;
}

TEST(Vocabulary, IdsAreRanksOfCodePoints) {
  const Vocabulary v = Vocabulary::Of(Bytes("hello, w\u00f6rld\n")).value();
  EXPECT_EQ(v.size(), 11);
  EXPECT_EQ(v.characters().front(), U'\n');
  EXPECT_EQ(v.characters().back(), U'\u00f6');
  EXPECT_EQ(Ids(v, "\n ,\u00f6w"), (std::vector<int64_t>{0, 1, 2, 10, 9}));
  EXPECT_EQ(v.Encode(Bytes("hello"), "v.txt")->dtype, DType::kUInt8);
}

TEST(Vocabulary, ReadsCharactersOfOneToFourBytes) {
  const Vocabulary v =
      Vocabulary::Of(Bytes("\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff")).value();
  const std::vector<char32_t> expected = {0x7f,   0x80,   0x7ff,   0x800,   0xd7ff,
                                          0xe000, 0xffff, 0x10000, 0x10ffff};
  EXPECT_TRUE(std::ranges::equal(v.characters(), expected));
  EXPECT_EQ(Ids(v, "\U0010ffff\U00010000\u0800\x7f"), (std::vector<int64_t>{8, 7, 3, 0}));
  for (std::string_view other : {"a", "\u0801", "\ufffe", "\U00010001", "\U0010fffe"})
    EXPECT_EQ(v.Encode(Bytes(other), "v.txt").status().id(), "E0768") << other;
}

TEST(Vocabulary, TakesTheNarrowestTypeThatHoldsAll) {
  std::string text;
  for (int i = 0; i < 0x180; ++i) {
    const int c = 0x100 + i;
    text += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  }
  const Vocabulary v = Vocabulary::Of(Bytes(text)).value();
  EXPECT_EQ(v.size(), 0x180);
  EXPECT_EQ(v.Encode(Bytes(text), "v.txt")->dtype, DType::kUInt16);
  std::vector<int64_t> ranks(0x180);
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int64_t>(i);
  EXPECT_EQ(Ids(v, text), ranks);
}

TEST(Vocabulary, NamesWhatItCannotRead) {
  EXPECT_EQ(Vocabulary::Of(Bytes("ab\xff")).status().message(),
            "not UTF-8 text: no character begins with byte 2 (0xff)");
  EXPECT_EQ(Vocabulary::Of({}).status().message(), "the text is empty");
  const Vocabulary v = Vocabulary::Of(Bytes("abc")).value();
  EXPECT_EQ(v.Encode(Bytes("ab\u00e9"), "v.txt").status().message(),
            "the character '\u00e9' (U+00E9) at byte 2 is not among the 3 of 'v.txt'");
  EXPECT_FALSE(v.Encode(Bytes("a\xc3"), "v.txt").ok());
}

class Tokens : public DatasetTest {
 protected:
  // The numbers 0 … n - 1.
  template <typename T>
  DataSource Binary(const std::string& feed, int64_t n, DType dtype, std::string header = "") {
    for (int64_t i = 0; i < n; ++i) {
      const T value = static_cast<T>(i);
      header.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    Put(feed + ".bin", header);
    DataSource source;
    source.feed = feed;
    source.path = Path(feed + ".bin");
    source.tokens = TokenForm{.dtype = dtype};
    return source;
  }
  DataSource Text(const std::string& feed, const std::string& file, std::string_view text) {
    Put(file, std::string(text));
    DataSource source;
    source.feed = feed;
    source.path = Path(file);
    source.tokens = TokenForm{.kind = TokenForm::Kind::kCharacters};
    return source;
  }
  static FeedSpec Feed(const std::string& name, Dims dims, DType dtype = DType::kInt64) {
    return {name, dtype, std::move(dims), {}};
  }
};

TEST_F(Tokens, AFileIsCutIntoWindowsAndTheTargetIsShifted) {
  DataSource x = Binary<uint16_t>("x", 22, DType::kUInt16), y = x;
  y.feed = "y";
  y.shift = 1;
  Open({Feed("x", {2, 5}), Feed("y", {2, 5}, DType::kInt32)}, {x, y});
  ASSERT_NE(data_, nullptr) << message_;
  // The input alone would have 4 windows of 22 tokens, and so has the target of the 21 behind the
  // first.
  EXPECT_EQ(data_->num_samples(), 4);
  Fill(1);
  EXPECT_EQ(Values(0), (Doubles{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(Values(1), (Doubles{11, 12, 13, 14, 15, 16, 17, 18, 19, 20}));
  // Twenty tokens have no target for the last window: both feeds lose it.
  x = Binary<uint16_t>("x", 20, DType::kUInt16);
  Open({Feed("x", {1, 5}), Feed("y", {1, 5})}, {x, y});
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_samples(), 3);
}

TEST_F(Tokens, WindowsMayOverlapOrLeaveGaps) {
  DataSource x = Binary<uint8_t>("x", 10, DType::kUInt8);
  x.stride = 1;
  Open({Feed("x", {1, 4})}, {x});
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_samples(), 7);
  Fill(6);
  EXPECT_EQ(Values(0), (Doubles{6, 7, 8, 9}));
  x.stride = 6;
  Open({Feed("x", {1, 4})}, {x});
  EXPECT_EQ(data_->num_samples(), 2);
  Fill(1);
  EXPECT_EQ(Values(0), (Doubles{6, 7, 8, 9}));
}

TEST_F(Tokens, EveryTypeIsReadBehindAHeader) {
  const FeedSpec feed = Feed("x", {1, 3});
  const auto check = [&](DataSource source) {
    source.tokens->header = 5;  // so that no element is aligned
    Open({feed}, {source});
    ASSERT_NE(data_, nullptr) << message_;
    EXPECT_EQ(data_->num_samples(), 2);
    Fill(1);
    EXPECT_EQ(Values(0), (Doubles{3, 4, 5}));
  };
  check(Binary<uint8_t>("x", 6, DType::kUInt8, "magic"));
  check(Binary<uint16_t>("x", 6, DType::kUInt16, "magic"));
  check(Binary<uint32_t>("x", 6, DType::kUInt32, "magic"));
  check(Binary<int32_t>("x", 6, DType::kInt32, "magic"));
  check(Binary<int64_t>("x", 6, DType::kInt64, "magic"));
  EXPECT_EQ(TokenTypeOf("i64"), DType::kInt64);
  EXPECT_EQ(TokenTypeOf("f32"), DType::kNone);
}

TEST_F(Tokens, OneTokenPerSampleAndMasksOfFloats) {
  // A label behind every window, a mask with a weight for each token.
  DataSource x = Binary<uint8_t>("x", 20, DType::kUInt8), label = x;
  DataSource mask = Binary<uint8_t>("mask", 20, DType::kUInt8);
  label.feed = "label";
  label.shift = 4;
  label.stride = 4;
  mask.normalization.scale = 0.5;
  Open({Feed("x", {2, 4}), Feed("label", {2}), Feed("mask", {2, 2, 2}, DType::kFloat32)},
       {x, label, mask});
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_samples(), 4);
  Fill(1);
  EXPECT_EQ(Values(0), (Doubles{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(Values(1), (Doubles{12, 16}));
  EXPECT_EQ(Values(2), (Doubles{4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5}));
}

TEST_F(Tokens, RangesShufflingAndTailsCountWindows) {
  DataSource x = Binary<uint16_t>("x", 101, DType::kUInt16), y = x;
  y.feed = "y";
  y.shift = 1;
  DatasetOptions options;
  options.range = "20%:90%";
  options.shuffle = true;
  options.seed = 7;
  const std::vector<FeedSpec> feeds = {Feed("x", {3, 5}), Feed("y", {3, 5})};
  Open(feeds, {x, y}, options);
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_samples(), 14);
  EXPECT_EQ(data_->dropped_samples(), 2);
  std::set<double> starts;
  for (int64_t batch = 0; batch < data_->num_batches(); ++batch) {
    Fill(batch, 1);
    for (size_t i = 0; i < 15; ++i) EXPECT_EQ(Values(0)[i] + 1, Values(1)[i]);
    for (size_t i = 0; i < 15; i += 5) starts.insert(Values(0)[i]);
  }
  EXPECT_EQ(starts.size(), 12u);
  EXPECT_GE(*starts.begin(), 20.0);
  EXPECT_LE(*starts.rbegin(), 85.0);
  // Any batch can be made again.
  Fill(2, 1);
  const Doubles again = Values(0);
  Open(feeds, {x, y}, options);
  Fill(2, 1);
  EXPECT_EQ(Values(0), again);
  options.pad_tail = true;
  options.shuffle = false;
  Open(feeds, {x, y}, options);
  EXPECT_EQ(data_->num_batches(), 5);
  EXPECT_EQ(Fill(4), 2);
  EXPECT_EQ(Values(0)[10], 85.0);
}

TEST_F(Tokens, TextsShareAVocabularyAndAreReadOnce) {
  DataSource x = Text("x", "t.txt", "to be or not to be\n"), y = x;
  y.feed = "y";
  y.shift = 1;
  Open({Feed("x", {2, 9}), Feed("y", {2, 9})}, {x, y});
  ASSERT_NE(data_, nullptr) << message_;
  // "\n", " ", b, e, n, o, r, t
  EXPECT_EQ(data_->vocabularies(), std::vector<std::string>{"8 characters of " + Path("t.txt")});
  Fill(0);
  EXPECT_EQ(Values(0), (Doubles{7, 5, 1, 2, 3, 1, 5, 6, 1, 4, 5, 7, 1, 7, 5, 1, 2, 3}));
  EXPECT_EQ(Values(1), (Doubles{5, 1, 2, 3, 1, 5, 6, 1, 4, 5, 7, 1, 7, 5, 1, 2, 3, 0}));
  const Result<TextTokens> one = loader_.LoadText(Path("t.txt"), Path("t.txt"));
  const Result<TextTokens> two = loader_.LoadText(Path("t.txt"), Path("t.txt"));
  EXPECT_EQ(one->ids.data, two->ids.data);
  EXPECT_EQ(one->vocabulary, two->vocabulary);
  // Another text in the same ids.
  DataSource other = Text("x", "o.txt", "tobe");
  other.tokens->vocabulary = Path("t.txt");
  Open({Feed("x", {1, 4})}, {other});
  ASSERT_NE(data_, nullptr) << message_;
  Fill(0);
  EXPECT_EQ(Values(0), (Doubles{7, 5, 2, 3}));
}

TEST_F(Tokens, WhatDoesNotFitIsExplained) {
  DataSource x = Binary<uint16_t>("x", 10, DType::kUInt16), y = x;
  Open({Feed("x", {1, 11})}, {x});
  EXPECT_SAYS("feed 'x': 10 tokens are too few: one window takes 11");
  y.feed = "y";
  y.stride = 3;
  Open({Feed("x", {1, 2}), Feed("y", {1, 2})}, {x, y});
  EXPECT_SAYS("10 tokens with a window every 2, feed 'y' 10 with one every 3");
  FeedSpec label = Feed("x", {1, 2});
  label.range.limit = 9;
  Open({label}, {x});
  ASSERT_NE(data_, nullptr) << message_;
  Fill(4);
  EXPECT_SAYS("sample 4 holds 9, the feed takes 0 to 8");
  label.range.limit = 2;
  Open({label}, {Text("x", "t.txt", "abcabc")});
  EXPECT_SAYS("the 3 different characters of");
  Open({Feed("x", {})}, {x});
  EXPECT_SAYS("[batch, length] is expected for tokens");
  DataSource all = x;
  all.feed = "";
  Open({Feed("x", {1, 2})}, {all});
  EXPECT_SAYS("write NAME=");
}

TEST_F(Tokens, TheFingerprintSeesTokensWindowsAndVocabulary) {
  const auto fingerprint = [&](const DataSource& source) {
    Open({Feed("x", {1, 2})}, {source});
    return data_->fingerprint();
  };
  DataSource x = Binary<uint16_t>("x", 10, DType::kUInt16);
  x.stride = 1;  // windows of more elements than the stream has
  const uint32_t base = fingerprint(x);
  EXPECT_EQ(fingerprint(x), base);
  DataSource changed = x;
  changed.shift = 1;
  EXPECT_NE(fingerprint(changed), base);
  changed = x;
  changed.stride = 2;
  EXPECT_NE(fingerprint(changed), base);
  EXPECT_NE(fingerprint(Binary<uint16_t>("x", 11, DType::kUInt16)), base);
  // Texts of equal ids.
  EXPECT_NE(fingerprint(Text("x", "a.txt", "abab")), fingerprint(Text("x", "b.txt", "xyxy")));
}

TEST_F(Tokens, FillDoesNotAllocate) {
  DataSource x = Text("x", "t.txt", std::string(500, 'a') + std::string(500, 'b')), y = x;
  y.feed = "y";
  y.shift = 1;
  DatasetOptions options;
  options.shuffle = true;
  Open({Feed("x", {4, 8}), Feed("y", {4, 8})}, {x, y}, options);
  ASSERT_NE(data_, nullptr) << message_;
  std::vector<std::byte*> pointers;
  for (auto& buffer : buffers_) pointers.push_back(buffer.data());
  int64_t valid = 0;
  const int64_t before = CountAllocations();
  bool ok = true;
  for (int64_t step = 0; step < 64; ++step)
    ok = data_->Fill(step % 31, step / 31, pointers, &valid).ok() && ok;
  EXPECT_EQ(CountAllocations() - before, 0);
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace ampc
