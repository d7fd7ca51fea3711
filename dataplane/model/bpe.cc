#include "dataplane/model/bpe.h"

#include <algorithm>
#include <cstring>

#include "dataplane/model/bpe_bytes.h"
#include "dataplane/model/bpe_merge.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

constexpr size_t kCacheEntriesLog2 = 16;  // 4 MiB
constexpr std::string_view kMetaspace = "\u2581";

std::string ByteToken(unsigned byte) { return fmt::format("<0x{:02X}>", byte); }

// Where a metaspace that follows something else begins, from `from` on; npos
// if nowhere.
size_t FindMetaspaceStart(std::string_view word, size_t from) {
  for (size_t at = word.find(kMetaspace, from); at != std::string_view::npos;
       at = word.find(kMetaspace, at + kMetaspace.size())) {
    if (at > 0 && !word.substr(0, at).ends_with(kMetaspace)) return at;
  }
  return std::string_view::npos;
}

}  // namespace

void IdBuffer::Append(std::span<const int32_t> ids) {
  std::ranges::copy(ids, Room(ids.size()));
  Advance(ids.size());
}

void IdBuffer::Grow(size_t count) {
  capacity_ = std::max({2 * capacity_, size_ + count, size_t{256}});
  auto ids = std::make_unique_for_overwrite<int32_t[]>(capacity_);
  std::copy_n(ids_.get(), size_, ids.get());
  ids_ = std::move(ids);
}

StatusOr<std::unique_ptr<BpeModel>> BpeModel::Create(
    const BpeSpec& spec, const Vocabulary& vocabulary, WordForm form) {
  std::unique_ptr<BpeModel> model(new BpeModel(spec, vocabulary, form));
  model->BuildWords(vocabulary);
  RETURN_IF_ERROR(model->BuildMerges(spec, vocabulary));
  if (spec.unk_token.has_value()) {
    model->unk_id_ = vocabulary.Find(*spec.unk_token);
    if (!model->unk_id_.has_value() || !vocabulary.InModel(*model->unk_id_)) {
      return InvalidArgument(
          "tokenizer.json: model.unk_token: \"{}\" is not in model.vocab",
          *spec.unk_token);
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::optional<int32_t> id = vocabulary.Find(ByteToken(byte));
    model->byte_tokens_[byte] =
        id.has_value() && vocabulary.InModel(*id) ? *id : -1;
  }
  model->BuildUnits();
  model->cut_at_metaspaces_ = model->MetaspaceStartsWords(spec);
  return model;
}

BpeModel::BpeModel(const BpeSpec& spec, const Vocabulary& vocabulary,
                   WordForm form)
    : form_(form),
      ignore_merges_(spec.ignore_merges),
      byte_fallback_(spec.byte_fallback),
      fuse_unk_(spec.fuse_unk),
      word_index_(words_, static_cast<size_t>(vocabulary.size())),
      merges_(spec.merges.size()),
      cache_(kCacheEntriesLog2) {}

void BpeModel::BuildWords(const Vocabulary& vocabulary) {
  words_.Reserve(static_cast<size_t>(vocabulary.size()), 0);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.tokens()[static_cast<size_t>(id)];
    if (form_ == WordForm::kText) {
      words_.Add(token);
      if (vocabulary.InModel(id)) word_index_.Add(id);
      continue;
    }
    const std::optional<std::string> bytes = ByteLevelBytes(token);
    words_.Add(bytes.value_or(""));
    if (bytes.has_value() && vocabulary.InModel(id)) word_index_.Add(id);
  }
}

Status BpeModel::BuildMerges(const BpeSpec& spec,
                             const Vocabulary& vocabulary) {
  const auto find = [&](std::string_view token,
                        size_t index) -> StatusOr<int32_t> {
    const std::optional<int32_t> id = vocabulary.Find(token);
    if (id.has_value() && vocabulary.InModel(*id)) return *id;
    return InvalidArgument(
        "tokenizer.json: model.merges[{}]: \"{}\" is not in model.vocab", index,
        token);
  };
  std::string joined;
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    // A merge that does not make a token longer could go on for ever.
    if (left.empty() || right.empty()) {
      return InvalidArgument(
          "tokenizer.json: model.merges[{}]: has an empty token", i);
    }
    ASSIGN_OR_RETURN(const int32_t left_id, find(left, i));
    ASSIGN_OR_RETURN(const int32_t right_id, find(right, i));
    joined.assign(left).append(right);
    ASSIGN_OR_RETURN(const int32_t joined_id, find(joined, i));
    if (!merges_.Add(left_id, right_id,
                     {static_cast<uint32_t>(i), joined_id})) {
      return InvalidArgument(
          "tokenizer.json: model.merges[{}]: \"{}\" and \"{}\" were merged "
          "before",
          i, left, right);
    }
  }
  return OkStatus();
}

