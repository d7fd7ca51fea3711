#include "dataplane/model/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "dataplane/model/test_util.h"

namespace tidepool::model {
namespace {

using ::testing::HasSubstr;

// Sets one variable, or removes it, until the end of the scope.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    Set(value);
  }
  ~ScopedVariable() { Set(old_.has_value() ? old_->c_str() : nullptr); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void Set(const char* value) const {
    value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1);
  }
  const char* name_;
  std::optional<std::string> old_;
};

StatusOr<std::string> Resolve(std::string_view text) {
  ASSIGN_OR_RETURN(const ModelSource source, ParseModelSource(text));
  return ResolveModel(source, HubOptions{});
}

TEST(ModelSourceTest, TellsTheThreeFormsApart) {
  EXPECT_TRUE(std::holds_alternative<DemoModel>(*ParseModelSource("demo")));
  EXPECT_EQ(std::get<LocalFolder>(*ParseModelSource("./demo")).path, "./demo");
  const auto hub = ParseModelSource("hf:acme/tiny@v1");
  ASSERT_TRUE(hub.ok()) << hub.status();
  EXPECT_EQ(std::get<HubModel>(*hub).repository, "acme/tiny");
  EXPECT_EQ(std::get<HubModel>(*hub).revision, "v1");
}

TEST(ModelSourceTest, RefusesBrokenNames) {
  EXPECT_EQ(ParseModelSource("").status().code(), Code::kInvalidArgument);
  const Status status = ParseModelSource("hf:../etc").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("--model hf:../etc"));
}

TEST(ModelSourceTest, AFolderMustHoldAModel) {
  const TempFolder folder;
  const Status empty = Resolve(folder.path()).status();
  EXPECT_EQ(empty.code(), Code::kNotFound);
  EXPECT_THAT(MessageOf(empty), HasSubstr("no config.json"));
  folder.Write("config.json", "{}");
  EXPECT_EQ(*Resolve(folder.path()), folder.path());
}

TEST(ModelSourceTest, PointsAForgottenPrefixOut) {
  EXPECT_THAT(MessageOf(Resolve("acme/tiny").status()),
              HasSubstr("hf:acme/tiny"));
}

TEST(ModelSourceTest, FindsTheDemoModelFromTheExecutable) {
  const auto folder = Resolve("demo");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_TRUE(std::filesystem::exists(*folder + "/model.safetensors"));
}

TEST(ModelSourceTest, AnExplicitModelsFolderIsTheOnlyOneAsked) {
  const TempFolder folder;
  const ScopedVariable models("TIDEPOOL_MODELS_DIR", folder.path().c_str());
  const Status missing = Resolve("demo").status();
  std::filesystem::create_directory(folder.Path("demo"));
  folder.Write("demo/config.json", "{}");
  const auto found = Resolve("demo");
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(MessageOf(missing), HasSubstr(folder.path()));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, folder.Path("demo"));
}

TEST(HubOptionsTest, ComeFromTheEnvironment) {
  const ScopedVariable endpoint("HF_ENDPOINT", "https://mirror");
  const ScopedVariable token("HF_TOKEN", "hf_x");
  const ScopedVariable home("HOME", "/home/me");
  const ScopedVariable no_cache("TIDEPOOL_CACHE", nullptr);
  const ScopedVariable no_xdg("XDG_CACHE_HOME", nullptr);
  const HubOptions options = HubOptionsFromEnvironment();
  EXPECT_EQ(options.endpoint, "https://mirror");
  EXPECT_EQ(options.token, "hf_x");
  EXPECT_EQ(options.cache_folder, "/home/me/.cache/tidepool");
  const ScopedVariable xdg("XDG_CACHE_HOME", "/cache");
  EXPECT_EQ(HubOptionsFromEnvironment().cache_folder, "/cache/tidepool");
  const ScopedVariable own("TIDEPOOL_CACHE", "/models");
  EXPECT_EQ(HubOptionsFromEnvironment().cache_folder, "/models");
}

TEST(HubOptionsTest, WithoutAnyVariableUseTheHubAndNameNoFolder) {
  const ScopedVariable endpoint("HF_ENDPOINT", nullptr);
  const ScopedVariable home("HOME", nullptr);
  const ScopedVariable cache("TIDEPOOL_CACHE", nullptr);
  const ScopedVariable xdg("XDG_CACHE_HOME", "");
  const HubOptions options = HubOptionsFromEnvironment();
  EXPECT_EQ(options.endpoint, "https://huggingface.co");
  const Status status = DownloadModel({"acme/tiny"}, options).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), HasSubstr("TIDEPOOL_CACHE"));
}

TEST(ModelSourceTest, NamesModelsShortly) {
  EXPECT_EQ(DefaultModelName(*ParseModelSource("demo")), "demo");
  EXPECT_EQ(DefaultModelName(*ParseModelSource("hf:acme/tiny@v1")),
            "acme/tiny");
  EXPECT_EQ(DefaultModelName(*ParseModelSource("/models/llama")), "llama");
  EXPECT_EQ(DefaultModelName(*ParseModelSource("/models/llama/")), "llama");
  EXPECT_EQ(DefaultModelName(*ParseModelSource("/models/x/..//llama/.")),
            "llama");
  EXPECT_EQ(DefaultModelName(*ParseModelSource("/")), "/");
}

}  // namespace
}  // namespace tidepool::model
