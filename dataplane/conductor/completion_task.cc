#include "dataplane/conductor/completion_task.h"

#include <algorithm>
#include <utility>

#include "dataplane/base/log.h"
#include "dataplane/base/random.h"
#include "dataplane/conductor/api_error.h"
#include "dataplane/conductor/error_response.h"

namespace tidepool::conductor {

using Outcome = GatewayMetrics::Outcome;

namespace {

constexpr int kClientLeft = 499;
constexpr std::string_view kTransportHeader = "X-Tidepool-Transport";
constexpr std::string_view kHeartbeat = ": waiting for tokens\n\n";

double Milliseconds(Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string ResponseId(const GenerationCall& call, std::string_view id) {
  return fmt::format(
      "{}-{}", call.kind == GenerationCall::Kind::kChat ? "chatcmpl" : "cmpl",
      id);
}

Finish FinishOf(wire::FinishReason reason) {
  switch (reason) {
    case wire::FINISH_REASON_STOP:
      return Finish::kStop;
    case wire::FINISH_REASON_LENGTH:
      return Finish::kLength;
    default:
      return Finish::kNone;
  }
}

}  // namespace

struct CompletionTask::Choice {
  Choice(int32_t number, size_t prompt, const model::Tokenizer* tokenizer,
         std::span<const int32_t> prompt_tokens, OutputOptions options)
      : prompt_index(prompt),
        processor(tokenizer, prompt_tokens, std::move(options)) {
    total.index = number;
  }

  const size_t prompt_index;
  std::string backend_id;
  OutputProcessor processor;
  ChoiceOutput total;  // all of it, unless streamed
  bool started = false, finished = false, ended = false, counted = false;
  TimePoint last_output{};
  int64_t completion_tokens = 0, cached_tokens = 0;
  int64_t text_offset = 0;  // characters of the tokens shown so far
  std::vector<wire::PositionLogprobs> prompt_logprobs;
  std::optional<RequestRecord> record;
};

// Carries the backend's calls to the exchange's thread.
class CompletionTask::Listener : public GenerationListener {
 public:
  Listener(std::shared_ptr<CompletionTask> task, Choice& choice)
      : task_(std::move(task)), exchange_(task_->exchange_), choice_(choice) {}

  void OnOutput(wire::RequestOutput output,
                const AttemptRecord* attempt) override {
    std::optional<Placement> placement;
    if (attempt)
      placement = Placement{.prefill = attempt->prefill_worker,
                            .decode = attempt->decode_worker,
                            .transport = attempt->transport};
    exchange_->Post([task = task_, choice = &choice_,
                     output = std::move(output),
                     placement = std::move(placement)] {
      task->OnOutput(*choice, output, placement);
    });
  }

  void OnEnd(Status status, RequestRecord record) override {
    exchange_->Post(
        [task = task_, choice = &choice_, status = std::move(status),
         record = std::move(record)] { task->OnEnd(*choice, status, record); });
  }