void BpeModel::BuildUnits() {
  units_plain_ = form_ == WordForm::kBytes;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string spelling;
    if (form_ == WordForm::kBytes) {
      AppendUtf8(ByteLevelChar(static_cast<uint8_t>(byte)), spelling);
    } else if (byte < 0x80) {
      spelling.push_back(static_cast<char>(byte));
    } else {
      break;
    }
    units_[byte] = ResolveUnit(spelling);
    if (units_[byte].count != 1 || units_[byte].fallback) units_plain_ = false;
  }
}

bool BpeModel::MetaspaceStartsWords(const BpeSpec& spec) const {
  // With ignore_merges a word is looked up whole first.
  if (form_ != WordForm::kText || ignore_merges_) return false;
  if (!word_index_.Find(kMetaspace).has_value()) return false;
  if (spec.unk_token.value_or("").ends_with(kMetaspace)) return false;
  return std::ranges::none_of(spec.merges, [](const auto& merge) {
    const auto& [left, right] = merge;
    return right.starts_with(kMetaspace) && !left.ends_with(kMetaspace);
  });
}

BpeModel::Unit BpeModel::ResolveUnit(std::string_view spelling) const {
  Unit unit;
  const std::optional<int32_t> id =
      form_ == WordForm::kText
          ? word_index_.Find(spelling)
          : word_index_.Find(ByteLevelBytes(spelling).value_or(""));
  if (id.has_value()) {
    unit.ids[0] = *id;
    unit.count = 1;
    return unit;
  }
  if (!byte_fallback_) return unit;
  for (size_t i = 0; i < spelling.size(); ++i) {
    unit.ids[i] = byte_tokens_[static_cast<unsigned char>(spelling[i])];
    if (unit.ids[i] < 0) return Unit();
  }
  unit.count = static_cast<uint8_t>(spelling.size());
  unit.fallback = true;
  return unit;
}

void BpeModel::Encode(std::span<const Piece> words, IdBuffer& out) const {
  if (!cut_at_metaspaces_) {
    EncodeBatch(words, out);
    return;
  }
  std::array<Piece, kPieceBatch> batch;
  size_t count = 0;
  for (const Piece& word : words) {
    for (size_t start = 0; start < word.text.size();) {
      const size_t end =
          std::min(FindMetaspaceStart(word.text, start + 1), word.text.size());
      batch[count++] = word.Part(start, end);
      start = end;
      if (count < kPieceBatch) continue;
      EncodeBatch(batch, out);
      count = 0;
    }
  }
  EncodeBatch(std::span(batch).first(count), out);
}

void BpeModel::EncodeBatch(std::span<const Piece> words, IdBuffer& out) const {
  std::array<CacheKey, kPieceBatch> keys;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].text.size() > CacheKey::kBytesMax) continue;
    keys[i] = CacheKey(words[i].text, words[i].readable);
    cache_.Prefetch(keys[i]);
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].text.size() > CacheKey::kBytesMax) {
      EncodeUncached(words[i].text, out);
    } else {
      EncodeByKey(keys[i], words[i].text, out);
    }
  }
}

void BpeModel::EncodeByKey(const CacheKey& key, std::string_view word,
                           IdBuffer& out) const {
  const size_t found = cache_.Find(key, out.Room(WordCache::kIdsMax));
  if (found != 0) {
    out.Advance(found);
    return;
  }
  const size_t start = out.size();
  EncodeUncached(word, out);
  const std::span<const int32_t> ids = out.From(start);
  if (!ids.empty() && ids.size() <= WordCache::kIdsMax) cache_.Insert(key, ids);
}

void BpeModel::EncodeUncached(std::string_view word, IdBuffer& out) const {
  if (ignore_merges_) {
    if (const std::optional<int32_t> id = word_index_.Find(word)) {
      out.Push(*id);
      return;
    }
  }
  const size_t start = out.size();
  AppendUnits(word, out);
  out.Truncate(start + MergeAll(merges_, out.From(start)));
}

void BpeModel::AppendUnits(std::string_view word, IdBuffer& out) const {
  if (units_plain_) {
    int32_t* at = out.Room(word.size());
    for (const char byte : word) {
      *at++ = units_[static_cast<unsigned char>(byte)].ids[0];
    }
    out.Advance(word.size());
    return;
  }
  bool pending = false;  // an unk token that may still grow
  for (size_t at = 0; at < word.size();) {
    const auto byte = static_cast<unsigned char>(word[at]);
    Unit resolved;
    const Unit* unit = &units_[byte];
    size_t length = 1;
    if (form_ == WordForm::kText && byte >= 0x80) {
      length = DecodeChar(word.data() + at).bytes;
      resolved = ResolveUnit(word.substr(at, length));
      unit = &resolved;
    }
    at += length;
    if (unit->count == 0) {
      if (!unk_id_.has_value()) continue;
      if (pending && !fuse_unk_) out.Push(*unk_id_);
      pending = true;
      continue;
    }
    // Bytes of a fallback do not end a pending unk token: it then comes after
    // them, as in Hugging Face's library.
    if (pending && !unit->fallback) {
      out.Push(*unk_id_);
      pending = false;
    }
    out.Append(std::span(unit->ids).first(unit->count));
  }
  if (pending) out.Push(*unk_id_);
}

}  // namespace tidepool::model::internal
