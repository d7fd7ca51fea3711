// Values out of JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dataplane/base/status.h"
#include "dataplane/model/jinja_value.h"

namespace tidepool::model::jinja {

// Strings are borrowed from `json`, which must outlive the heap's use.
// Errors: kInvalidArgument for bytes and values no JSON text has;
// kResourceExhausted for deep values and by the heap.
StatusOr<Value> FromJson(Heap& heap, const nlohmann::ordered_json& json,
                         int depth = 0);

}  // namespace tidepool::model::jinja
