#include "controller/reconcilers/hub_catalog.h"

#include <algorithm>
#include <cctype>
#include <compare>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/escaping.h"
#include "controller/kube/json_fields.h"
#include "controller/kube/resource_types.h"
#include "controller/kube/token_source.h"
#include "dataplane/base/bounded_queue.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/base/log.h"
#include "dataplane/base/mutex.h"

namespace tidepool::reconcilers {
namespace {

constexpr size_t kListingBytesMax = 4 << 20;
constexpr size_t kConfigBytesMax = 1 << 20;
constexpr size_t kTokenBytesMax = 4096;
constexpr size_t kModelsMax = 4096;
constexpr Duration kRetryMin = std::chrono::seconds(15);
constexpr Duration kRetryMax = std::chrono::minutes(10);
constexpr Duration kPoll = std::chrono::seconds(1);

StatusOr<Json> ParseObject(const std::string& text, const std::string& what) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object())
    return InvalidArgument("{}: is no JSON object", what);
  return parsed;
}

StatusOr<std::string> GetPage(HttpFetcher& fetcher, const std::string& url,
                              const std::string& token, size_t bytes_max) {
  ASSIGN_OR_RETURN(FetchedPage page, fetcher.Get(url, token, bytes_max));
  if (page.code == 200) return std::move(page.body);
  // The hub says 401 of what does not exist, too.
  if (page.code == 401 || page.code == 403 || page.code == 404)
    return NotFound("{}: {}: no such model or revision, or {}", url, page.code,
                    token.empty() ? "it wants spec.model.tokenSecretRef"
                                  : "not for this token");
  return Unavailable("{}: {}", url, page.code);
}

// Where a token is.
struct TokenRef {
  std::string space, secret, key;
  auto operator<=>(const TokenRef&) const = default;
};

StatusOr<std::string> ReadToken(kube::Client& client, const TokenRef& ref) {
  if (ref.secret.empty()) return std::string();
  ASSIGN_OR_RETURN(
      const Json secret,
      client.Get(kube::kSecret, {.space = ref.space, .name = ref.secret}));
  const Json data = secret.value("data", Json::object());
  const Json entry = data.is_object() ? data.value(ref.key, Json()) : Json();
  std::string token;
  if (!entry.is_string() ||
      !absl::Base64Unescape(entry.get<std::string>(), &token))
    return NotFound("Secret {}/{} has no {}", ref.space, ref.secret, ref.key);
  while (!token.empty() &&
         std::isspace(static_cast<unsigned char>(token.back())))
    token.pop_back();
  // It becomes part of a header.
  if (token.empty() || token.size() > kTokenBytesMax ||
      !kube::IsBearerToken(token))
    return InvalidArgument("Secret {}/{}: {} is no token", ref.space,
                           ref.secret, ref.key);
  return token;
}

// Of the weights that workers load: one file, or else its shards. Some models
// keep them a second time in another layout (consolidated.safetensors).
StatusOr<uint64_t> WeightBytes(const Json& listing) {
  uint64_t shards = 0;
  const Json& files = kube::At(listing, "siblings");
  if (!files.is_array())
    return InvalidArgument("the hub's answer: siblings is missing");
  for (const Json& file : files) {
    const std::string name = kube::TextAt(file, "rfilename");
    const Json& size = kube::At(file, "size");
    if (!size.is_number_unsigned()) continue;
    if (name == "model.safetensors") return size.get<uint64_t>();
    if (!name.starts_with("model-") || !name.ends_with(".safetensors") ||
        name.find('/') != name.npos)
      continue;
    const auto sum = CheckedAdd(shards, size.get<uint64_t>());
    if (!sum.has_value())
      return InvalidArgument("the hub's answer: sizes overflow");
    shards = *sum;
  }
  return shards;
}

}  // namespace

StatusOr<HubModelFacts> FetchHubModel(HttpFetcher& fetcher,
                                      const std::string& endpoint,
                                      const std::string& token,
                                      const std::string& repository,
                                      const std::string& revision) {
  // A branch may have slashes in its name.
  std::string escaped = revision;
  for (size_t at = 0; (at = escaped.find('/', at)) != escaped.npos;)
    escaped.replace(at, 1, "%2F");
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true",
                                      endpoint, repository, escaped);
  ASSIGN_OR_RETURN(const std::string text,
                   GetPage(fetcher, url, token, kListingBytesMax));
  ASSIGN_OR_RETURN(const Json listing, ParseObject(text, url));
  HubModelFacts facts;
  const Json sha = listing.value("sha", Json());
  if (!sha.is_string() || !IsCommit(sha.get_ref<const std::string&>()))
    return InvalidArgument("{}: sha is no commit", url);
  facts.commit = sha.get<std::string>();
  ASSIGN_OR_RETURN(const uint64_t weights, WeightBytes(listing));

  const std::string config_url = fmt::format(
      "{}/{}/resolve/{}/config.json", endpoint, repository, facts.commit);
  const StatusOr<std::string> config_text =
      GetPage(fetcher, config_url, token, kConfigBytesMax);
  // With a token, workers could not have it either; and what was derived when
  // they could must not be forgotten.
  if (config_text.status().code() == Code::kNotFound && token.empty())
    return facts;
  RETURN_IF_ERROR(config_text.status());
  ASSIGN_OR_RETURN(const Json config, ParseObject(*config_text, config_url));
  const auto figures = [&](const char* dtype) -> std::optional<ModelFigures> {
    const StatusOr<ModelFigures> of = FiguresOf(config, weights, dtype);
    if (of.ok()) return *of;
    LOG_INFO("{}: {}", config_url, MessageOf(of.status()));
    return std::nullopt;
  };
  facts.as_stored = figures("auto");
  facts.as_float32 = figures("float32");
  facts.as_bfloat16 = figures("bfloat16");
  return facts;
}

