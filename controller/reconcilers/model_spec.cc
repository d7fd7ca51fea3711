#include "controller/reconcilers/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "controller/reconcilers/names.h"

namespace tidepool::reconcilers {
namespace {

constexpr size_t kUriBytesMax = 512;
constexpr uint64_t kCacheBytesDefault = 64ull << 30;

bool IsWord(std::string_view text, std::string_view more) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || more.find(c) != more.npos;
  });
}

// No part is empty, `.` or `..`.
bool IsPlainPath(std::string_view path) {
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool ReadUri(std::string_view uri, ModelSpec& model) {
  using Source = ModelSpec::Source;
  if (uri == "demo") {
    model.source = Source::kDemo;
    return true;
  }
  if (uri.starts_with("hf:")) {
    model.source = Source::kHub;
    model.repository = uri.substr(3);
    const size_t slash = model.repository.find('/');
    return slash != std::string::npos &&
           IsWord(model.repository.substr(0, slash), "._-") &&
           IsWord(model.repository.substr(slash + 1), "._-") &&
           IsPlainPath(model.repository);
  }
  if (uri.starts_with("pvc://")) {
    model.source = Source::kClaim;
    uri.remove_prefix(6);
    const size_t slash = uri.find('/');
    model.claim = uri.substr(0, slash);
    if (slash != uri.npos) model.path = uri.substr(slash + 1);
    while (model.path.ends_with('/')) model.path.pop_back();
    return IsDnsSubdomain(model.claim) &&
           (model.path.empty() || IsPlainPath(model.path));
  }
  model.source = Source::kImage;
  model.path = uri;
  while (model.path.size() > 1 && model.path.ends_with('/'))
    model.path.pop_back();
  return uri.starts_with('/') &&
         IsPlainPath(std::string_view(model.path).substr(1));
}

void ReadCache(const SpecReader& reader, ModelSpec& model) {
  const SpecReader cache = reader.Object("cache");
  if (cache.Has("persistentVolumeClaim"))
    model.cache_claim =
        cache.Object("persistentVolumeClaim").RequiredText("claimName");
  if (cache.Has("emptyDir")) {
    const SpecReader folder = cache.Object("emptyDir");
    model.cache_bytes_max = folder.Quantity("sizeLimit");
    if (!folder.Has("sizeLimit")) folder.Complain("sizeLimit", "is required");
    if (model.cache_bytes_max == 0u) folder.Complain("sizeLimit", "is zero");
  }
  if (!model.cache_claim.empty() && model.cache_bytes_max.has_value())
    reader.Complain("cache",
                    "persistentVolumeClaim and emptyDir exclude each other");
  if (model.source == ModelSpec::Source::kHub && model.cache_claim.empty() &&
      !model.cache_bytes_max.has_value())
    model.cache_bytes_max = kCacheBytesDefault;
}

}  // namespace

std::string ModelSpec::ResolutionKey() const {
  return fmt::format("{}@{}", uri, revision.empty() ? "main" : revision);
}

ModelSpec ReadModel(const SpecReader& reader) {
  ModelSpec model;
  model.uri = reader.RequiredText("uri", kUriBytesMax);
  if (!model.uri.empty() && !ReadUri(model.uri, model))
    reader.Complain("uri", fmt::format("`{}` is not hf:ORG/NAME, "
                                       "pvc://CLAIM/PATH, /PATH or demo",
                                       model.uri));
  const bool is_hub = model.source == ModelSpec::Source::kHub;
  model.revision = reader.Text("revision");
  if (!model.revision.empty() &&
      (!IsWord(model.revision, "._/-") || !IsPlainPath(model.revision)))
    reader.Complain("revision", "is not a branch, tag or commit");
  for (const char* name : {"revision", "tokenSecretRef", "cache"})
    if (!is_hub && reader.Has(name)) reader.Complain(name, "is for hf: only");
  model.served_name = reader.Text("servedModelName");
  if (reader.Has("tokenSecretRef")) {
    const SpecReader secret = reader.Object("tokenSecretRef");
    model.token_secret = secret.RequiredText("name");
    model.token_key = secret.Text("key", "token");
  }
  ReadCache(reader, model);
  return model;
}

EngineSpec ReadEngine(const SpecReader& reader) {
  EngineSpec engine;
  engine.is_emulated = reader.Choice("type", {"Cpu", "Emulated"}, 0) == 1;
  static constexpr const char* kDtypes[] = {"auto", "float32", "bfloat16"};
  engine.dtype =
      kDtypes[reader.Choice("dtype", {"Auto", "Float32", "Bfloat16"}, 0)];
  engine.block_size = reader.Integer("blockSize", 64, 64, 4096);
  if (engine.block_size % 64 != 0)
    reader.Complain("blockSize", "is not a multiple of 64");
  const bool has_perf = reader.Has("perfModelConfigMapRef");
  if (has_perf) {
    const SpecReader perf = reader.Object("perfModelConfigMapRef");
    engine.perf_config_map = perf.RequiredText("name");
    engine.perf_key = perf.Text("key", "perf-model.yaml");
  }
  if (has_perf != engine.is_emulated)
    reader.Complain("perfModelConfigMapRef",
                    has_perf ? "is for type Emulated only"
                             : "is required with type Emulated");
  return engine;
}

std::string ModelArgument(const ModelSpec& model, const std::string& commit) {
  switch (model.source) {
    case ModelSpec::Source::kDemo:
      return "demo";
    case ModelSpec::Source::kHub: {
      const std::string& revision = commit.empty() ? model.revision : commit;
      return revision.empty()
                 ? fmt::format("hf:{}", model.repository)
                 : fmt::format("hf:{}@{}", model.repository, revision);
    }
    case ModelSpec::Source::kClaim:
      return model.path.empty()
                 ? std::string(kClaimFolder)
                 : fmt::format("{}/{}", kClaimFolder, model.path);
    case ModelSpec::Source::kImage:
      return model.path;
  }
  return model.path;
}

}  // namespace tidepool::reconcilers
