#include "dataplane/model/tokenizer_steps.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace tidepool::model::internal {
namespace {

// A file nests sequences one or two deep.
constexpr int kNestingMax = 16;
constexpr int64_t kStripMax = 1024;
constexpr size_t kTemplateIdsMax = 1024;

Status UnknownType(const JsonField& field, std::string_view type) {
  return Unimplemented("tokenizer.json: {}.type: \"{}\" is not supported",
                       field.path(), type);
}

// Calls `leaf` for each step of `field`, looking into Sequences, whose steps
// are in their member `list`.
Status ForEachStep(
    const JsonField& field, std::string_view list, int depth,
    const std::function<Status(const JsonField&, std::string_view)>& leaf) {
  ASSIGN_OR_RETURN(const std::string_view type, field.Type());
  if (type != "Sequence") return leaf(field, type);
  if (depth == kNestingMax) {
    return InvalidArgument("tokenizer.json: {}: is nested too deep",
                           field.path());
  }
  ASSIGN_OR_RETURN(const JsonField steps, field.Get(list));
  ASSIGN_OR_RETURN(const simdjson::dom::array array, steps.Array());
  size_t index = 0;
  for (const simdjson::dom::element element : array) {
    if (index == kStepsMax) {
      return InvalidArgument("tokenizer.json: {}: has more than {} entries",
                             steps.path(), kStepsMax);
    }
    RETURN_IF_ERROR(
        ForEachStep(steps.Element(element, index++), list, depth + 1, leaf));
  }
  return OkStatus();
}

// The steps of the top-level member `name`; `parse` makes one from each leaf.
template <typename Step, typename Parse>
StatusOr<std::optional<std::vector<Step>>> ParseSteps(const JsonField& root,
                                                      std::string_view name,
                                                      std::string_view list,
                                                      const Parse& parse) {
  ASSIGN_OR_RETURN(const std::optional<JsonField> field, root.Find(name));
  if (!field.has_value() || field->is_null()) {
    return std::optional<std::vector<Step>>();
  }
  std::vector<Step> steps;
  const auto leaf = [&](const JsonField& step_field, std::string_view type) {
    if (steps.size() == kStepsMax) {
      return InvalidArgument("tokenizer.json: {}: has more than {} steps", name,
                             kStepsMax);
    }
    StatusOr<Step> step = parse(step_field, type);
    RETURN_IF_ERROR(step.status());
    steps.push_back(*std::move(step));
    return OkStatus();
  };
  RETURN_IF_ERROR(ForEachStep(*field, list, 0, leaf));
  return std::optional(std::move(steps));
}

StatusOr<std::string> ParseText(const JsonField& field, std::string_view name) {
  ASSIGN_OR_RETURN(const JsonField text, field.Get(name));
  ASSIGN_OR_RETURN(const std::string_view value, text.String());
  if (value.size() > kPatternBytesMax) {
    return InvalidArgument("tokenizer.json: {}: is longer than {} bytes",
                           text.path(), kPatternBytesMax);
  }
  return std::string(value);
}

// {"String": "…"} or {"Regex": "…"}.
StatusOr<Pattern> ParsePattern(const JsonField& step) {
  ASSIGN_OR_RETURN(const JsonField field, step.Get("pattern"));
  Pattern pattern;
  ASSIGN_OR_RETURN(const std::optional<JsonField> regex, field.Find("Regex"));
  pattern.is_regex = regex.has_value();
  ASSIGN_OR_RETURN(pattern.text,
                   ParseText(field, pattern.is_regex ? "Regex" : "String"));
  if (pattern.text.empty()) {
    return InvalidArgument("tokenizer.json: {}: must not be empty",
                           field.path());
  }
  return pattern;
}

StatusOr<NormalizerStep> ParseNormalizerStep(const JsonField& field,
                                             std::string_view type) {
  if (type == "NFC") return UnicodeStep{NormalForm::kNfc};
  if (type == "NFD") return UnicodeStep{NormalForm::kNfd};
  if (type == "NFKC") return UnicodeStep{NormalForm::kNfkc};
  if (type == "NFKD") return UnicodeStep{NormalForm::kNfkd};
  if (type == "Lowercase") return LowercaseStep{};
  if (type == "StripAccents") return StripAccentsStep{};
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string text, ParseText(field, "prepend"));
    return PrependStep{std::move(text)};
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(field));
    ASSIGN_OR_RETURN(std::string content, ParseText(field, "content"));
    return ReplaceStep{std::move(pattern), std::move(content)};
  }
  if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, field.BoolOr("strip_left", true));
    ASSIGN_OR_RETURN(const bool right, field.BoolOr("strip_right", true));
    return StripSpaceStep{left, right};
  }
  return UnknownType(field, type);
}

StatusOr<SplitBehavior> ParseBehavior(const JsonField& field) {
  ASSIGN_OR_RETURN(const std::string_view name, field.String());
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [text, behavior] : kNames) {
    if (name == text) return behavior;
  }
  return InvalidArgument("tokenizer.json: {}: \"{}\" is not a behavior",
                         field.path(), name);
}

