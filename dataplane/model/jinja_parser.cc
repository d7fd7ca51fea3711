#include "dataplane/model/jinja_parser.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <utility>

#include "dataplane/model/jinja_lexer.h"

namespace tidepool::model::jinja {
namespace {

constexpr size_t kSourceBytesMax = 1 << 20;
// Of the parser's own recursion, which follows brackets and blocks.
constexpr int kNestingMax = 200;
// Of the finished tree, which also grows with chains such as a + b + c.
constexpr int kHeightMax = 500;

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

// ---- Statements

// Up to a tag named in `ends`, which stays current; without any, up to the end.
Status Parser::ParseBlock(Words ends, Block& block) {
  const Nesting nesting(nesting_);
  RETURN_IF_ERROR(CheckNesting());
  for (;;) {
    switch (Current().kind) {
      case TokenKind::kText: {
        Stmt stmt{.kind = StmtKind::kText, .line = Current().line};
        stmt.text = Take().text;
        block.push_back(std::move(stmt));
        break;
      }
      case TokenKind::kOutputBegin: {
        Stmt stmt{.kind = StmtKind::kOutput, .line = Take().line};
        ASSIGN_OR_RETURN(stmt.value, ParseTuple(Conditional::kAllowed, false));
        if (Current().kind != TokenKind::kOutputEnd) return Unexpected("'}}'");
        Take();
        block.push_back(std::move(stmt));
        break;
      }
      case TokenKind::kTagBegin: {
        Take();
        if (IsAnyName(ends)) return OkStatus();
        ASSIGN_OR_RETURN(Stmt stmt, ParseStatement());
        block.push_back(std::move(stmt));
        break;
      }
      default:
        if (ends.size() == 0) return OkStatus();
        return Unexpected(fmt::format("'{}'", *(ends.end() - 1)));
    }
  }
}

// The rest of a tag, then its body and `{% end %}`.
Status Parser::ParseBody(std::string_view end, Block& body) {
  RETURN_IF_ERROR(ExpectTagEnd());
  RETURN_IF_ERROR(ParseBlock({end}, body));
  Take();
  return OkStatus();
}

StatusOr<Stmt> Parser::ParseStatement() {
  using Method = Status (Parser::*)(Stmt&);
  struct Tag {
    std::string_view name;
    StmtKind kind;
    Method parse;
  };
  static constexpr Tag kTags[] = {
      {"if", StmtKind::kIf, &Parser::ParseIf},
      {"for", StmtKind::kFor, &Parser::ParseFor},
      {"set", StmtKind::kSet, &Parser::ParseSet},
      {"macro", StmtKind::kMacro, &Parser::ParseMacro},
      {"call", StmtKind::kCallBlock, &Parser::ParseCallBlock},
      {"filter", StmtKind::kFilterBlock, &Parser::ParseFilterBlock},
      {"with", StmtKind::kWith, &Parser::ParseWith},
      {"generation", StmtKind::kScope, nullptr},
      {"break", StmtKind::kBreak, nullptr},
      {"continue", StmtKind::kContinue, nullptr},
  };
  if (Current().kind != TokenKind::kName) return Unexpected("a tag's name");
  const auto* tag =
      std::find_if(std::begin(kTags), std::end(kTags),
                   [this](const Tag& each) { return IsName(each.name); });
  if (tag == std::end(kTags)) {
    return Error("unknown or misplaced tag '{}'", Current().text);
  }
  Stmt stmt{.kind = tag->kind, .line = Take().line};
  if (tag->parse != nullptr) {
    RETURN_IF_ERROR((this->*tag->parse)(stmt));
  } else if (tag->kind == StmtKind::kScope) {
    RETURN_IF_ERROR(ParseBody("endgeneration", stmt.body));
  } else if (loops_ == 0) {
    return Error("'{}' outside of a loop", tag->name);
  }
  RETURN_IF_ERROR(ExpectTagEnd());
  return stmt;
}

Status Parser::ParseIf(Stmt& stmt) {
  for (;;) {
    Branch branch;
    ASSIGN_OR_RETURN(branch.condition, ParseTuple(Conditional::kNot, false));
    RETURN_IF_ERROR(ExpectTagEnd());
    RETURN_IF_ERROR(ParseBlock({"elif", "else", "endif"}, branch.body));
    stmt.branches.push_back(std::move(branch));
    if (SkipName("elif")) continue;
    if (SkipName("else")) return ParseBody("endif", stmt.otherwise);
    return ExpectName("endif");
  }
}

Status Parser::ParseFor(Stmt& stmt) {
  ASSIGN_OR_RETURN(stmt.target, ParseTarget(false));
  RETURN_IF_ERROR(ExpectName("in"));
  ASSIGN_OR_RETURN(stmt.value, ParseTuple(Conditional::kNot, false));
  NoteLoopOver(stmt.value.get());
  if (SkipName("if")) {
    ASSIGN_OR_RETURN(stmt.condition, ParseExpression());
  }
  stmt.recursive = SkipName("recursive");
  RETURN_IF_ERROR(ExpectTagEnd());
  ++loops_;
  RETURN_IF_ERROR(ParseBlock({"else", "endfor"}, stmt.body));
  --loops_;
  if (SkipName("else")) return ParseBody("endfor", stmt.otherwise);
  return ExpectName("endfor");
}

void Parser::NoteLoopOver(const Expr* iterable) {
  while (iterable != nullptr && iterable->kind == ExprKind::kFilter) {
    iterable = iterable->operands.front().get();
  }
  if (iterable == nullptr) return;
  if (iterable->kind == ExprKind::kItem) {
    iterable = iterable->operands.back().get();
    if (iterable->kind != ExprKind::kString) return;
  } else if (iterable->kind != ExprKind::kAttribute &&
             iterable->kind != ExprKind::kName) {
    return;
  }
  loops_over_content_ |= iterable->text == "content";
}

Status Parser::ParseSet(Stmt& stmt) {
  ASSIGN_OR_RETURN(stmt.target, ParseTarget(true));
  if (SkipOperator("=")) {
    ASSIGN_OR_RETURN(stmt.value, ParseTuple(Conditional::kAllowed, false));
    return OkStatus();
  }
  stmt.kind = StmtKind::kSetBlock;
  if (SkipOperator("|")) {
    ASSIGN_OR_RETURN(stmt.value, ParseFilterChain());
  }
  return ParseBody("endset", stmt.body);
}

// `a`, `a, b`, `(a, (b, c))`, and where allowed `namespace.a`.
StatusOr<ExprPtr> Parser::ParseTarget(bool allows_attribute) {
  const Nesting nesting(nesting_);
  RETURN_IF_ERROR(CheckNesting());
  ASSIGN_OR_RETURN(ExprPtr first, ParseTargetItem(allows_attribute));
  if (!IsOperator(",")) return first;
  NewExpr tuple = Make(ExprKind::kTuple);
  RETURN_IF_ERROR(Adopt(*tuple, std::move(first)));
  while (SkipOperator(",")) {
    if (Current().kind != TokenKind::kName && !IsOperator("(")) break;
    if (IsName("in")) break;
    ASSIGN_OR_RETURN(ExprPtr item, ParseTargetItem(allows_attribute));
    RETURN_IF_ERROR(Adopt(*tuple, std::move(item)));
  }
  return tuple;
}

StatusOr<ExprPtr> Parser::ParseTargetItem(bool allows_attribute) {
  if (SkipOperator("(")) {
    ASSIGN_OR_RETURN(ExprPtr inner, ParseTarget(allows_attribute));
    RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  if (IsAnyName({"true", "false", "none", "True", "False", "None", "loop"})) {
    return Error("cannot assign to '{}'", Current().text);
  }
  NewExpr name = Make(ExprKind::kName);
  ASSIGN_OR_RETURN(name->text, ExpectIdentifier());
  if (!allows_attribute || !SkipOperator(".")) return name;
  NewExpr attribute = Make(ExprKind::kAttribute);
  RETURN_IF_ERROR(Adopt(*attribute, std::move(name)));
  ASSIGN_OR_RETURN(attribute->text, ExpectIdentifier());
  return attribute;
}

// `(a, b=1)`.
Status Parser::ParseParameters(std::vector<Parameter>& parameters) {
  RETURN_IF_ERROR(ExpectOperator("("));
  while (!SkipOperator(")")) {
    if (!parameters.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    Parameter parameter;
    NewExpr name = Make(ExprKind::kName);
    ASSIGN_OR_RETURN(name->text, ExpectIdentifier());
    if (SkipOperator("=")) {
      ASSIGN_OR_RETURN(parameter.value, ParseExpression());
    } else if (!parameters.empty() && parameters.back().value != nullptr) {
      return Error("parameter '{}' without default after one with", name->text);
    }
    parameter.target = std::move(name);
    parameters.push_back(std::move(parameter));
  }
  return OkStatus();
}

Status Parser::ParseMacro(Stmt& stmt) {
  ASSIGN_OR_RETURN(stmt.text, ExpectIdentifier());
  RETURN_IF_ERROR(ParseParameters(stmt.parameters));
  const int outer_loops = std::exchange(loops_, 0);
  RETURN_IF_ERROR(ParseBody("endmacro", stmt.body));
  loops_ = outer_loops;
  return OkStatus();
}

Status Parser::ParseCallBlock(Stmt& stmt) {
  if (IsOperator("(")) RETURN_IF_ERROR(ParseParameters(stmt.parameters));
  ASSIGN_OR_RETURN(stmt.value, ParseExpression());
  if (stmt.value->kind != ExprKind::kCall) return Error("'call' needs a call");
  const int outer_loops = std::exchange(loops_, 0);
  RETURN_IF_ERROR(ParseBody("endcall", stmt.body));
  loops_ = outer_loops;
  return OkStatus();
}

Status Parser::ParseFilterBlock(Stmt& stmt) {
  ASSIGN_OR_RETURN(stmt.value, ParseFilterChain());
  return ParseBody("endfilter", stmt.body);
}

Status Parser::ParseWith(Stmt& stmt) {
  while (Current().kind != TokenKind::kTagEnd) {
    if (!stmt.parameters.empty()) RETURN_IF_ERROR(ExpectOperator(","));
    Parameter binding;
    ASSIGN_OR_RETURN(binding.target, ParseTargetItem(false));
    RETURN_IF_ERROR(ExpectOperator("="));
    ASSIGN_OR_RETURN(binding.value, ParseExpression());
    stmt.parameters.push_back(std::move(binding));
  }
  return ParseBody("endwith", stmt.body);
}

// ---- Expressions

StatusOr<ExprPtr> Parser::ParseTuple(Conditional conditional,
                                     bool in_parentheses) {
  const auto parse_item = [&] {
    return conditional == Conditional::kAllowed ? ParseExpression() : ParseOr();
  };
  const auto at_end = [this] {
    const TokenKind kind = Current().kind;
    return kind == TokenKind::kOutputEnd || kind == TokenKind::kTagEnd ||
           IsOperator(")") || IsName("recursive");
  };
  if (at_end()) {
    if (!in_parentheses) return Unexpected("an expression");
    return Make(ExprKind::kTuple);
  }
  ASSIGN_OR_RETURN(ExprPtr first, parse_item());
  if (!IsOperator(",")) return first;
  NewExpr tuple = Make(ExprKind::kTuple);
  RETURN_IF_ERROR(Adopt(*tuple, std::move(first)));
  while (SkipOperator(",")) {
    if (at_end()) break;
    ASSIGN_OR_RETURN(ExprPtr item, parse_item());
    RETURN_IF_ERROR(Adopt(*tuple, std::move(item)));
  }
  return tuple;
}

StatusOr<ExprPtr> Parser::ParseExpression() {
  const Nesting nesting(nesting_);
  RETURN_IF_ERROR(CheckNesting());
  ASSIGN_OR_RETURN(ExprPtr value, ParseOr());
  while (IsName("if")) {
    NewExpr conditional = Make(ExprKind::kConditional);
    Take();
    ASSIGN_OR_RETURN(ExprPtr condition, ParseOr());
    ExprPtr other;
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(other, ParseExpression());
    }
    RETURN_IF_ERROR(Adopt(*conditional, std::move(value)));
    RETURN_IF_ERROR(Adopt(*conditional, std::move(condition)));
    RETURN_IF_ERROR(Adopt(*conditional, std::move(other)));
    value = std::move(conditional);
  }
  return value;
}

StatusOr<ExprPtr> Parser::ParseOr() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseAnd());
  while (IsName("or")) {
    NewExpr both = Make(ExprKind::kOr);
    Take();
    ASSIGN_OR_RETURN(ExprPtr right, ParseAnd());
    RETURN_IF_ERROR(Adopt(*both, std::move(left)));
    RETURN_IF_ERROR(Adopt(*both, std::move(right)));
    left = std::move(both);
  }
  return left;
}

StatusOr<ExprPtr> Parser::ParseAnd() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseNot());
  while (IsName("and")) {
    NewExpr both = Make(ExprKind::kAnd);
    Take();
    ASSIGN_OR_RETURN(ExprPtr right, ParseNot());
    RETURN_IF_ERROR(Adopt(*both, std::move(left)));
    RETURN_IF_ERROR(Adopt(*both, std::move(right)));
    left = std::move(both);
  }
  return left;
}

