// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/plan.h"

#include "runtime/base/crc32c.h"
#include "runtime/plan/codec.h"

namespace ampc::plan {

std::string_view Name(Role role) {
  switch (role) {
    case Role::kWeight:
      return "weight";
    case Role::kLowCopy:
      return "low_copy";
    case Role::kMoment:
      return "moment";
    case Role::kStatistic:
      return "statistic";
    case Role::kAccumulator:
      return "accumulator";
    case Role::kScaler:
      return "scaler";
    case Role::kCounter:
      return "counter";
    case Role::kRng:
      return "rng";
    case Role::kHyper:
      return "hyper";
    case Role::kConstant:
      return "constant";
  }
  return "?";
}

const Program* Plan::Find(std::string_view program) const {
  for (const Program& p : programs) {
    if (p.name == program) return &p;
  }
  return nullptr;
}

Status ReadWeight(const Plan& plan, int64_t offset, uint32_t crc, std::string_view name,
                  std::span<std::byte> out) {
  if (plan.weights == nullptr) {
    return InternalError("E0647", "the plan has no weight section, but '{}' lies in it", name);
  }
  AMPC_TRY(plan.weights->Read(offset, out));
  if (!plan.weights->checksummed()) return {};
  if (const uint32_t found = Crc32c(out); found != crc) {
    return BadInput("E0647",
                    "the bytes of '{}' in the plan are damaged: checksum {:08x}, expected {:08x}; "
                    "write the plan again with ampc",
                    name, found, crc);
  }
  return {};
}

namespace {

// 64-bit FNV-1a.
uint64_t Hash(uint64_t h, std::string_view bytes) {
  for (const char c : bytes) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return h;
}

uint64_t Hash(uint64_t h, uint32_t value) {
  return Hash(h, {reinterpret_cast<const char*>(&value), sizeof value});
}

}  // namespace

uint64_t Fingerprint(const Plan& plan) {
  uint64_t h = 0xCBF29CE484222325ull;
  // A plan too large to encode cannot have been read, and hashes as its weights alone.
  if (const auto header = EncodePlan(plan, IndexWeights(plan)); header.ok()) h = Hash(h, *header);
  for (const State& s : plan.states) {
    if (s.initial.kind == Initial::Kind::kBytes) h = Hash(h, s.initial.crc);
  }
  for (const Export& e : plan.exports) {
    if (e.state < 0) h = Hash(h, e.crc);
  }
  return h;
}

}  // namespace ampc::plan
