#include "dataplane/model/fake_hub.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <nlohmann/json.hpp>

#include "dataplane/base/digest.h"

namespace tidepool::model {
namespace {

using nlohmann::json;

std::string NameOf(const ScriptedRequest& request) {
  if (request.target.starts_with("/api/")) return "listing";
  return request.target.substr(request.target.rfind('/') + 1);
}

std::string GitBlobSha1(const std::string& content) {
  const std::string blob =
      fmt::format("blob {}", content.size()) + std::string(1, '\0') + content;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(blob.data(), blob.size(), digest, &size, EVP_sha1(), nullptr);
  return fmt::format("{:02x}", fmt::join(digest, digest + size, ""));
}

}  // namespace

FakeHub::FakeHub()
    : server_([this](const auto& request) { return Handle(request); }) {
  files_["config.json"] = R"({"model_type": "llama"})";
  files_["tokenizer.json"] = std::string(3000, 't');
  files_["README.md"] = "not needed";
  files_["pytorch_model.bin"] = "not wanted";
  files_["model.safetensors"] = std::string(200000, 'w');
}

std::vector<std::string> FakeHub::RequestedFiles() const {
  std::vector<std::string> names;
  for (const auto& request : requests()) names.push_back(NameOf(request));
  return names;
}

std::vector<ScriptedRequest> FakeHub::RequestsOf(
    const std::string& name) const {
  std::vector<ScriptedRequest> found;
  for (const auto& request : requests()) {
    if (NameOf(request) == name) found.push_back(request);
  }
  return found;
}

ScriptedReply FakeHub::Handle(const ScriptedRequest& request) {
  const std::string name = NameOf(request);
  ScriptedReply reply = Honest(request, name);
  if (auto& faults = faults_[name]; !faults.empty()) {
    faults.front()(request, reply);
    faults.pop_front();
  }
  return reply;
}

ScriptedReply FakeHub::Honest(const ScriptedRequest& request,
                              const std::string& name) const {
  const std::string api = "/api/models/acme/tiny/revision/";
  if (request.target == api + "main?blobs=true" ||
      request.target == api + kFakeCommit + "?blobs=true") {
    return {.body = Listing()};
  }
  const std::string folder = "/acme/tiny/resolve/" + kFakeCommit + "/";
  if (!request.target.starts_with(folder) || !files_.contains(name))
    return {.status = 404};
  const std::string& content = files_.at(name);
  const auto range = request.headers.find("range");
  if (range == request.headers.end()) return {.body = content};
  const size_t offset = std::stoul(range->second.substr(6));  // "bytes=N-"
  return {.status = 206,
          .headers = {{"Content-Range",
                       fmt::format("bytes {}-{}/{}", offset, content.size() - 1,
                                   content.size())}},
          .body = content.substr(offset)};
}

std::string FakeHub::Listing() const {
  json siblings = json::array();
  for (const auto& [name, content] : files_) {
    const auto lie = sizes_.find(name);
    const uint64_t size = lie == sizes_.end() ? content.size() : lie->second;
    json entry = {
        {"rfilename", name}, {"size", size}, {"blobId", GitBlobSha1(content)}};
    if (name.ends_with(".safetensors")) {
      entry["lfs"] = {{"sha256", Sha256Of(content).Hex()},
                      {"size", size},
                      {"pointerSize", 134}};
    }
    siblings.push_back(entry);
  }
  const json listing = {
      {"id", "acme/tiny"}, {"sha", kFakeCommit}, {"siblings", siblings}};
  return listing.dump();
}

}  // namespace tidepool::model
