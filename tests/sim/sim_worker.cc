#include "tests/sim/sim_worker.h"

#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/base/digest.h"

namespace tidepool::sim {
namespace {

uint64_t ChecksumOf(const std::vector<uint64_t>& slice) {
  return Checksum64(std::as_bytes(std::span(slice)));
}

worker::WorkerCoreConfig CoreConfigOf(const SimWorkerConfig& config) {
  worker::WorkerCoreConfig core = config.core;
  core.slice_bytes = static_cast<uint64_t>(config.model.Layout().slice_bytes());
  wire::DescribeResponse& description = core.description;
  description.set_incarnation(config.incarnation);
  description.set_role(config.role);
  description.set_ready(true);
  description.set_vocab_size(static_cast<uint32_t>(config.model.vocab_size));
  description.set_max_model_len(
      static_cast<uint32_t>(config.engine.max_model_len));
  description.set_max_num_seqs(
      static_cast<uint32_t>(config.engine.max_num_seqs));
  description.set_transfer_address(config.address);
  wire::ModelIdentity& identity = *description.mutable_identity();
  identity.set_model_digest(fmt::format("weights {}", config.model.weights));
  identity.set_numerics_id("fake");
  identity.set_num_layers(static_cast<uint32_t>(config.model.num_layers));
  identity.set_num_kv_heads(1);
  identity.set_head_dim(1);
  identity.set_page_tokens(static_cast<uint32_t>(config.model.page_tokens));
  identity.set_block_tokens(static_cast<uint32_t>(config.engine.block_tokens));
  return core;
}

}  // namespace

SimWorker::SimWorker(SimWorkerConfig config, EventQueue& queue, Random& random,
                     SimNetwork& network, Report report)
    : config_(std::move(config)),
      queue_(queue),
      random_(random),
      network_(network),
      report_(std::move(report)),
      runner_(config_.model, config_.engine.num_pages),
      streamer_(config_.model.num_layers),
      role_(config_.role) {
  StatusOr<std::unique_ptr<engine::EngineCore>> engine =
      engine::EngineCore::Create(config_.engine);
  CHECK(engine.ok());
  engine_ = *std::move(engine);
  core_ = std::make_unique<worker::WorkerCore>(CoreConfigOf(config_), *engine_);
}

void SimWorker::Post(Duration delay, std::function<void()> run) {
  PostAt(queue_, shared_from_this(), queue_.now() + delay, std::move(run));
}

// ---- From the network ----

void SimWorker::OnSessionMessage(const std::shared_ptr<Stream>& stream,
                                 const wire::SessionRequest& message) {
  sessions_[stream->id] = stream;
  core_->OnSessionMessage(stream->id, message, queue_.now());
  Settle();
}

void SimWorker::OnSessionClosed(uint64_t session) {
  sessions_.erase(session);
  core_->OnSessionClosed(session, queue_.now());
  Settle();
}

void SimWorker::OnPeerCall(worker::IncomingCallId call,
                           const worker::PeerRequest& request) {
  core_->OnPeerCall(call, request, queue_.now());
  Settle();
}

void SimWorker::OnPeerReply(worker::PeerCallId call,
                            const StatusOr<worker::PeerResponse>& response) {
  core_->OnPeerReply(call, response, queue_.now());
  Settle();
}

void SimWorker::Drain(Duration timeout) {
  draining_ = true;
  core_->Drain(timeout, queue_.now());
  Settle();
}

void SimWorker::SetRole(const wire::SetRoleRequest& request) {
  const std::pair epoch(request.epoch().term(), request.epoch().sequence());
  const bool current =
      request.incarnation() == config_.incarnation && !draining_ &&
      (epoch > epoch_ || (epoch == epoch_ && request.role() == role_));
  const StatusOr<wire::RoleState> state = core_->SetRole(request, queue_.now());
  if (state.ok() != current) {
    report_(fmt::format("{}: epoch {}.{} after {}.{}: {}", config_.name,
                        epoch.first, epoch.second, epoch_.first, epoch_.second,
                        state.ok() ? "taken" : MessageOf(state.status())));
  }
  if (state.ok()) {
    epoch_ = epoch;
    role_ = request.role();
  }
  Settle();
}

// ---- Transfers ----

std::optional<std::vector<std::vector<uint64_t>>> SimWorker::ReadSlices(
    const worker::SliceSubmission& submission) {
  const worker::StreamId stream = submission.target->stream;
  // To cancel is to ask: what is on its way may be read all the same.
  if (closed_streams_.contains(stream) && random_.Chance(0.5)) {
    return std::nullopt;
  }
  CheckOwned(stream, submission.pages, "read for a transfer");
  std::vector<std::vector<uint64_t>> slices;
  for (int32_t layer = submission.layer_begin; layer < submission.layer_end;
       ++layer) {
    for (const engine::PageId page : submission.pages) {
      const std::span<uint64_t> slice = runner_.Slice(layer, page);
      slices.emplace_back(slice.begin(), slice.end());
    }
  }
  return slices;
}

// A grant, a stream and a sequence have the same number.
void SimWorker::CheckOwned(engine::SequenceId sequence,
                           std::span<const engine::PageId> pages,
                           std::string_view what) {
  const std::span<const engine::PageId> owned = engine_->PagesOf(sequence);
  for (const engine::PageId page : pages) {
    if (std::ranges::find(owned, page) != owned.end()) continue;
    report_(fmt::format("{}: page {} is {}, though it is not of sequence {}",
                        config_.name, page, what, sequence));
  }
}

Status SimWorker::WriteSlices(
    const worker::SliceSubmission& submission,
    const std::vector<std::vector<uint64_t>>& slices) {
  const wire::TransferCapability& capability = submission.target->capability;
  if (capability.incarnation() != config_.incarnation) {
    return MakeError(Code::kPermissionDenied, "of another process");
  }
  const auto it = std::ranges::find_if(grants_, [&](const auto& entry) {
    return entry.second.capability_id == capability.capability_id();
  });
  if (it == grants_.end()) return FailedPrecondition("revoked");
  Grant& grant = it->second;
  if (grant.revoking && random_.Chance(0.5)) {
    return FailedPrecondition("being revoked");
  }
  CheckOwned(it->first, grant.pages, "written by a transfer");
  size_t next = 0;
  for (int32_t layer = submission.layer_begin; layer < submission.layer_end;
       ++layer) {
    for (size_t i = 0; i < submission.pages.size(); ++i) {
      const auto index = static_cast<uint32_t>(submission.extent_begin + i);
      const std::vector<uint64_t>& slice = slices[next++];
      std::ranges::copy(slice,
                        runner_.Slice(layer, grant.pages.at(index)).begin());
      grant.checksums[static_cast<uint32_t>(
          static_cast<size_t>(layer) * grant.pages.size() + index)] =
          ChecksumOf(slice);
    }
  }
  return OkStatus();
}

void SimWorker::SubmitAll(std::vector<worker::SliceSubmission>& submissions) {
  for (const worker::SliceSubmission& submission : submissions) {
    network_.Transfer(std::static_pointer_cast<SimWorker>(shared_from_this()),
                      submission);
  }
  submissions.clear();
}

void SimWorker::OnTransferDone(
    const worker::SliceSubmission& submission, const Status& status,
    const std::vector<std::vector<uint64_t>>& slices) {
  const worker::StreamId stream = submission.target->stream;
  if (!closed_streams_.contains(stream)) {
    worker::SlicesSent sent{.stream = stream,
                            .layer_begin = submission.layer_begin,
                            .layer_end = submission.layer_end,
                            .extent_begin = submission.extent_begin,
                            .ok = status.ok(),
                            .error = std::string(MessageOf(status)),
                            .transport = "sim"};
    if (status.ok()) {
      std::ranges::transform(slices, std::back_inserter(sent.checksums),
                             ChecksumOf);
    }
    core_->OnSlicesSent(sent, queue_.now());
  }
  if (streamer_.Complete(stream)) core_->OnStreamClosed(stream, queue_.now());
  Settle();
}

void SimWorker::CloseStream(worker::StreamId stream) {
  closed_streams_.insert(stream);
  if (streamer_.Close(stream)) core_->OnStreamClosed(stream, queue_.now());
}

// ---- Grants ----

void SimWorker::GrantPages(const worker::GrantCapability& grant) {
  Grant& entry = grants_[grant.grant];
  entry.capability_id = next_capability_++;
  entry.pages = grant.pages;
  wire::TransferCapability capability;
  capability.set_capability_id(entry.capability_id);
  capability.set_incarnation(config_.incarnation);
  for (const engine::PageId page : grant.pages) {
    capability.add_page_ids(static_cast<uint32_t>(page));
  }
  capability.set_num_layers(static_cast<uint32_t>(config_.model.num_layers));
  capability.set_slice_bytes(
      static_cast<uint64_t>(config_.model.Layout().slice_bytes()));
  core_->OnGranted(grant.grant, capability, queue_.now());
}

void SimWorker::RevokePages(worker::GrantId id) {
  grants_.at(id).revoking = true;
  Post(network_.TransferDelay(), [this, id] {
    const Grant grant = std::move(grants_.extract(id).mapped());
    const size_t extents =
        grant.pages.size() * static_cast<size_t>(config_.model.num_layers);
    transfer::Received received;
    received.extents = static_cast<uint32_t>(grant.checksums.size());
    received.complete = grant.checksums.size() == extents;
    if (received.complete) {
      std::vector<uint64_t> checksums;
      for (const auto& [extent, checksum] : grant.checksums) {
        checksums.push_back(checksum);
      }
      received.digest = transfer::DigestOf(checksums);
    }
    core_->OnRevoked(id, received, queue_.now());
    Settle();
  });
}

// ---- Steps ----

void SimWorker::RunStep(const worker::RunStep& step) {
  streamer_.StartStep(step.step_pages);
  const engine::StepPlan* plan = step.plan;
  const Duration layer_time =
      config_.layer_time * (1 + plan->num_tokens() / 16);
  for (int32_t layer = 0; layer < config_.model.num_layers; ++layer) {
    Post(layer_time * (layer + 1), [this, plan, layer] {
      runner_.ComputeLayer(*plan, layer);
      std::vector<worker::SliceSubmission> submissions;
      streamer_.OnLayer(layer, submissions);
      SubmitAll(submissions);
      if (layer + 1 == config_.model.num_layers) EndStep(*plan);
    });
  }
}

void SimWorker::EndStep(const engine::StepPlan& plan) {
  const bool ok = !random_.Chance(config_.step_error);
  streamer_.FinishStep(ok);
  runner_.Sample(plan, step_result_);
  core_->OnStepDone(ok ? OkStatus() : Internal("the device failed"),
                    step_result_, queue_.now());
  Settle();
}

// ---- Effects ----

void SimWorker::Settle() {
  while (true) {
    const std::vector<worker::WorkerEffect> effects = core_->TakeEffects();
    if (effects.empty()) break;
    for (const worker::WorkerEffect& effect : effects) Perform(effect);
  }
  ScheduleTick();
}

void SimWorker::Perform(const worker::WorkerEffect& effect) {
  const auto self = std::static_pointer_cast<SimWorker>(shared_from_this());
  std::vector<worker::SliceSubmission> submissions;
  if (const auto* send = std::get_if<worker::SendToConductor>(&effect)) {
    const auto it = sessions_.find(send->session);
    if (it != sessions_.end()) network_.ToConductor(it->second, send->message);
  } else if (const auto* end = std::get_if<worker::EndSession>(&effect)) {
    const auto it = sessions_.find(end->session);
    if (it != sessions_.end()) {
      network_.Break(it->second, false, true,
                     std::string(MessageOf(end->reason)));
      sessions_.erase(it);
    }
  } else if (const auto* call = std::get_if<worker::CallPeer>(&effect)) {
    network_.Call(self, *call);
  } else if (const auto* reply = std::get_if<worker::ReplyToPeer>(&effect)) {
    network_.Answer(reply->call, reply->response);
  } else if (const auto* grant =
                 std::get_if<worker::GrantCapability>(&effect)) {
    GrantPages(*grant);
  } else if (const auto* revoke =
                 std::get_if<worker::RevokeCapability>(&effect)) {
    RevokePages(revoke->grant);
  } else if (const auto* run = std::get_if<worker::RunStep>(&effect)) {
    RunStep(*run);
  } else if (const auto* final = std::get_if<worker::AddFinalPages>(&effect)) {
    streamer_.AddFinal(final->pages, submissions);
  } else if (const auto* open = std::get_if<worker::OpenStream>(&effect)) {
    streamer_.Open(open->target, submissions);
  } else {
    CloseStream(std::get<worker::CloseStream>(effect).stream);
  }
  SubmitAll(submissions);
}

void SimWorker::ScheduleTick() {
  const TimePoint at = core_->NextDeadline();
  if (at >= tick_at_) return;
  tick_at_ = at;
  PostAt(queue_, shared_from_this(), at, [this, at] {
    if (tick_at_ != at) return;  // an earlier one took its place
    tick_at_ = TimePoint::max();
    core_->Tick(queue_.now());
    Settle();
  });
}

// ---- Checks ----

Status SimWorker::CheckQuiet() const {
  const engine::EngineStats stats = engine_->Stats();
  RETURN_IF_ERROR(engine_->CheckInvariants());
  if (!core_->Idle()) {
    const worker::WorkerCoreStats core = core_->Stats();
    return Internal(
        "{}: {} requests, {} reservations, {} quarantined, {} streams are left",
        config_.name, core.requests, core.reservations, core.quarantined,
        core.streams);
  }
  if (stats.pages_free + stats.pages_cached != stats.pages_total) {
    return Internal("{}: {} of {} pages are free, {} cached", config_.name,
                    stats.pages_free, stats.pages_total, stats.pages_cached);
  }
  if (!grants_.empty()) {
    return Internal("{}: {} grants are left", config_.name, grants_.size());
  }
  if (streamer_.num_streams() != 0) {
    return Internal("{}: {} streams are left", config_.name,
                    streamer_.num_streams());
  }
  return OkStatus();
}

}  // namespace tidepool::sim
