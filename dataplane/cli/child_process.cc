#include "dataplane/cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tidepool::cli {
namespace {

constexpr size_t kLineBytesMax = 16 << 10;
// More than a pipe holds, so that nothing a child said before its end is left.
constexpr int kReadsMax = 64;

// Runs in the child between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeProgram(char* const* argv, int output, int failure,
                                pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before prctl
  // A terminal's Ctrl-C reaches `serve` alone, which ends its children in
  // order.
  setpgid(0, 0);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(argv[0], argv);
  const int error = errno;
  [[maybe_unused]] const ssize_t written =
      write(failure, &error, sizeof(error));
  _exit(127);
}

}  // namespace

StatusOr<ChildProcess> ChildProcess::Start(
    const std::vector<std::string>& argv) {
  int output[2], failure[2];
  if (pipe2(output, O_CLOEXEC) != 0) return ErrnoError(errno, "pipe");
  UniqueFd output_read(output[0]), output_write(output[1]);
  if (pipe2(failure, O_CLOEXEC) != 0) return ErrnoError(errno, "pipe");
  const UniqueFd failure_read(failure[0]);
  UniqueFd failure_write(failure[1]);

  std::vector<char*> arguments;
  for (const std::string& argument : argv)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoError(errno, "fork");
  if (pid == 0)
    BecomeProgram(arguments.data(), output_write.get(), failure_write.get(),
                  parent);
  failure_write.Reset();
  // End of file means that exec closed the pipe: the program runs.
  int error = 0;
  ssize_t bytes;
  do {
    bytes = read(failure_read.get(), &error, sizeof(error));
  } while (bytes < 0 && errno == EINTR);
  if (bytes == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    return ErrnoError(error, "cannot start " + argv[0]);
  }
  fcntl(output_read.get(), F_SETFL, O_NONBLOCK);
  return ChildProcess(pid, std::move(output_read));
}

bool ChildProcess::ReadLines(
    const std::function<void(std::string_view)>& on_line) {
  char buffer[4096];
  for (int reads = 0; reads < kReadsMax; ++reads) {
    const ssize_t bytes = read(output_.get(), buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EAGAIN) return true;
    if (bytes <= 0) {
      if (!partial_line_.empty()) on_line(partial_line_);
      partial_line_.clear();
      return false;
    }
    for (const char c : std::string_view(buffer, bytes)) {
      if (c != '\n') partial_line_ += c;
      if (c != '\n' && partial_line_.size() < kLineBytesMax) continue;
      on_line(partial_line_);
      partial_line_.clear();
    }
  }
  return true;
}

void ChildProcess::Signal(int signal_number) const {
  kill(pid_, signal_number);
}

std::optional<std::string> ChildProcess::Reap() {
  int state = 0;
  const pid_t ended = waitpid(pid_, &state, WNOHANG);
  if (ended == 0) return std::nullopt;
  if (WIFSIGNALED(state))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(state),
                       strsignal(WTERMSIG(state)));
  return fmt::format("exited with {}", WEXITSTATUS(state));
}

}  // namespace tidepool::cli
