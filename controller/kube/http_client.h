// kube::Client over HTTPS.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "controller/kube/client.h"
#include "controller/kube/client_config.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::kube {

struct HttpClientOptions {
  // For one call, with all its retries; for one page of a list.
  Duration deadline = std::chrono::seconds(10);
  Duration connect_timeout = std::chrono::seconds(5);
  // A 429 is tried again after its Retry-After (one second if it names none),
  // at most this often and within the deadline.
  int throttled_retries_max = 3;
  // Of one object as the server sends it; longer ones end the call with
  // kResourceExhausted.
  size_t object_bytes_max = 8 << 20;
  size_t idle_connections_max = 4;
  // Told of the end of every call (a list tells one per page).
  std::function<void(const CallRecord&)> on_call;
};

// Connections are kept and used again, one call at a time each. Objects of a
// list are parsed one by one as they arrive; no page is held in memory.
class HttpClient final : public Client {
 public:
  // Has the process ignore SIGPIPE.
  // Errors: kInvalidArgument naming the field of `config`.
  static StatusOr<std::unique_ptr<HttpClient>> Create(
      const ClientConfig& config, HttpClientOptions options = {});
  // Calls must have returned.
  ~HttpClient() override;

  StatusOr<Json> Get(const ResourceType& type, const ObjectKey& key) override;
  StatusOr<std::string> List(const ResourceType& type,
                             const ListOptions& options,
                             const std::function<void(Json&)>& take) override;
  Status Watch(const ResourceType& type, const WatchOptions& options,
               const std::function<bool(WatchEvent&)>& take) override;
  StatusOr<Json> Apply(const ResourceType& type, const ObjectKey& key,
                       const Json& object,
                       std::string_view subresource = "") override;
  StatusOr<Json> Create(const ResourceType& type, std::string_view space,
                        const Json& object) override;
  StatusOr<Json> Replace(const ResourceType& type, const ObjectKey& key,
                         const Json& object,
                         std::string_view subresource = "") override;
  StatusOr<Json> Patch(const ResourceType& type, const ObjectKey& key,
                       PatchType patch_type, const Json& patch,
                       std::string_view subresource = "") override;
  Status Delete(const ResourceType& type, const ObjectKey& key,
                const DeleteOptions& options = {}) override;

 private:
  struct Impl;
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::kube
