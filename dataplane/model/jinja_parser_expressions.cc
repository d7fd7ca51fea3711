#include "dataplane/model/jinja_parser_internal.h"

namespace tidepool::model::jinja {

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

}  // namespace tidepool::model::jinja
