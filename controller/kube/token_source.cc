#include "controller/kube/token_source.h"

#include <algorithm>

#include "controller/kube/small_file.h"
#include "dataplane/base/log.h"

namespace tidepool::kube {
namespace {

constexpr Duration kReadInterval = std::chrono::minutes(1);
constexpr size_t kTokenBytesMax = 64 << 10;

}  // namespace

bool IsBearerToken(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; });
}

namespace internal {

Status TokenSource::Read(TimePoint now) {
  ASSIGN_OR_RETURN(std::string text, ReadSmallFile(path_, kTokenBytesMax));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
    text.pop_back();
  if (!IsBearerToken(text))
    return InvalidArgument("token file `{}`: no bearer token", path_);
  if (text.empty()) return InvalidArgument("token file `{}`: empty", path_);
  current_ = std::move(text);
  read_at_ = now;
  return OkStatus();
}

StatusOr<std::string> TokenSource::Get(TimePoint now) {
  if (path_.empty()) return fixed_;
  const MutexLock lock(&mutex_);
  if (!current_.empty() && now - read_at_ < kReadInterval) return current_;
  const Status read = Read(now);
  if (!read.ok()) {
    if (current_.empty()) return read;
    LOG_WARNING("the former token is used on: {}", MessageOf(read));
    read_at_ = now;
  }
  return current_;
}

bool TokenSource::Refresh(const std::string& token, TimePoint now) {
  if (path_.empty()) return false;
  const MutexLock lock(&mutex_);
  if (current_ != token) return true;  // another call has read it already
  return Read(now).ok() && current_ != token;
}

}  // namespace internal
}  // namespace tidepool::kube
