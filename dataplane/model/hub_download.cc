#include "dataplane/model/hub_download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "dataplane/base/checked_math.h"
#include "dataplane/base/log.h"
#include "dataplane/base/unique_fd.h"
#include "dataplane/model/file_io.h"
#include "dataplane/model/hub_client.h"
#include "dataplane/model/safetensors_header.h"
#include "dataplane/model/snapshot.h"

namespace tidepool::model {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr uint64_t kMaxListingBytes = 16 << 20;
constexpr uint64_t kMaxSmallFileBytes = 128 << 20;
constexpr Duration kProgressInterval = std::chrono::milliseconds(200);
constexpr Duration kLockPollInterval = std::chrono::milliseconds(100);

// What is fetched beside the weights, where the repository has it.
constexpr const char* kSmallFiles[] = {
    "config.json",           "generation_config.json",  "tokenizer.json",
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "chat_template.json"};

Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoError(error.value(), fmt::format("make {}", path));
  return OkStatus();
}

// Waits for the lock that other processes and threads hold while they download
// the same repository. Closing the file gives it up.
StatusOr<UniqueFd> LockFile(const std::string& path, const HubOptions& options,
                            TimePoint deadline) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return ErrnoError(errno, fmt::format("open {}", path));
  for (bool first = true;; first = false) {
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return file;
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK)
      return ErrnoError(errno, fmt::format("lock {}", path));
    if (first) LOG_INFO("waiting for another download to release {}", path);
    if (options.stop.stop_requested())
      return MakeError(Code::kCancelled, "cancelled while waiting for {}",
                       path);
    if (options.clock->Now() >= deadline) {
      return MakeError(Code::kDeadlineExceeded,
                       "another download kept {} locked", path);
    }
    options.wait(kLockPollInterval, options.stop);
  }
}

// One download into one snapshot, under the repository's lock.
class Download {
 public:
  Download(const HubModel& model, const HubOptions& options,
           const SnapshotStore& store, HubListing listing, HubClient& client)
      : model_(model),
        options_(options),
        store_(store),
        listing_(std::move(listing)),
        client_(client),
        folder_(store.SnapshotFolder(listing_.commit)) {}

  Status Run() {
    RETURN_IF_ERROR(MakeFolder(folder_));
    RETURN_IF_ERROR(MakeFolder(store_.PartFolder()));
    if (listing_.Find("config.json") == nullptr) {
      return NotFound("hf:{}@{} has no config.json", model_.repository,
                      model_.revision);
    }
    std::vector<HubFile> small;
    for (const char* name : kSmallFiles) {
      if (const HubFile* file = listing_.Find(name)) small.push_back(*file);
    }
    RETURN_IF_ERROR(FetchSmall(small));
    if (options_.weights) RETURN_IF_ERROR(FetchWeights());
    return store_.WriteManifest(listing_.commit, options_.weights, fetched_);
  }

 private:
  Status FetchSmall(const std::vector<HubFile>& files) {
    for (const HubFile& file : files) {
      if (file.size > kMaxSmallFileBytes) {
        return ResourceExhausted("{}: {} bytes are over the limit of {}",
                                 file.path, file.size, kMaxSmallFileBytes);
      }
    }
    return FetchAll(files);
  }

