// A client that says exactly what a test wants, on a real loopback socket.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "dataplane/base/unique_fd.h"

namespace tidepool::conductor {

class RawClient {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  explicit RawClient(uint16_t port, int receive_buffer = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer,
                   sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address),
                           sizeof(address)) == 0;
  }

  bool connected() const { return connected_; }

  bool Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent =
          ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void CloseSending() { ::shutdown(fd_.get(), SHUT_WR); }
  void Close() { fd_.Reset(); }

  // What came up to and with `end`; everything until the end of the stream if
  // `end` does not come.
  std::string ReadUntil(std::string_view end) {
    for (;;) {
      if (const size_t at = received_.find(end); at != received_.npos)
        return Take(at + end.size());
      if (!Receive()) return Take(received_.size());
    }
  }
  std::string ReadToEnd() {
    while (Receive()) {
    }
    return Take(received_.size());
  }
  // One response with a Content-Length: head and body.
  std::string ReadResponse() {
    std::string head = ReadUntil("\r\n\r\n");
    static constexpr std::string_view kLength = "Content-Length: ";
    const size_t at = head.find(kLength);
    if (at == head.npos) return head;
    const auto length =
        static_cast<size_t>(std::atoll(head.c_str() + at + kLength.size()));
    while (received_.size() < length && Receive()) {
    }
    return head + Take(std::min(length, received_.size()));
  }
  // True if the server closes its side before our patience ends.
  bool IsClosed() {
    while (Receive()) {
    }
    return at_end_;
  }

 private:
  std::string Take(size_t count) {
    std::string taken = received_.substr(0, count);
    received_.erase(0, count);
    return taken;
  }

  bool Receive() {
    pollfd state{.fd = fd_.get(), .events = POLLIN};
    const auto patience = std::chrono::milliseconds(kPatience).count();
    if (::poll(&state, 1, static_cast<int>(patience)) <= 0) return false;
    char buffer[16384];
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (count <= 0) {
      at_end_ = true;
      return false;
    }
    received_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  UniqueFd fd_;
  bool connected_ = false;
  bool at_end_ = false;
  std::string received_;
};

}  // namespace tidepool::conductor
