#include "dataplane/model/detokenizer_stages.h"

#include <algorithm>
#include <utility>

#include "dataplane/model/bpe_bytes.h"
#include "dataplane/model/unicode.h"

namespace tidepool::model::internal {
namespace {

constexpr std::string_view kReplacementText = "\uFFFD";

std::string ReplaceAll(std::string_view text, std::string_view from,
                       std::string_view to) {
  std::string out;
  size_t at = 0;
  while (true) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

class OutputStage : public DecoderStage {
 public:
  explicit OutputStage(std::string& out) : out_(out) {}
  void Put(std::string_view chunk, bool) override { out_.append(chunk); }
  void Finish() override {}

 private:
  std::string& out_;
};

// Without a decoder tokens are joined with spaces.
class SpacedOutputStage : public DecoderStage {
 public:
  explicit SpacedOutputStage(std::string& out) : out_(out) {}
  void Put(std::string_view chunk, bool) override {
    if (!std::exchange(first_, false)) out_.push_back(' ');
    out_.append(chunk);
  }
  void Finish() override { first_ = true; }

 private:
  std::string& out_;
  bool first_ = true;
};

class ByteLevelStage : public DecoderStage {
 public:
  ByteLevelStage(bool tokens_are_bytes, DecoderStage& next)
      : tokens_are_bytes_(tokens_are_bytes), next_(next) {}

  void Put(std::string_view chunk, bool end) override {
    if (tokens_are_bytes_) {
      AddBytes(chunk);
      return;
    }
    // Whether a token is spelled in the alphabet shows only as a whole.
    token_.append(chunk);
    if (!end) return;
    AddBytes(ByteLevelBytes(token_).value_or(token_));
    token_.clear();
  }

  void Finish() override {
    std::string text;
    AppendLossy(pending_, text);
    pending_.clear();
    next_.Put(text, true);
    next_.Finish();
  }

 private:
  void AddBytes(std::string_view bytes) {
    pending_.append(bytes);
    const size_t certain = pending_.size() - IncompleteSuffixBytes(pending_);
    if (certain == 0) return;
    std::string text;
    AppendLossy(std::string_view(pending_).substr(0, certain), text);
    pending_.erase(0, certain);
    next_.Put(text, false);
  }

  const bool tokens_are_bytes_;
  std::string token_;
  std::string pending_;  // the start of a character
  DecoderStage& next_;
};

class ByteFallbackStage : public DecoderStage {
 public:
  explicit ByteFallbackStage(DecoderStage& next) : next_(next) {}

  void Put(std::string_view chunk, bool) override {
    if (const auto byte = ByteFallbackByte(chunk)) {
      run_.push_back(static_cast<char>(*byte));
      return;
    }
    FlushRun();
    next_.Put(chunk, true);
  }

  void Finish() override {
    FlushRun();
    next_.Finish();
  }

 private:
  // One wrong byte makes all of them wrong.
  void FlushRun() {
    if (run_.empty()) return;
    if (ValidUtf8Prefix(run_) == run_.size()) {
      next_.Put(run_, true);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) {
        next_.Put(kReplacementText, true);
      }
    }
    run_.clear();
  }

  std::string run_;
  DecoderStage& next_;
};

class FuseStage : public DecoderStage {
 public:
  explicit FuseStage(DecoderStage& next) : next_(next) {}
  void Put(std::string_view chunk, bool) override { next_.Put(chunk, false); }
  void Finish() override {
    next_.Put("", true);
    next_.Finish();
  }

 private:
  DecoderStage& next_;
};

class ReplaceStage : public DecoderStage {
 public:
  ReplaceStage(const ReplaceDecoder& step, DecoderStage& next)
      : step_(step), next_(next) {}

  void Put(std::string_view chunk, bool end) override {
    held_.append(chunk);
    std::string out;
    size_t at = 0;
    for (size_t found = held_.find(step_.from); found != std::string::npos;
         found = held_.find(step_.from, at)) {
      out.append(held_, at, found - at).append(step_.to);
      at = found + step_.from.size();
    }
    // What may be the start of another match waits for the next chunk.
    const std::string_view rest = std::string_view(held_).substr(at);
    size_t keep = end ? 0 : std::min(rest.size(), step_.from.size() - 1);
    while (keep > 0 &&
           !step_.from.starts_with(rest.substr(rest.size() - keep))) {
      --keep;
    }
    out.append(rest.substr(0, rest.size() - keep));
    held_ = std::string(rest.substr(rest.size() - keep));
    if (end || !out.empty()) next_.Put(out, end);
  }

  void Finish() override { next_.Finish(); }

 private:
  const ReplaceDecoder& step_;
  std::string held_;
  DecoderStage& next_;
};

// Takes up to `start` and `stop` of a character off both ends of each token.
class StripStage : public DecoderStage {
 public:
  StripStage(const StripDecoder& step, DecoderStage& next)
      : step_(step), next_(next) {}

