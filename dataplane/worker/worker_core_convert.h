// Between the messages of the protocol and the types of the engine.
#pragma once

#include "dataplane/base/status.h"
#include "dataplane/engine/engine_core.h"
#include "tidepool/worker/v1/worker.pb.h"

namespace tidepool::worker {

// Everything but the sequence id and prefill_only. The engine validates it.
engine::EngineRequest EngineRequestOf(
    const ::tidepool::worker::v1::RequestHeader& header,
    const ::tidepool::worker::v1::GenerationRequest& request,
    const ::tidepool::worker::v1::ModelIdentity& identity);

// `attempt` and the id from `header`. FinishReason::kError is no output.
::tidepool::worker::v1::RequestOutput RequestOutputOf(
    const ::tidepool::worker::v1::RequestHeader& header,
    const engine::EngineOutput& output);

::tidepool::worker::v1::FinishReason FinishReasonOf(
    engine::FinishReason reason);

::tidepool::worker::v1::WorkerLoad LoadOf(const engine::EngineStats& stats);

// Errors: kInvalidArgument naming the field.
Status ValidateHeader(const ::tidepool::worker::v1::RequestHeader& header);

}  // namespace tidepool::worker
