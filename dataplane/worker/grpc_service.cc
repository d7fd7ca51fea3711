#include "dataplane/worker/grpc_service.h"

#include <utility>

#include "dataplane/worker/grpc_status.h"

namespace tidepool::worker {
namespace {

using rpc::Component;

class RefusedSession : public grpc::ServerBidiReactor<wire::SessionRequest,
                                                      wire::SessionResponse> {
 public:
  explicit RefusedSession(const Status& reason) {
    Finish(ToGrpc(Annotate(reason, "session")));
  }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerUnaryReactor* WorkerService::Describe(
    grpc::CallbackServerContext* context, const wire::DescribeRequest*,
    wire::DescribeResponse* response) {
  *response = describe_();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerBidiReactor<wire::SessionRequest, wire::SessionResponse>*
WorkerService::Session(grpc::CallbackServerContext* context) {
  if (const Status allowed = security_.CheckCaller(*context->auth_context(),
                                                   Component::kConductor);
      !allowed.ok())
    return new RefusedSession(allowed);
  if (!describe_().ready())
    return new RefusedSession(Unavailable("the model is still loading"));
  return sessions_.Open(context);
}

grpc::ServerUnaryReactor* WorkerService::SetRole(
    grpc::CallbackServerContext* context, const wire::SetRoleRequest* request,
    wire::SetRoleResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // `response` lives until Finish.
  const auto reply = [reactor, response](StatusOr<wire::RoleState> state) {
    if (state.ok()) *response->mutable_state() = *std::move(state);
    reactor->Finish(ToGrpc(Annotate(state.status(), "set role")));
  };
  if (const Status allowed = security_.CheckCaller(*context->auth_context(),
                                                   Component::kController);
      allowed.ok())
    set_role_(*request, reply);
  else
    reply(allowed);
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* PeerService::Take(
    grpc::CallbackServerContext* context, const Request& request,
    Response* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // `response` lives until Finish.
  Finish finish = [reactor, response](StatusOr<PeerResponse> result) {
    if (result.ok()) *response = std::get<Response>(*std::move(result));
    reactor->Finish(ToGrpc(result.status()));
  };
  Status refused =
      security_.CheckCaller(*context->auth_context(), Component::kWorker);
  IncomingCallId id;
  {
    const MutexLock lock(&mutex_);
    if (refused.ok()) refused = closed_;
    if (refused.ok() && waiting_.size() >= max_calls_)
      refused = Unavailable("peer call: {} are waiting already", max_calls_);
    if (!refused.ok()) {
      reactor->Finish(ToGrpc(refused));
      return reactor;
    }
    id = next_id_++;
    waiting_[id] = std::move(finish);
  }
  if (!on_call_(id, PeerRequest(request)))
    Reply(id, Unavailable("peer call: the worker is not ready or overloaded"));
  return reactor;
}

grpc::ServerUnaryReactor* PeerService::Reserve(
    grpc::CallbackServerContext* context, const wire::ReserveRequest* request,
    wire::ReserveResponse* response) {
  return Take(context, *request, response);
}

grpc::ServerUnaryReactor* PeerService::Commit(
    grpc::CallbackServerContext* context, const wire::CommitRequest* request,
    wire::CommitResponse* response) {
  return Take(context, *request, response);
}

grpc::ServerUnaryReactor* PeerService::Abort(
    grpc::CallbackServerContext* context, const wire::AbortRequest* request,
    wire::AbortResponse* response) {
  return Take(context, *request, response);
}

PeerService::Finish PeerService::TakeOut(IncomingCallId call) {
  const MutexLock lock(&mutex_);
  auto node = waiting_.extract(call);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void PeerService::Reply(IncomingCallId call, StatusOr<PeerResponse> response) {
  if (Finish finish = TakeOut(call)) finish(std::move(response));
}

void PeerService::FailAll(const Status& reason) {
  std::map<IncomingCallId, Finish> failed;
  {
    const MutexLock lock(&mutex_);
    closed_ = reason;
    failed.swap(waiting_);
  }
  for (auto& [id, finish] : failed) finish(reason);
}

}  // namespace tidepool::worker
