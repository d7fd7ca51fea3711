// The certificates of all fleets: kept in Secrets, and in use by this process.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "controller/kube/client.h"
#include "controller/reconcilers/manifest.h"
#include "controller/reconcilers/tls/certificates.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/rpc/security.h"

namespace tidepool::reconcilers {

// Thread-safe; one call at a time for each fleet.
class Keyring {
 public:
  // Both outlive it. `unix_seconds`: what certificates are valid by.
  Keyring(kube::Client& client, const Clock& clock,
          std::function<double()> unix_seconds)
      : client_(client),
        clock_(clock),
        unix_seconds_(std::move(unix_seconds)) {}

  // Issues and renews what is due, and writes it. Looks at the Secrets at
  // first, when something is due, every hour, and, if `is_missed` says that
  // pods wait for something, every half minute. Returns how long until it is to
  // be called again.
  // `scope` is owned by the KVCachePool.
  // Errors: those of the client; kFailedPrecondition (a Secret by our name
  // belongs to somebody else).
  StatusOr<Duration> Ensure(const FamilyScope& scope, bool is_missed);
  // For a fleet without TLS.
  void UsePlainText(const kube::ObjectKey& family);
  void Forget(const kube::ObjectKey& family);

  // Until the first certificate of any fleet ends; below zero if one has.
  // Nullopt without fleets that have any.
  std::optional<Seconds> FirstExpiry() const;

  // As a controller of the fleet; nullopt before Ensure succeeded.
  std::optional<rpc::Security> SecurityOf(const kube::ObjectKey& family) const;

 private:
  struct Entry {
    rpc::TlsMaterial own;          // empty: plain text
    int64_t due = 0, expires = 0;  // seconds since the Unix epoch
    TimePoint looked;
  };
  // A Secret as it is there; `object` is null if there is none.
  struct Stored {
    Json object, data;
  };

  StatusOr<Stored> Read(const FamilyScope& scope, const std::string& name);
  Status Write(const FamilyScope& scope, const std::string& name,
               std::string_view component, const char* type, Json data,
               const Stored& stored);
  StatusOr<tls::Renewal> Look(const FamilyScope& scope,
                              tls::FleetCertificates& certificates,
                              int64_t now);

  kube::Client& client_;
  const Clock& clock_;
  const std::function<double()> unix_seconds_;
  mutable Mutex mutex_;
  std::map<kube::ObjectKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::reconcilers
