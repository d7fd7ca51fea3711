#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

// `"a.b.0"` of `value`: a step of digits is an index.
StatusOr<Value> LookUp(Runtime& runtime, Value value, const Value& path) {
  if (path.is_int()) return GetItem(runtime, value, path);
  ASSIGN_OR_RETURN(std::string_view rest, ToStringView(path, "an attribute"));
  for (;;) {
    const size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    int64_t index = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, index);
    const bool number = error == std::errc() && stop == end && name[0] != '-';
    ASSIGN_OR_RETURN(value,
                     GetItem(runtime, value,
                             number ? Value::Int(index) : Value::String(name)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

// What a filter sorts or compares by.
struct KeyRule {
  std::optional<Value> attribute;
  bool case_sensitive = false;

  StatusOr<Value> Of(Runtime& runtime, Value value) const {
    if (attribute.has_value() && !attribute->is_none()) {
      ASSIGN_OR_RETURN(value, LookUp(runtime, value, *attribute));
    }
    if (case_sensitive || !value.is_string()) return value;
    RETURN_IF_ERROR(runtime.heap.ChargeText(value.text().size()));
    return runtime.heap.NewString(ToLower(value.text()));
  }
};

KeyRule MakeKeyRule(const std::optional<Value>& case_sensitive,
                    const std::optional<Value>& attribute) {
  return {attribute, case_sensitive.has_value() && IsTrue(*case_sensitive)};
}

// A stable order of indices by `keys`.
StatusOr<std::vector<size_t>> SortedOrder(Runtime& runtime,
                                          std::span<const Value> keys,
                                          bool reverse) {
  RETURN_IF_ERROR(runtime.heap.ChargeBytes(keys.size() * 2 * sizeof(size_t)));
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    status = runtime.heap.ChargeSteps(1);
    if (!status.ok()) return false;
    const StatusOr<int> compared = reverse
                                       ? Order(runtime.heap, keys[b], keys[a])
                                       : Order(runtime.heap, keys[a], keys[b]);
    status = compared.status();
    return compared.ok() && *compared < 0;
  });
  RETURN_IF_ERROR(status);
  return order;
}

StatusOr<Value> Pick(Runtime& runtime, std::span<const Value> items,
                     std::span<const size_t> order) {
  ASSIGN_OR_RETURN(const auto picked, runtime.heap.Array<Value>(order.size()));
  std::ranges::transform(order, picked.begin(),
                         [&](size_t index) { return items[index]; });
  return Value::List(picked);
}

StatusOr<Value> FilterSort(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  ASSIGN_OR_RETURN(
      const auto bound,
      (Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"})));
  const KeyRule rule = MakeKeyRule(bound[1], bound[2]);
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  ASSIGN_OR_RETURN(const auto keys, runtime.heap.Array<Value>(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(keys[i], rule.Of(runtime, items[i]));
  }
  const bool reverse = bound[0].has_value() && IsTrue(*bound[0]);
  ASSIGN_OR_RETURN(const auto order, SortedOrder(runtime, keys, reverse));
  return Pick(runtime, items, order);
}

StatusOr<Value> FilterDictSort(Runtime& runtime, const Value& self,
                               const Arguments& arguments) {
  ASSIGN_OR_RETURN(
      const auto bound,
      (Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"})));
  ASSIGN_OR_RETURN(
      const std::string_view by,
      ToStringView(bound[1].value_or(Value::String("key")), "dictsort's by"));
  if (by != "key" && by != "value") {
    return InvalidArgument("dictsort: by is key or value");
  }
  ASSIGN_OR_RETURN(const Value pairs, DictItems(runtime, self));
  const KeyRule rule = MakeKeyRule(bound[0], std::nullopt);
  const auto items = pairs.items();
  ASSIGN_OR_RETURN(const auto keys, runtime.heap.Array<Value>(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    const Value& key = items[i].items()[by == "key" ? 0 : 1];
    ASSIGN_OR_RETURN(keys[i], rule.Of(runtime, key));
  }
  const bool reverse = bound[2].has_value() && IsTrue(*bound[2]);
  ASSIGN_OR_RETURN(const auto order, SortedOrder(runtime, keys, reverse));
  return Pick(runtime, items, order);
}

StatusOr<Value> FilterUnique(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("unique", arguments,
                                           {"case_sensitive", "attribute"})));
  const KeyRule rule = MakeKeyRule(bound[0], bound[1]);
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  std::vector<Value> kept, keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value key, rule.Of(runtime, item));
    ASSIGN_OR_RETURN(const bool known,
                     Contains(runtime, Value::List(keys), key));
    if (known) continue;
    kept.push_back(item);
    keys.push_back(key);
  }
  return runtime.heap.NewList(kept);
}

template <bool largest>
StatusOr<Value> FilterExtreme(Runtime& runtime, const Value& self,
                              const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind(largest ? "max" : "min", arguments,
                                           {"case_sensitive", "attribute"})));
  const KeyRule rule = MakeKeyRule(bound[0], bound[1]);
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  Value best = Value::Undefined("No aggregated item, sequence was empty.");
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const Value key, rule.Of(runtime, items[i]));
    int order = 0;
    if (i > 0) {
      ASSIGN_OR_RETURN(order, Order(runtime.heap, key, best_key));
    }
    if (i > 0 && (largest ? order <= 0 : order >= 0)) continue;
    best = items[i];
    best_key = key;
  }
  return best;
}

