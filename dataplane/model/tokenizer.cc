#include "dataplane/model/tokenizer.h"

#include <utility>

#include "dataplane/model/file_io.h"
#include "dataplane/model/tokenizer_impl.h"
#include "dataplane/model/tokenizer_spec.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model {

Tokenizer::Tokenizer(std::unique_ptr<const internal::TokenizerImpl> impl)
    : impl_(std::move(impl)) {}

Tokenizer::~Tokenizer() = default;

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string json,
                   ReadSmallFile(path, internal::kFileBytesMax));
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Parse(json);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path);
  return tokenizer;
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view json) {
  ASSIGN_OR_RETURN(auto impl, internal::TokenizerImpl::Create(json));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

StatusOr<std::vector<int32_t>> Tokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  return impl_->Encode(text, options);
}

std::string Tokenizer::Decode(std::span<const int32_t> ids,
                              bool skip_special_tokens) const {
  return impl_->Decode(ids, skip_special_tokens);
}

int32_t Tokenizer::vocab_size() const { return impl_->vocabulary().size(); }

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  return impl_->vocabulary().Find(token);
}

std::string_view Tokenizer::IdToToken(int32_t id) const {
  if (!impl_->vocabulary().Contains(id)) return {};
  return impl_->vocabulary().tokens()[static_cast<size_t>(id)];
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (!impl_->vocabulary().Contains(id)) return {};
  return impl_->BytesOf(id);
}

std::string Tokenizer::TokenText(int32_t id) const {
  std::string text;
  internal::AppendLossy(TokenBytes(id), text);
  return text;
}

bool Tokenizer::IsSpecial(int32_t id) const { return impl_->IsSpecial(id); }

std::span<const AddedToken> Tokenizer::added_tokens() const {
  return impl_->added_tokens();
}

const Sha256Digest& Tokenizer::digest() const { return impl_->digest(); }

}  // namespace tidepool::model
