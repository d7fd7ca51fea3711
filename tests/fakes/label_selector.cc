#include "tests/fakes/label_selector.h"

#include <algorithm>

namespace tidepool::fakes {
namespace {

std::string Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return std::string(text);
}

// Splits at commas outside of parentheses.
std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')') {
      --depth;
    }
  }
  return parts;
}

}  // namespace

StatusOr<LabelSelector::Term> LabelSelector::ParseTerm(std::string_view text) {
  const std::string term = Trimmed(text);
  if (term.empty()) return InvalidArgument("an empty term in a selector");
  if (term[0] == '!') return Term{Kind::kAbsent, Trimmed(term.substr(1)), {}};
  if (const size_t at = term.find("!="); at != std::string::npos)
    return Term{Kind::kNotIn,
                Trimmed(term.substr(0, at)),
                {Trimmed(term.substr(at + 2))}};
  if (const size_t at = term.find('='); at != std::string::npos) {
    const size_t value = term.find_first_not_of('=', at);
    return Term{
        Kind::kIn,
        Trimmed(term.substr(0, at)),
        {value == std::string::npos ? "" : Trimmed(term.substr(value))}};
  }
  const size_t open = term.find('(');
  if (open == std::string::npos) return Term{Kind::kExists, term, {}};
  const size_t space = term.find(' ');
  const std::string verb =
      space < open ? Trimmed(term.substr(space, open - space)) : "";
  if ((verb != "in" && verb != "notin") || term.back() != ')')
    return InvalidArgument("`{}` is no term of a selector", term);
  Term parsed{
      verb == "in" ? Kind::kIn : Kind::kNotIn, term.substr(0, space), {}};
  const std::string inside = term.substr(open + 1, term.size() - open - 2);
  for (const std::string_view value : Split(inside))
    parsed.values.insert(Trimmed(value));
  return parsed;
}

StatusOr<LabelSelector> LabelSelector::Parse(std::string_view text) {
  LabelSelector selector;
  if (text.empty()) return selector;
  for (const std::string_view part : Split(text)) {
    ASSIGN_OR_RETURN(Term term, ParseTerm(part));
    selector.terms_.push_back(std::move(term));
  }
  return selector;
}

bool LabelSelector::Matches(const kube::Json& object) const {
  static const kube::Json kNone = kube::Json::object();
  const kube::Json metadata = object.value("metadata", kNone);
  const kube::Json labels = metadata.value("labels", kNone);
  return std::ranges::all_of(terms_, [&](const Term& term) {
    const bool has = labels.contains(term.label);
    const bool among =
        has && labels.at(term.label).is_string() &&
        term.values.contains(labels.at(term.label).get<std::string>());
    switch (term.kind) {
      case Kind::kIn:
        return among;
      case Kind::kNotIn:
        return !among;
      case Kind::kExists:
        return has;
      case Kind::kAbsent:
        return !has;
    }
    return false;
  });
}

}  // namespace tidepool::fakes
