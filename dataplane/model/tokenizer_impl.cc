#include "dataplane/model/tokenizer_impl.h"

#include <algorithm>
#include <set>
#include <utility>

#include "dataplane/model/tokenizer_spec.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

Status TooMany(size_t max_tokens) {
  return ResourceExhausted("the text has more than {} tokens", max_tokens);
}

}  // namespace

StatusOr<std::unique_ptr<const TokenizerImpl>> TokenizerImpl::Create(
    std::string_view json) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ParsedFile> file,
                   ParsedFile::Parse(json));
  const TokenizerSpec& spec = file->spec();
  std::unique_ptr<TokenizerImpl> impl(new TokenizerImpl);
  impl->digest_ = Sha256Of(json);
  ASSIGN_OR_RETURN(impl->vocabulary_, Vocabulary::Build(spec));
  ASSIGN_OR_RETURN(impl->normalizer_, Normalizer::Create(spec.normalizer));
  ASSIGN_OR_RETURN(impl->pretokenizer_,
                   Pretokenizer::Create(spec.pretokenizer));
  ASSIGN_OR_RETURN(impl->model_,
                   BpeModel::Create(spec.model, *impl->vocabulary_,
                                    impl->pretokenizer_->word_form()));
  RETURN_IF_ERROR(CheckDecoder(spec.decoder));
  impl->decoder_ = spec.decoder;
  impl->prefix_ids_ = spec.prefix_ids;
  impl->suffix_ids_ = spec.suffix_ids;
  RETURN_IF_ERROR(impl->CheckTemplate());
  impl->added_tokens_ = spec.added_tokens;
  RETURN_IF_ERROR(impl->BuildAddedTokens());
  return impl;
}

Status TokenizerImpl::CheckTemplate() const {
  for (const auto* ids : {&prefix_ids_, &suffix_ids_}) {
    for (const int32_t id : *ids) {
      if (vocabulary_->Contains(id)) continue;
      return InvalidArgument(
          "tokenizer.json: post_processor: id {} has no token", id);
    }
  }
  return OkStatus();
}

Status TokenizerImpl::BuildAddedTokens() {
  // What decoding sees of each token: added tokens that are looked for in
  // normalized text also come out normalized.
  std::vector<std::string> normalized(added_tokens_.size());
  std::set<std::string_view> special;
  special_.resize(static_cast<size_t>(vocabulary_->size()));
  for (size_t i = 0; i < added_tokens_.size(); ++i) {
    const AddedToken& token = added_tokens_[i];
    normalized[i] = token.content;
    if (token.special) special.insert(token.content);
    special_[static_cast<size_t>(token.id)] = token.special;
    if (!token.normalized) {
      RETURN_IF_ERROR(added_in_text_.Add(token.content, token));
      continue;
    }
    std::string storage;
    ASSIGN_OR_RETURN(const std::string_view pattern,
                     normalizer_->Run(token.content, storage));
    if (pattern.empty()) {
      return InvalidArgument(
          "tokenizer.json: added_tokens: nothing of \"{}\" is left when "
          "normalized",
          token.content);
    }
    normalized[i] = std::string(pattern);
    RETURN_IF_ERROR(added_in_normalized_.Add(pattern, token));
  }
  BuildDecoding(normalized, special);
  return OkStatus();
}

void TokenizerImpl::BuildDecoding(const std::vector<std::string>& normalized,
                                  const std::set<std::string_view>& special) {
  decodes_bytes_ = IsByteLevelOnly(decoder_);
  const auto size = static_cast<size_t>(vocabulary_->size());
  bytes_.Reserve(size, 0);
  decoder_inputs_.Reserve(size, 0);
  skipped_.resize(size);
  size_t next_added = 0;
  for (size_t id = 0; id < size; ++id) {
    std::string_view token = vocabulary_->tokens()[id];
    if (next_added < added_tokens_.size() &&
        added_tokens_[next_added].id == static_cast<int32_t>(id)) {
      token = normalized[next_added++];
      skipped_[id] = special.contains(token);
    }
    const std::string bytes = BytesOfToken(decoder_, token);
    bytes_.Add(bytes);
    decoder_inputs_.Add(decodes_bytes_ ? "" : token);
  }
}

