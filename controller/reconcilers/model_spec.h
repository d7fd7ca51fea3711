// `spec.model` and `spec.engine` of a KVCachePool: what all its pods share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controller/reconcilers/spec_reader.h"

namespace tidepool::reconcilers {

struct ModelSpec {
  enum class Source {
    kDemo,   // in the image
    kHub,    // hf:ORG/NAME
    kClaim,  // pvc://CLAIM/PATH
    kImage,  // /PATH in the image
  };
  Source source = Source::kDemo;
  std::string uri;
  std::string repository;   // kHub: ORG/NAME
  std::string claim, path;  // kClaim; kImage has a path only
  std::string revision;     // kHub; "" is the default branch
  std::string served_name;  // "" is the model's own
  std::string token_secret, token_key;
  // kHub: a claim, or a folder of the pod with this much.
  std::string cache_claim;
  std::optional<uint64_t> cache_bytes_max;

  // What `revision` is taken from, as status.resolvedModel has it.
  std::string ResolutionKey() const;
};
ModelSpec ReadModel(const SpecReader& model);

struct EngineSpec {
  bool is_emulated = false;
  std::string dtype = "auto";  // as the flag has it
  int64_t block_size = 64;
  std::string perf_config_map, perf_key;
};
EngineSpec ReadEngine(const SpecReader& engine);

// What --model says, `commit` being what a hub's revision was resolved to.
std::string ModelArgument(const ModelSpec& model, const std::string& commit);

}  // namespace tidepool::reconcilers
