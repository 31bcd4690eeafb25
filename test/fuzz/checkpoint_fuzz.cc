// SPDX-License-Identifier: Apache-2.0
// Checkpoint files. The footer and the checksums are made right first; what loads goes back into a
// plan's states, and its position is read as the trainer does.

#include <cstring>

#include "runtime/base/crc32c.h"
#include "runtime/checkpoint.pb.h"
#include "runtime/plan/plan.h"
#include "runtime/state.h"
#include "runtime/trainer_checkpoint.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/ref_device.h"
#include "test/unit/tiny_plan.h"

namespace ampc {
namespace {

constexpr size_t kFooter = 32;

uint32_t Crc(std::string_view bytes) { return Crc32c(std::as_bytes(std::span(bytes))); }

/// A new footer for the file's manifest, wherever the old footer says that it starts; the states'
/// checksums in it are made right.
void Repair(std::string* file) {
  if (file->size() < 12 + kFooter) return;
  uint64_t start = 0;
  std::memcpy(&start, file->data() + file->size() - kFooter, sizeof start);
  const size_t end = file->size() - kFooter;
  if (start > end) return;
  std::string manifest = file->substr(start, end - start);
  pb::Manifest message;
  bool changed = false;
  if (message.ParseFromString(manifest)) {
    for (pb::SavedState& s : *message.mutable_states()) {
      if (s.offset() < 0 || s.bytes() < 0 || static_cast<uint64_t>(s.offset()) > start ||
          static_cast<uint64_t>(s.bytes()) > start - static_cast<uint64_t>(s.offset())) {
        continue;
      }
      const uint32_t crc = Crc(std::string_view(*file).substr(static_cast<size_t>(s.offset()),
                                                              static_cast<size_t>(s.bytes())));
      changed = changed || crc != s.crc();
      s.set_crc(crc);
    }
  }
  if (changed) manifest = message.SerializeAsString();
  const uint64_t bytes = manifest.size();
  const uint32_t crc = Crc(manifest);
  std::string footer(kFooter, '\0');
  std::memcpy(footer.data(), &start, 8);
  std::memcpy(footer.data() + 8, &bytes, 8);
  std::memcpy(footer.data() + 16, &crc, 4);
  std::memcpy(footer.data() + 24, "AMPCCKPT", 8);
  *file = file->substr(0, start) + manifest + footer;
}

}  // namespace
}  // namespace ampc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ampc;
  static const fuzz::WorkFolder folder;
  static const plan::Plan plan = plan::TinyPlan();
  std::string file(fuzz::TextOf(data, size));
  Repair(&file);
  folder.Write("step-000000000007.ckpt", file);
  std::vector<std::string> notes;
  const auto loaded = LoadLatestCheckpoint(folder.path(), &notes);
  fuzz::NoBug(loaded.status());
  if (!loaded.ok() || !loaded->has_value()) return 0;
  const auto position = TrainerPosition::Parse((*loaded)->position);
  fuzz::NoBug(position.status());
  if (position.ok()) {
    const auto again = TrainerPosition::Parse(position->ToText());
    if (!again.ok() || again->ToText() != position->ToText())
      fuzz::Fail("the position does not read back:\n" + position->ToText());
  }
  fuzz::RefDevice device(1 << 20);
  auto executor = Executor::Prepare(plan, device);
  if (!executor.ok()) fuzz::Fail(executor.status().ToString());
  fuzz::NoBug(RestoreCheckpoint(**loaded, plan, **executor));
  return 0;
}
