// Real servers and channels on loopback.
#include "dataplane/rpc/security.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "dataplane/base/file.h"
#include "dataplane/rpc/certificate_test_util.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::rpc {
namespace {

namespace wire = worker::v1;
using testing::HasSubstr;

constexpr std::chrono::seconds kPatience(20);

// Describes itself by name, and answers every message of a session.
class EchoService : public wire::WorkerService::Service {
 public:
  grpc::Status Describe(grpc::ServerContext*, const wire::DescribeRequest*,
                        wire::DescribeResponse* response) override {
    response->set_name("echo");
    return grpc::Status::OK;
  }
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<wire::SessionResponse, wire::SessionRequest>*
          stream) override {
    wire::SessionRequest request;
    while (stream->Read(&request)) {
      wire::SessionResponse response;
      response.set_sequence(request.sequence());
      stream->Write(response);
    }
    return grpc::Status::OK;
  }
};

class Server {
 public:
  explicit Server(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~Server() { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  EchoService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Each with a connection of its own.
std::unique_ptr<wire::WorkerService::Stub> Connect(
    const Server& server, const Security& client,
    Component expected = Component::kWorker) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return wire::WorkerService::NewStub(
      client.OpenChannel(server.address(), expected, arguments));
}

grpc::Status Call(wire::WorkerService::Stub& stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  wire::DescribeResponse response;
  return stub.Describe(&context, {}, &response);
}
grpc::Status Call(const Server& server, const Security& client,
                  Component expected = Component::kWorker) {
  return Call(*Connect(server, client, expected));
}

Security SecurityOf(const TlsMaterial& material) {
  auto security = Security::Of(material);
  EXPECT_TRUE(security.ok()) << security.status();
  return *std::move(security);
}

class SecurityTest : public testing::Test {
 protected:
  Security Member(Component component) const {
    return SecurityOf(TestMaterial(ca_, TestRole(component)));
  }
  // A worker that takes calls of conductors and workers.
  std::shared_ptr<grpc::ServerCredentials> WorkerServer() const {
    return Member(Component::kWorker)
        .ServerCredentials({Component::kConductor, Component::kWorker});
  }
  const KeyPair ca_ = TestCa();
};

TEST_F(SecurityTest, MembersOfAFleetReachEachOther) {
  const Server server(WorkerServer());
  for (const Component component : {Component::kConductor, Component::kWorker})
    EXPECT_TRUE(Call(server, Member(component)).ok());
}

TEST_F(SecurityTest, ProxiesAreForTheWorldOutside) {
  const std::pair<const char*, const char*> variables[] = {
      {"grpc_proxy", "http://127.0.0.1:1"}, {"no_grpc_proxy", "elsewhere"}};
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  const Server plain(grpc::InsecureServerCredentials());
  EXPECT_TRUE(Call(plain, Security()).ok());
  const Server server(WorkerServer());
  EXPECT_TRUE(Call(server, Member(Component::kConductor)).ok());
  for (const auto& [name, value] : variables) unsetenv(name);
}

TEST_F(SecurityTest, AComponentThatIsNotExpectedIsRefused) {
  const Server server(WorkerServer());
  const grpc::Status status = Call(server, Member(Component::kController));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(SecurityTest, AServerOfAnotherRoleIsNotCalled) {
  const Server server(
      Member(Component::kWorker).ServerCredentials({Component::kController}));
  const grpc::Status status =
      Call(server, Member(Component::kController), Component::kConductor);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(),
              HasSubstr("the peer is a worker, which has no business here"));
}

TEST_F(SecurityTest, CertificatesOfAnotherAuthorityAreRefused) {
  const Server server(WorkerServer());
  const KeyPair other = TestCa();
  TlsMaterial material = TestMaterial(other, TestRole(Component::kConductor));
  // Not even known on this side: its own is no better there.
  EXPECT_FALSE(Call(server, SecurityOf(material)).ok());
  material.authorities = ca_.certificate;
  EXPECT_FALSE(Call(server, SecurityOf(material)).ok());
  // A server of another authority is not believed either.
  TlsMaterial own = TestMaterial(ca_, TestRole(Component::kConductor));
  own.authorities = other.certificate;
  EXPECT_FALSE(Call(server, SecurityOf(own)).ok());
}

TEST_F(SecurityTest, OtherFleetsAreRefusedEvenOfOneAuthority) {
  const Server server(WorkerServer());
  for (const RoleIdentity& stranger : {RoleIdentity{.space = "default",
                                      .pool = "other",
                                      .component = Component::kConductor},
                                       RoleIdentity{.space = "other",
                                       .pool = "demo",
                                       .component = Component::kConductor}}) {
    const grpc::Status status =
        Call(server, SecurityOf(TestMaterial(ca_, stranger)));
    EXPECT_THAT(status.error_message(), HasSubstr("of another fleet"));
  }
}

TEST_F(SecurityTest, ExpiredAndFutureCertificatesAreRefused) {
  const Server server(WorkerServer());
  const RoleIdentity role = TestRole(Component::kConductor);
  EXPECT_FALSE(
      Call(server, SecurityOf(TestMaterial(ca_, role,
                                           {.not_before = UnixNow() - 2 * kDay,
                                            .not_after = UnixNow() - kDay})))
          .ok());
  EXPECT_FALSE(Call(server, SecurityOf(TestMaterial(
                                ca_, role,
                                {.not_before = UnixNow() + kDay,
                                 .not_after = UnixNow() + 2 * kDay})))
                   .ok());
}

TEST_F(SecurityTest, PlainTextIsRefusedWhereThereIsTls) {
  const Server server(WorkerServer());
  EXPECT_FALSE(Call(server, Security()).ok());
}

TEST_F(SecurityTest, AClientWithoutACertificateIsRefused) {
  const Server server(WorkerServer());
  const auto stub = wire::WorkerService::NewStub(grpc::CreateChannel(
      server.address(),
      grpc::SslCredentials({.pem_root_certs = ca_.certificate})));
  EXPECT_FALSE(Call(*stub).ok());
}

TEST_F(SecurityTest, WithoutOptionsAllIsPlainText) {
  const auto plain = Security::Load({}, Component::kWorker, UnixNow());
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->IsTls());
  const Server server(plain->ServerCredentials({Component::kConductor}));
  EXPECT_TRUE(Call(server, *plain).ok());
}

TEST_F(SecurityTest, OnlyAddressesOfThisHostAreLoopback) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_TRUE(IsLoopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.example.com", ""})
    EXPECT_FALSE(IsLoopback(host)) << host;
}

// Certificates in files, as a process has them.
class RotationTest : public SecurityTest {
 protected:
  TlsOptions Write(const TlsMaterial& material) const {
    const std::string prefix = testing::TempDir() + "rpc_rotation_test_";
    const TlsOptions options{.tls_cert = prefix + "cert",
                             .tls_key = prefix + "key",
                             .tls_ca = prefix + "ca"};
    EXPECT_TRUE(
        WriteFileAtomically(options.tls_cert, material.certificate).ok());
    EXPECT_TRUE(WriteFileAtomically(options.tls_key, material.key).ok());
    EXPECT_TRUE(WriteFileAtomically(options.tls_ca, material.authorities).ok());
    return options;
  }
  // Until the server does so: it looks at its files from time to time.
  static bool Becomes(bool ok, const Server& server, const Security& client) {
    const TimePoint end = Clock::Monotonic().Now() + kPatience;
    while (Call(server, client).ok() != ok)
      if (Clock::Monotonic().Now() > end) return false;
    return true;
  }
};

TEST_F(RotationTest, AStreamOutlivesTheReplacementOfEverything) {
  // The first authority's, then both trusted, then the second's alone.
  const KeyPair second = TestCa();
  const TlsMaterial before = TestMaterial(ca_, TestRole(Component::kWorker));
  const auto worker =
      Security::Load(Write(before), Component::kWorker, UnixNow());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const Server server(worker->ServerCredentials({Component::kConductor}));

  const auto stub = Connect(
      server, SecurityOf(TestMaterial(ca_, TestRole(Component::kConductor))));
  grpc::ClientContext context;
  const auto stream = stub->Session(&context);
  uint64_t sequence = 0;
  const auto echo = [&] {
    wire::SessionRequest request;
    request.set_sequence(++sequence);
    wire::SessionResponse response;
    return stream->Write(request) && stream->Read(&response) &&
           response.sequence() == sequence;
  };
  ASSERT_TRUE(echo());

  TlsMaterial newcomer = TestMaterial(second, TestRole(Component::kConductor));
  newcomer.authorities = ca_.certificate + second.certificate;
  EXPECT_FALSE(Call(server, SecurityOf(newcomer)).ok());

  TlsMaterial overlap = before;
  overlap.authorities = ca_.certificate + second.certificate;
  Write(overlap);
  EXPECT_TRUE(Becomes(true, server, SecurityOf(newcomer)));
  EXPECT_TRUE(echo());

  newcomer.authorities = second.certificate;
  Write(TestMaterial(second, TestRole(Component::kWorker)));
  EXPECT_TRUE(Becomes(true, server, SecurityOf(newcomer)));
  // Who has only the first authority's certificate is a stranger by now, but
  // for the stream that was there before.
  TlsMaterial old = TestMaterial(ca_, TestRole(Component::kConductor));
  old.authorities = ca_.certificate + second.certificate;
  EXPECT_TRUE(Becomes(false, server, SecurityOf(old)));
  EXPECT_TRUE(echo());
  EXPECT_TRUE(stream->WritesDone());
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(RotationTest, FoldersAreReplacedAsKubeletsDoIt) {
  // Files are links through a link to a folder, and that link alone changes.
  namespace fs = std::filesystem;
  const fs::path root = testing::TempDir() + "rpc_rotation_test_mount";
  fs::remove_all(root);
  const auto point = [&](const char* version, const TlsMaterial& material) {
    fs::create_directories(root / version);
    for (const auto& [name, content] :
         {std::pair{"cert", &material.certificate},
          std::pair{"key", &material.key},
          std::pair{"ca", &material.authorities}})
      EXPECT_TRUE(
          WriteFileAtomically((root / version / name).string(), *content).ok());
    fs::create_directory_symlink(version, root / "..next");
    fs::rename(root / "..next", root / "..data");
  };
  point("..first", TestMaterial(ca_, TestRole(Component::kWorker)));
  for (const char* name : {"cert", "key", "ca"})
    fs::create_symlink(fs::path("..data") / name, root / name);
  const auto worker = Security::Load({.tls_cert = (root / "cert").string(),
                                      .tls_key = (root / "key").string(),
                                      .tls_ca = (root / "ca").string()},
                                     Component::kWorker, UnixNow());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const Server server(worker->ServerCredentials({Component::kConductor}));
  const KeyPair second = TestCa();
  const Security newcomer =
      SecurityOf(TestMaterial(second, TestRole(Component::kConductor)));
  EXPECT_FALSE(Call(server, newcomer).ok());
  point("..second", TestMaterial(second, TestRole(Component::kWorker)));
  EXPECT_TRUE(Becomes(true, server, newcomer));
}

TEST_F(RotationTest, FilesThatDoNotFitServeNobodyUntilTheyDo) {
  const TlsMaterial good = TestMaterial(ca_, TestRole(Component::kWorker));
  const auto worker =
      Security::Load(Write(good), Component::kWorker, UnixNow());
  ASSERT_TRUE(worker.ok()) << worker.status();
  const Server server(worker->ServerCredentials({Component::kConductor}));
  const auto conductor =
      SecurityOf(TestMaterial(ca_, TestRole(Component::kConductor)));
  EXPECT_TRUE(Call(server, conductor).ok());
  TlsMaterial bad = TestMaterial(ca_, TestRole(Component::kWorker));
  bad.key = good.key;
  Write(bad);
  EXPECT_TRUE(Becomes(false, server, conductor));
  Write(good);
  EXPECT_TRUE(Becomes(true, server, conductor));
}

}  // namespace
}  // namespace tidepool::rpc
