// What the schemas refuse may be there all the same, let in by an older one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/family_test_util.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kManifests =
    std::filesystem::path(TIDEPOOL_SOURCE_DIR) / "crds/testdata";

// Plain scalars are what they look like, quoted ones are texts.
Json ToJson(const YAML::Node& node) {
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& each : node) list.push_back(ToJson(each));
    return list;
  }
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& entry : node)
      object[entry.first.as<std::string>()] = ToJson(entry.second);
    return object;
  }
  if (node.IsNull()) return nullptr;
  if (node.Tag() != "!") {
    int64_t integer = 0;
    double number = 0;
    bool truth = false;
    if (YAML::convert<int64_t>::decode(node, integer)) return integer;
    if (YAML::convert<double>::decode(node, number)) return number;
    if (YAML::convert<bool>::decode(node, truth)) return truth;
  }
  return node.as<std::string>();
}

struct BadManifest {
  std::string file;
  std::string field;               // what the refusal names, without its path
  std::vector<std::string> after;  // what is there before
  const kube::ResourceType* type = nullptr;
  std::string name;
  Json spec;
};

void PrintTo(const BadManifest& manifest, std::ostream* out) {
  *out << manifest.file;
}

const kube::ResourceType* TypeOf(const std::string& kind) {
  for (const auto* type :
       {&kube::kKVCachePool, &kube::kPrefillPool, &kube::kDecodePool})
    if (type->kind == kind) return type;
  return nullptr;
}

// "spec.model.uri must be …" is about "uri".
std::string FieldIn(const std::string& refusal) {
  const std::string path = refusal.substr(0, refusal.find_first_of(": ["));
  return path.substr(path.rfind('.') + 1);
}

BadManifest Load(const std::string& file) {
  const std::filesystem::path path = kManifests / file;
  std::ifstream stream(path);
  BadManifest manifest{.file = path.stem()};
  static constexpr std::string_view kExpect = "# expect: ",
                                    kAfter = "# after: ";
  for (std::string line; std::getline(stream, line) && line.starts_with('#');) {
    if (line.starts_with(kExpect))
      manifest.field = FieldIn(line.substr(kExpect.size()));
    if (line.starts_with(kAfter))
      manifest.after.push_back(line.substr(kAfter.size()));
  }
  const Json object = ToJson(YAML::LoadFile(path));
  manifest.type = TypeOf(object["kind"]);
  manifest.name = object["metadata"]["name"];
  manifest.spec = object.value("spec", Json());
  return manifest;
}

std::vector<BadManifest> LoadBad() {
  std::vector<BadManifest> manifests;
  for (const auto& entry :
       std::filesystem::directory_iterator(kManifests / "bad"))
    manifests.push_back(Load("bad/" + entry.path().filename().string()));
  std::ranges::sort(manifests, {}, &BadManifest::file);
  return manifests;
}

void Put(FamilyWorld& world, const BadManifest& manifest) {
  if (world.Get(*manifest.type, manifest.name).is_null())
    world.Create(*manifest.type, manifest.name, manifest.spec);
  else
    world.PatchSpec(*manifest.type, manifest.name, manifest.spec);
}

// What the controller has no word of its own for, and why that does no harm.
const std::map<std::string, const char*>& Elsewhere() {
  static constexpr char kOfPods[] = "the API server refuses the pods";
  static constexpr char kOfPolicies[] = "the API server refuses the policy";
  static constexpr char kNotRead[] = "no such field is read";
  static constexpr char kNotPulled[] = "no such image is pulled";
  static constexpr char kWorks[] = "works, if not well";
  static const std::map<std::string, const char*> reasons = {
      {"chunk-tokens-of-decode", kNotRead},
      {"conductor-memory-apart", kWorks},
      {"egress-name", kOfPolicies},
      {"egress-without-length", kOfPolicies},
      {"field-misspelt", kNotRead},
      {"field-of-later", kNotRead},
      {"field-unknown", kNotRead},
      {"image-with-digest", kNotPulled},
      {"image-with-tag", kNotPulled},
      {"ingress-behind-closed-door", kWorks},
      {"ingress-host-with-scheme", "the API server refuses the Ingress"},
      {"kv-memory-zero", "as if it were absent"},
      {"model-cache-empty", "as if it were absent"},
      {"name-begins-with-digit", "the API server refuses the Service"},
      {"pool-changes-fleet", "KVCachePoolNotFound, or the other one's"},
      {"pool-fleet-name-with-space", "KVCachePoolNotFound"},
      {"resources-memory-apart", kWorks},
      {"resources-request-above-limit", kOfPods},
      {"selector-operator-unknown", kOfPolicies},
      {"selector-without-values", kOfPolicies},
      {"sequences-of-prefill", kNotRead},
      {"template-containers", kNotRead},
      {"template-env-name", kOfPods},
      {"template-env-twice", kOfPods},
      {"template-env-two-sources", kOfPods},
      {"template-mount-of-nothing", kOfPods},
      {"template-mount-ours", kOfPods},
      {"template-mount-relative", kOfPods},
      {"template-spread-without-key", kOfPods},
      {"template-toleration-exists-value", kOfPods},
      {"template-toleration-of-nothing", kOfPods},
      {"tls-changes", kWorks},
      {"version-with-slash", kNotPulled},
  };
  return reasons;
}

class BadManifestsTest : public ::testing::TestWithParam<BadManifest> {};

TEST_P(BadManifestsTest, IsSurvivedAndNamed) {
  const BadManifest& bad = GetParam();
  FamilyWorld world;
  world.CreateDemo(1, 1);
  for (const std::string& file : bad.after) Put(world, Load(file));
  ASSERT_TRUE(world.Run());
  Put(world, bad);
  EXPECT_TRUE(world.Run());

  if (!Elsewhere().contains(bad.file)) {
    const Json degraded = world.Condition(*bad.type, bad.name, "Degraded");
    ASSERT_TRUE(degraded.is_object());
    EXPECT_EQ(degraded["reason"], "InvalidSpec");
    EXPECT_THAT(degraded["message"], HasSubstr(bad.field));
  }
  // The others' fleet is looked after as before.
  world.PatchSpec(kube::kDecodePool, "demo-decode", {{"replicas", 3}});
  EXPECT_TRUE(world.Run());
  const Json ready = world.Condition(kube::kKVCachePool, "demo", "Ready");
  EXPECT_EQ(ready["status"], "True");
  EXPECT_EQ(
      world.Get(kube::kDecodePool, "demo-decode")["status"]["readyReplicas"],
      3);
  EXPECT_THAT(world.errors, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(All, BadManifestsTest, ::testing::ValuesIn(LoadBad()),
                         [](const auto& test) {
                           std::string name = test.param.file;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(BadManifestListTest, EveryExceptionIsOfAManifestThatThereIs) {
  std::map<std::string, const char*> unknown = Elsewhere();
  for (const BadManifest& bad : LoadBad()) unknown.erase(bad.file);
  EXPECT_THAT(unknown, IsEmpty());
}

}  // namespace
}  // namespace tidepool::reconcilers