StatusOr<ExprPtr> Parser::ParseNot() {
  if (!IsName("not")) return ParseCompare();
  const Nesting nesting(nesting_);
  RETURN_IF_ERROR(CheckNesting());
  NewExpr negation = Make(ExprKind::kNot);
  Take();
  ASSIGN_OR_RETURN(ExprPtr operand, ParseNot());
  RETURN_IF_ERROR(Adopt(*negation, std::move(operand)));
  return negation;
}

StatusOr<ExprPtr> Parser::ParseCompare() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<",
                                                    "<=", ">",  ">="};
  ASSIGN_OR_RETURN(ExprPtr first, ParseSum());
  NewExpr compare;
  for (;;) {
    std::string word;
    const Token& token = Current();
    if (token.kind == TokenKind::kOperator &&
        std::ranges::find(kOperators, token.text) != std::end(kOperators)) {
      word = token.text;
    } else if (IsName("in")) {
      word = "in";
    } else if (IsName("not") && Is(Next(), TokenKind::kName, "in")) {
      word = "not in";
    } else {
      break;
    }
    if (compare == nullptr) {
      compare = Make(ExprKind::kCompare);
      RETURN_IF_ERROR(Adopt(*compare, std::move(first)));
    }
    position_ += word == "not in" ? 2 : 1;
    ASSIGN_OR_RETURN(ExprPtr right, ParseSum());
    RETURN_IF_ERROR(Adopt(*compare, std::move(right)));
    compare->operators.push_back(std::move(word));
  }
  if (compare == nullptr) return first;
  return compare;
}

