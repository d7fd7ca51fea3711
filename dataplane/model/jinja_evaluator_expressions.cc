#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_evaluator_internal.h"

namespace tidepool::model::jinja {

StatusOr<Value> Evaluator::Eval(const Expr& expr) {
  const DepthGuard guard(depth_);
  RETURN_IF_ERROR(Enter(expr.line));
  return EvalKind(expr);
}

StatusOr<Value> Evaluator::EvalKind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kNone:
      return Value::None();
    case ExprKind::kBool:
      return Value::Bool(expr.integer != 0);
    case ExprKind::kInt:
      return Value::Int(expr.integer);
    case ExprKind::kFloat:
      return Value::Float(expr.number);
    case ExprKind::kString:
      return Value::String(expr.text);
    case ExprKind::kName:
      return EvalName(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvalItems(expr);
    case ExprKind::kDict:
      return EvalDict(expr);
    case ExprKind::kAttribute:
      return EvalAttribute(expr);
    case ExprKind::kItem:
      return EvalItem(expr);
    case ExprKind::kSlice:
      return EvalSlice(expr);
    case ExprKind::kCall:
      return EvalCall(expr, nullptr);
    case ExprKind::kFilter:
      return EvalFilter(expr, nullptr);
    case ExprKind::kTest:
      return EvalTest(expr);
    case ExprKind::kNot:
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvalLogic(expr);
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return EvalSign(expr);
    case ExprKind::kConcat:
      return EvalConcat(expr);
    case ExprKind::kArithmetic:
      return EvalArithmetic(expr);
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kConditional:
      return EvalConditional(expr);
  }
  return Value::None();
}

StatusOr<Value> Evaluator::EvalName(const Expr& expr) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto names = static_cast<int64_t>(scope->bindings.entries().size());
    RETURN_IF_ERROR(heap_.ChargeSteps(names / 16));
    const Value* const value = scope->bindings.Find(expr.text);
    if (value != nullptr) return *value;
  }
  ASSIGN_OR_RETURN(const Value* const global,
                   Find(heap_, globals_, Value::String(expr.text)));
  if (global != nullptr) return *global;
  const Builtin builtin = FindFunction(expr.text);
  const bool hidden =
      expr.text == "strftime_now" && !runtime_.now_unix_seconds.has_value();
  if (builtin == nullptr || hidden) return Value::Undefined(expr.text);
  ASSIGN_OR_RETURN(Function* const function,
                   heap_.New<Function>(builtin, Value::None()));
  return Value::FromObject(function);
}

StatusOr<Value> Evaluator::EvalItems(const Expr& expr) {
  ASSIGN_OR_RETURN(const std::span<Value> items,
                   heap_.Array<Value>(expr.operands.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(items[i], Eval(*expr.operands[i]));
  }
  return expr.kind == ExprKind::kTuple ? Value::Tuple(items)
                                       : Value::List(items);
}

StatusOr<Value> Evaluator::EvalDict(const Expr& expr) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < expr.operands.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, Eval(*expr.operands[i]));
    ASSIGN_OR_RETURN(const Value value, Eval(*expr.operands[i + 1]));
    entries.push_back({key, value});
  }
  return MakeDict(heap_, entries);
}

StatusOr<Value> Evaluator::EvalAttribute(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value object, Eval(*expr.operands.front()));
  return GetAttribute(runtime_, object, expr.text);
}

StatusOr<Value> Evaluator::EvalItem(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value object, Eval(*expr.operands.front()));
  ASSIGN_OR_RETURN(const Value key, Eval(*expr.operands.back()));
  return GetItem(runtime_, object, key);
}

StatusOr<Value> Evaluator::EvalSlice(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value object, Eval(*expr.operands.front()));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    const ExprPtr& bound = expr.operands[i + 1];
    if (bound == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Eval(*bound));
  }
  return Slice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Status Evaluator::EvalArguments(const Expr& expr, OwnedArguments& arguments) {
  for (size_t i = 1; i < expr.operands.size(); ++i) {
    ASSIGN_OR_RETURN(const Value value, Eval(*expr.operands[i]));
    arguments.positional.push_back(value);
  }
  for (const Keyword& keyword : expr.keywords) {
    ASSIGN_OR_RETURN(const Value value, Eval(*keyword.value));
    arguments.named.push_back({keyword.name, value});
  }
  return OkStatus();
}