class HubCatalog::Impl {
 public:
  Impl(std::string endpoint, HttpFetcher& fetcher, kube::Client& client,
       const Clock& clock, std::function<void(const kube::ObjectKey&)> known)
      : endpoint_(std::move(endpoint)),
        fetcher_(fetcher),
        client_(client),
        clock_(clock),
        known_(std::move(known)) {
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    thread_ = std::jthread([this](std::stop_token stop) {
      while (!stop.stop_requested())
        if (const auto name = queue_.Pop(kPoll)) Resolve(*name);
    });
  }
  ~Impl() {
    thread_.request_stop();
    queue_.Close();
  }

  ModelState Lookup(const kube::ObjectKey& family, const KVCachePoolSpec& spec,
                    const std::string& pinned);

 private:
  // What one token shows is not known to those who name another, or none.
  struct Name {
    std::string repository, revision;
    TokenRef token;
    auto operator<=>(const Name&) const = default;
  };
  struct Entry {
    std::optional<HubModelFacts> facts;
    Status failure;
    int failures = 0;
    TimePoint retry_at;
    bool is_queued = false;
    std::set<kube::ObjectKey> waiting;
  };

  void Resolve(const Name& name);
  StatusOr<HubModelFacts> Ask(const Name& name);

  std::string endpoint_;
  HttpFetcher& fetcher_;
  kube::Client& client_;
  const Clock& clock_;
  const std::function<void(const kube::ObjectKey&)> known_;
  Mutex mutex_;
  std::map<Name, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  BoundedQueue<Name> queue_{kModelsMax};
  std::jthread thread_;
};

ModelState HubCatalog::Impl::Lookup(const kube::ObjectKey& family,
                                    const KVCachePoolSpec& spec,
                                    const std::string& pinned) {
  using Phase = ModelState::Phase;
  const std::string revision = !pinned.empty() ? pinned
                               : spec.model.revision.empty()
                                   ? "main"
                                   : spec.model.revision;
  Name name{spec.model.repository, revision, {}};
  if (!spec.model.token_secret.empty())
    name.token = {family.space, spec.model.token_secret, spec.model.token_key};
  const TimePoint now = clock_.Now();
  const MutexLock lock(&mutex_);
  if (entries_.size() >= kModelsMax && !entries_.contains(name))
    entries_.clear();  // they are asked for again by who needs them
  Entry& entry = entries_[name];
  if (entry.facts.has_value()) {
    const HubModelFacts& facts = *entry.facts;
    return {.commit = facts.commit,
            .figures = spec.engine.dtype == "float32"    ? facts.as_float32
                       : spec.engine.dtype == "bfloat16" ? facts.as_bfloat16
                                                         : facts.as_stored};
  }
  entry.waiting.insert(family);
  if (!entry.is_queued && now >= entry.retry_at)
    entry.is_queued = queue_.TryPush(Name(name));
  // The answer may be lost with everything else that was known.
  ModelState state{
      .phase = Phase::kPending, .commit = pinned, .look_again = kRetryMin};
  if (!entry.failure.ok()) {
    state.phase = Phase::kFailed;
    state.message = MessageOf(entry.failure);
    state.look_again = std::max(entry.retry_at - now, kRetryMin);
  }
  return state;
}

StatusOr<HubModelFacts> HubCatalog::Impl::Ask(const Name& name) {
  ASSIGN_OR_RETURN(const std::string token, ReadToken(client_, name.token));
  return FetchHubModel(fetcher_, endpoint_, token, name.repository,
                       name.revision);
}

void HubCatalog::Impl::Resolve(const Name& name) {
  StatusOr<HubModelFacts> facts = Ask(name);
  std::set<kube::ObjectKey> waiting;
  {
    const MutexLock lock(&mutex_);
    Entry& entry = entries_[name];
    entry.is_queued = false;
    waiting.swap(entry.waiting);
    if (facts.ok()) {
      // Whoever was told of the commit asks for it by that name from now on.
      entries_[{name.repository, facts->commit, name.token}].facts = *facts;
      entries_[name].facts = *std::move(facts);
    } else {
      entry.failure = facts.status();
      entry.retry_at =
          clock_.Now() +
          std::min(kRetryMax, kRetryMin * (1 << std::min(entry.failures, 6)));
      ++entry.failures;
    }
  }
  for (const kube::ObjectKey& family : waiting) known_(family);
}

HubCatalog::HubCatalog(std::string endpoint, HttpFetcher& fetcher,
                       kube::Client& client, const Clock& clock,
                       std::function<void(const kube::ObjectKey&)> known)
    : impl_(std::make_unique<Impl>(std::move(endpoint), fetcher, client, clock,
                                   std::move(known))) {}

HubCatalog::~HubCatalog() = default;

ModelState HubCatalog::Lookup(const kube::ObjectKey& family,
                              const KVCachePoolSpec& spec,
                              const std::string& pinned) {
  if (const auto local = LocalModelState(spec)) return *local;
  return impl_->Lookup(family, spec, pinned);
}

}  // namespace tidepool::reconcilers
