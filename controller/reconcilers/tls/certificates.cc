#include "controller/reconcilers/tls/certificates.h"

#include <algorithm>
#include <limits>

namespace tidepool::reconcilers::tls {
namespace {

using rpc::Component;
using rpc::RoleIdentity;
using rpc::TlsMaterial;
using rpc::Validity;

// A year at most: what was planned with another clock is looked at again.
constexpr int64_t kLookSeconds = 365 * kDaySeconds;

RoleIdentity MemberOf(const RoleIdentity& fleet, Component component) {
  return {.space = fleet.space, .pool = fleet.pool, .component = component};
}

std::optional<Validity> ValidityOf(const std::string& pem) {
  const auto facts = rpc::ReadCertificates(pem);
  if (!facts.ok()) return std::nullopt;
  return facts->front().validity;
}

int64_t IssuedAt(const Validity& validity) {
  return validity.not_before + kClockSkewSeconds;
}

// An authority that can sign now, for as long as a certificate lasts.
std::optional<Validity> UsableAuthority(const rpc::KeyPair& ca, int64_t now) {
  const auto facts = rpc::ReadCertificates(ca.certificate);
  if (!facts.ok() || !facts->front().is_authority ||
      !rpc::CheckKey(ca.certificate, ca.key).ok())
    return std::nullopt;
  const Validity validity = facts->front().validity;
  if (now < validity.not_before || now + kLeafSeconds > validity.not_after)
    return std::nullopt;
  return validity;
}

// Of a leaf that is of these authorities and need not be renewed yet.
std::optional<Validity> FreshLeaf(const TlsMaterial& leaf,
                                  const Authorities& authorities,
                                  const RoleIdentity& expected, int64_t now) {
  const auto facts = rpc::ReadCertificates(leaf.certificate);
  if (!facts.ok() || facts->front().identity != expected ||
      leaf.authorities != authorities.Bundle() ||
      !rpc::CheckKey(leaf.certificate, leaf.key).ok() ||
      !rpc::CheckTrusted(leaf.certificate, authorities.signing.certificate, now)
           .ok())
    return std::nullopt;
  const Validity validity = facts->front().validity;
  if (now >= IssuedAt(validity) + kLeafRenewalSeconds) return std::nullopt;
  return validity;
}

// What to trust still once `authorities.signing` signs no more: nothing that
// would keep the rest of a bundle from being read.
std::string Retired(const Authorities& authorities) {
  const std::string& pem = authorities.signing.certificate;
  const auto facts = rpc::ReadCertificates(pem);
  return facts.ok() && facts->size() == 1 && facts->front().is_authority ? pem
                                                                         : "";
}

Validity LastingFrom(int64_t now, int64_t seconds) {
  return {.not_before = now - kClockSkewSeconds, .not_after = now + seconds};
}

// Leaves that are fit for the authorities as they are, and what is due when.
void PlanLeaves(const FleetCertificates& present, const RoleIdentity& fleet,
                int64_t now, Renewal& renewal) {
  const Authorities& authorities = *present.authorities;
  for (const Component component : kLeafComponents) {
    const auto leaf = present.leaves.find(component);
    const std::optional<Validity> fresh =
        leaf == present.leaves.end()
            ? std::nullopt
            : FreshLeaf(leaf->second, authorities, MemberOf(fleet, component),
                        now);
    if (fresh.has_value()) {
      renewal.due =
          std::min(renewal.due, IssuedAt(*fresh) + kLeafRenewalSeconds);
    } else {
      renewal.leaves.insert(component);
    }
  }
}

// When the last of the leaves was issued.
int64_t AllShownSince(const FleetCertificates& present) {
  int64_t since = std::numeric_limits<int64_t>::min();
  for (const auto& [component, leaf] : present.leaves) {
    const std::optional<Validity> validity = ValidityOf(leaf.certificate);
    if (validity.has_value()) since = std::max(since, IssuedAt(*validity));
  }
  return since;
}

// The next step of a replacement, and when it may be taken.
void PlanAuthority(const FleetCertificates& present, const Validity& signing,
                   int64_t now, Renewal& renewal) {
  const Authorities& authorities = *present.authorities;
  // Not before everybody has known of the last one for a while.
  const int64_t overlapped =
      (renewal.leaves.empty() ? AllShownSince(present) : now) + kOverlapSeconds;
  int64_t when = signing.not_after - kAuthorityRenewalSeconds;
  AuthorityStep step = AuthorityStep::kIssueNext;
  if (authorities.next.has_value()) {
    const bool is_usable = UsableAuthority(*authorities.next, now).has_value();
    when = is_usable ? overlapped : now;
    if (is_usable) step = AuthorityStep::kPromote;
  } else if (!authorities.retired.empty()) {
    when = overlapped;
    step = AuthorityStep::kDropRetired;
  }
  if (now >= when) {
    renewal.authority = step;
  } else {
    renewal.due = std::min(renewal.due, when);
  }
}

}  // namespace

std::string Authorities::Bundle() const {
  return signing.certificate + (next.has_value() ? next->certificate : "") +
         retired;
}

Renewal PlanRenewal(const FleetCertificates& present, const RoleIdentity& fleet,
                    int64_t now) {
  Renewal renewal{.due = now + kLookSeconds};
  const std::optional<Validity> signing =
      present.authorities.has_value()
          ? UsableAuthority(present.authorities->signing, now)
          : std::nullopt;
  if (signing.has_value()) {
    PlanLeaves(present, fleet, now, renewal);
    PlanAuthority(present, *signing, now, renewal);
  } else {
    const bool has_successor =
        present.authorities.has_value() &&
        present.authorities->next.has_value() &&
        UsableAuthority(*present.authorities->next, now).has_value();
    renewal.authority =
        has_successor ? AuthorityStep::kPromote : AuthorityStep::kIssue;
  }
  // Each step changes what is to be trusted.
  if (renewal.authority != AuthorityStep::kKeep)
    renewal.leaves.insert(std::begin(kLeafComponents),
                          std::end(kLeafComponents));
  return renewal;
}

StatusOr<TlsMaterial> IssueLeaf(const Authorities& authorities,
                                const RoleIdentity& fleet, Component component,
                                int64_t now) {
  ASSIGN_OR_RETURN(
      rpc::KeyPair leaf,
      rpc::IssueCertificate(authorities.signing, MemberOf(fleet, component),
                            LastingFrom(now, kLeafSeconds)));
  return TlsMaterial{.certificate = std::move(leaf.certificate),
                     .key = std::move(leaf.key),
                     .authorities = authorities.Bundle()};
}

StatusOr<FleetCertificates> Renew(FleetCertificates present,
                                  const Renewal& renewal,
                                  const RoleIdentity& fleet, int64_t now) {
  std::optional<Authorities>& authorities = present.authorities;
  switch (renewal.authority) {
    case AuthorityStep::kKeep:
      break;
    case AuthorityStep::kIssue: {
      ASSIGN_OR_RETURN(rpc::KeyPair ca,
                       rpc::IssueCa(LastingFrom(now, kAuthoritySeconds)));
      // What it signed may still be shown for a while.
      const std::string retired =
          authorities.has_value() ? Retired(*authorities) : "";
      authorities = Authorities{.signing = std::move(ca), .retired = retired};
      break;
    }
    case AuthorityStep::kIssueNext: {
      ASSIGN_OR_RETURN(authorities->next,
                       rpc::IssueCa(LastingFrom(now, kAuthoritySeconds)));
      break;
    }
    case AuthorityStep::kPromote:
      authorities->retired = Retired(*authorities);
      authorities->signing = *std::move(authorities->next);
      authorities->next.reset();
      break;
    case AuthorityStep::kDropRetired:
      authorities->retired.clear();
      break;
  }
  for (const Component component : renewal.leaves) {
    ASSIGN_OR_RETURN(present.leaves[component],
                     IssueLeaf(*authorities, fleet, component, now));
  }
  return present;
}

}  // namespace tidepool::reconcilers::tls
