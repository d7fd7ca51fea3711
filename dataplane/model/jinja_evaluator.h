// Walks through a parsed template and writes its output.
#pragma once

#include <span>
#include <string>

#include "dataplane/base/status.h"
#include "dataplane/model/chat_template.h"
#include "dataplane/model/jinja_ast.h"
#include "dataplane/model/jinja_object.h"

namespace tidepool::model::jinja {

// `globals` is a dict: what names mean that the template does not assign.
// Errors: as ChatTemplate::Render.
StatusOr<std::string> Evaluate(const Template& source, Runtime& runtime,
                               const Value& globals,
                               const ChatTemplateLimits& limits);

}  // namespace tidepool::model::jinja
