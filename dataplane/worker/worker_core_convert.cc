#include "dataplane/worker/worker_core_convert.h"

#include <algorithm>
#include <cstring>

#include "dataplane/base/check.h"

namespace tidepool::worker {
namespace {

namespace wire = ::tidepool::worker::v1;

engine::SamplingParams SamplingOf(const wire::SamplingParams& from) {
  engine::SamplingParams to;
  to.temperature = from.temperature();
  to.top_k = from.top_k();
  to.top_p = from.top_p();
  to.min_p = from.min_p();
  to.repetition_penalty = from.repetition_penalty();
  to.presence_penalty = from.presence_penalty();
  to.frequency_penalty = from.frequency_penalty();
  for (const wire::SamplingParams::LogitBias& bias : from.logit_bias()) {
    to.logit_bias.emplace_back(bias.token(), bias.bias());
  }
  to.seed = from.seed();
  to.logprobs = from.logprobs();
  to.prompt_logprobs = from.prompt_logprobs();
  to.max_tokens = from.max_tokens();
  to.min_tokens = from.min_tokens();
  to.ignore_eos = from.ignore_eos();
  to.stop_token_ids.assign(from.stop_token_ids().begin(),
                           from.stop_token_ids().end());
  return to;
}

void Fill(const engine::PositionLogprobs& from, wire::PositionLogprobs& to) {
  for (const engine::TokenLogprob& entry : from) {
    wire::TokenLogprob& token = *to.add_tokens();
    token.set_token(entry.token);
    token.set_logprob(entry.logprob);
    token.set_rank(entry.rank);
  }
}

// The digest is 32 bytes in practice; any other name still names one domain.
Sha256Digest DigestOfModel(const std::string& bytes) {
  Sha256Digest digest;
  if (bytes.size() != digest.bytes.size()) return Sha256Of(bytes);
  std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return digest;
}

}  // namespace

engine::EngineRequest EngineRequestOf(const wire::RequestHeader& header,
                                      const wire::GenerationRequest& request,
                                      const wire::ModelIdentity& identity) {
  const prefix::KeyDomain domain = {
      .model = DigestOfModel(identity.model_digest()),
      .kv_dtype = identity.kv_dtype(),
      .numerics_id = identity.numerics_id(),
      .adapter = header.adapter(),
      .tenant_salt = request.tenant_salt(),
      .block_tokens = identity.block_tokens()};
  engine::EngineRequest result;
  result.tokens.assign(request.tokens().begin(), request.tokens().end());
  // More than fits in 31 bits is more than there are tokens: refused.
  result.prompt_tokens = static_cast<int32_t>(
      std::min<uint32_t>(request.prompt_tokens(), INT32_MAX));
  result.sampling = SamplingOf(request.sampling());
  result.key_root = domain.Root();
  return result;
}

wire::FinishReason FinishReasonOf(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return wire::FINISH_REASON_STOP;
    case engine::FinishReason::kLength:
      return wire::FINISH_REASON_LENGTH;
    case engine::FinishReason::kNone:
    case engine::FinishReason::kError:
      return wire::FINISH_REASON_UNSPECIFIED;
  }
  return wire::FINISH_REASON_UNSPECIFIED;
}

wire::RequestOutput RequestOutputOf(const wire::RequestHeader& header,
                                    const engine::EngineOutput& output) {
  CHECK(output.token.has_value());
  wire::RequestOutput result;
  result.set_request_id(header.request_id());
  result.set_attempt(header.attempt());
  result.set_first_index(static_cast<uint32_t>(output.index));
  result.add_tokens(*output.token);
  if (!output.logprobs.empty()) Fill(output.logprobs, *result.add_logprobs());
  for (const engine::PositionLogprobs& position : output.prompt_logprobs) {
    Fill(position, *result.add_prompt_logprobs());
  }
  result.set_cached_tokens(static_cast<uint32_t>(output.cached_tokens));
  result.set_finish_reason(FinishReasonOf(output.finish_reason));
  if (output.stop_token_id.has_value()) {
    result.set_stop_token_id(*output.stop_token_id);
  }
  return result;
}

wire::WorkerLoad LoadOf(const engine::EngineStats& stats) {
  wire::WorkerLoad load;
  load.set_waiting_requests(static_cast<uint32_t>(stats.waiting));
  // Whatever takes a place in the batch or holds memory.
  load.set_running_requests(
      static_cast<uint32_t>(stats.running + stats.reserved + stats.held));
  load.set_queued_prefill_tokens(
      static_cast<uint64_t>(stats.queued_prefill_tokens));
  load.set_context_tokens(static_cast<uint64_t>(stats.context_tokens));
  load.set_pages_total(static_cast<uint32_t>(stats.pages_total));
  load.set_pages_free(
      static_cast<uint32_t>(stats.pages_free + stats.pages_cached));
  load.set_preemptions_total(static_cast<uint64_t>(stats.preemptions));
  return load;
}

Status ValidateHeader(const wire::RequestHeader& header) {
  if (header.request_id().empty())
    return InvalidArgument("request_id is empty");
  if (header.conductor_id().empty()) {
    return InvalidArgument("conductor_id is empty");
  }
  if (header.attempt() == 0) return InvalidArgument("attempt is 0");
  if (header.timeout_ms() == 0) return InvalidArgument("timeout_ms is 0");
  return OkStatus();
}

}  // namespace tidepool::worker
