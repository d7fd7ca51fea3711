#include <algorithm>

#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

// The one argument of a test such as `is divisibleby(3)`.
StatusOr<Value> Operand(std::string_view test, const Arguments& arguments) {
  if (arguments.positional.size() == 1 && arguments.named.empty()) {
    return arguments.positional.front();
  }
  return InvalidArgument("the test '{}' needs one argument", test);
}

template <bool (*Holds)(const Value&)>
StatusOr<bool> Is(Runtime&, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("a test", arguments));
  return Holds(value);
}

bool Defined(const Value& v) { return !v.is_undefined(); }
bool Undefined(const Value& v) { return v.is_undefined(); }
bool None(const Value& v) { return v.is_none(); }
bool Boolean(const Value& v) { return v.kind() == Kind::kBool; }
bool True(const Value& v) { return Boolean(v) && v.boolean(); }
bool False(const Value& v) { return Boolean(v) && !v.boolean(); }
bool Integer(const Value& v) {
  return v.kind() == Kind::kInt || v.kind() == Kind::kUnsigned;
}
bool Float(const Value& v) { return v.is_float(); }
bool Number(const Value& v) { return v.is_number(); }
bool String(const Value& v) { return v.is_string(); }
bool Mapping(const Value& v) { return v.is_dict(); }
bool Iterable(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is_dict() || v.is_undefined();
}
bool Callable(const Value& v) {  // what is undefined fails only when called
  return v.is_undefined() ||
         (v.kind() == Kind::kObject && v.object().callable());
}
bool Escaped(const Value&) { return false; }

// Whether there are cased characters and all of them are of the one case.
template <bool (*Wanted)(int32_t), bool (*Unwanted)(int32_t)>
StatusOr<bool> IsCase(Runtime& runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime.heap, value));
  RETURN_IF_ERROR(runtime.heap.ChargeText(text.text().size()));
  bool any = false;
  for (std::string_view rest = text.text(); !rest.empty();) {
    const CodePoint point = FirstCodePoint(rest);
    if (Unwanted(point.value)) return false;
    any |= Wanted(point.value);
    rest.remove_prefix(point.bytes);
  }
  return any;
}

StatusOr<bool> Odd(Runtime& runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const Value rest,
                   Arithmetic(runtime, "%", value, Value::Int(2)));
  return Equals(runtime.heap, rest, Value::Int(1));
}

StatusOr<bool> Even(Runtime& runtime, const Value& value, const Arguments&) {
  ASSIGN_OR_RETURN(const Value rest,
                   Arithmetic(runtime, "%", value, Value::Int(2)));
  return Equals(runtime.heap, rest, Value::Int(0));
}

StatusOr<bool> DivisibleBy(Runtime& runtime, const Value& value,
                           const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value operand, Operand("divisibleby", arguments));
  ASSIGN_OR_RETURN(const Value rest, Arithmetic(runtime, "%", value, operand));
  return Equals(runtime.heap, rest, Value::Int(0));
}

StatusOr<bool> SameAs(Runtime& runtime, const Value& value,
                      const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value operand, Operand("sameas", arguments));
  if (value.kind() != operand.kind()) return false;
  return Equals(runtime.heap, value, operand);
}

StatusOr<bool> In(Runtime& runtime, const Value& value,
                  const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value operand, Operand("in", arguments));
  return Contains(runtime, operand, value);
}

enum class Operation { kEq, kNe, kLt, kLe, kGt, kGe };

template <Operation operation>
StatusOr<bool> Compares(Runtime& runtime, const Value& value,
                        const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"==", "!=", "<",
                                                "<=", ">",  ">="};
  const std::string_view name = kNames[static_cast<size_t>(operation)];
  ASSIGN_OR_RETURN(const Value operand, Operand(name, arguments));
  return Compare(runtime, name, value, operand);
}

StatusOr<bool> HasFilter(Runtime&, const Value& value, const Arguments&) {
  return value.is_string() && FindFilter(value.text()) != nullptr;
}
StatusOr<bool> HasTest(Runtime&, const Value& value, const Arguments&) {
  return value.is_string() && FindTest(value.text()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  Test test;
};
constexpr NamedTest kTests[] = {
    {"defined", Is<Defined>},
    {"undefined", Is<Undefined>},
    {"none", Is<None>},
    {"boolean", Is<Boolean>},
    {"true", Is<True>},
    {"false", Is<False>},
    {"integer", Is<Integer>},
    {"float", Is<Float>},
    {"number", Is<Number>},
    {"string", Is<String>},
    {"mapping", Is<Mapping>},
    {"sequence", Is<Iterable>},  // Jinja asks for a length and items only
    {"iterable", Is<Iterable>},
    {"callable", Is<Callable>},
    {"escaped", Is<Escaped>},
    {"lower", IsCase<IsLower, IsUpper>},
    {"upper", IsCase<IsUpper, IsLower>},
    {"odd", Odd},
    {"even", Even},
    {"divisibleby", DivisibleBy},
    {"sameas", SameAs},
    {"in", In},
    {"filter", HasFilter},
    {"test", HasTest},
    {"==", Compares<Operation::kEq>},
    {"eq", Compares<Operation::kEq>},
    {"equalto", Compares<Operation::kEq>},
    {"!=", Compares<Operation::kNe>},
    {"ne", Compares<Operation::kNe>},
    {"<", Compares<Operation::kLt>},
    {"lt", Compares<Operation::kLt>},
    {"lessthan", Compares<Operation::kLt>},
    {"<=", Compares<Operation::kLe>},
    {"le", Compares<Operation::kLe>},
    {">", Compares<Operation::kGt>},
    {"gt", Compares<Operation::kGt>},
    {"greaterthan", Compares<Operation::kGt>},
    {">=", Compares<Operation::kGe>},
    {"ge", Compares<Operation::kGe>},
};

}  // namespace

Test FindTest(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &NamedTest::name);
  return found == std::end(kTests) ? nullptr : found->test;
}

}  // namespace tidepool::model::jinja