 private:
  const std::shared_ptr<CompletionTask> task_;
  // The task gives its reference up when it has answered.
  const std::shared_ptr<HttpExchange> exchange_;
  Choice& choice_;
};

void CompletionTask::Start(const ServingContext& context, CallOrigin origin,
                           PreparedCall prepared,
                           std::shared_ptr<HttpExchange> exchange) {
  const std::shared_ptr<CompletionTask> task(new CompletionTask(
      context, std::move(origin), std::move(prepared), std::move(exchange)));
  task->Submit();
}

CompletionTask::CompletionTask(const ServingContext& context, CallOrigin origin,
                               PreparedCall prepared,
                               std::shared_ptr<HttpExchange> exchange)
    : context_(context),
      origin_(std::move(origin)),
      prepared_(std::move(prepared)),
      call_(prepared_.call),
      writer_(call_, context.model.tokenizer(),
              ResponseId(call_, origin_.request_id),
              static_cast<int64_t>(UnixSeconds())),
      exchange_(std::move(exchange)) {
  const OutputOptions options{.stop = call_.stop,
                              .include_stop = call_.include_stop_str_in_output,
                              .skip_special_tokens = call_.skip_special_tokens,
                              .min_tokens = call_.sampling.min_tokens()};
  for (size_t prompt = 0; prompt < prepared_.prompts.size(); ++prompt)
    for (int32_t i = 0; i < call_.n; ++i)
      choices_.push_back(std::make_unique<Choice>(
          static_cast<int32_t>(choices_.size()), prompt,
          context_.model.tokenizer(), prepared_.prompts[prompt], options));
}

CompletionTask::~CompletionTask() = default;

void CompletionTask::Submit() {
  const std::shared_ptr<HttpExchange> exchange = exchange_;
  exchange->OnAbandoned([task = shared_from_this()] { task->OnAbandoned(); });
  if (!exchange_) {  // it was abandoned already
    context_.metrics.CountRequest(origin_.endpoint, status_);
    return;
  }
  const uint64_t seed = call_.seed.value_or(SystemRandom64());
  const std::string unique = fmt::format("{:08x}", SystemRandom64() >> 32);
  context_.metrics.AddWaiting(static_cast<int64_t>(choices_.size()));
  for (const std::unique_ptr<Choice>& choice : choices_) {
    const int64_t number = choice->total.index % call_.n;
    choice->backend_id = fmt::format("{}.{}.{}", origin_.request_id, unique,
                                     choice->total.index);
    ClientRequest request{.id = choice->backend_id,
                          .prompt = prepared_.prompts[choice->prompt_index],
                          .sampling = call_.sampling,
                          .tenant_salt = call_.cache_salt,
                          .timeout = context_.request_timeout};
    request.sampling.set_seed(
        number == 0 ? seed : RandomAt(seed, static_cast<uint64_t>(number)));
    context_.backend.Submit(
        std::move(request),
        std::make_shared<Listener>(shared_from_this(), *choice));
  }
}

// ---- Tokens ----

void CompletionTask::OnOutput(Choice& choice, const wire::RequestOutput& output,
                              const std::optional<Placement>& placement) {
  if (placement && choice.total.index == 0) placement_ = *placement;
  if (!exchange_ || choice.finished) return;
  Measure(choice, output);
  const bool is_first = !choice.started;
  if (is_first) OnFirstOutput(choice, output);
  ChoiceOutput added = Take(choice, output, is_first);
  const bool finishes = added.finish != Finish::kNone;
  choice.total.finish = added.finish;
  const bool worker_finished =
      output.finish_reason() != wire::FINISH_REASON_UNSPECIFIED;
  if (call_.stream) {
    if (!streaming_) StartStream();
    if (is_first && call_.kind == GenerationCall::Kind::kChat) {
      const Usage usage = UsageOfChoice(choice);
      SendEvent(writer_.RoleChunk(added, &usage));
    }
    Stream(choice, std::move(added));
  } else {
    Collect(choice, std::move(added));
  }
  if (!finishes || !exchange_) return;
  choice.finished = true;
  if (!worker_finished)
    context_.backend.Cancel(choice.backend_id, "a stop string ended it");
  if (++num_finished_ == choices_.size() && call_.stream) SendLastEvents();
}

void CompletionTask::Measure(Choice& choice,
                             const wire::RequestOutput& output) {
  const TimePoint now = context_.clock.Now();
  const int64_t tokens = output.tokens_size();
  context_.metrics.CountGenerated(tokens);
  if (!choice.started) {
    if (!first_output_) first_output_ = now;
    context_.metrics.ObserveTtft(now - origin_.arrived, now);
    context_.metrics.AddWaiting(-1);
    context_.metrics.AddRunning(1);
  } else if (tokens > 0) {
    context_.metrics.ObserveTbt(now - choice.last_output, tokens, now);
  }
  choice.last_output = now;
}

void CompletionTask::OnFirstOutput(Choice& choice,
                                   const wire::RequestOutput& output) {
  choice.started = true;
  choice.cached_tokens = output.cached_tokens();
  choice.prompt_logprobs.assign(output.prompt_logprobs().begin(),
                                output.prompt_logprobs().end());
  context_.metrics.CountPrompt(
      static_cast<int64_t>(prepared_.prompts[choice.prompt_index].size()),
      choice.cached_tokens);
}

ChoiceOutput CompletionTask::Take(Choice& choice,
                                  const wire::RequestOutput& output,
                                  bool is_first) {
  ChoiceOutput added{.index = choice.total.index};
  const std::vector<int32_t>& prompt = prepared_.prompts[choice.prompt_index];
  OutputProcessor::Delta delta;
  if (call_.max_tokens == 0) {
    // Only the prompt is asked about; a token had to be drawn all the same.
    delta.finish = Finish::kLength;
  } else {
    const std::optional<int32_t> stop_token =
        output.has_stop_token_id()
            ? std::optional<int32_t>(output.stop_token_id())
            : std::nullopt;
    delta = choice.processor.Append(
        {output.tokens().data(), static_cast<size_t>(output.tokens_size())},
        FinishOf(output.finish_reason()), stop_token);
  }
  if (is_first) {
    added.prompt = &prompt;
    if (call_.prompt_logprobs) added.prompt_logprobs = &choice.prompt_logprobs;
    if (call_.echo) added.text = prepared_.echo_texts[choice.prompt_index];
  }
  added.text += delta.text;
  added.tokens.assign(
      output.tokens().begin(),
      output.tokens().begin() + static_cast<std::ptrdiff_t>(delta.num_tokens));
  added.finish = delta.finish;
  added.stop_reason = std::move(delta.stop_reason);
  if (call_.logprobs) TakeLogprobs(choice, output, delta.num_tokens, added);
  choice.completion_tokens += static_cast<int64_t>(delta.num_tokens);
  return added;
}

void CompletionTask::TakeLogprobs(Choice& choice,
                                  const wire::RequestOutput& output,
                                  size_t num_tokens, ChoiceOutput& taken) {
  TokenLogprobs& logprobs = taken.logprobs.emplace();
  taken.text_offset = choice.text_offset;
  if (call_.echo && taken.prompt) {
    logprobs.tokens = *taken.prompt;
    logprobs.positions.emplace_back();  // nothing precedes the first token
    logprobs.positions.insert(logprobs.positions.end(),
                              choice.prompt_logprobs.begin(),
                              choice.prompt_logprobs.end());
  }
  logprobs.tokens.insert(logprobs.tokens.end(), taken.tokens.begin(),
                         taken.tokens.end());
  for (size_t i = 0; i < num_tokens; ++i)
    logprobs.positions.push_back(i < static_cast<size_t>(output.logprobs_size())
                                     ? output.logprobs(static_cast<int>(i))
                                     : wire::PositionLogprobs());
  choice.text_offset += writer_.CountCharacters(logprobs.tokens);
}

void CompletionTask::Collect(Choice& choice, ChoiceOutput added) {
  ChoiceOutput& total = choice.total;
  if (added.prompt) total.prompt = added.prompt;
  if (added.prompt_logprobs) total.prompt_logprobs = added.prompt_logprobs;
  total.text += added.text;
  total.tokens.insert(total.tokens.end(), added.tokens.begin(),
                      added.tokens.end());
  if (added.logprobs && !total.logprobs) {
    total.logprobs = std::move(added.logprobs);
  } else if (added.logprobs) {
    std::ranges::copy(added.logprobs->tokens,
                      std::back_inserter(total.logprobs->tokens));
    std::ranges::move(added.logprobs->positions,
                      std::back_inserter(total.logprobs->positions));
  }
  total.stop_reason = std::move(added.stop_reason);
}

// ---- Streams ----

void CompletionTask::StartStream() {
  streaming_ = true;
  HttpResponse head{.headers = AnswerHeaders(),
                    .content_type = "text/event-stream"};
  head.headers.Add("Cache-Control", "no-cache");
  if (!placement_.prefill.empty() && Transport().empty())
    head.headers.Add("Trailer", std::string(kTransportHeader));
  exchange_->StartStream(std::move(head), std::string(kHeartbeat),
                         context_.heartbeat_interval);
}

void CompletionTask::SendEvent(std::string_view json) {
  if (!exchange_) return;
  std::string event;
  event.reserve(json.size() + 8);
  event.append("data: ").append(json).append("\n\n");
  exchange_->Write(event);
}

void CompletionTask::Stream(const Choice& choice, ChoiceOutput added) {
  const bool has_news = !added.text.empty() || added.finish != Finish::kNone ||
                        added.logprobs || call_.return_token_ids;
  if (!has_news) return;
  const Usage usage = UsageOfChoice(choice);
  // A chat's first event told the prompt already.
  if (call_.kind == GenerationCall::Kind::kChat) added.prompt = nullptr;
  SendEvent(writer_.Chunk(added, &usage));
}

void CompletionTask::SendLastEvents() {
  if (call_.include_usage) SendEvent(writer_.UsageChunk(UsageOfAll()));
  SendEvent("[DONE]");
  all_sent_ = true;
}

void CompletionTask::FinishStream() {
  HttpHeaders trailers;
  if (const std::string transport = Transport();
      !transport.empty() && placement_.transport.empty())
    trailers.Add(std::string(kTransportHeader), transport);
  exchange_->Finish(std::move(trailers));
  exchange_.reset();
}

// ---- Ends ----

void CompletionTask::OnEnd(Choice& choice, const Status& status,
                           RequestRecord record) {
  if (choice.ended) return;
  choice.ended = true;
  if (record.attempts.size() > 1 &&
      record.attempts.back().context_tokens > record.prompt_tokens)
    context_.metrics.CountMigration();
  const bool is_last = ++num_ended_ == choices_.size();
  choice.record = std::move(record);
  if (choice.finished) {
    CountEnd(choice, choice.total.finish == Finish::kLength ? Outcome::kLength
                                                            : Outcome::kStop);
  } else {
    CountEnd(choice, status.code() == Code::kCancelled ? Outcome::kAbort
                                                       : Outcome::kError);
    if (exchange_)
      Fail(status.ok() ? Internal("the output had no end") : status);
  }
  if (!is_last) return;
  if (exchange_) call_.stream ? FinishStream() : RespondWhole();
  context_.metrics.CountRequest(origin_.endpoint, status_);
  if (status_ == 200)
    context_.metrics.ObserveEndToEnd(context_.clock.Now() - origin_.arrived);
  Log();
}

void CompletionTask::CountEnd(Choice& choice, Outcome outcome) {
  if (std::exchange(choice.counted, true)) return;
  context_.metrics.CountChoice(outcome);
  if (choice.started)
    context_.metrics.AddRunning(-1);
  else
    context_.metrics.AddWaiting(-1);
}

void CompletionTask::RespondWhole() {
  std::vector<ChoiceOutput> outputs;
  for (const std::unique_ptr<Choice>& choice : choices_)
    outputs.push_back(std::move(choice->total));
  exchange_->Respond({.headers = AnswerHeaders(),
                      .body = writer_.Whole(outputs, UsageOfAll())});
  exchange_.reset();
}

void CompletionTask::Fail(const Status& status) {
  const ApiError error = ToApiError(status);
  status_ = error.status;
  if (streaming_) {
    // The status line has gone out: one event says it, and no [DONE] follows.
    SendEvent(error.Json());
    if (exchange_) exchange_->Finish({});
  } else {
    exchange_->Respond(ErrorResponse(error, origin_.request_id));
  }
  exchange_.reset();
  CancelOthers("another choice of the call failed");
}

void CompletionTask::OnAbandoned() {
  if (!exchange_) return;
  exchange_.reset();
  if (all_sent_) return;  // it has everything and did not wait for the end
  status_ = kClientLeft;
  CancelOthers("the client left");
}

void CompletionTask::CancelOthers(std::string_view reason) {
  for (const std::unique_ptr<Choice>& choice : choices_)
    if (!choice->ended && !choice->finished && !choice->backend_id.empty())
      context_.backend.Cancel(choice->backend_id, std::string(reason));
}

// ---- What is told about it ----

HttpHeaders CompletionTask::AnswerHeaders() const {
  HttpHeaders headers;
  headers.Add("X-Request-Id", origin_.request_id);
  if (!placement_.decode.empty())
    headers.Add("X-Tidepool-Decode", placement_.decode);
  if (!placement_.prefill.empty())
    headers.Add("X-Tidepool-Prefill", placement_.prefill);
  if (const std::string transport = Transport(); !transport.empty())
    headers.Add(std::string(kTransportHeader), transport);
  if (first_output_)
    headers.Add("Server-Timing",
                fmt::format("ttft;dur={:.3f}",
                            Milliseconds(*first_output_ - origin_.arrived)));
  return headers;
}

// Of the first choice; the prefill worker may tell it after the first token.
std::string CompletionTask::Transport() const {
  const auto& record = choices_.front()->record;
  return record && !record->attempts.empty() ? record->attempts.back().transport
                                             : placement_.transport;
}

Usage CompletionTask::UsageOfChoice(const Choice& choice) const {
  return {.prompt_tokens = static_cast<int64_t>(
              prepared_.prompts[choice.prompt_index].size()),
          .completion_tokens = choice.completion_tokens,
          .cached_tokens = choice.cached_tokens};
}

// A prompt counts once, with what its first choice found cached.
Usage CompletionTask::UsageOfAll() const {
  Usage usage;
  for (const std::unique_ptr<Choice>& choice : choices_) {
    const Usage own = UsageOfChoice(*choice);
    usage.completion_tokens += own.completion_tokens;
    if (choice->total.index % call_.n != 0) continue;
    usage.prompt_tokens += own.prompt_tokens;
    usage.cached_tokens += own.cached_tokens;
  }
  return usage;
}

void CompletionTask::Log() const {
  const Usage usage = UsageOfAll();
  const TimePoint now = context_.clock.Now();
  const auto& record = choices_.front()->record;
  const AttemptRecord* last =
      record && !record->attempts.empty() ? &record->attempts.back() : nullptr;
  LOG_INFO(
      "request id={} peer={} path={} status={}{} choices={} prompt_tokens={} "
      "cached_tokens={} output_tokens={} ttft_ms={:.1f} total_ms={:.1f} "
      "prefill={} decode={} transport={} attempts={}",
      origin_.request_id, origin_.peer,
      call_.kind == GenerationCall::Kind::kChat ? "/v1/chat/completions"
                                                : "/v1/completions",
      status_, streaming_ ? " stream" : "", choices_.size(),
      usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
      first_output_ ? Milliseconds(*first_output_ - origin_.arrived) : 0.0,
      Milliseconds(now - origin_.arrived),
      last && !last->prefill_worker.empty() ? last->prefill_worker : "-",
      last ? last->decode_worker : "-",
      last && !last->transport.empty() ? last->transport : "-",
      record ? record->attempts.size() : 0);
  if (record && record->attempts.size() > 1)
    LOG_INFO("request id={} {}", origin_.request_id, record->Explain());
}

}  // namespace tidepool::conductor
