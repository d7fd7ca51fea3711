#include "dataplane/model/scripted_http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace tidepool::model {
namespace {

void Require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

bool SendAll(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

ScriptedRequest Parse(const std::string& head) {
  ScriptedRequest request;
  std::istringstream lines(head);
  std::string method, line;
  lines >> method >> request.target;
  std::getline(lines, line);
  while (std::getline(lines, line) && line != "\r") {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return std::tolower(c); });
    request.headers[name] = line.substr(colon + 2, line.size() - colon - 3);
  }
  return request;
}

}  // namespace

ScriptedHttpServer::ScriptedHttpServer(Handler handler)
    : handler_(std::move(handler)),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  Require(static_cast<bool>(listener_), "socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  Require(::bind(listener_.get(), generic, size) == 0, "bind");
  Require(::listen(listener_.get(), 16) == 0, "listen");
  Require(::getsockname(listener_.get(), generic, &size) == 0, "getsockname");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

ScriptedHttpServer::~ScriptedHttpServer() {
  stopping_ = true;
  ::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept
  thread_.join();
}

std::string ScriptedHttpServer::url() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

std::vector<ScriptedRequest> ScriptedHttpServer::requests() const {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

void ScriptedHttpServer::Serve() {
  while (!stopping_) {
    const UniqueFd connection(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) Answer(connection.get());
  }
}

void ScriptedHttpServer::Answer(int connection) {
  std::string head;
  char buffer[4096];
  while (head.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = ::recv(connection, buffer, sizeof(buffer), 0);
    if (got <= 0) return;
    head.append(buffer, static_cast<size_t>(got));
  }
  const ScriptedRequest request = Parse(head);
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(request);
  }
  const ScriptedReply reply = handler_(request);
  std::string answer =
      fmt::format("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
  bool has_length = false;
  for (const auto& [name, value] : reply.headers) {
    answer += fmt::format("{}: {}\r\n", name, value);
    has_length |= name == "Content-Length";
  }
  if (!has_length)
    answer += fmt::format("Content-Length: {}\r\n", reply.body.size());
  answer += "\r\n";
  if (!SendAll(connection, answer)) return;
  SendAll(connection, std::string_view(reply.body).substr(0, reply.cut_after));
  if (reply.hang) ::recv(connection, buffer, 1, 0);
}

}  // namespace tidepool::model
