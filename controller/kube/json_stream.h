// Cuts answers of the API server into objects while they arrive.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::kube::internal {

// Takes the text of one object; an error ends the stream with it.
using TakeText = std::function<Status(std::string_view)>;

// The lines of a watch. Externally synchronized.
class LineSplitter {
 public:
  LineSplitter(size_t line_bytes_max, TakeText take)
      : line_bytes_max_(line_bytes_max), take_(std::move(take)) {}

  // Errors: kResourceExhausted (a line is too long), those of `take`.
  Status Feed(std::string_view piece);

 private:
  const size_t line_bytes_max_;
  const TakeText take_;
  std::string line_;
};

// The elements of a list's `items`. Externally synchronized.
class ListSplitter {
 public:
  // The bound holds for each element, and for all around them.
  ListSplitter(size_t object_bytes_max, TakeText take)
      : object_bytes_max_(object_bytes_max), take_(std::move(take)) {}

  // Errors: kResourceExhausted (too long), kDataLoss (no list of objects),
  // those of `take`.
  Status Feed(std::string_view piece);

  // The list with its items left out. Errors: kDataLoss (cut off, no JSON).
  StatusOr<Json> Finish();

 private:
  enum class Place { kAround, kBetweenItems, kInItem };

  Status FeedChar(char c);
  void Structure(char c);
  bool InString(char c);

  const size_t object_bytes_max_;
  const TakeText take_;
  Place place_ = Place::kAround;
  std::string around_;
  std::string item_;
  std::string name_;  // the last text directly in the list object
  size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// An object of the API, or, `around` 1, what has one as a field. Without
// metadata.managedFields: who set what is half of an object, and nothing to us.
// Errors: kDataLoss.
StatusOr<Json> ParseJson(std::string_view text, std::string_view what,
                         int around = 0);

}  // namespace tidepool::kube::internal
