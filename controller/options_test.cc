#include "controller/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tidepool::controller {
namespace {

using ::testing::HasSubstr;

StatusOr<std::optional<ControllerOptions>> Parse(
    std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tidepool-controller");
  return ParseControllerOptions(static_cast<int>(arguments.size()),
                                arguments.data());
}

TEST(ControllerOptionsTest, TakesItsFlags) {
  const auto options = Parse({"--watch-namespace=models", "--metrics-port=9090",
                              "--leader-elect=false", "--reconcile-threads=16",
                              "--lease-namespace=leases", "--log-format=json"});
  ASSERT_TRUE(options.ok()) << options.status();
  ASSERT_TRUE(options->has_value());
  EXPECT_EQ((*options)->watch_namespace, "models");
  EXPECT_EQ((*options)->metrics_port, 9090);
  EXPECT_FALSE((*options)->leader_elect);
  EXPECT_EQ((*options)->reconcile_threads, 16);
  EXPECT_EQ((*options)->lease_namespace, "leases");
  EXPECT_EQ((*options)->log.format, "json");
  EXPECT_EQ((*options)->metrics_host, "") << "all addresses";
}

TEST(ControllerOptionsTest, NamesWhatIsWrong) {
  for (const auto& [arguments, named] :
       std::vector<std::pair<std::vector<const char*>, const char*>>{
           {{"--metrics-port=70000"}, "--metrics-port"},
           {{"--reconcile-threads=0"}, "--reconcile-threads"},
           {{"--image-repository="}, "--image-repository"},
           {{"--lease-name="}, "--lease-name"},
           {{"--log-level=loud"}, "--log-level"},
           {{"--kubconfig=x"}, "--kubconfig"},
           {{"--check-install", "--check-uninstall"}, "--check-uninstall"}})
    EXPECT_THAT(Parse(arguments).status().ToString(), HasSubstr(named));
}

}  // namespace
}  // namespace tidepool::controller
