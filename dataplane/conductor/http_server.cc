#include "dataplane/conductor/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/base/log.h"
#include "dataplane/base/socket_address.h"
#include "dataplane/conductor/http_connection.h"

namespace tidepool::conductor {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using internal::Connection;
using internal::IoThread;
using internal::ServerShared;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kAcceptBackoff{100};
constexpr milliseconds kDrainPoll{20};

// The connection's own bounds would not hold if the refused had one each, so
// they get a fixed text at once and are closed.
void RefuseConnection(tcp::socket socket) {
  static constexpr std::string_view kAnswer =
      "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
      "Retry-After: 1\r\nConnection: close\r\n\r\n";
  // Fits an empty send buffer; a client that is gone needs no answer.
  (void)::send(socket.native_handle(), kAnswer.data(), kAnswer.size(),
               MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

struct HttpServer::Impl {
  using WorkGuard = asio::executor_work_guard<asio::io_context::executor_type>;

  std::shared_ptr<ServerShared> shared;
  std::vector<std::shared_ptr<IoThread>> io;
  std::unique_ptr<tcp::acceptor> acceptor;  // confined to the first thread
  std::unique_ptr<asio::steady_timer> accept_timer;
  uint16_t port = 0;
  size_t next_thread = 0;
  std::vector<WorkGuard> guards;
  std::vector<std::thread> threads;

  void Accept();
  void OnAccepted(tcp::socket socket, const std::shared_ptr<IoThread>& target);
  template <typename Visit>
  void ForEachConnection(Visit visit);
  void StopAccepting();
};

void HttpServer::Impl::Accept() {
  if (!acceptor->is_open()) return;
  const std::shared_ptr<IoThread> target = io[next_thread++ % io.size()];
  acceptor->async_accept(
      target->context,
      [this, target](const error_code& error, tcp::socket socket) {
        if (error == asio::error::operation_aborted) return;
        if (!error) {
          OnAccepted(std::move(socket), target);
          return Accept();
        }
        // Out of descriptors, usually: others must close first.
        LOG_WARNING("accepting a connection failed: {}", error.message());
        accept_timer->expires_after(kAcceptBackoff);
        accept_timer->async_wait([this](const error_code& cancelled) {
          if (!cancelled) Accept();
        });
      });
}

void HttpServer::Impl::OnAccepted(tcp::socket socket,
                                  const std::shared_ptr<IoThread>& target) {
  const int64_t others = shared->connections.fetch_add(1);
  const bool only_probes = others >= shared->options.connections_max;
  if (others >=
      shared->options.connections_max + HttpServerOptions::kProbeConnections) {
    shared->connections.fetch_sub(1);
    shared->refused.fetch_add(1);
    return RefuseConnection(std::move(socket));
  }
  asio::post(target->context, [socket = std::move(socket), target,
                               state = shared, only_probes]() mutable {
    std::make_shared<Connection>(std::move(socket), target, std::move(state),
                                 only_probes)
        ->Start();
  });
}

// `visit` runs on each connection's own thread.
template <typename Visit>
void HttpServer::Impl::ForEachConnection(Visit visit) {
  for (const std::shared_ptr<IoThread>& thread : io) {
    asio::post(thread->context, [thread = thread.get(), visit] {
      std::vector<std::shared_ptr<Connection>> all;
      for (Connection* connection : thread->connections)
        all.push_back(connection->shared_from_this());
      for (const auto& connection : all) visit(*connection);
    });
  }
}

void HttpServer::Impl::StopAccepting() {
  asio::post(io[0]->context, [this] {
    error_code ignored;
    acceptor->close(ignored);
    accept_timer->cancel();
  });
}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(
    const HttpServerOptions& options, HttpHandler handler,
    ErrorPage error_page) {
  auto impl = std::make_unique<Impl>();
  impl->shared = std::make_shared<ServerShared>();
  impl->shared->options = options;
  impl->shared->handler = std::move(handler);
  impl->shared->error_page = std::move(error_page);
  for (int i = 0; i < std::max(options.threads, 1); ++i)
    impl->io.push_back(std::make_shared<IoThread>());

  ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(options.host, options.port));
  ASSIGN_OR_RETURN(const SocketAddress bound, BoundAddress(listener.get()));
  ASSIGN_OR_RETURN(impl->port, BoundPort(listener.get()));
  const tcp protocol =
      bound.storage.ss_family == AF_INET6 ? tcp::v6() : tcp::v4();
  impl->acceptor = std::make_unique<tcp::acceptor>(
      impl->io[0]->context, protocol, listener.Release());
  impl->accept_timer =
      std::make_unique<asio::steady_timer>(impl->io[0]->context);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

void HttpServer::Start() {
  impl_->Accept();
  for (const std::shared_ptr<IoThread>& thread : impl_->io) {
    impl_->guards.push_back(asio::make_work_guard(thread->context));
    impl_->threads.emplace_back(
        [context = &thread->context] { context->run(); });
  }
}

uint16_t HttpServer::port() const { return impl_->port; }

HttpServerStats HttpServer::stats() const {
  return {.connections = impl_->shared->connections.load(),
          .connections_refused_total = impl_->shared->refused.load(),
          .slow_readers_cut_total = impl_->shared->slow_readers.load()};
}

bool HttpServer::Drain(milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  impl_->shared->draining = true;
  impl_->StopAccepting();
  impl_->ForEachConnection([](Connection& connection) { connection.Drain(); });
  while (impl_->shared->connections.load() > 0) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(kDrainPoll);
  }
  return true;
}

HttpServer::~HttpServer() {
  impl_->shared->draining = true;
  if (impl_->threads.empty()) return;
  impl_->StopAccepting();
  impl_->ForEachConnection([](Connection& connection) { connection.Close(); });
  impl_->guards.clear();
  for (std::thread& thread : impl_->threads) thread.join();
}

}  // namespace tidepool::conductor
