#include "controller/reconcilers/packed.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace tidepool::reconcilers {
namespace {

const kube::ObjectKey kKey{"models", "demo-decode-12"};

TEST(PackedTest, KeepsEveryFieldOfAPod) {
  const PodView pod{.key = kKey,
                    .uid = "5f0c2f6e-0000-4000-8000-00000000000a",
                    .family = "demo",
                    .pool = "demo-decode",
                    .role = "decode",
                    .revision = "demo-decode-6c9f7d8b9c",
                    .ip = "fd00::1",
                    .devices = 300,
                    .is_conductor = true,
                    .ready = true,
                    .terminating = true,
                    .finished = true,
                    .trouble = PodTrouble::kOutOfMemory,
                    .trouble_text = std::string(256, 'x')};
  const Packed<PodView> packed(pod);
  EXPECT_EQ(packed.key(), kube::ObjectKeyView(kKey));
  const auto read = packed.Unpack();
  EXPECT_EQ(read->key, pod.key);
  EXPECT_EQ(read->uid, pod.uid);
  EXPECT_EQ(read->family, pod.family);
  EXPECT_EQ(read->pool, pod.pool);
  EXPECT_EQ(read->role, pod.role);
  EXPECT_EQ(read->revision, pod.revision);
  EXPECT_EQ(read->ip, pod.ip);
  EXPECT_EQ(read->devices, pod.devices);
  EXPECT_TRUE(read->is_conductor);
  EXPECT_TRUE(read->ready);
  EXPECT_TRUE(read->terminating);
  EXPECT_TRUE(read->finished);
  EXPECT_EQ(read->trouble, pod.trouble);
  EXPECT_EQ(read->trouble_text, pod.trouble_text);
}

TEST(PackedTest, KeepsEveryFieldOfAResource) {
  const CustomResource resource{
      .key = kKey,
      .uid = "u",
      .resource_version = "12345678901234567890123",
      .generation = std::numeric_limits<int64_t>::max(),
      .observed_generation = -1,
      .deleting = true,
      .family = "demo",
      .spec = std::string("{\0}", 3),
      .status = std::string(70'000, 's')};
  const Packed<CustomResource> packed(resource);
  EXPECT_EQ(packed.key(), kube::ObjectKeyView(kKey));
  const auto read = packed.Unpack();
  EXPECT_EQ(read->key, resource.key);
  EXPECT_EQ(read->uid, resource.uid);
  EXPECT_EQ(read->resource_version, resource.resource_version);
  EXPECT_EQ(read->generation, resource.generation);
  EXPECT_EQ(read->observed_generation, resource.observed_generation);
  EXPECT_TRUE(read->deleting);
  EXPECT_EQ(read->family, resource.family);
  EXPECT_EQ(read->spec, resource.spec);
  EXPECT_EQ(read->status, resource.status);
}

TEST(PackedTest, KeepsEveryFieldOfAWorkload) {
  Child child{.key = kKey,
              .uid = "u",
              .owner_uid = "o",
              .family = "demo",
              .resource_version = 127,
              .digest = std::numeric_limits<uint64_t>::max(),
              .deleting = true};
  child.figures = std::make_unique<WorkloadFigures>(
      WorkloadFigures{.generation = 1,
                      .observed_generation = 2,
                      .wanted = std::numeric_limits<int32_t>::max(),
                      .replicas = -4,
                      .ready = 5,
                      .updated = 6,
                      .available = 128,
                      .update_revision = "r",
                      .template_digest = "t",
                      .devices = std::numeric_limits<uint32_t>::max()});
  const Packed<Child> packed(child);
  EXPECT_EQ(packed.key(), kube::ObjectKeyView(kKey));
  const auto read = packed.Unpack();
  EXPECT_EQ(read->key, child.key);
  EXPECT_EQ(read->uid, child.uid);
  EXPECT_EQ(read->owner_uid, child.owner_uid);
  EXPECT_EQ(read->family, child.family);
  EXPECT_EQ(read->resource_version, child.resource_version);
  EXPECT_EQ(read->digest, child.digest);
  EXPECT_TRUE(read->deleting);
  ASSERT_NE(read->figures, nullptr);
  EXPECT_EQ(read->figures->generation, 1);
  EXPECT_EQ(read->figures->observed_generation, 2);
  EXPECT_EQ(read->figures->wanted, child.figures->wanted);
  EXPECT_EQ(read->figures->replicas, -4);
  EXPECT_EQ(read->figures->ready, 5);
  EXPECT_EQ(read->figures->updated, 6);
  EXPECT_EQ(read->figures->available, 128);
  EXPECT_EQ(read->figures->update_revision, "r");
  EXPECT_EQ(read->figures->template_digest, "t");
  EXPECT_EQ(read->figures->devices, child.figures->devices);
}

TEST(PackedTest, KeepsWhatIsAlmostAUuid) {
  for (const char* uid : {"5f0c2f6e-0000-4000-8000-00000000000A",
                          "5f0c2f6e00004000800000000000000a",
                          "5f0c2f6-e0000-4000-8000-00000000000a",
                          "5f0c2f6e-0000-4000-8000-00000000000g",
                          "5f0c2f6e-0000-4000-8000-00000000000a-",
                          "00000000-0000-0000-0000-000000000000"}) {
    const kube::ObjectKey key{"", uid};
    const Packed<PodView> packed(PodView{.key = key, .uid = uid});
    EXPECT_EQ(packed.key(), kube::ObjectKeyView(key));
    EXPECT_EQ(packed.Unpack()->key, key);
    EXPECT_EQ(packed.Unpack()->uid, uid);
  }
}

TEST(PackedTest, KeepsWhatIsEmpty) {
  EXPECT_EQ(Packed<PodView>(PodView{}).Unpack()->uid, "");
  EXPECT_EQ(Packed<Child>(Child{}).Unpack()->figures, nullptr);
  EXPECT_EQ(Packed<Child>(Child{}).key(), kube::ObjectKeyView("", ""));
}

}  // namespace
}  // namespace tidepool::reconcilers