StatusOr<ExprPtr> Parser::ParseLeftAssociative(
    std::span<const std::string_view> operators,
    StatusOr<ExprPtr> (Parser::*operand)()) {
  ASSIGN_OR_RETURN(ExprPtr left, (this->*operand)());
  while (Current().kind == TokenKind::kOperator &&
         std::ranges::find(operators, Current().text) != operators.end()) {
    NewExpr both = Make(ExprKind::kArithmetic);
    both->text = Take().text;
    ASSIGN_OR_RETURN(ExprPtr right, (this->*operand)());
    RETURN_IF_ERROR(Adopt(*both, std::move(left)));
    RETURN_IF_ERROR(Adopt(*both, std::move(right)));
    left = std::move(both);
  }
  return left;
}

StatusOr<ExprPtr> Parser::ParseSum() {
  static constexpr std::string_view kOperators[] = {"+", "-"};
  return ParseLeftAssociative(kOperators, &Parser::ParseConcat);
}

StatusOr<ExprPtr> Parser::ParseConcat() {
  ASSIGN_OR_RETURN(ExprPtr first, ParseProduct());
  if (!IsOperator("~")) return first;
  NewExpr concat = Make(ExprKind::kConcat);
  RETURN_IF_ERROR(Adopt(*concat, std::move(first)));
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(ExprPtr next, ParseProduct());
    RETURN_IF_ERROR(Adopt(*concat, std::move(next)));
  }
  return concat;
}

