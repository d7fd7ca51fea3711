#include "dataplane/conductor/dns_watcher.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "dataplane/base/log.h"
#include "dataplane/base/unique_fd.h"

namespace tidepool::conductor {
namespace {

// Longest wait for sockets: c-ares is then asked what has timed out.
constexpr int kPollMs = 200;

std::string AddressOf(const ares_addrinfo_node& node, uint16_t port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (node.ai_family == AF_INET) {
    const auto* address = reinterpret_cast<const sockaddr_in*>(node.ai_addr);
    inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    return fmt::format("{}:{}", text.data(), port);
  }
  const auto* address = reinterpret_cast<const sockaddr_in6*>(node.ai_addr);
  inet_ntop(AF_INET6, &address->sin6_addr, text.data(), text.size());
  return fmt::format("[{}]:{}", text.data(), port);
}

class AresWatcher final : public DnsWatcher {
 public:
  AresWatcher(std::vector<DnsName> names, const DnsWatcherOptions& options,
              OnAnswer on_answer)
      : options_(options),
        on_answer_(std::move(on_answer)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (DnsName& name : names)
      lookups_.push_back(
          {.watcher = this, .index = lookups_.size(), .name = std::move(name)});
  }

  Status Begin() {
    if (!wake_) return ErrnoError(errno, "eventfd");
    if (const int error = ares_library_init(ARES_LIB_INIT_ALL); error != 0)
      return Unavailable("--discover: {}", ares_strerror(error));
    initialized_ = true;
    RETURN_IF_ERROR(OpenChannel());
    thread_ = std::thread([this] { Run(); });
    return OkStatus();
  }

  ~AresWatcher() override {
    stop_ = true;
    const uint64_t one = 1;
    if (wake_) (void)!write(wake_.get(), &one, sizeof(one));
    if (thread_.joinable()) thread_.join();
    CloseChannel();
    if (initialized_) ares_library_cleanup();
  }

  uint64_t failures_total() const override { return failures_; }

 private:
  struct Lookup {
    AresWatcher* watcher = nullptr;
    size_t index = 0;
    DnsName name;
    std::string found_as;  // with its search domain; "" until it was found
    bool under_way = false;
    bool failed = false;                    // the last one
    std::optional<TimePoint> absent_since;  // in all lookups from then on
  };

  Status OpenChannel() {
    ares_options options{};
    options.timeout = static_cast<int>(
        std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout)
            .count());
    options.tries = options_.tries;
    int given = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES;
    std::vector<char*> domains;  // copied, and not written to
    for (const std::string& domain : options_.search_domains)
      domains.push_back(const_cast<char*>(domain.c_str()));
    if (!domains.empty()) {
      options.domains = domains.data();
      options.ndomains = static_cast<int>(domains.size());
      given |= ARES_OPT_DOMAINS;
    }
    const int error = ares_init_options(&channel_, &options, given);
    if (error != ARES_SUCCESS) {
      channel_ = nullptr;
      return Unavailable("--discover: {}", ares_strerror(error));
    }
    if (!options_.servers.empty() &&
        ares_set_servers_ports_csv(channel_, options_.servers.c_str()) !=
            ARES_SUCCESS)
      return InvalidArgument("servers: `{}` cannot be understood",
                             options_.servers);
    return OkStatus();
  }
  // Ends lookups under way.
  void CloseChannel() {
    if (channel_ != nullptr) ares_destroy(std::exchange(channel_, nullptr));
  }

  void Run() {
    TimePoint next{};
    while (!stop_) {
      const TimePoint now = Clock::Monotonic().Now();
      if (now >= next) {
        next = now + options_.interval;
        BeginRound();
      }
      Wait(next - now);
    }
  }

  void BeginRound() {
    // What the system says of its servers may have changed. Nothing begins
    // until what is under way has ended: lookups that take turns would keep the
    // old servers forever.
    if (reopen_) {
      if (std::ranges::any_of(lookups_, &Lookup::under_way)) return;
      reopen_ = false;
      CloseChannel();
    }
    if (channel_ == nullptr && !OpenChannel().ok()) {
      for (Lookup& lookup : lookups_) Failed(lookup, "no resolver");
      return;
    }
    for (Lookup& lookup : lookups_) {
      if (lookup.under_way) continue;
      lookup.under_way = true;
      ares_addrinfo_hints hints{};
      hints.ai_family = AF_UNSPEC;
      hints.ai_flags = ARES_AI_NOSORT;
      hints.ai_socktype = SOCK_STREAM;
      const std::string& name =
          lookup.found_as.empty() ? lookup.name.host : lookup.found_as;
      ares_getaddrinfo(
          channel_, name.c_str(), nullptr, &hints,
          [](void* argument, int status, int, ares_addrinfo* result) {
            auto* const ended = static_cast<Lookup*>(argument);
            ended->watcher->OnEnd(*ended, status, result);
          },
          &lookup);
    }
  }

