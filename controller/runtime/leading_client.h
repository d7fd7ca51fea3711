// Writes only while leading.
#pragma once

#include <functional>

#include "controller/kube/client.h"

namespace tidepool::runtime {

// Reads pass; writes fail with kCancelled, before anything is sent, unless
// `may_write`. Reconcilers that go on for a while after leadership was lost do
// no harm by it. Thread-safe if `may_write` is.
class LeadingClient final : public kube::Client {
 public:
  // `client` must outlive it.
  LeadingClient(kube::Client& client, std::function<bool()> may_write)
      : client_(client), may_write_(std::move(may_write)) {}

  StatusOr<kube::Json> Get(const kube::ResourceType& type,
                           const kube::ObjectKey& key) override;
  StatusOr<std::string> List(
      const kube::ResourceType& type, const kube::ListOptions& options,
      const std::function<void(kube::Json&)>& take) override;
  Status Watch(const kube::ResourceType& type,
               const kube::WatchOptions& options,
               const std::function<bool(kube::WatchEvent&)>& take) override;
  StatusOr<kube::Json> Apply(const kube::ResourceType& type,
                             const kube::ObjectKey& key,
                             const kube::Json& object,
                             std::string_view subresource) override;
  StatusOr<kube::Json> Create(const kube::ResourceType& type,
                              std::string_view space,
                              const kube::Json& object) override;
  StatusOr<kube::Json> Replace(const kube::ResourceType& type,
                               const kube::ObjectKey& key,
                               const kube::Json& object,
                               std::string_view subresource) override;
  StatusOr<kube::Json> Patch(const kube::ResourceType& type,
                             const kube::ObjectKey& key,
                             kube::PatchType patch_type,
                             const kube::Json& patch,
                             std::string_view subresource) override;
  Status Delete(const kube::ResourceType& type, const kube::ObjectKey& key,
                const kube::DeleteOptions& options) override;

 private:
  Status MayWrite(const kube::ObjectKey& key) const;

  kube::Client& client_;
  const std::function<bool()> may_write_;
};

}  // namespace tidepool::runtime
