// Which workers the names given to --discover stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::conductor {

// Deterministic; confined to one thread. A name that cannot be looked up
// changes nothing: only answers do.
class Membership {
 public:
  struct Change {
    std::vector<std::string> added, removed;
  };

  // Addresses of a name beyond `max_members` are left out, the last in order.
  explicit Membership(size_t max_members) : max_members_(max_members) {}

  // The name numbered `source` stands for `addresses`, "host:port". New ones
  // are added at once. One that was absent from kAbsencesMax answers in a row
  // is removed when its session is down, and not before: who still serves has
  // not gone.
  Change OnAnswer(size_t source, std::vector<std::string> addresses,
                  const std::function<bool(std::string_view)>& has_session);

  // `address` was not taken after all: the next answer adds it again.
  void Forget(const std::string& address);

  size_t size() const;

  static constexpr uint32_t kAbsencesMax = 3;

 private:
  bool IsKnown(const std::string& address) const;

  const size_t max_members_;
  // By source: addresses, and how many answers in a row lacked them.
  std::map<size_t, std::map<std::string, uint32_t>> members_;
};

}  // namespace tidepool::conductor
