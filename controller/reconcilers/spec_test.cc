#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/reconcilers/kv_cache_pool/spec.h"
#include "controller/reconcilers/quantity.h"
#include "controller/reconcilers/worker_pool/spec.h"

namespace tidepool::reconcilers {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(QuantityTest, ReadsWhatKubernetesWrites) {
  for (const auto& [text, value] :
       std::initializer_list<std::pair<const char*, uint64_t>>{
           {"0", 0},
           {"7", 7},
           {"64Gi", 64ull << 30},
           {"1.5Ki", 1536},
           {"500m", 1},
           {"2500m", 3},
           {"2k", 2000},
           {"1e3", 1000},
           {"1E+3", 1000},
           {".5Mi", 512 << 10},
           {"4Ei", 4ull << 60}})
    EXPECT_EQ(ParseQuantity(text).value_or(UINT64_MAX), value) << text;
}

TEST(QuantityTest, RefusesWhatIsNone) {
  for (const char* text : {"", "-1", "Gi", "1 Gi", "1GiB", "1.2.3", "0x10",
                           "9Ei", "99999999999999999999", "1e99", "NaN"})
    EXPECT_FALSE(ParseQuantity(text).ok()) << text;
}

TEST(QuantityTest, BytesAreWrittenAsTheApiServerWouldWriteThem) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(1000), "1000");
  EXPECT_EQ(FormatBytes(1536 << 20), "1536Mi");
  EXPECT_EQ(FormatBytes(2ull << 40), "2Ti");
}

Problems ProblemsOfPool(const char* spec) {
  Problems problems;
  ReadKVCachePool("demo", Json::parse(spec), problems);
  return problems;
}

TEST(KVCachePoolSpecTest, DefaultsAreThoseOfTheSchema) {
  Problems problems;
  const KVCachePoolSpec spec = ReadKVCachePool(
      "demo", Json::parse(R"({"model": {"uri": "demo"}})"), problems);
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_EQ(spec.conductor.replicas, 1);
  EXPECT_EQ(spec.conductor.drain_seconds, 600);
  EXPECT_EQ(spec.conductor.service_port, 80);
  EXPECT_TRUE(spec.conductor.needs_api_key);
  EXPECT_EQ(spec.engine.block_size, 64);
  EXPECT_EQ(spec.image.pull_policy, "IfNotPresent");
  EXPECT_EQ(spec.slo.percentile, 95);
  EXPECT_EQ(spec.rebalancing.policy, scheduling::RebalancingPolicy::kOff);
  EXPECT_TRUE(spec.network_policy.is_enabled);
}

TEST(KVCachePoolSpecTest, WhatIsDownloadedHasABound) {
  const auto bytes_max = [](const char* model) {
    Problems problems;
    const KVCachePoolSpec spec =
        ReadKVCachePool("demo", {{"model", Json::parse(model)}}, problems);
    EXPECT_THAT(problems, IsEmpty());
    return spec.model.cache_bytes_max;
  };
  EXPECT_EQ(bytes_max(R"({"uri": "hf:a/b"})"), 64ull << 30);
  EXPECT_EQ(bytes_max(R"({"uri": "hf:a/b",
                          "cache": {"emptyDir": {"sizeLimit": "1Ti"}}})"),
            1ull << 40);
  EXPECT_EQ(bytes_max(R"({"uri": "hf:a/b", "cache":
                          {"persistentVolumeClaim": {"claimName": "c"}}})"),
            std::nullopt);
  EXPECT_EQ(bytes_max(R"({"uri": "demo"})"), std::nullopt);
}

// What the schema lets pass.
TEST(KVCachePoolSpecTest, APathInTheImageMayEndWithASlash) {
  Problems problems;
  const KVCachePoolSpec spec = ReadKVCachePool(
      "demo", {{"model", {{"uri", "/opt/models/llama/"}}}}, problems);
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_EQ(ModelArgument(spec.model, ""), "/opt/models/llama");
  ReadKVCachePool("demo", {{"model", {{"uri", "//"}}}}, problems);
  EXPECT_THAT(problems, ElementsAre(HasSubstr("spec.model.uri")));
}

