#include "dataplane/model/jinja_parser.h"

#include "dataplane/model/jinja_parser_internal.h"

namespace tidepool::model::jinja {
namespace {

constexpr size_t kSourceBytesMax = 1 << 20;

}  // namespace

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
