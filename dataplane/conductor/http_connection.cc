#include "dataplane/conductor/http_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <iterator>
#include <optional>
#include <utility>

#include "dataplane/base/socket_address.h"

namespace tidepool::conductor::internal {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kTickMax{500};  // bounds how late a leaving is noticed
constexpr milliseconds kLingerTimeout{2'000};
constexpr size_t kReadBufferBytes = 64 << 10;
constexpr size_t kIdleBufferBytes = 64 << 10;

// Who comes by IPv4 to a socket of both has an address of IPv6, too.
std::string TextOf(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped())
    return address.to_string();
  return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6())
      .to_string();
}

std::string PathOf(std::string_view target) {
  return std::string(target.substr(0, target.find_first_of("?#")));
}

// A body's share of the memory for all bodies. It grows as the body arrives:
// who announces much and sends little takes no room from others.
class BodyLease {
 public:
  explicit BodyLease(std::shared_ptr<ServerShared> shared)
      : shared_(std::move(shared)) {}
  ~BodyLease() { shared_->body_bytes.fetch_sub(bytes_); }
  BodyLease(const BodyLease&) = delete;
  BodyLease& operator=(const BodyLease&) = delete;

  // False if there is no room.
  bool GrowTo(uint64_t bytes) {
    const uint64_t more = bytes - bytes_;
    uint64_t used = shared_->body_bytes.load();
    do {
      if (more > shared_->options.total_body_bytes_max - used) return false;
    } while (!shared_->body_bytes.compare_exchange_weak(used, used + more));
    bytes_ = bytes;
    return true;
  }

 private:
  const std::shared_ptr<ServerShared> shared_;
  uint64_t bytes_ = 0;
};

}  // namespace

struct Connection::Reading {
  explicit Reading(size_t buffer_bytes) : buffer(buffer_bytes) {}
  beast::flat_buffer buffer;
  std::optional<http::request_parser<http::string_body>> parser;
  std::shared_ptr<BodyLease> body_lease;
};

// What a handler holds. It does not keep the connection alive: an answer in
// progress does.
class Connection::Exchange : public HttpExchange {
 public:
  Exchange(std::weak_ptr<Connection> connection, std::weak_ptr<IoThread> thread,
           uint64_t number)
      : connection_(std::move(connection)),
        thread_(std::move(thread)),
        number_(number) {}

  ~Exchange() override {
    Post([connection = connection_, number = number_] {
      const std::shared_ptr<Connection> live = connection.lock();
      if (!live || live->exchange_number_ != number || live->finished_) return;
      if (live->streaming_)
        live->Abandon();
      else
        live->Refuse(500, "the request was dropped without an answer");
    });
  }

  void Post(std::function<void()> task) override {
    if (const std::shared_ptr<IoThread> thread = thread_.lock())
      asio::post(thread->context, std::move(task));
  }

  void OnAbandoned(std::function<void()> callback) override {
    if (const auto live = Live())
      live->on_abandoned_ = std::move(callback);
    else
      callback();
  }
  bool abandoned() const override { return Live() == nullptr; }

  void Respond(HttpResponse response) override {
    if (const auto live = Live()) live->Respond(response);
  }
  void StartStream(HttpResponse head, std::string heartbeat,
                   milliseconds interval) override {
    if (const auto live = Live())
      live->StartStream(head, std::move(heartbeat), interval);
  }
  void Write(std::string_view data) override {
    if (const auto live = Live()) live->Write(data);
  }
  void Finish(HttpHeaders trailers) override {
    if (const auto live = Live()) live->Finish(trailers);
  }
  void Abort() override {
    if (const auto live = Live()) live->Abandon();
  }

 private:
  std::shared_ptr<Connection> Live() const {
    std::shared_ptr<Connection> live = connection_.lock();
    if (live && live->exchange_number_ == number_ && !live->finished_)
      return live;
    return nullptr;
  }

  const std::weak_ptr<Connection> connection_;
  const std::weak_ptr<IoThread> thread_;
  const uint64_t number_;
};

Connection::Connection(asio::ip::tcp::socket socket,
                       const std::shared_ptr<IoThread>& thread,
                       std::shared_ptr<ServerShared> shared, bool only_probes)
    : socket_(std::move(socket)),
      thread_(thread),
      registry_(thread->connections),
      shared_(std::move(shared)),
      only_probes_(only_probes),
      reading_(std::make_unique<Reading>(shared_->options.header_bytes_max +
                                         kReadBufferBytes)),
      deadline_(thread->context),
      tick_(thread->context) {
  registry_.insert(this);
}