TEST(KVCachePoolSpecTest, ABudgetTurnsRebalancingOn) {
  Problems problems;
  const KVCachePoolSpec spec = ReadKVCachePool(
      "demo",
      Json::parse(R"({"model": {"uri": "demo"}, "slo": {"tbtMilliseconds": 50},
                      "rebalancing": {"acceleratorBudget": 8}})"),
      problems);
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_EQ(spec.PlannerConfig().policy,
            scheduling::RebalancingPolicy::kReactive);
  EXPECT_EQ(spec.PlannerConfig().accelerator_budget, 8u);
  EXPECT_EQ(spec.PlannerConfig().tbt_slo, std::chrono::milliseconds(50));
}

// What an older schema may have let in: each is named, none is believed.
TEST(KVCachePoolSpecTest, NamesBadFieldsOfModelAndEngine) {
  for (const auto& [spec, field] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {R"(null)", "spec.model.uri: is required"},
           {R"([])", "spec: [] is not an object"},
           {R"({"model": 7})", "spec.model: 7 is not an object"},
           {R"({"model": {"uri": 7}})", "spec.model.uri: 7 is not a text"},
           {R"({"model": {"uri": "hf:llama"}})", "spec.model.uri: `hf:llama`"},
           {R"({"model": {"uri": "hf:a/b/c"}})", "spec.model.uri"},
           {R"({"model": {"uri": "pvc://a/../b"}})", "spec.model.uri"},
           {R"({"model": {"uri": "pvc://UPPER/b"}})", "spec.model.uri"},
           {R"({"model": {"uri": "/a/../etc"}})", "spec.model.uri"},
           {R"({"model": {"uri": "models"}})", "spec.model.uri"},
           {R"({"model": {"uri": "de\u0000mo"}})",
            "spec.model.uri: holds control characters"},
           {R"({"model": {"uri": "demo", "revision": "main"}})",
            "spec.model.revision: is for hf: only"},
           {R"({"model": {"uri": "hf:a/b", "revision": "a b"}})",
            "spec.model.revision"},
           {R"({"model": {"uri": "hf:a/b", "tokenSecretRef": {}}})",
            "spec.model.tokenSecretRef.name: is required"},
           {R"({"model": {"uri": "hf:a/b", "cache": {"emptyDir": {}}}})",
            "spec.model.cache.emptyDir.sizeLimit: is required"},
           {R"({"model": {"uri": "hf:a/b",
                "cache": {"emptyDir": {"sizeLimit": "much"}}}})",
            "spec.model.cache.emptyDir.sizeLimit: \"much\" is not a quantity"},
           {R"({"engine": {"type": "Gpu"}})",
            "spec.engine.type: \"Gpu\" is not one of Cpu, Emulated"},
           {R"({"engine": {"type": "Emulated"}})",
            "spec.engine.perfModelConfigMapRef: is required"},
           {R"({"engine": {"perfModelConfigMapRef": {"name": "x"}}})",
            "spec.engine.perfModelConfigMapRef: is for type Emulated only"},
           {R"({"engine": {"blockSize": 65}})", "spec.engine.blockSize"},
       })
    EXPECT_THAT(ProblemsOfPool(spec), Contains(HasSubstr(field))) << spec;
}

