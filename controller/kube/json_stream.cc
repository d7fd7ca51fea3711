#include "controller/kube/json_stream.h"

namespace tidepool::kube::internal {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

StatusOr<Json> ParseJson(std::string_view text, std::string_view what,
                         int around) {
  const auto is_wanted = [around](int depth, Json::parse_event_t event,
                                  const Json& value) {
    return event != Json::parse_event_t::key || depth != around + 2 ||
           value != "managedFields";
  };
  Json parsed = Json::parse(text, is_wanted, /*allow_exceptions=*/false);
  if (parsed.is_discarded() || !parsed.is_object())
    return DataLoss("{}: the server sent no JSON object", what);
  return parsed;
}

Status LineSplitter::Feed(std::string_view piece) {
  while (!piece.empty()) {
    const size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, end);
    if (part.size() > line_bytes_max_ - line_.size())
      return ResourceExhausted("a line of the watch is longer than {} bytes",
                               line_bytes_max_);
    line_.append(part);
    if (end == std::string_view::npos) return OkStatus();
    piece.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, {});
    if (!line.empty()) RETURN_IF_ERROR(take_(line));
  }
  return OkStatus();
}

Status ListSplitter::Feed(std::string_view piece) {
  for (const char c : piece) RETURN_IF_ERROR(FeedChar(c));
  return OkStatus();
}

// True for every character that belongs to a text, its quotes included.
bool ListSplitter::InString(char c) {
  if (!in_string_) {
    if (c != '"') return false;
    in_string_ = true;
    if (place_ == Place::kAround && depth_ == 1) name_.clear();
    return true;
  }
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
    return true;
  }
  if (place_ == Place::kAround && depth_ == 1 && name_.size() < 8) name_ += c;
  return true;
}

void ListSplitter::Structure(char c) {
  if (c == '{' || c == '[') ++depth_;
  if ((c == '}' || c == ']') && depth_ > 0) --depth_;
}

Status ListSplitter::FeedChar(char c) {
  if (place_ == Place::kBetweenItems) {
    if (IsSpace(c) || c == ',') return OkStatus();
    if (c == '{') {
      place_ = Place::kInItem;
    } else if (c == ']') {
      place_ = Place::kAround;
      name_.clear();
    } else {
      return DataLoss("an item of the list is no object");
    }
  }
  std::string& text = place_ == Place::kInItem ? item_ : around_;
  if (text.size() >= object_bytes_max_)
    return ResourceExhausted("an object of the list is longer than {} bytes",
                             object_bytes_max_);
  text += c;
  if (InString(c)) return OkStatus();
  Structure(c);
  if (place_ == Place::kInItem && depth_ == 2) {
    place_ = Place::kBetweenItems;
    const Status taken = take_(item_);
    item_.clear();
    return taken;
  }
  if (place_ == Place::kAround && c == '[' && depth_ == 2 && name_ == "items")
    place_ = Place::kBetweenItems;
  return OkStatus();
}

StatusOr<Json> ListSplitter::Finish() {
  if (place_ != Place::kAround || depth_ != 0)
    return DataLoss("the list was cut off");
  return ParseJson(around_, "list");
}

}  // namespace tidepool::kube::internal
