// A supervised child of `tidepool serve`.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::cli {

// One process whose output is read line by line. The kernel ends the child
// when the thread that started it ends, so no child outlives `serve`, even
// killed. Confined to one thread, which must outlive the child.
class ChildProcess {
 public:
  // Starts `argv[0]` with `argv` and this process's environment; standard
  // input is empty, output and errors come through `output_fd`.
  // Errors: kNotFound if there is no such program, and whatever pipe and fork
  // give.
  static StatusOr<ChildProcess> Start(const std::vector<std::string>& argv);

  ChildProcess(ChildProcess&&) noexcept = default;
  // The old child must have been reaped.
  ChildProcess& operator=(ChildProcess&&) noexcept = default;

  pid_t pid() const { return pid_; }
  // Non-blocking; becomes readable with output and at the child's end.
  int output_fd() const { return output_.get(); }

  // Reads what is there, 256 KiB at most, and passes on whole lines, cut at 16
  // KiB; the rest waits for its end. False at end of file, after the last
  // partial line.
  bool ReadLines(const std::function<void(std::string_view)>& on_line);

  void Signal(int signal_number) const;

  // How it ended ("exited with 1", "killed by signal 9"), without waiting;
  // nullopt while it runs. Call until it gives a value, then never again.
  std::optional<std::string> Reap();

 private:
  ChildProcess(pid_t pid, UniqueFd output)
      : pid_(pid), output_(std::move(output)) {}

  pid_t pid_;
  UniqueFd output_;
  std::string partial_line_;
};

}  // namespace tidepool::cli
