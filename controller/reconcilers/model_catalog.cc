#include "controller/reconcilers/model_catalog.h"

#include <algorithm>

#include "controller/kube/json_fields.h"

namespace tidepool::reconcilers {

ModelState LocalModelCatalog::Lookup(const kube::ObjectKey&,
                                     const KVCachePoolSpec& spec,
                                     const std::string& pinned) {
  if (const auto local = LocalModelState(spec)) return *local;
  const std::string& commit = pinned.empty() ? spec.model.revision : pinned;
  if (IsCommit(commit)) return {.commit = commit};
  return {.phase = ModelState::Phase::kFailed,
          .message = "spec.model.revision is not a commit"};
}

bool IsCommit(std::string_view revision) {
  return revision.size() == 40 && std::ranges::all_of(revision, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string PinnedCommit(const ModelSpec& model, const Json& status) {
  return kube::At(status, "resolvedModel") == model.ResolutionKey()
             ? kube::TextAt(status, "modelRevision")
             : std::string();
}

std::optional<ModelState> LocalModelState(const KVCachePoolSpec& spec) {
  switch (spec.model.source) {
    case ModelSpec::Source::kHub:
      return std::nullopt;
    case ModelSpec::Source::kDemo:
      return ModelState{.figures = DemoFigures(spec.engine.dtype)};
    case ModelSpec::Source::kClaim:
    case ModelSpec::Source::kImage:
      return ModelState{};
  }
  return std::nullopt;
}

}  // namespace tidepool::reconcilers
