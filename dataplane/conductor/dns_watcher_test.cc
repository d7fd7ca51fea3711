#include "dataplane/conductor/dns_watcher.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::conductor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A name server on loopback for the domain `test`, in which there is one name,
// `workers.test`. It answers A questions with its addresses, AAAA ones with
// none, and refuses questions about other domains.
class FakeNameServer {
 public:
  enum class Mode { kAnswer, kNoSuchName, kFailing, kSilent };

  FakeNameServer() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(
        bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    socklen_t size = sizeof(address);
    getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeNameServer() {
    stop_ = true;
    thread_.join();
  }

  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  void Set(Mode mode, std::vector<std::string> addresses = {}) {
    const MutexLock lock(&mutex_);
    mode_ = mode;
    addresses_ = std::move(addresses);
  }
  uint64_t questions() const { return questions_; }

 private:
  void Serve() {
    while (!stop_) {
      pollfd readable{.fd = fd_.get(), .events = POLLIN};
      if (poll(&readable, 1, 20) <= 0) continue;
      std::array<char, 512> question;
      sockaddr_in from{};
      socklen_t size = sizeof(from);
      const ssize_t got =
          recvfrom(fd_.get(), question.data(), question.size(), 0,
                   reinterpret_cast<sockaddr*>(&from), &size);
      if (got < 17) continue;
      const std::string answer =
          Answer({question.data(), static_cast<size_t>(got)});
      if (!answer.empty())
        sendto(fd_.get(), answer.data(), answer.size(), 0,
               reinterpret_cast<sockaddr*>(&from), size);
    }
  }

  std::string Answer(std::string_view question) {
    constexpr std::string_view kName("\7workers\4test\0", 14);
    constexpr std::string_view kDomain("\4test\0", 6);
    const MutexLock lock(&mutex_);
    ++questions_;
    if (mode_ == Mode::kSilent) return "";
    const size_t end = question.find('\0', 12) + 5;  // of type and class
    const std::string_view name = question.substr(12, end - 16);
    const bool wants_a = question[end - 3] == 1;
    const bool known = mode_ == Mode::kAnswer && name == kName;
    const char code = known                      ? 0
                      : !name.ends_with(kDomain) ? 5
                      : mode_ == Mode::kFailing  ? 2
                                                 : 3;
    const auto count = static_cast<char>(
        known && wants_a ? static_cast<int>(addresses_.size()) : 0);
    std::string answer(question.substr(0, 2));
    answer += "\x81";
    answer += static_cast<char>('\x80' | code);
    answer += std::string{0, 1, 0, count, 0, 0, 0, 0};
    answer += question.substr(12, end - 12);
    for (char i = 0; i < count; ++i) {
      in_addr address{};
      inet_pton(AF_INET, addresses_[static_cast<size_t>(i)].c_str(), &address);
      answer += std::string{'\xc0', 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4};
      answer.append(reinterpret_cast<const char*>(&address), 4);
    }
    return answer;
  }

  const UniqueFd fd_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> questions_ = 0;
  Mutex mutex_;
  Mode mode_ ABSL_GUARDED_BY(mutex_) = Mode::kAnswer;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

class DnsWatcherTest : public ::testing::Test {
 protected:
  void Start(const std::string& host = "workers.test.",
             Duration absence_min = Duration(0)) {
    auto watcher = DnsWatcher::Start(
        {{.host = host, .port = 7000}},
        {.interval = milliseconds(20),
         .timeout = timeout_,
         .tries = 1,
         .absence_min = absence_min,
         .servers = server_.address(),
         .search_domains = {"elsewhere.test", "test"}},
        [this](size_t name, std::vector<std::string> addresses) {
          EXPECT_EQ(name, 0u);
          (void)answers_.TryPush(std::move(addresses));
        });
    ASSERT_TRUE(watcher.ok()) << watcher.status();
    watcher_ = *std::move(watcher);
  }
  // The next answer asked for after this call.
  std::vector<std::string> Next() {
    (void)answers_.TakeAll();
    (void)answers_.Pop(seconds(30));
    std::optional<std::vector<std::string>> answer = answers_.Pop(seconds(30));
    EXPECT_TRUE(answer.has_value());
    return answer.value_or(std::vector<std::string>());
  }
  void AwaitFailure() {
    const uint64_t before = watcher_->failures_total();
    const TimePoint end = Clock::Monotonic().Now() + seconds(30);
    while (watcher_->failures_total() == before &&
           Clock::Monotonic().Now() < end)
      std::this_thread::yield();
    EXPECT_GT(watcher_->failures_total(), before);
  }
  // Lookups that begin after this call have ended.
  void AwaitRounds() {
    constexpr uint64_t kQuestions = 12;  // two are of one lookup
    const uint64_t before = server_.questions();
    const TimePoint end = Clock::Monotonic().Now() + seconds(30);
    while (server_.questions() < before + kQuestions &&
           Clock::Monotonic().Now() < end)
      std::this_thread::yield();
    EXPECT_GE(server_.questions(), before + kQuestions);
  }

  FakeNameServer server_;
  Duration timeout_ = seconds(30);
  BoundedQueue<std::vector<std::string>> answers_{16};
  std::unique_ptr<DnsWatcher> watcher_;
};

TEST_F(DnsWatcherTest, TellsAllAddressesAgainAndAgain) {
  server_.Set(FakeNameServer::Mode::kAnswer, {"10.0.0.1", "10.0.0.2"});
  Start();
  EXPECT_THAT(Next(), UnorderedElementsAre("10.0.0.1:7000", "10.0.0.2:7000"));
  server_.Set(FakeNameServer::Mode::kAnswer, {"10.0.0.3"});
  EXPECT_THAT(Next(), UnorderedElementsAre("10.0.0.3:7000"));
  server_.Set(FakeNameServer::Mode::kAnswer, {});  // a name without addresses
  EXPECT_THAT(Next(), IsEmpty());
}

TEST_F(DnsWatcherTest, AFailedLookupTellsNothingAndItGoesOn) {
  timeout_ = milliseconds(100);
  server_.Set(FakeNameServer::Mode::kFailing);
  Start();
  AwaitFailure();
  server_.Set(FakeNameServer::Mode::kSilent);
  AwaitFailure();
  EXPECT_TRUE(answers_.TakeAll().empty());
  server_.Set(FakeNameServer::Mode::kAnswer, {"10.0.0.1"});
  EXPECT_THAT(Next(), UnorderedElementsAre("10.0.0.1:7000"));
}

TEST_F(DnsWatcherTest, ANameThatGoesIsToldToHaveNoAddress) {
  server_.Set(FakeNameServer::Mode::kAnswer, {"10.0.0.1"});
  Start("workers");
  EXPECT_THAT(Next(), UnorderedElementsAre("10.0.0.1:7000"));
  // Although the server refuses to say anything of `workers.`.
  server_.Set(FakeNameServer::Mode::kNoSuchName);
  EXPECT_THAT(Next(), IsEmpty());
  server_.Set(FakeNameServer::Mode::kAnswer, {"10.0.0.2"});
  EXPECT_THAT(Next(), UnorderedElementsAre("10.0.0.2:7000"));
}

TEST_F(DnsWatcherTest, AnAbsenceIsBelievedWhenItLasts) {
  server_.Set(FakeNameServer::Mode::kNoSuchName);
  Start("workers.test.", std::chrono::hours(1));
  AwaitRounds();
  server_.Set(FakeNameServer::Mode::kAnswer, {});
  AwaitRounds();
  EXPECT_TRUE(answers_.TakeAll().empty());
  EXPECT_EQ(watcher_->failures_total(), 0u);
}

TEST_F(DnsWatcherTest, AnAddressStandsForItself) {
  Start("10.9.8.7");
  EXPECT_THAT(Next(), UnorderedElementsAre("10.9.8.7:7000"));
}

TEST_F(DnsWatcherTest, ItsEndDoesNotWaitForAnswers) {
  server_.Set(FakeNameServer::Mode::kSilent);
  Start();
  watcher_.reset();
}

}  // namespace
}  // namespace tidepool::conductor
