// What the controller remembers of one family between two looks at it. All of
// it can be lost: a new leader starts without, and at worst applies once more
// what is there already.
#pragma once

#include <absl/container/btree_map.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "controller/reconcilers/observed.h"
#include "dataplane/base/clock.h"

namespace tidepool::reconcilers {

// A digest of kind and name of an object of the family.
using MemberId = uint64_t;

// Confined to whoever reconciles the family.
class FamilyMemory {
 public:
  // How long an answer of the API server counts although no watch has told of
  // it: longer, and the watch is right.
  static constexpr Duration kAnswerAgeMax = std::chrono::seconds(10);

  // What an apply was meant to make, and made.
  void NoteApplied(const kube::ResourceType& type, uint64_t desired,
                   std::shared_ptr<const Child> stored, TimePoint now);
  void NoteWritten(const kube::ResourceType& type,
                   std::shared_ptr<const CustomResource> stored, TimePoint now);
  // An object as it is now. What an apply made of it counts on, if it still was
  // that, its digest being `before`, until we marked it.
  void NoteMarked(const kube::ResourceType& type, uint64_t before,
                  std::shared_ptr<const Child> stored, TimePoint now);
  void NotePodDeleted(const std::string& uid) { deleted_pods_.insert(uid); }

  // Whether `child`, as observed, is what an apply of `desired` made of it.
  bool IsApplied(const kube::ResourceType& type, uint64_t desired,
                 const Child* child) const;

  // Brings what the cache says up to what we were told by answers since. True
  // if an answer is still ahead of the cache.
  bool Overlay(FamilyObserved& observed, TimePoint now);
  // The newer of the cache's and ours.
  std::shared_ptr<const Child> Newest(const kube::ResourceType& type,
                                      const kube::ObjectKey& key,
                                      std::shared_ptr<const Child> cached,
                                      TimePoint now);

 private:
  struct Applied {
    uint64_t desired = 0, stored = 0;
  };
  template <typename T>
  struct Answer {
    std::shared_ptr<const T> object;
    TimePoint at;
  };

  std::shared_ptr<const CustomResource> NewestResource(
      const kube::ResourceType& type,
      std::shared_ptr<const CustomResource> cached, TimePoint now);
  void OverlayPods(FamilyObserved& observed);

  absl::btree_map<MemberId, Applied> applied_;
  std::map<MemberId, Answer<Child>> children_;
  std::map<MemberId, Answer<CustomResource>> resources_;
  // Deleted by us and not seen terminating yet.
  std::set<std::string> deleted_pods_;
};

}  // namespace tidepool::reconcilers
