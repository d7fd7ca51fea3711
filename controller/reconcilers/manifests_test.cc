// The objects as they are, against files that reviewers can read. They are part
// of a release: a change of a pod template restarts every fleet that runs it.
// To write them anew: TIDEPOOL_WRITE_GOLDENS=1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/kv_cache_pool/manifests.h"
#include "controller/reconcilers/worker_pool/manifests.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kFolder =
    std::string(TIDEPOOL_SOURCE_DIR) + "/controller/reconcilers/testdata/";

void ExpectGolden(const std::string& name, const Json& object) {
  const std::string path = kFolder + name + ".json";
  const std::string text = object.dump(2) + "\n";
  if (std::getenv("TIDEPOOL_WRITE_GOLDENS") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

class ManifestsTest : public ::testing::Test {
 protected:
  KVCachePoolSpec Family(const Json& spec) {
    Problems problems;
    KVCachePoolSpec family = ReadKVCachePool("demo", spec, problems);
    EXPECT_THAT(problems, IsEmpty());
    return family;
  }
  WorkerPoolSpec Pool(bool is_prefill, Json spec) {
    spec["kvCachePoolRef"] = {{"name", "demo"}};
    Problems problems;
    WorkerPoolSpec pool = ReadWorkerPool(is_prefill, "w", spec, problems);
    EXPECT_THAT(problems, IsEmpty());
    return pool;
  }
  FamilyScope Scope(const kube::ResourceType& type, const std::string& name) {
    return {.space = "models",
            .pool = "demo",
            .version = "0.1.0",
            .owner = {.type = &type, .name = name, .uid = "uid-of-" + name}};
  }
  ConductorContext Conductors(const KVCachePoolSpec& family) {
    return {.scope = Scope(kube::kKVCachePool, "demo"),
            .model = ModelArgument(family.model, ""),
            .image = {.repository = "registry.example/tidepool"},
            .worker_pools = {"demo-decode", "demo-prefill"},
            .controller_space = "tidepool-system"};
  }
  WorkerContext Workers(const KVCachePoolSpec& family, bool is_prefill,
                        const std::string& commit = "") {
    const std::string name = is_prefill ? "demo-prefill" : "demo-decode";
    return {.scope = Scope(is_prefill ? kube::kPrefillPool : kube::kDecodePool,
                           name),
            .pool = name,
            .model = ModelArgument(family.model, commit),
            .image = {.repository = "registry.example/tidepool"},
            .memory = {.memory_bytes = 805ull << 20, .kv_bytes = 256ull << 20},
            .family = &family};
  }
  static Json Container(const Manifest& workload) {
    return workload.object["spec"]["template"]["spec"]["containers"][0];
  }
};

TEST_F(ManifestsTest, TheDemoIsAsReleased) {
  const KVCachePoolSpec family = Family({{"model", {{"uri", "demo"}}}});
  const ConductorContext context = Conductors(family);
  ExpectGolden("demo_deployment", ConductorDeployment(family, context).object);
  ExpectGolden("demo_service", ConductorService(family, context.scope).object);
  Json policies = Json::array();
  for (const Manifest& policy : NetworkPolicies(family, context))
    policies.push_back(policy.object);
  ExpectGolden("demo_network_policies", policies);
  ExpectGolden("demo_decode_stateful_set",
               WorkerStatefulSet(Pool(false, {{"replicas", 2}}),
                                 Workers(family, false), 2)
                   .object);
  ExpectGolden("demo_decode_service",
               WorkerService(Workers(family, false)).object);
}

TEST_F(ManifestsTest, AFleetWithEverythingIsAsReleased) {
  const KVCachePoolSpec family = Family(Json::parse(R"({
    "model": {"uri": "hf:org/name", "servedModelName": "name",
              "tokenSecretRef": {"name": "hub"},
              "cache": {"persistentVolumeClaim": {"claimName": "models"}}},
    "conductor": {"auth": {"type": "None"},
                  "service": {"type": "LoadBalancer", "port": 8080},
                  "ingress": {"host": "llm.example.com", "className": "nginx",
                              "tlsSecretName": "llm-tls",
                              "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "8m"}}},
    "networkPolicy": {"gatewayNamespaceSelector": {},
                      "modelEgressCIDRs": ["192.0.2.0/24"]}})"));
  const ConductorContext context = Conductors(family);
  Json objects = Json::array();
  for (const Manifest& policy : NetworkPolicies(family, context))
    objects.push_back(policy.object);
  for (const Manifest& route : Routes(family, context.scope))
    objects.push_back(route.object);
  objects.push_back(ConductorDeployment(family, context).object);
  ExpectGolden("full_conductor", objects);
  const WorkerPoolSpec pool = Pool(true, Json::parse(R"({
    "replicas": 4, "chunkTokens": 4096,
    "resources": {"limits": {"nvidia.com/gpu": 1, "rdma/hca": 1,
                             "memory": "64Gi", "hugepages-2Mi": "1Gi"}},
    "template": {"labels": {"team": "serving"},
                 "annotations": {"example.com/a": "b"},
                 "nodeSelector": {"gpu": "h100"},
                 "tolerations": [{"key": "gpu", "operator": "Exists"}],
                 "priorityClassName": "serving", "runtimeClassName": "nvidia",
                 "imagePullSecrets": [{"name": "registry"}],
                 "topologySpreadConstraints": [{"maxSkew": 1,
                   "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                 "volumes": [{"name": "scratch", "emptyDir": {}}],
                 "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                 "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}]}})"));
  ExpectGolden(
      "full_prefill_stateful_set",
      WorkerStatefulSet(
          pool,
          Workers(family, true, "0123456789abcdef0123456789abcdef01234567"), 4)
          .object);
}

TEST_F(ManifestsTest, AnHttpRouteHasNoTimeout) {
  const KVCachePoolSpec family = Family(Json::parse(R"({
    "model": {"uri": "demo"}, "conductor": {"httpRoute": {
      "parentRefs": [{"name": "gateway", "namespace": "infra"}],
      "hostnames": ["llm.example.com"]}}})"));
  const auto routes = Routes(family, Scope(kube::kKVCachePool, "demo"));
  ASSERT_EQ(routes.size(), 1u);
  EXPECT_EQ(routes[0].object["spec"]["rules"][0]["timeouts"]["request"], "0s");
  EXPECT_EQ(routes[0].object["spec"]["parentRefs"][0]["namespace"], "infra");
}

TEST_F(ManifestsTest, ADigestWinsOverTheVersion) {
  const std::string digest = "sha256:" + std::string(64, 'a');
  KVCachePoolSpec family =
      Family({{"model", {{"uri", "demo"}}}, {"image", {{"digest", digest}}}});
  WorkerContext context = Workers(family, false);
  context.image.digest = digest;
  EXPECT_EQ(Container(WorkerStatefulSet(Pool(false, Json::object()), context,
                                        1))["image"],
            "registry.example/tidepool@" + digest);
}

TEST_F(ManifestsTest, AModelOnAVolumeIsMountedReadOnly) {
  const KVCachePoolSpec family =
      Family({{"model", {{"uri", "pvc://weights/llama/8b"}}}});
  const Manifest set =
      WorkerStatefulSet(Pool(false, Json::object()), Workers(family, false), 1);
  EXPECT_THAT(Container(set)["args"], Contains("--model=/models/llama/8b"));
  EXPECT_THAT(Container(set)["volumeMounts"],
              Contains(Json({{"name", "tidepool-model"},
                             {"mountPath", "/models"},
                             {"readOnly", true}})));
}

TEST_F(ManifestsTest, ReplicasAreNoPartOfTheTemplatesDigest) {
  const KVCachePoolSpec family = Family({{"model", {{"uri", "demo"}}}});
  const WorkerPoolSpec pool = Pool(false, Json::object());
  const WorkerContext context = Workers(family, false);
  EXPECT_EQ(TemplateDigest(WorkerStatefulSet(pool, context, 1)),
            TemplateDigest(WorkerStatefulSet(pool, context, 9)));
  WorkerContext other = context;
  other.scope.version = "0.2.0";
  EXPECT_NE(TemplateDigest(WorkerStatefulSet(pool, context, 1)),
            TemplateDigest(WorkerStatefulSet(pool, other, 1)));
}

TEST_F(ManifestsTest, OnlyRdmaGetsACapability) {
  const KVCachePoolSpec family = Family({{"model", {{"uri", "demo"}}}});
  const auto capabilities = [&](const char* resource) {
    const Json spec = {{"resources", {{"limits", {{resource, 1}}}}}};
    return Container(WorkerStatefulSet(Pool(false, spec),
                                       Workers(family, false),
                                       1))["securityContext"]["capabilities"];
  };
  EXPECT_THAT(capabilities("nvidia.com/gpu"),
              Not(Contains(Json({"IPC_LOCK"}))));
  EXPECT_EQ(capabilities("rdma/hca")["add"], Json({"IPC_LOCK"}));
}

}  // namespace
}  // namespace tidepool::reconcilers
