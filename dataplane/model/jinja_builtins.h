// Jinja's operators, filters, tests, methods and global functions.
//
// None of them changes its input. Errors of all: kInvalidArgument for wrong
// types or values, kResourceExhausted by the heap.
#pragma once

#include <optional>
#include <string_view>

#include "dataplane/base/status.h"
#include "dataplane/model/jinja_object.h"
#include "dataplane/model/jinja_value.h"

namespace tidepool::model::jinja {

using Test = StatusOr<bool> (*)(Runtime& runtime, const Value& value,
                                const Arguments& arguments);

// nullptr if there is none of this name.
Builtin FindFilter(std::string_view name);
Builtin FindTextFilter(std::string_view name);  // FindFilter asks it
Builtin FindSequenceFilter(std::string_view name);
Builtin FindNumberFilter(std::string_view name);
Test FindTest(std::string_view name);
Builtin FindMethod(const Value& receiver, std::string_view name);
Builtin FindFunction(std::string_view name);
Builtin FindStringMethod(std::string_view name);

// `object.name` and `object[key]`. What is not there is undefined; asking
// something undefined is an error.
StatusOr<Value> GetAttribute(Runtime& runtime, const Value& object,
                             std::string_view name);
StatusOr<Value> GetItem(Runtime& runtime, const Value& object,
                        const Value& key);

// `object[start:stop:step]`, each bound none where left out.
StatusOr<Value> Slice(Runtime& runtime, const Value& object, const Value& start,
                      const Value& stop, const Value& step);

// `operation` is one of + - * / // % **.
StatusOr<Value> Arithmetic(Runtime& runtime, std::string_view operation,
                           const Value& left, const Value& right);
StatusOr<Value> Negate(const Value& value);

// `operation` is one of == != < <= > >= in, "not in".
StatusOr<bool> Compare(Runtime& runtime, std::string_view operation,
                       const Value& left, const Value& right);
StatusOr<bool> Contains(Runtime& runtime, const Value& container,
                        const Value& item);

// Python's `format % values` and `format.format(…)`.
StatusOr<Value> FormatPercent(Runtime& runtime, std::string_view format,
                              const Value& values);
StatusOr<Value> FormatBraces(Runtime& runtime, std::string_view format,
                             const Arguments& arguments);

// As json.dumps of what transformers' `tojson` passes on.
StatusOr<Value> FilterToJson(Runtime& runtime, const Value& self,
                             const Arguments& arguments);

// Shared by the method and the filter of the name.
StatusOr<Value> ReplaceText(Runtime& runtime, std::string_view text,
                            std::string_view old_text,
                            std::string_view new_text, int64_t count_max);
StatusOr<Value> PadText(Runtime& runtime, std::string_view text, int64_t left,
                        int64_t right, std::string_view fill);
// Without their ends; a newline at the very end starts no further line.
StatusOr<Value> SplitLines(Runtime& runtime, std::string_view text,
                           bool keep_ends);
StatusOr<Value> DictItems(Runtime& runtime, const Value& dict);

}  // namespace tidepool::model::jinja
