// One client connection of the HTTP server.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <unordered_set>

#include "dataplane/conductor/http_server.h"
#include "dataplane/conductor/http_types.h"

namespace tidepool::conductor::internal {

class Connection;

// What all connections of a server share. Thread-safe.
struct ServerShared {
  HttpServerOptions options;
  HttpHandler handler;
  HttpServer::ErrorPage error_page;
  std::atomic<bool> draining = false;
  std::atomic<int64_t> connections = 0;
  std::atomic<int64_t> refused = 0;
  std::atomic<int64_t> slow_readers = 0;
  std::atomic<uint64_t> body_bytes = 0;  // of BodyLeases
};

// One thread and its connections, which are confined to it.
struct IoThread {
  std::unordered_set<Connection*> connections;  // outlives the context's tasks
  boost::asio::io_context context{1};
};

// Reads requests, has each answered in turn, and notices when its client
// leaves. Confined to its thread; kept alive by its pending operations.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket,
             const std::shared_ptr<IoThread>& thread,
             std::shared_ptr<ServerShared> shared, bool only_probes);
  ~Connection();

  void Start();
  // Closes now if idle, else after the running answer.
  void Drain();
  void Close();

 private:
  class Exchange;
  struct Reading;
  enum class Phase { kIdle, kHeader, kBody, kAnswer, kLinger, kClosed };

  void WaitForRequest();
  void ReadHeader();
  void OnHeader();
  bool IsForProbe() const;
  void ContinueThenReadBody();
  void ReadBody();
  void OnBodyPart();
  void OnBody();
  void OnReadError(const boost::system::error_code& error);
  void BeginAnswer();
  // Answers without a handler and closes.
  void Refuse(int status, std::string_view message);

  // Arms the one deadline of the reading phases and of lingering.
  void SetDeadline(std::chrono::milliseconds timeout);
  void OnDeadline();

  // Of one wait for the socket to become readable: a next request when idle,
  // pipelined bytes or the end of the stream during an answer.
  void WaitReadable();
  void OnReadable();

  // While an answer is worked on: leaving, stalls and heartbeats.
  bool ClientHasLeft();
  void Tick();
  void OnTick();
  // Ends an answer that its client will not get.
  void Abandon();

  void Respond(const HttpResponse& response);
  void StartStream(const HttpResponse& head, std::string heartbeat,
                   std::chrono::milliseconds interval);
  void Write(std::string_view data);
  void Finish(const HttpHeaders& trailers);
  std::string Head(const HttpResponse& response, bool is_stream) const;
  void Flush();
  void OnWritten(const boost::system::error_code& error, size_t bytes);
  void OnAnswerComplete();
  void Linger();
  void Drop();

  boost::asio::ip::tcp::socket socket_;
  // Weak: the thread's own tasks keep connections alive.
  const std::weak_ptr<IoThread> thread_;
  std::unordered_set<Connection*>& registry_;
  const std::shared_ptr<ServerShared> shared_;
  const bool only_probes_;  // it is one too many
  std::string peer_;
  std::unique_ptr<Reading> reading_;
  boost::asio::steady_timer deadline_, tick_;
  uint64_t deadline_generation_ = 0;
  bool timed_out_ = false;
  bool wait_pending_ = false;
  Phase phase_ = Phase::kIdle;

  // Of the running exchange.
  std::function<void()> on_abandoned_;
  uint64_t exchange_number_ = 0;  // answers to older exchanges are dropped
  bool keep_alive_ = true;
  bool head_only_ = false;  // HEAD
  bool http_1_0_ = false;
  bool streaming_ = false;
  bool finished_ = false;  // everything of the answer is queued
  bool chunked_ = false;
  bool poll_for_leaving_ = false;
  std::string queued_, writing_;
  size_t written_ = 0;  // bytes of writing_
  bool write_pending_ = false;
  std::string heartbeat_;
  std::chrono::milliseconds heartbeat_interval_{0};
  std::chrono::steady_clock::time_point last_write_, last_progress_;
};

}  // namespace tidepool::conductor::internal
