#include "dataplane/cli/fleet.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "dataplane/base/file.h"
#include "dataplane/cli/child_process.h"
#include "dataplane/cli/http_client.h"

namespace tidepool::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr size_t kRestartsMax = 5;
constexpr Duration kRestartWindow = minutes(10);
constexpr Duration kStartTimeout = seconds(60);  // until a worker listens
constexpr Duration kWorkerStopTimeout = seconds(15);
constexpr Duration kProbeInterval = milliseconds(250);
// Names within the run folder.
constexpr const char* kWorkerConfig = "worker.yaml";
constexpr const char* kConductorConfig = "conductor.yaml";

// A private folder for the fleet's ready and config files, removed at the end.
class RunFolder {
 public:
  static StatusOr<std::unique_ptr<RunFolder>> Create() {
    std::error_code error;
    std::string path =
        (std::filesystem::temp_directory_path(error) / "tidepool-XXXXXX")
            .string();
    if (error || mkdtemp(path.data()) == nullptr)
      return ErrnoError(errno, "cannot make a folder at " + path);
    return std::unique_ptr<RunFolder>(new RunFolder(path));
  }
  ~RunFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

// The address that a child wrote to its ready file as `key`; "" while there is
// none.
std::string AddressFrom(const std::string& path, const char* key) {
  std::ifstream file(path);
  if (!file) return "";
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  const auto address = json.find(key);
  return address != json.end() && address->is_string()
             ? address->get<std::string>()
             : "";
}

// A full disk behind the log must not end the fleet, as an exception would.
void Print(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

std::string ProgramBeside(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / name).string();
}

class Fleet {
 public:
  Fleet(const FleetConfig& config, RunFolder& folder, int signals)
      : config_(config), folder_(folder), signals_(signals) {}

  Status Run() {
    for (int64_t i = 0; i < config_.prefill; ++i) AddWorker("prefill", i);
    for (int64_t i = 0; i < config_.decode; ++i) AddWorker("decode", i);
    Status failure = WriteConfigs();
    for (Member& member : members_)
      if (failure.ok()) failure = Start(member);
    while (failure.ok() && !stop_) {
      WaitForEvents();
      failure = Supervise();
      if (failure.ok()) failure = Probe();
      TendRoles();
    }
    StopAll();
    return failure;
  }

 private:
  struct Member {
    std::string name;  // "prefill-0", "conductor"
    bool is_worker = true;
    std::vector<std::string> argv;
    std::string ready_file;
    std::string address;          // once it listened; kept over restarts
    std::string control_address;  // while a conductor listens
    scheduling::WorkerRole role = scheduling::WorkerRole::kDecode;  // workers
    std::optional<ChildProcess> child;
    bool output_open = false;
    TimePoint start_at{};  // when a restart is due
    TimePoint started{};
    std::deque<TimePoint> restarts;
    bool listening = false;
  };

  Status WriteConfigs() {
    RETURN_IF_ERROR(WriteFileAtomically(folder_.Path(kWorkerConfig),
                                        config_.worker_config));
    return WriteFileAtomically(folder_.Path(kConductorConfig),
                               config_.conductor_config);
  }

  void AddWorker(const std::string& role, int64_t index) {
    Member member;
    member.name = fmt::format("{}-{}", role, index);
    if (role == "prefill") member.role = scheduling::WorkerRole::kPrefill;
    member.ready_file = folder_.Path(member.name);
    member.argv = {ProgramBeside("tidepool-worker"),
                   "--role",
                   role,
                   "--host",
                   "127.0.0.1",
                   "--ready-file",
                   member.ready_file,
                   "--config",
                   folder_.Path(kWorkerConfig)};
    members_.push_back(std::move(member));
  }

  void AddConductor() {
    Member member;
    member.name = "conductor";
    member.is_worker = false;
    member.ready_file = folder_.Path(member.name);
    member.argv = {ProgramBeside("tidepool-conductor"),
                   "--host",
                   config_.host,
                   "--ready-file",
                   member.ready_file,
                   "--config",
                   folder_.Path(kConductorConfig)};
    if (config_.elastic)
      member.argv.insert(member.argv.end(), {"--control-host", "127.0.0.1",
                                             "--control-port", "0"});
    for (const Member& worker : members_) {
      member.argv.push_back("--worker");
      member.argv.push_back(worker.name + "=" + worker.address);
    }
    members_.push_back(std::move(member));
  }

