#include "dataplane/model/tokenizer_spec.h"

#include <algorithm>
#include <utility>

#include "dataplane/model/tokenizer_json.h"
#include "dataplane/model/tokenizer_steps.h"

namespace tidepool::model::internal {
namespace {

constexpr int64_t kIdMax = static_cast<int64_t>(kVocabularyMax) - 1;

Status Refused(const JsonField& field, std::string_view what) {
  return Unimplemented("tokenizer.json: {}: {} is not supported", field.path(),
                       what);
}

// Truncation and padding change what a text means to the model; the server
// has its own limits.
Status RequireNull(const JsonField& root, std::string_view name) {
  ASSIGN_OR_RETURN(const std::optional<JsonField> field, root.Find(name));
  if (!field.has_value() || field->is_null()) return OkStatus();
  return Refused(*field, "anything but null");
}

Status RequireEmpty(const JsonField& model, std::string_view name) {
  ASSIGN_OR_RETURN(const std::optional<JsonField> field, model.Find(name));
  if (!field.has_value() || field->is_null()) return OkStatus();
  ASSIGN_OR_RETURN(const std::string_view text, field->String());
  if (!text.empty()) return Refused(*field, "anything but null");
  return OkStatus();
}

StatusOr<AddedToken> ParseAddedToken(const JsonField& field) {
  AddedToken token;
  ASSIGN_OR_RETURN(const JsonField id, field.Get("id"));
  ASSIGN_OR_RETURN(const int64_t id_value, id.Integer(0, kIdMax));
  token.id = static_cast<int32_t>(id_value);
  ASSIGN_OR_RETURN(const JsonField content, field.Get("content"));
  ASSIGN_OR_RETURN(const std::string_view text, content.String());
  if (text.empty() || text.size() > kTokenBytesMax) {
    return InvalidArgument("tokenizer.json: {}: must have 1 to {} bytes",
                           content.path(), kTokenBytesMax);
  }
  token.content = std::string(text);
  ASSIGN_OR_RETURN(token.special, field.BoolOr("special", false));
  ASSIGN_OR_RETURN(token.single_word, field.BoolOr("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, field.BoolOr("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, field.BoolOr("rstrip", false));
  ASSIGN_OR_RETURN(token.normalized, field.BoolOr("normalized", true));
  return token;
}

StatusOr<std::vector<AddedToken>> ParseAddedTokens(const JsonField& root) {
  std::vector<AddedToken> tokens;
  ASSIGN_OR_RETURN(const std::optional<JsonField> field,
                   root.Find("added_tokens"));
  if (!field.has_value() || field->is_null()) return tokens;
  ASSIGN_OR_RETURN(const simdjson::dom::array array, field->Array());
  for (const simdjson::dom::element element : array) {
    if (tokens.size() == kVocabularyMax) {
      return InvalidArgument("tokenizer.json: {}: has more than {} entries",
                             field->path(), kVocabularyMax);
    }
    ASSIGN_OR_RETURN(AddedToken token,
                     ParseAddedToken(field->Element(element, tokens.size())));
    tokens.push_back(std::move(token));
  }
  std::ranges::sort(tokens, {}, &AddedToken::id);
  return tokens;
}

StatusOr<std::vector<std::pair<std::string_view, int32_t>>> ParseVocabulary(
    const JsonField& model) {
  ASSIGN_OR_RETURN(const JsonField field, model.Get("vocab"));
  ASSIGN_OR_RETURN(const simdjson::dom::object object, field.Object());
  std::vector<std::pair<std::string_view, int32_t>> vocabulary;
  vocabulary.reserve(object.size());
  for (const auto [token, value] : object) {
    int64_t id;
    if (value.get(id) || id < 0 || id > kIdMax) {
      return InvalidArgument(
          "tokenizer.json: {}[\"{}\"]: must be an id from 0 to {}",
          field.path(), token, kIdMax);
    }
    if (token.size() > kTokenBytesMax) {
      return InvalidArgument(
          "tokenizer.json: {}: the token of id {} is longer than {} bytes",
          field.path(), id, kTokenBytesMax);
    }
    vocabulary.emplace_back(token, static_cast<int32_t>(id));
  }
  return vocabulary;
}

using Merge = std::pair<std::string_view, std::string_view>;

// "a b" of the older format.
std::optional<Merge> SplitMerge(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos ||
      text.find(' ', space + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return Merge(text.substr(0, space), text.substr(space + 1));
}

// ["a", "b"] of the newer one.
std::optional<Merge> MergeOfPair(simdjson::dom::element element) {
  simdjson::dom::array array;
  if (element.get(array) || array.size() != 2) return std::nullopt;
  Merge merge;
  if (array.at(0).get(merge.first) || array.at(1).get(merge.second)) {
    return std::nullopt;
  }
  return merge;
}

StatusOr<std::vector<Merge>> ParseMerges(const JsonField& model) {
  ASSIGN_OR_RETURN(const JsonField field, model.Get("merges"));
  ASSIGN_OR_RETURN(const simdjson::dom::array array, field.Array());
  std::vector<Merge> merges;
  merges.reserve(array.size());
  size_t index = 0;
  for (const simdjson::dom::element element : array) {
    if (merges.size() == kMergesMax) {
      return InvalidArgument("tokenizer.json: {}: has more than {} entries",
                             field.path(), kMergesMax);
    }
    std::string_view text;
    const bool is_text = !element.get(text);
    if (!is_text || !text.starts_with("#version")) {
      const std::optional<Merge> merge =
          is_text ? SplitMerge(text) : MergeOfPair(element);
      if (!merge.has_value()) {
        return InvalidArgument(
            "tokenizer.json: {}[{}]: must be two tokens, as a pair or with one "
            "space between",
            field.path(), index);
      }
      merges.push_back(*merge);
    }
    ++index;
  }
  return merges;
}

StatusOr<BpeSpec> ParseModel(const JsonField& root) {
  ASSIGN_OR_RETURN(const JsonField field, root.Get("model"));
  // Old files leave the type out.
  ASSIGN_OR_RETURN(const std::optional<JsonField> type, field.Find("type"));
  if (type.has_value()) {
    ASSIGN_OR_RETURN(const std::string_view name, type->String());
    if (name != "BPE") return Refused(*type, fmt::format("\"{}\"", name));
  }
  RETURN_IF_ERROR(RequireNull(field, "dropout"));
  RETURN_IF_ERROR(RequireEmpty(field, "continuing_subword_prefix"));
  RETURN_IF_ERROR(RequireEmpty(field, "end_of_word_suffix"));
  BpeSpec spec;
  ASSIGN_OR_RETURN(const std::optional<JsonField> unk, field.Find("unk_token"));
  if (unk.has_value() && !unk->is_null()) {
    ASSIGN_OR_RETURN(spec.unk_token, unk->String());
  }
  ASSIGN_OR_RETURN(spec.fuse_unk, field.BoolOr("fuse_unk", false));
  ASSIGN_OR_RETURN(spec.byte_fallback, field.BoolOr("byte_fallback", false));
  ASSIGN_OR_RETURN(spec.ignore_merges, field.BoolOr("ignore_merges", false));
  ASSIGN_OR_RETURN(spec.vocabulary, ParseVocabulary(field));
  ASSIGN_OR_RETURN(spec.merges, ParseMerges(field));
  return spec;
}

StatusOr<TokenizerSpec> ParseSpec(const JsonField& root) {
  TokenizerSpec spec;
  ASSIGN_OR_RETURN(const std::optional<JsonField> version,
                   root.Find("version"));
  if (version.has_value()) {
    ASSIGN_OR_RETURN(const std::string_view text, version->String());
    if (text != "1.0") return Refused(*version, fmt::format("\"{}\"", text));
  }
  RETURN_IF_ERROR(RequireNull(root, "truncation"));
  RETURN_IF_ERROR(RequireNull(root, "padding"));
  ASSIGN_OR_RETURN(spec.added_tokens, ParseAddedTokens(root));
  ASSIGN_OR_RETURN(spec.normalizer, ParseNormalizer(root));
  ASSIGN_OR_RETURN(spec.pretokenizer, ParsePretokenizer(root));
  ASSIGN_OR_RETURN(PostProcessor post, ParsePostProcessor(root));
  spec.prefix_ids = std::move(post.prefix_ids);
  spec.suffix_ids = std::move(post.suffix_ids);
  ASSIGN_OR_RETURN(spec.decoder, ParseDecoder(root));
  ASSIGN_OR_RETURN(spec.model, ParseModel(root));
  return spec;
}

}  // namespace

struct ParsedFile::Document {
  simdjson::dom::parser parser{kFileBytesMax};
};

ParsedFile::ParsedFile() : document_(std::make_unique<Document>()) {}
ParsedFile::~ParsedFile() = default;

StatusOr<std::unique_ptr<ParsedFile>> ParsedFile::Parse(std::string_view json) {
  if (json.size() > kFileBytesMax) {
    return InvalidArgument("tokenizer.json: {} bytes are more than {}",
                           json.size(), kFileBytesMax);
  }
  std::unique_ptr<ParsedFile> file(new ParsedFile);
  simdjson::dom::element root;
  const auto error =
      file->document_->parser.parse(json.data(), json.size()).get(root);
  if (error) {
    return InvalidArgument("tokenizer.json: is not JSON: {}",
                           simdjson::error_message(error));
  }
  ASSIGN_OR_RETURN(file->spec_, ParseSpec(JsonField(root, "")));
  return file;
}

}  // namespace tidepool::model::internal