  void Wait(Duration longest) {
    std::array<ares_socket_t, ARES_GETSOCK_MAXNUM> sockets;
    const int events =
        channel_ == nullptr
            ? 0
            : ares_getsock(channel_, sockets.data(), ARES_GETSOCK_MAXNUM);
    std::array<pollfd, ARES_GETSOCK_MAXNUM + 1> fds;
    nfds_t count = 0;
    fds[count++] = {.fd = wake_.get(), .events = POLLIN};
    for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
      short wanted = 0;
      if (ARES_GETSOCK_READABLE(events, i)) wanted |= POLLIN;
      if (ARES_GETSOCK_WRITABLE(events, i)) wanted |= POLLOUT;
      if (wanted != 0)
        fds[count++] = {.fd = sockets[static_cast<size_t>(i)],
                        .events = wanted};
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(longest).count();
    const auto timeout = std::clamp<int64_t>(left, 0, kPollMs);
    (void)poll(fds.data(), count, static_cast<int>(timeout));
    if (channel_ == nullptr) return;
    for (nfds_t i = 1; i < count; ++i) {
      const bool readable = (fds[i].revents & ~POLLOUT) != 0;
      const bool writable = (fds[i].revents & POLLOUT) != 0;
      if (readable || writable)
        ares_process_fd(channel_, readable ? fds[i].fd : ARES_SOCKET_BAD,
                        writable ? fds[i].fd : ARES_SOCKET_BAD);
    }
    // What has timed out.
    ares_process_fd(channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
  }

  void OnEnd(Lookup& lookup, int status, ares_addrinfo* result) {
    lookup.under_way = false;
    if (status == ARES_SUCCESS && result->nodes != nullptr)
      Found(lookup, *result);
    else if (status == ARES_SUCCESS || status == ARES_ENODATA ||
             status == ARES_ENOTFOUND)
      Absent(lookup);
    else if (status != ARES_EDESTRUCTION && status != ARES_ECANCELLED)
      Failed(lookup, ares_strerror(status));
    if (result != nullptr) ares_freeaddrinfo(result);
  }

  void Found(Lookup& lookup, const ares_addrinfo& result) {
    // That the name is gone must not be confused with what servers without
    // sources of their own say of it in the other domains.
    const std::string_view name = result.name == nullptr ? "" : result.name;
    if (name.starts_with(lookup.name.host + "."))
      lookup.found_as = fmt::format("{}.", name);
    std::vector<std::string> addresses;
    for (const ares_addrinfo_node* node = result.nodes; node != nullptr;
         node = node->ai_next)
      if (node->ai_family == AF_INET || node->ai_family == AF_INET6)
        addresses.push_back(AddressOf(*node, lookup.name.port));
    const bool was_absent = lookup.absent_since.has_value();
    lookup.absent_since.reset();
    if (std::exchange(lookup.failed, false) || was_absent)
      LOG_INFO("discovery: {} is found again", lookup.name.host);
    on_answer_(lookup.index, std::move(addresses));
  }

  void Absent(Lookup& lookup) {
    const TimePoint now = Clock::Monotonic().Now();
    lookup.failed = false;
    if (!lookup.absent_since) {
      lookup.absent_since = now;
      LOG_INFO("discovery: {} has no address", lookup.name.host);
    }
    if (now - *lookup.absent_since >= options_.absence_min)
      on_answer_(lookup.index, {});
  }

  void Failed(Lookup& lookup, std::string_view why) {
    ++failures_;
    reopen_ = true;
    lookup.absent_since.reset();
    if (!std::exchange(lookup.failed, true))
      LOG_WARNING("discovery: {}: {}; its workers stay as they are",
                  lookup.name.host, why);
  }

  const DnsWatcherOptions options_;
  const OnAnswer on_answer_;
  const UniqueFd wake_;
  std::vector<Lookup> lookups_;
  bool initialized_ = false;
  ares_channel channel_ = nullptr;
  bool reopen_ = false;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> failures_ = 0;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<DnsWatcher>> DnsWatcher::Start(
    std::vector<DnsName> names, const DnsWatcherOptions& options,
    OnAnswer on_answer) {
  auto watcher = std::make_unique<AresWatcher>(std::move(names), options,
                                               std::move(on_answer));
  RETURN_IF_ERROR(watcher->Begin());
  return std::unique_ptr<DnsWatcher>(std::move(watcher));
}

}  // namespace tidepool::conductor
