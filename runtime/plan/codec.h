// SPDX-License-Identifier: Apache-2.0
#pragma once
// Plan <-> header bytes. The only interface to the generated protobuf code, which codec.cc alone
// includes.
//
// Weights are named by index into a table of ranges of the weight section, so that the file can
// place them anew. The header is the concatenation EncodePlan + EncodeWeights (protobuf merges
// concatenated messages): the second part is written again when the checksums are known.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace ampc::plan {

struct WeightRange {
  int64_t offset = 0, length = 0;
  uint32_t crc = 0;
};

/// Index of the range (offset, length) of `Plan::weights`, for every Initial and Export that has
/// one.
using WeightIndex = std::map<std::pair<int64_t, int64_t>, int32_t>;

/// Distinct ranges that states and exports use, numbered in order of offset.
WeightIndex IndexWeights(const Plan& plan);

/// Everything but the weight table. An error only when the plan is too large for one message (2
/// GiB).
Result<std::string> EncodePlan(const Plan& plan, const WeightIndex& index);
std::string EncodeWeights(std::span<const WeightRange> ranges);

/// Field types, enumerators and dtypes are checked, nothing else: VerifyPlan does the rest.
/// `section_bytes` is the size of the weight section that the ranges must lie in.
Result<Plan> DecodePlan(std::span<const std::byte> header, int64_t section_bytes);

}  // namespace ampc::plan
