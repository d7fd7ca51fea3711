#include "dataplane/worker/worker_shell_test_util.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/random.h"
#include "dataplane/base/status.h"
#include "dataplane/transfer/socket.h"

extern char** environ;

namespace tidepool::worker {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 60s;

pid_t Spawn(const std::vector<std::string>& arguments, int stderr_fd) {
  std::vector<char*> argv = {const_cast<char*>(TIDEPOOL_WORKER_BINARY)};
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (stderr_fd >= 0)
    posix_spawn_file_actions_adddup2(&actions, stderr_fd, STDERR_FILENO);
  pid_t pid = -1;
  CHECK(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ) ==
        0);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

// Polls, which is all that can be done about another process's file.
template <typename Condition>
void AwaitCondition(Condition condition) {
  const TimePoint give_up = Clock::Monotonic().Now() + kPatience;
  while (!condition()) {
    CHECK(Clock::Monotonic().Now() < give_up);
    std::this_thread::sleep_for(2ms);
  }
}

}  // namespace

WorkerProcess::WorkerProcess(std::vector<std::string> arguments) {
  const std::string ready_file =
      std::filesystem::temp_directory_path() /
      fmt::format("tidepool-worker-{:016x}.json", SystemRandom64());
  arguments.insert(arguments.end(),
                   {"--metrics-port", "0", "--ready-file", ready_file});
  pid_ = Spawn(arguments, -1);
  AwaitCondition([&] { return std::filesystem::exists(ready_file); });
  std::ifstream file(ready_file);
  const nlohmann::json ready = nlohmann::json::parse(file);
  std::filesystem::remove(ready_file);
  control_address_ = ready.at("address");
  metrics_port_ = ready.at("metrics_port");
}

WorkerProcess::~WorkerProcess() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

void WorkerProcess::Signal(int signal) const { CHECK(kill(pid_, signal) == 0); }

int WorkerProcess::Wait() {
  int status = 0;
  CHECK(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  return status;
}

std::string WorkerProcess::Get(const std::string& path) const {
  auto fd = transfer::internal::ConnectTcp(
      *ResolveAddress("127.0.0.1", static_cast<uint16_t>(metrics_port_)),
      kPatience);
  CHECK(fd.ok());
  CHECK(fcntl(fd->get(), F_SETFL, 0) == 0);
  const std::string request =
      fmt::format("GET {} HTTP/1.0\r\nHost: test\r\n\r\n", path);
  AwaitCondition([&] {
    return write(fd->get(), request.data(), request.size()) ==
           static_cast<ssize_t>(request.size());
  });
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(fd->get(), buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  return text;
}

double WorkerProcess::Metric(const std::string& name) const {
  const std::string text = Get("/metrics");
  const size_t at = text.find("\n" + name + " ");
  CHECK(at != std::string::npos);
  return std::strtod(text.c_str() + at + name.size() + 2, nullptr);
}

std::string RunWorker(std::vector<std::string> arguments, int& exit_status) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  const pid_t pid = Spawn(arguments, ends[1]);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  CHECK(waitpid(pid, &exit_status, 0) == pid);
  return text;
}

WorkerClient::WorkerClient(const std::string& address,
                           const std::string& conductor_id)
    : address_(address),
      conductor_id_(conductor_id),
      stub_(v1::WorkerService::NewStub(
          grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
  AwaitCondition([&] {
    grpc::ClientContext context;
    return stub_->Describe(&context, {}, &description_).ok() &&
           description_.ready();
  });
  stream_ = stub_->Session(&context_);
  v1::SessionRequest hello;
  hello.mutable_hello()->set_conductor_id(conductor_id_);
  hello.mutable_hello()->set_incarnation(1);
  Write(std::move(hello));
  reader_ = std::thread([this] { Read(); });
}

WorkerClient::~WorkerClient() {
  context_.TryCancel();
  reader_.join();
}

grpc::Status WorkerClient::AwaitEnd() {
  const MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&closed_));
  return stream_->Finish();
}

void WorkerClient::Write(v1::SessionRequest message) {
  message.set_sequence(next_sequence_++);
  stream_->Write(message);
}

void WorkerClient::Submit(const v1::RequestHeader& header,
                          const v1::GenerationRequest& request,
                          const v1::DecodePeer* peer) {
  v1::SessionRequest message;
  *message.mutable_submit()->mutable_header() = header;
  *message.mutable_submit()->mutable_request() = request;
  if (peer != nullptr) *message.mutable_submit()->mutable_decode_peer() = *peer;
  Write(std::move(message));
}

void WorkerClient::Cancel(const v1::RequestHeader& header) {
  v1::SessionRequest message;
  *message.mutable_cancel()->mutable_header() = header;
  Write(std::move(message));
}

v1::RoleState WorkerClient::SetRole(v1::Role role, uint64_t sequence,
                                    uint32_t drain_timeout_ms) {
  v1::SetRoleRequest request;
  request.set_role(role);
  request.mutable_epoch()->set_term(1);
  request.mutable_epoch()->set_sequence(sequence);
  request.set_incarnation(description_.incarnation());
  request.set_drain_timeout_ms(drain_timeout_ms);
  grpc::ClientContext context;
  v1::SetRoleResponse response;
  stub_->SetRole(&context, request, &response);
  return response.state();
}

void WorkerClient::AwaitRole(v1::Role role) {
  const MutexLock lock(&mutex_);
  const auto told = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || role_ == role;
  };
  CHECK(mutex_.AwaitWithTimeout(absl::Condition(&told),
                                absl::FromChrono(kPatience)));
}

void WorkerClient::Read() {
  v1::SessionResponse message;
  while (stream_->Read(&message)) {
    const MutexLock lock(&mutex_);
    for (const v1::RequestOutput& output : message.outputs().outputs()) {
      Ending& ending = endings_[output.request_id()];
      ending.tokens.insert(ending.tokens.end(), output.tokens().begin(),
                           output.tokens().end());
      ending.finish_reason = output.finish_reason();
    }
    if (message.has_failure())
      endings_[message.failure().request_id()].failure = message.failure();
    if (message.has_role_state()) role_ = message.role_state().role();
    if (message.has_handed_over()) {
      Ending& ending = endings_[message.handed_over().request_id()];
      ending.handed_over = true;
      ending.transport = message.handed_over().transport();
    }
  }
  const MutexLock lock(&mutex_);
  closed_ = true;
}

WorkerClient::Ending WorkerClient::Await(const std::string& request_id,
                                         size_t min_tokens) {
  const MutexLock lock(&mutex_);
  const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Ending& ending = endings_[request_id];
    return closed_ || ending.handed_over ||
           ending.finish_reason != v1::FINISH_REASON_UNSPECIFIED ||
           ending.failure.kind() != v1::RequestFailure::KIND_UNSPECIFIED ||
           ending.tokens.size() >= min_tokens;
  };
  CHECK(mutex_.AwaitWithTimeout(absl::Condition(&over),
                                absl::FromChrono(kPatience)));
  return endings_[request_id];
}

}  // namespace tidepool::worker
