#include "dataplane/worker/grpc_peer_client.h"

#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <utility>

#include "dataplane/worker/grpc_status.h"

namespace tidepool::worker {

struct PeerClient::PendingCall {
  PeerCallId call = 0;
  std::shared_ptr<wire::PeerService::Stub> stub;
  grpc::ClientContext context;
};

template <typename Response>
struct PeerClient::Pending : PendingCall {
  Response response;
};

PeerClient::~PeerClient() {
  const MutexLock lock(&mutex_);
  for (const auto& [id, pending] : under_way_) pending->context.TryCancel();
  const auto none = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return under_way_.empty();
  };
  mutex_.Await(absl::Condition(&none));
}

std::shared_ptr<wire::PeerService::Stub> PeerClient::StubFor(
    const std::string& address) {
  const MutexLock lock(&mutex_);
  if (!channels_.contains(address) && channels_.size() >= max_channels_) {
    channels_.erase(std::ranges::min_element(
        channels_, {},
        [](const auto& entry) { return entry.second.last_used; }));
  }
  Channel& channel = channels_[address];
  channel.last_used = ++uses_;
  if (channel.stub == nullptr) {
    grpc::ChannelArguments arguments;
    // A worker that was restarted is found again soon; who repeats a call, and
    // how often, is the core's business.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    channel.stub = wire::PeerService::NewStub(
        security_.OpenChannel(address, rpc::Component::kWorker, arguments));
  }
  return channel.stub;
}

template <typename Response>
PeerClient::Pending<Response>* PeerClient::Begin(const CallPeer& call) {
  auto pending = std::make_shared<Pending<Response>>();
  pending->call = call.call;
  pending->stub = StubFor(call.address);
  pending->context.set_deadline(ToGrpc(call.deadline));
  std::vector<std::shared_ptr<PendingCall>> done;  // goes after the lock
  const MutexLock lock(&mutex_);
  done.swap(done_);
  under_way_[call.call] = pending;
  return pending.get();
}

template <typename Response>
void PeerClient::End(Pending<Response>* pending, const grpc::Status& status) {
  on_reply_(pending->call,
            status.ok() ? StatusOr<PeerResponse>(std::move(pending->response))
                        : StatusOr<PeerResponse>(FromGrpc(status)));
  const MutexLock lock(&mutex_);
  const auto found = under_way_.find(pending->call);
  done_.push_back(std::move(found->second));
  under_way_.erase(found);
}

void PeerClient::Call(const CallPeer& call) {
  if (const auto* reserve = std::get_if<wire::ReserveRequest>(&call.request)) {
    auto* const pending = Begin<wire::ReserveResponse>(call);
    pending->stub->async()->Reserve(
        &pending->context, reserve, &pending->response,
        [this, pending](const grpc::Status& status) { End(pending, status); });
  } else if (const auto* commit =
                 std::get_if<wire::CommitRequest>(&call.request)) {
    auto* const pending = Begin<wire::CommitResponse>(call);
    pending->stub->async()->Commit(
        &pending->context, commit, &pending->response,
        [this, pending](const grpc::Status& status) { End(pending, status); });
  } else {
    auto* const pending = Begin<wire::AbortResponse>(call);
    pending->stub->async()->Abort(
        &pending->context, &std::get<wire::AbortRequest>(call.request),
        &pending->response,
        [this, pending](const grpc::Status& status) { End(pending, status); });
  }
}

}  // namespace tidepool::worker
