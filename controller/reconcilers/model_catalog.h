// What models are: which commit a hub's revision means, and what it takes to
// load it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "controller/reconcilers/family.h"

namespace tidepool::reconcilers {

// Thread-safe; never blocks.
class ModelCatalog {
 public:
  virtual ~ModelCatalog() = default;

  // What is known of the model of `family` now, whose KVCachePool exists and
  // is valid. While it is pending, the family comes again once it is known.
  // `pinned` is the commit that status names for the same revision, or "":
  // then it stays that one, even if a branch has moved.
  virtual ModelState Lookup(const kube::ObjectKey& family,
                            const KVCachePoolSpec& spec,
                            const std::string& pinned) = 0;
};

// Asks nobody: a hub's revision must be a commit.
class LocalModelCatalog final : public ModelCatalog {
 public:
  ModelState Lookup(const kube::ObjectKey& family, const KVCachePoolSpec& spec,
                    const std::string& pinned) override;
};

// 40 hexadecimal digits: nothing to resolve.
bool IsCommit(std::string_view revision);

// status.modelRevision, if it was resolved from what the spec says now.
std::string PinnedCommit(const ModelSpec& model, const Json& status);

// What is known without asking anybody; nullopt for hub models.
std::optional<ModelState> LocalModelState(const KVCachePoolSpec& spec);

}  // namespace tidepool::reconcilers
