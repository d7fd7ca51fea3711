#include "dataplane/rpc/tls_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/base/file.h"
#include "dataplane/rpc/certificate_test_util.h"

namespace tidepool::rpc {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class TlsOptionsTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& content) {
    const std::string path = testing::TempDir() + "tls_options_test_" + name;
    EXPECT_TRUE(WriteFileAtomically(path, content).ok());
    return path;
  }
  TlsOptions Write(const TlsMaterial& material) {
    return {.tls_cert = Write("cert", material.certificate),
            .tls_key = Write("key", material.key),
            .tls_ca = Write("ca", material.authorities)};
  }
  static StatusOr<TlsFiles> Read(const TlsOptions& options) {
    return ReadTlsFiles(options, Component::kWorker, UnixNow());
  }

  const KeyPair ca_ = TestCa();
  const TlsMaterial good_ = TestMaterial(ca_, TestRole(Component::kWorker));
};

TEST_F(TlsOptionsTest, ReadsFilesThatFit) {
  const auto files = Read(Write(good_));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->material, good_);
  EXPECT_EQ(files->identity, TestRole(Component::kWorker));
}

TEST_F(TlsOptionsTest, AllOrNone) {
  EXPECT_TRUE(Validate(TlsOptions{}).ok());
  EXPECT_TRUE(Validate(TlsOptions{"a", "b", "c"}).ok());
  EXPECT_THAT(MessageOf(Validate(TlsOptions{"a", "b", ""})),
              StartsWith("--tls-ca: "));
  EXPECT_THAT(MessageOf(Validate(TlsOptions{"a", "", "c"})),
              StartsWith("--tls-key: "));
  EXPECT_THAT(MessageOf(Validate(TlsOptions{"", "", "c"})),
              StartsWith("--tls-cert: "));
}

TEST_F(TlsOptionsTest, SaysWhichFileIsMissing) {
  TlsOptions options = Write(good_);
  options.tls_ca += "-not-there";
  const Status status = Read(options).status();
  EXPECT_THAT(MessageOf(status), StartsWith("--tls-ca: "));
  EXPECT_THAT(MessageOf(status), HasSubstr("No such file"));
  options.tls_ca = testing::TempDir();
  EXPECT_THAT(MessageOf(Read(options).status()), HasSubstr("is no file"));
}

TEST_F(TlsOptionsTest, SaysWhatDoesNotFit) {
  const auto message = [&](const TlsMaterial& material) {
    return std::string(MessageOf(Read(Write(material)).status()));
  };
  TlsMaterial bad = good_;
  bad.key = TestMaterial(ca_, TestRole(Component::kWorker)).key;
  EXPECT_THAT(message(bad), StartsWith("--tls-key: "));
  EXPECT_THAT(message(bad), HasSubstr("does not belong to the certificate"));
  bad = good_;
  bad.authorities = TestCa().certificate;
  EXPECT_THAT(message(bad), StartsWith("--tls-cert: "));
  EXPECT_THAT(message(bad), HasSubstr("is not of these authorities"));
  bad = good_;
  bad.authorities = "hello";
  EXPECT_THAT(message(bad), StartsWith("--tls-ca: "));
  EXPECT_THAT(message(TestMaterial(ca_, TestRole(Component::kConductor))),
              HasSubstr("is for a conductor, and this is a worker"));
  EXPECT_THAT(message({.certificate = ca_.certificate,
                       .key = ca_.key,
                       .authorities = ca_.certificate}),
              HasSubstr("names no role"));
  EXPECT_THAT(message(TestMaterial(ca_, TestRole(Component::kWorker),
                                   {.not_before = UnixNow() - 2 * kDay,
                                    .not_after = UnixNow() - kDay})),
              HasSubstr("expired on"));
}

}  // namespace
}  // namespace tidepool::rpc
