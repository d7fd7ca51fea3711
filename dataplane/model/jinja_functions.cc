// Global functions: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <utility>
#include <vector>

#include "dataplane/base/checked_math.h"
#include "dataplane/model/jinja_builtins.h"

namespace tidepool::model::jinja {
namespace {

// As the sandbox of Jinja that transformers uses.
constexpr int64_t kRangeItemsMax = 100'000;

StatusOr<Value> Range(Runtime& runtime, const Value&,
                      const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) {
    return InvalidArgument("range() takes one to three integers");
  }
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(numbers[count == 1 ? 1 : i],
                     ToInteger(arguments.positional[i], "range()'s argument"));
  }
  const auto [start, stop, step] = numbers;
  if (step == 0) return InvalidArgument("range()'s step is zero");
  std::vector<Value> items;
  std::optional<int64_t> at = start;
  while (at.has_value() && (step > 0 ? *at < stop : *at > stop)) {
    if (std::ssize(items) == kRangeItemsMax) {
      return ResourceExhausted("range() of more than {} items", kRangeItemsMax);
    }
    items.push_back(Value::Int(*at));
    at = CheckedAdd(*at, step);
  }
  return runtime.heap.NewList(items);
}

// The entries that dict() and namespace() are made of.
StatusOr<std::vector<Entry>> EntriesOf(Runtime& runtime,
                                       std::string_view callee,
                                       const Arguments& arguments) {
  std::vector<Entry> entries;
  if (arguments.positional.size() > 1) {
    return InvalidArgument("{}() takes at most one positional argument",
                           callee);
  }
  for (const Value& source : arguments.positional) {
    if (source.is_dict()) {
      entries.assign(source.entries().begin(), source.entries().end());
      continue;
    }
    ASSIGN_OR_RETURN(const auto pairs, Iterate(runtime.heap, source));
    for (const Value& pair : pairs) {
      if (!pair.is_sequence() || pair.items().size() != 2) {
        return InvalidArgument("{}() needs pairs of key and value", callee);
      }
      entries.push_back({pair.items()[0], pair.items()[1]});
    }
  }
  for (const NamedValue& named : arguments.named) {
    entries.push_back({Value::String(named.name), named.value});
  }
  return entries;
}

StatusOr<Value> MakeDictFunction(Runtime& runtime, const Value&,
                                 const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto entries, EntriesOf(runtime, "dict", arguments));
  return MakeDict(runtime.heap, entries);
}

StatusOr<Value> MakeNamespace(Runtime& runtime, const Value&,
                              const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto entries,
                   EntriesOf(runtime, "namespace", arguments));
  ASSIGN_OR_RETURN(Namespace* const names, runtime.heap.New<Namespace>());
  for (const Entry& entry : entries) {
    ASSIGN_OR_RETURN(const std::string_view name,
                     ToStringView(entry.key, "a name in a namespace"));
    RETURN_IF_ERROR(names->Set(runtime.heap, name, entry.value));
  }
  return Value::FromObject(names);
}

class Cycler final : public Object {
 public:
  explicit Cycler(std::span<const Value> items) : items_(items) {}
  std::string_view type_name() const override { return "Cycler"; }
  StatusOr<std::optional<Value>> Attribute(Runtime& runtime,
                                           std::string_view name) override {
    if (name == "current") return items_[position_];
    if (name != "next" && name != "reset") return std::nullopt;
    const Builtin builtin = name == "next" ? Next : Reset;
    ASSIGN_OR_RETURN(
        Function* const function,
        runtime.heap.New<Function>(builtin, Value::FromObject(this)));
    return Value::FromObject(function);
  }

 private:
  static StatusOr<Value> Next(Runtime&, const Value& self,
                              const Arguments& arguments) {
    RETURN_IF_ERROR(ExpectNoArguments("cycler.next", arguments));
    Cycler& cycler = static_cast<Cycler&>(self.object());
    const Value item = cycler.items_[cycler.position_];
    cycler.position_ = (cycler.position_ + 1) % cycler.items_.size();
    return item;
  }
  static StatusOr<Value> Reset(Runtime&, const Value& self,
                               const Arguments& arguments) {
    RETURN_IF_ERROR(ExpectNoArguments("cycler.reset", arguments));
    static_cast<Cycler&>(self.object()).position_ = 0;
    return Value::None();
  }

  std::span<const Value> items_;
  size_t position_ = 0;
};

StatusOr<Value> MakeCycler(Runtime& runtime, const Value&,
                           const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return InvalidArgument("cycler() needs an argument");
  }
  ASSIGN_OR_RETURN(const Value items,
                   runtime.heap.NewList(arguments.positional));
  ASSIGN_OR_RETURN(Cycler* const cycler,
                   runtime.heap.New<Cycler>(items.items()));
  return Value::FromObject(cycler);
}

// Nothing on the first call, the separator on later ones.
class Joiner final : public Object {
 public:
  explicit Joiner(const Value& separator) : separator_(separator) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  StatusOr<Value> Call(Runtime&, const Arguments& arguments) override {
    RETURN_IF_ERROR(ExpectNoArguments("a joiner", arguments));
    return std::exchange(used_, true) ? separator_ : Value::String("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

StatusOr<Value> MakeJoiner(Runtime& runtime, const Value&,
                           const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("joiner", arguments, {"sep"})));
  ASSIGN_OR_RETURN(
      Joiner* const joiner,
      runtime.heap.New<Joiner>(bound[0].value_or(Value::String(", "))));
  return Value::FromObject(joiner);
}

StatusOr<Value> RaiseException(Runtime& runtime, const Value&,
                               const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("raise_exception", arguments, {"message"}, 1)));
  ASSIGN_OR_RETURN(const Value message, ToText(runtime.heap, *bound[0]));
  runtime.raised = true;
  return InvalidArgument("{}", message.text());
}

StatusOr<Value> StrftimeNow(Runtime& runtime, const Value&,
                            const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("strftime_now", arguments, {"format"}, 1)));
  ASSIGN_OR_RETURN(const std::string_view format,
                   ToStringView(*bound[0], "strftime_now's format"));
  if (!runtime.now_unix_seconds.has_value()) {
    return InvalidArgument("'strftime_now' is undefined");
  }
  // Years 1 to 9999, as Python's datetime.
  const double seconds = std::clamp(std::floor(*runtime.now_unix_seconds),
                                    -62135596800.0, 253402300799.0);
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts = {};
  gmtime_r(&time, &parts);
  char buffer[1024];
  // The extra blank tells an empty result from one that did not fit.
  const std::string padded = std::string(format) + " ";
  const size_t size =
      std::strftime(buffer, sizeof(buffer), padded.c_str(), &parts);
  if (size == 0) {
    return InvalidArgument("strftime_now: a result beyond {} bytes",
                           sizeof(buffer));
  }
  return runtime.heap.NewString({buffer, size - 1});
}

}  // namespace

Builtin FindFunction(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kFunctions[] = {
      {"range", Range},
      {"dict", MakeDictFunction},
      {"namespace", MakeNamespace},
      {"cycler", MakeCycler},
      {"joiner", MakeJoiner},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow},
  };
  for (const auto& [each, function] : kFunctions) {
    if (each == name) return function;
  }
  return nullptr;
}

}  // namespace tidepool::model::jinja
