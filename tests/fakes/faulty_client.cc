#include "tests/fakes/faulty_client.h"

#include <algorithm>
#include <utility>

namespace tidepool::fakes {

using kube::Json;
using kube::ObjectKey;
using kube::ResourceType;
using kube::WatchEvent;

FaultyClient::FaultyClient(ApiServer& server, uint64_t seed)
    : server_(server), random_(seed) {}

void FaultyClient::set_rates(const FaultRates& rates) {
  const MutexLock lock(&mutex_);
  rates_ = rates;
}

void FaultyClient::DieAtWrite(uint64_t n, bool after) {
  const MutexLock lock(&mutex_);
  faults_.push_back({writes_ + n, after, true});
}

void FaultyClient::FailWrite(uint64_t n, bool after) {
  const MutexLock lock(&mutex_);
  faults_.push_back({writes_ + n, after, false});
}

void FaultyClient::Cut() {
  const MutexLock lock(&mutex_);
  link_ = Link::kCut;
}

void FaultyClient::Freeze() {
  const MutexLock lock(&mutex_);
  link_ = Link::kFrozen;
}

void FaultyClient::Deafen() {
  const MutexLock lock(&mutex_);
  ++deafened_;
}

uint64_t FaultyClient::deafened() const {
  const MutexLock lock(&mutex_);
  return deafened_;
}

void FaultyClient::Revive() {
  const MutexLock lock(&mutex_);
  link_ = Link::kUp;
  faults_.clear();
}

bool FaultyClient::dead() const {
  const MutexLock lock(&mutex_);
  return link_ == Link::kDead;
}

uint64_t FaultyClient::writes() const {
  const MutexLock lock(&mutex_);
  return writes_;
}

uint64_t FaultyClient::writes_done() const {
  const MutexLock lock(&mutex_);
  return writes_done_;
}

Status FaultyClient::Reach() const {
  const MutexLock lock(&mutex_);
  switch (link_) {
    case Link::kUp:
      return OkStatus();
    case Link::kFrozen:
      return DeadlineExceeded("no answer in time");
    case Link::kCut:
    case Link::kDead:
      break;
  }
  return Unavailable("no connection");
}

bool FaultyClient::Chance(double probability) {
  if (probability <= 0) return false;
  const MutexLock lock(&mutex_);
  return random_.Chance(probability);
}

// Decides before and after `act` what becomes of the write.
template <typename Do>
auto FaultyClient::Write(Do&& act) -> decltype(act()) {
  RETURN_IF_ERROR(Reach());
  FaultRates rates;
  std::optional<Fault> fault;
  {
    const MutexLock lock(&mutex_);
    ++writes_;
    rates = rates_;
    const auto it = std::ranges::find(faults_, writes_, &Fault::at_write);
    if (it != faults_.end()) {
      fault = *it;
      faults_.erase(it);
      if (fault->die) link_ = Link::kDead;
    }
  }
  if ((fault && !fault->after) || Chance(rates.write_lost))
    return Unavailable("the connection broke before the write");
  if (Chance(rates.conflict))
    return MakeError(Code::kAborted, "somebody else wrote first");
  auto result = act();
  if (result.ok()) {
    const MutexLock lock(&mutex_);
    ++writes_done_;
  }
  if (fault || Chance(rates.answer_lost))
    return DeadlineExceeded("no answer to the write in time");
  return result;
}

std::optional<uint64_t> FaultyClient::PastVersion() {
  const uint64_t now = server_.version();
  const MutexLock lock(&mutex_);
  if (!random_.Chance(rates_.read_stale)) return std::nullopt;
  const uint64_t back =
      1 + random_.Below(std::max<uint64_t>(rates_.stale_max, 1));
  return back >= now ? std::nullopt : std::optional(now - back);
}

StatusOr<Json> FaultyClient::Get(const ResourceType& type,
                                 const ObjectKey& key) {
  RETURN_IF_ERROR(Reach());
  FaultRates rates;
  {
    const MutexLock lock(&mutex_);
    rates = rates_;
  }
  if (Chance(rates.read_failed)) return Unavailable("the connection broke");
  if (const auto version = PastVersion()) {
    const auto past = server_.ListAt(type, {.space = key.space}, *version);
    if (past.ok()) {
      for (const Json& object : *past)
        if (object["metadata"]["name"] == key.name) return object;
      return NotFound("{} {} not found", type.plural, key.ToString());
    }
  }
  return server_.Get(type, key);
}

StatusOr<std::string> FaultyClient::List(
    const ResourceType& type, const kube::ListOptions& options,
    const std::function<void(Json&)>& take) {
  RETURN_IF_ERROR(Reach());
  FaultRates rates;
  {
    const MutexLock lock(&mutex_);
    rates = rates_;
  }
  if (Chance(rates.read_failed)) return Unavailable("the connection broke");
  const bool breaks = Chance(rates.list_broken);
  if (const auto version = PastVersion()) {
    auto past = server_.ListAt(type, options, *version);
    if (past.ok() && !breaks) {
      for (Json& object : *past) take(object);
      return std::to_string(*version);
    }
  }
  // Breaks after a random part of the objects.
  uint64_t left = UINT64_MAX;
  if (breaks) {
    const MutexLock lock(&mutex_);
    left = random_.Below(10);
  }
  const StatusOr<std::string> version =
      server_.List(type, options, [&](Json& object) {
        if (left > 0) {
          --left;
          take(object);
        }
      });
  if (breaks)
    return MakeError(Code::kOutOfRange, "the continue token has expired");
  return version;
}

Status FaultyClient::Watch(const ResourceType& type,
                           const kube::WatchOptions& options,
                           const std::function<bool(WatchEvent&)>& take) {
  RETURN_IF_ERROR(Reach());
  return server_.Watch(type, options, take);
}

namespace {

class FaultyStream final : public ApiServer::Stream {
 public:
  FaultyStream(std::unique_ptr<ApiServer::Stream> stream,
               std::function<Status()> reach, std::function<bool()> deaf)
      : stream_(std::move(stream)),
        reach_(std::move(reach)),
        deaf_(std::move(deaf)) {}

