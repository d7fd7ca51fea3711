#include "dataplane/conductor/api_error.h"

#include "absl/strings/cord.h"
#include "dataplane/conductor/json_writer.h"

namespace tidepool::conductor {
namespace {

constexpr char kParamUrl[] = "tidepool.dev/param";
constexpr char kCodeUrl[] = "tidepool.dev/code";

std::string Payload(const Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  return payload ? std::string(*payload) : std::string();
}

int HttpStatusOf(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kUnimplemented:
    case Code::kOutOfRange:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kNotFound:
      return 404;
    case Code::kResourceExhausted:
      return 429;
    case Code::kUnavailable:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string_view TypeOf(int status) {
  if (status == 401) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  if (status == 408 || status == 504) return "timeout_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

std::string ApiError::Json() const {
  JsonWriter json;
  json.BeginObject().Key("error").BeginObject();
  json.Field("message", message).Field("type", type);
  param.empty() ? json.NullField("param") : json.Field("param", param);
  code.empty() ? json.NullField("code") : json.Field("code", code);
  json.EndObject().EndObject();
  return json.Take();
}

Status WithApiDetails(Status status, std::string_view param,
                      std::string_view code) {
  if (!param.empty())
    status.SetPayload(kParamUrl, absl::Cord(std::string(param)));
  if (!code.empty()) status.SetPayload(kCodeUrl, absl::Cord(std::string(code)));
  return status;
}

Status BadField(std::string_view param, std::string_view reason) {
  return WithApiDetails(InvalidArgument("`{}` {}", param, reason), param,
                        "invalid_value");
}

Status UnsupportedField(std::string_view param, std::string_view reason) {
  return WithApiDetails(
      Unimplemented("`{}` is not supported: {}", param, reason), param,
      "unsupported_parameter");
}

ApiError ToApiError(const Status& status) {
  ApiError error =
      ErrorOfHttpStatus(HttpStatusOf(status.code()), MessageOf(status));
  error.param = Payload(status, kParamUrl);
  if (std::string code = Payload(status, kCodeUrl); !code.empty())
    error.code = std::move(code);
  return error;
}

ApiError ErrorOfHttpStatus(int status, std::string_view message) {
  return {.status = status,
          .message = std::string(message),
          .type = std::string(TypeOf(status))};
}

}  // namespace tidepool::conductor
