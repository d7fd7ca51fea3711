#include "dataplane/model/hub_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/model/http_get.h"

namespace tidepool::model {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(HubModelTest, ParsesRepositoryAndRevision) {
  const auto plain = ParseHubModel("Qwen/Qwen2.5-0.5B");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->repository, "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(plain->revision, "main");
  const auto revised = ParseHubModel("a_b/c@refs/pr/12");
  ASSERT_TRUE(revised.ok()) << revised.status();
  EXPECT_EQ(revised->repository, "a_b/c");
  EXPECT_EQ(revised->revision, "refs/pr/12");
}

TEST(HubModelTest, RefusesNamesThatCouldMeanSomethingElse) {
  for (const std::string text :
       {"",       "gpt2",     "/b",     "a/",     "a/b/c",    "../b",
        "a/..",   "a/b..c",   "a/-b",   "a/b-",   "a/b--c",   "a/b c",
        "a/b?x",  "a/b#x",    "a/b%2f", "a\\b/c", "a/b\n",    "a/\xc3\xa9",
        "a/b@",   "a/b@../x", "a/b@/x", "a/b@x/", "a/b@x//y", "a/b@x y",
        "a/b@-x", "a/b@x?y",  "a/b@c@d"}) {
    EXPECT_EQ(ParseHubModel(text).status().code(), Code::kInvalidArgument)
        << text;
  }
  EXPECT_FALSE(ParseHubModel("a/" + std::string(97, 'b')).ok());
  EXPECT_FALSE(ParseHubModel("a/b@" + std::string(121, 'c')).ok());
}

TEST(HubListingTest, KeepsFilesThatCanBeCheckedOnly) {
  const std::string sha1(40, 'a'), sha256(64, 'b');
  const auto listing = ParseHubListing(fmt::format(
      R"({{"sha":"{0}","siblings":[
        {{"rfilename":"config.json","size":12,"blobId":"{0}"}},
        {{"rfilename":"w.safetensors","size":9,"blobId":"{0}",
          "lfs":{{"sha256":"{1}","size":99,"pointerSize":1}}}},
        {{"rfilename":"no_size.json","blobId":"{0}"}},
        {{"rfilename":"no_hash.json","size":1}},
        {{"rfilename":"bad_hash.json","size":1,"blobId":"xyz"}},
        {{"rfilename":"sub/file.json","size":1,"blobId":"{0}"}},
        {{"rfilename":"../up.json","size":1,"blobId":"{0}"}},
        {{"rfilename":".hidden","size":1,"blobId":"{0}"}}]}})",
      sha1, sha256));
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->commit, sha1);
  ASSERT_THAT(listing->files, SizeIs(2));
  const HubFile* config = listing->Find("config.json");
  ASSERT_NE(config, nullptr);
  EXPECT_EQ(config->size, 12u);
  EXPECT_EQ(config->hash_kind, HubHash::kGitSha1);
  EXPECT_EQ(config->hash, sha1);
  const HubFile* weights = listing->Find("w.safetensors");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->size, 99u);
  EXPECT_EQ(weights->hash_kind, HubHash::kSha256);
  EXPECT_EQ(weights->hash, sha256);
}

TEST(HubListingTest, RefusesWrongTypesByName) {
  const std::string sha1(40, 'a');
  for (const auto& [siblings, message] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {"3", "siblings"},
           {"[3]", "siblings"},
           {R"([{"rfilename":3}])", "siblings.rfilename"},
           {R"([{"rfilename":"a","size":-1}])", "siblings.size: -1"},
           {R"([{"rfilename":"a","lfs":1}])", "siblings.lfs"}}) {
    const Status status =
        ParseHubListing(
            fmt::format(R"({{"sha":"{}","siblings":{}}})", sha1, siblings))
            .status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(MessageOf(status), HasSubstr(message));
  }
}

TEST(HubUrlTest, PartsAreEncoded) {
  EXPECT_EQ(ListingUrl("https://h", {"a/b", "refs/pr/1"}),
            "https://h/api/models/a/b/revision/refs%2Fpr%2F1?blobs=true");
  EXPECT_EQ(FileUrl("https://h/mirror", "a/b", "c0", "x y+z.json"),
            "https://h/mirror/a/b/resolve/c0/x%20y%2Bz.json");
  EXPECT_EQ(PercentEncode("a-._~/\xff%"), "a-._~%2F%FF%25");
}

TEST(UrlTest, ResolvesReferencesAgainstTheRequest) {
  const std::string base = "https://h:1/a/b?q";
  EXPECT_EQ(*ResolveUrl(base, "/x?y"), "https://h:1/x?y");
  EXPECT_EQ(*ResolveUrl(base, "c"), "https://h:1/a/c");
  EXPECT_EQ(*ResolveUrl(base, "http://other/x"), "http://other/x");
}

TEST(UrlTest, OriginsCompareWithTheirDefaultPorts) {
  EXPECT_EQ(*OriginOf("https://H.example/a"),
            *OriginOf("https://h.example:443"));
  EXPECT_FALSE(*OriginOf("https://h.example") == *OriginOf("http://h.example"));
  EXPECT_FALSE(*OriginOf("http://h:1") == *OriginOf("http://h:2"));
  EXPECT_TRUE(OriginOf("http://127.1.2.3:80")->IsLoopback());
  EXPECT_TRUE(OriginOf("http://localhost")->IsLoopback());
  EXPECT_TRUE(OriginOf("http://[::1]:8080")->IsLoopback());
  EXPECT_FALSE(OriginOf("http://127.0.0.1.example.com")->IsLoopback());
  EXPECT_FALSE(OriginOf("http://10.0.0.1")->IsLoopback());
}

}  // namespace
}  // namespace tidepool::model
