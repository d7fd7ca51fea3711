#include "dataplane/conductor/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/clock.h"
#include "dataplane/conductor/http_test_client.h"

namespace tidepool::conductor {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::string_view kGet = "GET /echo HTTP/1.1\r\nHost: t\r\n\r\n";

std::string Post(std::string_view path, std::string_view body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{}", path,
      body.size(), body);
}

// Echoes at once, or hands the exchange to the test on other paths.
class HttpServerTest : public testing::Test {
 protected:
  struct Held {
    HttpRequest request;
    std::shared_ptr<HttpExchange> exchange;
  };

  void Start(HttpServerOptions options = {}) {
    auto server = HttpServer::Listen(
        options,
        [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
          if (request.path == "/echo")
            return exchange->Respond(
                {.content_type = "text/plain",
                 .body = request.method + " " + request.body});
          if (request.path == "/drop") return;
          exchange->OnAbandoned([this] { abandoned_.Push(); });
          (void)held_.TryPush(Held{std::move(request), std::move(exchange)});
        },
        [](int status, std::string_view message) {
          return HttpResponse{.status = status, .body = std::string(message)};
        });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Start();
  }

  RawClient Connect() { return RawClient(server_->port()); }

  Held TakeHeld() {
    std::optional<Held> held = held_.Pop(RawClient::kPatience);
    EXPECT_TRUE(held.has_value());
    return held ? std::move(*held) : Held{};
  }

  // Runs `use` on the connection's thread and waits for it.
  static void On(const std::shared_ptr<HttpExchange>& exchange,
                 const std::function<void(HttpExchange&)>& use) {
    absl::Notification done;
    exchange->Post([&] {
      use(*exchange);
      done.Notify();
    });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }

  // How often an exchange was abandoned, waited for.
  struct Counter {
    BoundedQueue<int> queue{64};
    void Push() { (void)queue.TryPush(1); }
    bool Wait() { return queue.Pop(RawClient::kPatience).has_value(); }
  };

  Counter abandoned_;
  BoundedQueue<Held> held_{64};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersRequestsOfOneConnectionInTurn) {
  Start();
  RawClient client = Connect();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(Post("/echo", "hello")));
    const std::string response = client.ReadResponse();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(response, HasSubstr("Connection: keep-alive"));
    EXPECT_THAT(response, HasSubstr("\r\n\r\nPOST hello"));
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(Post("/echo", "one") + Post("/hold", "two") +
                          Post("/echo", "three")));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("POST one"));
  const Held held = TakeHeld();
  EXPECT_EQ(held.request.body, "two");
  On(held.exchange,
     [](HttpExchange& exchange) { exchange.Respond({.body = "second"}); });
  EXPECT_THAT(client.ReadResponse(), HasSubstr("second"));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("POST three"));
}

TEST_F(HttpServerTest, ReadsChunkedBodies) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("POST abcde"));
}

TEST_F(HttpServerTest, InvitesABodyThatIsAskedFor) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: "
                  "2\r\nExpect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send("hi"));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("POST hi"));
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("HEAD /echo HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"), HasSubstr("Content-Length: 5"));
  ASSERT_TRUE(client.Send(kGet));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, DecodesThePathAndDropsTheQuery) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /ec%68o?a=b HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("GET "));
  ASSERT_TRUE(client.Send("GET /%zz HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 400"));
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(HttpServerTest, StreamsInChunksAndKeepsTheConnection) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  On(held.exchange, [](HttpExchange& exchange) {
    exchange.StartStream({.content_type = "text/event-stream"}, "", {});
    exchange.Write("first");
    exchange.Write("second one");
    HttpHeaders trailers;
    trailers.Add("X-Late", "news");
    exchange.Finish(trailers);
  });
  EXPECT_THAT(client.ReadUntil("\r\n\r\n"),
              HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"),
            "5\r\nfirst\r\na\r\nsecond one\r\n0\r\nX-Late: news\r\n\r\n");
  ASSERT_TRUE(client.Send(kGet));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, EndsAStreamToAnOldClientByClosing) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.0\r\n\r\n"));
  const Held held = TakeHeld();
  On(held.exchange, [](HttpExchange& exchange) {
    exchange.StartStream({}, "", {});
    exchange.Write("plain");
    exchange.Finish({});
  });
  const std::string answer = client.ReadToEnd();
  EXPECT_THAT(answer, testing::EndsWith("\r\n\r\nplain"));
  EXPECT_THAT(answer, testing::Not(HasSubstr("chunked")));
}

