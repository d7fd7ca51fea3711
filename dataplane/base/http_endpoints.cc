#include "dataplane/base/http_endpoints.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/socket_address.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool {
namespace {

constexpr size_t kConnectionsMax = 64;
constexpr size_t kRequestBytesMax = 16 << 10;
constexpr Duration kConnectionMax = std::chrono::seconds(5);
// Without descriptors the listener would stay ready and spin.
constexpr int kAcceptPauseMs = 100;

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "";
  }
}

struct Connection {
  UniqueFd fd;
  TimePoint end;
  std::string in, out;
  size_t sent = 0;

  bool writing() const { return !out.empty(); }
};

class PollServer final : public HttpEndpoints {
 public:
  PollServer(Handler handler, UniqueFd listener, uint16_t port, UniqueFd wake)
      : handler_(std::move(handler)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(port),
        thread_([this](std::stop_token stop) { Run(std::move(stop)); }) {}

  ~PollServer() override {
    thread_.request_stop();
    const uint64_t one = 1;
    // An eventfd that was never written takes this.
    (void)!write(wake_.get(), &one, sizeof(one));
    thread_.join();
  }

  uint16_t port() const override { return port_; }

 private:
  void Run(std::stop_token stop);
  void Accept();
  // False when the connection is done with.
  bool Serve(Connection& connection);
  std::string AnswerTo(std::string_view request) const;

  const Handler handler_;
  const UniqueFd listener_, wake_;
  const uint16_t port_;
  std::deque<Connection> connections_;  // oldest first
  std::jthread thread_;
};

void PollServer::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0},
                                 {listener_.get(), POLLIN, 0}};
    int timeout_ms = -1;
    const TimePoint now = Clock::Monotonic().Now();
    for (const Connection& connection : connections_)
      waits.push_back(
          {connection.fd.get(),
           static_cast<short>(connection.writing() ? POLLOUT : POLLIN), 0});
    if (!connections_.empty())
      timeout_ms = static_cast<int>(
          std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(
                                   connections_.front().end - now)
                                   .count()));
    poll(waits.data(), waits.size(), timeout_ms);
    const TimePoint after = Clock::Monotonic().Now();
    std::deque<Connection> kept;
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      if (after >= connection.end) continue;
      if (waits[i + 2].revents != 0 && !Serve(connection)) continue;
      kept.push_back(std::move(connection));
    }
    connections_ = std::move(kept);
    if (waits[1].revents != 0) Accept();
  }
}

void PollServer::Accept() {
  UniqueFd fd(
      accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM) return;
    pollfd wake{wake_.get(), POLLIN, 0};
    poll(&wake, 1, kAcceptPauseMs);
    return;
  }
  if (connections_.size() >= kConnectionsMax) connections_.pop_front();
  connections_.push_back(
      {.fd = std::move(fd), .end = Clock::Monotonic().Now() + kConnectionMax});
}

bool PollServer::Serve(Connection& connection) {
  if (!connection.writing()) {
    char buffer[4096];
    const ssize_t got = recv(connection.fd.get(), buffer, sizeof(buffer), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    connection.in.append(buffer, static_cast<size_t>(got));
    if (connection.in.size() > kRequestBytesMax) return false;
    if (connection.in.find("\r\n\r\n") == std::string::npos) return true;
    connection.out = AnswerTo(connection.in);
  }
  const std::string_view rest =
      std::string_view(connection.out).substr(connection.sent);
  const ssize_t sent =
      send(connection.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<size_t>(sent);
  return connection.sent < connection.out.size();
}

std::string PollServer::AnswerTo(std::string_view request) const {
  const bool is_head = request.starts_with("HEAD ");
  HttpAnswer answer{.status = 405, .body = "only GET is allowed here\n"};
  if (is_head || request.starts_with("GET ")) {
    request.remove_prefix(request.find(' ') + 1);
    const std::string_view target =
        request.substr(0, request.find_first_of(" \r\n"));
    answer = handler_(target.substr(0, target.find('?')));
  }
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
      "Cache-Control: no-store\r\nConnection: close\r\n\r\n{}",
      answer.status, ReasonOf(answer.status), answer.content_type,
      answer.body.size(), is_head ? "" : answer.body);
}

}  // namespace

StatusOr<std::unique_ptr<HttpEndpoints>> HttpEndpoints::Start(
    const std::string& host, uint16_t port, Handler handler) {
  ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(host, port));
  ASSIGN_OR_RETURN(const uint16_t bound, BoundPort(listener.get()));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoError(errno, "eventfd");
  return std::make_unique<PollServer>(std::move(handler), std::move(listener),
                                      bound, std::move(wake));
}

}  // namespace tidepool