StatusOr<ExprPtr> Parser::ParseProduct() {
  static constexpr std::string_view kOperators[] = {"*", "/", "//", "%"};
  return ParseLeftAssociative(kOperators, &Parser::ParsePower);
}

// Unlike Python's, Jinja's power associates to the left.
StatusOr<ExprPtr> Parser::ParsePower() {
  ASSIGN_OR_RETURN(ExprPtr left, ParseUnary(true));
  while (IsOperator("**")) {
    NewExpr power = Make(ExprKind::kArithmetic);
    power->text = Take().text;
    ASSIGN_OR_RETURN(ExprPtr right, ParseUnary(true));
    RETURN_IF_ERROR(Adopt(*power, std::move(left)));
    RETURN_IF_ERROR(Adopt(*power, std::move(right)));
    left = std::move(power);
  }
  return left;
}

StatusOr<ExprPtr> Parser::ParseUnary(bool with_filters) {
  const Nesting nesting(nesting_);
  RETURN_IF_ERROR(CheckNesting());
  ExprPtr value;
  if (IsOperator("-") || IsOperator("+")) {
    NewExpr sign = Make(IsOperator("-") ? ExprKind::kNegate : ExprKind::kPlus);
    Take();
    ASSIGN_OR_RETURN(ExprPtr operand, ParseUnary(false));
    RETURN_IF_ERROR(Adopt(*sign, std::move(operand)));
    value = std::move(sign);
  } else {
    ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (!with_filters) return value;
  return ParseFilters(std::move(value));
}

StatusOr<ExprPtr> Parser::ParsePrimary() {
  const Token& token = Current();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseNameOrConstant();
    case TokenKind::kString: {
      NewExpr text = Make(ExprKind::kString);
      while (Current().kind == TokenKind::kString) text->text += Take().text;
      return text;
    }
    case TokenKind::kInteger: {
      NewExpr integer = Make(ExprKind::kInt);
      integer->integer = Take().integer;
      return integer;
    }
    case TokenKind::kFloat: {
      NewExpr number = Make(ExprKind::kFloat);
      number->number = Take().number;
      return number;
    }
    default:
      break;
  }
  if (SkipOperator("(")) {
    ASSIGN_OR_RETURN(ExprPtr inner, ParseTuple(Conditional::kAllowed, true));
    RETURN_IF_ERROR(ExpectOperator(")"));
    return inner;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  return Unexpected("an expression");
}

StatusOr<ExprPtr> Parser::ParseNameOrConstant() {
  if (IsAnyName({"true", "True", "false", "False"})) {
    NewExpr boolean = Make(ExprKind::kBool);
    boolean->integer = IsAnyName({"true", "True"}) ? 1 : 0;
    Take();
    return boolean;
  }
  if (IsAnyName({"none", "None"})) {
    NewExpr none = Make(ExprKind::kNone);
    Take();
    return none;
  }
  NewExpr name = Make(ExprKind::kName);
  name->text = Take().text;
  return name;
}

StatusOr<ExprPtr> Parser::ParseList() {
  NewExpr list = Make(ExprKind::kList);
  Take();
  while (!SkipOperator("]")) {
    if (!list->operands.empty()) {
      RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator("]")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr item, ParseExpression());
    RETURN_IF_ERROR(Adopt(*list, std::move(item)));
  }
  return list;
}

StatusOr<ExprPtr> Parser::ParseDict() {
  NewExpr dict = Make(ExprKind::kDict);
  Take();
  while (!SkipOperator("}")) {
    if (!dict->operands.empty()) {
      RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator("}")) break;
    }
    ASSIGN_OR_RETURN(ExprPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExprPtr value, ParseExpression());
    RETURN_IF_ERROR(Adopt(*dict, std::move(key)));
    RETURN_IF_ERROR(Adopt(*dict, std::move(value)));
  }
  return dict;
}

