// An HTTP or HTTPS server for tests of the client.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dataplane/base/mutex.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::kube::testing {

struct TestRequest {
  std::string method, target;
  std::string head;  // with all headers, as sent
  std::string body;
};

// A certificate made for the occasion, which signs itself.
struct TestCertificate {
  std::string certificate_pem, key_pem;
};
// `names` as OpenSSL takes them: "IP:127.0.0.1", "DNS:api".
TestCertificate MakeCertificate(const std::string& names);

// A thread per connection. Externally synchronized but for the handler.
class TestServer {
 public:
  class Connection;
  // Called for every request; false closes the connection.
  using Handler = std::function<bool(const TestRequest&, Connection&)>;

  class Connection {
   public:
    Connection(UniqueFd fd, SSL_CTX* context);
    ~Connection();
    bool Handshake();
    bool Read(TestRequest& request);
    // False if the client is gone.
    bool Send(std::string_view text);
    // A whole answer.
    bool Answer(int code, std::string_view body,
                std::string_view extra_headers = "");
    // The head of an answer that goes on until its connection closes.
    bool Begin();
    // Waits for the client to close.
    void AwaitEnd();
    void Shut();

   private:
    ssize_t Receive(char* buffer, size_t size);
    UniqueFd fd_;
    SSL* ssl_ = nullptr;
    std::string read_;
  };

  // TLS with `certificate` if there is one; then clients must show one signed
  // by `client_ca_pem`, if that is given.
  explicit TestServer(Handler handler,
                      const TestCertificate* certificate = nullptr,
                      const std::string& client_ca_pem = "");
  ~TestServer();

  std::string url() const;  // by address
  uint16_t port() const { return port_; }
  int connections() const { return connections_.load(); }

 private:
  void Accept();
  void Serve(UniqueFd fd);

  const Handler handler_;
  SSL_CTX* context_ = nullptr;
  UniqueFd listener_;
  uint16_t port_ = 0;
  std::atomic<int> connections_ = 0;
  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Connection*> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace tidepool::kube::testing
