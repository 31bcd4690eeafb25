// SPDX-License-Identifier: Apache-2.0
// amprun: runs a training plan. Parses the command line, catches signals, prints.
#include "runtime/config/settings.h"
#include "runtime/device.h"
#include "runtime/trainer_session.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

namespace {

// A signal handler can reach nothing else.
volatile std::sig_atomic_t interrupted = 0;

/// The first signal ends the run after its step; a second one, of any kind, ends the process.
void OnSignal(int signal) {
  if (interrupted != 0) {
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    raise(signal);  // delivered when this handler returns
    return;
  }
  interrupted = signal;
}

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // The terminal went away: the same, unless nohup asked to go on.
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
  // A reader of our output that went away is a write error, not the end of the training.
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
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
  const bool flushed = std::fflush(stdout) == 0;
  if (!flushed || std::ferror(stdout) != 0)
    return Report(IoError("E0951", "standard output cannot be written: {}",
                          std::strerror(flushed ? EIO : errno)));
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
