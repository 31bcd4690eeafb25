// SPDX-License-Identifier: Apache-2.0
#pragma once
// A dataset over files of a temporary folder, and what it fills into the feeds.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/dataset.h"
#include "test/unit/temp_dir.h"

namespace ampc {

using Doubles = std::vector<double>;

class DatasetTest : public TempDirTest {
 protected:
  void Open(std::vector<FeedSpec> feeds, const std::vector<DataSource>& sources,
            const DatasetOptions& options = {}) {
    feeds_ = std::move(feeds);
    loader_ = ArrayLoader();  // tests write a file again under its old name
    Result<std::unique_ptr<Dataset>> data = Dataset::Open(feeds_, sources, options, loader_);
    message_ = data.ok() ? "" : data.status().ToString();
    data_ = data.ok() ? std::move(data).value() : nullptr;
    buffers_.clear();
    for (const FeedSpec& feed : feeds_) {
      buffers_.emplace_back(static_cast<size_t>(NumElements(feed.dims) * SizeOf(feed.dtype)),
                            std::byte{0xEE});
    }
  }
  int64_t Fill(int64_t batch, int64_t epoch = 0) {
    std::vector<std::byte*> pointers;
    for (auto& buffer : buffers_) pointers.push_back(buffer.data());
    int64_t valid = -1;
    const Status status = data_->Fill(batch, epoch, pointers, &valid);
    message_ = status.ok() ? "" : status.ToString();
    return valid;
  }
  Doubles Values(size_t feed) const {
    const HostTensor tensor{feeds_[feed].dtype, feeds_[feed].dims, buffers_[feed]};
    Doubles values;
    for (int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.GetDouble(i));
    return values;
  }
  bool Says(std::string_view text) const { return message_.find(text) != std::string::npos; }

  ArrayLoader loader_;
  std::vector<FeedSpec> feeds_;
  std::unique_ptr<Dataset> data_;
  std::vector<std::vector<std::byte>> buffers_;
  std::string message_;
};
#define EXPECT_SAYS(text) EXPECT_TRUE(Says(text)) << message_

}  // namespace ampc