Connection::~Connection() {
  registry_.erase(this);
  shared_->connections.fetch_sub(1);
}

void Connection::Start() {
  error_code error;
  const auto peer = socket_.remote_endpoint(error);
  if (error) return Drop();
  peer_ = HostPort(TextOf(peer.address()), peer.port());
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  socket_.set_option(asio::socket_base::keep_alive(true), error);
  WaitForRequest();
}

void Connection::Drain() {
  if (phase_ == Phase::kIdle) Drop();
}

void Connection::Close() {
  if (phase_ == Phase::kAnswer) return Abandon();
  Drop();
}

// ---- Reading ----

void Connection::WaitForRequest() {
  phase_ = Phase::kIdle;
  if (shared_->draining) return Drop();
  if (reading_->buffer.size() > 0) return ReadHeader();
  SetDeadline(only_probes_ ? shared_->options.header_timeout
                           : shared_->options.idle_timeout);
  WaitReadable();
}

void Connection::WaitReadable() {
  if (wait_pending_) return;
  wait_pending_ = true;
  socket_.async_wait(asio::socket_base::wait_read,
                     [self = shared_from_this()](const error_code& error) {
                       self->wait_pending_ = false;
                       if (!error) self->OnReadable();
                     });
}

void Connection::OnReadable() {
  if (phase_ == Phase::kIdle) return ReadHeader();
  if (phase_ != Phase::kAnswer) return;
  if (ClientHasLeft()) return Abandon();
  // Readable, and staying so: what was pipelined is left in the socket until
  // its turn, and the ticks look for the end of the stream behind it.
  poll_for_leaving_ = true;
}

void Connection::ReadHeader() {
  phase_ = Phase::kHeader;
  SetDeadline(shared_->options.header_timeout);
  auto& parser = reading_->parser.emplace();
  parser.header_limit(shared_->options.header_bytes_max);
  parser.body_limit(shared_->options.body_bytes_max);
  http::async_read_header(
      socket_, reading_->buffer, parser,
      [self = shared_from_this()](const error_code& error, size_t) {
        if (error) return self->OnReadError(error);
        self->OnHeader();
      });
}

bool Connection::IsForProbe() const {
  const auto target = reading_->parser->get().target();
  return std::ranges::find(shared_->options.probe_paths,
                           PathOf({target.data(), target.size()})) !=
         shared_->options.probe_paths.end();
}

void Connection::OnHeader() {
  auto& parser = *reading_->parser;
  parser.eager(true);
  http_1_0_ = parser.get().version() < 11;
  if (only_probes_ && !IsForProbe()) {
    shared_->refused.fetch_add(1);
    return Refuse(503, "there are too many connections");
  }
  reading_->body_lease = std::make_shared<BodyLease>(shared_);
  phase_ = Phase::kBody;
  SetDeadline(shared_->options.body_timeout);
  const bool wants_continue =
      beast::iequals(parser.get()[http::field::expect], "100-continue");
  if (wants_continue && !http_1_0_ && !parser.is_done() &&
      reading_->buffer.size() == 0)
    return ContinueThenReadBody();
  ReadBody();
}

void Connection::ContinueThenReadBody() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(
      socket_, asio::buffer(kContinue),
      [self = shared_from_this()](const error_code& error, size_t) {
        if (error) return self->OnReadError(error);
        self->ReadBody();
      });
}

void Connection::ReadBody() {
  if (reading_->parser->is_done()) return OnBody();
  http::async_read_some(
      socket_, reading_->buffer, *reading_->parser,
      [self = shared_from_this()](const error_code& error, size_t) {
        if (error) return self->OnReadError(error);
        self->OnBodyPart();
      });
}

void Connection::OnBodyPart() {
  // Too late for the deadline to cancel that read.
  if (timed_out_) return OnReadError(asio::error::operation_aborted);
  if (!reading_->body_lease->GrowTo(reading_->parser->get().body().size()))
    return Refuse(503, "too many request bodies are held already");
  ReadBody();
}