StatusOr<Value> FilterSum(Runtime& runtime, const Value& self,
                          const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("sum", arguments, {"attribute", "start"})));
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  Value sum = bound[1].value_or(Value::Int(0));
  if (sum.is_string()) return InvalidArgument("sum: join() adds up strings");
  for (Value item : items) {
    if (bound[0].has_value() && !bound[0]->is_none()) {
      ASSIGN_OR_RETURN(item, LookUp(runtime, item, *bound[0]));
    }
    ASSIGN_OR_RETURN(sum, Arithmetic(runtime, "+", sum, item));
  }
  return sum;
}

StatusOr<Value> FilterLength(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("length", arguments));
  size_t length = 0;
  if (self.is_string()) {
    RETURN_IF_ERROR(runtime.heap.ChargeText(self.text().size()));
    length = CountCodePoints(self.text());
  } else if (self.is_sequence()) {
    length = self.items().size();
  } else if (self.is_dict()) {
    length = self.entries().size();
  } else if (!self.is_undefined()) {
    return InvalidArgument("'{}' has no length", TypeName(self));
  }
  return Value::Int(static_cast<int64_t>(length));
}

StatusOr<Value> FilterFirst(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("first", arguments));
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  if (items.empty()) return Value::Undefined("the first item of nothing");
  return items.front();
}

StatusOr<Value> FilterLast(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("last", arguments));
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  if (items.empty()) return Value::Undefined("the last item of nothing");
  return items.back();
}

StatusOr<Value> FilterList(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("list", arguments));
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  return Value::List(items);
}

StatusOr<Value> FilterReverse(Runtime& runtime, const Value& self,
                              const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("reverse", arguments));
  const Value none;
  if (self.is_string()) {
    return Slice(runtime, self, none, none, Value::Int(-1));
  }
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  return Slice(runtime, Value::List(items), none, none, Value::Int(-1));
}

StatusOr<Value> FilterJoin(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("join", arguments, {"d", "attribute"})));
  ASSIGN_OR_RETURN(const Value separator,
                   ToText(runtime.heap, bound[0].value_or(Value::String(""))));
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  RETURN_IF_ERROR(runtime.heap.ChargeSteps(std::ssize(items)));
  TextBuilder out(runtime.heap);
  for (size_t i = 0; i < items.size() && out.ok(); ++i) {
    Value item = items[i];
    if (bound[1].has_value() && !bound[1]->is_none()) {
      ASSIGN_OR_RETURN(item, LookUp(runtime, item, *bound[1]));
    }
    ASSIGN_OR_RETURN(item, ToText(runtime.heap, item));
    if (i > 0) out.Append(separator.text());
    out.Append(item.text());
  }
  return out.Finish();
}

StatusOr<Value> FilterDefault(Runtime&, const Value& self,
                              const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("default", arguments, {"default_value", "boolean"})));
  const bool falsy_too = bound[1].has_value() && IsTrue(*bound[1]);
  if (!self.is_undefined() && !(falsy_too && !IsTrue(self))) return self;
  return bound[0].value_or(Value::String(""));
}

StatusOr<Value> FilterItems(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("items", arguments));
  if (self.is_undefined()) return Value::List({});
  return DictItems(runtime, self);
}

StatusOr<Value> FilterAttr(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("attr", arguments, {"name"}, 1)));
  ASSIGN_OR_RETURN(const std::string_view name,
                   ToStringView(*bound[0], "attr's name"));
  if (self.is_dict()) {  // unlike a dot, never an entry
    const Builtin method = FindMethod(self, name);
    if (method == nullptr) return Value::Undefined(name);
  }
  return GetAttribute(runtime, self, name);
}

StatusOr<Value> FilterMap(Runtime& runtime, const Value& self,
                          const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  ASSIGN_OR_RETURN(const auto mapped, runtime.heap.Array<Value>(items.size()));
  if (arguments.positional.empty()) {
    ASSIGN_OR_RETURN(const auto bound,
                     (Bind("map", arguments, {"attribute", "default"})));
    if (!bound[0].has_value()) {
      return InvalidArgument("map() needs a filter or an attribute");
    }
    for (size_t i = 0; i < items.size(); ++i) {
      ASSIGN_OR_RETURN(mapped[i], LookUp(runtime, items[i], *bound[0]));
      if (mapped[i].is_undefined() && bound[1].has_value()) {
        mapped[i] = *bound[1];
      }
    }
    return Value::List(mapped);
  }
  ASSIGN_OR_RETURN(const std::string_view name,
                   ToStringView(arguments.positional.front(), "map's filter"));
  const Builtin filter = FindFilter(name);
  if (filter == nullptr)
    return InvalidArgument("there is no filter '{}'", name);
  const Arguments rest = arguments.Without(1);
  RETURN_IF_ERROR(runtime.heap.ChargeSteps(std::ssize(items)));
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(mapped[i], filter(runtime, items[i], rest));
  }
  return Value::List(mapped);
}