  StatusOr<std::optional<WatchEvent>> Poll() override {
    const Status reach = reach_();
    if (reach.code() == Code::kDeadlineExceeded) return std::nullopt;
    RETURN_IF_ERROR(reach);
    while (true) {
      auto event = stream_->Poll();
      if (!event.ok() || !*event || !deaf_() ||
          (*event)->type == kube::EventType::kBookmark)
        return event;
    }
  }

 private:
  const std::unique_ptr<ApiServer::Stream> stream_;
  const std::function<Status()> reach_;
  const std::function<bool()> deaf_;
};

}  // namespace

StatusOr<std::unique_ptr<ApiServer::Stream>> FaultyClient::OpenWatch(
    const ResourceType& type, const kube::WatchOptions& options) {
  RETURN_IF_ERROR(Reach());
  ASSIGN_OR_RETURN(auto stream, server_.OpenWatch(type, options));
  return std::make_unique<FaultyStream>(
      std::move(stream), [this] { return Reach(); },
      [this, before = deafened()] { return deafened() != before; });
}

StatusOr<Json> FaultyClient::Apply(const ResourceType& type,
                                   const ObjectKey& key, const Json& object,
                                   std::string_view subresource) {
  return Write([&] { return server_.Apply(type, key, object, subresource); });
}

StatusOr<Json> FaultyClient::Create(const ResourceType& type,
                                    std::string_view space,
                                    const Json& object) {
  return Write([&] { return server_.Create(type, space, object); });
}

StatusOr<Json> FaultyClient::Replace(const ResourceType& type,
                                     const ObjectKey& key, const Json& object,
                                     std::string_view subresource) {
  return Write([&] { return server_.Replace(type, key, object, subresource); });
}

StatusOr<Json> FaultyClient::Patch(const ResourceType& type,
                                   const ObjectKey& key,
                                   kube::PatchType patch_type,
                                   const Json& patch,
                                   std::string_view subresource) {
  return Write(
      [&] { return server_.Patch(type, key, patch_type, patch, subresource); });
}

Status FaultyClient::Delete(const ResourceType& type, const ObjectKey& key,
                            const kube::DeleteOptions& options) {
  return Write([&] { return server_.Delete(type, key, options); });
}

}  // namespace tidepool::fakes
