// The hub's side of a download, for tests.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dataplane/model/scripted_http_server.h"

namespace tidepool::model {

inline const std::string kFakeCommit(40, 'c');

// The repository `acme/tiny`, whose `main` is kFakeCommit, served as the hub
// does: weights by SHA-256, the rest as git blobs. Change it between downloads
// only.
class FakeHub {
 public:
  // Spoils an honest reply.
  using Fault = std::function<void(const ScriptedRequest&, ScriptedReply&)>;

  // Holds a configuration, a tokenizer, weights, and files nobody needs.
  FakeHub();

  void SetFile(const std::string& name, const std::string& content) {
    files_[name] = content;
  }
  void RemoveFile(const std::string& name) { files_.erase(name); }
  const std::string& File(const std::string& name) { return files_.at(name); }
  // Shown in the listing instead of the real size.
  void LieAboutSize(const std::string& name, uint64_t size) {
    sizes_[name] = size;
  }
  // For one request of the file, after the faults before it; the listing is
  // "listing".
  void AddFault(const std::string& name, Fault fault) {
    faults_[name].push_back(std::move(fault));
  }

  std::string url() const { return server_.url(); }
  std::vector<ScriptedRequest> requests() const { return server_.requests(); }
  // The names of the files in all requests so far.
  std::vector<std::string> RequestedFiles() const;
  std::vector<ScriptedRequest> RequestsOf(const std::string& name) const;

 private:
  ScriptedReply Handle(const ScriptedRequest& request);
  ScriptedReply Honest(const ScriptedRequest& request,
                       const std::string& name) const;
  std::string Listing() const;

  std::map<std::string, std::string> files_;
  std::map<std::string, uint64_t> sizes_;
  std::map<std::string, std::deque<Fault>> faults_;
  ScriptedHttpServer server_;  // last: its thread uses the others
};

}  // namespace tidepool::model
