// SPDX-License-Identifier: Apache-2.0
#pragma once
// One run of amprun: from settings to an exit code. Reads the plan and the recipe in it, opens
// device and data, restores or initialises the states, trains, and writes what was asked for.

#include <csignal>
#include <cstdio>

#include "runtime/base/status.h"
#include "runtime/config/settings.h"

namespace ampc {

struct SessionIo {
  std::FILE* out = nullptr;                               ///< requested tables and the closing line
  std::FILE* notes = nullptr;                             ///< all else
  bool terminal = false;                                  ///< `notes` is a terminal: draw progress
  const volatile std::sig_atomic_t* interrupt = nullptr;  ///< a signal number once one has arrived
};

/// `settings` = the command line of amprun. The exit code is 0, or 4 after a numeric stop, or 128 +
/// the signal.
Result<int> RunSession(Settings settings, const SessionIo& io);

/// CPU threads when --threads is not given: OMP_NUM_THREADS, else all cores that this process may
/// use.
int DefaultThreads();

}  // namespace ampc
