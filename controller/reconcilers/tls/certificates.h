// The certificates of one fleet: what there is, what is due, and its renewal.
// Pure, but for the randomness of new keys.
//
// A fleet has an authority of its own, which signs one certificate for its
// conductors and one for its workers. What is trusted changes at least a day
// before what is shown, so that no pair of running processes is ever without a
// common authority, however late a kubelet writes its files: an authority's
// successor is first only trusted, then signs, and its predecessor is dropped
// once no certificate of it is in use.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "dataplane/base/status.h"
#include "dataplane/rpc/certificate.h"
#include "dataplane/rpc/issuing.h"
#include "dataplane/rpc/role_identity.h"

namespace tidepool::reconcilers::tls {

inline constexpr int64_t kDaySeconds = 24 * 3600;
// Certificates begin this much in the past, for clocks that are behind.
inline constexpr int64_t kClockSkewSeconds = 3600;
inline constexpr int64_t kLeafSeconds = 90 * kDaySeconds;
inline constexpr int64_t kLeafRenewalSeconds = kLeafSeconds * 2 / 3;
inline constexpr int64_t kAuthoritySeconds = 3650 * kDaySeconds;
// Before its end; what it signs until then ends before it.
inline constexpr int64_t kAuthorityRenewalSeconds = 365 * kDaySeconds;
// Between a change of what is trusted and that of what is shown, and back.
inline constexpr int64_t kOverlapSeconds = kDaySeconds;

// Whose certificates are kept; the controller issues its own to itself.
inline constexpr rpc::Component kLeafComponents[] = {rpc::Component::kConductor,
                                                     rpc::Component::kWorker};

struct Authorities {
  rpc::KeyPair signing;
  std::optional<rpc::KeyPair> next;  // trusted, and not signing yet
  std::string retired;               // PEM; trusted, and not signing any more

  // All that are trusted, PEM.
  std::string Bundle() const;
  bool operator==(const Authorities&) const = default;
};

struct FleetCertificates {
  std::optional<Authorities> authorities;
  std::map<rpc::Component, rpc::TlsMaterial> leaves;

  bool operator==(const FleetCertificates&) const = default;
};

enum class AuthorityStep {
  kKeep,
  kIssue,      // the first, or one in the place of what cannot be used
  kIssueNext,  // a successor
  kPromote,    // the successor signs from now on
  kDropRetired,
};

struct Renewal {
  AuthorityStep authority = AuthorityStep::kKeep;
  // To be issued, after that step: also those that are only to be told of other
  // authorities, for their age says since when everybody knows.
  std::set<rpc::Component> leaves;
  // When there is something to do again, in seconds since the Unix epoch.
  int64_t due = 0;

  bool IsNothing() const {
    return authority == AuthorityStep::kKeep && leaves.empty();
  }
};

// `fleet` names namespace and pool; its component does not matter.
Renewal PlanRenewal(const FleetCertificates& present,
                    const rpc::RoleIdentity& fleet, int64_t unix_seconds);

// `present` with what `renewal`, which was planned for it, asks for.
// Errors: those of issuing.
StatusOr<FleetCertificates> Renew(FleetCertificates present,
                                  const Renewal& renewal,
                                  const rpc::RoleIdentity& fleet,
                                  int64_t unix_seconds);

// A certificate for `component`, with its key and all that are to be trusted.
// Errors: those of issuing.
StatusOr<rpc::TlsMaterial> IssueLeaf(const Authorities& authorities,
                                     const rpc::RoleIdentity& fleet,
                                     rpc::Component component,
                                     int64_t unix_seconds);

}  // namespace tidepool::reconcilers::tls
