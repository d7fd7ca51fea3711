// Models from the Hugging Face hub, or a mirror that speaks its protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/model/hub_api.h"
#include "dataplane/model/retry.h"

namespace tidepool::model {

// `bytes` of `size` bytes of all files known so far are here, `file_bytes` of
// `file_size` of the file now on its way.
struct DownloadProgress {
  std::string file;
  uint64_t file_bytes = 0, file_size = 0;
  uint64_t bytes = 0, size = 0;
};

struct HubOptions {
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT
  std::string token;                                // HF_TOKEN
  std::string cache_folder;
  // Without them a folder is made for `--load-format dummy`.
  bool weights = true;
  uint64_t bytes_max = uint64_t{4} << 40;
  Duration timeout = std::chrono::hours(24);
  Duration connect_timeout = std::chrono::seconds(15);
  Duration stall_timeout = std::chrono::seconds(60);
  RetryPolicy retry;
  std::stop_token stop;
  // Called by the downloading thread, at most five times a second and at the
  // end of each file.
  std::function<void(const DownloadProgress&)> progress;
  const Clock* clock = &Clock::Monotonic();
  WaitFunction wait = WaitFor;
};

// Endpoint, token and cache folder from HF_ENDPOINT, HF_TOKEN, and
// TIDEPOOL_CACHE, XDG_CACHE_HOME or HOME.
HubOptions HubOptionsFromEnvironment();

// Makes the model's configuration, tokenizer and weights available in a local
// folder and returns its path. What is there already is not asked for again;
// an interrupted download goes on where it stopped, also in another process;
// two processes that want the same model download it once.
//
// Nothing is loaded unchecked: the revision is resolved to a commit, every
// file is compared with the hash that the hub lists for it before it gets its
// name. If the hub cannot be reached, an earlier download of the same revision
// is used. The token goes only to the endpoint itself, never to where it
// redirects, and over plain HTTP only to this machine.
//
// Blocks. Thread-safe.
// Errors: kInvalidArgument (endpoint, token), kPermissionDenied (private or
// gated), kNotFound, kResourceExhausted (disk, size limit), kDataLoss (bytes
// that do not match twice), kUnavailable, kDeadlineExceeded, kCancelled.
StatusOr<std::string> DownloadModel(const HubModel& model,
                                    const HubOptions& options);

}  // namespace tidepool::model
