#include "dataplane/model/hub_download.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>

#include "dataplane/model/fake_hub.h"
#include "dataplane/model/part_file.h"
#include "dataplane/model/scripted_http_server.h"
#include "dataplane/model/test_util.h"

namespace tidepool::model {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;

namespace fs = std::filesystem;

class HubDownloadTest : public ::testing::Test {
 protected:
  HubDownloadTest() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    options_.endpoint = hub_.url();
    options_.cache_folder = cache_.path();
    options_.wait = [this](Duration wait, const std::stop_token&) {
      waits_.push_back(wait);
    };
  }

  StatusOr<std::string> Download(const std::string& revision = "main") {
    return DownloadModel({"acme/tiny", revision}, options_);
  }

  void ExpectFile(const std::string& folder, const std::string& name) {
    std::ifstream in(folder + "/" + name, std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    EXPECT_EQ(content == hub_.File(name), true)
        << name << " has " << content.size() << " other bytes";
  }

  // Finished files, anywhere in the cache.
  std::set<std::string> Published() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(cache_.path())) {
      const bool in_snapshot =
          entry.path().string().find("/snapshots/") != std::string::npos;
      if (in_snapshot && entry.is_regular_file())
        names.insert(entry.path().filename());
    }
    return names;
  }

  static FakeHub::Fault Answer(int status) {
    return [status](const auto&, ScriptedReply& reply) {
      reply = {.status = status};
    };
  }
  static FakeHub::Fault CutAfter(size_t bytes) {
    return
        [bytes](const auto&, ScriptedReply& reply) { reply.cut_after = bytes; };
  }

  FakeHub hub_;
  TempFolder cache_;
  HubOptions options_;
  std::vector<Duration> waits_;
};

TEST_F(HubDownloadTest, FetchesWhatAModelNeedsAndNothingElse) {
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  for (const char* name :
       {"config.json", "tokenizer.json", "model.safetensors"}) {
    ExpectFile(*folder, name);
  }
  EXPECT_THAT(hub_.RequestedFiles(),
              ElementsAre("listing", "config.json", "tokenizer.json",
                          "model.safetensors"));
  EXPECT_THAT(waits_, IsEmpty());
}

TEST_F(HubDownloadTest, AsksOnlyForTheRevisionWhenAllIsThere) {
  ASSERT_TRUE(Download().ok());
  const size_t before = hub_.requests().size();
  ASSERT_TRUE(Download().ok());
  EXPECT_EQ(hub_.requests().size(), before + 1);
}

TEST_F(HubDownloadTest, AsksNothingForAKnownCommit) {
  const auto first = Download(kFakeCommit);
  ASSERT_TRUE(first.ok()) << first.status();
  const size_t before = hub_.requests().size();
  const auto second = Download(kFakeCommit);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(hub_.requests().size(), before);
}

TEST_F(HubDownloadTest, FetchesAgainWhatWasLostFromASnapshot) {
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  fs::resize_file(*folder + "/model.safetensors", 10);
  ASSERT_TRUE(Download().ok());
  ExpectFile(*folder, "model.safetensors");
  EXPECT_THAT(hub_.RequestsOf("config.json"), SizeIs(1));
}

TEST_F(HubDownloadTest, WithoutWeightsFetchesOnlyTheDescription) {
  options_.weights = false;
  ASSERT_TRUE(Download().ok());
  EXPECT_THAT(hub_.RequestsOf("model.safetensors"), IsEmpty());
  options_.weights = true;
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  EXPECT_THAT(hub_.RequestsOf("config.json"), SizeIs(1));
}

