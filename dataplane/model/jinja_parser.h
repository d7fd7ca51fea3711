// Jinja's grammar.
#pragma once

#include <string_view>

#include "dataplane/base/status.h"
#include "dataplane/model/jinja_ast.h"

namespace tidepool::model::jinja {

// Errors: kInvalidArgument naming the line; kResourceExhausted above 1 MiB of
// source, 200 nested statements and expressions, or an operator chain of 500.
StatusOr<Template> ParseTemplate(std::string_view source);

}  // namespace tidepool::model::jinja
