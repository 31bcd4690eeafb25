// SPDX-License-Identifier: Apache-2.0
#pragma once
// Feeds of a plan bound to data: what goes into the feeds' buffers before each run.
//
// A Dataset is a pure function: the contents of batch b of epoch e depend on the files, the options
// and (seed, e, b) only, so a run can be resumed at any position. All files share the order of
// samples. Fill() does not allocate and is used by one thread at a time.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/tensor.h"
#include "runtime/data/array.h"
#include "runtime/data/convert.h"
#include "runtime/data/tokens.h"

namespace ampc {

/// What a program wants. dims[0] is the batch.
struct FeedSpec {
  std::string name;
  DType dtype = DType::kNone;
  Dims dims;
  IntegerRange range;  ///< of an integer feed: class labels, token ids
};

/// One --data flag.
struct DataSource {
  enum class Kind : uint8_t { kFile, kRandom, kConst };
  enum class Layout : uint8_t {
    kSamples,  ///< the leading axis counts samples
    kSteps,    ///< the leading axis counts steps, the rest is exactly the feed's shape; never
               ///< shuffled
  };

  std::string
      feed;  ///< empty: every feed that no other source names (a .npz: those it has an array for)
  Kind kind = Kind::kFile;
  std::string path;
  std::string member;  ///< of a .npz; default: the array named like the feed, or the only one
  Layout layout = Layout::kSamples;
  Normalization normalization;
  std::vector<int64_t> permute;     ///< applied first; empty = none
  int64_t axis = 0;                 ///< sample axis, after permute
  std::optional<TokenForm> tokens;  ///< the file is a token stream, its samples are windows
  int64_t stride = 0;               ///< from window to window; 0 = the window's length
  int64_t shift = 0;                ///< tokens before the first window
  double value = 0;                 ///< kConst
  int64_t high = 0;  ///< kRandom: bound of an integer feed without a range of its own
};

struct DatasetOptions {
  std::string range;                        ///< "a:b", "90%:"; "" = everything
  std::string_view range_flag = "--range";  ///< that gave it, for messages
  uint64_t seed = 0;
  bool shuffle = false;
  bool pad_tail = false;  ///< evaluation: the last batch is filled up; otherwise a tail is dropped
  int64_t batches_per_update = 1;  ///< epochs are whole updates
};

class Dataset {
 public:
  /// Errors name the feed and the file and say what would fit.
  static Result<std::unique_ptr<Dataset>> Open(std::span<const FeedSpec> feeds,
                                               std::span<const DataSource> sources,
                                               const DatasetOptions& options, ArrayLoader& loader);
  ~Dataset();

  /// Samples per batch: the feeds' dims[0].
  int64_t batch() const { return batch_; }
  /// Samples in the range (steps times batch under Layout::kSteps); one batch when no feed comes
  /// from a file.
  int64_t num_samples() const { return num_samples_; }
  /// Batches per epoch, a multiple of batches_per_update unless pad_tail.
  int64_t num_batches() const { return num_batches_; }
  /// Samples at the end that no batch of an epoch holds.
  int64_t dropped_samples() const { return dropped_samples_; }
  /// True when every feed is made up: there is no epoch, the number of steps must come from
  /// elsewhere.
  bool endless() const { return endless_; }
  /// Of the data's forms and of a sample of its bytes; unchanged when files move.
  uint32_t fingerprint() const { return fingerprint_; }
  /// "image: uint8 [10000,28,28] of t10k-images-idx3-ubyte.gz", one per feed.
  const std::vector<std::string>& description() const { return description_; }
  /// "65 characters of input.txt": what the ids of each text stand for.
  const std::vector<std::string>& vocabularies() const { return vocabularies_; }

  /// Fills the buffers (in the order of the feeds, aligned to 64 bytes) with batch `batch` of epoch
  /// `epoch`. `valid` receives the number of real samples; the rest repeats the last one.
  Status Fill(int64_t batch, int64_t epoch, std::span<std::byte* const> buffers, int64_t* valid);

 private:
  struct Bound;
  class Binder;

  Dataset();
  Status AlignWindows();
  Status CountUnits();
  Status FillFromFile(const Bound& feed, int64_t first, std::byte* out);
  int64_t UnitAt(int64_t position) const;
  void Describe();

  DatasetOptions options_;
  std::vector<Bound> feeds_;
  std::vector<std::byte> scratch_;  // one packed unit, when the file's axes are out of order
  std::vector<uint32_t> order_;     // of the epoch below
  int64_t order_epoch_ = -1;
  // A unit is what one index of a file's leading axis selects: a sample, or a whole step.
  int64_t begin_ = 0, units_ = 0, units_per_batch_ = 1;
  int64_t batch_ = 1, num_samples_ = 0, num_batches_ = 0, dropped_samples_ = 0;
  bool endless_ = false, steps_ = false;
  uint32_t fingerprint_ = 0;
  std::vector<std::string> description_, vocabularies_;
};

}  // namespace ampc