TEST_F(HttpServerTest, SendsHeartbeatsInAPause) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  On(held.exchange, [](HttpExchange& exchange) {
    exchange.StartStream({}, ": pause\n\n", milliseconds(20));
  });
  EXPECT_THAT(client.ReadUntil(": pause\n\n"), HasSubstr(": pause"));
  EXPECT_THAT(client.ReadUntil(": pause\n\n"), HasSubstr(": pause"));
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesWhileItWaits) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  client.Close();
  EXPECT_TRUE(abandoned_.Wait());
  On(held.exchange,
     [](HttpExchange& exchange) { EXPECT_TRUE(exchange.abandoned()); });
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesBehindPipelinedRequests) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  ASSERT_TRUE(client.Send(kGet));
  client.CloseSending();
  EXPECT_TRUE(abandoned_.Wait());
}

TEST_F(HttpServerTest, TellsALateListenerThatTheClientHasLeft) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  client.Close();
  ASSERT_TRUE(abandoned_.Wait());
  bool told = false;
  On(held.exchange, [&](HttpExchange& exchange) {
    exchange.OnAbandoned([&] { told = true; });
    exchange.Respond({.body = "into the void"});
  });
  EXPECT_TRUE(told);
}

TEST_F(HttpServerTest, AnswersForAHandlerThatDropsItsRequest) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /drop HTTP/1.1\r\nHost: t\r\n\r\n"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 500"));
}

