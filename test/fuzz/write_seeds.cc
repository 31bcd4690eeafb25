// SPDX-License-Identifier: Apache-2.0
// Writes FOLDER/plan/tiny.plan and FOLDER/checkpoint/tiny.ckpt: seeds that only our own writers can
// make.

#include <filesystem>

#include "runtime/plan/plan.h"
#include "runtime/state.h"
#include "runtime/trainer_checkpoint.h"
#include "test/fuzz/ref_device.h"
#include "test/unit/tiny_plan.h"

namespace ampc {
namespace {

namespace fs = std::filesystem;

Status WriteSeeds(const std::string& folder) {
  const plan::Plan plan = plan::TinyPlan();
  fs::create_directories(folder + "/plan");
  AMPC_TRY(plan::WritePlan(plan, folder + "/plan/tiny.plan"));

  fuzz::RefDevice device(1 << 20);
  AMPC_ASSIGN(const auto executor, Executor::Prepare(plan, device));
  TrainerPosition position;
  position.step = 7;
  position.applied = 6;
  position.evaluated = 5;
  position.has_first_loss = true;
  position.first_loss = 2.5;
  position.settings = {{"lr", "0.1"}, {"data", "image=x.npy:scale=1/255"}};
  Checkpoint checkpoint;
  checkpoint.step = 7;
  checkpoint.position = position.ToText();
  checkpoint.plan_fingerprint = plan::Fingerprint(plan);
  AMPC_TRY(SaveCheckpoint(folder + "/checkpoint.new", checkpoint, plan, *executor, 1));
  fs::create_directories(folder + "/checkpoint");
  fs::rename(folder + "/checkpoint.new/step-000000000007.ckpt", folder + "/checkpoint/tiny.ckpt");
  fs::remove(folder + "/checkpoint.new");
  return {};
}

}  // namespace
}  // namespace ampc

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} FOLDER\n", argv[0]);
    return 2;
  }
  const ampc::Status status = ampc::WriteSeeds(argv[1]);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.exit_code();
}
