// ModelCatalog with the Hugging Face hub.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "controller/reconcilers/http_fetcher.h"
#include "controller/reconcilers/model_catalog.h"
#include "dataplane/base/clock.h"

namespace tidepool::reconcilers {

// What the hub says of one revision.
struct HubModelFacts {
  std::string commit;
  // As `auto`, `float32` and `bfloat16` engines load it; nullopt if the hub
  // does not show its configuration (a gated model, and no token) or it is of
  // no such model: then resources decide.
  std::optional<ModelFigures> as_stored, as_float32, as_bfloat16;
};

// Asks the hub: two requests, which block. `token` may be empty.
// Errors: kNotFound (no such model or revision, or not for this token),
// kUnavailable, kInvalidArgument (what came is no answer).
StatusOr<HubModelFacts> FetchHubModel(HttpFetcher& fetcher,
                                      const std::string& endpoint,
                                      const std::string& token,
                                      const std::string& repository,
                                      const std::string& revision);

// Asks on a thread of its own, one model after the other, and remembers: a
// commit means the same forever, and a branch means what it meant when a fleet
// first named it (the commit is in that fleet's status).
class HubCatalog final : public ModelCatalog {
 public:
  // `client` reads the tokens that models name, each when its model is asked
  // for. `known`: what was pending for this family is known now. The others
  // must outlive it.
  HubCatalog(std::string endpoint, HttpFetcher& fetcher, kube::Client& client,
             const Clock& clock,
             std::function<void(const kube::ObjectKey& family)> known);
  ~HubCatalog() override;

  ModelState Lookup(const kube::ObjectKey& family, const KVCachePoolSpec& spec,
                    const std::string& pinned) override;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool::reconcilers