StatusOr<PretokenizerStep> ParseMetaspace(const JsonField& field) {
  MetaspaceStep step;
  ASSIGN_OR_RETURN(const JsonField replacement, field.Get("replacement"));
  ASSIGN_OR_RETURN(step.replacement, replacement.Character());
  ASSIGN_OR_RETURN(const std::optional<JsonField> scheme,
                   field.Find("prepend_scheme"));
  if (scheme.has_value()) {
    ASSIGN_OR_RETURN(const std::string_view name, scheme->String());
    if (name == "first") {
      step.scheme = PrependScheme::kFirst;
    } else if (name == "never") {
      step.scheme = PrependScheme::kNever;
    } else if (name != "always") {
      return InvalidArgument(
          "tokenizer.json: {}: must be always, first or never", scheme->path());
    }
  }
  // The older way to say "never".
  ASSIGN_OR_RETURN(const bool add, field.BoolOr("add_prefix_space", true));
  if (!add) {
    if (scheme.has_value() && step.scheme != PrependScheme::kNever) {
      return InvalidArgument(
          "tokenizer.json: {}.add_prefix_space: contradicts prepend_scheme",
          field.path());
    }
    step.scheme = PrependScheme::kNever;
  }
  ASSIGN_OR_RETURN(step.split, field.BoolOr("split", true));
  return step;
}

StatusOr<PretokenizerStep> ParsePretokenizerStep(const JsonField& field,
                                                 std::string_view type) {
  if (type == "ByteLevel") {
    ByteLevelStep step;
    ASSIGN_OR_RETURN(step.add_prefix_space,
                     field.BoolOr("add_prefix_space", true));
    ASSIGN_OR_RETURN(step.use_regex, field.BoolOr("use_regex", true));
    return step;
  }
  if (type == "Split") {
    SplitStep step;
    ASSIGN_OR_RETURN(step.pattern, ParsePattern(field));
    ASSIGN_OR_RETURN(const JsonField behavior, field.Get("behavior"));
    ASSIGN_OR_RETURN(step.behavior, ParseBehavior(behavior));
    ASSIGN_OR_RETURN(step.invert, field.BoolOr("invert", false));
    return step;
  }
  if (type == "Metaspace") return ParseMetaspace(field);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool each, field.BoolOr("individual_digits", false));
    return CharClassStep{
        kNumeric, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous};
  }
  if (type == "Punctuation") {
    CharClassStep step{kPunctuation, SplitBehavior::kIsolated};
    ASSIGN_OR_RETURN(const std::optional<JsonField> behavior,
                     field.Find("behavior"));
    if (behavior.has_value()) {
      ASSIGN_OR_RETURN(step.behavior, ParseBehavior(*behavior));
    }
    return step;
  }
  if (type == "WhitespaceSplit") {
    return CharClassStep{kSpace, SplitBehavior::kRemoved};
  }
  if (type == "Whitespace") return WordsStep{};
  return UnknownType(field, type);
}

