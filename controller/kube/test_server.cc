#include "controller/kube/test_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>

#include "dataplane/base/check.h"

namespace tidepool::kube::testing {
namespace {

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

X509* ReadCertificate(const std::string& pem) {
  BIO* bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  CHECK(certificate != nullptr);
  return certificate;
}

SSL_CTX* MakeContext(const TestCertificate& own,
                     const std::string& client_ca_pem) {
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  X509* certificate = ReadCertificate(own.certificate_pem);
  BIO* bio =
      BIO_new_mem_buf(own.key_pem.data(), static_cast<int>(own.key_pem.size()));
  EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  CHECK(SSL_CTX_use_certificate(context, certificate) == 1);
  CHECK(SSL_CTX_use_PrivateKey(context, key) == 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
  if (!client_ca_pem.empty()) {
    X509* ca = ReadCertificate(client_ca_pem);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), ca);
    X509_free(ca);
    SSL_CTX_set_verify(
        context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return context;
}

}  // namespace

TestCertificate MakeCertificate(const std::string& names) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(
      name, "CN", MBSTRING_ASC,
      reinterpret_cast<const unsigned char*>(names.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(
      nullptr, nullptr, NID_subject_alt_name, names.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
  TestCertificate made;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate);
  made.certificate_pem = TextOf(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  made.key_pem = TextOf(bio);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return made;
}

TestServer::Connection::Connection(UniqueFd fd, SSL_CTX* context)
    : fd_(std::move(fd)) {
  if (context == nullptr) return;
  ssl_ = SSL_new(context);
  SSL_set_fd(ssl_, fd_.get());
}

TestServer::Connection::~Connection() { SSL_free(ssl_); }

bool TestServer::Connection::Handshake() {
  return ssl_ == nullptr || SSL_accept(ssl_) == 1;
}

ssize_t TestServer::Connection::Receive(char* buffer, size_t size) {
  return ssl_ == nullptr ? recv(fd_.get(), buffer, size, 0)
                         : SSL_read(ssl_, buffer, static_cast<int>(size));
}

bool TestServer::Connection::Read(TestRequest& request) {
  size_t head = 0;
  size_t length = 0;
  char buffer[4096];
  while (true) {
    head = read_.find("\r\n\r\n");
    if (head != std::string::npos) {
      const size_t at = read_.find("Content-Length: ");
      length = at < head ? std::stoul(read_.substr(at + 16)) : 0;
      if (read_.size() >= head + 4 + length) break;
    }
    const ssize_t got = Receive(buffer, sizeof(buffer));
    if (got <= 0) return false;
    read_.append(buffer, static_cast<size_t>(got));
  }
  request.head = read_.substr(0, head);
  request.body = read_.substr(head + 4, length);
  read_.erase(0, head + 4 + length);
  const size_t first = request.head.find(' ');
  const size_t second = request.head.find(' ', first + 1);
  request.method = request.head.substr(0, first);
  request.target = request.head.substr(first + 1, second - first - 1);
  return true;
}

bool TestServer::Connection::Send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent =
        ssl_ == nullptr
            ? send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL)
            : SSL_write(ssl_, text.data(), static_cast<int>(text.size()));
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool TestServer::Connection::Answer(int code, std::string_view body,
                                    std::string_view extra_headers) {
  return Send(
      fmt::format("HTTP/1.1 {} Said\r\nContent-Type: application/json\r\n"
                  "Content-Length: {}\r\n{}\r\n{}",
                  code, body.size(), extra_headers, body));
}

bool TestServer::Connection::Begin() {
  return Send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
}

void TestServer::Connection::AwaitEnd() {
  char buffer[4096];
  while (Receive(buffer, sizeof(buffer)) > 0) {
  }
}

void TestServer::Connection::Shut() { shutdown(fd_.get(), SHUT_RDWR); }

TestServer::TestServer(Handler handler, const TestCertificate* certificate,
                       const std::string& client_ca_pem)
    : handler_(std::move(handler)),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (certificate != nullptr)
    context_ = MakeContext(*certificate, client_ca_pem);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  CHECK(bind(listener_.get(), generic, sizeof(address)) == 0);
  CHECK(listen(listener_.get(), 64) == 0);
  socklen_t length = sizeof(address);
  getsockname(listener_.get(), generic, &length);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

TestServer::~TestServer() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    for (Connection* connection : open_) connection->Shut();
  }
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> threads;
  {
    const MutexLock lock(&mutex_);
    threads = std::move(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  SSL_CTX_free(context_);
}

std::string TestServer::url() const {
  return fmt::format("{}://127.0.0.1:{}",
                     context_ == nullptr ? "http" : "https", port_);
}

void TestServer::Accept() {
  while (true) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) return;
    const MutexLock lock(&mutex_);
    if (stopping_) return;
    threads_.emplace_back(
        [this, moved = fd.Release()] { Serve(UniqueFd(moved)); });
  }
}

void TestServer::Serve(UniqueFd fd) {
  Connection connection(std::move(fd), context_);
  {
    const MutexLock lock(&mutex_);
    if (stopping_) return;
    open_.push_back(&connection);
  }
  connections_.fetch_add(1);
  TestRequest request;
  if (connection.Handshake())
    while (connection.Read(request) && handler_(request, connection)) {
    }
  const MutexLock lock(&mutex_);
  std::erase(open_, &connection);
}

}  // namespace tidepool::kube::testing