// select, reject, selectattr('name'), rejectattr('name', 'test', operand).
template <bool keeps, bool by_attribute>
StatusOr<Value> FilterSelect(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  const size_t skipped = by_attribute ? 1 : 0;
  if (arguments.positional.size() < skipped) {
    return InvalidArgument("selectattr and rejectattr need an attribute");
  }
  Test test = nullptr;
  if (arguments.positional.size() > skipped) {
    ASSIGN_OR_RETURN(const std::string_view name,
                     ToStringView(arguments.positional[skipped], "a test"));
    test = FindTest(name);
    if (test == nullptr) return InvalidArgument("there is no test '{}'", name);
  }
  const Arguments rest = arguments.Without(skipped + 1);
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  RETURN_IF_ERROR(runtime.heap.ChargeSteps(std::ssize(items)));
  ASSIGN_OR_RETURN(const auto kept, runtime.heap.Array<Value>(items.size()));
  size_t count = 0;
  for (const Value& item : items) {
    Value subject = item;
    if constexpr (by_attribute) {
      ASSIGN_OR_RETURN(subject,
                       LookUp(runtime, item, arguments.positional.front()));
    }
    bool passes = IsTrue(subject);
    if (test != nullptr) {
      ASSIGN_OR_RETURN(passes, test(runtime, subject, rest));
    }
    if (passes == keeps) kept[count++] = item;
  }
  return Value::List(kept.subspan(0, count));
}

// Runs of `size` items, the last filled up where asked for.
StatusOr<Value> FilterBatch(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("batch", arguments, {"linecount", "fill_with"}, 1)));
  ASSIGN_OR_RETURN(const int64_t size, ToInteger(*bound[0], "batch's size"));
  if (size <= 0) return InvalidArgument("batch: a size of {}", size);
  ASSIGN_OR_RETURN(const auto items, Iterate(runtime.heap, self));
  std::vector<Value> batches;
  for (size_t at = 0; at < items.size(); at += static_cast<size_t>(size)) {
    const size_t count = std::min(static_cast<size_t>(size), items.size() - at);
    Value batch = Value::List(items.subspan(at, count));
    if (bound[1].has_value() && !bound[1]->is_none()) {
      const Value fill = Value::List({&*bound[1], 1});
      ASSIGN_OR_RETURN(
          const Value filling,
          Arithmetic(runtime, "*", fill,
                     Value::Int(size - static_cast<int64_t>(count))));
      ASSIGN_OR_RETURN(batch, Arithmetic(runtime, "+", batch, filling));
    }
    batches.push_back(batch);
    if (count < static_cast<size_t>(size)) break;
  }
  return runtime.heap.NewList(batches);
}

constexpr std::pair<std::string_view, Builtin> kFilters[] = {
    {"attr", FilterAttr},
    {"batch", FilterBatch},
    {"count", FilterLength},
    {"d", FilterDefault},
    {"default", FilterDefault},
    {"dictsort", FilterDictSort},
    {"first", FilterFirst},
    {"items", FilterItems},
    {"join", FilterJoin},
    {"last", FilterLast},
    {"length", FilterLength},
    {"list", FilterList},
    {"map", FilterMap},
    {"max", FilterExtreme<true>},
    {"min", FilterExtreme<false>},
    {"reject", FilterSelect<false, false>},
    {"rejectattr", FilterSelect<false, true>},
    {"reverse", FilterReverse},
    {"select", FilterSelect<true, false>},
    {"selectattr", FilterSelect<true, true>},
    {"sort", FilterSort},
    {"sum", FilterSum},
    {"unique", FilterUnique},
};

}  // namespace

Builtin FindSequenceFilter(std::string_view name) {
  for (const auto& [each, filter] : kFilters) {
    if (each == name) return filter;
  }
  return nullptr;
}

StatusOr<Value> DictItems(Runtime& runtime, const Value& dict) {
  if (dict.is_undefined()) return UndefinedError(dict);
  if (!dict.is_dict()) {
    return InvalidArgument("'{}' is not a mapping", TypeName(dict));
  }
  const auto entries = dict.entries();
  ASSIGN_OR_RETURN(const auto pairs, runtime.heap.Array<Value>(entries.size()));
  for (size_t i = 0; i < entries.size(); ++i) {
    const Value pair[] = {entries[i].key, entries[i].value};
    ASSIGN_OR_RETURN(pairs[i], runtime.heap.NewTuple(pair));
  }
  return Value::List(pairs);
}

}  // namespace tidepool::model::jinja
