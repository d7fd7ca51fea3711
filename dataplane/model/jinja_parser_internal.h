// The parser's class, shared by its two halves: statements are in
// jinja_parser.cc, expressions in jinja_parser_expressions.cc.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/jinja_ast.h"
#include "dataplane/model/jinja_lexer.h"

namespace tidepool::model::jinja {

// Of the parser's own recursion, which follows brackets and blocks.
inline constexpr int kNestingMax = 200;
// Of the finished tree, which also grows with chains such as a + b + c.
inline constexpr int kHeightMax = 500;

using NewExpr = std::unique_ptr<Expr>;
using Words = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  StatusOr<Template> Run() {
    Template result;
    RETURN_IF_ERROR(ParseBlock({}, result.body));
    result.loops_over_content = loops_over_content_;
    return result;
  }

 private:
  class Nesting {
   public:
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };

  const Token& Current() const { return tokens_[position_]; }
  const Token& Next() const {
    return tokens_[std::min(position_ + 1, tokens_.size() - 1)];
  }
  Token Take() {
    if (Current().kind == TokenKind::kEnd) return Current();
    return std::move(tokens_[position_++]);
  }

  template <typename... Args>
  Status Error(fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument("chat template, line {}: {}", Current().line,
                           fmt::format(format, std::forward<Args>(args)...));
  }
  Status Unexpected(std::string_view wanted) const {
    const Token& token = Current();
    if (token.kind == TokenKind::kEnd) {
      return Error("expected {} but the template ends", wanted);
    }
    return Error("expected {} instead of '{}'", wanted,
                 std::string_view(token.text).substr(0, 40));
  }

  static bool Is(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool IsOperator(std::string_view text) const {
    return Is(Current(), TokenKind::kOperator, text);
  }
  bool IsName(std::string_view text) const {
    return Is(Current(), TokenKind::kName, text);
  }
  bool IsAnyName(Words names) const {
    return std::any_of(names.begin(), names.end(),
                       [this](std::string_view name) { return IsName(name); });
  }
  bool SkipOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    ++position_;
    return true;
  }
  bool SkipName(std::string_view text) {
    if (!IsName(text)) return false;
    ++position_;
    return true;
  }
  Status ExpectOperator(std::string_view text) {
    if (SkipOperator(text)) return OkStatus();
    return Unexpected(fmt::format("'{}'", text));
  }
  Status ExpectName(std::string_view text) {
    if (SkipName(text)) return OkStatus();
    return Unexpected(fmt::format("'{}'", text));
  }
  Status ExpectTagEnd() {
    if (Current().kind != TokenKind::kTagEnd) return Unexpected("'%}'");
    ++position_;
    return OkStatus();
  }
  StatusOr<std::string> ExpectIdentifier() {
    if (Current().kind != TokenKind::kName) return Unexpected("a name");
    return Take().text;
  }

  NewExpr Make(ExprKind kind) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = Current().line;
    return expr;
  }
  // Every operand enters its parent through here, so no tree passes the limit.
  Status Adopt(Expr& parent, ExprPtr child) {
    if (child != nullptr) RETURN_IF_ERROR(Grow(parent, *child));
    parent.operands.push_back(std::move(child));
    return OkStatus();
  }
  Status Grow(Expr& parent, const Expr& child) {
    parent.height = std::max(parent.height, child.height + 1);
    if (parent.height <= kHeightMax) return OkStatus();
    return ResourceExhausted(
        "chat template, line {}: an expression of more than {} steps",
        parent.line, kHeightMax);
  }
  Status CheckNesting() const {
    if (nesting_ <= kNestingMax) return OkStatus();
    return ResourceExhausted("chat template, line {}: nested deeper than {}",
                             Current().line, kNestingMax);
  }

  // Statements.
  Status ParseBlock(Words ends, Block& block);
  StatusOr<Stmt> ParseStatement();
  Status ParseIf(Stmt& stmt);
  Status ParseFor(Stmt& stmt);
  Status ParseSet(Stmt& stmt);
  Status ParseMacro(Stmt& stmt);
  Status ParseCallBlock(Stmt& stmt);
  Status ParseFilterBlock(Stmt& stmt);
  Status ParseWith(Stmt& stmt);
  Status ParseParameters(std::vector<Parameter>& parameters);
  Status ParseBody(std::string_view end, Block& body);
  StatusOr<ExprPtr> ParseTarget(bool allows_attribute);
  StatusOr<ExprPtr> ParseTargetItem(bool allows_attribute);
  void NoteLoopOver(const Expr* iterable);

  // Expressions, loosest first.
  enum class Conditional { kAllowed, kNot };
  StatusOr<ExprPtr> ParseTuple(Conditional conditional, bool in_parentheses);
  StatusOr<ExprPtr> ParseExpression();
  StatusOr<ExprPtr> ParseOr();
  StatusOr<ExprPtr> ParseAnd();
  StatusOr<ExprPtr> ParseNot();
  StatusOr<ExprPtr> ParseCompare();
  StatusOr<ExprPtr> ParseSum();
  StatusOr<ExprPtr> ParseConcat();
  StatusOr<ExprPtr> ParseProduct();
  StatusOr<ExprPtr> ParsePower();
  StatusOr<ExprPtr> ParseUnary(bool with_filters);
  StatusOr<ExprPtr> ParsePrimary();
  StatusOr<ExprPtr> ParseNameOrConstant();
  StatusOr<ExprPtr> ParseList();
  StatusOr<ExprPtr> ParseDict();
  StatusOr<ExprPtr> ParsePostfix(ExprPtr object);
  StatusOr<ExprPtr> ParseFilters(ExprPtr input);
  StatusOr<ExprPtr> ParseFilter(ExprPtr input);
  StatusOr<ExprPtr> ParseFilterChain();
  StatusOr<ExprPtr> ParseTest(ExprPtr input);
  StatusOr<ExprPtr> ParseDot(ExprPtr object);
  StatusOr<ExprPtr> ParseSubscript(ExprPtr object);
  StatusOr<ExprPtr> ParseSlice(ExprPtr object, ExprPtr start);
  StatusOr<ExprPtr> ParseCall(ExprPtr callee);
  Status ParseArguments(Expr& call);
  StatusOr<ExprPtr> ParseLeftAssociative(
      std::span<const std::string_view> operators,
      StatusOr<ExprPtr> (Parser::*operand)());
  StatusOr<std::string> ParseDottedName();

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
  bool loops_over_content_ = false;
};

}  // namespace tidepool::model::jinja
