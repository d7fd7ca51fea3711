#include "dataplane/base/socket_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <thread>

namespace tidepool {
namespace {

using ::testing::HasSubstr;

bool CanConnect(std::string_view host, uint16_t port) {
  const auto address = ResolveAddress(host, port);
  if (!address.ok()) return false;
  const UniqueFd fd(socket(address->storage.ss_family, SOCK_STREAM, 0));
  return fd && connect(fd.get(), address->raw(), address->length) == 0;
}

bool HasIpv6() {
  const auto listener = ListenTcp("::1", 0);
  return listener.ok();
}

// From now on this thread runs on a kernel without IPv6, as far as it can see.
bool LoseIpv6() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(SocketAddressTest, PutsIpv6InBrackets) {
  EXPECT_EQ(HostPort("pod.space", 80), "pod.space:80");
  EXPECT_EQ(HostPort("10.0.0.1", 80), "10.0.0.1:80");
  EXPECT_EQ(HostPort("fd00::1", 80), "[fd00::1]:80");
  EXPECT_EQ(HostPort("[fd00::1]", 80), "[fd00::1]:80");
  EXPECT_EQ(HostPort("", 80), ":80");
}

TEST(SocketAddressTest, AddressesAreTheSameAsTextAndBack) {
  for (const char* text : {"10.0.0.1:80", "[fd00::1]:65535"}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(ToText(*address), text);
  }
  EXPECT_FALSE(ParseAddress("localhost:80").ok());  // might wait
}

TEST(ListenTcpTest, AllAddressesAreThoseOfIpv6AndIpv4) {
  const auto listener = ListenTcp("::", 0);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const uint16_t port = *BoundPort(listener->get());
  EXPECT_TRUE(CanConnect("127.0.0.1", port));
  if (!HasIpv6()) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_TRUE(CanConnect("::1", port));
}

TEST(ListenTcpTest, WithoutIpv6AllAddressesAreThoseOfIpv4) {
  bool lost = false, connected = false;
  Status everywhere, loopback;
  std::thread([&] {
    lost = LoseIpv6();
    const auto listener = ListenTcp("::", 0);
    everywhere = listener.status();
    if (listener.ok())
      connected = CanConnect("127.0.0.1", *BoundPort(listener->get()));
    loopback = ListenTcp("::1", 0).status();
  }).join();
  if (!lost) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_TRUE(everywhere.ok()) << everywhere;
  EXPECT_TRUE(connected);
  // Only "all" may be less.
  EXPECT_THAT(loopback.message(), HasSubstr("[::1]:0"));
}

TEST(ListenTcpTest, SaysWhichPortIsTaken) {
  const auto first = ListenTcp("127.0.0.1", 0);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string port = std::to_string(*BoundPort(first->get()));
  const auto second = ListenTcp("127.0.0.1", *BoundPort(first->get()));
  EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.status().message(), HasSubstr("127.0.0.1:" + port));
  // All of this machine is no longer free either.
  EXPECT_EQ(ListenTcp("::", *BoundPort(first->get())).status().code(),
            Code::kAlreadyExists);
  EXPECT_EQ(ListenTcp("no address", 0).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool
