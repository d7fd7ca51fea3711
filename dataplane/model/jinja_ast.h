// What the parser makes of a template and the evaluator walks through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tidepool::model::jinja {

enum class ExprKind : uint8_t {
  kNone,
  kBool,       // integer
  kInt,        // integer
  kFloat,      // number
  kString,     // text
  kName,       // text
  kList,       // operands: items
  kTuple,      // operands: items
  kDict,       // operands: key, value, key, value…
  kAttribute,  // operands: object; text: name
  kItem,       // operands: object, index
  kSlice,   // operands: object, start, stop, step; each but the first or null
  kCall,    // operands: callee, positional…; keywords
  kFilter,  // operands: input (null in a filter block), positional…;
            // keywords; text: name
  kTest,    // as kFilter
  kNot,
  kAnd,
  kOr,
  kNegate,
  kPlus,
  kConcat,       // operands: one or more
  kArithmetic,   // operands: left, right; text: operator
  kCompare,      // operands: n + 1; operators: n
  kConditional,  // operands: value, condition, other or null
};

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

struct Keyword {
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kNone;
  int line = 0;
  int height = 1;  // of this tree; bounded by the parser
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<ExprPtr> operands;
  std::vector<Keyword> keywords;
  std::vector<std::string> operators;
};

enum class StmtKind : uint8_t {
  kText,         // text
  kOutput,       // value
  kIf,           // branches, otherwise
  kFor,          // target, value, condition or null, body, otherwise, recursive
  kSet,          // target, value
  kSetBlock,     // target, value: filters over the body or null, body
  kMacro,        // text: name, parameters, body
  kCallBlock,    // value: the call, parameters of `caller`, body
  kFilterBlock,  // value: filters over the body, body
  kWith,         // parameters, body
  kScope,        // body
  kBreak,
  kContinue,
};

struct Stmt;
using Block = std::vector<Stmt>;

struct Branch {
  ExprPtr condition;
  Block body;
};

// Of a macro, or a binding of `with`.
struct Parameter {
  ExprPtr target;  // of a macro always a name
  ExprPtr value;   // a macro's default, or null
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  bool recursive = false;
  std::string text;
  ExprPtr target, value, condition;
  std::vector<Parameter> parameters;
  std::vector<Branch> branches;
  Block body, otherwise;
};

struct Template {
  Block body;
  bool loops_over_content = false;
};

}  // namespace tidepool::model::jinja
