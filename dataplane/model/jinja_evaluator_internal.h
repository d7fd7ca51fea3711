// The evaluator's class, shared by its two halves: statements are in
// jinja_evaluator.cc, expressions in jinja_evaluator_expressions.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/chat_template.h"
#include "dataplane/model/jinja_ast.h"
#include "dataplane/model/jinja_object.h"

namespace tidepool::model::jinja {

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

}  // namespace tidepool::model::jinja
