// SPDX-License-Identifier: Apache-2.0
// Plan files. The checksums are made right first, so that what is behind them is reached: the
// header's decoding, the verifier, the kernels' own checks of their calls. A plan that passes all
// of them is run, under AddressSanitizer, because passing promises that it touches no memory that
// is not its own.

#include <algorithm>
#include <cstring>

#include "runtime/base/crc32c.h"
#include "runtime/executor.h"
#include "runtime/plan/plan.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/ref_device.h"

namespace ampc {
namespace {

constexpr int64_t kMemory = 64 << 10;
constexpr size_t kPrelude = 128, kHeaderBytes = 80, kHeaderCrc = 104, kPreludeCrc = 124;

template <typename T>
T Get(const std::string& file, size_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

uint32_t Crc(const std::string& file, size_t at, size_t size) {
  return Crc32c(std::as_bytes(std::span(file).subspan(at, size)));
}

/// The fixed part's numbers made to fit the file's size, then both checksums.
void Repair(std::string* file) {
  if (file->size() < kPrelude) return;
  auto header = Get<uint64_t>(*file, kHeaderBytes);
  header = std::min<uint64_t>(header, file->size() - kPrelude);
  const uint32_t header_crc = Crc(*file, kPrelude, header);
  std::memcpy(file->data() + kHeaderCrc, &header_crc, sizeof header_crc);
  const auto offset = Get<uint64_t>(*file, kHeaderBytes + 8);
  if (offset <= file->size()) {
    const uint64_t weights = file->size() - offset;
    std::memcpy(file->data() + kHeaderBytes + 16, &weights, sizeof weights);
  }
  const uint32_t prelude_crc = Crc(*file, 0, kPreludeCrc);
  std::memcpy(file->data() + kPreludeCrc, &prelude_crc, sizeof prelude_crc);
}

void RunAll(const plan::Plan& plan) {
  fuzz::RefDevice device(kMemory);
  auto executor = Executor::Prepare(plan, device);
  fuzz::NoBug(executor.status());
  if (!executor.ok()) return;
  for (size_t i = 0; i < plan.programs.size() && i < 4; ++i) {
    fuzz::NoBug((*executor)->Run(static_cast<int>(i)));
    for (size_t o = 0; o < plan.programs[i].outputs.size(); ++o) {
      static_cast<void>((*executor)->ScalarOutput(static_cast<int>(i), static_cast<int>(o)));
    }
  }
}

}  // namespace
}  // namespace ampc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ampc::fuzz::WorkFolder folder;
  std::string file(ampc::fuzz::TextOf(data, size));
  ampc::Repair(&file);
  const std::string path = folder.Write("in.plan", file);
  ampc::fuzz::NoBug(ampc::plan::ReadPlanInfo(path).status());
  const auto plan = ampc::plan::ReadPlan(path);
  ampc::fuzz::NoBug(plan.status());
  if (!plan.ok()) return 0;
  static_cast<void>(ampc::plan::Fingerprint(*plan));
  ampc::RunAll(*plan);
  return 0;
}
