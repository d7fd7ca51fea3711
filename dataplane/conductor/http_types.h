// HTTP requests and responses as values, free of any server.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tidepool::conductor {

// Header fields in order; names compare without case.
class HttpHeaders {
 public:
  using Field = std::pair<std::string, std::string>;

  // `name` must be a token and `value` free of control characters: what is
  // built from outside data is validated by its builder.
  void Add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // The first value under `name`; empty if there is none.
  std::string_view Get(std::string_view name) const;
  const std::vector<Field>& fields() const { return fields_; }

 private:
  std::vector<Field> fields_;
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, without the query
  HttpHeaders headers;
  std::string body;
  std::string peer;  // address of the client, for logs
  // The body's share of the server's memory for bodies: goes with the body.
  std::shared_ptr<void> body_lease;
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // the server adds framing and `Connection`
  std::string content_type = "application/json";
  std::string body;
};

// "Not Found"; "Unknown" for a status that we never send.
std::string_view ReasonPhrase(int status);

// Turns %41 into A. False if an escape is malformed or yields NUL.
bool PercentDecode(std::string_view text, std::string& out);

// One request being answered: either Respond once, or StartStream, any number
// of Write, Finish. All but Post are confined to the connection's thread, where
// the handler is called, too. If the last reference goes before the answer is
// complete, the client gets a 500 or, in a stream, the connection's end.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Runs `task` on the connection's thread, in the order of the calls.
  // Thread-safe.
  virtual void Post(std::function<void()> task) = 0;

  // Called once, on the connection's thread, if the client leaves or is cut
  // before its answer is complete (also when that has happened already). It is
  // forgotten, with what it holds, when the answer is complete.
  virtual void OnAbandoned(std::function<void()> callback) = 0;
  virtual bool abandoned() const = 0;

  virtual void Respond(HttpResponse response) = 0;

  // Sends `head` (its body ignored), then what Write gives. Whenever nothing
  // was written for `heartbeat_interval`, `heartbeat` is sent.
  virtual void StartStream(HttpResponse head, std::string heartbeat,
                           std::chrono::milliseconds heartbeat_interval) = 0;
  // Queues `data`. A client that lets the queue grow past the server's bound,
  // or takes nothing for the write timeout, is cut.
  virtual void Write(std::string_view data) = 0;
  // `trailers` follow the last chunk (a client of HTTP/1.0 does not get them).
  virtual void Finish(HttpHeaders trailers) = 0;
  // Ends the connection without completing the answer.
  virtual void Abort() = 0;
};

// Called on the connection's thread; must not block.
using HttpHandler = std::function<void(HttpRequest request,
                                       std::shared_ptr<HttpExchange> exchange)>;

}  // namespace tidepool::conductor