StatusOr<Value> Evaluator::EvalCall(const Expr& expr, const Value* caller) {
  ASSIGN_OR_RETURN(const Value callee, Eval(*expr.operands.front()));
  if (callee.is_undefined()) return UndefinedError(callee);
  if (callee.kind() != Kind::kObject) {
    return InvalidArgument("'{}' cannot be called", TypeName(callee));
  }
  OwnedArguments arguments;
  RETURN_IF_ERROR(EvalArguments(expr, arguments));
  if (caller != nullptr) arguments.named.push_back({"caller", *caller});
  line_ = expr.line;
  return callee.object().Call(runtime_, arguments.view());
}

StatusOr<Value> Evaluator::EvalFilter(const Expr& expr,
                                      const Value* block_input) {
  Value input;
  const Expr* const source = expr.operands.front().get();
  if (source == nullptr) {
    input = *block_input;
  } else if (block_input != nullptr) {
    const DepthGuard guard(depth_);
    RETURN_IF_ERROR(Enter(expr.line));
    ASSIGN_OR_RETURN(input, EvalFilter(*source, block_input));
  } else {
    ASSIGN_OR_RETURN(input, Eval(*source));
  }
  const Builtin filter = FindFilter(expr.text);
  if (filter == nullptr) {
    return InvalidArgument("there is no filter '{}'", expr.text);
  }
  OwnedArguments arguments;
  RETURN_IF_ERROR(EvalArguments(expr, arguments));
  line_ = expr.line;
  return filter(runtime_, input, arguments.view());
}

StatusOr<Value> Evaluator::EvalTest(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value input, Eval(*expr.operands.front()));
  const Test test = FindTest(expr.text);
  if (test == nullptr) {
    return InvalidArgument("there is no test '{}'", expr.text);
  }
  OwnedArguments arguments;
  RETURN_IF_ERROR(EvalArguments(expr, arguments));
  ASSIGN_OR_RETURN(const bool passed, test(runtime_, input, arguments.view()));
  return Value::Bool(passed);
}

StatusOr<Value> Evaluator::EvalLogic(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value left, Eval(*expr.operands.front()));
  if (expr.kind == ExprKind::kNot) return Value::Bool(!IsTrue(left));
  if (IsTrue(left) == (expr.kind == ExprKind::kOr)) return left;
  return Eval(*expr.operands.back());
}

StatusOr<Value> Evaluator::EvalSign(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value value, Eval(*expr.operands.front()));
  if (expr.kind == ExprKind::kNegate) return Negate(value);
  return Arithmetic(runtime_, "+", Value::Int(0), value);
}

StatusOr<Value> Evaluator::EvalConcat(const Expr& expr) {
  TextBuilder out(heap_);
  for (const ExprPtr& operand : expr.operands) {
    ASSIGN_OR_RETURN(const Value value, Eval(*operand));
    ASSIGN_OR_RETURN(const Value text, ToText(heap_, value));
    out.Append(text.text());
  }
  return out.Finish();
}

StatusOr<Value> Evaluator::EvalArithmetic(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value left, Eval(*expr.operands.front()));
  ASSIGN_OR_RETURN(const Value right, Eval(*expr.operands.back()));
  return Arithmetic(runtime_, expr.text, left, right);
}

StatusOr<Value> Evaluator::EvalCompare(const Expr& expr) {
  ASSIGN_OR_RETURN(Value left, Eval(*expr.operands.front()));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    ASSIGN_OR_RETURN(const Value right, Eval(*expr.operands[i + 1]));
    ASSIGN_OR_RETURN(const bool holds,
                     Compare(runtime_, expr.operators[i], left, right));
    if (!holds) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

StatusOr<Value> Evaluator::EvalConditional(const Expr& expr) {
  ASSIGN_OR_RETURN(const Value condition, Eval(*expr.operands[1]));
  if (IsTrue(condition)) return Eval(*expr.operands[0]);
  if (expr.operands[2] != nullptr) return Eval(*expr.operands[2]);
  return Value::Undefined("an if-expression without else");
}

}  // namespace tidepool::model::jinja