StatusOr<std::vector<int32_t>> TokenizerImpl::Encode(
    std::string_view text, const EncodeOptions& options) const {
  if (text.size() > Tokenizer::kTextBytesMax) {
    return InvalidArgument("the text has {} bytes, more than {}", text.size(),
                           Tokenizer::kTextBytesMax);
  }
  const size_t valid = ValidUtf8Prefix(text);
  if (valid != text.size()) {
    return InvalidArgument("the text is not valid UTF-8 at byte {}", valid);
  }
  IdBuffer out;
  if (options.add_special_tokens) out.Append(prefix_ids_);
  RETURN_IF_ERROR(EncodeText(text, options, out));
  if (options.add_special_tokens) out.Append(suffix_ids_);
  if (out.size() > options.max_tokens) return TooMany(options.max_tokens);
  const std::span<const int32_t> ids = out.From(0);
  return std::vector<int32_t>(ids.begin(), ids.end());
}

Status TokenizerImpl::EncodeText(std::string_view text,
                                 const EncodeOptions& options,
                                 IdBuffer& out) const {
  return added_in_text_.Split(
      text, options.parse_special_tokens,
      [&](size_t start, size_t end, const AddedToken* token) {
        if (token != nullptr) {
          out.Push(token->id);
          return out.size() > options.max_tokens ? TooMany(options.max_tokens)
                                                 : OkStatus();
        }
        const Piece whole = {text, text.size(), true};
        return EncodeSection(whole.Part(start, end), options, out);
      });
}

Status TokenizerImpl::EncodeSection(const Piece& section,
                                    const EncodeOptions& options,
                                    IdBuffer& out) const {
  std::string storage;
  ASSIGN_OR_RETURN(const std::string_view text,
                   normalizer_->Run(section.text, storage));
  Piece normalized = section;
  if (text.data() != section.text.data() ||
      text.size() != section.text.size()) {
    // Taking white space off the start moves the text away from it.
    const bool moved =
        normalizer_->strips_start() && !section.text.empty() &&
        (FlagsOf(DecodeChar(section.text.data()).value) & kSpace) != 0;
    normalized = {text, text.size(), section.first && !moved};
  }
  return added_in_normalized_.Split(
      text, options.parse_special_tokens,
      [&](size_t start, size_t end, const AddedToken* token) {
        if (token == nullptr) {
          return EncodeWords(normalized.Part(start, end), options.max_tokens,
                             out);
        }
        out.Push(token->id);
        return OkStatus();
      });
}

Status TokenizerImpl::EncodeWords(const Piece& piece, size_t max_tokens,
                                  IdBuffer& out) const {
  return pretokenizer_->Run(piece, [&](std::span<const Piece> words) {
    model_->Encode(words, out);
    return out.size() > max_tokens ? TooMany(max_tokens) : OkStatus();
  });
}

std::string TokenizerImpl::Decode(std::span<const int32_t> ids,
                                  bool skip_special_tokens) const {
  std::string out;
  if (!decodes_bytes_) {
    DecoderPipeline pipeline(decoder_, false, out);
    for (const int32_t id : ids) {
      if (!vocabulary_->Contains(id)) continue;
      if (skip_special_tokens && IsSkipped(id)) continue;
      pipeline.Put(DecoderInput(id));
    }
    pipeline.Finish();
    return out;
  }
  std::string bytes;
  for (const int32_t id : ids) {
    if (!vocabulary_->Contains(id)) continue;
    if (skip_special_tokens && IsSkipped(id)) continue;
    bytes.append(BytesOf(id));
  }
  if (ValidUtf8Prefix(bytes) == bytes.size()) return bytes;
  AppendLossy(bytes, out);
  return out;
}

}  // namespace tidepool::model::internal
