#pragma once

#include <string>
#include <string_view>

#include "controller/kube/client_config.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/status.h"

namespace tidepool::kube {

// Nothing in it could end the header that carries it.
bool IsBearerToken(std::string_view text);

namespace internal {

// The bearer token, read again as its file changes. Thread-safe.
class TokenSource {
 public:
  explicit TokenSource(const ClientConfig& config)
      : fixed_(config.token), path_(config.token_file) {}

  // "" if there is none. A file is read again when the former reading is older
  // than a minute; if that fails, the former token stands.
  // Errors: kNotFound, kInvalidArgument (the file was never readable).
  StatusOr<std::string> Get(TimePoint now);

  // The server refused `token`: true if another one is to be had now.
  bool Refresh(const std::string& token, TimePoint now);

 private:
  Status Read(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string fixed_, path_;
  Mutex mutex_;
  std::string current_ ABSL_GUARDED_BY(mutex_);
  TimePoint read_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace internal
}  // namespace tidepool::kube