void Connection::OnBody() {
  http::request<http::string_body> message = reading_->parser->release();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.peer = peer_;
  request.body_lease = std::move(reading_->body_lease);
  for (const auto& field : message)
    request.headers.Add(std::string(field.name_string()),
                        std::string(field.value()));
  request.body = std::move(message.body());
  keep_alive_ = message.keep_alive() && !only_probes_;
  head_only_ = message.method() == http::verb::head;
  const auto target = message.target();
  if (!PercentDecode(PathOf({target.data(), target.size()}), request.path))
    return Refuse(400, "the path has a malformed percent escape");
  BeginAnswer();
  shared_->handler(
      std::move(request),
      std::make_shared<Exchange>(weak_from_this(), thread_, exchange_number_));
}

void Connection::OnReadError(const error_code& error) {
  if (phase_ == Phase::kClosed) return;
  reading_->body_lease.reset();
  if (error == asio::error::operation_aborted && timed_out_)
    return Refuse(408, phase_ == Phase::kHeader
                           ? "the request's header took too long"
                           : "the request's body took too long");
  if (error == http::error::end_of_stream) return Drop();
  if (error == http::error::header_limit ||
      error == http::error::buffer_overflow)
    return Refuse(431, fmt::format("the request's header is over {} bytes",
                                   shared_->options.header_bytes_max));
  if (error == http::error::body_limit)
    return Refuse(413, fmt::format("the request's body is over {} bytes",
                                   shared_->options.body_bytes_max));
  if (error == http::error::partial_message)
    return Refuse(400, "the request ended before its end");
  const auto& parse_errors =
      http::make_error_code(http::error::end_of_stream).category();
  if (error.category() == parse_errors)
    return Refuse(400, fmt::format("not an HTTP request: {}", error.message()));
  Drop();
}

void Connection::SetDeadline(milliseconds timeout) {
  timed_out_ = false;
  const uint64_t generation = ++deadline_generation_;
  deadline_.expires_after(timeout);
  deadline_.async_wait(
      [self = shared_from_this(), generation](const error_code& error) {
        if (!error && generation == self->deadline_generation_)
          self->OnDeadline();
      });
}

void Connection::OnDeadline() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kLinger) return Drop();
  timed_out_ = true;
  error_code ignored;
  socket_.cancel(ignored);
}

// ---- Answering ----

void Connection::BeginAnswer() {
  phase_ = Phase::kAnswer;
  ++deadline_generation_;
  deadline_.cancel();
  ++exchange_number_;
  streaming_ = finished_ = chunked_ = poll_for_leaving_ = false;
  last_write_ = last_progress_ = steady_clock::now();
  heartbeat_interval_ = milliseconds(0);
  WaitReadable();
  Tick();
}

void Connection::Refuse(int status, std::string_view message) {
  if (phase_ != Phase::kAnswer) BeginAnswer();
  keep_alive_ = false;
  Respond(shared_->error_page(status, message));
}

bool Connection::ClientHasLeft() {
  pollfd state{.fd = socket_.native_handle(), .events = POLLRDHUP};
  return ::poll(&state, 1, 0) > 0 &&
         (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

void Connection::Tick() {
  milliseconds interval =
      std::min(kTickMax, shared_->options.write_timeout / 4);
  if (heartbeat_interval_.count() > 0)
    interval = std::min(interval, heartbeat_interval_ / 4);
  tick_.expires_after(std::max(interval, milliseconds(1)));
  tick_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && self->phase_ == Phase::kAnswer) self->OnTick();
  });
}

void Connection::OnTick() {
  if (poll_for_leaving_ && ClientHasLeft()) return Abandon();
  const steady_clock::time_point now = steady_clock::now();
  if (write_pending_ && now - last_progress_ > shared_->options.write_timeout) {
    shared_->slow_readers.fetch_add(1);
    return Abandon();
  }
  if (streaming_ && !finished_ && heartbeat_interval_.count() > 0 &&
      now - last_write_ >= heartbeat_interval_) {
    Write(heartbeat_);
    if (phase_ != Phase::kAnswer) return;
  }
  Tick();
}

void Connection::Abandon() {
  if (phase_ == Phase::kClosed) return;
  const std::function<void()> callback = std::exchange(on_abandoned_, nullptr);
  Drop();
  if (callback) callback();
}

