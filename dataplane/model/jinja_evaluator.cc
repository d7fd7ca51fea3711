#include "dataplane/model/jinja_evaluator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dataplane/model/jinja_builtins.h"

namespace tidepool::model::jinja {
namespace {

enum class Flow { kNext, kBreak, kContinue };

// Names assigned in one block. Scopes live in the heap, so that a macro may
// look at the one it was defined in for as long as it likes.
struct Scope {
  Scope* parent = nullptr;
  Bindings bindings;
  bool kept = false;  // by a macro: must not be used for another iteration
};

class Evaluator {
 public:
  Evaluator(Runtime& runtime, const Value& globals,
            const ChatTemplateLimits& limits)
      : runtime_(runtime),
        heap_(runtime.heap),
        globals_(globals),
        limits_(limits) {}

  StatusOr<std::string> Run(const Template& source) {
    const Status status = RunBody(source);
    if (status.ok()) return std::move(output_);
    if (runtime_.raised) return status;
    return Annotate(status, fmt::format("chat template, line {}", line_));
  }

  // `macro` is a kMacro, or a kCallBlock whose body is the caller.
  StatusOr<Value> CallMacro(const Stmt& macro, Scope* defined_in,
                            const Arguments& arguments);
  // A recursive loop's body over other items, as text.
  StatusOr<Value> CallLoop(const Stmt& loop, Scope* defined_in,
                           const Value& items, int depth);

 private:
  // Counts one level of recursion and enters a scope for its lifetime.
  class ScopeGuard {
   public:
    ScopeGuard(Evaluator& evaluator, Scope* scope)
        : evaluator_(evaluator),
          outer_(std::exchange(evaluator.scope_, scope)) {}
    ~ScopeGuard() { evaluator_.scope_ = outer_; }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Evaluator& evaluator_;
    Scope* outer_;
  };
  class DepthGuard {
   public:
    explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
    ~DepthGuard() { --depth_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;

   private:
    int& depth_;
  };

  Status RunBody(const Template& source);
  Status Enter(int line);
  StatusOr<Scope*> NewScope(Scope* parent) {
    ASSIGN_OR_RETURN(Scope* const scope, heap_.New<Scope>());
    scope->parent = parent;
    return scope;
  }
  Status Write(std::string_view text);

  StatusOr<Flow> Exec(const Block& block);
  StatusOr<Flow> ExecStmt(const Stmt& stmt);
  StatusOr<Flow> ExecScoped(const Block& block);
  StatusOr<Flow> ExecIf(const Stmt& stmt);
  StatusOr<Flow> ExecFor(const Stmt& stmt);
  StatusOr<Flow> ExecLoop(const Stmt& stmt, const Value& iterable, int depth);
  StatusOr<Flow> ExecWith(const Stmt& stmt);
  Status ExecOutput(const Stmt& stmt);
  Status ExecSet(const Stmt& stmt);
  Status ExecMacro(const Stmt& stmt);
  Status ExecCallBlock(const Stmt& stmt);
  StatusOr<Value> Capture(const Block& block);
  StatusOr<std::span<const Value>> LoopItems(const Stmt& stmt,
                                             const Value& iterable);
  Status Assign(const Expr& target, const Value& value);
  Status AssignAttribute(const Expr& target, const Value& value);
  StatusOr<Value> NewMacro(const Stmt& stmt);

  StatusOr<Value> Eval(const Expr& expr);
  StatusOr<Value> EvalKind(const Expr& expr);
  StatusOr<Value> EvalName(const Expr& expr);
  StatusOr<Value> EvalItems(const Expr& expr);
  StatusOr<Value> EvalDict(const Expr& expr);
  StatusOr<Value> EvalAttribute(const Expr& expr);
  StatusOr<Value> EvalItem(const Expr& expr);
  StatusOr<Value> EvalSlice(const Expr& expr);
  StatusOr<Value> EvalCall(const Expr& expr, const Value* caller);
  StatusOr<Value> EvalFilter(const Expr& expr, const Value* block_input);
  StatusOr<Value> EvalTest(const Expr& expr);
  StatusOr<Value> EvalLogic(const Expr& expr);
  StatusOr<Value> EvalSign(const Expr& expr);
  StatusOr<Value> EvalConcat(const Expr& expr);
  StatusOr<Value> EvalArithmetic(const Expr& expr);
  StatusOr<Value> EvalCompare(const Expr& expr);
  StatusOr<Value> EvalConditional(const Expr& expr);

