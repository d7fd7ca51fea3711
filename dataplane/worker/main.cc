// tidepool-worker: one engine process.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <thread>

#include "dataplane/base/file.h"
#include "dataplane/base/log.h"
#include "dataplane/worker/worker_options.h"
#include "dataplane/worker/worker_shell.h"

namespace tidepool::worker {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitFailed = 1;
constexpr int kExitSecondSignal = 130;
// For peers to confirm that what was handed back is over.
constexpr Duration kCleanUpTimeout = std::chrono::seconds(5);

Status WriteReadyFile(const std::string& path, const WorkerShell& shell) {
  nlohmann::json ready = {
      {"address", shell.control_address()},
      {"transfer_address", shell.transfer_address()},
      {"pid", getpid()},
  };
  if (const auto port = shell.metrics_port()) ready["metrics_port"] = *port;
  return Annotate(WriteFileAtomically(path, ready.dump() + "\n"),
                  "--ready-file");
}

// Blocks the signals in this thread, and so in those it starts.
sigset_t BlockTerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Waits, on its own thread, for a second signal that ends the process at once.
void EndAtNextSignal(const sigset_t& signals) {
  std::thread([signals] {
    int signal = 0;
    sigwait(&signals, &signal);
    LOG_WARNING("second signal: ending at once");
    std::_Exit(kExitSecondSignal);
  }).detach();
}

int Run(const WorkerOptions& options) {
  const sigset_t signals = BlockTerminationSignals();
  auto shell = WorkerShell::Start(options, [](const Status& why) {
    // What cannot be loaded now will not be later: who started us decides.
    LOG_ERROR("loading the model failed: {}", MessageOf(why));
    std::_Exit(kExitFailed);
  });
  Status started = shell.status();
  if (started.ok() && !options.ready_file.empty())
    started = WriteReadyFile(options.ready_file, **shell);
  if (!started.ok()) {
    LOG_ERROR("{}", MessageOf(started));
    return kExitFailed;
  }
  LOG_INFO("listening on {}, KV on {}", (*shell)->control_address(),
           (*shell)->transfer_address());

  int signal = 0;
  sigwait(&signals, &signal);
  if (!(*shell)->Describe().ready()) {
    // Nobody waits for anything, and packing weights cannot be interrupted.
    LOG_INFO("bye, before the model was loaded");
    std::_Exit(0);
  }
  EndAtNextSignal(signals);
  LOG_INFO("draining for at most {} s", options.drain_timeout_s);
  const Duration timeout = std::chrono::seconds(options.drain_timeout_s);
  (*shell)->Drain(timeout);
  if (!(*shell)->WaitUntilIdle(timeout + kCleanUpTimeout))
    LOG_WARNING("transfers with other workers have not ended");
  shell->reset();
  LOG_INFO("bye");
  return 0;
}

}  // namespace
}  // namespace tidepool::worker

int main(int argc, char** argv) {
  using namespace tidepool;
  const auto options = worker::ParseWorkerOptions(argc, argv);
  Status status = options.status();
  if (status.ok() && !*options) return 0;
  if (status.ok()) status = InitLogging((*options)->log);
  if (!status.ok()) {
    fmt::print(stderr, "tidepool-worker: {}\n", MessageOf(status));
    return worker::kExitUsage;
  }
  return worker::Run(**options);
}
