#include "dataplane/base/http_endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <vector>

#include "dataplane/base/socket_address.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpEndpointsTest : public ::testing::Test {
 protected:
  UniqueFd Connect() const {
    const auto address = *ResolveAddress("127.0.0.1", server_->port());
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(fd.get(), address.raw(), address.length), 0);
    return fd;
  }

  // All that is said to `request`.
  std::string Ask(const std::string& request) const {
    const UniqueFd fd = Connect();
    (void)!send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    char buffer[4096];
    for (ssize_t got; (got = recv(fd.get(), buffer, sizeof(buffer), 0)) > 0;)
      answer.append(buffer, static_cast<size_t>(got));
    return answer;
  }
  std::string Get(const std::string& target) const {
    return Ask("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }

  const std::unique_ptr<HttpEndpoints> server_ =
      *HttpEndpoints::Start("127.0.0.1", 0, [](std::string_view path) {
        if (path == "/long")
          return HttpAnswer{.body = std::string(1 << 20, 'x')};
        if (path == "/busy") return HttpAnswer{.status = 503, .body = "busy\n"};
        return HttpAnswer{.content_type = "text/x", .body = std::string(path)};
      });
};

TEST_F(HttpEndpointsTest, AnswersWhatItsHandlerSays) {
  EXPECT_THAT(Get("/a?b=c"), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"),
                                   HasSubstr("Content-Type: text/x\r\n"),
                                   HasSubstr("Content-Length: 2\r\n"),
                                   EndsWith("\r\n\r\n/a")));
  EXPECT_THAT(Get("/busy"), AllOf(HasSubstr("503"), EndsWith("busy\n")));
  EXPECT_THAT(Get("/long"), EndsWith("\r\n\r\n" + std::string(1 << 20, 'x')));
}

TEST_F(HttpEndpointsTest, AHeadHasNoBodyAndOthersAreRefused) {
  EXPECT_THAT(Ask("HEAD /a HTTP/1.0\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 2\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(Ask("POST /a HTTP/1.1\r\n\r\n"),
              AllOf(HasSubstr("405"), Not(HasSubstr("/a"))));
  EXPECT_EQ(Ask(std::string(20'000, 'x')), "");
}

TEST_F(HttpEndpointsTest, WhoSaysNothingKeepsNobodyWaiting) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(Connect());
  EXPECT_THAT(Get("/a"), HasSubstr("200 OK"));
  // They were not closed for it: there was no wait until they were.
  for (const UniqueFd& fd : silent) {
    char byte;
    EXPECT_EQ(recv(fd.get(), &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
}

TEST_F(HttpEndpointsTest, BeyondItsConnectionsTheOldestGoes) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect());
  EXPECT_THAT(Get("/a"), HasSubstr("200 OK"));
  char byte;
  EXPECT_EQ(recv(silent.front().get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(recv(silent.back().get(), &byte, 1, MSG_DONTWAIT), -1);
}

TEST_F(HttpEndpointsTest, APortThatIsTakenIsSaid) {
  EXPECT_EQ(HttpEndpoints::Start("127.0.0.1", server_->port(), nullptr)
                .status()
                .code(),
            Code::kAlreadyExists);
}

}  // namespace
}  // namespace tidepool
