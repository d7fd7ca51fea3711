// Reads objects that other people wrote and that may have been admitted by an
// older schema: nothing is taken for granted, and what is wrong is named.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tidepool::reconcilers {

using Json = nlohmann::json;

// One line per bad field: "spec.conductor.replicas: 0 is not within 1..64".
using Problems = std::vector<std::string>;

// A cursor on one object of a manifest. Each getter returns the value, or the
// default when the field is absent, null, or wrong; the latter adds a problem.
// Borrows both arguments. Confined to one thread.
class SpecReader {
 public:
  SpecReader(const Json& object, std::string path, Problems& problems);

  bool Has(std::string_view name) const;
  std::string PathOf(std::string_view name) const;
  // For checks that involve several fields.
  void Complain(std::string_view name, std::string_view what) const;

  // An absent object reads as an empty one.
  SpecReader Object(std::string_view name) const;
  // The elements, those that are no objects left out.
  std::vector<SpecReader> Objects(std::string_view name) const;

  std::string Text(std::string_view name, std::string_view otherwise = "",
                   size_t length_max = 253) const;
  // As Text, but absence is a problem as well.
  std::string RequiredText(std::string_view name,
                           size_t length_max = 253) const;
  int64_t Integer(std::string_view name, int64_t otherwise, int64_t min,
                  int64_t max) const;
  std::optional<int64_t> OptionalInteger(std::string_view name, int64_t min,
                                         int64_t max) const;
  // The index within `choices`.
  size_t Choice(std::string_view name,
                std::initializer_list<std::string_view> choices,
                size_t otherwise) const;
  // Text or number, as Kubernetes takes them.
  std::optional<uint64_t> Quantity(std::string_view name) const;
  // What is handed on as it is: null unless it is of that shape.
  Json RawObject(std::string_view name) const;
  Json RawArray(std::string_view name, size_t length_max = 256) const;
  // An object of texts.
  Json TextMap(std::string_view name) const;
  std::vector<std::string> TextList(std::string_view name,
                                    size_t length_max = 64) const;

 private:
  const Json* Find(std::string_view name) const;

  const Json* object_;
  std::string path_;
  Problems* problems_;
};

// A DNS-1123 label, or a subdomain of such labels.
bool IsDnsLabel(std::string_view text);
bool IsDnsSubdomain(std::string_view text);

}  // namespace tidepool::reconcilers