std::string Connection::Head(const HttpResponse& response,
                             bool is_stream) const {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n", response.status,
                  ReasonPhrase(response.status), response.content_type);
  if (!is_stream)
    fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n",
                   response.body.size());
  else if (chunked_)
    head += "Transfer-Encoding: chunked\r\n";
  for (const auto& [name, value] : response.headers.fields())
    fmt::format_to(std::back_inserter(head), "{}: {}\r\n", name, value);
  head += keep_alive_ ? "Connection: keep-alive\r\n\r\n"
                      : "Connection: close\r\n\r\n";
  return head;
}

void Connection::Respond(const HttpResponse& response) {
  if (phase_ != Phase::kAnswer || streaming_ || finished_) return;
  keep_alive_ = keep_alive_ && !shared_->draining;
  queued_ += Head(response, /*is_stream=*/false);
  if (!head_only_) queued_ += response.body;
  finished_ = true;
  Flush();
}

void Connection::StartStream(const HttpResponse& head, std::string heartbeat,
                             milliseconds interval) {
  if (phase_ != Phase::kAnswer || streaming_ || finished_) return;
  chunked_ = !http_1_0_;
  // Without chunks only the connection's end ends the body.
  keep_alive_ = keep_alive_ && chunked_ && !shared_->draining;
  streaming_ = true;
  heartbeat_ = std::move(heartbeat);
  heartbeat_interval_ = interval;
  last_write_ = steady_clock::now();
  queued_ += Head(head, /*is_stream=*/true);
  Tick();
  Flush();
}

void Connection::Write(std::string_view data) {
  if (phase_ != Phase::kAnswer || !streaming_ || finished_ || data.empty())
    return;
  if (queued_.size() + data.size() > shared_->options.write_queue_bytes_max) {
    shared_->slow_readers.fetch_add(1);
    return Abandon();
  }
  last_write_ = steady_clock::now();
  if (!head_only_) {
    if (chunked_)
      fmt::format_to(std::back_inserter(queued_), "{:x}\r\n", data.size());
    queued_ += data;
    if (chunked_) queued_ += "\r\n";
  }
  Flush();
}

void Connection::Finish(const HttpHeaders& trailers) {
  if (phase_ != Phase::kAnswer || !streaming_ || finished_) return;
  if (chunked_ && !head_only_) {
    queued_ += "0\r\n";
    for (const auto& [name, value] : trailers.fields())
      fmt::format_to(std::back_inserter(queued_), "{}: {}\r\n", name, value);
    queued_ += "\r\n";
  }
  finished_ = true;
  Flush();
}

void Connection::Flush() {
  if (write_pending_) return;
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    if (writing_.capacity() > kIdleBufferBytes) writing_.shrink_to_fit();
    writing_.swap(queued_);
    last_progress_ = steady_clock::now();
  }
  if (writing_.empty()) {
    if (finished_) OnAnswerComplete();
    return;
  }
  write_pending_ = true;
  socket_.async_write_some(
      asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](const error_code& error, size_t bytes) {
        self->OnWritten(error, bytes);
      });
}

void Connection::OnWritten(const error_code& error, size_t bytes) {
  write_pending_ = false;
  if (phase_ != Phase::kAnswer) return;
  if (error) return Abandon();
  written_ += bytes;
  last_progress_ = steady_clock::now();
  Flush();
}

void Connection::OnAnswerComplete() {
  on_abandoned_ = nullptr;
  tick_.cancel();
  if (keep_alive_ && !shared_->draining) return WaitForRequest();
  Linger();
}

// Closing with unread bytes in the socket would reset the connection and could
// take the answer with it: we wait for the client to close first.
void Connection::Linger() {
  phase_ = Phase::kLinger;
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  if (error) return Drop();
  SetDeadline(kLingerTimeout);
  queued_.clear();
  writing_.resize(4096);
  const auto discard = [](const std::shared_ptr<Connection>& self,
                          const auto& again) -> void {
    self->socket_.async_read_some(
        asio::buffer(self->writing_),
        [self, again](const error_code& failed, size_t) {
          if (failed) return self->Drop();
          again(self, again);
        });
  };
  discard(shared_from_this(), discard);
}

void Connection::Drop() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  ++exchange_number_;
  on_abandoned_ = nullptr;
  deadline_.cancel();
  tick_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace tidepool::conductor::internal
