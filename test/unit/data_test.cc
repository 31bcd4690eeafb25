// SPDX-License-Identifier: Apache-2.0
// Datasets: binding of feeds to files, batches, epochs, tails, and the messages when something does
// not fit.

#include "runtime/data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/float16.h"
#include "runtime/data/npy.h"
#include "runtime/data/npz.h"
#include "test/unit/count_allocations.h"
#include "test/unit/dataset_fixture.h"

namespace ampc {
namespace {

class Data : public DatasetTest {
 protected:
  template <typename T>
  DataSource Npy(const std::string& feed, DType dtype, const Dims& dims,
                 const std::vector<T>& values) {
    EXPECT_TRUE(WriteNpy(Path(feed + ".npy"), dtype, dims, std::as_bytes(std::span(values))).ok());
    DataSource source;
    source.feed = feed;
    source.path = Path(feed + ".npy");
    return source;
  }
  // n samples; sample i holds i in every element.
  DataSource Counting(const std::string& feed, int64_t n, int64_t width = 1) {
    std::vector<int32_t> values;
    for (int64_t i = 0; i < n * width; ++i) values.push_back(static_cast<int32_t>(i / width));
    return Npy(feed, DType::kInt32, Dims{n, width}, values);
  }
  static FeedSpec Feed(const std::string& name, Dims dims, DType dtype = DType::kFloat32) {
    return {name, dtype, std::move(dims), {}};
  }
};

TEST_F(Data, TrainingDropsATailShorterThanAnUpdate) {
  DatasetOptions options;
  options.batches_per_update = 2;
  Open({Feed("x", {3, 1})}, {Counting("x", 20)}, options);
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_samples(), 20);
  EXPECT_EQ(data_->num_batches(), 6);
  EXPECT_EQ(data_->dropped_samples(), 2);
  EXPECT_EQ(Fill(5), 3);
  EXPECT_EQ(Values(0), (Doubles{15, 16, 17}));
}

TEST_F(Data, EvaluationPadsTheLastBatch) {
  DatasetOptions options;
  options.pad_tail = true;
  options.range = "10:";
  Open({Feed("x", {4, 1})}, {Counting("x", 20)}, options);
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_batches(), 3);
  EXPECT_EQ(data_->dropped_samples(), 0);
  EXPECT_EQ(Fill(0), 4);
  EXPECT_EQ(Values(0), (Doubles{10, 11, 12, 13}));
  EXPECT_EQ(Fill(2), 2);
  EXPECT_EQ(Values(0), (Doubles{18, 19, 19, 19}));
}

TEST_F(Data, ShuffledEpochsHoldEverySampleOnceAndFeedsStayTogether) {
  DatasetOptions options;
  options.shuffle = true;
  options.seed = 5;
  options.range = "10:";
  Open({Feed("x", {3, 2}), Feed("y", {3}, DType::kInt64)},
       {Counting("x", 40, 2), Counting("y", 40)}, options);
  ASSERT_NE(data_, nullptr) << message_;
  std::vector<Doubles> epochs(2);
  for (int64_t epoch : {0, 1}) {
    for (int64_t batch = 0; batch < data_->num_batches(); ++batch) {
      Fill(batch, epoch);
      const Doubles x = Values(0), y = Values(1);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(x[2 * i], y[i]);
      epochs[static_cast<size_t>(epoch)].insert(epochs[static_cast<size_t>(epoch)].end(), y.begin(),
                                                y.end());
    }
  }
  const std::set<double> once(epochs[0].begin(), epochs[0].end());
  EXPECT_EQ(once.size(), 30u);
  EXPECT_EQ(*once.begin(), 10.0);
  EXPECT_NE(epochs[0], epochs[1]);
  // Any batch can be made again, in another order, by another object.
  Open(std::vector(feeds_), {Counting("x", 40, 2), Counting("y", 40)}, options);
  Fill(7, 1);
  EXPECT_EQ(Values(1), Doubles(epochs[1].begin() + 21, epochs[1].begin() + 24));
  Fill(2, 0);
  EXPECT_EQ(Values(1), Doubles(epochs[0].begin() + 6, epochs[0].begin() + 9));
}