StatusOr<ExprPtr> Parser::ParsePostfix(ExprPtr object) {
  for (;;) {
    if (IsOperator(".")) {
      ASSIGN_OR_RETURN(object, ParseDot(std::move(object)));
    } else if (IsOperator("[")) {
      ASSIGN_OR_RETURN(object, ParseSubscript(std::move(object)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(object, ParseCall(std::move(object)));
    } else {
      return object;
    }
  }
}

// Filters, tests and calls of what they give.
StatusOr<ExprPtr> Parser::ParseFilters(ExprPtr input) {
  for (;;) {
    if (SkipOperator("|")) {
      ASSIGN_OR_RETURN(input, ParseFilter(std::move(input)));
    } else if (SkipName("is")) {
      ASSIGN_OR_RETURN(input, ParseTest(std::move(input)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(input, ParseCall(std::move(input)));
    } else {
      return input;
    }
  }
}

StatusOr<std::string> Parser::ParseDottedName() {
  ASSIGN_OR_RETURN(std::string name, ExpectIdentifier());
  while (SkipOperator(".")) {
    ASSIGN_OR_RETURN(const std::string part, ExpectIdentifier());
    name += '.';
    name += part;
  }
  return name;
}

StatusOr<ExprPtr> Parser::ParseFilter(ExprPtr input) {
  NewExpr filter = Make(ExprKind::kFilter);
  RETURN_IF_ERROR(Adopt(*filter, std::move(input)));
  ASSIGN_OR_RETURN(filter->text, ParseDottedName());
  if (IsOperator("(")) RETURN_IF_ERROR(ParseArguments(*filter));
  return filter;
}

// The filters of a block: the innermost has no input.
StatusOr<ExprPtr> Parser::ParseFilterChain() {
  ExprPtr chain;
  do {
    ASSIGN_OR_RETURN(chain, ParseFilter(std::move(chain)));
  } while (SkipOperator("|"));
  return chain;
}

StatusOr<ExprPtr> Parser::ParseTest(ExprPtr input) {
  NewExpr negation;
  if (IsName("not")) {
    negation = Make(ExprKind::kNot);
    Take();
  }
  NewExpr test = Make(ExprKind::kTest);
  RETURN_IF_ERROR(Adopt(*test, std::move(input)));
  ASSIGN_OR_RETURN(test->text, ParseDottedName());
  const TokenKind kind = Current().kind;
  const bool starts_operand =
      kind == TokenKind::kName || kind == TokenKind::kString ||
      kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
      IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(*test));
  } else if (starts_operand && !IsAnyName({"else", "or", "and"})) {
    if (IsName("is")) return Error("tests cannot be chained with 'is'");
    const Nesting nesting(nesting_);
    RETURN_IF_ERROR(CheckNesting());
    ASSIGN_OR_RETURN(ExprPtr operand, ParsePrimary());
    ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
    RETURN_IF_ERROR(Adopt(*test, std::move(operand)));
  }
  if (negation == nullptr) return test;
  RETURN_IF_ERROR(Adopt(*negation, std::move(test)));
  return negation;
}

StatusOr<ExprPtr> Parser::ParseDot(ExprPtr object) {
  Take();
  NewExpr access = Make(ExprKind::kAttribute);
  RETURN_IF_ERROR(Adopt(*access, std::move(object)));
  if (Current().kind == TokenKind::kInteger) {
    access->kind = ExprKind::kItem;
    NewExpr index = Make(ExprKind::kInt);
    index->integer = Take().integer;
    RETURN_IF_ERROR(Adopt(*access, std::move(index)));
    return access;
  }
  ASSIGN_OR_RETURN(access->text, ExpectIdentifier());
  return access;
}

StatusOr<ExprPtr> Parser::ParseSubscript(ExprPtr object) {
  NewExpr item = Make(ExprKind::kItem);
  Take();
  ExprPtr index;
  if (!IsOperator(":")) {
    ASSIGN_OR_RETURN(index, ParseExpression());
  }
  if (IsOperator(":")) return ParseSlice(std::move(object), std::move(index));
  RETURN_IF_ERROR(ExpectOperator("]"));
  RETURN_IF_ERROR(Adopt(*item, std::move(object)));
  RETURN_IF_ERROR(Adopt(*item, std::move(index)));
  return item;
}

// From the first `:` on.
StatusOr<ExprPtr> Parser::ParseSlice(ExprPtr object, ExprPtr start) {
  NewExpr slice = Make(ExprKind::kSlice);
  RETURN_IF_ERROR(Adopt(*slice, std::move(object)));
  RETURN_IF_ERROR(Adopt(*slice, std::move(start)));
  for (int i = 0; i < 2; ++i) {
    ExprPtr bound;
    if (SkipOperator(":") && !IsOperator(":") && !IsOperator("]")) {
      ASSIGN_OR_RETURN(bound, ParseExpression());
    }
    RETURN_IF_ERROR(Adopt(*slice, std::move(bound)));
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  return slice;
}

StatusOr<ExprPtr> Parser::ParseCall(ExprPtr callee) {
  NewExpr call = Make(ExprKind::kCall);
  RETURN_IF_ERROR(Adopt(*call, std::move(callee)));
  RETURN_IF_ERROR(ParseArguments(*call));
  return call;
}

Status Parser::ParseArguments(Expr& call) {
  RETURN_IF_ERROR(ExpectOperator("("));
  for (bool first = true; !SkipOperator(")"); first = false) {
    if (!first) {
      RETURN_IF_ERROR(ExpectOperator(","));
      if (SkipOperator(")")) break;
    }
    if (IsOperator("*") || IsOperator("**")) {
      return Error("unpacking with '{}' is not supported", Current().text);
    }
    if (Current().kind == TokenKind::kName &&
        Is(Next(), TokenKind::kOperator, "=")) {
      Keyword keyword;
      keyword.name = Take().text;
      Take();
      ASSIGN_OR_RETURN(keyword.value, ParseExpression());
      RETURN_IF_ERROR(Grow(call, *keyword.value));
      call.keywords.push_back(std::move(keyword));
      continue;
    }
    if (!call.keywords.empty()) {
      return Error("a positional argument after a named one");
    }
    ASSIGN_OR_RETURN(ExprPtr argument, ParseExpression());
    RETURN_IF_ERROR(Adopt(call, std::move(argument)));
  }
  return OkStatus();
}

}  // namespace

StatusOr<Template> ParseTemplate(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return ResourceExhausted(
        "chat template: {} bytes of source, more than the {} allowed",
        source.size(), kSourceBytesMax);
  }
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace tidepool::model::jinja