  struct OwnedArguments {
    std::vector<Value> positional;
    std::vector<NamedValue> named;
    Arguments view() const { return {positional, named}; }
  };
  Status EvalArguments(const Expr& expr, OwnedArguments& arguments);

  Runtime& runtime_;
  Heap& heap_;
  const Value& globals_;
  const ChatTemplateLimits& limits_;
  Scope* scope_ = nullptr;
  std::string output_;
  std::string* captured_ = nullptr;  // null: text goes to output_
  int depth_ = 0;
  int line_ = 1;
};

class Macro final : public Object {
 public:
  Macro(Evaluator& evaluator, const Stmt& stmt, Scope* scope)
      : evaluator_(evaluator), stmt_(stmt), scope_(scope) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  StatusOr<std::optional<Value>> Attribute(Runtime&,
                                           std::string_view name) override {
    if (name == "name") return Value::String(stmt_.text);
    return std::nullopt;
  }
  StatusOr<Value> Call(Runtime&, const Arguments& arguments) override {
    return evaluator_.CallMacro(stmt_, scope_, arguments);
  }

 private:
  Evaluator& evaluator_;
  const Stmt& stmt_;
  Scope* scope_;
};

StatusOr<Value> LoopCycle(Runtime&, const Value& index,
                          const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return InvalidArgument("loop.cycle() needs an argument");
  }
  return arguments.positional[static_cast<size_t>(index.integer()) %
                              arguments.positional.size()];
}

// The variable `loop`.
class Loop final : public Object {
 public:
  Loop(Evaluator& evaluator, const Stmt& stmt, Scope* scope,
       std::span<const Value> items, int depth)
      : evaluator_(evaluator),
        stmt_(stmt),
        scope_(scope),
        items_(items),
        depth_(depth) {}

  void set_index(size_t index) { index_ = index; }

  std::string_view type_name() const override { return "LoopContext"; }
  bool callable() const override { return stmt_.recursive; }
  StatusOr<std::optional<Value>> Attribute(Runtime& runtime,
                                           std::string_view name) override {
    const auto count = [](size_t value) {
      return Value::Int(static_cast<int64_t>(value));
    };
    const size_t left = items_.size() - index_;  // with this one
    if (name == "index") return count(index_ + 1);
    if (name == "index0") return count(index_);
    if (name == "revindex") return count(left);
    if (name == "revindex0") return count(left - 1);
    if (name == "first") return Value::Bool(index_ == 0);
    if (name == "last") return Value::Bool(left == 1);
    if (name == "length") return count(items_.size());
    if (name == "depth") return Value::Int(depth_);
    if (name == "depth0") return Value::Int(depth_ - 1);
    if (name == "previtem") {
      return index_ == 0 ? Value::Undefined("there is no previous item")
                         : items_[index_ - 1];
    }
    if (name == "nextitem") {
      return left == 1 ? Value::Undefined("there is no next item")
                       : items_[index_ + 1];
    }
    if (name == "cycle") return Method(runtime, LoopCycle, count(index_));
    if (name == "changed") {
      return Method(runtime, Changed, Value::FromObject(this));
    }
    return std::nullopt;
  }
  StatusOr<Value> Call(Runtime&, const Arguments& arguments) override {
    if (!stmt_.recursive) {
      return InvalidArgument("'loop' of a loop that is not 'recursive'");
    }
    ASSIGN_OR_RETURN(const auto bound,
                     (Bind("loop", arguments, {"iterable"}, 1)));
    return evaluator_.CallLoop(stmt_, scope_, *bound[0], depth_ + 1);
  }

