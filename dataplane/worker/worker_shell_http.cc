#include "dataplane/worker/worker_shell_http.h"

#include <civetweb.h>

#include <thread>
#include <utility>

#include "dataplane/base/notification.h"
#include "dataplane/transfer/socket.h"

namespace tidepool::worker {

using transfer::internal::JoinHostPort;

namespace {

class CivetEndpoints final : public HttpEndpoints {
 public:
  CivetEndpoints(std::string host, Handler handler)
      : host_(std::move(host)), handler_(std::move(handler)) {}

  Status Listen(uint16_t port) {
    const std::string address = JoinHostPort(host_, port);
    const char* const options[] = {
        "listening_ports",    address.c_str(), "num_threads", "2",
        "request_timeout_ms", "5000",          nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = [](mg_connection* connection) {
      auto* const self = static_cast<CivetEndpoints*>(
          mg_get_request_info(connection)->user_data);
      return self->Handle(connection);
    };
    mg_init_library(0);
    initialized_ = true;
    char text[256] = "";
    mg_error_data error{.text = text, .text_buffer_size = sizeof(text)};
    mg_init_data init{
        .callbacks = &callbacks,
        .user_data = this,
        .configuration_options = const_cast<const char**>(options)};
    server_ = mg_start2(&init, &error);
    if (server_ == nullptr)
      return Unavailable("--metrics-port: listening on {}: {}", address,
                         text[0] != 0 ? text : "the port is in use");
    mg_server_port bound{};
    if (mg_get_server_ports(server_, 1, &bound) != 1)
      return Internal("--metrics-port: no port is known");
    port_ = static_cast<uint16_t>(bound.port);
    return OkStatus();
  }

  ~CivetEndpoints() override {
    if (server_ != nullptr) Stop();
    if (initialized_) mg_exit_library();
  }

  uint16_t port() const override { return port_; }

 private:
  // The library looks whether it shall stop every two seconds, or when somebody
  // connects: so somebody does.
  void Stop() {
    const auto own = transfer::internal::ResolveAddress(host_, port_);
    Notification stopped;
    std::thread stopper([&] {
      mg_stop(server_);
      stopped.Notify();
    });
    while (!stopped.WaitFor(std::chrono::milliseconds(5))) {
      if (own.ok())
        (void)transfer::internal::ConnectTcp(*own, std::chrono::seconds(1));
    }
    stopper.join();
  }

  int Handle(mg_connection* connection) const {
    const mg_request_info& request = *mg_get_request_info(connection);
    const std::string_view method = request.request_method;
    HttpAnswer answer;
    if (method == "GET" || method == "HEAD") {
      answer = handler_(request.local_uri == nullptr ? "" : request.local_uri);
    } else {
      answer = {.status = 405, .body = "only GET is allowed here\n"};
    }
    const std::string head = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        answer.status, mg_get_response_code_text(connection, answer.status),
        answer.content_type, answer.body.size());
    mg_write(connection, head.data(), head.size());
    if (method != "HEAD")
      mg_write(connection, answer.body.data(), answer.body.size());
    return answer.status;
  }

  const std::string host_;
  const Handler handler_;
  bool initialized_ = false;
  mg_context* server_ = nullptr;
  uint16_t port_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<HttpEndpoints>> HttpEndpoints::Start(
    const std::string& host, uint16_t port, Handler handler) {
  auto server = std::make_unique<CivetEndpoints>(host, std::move(handler));
  RETURN_IF_ERROR(server->Listen(port));
  return std::unique_ptr<HttpEndpoints>(std::move(server));
}

}  // namespace tidepool::worker