  Status Start(Member& member) {
    std::error_code ignored;
    std::filesystem::remove(member.ready_file, ignored);
    std::vector<std::string> argv = member.argv;
    argv.push_back("--port");
    if (!member.address.empty()) {
      argv.push_back(member.address.substr(member.address.rfind(':') + 1));
    } else {
      argv.push_back(member.is_worker ? "0" : std::to_string(config_.port));
    }
    ASSIGN_OR_RETURN(member.child, ChildProcess::Start(argv));
    member.started = Clock::Monotonic().Now();
    member.output_open = true;
    member.listening = false;
    return OkStatus();
  }

  void WaitForEvents() {
    std::vector<pollfd> fds = {{.fd = signals_, .events = POLLIN}};
    for (const Member& member : members_)
      if (member.output_open)
        fds.push_back({.fd = member.child->output_fd(), .events = POLLIN});
    poll(fds.data(), fds.size(), 50);
    if (fds[0].revents != 0) {
      signalfd_siginfo signal;
      if (read(signals_, &signal, sizeof(signal)) == sizeof(signal))
        stop_ = true;
    }
    for (Member& member : members_) Relay(member);
  }

  // Passes a child's lines on; a progress line of ours is ended first.
  void Relay(Member& member) {
    if (!member.output_open) return;
    member.output_open = member.child->ReadLines(
        [&](std::string_view line) { Say(member.name, line); });
  }

  void Say(std::string_view who, std::string_view line) {
    EndProgress();
    Print(stderr, fmt::format("{:<11}| {}\n", who, line));
  }

  void EndProgress() {
    if (std::exchange(progress_shown_, false)) Print(stderr, "\n");
  }

  Status Supervise() {
    const TimePoint now = Clock::Monotonic().Now();
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      if (!member.child) {
        if (now >= member.start_at) RETURN_IF_ERROR(Start(member));
        continue;
      }
      if (const auto end = member.child->Reap())
        RETURN_IF_ERROR(HandleEnd(member, *end, now));
      else
        RETURN_IF_ERROR(CheckListening(member, now));
    }
    const bool workers_listen = std::ranges::all_of(
        members_, [](const Member& m) { return !m.address.empty(); });
    if (workers_listen && members_.back().is_worker) {
      AddConductor();
      RETURN_IF_ERROR(Start(members_.back()));
    }
    return OkStatus();
  }

  Status CheckListening(Member& member, TimePoint now) {
    if (member.listening) return OkStatus();
    const std::string address = AddressFrom(member.ready_file, "address");
    if (!address.empty()) {
      member.address = address;
      member.control_address =
          AddressFrom(member.ready_file, "control_address");
      member.listening = true;
    } else if (member.is_worker && now - member.started > kStartTimeout) {
      // The conductor may wait for a download that a worker is at, which has
      // its own bound.
      return DeadlineExceeded("{} did not listen within 60 s", member.name);
    }
    return OkStatus();
  }

  Status HandleEnd(Member& member, const std::string& end, TimePoint now) {
    Relay(member);
    member.output_open = false;
    member.child.reset();
    member.control_address.clear();
    served_ = false;
    if (member.address.empty())
      return Unavailable("{} {} before it listened (its last lines say why)",
                         member.name, end);
    while (!member.restarts.empty() &&
           now - member.restarts.front() > kRestartWindow)
      member.restarts.pop_front();
    if (member.restarts.size() >= kRestartsMax)
      return Unavailable("{} {}; it was restarted {} times in 10 minutes",
                         member.name, end, kRestartsMax);
    const seconds pause(1 << member.restarts.size());
    member.restarts.push_back(now);
    member.start_at = now + pause;
    Say(member.name,
        fmt::format("{}; starting again in {} s", end, pause.count()));
    return OkStatus();
  }

  // Once all workers have listened, for they keep their addresses.
  void TendRoles() {
    if (!config_.elastic || members_.back().is_worker) return;
    if (!elastic_) {
      std::vector<ElasticWorker> workers;
      for (const Member& member : members_)
        if (member.is_worker)
          workers.push_back({member.name, member.address, member.role});
      elastic_.emplace(*config_.elastic, std::move(workers));
    }
    for (const std::string& line :
         elastic_->Tend(members_.back().control_address))
      Say("elastic", line);
  }