TEST(KVCachePoolSpecTest, NamesBadFieldsOfConductorsAndPolicies) {
  for (const auto& [spec, field] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"image": {"digest": "latest"}})", "spec.image.digest"},
           {R"({"image": {"pullPolicy": "Sometimes"}})",
            "spec.image.pullPolicy"},
           {R"({"conductor": {"replicas": 0}})",
            "spec.conductor.replicas: 0 is not within 1..64"},
           {R"({"conductor": {"replicas": 18446744073709551615}})",
            "spec.conductor.replicas"},
           {R"({"conductor": {"replicas": 1.5}})",
            "spec.conductor.replicas: 1.5 is not an integer"},
           {R"({"conductor": {"service": {"port": 70000}}})",
            "spec.conductor.service.port"},
           {R"({"conductor": {"auth": {"type": "None",
                "apiKeySecretRef": {"name": "x"}}}})",
            "spec.conductor.auth.apiKeySecretRef"},
           {R"({"conductor": {"ingress": {"host": "a"},
                "httpRoute": {"parentRefs": [{"name": "g"}]}}})",
            "spec.conductor.httpRoute"},
           {R"({"conductor": {"httpRoute": {}}})",
            "spec.conductor.httpRoute.parentRefs"},
           {R"({"conductor": {"httpRoute": {"parentRefs": [7]}}})",
            "spec.conductor.httpRoute.parentRefs[0]: 7 is not an object"},
           {R"({"conductor": {"template": {"labels": {"a": 1}}}})",
            "spec.conductor.template.labels.a: 1 is not a text"},
           {R"({"conductor": {"template":
                {"labels": {"tidepool.dev/role": "x"}}}})",
            "spec.conductor.template.labels.tidepool.dev/role: belongs"},
           {R"({"conductor": {"template": {"env": [{"name": "POD_IP"}]}}})",
            "spec.conductor.template.env[0].name: `POD_IP` belongs"},
           {R"({"conductor": {"template":
                {"volumes": [{"name": "tidepool-tmp"}]}}})",
            "spec.conductor.template.volumes[0].name"},
           {R"({"conductor": {"template": {"tolerations": {}}}})",
            "spec.conductor.template.tolerations: {} is not a list"},
           {R"({"conductor": {"resources": {"limits": {"cpu": "lots"}}}})",
            "spec.conductor.resources.limits.cpu: \"lots\" is not a quantity"},
           {R"({"slo": {"ttftMilliseconds": -1}})",
            "spec.slo.ttftMilliseconds"},
           {R"({"slo": {"percentile": 100}})", "spec.slo.percentile"},
           {R"({"rebalancing": {"policy": "Reactive"}})",
            "spec.rebalancing.acceleratorBudget: is required"},
           {R"({"rebalancing": {"acceleratorBudget": "8"}})",
            "spec.rebalancing.acceleratorBudget: \"8\" is not an integer"},
           {R"({"networkPolicy": {"policy": true}})",
            "spec.networkPolicy.policy"},
           {R"({"networkPolicy": {"modelEgressCIDRs": [1]}})",
            "spec.networkPolicy.modelEgressCIDRs[0]"},
       })
    EXPECT_THAT(ProblemsOfPool(spec), Contains(HasSubstr(field))) << spec;
}

TEST(KVCachePoolSpecTest, NamesThatNoServiceCanHaveAreRefused) {
  for (const char* name : {"UPPER", "a.b", "-a", "a-", ""}) {
    Problems problems;
    ReadKVCachePool(name, {{"model", {{"uri", "demo"}}}}, problems);
    EXPECT_THAT(problems, ElementsAre(HasSubstr("metadata.name"))) << name;
  }
}

TEST(WorkerPoolSpecTest, NamesEveryBadField) {
  for (const auto& [spec, field] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {R"({})", "spec.kvCachePoolRef.name: is required"},
           {R"({"kvCachePoolRef": "demo"})", "spec.kvCachePoolRef"},
           {R"({"replicas": 10001})",
            "spec.replicas: 10001 is not within 0..10000"},
           {R"({"minReplicas": 3, "maxReplicas": 2})", "spec.minReplicas"},
           {R"({"replicas": 1, "minReplicas": 2})",
            "spec.replicas: 1 is not within 2..10000"},
           {R"({"replicas": 3, "maxReplicas": 2})", "spec.replicas"},
           {R"({"lending": false})", "spec.lending"},
           {R"({"kvCacheMemory": "-1Gi"})", "spec.kvCacheMemory"},
           {R"({"maxNumSeqs": 0})", "spec.maxNumSeqs"},
           {R"({"rollout": {"maxUnavailable": 0}})",
            "spec.rollout.maxUnavailable: and maxSurge"},
           {R"({"rollout": {"policy": "Stop"}})", "spec.rollout.policy"},
           {R"({"resources": {"limits": {"nvidia.com/gpu": []}}})",
            "spec.resources.limits.nvidia.com/gpu"},
       }) {
    Problems problems;
    ReadWorkerPool(false, "demo-decode", Json::parse(spec), problems);
    EXPECT_THAT(problems, Contains(HasSubstr(field))) << spec;
  }
}

