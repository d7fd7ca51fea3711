#include "controller/reconcilers/hub_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "controller/kube/resource_types.h"
#include "dataplane/base/notification.h"
#include "tests/fakes/api_server.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::HasSubstr;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";
constexpr char kListing[] =
    "https://hub/api/models/org/name/revision/main?blobs=true";
const std::string kConfig =
    std::string("https://hub/org/name/resolve/") + kCommit + "/config.json";

class FakeHub final : public HttpFetcher {
 public:
  StatusOr<FetchedPage> Get(const std::string& url, const std::string& token,
                            size_t) override {
    if (token != wanted_token) return FetchedPage{.code = 401};
    const auto found = pages.find(url);
    if (found == pages.end()) return FetchedPage{.code = 404};
    return found->second;
  }
  std::string wanted_token;
  std::map<std::string, StatusOr<FetchedPage>> pages;
};

FakeHub Hub() {
  FakeHub hub;
  hub.pages[kListing] = FetchedPage{
      200, std::string(R"({"sha": ")") + kCommit + R"(", "siblings": [
        {"rfilename": "model-1.safetensors", "size": 1000},
        {"rfilename": "model-2.safetensors", "size": 3000},
        {"rfilename": "consolidated.safetensors", "size": 4000},
        {"rfilename": "original/model.safetensors", "size": 900000},
        {"rfilename": "README.md", "size": 77}]})"};
  hub.pages[kConfig] = FetchedPage{200, R"({"num_hidden_layers": 2,
      "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64,
      "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})"};
  return hub;
}

TEST(FetchHubModelTest, ResolvesARevisionAndAddsUpTheWeights) {
  FakeHub hub = Hub();
  const auto facts = FetchHubModel(hub, "https://hub", "", "org/name", "main");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->commit, kCommit);
  EXPECT_EQ(facts->as_stored->weight_bytes, 4000u);
  EXPECT_EQ(facts->as_stored->kv_bytes_per_token, 2u * 2 * 2 * 8 * 2);
  EXPECT_EQ(facts->as_stored->context_tokens, 4096u);
  EXPECT_EQ(facts->as_float32->weight_bytes, 8000u);
}

// Workers load nothing beside it.
TEST(FetchHubModelTest, OneFileOfWeightsIsAllOfThem) {
  FakeHub hub = Hub();
  hub.pages[kListing] = FetchedPage{
      200, std::string(R"({"sha": ")") + kCommit + R"(", "siblings": [
        {"rfilename": "model-1.safetensors", "size": 1000},
        {"rfilename": "model.safetensors", "size": 700}]})"};
  const auto facts = FetchHubModel(hub, "https://hub", "", "org/name", "main");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->as_stored->weight_bytes, 700u);
}

// Otherwise whoever may not see it any more would restart fleets, with other
// memory.
TEST(FetchHubModelTest, AConfigurationThatIsNotForItsTokenIsAnError) {
  FakeHub hub = Hub();
  hub.wanted_token = "hf_secret";
  hub.pages[kConfig] = FetchedPage{.code = 403};
  const Status refused =
      FetchHubModel(hub, "https://hub", "hf_secret", "org/name", "main")
          .status();
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("not for this token"));
}

TEST(FetchHubModelTest, AGatedConfigurationLeavesTheCommit) {
  FakeHub hub = Hub();
  hub.pages[kConfig] = FetchedPage{.code = 401};
  const auto facts = FetchHubModel(hub, "https://hub", "", "org/name", "main");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->commit, kCommit);
  EXPECT_FALSE(facts->as_stored.has_value());
}

