#include "dataplane/model/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "dataplane/model/test_util.h"

namespace tidepool::model {
namespace {

using ::testing::HasSubstr;

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
  ::setenv("TIDEPOOL_MODELS_DIR", folder.path().c_str(), 1);
  const Status missing = Resolve("demo").status();
  std::filesystem::create_directory(folder.Path("demo"));
  folder.Write("demo/config.json", "{}");
  const auto found = Resolve("demo");
  ::unsetenv("TIDEPOOL_MODELS_DIR");
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(MessageOf(missing), HasSubstr(folder.path()));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, folder.Path("demo"));
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
