#include "controller/kube/writes.h"

#include <charconv>
#include <chrono>
#include <cmath>

namespace tidepool::kube {
namespace {

using std::chrono::sys_days;
using std::chrono::year_month_day;

constexpr int64_t kMicrosPerSecond = 1'000'000;

struct Civil {
  int year, month, day;
  int64_t hour, minute, second, micros;
};

Civil ToCivil(double unix_seconds) {
  const auto micros =
      static_cast<int64_t>(std::llround(unix_seconds * kMicrosPerSecond));
  const std::chrono::sys_time<std::chrono::microseconds> time{
      std::chrono::microseconds(micros)};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return {static_cast<int>(date.year()),
          static_cast<int>(static_cast<unsigned>(date.month())),
          static_cast<int>(static_cast<unsigned>(date.day())),
          clock.hours().count(),
          clock.minutes().count(),
          clock.seconds().count(),
          clock.subseconds().count()};
}

// Takes `digits` digits and then `separator` (0: none) off the front.
bool TakeNumber(std::string_view& text, size_t digits, char separator,
                int& value) {
  const size_t length = digits + (separator != 0 ? 1 : 0);
  if (text.size() < length) return false;
  const char* end = text.data() + digits;
  if (std::from_chars(text.data(), end, value).ptr != end || text[0] == '-')
    return false;
  if (separator != 0 && text[digits] != separator) return false;
  text.remove_prefix(length);
  return true;
}

}  // namespace

Json Skeleton(const ResourceType& type, const ObjectKey& key) {
  Json object = {{"apiVersion", type.ApiVersion()},
                 {"kind", type.kind},
                 {"metadata", {{"name", key.name}}}};
  if (type.namespaced) object["metadata"]["namespace"] = key.space;
  return object;
}

Json OwnerReference(const ResourceType& type, std::string_view name,
                    std::string_view uid) {
  return {{"apiVersion", type.ApiVersion()},
          {"kind", type.kind},
          {"name", name},
          {"uid", uid},
          {"controller", true},
          {"blockOwnerDeletion", true}};
}

StatusOr<Json> ApplyStatus(Client& client, const ResourceType& type,
                           const ObjectKey& key, const Json& status,
                           std::optional<std::string> resource_version) {
  Json object = Skeleton(type, key);
  object["status"] = status;
  if (resource_version)
    object["metadata"]["resourceVersion"] = *std::move(resource_version);
  return client.Apply(type, key, object, "status");
}

Status Scale(Client& client, const ResourceType& type, const ObjectKey& key,
             int64_t replicas) {
  return client
      .Patch(type, key, PatchType::kMerge, {{"spec", {{"replicas", replicas}}}},
             "scale")
      .status();
}

std::string FormatTime(double unix_seconds) {
  const Civil c = ToCivil(std::floor(unix_seconds));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", c.year, c.month,
                     c.day, c.hour, c.minute, c.second);
}

std::string FormatMicroTime(double unix_seconds) {
  const Civil c = ToCivil(unix_seconds);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", c.year,
                     c.month, c.day, c.hour, c.minute, c.second, c.micros);
}

StatusOr<double> ParseTime(std::string_view text) {
  const Status bad = InvalidArgument("`{}` is no time", text.substr(0, 64));
  std::string_view rest = text;
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  if (!TakeNumber(rest, 4, '-', year) || !TakeNumber(rest, 2, '-', month) ||
      !TakeNumber(rest, 2, 'T', day) || !TakeNumber(rest, 2, ':', hour) ||
      !TakeNumber(rest, 2, ':', minute) || !TakeNumber(rest, 2, 0, second))
    return bad;
  double fraction = 0;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    double weight = 0.1;
    for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9';
         rest.remove_prefix(1), weight /= 10)
      fraction += weight * (rest.front() - '0');
  }
  const year_month_day date{std::chrono::year(year),
                            std::chrono::month(static_cast<unsigned>(month)),
                            std::chrono::day(static_cast<unsigned>(day))};
  if (rest != "Z" || !date.ok() || hour > 23 || minute > 59 || second > 60)
    return bad;
  const auto days = sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + hour * 3600 + minute * 60 +
         second + fraction;
}

}  // namespace tidepool::kube
