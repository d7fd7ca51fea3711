#include "dataplane/model/jinja_object.h"

#include <algorithm>
#include <utility>

namespace tidepool::model::jinja {

StatusOr<std::optional<Value>> Object::Attribute(Runtime&, std::string_view) {
  return std::nullopt;
}

StatusOr<Value> Object::Call(Runtime&, const Arguments&) {
  return InvalidArgument("'{}' cannot be called", type_name());
}

Status Object::AppendRepr(TextBuilder& out, int) const {
  out.Append("<");
  out.Append(type_name());
  out.Append(">");
  return OkStatus();
}

const Value* Bindings::Find(std::string_view name) const {
  for (const NamedValue& entry : entries()) {
    if (entry.name == name) return &entry.value;
  }
  return nullptr;
}

Status Bindings::Set(Heap& heap, std::string_view name, const Value& value) {
  RETURN_IF_ERROR(heap.ChargeItems(size_));
  for (NamedValue& entry : storage_.subspan(0, size_)) {
    if (entry.name != name) continue;
    entry.value = value;
    return OkStatus();
  }
  if (size_ == storage_.size()) {
    ASSIGN_OR_RETURN(const std::span<NamedValue> larger,
                     heap.Array<NamedValue>(std::max<size_t>(4, size_ * 2)));
    std::ranges::copy(storage_, larger.begin());
    storage_ = larger;
  }
  storage_[size_++] = {name, value};
  return OkStatus();
}

StatusOr<std::optional<Value>> Namespace::Attribute(Runtime& runtime,
                                                    std::string_view name) {
  RETURN_IF_ERROR(runtime.heap.ChargeItems(bindings_.entries().size()));
  const Value* const value = bindings_.Find(name);
  if (value == nullptr) return std::nullopt;
  return *value;
}

Status Namespace::AppendRepr(TextBuilder& out, int depth) const {
  out.Append("<Namespace {");
  bool first = true;
  for (const NamedValue& entry : bindings_.entries()) {
    if (!std::exchange(first, false)) out.Append(", ");
    RETURN_IF_ERROR(
        jinja::AppendRepr(Value::String(entry.name), out, depth + 1));
    out.Append(": ");
    RETURN_IF_ERROR(jinja::AppendRepr(entry.value, out, depth + 1));
  }
  out.Append("}>");
  return OkStatus();
}

Status Namespace::Set(Heap& heap, std::string_view name, const Value& value) {
  return bindings_.Set(heap, name, value);
}

Status BindArguments(std::string_view callee, const Arguments& arguments,
                     std::span<const std::string_view> names, size_t required,
                     std::span<std::optional<Value>> bound) {
  if (arguments.positional.size() > names.size()) {
    return InvalidArgument("{}() takes at most {} arguments, not {}", callee,
                           names.size(), arguments.positional.size());
  }
  std::ranges::copy(arguments.positional, bound.begin());
  for (const NamedValue& named : arguments.named) {
    const auto name = std::ranges::find(names, named.name);
    if (name == names.end()) {
      return InvalidArgument("{}() has no argument '{}'", callee, named.name);
    }
    std::optional<Value>& slot = bound[name - names.begin()];
    if (slot.has_value()) {
      return InvalidArgument("{}() got its argument '{}' twice", callee,
                             named.name);
    }
    slot = named.value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i].has_value()) {
      return InvalidArgument("{}() needs its argument '{}'", callee, names[i]);
    }
  }
  return OkStatus();
}

Status ExpectNoArguments(std::string_view callee, const Arguments& arguments) {
  if (arguments.empty()) return OkStatus();
  return InvalidArgument("{}() takes no arguments", callee);
}

StatusOr<int64_t> ToInteger(const Value& value, std::string_view what) {
  if (value.is_int()) return value.integer();
  if (value.is_undefined()) return UndefinedError(value);
  return InvalidArgument("{} must be an integer, not '{}'", what,
                         TypeName(value));
}

StatusOr<std::string_view> ToStringView(const Value& value,
                                        std::string_view what) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return UndefinedError(value);
  return InvalidArgument("{} must be a string, not '{}'", what,
                         TypeName(value));
}

}  // namespace tidepool::model::jinja
