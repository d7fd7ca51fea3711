#include "controller/runtime/health_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::runtime {
namespace {

constexpr size_t kConnectionsMax = 32;
constexpr size_t kRequestBytesMax = 16 << 10;
constexpr Duration kConnectionMax = std::chrono::seconds(5);

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

StatusOr<UniqueFd> Listen(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0)
    return InvalidArgument("health server: `{}` is no address: {}", host,
                           gai_strerror(failed));
  const std::unique_ptr<addrinfo, FreeAddresses> owned(found);
  UniqueFd fd(
      socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  if (fd) {
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (found->ai_family == AF_INET6)
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (!fd || bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(fd.get(), 64) != 0) {
    const int error_number = errno;
    return Unavailable("health server: listening on `{}` port {}: {}", host,
                       port, MessageOf(ErrnoError(error_number, "")));
  }
  return fd;
}

StatusOr<UniqueFd> ListenAnywhere(const HealthServerOptions& options) {
  if (!options.host.empty()) return Listen(options.host, options.port);
  StatusOr<UniqueFd> both = Listen("::", options.port);
  if (both.ok()) return both;
  return Listen("0.0.0.0", options.port);  // a machine without IPv6
}

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

std::string Answer(std::string_view status, std::string_view content_type,
                   std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      status, content_type, body.size(), body);
}

std::string AnswerProbe(const std::function<Status()>& probe) {
  const Status status = probe ? probe() : OkStatus();
  if (status.ok()) return Answer("200 OK", "text/plain", "ok\n");
  return Answer("503 Service Unavailable", "text/plain",
                fmt::format("{}\n", MessageOf(status)));
}

struct Connection {
  UniqueFd fd;
  TimePoint end;
  std::string in, out;
  size_t sent = 0;

  bool writing() const { return !out.empty(); }
};

class PollServer final : public HealthServer {
 public:
  PollServer(HealthServerOptions options, UniqueFd listener, UniqueFd wake)
      : options_(std::move(options)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(PortOf(listener_.get())),
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

  const HealthServerOptions options_;
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
  if (!fd) return;
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
  if (!request.starts_with("GET "))
    return Answer("405 Method Not Allowed", "text/plain", "only GET\n");
  request.remove_prefix(4);
  std::string_view path = request.substr(0, request.find_first_of(" \r\n"));
  path = path.substr(0, path.find('?'));
  if (path == "/healthz") return AnswerProbe(options_.healthy);
  if (path == "/readyz") return AnswerProbe(options_.ready);
  if (path == "/metrics" && options_.metrics)
    return Answer("200 OK", "text/plain; version=0.0.4; charset=utf-8",
                  options_.metrics());
  return Answer("404 Not Found", "text/plain",
                "there are /healthz, /readyz and /metrics\n");
}

}  // namespace

StatusOr<std::unique_ptr<HealthServer>> HealthServer::Start(
    HealthServerOptions options) {
  ASSIGN_OR_RETURN(UniqueFd listener, ListenAnywhere(options));
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return ErrnoError(errno, "health server: eventfd");
  return std::make_unique<PollServer>(std::move(options), std::move(listener),
                                      std::move(wake));
}

}  // namespace tidepool::runtime
