#include "dataplane/cli/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>

#include <thread>

namespace tidepool::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Everything a child prints until its end, and how it ended.
struct Outcome {
  std::vector<std::string> lines;
  std::string end;
};

Outcome RunToEnd(ChildProcess& child) {
  Outcome outcome;
  const auto keep = [&](std::string_view line) {
    outcome.lines.emplace_back(line);
  };
  pollfd fd = {.fd = child.output_fd(), .events = POLLIN};
  while (poll(&fd, 1, -1) > 0 && child.ReadLines(keep)) {
  }
  std::optional<std::string> end;
  while (!(end = child.Reap())) std::this_thread::yield();
  outcome.end = *end;
  return outcome;
}

TEST(ChildProcessTest, OutputComesByLinesTheLastOneToo) {
  auto child = ChildProcess::Start(
      {"/bin/sh", "-c", "echo one; echo two >&2; printf three"});
  ASSERT_TRUE(child.ok()) << child.status();
  const Outcome outcome = RunToEnd(*child);
  EXPECT_THAT(outcome.lines, ElementsAre("one", "two", "three"));
  EXPECT_EQ(outcome.end, "exited with 0");
}

TEST(ChildProcessTest, SaysHowItEnded) {
  auto failing = ChildProcess::Start({"/bin/sh", "-c", "exit 3"});
  ASSERT_TRUE(failing.ok());
  EXPECT_EQ(RunToEnd(*failing).end, "exited with 3");
  auto killed = ChildProcess::Start({"/bin/sh", "-c", "kill -9 $$"});
  ASSERT_TRUE(killed.ok());
  EXPECT_THAT(RunToEnd(*killed).end, HasSubstr("killed by signal 9"));
}

TEST(ChildProcessTest, AMissingProgramIsAnError) {
  const auto child = ChildProcess::Start({"/does/not/exist"});
  EXPECT_EQ(child.status().code(), Code::kNotFound);
  EXPECT_THAT(child.status().ToString(), HasSubstr("/does/not/exist"));
}

TEST(ChildProcessTest, ALongLineIsCut) {
  auto child = ChildProcess::Start(
      {"/bin/sh", "-c", "head -c 40000 /dev/zero | tr '\\0' x"});
  ASSERT_TRUE(child.ok());
  const Outcome outcome = RunToEnd(*child);
  ASSERT_EQ(outcome.lines.size(), 3u);
  EXPECT_EQ(outcome.lines[0].size(), 16384u);
}

// Whoever supervises it has other things to do, too.
TEST(ChildProcessTest, OneThatNeverStopsTalkingIsReadInTurns) {
  auto child = ChildProcess::Start({"/usr/bin/yes", std::string(100, 'y')});
  ASSERT_TRUE(child.ok()) << child.status();
  size_t bytes = 0;
  const auto count = [&](std::string_view line) { bytes += line.size() + 1; };
  for (int turn = 0; turn < 100; ++turn) {
    const size_t before = bytes;
    EXPECT_TRUE(child->ReadLines(count));
    EXPECT_LE(bytes - before, size_t{300} << 10);
  }
  child->Signal(SIGKILL);
  EXPECT_THAT(RunToEnd(*child).end, HasSubstr("killed by signal 9"));
}

TEST(ChildProcessTest, SignalsReachIt) {
  auto child = ChildProcess::Start({"/bin/sleep", "1000"});
  ASSERT_TRUE(child.ok());
  child->Signal(SIGTERM);
  EXPECT_THAT(RunToEnd(*child).end, HasSubstr("killed by signal 15"));
}

}  // namespace
}  // namespace tidepool::cli