 private:
  static StatusOr<std::optional<Value>> Method(Runtime& runtime,
                                               Builtin builtin,
                                               const Value& self) {
    ASSIGN_OR_RETURN(Function* const function,
                     runtime.heap.New<Function>(builtin, self));
    return Value::FromObject(function);
  }

  static StatusOr<Value> Changed(Runtime& runtime, const Value& self,
                                 const Arguments& arguments) {
    Loop& loop = static_cast<Loop&>(self.object());
    ASSIGN_OR_RETURN(const Value now,
                     runtime.heap.NewTuple(arguments.positional));
    bool same = loop.watched_.has_value();
    if (same) {
      ASSIGN_OR_RETURN(same, Equals(runtime.heap, *loop.watched_, now));
    }
    loop.watched_ = now;
    return Value::Bool(!same);
  }

  Evaluator& evaluator_;
  const Stmt& stmt_;
  Scope* scope_;
  std::span<const Value> items_;
  int depth_;
  size_t index_ = 0;
  std::optional<Value> watched_;  // of `changed`
};

// ---- Statements

Status Evaluator::RunBody(const Template& source) {
  ASSIGN_OR_RETURN(scope_, NewScope(nullptr));
  return Exec(source.body).status();
}

Status Evaluator::Enter(int line) {
  line_ = line;
  if (depth_ > limits_.depth_max) {
    return ResourceExhausted("nested deeper than {} (depth_max)",
                             limits_.depth_max);
  }
  return heap_.ChargeSteps(1);
}

Status Evaluator::Write(std::string_view text) {
  if (captured_ != nullptr) {
    RETURN_IF_ERROR(heap_.ChargeBytes(text.size()));
    captured_->append(text);
    return OkStatus();
  }
  const auto size = static_cast<int64_t>(output_.size() + text.size());
  if (size > limits_.output_bytes_max) {
    return ResourceExhausted("more than {} bytes of output (output_bytes_max)",
                             limits_.output_bytes_max);
  }
  RETURN_IF_ERROR(heap_.ChargeText(text.size()));
  output_.append(text);
  return OkStatus();
}

StatusOr<Flow> Evaluator::Exec(const Block& block) {
  for (const Stmt& stmt : block) {
    ASSIGN_OR_RETURN(const Flow flow, ExecStmt(stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

StatusOr<Flow> Evaluator::ExecScoped(const Block& block) {
  ASSIGN_OR_RETURN(Scope* const scope, NewScope(scope_));
  const ScopeGuard guard(*this, scope);
  return Exec(block);
}

StatusOr<Flow> Evaluator::ExecStmt(const Stmt& stmt) {
  const DepthGuard guard(depth_);
  RETURN_IF_ERROR(Enter(stmt.line));
  const auto done = [](const Status& status) -> StatusOr<Flow> {
    RETURN_IF_ERROR(status);
    return Flow::kNext;
  };
  switch (stmt.kind) {
    case StmtKind::kText:
      return done(Write(stmt.text));
    case StmtKind::kOutput:
      return done(ExecOutput(stmt));
    case StmtKind::kIf:
      return ExecIf(stmt);
    case StmtKind::kFor:
      return ExecFor(stmt);
    case StmtKind::kSet:
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
      return done(ExecSet(stmt));
    case StmtKind::kMacro:
      return done(ExecMacro(stmt));
    case StmtKind::kCallBlock:
      return done(ExecCallBlock(stmt));
    case StmtKind::kWith:
      return ExecWith(stmt);
    case StmtKind::kScope:
      return ExecScoped(stmt.body);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Status Evaluator::ExecOutput(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value value, Eval(*stmt.value));
  ASSIGN_OR_RETURN(const Value text, ToText(heap_, value));
  return Write(text.text());
}

StatusOr<Flow> Evaluator::ExecIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition));
    if (IsTrue(condition)) return Exec(branch.body);
  }
  return Exec(stmt.otherwise);
}

StatusOr<Flow> Evaluator::ExecFor(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value iterable, Eval(*stmt.value));
  return ExecLoop(stmt, iterable, 1);
}

// What the loop's own `if` leaves of the items.
StatusOr<std::span<const Value>> Evaluator::LoopItems(const Stmt& stmt,
                                                      const Value& iterable) {
  ASSIGN_OR_RETURN(const std::span<const Value> items,
                   Iterate(heap_, iterable));
  if (stmt.condition == nullptr) return items;
  ASSIGN_OR_RETURN(const std::span<Value> kept,
                   heap_.Array<Value>(items.size()));
  ASSIGN_OR_RETURN(Scope* const scope, NewScope(scope_));
  const ScopeGuard guard(*this, scope);
  size_t count = 0;
  for (const Value& item : items) {
    RETURN_IF_ERROR(Assign(*stmt.target, item));
    ASSIGN_OR_RETURN(const Value condition, Eval(*stmt.condition));
    if (IsTrue(condition)) kept[count++] = item;
  }
  return kept.subspan(0, count);
}

StatusOr<Flow> Evaluator::ExecLoop(const Stmt& stmt, const Value& iterable,
                                   int depth) {
  ASSIGN_OR_RETURN(const std::span<const Value> items,
                   LoopItems(stmt, iterable));
  if (items.empty()) return ExecScoped(stmt.otherwise);
  ASSIGN_OR_RETURN(Loop* const loop,
                   heap_.New<Loop>(*this, stmt, scope_, items, depth));
  ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_));
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(heap_.ChargeSteps(1));
    if (scope->kept) {
      ASSIGN_OR_RETURN(scope, NewScope(scope_));
    }
    scope->bindings.Clear();
    const ScopeGuard guard(*this, scope);
    loop->set_index(i);
    RETURN_IF_ERROR(
        scope->bindings.Set(heap_, "loop", Value::FromObject(loop)));
    RETURN_IF_ERROR(Assign(*stmt.target, items[i]));
    ASSIGN_OR_RETURN(const Flow flow, Exec(stmt.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

StatusOr<Value> Evaluator::CallLoop(const Stmt& loop, Scope* defined_in,
                                    const Value& items, int depth) {
  std::string text;
  std::string* const outer = std::exchange(captured_, &text);
  const ScopeGuard guard(*this, defined_in);
  const Status status = ExecLoop(loop, items, depth).status();
  captured_ = outer;
  RETURN_IF_ERROR(status);
  return heap_.NewString(text);
}

StatusOr<Flow> Evaluator::ExecWith(const Stmt& stmt) {
  ASSIGN_OR_RETURN(Scope* const scope, NewScope(scope_));
  std::vector<Value> values;  // all of the outer scope
  for (const Parameter& binding : stmt.parameters) {
    ASSIGN_OR_RETURN(const Value value, Eval(*binding.value));
    values.push_back(value);
  }
  const ScopeGuard guard(*this, scope);
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(Assign(*stmt.parameters[i].target, values[i]));
  }
  return Exec(stmt.body);
}

// The text that `block` writes.
StatusOr<Value> Evaluator::Capture(const Block& block) {
  std::string text;
  std::string* const outer = std::exchange(captured_, &text);
  const Status status = ExecScoped(block).status();
  captured_ = outer;
  RETURN_IF_ERROR(status);
  return heap_.NewString(text);
}

Status Evaluator::ExecSet(const Stmt& stmt) {
  if (stmt.kind == StmtKind::kSet) {
    ASSIGN_OR_RETURN(const Value value, Eval(*stmt.value));
    return Assign(*stmt.target, value);
  }
  ASSIGN_OR_RETURN(Value text, Capture(stmt.body));
  if (stmt.value != nullptr) {
    ASSIGN_OR_RETURN(text, EvalFilter(*stmt.value, &text));
  }
  if (stmt.kind == StmtKind::kSetBlock) return Assign(*stmt.target, text);
  ASSIGN_OR_RETURN(text, ToText(heap_, text));
  return Write(text.text());
}

Status Evaluator::Assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) {
    return scope_->bindings.Set(heap_, target.text, value);
  }
  if (target.kind == ExprKind::kAttribute) {
    return AssignAttribute(target, value);
  }
  if (value.is_undefined()) return UndefinedError(value);
  ASSIGN_OR_RETURN(const std::span<const Value> items, Iterate(heap_, value));
  if (items.size() != target.operands.size()) {
    return InvalidArgument("{} values for {} names", items.size(),
                           target.operands.size());
  }
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(Assign(*target.operands[i], items[i]));
  }
  return OkStatus();
}