TEST(FetchHubModelTest, BadAnswersAreErrors) {
  const auto code = [](const StatusOr<FetchedPage>& page) {
    FakeHub hub = Hub();
    hub.pages[kListing] = page;
    return FetchHubModel(hub, "https://hub", "", "org/name", "main")
        .status()
        .code();
  };
  EXPECT_EQ(code(FetchedPage{404, ""}), Code::kNotFound);
  EXPECT_EQ(code(FetchedPage{503, ""}), Code::kUnavailable);
  EXPECT_EQ(code(Unavailable("no route")), Code::kUnavailable);
  EXPECT_EQ(code(FetchedPage{200, "<html>"}), Code::kInvalidArgument);
  EXPECT_EQ(code(FetchedPage{200, R"({"sha": "../../x"})"}),
            Code::kInvalidArgument);
  EXPECT_EQ(
      code(FetchedPage{200, std::string(R"({"sha": ")") + kCommit + R"("})"}),
      Code::kInvalidArgument);
}

class HubCatalogTest : public ::testing::Test {
 protected:
  ModelState Ask(HubCatalog& catalog, const std::string& pinned = "") {
    return catalog.Lookup({"models", "demo"}, spec_, pinned);
  }

  HubCatalogTest() {
    spec_.model.source = ModelSpec::Source::kHub;
    spec_.model.repository = "org/name";
  }
  KVCachePoolSpec spec_;
  ManualClock clock_;
  fakes::ApiServer server_{{}, clock_};
  Notification known_;
};

TEST_F(HubCatalogTest, IsPendingUntilTheHubAnswers) {
  FakeHub hub = Hub();
  HubCatalog catalog("https://hub/", hub, server_, clock_,
                     [this](const kube::ObjectKey& family) {
                       EXPECT_EQ(family.name, "demo");
                       known_.Notify();
                     });
  const ModelState pending = Ask(catalog);
  EXPECT_EQ(pending.phase, ModelState::Phase::kPending);
  EXPECT_TRUE(pending.look_again.has_value());
  known_.Wait();
  const ModelState state = Ask(catalog);
  EXPECT_EQ(state.phase, ModelState::Phase::kReady);
  EXPECT_EQ(state.commit, kCommit);
  EXPECT_TRUE(state.figures.has_value());
  // By its commit it is known as well.
  EXPECT_EQ(Ask(catalog, kCommit).phase, ModelState::Phase::kReady);
}

TEST_F(HubCatalogTest, ShowsTheTokenThatTheModelNames) {
  FakeHub hub = Hub();
  hub.wanted_token = "hf_secret";
  spec_.model.token_secret = "hub";
  spec_.model.token_key = "token";
  ASSERT_TRUE(server_
                  .Create(kube::kSecret, "models",
                          {{"metadata", {{"name", "hub"}}},
                           {"data", {{"token", "aGZfc2VjcmV0Cg=="}}}})
                  .ok());
  HubCatalog catalog("https://hub", hub, server_, clock_,
                     [this](const kube::ObjectKey&) { known_.Notify(); });
  Ask(catalog);
  known_.Wait();
  EXPECT_EQ(Ask(catalog).phase, ModelState::Phase::kReady);
  EXPECT_TRUE(Ask(catalog).figures.has_value());
  // Nobody else knows by it.
  spec_.model.token_secret.clear();
  EXPECT_EQ(Ask(catalog).phase, ModelState::Phase::kPending);
}

TEST_F(HubCatalogTest, ATokenThatIsNoneIsSaid) {
  FakeHub hub = Hub();
  spec_.model.token_secret = "hub";
  spec_.model.token_key = "token";
  for (const auto& [data, what] :
       std::initializer_list<std::pair<Json, const char*>>{
           {nullptr, "hub not found"},
           {{{"other", "eA=="}}, "Secret models/hub has no token"},
           {{{"token", "YQpiCg=="}}, "token is no token"}}) {
    (void)server_.Delete(kube::kSecret, {"models", "hub"});
    if (data.is_object()) {
      const Json secret = {{"metadata", {{"name", "hub"}}}, {"data", data}};
      ASSERT_TRUE(server_.Create(kube::kSecret, "models", secret).ok());
    }
    Notification known;
    HubCatalog catalog("https://hub", hub, server_, clock_,
                       [&](const kube::ObjectKey&) { known.Notify(); });
    Ask(catalog);
    known.Wait();
    EXPECT_THAT(Ask(catalog).message, HasSubstr(what));
  }
}

TEST_F(HubCatalogTest, SaysWhyItFailed) {
  FakeHub hub;
  HubCatalog catalog("https://hub", hub, server_, clock_,
                     [this](const kube::ObjectKey&) { known_.Notify(); });
  Ask(catalog);
  known_.Wait();
  const ModelState state = Ask(catalog);
  EXPECT_EQ(state.phase, ModelState::Phase::kFailed);
  EXPECT_THAT(state.message, HasSubstr("no such model"));
  EXPECT_TRUE(state.look_again.has_value());
}

}  // namespace
}  // namespace tidepool::reconcilers