TEST_F(Data, NormalisesPerChannelAndPermutes) {
  // Two samples of height 1, width 2, three channels last.
  DataSource source =
      Npy<uint8_t>("x", DType::kUInt8, Dims{2, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  source.permute = {0, 3, 1, 2};
  source.normalization = {2, {0, 1, 2}, {1, 1, 4}};
  Open({Feed("x", {2, 3, 1, 2})}, {source});
  ASSERT_NE(data_, nullptr) << message_;
  Fill(0);
  EXPECT_EQ(Values(0), (Doubles{0, 6, 1, 7, 0.5, 2, 12, 18, 13, 19, 3.5, 5}));
}

TEST_F(Data, TheSampleAxisCanBeAnyAxis) {
  DataSource source = Npy<float>("x", DType::kFloat32, Dims{2, 3}, {0, 1, 2, 10, 11, 12});
  source.axis = 1;
  Open({Feed("x", {3, 2})}, {source});
  ASSERT_NE(data_, nullptr) << message_;
  Fill(0);
  EXPECT_EQ(Values(0), (Doubles{0, 10, 1, 11, 2, 12}));

  // Sequences as [time, sample, features], into a feed [batch, time, features].
  std::vector<int16_t> sequences;
  for (int16_t time = 0; time < 3; ++time) {
    for (int16_t sample = 0; sample < 5; ++sample)
      sequences.insert(sequences.end(), {static_cast<int16_t>(100 * sample + 10 * time),
                                         static_cast<int16_t>(100 * sample + 10 * time + 1)});
  }
  source = Npy<int16_t>("x", DType::kInt16, Dims{3, 5, 2}, sequences);
  source.axis = 1;
  DatasetOptions options;
  options.range = "1:";
  Open({Feed("x", {2, 3, 2})}, {source}, options);
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_samples(), 4);
  Fill(1);
  EXPECT_EQ(Values(0), (Doubles{300, 301, 310, 311, 320, 321, 400, 401, 410, 411, 420, 421}));
}

TEST_F(Data, StepsLayoutFeedsRowsInOrderAndStartsOver) {
  std::vector<uint16_t> low;
  for (int i = 0; i < 5 * 2 * 3; ++i) low.push_back(HalfFromFloat(static_cast<float>(i) / 4));
  NpzWriter writer = NpzWriter::Create(Path("feeds.npz")).value();
  ASSERT_TRUE(
      writer.AddWhole("x", DType::kFloat16, Dims{5, 2, 3}, std::as_bytes(std::span(low))).ok());
  const std::vector<int64_t> label = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  ASSERT_TRUE(
      writer.AddWhole("label", DType::kInt64, Dims{5, 2}, std::as_bytes(std::span(label))).ok());
  ASSERT_TRUE(writer.Commit().ok());
  DataSource source;
  source.path = Path("feeds.npz");
  source.layout = DataSource::Layout::kSteps;
  DatasetOptions options;
  options.shuffle = true;  // has no effect on steps
  Open({Feed("label", {2}, DType::kInt64), Feed("x", {2, 3})}, {source}, options);
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_EQ(data_->num_batches(), 5);
  EXPECT_EQ(data_->num_samples(), 10);
  EXPECT_EQ(Fill(3, 7), 2);
  EXPECT_EQ(Values(0), (Doubles{6, 7}));
  EXPECT_EQ(Values(1), (Doubles{4.5, 4.75, 5, 5.25, 5.5, 5.75}));

  Open({Feed("x", {3, 2})}, {source});
  EXPECT_SAYS("layout=steps wants the feed's exact shape");
  Open({Feed("x", {2, 3}), Feed("mask", {2})}, {source});
  EXPECT_SAYS("the feed 'mask'");
  EXPECT_SAYS("'x', 'label'");
  source.layout = DataSource::Layout::kSamples;
  Open({Feed("x", {1, 6})}, {source});
  EXPECT_NE(data_, nullptr) << message_;
}

TEST_F(Data, MadeUpFeedsFillTheirBuffers) {
  DataSource all, mask, token;
  all.kind = token.kind = DataSource::Kind::kRandom;
  mask.kind = DataSource::Kind::kConst;
  mask.feed = "mask";
  mask.value = 1;
  token.feed = "token";
  token.high = 3;
  FeedSpec label = Feed("label", {4}, DType::kInt64);
  label.range.limit = 10;
  Open({Feed("x", {4, 100}), label, Feed("mask", {4, 1}, DType::kFloat16),
        Feed("token", {4}, DType::kInt32)},
       {mask, token, all});
  ASSERT_NE(data_, nullptr) << message_;
  EXPECT_TRUE(data_->endless());
  EXPECT_EQ(Fill(0), 4);
  const Doubles first = Values(0);
  EXPECT_EQ(Values(2), (Doubles{1, 1, 1, 1}));
  for (double v : Values(1)) EXPECT_TRUE(v >= 0 && v < 10);
  for (double v : Values(3)) EXPECT_TRUE(v >= 0 && v < 3);
  Fill(1);
  EXPECT_NE(Values(0), first);
  Fill(0);
  EXPECT_EQ(Values(0), first);

  mask.value = 10;
  mask.feed = "label";
  Open({label}, {mask});
  EXPECT_SAYS("value=10 does not fit feed 'label'");
  Open({Feed("token", {4}, DType::kInt32)}, {all});
  EXPECT_SAYS("need a bound");
  all.axis = 1;
  Open({Feed("x", {4})}, {all});
  EXPECT_SAYS("made up");
}

TEST_F(Data, LabelsOutsideTheirRangeNameSampleAndValue) {
  FeedSpec label = Feed("label", {2}, DType::kInt64);
  label.range = {10, -100};
  Open({label}, {Npy<int64_t>("label", DType::kInt64, Dims{6}, {1, 2, 3, -100, 4, 10})});
  ASSERT_NE(data_, nullptr) << message_;
  Fill(1);
  EXPECT_EQ(message_, "");
  Fill(2);
  EXPECT_SAYS("sample 5 holds 10, the feed takes 0 to 9 and -100");
  EXPECT_SAYS("label.npy");
}

TEST_F(Data, WhatDoesNotFitIsExplained) {
  const std::vector<uint8_t> bytes(4 * 2 * 3 * 3);
  Open({Feed("image", {2, 3, 2, 3})}, {Npy("image", DType::kUInt8, Dims{4, 2, 3, 3}, bytes)});
  EXPECT_SAYS("permute=[0,3,1,2] would fit");
  Open({Feed("image", {2, 5})}, {Npy("image", DType::kUInt8, Dims{4, 18}, bytes)});
  EXPECT_SAYS("takes samples of [5], the data [4,18] has samples of [18]");
  EXPECT_FALSE(Says("permute")) << message_;
  Open({Feed("x", {2, 1}), Feed("y", {2, 1})}, {Counting("x", 8), Counting("y", 9)});
  EXPECT_SAYS("feed 'x' has 8 samples, feed 'y' has 9");
  Open({Feed("x", {2, 1}), Feed("y", {4, 1})}, {Counting("x", 8), Counting("y", 8)});
  EXPECT_SAYS("differ in the batch");
  Open({Feed("y", {2}, DType::kInt64)}, {Npy<float>("y", DType::kFloat32, Dims{4}, {1, 2, 3, 4})});
  EXPECT_SAYS("feed 'y'");
  EXPECT_SAYS("floats are not cut to integers");
  Open({Feed("x", {9, 1})}, {Counting("x", 8)});
  EXPECT_SAYS("8 samples are too few: one update takes 9");
  Open({Feed("x", {9, 1})}, {Counting("x", 0)});
  EXPECT_SAYS("the data [0,1] of feed 'x' is empty");
  DataSource channels = Counting("x", 8, 4);
  channels.normalization.mean = {1, 2, 3};
  Open({Feed("x", {2, 4})}, {channels});
  EXPECT_SAYS("has 4 channels");
}

TEST_F(Data, SourcesThatMakeNoSenseAreUsageErrors) {
  Open({Feed("x", {2, 1})}, {Counting("z", 8)});
  EXPECT_SAYS("there is no feed 'z'; the feeds are 'x'");
  Open({Feed("x", {2, 1})}, {Counting("x", 8), Counting("x", 8)});
  EXPECT_SAYS("two sources");
  Open({Feed("x", {2, 1}), Feed("y", {2, 1})}, {Counting("x", 8)});
  EXPECT_SAYS("the feed 'y' (float [2,1]) has no data");
  DataSource unnamed = Counting("x", 8);
  unnamed.feed = "";
  Open({Feed("x", {2, 1})}, {unnamed});
  EXPECT_SAYS("write NAME=");
  DataSource steps = Counting("y", 8, 2);
  steps.layout = DataSource::Layout::kSteps;
  Open({Feed("x", {2, 1}), Feed("y", {2})}, {Counting("x", 8), steps});
  EXPECT_SAYS("one for all files");
  DataSource missing = Counting("x", 8);
  missing.path = Path("none.npy");
  Open({Feed("x", {2, 1})}, {missing});
  EXPECT_SAYS("No such file");
}

TEST_F(Data, FillDoesNotAllocate) {
  DataSource image =
      Npy("image", DType::kUInt8, Dims{64, 4, 4, 3}, std::vector<uint8_t>(64 * 48, 7));
  image.permute = {0, 3, 1, 2};
  image.normalization = {1.0 / 255, {1, 2, 3}, {1, 1, 1}};
  DataSource noise;
  noise.kind = DataSource::Kind::kRandom;
  DatasetOptions options;
  options.shuffle = true;
  Open({Feed("image", {8, 3, 4, 4}), Feed("label", {8}, DType::kInt64), Feed("noise", {8, 100})},
       {image, Counting("label", 64), noise}, options);
  ASSERT_NE(data_, nullptr) << message_;
  std::vector<std::byte*> pointers;
  for (auto& buffer : buffers_) pointers.push_back(buffer.data());
  int64_t valid = 0;
  const int64_t before = CountAllocations();
  bool ok = true;
  for (int64_t step = 0; step < 32; ++step)
    ok = data_->Fill(step % 8, step / 8, pointers, &valid).ok() && ok;
  EXPECT_EQ(CountAllocations() - before, 0);
  EXPECT_TRUE(ok);
}

TEST_F(Data, TheFingerprintSeesContentFormAndOptionsButNotNames) {
  auto fingerprint = [&](const DataSource& source, const std::string& range = "") {
    DatasetOptions options;
    options.range = range;
    Open({Feed("x", {2, 1})}, {source}, options);
    return data_->fingerprint();
  };
  const uint32_t base = fingerprint(Counting("x", 8));
  DataSource moved = Counting("x", 8);
  std::filesystem::rename(Path("x.npy"), Path("moved.npy"));
  moved.path = Path("moved.npy");
  EXPECT_EQ(fingerprint(moved), base);
  EXPECT_NE(fingerprint(Counting("x", 9)), base);
  EXPECT_NE(fingerprint(Npy<int32_t>("x", DType::kInt32, Dims{8, 1}, {0, 1, 2, 3, 4, 5, 6, 8})),
            base);
  DataSource scaled = Counting("x", 8);
  scaled.normalization.scale = 2;
  EXPECT_NE(fingerprint(scaled), base);
  EXPECT_NE(fingerprint(Counting("x", 8), "2:"), base);
}

}  // namespace
}  // namespace ampc
