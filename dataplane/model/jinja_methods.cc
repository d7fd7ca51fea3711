// Methods of strings, lists and dicts: Python's, as far as they change nothing.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

template <std::string (*Convert)(std::string_view)>
StatusOr<Value> ConvertCase(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("a string's method", arguments));
  RETURN_IF_ERROR(runtime.heap.ChargeText(self.text().size()));
  return runtime.heap.NewString(Convert(self.text()));
}

template <Side side>
StatusOr<Value> Strip(Runtime& runtime, const Value& self,
                      const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("strip", arguments, {"chars"})));
  RETURN_IF_ERROR(runtime.heap.ChargeText(self.text().size()));
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return Value::String(StripSpace(self.text(), side));
  }
  ASSIGN_OR_RETURN(const std::string_view set,
                   ToStringView(*bound[0], "strip's characters"));
  RETURN_IF_ERROR(runtime.heap.ChargeLookups(self.text().size(), set.size()));
  return Value::String(StripSet(self.text(), set, side));
}

// One affix or a tuple of them.
template <bool prefix>
StatusOr<Value> HasAffix(Runtime& runtime, const Value& self,
                         const Arguments& arguments) {
  const std::string_view name = prefix ? "startswith" : "endswith";
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind(name, arguments, {"affix", "start", "end"}, 1)));
  Value within = self;
  if (bound[1].has_value()) {
    const Value none;
    ASSIGN_OR_RETURN(
        within, Slice(runtime, self, *bound[1], bound[2].value_or(none), none));
  }
  const std::string_view text = within.text();
  const bool several = bound[0]->kind() == Kind::kTuple;
  const std::span<const Value> affixes =
      several ? bound[0]->items() : std::span<const Value>(&*bound[0], 1);
  for (const Value& each : affixes) {
    ASSIGN_OR_RETURN(const std::string_view affix, ToStringView(each, name));
    RETURN_IF_ERROR(runtime.heap.ChargeText(affix.size()));
    if (prefix ? text.starts_with(affix) : text.ends_with(affix)) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

template <bool prefix>
StatusOr<Value> RemoveAffix(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  const std::string_view name = prefix ? "removeprefix" : "removesuffix";
  ASSIGN_OR_RETURN(const auto bound, (Bind(name, arguments, {"affix"}, 1)));
  ASSIGN_OR_RETURN(const std::string_view affix, ToStringView(*bound[0], name));
  RETURN_IF_ERROR(runtime.heap.ChargeText(affix.size()));
  std::string_view text = self.text();
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return Value::String(text);
}

StatusOr<Value> Replace(Runtime& runtime, const Value& self,
                        const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("replace", arguments, {"old", "new", "count"}, 2)));
  ASSIGN_OR_RETURN(const std::string_view old_text,
                   ToStringView(*bound[0], "replace's old text"));
  ASSIGN_OR_RETURN(const std::string_view new_text,
                   ToStringView(*bound[1], "replace's new text"));
  int64_t count = -1;
  if (bound[2].has_value()) {
    ASSIGN_OR_RETURN(count, ToInteger(*bound[2], "replace's count"));
  }
  return ReplaceText(runtime, self.text(), old_text, new_text,
                     count < 0 ? kUnlimited : count);
}

// At whitespace: no empty parts.
std::vector<Value> SplitAtSpace(std::string_view text, int64_t splits_max) {
  std::vector<Value> parts;
  for (text = StripSpace(text, Side::kLeft); !text.empty();) {
    if (std::ssize(parts) == splits_max) {
      parts.push_back(Value::String(text));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const CodePoint point = FirstCodePoint(text.substr(end));
      if (point.value >= 0 && IsSpace(point.value)) break;
      end += point.bytes;
    }
    parts.push_back(Value::String(text.substr(0, end)));
    text = StripSpace(text.substr(end), Side::kLeft);
  }
  return parts;
}