  Status FetchWeights() {
    if (const HubFile* single = listing_.Find(kSingleFile))
      return FetchAll({*single});
    const HubFile* index_file = listing_.Find(kIndexFile);
    if (index_file == nullptr) {
      return NotFound("hf:{}@{} has no weights as safetensors",
                      model_.repository, model_.revision);
    }
    RETURN_IF_ERROR(FetchSmall({*index_file}));
    const std::string index_path = folder_ + "/" + kIndexFile;
    ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(index_path));
    const auto index = ParseSafetensorsIndex(text);
    if (!index.ok()) return Annotate(index.status(), index_path);
    std::set<std::string> names;
    for (const auto& [tensor, shard] : *index) names.insert(shard);
    std::vector<HubFile> shards;
    for (const std::string& name : names) {
      const HubFile* shard = listing_.Find(name);
      if (shard == nullptr) {
        return NotFound("hf:{}@{} has no {}, though {} names it",
                        model_.repository, model_.revision, name, kIndexFile);
      }
      shards.push_back(*shard);
    }
    return FetchAll(shards);
  }

  Status FetchAll(const std::vector<HubFile>& files) {
    RETURN_IF_ERROR(Announce(files));
    for (const HubFile& file : files) {
      const Status status = FetchOne(file);
      if (!status.ok()) {
        return Annotate(status, fmt::format("hf:{}@{}", model_.repository,
                                            model_.revision));
      }
      fetched_.push_back(file);
    }
    return OkStatus();
  }

  // Refuses what cannot fit before the first byte comes.
  Status Announce(const std::vector<HubFile>& files) {
    uint64_t missing = 0;
    for (const HubFile& file : files) {
      const auto total = CheckedAdd(progress_.size, file.size);
      if (!total.has_value() || *total > options_.bytes_max) {
        return ResourceExhausted("hf:{}@{}: over the limit of {} bytes at {}",
                                 model_.repository, model_.revision,
                                 options_.bytes_max, file.path);
      }
      progress_.size = *total;
      if (!store_.HasFile(listing_.commit, file))
        missing += file.size - store_.PartSize(file);
    }
    struct statvfs disk {};
    if (::statvfs(folder_.c_str(), &disk) != 0)
      return ErrnoError(errno, fmt::format("statvfs {}", folder_));
    const auto free = CheckedMul<uint64_t>(disk.f_bavail, disk.f_frsize);
    if (free.has_value() && missing > *free) {
      return ResourceExhausted("hf:{}@{}: needs {} bytes, {} has {} free",
                               model_.repository, model_.revision, missing,
                               folder_, *free);
    }
    return OkStatus();
  }

  Status FetchOne(const HubFile& file) {
    const std::string target = folder_ + "/" + file.path;
    if (!store_.HasFile(listing_.commit, file)) {
      ASSIGN_OR_RETURN(PartFile part,
                       PartFile::Open(store_.PartPath(file), file));
      Status status = FillAndPublish(file, part, target);
      // Bytes of an earlier process, or damaged on the way: once more, anew.
      if (status.code() == Code::kDataLoss) {
        LOG_WARNING("{}; downloading it again", MessageOf(status));
        RETURN_IF_ERROR(part.Restart());
        status = FillAndPublish(file, part, target);
      }
      RETURN_IF_ERROR(status);
    }
    progress_.bytes += file.size;
    Report(file, file.size, /*always=*/true);
    return OkStatus();
  }

  Status FillAndPublish(const HubFile& file, PartFile& part,
                        const std::string& target) {
    const std::string url = FileUrl(store_.endpoint(), model_.repository,
                                    listing_.commit, file.path);
    RETURN_IF_ERROR(client_.Fill(
        url, file, part, [&] { Report(file, part.size(), /*always=*/false); }));
    return part.Publish(target);
  }

  void Report(const HubFile& file, uint64_t file_bytes, bool always) {
    if (!options_.progress) return;
    const TimePoint now = options_.clock->Now();
    if (!always && now - last_report_ < kProgressInterval) return;
    last_report_ = now;
    DownloadProgress shown = progress_;
    shown.file = file.path;
    shown.file_bytes = file_bytes;
    shown.file_size = file.size;
    if (!always) shown.bytes += file_bytes;
    options_.progress(shown);
  }

  const HubModel& model_;
  const HubOptions& options_;
  const SnapshotStore& store_;
  const HubListing listing_;
  HubClient& client_;
  const std::string folder_;
  std::vector<HubFile> fetched_;
  DownloadProgress progress_;  // bytes and size: of finished and known files
  TimePoint last_report_{};
};

// What the revision means now. With `known` at hand one attempt is enough.
StatusOr<HubListing> AskHub(const HubModel& model, const HubOptions& options,
                            const SnapshotStore& store, HubClient& client,
                            const std::optional<std::string>& known) {
  RetryPolicy retry = options.retry;
  if (known.has_value()) retry.failures_max = 1;
  const std::string url = ListingUrl(store.endpoint(), model);
  ASSIGN_OR_RETURN(const std::string text,
                   client.GetText(url, kMaxListingBytes, retry));
  StatusOr<HubListing> listing = ParseHubListing(text);
  if (!listing.ok()) return Annotate(listing.status(), url);
  return listing;
}

}  // namespace

HubOptions HubOptionsFromEnvironment() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  HubOptions options;
  if (const std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty())
    options.endpoint = endpoint;
  options.token = variable("HF_TOKEN");
  if (const std::string own = variable("TIDEPOOL_CACHE"); !own.empty()) {
    options.cache_folder = own;
  } else if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) {
    options.cache_folder = xdg + "/tidepool";
  } else if (const std::string home = variable("HOME"); !home.empty()) {
    options.cache_folder = home + "/.cache/tidepool";
  }
  return options;
}

StatusOr<std::string> DownloadModel(const HubModel& model,
                                    const HubOptions& options) {
  if (options.cache_folder.empty()) {
    return InvalidArgument(
        "no folder to download to: set TIDEPOOL_CACHE, XDG_CACHE_HOME or HOME");
  }
  const TimePoint deadline = options.clock->Now() + options.timeout;
  ASSIGN_OR_RETURN(HubClient client, HubClient::Create(options, deadline));
  const SnapshotStore store(options.cache_folder, options.endpoint,
                            model.repository);
  RETURN_IF_ERROR(MakeFolder(store.root()));
  const std::optional<std::string> known =
      store.FindComplete(model.revision, options.weights);
  // A commit never changes its meaning.
  if (known.has_value() && IsCommit(model.revision)) return *known;

  StatusOr<HubListing> listing = AskHub(model, options, store, client, known);
  if (listing.status().code() == Code::kUnavailable && known.has_value()) {
    LOG_WARNING("using the downloaded hf:{}@{}: {}", model.repository,
                model.revision, MessageOf(listing.status()));
    return *known;
  }
  if (!listing.ok()) {
    return Annotate(listing.status(),
                    fmt::format("hf:{}@{}", model.repository, model.revision));
  }
  const std::string commit = listing->commit;
  ASSIGN_OR_RETURN(const UniqueFd lock,
                   LockFile(store.LockPath(), options, deadline));
  if (!store.IsComplete(commit, options.weights)) {
    RETURN_IF_ERROR(
        Download(model, options, store, *std::move(listing), client).Run());
  }
  RETURN_IF_ERROR(store.WriteReference(model.revision, commit));
  return store.SnapshotFolder(commit);
}

}  // namespace tidepool::model