// What the schema lets pass.
TEST(WorkerPoolSpecTest, OnlyAnnotationsOfOursAreRefused) {
  const auto problems = [](const char* key) {
    Problems found;
    const Json spec = {{"kvCachePoolRef", {{"name", "demo"}}},
                       {"template", {{"annotations", {{key, "x"}}}}}};
    ReadWorkerPool(true, "p", spec, found);
    return found;
  };
  EXPECT_THAT(problems("app.kubernetes.io/created-by"), IsEmpty());
  EXPECT_THAT(problems("tidepool.dev/term"), ElementsAre(HasSubstr("belongs")));
}

TEST(WorkerPoolSpecTest, DevicesAreWhatTheBudgetCounts) {
  const auto devices = [](const char* limits) {
    Problems problems;
    const Json spec = {{"kvCachePoolRef", {{"name", "demo"}}},
                       {"resources", {{"limits", Json::parse(limits)}}}};
    const WorkerPoolSpec pool = ReadWorkerPool(true, "p", spec, problems);
    EXPECT_THAT(problems, IsEmpty());
    return pool.resources.Devices();
  };
  EXPECT_EQ(devices(R"({"cpu": "4"})"), 1u);
  EXPECT_EQ(devices(R"({"nvidia.com/gpu": 8})"), 8u);
  EXPECT_EQ(devices(R"({"amd.com/gpu": "2", "rdma/hca": 1})"), 2u);
  EXPECT_EQ(devices(R"({"nvidia.com/mig-1g.5gb": 3})"), 3u);
  EXPECT_EQ(devices(R"({"a/gpu": "4Ei", "b/gpu": "4Ei", "c/gpu": "4Ei",
                        "d/gpu": "4Ei"})"),
            1024u);
}

// Whatever JSON holds, reading it ends, and without a crash.
TEST(SpecTest, AnyShapeAnywhereIsRead) {
  const Json shapes = Json::parse(
      R"([null, true, -1, 1e300, "", "x", [], [[]], {}, {"name": {}}])");
  const Json full = Json::parse(R"({
    "version": 0, "image": 0, "model": {"uri": 0, "cache": 0,
    "tokenSecretRef": 0}, "engine": {"type": 0}, "conductor": {"service": 0,
    "auth": 0, "ingress": 0, "httpRoute": {"parentRefs": 0, "hostnames": 0},
    "resources": {"limits": 0, "requests": 0}, "template": {"labels": 0,
    "volumes": 0, "env": 0, "affinity": 0}}, "slo": 0, "rebalancing": 0,
    "networkPolicy": {"gatewayNamespaceSelector": 0, "modelEgressCIDRs": 0},
    "kvCachePoolRef": 0, "replicas": 0, "rollout": 0, "kvCacheMemory": 0})");
  const Json flat = full.flatten();
  for (const auto& [pointer, unused] : flat.items()) {
    for (const Json& shape : shapes) {
      Json spec = full;
      spec[Json::json_pointer(pointer)] = shape;
      Problems problems;
      ReadKVCachePool("demo", spec, problems);
      ReadWorkerPool(true, "demo", spec, problems);
      EXPECT_FALSE(problems.empty()) << pointer;
    }
  }
}

}  // namespace
}  // namespace tidepool::reconcilers
