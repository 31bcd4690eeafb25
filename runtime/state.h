// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints: a folder with one file per checkpoint, `step-000000000200.ckpt`.
//
// A file holds every state of the plan except derived ones (rebuilt at load) and settings (role
// hyper: they come from the plan and the command line), in row-major form, and what the trainer
// needs to go on, which is opaque here. It appears whole or not at all; on loading every byte is
// verified, and a damaged file is passed over for the one before it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/executor.h"
#include "runtime/plan/plan.h"

namespace ampc {

struct Checkpoint {
  int64_t step = 0;      ///< updates attempted; names the file
  std::string position;  ///< the trainer's: epoch, cursor, seed, counts
  uint64_t plan_fingerprint = 0;
  uint64_t data_fingerprint = 0;
};

struct SavedState {
  std::string name;
  TensorDesc desc;
  int64_t offset = 0;  ///< in the file
};

/// A verified checkpoint. The states stay in the file until they are restored.
struct LoadedCheckpoint : Checkpoint {
  std::string path;
  std::vector<SavedState> states;
  std::shared_ptr<const InputFile> file;
};

/// Names of what lies in a folder; none when there is no folder.
Result<std::vector<std::string>> ListFolder(const std::string& dir);

/// The folder of a run's checkpoints, held by one process at a time.
class CheckpointFolder {
 public:
  /// Makes the folder where needed and locks it. Errors: it can't be made, listed or written
  /// (E0651); another process has it (E0655), named where the system tells.
  static Result<CheckpointFolder> Open(const std::string& dir);
  /// Unlocks it. A folder that Open made goes when nothing was put into it.
  ~CheckpointFolder();
  CheckpointFolder(CheckpointFolder&& other) noexcept;
  CheckpointFolder& operator=(CheckpointFolder&&) = delete;

  /// False on a file system without locks: two runs at once would not notice each other.
  bool locked() const { return locked_; }

 private:
  CheckpointFolder() = default;

  std::string dir_;
  int fd_ = -1;
  bool made_ = false, locked_ = true;
};

/// Writes `dir`/step-N.ckpt, making the folder where needed, then removes all but the `keep` newest
/// (at least the new one stays). Files of later steps belong to a run that was rolled back and go
/// too. Files with other names are never touched. The states go through a small buffer.
Status SaveCheckpoint(const std::string& dir, const Checkpoint& checkpoint, const plan::Plan& plan,
                      Executor& executor, int keep);

/// The newest intact checkpoint of `dir`, or none when there is no file (or no folder). Each
/// damaged file that was passed over adds a sentence to `notes`. Errors: files, but none of them
/// intact (E0652); a newer format (E0653).
Result<std::optional<LoadedCheckpoint>> LoadLatestCheckpoint(const std::string& dir,
                                                             std::vector<std::string>* notes);

/// Puts the states back. A plan with other states is refused, naming the first difference (E0654);
/// nothing is written then.
Status RestoreCheckpoint(const LoadedCheckpoint& checkpoint, const plan::Plan& plan,
                         Executor& executor);

}  // namespace ampc
