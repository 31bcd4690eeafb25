// SPDX-License-Identifier: Apache-2.0
// amprun: runs a training plan. Parses the command line, catches signals, prints.
#include "runtime/config/settings.h"
#include "runtime/device.h"
#include "runtime/trainer_session.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>

namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t interrupted = 0;

void OnSignal(int signal) { interrupted = signal; }

/// The first signal ends the run after its step; a second one ends the process.
void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int Report(const ampc::Status& status) {
  std::fprintf(stderr, "amprun: %s\n", status.ToString().c_str());
  return status.exit_code();
}

int Main(int argc, char** argv) {
  using namespace ampc;
  Result<Settings> settings = ParseCommandLine(Tool::kAmprun, argc, argv);
  if (!settings.ok()) return Report(settings.status());
  if (settings->Switch("help"))
    return std::fputs(HelpText(Tool::kAmprun).c_str(), stdout) < 0 ? 6 : 0;
  if (settings->Switch("version"))
    return std::printf("%s\n", VersionText(Tool::kAmprun).c_str()) < 0 ? 6 : 0;
  CatchSignals();
  SessionIo io{stdout, stderr, isatty(STDERR_FILENO) == 1, &interrupted};
  Result<int> code = RunSession(std::move(settings).value(), io);
  if (!code.ok()) return Report(code.status());
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return Report(IoError("E0951", "standard output cannot be written"));
  return *code;
}

}  // namespace

int main(int argc, char** argv) {
  ampc::LimitOpenMpSpinning(argv);
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("amprun: error[E0701]: out of memory\n", stderr);
    return static_cast<int>(ampc::ErrorClass::kDevice);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "amprun: error[E9999]: internal error: %s\n", e.what());
    return static_cast<int>(ampc::ErrorClass::kInternal);
  }
}
