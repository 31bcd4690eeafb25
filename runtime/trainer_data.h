// SPDX-License-Identifier: Apache-2.0
#pragma once
// From --data, --eval-data, --range to datasets, and from a program's feeds to the buffers that a
// dataset fills.

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/config/settings.h"
#include "runtime/data/dataset.h"
#include "runtime/executor.h"

namespace ampc {

/// The feeds of one program, in the order of the plan. A feed whose dims differ per program exists
/// once for each.
struct FeedSet {
  std::vector<FeedSpec> specs;      ///< what a dataset fills
  std::vector<int> feeds;           ///< their indices in the plan
  int valid = -1;                   ///< feed of the sample mask, filled by the runtime; -1 = none
  std::vector<std::byte*> buffers;  ///< of specs; after Bind

  void Bind(Executor& executor);
};
FeedSet FeedsOf(const plan::Plan& plan, const plan::Program& program);

/// Sources of --data or --eval-data, as the dataset wants them. Errors: Usage E0605 for keys that
/// do not go with the file.
Result<std::vector<DataSource>> SourcesOf(const std::vector<Option>& options);

/// Opens the training data: batches of the program's feeds, whole updates per epoch.
Result<std::unique_ptr<Dataset>> OpenTrainingData(const plan::Plan& plan, const FeedSet& feeds,
                                                  const Settings& settings, ArrayLoader& loader);

/// True when settings name evaluation data: --eval-data or --eval-range.
bool HasEvalData(const Settings& settings);
/// Opens the evaluation data. `pad`: the last batch is filled up (masked, or nothing is summed),
/// else a tail is dropped. Without --eval-data the training files are read, in --eval-range or else
/// --range.
Result<std::unique_ptr<Dataset>> OpenEvalData(const plan::Plan& plan, const FeedSet& feeds,
                                              const Settings& settings, bool pad,
                                              ArrayLoader& loader);

}  // namespace ampc
