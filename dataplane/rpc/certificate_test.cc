#include "dataplane/rpc/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/rpc/certificate_test_util.h"

namespace tidepool::rpc {
namespace {

using testing::HasSubstr;

constexpr int64_t kNow = 1'800'000'000;
constexpr Validity kYear{.not_before = kNow - kDay,
                         .not_after = kNow + 365 * kDay};
constexpr Validity kMonth{.not_before = kNow - kDay,
                          .not_after = kNow + 30 * kDay};

KeyPair Ca() { return IssueCa(kYear).value(); }
KeyPair Leaf(const KeyPair& ca) {
  return IssueCertificate(ca, TestRole(Component::kWorker), kMonth).value();
}

TEST(IssuingTest, AnAuthorityIsOne) {
  const auto facts = ReadCertificates(Ca().certificate);
  ASSERT_TRUE(facts.ok()) << facts.status();
  ASSERT_EQ(facts->size(), 1u);
  EXPECT_TRUE(facts->front().is_authority);
  EXPECT_EQ(facts->front().validity, kYear);
  EXPECT_EQ(facts->front().identity, std::nullopt);
}

TEST(IssuingTest, ACertificateSaysItsRoleAndIsNoAuthority) {
  const auto facts = ReadCertificates(Leaf(Ca()).certificate);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_FALSE(facts->front().is_authority);
  EXPECT_EQ(facts->front().validity, kMonth);
  EXPECT_EQ(facts->front().identity, TestRole(Component::kWorker));
}

TEST(IssuingTest, KeysAreNeverTheSame) {
  const KeyPair ca = Ca();
  EXPECT_NE(Leaf(ca).key, Leaf(ca).key);
  EXPECT_NE(Ca().key, ca.key);
}

TEST(IssuingTest, ACertificateCannotIssue) {
  const KeyPair leaf = Leaf(Ca());
  EXPECT_EQ(IssueCertificate(leaf, TestRole(Component::kWorker), kMonth)
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST(IssuingTest, ACertificateCannotOutliveItsAuthority) {
  EXPECT_EQ(
      IssueCertificate(Ca(), TestRole(Component::kWorker),
                       {.not_before = kNow, .not_after = kYear.not_after + 1})
          .status()
          .code(),
      Code::kInvalidArgument);
}

TEST(IssuingTest, RefusesARoleThatIsNone) {
  EXPECT_FALSE(
      IssueCertificate(Ca(), {.space = "a,b", .pool = "c"}, kMonth).ok());
}

TEST(CertificateTest, IsTrustedWithinItsTimeOnly) {
  const KeyPair ca = Ca();
  const KeyPair leaf = Leaf(ca);
  EXPECT_TRUE(CheckTrusted(leaf.certificate, ca.certificate, kNow).ok());
  const Status late =
      CheckTrusted(leaf.certificate, ca.certificate, kMonth.not_after + 1);
  EXPECT_EQ(late.code(), Code::kFailedPrecondition);
  EXPECT_THAT(MessageOf(late), HasSubstr("expired on 2027-02-14T"));
  const Status early =
      CheckTrusted(leaf.certificate, ca.certificate, kMonth.not_before - 1);
  EXPECT_EQ(early.code(), Code::kFailedPrecondition);
  EXPECT_THAT(MessageOf(early), HasSubstr("not valid before"));
}

TEST(CertificateTest, IsTrustedByItsOwnAuthorityOnly) {
  const KeyPair ca = Ca(), other = Ca();
  const KeyPair leaf = Leaf(ca);
  EXPECT_EQ(CheckTrusted(leaf.certificate, other.certificate, kNow).code(),
            Code::kInvalidArgument);
  // As while an authority is replaced.
  EXPECT_TRUE(
      CheckTrusted(leaf.certificate, other.certificate + ca.certificate, kNow)
          .ok());
}

TEST(CertificateTest, AKeyBelongsToOneCertificate) {
  const KeyPair ca = Ca();
  const KeyPair first = Leaf(ca), second = Leaf(ca);
  EXPECT_TRUE(CheckKey(first.certificate, first.key).ok());
  EXPECT_EQ(CheckKey(first.certificate, second.key).code(),
            Code::kInvalidArgument);
}

TEST(CertificateTest, RefusesWhatIsNoPem) {
  const std::string good = Ca().certificate;
  std::string damaged = good;
  damaged[damaged.size() / 2] = '!';
  std::string many;
  for (int i = 0; i < 17; ++i) many += good;
  for (const std::string& pem :
       {std::string(), std::string("hello"), good.substr(0, good.size() / 2),
        good + good.substr(0, good.size() / 2), damaged, many}) {
    EXPECT_EQ(ReadCertificates(pem).status().code(), Code::kInvalidArgument)
        << pem;
  }
  EXPECT_FALSE(CheckKey(good, "").ok());
  EXPECT_FALSE(CheckKey(good, good).ok());
}

}  // namespace
}  // namespace tidepool::rpc