std::vector<Value> SplitAtSpaceFromRight(std::string_view text,
                                         int64_t splits_max) {
  std::vector<Value> parts;
  for (text = StripSpace(text, Side::kRight); !text.empty();) {
    if (std::ssize(parts) == splits_max) {
      parts.push_back(Value::String(text));
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      size_t previous = start - 1;
      while (previous > 0 && (text[previous] & 0xC0) == 0x80) --previous;
      const CodePoint point = FirstCodePoint(text.substr(previous));
      if (point.value >= 0 && IsSpace(point.value)) break;
      start = previous;
    }
    parts.push_back(Value::String(text.substr(start)));
    text = StripSpace(text.substr(0, start), Side::kRight);
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Value> SplitAt(std::string_view text, std::string_view separator,
                           int64_t splits_max) {
  std::vector<Value> parts;
  for (; std::ssize(parts) < splits_max;) {
    const size_t at = FindText(text, separator);
    if (at == std::string_view::npos) break;
    parts.push_back(Value::String(text.substr(0, at)));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(Value::String(text));
  return parts;
}

std::vector<Value> SplitAtFromRight(std::string_view text,
                                    std::string_view separator,
                                    int64_t splits_max) {
  std::vector<Value> parts;
  const LastFinder finder(text, separator);
  for (; std::ssize(parts) < splits_max;) {
    const size_t at = finder.FindBefore(text.size());
    if (at == std::string_view::npos) break;
    parts.push_back(Value::String(text.substr(at + separator.size())));
    text = text.substr(0, at);
  }
  parts.push_back(Value::String(text));
  std::ranges::reverse(parts);
  return parts;
}

template <bool from_right>
StatusOr<Value> Split(Runtime& runtime, const Value& self,
                      const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("split", arguments, {"sep", "maxsplit"})));
  const std::string_view text = self.text();
  // Each part is at least a byte apart, so this bounds the parts as well.
  RETURN_IF_ERROR(runtime.heap.ChargeItems(text.size()));
  int64_t splits = -1;
  if (bound[1].has_value()) {
    ASSIGN_OR_RETURN(splits, ToInteger(*bound[1], "split's maxsplit"));
  }
  if (splits < 0) splits = kUnlimited;
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return runtime.heap.NewList(from_right ? SplitAtSpaceFromRight(text, splits)
                                           : SplitAtSpace(text, splits));
  }
  ASSIGN_OR_RETURN(const std::string_view separator,
                   ToStringView(*bound[0], "split's separator"));
  if (separator.empty()) return InvalidArgument("split: an empty separator");
  return runtime.heap.NewList(from_right
                                  ? SplitAtFromRight(text, separator, splits)
                                  : SplitAt(text, separator, splits));
}

template <bool from_right>
StatusOr<Value> Partition(Runtime& runtime, const Value& self,
                          const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("partition", arguments, {"sep"}, 1)));
  ASSIGN_OR_RETURN(const std::string_view separator,
                   ToStringView(*bound[0], "partition's separator"));
  if (separator.empty()) {
    return InvalidArgument("partition: an empty separator");
  }
  const std::string_view text = self.text();
  RETURN_IF_ERROR(runtime.heap.ChargeText(text.size()));
  const size_t at = from_right
                        ? LastFinder(text, separator).FindBefore(text.size())
                        : FindText(text, separator);
  const Value nothing = Value::String("");
  if (at == std::string_view::npos) {
    const Value parts[] = {from_right ? nothing : self, nothing,
                           from_right ? self : nothing};
    return runtime.heap.NewTuple(parts);
  }
  const Value parts[] = {Value::String(text.substr(0, at)),
                         Value::String(separator),
                         Value::String(text.substr(at + separator.size()))};
  return runtime.heap.NewTuple(parts);
}

StatusOr<Value> SplitLinesMethod(Runtime& runtime, const Value& self,
                                 const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("splitlines", arguments, {"keepends"})));
  return SplitLines(runtime, self.text(),
                    bound[0].has_value() && IsTrue(*bound[0]));
}

StatusOr<Value> JoinMethod(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("join", arguments, {"items"}, 1)));
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, *bound[0]));
  TextBuilder out(runtime.heap);
  for (size_t i = 0; i < items.size() && out.ok(); ++i) {
    ASSIGN_OR_RETURN(const std::string_view text,
                     ToStringView(items[i], "each item of join"));
    if (i > 0) out.Append(self.text());
    out.Append(text);
  }
  return out.Finish();
}

// Where `part` is, in characters; -1 if nowhere.
template <bool from_right>
StatusOr<int64_t> Locate(Runtime& runtime, std::string_view name,
                         const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind(name, arguments, {"sub"}, 1)));
  ASSIGN_OR_RETURN(const std::string_view part, ToStringView(*bound[0], name));
  const std::string_view text = self.text();
  RETURN_IF_ERROR(runtime.heap.ChargeText(text.size()));
  const size_t at = from_right ? LastFinder(text, part).FindBefore(text.size())
                               : FindText(text, part);
  if (at == std::string_view::npos) return -1;
  return static_cast<int64_t>(CountCodePoints(text.substr(0, at)));
}

template <bool from_right>
StatusOr<Value> FindMethodOfString(Runtime& runtime, const Value& self,
                                   const Arguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t at,
                   Locate<from_right>(runtime, "find", self, arguments));
  return Value::Int(at);
}

