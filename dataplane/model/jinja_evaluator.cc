#include "dataplane/model/jinja_evaluator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_evaluator_internal.h"

namespace tidepool::model::jinja {
namespace {

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

}  // namespace

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

StatusOr<std::string> Evaluate(const Template& source, Runtime& runtime,
                               const Value& globals,
                               const ChatTemplateLimits& limits) {
  return Evaluator(runtime, globals, limits).Run(source);
}

}  // namespace tidepool::model::jinja