// {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, …}
StatusOr<std::vector<int32_t>> TemplateTokenIds(const JsonField& processor,
                                                std::string_view name) {
  ASSIGN_OR_RETURN(const JsonField tokens, processor.Get("special_tokens"));
  ASSIGN_OR_RETURN(const JsonField token, tokens.Get(name));
  ASSIGN_OR_RETURN(const JsonField ids_field, token.Get("ids"));
  ASSIGN_OR_RETURN(const simdjson::dom::array array, ids_field.Array());
  std::vector<int32_t> ids;
  for (const simdjson::dom::element element : array) {
    if (ids.size() == kTemplateIdsMax) {
      return InvalidArgument("tokenizer.json: {}: has more than {} entries",
                             ids_field.path(), kTemplateIdsMax);
    }
    ASSIGN_OR_RETURN(const int64_t id,
                     ids_field.Element(element, ids.size())
                         .Integer(0, static_cast<int64_t>(kVocabularyMax) - 1));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// A few, whatever a file repeats: every text gets them.
Status CheckCount(const JsonField& field, const PostProcessor& post) {
  if (post.prefix_ids.size() + post.suffix_ids.size() <= kTemplateIdsMax) {
    return OkStatus();
  }
  return InvalidArgument("tokenizer.json: {}: adds more than {} tokens",
                         field.path(), kTemplateIdsMax);
}

// What the template puts before and after the one text.
StatusOr<PostProcessor> ParseTemplate(const JsonField& processor) {
  ASSIGN_OR_RETURN(const JsonField single, processor.Get("single"));
  ASSIGN_OR_RETURN(const simdjson::dom::array pieces, single.Array());
  PostProcessor result;
  bool seen_text = false;
  size_t index = 0;
  for (const simdjson::dom::element element : pieces) {
    if (index == kTemplateIdsMax) {
      return InvalidArgument("tokenizer.json: {}: has more than {} entries",
                             single.path(), kTemplateIdsMax);
    }
    const JsonField piece = single.Element(element, index++);
    ASSIGN_OR_RETURN(const std::optional<JsonField> special,
                     piece.Find("SpecialToken"));
    if (special.has_value()) {
      ASSIGN_OR_RETURN(const JsonField id, special->Get("id"));
      ASSIGN_OR_RETURN(const std::string_view name, id.String());
      ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                       TemplateTokenIds(processor, name));
      auto& target = seen_text ? result.suffix_ids : result.prefix_ids;
      target.insert(target.end(), ids.begin(), ids.end());
      RETURN_IF_ERROR(CheckCount(single, result));
      continue;
    }
    ASSIGN_OR_RETURN(const JsonField sequence, piece.Get("Sequence"));
    ASSIGN_OR_RETURN(const JsonField id, sequence.Get("id"));
    ASSIGN_OR_RETURN(const std::string_view name, id.String());
    if (name != "A" || seen_text) {
      return Unimplemented(
          "tokenizer.json: {}: a template with anything but the text \"A\" "
          "once is not supported",
          single.path());
    }
    seen_text = true;
  }
  if (!seen_text) {
    return InvalidArgument("tokenizer.json: {}: leaves the text \"A\" out",
                           single.path());
  }
  return result;
}

StatusOr<DecoderStep> ParseDecoderStep(const JsonField& field,
                                       std::string_view type) {
  if (type == "ByteLevel") return ByteLevelDecoder{};
  if (type == "ByteFallback") return ByteFallbackDecoder{};
  if (type == "Fuse") return FuseDecoder{};
  if (type == "Replace") {
    ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(field));
    if (pattern.is_regex) {
      return Unimplemented(
          "tokenizer.json: {}.pattern.Regex: is not supported in a decoder",
          field.path());
    }
    ASSIGN_OR_RETURN(std::string content, ParseText(field, "content"));
    return ReplaceDecoder{std::move(pattern.text), std::move(content)};
  }
  if (type == "Strip") {
    StripDecoder step;
    ASSIGN_OR_RETURN(const JsonField content, field.Get("content"));
    ASSIGN_OR_RETURN(step.content, content.Character());
    ASSIGN_OR_RETURN(const JsonField start, field.Get("start"));
    ASSIGN_OR_RETURN(const int64_t start_count, start.Integer(0, kStripMax));
    step.start = static_cast<size_t>(start_count);
    ASSIGN_OR_RETURN(const JsonField stop, field.Get("stop"));
    ASSIGN_OR_RETURN(const int64_t stop_count, stop.Integer(0, kStripMax));
    step.stop = static_cast<size_t>(stop_count);
    return step;
  }
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(const PretokenizerStep step, ParseMetaspace(field));
    const auto& metaspace = std::get<MetaspaceStep>(step);
    return MetaspaceDecoder{metaspace.replacement,
                            metaspace.scheme != PrependScheme::kNever};
  }
  return UnknownType(field, type);
}

}  // namespace

StatusOr<std::vector<NormalizerStep>> ParseNormalizer(const JsonField& root) {
  ASSIGN_OR_RETURN(auto steps,
                   ParseSteps<NormalizerStep>(root, "normalizer", "normalizers",
                                              ParseNormalizerStep));
  return std::move(steps).value_or(std::vector<NormalizerStep>());
}

StatusOr<std::vector<PretokenizerStep>> ParsePretokenizer(
    const JsonField& root) {
  ASSIGN_OR_RETURN(auto steps, ParseSteps<PretokenizerStep>(
                                   root, "pre_tokenizer", "pretokenizers",
                                   ParsePretokenizerStep));
  return std::move(steps).value_or(std::vector<PretokenizerStep>());
}

StatusOr<PostProcessor> ParsePostProcessor(const JsonField& root) {
  PostProcessor result;
  ASSIGN_OR_RETURN(const std::optional<JsonField> field,
                   root.Find("post_processor"));
  if (!field.has_value() || field->is_null()) return result;
  const auto leaf = [&result](const JsonField& processor,
                              std::string_view type) {
    // ByteLevel only moves offsets, which we do not report.
    if (type == "ByteLevel") return OkStatus();
    if (type != "TemplateProcessing") return UnknownType(processor, type);
    StatusOr<PostProcessor> added = ParseTemplate(processor);
    RETURN_IF_ERROR(added.status());
    result.prefix_ids.insert(result.prefix_ids.begin(),
                             added->prefix_ids.begin(),
                             added->prefix_ids.end());
    result.suffix_ids.insert(result.suffix_ids.end(), added->suffix_ids.begin(),
                             added->suffix_ids.end());
    return CheckCount(processor, result);
  };
  RETURN_IF_ERROR(ForEachStep(*field, "processors", 0, leaf));
  return result;
}

StatusOr<std::optional<std::vector<DecoderStep>>> ParseDecoder(
    const JsonField& root) {
  return ParseSteps<DecoderStep>(root, "decoder", "decoders", ParseDecoderStep);
}

}  // namespace tidepool::model::internal
