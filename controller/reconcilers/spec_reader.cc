#include "controller/reconcilers/spec_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "controller/reconcilers/quantity.h"

namespace tidepool::reconcilers {
namespace {

const Json& EmptyObject() {
  static const Json empty = Json::object();
  return empty;
}

// A value as a message may show it.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 64) text = text.substr(0, 61) + "...";
  return text;
}

}  // namespace

SpecReader::SpecReader(const Json& object, std::string path, Problems& problems)
    : object_(&object), path_(std::move(path)), problems_(&problems) {
  if (object_->is_object()) return;
  if (!object_->is_null())
    problems_->push_back(
        fmt::format("{}: {} is not an object", path_, Shown(*object_)));
  object_ = &EmptyObject();
}

const Json* SpecReader::Find(std::string_view name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool SpecReader::Has(std::string_view name) const {
  return Find(name) != nullptr;
}

std::string SpecReader::PathOf(std::string_view name) const {
  return fmt::format("{}.{}", path_, name);
}

void SpecReader::Complain(std::string_view name, std::string_view what) const {
  problems_->push_back(fmt::format("{}: {}", PathOf(name), what));
}

SpecReader SpecReader::Object(std::string_view name) const {
  const Json* const value = Find(name);
  return SpecReader(value == nullptr ? EmptyObject() : *value, PathOf(name),
                    *problems_);
}

std::vector<SpecReader> SpecReader::Objects(std::string_view name) const {
  std::vector<SpecReader> readers;
  const Json* const value = Find(name);
  if (value == nullptr) return readers;
  if (!value->is_array()) {
    Complain(name, Shown(*value) + " is not a list");
    return readers;
  }
  for (size_t i = 0; i < value->size(); ++i)
    readers.emplace_back((*value)[i], fmt::format("{}[{}]", PathOf(name), i),
                         *problems_);
  return readers;
}

std::string SpecReader::Text(std::string_view name, std::string_view otherwise,
                             size_t length_max) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::string(otherwise);
  if (!value->is_string()) {
    Complain(name, Shown(*value) + " is not a text");
    return std::string(otherwise);
  }
  const auto& text = value->get_ref<const std::string&>();
  const bool is_plain = std::ranges::all_of(
      text, [](unsigned char c) { return c >= ' ' && c != 127; });
  if (text.size() > length_max || !is_plain) {
    Complain(name, is_plain ? fmt::format("longer than {} bytes", length_max)
                            : "holds control characters");
    return std::string(otherwise);
  }
  return text;
}

std::string SpecReader::RequiredText(std::string_view name,
                                     size_t length_max) const {
  std::string text = Text(name, "", length_max);
  const Json* const value = Find(name);
  if (value == nullptr || *value == "") Complain(name, "is required");
  return text;
}

std::optional<int64_t> SpecReader::OptionalInteger(std::string_view name,
                                                   int64_t min,
                                                   int64_t max) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  const bool is_huge =
      value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!value->is_number_integer()) {
    Complain(name, Shown(*value) + " is not an integer");
    return std::nullopt;
  }
  if (is_huge || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    Complain(name,
             fmt::format("{} is not within {}..{}", Shown(*value), min, max));
    return std::nullopt;
  }
  return value->get<int64_t>();
}

int64_t SpecReader::Integer(std::string_view name, int64_t otherwise,
                            int64_t min, int64_t max) const {
  return OptionalInteger(name, min, max).value_or(otherwise);
}

size_t SpecReader::Choice(std::string_view name,
                          std::initializer_list<std::string_view> choices,
                          size_t otherwise) const {
  const Json* const value = Find(name);
  if (value == nullptr) return otherwise;
  const auto found =
      value->is_string()
          ? std::ranges::find(
                choices, std::string_view(value->get_ref<const std::string&>()))
          : choices.end();
  if (found == choices.end()) {
    Complain(name, fmt::format("{} is not one of {}", Shown(*value),
                               fmt::join(choices, ", ")));
    return otherwise;
  }
  return static_cast<size_t>(found - choices.begin());
}

std::optional<uint64_t> SpecReader::Quantity(std::string_view name) const {
  const Json* const value = Find(name);
  if (value == nullptr) return std::nullopt;
  const StatusOr<uint64_t> parsed =
      value->is_string()   ? ParseQuantity(value->get_ref<const std::string&>())
      : value->is_number() ? ParseQuantity(value->dump())
                           : InvalidArgument("is not a quantity");
  if (!parsed.ok()) {
    Complain(name, Shown(*value) + " is not a quantity");
    return std::nullopt;
  }
  return *parsed;
}

Json SpecReader::RawObject(std::string_view name) const {
  const Json* const value = Find(name);
  if (value == nullptr) return nullptr;
  if (value->is_object()) return *value;
  Complain(name, Shown(*value) + " is not an object");
  return nullptr;
}

Json SpecReader::RawArray(std::string_view name, size_t length_max) const {
  const Json* const value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    Complain(name, Shown(*value) + " is not a list");
    return nullptr;
  }
  if (value->size() > length_max) {
    Complain(name, fmt::format("has more than {} elements", length_max));
    return nullptr;
  }
  return *value;
}

Json SpecReader::TextMap(std::string_view name) const {
  Json map = RawObject(name);
  if (map.is_null()) return map;
  for (const auto& [key, value] : map.items()) {
    if (value.is_string()) continue;
    Complain(fmt::format("{}.{}", name, key), Shown(value) + " is not a text");
    return nullptr;
  }
  return map;
}

std::vector<std::string> SpecReader::TextList(std::string_view name,
                                              size_t length_max) const {
  std::vector<std::string> texts;
  const Json list = RawArray(name, length_max);
  if (list.is_null()) return texts;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].is_string()) {
      texts.push_back(list[i].get<std::string>());
    } else {
      Complain(fmt::format("{}[{}]", name, i),
               Shown(list[i]) + " is not a text");
    }
  }
  return texts;
}

bool IsDnsLabel(std::string_view text) {
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= 63 && is_alphanumeric(text.front()) &&
         is_alphanumeric(text.back()) && std::ranges::all_of(text, [&](char c) {
           return is_alphanumeric(c) || c == '-';
         });
}

bool IsDnsSubdomain(std::string_view text) {
  if (text.empty() || text.size() > 253) return false;
  while (true) {
    const size_t dot = text.find('.');
    if (!IsDnsLabel(text.substr(0, dot))) return false;
    if (dot == text.npos) return true;
    text.remove_prefix(dot + 1);
  }
}

}  // namespace tidepool::reconcilers
