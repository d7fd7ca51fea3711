#include "dataplane/model/tokenizer_normalizer.h"

#include <optional>
#include <utility>

#include "dataplane/model/pretokenizer_match.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

// nullopt: nothing changes.
using Change = StatusOr<std::optional<std::string>>;

Status CheckSize(std::string_view text) {
  if (text.size() <= Tokenizer::kTextBytesMax) return OkStatus();
  return ResourceExhausted("the normalized text is longer than {} bytes",
                           Tokenizer::kTextBytesMax);
}

std::string_view StripSpace(const StripSpaceStep& step, std::string_view text) {
  while (step.left && !text.empty()) {
    const DecodedChar c = DecodeChar(text.data());
    if ((FlagsOf(c.value) & kSpace) == 0) break;
    text.remove_prefix(c.bytes);
  }
  while (step.right && !text.empty()) {
    const DecodedChar c = DecodeCharBefore(text.data() + text.size());
    if ((FlagsOf(c.value) & kSpace) == 0) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

Change Apply(const UnicodeStep& step, const Matcher*, std::string_view text) {
  if (IsCertainlyNormal(step.form, text)) return std::nullopt;
  return Normalize(step.form, text);
}

Change Apply(const LowercaseStep&, const Matcher*, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = DecodeChar(text.data() + at);
    AppendLowercase(c.value, out);
    at += c.bytes;
  }
  return out;
}

Change Apply(const StripAccentsStep&, const Matcher*, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const DecodedChar c = DecodeChar(text.data() + at);
    if ((FlagsOf(c.value) & kMark) == 0) out.append(text.substr(at, c.bytes));
    at += c.bytes;
  }
  return out;
}

Change Apply(const PrependStep& step, const Matcher*, std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::string out;
  out.reserve(step.text.size() + text.size());
  out.append(step.text).append(text);
  return out;
}

Change Apply(const ReplaceStep& step, const Matcher* matcher,
             std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  RETURN_IF_ERROR(
      matcher->ForEach(text, [&](size_t start, size_t end, bool matched) {
        out.append(matched ? step.content : text.substr(start, end - start));
        return CheckSize(out);
      }));
  return out;
}

Change Apply(const StripSpaceStep& step, const Matcher*,
             std::string_view text) {
  return std::string(StripSpace(step, text));
}

}  // namespace

struct Normalizer::Step {
  NormalizerStep step;
  std::optional<Matcher> matcher;  // of a ReplaceStep
};

Normalizer::Normalizer() = default;
Normalizer::~Normalizer() = default;

StatusOr<std::unique_ptr<Normalizer>> Normalizer::Create(
    const std::vector<NormalizerStep>& steps) {
  std::unique_ptr<Normalizer> result(new Normalizer);
  for (const NormalizerStep& step : steps) {
    std::optional<Matcher> matcher;
    if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      ASSIGN_OR_RETURN(matcher,
                       Matcher::Create(replace->pattern,
                                       "normalizer.Replace.pattern.Regex"));
    } else if (const auto* strip = std::get_if<StripSpaceStep>(&step)) {
      result->strips_start_ |= strip->left;
    }
    result->steps_.push_back({step, std::move(matcher)});
  }
  return result;
}

StatusOr<std::string_view> Normalizer::Run(std::string_view text,
                                           std::string& storage) const {
  for (const Step& step : steps_) {
    const Matcher* matcher =
        step.matcher.has_value() ? &*step.matcher : nullptr;
    ASSIGN_OR_RETURN(
        std::optional<std::string> changed,
        std::visit([&](const auto& kind) { return Apply(kind, matcher, text); },
                   step.step));
    if (!changed.has_value()) continue;
    RETURN_IF_ERROR(CheckSize(*changed));
    storage = *std::move(changed);
    text = storage;
  }
  return text;
}

}  // namespace tidepool::model::internal