template <bool from_right>
StatusOr<Value> IndexMethodOfString(Runtime& runtime, const Value& self,
                                    const Arguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t at,
                   Locate<from_right>(runtime, "index", self, arguments));
  if (at < 0) return InvalidArgument("index: no such part in the string");
  return Value::Int(at);
}

StatusOr<Value> CountMethodOfString(Runtime& runtime, const Value& self,
                                    const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("count", arguments, {"sub"}, 1)));
  ASSIGN_OR_RETURN(const std::string_view part,
                   ToStringView(*bound[0], "count's argument"));
  const std::string_view text = self.text();
  RETURN_IF_ERROR(runtime.heap.ChargeText(text.size()));
  int64_t count = 0;
  if (part.empty()) {
    return Value::Int(static_cast<int64_t>(CountCodePoints(text)) + 1);
  }
  for (size_t at = FindText(text, part); at != std::string_view::npos;
       at = FindText(text, part, at + part.size())) {
    ++count;
  }
  return Value::Int(count);
}

// Whether there are characters and all of them are of the class.
template <bool (*Belongs)(int32_t)>
StatusOr<Value> All(Runtime& runtime, const Value& self,
                    const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("a string's test", arguments));
  std::string_view text = self.text();
  RETURN_IF_ERROR(runtime.heap.ChargeText(text.size()));
  const bool any = !text.empty();
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    if (!Belongs(point.value)) return Value::Bool(false);
    text.remove_prefix(point.bytes);
  }
  return Value::Bool(any);
}

bool IsSpaceCharacter(int32_t c) { return c >= 0 && IsSpace(c); }
bool IsLetterOrDigit(int32_t c) { return IsLetter(c) || IsDigit(c); }

template <bool upper>
StatusOr<Value> IsOfCase(Runtime& runtime, const Value& self,
                         const Arguments& arguments) {
  const Test test = FindTest(upper ? "upper" : "lower");
  ASSIGN_OR_RETURN(const bool holds, test(runtime, self, arguments));
  return Value::Bool(holds);
}

enum class Align { kLeft, kRight, kCenter };

template <Align align>
StatusOr<Value> Pad(Runtime& runtime, const Value& self,
                    const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("just", arguments, {"width", "fillchar"}, 1)));
  ASSIGN_OR_RETURN(const int64_t width, ToInteger(*bound[0], "a width"));
  std::string_view fill = " ";
  if (bound[1].has_value()) {
    ASSIGN_OR_RETURN(fill, ToStringView(*bound[1], "a fill character"));
  }
  const int64_t size = static_cast<int64_t>(CountCodePoints(self.text()));
  const int64_t missing = width > size ? width - size : 0;
  const int64_t left = align == Align::kLeft ? 0
                       : align == Align::kRight
                           ? missing
                           : missing / 2 + (missing & width & 1);
  return PadText(runtime, self.text(), left, missing - left, fill);
}

StatusOr<Value> ZeroFill(Runtime& runtime, const Value& self,
                         const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("zfill", arguments, {"width"}, 1)));
  ASSIGN_OR_RETURN(const int64_t width, ToInteger(*bound[0], "zfill's width"));
  std::string_view digits = self.text();
  const int64_t size = static_cast<int64_t>(CountCodePoints(digits));
  std::string_view sign;
  if (digits.starts_with('-') || digits.starts_with('+')) {
    sign = digits.substr(0, 1);
    digits.remove_prefix(1);
  }
  ASSIGN_OR_RETURN(
      const Value padded,
      PadText(runtime, digits, width > size ? width - size : 0, 0, "0"));
  return Arithmetic(runtime, "+", Value::String(sign), padded);
}

StatusOr<Value> Format(Runtime& runtime, const Value& self,
                       const Arguments& arguments) {
  return FormatBraces(runtime, self.text(), arguments);
}

// ---- Dicts and lists

StatusOr<Value> DictGet(Runtime& runtime, const Value& self,
                        const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("get", arguments, {"key", "default"}, 1)));
  ASSIGN_OR_RETURN(const Value* const value,
                   Find(runtime.heap, self, *bound[0]));
  return value != nullptr ? *value : bound[1].value_or(Value::None());
}

StatusOr<Value> DictItemsMethod(Runtime& runtime, const Value& self,
                                const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("items", arguments));
  return DictItems(runtime, self);
}

StatusOr<Value> DictKeys(Runtime& runtime, const Value& self,
                         const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("keys", arguments));
  ASSIGN_OR_RETURN(const auto keys, Iterate(runtime.heap, self));
  return Value::List(keys);
}