  // Asks the conductor whether requests would be served, until they are.
  Status Probe() {
    const TimePoint now = Clock::Monotonic().Now();
    Member& conductor = members_.back();
    if (served_ || conductor.is_worker || !conductor.listening ||
        !conductor.child || now < next_probe_)
      return OkStatus();
    next_probe_ = now + kProbeInterval;
    const std::string url = "http://" + Reachable(conductor.address);
    const StatusOr<HttpAnswer> answer = Get({.url = url}, "/ready", seconds(1));
    if (!answer.ok()) return OkStatus();
    const LoadState state = LoadStateFrom(answer->body);
    if (answer->status == 200 && state.ready == members_.size() - 1) {
      served_ = true;
      return Announce(url);
    }
    ShowProgress(state);
    return OkStatus();
  }

  // What `/ready` says of the workers.
  struct LoadState {
    size_t ready = 0;
    double progress = 0;  // mean over all workers, 0 to 1
  };

  LoadState LoadStateFrom(const std::string& body) const {
    LoadState state;
    const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
    const auto workers = json.find("workers");
    if (workers == json.end()) return state;
    for (const nlohmann::json& worker : *workers) {
      const auto ready = worker.find("ready");
      const auto progress = worker.find("load_progress");
      if (ready != worker.end() && *ready == true) {
        ++state.ready;
        state.progress += 1;
      } else if (progress != worker.end() && progress->is_number()) {
        state.progress += progress->get<double>();
      }
    }
    state.progress /= static_cast<double>(members_.size() - 1);
    return state;
  }

  // A wildcard address as one that can be connected to: either has IPv4's.
  static std::string Reachable(const std::string& address) {
    const size_t colon = address.rfind(':');
    const std::string host = address.substr(0, colon);
    if (host == "0.0.0.0" || host == "[::]")
      return "127.0.0.1" + address.substr(colon);
    return address;
  }

  void ShowProgress(const LoadState& state) {
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const std::string line =
        fmt::format("loading weights: {:3.0f} % ({} of {} workers ready)",
                    100 * state.progress, state.ready, members_.size() - 1);
    if (line == last_progress_) return;
    last_progress_ = line;
    Print(stderr, terminal ? "\r" + line : line + "\n");
    progress_shown_ = terminal;
  }

  Status Announce(const std::string& url) {
    EndProgress();
    std::string shape = fmt::format("{} decode", config_.decode);
    if (config_.prefill > 0)
      shape = fmt::format("{} prefill, {}", config_.prefill, shape);
    if (config_.elastic) shape += ", elastic";
    Print(stdout, fmt::format("Tidepool serves {} at {} ({})\n",
                              config_.model_name, url, shape));
    if (config_.ready_file.empty()) return OkStatus();
    const nlohmann::json ready = {{"url", url}};
    return Annotate(
        WriteFileAtomically(config_.ready_file, ready.dump() + "\n"),
        "--ready-file");
  }

  // The conductor first, so that its streams end while workers still run.
  void StopAll() {
    EndProgress();
    elastic_.reset();
    stop_ = false;  // from here on a signal means: at once
    StopMembers(false, seconds(config_.drain_timeout_s + 5));
    StopMembers(true, kWorkerStopTimeout);
  }

  void StopMembers(bool workers, Duration timeout) {
    const TimePoint deadline = Clock::Monotonic().Now() + timeout;
    const auto concerned = [&](const Member& member) {
      return member.is_worker == workers && member.child.has_value();
    };
    for (Member& member : members_)
      if (concerned(member)) member.child->Signal(SIGTERM);
    bool killed = false;
    while (std::ranges::any_of(members_, concerned)) {
      WaitForEvents();
      if (!killed && (stop_ || Clock::Monotonic().Now() > deadline)) {
        killed = true;
        for (Member& member : members_)
          if (concerned(member)) member.child->Signal(SIGKILL);
      }
      for (Member& member : members_) {
        if (!concerned(member) || !member.child->Reap()) continue;
        Relay(member);
        member.output_open = false;
        member.child.reset();
      }
    }
  }

  const FleetConfig& config_;
  RunFolder& folder_;
  const int signals_;
  std::vector<Member> members_;  // workers, then the conductor
  std::optional<Elastic> elastic_;
  bool stop_ = false;
  bool served_ = false;
  bool progress_shown_ = false;
  std::string last_progress_;
  TimePoint next_probe_{};
};

}  // namespace

Status RunFleet(const FleetConfig& config) {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  const UniqueFd signals(
      signalfd(-1, &stop_signals, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals) return ErrnoError(errno, "signalfd");
  ASSIGN_OR_RETURN(const std::unique_ptr<RunFolder> folder,
                   RunFolder::Create());
  return Fleet(config, *folder, signals.get()).Run();
}

}  // namespace tidepool::cli
