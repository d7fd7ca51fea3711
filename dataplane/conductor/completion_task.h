// One call of /v1/completions or /v1/chat/completions, from its tokens to its
// answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"
#include "dataplane/conductor/backend.h"
#include "dataplane/conductor/gateway_metrics.h"
#include "dataplane/conductor/http_types.h"
#include "dataplane/conductor/openai_request.h"
#include "dataplane/conductor/openai_response.h"
#include "dataplane/conductor/output_processor.h"
#include "dataplane/conductor/prepared_call.h"
#include "dataplane/conductor/serving_model.h"

namespace tidepool::conductor {

// What every call works with; all of it outlives the calls.
struct ServingContext {
  const ServingModel& model;
  Backend& backend;
  GatewayMetrics& metrics;
  const Clock& clock;
  std::chrono::milliseconds heartbeat_interval{15'000};
  Duration request_timeout = std::chrono::minutes(10);
};

// Who asks, and since when.
struct CallOrigin {
  std::string request_id;  // as in X-Request-Id
  std::string peer;
  GatewayMetrics::Endpoint endpoint = GatewayMetrics::Endpoint::kOther;
  TimePoint arrived{};
};

// Answers one call. Submits a request for each choice, turns their tokens into
// text and events, cancels what is not needed any more (a stop string, a client
// that left, a failed sibling), and logs the call when all of it has ended.
// The HTTP status goes out with the first token.
//
// Confined to the thread of its exchange; kept alive by the backend.
class CompletionTask : public std::enable_shared_from_this<CompletionTask> {
 public:
  static void Start(const ServingContext& context, CallOrigin origin,
                    PreparedCall prepared,
                    std::shared_ptr<HttpExchange> exchange);
  ~CompletionTask();

 private:
  class Listener;
  struct Choice;
  // The workers of an attempt, as response headers show them.
  struct Placement {
    std::string prefill, decode, transport;
  };

  CompletionTask(const ServingContext& context, CallOrigin origin,
                 PreparedCall prepared, std::shared_ptr<HttpExchange> exchange);
  void Submit();

  void OnOutput(Choice& choice, const wire::RequestOutput& output,
                const std::optional<Placement>& placement);
  void OnEnd(Choice& choice, const Status& status, RequestRecord record);
  void OnAbandoned();

  void OnFirstOutput(Choice& choice, const wire::RequestOutput& output);
  void Measure(Choice& choice, const wire::RequestOutput& output);
  // What `output` adds to the choice.
  ChoiceOutput Take(Choice& choice, const wire::RequestOutput& output,
                    bool is_first);
  void TakeLogprobs(Choice& choice, const wire::RequestOutput& output,
                    size_t num_tokens, ChoiceOutput& taken);
  void Collect(Choice& choice, ChoiceOutput added);
  void Stream(const Choice& choice, ChoiceOutput added);
  void StartStream();
  void SendEvent(std::string_view json);
  void SendLastEvents();
  // Ends the stream with what only now is known of where it ran.
  void FinishStream();
  void RespondWhole();
  void Fail(const Status& status);
  void CancelOthers(std::string_view reason);
  // The choice has no part in the counts of those at work any more.
  void CountEnd(Choice& choice, GatewayMetrics::Outcome outcome);

  HttpHeaders AnswerHeaders() const;
  std::string Transport() const;
  Usage UsageOfAll() const;
  Usage UsageOfChoice(const Choice& choice) const;
  void Log() const;

  const ServingContext& context_;
  const CallOrigin origin_;
  const PreparedCall prepared_;
  const GenerationCall& call_;
  ResponseWriter writer_;
  std::shared_ptr<HttpExchange> exchange_;  // null once answered
  std::vector<std::unique_ptr<Choice>> choices_;
  Placement placement_;
  std::optional<TimePoint> first_output_;
  size_t num_finished_ = 0, num_ended_ = 0;
  bool streaming_ = false;
  bool all_sent_ = false;  // the stream lacks only its end
  int status_ = 200;
};

}  // namespace tidepool::conductor
