// Values with behaviour: functions, macros, loops, namespaces.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "dataplane/base/status.h"
#include "dataplane/model/jinja_value.h"

namespace tidepool::model::jinja {

// What one rendering gives to everything it calls.
struct Runtime {
  Heap& heap;
  std::optional<double> now_unix_seconds;
  bool raised = false;  // the error is the template's own
};

struct NamedValue {
  std::string_view name;
  Value value;
};

struct Arguments {
  std::span<const Value> positional;
  std::span<const NamedValue> named;

  bool empty() const { return positional.empty() && named.empty(); }
  // Without the first `count` positional ones (clamped).
  Arguments Without(size_t count) const {
    return {positional.subspan(std::min(count, positional.size())), named};
  }
};

// Lives in a Heap, which never runs destructors.
class Object {
 public:
  virtual std::string_view type_name() const = 0;
  virtual bool callable() const { return false; }
  // nullopt if there is no such attribute.
  virtual StatusOr<std::optional<Value>> Attribute(Runtime& runtime,
                                                   std::string_view name);
  virtual StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments);
  virtual Status AppendRepr(TextBuilder& out, int depth) const;

 protected:
  ~Object() = default;
};

// Names to values in the order of their first assignment. Grows in a heap.
class Bindings {
 public:
  // nullptr if there is none. Valid until the next Set.
  const Value* Find(std::string_view name) const;
  // `name` must live as long as the heap.
  Status Set(Heap& heap, std::string_view name, const Value& value);
  void Clear() { size_ = 0; }
  std::span<const NamedValue> entries() const {
    return storage_.subspan(0, size_);
  }

 private:
  std::span<NamedValue> storage_;
  size_t size_ = 0;
};

// The only value that changes: `{% set ns.name = … %}`.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  StatusOr<std::optional<Value>> Attribute(Runtime& runtime,
                                           std::string_view name) override;
  Status AppendRepr(TextBuilder& out, int depth) const override;
  Status Set(Heap& heap, std::string_view name, const Value& value);

 private:
  Bindings bindings_;
};

// Filters, methods and functions in C++: `self` is the input or receiver.
using Builtin = StatusOr<Value> (*)(Runtime& runtime, const Value& self,
                                    const Arguments& arguments);

// A builtin with its receiver: `text.split`, or `range` with none.
class Function final : public Object {
 public:
  Function(Builtin builtin, const Value& self)
      : builtin_(builtin), self_(self) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  StatusOr<Value> Call(Runtime& runtime, const Arguments& arguments) override {
    return builtin_(runtime, self_, arguments);
  }

 private:
  Builtin builtin_;
  Value self_;
};

// Sorts arguments into `names`; the first `required` must be there.
// Errors: kInvalidArgument naming `callee` and the argument.
Status BindArguments(std::string_view callee, const Arguments& arguments,
                     std::span<const std::string_view> names, size_t required,
                     std::span<std::optional<Value>> bound);

template <size_t N>
StatusOr<std::array<std::optional<Value>, N>> Bind(
    std::string_view callee, const Arguments& arguments,
    const std::string_view (&names)[N], size_t required = 0) {
  std::array<std::optional<Value>, N> bound;
  RETURN_IF_ERROR(BindArguments(callee, arguments, names, required, bound));
  return bound;
}
Status ExpectNoArguments(std::string_view callee, const Arguments& arguments);

// What an argument must be. Errors: kInvalidArgument naming `what`.
StatusOr<int64_t> ToInteger(const Value& value, std::string_view what);
StatusOr<std::string_view> ToStringView(const Value& value,
                                        std::string_view what);

}  // namespace tidepool::model::jinja