TEST_F(HubDownloadTest, GoesOnWhereTheConnectionBroke) {
  hub_.AddFault("model.safetensors", CutAfter(100'000));
  hub_.AddFault("model.safetensors", CutAfter(50'000));
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  const auto requests = hub_.RequestsOf("model.safetensors");
  ASSERT_THAT(requests, SizeIs(3));
  EXPECT_THAT(requests[0].headers, Not(Contains(Key("range"))));
  EXPECT_EQ(requests[1].headers.at("range"), "bytes=100000-");
  EXPECT_EQ(requests[2].headers.at("range"), "bytes=150000-");
  EXPECT_THAT(waits_, SizeIs(2));
}

TEST_F(HubDownloadTest, GoesOnWhereAnEarlierProcessStopped) {
  options_.retry.failures_max = 1;
  hub_.AddFault("model.safetensors", CutAfter(70'000));
  EXPECT_EQ(Download().status().code(), Code::kUnavailable);
  EXPECT_THAT(Published(), Not(Contains("model.safetensors")));
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  EXPECT_EQ(hub_.RequestsOf("model.safetensors")[1].headers.at("range"),
            "bytes=70000-");
}

TEST_F(HubDownloadTest, StartsOverWhenTheServerIgnoresTheRange) {
  hub_.AddFault("model.safetensors", CutAfter(70'000));
  hub_.AddFault("model.safetensors", [&](const auto&, ScriptedReply& reply) {
    reply = {.body = hub_.File("model.safetensors")};
  });
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  EXPECT_THAT(hub_.RequestsOf("model.safetensors"), SizeIs(2));
}

TEST_F(HubDownloadTest, StartsOverAfterARefusedOrMistakenRange) {
  hub_.AddFault("model.safetensors", CutAfter(70'000));
  hub_.AddFault("model.safetensors", Answer(416));
  hub_.AddFault("model.safetensors", CutAfter(60'000));
  hub_.AddFault("model.safetensors", [](const auto&, ScriptedReply& reply) {
    reply.headers = {{"Content-Range", "bytes 10-199999/200000"}};
  });
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  const auto requests = hub_.RequestsOf("model.safetensors");
  ASSERT_THAT(requests, SizeIs(5));
  EXPECT_THAT(requests[2].headers, Not(Contains(Key("range"))));
  EXPECT_THAT(requests[4].headers, Not(Contains(Key("range"))));
}

TEST_F(HubDownloadTest, DamagedBytesAreFetchedOnceMore) {
  hub_.AddFault("model.safetensors", [](const auto&, ScriptedReply& reply) {
    reply.body[1234] ^= 1;
  });
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  EXPECT_THAT(hub_.RequestsOf("model.safetensors"), SizeIs(2));
}

TEST_F(HubDownloadTest, BytesThatNeverMatchAreNeverPublished) {
  for (const std::string name : {"config.json", "model.safetensors"}) {
    SCOPED_TRACE(name);
    for (int i = 0; i < 2; ++i) {
      hub_.AddFault(
          name, [](const auto&, ScriptedReply& reply) { reply.body[3] ^= 1; });
    }
    const Status status = Download().status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << status;
    EXPECT_THAT(MessageOf(status),
                AllOf(HasSubstr("hf:acme/tiny@main"), HasSubstr(name),
                      HasSubstr("the hub names")));
    EXPECT_THAT(Published(), Not(Contains(name)));
  }
}

TEST_F(HubDownloadTest, AnAnnouncedHashOtherThanTheListedIsRefused) {
  hub_.AddFault("model.safetensors", [](const auto&, ScriptedReply& reply) {
    reply.headers = {{"X-Linked-Etag", "\"" + std::string(64, 'a') + "\""}};
    reply.cut_after = 0;
  });
  hub_.AddFault("model.safetensors", [](const auto&, ScriptedReply& reply) {
    reply.headers = {{"X-Linked-Etag", "\"" + std::string(64, 'b') + "\""}};
  });
  const Status status = Download().status();
  EXPECT_EQ(status.code(), Code::kDataLoss) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("the hub offers bbbb"));
}

TEST_F(HubDownloadTest, RefusalsAreExplainedAndNotRepeated) {
  struct Case {
    int http_status;
    Code code;
    const char* message;
  };
  for (const Case& test :
       {Case{401, Code::kPermissionDenied, "HF_TOKEN is not"},
        Case{403, Code::kPermissionDenied, "answered 403"},
        Case{404, Code::kNotFound, "no such repository"},
        Case{400, Code::kFailedPrecondition, "answered 400"},
        Case{302, Code::kFailedPrecondition, "without a location"}}) {
    const size_t before = hub_.requests().size();
    hub_.AddFault("listing", Answer(test.http_status));
    const Status status = Download().status();
    EXPECT_EQ(status.code(), test.code) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(test.message));
    EXPECT_THAT(MessageOf(status), HasSubstr("hf:acme/tiny@main"));
    EXPECT_EQ(hub_.requests().size(), before + 1);
  }
}

TEST_F(HubDownloadTest, WaitsAsLongAsABusyServerAsks) {
  hub_.AddFault("listing", [](const auto&, ScriptedReply& reply) {
    reply = {.status = 429, .headers = {{"Retry-After", "7"}}};
  });
  hub_.AddFault("config.json", Answer(500));
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_THAT(waits_, SizeIs(2));
  EXPECT_EQ(waits_[0], std::chrono::seconds(7));
  EXPECT_LE(waits_[1], options_.retry.first_wait);
}

TEST_F(HubDownloadTest, GivesUpAfterRepeatedFailures) {
  for (int i = 0; i < 20; ++i) hub_.AddFault("config.json", Answer(503));
  const Status status = Download().status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("gave up after 6 attempts"));
  EXPECT_THAT(hub_.RequestsOf("config.json"), SizeIs(6));
}

TEST_F(HubDownloadTest, StopsAtItsDeadline) {
  ManualClock clock;
  options_.clock = &clock;
  options_.timeout = std::chrono::seconds(10);
  options_.retry.failures_max = 1000;
  options_.wait = [&](Duration wait, const std::stop_token&) {
    clock.Advance(wait);
  };
  for (int i = 0; i < 100; ++i) hub_.AddFault("config.json", Answer(503));
  const Status status = Download().status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status;
  EXPECT_LE(clock.Now().time_since_epoch(), options_.timeout);
}

TEST_F(HubDownloadTest, CanBeCancelled) {
  std::stop_source source;
  options_.stop = source.get_token();
  options_.progress = [&](const DownloadProgress&) { source.request_stop(); };
  EXPECT_EQ(Download().status().code(), Code::kCancelled);
}

TEST_F(HubDownloadTest, ASilentConnectionIsGivenUp) {
  options_.stall_timeout = std::chrono::milliseconds(100);
  hub_.AddFault("model.safetensors", [](const auto&, ScriptedReply& reply) {
    reply.cut_after = 1000;
    reply.hang = true;
  });
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(hub_.RequestsOf("model.safetensors")[1].headers.at("range"),
            "bytes=1000-");
}

TEST_F(HubDownloadTest, TheTokenStaysWithTheEndpoint) {
  options_.token = "secret";
  ScriptedHttpServer storage([&](const ScriptedRequest&) {
    return ScriptedReply{.body = hub_.File("model.safetensors")};
  });
  hub_.AddFault("model.safetensors", [&](const auto&, ScriptedReply& reply) {
    reply = {.status = 302,
             .headers = {{"Location", storage.url() + "/x?sig=1"}}};
  });
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  for (const auto& request : hub_.requests())
    EXPECT_EQ(request.headers.at("authorization"), "Bearer secret");
  ASSERT_THAT(storage.requests(), SizeIs(1));
  EXPECT_EQ(storage.requests()[0].target, "/x?sig=1");
  EXPECT_THAT(storage.requests()[0].headers,
              Not(Contains(Key("authorization"))));
}

TEST_F(HubDownloadTest, RelativeRedirectsKeepTheRange) {
  hub_.AddFault("model.safetensors", CutAfter(70'000));
  hub_.AddFault("model.safetensors", [](const ScriptedRequest& request,
                                        ScriptedReply& reply) {
    reply = {.status = 307, .headers = {{"Location", request.target}}};
  });
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "model.safetensors");
  EXPECT_EQ(hub_.RequestsOf("model.safetensors")[2].headers.at("range"),
            "bytes=70000-");
}

TEST_F(HubDownloadTest, EndlessAndForeignRedirectsAreRefused) {
  for (const auto& [location, message] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {"/again", "more than 5 redirects"},
           {"file:///etc/passwd", "neither http nor https"},
           {"http://user:password@127.0.0.1/", "user or password"}}) {
    for (int i = 0; i < 6; ++i) {
      const auto redirect = [to = location](const auto&, ScriptedReply& reply) {
        reply = {.status = 302, .headers = {{"Location", to}}};
      };
      hub_.AddFault(i == 0 ? "config.json" : "again", redirect);
    }
    const Status status = Download().status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
  }
}

TEST_F(HubDownloadTest, SizesOtherThanListedAreRefused) {
  options_.retry.failures_max = 2;
  hub_.LieAboutSize("config.json", 5);
  EXPECT_EQ(Download().status().code(), Code::kDataLoss);
  hub_.LieAboutSize("config.json", 5000);
  EXPECT_EQ(Download().status().code(), Code::kUnavailable);
  EXPECT_THAT(Published(), IsEmpty());
}

TEST_F(HubDownloadTest, RefusesWhatCannotFitBeforeTheFirstByte) {
  hub_.LieAboutSize("model.safetensors", uint64_t{1} << 60);
  Status status = Download().status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("over the limit of"));

  options_.bytes_max = uint64_t{1} << 62;
  status = Download().status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("free"));
  EXPECT_THAT(hub_.RequestsOf("model.safetensors"), IsEmpty());

  hub_.LieAboutSize("tokenizer.json", uint64_t{1} << 30);
  status = Download().status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("tokenizer.json"));
}

TEST_F(HubDownloadTest, FetchesTheShardsThatTheIndexNames) {
  hub_.RemoveFile("model.safetensors");
  hub_.SetFile("a.safetensors", "aaa");
  hub_.SetFile("b.safetensors", "bbb");
  hub_.SetFile("c.safetensors", "of another model");
  hub_.SetFile("model.safetensors.index.json",
               R"({"weight_map":{"x":"b.safetensors","y":"a.safetensors",)"
               R"("z":"b.safetensors"}})");
  const auto folder = Download();
  ASSERT_TRUE(folder.ok()) << folder.status();
  ExpectFile(*folder, "a.safetensors");
  ExpectFile(*folder, "b.safetensors");
  EXPECT_THAT(hub_.RequestsOf("c.safetensors"), IsEmpty());
}

TEST_F(HubDownloadTest, RefusesABrokenIndex) {
  hub_.RemoveFile("model.safetensors");
  hub_.SetFile("model.safetensors.index.json",
               R"({"weight_map":{"x":"gone.safetensors"}})");
  Status status = Download().status();
  EXPECT_EQ(status.code(), Code::kNotFound) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("gone.safetensors"));

  hub_.SetFile("model.safetensors.index.json",
               R"({"weight_map":{"x":"../../x.safetensors"}})");
  fs::remove_all(cache_.Path(""));
  status = Download().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
}

TEST_F(HubDownloadTest, SaysWhatARepositoryLacks) {
  hub_.RemoveFile("model.safetensors");
  EXPECT_THAT(MessageOf(Download().status()),
              HasSubstr("has no weights as safetensors"));
  hub_.RemoveFile("config.json");
  EXPECT_THAT(MessageOf(Download().status()), HasSubstr("no config.json"));
}

TEST_F(HubDownloadTest, RefusesABrokenListing) {
  for (const std::string body :
       {"", "[]", "{}", R"({"sha":"main","siblings":[]})",
        R"({"sha":"../../../x","siblings":[]})"}) {
    hub_.AddFault("listing", [body](const auto&, ScriptedReply& reply) {
      reply.body = body;
    });
    EXPECT_EQ(Download().status().code(), Code::kInvalidArgument) << body;
  }
}

TEST_F(HubDownloadTest, AnUnreachableHubMeansTheEarlierDownload) {
  options_.retry.failures_max = 2;
  auto hub = std::make_unique<FakeHub>();
  options_.endpoint = hub->url();
  const auto online = Download();
  ASSERT_TRUE(online.ok()) << online.status();
  hub.reset();
  const auto offline = Download();
  ASSERT_TRUE(offline.ok()) << offline.status();
  EXPECT_EQ(*online, *offline);
  EXPECT_EQ(Download("other").status().code(), Code::kUnavailable);
}

TEST_F(HubDownloadTest, TwoAtOnceDownloadOnce) {
  options_.wait = WaitFor;
  StatusOr<std::string> folders[2];
  {
    std::vector<std::jthread> threads;
    for (auto& folder : folders)
      threads.emplace_back([&] { folder = Download(); });
  }
  for (const auto& folder : folders) {
    ASSERT_TRUE(folder.ok()) << folder.status();
    ExpectFile(*folder, "model.safetensors");
  }
  EXPECT_THAT(hub_.RequestsOf("model.safetensors"), SizeIs(1));
}

TEST_F(HubDownloadTest, ProgressGrowsToTheWhole) {
  std::vector<DownloadProgress> reports;
  options_.progress = [&](const DownloadProgress& report) {
    reports.push_back(report);
  };
  ASSERT_TRUE(Download().ok());
  ASSERT_THAT(reports, SizeIs(Ge(3u)));
  for (size_t i = 1; i < reports.size(); ++i)
    EXPECT_GE(reports[i].bytes, reports[i - 1].bytes);
  EXPECT_EQ(reports.back().bytes, reports.back().size);
  EXPECT_EQ(reports.back().file, "model.safetensors");
  EXPECT_EQ(reports.back().file_bytes, 200'000u);
}

TEST_F(HubDownloadTest, RefusesEndpointsAndTokensThatCannotBe) {
  for (const auto& [endpoint, token, message] :
       std::initializer_list<std::array<const char*, 3>>{
           {"ftp://example.com", "", "neither http nor https"},
           {"not a url", "", "HF_ENDPOINT"},
           {"http://u:p@example.com", "", "user or password"},
           {"https://example.com?x", "", "has a query"},
           {"http://example.com", "secret", "over plain HTTP"},
           {"http://127.example.com", "secret", "over plain HTTP"},
           {"https://example.com", "se\r\ncret", "HF_TOKEN"}}) {
    options_.endpoint = endpoint;
    options_.token = token;
    const Status status = Download().status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
    EXPECT_THAT(MessageOf(status), Not(HasSubstr("cret\"")));
  }
}

TEST(PartFileTest, HashesAsGitDoes) {
  const TempFolder folder;
  // `git hash-object` says so of "hello\n".
  const HubFile target{.path = "hello",
                       .size = 6,
                       .hash_kind = HubHash::kGitSha1,
                       .hash = "ce013625030ba8dba906f756967f9e9ca394464a"};
  auto part = PartFile::Open(folder.Path("part"), target);
  ASSERT_TRUE(part.ok()) << part.status();
  const std::string content = "hello\n";
  ASSERT_TRUE(part->Append(std::as_bytes(std::span(content))).ok());
  EXPECT_TRUE(part->Publish(folder.Path("hello")).ok());
  EXPECT_EQ(folder.Read("hello"), content);
}

TEST(PartFileTest, NoRoomIsAnErrorOfItsOwn) {
  const TempFolder folder;
  auto part =
      PartFile::Open(folder.Path("part"), {.path = "x", .size = 1 << 20});
  ASSERT_TRUE(part.ok()) << part.status();
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 4096, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::vector<std::byte> bytes(8192);
  const Status status = part->Append(bytes);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("after 4096 of 1048576 bytes"));
}

TEST(PartFileTest, AnOverlongPartStartsAfresh) {
  const TempFolder folder;
  folder.Write("part", "much too long");
  const auto part =
      PartFile::Open(folder.Path("part"), {.path = "x", .size = 4});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->size(), 0u);
  EXPECT_EQ(folder.Read("part"), "");
}

}  // namespace
}  // namespace tidepool::model