TEST_F(HttpServerTest, CutsAReaderThatLetsTheQueueGrow) {
  Start({.write_queue_bytes_max = 64 << 10});
  RawClient client(server_->port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  On(held.exchange, [](HttpExchange& exchange) {
    exchange.StartStream({}, "", {});
    const std::string block(32 << 10, 'x');
    // More than the kernel's buffers and ours hold.
    for (int i = 0; i < 4096 && !exchange.abandoned(); ++i)
      exchange.Write(block);
  });
  EXPECT_TRUE(abandoned_.Wait());
  EXPECT_EQ(server_->stats().slow_readers_cut_total, 1);
}

TEST_F(HttpServerTest, CutsAReaderThatTakesNothingForTooLong) {
  Start(
      {.write_queue_bytes_max = 64 << 20, .write_timeout = milliseconds(100)});
  RawClient client(server_->port(), /*receive_buffer=*/4096);
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  On(held.exchange, [](HttpExchange& exchange) {
    exchange.StartStream({}, "", {});
    exchange.Write(std::string(32 << 20, 'x'));
  });
  EXPECT_TRUE(abandoned_.Wait());
}

TEST_F(HttpServerTest, RefusesOversizedBodies) {
  Start({.body_bytes_max = 1000});
  RawClient client = Connect();
  ASSERT_TRUE(client.Send(Post("/echo", std::string(1001, 'x'))));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 413"));
  EXPECT_TRUE(client.IsClosed());

  RawClient chunked = Connect();
  ASSERT_TRUE(
      chunked.Send("POST /echo HTTP/1.1\r\nHost: t\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n"));
  (void)chunked.Send("fff\r\n" + std::string(0xfff, 'x') + "\r\n0\r\n\r\n");
  EXPECT_THAT(chunked.ReadResponse(), StartsWith("HTTP/1.1 413"));

  // A length that no memory has, and one that is no number.
  for (const char* length :
       {"18446744073709551615", "-1", "99999999999999999999", "1x"}) {
    RawClient huge = Connect();
    ASSERT_TRUE(huge.Send(fmt::format(
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        length)));
    EXPECT_THAT(huge.ReadResponse(), StartsWith("HTTP/1.1 4")) << length;
  }
}

TEST_F(HttpServerTest, RefusesBodiesBeyondTheMemoryForAll) {
  Start({.body_bytes_max = 1000, .total_body_bytes_max = 1500});
  RawClient first = Connect();
  ASSERT_TRUE(first.Send(Post("/hold", std::string(1000, 'x'))));
  Held held = TakeHeld();
  RawClient second = Connect();
  ASSERT_TRUE(second.Send(Post("/echo", std::string(1000, 'x'))));
  EXPECT_THAT(second.ReadResponse(), StartsWith("HTTP/1.1 503"));
  held.request = {};  // gives its share back
  RawClient third = Connect();
  ASSERT_TRUE(third.Send(Post("/echo", std::string(1000, 'x'))));
  EXPECT_THAT(third.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, WhatIsAnnouncedTakesNoMemoryFromOthers) {
  Start({.body_bytes_max = 1000, .total_body_bytes_max = 1500});
  RawClient slow[] = {Connect(), Connect(), Connect()};
  for (RawClient& client : slow) {
    ASSERT_TRUE(
        client.Send("POST /echo HTTP/1.1\r\nHost: t\r\n"
                    "Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n"));
    EXPECT_THAT(client.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 100"));
  }
  RawClient quick = Connect();
  ASSERT_TRUE(quick.Send(Post("/echo", std::string(1000, 'x'))));
  EXPECT_THAT(quick.ReadResponse(), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, RefusesOversizedHeaders) {
  Start({.header_bytes_max = 2000});
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /echo HTTP/1.1\r\nHost: t\r\nX: " +
                          std::string(4000, 'x') + "\r\n\r\n"));
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 431"));
  EXPECT_TRUE(client.IsClosed());
}

TEST_F(HttpServerTest, RefusesWhatIsNotHttp) {
  Start();
  for (const std::string& text : {
           std::string("hello there\r\n\r\n"),
           std::string("GET / HTTP/9.9\r\n\r\n"),
           std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
           std::string("GET /echo HTTP/1.1\r\nno colon\r\n\r\n"),
           std::string("GET /a b HTTP/1.1\r\n\r\n"),
           std::string("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
           std::string("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n"
                       "Content-Length: 4\r\n\r\nabcd"),
       }) {
    RawClient client = Connect();
    ASSERT_TRUE(client.Send(text));
    client.CloseSending();
    EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 400")) << text;
    EXPECT_TRUE(client.IsClosed());
  }
}

TEST_F(HttpServerTest, RefusesATruncatedBody) {
  Start();
  RawClient client = Connect();
  ASSERT_TRUE(
      client.Send("POST /echo HTTP/1.1\r\nHost: t\r\n"
                  "Content-Length: 10\r\n\r\nhalf"));
  client.CloseSending();
  EXPECT_THAT(client.ReadResponse(), StartsWith("HTTP/1.1 400"));
}

// One timeout is short at a time: on a busy machine this test is slow, too.
TEST_F(HttpServerTest, TimesOutSlowClients) {
  Start({.idle_timeout = milliseconds(50)});
  RawClient idle = Connect();
  EXPECT_EQ(idle.ReadToEnd(), "");

  Start({.header_timeout = milliseconds(50)});
  RawClient header = Connect();
  ASSERT_TRUE(header.Send("GET /echo HT"));
  EXPECT_THAT(header.ReadResponse(), StartsWith("HTTP/1.1 408"));
  EXPECT_TRUE(header.IsClosed());

  Start({.body_timeout = milliseconds(50)});
  RawClient body = Connect();
  ASSERT_TRUE(
      body.Send("POST /echo HTTP/1.1\r\nHost: t\r\n"
                "Content-Length: 10\r\n\r\nhalf"));
  EXPECT_THAT(body.ReadResponse(), StartsWith("HTTP/1.1 408"));
  EXPECT_TRUE(body.IsClosed());
}

TEST_F(HttpServerTest, RefusesConnectionsBeyondTheLimit) {
  Start({.connections_max = 1});
  RawClient first = Connect();
  ASSERT_TRUE(first.Send(kGet));
  EXPECT_THAT(first.ReadResponse(), StartsWith("HTTP/1.1 200"));
  RawClient second = Connect();
  ASSERT_TRUE(second.Send(kGet));
  EXPECT_THAT(second.ReadToEnd(), StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(server_->stats().connections_refused_total, 1);
}

TEST_F(HttpServerTest, BeyondTheLimitProbesAreAnsweredAsFarAsThereIsRoom) {
  Start({.connections_max = 1, .probe_paths = {"/echo"}});
  RawClient first = Connect();
  ASSERT_TRUE(first.Send(kGet));
  EXPECT_THAT(first.ReadResponse(), StartsWith("HTTP/1.1 200"));
  const std::string probe = "GET /echo?x HTTP/1.1\r\nHost: t\r\n\r\n";
  for (int64_t i = 0; i <= HttpServerOptions::kProbeConnections; ++i) {
    RawClient second = Connect();
    ASSERT_TRUE(second.Send(probe + probe));
    EXPECT_THAT(second.ReadToEnd(), AllOf(StartsWith("HTTP/1.1 200"),
                                          HasSubstr("Connection: close")));
  }
  EXPECT_EQ(server_->stats().connections_refused_total, 0);
  const auto patience_ends = Clock::Monotonic().Now() + RawClient::kPatience;
  while (server_->stats().connections > 1) {
    ASSERT_LT(Clock::Monotonic().Now(), patience_ends);
    std::this_thread::yield();
  }
  std::vector<RawClient> silent;
  for (int64_t i = 0; i < HttpServerOptions::kProbeConnections; ++i)
    silent.push_back(Connect());
  RawClient last = Connect();
  EXPECT_THAT(last.ReadToEnd(), StartsWith("HTTP/1.1 503"));
  EXPECT_EQ(server_->stats().connections_refused_total, 1);
}

TEST_F(HttpServerTest, DrainLetsRunningAnswersEnd) {
  Start();
  RawClient idle = Connect();
  ASSERT_TRUE(idle.Send(kGet));
  (void)idle.ReadResponse();
  RawClient busy = Connect();
  ASSERT_TRUE(busy.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  Held held = TakeHeld();

  EXPECT_FALSE(server_->Drain(milliseconds(1)));  // the answer still runs
  EXPECT_TRUE(idle.IsClosed());
  On(held.exchange,
     [](HttpExchange& exchange) { exchange.Respond({.body = "bye"}); });
  held.exchange.reset();
  const std::string answer = busy.ReadResponse();
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
  EXPECT_THAT(answer, HasSubstr("bye"));
  EXPECT_TRUE(busy.IsClosed());
  busy.Close();
  EXPECT_TRUE(server_->Drain(RawClient::kPatience));
}

TEST_F(HttpServerTest, StopAbandonsWhatRuns) {
  Start({.threads = 2});
  RawClient client = Connect();
  ASSERT_TRUE(client.Send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n"));
  const Held held = TakeHeld();
  server_.reset();
  EXPECT_TRUE(abandoned_.Wait());
  held.exchange->Post([] { FAIL() << "the thread is gone"; });
}

TEST(HttpServerListenTest, NamesHostAndPortInUse) {
  const auto handler = [](HttpRequest, std::shared_ptr<HttpExchange>) {};
  const auto page = [](int, std::string_view) { return HttpResponse{}; };
  const auto first = HttpServer::Listen({}, handler, page);
  ASSERT_TRUE(first.ok());
  const auto second =
      HttpServer::Listen({.port = (*first)->port()}, handler, page);
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(std::to_string((*first)->port())));
  EXPECT_EQ(HttpServer::Listen({.host = "no such host"}, handler, page)
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST(HttpServerListenTest, WhoComesByIpv4HasSuchAnAddress) {
  const auto server = *HttpServer::Listen(
      {.host = "::"},
      [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
        exchange->Respond({.body = request.peer});
      },
      [](int, std::string_view) { return HttpResponse{}; });
  server->Start();
  RawClient client(server->port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_THAT(client.ReadResponse(), HasSubstr("\r\n\r\n127.0.0.1:"));
}

}  // namespace
}  // namespace tidepool::conductor