StatusOr<Value> DictValues(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("values", arguments));
  ASSIGN_OR_RETURN(const auto values,
                   runtime.heap.Array<Value>(self.entries().size()));
  RETURN_IF_ERROR(runtime.heap.ChargeItems(values.size()));
  std::ranges::transform(self.entries(), values.begin(), &Entry::value);
  return Value::List(values);
}

StatusOr<Value> Copy(Runtime&, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("copy", arguments));
  return self;
}

StatusOr<Value> ListCount(Runtime& runtime, const Value& self,
                          const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("count", arguments, {"item"}, 1)));
  RETURN_IF_ERROR(runtime.heap.ChargeItems(self.items().size()));
  int64_t count = 0;
  for (const Value& item : self.items()) {
    ASSIGN_OR_RETURN(const bool equal, Equals(runtime.heap, item, *bound[0]));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

StatusOr<Value> ListIndex(Runtime& runtime, const Value& self,
                          const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("index", arguments, {"item"}, 1)));
  RETURN_IF_ERROR(runtime.heap.ChargeItems(self.items().size()));
  for (size_t i = 0; i < self.items().size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(runtime.heap, self.items()[i], *bound[0]));
    if (equal) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("index: no such item in the list");
}

// As the immutable sandbox: the method is there, calling it is refused.
StatusOr<Value> RefuseChange(Runtime&, const Value& self, const Arguments&) {
  return InvalidArgument(
      "a '{}' cannot be changed in a chat template; make a new one with + or "
      "dict()",
      TypeName(self));
}

using Methods = std::span<const std::pair<std::string_view, Builtin>>;

Builtin FindIn(Methods methods, std::string_view name) {
  for (const auto& [each, method] : methods) {
    if (each == name) return method;
  }
  return nullptr;
}

constexpr std::pair<std::string_view, Builtin> kStringMethods[] = {
    {"capitalize", ConvertCase<Capitalize>},
    {"center", Pad<Align::kCenter>},
    {"count", CountMethodOfString},
    {"endswith", HasAffix<false>},
    {"find", FindMethodOfString<false>},
    {"format", Format},
    {"index", IndexMethodOfString<false>},
    {"isalnum", All<IsLetterOrDigit>},
    {"isalpha", All<IsLetter>},
    {"isdecimal", All<IsDigit>},
    {"isdigit", All<IsDigit>},
    {"islower", IsOfCase<false>},
    {"isspace", All<IsSpaceCharacter>},
    {"isupper", IsOfCase<true>},
    {"join", JoinMethod},
    {"ljust", Pad<Align::kLeft>},
    {"lower", ConvertCase<ToLower>},
    {"lstrip", Strip<Side::kLeft>},
    {"partition", Partition<false>},
    {"removeprefix", RemoveAffix<true>},
    {"removesuffix", RemoveAffix<false>},
    {"replace", Replace},
    {"rfind", FindMethodOfString<true>},
    {"rindex", IndexMethodOfString<true>},
    {"rjust", Pad<Align::kRight>},
    {"rpartition", Partition<true>},
    {"rsplit", Split<true>},
    {"rstrip", Strip<Side::kRight>},
    {"split", Split<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", HasAffix<true>},
    {"strip", Strip<Side::kBoth>},
    {"title", ConvertCase<Title>},
    {"upper", ConvertCase<ToUpper>},
    {"zfill", ZeroFill},
};

constexpr std::pair<std::string_view, Builtin> kDictMethods[] = {
    {"copy", Copy},
    {"get", DictGet},
    {"items", DictItemsMethod},
    {"keys", DictKeys},
    {"values", DictValues},
    {"clear", RefuseChange},
    {"pop", RefuseChange},
    {"popitem", RefuseChange},
    {"setdefault", RefuseChange},
    {"update", RefuseChange},
};

constexpr std::pair<std::string_view, Builtin> kListMethods[] = {
    {"copy", Copy},           {"count", ListCount},
    {"index", ListIndex},     {"append", RefuseChange},
    {"clear", RefuseChange},  {"extend", RefuseChange},
    {"insert", RefuseChange}, {"pop", RefuseChange},
    {"remove", RefuseChange}, {"reverse", RefuseChange},
    {"sort", RefuseChange},
};

}  // namespace

Builtin FindStringMethod(std::string_view name) {
  return FindIn(kStringMethods, name);
}

Builtin FindMethod(const Value& receiver, std::string_view name) {
  switch (receiver.kind()) {
    case Kind::kString:
      return FindStringMethod(name);
    case Kind::kDict:
      return FindIn(kDictMethods, name);
    case Kind::kList:
      return FindIn(kListMethods, name);
    case Kind::kTuple:
      return FindIn(Methods(kListMethods).first(3).subspan(1), name);
    default:
      return nullptr;
  }
}

}  // namespace tidepool::model::jinja
