#include "controller/reconcilers/tls/keyring.h"

#include <algorithm>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/names.h"
#include "controller/reconcilers/tls/secrets.h"
#include "dataplane/base/log.h"

namespace tidepool::reconcilers {
namespace {

using rpc::Component;
using tls::FleetCertificates;

constexpr Duration kMissedInterval = std::chrono::seconds(30);
// For what nobody tells of, as a Secret that was deleted to be rid of its key.
constexpr int64_t kLookSecondsMax = 3600;
constexpr const char* kOpaque = "Opaque";
constexpr const char* kTlsType = "kubernetes.io/tls";

kube::ObjectKey FamilyOf(const FamilyScope& scope) {
  return {.space = scope.space, .name = scope.pool};
}

// The earliest end of what pods show.
int64_t EndOf(const FleetCertificates& certificates) {
  int64_t end = INT64_MAX;
  for (const auto& [component, leaf] : certificates.leaves) {
    const auto facts = rpc::ReadCertificates(leaf.certificate);
    if (facts.ok()) end = std::min(end, facts->front().validity.not_after);
  }
  return end;
}

bool IsOwnedBy(const Json& object, const std::string& uid) {
  const Json& metadata = object.value("metadata", Json::object());
  const Json owners = metadata.value("ownerReferences", Json::array());
  return std::ranges::any_of(owners, [&](const Json& owner) {
    return owner.is_object() && owner.value("controller", false) &&
           owner.value("uid", "") == uid;
  });
}

}  // namespace

StatusOr<Keyring::Stored> Keyring::Read(const FamilyScope& scope,
                                        const std::string& name) {
  auto object =
      client_.Get(kube::kSecret, {.space = scope.space, .name = name});
  if (object.status().code() == Code::kNotFound) return Stored{};
  RETURN_IF_ERROR(object.status());
  if (!IsOwnedBy(*object, scope.owner.uid))
    return FailedPrecondition("Secret {}/{} belongs to another object",
                              scope.space, name);
  Stored stored{.object = *std::move(object)};
  stored.data = stored.object.value("data", Json::object());
  return stored;
}

// Only over what was read: two controllers never mix their keys.
Status Keyring::Write(const FamilyScope& scope, const std::string& name,
                      std::string_view component, const char* type, Json data,
                      const Stored& stored) {
  if (stored.object.is_null()) {
    Manifest secret = scope.Make(kube::kSecret, name, component);
    secret.object["type"] = type;
    secret.object["data"] = std::move(data);
    return client_.Create(kube::kSecret, scope.space, secret.object).status();
  }
  if (stored.data == data) return OkStatus();
  for (const auto& [entry, unused] : stored.data.items())
    if (!data.contains(entry)) data[entry] = nullptr;
  const Json patch = {
      {"metadata",
       {{"resourceVersion", stored.object["metadata"]["resourceVersion"]}}},
      {"data", std::move(data)}};
  return client_
      .Patch(kube::kSecret, {.space = scope.space, .name = name},
             kube::PatchType::kMerge, patch)
      .status();
}

StatusOr<tls::Renewal> Keyring::Look(const FamilyScope& scope,
                                     FleetCertificates& certificates,
                                     int64_t now) {
  const rpc::RoleIdentity fleet{.space = scope.space, .pool = scope.pool};
  const std::string ca_name = TlsAuthorityName(scope.pool);
  ASSIGN_OR_RETURN(const Stored ca, Read(scope, ca_name));
  certificates.authorities = tls::AuthoritiesFromData(ca.data);
  std::map<Component, Stored> stored;
  for (const Component component : tls::kLeafComponents) {
    ASSIGN_OR_RETURN(stored[component],
                     Read(scope, TlsName(scope.pool, rpc::NameOf(component))));
    if (auto leaf = tls::LeafFromData(stored[component].data))
      certificates.leaves[component] = *std::move(leaf);
  }
  tls::Renewal renewal = tls::PlanRenewal(certificates, fleet, now);
  if (renewal.IsNothing()) return renewal;

  ASSIGN_OR_RETURN(certificates,
                   tls::Renew(std::move(certificates), renewal, fleet, now));
  // The keys first: what they signed can be signed again.
  RETURN_IF_ERROR(Write(scope, ca_name, "tls", kOpaque,
                        tls::ToData(*certificates.authorities), ca));
  for (const auto& [component, leaf] : certificates.leaves)
    RETURN_IF_ERROR(Write(scope, TlsName(scope.pool, rpc::NameOf(component)),
                          rpc::NameOf(component), kTlsType, tls::ToData(leaf),
                          stored[component]));
  LOG_INFO("{}/{}: {} certificates issued", scope.space, scope.pool,
           renewal.leaves.size());
  return tls::PlanRenewal(certificates, fleet, now);
}

StatusOr<Duration> Keyring::Ensure(const FamilyScope& scope, bool is_missed) {
  const kube::ObjectKey family = FamilyOf(scope);
  const TimePoint at = clock_.Now();
  const auto now = static_cast<int64_t>(unix_seconds_());
  const auto until = [&](int64_t due) -> Duration {
    const Duration left = std::chrono::seconds(std::max<int64_t>(due - now, 1));
    return is_missed ? std::min(left, kMissedInterval) : left;
  };
  {
    const MutexLock lock(&mutex_);
    const auto found = entries_.find(family);
    if (found != entries_.end() && !found->second.own.certificate.empty() &&
        now < found->second.due &&
        !(is_missed && at - found->second.looked >= kMissedInterval))
      return until(found->second.due);
  }
  FleetCertificates certificates;
  ASSIGN_OR_RETURN(const tls::Renewal renewal, Look(scope, certificates, now));
  const rpc::RoleIdentity fleet{.space = scope.space, .pool = scope.pool};
  // For this process alone, so kept nowhere.
  ASSIGN_OR_RETURN(rpc::TlsMaterial own,
                   tls::IssueLeaf(*certificates.authorities, fleet,
                                  Component::kController, now));
  const int64_t due = std::min(renewal.due, now + kLookSecondsMax);
  const MutexLock lock(&mutex_);
  entries_[family] = {.own = std::move(own),
                      .due = due,
                      .expires = EndOf(certificates),
                      .looked = at};
  return until(due);
}

void Keyring::UsePlainText(const kube::ObjectKey& family) {
  const MutexLock lock(&mutex_);
  entries_[family] = Entry{};
}

void Keyring::Forget(const kube::ObjectKey& family) {
  const MutexLock lock(&mutex_);
  entries_.erase(family);
}

std::optional<Seconds> Keyring::FirstExpiry() const {
  const double now = unix_seconds_();
  std::optional<Seconds> first;
  const MutexLock lock(&mutex_);
  for (const auto& [family, entry] : entries_) {
    if (entry.own.certificate.empty()) continue;
    const Seconds left(static_cast<double>(entry.expires) - now);
    first = std::min(left, first.value_or(left));
  }
  return first;
}

std::optional<rpc::Security> Keyring::SecurityOf(
    const kube::ObjectKey& family) const {
  rpc::TlsMaterial own;
  {
    const MutexLock lock(&mutex_);
    const auto found = entries_.find(family);
    if (found == entries_.end()) return std::nullopt;
    own = found->second.own;
  }
  if (own.certificate.empty()) return rpc::Security();
  // Made when it is asked for: it is several times the size of its text.
  StatusOr<rpc::Security> security = rpc::Security::Of(own);
  if (security.ok()) return *std::move(security);
  LOG_ERROR("{}: own certificate: {}", family.ToString(),
            MessageOf(security.status()));
  return std::nullopt;
}

}  // namespace tidepool::reconcilers
