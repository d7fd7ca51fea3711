// An HTTP server for tests that can misbehave on demand.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/base/unique_fd.h"

namespace tidepool::model {

struct ScriptedRequest {
  std::string target;
  std::map<std::string, std::string> headers;  // lower-case names
};

struct ScriptedReply {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // The connection is closed after this many bytes of the body…
  size_t cut_after = std::numeric_limits<size_t>::max();
  // …or, if set, left silent until the client gives up.
  bool hang = false;
};

// Answers one connection after the other on a port of its own, on loopback.
class ScriptedHttpServer {
 public:
  using Handler = std::function<ScriptedReply(const ScriptedRequest&)>;

  // `handler` runs on the server's thread.
  explicit ScriptedHttpServer(Handler handler);
  ~ScriptedHttpServer();

  std::string url() const;  // "http://127.0.0.1:PORT"
  std::vector<ScriptedRequest> requests() const;

 private:
  void Serve();
  void Answer(int connection);

  const Handler handler_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<ScriptedRequest> requests_;
  std::thread thread_;
};

}  // namespace tidepool::model