  void Put(std::string_view chunk, bool end) override {
    while (stripped_ < step_.start && chunk.starts_with(step_.content)) {
      chunk.remove_prefix(step_.content.size());
      ++stripped_;
    }
    if (!chunk.empty()) stripped_ = step_.start;
    std::string text = Repeated(held_);
    text.append(chunk);
    held_ = 0;
    while (held_ < step_.stop && text.ends_with(step_.content)) {
      text.resize(text.size() - step_.content.size());
      ++held_;
    }
    if (end) stripped_ = held_ = 0;
    if (end || !text.empty()) next_.Put(text, end);
  }

  void Finish() override { next_.Finish(); }

 private:
  std::string Repeated(size_t count) const {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += step_.content;
    return text;
  }

  const StripDecoder& step_;
  size_t stripped_ = 0;  // from the start of this token
  size_t held_ = 0;      // characters that are its end, for all we know
  DecoderStage& next_;
};

class MetaspaceStage : public DecoderStage {
 public:
  MetaspaceStage(const MetaspaceDecoder& step, DecoderStage& next)
      : step_(step), next_(next) {}

  void Put(std::string_view chunk, bool end) override {
    const bool drop = first_ && step_.drop_in_first_token;
    next_.Put(ReplaceAll(chunk, step_.replacement, drop ? "" : " "), end);
    if (end) first_ = false;
  }

  void Finish() override {
    first_ = true;
    next_.Finish();
  }

 private:
  const MetaspaceDecoder& step_;
  bool first_ = true;
  DecoderStage& next_;
};

bool Fuses(const DecoderStep& step) {
  return std::holds_alternative<FuseDecoder>(step) ||
         std::holds_alternative<ByteLevelDecoder>(step);
}

std::unique_ptr<DecoderStage> MakeStage(const DecoderStep& step,
                                        bool tokens_are_bytes,
                                        DecoderStage& next) {
  if (std::holds_alternative<ByteLevelDecoder>(step)) {
    return std::make_unique<ByteLevelStage>(tokens_are_bytes, next);
  }
  if (std::holds_alternative<ByteFallbackDecoder>(step)) {
    return std::make_unique<ByteFallbackStage>(next);
  }
  if (std::holds_alternative<FuseDecoder>(step)) {
    return std::make_unique<FuseStage>(next);
  }
  if (const auto* replace = std::get_if<ReplaceDecoder>(&step)) {
    return std::make_unique<ReplaceStage>(*replace, next);
  }
  if (const auto* strip = std::get_if<StripDecoder>(&step)) {
    return std::make_unique<StripStage>(*strip, next);
  }
  return std::make_unique<MetaspaceStage>(std::get<MetaspaceDecoder>(step),
                                          next);
}

}  // namespace

Status CheckDecoder(const DecoderSteps& steps) {
  if (!steps.has_value()) return OkStatus();
  bool fused = false;
  for (const DecoderStep& step : *steps) {
    const bool by_token = std::holds_alternative<ByteFallbackDecoder>(step) ||
                          std::holds_alternative<ByteLevelDecoder>(step);
    if (fused && by_token) {
      return Unimplemented(
          "tokenizer.json: decoder: ByteFallback or ByteLevel after tokens "
          "were joined is not supported");
    }
    fused |= Fuses(step);
  }
  return OkStatus();
}

bool IsByteLevelOnly(const DecoderSteps& steps) {
  return steps.has_value() && steps->size() == 1 &&
         std::holds_alternative<ByteLevelDecoder>(steps->front());
}

std::string BytesOfToken(const DecoderSteps& steps, std::string_view token) {
  std::string text(token);
  if (!steps.has_value()) return text;
  bool fused = false;
  for (const DecoderStep& step : *steps) {
    if (std::holds_alternative<ByteLevelDecoder>(step)) {
      text = ByteLevelBytes(text).value_or(text);
    } else if (std::holds_alternative<ByteFallbackDecoder>(step)) {
      if (const auto byte = ByteFallbackByte(text)) {
        text = std::string(1, static_cast<char>(*byte));
      }
    } else if (const auto* replace = std::get_if<ReplaceDecoder>(&step)) {
      text = ReplaceAll(text, replace->from, replace->to);
    } else if (const auto* metaspace = std::get_if<MetaspaceDecoder>(&step)) {
      text = ReplaceAll(text, metaspace->replacement, " ");
    } else if (const auto* strip = std::get_if<StripDecoder>(&step)) {
      // On joined tokens it concerns only the ends of the text.
      if (fused) continue;
      std::string stripped;
      OutputStage output(stripped);
      StripStage(*strip, output).Put(text, true);
      text = std::move(stripped);
    }
    fused |= Fuses(step);
  }
  return text;
}

DecoderPipeline::DecoderPipeline(const DecoderSteps& steps,
                                 bool tokens_are_bytes, std::string& out) {
  if (!steps.has_value()) {
    stages_.push_back(std::make_unique<SpacedOutputStage>(out));
    return;
  }
  stages_.push_back(std::make_unique<OutputStage>(out));
  for (size_t i = steps->size(); i-- > 0;) {
    stages_.push_back(
        MakeStage((*steps)[i], tokens_are_bytes && i == 0, *stages_.back()));
  }
}

}  // namespace tidepool::model::internal