Status Evaluator::AssignAttribute(const Expr& target, const Value& value) {
  ASSIGN_OR_RETURN(const Value object, Eval(*target.operands.front()));
  if (object.kind() == Kind::kObject) {
    if (auto* names = dynamic_cast<Namespace*>(&object.object())) {
      return names->Set(heap_, target.text, value);
    }
  }
  return InvalidArgument(
      "cannot assign to an attribute of '{}': only a "
      "namespace changes",
      target.operands.front()->text);
}

StatusOr<Value> Evaluator::NewMacro(const Stmt& stmt) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    scope->kept = true;
  }
  ASSIGN_OR_RETURN(Macro* const macro, heap_.New<Macro>(*this, stmt, scope_));
  return Value::FromObject(macro);
}

Status Evaluator::ExecMacro(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value macro, NewMacro(stmt));
  return scope_->bindings.Set(heap_, stmt.text, macro);
}

Status Evaluator::ExecCallBlock(const Stmt& stmt) {
  ASSIGN_OR_RETURN(const Value caller, NewMacro(stmt));
  ASSIGN_OR_RETURN(const Value value, EvalCall(*stmt.value, &caller));
  ASSIGN_OR_RETURN(const Value text, ToText(heap_, value));
  return Write(text.text());
}

StatusOr<Value> Evaluator::CallMacro(const Stmt& macro, Scope* defined_in,
                                     const Arguments& arguments) {
  const std::string_view name = macro.kind == StmtKind::kMacro
                                    ? std::string_view(macro.text)
                                    : std::string_view("caller");
  std::vector<std::string_view> names;
  for (const Parameter& parameter : macro.parameters) {
    names.push_back(parameter.target->text);
  }
  const bool takes_caller = std::ranges::find(names, "caller") == names.end();
  if (takes_caller) names.push_back("caller");
  if (arguments.positional.size() > macro.parameters.size()) {
    return InvalidArgument("{}() takes at most {} arguments, not {}", name,
                           macro.parameters.size(),
                           arguments.positional.size());
  }
  std::vector<std::optional<Value>> bound(names.size());
  RETURN_IF_ERROR(BindArguments(name, arguments, names, 0, bound));
  ASSIGN_OR_RETURN(Scope* const scope, NewScope(defined_in));
  const ScopeGuard guard(*this, scope);
  for (size_t i = 0; i < names.size(); ++i) {
    Value value = bound[i].value_or(Value::Undefined(names[i]));
    if (i >= macro.parameters.size()) {
      if (!bound[i].has_value()) continue;
    } else if (!bound[i].has_value() && macro.parameters[i].value != nullptr) {
      ASSIGN_OR_RETURN(value, Eval(*macro.parameters[i].value));
    }
    RETURN_IF_ERROR(scope->bindings.Set(heap_, names[i], value));
  }
  return Capture(macro.body);
}

// ---- Expressions

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

}  // namespace

StatusOr<std::string> Evaluate(const Template& source, Runtime& runtime,
                               const Value& globals,
                               const ChatTemplateLimits& limits) {
  return Evaluator(runtime, globals, limits).Run(source);
}

}  // namespace tidepool::model::jinja
