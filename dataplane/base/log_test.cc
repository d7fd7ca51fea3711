#include "dataplane/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kMessage[] = "a \"name\"\n2026 E forged\\";

std::string Logged(const LogOptions& options, std::string_view message) {
  EXPECT_TRUE(InitLogging(options).ok());
  ::testing::internal::CaptureStderr();
  LOG_INFO("{}", message);
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, AMessageIsOneLineOfText) {
  EXPECT_THAT(Logged({.format = "text"}, kMessage),
              MatchesRegex("[^ \n]+ I a \"name\".u000a2026 E forged.\n"));
}

TEST(LogTest, AMessageIsOneLineOfJson) {
  EXPECT_THAT(Logged({.format = "json"}, kMessage),
              HasSubstr("\"message\":"
                        "\"a \\\"name\\\"\\u000a2026 E forged\\\\\"}\n"));
}

TEST(LogTest, WhatIsBelowTheLevelIsSilent) {
  EXPECT_EQ(Logged({.level = "warning"}, kMessage), "");
}

TEST(LogTest, RefusesUnknownOptionsByName) {
  EXPECT_THAT(std::string(MessageOf(InitLogging({.level = "loud"}))),
              HasSubstr("log-level"));
  EXPECT_THAT(std::string(MessageOf(InitLogging({.format = "xml"}))),
              HasSubstr("log-format"));
}

}  // namespace
}  // namespace tidepool
