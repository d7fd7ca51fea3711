#include "controller/reconcilers/tls/certificates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidepool::reconcilers::tls {
namespace {

using rpc::Component;
using testing::ElementsAre;

constexpr int64_t kStart = 1'800'000'000;
const rpc::RoleIdentity kFleet{.space = "models", .pool = "demo"};

FleetCertificates Carry(FleetCertificates present, const Renewal& renewal,
                        int64_t now) {
  auto renewed = Renew(std::move(present), renewal, kFleet, now);
  EXPECT_TRUE(renewed.ok()) << renewed.status();
  return *std::move(renewed);
}
// One look at them.
FleetCertificates Look(FleetCertificates present, int64_t now) {
  const Renewal renewal = PlanRenewal(present, kFleet, now);
  return Carry(std::move(present), renewal, now);
}
FleetCertificates Fresh(int64_t now = kStart) { return Look({}, now); }

// Whether a process with one of these would take the other's certificate.
bool Trusts(const rpc::TlsMaterial& who, const rpc::TlsMaterial& whom,
            int64_t now) {
  return rpc::CheckTrusted(whom.certificate, who.authorities, now).ok();
}

TEST(CertificatesTest, AFleetGetsAnAuthorityAndACertificateForEachComponent) {
  const Renewal renewal = PlanRenewal({}, kFleet, kStart);
  EXPECT_EQ(renewal.authority, AuthorityStep::kIssue);
  EXPECT_THAT(renewal.leaves,
              ElementsAre(Component::kConductor, Component::kWorker));
  const FleetCertificates fleet = Fresh();
  ASSERT_TRUE(fleet.authorities.has_value());
  for (const auto& [component, leaf] : fleet.leaves) {
    const auto facts = rpc::ReadCertificates(leaf.certificate);
    ASSERT_TRUE(facts.ok());
    EXPECT_EQ(facts->front().identity,
              (rpc::RoleIdentity{"models", "demo", component}));
    EXPECT_EQ(facts->front().validity,
              (rpc::Validity{.not_before = kStart - kClockSkewSeconds,
                             .not_after = kStart + kLeafSeconds}));
    EXPECT_TRUE(rpc::CheckKey(leaf.certificate, leaf.key).ok());
    EXPECT_TRUE(Trusts(leaf, leaf, kStart));
  }
  EXPECT_TRUE(PlanRenewal(fleet, kFleet, kStart).IsNothing());
}

TEST(CertificatesTest, LeavesAreRenewedAtTwoThirdsOfTheirTime) {
  const FleetCertificates fleet = Fresh();
  const int64_t due = kStart + 60 * kDaySeconds;
  const Renewal before = PlanRenewal(fleet, kFleet, due - 1);
  EXPECT_TRUE(before.IsNothing());
  EXPECT_EQ(before.due, due);
  const Renewal after = PlanRenewal(fleet, kFleet, due);
  EXPECT_EQ(after.authority, AuthorityStep::kKeep);
  EXPECT_EQ(after.leaves.size(), 2u);
  const FleetCertificates renewed = Carry(fleet, after, due);
  EXPECT_EQ(renewed.authorities, fleet.authorities);
  EXPECT_NE(renewed.leaves, fleet.leaves);
  EXPECT_TRUE(PlanRenewal(renewed, kFleet, due).IsNothing());
}

TEST(CertificatesTest, WhatIsMissingOrBrokenIsIssuedAnew) {
  const FleetCertificates good = Fresh();
  FleetCertificates bad = good;
  bad.leaves.erase(Component::kWorker);
  EXPECT_THAT(PlanRenewal(bad, kFleet, kStart).leaves,
              ElementsAre(Component::kWorker));
  bad = good;
  bad.leaves[Component::kConductor].key =
      good.leaves.at(Component::kWorker).key;
  EXPECT_THAT(PlanRenewal(bad, kFleet, kStart).leaves,
              ElementsAre(Component::kConductor));
  bad = good;
  bad.leaves[Component::kConductor] = good.leaves.at(Component::kWorker);
  EXPECT_THAT(PlanRenewal(bad, kFleet, kStart).leaves,
              ElementsAre(Component::kConductor));
  bad = good;
  bad.leaves[Component::kWorker] = Fresh().leaves.at(Component::kWorker);
  EXPECT_THAT(PlanRenewal(bad, kFleet, kStart).leaves,
              ElementsAre(Component::kWorker));
  bad = good;
  bad.leaves[Component::kWorker].authorities.clear();
  const Renewal renewal = PlanRenewal(bad, kFleet, kStart);
  EXPECT_THAT(renewal.leaves, ElementsAre(Component::kWorker));
  EXPECT_EQ(Carry(bad, renewal, kStart).leaves[Component::kWorker].authorities,
            good.authorities->Bundle());
}

TEST(CertificatesTest, AnAuthorityThatCannotSignIsReplaced) {
  FleetCertificates fleet = Fresh();
  const std::string lost = fleet.authorities->signing.certificate;
  fleet.authorities->signing.key = Fresh().authorities->signing.key;
  const Renewal renewal = PlanRenewal(fleet, kFleet, kStart);
  EXPECT_EQ(renewal.authority, AuthorityStep::kIssue);
  const FleetCertificates renewed = Carry(fleet, renewal, kStart);
  // What it signed is trusted until all have changed.
  EXPECT_EQ(renewed.authorities->retired, lost);
  EXPECT_TRUE(Trusts(renewed.leaves.at(Component::kConductor),
                     fleet.leaves.at(Component::kWorker), kStart));
  fleet.authorities->signing.certificate = "garbage";
  EXPECT_EQ(Look(fleet, kStart).authorities->retired, "");
}

// Every pair of processes, each with certificates of any time within a day
// (kubelets write late), must trust each other both ways: over the twelve years
// in which the authority is replaced, and through a long absence.
TEST(CertificatesTest, NoPairIsEverWithoutACommonAuthority) {
  std::vector<std::pair<int64_t, FleetCertificates>> history;
  FleetCertificates fleet = Fresh();
  std::vector<AuthorityStep> steps;
  int64_t now = kStart;
  const int64_t end = kStart + 12 * 365 * kDaySeconds;
  while (now < end) {
    history.emplace_back(now, fleet);
    const Renewal renewal = PlanRenewal(fleet, kFleet, now);
    if (renewal.IsNothing()) {
      ASSERT_GT(renewal.due, now);
      now = renewal.due;
      continue;
    }
    if (renewal.authority != AuthorityStep::kKeep)
      steps.push_back(renewal.authority);
    fleet = Carry(std::move(fleet), renewal, now);
    for (auto old = history.rbegin(); old != history.rend(); ++old) {
      if (now - old->first >= kOverlapSeconds && old != history.rbegin()) break;
      for (const auto& [component, leaf] : fleet.leaves)
        for (const auto& [other, late] : old->second.leaves) {
          EXPECT_TRUE(Trusts(leaf, late, now)) << now - kStart;
          EXPECT_TRUE(Trusts(late, leaf, now)) << now - kStart;
        }
    }
  }
  EXPECT_THAT(steps,
              ElementsAre(AuthorityStep::kIssueNext, AuthorityStep::kPromote,
                          AuthorityStep::kDropRetired));
  EXPECT_EQ(fleet.authorities->Bundle(),
            fleet.authorities->signing.certificate);
}

TEST(CertificatesTest, ASuccessorIsOnlyTrustedForADay) {
  FleetCertificates fleet = Fresh();
  int64_t now = kStart + kAuthoritySeconds - kAuthorityRenewalSeconds;
  fleet = Look(fleet, now);  // leaves are due, too
  const rpc::KeyPair first = fleet.authorities->signing;
  ASSERT_TRUE(fleet.authorities->next.has_value());
  const rpc::KeyPair second = *fleet.authorities->next;
  const Renewal waiting = PlanRenewal(fleet, kFleet, now);
  EXPECT_TRUE(waiting.IsNothing());
  EXPECT_EQ(waiting.due, now + kOverlapSeconds);

  // A worker that was not told of it holds the promotion up, for a day from
  // when it is.
  FleetCertificates untold = fleet;
  untold.leaves[Component::kWorker].authorities = first.certificate;
  const int64_t late = now + kOverlapSeconds;
  const Renewal told = PlanRenewal(untold, kFleet, late);
  EXPECT_EQ(told.authority, AuthorityStep::kKeep);
  EXPECT_THAT(told.leaves, ElementsAre(Component::kWorker));
  const FleetCertificates all = Carry(untold, told, late);
  EXPECT_TRUE(PlanRenewal(all, kFleet, late + kOverlapSeconds - 1).IsNothing());
  EXPECT_EQ(PlanRenewal(all, kFleet, late + kOverlapSeconds).authority,
            AuthorityStep::kPromote);

  now += kOverlapSeconds;
  fleet = Look(fleet, now);
  EXPECT_EQ(fleet.authorities->signing, second);
  EXPECT_EQ(fleet.authorities->retired, first.certificate);
  EXPECT_TRUE(PlanRenewal(fleet, kFleet, now).IsNothing());

  now += kOverlapSeconds;
  fleet = Look(fleet, now);
  EXPECT_EQ(fleet.authorities->retired, "");
  EXPECT_TRUE(PlanRenewal(fleet, kFleet, now).IsNothing());
}

TEST(CertificatesTest, AfterYearsOfAbsenceAllStartsAnew) {
  const FleetCertificates fleet = Fresh();
  const int64_t now = kStart + kAuthoritySeconds + kDaySeconds;
  const FleetCertificates renewed = Look(fleet, now);
  EXPECT_NE(renewed.authorities->signing, fleet.authorities->signing);
  for (const auto& [component, leaf] : renewed.leaves)
    EXPECT_TRUE(Trusts(leaf, leaf, now));
}

}  // namespace
}  // namespace tidepool::reconcilers::tls
